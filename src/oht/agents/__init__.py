"""The algorithms by name. Each is a factory: (spec, options) -> Algorithm."""

from collections.abc import Callable
from inspect import signature

from oht import errors
from oht.agents.api import Algorithm, Spec
from oht.agents.ddpg import ddpg
from oht.agents.sac import sac
from oht.agents.td3 import td3

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"td3": td3, "ddpg": ddpg, "sac": sac}


def options_of(name: str) -> dict[str, object]:
    """The options of an algorithm that are fixed for a run, with their defaults."""
    if name not in ALGORITHMS:
        raise errors.unknown("algorithm", name, ALGORITHMS)
    return {p.name: p.default for p in signature(ALGORITHMS[name]).parameters.values() if p.kind == p.KEYWORD_ONLY}


def make(name: str, spec: Spec, **options) -> Algorithm:
    """The algorithm of that name, for example make("td3", spec, hidden=(64, 64), policy_delay=3)."""
    known = options_of(name)
    for option in options:
        if option not in known:
            raise errors.unknown(f"option of {name}", option, known)
    return ALGORITHMS[name](spec, **options)
