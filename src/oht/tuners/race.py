"""The method `oht`: persistent agents on one replay, whose play and gradient steps follow a belief that can change.

Each agent keeps its values for the whole run, so that its returns show what these values do over the whole run. The
belief about an agent is a Gaussian: a discounted mean of its returns and an error that grows while it does not play.
Thompson sampling decides who plays; the gradient steps are shared in the same proportion within a budget. An agent that
stops improving gives part of its share back to all. Nobody is ever eliminated: an agent that was behind and catches up
gets episodes and gradient steps again.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Space, tied
from oht.tuners import columns
from oht.types import Clock, Outcome, Proposal, Row, Tune, Tuner

MOST_COMBINATIONS = 8  # of discrete values that each get an agent
DISCOUNT = 0.95  # of what is known, for every episode of anyone
PRIOR = 0.5  # episodes that the mean of all agents counts for
EPSILON = 0.1  # of the episodes, played by whoever has waited longest: a loser may have caught up meanwhile
WARM_UP = 0.25  # of the run, with equal shares: TD3 first gets worse than random, and small learning rates last of all
LEAST = 2  # episodes of each agent before the belief decides, also in a short run
DRAWS = 1000  # of the belief, from which the shares are estimated
EQUAL = 1e-9  # difference of two draws that is only rounding, beside their size
TINY = 1e-9  # a spread of times that is only rounding, beside their squares
FLOOR = 0.05  # gradient steps for each env step that every agent has at least, so that none goes stale

SHOWN = ("mean", "error", "improving", "ratio")  # columns of schedule.csv for each agent, beside its values
PORTFOLIO: tuple[dict[str, float], ...] = (  # raced where nothing is said to be tuned, besides the run's own values
    {"exploration_noise": 0.3},
    {"n_step": 3},
    {"actor_lr": 3e-4, "critic_lr": 3e-4},
)


@dataclass(frozen=True)
class Race:
    population: int | None = setting(
        None, "agents, unless a few combinations get one each; none: two more than dimensions", low=2, high=1000
    )
    budget: float = setting(2.0, "gradient steps of all agents together for each env step", low=0, high=1000)


class Belief(NamedTuple):
    """What the returns say about each agent: sums over its episodes, which count less the older they are."""

    sums: np.ndarray  # (P,) of returns
    counts: np.ndarray  # (P,) of episodes
    times: np.ndarray  # (P,) of their times, in episodes of anyone: 0 for the latest, negative before
    squared_times: np.ndarray  # (P,)
    products: np.ndarray  # (P,) of time and return
    last: np.ndarray  # (P,) the last return of each; nan: none yet
    squares: np.ndarray  # discounted sum of squared differences of successive returns of the same agent ...
    pairs: np.ndarray  # ... and how many


class State(NamedTuple):
    values: dict[str, np.ndarray]  # (P,) of each tuned hyper-parameter
    belief: Belief
    played: np.ndarray  # (P,) episodes of each agent
    last: np.ndarray  # (P,) the iteration in which each played last
    decides: np.ndarray  # whether the belief decides already; it stays so in a run that is continued for longer


def make(settings: Race, tune: Tune, base: Mapping[str, float]) -> Tuner:
    return race(settings, tune, base, follow=True)


def race(settings: Race, tune: Tune, base: Mapping[str, float], follow: bool) -> Tuner:
    """Without `follow` the belief decides nothing: equal turns, equal gradient steps, any agent is champion."""
    known = {"replay_ratio": settings.budget, **base}
    space = Space(tune, known)
    for name in space.names:
        if name in SHOWN:
            raise UserError(
                f"{name} is already a column of the schedule for each agent: give the hyper-parameter another name."
            )
    number = population_of(settings, space, known)
    everyone = np.arange(number)

    def init(rng: np.random.Generator) -> State:
        values = values_of(rng, space, known, number)
        return State(values, unknown(number), np.zeros(number, np.int64), np.full(number, -1), np.array(False))

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, Proposal]:
        hyper = {name: np.full(number, value, np.float64) for name, value in known.items()} | state.values
        warm = clock.steps >= WARM_UP * clock.total and state.played.min() >= LEAST
        decides = follow and bool(state.decides | warm)
        shares = wanted(rng, state.belief, clock) if decides else np.full(number, 1 / number)
        waited = rng.random() < EPSILON or not decides
        actor = int(state.last.argmin()) if waited else int(rng.choice(number, p=shares))
        ratios = divided(settings.budget, shares, np.minimum(hyper["replay_ratio"], settings.budget))
        last = np.where(everyone == actor, clock.iteration, state.last)
        state = state._replace(last=last, decides=np.array(decides))
        return state, Proposal(hyper, ratios, everyone, np.array([actor]), state.played[[actor]])

    def tell(rng: np.random.Generator, state: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        shown = row(state, proposal, outcome)
        actor, value = int(proposal.actors[0]), float(outcome.returns[0])
        belief = forget(state.belief, outcome.replaced)
        if np.isfinite(value):
            belief = learn(belief, actor, value)
        return state._replace(belief=belief, played=state.played + (everyone == actor)), shown

    def champion(rng: np.random.Generator, state: State) -> int:
        return leader(state.belief) if follow else int(rng.integers(number))

    def row(state: State, proposal: Proposal, outcome: Outcome) -> Row:
        mean, error = means(state.belief)
        best = leader(state.belief)
        row = columns.champion({name: state.values[name][best] for name in state.values})
        row["leader"] = float(best)
        shown = mean, error, improving(state.belief), proposal.ratios
        row |= columns.agents({**dict(zip(SHOWN, shown, strict=True)), **state.values})
        return row | columns.samples(proposal, tuple(state.values), outcome)

    return Tuner(number, init, ask, tell, champion)


# The agents


def combinations(space: Space, known: Mapping[str, float]) -> list[dict[str, float]]:
    """Every combination of discrete values, or the portfolio where there is nothing to tune."""
    if not space.names:
        start = {name: known[name] for entry in PORTFOLIO for name in entry if name in known}
        entries = [start, *({**start, **entry} for entry in PORTFOLIO if entry.keys() <= known.keys())]
        return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    return [
        {part: value for name, value in zip(space.choices, values, strict=True) for part in tied(name)}
        for values in itertools.product(*(choice.values for choice in space.choices.values()))
    ]


def _few(space: Space) -> bool:
    """Whether there is an agent for each combination."""
    number = math.prod(len(choice.values) for choice in space.choices.values())
    return not space.continuous and number <= MOST_COMBINATIONS


def population_of(settings: Race, space: Space, known: Mapping[str, float]) -> int:
    if _few(space):
        number = len(combinations(space, known))
        if number < 2:
            raise UserError("a race needs at least two different values; name more, as in tune n_step=1,2,3.")
        return number
    return settings.population or 2 + len(space.choices) + len(space.continuous)


def values_of(rng: np.random.Generator, space: Space, known: Mapping[str, float], number: int) -> dict[str, np.ndarray]:
    """The values of each agent: all combinations of a few discrete values; otherwise a Latin hypercube.

    Each dimension is divided into as many strata as there are agents. The first agent has the run's own values and
    stands for the strata they lie in; the others have the middles of the strata that are left, in random order.
    """
    if _few(space):
        entries = combinations(space, known)
        return {name: np.array([entry[name] for entry in entries]) for name in entries[0]}
    middles = (np.arange(number) + 0.5) / number
    grid = space.quantiles(np.tile(middles[:, None], len(space.continuous)))
    points = [_with_start(rng, start, column) for start, column in zip(space.mu, grid.T, strict=True)]
    values = dict(space.decode(np.array(points).T)) if points else {}
    for name, choice in space.choices.items():
        column = np.array(choice.values)[(middles * len(choice.values)).astype(int)]
        own = [known[part] for part in tied(name) if known[part] in choice.values]
        values |= dict.fromkeys(tied(name), _with_start(rng, own[0] if own else choice.values[0], column))
    return values


def _with_start(rng: np.random.Generator, start: float, column: np.ndarray) -> np.ndarray:
    """The start in place of the value nearest to it, then the others in random order."""
    others = np.delete(column, np.abs(column - start).argmin())
    return np.concatenate([[start], rng.permutation(others)])


# The belief


def unknown(number: int) -> Belief:
    none = np.zeros(number)
    return Belief(none, none, none, none, none, np.full(number, np.nan), np.zeros(()), np.zeros(()))


def learn(belief: Belief, actor: int, value: float) -> Belief:
    """With one more episode; all that was known before counts less."""
    one = np.arange(len(belief.sums)) == actor
    difference = value - belief.last[actor]
    again = math.isfinite(difference)
    return Belief(
        DISCOUNT * belief.sums + one * value,
        DISCOUNT * belief.counts + one,
        DISCOUNT * (belief.times - belief.counts),
        DISCOUNT * (belief.squared_times - 2 * belief.times + belief.counts),
        DISCOUNT * (belief.products - belief.sums),
        np.where(one, value, belief.last),
        DISCOUNT * belief.squares + (difference**2 if again else 0.0),
        DISCOUNT * belief.pairs + again,
    )


def forget(belief: Belief, replaced: np.ndarray) -> Belief:
    """Returns of weights that were replaced say nothing about those that replaced them."""
    sums = ("sums", "counts", "times", "squared_times", "products")
    kept = {name: getattr(belief, name) * ~replaced for name in sums}
    return belief._replace(**kept, last=np.where(replaced, np.nan, belief.last))


def noise(belief: Belief) -> float:
    """The standard deviation of a return: the root of half the mean squared difference of successive ones."""
    return math.sqrt(belief.squares / belief.pairs / 2) if belief.pairs > 0 else 0.0


def means(belief: Belief) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of each agent's return.

    m_j = (S_j + n0 M) / (W_j + n0) and s / sqrt(W_j + n0), where M is the mean over agents of S_j / W_j, s the noise.
    """
    seen = belief.counts > 0
    own = belief.sums[seen] / belief.counts[seen]
    middle = own.mean() if seen.any() else 0.0
    weight = belief.counts + PRIOR
    return (belief.sums + PRIOR * middle) / weight, noise(belief) / np.sqrt(weight)


