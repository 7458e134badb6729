"""Which reading of the paper the settings of a method are: for titles, captions and the notes of tables.

The paper leaves points open (docs/paper.md); a figure must say what was trained.
"""

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]
LEARNING_RATES = {"actor_lr", "critic_lr", "actor_lr+critic_lr"}
PAPERS_BETA = 0.02  # of the logits


def title(values: Settings) -> str | None:
    """How figures call one of the paper's two methods, with the reading if it is not our default; None for others."""
    tuned = set(values["tune"]) if isinstance(values.get("tune"), Mapping) else set()
    match values.get("method"):
        case "oht-nstep":
            name = "OHT-ES, n-step" if tuned <= {"n_step"} else "OHT-ES, discrete"
        case "oht-lr":
            name = "OHT-ES, learning rates" if tuned <= LEARNING_RATES else "OHT-ES, continuous"
        case _:
            return None
    rule = ", Eqn (3)" if values.get("search") == "es" else ""
    return f"{name}{rule}, paper's reading" if _literal(values) else f"{name}{rule}"


def sentence(values: Settings) -> str | None:
    """What of the paper is trained, and what is added to it; None where there is nothing to choose."""
    match values.get("method", "static"):
        case "oht-nstep":
            trained = "only the arm that plays trains" if values.get("train") == "played" else "all arms train"
            beta = values.get("beta")
            rate = "beta is 0.02 in 10^7 steps and larger in fewer" if beta is None else f"beta is {beta}"
            return f"Eqn (4), {trained}, {rate}, {_added(values)}"
        case "oht-lr":
            rule = "Eqn (3) of the main text" if values.get("search") == "es" else "CEM of the appendix"
            fork = values.get("members") == "fork"
            members = "members fork from the main agent" if fork else "members persist"
            return f"{rule}, {members}, {_added(values)}"
        case "meta-gradient":
            return "Eqn (1), with the updated critic in the actor's step"
        case "static" if values.get("algo") == "sac":
            alpha = values.get("alpha")
            return "learned temperature" if alpha is None else f"temperature fixed at {alpha}"
    return None


def sentences(titles: Mapping[str, str], settings: Mapping[str, Settings]) -> list[str]:
    """A sentence for each label that has one."""
    found = {label: sentence(values) for label, values in settings.items()}
    return [f"{titles[label]}: {text}." for label, text in found.items() if text]


def _added(values: Settings) -> str:
    kept = _false(values.get("unstick"))
    return "nothing is added to the paper" if kept else "saturated agents are replaced, which the paper does not do"


def _literal(values: Settings) -> bool:
    """Nothing added, and the paper's own step size where the method is that of the logits."""
    beta = values.get("beta")
    papers = values["method"] == "oht-lr" or (beta is not None and float(beta) == PAPERS_BETA)
    return _false(values.get("unstick")) and papers


def _false(value: Any) -> bool:
    return str(value).lower() in ("false", "no", "0")
