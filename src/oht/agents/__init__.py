"""The algorithms by name. Each is a factory: (spec, options) -> Algorithm."""

from collections.abc import Callable
from inspect import signature

from oht import errors
from oht.agents.ddpg import ddpg
from oht.agents.sac import sac
from oht.agents.td3 import td3
from oht.agents.uniform import uniform
from oht.types import Algorithm, Spec

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"td3": td3, "ddpg": ddpg, "sac": sac, "uniform": uniform}


def factory(name: str) -> Callable[..., Algorithm]:
    if name not in ALGORITHMS:
        raise errors.unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def options_of(factory: Callable[..., Algorithm]) -> dict[str, object]:
    """The options of an algorithm that are fixed for a run, with their defaults."""
    return {p.name: p.default for p in signature(factory).parameters.values() if p.kind == p.KEYWORD_ONLY}


def make(name: str, spec: Spec, **options: object) -> Algorithm:
    """The algorithm of that name, for example make("td3", spec, hidden=(64, 64), policy_delay=3)."""
    return factory(name)(spec, **options)
