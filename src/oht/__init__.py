"""Off-policy reinforcement learning that tunes its hyper-parameters while it learns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oht.api import Policy, Run, load, resume, train
    from oht.asktell import AskTell
    from oht.callbacks import Callback
    from oht.errors import UserError
    from oht.experiments.many_seeds import train_seeds
    from oht.policies import SavedPolicy, load_policy
    from oht.spaces import Choice, Float, Int, LogFloat
    from oht.types import Algorithm, Batch, Clock, Method, Outcome, Proposal, Spec, Tuner

__all__ = [
    "Algorithm",
    "AskTell",
    "Batch",
    "Callback",
    "Choice",
    "Clock",
    "Float",
    "Int",
    "LogFloat",
    "Method",
    "Outcome",
    "Policy",
    "Proposal",
    "Run",
    "SavedPolicy",
    "Spec",
    "Tuner",
    "UserError",
    "load",
    "load_policy",
    "resume",
    "train",
    "train_seeds",
]

_HOMES = {
    "oht.asktell": ("AskTell",),
    "oht.api": ("Policy", "Run", "load", "resume", "train"),
    "oht.callbacks": ("Callback",),
    "oht.errors": ("UserError",),
    "oht.experiments.many_seeds": ("train_seeds",),
    "oht.policies": ("SavedPolicy", "load_policy"),
    "oht.spaces": ("Choice", "Float", "Int", "LogFloat"),
    "oht.types": ("Algorithm", "Batch", "Clock", "Method", "Outcome", "Proposal", "Spec", "Tuner"),
}


def __getattr__(name: str) -> Any:
    """Import each name when it is first used: env workers and `oht tasks` need no JAX."""
    if name == "__version__":
        return import_module("importlib.metadata").version("oht")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'oht' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
