"""Many agents as one: the only module that knows the population axis and devices."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht import replay as ring
from oht.types import NEW, Act, Agents, Algorithm, Array, Episode, Hyper, Key, Metrics, Outcome, Proposal

KEYS = 128  # time steps whose keys are made at once
CHUNK = 2000  # gradient steps of all agents between two reports of progress
Report = Callable[[int, int], None]  # (gradient steps done, gradient steps in all)


def create(key: Key, algorithm: Algorithm, number: int) -> Agents:
    """New agents. Random numbers take seconds to compile well, far longer than to draw once, so little is optimised."""
    keys, init = jax.random.split(key, number), jax.vmap(algorithm.init)
    if isinstance(keys, jax.core.Tracer):  # only the shapes are wanted
        return init(keys)
    return jax.jit(init, compiler_options={"xla_backend_optimization_level": 0})(keys)


def number_of(agents: Agents) -> int:
    return jax.tree.leaves(agents)[0].shape[0]


@jax.jit
def take(agents: Agents, index: np.ndarray | int) -> Agents:
    """The agents at these places (or the one at this place, without the axis)."""
    return jax.tree.map(lambda leaf: leaf[index], agents)


@jax.jit
def put(agents: Agents, index: np.ndarray, others: Agents) -> Agents:
    """The population with `others` at these places."""
    return jax.tree.map(lambda leaf, other: leaf.at[index].set(other), agents, others)


def gather(key: Key, algorithm: Algorithm, agents: Agents, sources: np.ndarray) -> Agents:
    """Agent i continues from the weights of agent sources[i], optimiser and targets included, or from NEW weights."""
    if (sources == np.arange(len(sources))).all():
        return agents
    fresh = np.flatnonzero(sources == NEW)
    agents = take(agents, np.where(sources == NEW, 0, sources))
    return put(agents, fresh, create(key, algorithm, len(fresh))) if fresh.size else agents


def values_of(hyper: Mapping[str, np.ndarray], members: np.ndarray) -> dict[str, np.ndarray]:
    """The hyper-parameters of these agents, as compiled functions take them."""
    return {name: np.asarray(values[members], np.float32) for name, values in hyper.items()}


def learned(algorithm: Algorithm, agents: Agents) -> dict[str, np.ndarray]:
    """(P,) of each hyper-parameter that the agents themselves have moved, where the algorithm is of that kind."""
    return {name: np.asarray(values, np.float64) for name, values in jax.vmap(algorithm.learned)(agents).items()}


def zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


class Learner:
    """Trains a population on one shared replay; compiled once for each number of agents that train together.

    A method that needs another replay or another kind of learning brings a subclass.
    """

    replay_axis: int | None = None  # 0: the replay has the population axis, too

    def __init__(self, algorithm: Algorithm, batch_size: int):
        self.algorithm, self.batch_size = algorithm, batch_size

    def empty_replay(self, population: int, slots: int, obs: int, action: int, longest: int) -> ring.Replay:
        """Room for `slots` observations; `longest` is the most steps of an episode."""
        return ring.empty(slots, obs, action)

    def store(self, replay: ring.Replay, episodes: Sequence[Episode], actors: np.ndarray | None) -> ring.Replay:
        """The replay with these episodes of these agents (None: random actions). Do not use the given one again."""
        for episode in episodes:
            replay = ring.extend(replay, *episode)
        return replay

    def replay_of(self, replay: ring.Replay, members: np.ndarray) -> ring.Replay:
        """What these agents learn from."""
        return replay

    def observations(self, key: Key, replay: ring.Replay, number: int) -> Array:
        """`number` stored observations, drawn at random."""
        return ring.sample(key, replay, number, n_step=1, gamma=1.0, max_n=1).obs

    def learn(
        self,
        key: Key,
        agents: Agents,
        replay: ring.Replay,
        hyper: Mapping[str, np.ndarray],
        updates: np.ndarray,
        report: Report,
    ) -> tuple[Agents, dict[str, float]]:
        """Agent j takes updates[j] gradient steps (multiples of `algorithm.batches`) with its own hyper-parameters.

        Agents train together; those with more steps continue when the others have finished. Returns the agents and the
        mean of each metric over all gradient steps.
        """
        batches, total, done, before = self.algorithm.batches, int(updates.sum()), 0, 0
        max_n = _power_of_two(int(hyper["n_step"].max()))
        sums: dict[str, float] = {}
        for level in np.unique(updates[updates > 0]).tolist():
            members = np.flatnonzero(updates >= level)
            some, eta, own = take(agents, members), values_of(hyper, members), self.replay_of(replay, members)
            chunk = max(CHUNK // len(members) // batches, 1) * batches
            for first in range(before, level, chunk):
                key, chunk_key = jax.random.split(key)
                size = min(chunk, level - first)
                some, metrics = self._learn(chunk_key, some, own, eta, np.int32(size // batches), max_n)
                done += size * len(members)
                for name, values in metrics.items():
                    sums[name] = sums.get(name, 0.0) + float(values.sum()) * size
                report(done, total)
            agents = some if len(members) == len(updates) else put(agents, members, some)
            before = level
        return agents, {name: value / done for name, value in sums.items()}

    def evolve(self, agents: Agents, proposal: Proposal, outcome: Outcome) -> Agents:
        """The agents after a change of weights by the returns; here nothing changes."""
        return agents

    def metric_names(self, agents: Agents, replay: ring.Replay, hyper: Mapping[str, float]) -> list[str]:
        """The names of the metrics that `learn` returns, without learning anything."""
        eta = {name: np.zeros(number_of(agents), np.float32) for name in hyper}
        return list(
            jax.eval_shape(lambda key: self._learn(key, agents, replay, eta, np.int32(1), 1)[1], jax.random.key(0))
        )

    @partial(jax.jit, static_argnums=(0, 6))
    def _learn(
        self, key: Key, agents: Agents, replay: ring.Replay, hyper: Hyper, calls: Array, max_n: int
    ) -> tuple[Agents, Metrics]:
        """`calls` updates of each agent, and for each the means of its metrics; `max_n` bounds every n_step."""

        def one(key: Key, agent, replay: ring.Replay, hyper: Hyper):
            sample_key, update_key = jax.random.split(key)
            rows = (self.algorithm.batches + self.algorithm.spare) * self.batch_size
            batch = ring.sample(sample_key, replay, rows, hyper["n_step"], hyper["gamma"], max_n)
            return self.algorithm.update(update_key, agent, batch, hyper)

        everyone = jax.vmap(one, in_axes=(0, 0, self.replay_axis, 0))

        def step(i: Array, carry):
            agents, total = carry
            keys = jax.random.split(jax.random.fold_in(key, i), number_of(agents))
            agents, metrics = everyone(keys, agents, replay, hyper)
            return agents, jax.tree.map(jnp.add, total, metrics)

        keys = jax.random.split(key, number_of(agents))
        metrics = jax.eval_shape(everyone, keys, agents, replay, hyper)[1]
        agents, total = jax.lax.fori_loop(0, calls, step, (agents, zeros(metrics)))
        return agents, jax.tree.map(lambda t: t / calls, total)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`: fewer lengths of the n-step look-ahead to compile."""
    return 1 << (number - 1).bit_length()


