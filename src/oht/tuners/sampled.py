"""OHT-ES by a sampled population: Algorithm 1, for continuous, discrete and mixed spaces.

Agent 0 is the main agent, which the appendix keeps at the centre of the distribution: it trains at mu (for a discrete
dimension: at the likeliest value, ties going to the algorithm's own) and it is the champion. N members draw values, all
at once or a few at a time. Each lives for some rounds, in which it trains and plays in turn with the main agent, and is
judged by how much better it did; when all N have lived, this moves the distribution. A main agent that learned only
from what others did would not find out where it is wrong, so it plays; if a member did better, it goes on as its copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Choice, Dimension, Space, tied
from oht.tuners import columns
from oht.tuners.api import Agents, Key, Proposal, Tuner, copied
from oht.tuners.arms import Discrete
from oht.tuners.search import Categorical, Gaussian, Search, ascent, categorical, cem, fitness, generator


@dataclass(frozen=True)
class Population:
    """Who trains and plays, whatever the distribution learns."""

    population: int = setting(
        4, "sampled: members whose values and returns make one step of the distribution", low=1, high=1000
    )
    at_once: int | None = setting(
        None,
        "sampled: members that train and play at the same time (default: 1; all if they persist)",
        low=1,
        high=1000,
    )
    members: Literal["fork", "persist"] = setting(
        "fork", "sampled: members are born as forks of the main agent, or persist with their own weights"
    )
    life: int = setting(
        5, "sampled: rounds that a member lives and is judged by, from its fork to the next", low=1, high=10**6
    )
    main: Literal["adopts", "plays", "watches"] = setting(
        "adopts",
        "sampled: the main agent only watches; plays, too; or adopts: plays, and becomes the member that did better",
    )
    margin: float = setting(
        1.0,
        "sampled: standard errors that the main agent or a member must be ahead for the other to become its copy",
        low=0,
        high=100,
    )
    main_ratio: float = setting(
        1.0, "sampled: gradient steps of the main agent for each env step of all", low=0, high=1000
    )
    member_ratio: float | None = setting(
        None, "sampled: gradient steps of each member for each env step of all (default: 1 / at_once)", low=0, high=1000
    )
    episodes: int = setting(1, "sampled: episodes of each agent in a round; its return is their mean", low=1, high=1000)
    together: bool = setting(
        False,
        "sampled: whether a round is one iteration that all play in, or one for each, so that all learn in between",
    )
    explore: bool = setting(True, "sampled: whether members play, and are judged, with exploration noise")
    same_start: bool = setting(
        True, "sampled: whether all agents of a round start from the same state, so that luck is shared"
    )
    prime: bool = setting(
        False, "sampled: whether agents learn for the steps of the random start, too, before any of them has played"
    )
    unstick: bool = setting(
        True,
        "sampled: whether a member whose actions are stuck at their bounds counts as diverged, or starts anew",
    )


@dataclass(frozen=True)
class Sampled(Population, Discrete):
    search: Literal["es", "cem"] = setting("es", "sampled: es: ascent on mu by Eqn (3), or cem on (mu, sigma)")
    elite_fraction: float = setting(0.5, "cem: share of the members that are elites", low=0, high=1)
    log_weights: bool = setting(False, "cem: weigh the elites by log((elites + 1) / rank), as CEM-RL does")
    old_mean: bool = setting(False, "cem: variance about the old mean, as in CEM-RL, not the new one")
    sigma_noise: float = setting(0.0, "cem: noise floor, its square is added to sigma^2 at each step", low=0)
    mu_step: float = setting(1.0, "cem: share of the way that mu goes to the mean of the elites", low=0, high=1)
    sigma_step: float = setting(1.0, "cem: share of the way that sigma goes to that of the elites", low=0, high=1)
    es_rate: float = setting(0.2, "es: learning rate beta of Eqn (3)", low=0)
    es_scale: Literal["unbiased", "paper", "natural"] = setting(
        "unbiased", "es: factor in Eqn (3): unbiased (1/sigma^2), paper (1/sigma, as printed) or natural (1)"
    )


class State(NamedTuple):
    gaussian: Gaussian
    logits: dict[str, Categorical]
    points: np.ndarray  # (N, D) what the members drew, continuous dimensions, encoded
    indices: dict[str, np.ndarray]  # (N,) and for each discrete dimension
    returns: np.ndarray  # (N,) what those that have lived got, more than the main agent where it plays
    lived: np.ndarray  # how many these are
    life: np.ndarray  # (agents that play, rounds of a life) returns in this life so far
    age: np.ndarray  # how many iterations of it are over


def make(settings: Sampled, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    space = Space(tune, base)
    if not space.names:
        raise UserError("there is nothing to tune; name it, as in tune n_step=1,2,3 or actor_lr=log:1e-3:0.5.")
    number, at_once = settings.population, _at_once(settings)
    gaussian = _gaussian_search(settings, space)
    rule = {"rate": settings.beta, "epsilon": settings.epsilon, "importance": settings.importance}
    discrete = {name: categorical(len(choice.values), **rule) for name, choice in space.choices.items()}
    member_ratio = 1 / at_once if settings.member_ratio is None else settings.member_ratio
    ratios = np.array([settings.main_ratio] + at_once * [member_ratio])
    everyone = np.arange(at_once + 1)
    players = everyone[int(settings.main == "watches") :]
    turns = 1 if settings.together else len(players)  # the iterations of a round
    whole_life = settings.life * turns
    newborn = {"life": np.zeros((len(players), settings.life)), "age": np.zeros((), np.int64)}

    def centre(state: State) -> dict[str, float]:
        """What the main agent uses."""
        values = {name: float(value) for name, value in space.decode(gaussian.best(state.gaussian)).items()}
        return values | space.untie(
            {name: likeliest(choice, state.logits[name], base[tied(name)[0]]) for name, choice in space.choices.items()}
        )

    def init(key: Key) -> State:
        logits = {name: search.init() for name, search in discrete.items()}
        indices = {name: np.zeros(number, np.int64) for name in discrete}
        points = np.tile(space.mu, (number, 1))
        return State(gaussian.init(), logits, points, indices, np.zeros(number), np.zeros((), np.int64), **newborn)

    def drawn(key: Key, state: State) -> State:
        """With new values for all N members."""
        rng = generator(key)
        points = gaussian.draw(rng, state.gaussian, number)
        indices = {name: search.draw(rng, state.logits[name], number) for name, search in discrete.items()}
        return state._replace(points=points, indices=indices)

    def turn(state: State) -> np.ndarray:
        """Whose turn it is, as places in `players`: every second round backwards, as the last have trained longest."""
        if settings.together:
            return np.arange(len(players))
        rounds, place = divmod(int(state.age), turns)
        return np.array([turns - 1 - place if rounds % 2 else place])

    def ask(key: Key, state: State, agents: Agents, env_steps: int) -> tuple[State, Proposal]:
        if state.lived == 0 and state.age == 0:
            state = drawn(key, state)
        alive = slice(int(state.lived), int(state.lived) + at_once)
        values = space.decode(state.points[alive])
        picked = {name: np.array(choice.values)[state.indices[name][alive]] for name, choice in space.choices.items()}
        values |= space.untie(picked)
        main = centre(state)
        hyper = {name: np.full(at_once + 1, value, np.float64) for name, value in base.items()}
        hyper |= {name: np.concatenate([[main[name]], values[name]]) for name in space.names}
        actors = np.repeat(players[turn(state)], settings.episodes)
        return state, Proposal(agents, hyper, ratios, actors, int(state.age) % turns)

    def older(state: State, proposal: Proposal, returns: Sequence[float] | np.ndarray) -> State:
        """After one more iteration, in which those whose turn it was got the mean of their episodes."""
        life, now = state.life.copy(), state.age // turns
        life[turn(state), now] += np.reshape(returns, (-1, settings.episodes)).mean(axis=1)
        life[np.isin(players, proposal.sick), now] = -np.inf  # whether it was their turn or not
        return state._replace(life=life, age=state.age + 1)

    def sources(state: State) -> np.ndarray:
        """Whose weights each agent goes on with, the main agent first."""
        if state.age < whole_life:
            return everyone
        forks = heirs(state.life, settings.margin) if settings.main == "adopts" else np.zeros_like(everyone)
        return forks if settings.members == "fork" else np.where(everyone == 0, forks, everyone)

    def tell(key: Key, state: State, agents: Agents, proposal: Proposal, returns: np.ndarray) -> tuple[State, Agents]:
        state = older(state, proposal, returns)
        if state.age < whole_life:
            return state, agents
        agents = copied(agents, sources(state))
        lived, all_returns = int(state.lived) + at_once, state.returns.copy()
        all_returns[lived - at_once : lived] = ahead(state.life, at_once)
        state = state._replace(returns=all_returns, lived=np.array(lived % number), **newborn)
        return (learned(state) if lived == number else state), agents

    def learned(state: State) -> State:
        """With the distribution that the returns of all N members teach."""
        shaped = fitness(settings.fitness, state.returns)
        logits = {
            name: search.learn(state.logits[name], state.indices[name], shaped) for name, search in discrete.items()
        }
        return state._replace(gaussian=gaussian.learn(state.gaussian, state.points, shaped), logits=logits)

    def champion(key: Key, state: State) -> int:
        return 0

    def record(state: State, proposal: Proposal, returns: Sequence[float]) -> dict[str, float]:
        row = columns.gaussian(tuple(space.continuous), state.gaussian)
        for name, choice in space.choices.items():
            row |= columns.logits(name, choice, state.logits[name])
        source = int(sources(older(state, proposal, returns))[0])
        row |= columns.champion({name: proposal.hyper[name][source] for name in space.names})
        return row | columns.samples(proposal, space.names, returns)

    ways = {name: getattr(settings, name) for name in ("explore", "same_start", "prime", "unstick")}
    return Tuner(at_once + 1, init, ask, tell, champion, record, **ways)


def _at_once(settings: Sampled) -> int:
    """How many members there are at a time; those that persist are there all the time."""
    everyone = settings.members == "persist"
    at_once = settings.at_once or (settings.population if everyone else 1)
    if everyone and at_once != settings.population:
        raise UserError(f"members that persist play all at once: at_once must be {settings.population} or left out.")
    if settings.population % at_once:
        raise UserError(f"population {settings.population} is not a multiple of at_once {at_once}.")
    return at_once


def _gaussian_search(settings: Sampled, space: Space) -> Search:
    start = (space.mu, space.sigma, *space.bounds)
    if settings.search == "es":
        return ascent(*start, rate=settings.es_rate, scale=settings.es_scale)
    if space.continuous and round(settings.elite_fraction * settings.population) < 2:
        raise UserError("CEM needs at least 2 elites, or sigma would be 0 at once: more population or elite_fraction.")
    return cem(
        *start,
        elite_fraction=settings.elite_fraction,
        log_weights=settings.log_weights,
        old_mean=settings.old_mean,
        noise=settings.sigma_noise,
        mu_step=settings.mu_step,
        sigma_step=settings.sigma_step,
    )


def heirs(life: np.ndarray, margin: float) -> np.ndarray:
    """Of agents with a row of returns each, the main agent first, whose weights each goes on with.

    The main agent: those of the best member that is ahead of it by `margin` standard errors, or its own. A member: the
    same, unless they are less than `margin` ahead of its own, as then nobody knows which are better.
    """
    best = int(np.where(leads(life, 0) > margin, life.mean(axis=1), -np.inf).argmax())  # nobody: all equal, the first
    return np.where(leads(life, best) <= -margin, best, np.arange(len(life)))


def ahead(life: np.ndarray, members: int) -> np.ndarray:
    """The mean return of each member, less that of the main agent, if it plays; 0 if that diverged, as nobody knows."""
    main, got = life[:-members].mean(axis=1), life[-members:].mean(axis=1)
    if main.size and not np.isfinite(main[0]):
        return np.where(np.isfinite(got), 0.0, -np.inf)
    return got - main.sum()


def leads(life: np.ndarray, other: int) -> np.ndarray:
    """By how many standard errors of the mean difference, round by round, each row of returns is ahead of one.

    One round alone has no error. Who diverged is behind everyone else.
    """
    rounds = life.shape[1]
    life = np.where(np.isfinite(life).all(axis=1, keepdims=True), life, -np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        lead, spread = life.mean(axis=1) - life[other].mean(), (life - life[other]).std(axis=1, ddof=min(1, rounds - 1))
        errors = lead / (np.where(np.isfinite(lead), spread, 0.0) / np.sqrt(rounds))
    return np.nan_to_num(errors, nan=0.0, posinf=np.inf, neginf=-np.inf)


def likeliest(choice: Choice, state: Categorical, usual: float) -> float:
    """The value with the highest logit; among equals the usual one if it is there, otherwise the first."""
    tied = [value for value, logit in zip(choice.values, state.logits, strict=True) if logit == state.logits.max()]
    return usual if usual in tied else tied[0]
