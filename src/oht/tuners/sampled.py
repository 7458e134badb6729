"""OHT-ES by a sampled population: Algorithm 1 and the paper's appendix, for continuous, discrete and mixed spaces.

Agent 0 is the main agent. It trains at the centre of the distribution (mu; for a discrete dimension the likeliest
value) on what the others play, and it is evaluated. In each iteration N members draw values from the distribution,
learn, and play one episode from the same state each; their returns move the distribution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Choice, Space, tied
from oht.tuners import columns
from oht.tuners.search import Categorical, Gaussian, Search, ascent, beta_for, categorical, cem, fitness
from oht.types import Clock, Outcome, Proposal, Row, Tune, Tuner


@dataclass(frozen=True)
class Sampled:
    population: int = setting(10, "members N that draw values in each iteration", low=1, high=1000)
    members: Literal["persist", "fork"] = setting(
        "persist", "members persist with weights of their own, or fork from the main agent in each iteration"
    )
    search: Literal["cem", "es"] = setting("cem", "cem on (mu, sigma), or es: ascent on mu by Eqn (3)")
    elite_fraction: float = setting(0.5, "cem: share of the members that are elites", low=0, high=1)
    es_rate: float = setting(0.2, "es: learning rate beta of Eqn (3)", low=0)
    es_scale: Literal["natural", "unbiased", "paper"] = setting(
        "natural",
        "es: the step of Eqn (3) in sigmas and at most es_rate (natural); for raw returns with the factor 1/sigma^2"
        " (unbiased) or 1/sigma (paper, as printed)",
    )
    beta: float | None = setting(
        None,
        "learning rate of the logits of discrete values (Adam), Eqn (4): 0.02 in the paper (default:"
        " 0.02 sqrt(1e7 / steps))",
        low=0,
    )
    fitness: Literal["standard", "ranks", "raw"] = setting(
        "standard", "what returns become before the update: standard, ranks or raw"
    )
    replay_ratio: float = setting(1.0, "gradient steps of the main agent for each env step of all", low=0, high=1000)
    member_ratio: float | None = setting(
        None, "gradient steps of each member for each env step of all (default: 1 / population)", low=0, high=1000
    )


class State(NamedTuple):
    gaussian: Gaussian
    logits: dict[str, Categorical]
    points: np.ndarray  # (N, D) what the members drew, continuous dimensions, encoded
    indices: dict[str, np.ndarray]  # (N,) and for each discrete dimension


def make(settings: Sampled, tune: Tune, base: Mapping[str, float]) -> Tuner:
    space = Space(tune, base)
    if not space.names:
        raise UserError("there is nothing to tune; name it, as in tune n_step=1,2,3 or actor_lr=log:1e-5..1e-2.")
    number = settings.population
    gaussian = _gaussian_search(settings, space)
    discrete = {name: categorical(len(choice.values)) for name, choice in space.choices.items()}
    member_ratio = 1 / number if settings.member_ratio is None else settings.member_ratio
    ratios = np.array([settings.replay_ratio] + number * [member_ratio])
    everyone = np.arange(number + 1)

    def centre(state: State) -> dict[str, float]:
        """What the main agent uses."""
        values = {name: float(value) for name, value in space.decode(gaussian.best(state.gaussian)).items()}
        return values | space.untie(
            {
                name: likeliest(choice, state.logits[name], [base[part] for part in tied(name)])
                for name, choice in space.choices.items()
            }
        )

    def init(rng: np.random.Generator) -> State:
        logits = {name: search.init() for name, search in discrete.items()}
        indices = {name: np.zeros(number, np.int64) for name in discrete}
        return State(gaussian.init(), logits, np.tile(space.mu, (number, 1)), indices)

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, Proposal]:
        rate = np.array(beta_for(settings.beta, clock.total))
        state = state._replace(logits={name: logits._replace(rate=rate) for name, logits in state.logits.items()})
        points = gaussian.draw(rng, state.gaussian, number)
        indices = {name: search.draw(rng, state.logits[name], number) for name, search in discrete.items()}
        state = state._replace(points=points, indices=indices)
        values = space.decode(points)
        values |= {
            part: np.array(choice.values)[indices[name]]
            for name, choice in space.choices.items()
            for part in tied(name)
        }
        main = centre(state)
        hyper = {name: np.full(number + 1, value, np.float64) for name, value in base.items()}
        hyper |= {name: np.concatenate([[main[name]], values[name]]) for name in space.names}
        fork = settings.members == "fork" and clock.iteration > 0
        sources = np.zeros_like(everyone) if fork else everyone
        return state, Proposal(hyper, ratios, sources, everyone[1:], np.full(number, clock.iteration))

    def tell(rng: np.random.Generator, state: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        shown = row(state, proposal, outcome)
        shaped = fitness(settings.fitness, outcome.returns)
        logits = {
            name: search.learn(state.logits[name], state.indices[name], shaped) for name, search in discrete.items()
        }
        return state._replace(gaussian=gaussian.learn(state.gaussian, state.points, shaped), logits=logits), shown

    def champion(rng: np.random.Generator, state: State) -> int:
        return 0

    def row(state: State, proposal: Proposal, outcome: Outcome) -> Row:
        """The distribution that was sampled, the main agent's values, and the episodes."""
        row = columns.gaussian(tuple(space.continuous), state.gaussian)
        for name, choice in space.choices.items():
            row |= columns.logits(name, choice, state.logits[name])
        row |= columns.champion({name: proposal.hyper[name][0] for name in space.names})
        return row | columns.samples(proposal, space.names, outcome)

    return Tuner(number + 1, init, ask, tell, champion)


def _gaussian_search(settings: Sampled, space: Space) -> Search:
    start = (space.mu, space.sigma, *space.bounds)
    if settings.search == "es":
        return ascent(*start, rate=settings.es_rate, scale=settings.es_scale)
    if space.continuous and round(settings.elite_fraction * settings.population) < 2:
        raise UserError("CEM needs at least 2 elites, or sigma would be 0 at once: more population or elite_fraction.")
    return cem(*start, elite_fraction=settings.elite_fraction)


def likeliest(choice: Choice, state: Categorical, usual: Sequence[float]) -> float:
    """The value with the highest logit; among equals the first usual one that is there, otherwise the first."""
    best = [value for value, logit in zip(choice.values, state.logits, strict=True) if logit == state.logits.max()]
    return next((value for value in usual if value in best), best[0])
