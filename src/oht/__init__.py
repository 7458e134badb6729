"""Off-policy reinforcement learning that tunes its hyper-parameters while it learns."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oht.agents.api import Algorithm, Batch, Spec
    from oht.api import Policy, Run, load, resume, train
    from oht.errors import UserError
    from oht.policies import SavedPolicy, load_policy
    from oht.spaces import Choice, Float, Int, LogFloat
    from oht.tuners import Method
    from oht.tuners.api import Proposal, Tuner

__all__ = [
    "Algorithm",
    "Batch",
    "Choice",
    "Float",
    "Int",
    "LogFloat",
    "Method",
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
]

_HOMES = {
    "oht.agents.api": ("Algorithm", "Batch", "Spec"),
    "oht.api": ("Policy", "Run", "load", "resume", "train"),
    "oht.errors": ("UserError",),
    "oht.policies": ("SavedPolicy", "load_policy"),
    "oht.spaces": ("Choice", "Float", "Int", "LogFloat"),
    "oht.tuners": ("Method",),
    "oht.tuners.api": ("Proposal", "Tuner"),
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
