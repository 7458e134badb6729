"""CEM-RL (Pourchot & Sigaud 2019), the paper's ES-RL: the tuner's side of it, which counts generations.

Agent 0 is the mean of a Gaussian over the weights of the actor; it neither learns nor plays, and it is evaluated. The
others are drawn from the Gaussian in each generation, the first half of them learn, and all play without noise. What
happens to the weights is in `oht.learners.shared_critic`, which the method brings as its learner.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.tuners import columns
from oht.types import Clock, Outcome, Proposal, Row, State, Tune, Tuner

DAMP_DECAY = 0.95


@dataclass(frozen=True)
class CemRl:
    population: int = setting(10, "actors drawn in each generation", low=2, high=1000)
    gradient: int = setting(5, "how many of them take gradient steps; 0 is plain CEM", low=0)
    replay_ratio: float = setting(1.0, "actor steps of each of these for each env step of all", low=0, high=1000)
    variance: float = setting(1e-3, "variance of each weight at the start", low=0)
    damp: float = setting(1e-3, "added to the variances; decays from this ...", low=0)
    damp_limit: float = setting(1e-5, "... to this, by 0.95 in each generation", low=0)


def make(settings: CemRl, tune: Tune, base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(f"the method cem-rl tunes no hyper-parameters, so {', '.join(tune)} cannot be tuned.")
    number, learning = settings.population, settings.gradient
    if learning > number:
        raise UserError(f"gradient is {learning}, but there are only {number} actors in the population.")
    ratios = np.array([0.0] + learning * [settings.replay_ratio] + (number - learning) * [0.0])
    players = np.arange(1, number + 1)

    def init(rng: np.random.Generator) -> State:
        return np.array(settings.damp)

    def ask(rng: np.random.Generator, damp: State, clock: Clock) -> tuple[State, Proposal]:
        damp = np.asarray(DAMP_DECAY * damp + (1 - DAMP_DECAY) * settings.damp_limit)
        hyper = {name: np.full(number + 1, value, np.float64) for name, value in {**base, "damp": damp}.items()}
        starts = clock.iteration * number + players
        return damp, Proposal(hyper, ratios, np.arange(number + 1), players, starts, explore=False)

    def tell(rng: np.random.Generator, damp: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        row = {"weights/sigma": float(outcome.learned["sigma"][0]), "weights/damp": float(damp)}
        return damp, row | columns.samples(proposal, (), outcome)

    def champion(rng: np.random.Generator, damp: State) -> int:
        return 0

    return Tuner(number + 1, init, ask, tell, champion)
