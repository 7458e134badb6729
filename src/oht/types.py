"""Every type that more than one module uses, once.

JAX is not imported here: tuners, environment workers and tables do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jax import Array

    from oht.spaces import Dimension
else:
    Array = Dimension = Any

Key = Array
State = Any  # a pytree of arrays
Agents = Any  # the state of an algorithm, each leaf with a leading axis P
Hyper = Mapping[str, Any]  # hyper-parameters by name: numbers, traced or not
Metrics = dict[str, Array]
Row = dict[str, float]  # a line of a table
Act = Callable[[int, np.ndarray], np.ndarray]  # (t, observations (M, obs)) -> actions (M, action) in [-1, 1]
Tune = Mapping[str, Dimension]  # what is tuned, by name


# One agent


class Spec(NamedTuple):
    """The sizes of a task's observation and action vectors; actions lie in [-1, 1]."""

    obs: int
    action: int


class Batch(NamedTuple):
    """Transitions with their n-step targets already summed, one row each.

    target = reward + discount * V(next_obs), where reward is the discounted sum of m <= n rewards and
    discount is gamma^m, or 0 after a terminal.
    """

    obs: Array
    action: Array
    reward: Array
    discount: Array
    next_obs: Array

    def split(self, parts: int) -> list[Batch]:
        """`parts` batches with equal numbers of rows."""
        rows = len(self.reward) // parts
        return [Batch(*(leaf[i * rows : (i + 1) * rows] for leaf in self)) for i in range(parts)]


class ActorCriticSteps(NamedTuple):
    """The parts of a deterministic actor-critic's update, for methods that combine them in another way."""

    critic: Callable[[Key, State, Batch, Hyper, int], tuple[State, Metrics]]  # `int` gradient steps of the critic
    actor: Callable[[State, Batch, Hyper], tuple[State, Metrics]]  # one gradient step of the actor
    targets: Callable[[State, Hyper], State]  # one step of all target networks
    actor_loss: Callable[[Any, Any, Array], Array]  # (actor, critic, obs) -> - mean Q(x, pi(x))


class Algorithm(NamedTuple):
    """One agent as pure functions.

    `update` gets `batches` minibatches in one Batch, rows of the first before rows of the second, for as many gradient
    steps, and after them `spare` more, which it may use for something else.
    `hyper` holds the default of every number that `update`, `act` or the replay reads, so all can be tuned;
    it must have `n_step` and `gamma`, which the replay uses to make the targets, and may have `recency`.
    """

    init: Callable[[Key], State]
    act: Callable[[Key, State, Array, Hyper, bool], Array]  # (key, state, obs, hyper, explore) -> action
    update: Callable[[Key, State, Batch, Hyper], tuple[State, Metrics]]
    hyper: dict[str, float]
    batches: int = 1
    spare: int = 0
    learned: Callable[[State], dict[str, Array]] = lambda state: {}  # hyper-parameters that the agent itself moved
    steps: ActorCriticSteps | None = None


class Episode(NamedTuple):
    """One whole episode of T steps."""

    obs: np.ndarray  # (T + 1, obs) float32, the last observation included
    action: np.ndarray  # (T, action) float32 in [-1, 1], as the policy gave it
    reward: np.ndarray  # (T,) float32
    terminal: bool  # False: the episode was cut by a time limit

    @property
    def total(self) -> float:
        """The undiscounted return."""
        return float(self.reward.sum(dtype=np.float64))


# A population and its tuner

DRAWS = 101  # of the champion, where it is drawn at random
NEW = -1  # in `Proposal.sources`: fresh weights


class Clock(NamedTuple):
    """How far a run has come."""

    steps: int  # env steps of all agents so far
    total: int  # env steps of the whole run
    iteration: int


