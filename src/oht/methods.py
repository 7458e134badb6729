"""The methods by name: what each tunes, its settings, its tuner, and what else it needs.

JAX is imported only when a method makes its learner or adapts an algorithm, so that help and checks are quick.
"""

from dataclasses import is_dataclass
from typing import Any

from oht import errors, lookup
from oht.errors import UserError
from oht.spaces import Choice, Dimension, Int, LogFloat, resolved, tied
from oht.tuners import arms, cemrl, meta_gradient, pbt, race, random, sampled, schedule, static
from oht.types import Algorithm, Method, Tune

N_STEP: Tune = {"n_step": Choice(1, 2, 3)}
LEARNING_RATES: Tune = {
    "actor_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1),
    "critic_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1),
}
PBT_LEARNING_RATES: Tune = {name: LogFloat(1e-3, 0.5, 3e-5, 3e-3) for name in LEARNING_RATES}


def _own_replays(settings: pbt.Pbt, algorithm: Algorithm, batch_size: int) -> Any:
    from oht.learners.own_replays import OwnReplays
    from oht.population import Learner

    return (Learner if settings.share_replay else OwnReplays)(algorithm, batch_size)


def _shared_critic(settings: cemrl.CemRl, algorithm: Algorithm, batch_size: int) -> Any:
    from oht.learners.shared_critic import SharedCritic

    return SharedCritic(algorithm, batch_size)


def _evolving(settings: cemrl.CemRl, tune: Tune, algorithm: Algorithm) -> Algorithm:
    from oht.learners.shared_critic import evolving

    return evolving(algorithm, settings.variance)


def _meta_gradient(settings: meta_gradient.MetaGradient, tune: Tune, algorithm: Algorithm) -> Algorithm:
    """The agent that learns the rates of the space: a LogFloat by its log10, a Float as it is."""
    from oht.agents.metagrad import Rate, metagrad

    if any(len(tied(name)) > 1 for name in tune):
        raise UserError("meta-gradients learn each rate by itself; name each in a space of its own, without '+'.")

    def rate(name: str, dim: Dimension) -> Rate:
        if isinstance(dim, Choice | Int) or dim.init is None or dim.low is None or dim.high is None:
            raise UserError(f"meta-gradients need a derivative: {name} must be a LogFloat or a Float, as in log:1e-3.")
        return Rate(dim.init, dim.low, dim.high, isinstance(dim, LogFloat))

    return metagrad(
        algorithm,
        {name: rate(name, resolved(name, dim)) for name, dim in tune.items()},
        meta_lr=settings.meta_lr,
        meta_critic_lr=settings.meta_critic_lr,
        meta_trace=settings.meta_trace,
    )


METHODS: dict[str, Method] = {
    "oht": Method("agents that keep their values; those with higher returns play and learn more", race.Race, race.make),
    "static": Method("one agent, constant hyper-parameters", static.Static, static.make),
    "oht-nstep": Method("OHT-ES, discrete: one agent for each value", arms.Arms, arms.make, N_STEP),
    "oht-lr": Method(
        "OHT-ES, continuous: a population draws values from a Gaussian", sampled.Sampled, sampled.make, LEARNING_RATES
    ),
    "random": Method("control: the agents of oht, but their returns decide nothing", race.Race, random.make),
    "meta-gradient": Method(
        "one agent that differentiates through its own update to learn its learning rates",
        meta_gradient.MetaGradient,
        meta_gradient.make,
        LEARNING_RATES,
        adapt=_meta_gradient,
    ),
    "cem-rl": Method(
        "actors drawn from an evolving Gaussian over weights, half of them trained with one critic",
        cemrl.CemRl,
        cemrl.make,
        learner=_shared_critic,
        adapt=_evolving,
    ),
    "pbt": Method(
        "agents with replays of their own; the worst copy the best",
        pbt.Pbt,
        pbt.make,
        PBT_LEARNING_RATES,
        learner=_own_replays,
    ),
    "schedule": Method("control: one agent with the schedule of an earlier run", schedule.Schedule, schedule.make),
}


def find(name: str) -> Method:
    """One of the methods above, or a user's own by `module:name`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise errors.unknown("method", name, METHODS)
    found = lookup.find("method", name)
    if not isinstance(found, Method) or not is_dataclass(found.settings):
        raise UserError(
            f"{name} is no method, but of type {type(found).__name__}; a method is an "
            "oht.Method(summary, settings, make), and its settings are a dataclass."
        )
    return found
