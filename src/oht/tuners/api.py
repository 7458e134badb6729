"""What a tuner is: who trains next with which values, who plays, and what the returns teach."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

Key = jax.Array
State = Any  # a pytree of arrays, so that it can be saved; each tuner has its own
Agents = Any  # the state of an algorithm, each leaf with a leading axis P


class Proposal(NamedTuple):
    """One iteration of Algorithm 1, lines 3 to 5, as the tuner wants it."""

    agents: Agents  # kept, forked or copied
    hyper: Mapping[str, np.ndarray]  # every hyper-parameter, one value for each of the P agents
    ratios: np.ndarray  # (P,) gradient steps of each agent for each env step that all collected; 0: it does not train
    actors: np.ndarray  # (M,) the agents that play, one episode each; an agent that plays twice is named twice
    since: int = 0  # iterations since the round began whose episodes `same_start` compares
    sick: Sequence[int] = ()  # told, not asked: agents that diverged (or were stuck) and had to be replaced


class Tuner(NamedTuple):
    """Pure functions on a state; `env_steps` are those of all agents so far."""

    population: int
    init: Callable[[Key], State]
    ask: Callable[[Key, State, Agents, int], tuple[State, Proposal]]
    tell: Callable[[Key, State, Agents, Proposal, np.ndarray], tuple[State, Agents]]  # the last: M returns
    champion: Callable[[Key, State], int]  # the agent that is tested
    record: Callable[[State, Proposal, Sequence[float]], dict[str, float]]  # this iteration's row of schedule.csv
    explore: bool = True  # whether episodes of the population carry exploration noise
    same_start: bool = False  # whether the agents of a round all start from the same state
    prime: bool = True  # whether the steps of the random start count for the ratios, so that all learn before they play
    unstick: bool = False  # whether agents whose actions are stuck at their bounds count as sick
    own_replays: bool = False  # whether each agent learns only from its own episodes
    shared_critic: bool = False  # whether the agents that learn have one critic, as in CEM-RL


@jax.jit
def copied(agents: Agents, sources: np.ndarray) -> Agents:
    """Agent i goes on as a copy of agent sources[i], optimiser and targets included."""
    return jax.tree.map(lambda leaf: leaf[sources], agents)
