"""The algorithms by name. Each is a factory: (spec, options) -> Algorithm."""

from collections.abc import Callable, Mapping
from inspect import signature

from oht import errors, lookup, settings
from oht.agents.ddpg import ddpg
from oht.agents.sac import sac
from oht.agents.td3 import td3
from oht.agents.uniform import uniform
from oht.errors import UserError
from oht.types import Algorithm, Spec

FACTORY = "an algorithm is a function (spec, *, options) that returns an oht.Algorithm."

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {"td3": td3, "ddpg": ddpg, "sac": sac, "uniform": uniform}


def factory(name: str) -> Callable[..., Algorithm]:
    """One of these, or a user's own by `module:name`."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise errors.unknown("algorithm", name, ALGORITHMS)
    found: Callable[..., Algorithm] = lookup.find("algorithm", name)
    if not callable(found):
        raise UserError(f"{name} is no algorithm, but of type {type(found).__name__}; {FACTORY}")
    return found


def options_of(factory: Callable[..., Algorithm]) -> dict[str, object]:
    """The options of an algorithm that are fixed for a run, with their defaults."""
    try:
        parameters = signature(factory).parameters.values()
    except (TypeError, ValueError):  # some of Python's own functions
        return {}
    return {p.name: p.default for p in parameters if p.kind == p.KEYWORD_ONLY}


def checked(name: str, factory: Callable[..., Algorithm], options: Mapping[str, object]) -> Algorithm:
    """The algorithm for a task of one number; refuses what is no algorithm."""
    try:
        made = factory(Spec(1, 1), **options)
    except UserError:
        raise
    except Exception as error:
        if factory in ALGORITHMS.values():
            raise
        raise UserError(f"the algorithm {name} cannot be made: {type(error).__name__}: {error}; {FACTORY}") from error
    if not isinstance(made, Algorithm):
        raise UserError(f"the algorithm {name} returns something of type {type(made).__name__}; {FACTORY}")
    if lacking := [needed for needed in ("n_step", "gamma") if needed not in made.hyper]:
        raise UserError(
            f"the hyper of the algorithm {name} lacks {' and '.join(lacking)}, which the targets are made with; "
            'add what is missing, as in hyper = {"n_step": 1, "gamma": 0.99, ...}.'
        )
    for hyper, default in made.hyper.items():
        what = f"the default of {hyper} in the algorithm {name}"
        settings.within(what, settings.number(what, default), None, None)
    return made


def make(name: str, spec: Spec, **options: object) -> Algorithm:
    """The algorithm of that name, for example make("td3", spec, hidden=(64, 64), policy_delay=3)."""
    return factory(name)(spec, **options)
