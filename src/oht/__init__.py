"""Off-policy learning that tunes its own hyper-parameters while it learns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oht.api import Policy, Run, load, resume, train
    from oht.asktell import AskTell
    from oht.errors import UserError
    from oht.spaces import Choice, Float, Int, LogFloat
    from oht.types import Algorithm, Batch, Clock, Method, Outcome, Proposal, Spec, Tuner

__all__ = [
    "Algorithm",
    "AskTell",
    "Batch",
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
    "Spec",
    "Tuner",
    "UserError",
    "load",
    "resume",
    "train",
]

_HOMES = {
    "oht.asktell": ("AskTell",),
    "oht.api": ("Policy", "Run", "load", "resume", "train"),
    "oht.errors": ("UserError",),
    "oht.spaces": ("Choice", "Float", "Int", "LogFloat"),
    "oht.types": ("Algorithm", "Batch", "Clock", "Method", "Outcome", "Proposal", "Spec", "Tuner"),
}


def __getattr__(name: str) -> Any:
    """Each name is loaded when first used: env workers and `oht tasks` need no JAX."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'oht' has no attribute {name!r}")
