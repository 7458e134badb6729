"""OHT-ES for discrete hyper-parameters, as in the paper's appendix: one persistent agent (an arm) for each value.

Each iteration draws who plays; all learn from the one replay; after a window of episodes the logits take one step of
Eqn (4). With several `Choice` dimensions every combination is an arm, and each dimension has logits of its own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Dimension, Space
from oht.tuners import columns
from oht.tuners.api import Agents, Key, Proposal, Tuner
from oht.tuners.search import Categorical, categorical, fitness, generator, softmax

MOST_ARMS = 64


@dataclass(frozen=True)
class Discrete:
    """What the logits of a discrete dimension need, whoever samples from them."""

    beta: float = setting(0.02, "learning rate of the logits (Adam), Eqn (4); 0 never learns, a control", low=0)
    epsilon: float = setting(0.1, "share of uniform draws when sampling discrete values", low=0, high=1)
    importance: bool = setting(False, "weigh discrete samples by P over the epsilon-mixed P")
    fitness: Literal["standard", "ranks", "raw"] = setting(
        "standard", "what returns become before the update: standard, ranks or raw"
    )


@dataclass(frozen=True)
class Arms(Discrete):
    window: int = setting(6, "arms: episodes for each step of the logits", low=1, high=10**6)
    train: Literal["all", "played"] = setting("all", "arms: which arms learn in an iteration: all or played")
    champion: Literal["sample", "argmax"] = setting("sample", "arms: the tested arm: sample (from P) or argmax")
    replay_ratio: float | None = setting(
        None,
        "arms: gradient steps of each trained arm for each env step; by default 2 over the number of trained arms,"
        " but at most 1: not more than twice the cost of one agent",
        low=0,
    )


class State(NamedTuple):
    logits: dict[str, Categorical]
    arms: np.ndarray  # (window,) who played the episodes of this window ...
    returns: np.ndarray  # (window,) ... and what they got
    played: np.ndarray  # how many of them there are so far


def make(settings: Arms, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    space = Space(tune, base)
    choices = space.choices
    if not choices or space.continuous:
        raise UserError("arms need discrete values, as in n_step=1,2,3; choose the method oht for any others.")
    sizes = tuple(len(choice.values) for choice in choices.values())
    number = math.prod(sizes)
    if number > MOST_ARMS:
        raise UserError(
            f"{' x '.join(map(str, sizes))} = {number} arms are more than {MOST_ARMS}; choose the method oht, "
            "which samples a population from all combinations."
        )
    rule = {"rate": settings.beta, "epsilon": settings.epsilon, "importance": settings.importance}
    searches = {name: categorical(size, **rule) for name, size in zip(choices, sizes, strict=True)}
    index_of = np.unravel_index(np.arange(number), sizes)  # for each dimension, the index that each arm stands for
    hyper = {name: np.full(number, value, np.float64) for name, value in base.items()}
    for (name, choice), indices in zip(choices.items(), index_of, strict=True):
        hyper |= space.untie({name: np.array(choice.values)[indices]})
    trained = number if settings.train == "all" else 1
    ratio = min(1.0, 2 / trained) if settings.replay_ratio is None else settings.replay_ratio

    def likeliest(state: State) -> int:
        indices = [searches[name].best(state.logits[name]) for name in searches]
        return int(np.ravel_multi_index(indices, sizes))

    def init(key: Key) -> State:
        window = settings.window
        logits = {name: search.init() for name, search in searches.items()}
        return State(logits, np.zeros(window, np.int64), np.zeros(window), np.zeros((), np.int64))

    def ask(key: Key, state: State, agents: Agents, env_steps: int) -> tuple[State, Proposal]:
        rng = generator(key)
        indices = [search.draw(rng, state.logits[name], 1)[0] for name, search in searches.items()]
        arm = int(np.ravel_multi_index(indices, sizes))
        ratios = np.full(number, ratio) if settings.train == "all" else ratio * np.eye(number)[arm]
        return state, Proposal(agents, hyper, ratios, np.array([arm]))

    def tell(key: Key, state: State, agents: Agents, proposal: Proposal, returns: np.ndarray) -> tuple[State, Agents]:
        now = np.arange(settings.window) == state.played
        arms = np.where(now, proposal.actors[0], state.arms)
        got = np.where(now, returns[0], state.returns)
        state = State(state.logits, arms, got, state.played + 1)
        if state.played < settings.window:
            return state, agents
        shaped = fitness(settings.fitness, got)
        logits = {
            name: search.learn(state.logits[name], indices[arms], shaped)
            for (name, search), indices in zip(searches.items(), index_of, strict=True)
        }
        return state._replace(logits=logits, played=np.zeros((), np.int64)), agents

    def champion(key: Key, state: State) -> int:
        """A draw from P without epsilon: one for each test episode tests P itself."""
        if settings.champion == "argmax":
            return likeliest(state)
        rng = generator(key)
        indices = [rng.choice(len(search.logits), p=softmax(search.logits)) for search in state.logits.values()]
        return int(np.ravel_multi_index(indices, sizes))

    def record(state: State, proposal: Proposal, returns: Sequence[float]) -> dict[str, float]:
        row: dict[str, float] = {}
        for name, choice in choices.items():
            row |= columns.logits(name, choice, state.logits[name])
        row |= columns.champion({name: hyper[name][likeliest(state)] for name in space.names})
        return row | columns.samples(proposal, space.names, returns)

    return Tuner(number, init, ask, tell, champion, record)
