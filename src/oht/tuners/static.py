"""One agent with constant hyper-parameters: the baseline, and the base algorithm as everyone knows it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Dimension
from oht.tuners.api import Agents, Key, Proposal, State, Tuner
from oht.tuners.columns import samples


@dataclass(frozen=True)
class Static:
    replay_ratio: float = setting(1.0, "gradient steps for each env step", low=0, high=1000)


def make(settings: Static, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(
            f"the method static tunes nothing, so {', '.join(tune)} cannot be tuned; choose the method oht."
        )
    return lone(settings.replay_ratio, lambda env_steps: dict(base))


def lone(replay_ratio: float, hyper_at: Callable[[int], Mapping[str, float]]) -> Tuner:
    """One agent that plays one episode in each iteration; `hyper_at(env_steps)` are its hyper-parameters."""

    def init(key: Key) -> State:
        return ()

    def ask(key: Key, state: State, agents: Agents, env_steps: int) -> tuple[State, Proposal]:
        hyper = {name: np.array([value], np.float64) for name, value in hyper_at(env_steps).items()}
        return state, Proposal(agents, hyper, np.array([replay_ratio]), np.array([0]))

    def tell(key: Key, state: State, agents: Agents, proposal: Proposal, returns: np.ndarray) -> tuple[State, Agents]:
        return state, agents

    def champion(key: Key, state: State) -> int:
        return 0

    def record(state: State, proposal: Proposal, returns: Sequence[float]) -> dict[str, float]:
        return samples(proposal, (), returns)

    return Tuner(1, init, ask, tell, champion, record)
