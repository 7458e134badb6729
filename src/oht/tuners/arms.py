"""OHT-ES for discrete hyper-parameters, as in the paper's appendix: one persistent agent (an arm) for each value.

Each iteration draws who plays; all learn from the one replay; after a window of episodes the logits take one step of
Eqn (4). With several `Choice` dimensions every combination is an arm, and each dimension has logits of its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Space, tied
from oht.tuners import columns
from oht.tuners.search import Categorical, beta_for, categorical, fitness, softmax
from oht.types import Clock, Outcome, Proposal, Row, Tune, Tuner

MOST_ARMS = 64


@dataclass(frozen=True)
class Arms:
    beta: float | None = setting(
        None,
        "learning rate of the logits (Adam), Eqn (4): 0.02 in the paper, 0 never learns (default:"
        " 0.02 sqrt(1e7 / steps))",
        low=0,
    )
    epsilon: float = setting(0.1, "share of uniform draws when sampling who plays", low=0, high=1)
    importance: bool = setting(False, "weigh samples by P over the epsilon-mixed P")
    fitness: Literal["standard", "ranks", "raw"] = setting(
        "standard", "what returns become before the update: standard, ranks or raw"
    )
    window: int = setting(6, "episodes for each step of the logits", low=1, high=10**6)
    train: Literal["all", "played"] = setting("all", "which arms learn in an iteration: all or played")
    champion: Literal["sample", "argmax"] = setting("sample", "the evaluated arm: sample (from P) or argmax")
    replay_ratio: float | None = setting(
        None,
        "gradient steps of each trained arm for each env step; by default 2 over the number of trained arms, but at"
        " most 1: not more than twice the cost of one agent",
        low=0,
    )


class State(NamedTuple):
    logits: dict[str, Categorical]
    arms: np.ndarray  # (window,) who played the episodes of this window ...
    returns: np.ndarray  # (window,) ... and their returns
    played: np.ndarray  # how many of them there are so far


def make(settings: Arms, tune: Tune, base: Mapping[str, float]) -> Tuner:
    space = Space(tune, base)
    choices = space.choices
    if not choices or space.continuous:
        raise UserError("arms need discrete values, as in n_step=1,2,3; choose the method oht for any others.")
    sizes = tuple(len(choice.values) for choice in choices.values())
    number = math.prod(sizes)
    if number > MOST_ARMS:
        raise UserError(
            f"{' x '.join(map(str, sizes))} = {number} arms are more than {MOST_ARMS}; choose the method oht, "
            "which draws a population from all combinations."
        )
    rule = {"epsilon": settings.epsilon, "importance": settings.importance}
    searches = {name: categorical(size, **rule) for name, size in zip(choices, sizes, strict=True)}
    index_of = dict(zip(choices, np.unravel_index(np.arange(number), sizes), strict=True))  # the value of each arm
    hyper = {name: np.full(number, value, np.float64) for name, value in base.items()}
    hyper |= {part: np.array(choice.values)[index_of[name]] for name, choice in choices.items() for part in tied(name)}
    trained = number if settings.train == "all" else 1
    ratio = min(1.0, 2 / trained) if settings.replay_ratio is None else settings.replay_ratio
    everyone = np.arange(number)

    def likeliest(state: State) -> int:
        indices = [searches[name].best(state.logits[name]) for name in searches]
        return int(np.ravel_multi_index(indices, sizes))

    def init(rng: np.random.Generator) -> State:
        window = settings.window
        logits = {name: search.init() for name, search in searches.items()}
        return State(logits, np.zeros(window, np.int64), np.zeros(window), np.zeros((), np.int64))

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, Proposal]:
        rate = np.array(beta_for(settings.beta, clock.total))
        state = state._replace(logits={name: logits._replace(rate=rate) for name, logits in state.logits.items()})
        indices = [search.draw(rng, state.logits[name], 1)[0] for name, search in searches.items()]
        arm = int(np.ravel_multi_index(indices, sizes))
        ratios = np.full(number, ratio) if settings.train == "all" else ratio * np.eye(number)[arm]
        return state, Proposal(hyper, ratios, everyone, np.array([arm]), np.array([clock.iteration]))

    def tell(rng: np.random.Generator, state: State, proposal: Proposal, outcome: Outcome) -> tuple[State, Row]:
        shown = row(state, proposal, outcome)
        now = np.arange(settings.window) == state.played
        arms = np.where(now, proposal.actors[0], state.arms)
        returns = np.where(now, outcome.returns[0], state.returns)
        state = State(state.logits, arms, returns, state.played + 1)
        if state.played < settings.window:
            return state, shown
        shaped = fitness(settings.fitness, returns)
        logits = {
            name: search.learn(state.logits[name], index_of[name][arms], shaped) for name, search in searches.items()
        }
        return state._replace(logits=logits, played=np.zeros((), np.int64)), shown

    def champion(rng: np.random.Generator, state: State) -> int:
        """A draw from P without epsilon: one for each evaluation episode evaluates P itself."""
        if settings.champion == "argmax":
            return likeliest(state)
        chances = [softmax(state.logits[name].logits) for name in searches]
        indices = [rng.choice(len(each), p=each) for each in chances]
        return int(np.ravel_multi_index(indices, sizes))

    def row(state: State, proposal: Proposal, outcome: Outcome) -> Row:
        """The distribution that was sampled, the likeliest arm's values, and the episode."""
        row: Row = {}
        for name, choice in choices.items():
            row |= columns.logits(name, choice, state.logits[name])
        row |= columns.champion({name: hyper[name][likeliest(state)] for name in space.names})
        return row | columns.samples(proposal, space.names, outcome)

    return Tuner(number, init, ask, tell, champion)
