"""Population-based training (Jaderberg et al. 2017): agents that learn side by side; the worst copy the best.

Each agent has hyper-parameters of its own, drawn from the space at the start, and learns from its own episodes only.
Every `interval` iterations the worst agents continue from the weights of the best (exploit), optimiser and targets
included, and with changed hyper-parameters (explore). The replay of an agent stays its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Choice, Int, Space, label
from oht.tuners import columns
from oht.tuners.search import Gaussian
from oht.types import Clock, Outcome, Proposal, Row, Tune, Tuner

FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class Pbt:
    population: int = setting(10, "agents; each plays one episode in an iteration", low=2, high=1000)
    interval: int = setting(5, "iterations between two times that the worst copy the best", low=1)
    quantile: float = setting(0.25, "share of the agents that copy, and share that is copied", low=0, high=0.5)
    resample: float = setting(0.25, "probability that a copy draws a new value, not x0.8 or x1.2", low=0, high=1)
    share_replay: bool = setting(False, "all agents learn from the episodes of all")
    replay_ratio: float | None = setting(
        None, "gradient steps of each agent for each env step of all; by default 1 over the population", low=0
    )


class State(NamedTuple):
    values: dict[str, np.ndarray]  # (P,) what each agent uses of each tuned hyper-parameter
    returns: np.ndarray  # (P, interval) of the last episodes of each agent; a copy has those of its parent
    parents: np.ndarray  # (P,) whose weights each agent continues from in the next iteration
    iterations: np.ndarray


def make(settings: Pbt, tune: Tune, base: Mapping[str, float]) -> Tuner:
    space = Space(tune, base)
    if not space.names:
        raise UserError("there is nothing to tune; name it, as in tune actor_lr=log:3e-5..3e-3.")
    if space.names != tuple(tune):
        raise UserError("pbt explores each hyper-parameter by itself; name each in a space of its own, without '+'.")
    _check_bounds(space)
    number = settings.population
    ratio = 1 / number if settings.replay_ratio is None else settings.replay_ratio
    ratios, everyone = np.full(number, ratio), np.arange(number)

    def init(rng: np.random.Generator) -> State:
        values = draw(rng, space, number)
        return State(values, np.zeros((number, settings.interval)), everyone, np.zeros((), np.int64))

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, Proposal]:
        hyper = {name: np.full(number, value, np.float64) for name, value in base.items()} | state.values
        starts = clock.iteration * number + everyone
        return state._replace(parents=everyone), Proposal(hyper, ratios, state.parents, everyone, starts)

    def tell(rng: np.random.Generator, state: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        shown = row(state, proposal, outcome)
        history = state.returns.copy()
        history[:, state.iterations % settings.interval] = np.where(
            np.isfinite(outcome.returns), outcome.returns, -np.inf
        )
        state = state._replace(returns=history, iterations=state.iterations + 1)
        if state.iterations % settings.interval:
            return state, shown
        parents = truncation(rng, history.mean(axis=1), settings.quantile)
        copies = parents != everyone
        values = {
            name: np.where(copies, explored(rng, space, name, old[parents], settings.resample), old)
            for name, old in state.values.items()
        }
        return state._replace(values=values, returns=history[parents], parents=parents), shown

    def champion(rng: np.random.Generator, state: State) -> int:
        """The agent with the best mean return; of a copy that is yet to be made, its parent."""
        return int(state.parents[state.returns.mean(axis=1).argmax()])

    def row(state: State, proposal: Proposal, outcome: Outcome) -> Row:
        best = int(state.returns.mean(axis=1).argmax())
        row = columns.gaussian(tuple(space.continuous), spread(space, state.values))
        row |= shares(space, state.values)
        row |= columns.champion({name: state.values[name][best] for name in space.names})
        return row | columns.samples(proposal, space.names, outcome)

    return Tuner(number, init, ask, tell, champion)


def draw(rng: np.random.Generator, space: Space, number: int) -> dict[str, np.ndarray]:
    """Values uniform over the whole space, on the scale that each dimension is searched on."""
    low, high = space.bounds
    half = np.array([0.5 * isinstance(dim, Int) for dim in space.continuous.values()])  # as much is rounded to the ends
    values = space.decode(rng.uniform(low - half, high + half, (number, len(low))))
    values |= {name: rng.choice(choice.values, number) for name, choice in space.choices.items()}
    return {name: values[name] for name in space.names}


def truncation(rng: np.random.Generator, fitness: np.ndarray, quantile: float) -> np.ndarray:
    """(P,) whom each agent continues from: itself or, for the worst `quantile` (at least one), one of as many best."""
    number = min(max(1, round(quantile * len(fitness))), len(fitness) // 2)
    order = np.argsort(fitness, kind="stable")
    parents = np.arange(len(fitness))
    parents[order[:number]] = rng.choice(order[-number:], number)
    return parents


def explored(rng: np.random.Generator, space: Space, name: str, values: np.ndarray, resample: float) -> np.ndarray:
    """Each value x0.8 or x1.2, whole numbers and choices moved to a neighbour, or drawn anew; never out of bounds."""
    up = rng.integers(2, size=len(values))
    dim = space.choices.get(name) or space.continuous[name]
    if isinstance(dim, Choice):
        known = np.sort(dim.values)
        moved = known[np.clip(np.searchsorted(known, values) + 2 * up - 1, 0, len(known) - 1)]
    else:
        low, high = (end[name] for end in space.extremes())
        moved = np.clip(values + 2 * up - 1 if isinstance(dim, Int) else values * np.take(FACTORS, up), low, high)
    return np.where(rng.random(len(values)) < resample, draw(rng, space, len(values))[name], moved)


def spread(space: Space, values: Mapping[str, np.ndarray]) -> Gaussian:
    """Mean and standard deviation over the population, in encoded units."""
    encoded = [dim.encode(values[name]) for name, dim in space.continuous.items()]
    return Gaussian(np.array([x.mean() for x in encoded]), np.array([x.std() for x in encoded]))


def shares(space: Space, values: Mapping[str, np.ndarray]) -> Row:
    """How much of the population uses each discrete value."""
    return {
        f"{name}/p/{label(value)}": float((values[name] == value).mean())
        for name, choice in space.choices.items()
        for value in choice.values
    }


def _check_bounds(space: Space) -> None:
    """Drawing from the whole space needs both ends of it."""
    low, high = space.extremes()
    for name in space.continuous:
        if not np.isfinite([low[name], high[name]]).all():
            raise UserError(f"pbt draws {name} from between its bounds, so give both, as in {name}=0..1.")
