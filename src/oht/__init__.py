"""Off-policy learning that tunes its own hyper-parameters while it learns."""

from oht.agents.api import Algorithm, Batch, Spec
from oht.api import Policy, Run, load, resume, train
from oht.errors import UserError
from oht.spaces import Choice, Float, Int, LogFloat

__all__ = [
    "Algorithm",
    "Batch",
    "Choice",
    "Float",
    "Int",
    "LogFloat",
    "Policy",
    "Run",
    "Spec",
    "UserError",
    "load",
    "resume",
    "train",
]