class Proposal(NamedTuple):
    """One iteration of Algorithm 1 as the tuner wants it."""

    hyper: Mapping[str, np.ndarray]  # every hyper-parameter, (P,) values: one for each agent
    ratios: np.ndarray  # (P,) gradient steps of each agent for each env step of all; 0: it does not train
    sources: np.ndarray  # (P,) whose weights each agent continues from; its own index: unchanged; NEW: fresh weights
    actors: np.ndarray  # (M,) who plays, one episode each; an agent that plays twice is named twice
    starts: np.ndarray  # (M,) episodes with equal numbers begin in the same state
    explore: bool = True  # whether they play with exploration noise


class Outcome(NamedTuple):
    """What happened in an iteration."""

    returns: np.ndarray  # (M,) of the episodes; -inf where the agent had been replaced
    replaced: np.ndarray  # (P,) bool: agents that had diverged or saturated and were replaced
    learned: Mapping[str, np.ndarray] = MappingProxyType({})  # (P,) what the agents themselves moved


class Tuner(NamedTuple):
    """Pure functions of NumPy arrays: a tuner never sees a weight."""

    population: int
    init: Callable[[np.random.Generator], State]  # arrays only, so that it can be saved
    ask: Callable[[np.random.Generator, State, Clock], tuple[State, Proposal]]
    tell: Callable[[np.random.Generator, State, Proposal, Outcome], tuple[State, Row]]  # the row of schedule.csv
    champion: Callable[[np.random.Generator, State], int]  # who plays an episode of an evaluation

    def deployed(self, rng: np.random.Generator, state: State) -> int:
        """The agent to deploy: the champion or, where it is drawn at random, the most frequent one."""
        return int(np.bincount([self.champion(rng, state) for _ in range(DRAWS)]).argmax())


class Method(NamedTuple):
    """How hyper-parameters are chosen: a tuner, and what else the method needs."""

    summary: str
    settings: type  # a frozen dataclass of `oht.settings.setting` fields
    make: Callable[[Any, Tune, Mapping[str, float]], Tuner]  # (settings, tune, the algorithm's hyper-parameters)
    tune: Tune = MappingProxyType({})  # what is tuned where the user does not say
    learner: Callable[[Any, Algorithm, int], Any] | None = None  # (settings, algorithm, batch size) -> a Learner
    adapt: Callable[[Any, Tune, Algorithm], Algorithm] | None = None  # the algorithm as the method needs it


# What a run tells its callbacks


class Start(NamedTuple):
    """A run starts or continues."""

    path: Path  # the run folder
    config: Mapping[str, Any]  # every setting, as in config.toml
    env_steps: int  # those of the checkpoint that it continues from, or 0


class Phase(NamedTuple):
    """How far a run is with something that takes long."""

    name: str  # "random actions", counted in env steps, or "learning", counted in gradient steps
    done: int
    of: int


class Iteration(NamedTuple):
    """An iteration is done and written."""

    iteration: int
    env_steps: int
    updates: int  # gradient steps of all agents so far
    wall_time: float  # seconds of training so far
    steps_per_second: float  # env steps, since the iteration before
    returns: np.ndarray  # of its training episodes; -inf where the agent was replaced
    metrics: Row  # return_mean, return_min, return_max and what the algorithm logs: columns of metrics.csv
    schedule: Row  # the tuner's columns of schedule.csv
    replaced: list[int]  # agents that had diverged or saturated and were replaced
    saturated: list[int]  # agents whose actions are all at their bounds, and were not in the iteration before


class EnvFailure(NamedTuple):
    """The env failed in an episode, which is repeated from another seed (`env_errors`)."""

    env_steps: int  # those of the run so far
    seed: int  # of the episode
    message: str


class Evaluation(NamedTuple):
    """An evaluation is done and written."""

    iteration: int
    env_steps: int
    wall_time: float
    returns: list[float]  # of its episodes
    mean: float
    std: float
    record: bool  # whether it is the best so far


class End(NamedTuple):
    """A run ends; `oht.resume` continues it where it is not done."""

    state: Literal["done", "stopped", "failed"]
    reason: str  # why it stopped or failed
    env_steps: int
    updates: int
    wall_time: float