@partial(jax.jit, static_argnums=2)
def _keys(key: Key, first: Array, number: int) -> Array:
    """(KEYS, number) keys as plain numbers: of each agent at each time step from the first."""
    at = jax.vmap(lambda t: jax.random.split(jax.random.fold_in(key, t), number))
    return jax.random.key_data(at(first + jnp.arange(KEYS)))


class Arguments(NamedTuple):
    """The structure of one agent and its hyper-parameters, and the shapes of their leaves."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    def filled(self, known: Mapping[int, Any]) -> tuple[Any, dict[str, Any]]:
        """With these leaves, and zeros for those that nobody reads."""
        every = [known[i] if i in known else jnp.zeros(*leaf) for i, leaf in enumerate(self.leaves)]
        return jax.tree.unflatten(self.structure, every)


@lru_cache(maxsize=64)
def _program(act: Any, arguments: Arguments, obs: int, explore: bool) -> tuple[tuple[int, ...], Callable[..., Array]]:
    """Which leaves `act` reads, and (keys (M,), those leaves (M, ...), observations (M, obs)) -> actions, compiled."""

    def one(key: Array, given: Mapping[int, Array], obs: Array) -> Array:
        agent, hyper = arguments.filled(given)
        return act(jax.random.wrap_key_data(key), agent, obs, hyper, explore)

    every = {i: jax.ShapeDtypeStruct(*leaf) for i, leaf in enumerate(arguments.leaves)}
    key = jax.random.key_data(jax.random.key(0))
    program = jax.make_jaxpr(lambda given: one(key, given, jnp.zeros(obs)))(every).jaxpr
    used = {*map(id, program.outvars), *(id(variable) for equation in program.eqns for variable in equation.invars)}
    read = tuple(i for i, variable in enumerate(program.invars) if id(variable) in used)
    together = jax.vmap(lambda key, given, obs: one(key, dict(zip(read, given, strict=True)), obs))
    return read, jax.jit(together)


class Actors:
    """The policies of some agents; compiled once for each number of agents.

    A call takes longer the more arrays it is given, so it gets only those that `act` reads, and the keys of many steps
    are made at once. It runs on the CPU, where the envs are, even if agents learn on another device.
    """

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm

    def policies(self, key: Key, agents: Agents, hyper: Hyper, explore: bool) -> Act:
        """(t, observations (M, obs)) -> actions (M, action): row j by agent j, at time t with its own noise."""
        number, host = number_of(agents), jax.devices("cpu")[0]
        leaves, structure = jax.tree.flatten((agents, dict(hyper)))
        arguments = Arguments(structure, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves))
        prepared: tuple[list[Array], Callable[..., Array]] | None = None
        block, keys = -1, np.empty(0)

        def act(t: int, obs: np.ndarray) -> np.ndarray:
            nonlocal prepared, block, keys
            if prepared is None:
                read, program = _program(self.algorithm.act, arguments, obs.shape[1], explore)
                prepared = jax.device_put([leaves[i] for i in read], host), program
            if t // KEYS != block:
                block = t // KEYS
                keys = np.asarray(_keys(key, np.int32(block * KEYS), number))
            given, program = prepared
            return np.asarray(program(keys[t % KEYS], given, obs))

        return act
