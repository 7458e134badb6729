"""One agent with constant hyper-parameters: the base algorithm, and the baseline of all other methods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.tuners import columns
from oht.types import Clock, Outcome, Proposal, Row, State, Tune, Tuner


@dataclass(frozen=True)
class Static:
    replay_ratio: float = setting(1.0, "gradient steps for each env step", low=0, high=1000)


def make(settings: Static, tune: Tune, base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(
            f"the method static tunes nothing, so {', '.join(tune)} cannot be tuned; choose the method oht."
        )
    return lone(settings.replay_ratio, lambda env_steps: base)


def lone(
    replay_ratio: float,
    hyper_at: Callable[[int], Mapping[str, float]],
    row: Callable[[Proposal, Outcome], Row] = lambda proposal, outcome: {},
) -> Tuner:
    """One agent that plays one episode in each iteration; `hyper_at(env_steps)` are its hyper-parameters.

    A `replay_ratio` among these counts instead of the given one. `row(proposal, outcome)` goes before the columns of
    the episode in schedule.csv.
    """

    def init(rng: np.random.Generator) -> State:
        return ()

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, Proposal]:
        hyper = {name: np.array([value], np.float64) for name, value in hyper_at(clock.steps).items()}
        ratio, agent = hyper.get("replay_ratio", np.array([replay_ratio])), np.array([0])
        return state, Proposal(hyper, ratio, agent, agent, np.array([clock.iteration]))

    def tell(rng: np.random.Generator, state: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        shown = row(proposal, outcome)
        return state, shown | columns.samples(proposal, columns.tuned(shown), outcome)

    def champion(rng: np.random.Generator, state: State) -> int:
        return 0

    return Tuner(1, init, ask, tell, champion)