def candidates(belief: Belief) -> np.ndarray:
    """(P,) the means of the agents that may be the best, -inf of the others.

    An agent that has not played since its weights were replaced has no claim: a value may saturate again and again.
    """
    mean, seen = means(belief)[0], belief.counts > 0
    return np.where(seen | ~seen.any(), mean, -np.inf)


def leader(belief: Belief) -> int:
    """The agent with the highest mean."""
    return int(candidates(belief).argmax())


def improving(belief: Belief) -> np.ndarray:
    """(P,) how probable it is that each agent's returns rise: Phi(slope / its standard error).

    The slope of the least-squares line through its returns over time is C / V and its error s / sqrt(V), where
    C = sum w (t - mean t) R and V = sum w (t - mean t)^2. An agent that has played less than twice: 1/2.
    """
    count = np.where(belief.counts > 0, belief.counts, 1.0)
    spread = belief.squared_times - belief.times**2 / count
    together = belief.products - belief.times * belief.sums / count
    error = noise(belief) * np.sqrt(np.where(spread > TINY * belief.squared_times, spread, 0.0))
    return ndtr(np.divide(together, error, out=np.zeros_like(together), where=error > 0))


def best_probabilities(rng: np.random.Generator, belief: Belief) -> np.ndarray:
    """(P,) how probable it is that each agent is the best: what Thompson sampling plays.

    Agents that are equal, as all are while a sparse reward is not found, share: a draw counts for all that are highest.
    """
    error = means(belief)[1]
    draws = candidates(belief) + error * rng.standard_normal((DRAWS, len(error)))
    best = draws.max(axis=1, keepdims=True)
    highest = draws >= best - EQUAL * np.abs(best)
    return (highest / highest.sum(axis=1, keepdims=True)).mean(axis=0)


def wanted(rng: np.random.Generator, belief: Belief, clock: Clock) -> np.ndarray:
    """(P,) the share of each agent in episodes and gradient steps.

    It is the probability that the agent is the best, less what it gives back to be divided equally among all: that
    share times the probability that it does not improve, times the part of the run that is left. A large learning rate
    may lead early and stop there, and what would overtake it must be trained to show it, while there is time.
    """
    best = best_probabilities(rng, belief)
    left = max(0.0, 1 - clock.steps / clock.total)
    given_back = best * (1 - improving(belief)) * left
    return best - given_back + given_back.mean()


def divided(budget: float, shares: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Gradient steps of each agent: a floor for everyone, the rest in these proportions, at most `most` each."""
    floor = np.minimum(min(FLOOR, budget / len(shares)), most)
    return np.minimum(floor + shares * (budget - floor.sum()), most)
