"""The hyper-parameters and options of the built-in algorithms, each declared once.

Help, checks, search bounds and the algorithms' own defaults all read these two tables. A hyper-parameter is a number
that can be tuned while an agent learns; an option is fixed for a run. Nothing here imports JAX.
"""

import math
from typing import Any, Literal, NamedTuple


class HyperParameter(NamedTuple):
    """A number that an algorithm reads at every update, and that can be tuned.

    `default` is None where it depends on the task. `low` and `high` are the values it can take at all. `usual` are the
    bounds of a search that gives none. `whole`: only whole numbers make sense. `algorithms`: who has it; empty: all.
    """

    help: str
    default: float | None
    low: float = -math.inf
    high: float = math.inf
    usual: tuple[float, float] | None = None
    whole: bool = False
    algorithms: tuple[str, ...] = ()


class Option(NamedTuple):
    """A property of an algorithm that is fixed for a run; `low` and `high` bound its numbers."""

    help: str
    kind: Any  # its type, as `settings.convert` reads it
    default: Any
    low: float = -math.inf
    high: float = math.inf
    algorithms: tuple[str, ...] = ()


REPLAY_RATIO = HyperParameter("gradient steps of an agent for each env step", None, 0)  # no algorithm has it itself
LEARNING_RATE = (1e-6, 1e-1)  # usual search bounds of every name that ends in _lr
NETWORKS = ("td3", "ddpg", "sac")  # the algorithms that have an actor and critics

# Outside of the usual bounds the algorithms rarely learn; a search that should go further gives its own.
HYPER_PARAMETERS: dict[str, HyperParameter] = {
    "n_step": HyperParameter("rewards summed before the target bootstraps", 1, 1, 1000, usual=(1, 10), whole=True),
    # 1 would bootstrap for ever in tasks that never terminate
    "gamma": HyperParameter("discount of future rewards", 0.99, 0.0, 1.0, usual=(0.9, 0.9999)),
    "recency": HyperParameter(
        "how much minibatches favour new transitions; 1: all alike, r: each is the newest of r",
        default=1.0,
        low=1.0,
        high=1000.0,
        usual=(1.0, 10.0),
        algorithms=NETWORKS,
    ),
    "tau": HyperParameter(
        "share of the online weights that enters the target networks at each step (1 - polyak)",
        default=0.005,
        low=0.0,
        high=1.0,
        usual=(1e-4, 1.0),
        algorithms=NETWORKS,
    ),
    "actor_lr": HyperParameter("learning rate of the actor", 1e-3, 0.0, 1e6, LEARNING_RATE, algorithms=NETWORKS),
    "critic_lr": HyperParameter("learning rate of the critics", 1e-3, 0.0, 1e6, LEARNING_RATE, algorithms=NETWORKS),
    "exploration_noise": HyperParameter(
        "standard deviation of the noise on actions while training",
        default=0.1,
        low=0.0,
        high=10.0,
        usual=(0.0, 1.0),
        algorithms=("td3", "ddpg"),
    ),
    "target_noise": HyperParameter(
        "standard deviation of the noise on the target action",
        default=0.2,
        low=0.0,
        high=10.0,
        usual=(0.0, 1.0),
        algorithms=("td3",),
    ),
    "noise_clip": HyperParameter(
        "largest noise on the target action",
        default=0.5,
        low=0.0,
        high=10.0,
        usual=(0.0, 2.0),
        algorithms=("td3",),
    ),
    "alpha": HyperParameter(
        "fixed entropy temperature",
        default=0.2,  # where it is tuned and not given
        low=0.0,
        high=100.0,
        usual=(1e-4, 10.0),
        algorithms=("sac",),
    ),
    "alpha_lr": HyperParameter(
        "learning rate of the learned temperature",
        default=1e-3,
        low=0.0,
        high=1e6,
        usual=LEARNING_RATE,
        algorithms=("sac",),
    ),
    "target_entropy": HyperParameter(
        "entropy that the learned temperature aims at (default: minus the number of actions)",
        default=None,
        low=-1000.0,
        high=1000.0,
        algorithms=("sac",),
    ),
}

OPTIONS: dict[str, Option] = {
    "hidden": Option(
        "units of the hidden layers of actor and critics",
        kind=tuple[int, ...],
        default=(300, 300),
        low=1,
        high=100_000,
        algorithms=NETWORKS,
    ),
    "activation": Option(
        "activation function of the hidden layers: relu, tanh, elu, gelu or silu",
        kind=Literal["relu", "tanh", "elu", "gelu", "silu"],
        default="relu",
        algorithms=NETWORKS,
    ),
    "layer_norm": Option(
        "whether each hidden layer is normalised (layer normalisation, before the activation)",
        kind=bool,
        default=False,
        algorithms=NETWORKS,
    ),
    "policy_delay": Option("critic steps for each actor step", int, 2, low=1, high=100, algorithms=("td3",)),
    "alpha": Option(
        "fixed entropy temperature, 0.2 in the paper (default: learned)",
        kind=float | None,
        default=None,
        low=HYPER_PARAMETERS["alpha"].low,
        high=HYPER_PARAMETERS["alpha"].high,
        algorithms=("sac",),
    ),
}


def find(name: str) -> HyperParameter:
    """The declaration of a hyper-parameter; that of a user's own algorithm has no bounds, unless it ends in _lr."""
    if name == "replay_ratio":
        return REPLAY_RATIO
    usual = LEARNING_RATE if name.endswith("_lr") else None
    return HYPER_PARAMETERS.get(name) or HyperParameter("", None, usual=usual)


def defaults(*names: str) -> dict[str, float]:
    """The declared defaults of these hyper-parameters; one that depends on the task has none."""
    found = {name: HYPER_PARAMETERS[name].default for name in names}
    return {name: default for name, default in found.items() if default is not None}


def owners(name: str) -> tuple[str, ...]:
    """The built-in algorithms that have this hyper-parameter or option; empty: all, or it is unknown."""
    declared = OPTIONS.get(name) or HYPER_PARAMETERS.get(name)
    return declared.algorithms if declared else ()
