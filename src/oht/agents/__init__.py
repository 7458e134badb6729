"""The algorithms by name. Each is a factory: (spec, options) -> Algorithm."""

from collections.abc import Callable
from inspect import signature

from oht import errors
from oht.agents.api import Algorithm, Spec
from oht.agents.ddpg import ddpg
from oht.agents.normalise import normalised
from oht.agents.sac import sac
from oht.agents.td3 import td3

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"td3": td3, "ddpg": ddpg, "sac": sac}


def options_of(name: str) -> dict[str, object]:
    """What can be chosen about an algorithm before a run, with the defaults; what can be tuned is its `hyper`."""
    if name not in ALGORITHMS:
        raise errors.unknown("algorithm", name, ALGORITHMS)
    factory = signature(ALGORITHMS[name]).parameters.values()
    return {option.name: option.default for option in factory if option.kind == option.KEYWORD_ONLY}


def make(name: str, spec: Spec, *, normalise: bool = False, **options) -> Algorithm:
    """The algorithm of that name, for example make("td3", spec, hidden=(64, 64), policy_delay=3).

    With `normalise` it learns from observations that are standardised by their running moments.
    """
    known = options_of(name)
    for option in options:
        if option not in known:
            raise errors.unknown(f"option of {name}", option, [*known, "normalise"])
    algorithm = ALGORITHMS[name](spec, **options)
    return normalised(algorithm, spec) if normalise else algorithm
