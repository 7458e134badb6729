"""The methods by name: what each tunes, its settings, and how its tuner is made."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from oht import errors, spaces
from oht.agents.api import Algorithm
from oht.errors import UserError
from oht.spaces import Choice, Dimension, LogFloat
from oht.tuners import arms, cemrl, metagrad, pbt, random, sampled, schedule, static
from oht.tuners.api import Tuner

Tune = Mapping[str, Dimension]
Base = Mapping[str, float]
FEW_ARMS = 8  # up to so many combinations of discrete values, `oht` gives each an agent of its own


class Method(NamedTuple):
    summary: str
    settings: type  # a frozen dataclass; the metadata of each field has its "help"
    make: Callable[[Any, Tune, Base], Tuner]  # (settings, tune, hyper-parameters of the algorithm)
    tune: Tune | None = None  # what is tuned where the user does not say; None: nothing
    needs_tune: bool = False  # whether the user must say
    max_n: Callable[[Any, Tune, Base], int] = lambda settings, tune, base: spaces.max_n(tune, base)
    adapt: Callable[[Any, Tune, Algorithm], Algorithm] = lambda settings, tune, algorithm: algorithm  # for the method


@dataclass(frozen=True)
class Oht(sampled.Sampled, arms.Arms):
    """Both kinds of settings, since the space decides which is used."""


def make_oht(settings: Oht, tune: Tune, base: Base) -> Tuner:
    """Few discrete combinations: one persistent agent for each. Any other space: a sampled population."""
    sizes = [len(dim.values) for dim in tune.values() if isinstance(dim, Choice)]
    few = bool(tune) and len(sizes) == len(tune) and math.prod(sizes) <= FEW_ARMS
    return arms.make(settings, tune, base) if few else sampled.make(settings, tune, base)


N_STEP: Tune = {"n_step": Choice(1, 2, 3)}
LEARNING_RATES: Tune = {
    "actor_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1),
    "critic_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1),
}

PBT_LEARNING_RATES: Tune = {name: LogFloat(1e-3, 0.5, 3e-5, 3e-3) for name in LEARNING_RATES}

METHODS: dict[str, Method] = {
    "static": Method("one agent, constant hyper-parameters", static.Static, static.make),
    "oht-nstep": Method("OHT-ES, discrete: one agent for each n_step", arms.Arms, arms.make, N_STEP),
    "oht-lr": Method(
        "OHT-ES, continuous: learning rates of a sampled population", sampled.Sampled, sampled.make, LEARNING_RATES
    ),
    "oht": Method("OHT-ES over any space: discrete, continuous or both", Oht, make_oht, needs_tune=True),
    "random": Method("ablation: values drawn at random, nothing learned", random.Random, random.make, LEARNING_RATES),
    "meta-gradient": Method(
        "one agent that differentiates through its own update to learn its learning rates",
        metagrad.MetaGradient,
        metagrad.make,
        LEARNING_RATES,
        adapt=metagrad.adapt,
    ),
    "cem-rl": Method(
        "actors drawn from an evolving Gaussian over weights, half of them taught by one critic",
        cemrl.CemRl,
        cemrl.make,
        adapt=cemrl.adapt,
    ),
    "pbt": Method("agents with replays of their own; the worst copy the best", pbt.Pbt, pbt.make, PBT_LEARNING_RATES),
    "schedule": Method(
        "one agent by the schedule of an earlier run", schedule.Schedule, schedule.make, max_n=schedule.max_n
    ),
}


def method(name: str) -> Method:
    if name not in METHODS:
        raise errors.unknown("method", name, METHODS)
    return METHODS[name]


def tuned(method: Method, tune: Tune | None) -> Tune:
    """What this method tunes: what the user says, otherwise the method's own."""
    if tune:
        return tune
    if method.needs_tune:
        raise UserError("there is nothing to tune; name it, as in tune n_step=1,2,3 or actor_lr=log:1e-3:0.5.")
    return method.tune or {}
