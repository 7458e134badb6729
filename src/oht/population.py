"""Many agents as one: the population axis, how agents learn and how they act."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from threading import Lock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from oht import devices
from oht import replay as ring
from oht.machine import cores
from oht.types import NEW, Act, Agents, Algorithm, Array, Batch, Episode, Hyper, Key, Metrics, Outcome, Proposal

KEYS = 128  # time steps whose keys are made at once
CHUNK = 2000  # gradient steps of all agents between two reports of progress
Report = Callable[[int, int], None]  # (gradient steps done, gradient steps in all)


def create(key: Key, algorithm: Algorithm, number: int) -> Agents:
    """New agents."""
    keys = jax.random.split(key, number)
    traced, called = _creation(algorithm.init)
    return (traced if isinstance(keys, Tracer) else called)(keys)  # traced: only the shapes are wanted


@lru_cache(maxsize=64)
def _creation(init: Callable[[Key], Any]) -> tuple[Callable[[Key], Agents], Callable[[Key], Agents]]:
    """(keys (P,)) -> new agents, to be traced and to be called; a run asks for them several times.

    Random numbers take seconds to compile well, far longer than to draw once, so little is optimised.
    """
    everyone = jax.jit(jax.vmap(init))
    return everyone, jax.jit(everyone, compiler_options={"xla_backend_optimization_level": 0})


def number_of(agents: Agents) -> int:
    return jax.tree.leaves(agents)[0].shape[0]


@jax.jit
def take(agents: Agents, index: np.ndarray | int) -> Agents:
    """The agents at these places (or the one at this place, without the axis)."""
    return jax.tree.map(lambda leaf: leaf[index], agents)


def put(agents: Agents, index: np.ndarray, others: Agents) -> Agents:
    """The population with `others` at these places."""
    order = np.arange(number_of(agents))
    order[index] = len(order) + np.arange(len(index))
    return _chosen(agents, others, order)


@jax.jit
def _chosen(agents: Agents, others: Agents, order: np.ndarray) -> Agents:
    """Those at these places of both, one after the other. It compiles in a fraction of the time of setting a part."""
    return jax.tree.map(lambda leaf, other: jnp.concatenate([leaf, other])[order], agents, others)


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
    return {name: np.asarray(values, np.float64) for name, values in _learned(algorithm.learned, agents).items()}


@partial(jax.jit, static_argnums=0)
def _learned(learned: Callable[[Any], Hyper], agents: Agents) -> Hyper:
    return jax.vmap(learned)(agents)


def zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


class Learner:
    """Trains a population on one shared replay; compiled once for each number of agents that train together.

    A method that needs another replay or another kind of learning brings a subclass.
    """

    replay_axis: int | None = None  # 0: the replay has the population axis, too
    draws: bool = False  # whether `learn` makes new agents, so that nobody can play before it is over

    def __init__(self, algorithm: Algorithm, batch_size: int):
        self.algorithm, self.batch_size = algorithm, batch_size
        self._compiled: set[int] = set()  # bounds of n_step for which there is a program

    def empty_replay(self, population: int, slots: int, obs: int, action: int, longest: int) -> ring.Replay:
        """Room for `slots` observations; `longest` is the most steps of an episode."""
        return ring.empty(slots, obs, action)

    def store(self, replay: ring.Replay, episodes: Sequence[Episode], actors: np.ndarray | None) -> ring.Replay:
        """The replay with these episodes of these agents (None: random actions). Do not use the given one again."""
        replay = devices.everywhere(replay)
        for episode in episodes:
            replay = ring.extend(replay, *episode)
        return replay

    def replay_of(self, replay: ring.Replay, members: np.ndarray) -> ring.Replay:
        """What these agents learn from."""
        return replay

    def observations(self, key: Key, replay: ring.Replay, number: int) -> Array:
        """`number` stored observations, drawn at random."""
        return _observations(key, devices.first_copy(replay), number)

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

        Its random numbers depend on `key` and j alone, not on who trains beside it. Returns the agents and the mean of
        each metric over all gradient steps.
        """
        groups = devices.groups(updates)
        replay = devices.everywhere(replay)
        keys, done, max_n = _own_keys(key, len(updates)), Done(int(updates.sum()), report), _max_n(hyper)

        def train(group: devices.Group) -> tuple[Agents, dict[str, float]]:
            members = group.members
            own_keys, some, eta = group.moved((*take((keys, agents), members), values_of(hyper, members)))
            rings = self.replay_of(group.copy(replay), members)
            return self._train(own_keys, some, rings, eta, updates[members], max_n, done)

        if len(groups) < 2 or max_n not in self._compiled:  # at once they would all compile the same program
            trained = list(map(train, groups))
            self._compiled.add(max_n)
        else:
            with ThreadPoolExecutor(min(len(groups), cores())) as threads:
                trained = list(threads.map(train, groups))
        if groups:
            index = np.concatenate([group.members for group in groups])
            agents = put(agents, index, joined(devices.together([some for some, _ in trained])))
        return agents, {name: value / done.steps for name, value in _added([sums for _, sums in trained]).items()}

    def _train(
        self,
        keys: Key,
        agents: Agents,
        replay: ring.Replay,
        hyper: Hyper,
        updates: np.ndarray,
        max_n: int,
        done: "Done",
    ) -> tuple[Agents, dict[str, float]]:
        """Agents train in one program; those with more steps continue when the others have finished.

        Returns the agents and the sum of each metric over all gradient steps.
        """
        batches, before, sums = self.algorithm.batches, 0, []
        for level in np.unique(updates).tolist():
            members = np.flatnonzero(updates >= level)
            everyone = len(members) == len(updates)
            some_keys, some, eta = (keys, agents, hyper) if everyone else take((keys, agents, hyper), members)
            rings = replay if everyone else self.replay_of(replay, members)
            chunk = max(CHUNK // len(members) // batches, 1) * batches
            for first in range(before, level, chunk):
                size = min(chunk, level - first)
                calls = np.int32(first // batches), np.int32((first + size) // batches)
                some, metrics = self._learn(some_keys, some, rings, eta, *calls, max_n)
                sums.append({name: float(np.asarray(values).sum()) * size for name, values in metrics.items()})
                done.add(size * len(members))
            agents = some if everyone else put(agents, members, some)
            before = level
        return agents, _added(sums)

    def evolve(self, agents: Agents, proposal: Proposal, outcome: Outcome) -> Agents:
        """The agents after a change of weights by the returns; here nothing changes."""
        return agents

    def metric_names(self, agents: Agents, replay: ring.Replay, hyper: Mapping[str, np.ndarray]) -> list[str]:
        """The names of the metrics that `learn` returns, without learning anything.

        Traced as `learn` is with these hyper-parameters, so that it need not be traced again.
        """
        members = np.arange(1 if devices.separate() else number_of(agents))
        eta = {name: np.zeros(len(members), np.float32) for name in hyper}
        keys, calls = jax.random.split(jax.random.key(0), len(members)), (np.int32(0), np.int32(1))

        def metrics(keys: Key, agents: Agents, replay: ring.Replay) -> Metrics:
            some, rings = take(agents, members), self.replay_of(replay, members)
            return self._learn(keys, some, rings, eta, *calls, _max_n(hyper))[1]

        return list(jax.eval_shape(metrics, keys, agents, replay))

    @partial(jax.jit, static_argnums=(0, 7))
    def _learn(
        self, keys: Key, agents: Agents, replay: ring.Replay, hyper: Hyper, first: Array, last: Array, max_n: int
    ) -> tuple[Agents, Metrics]:
        """The updates from `first` to before `last` of each agent, and for each the means of its metrics.

        `max_n` bounds every n_step.
        """

        def one(key: Key, agent, replay: ring.Replay, hyper: Hyper):
            sample_key, update_key = jax.random.split(key)
            rows = (self.algorithm.batches + self.algorithm.spare) * self.batch_size
            batch = sampled(sample_key, replay, rows, hyper, max_n)
            return self.algorithm.update(update_key, agent, batch, hyper)

        axes = (0, 0, self.replay_axis, 0)
        mapped = jax.vmap(one, axes) if number_of(agents) > 1 else alone(one, axes)
        everyone = jax.jit(mapped)  # traced once, though called twice below

        def step(i: Array, carry):
            agents, total = carry
            agents, metrics = everyone(_at(keys, i), agents, replay, hyper)
            return agents, jax.tree.map(jnp.add, total, metrics)

        metrics = jax.eval_shape(everyone, keys, agents, replay, hyper)[1]
        agents, total = jax.lax.fori_loop(first, last, step, (agents, zeros(metrics)))
        return agents, jax.tree.map(lambda t: t / (last - first), total)


def alone(function: Callable, axes: Sequence[int | None]) -> Callable:
    """As `jax.vmap` over a leading axis of length one, but the axis is taken away: products without it are faster."""

    def call(*arguments):
        own = [argument if axis is None else _first(argument) for argument, axis in zip(arguments, axes, strict=True)]
        return jax.tree.map(lambda leaf: leaf[None], function(*own))

    return call


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def sampled(key: Key, replay: ring.Replay, rows: int, hyper: Hyper, max_n: int) -> Batch:
    """A minibatch for an agent with these hyper-parameters."""
    return ring.sample(key, replay, rows, hyper["n_step"], hyper["gamma"], max_n, hyper.get("recency", 1.0))


@partial(jax.jit, static_argnums=2)
def _observations(key: Key, replay: ring.Replay, number: int) -> Array:
    return ring.sample(key, replay, number, n_step=1, gamma=1.0, max_n=1).obs


def _max_n(hyper: Mapping[str, np.ndarray]) -> int:
    """The smallest power of two that no n_step exceeds: fewer lengths of the look-ahead to compile."""
    return 1 << (int(hyper["n_step"].max()) - 1).bit_length()


@partial(jax.jit, static_argnums=1)
def _own_keys(key: Key, number: int) -> Key:
    """(number,) a key for each agent, which does not depend on how many there are."""
    return jax.vmap(lambda member: jax.random.fold_in(key, member))(jnp.arange(number))


def _at(keys: Key, i: Array) -> Key:
    """The key of each agent for its update i."""
    return jax.vmap(lambda key: jax.random.fold_in(key, i))(keys)


class Done:
    """Counts the gradient steps of groups that train at the same time, and reports them one after another."""

    def __init__(self, total: int, report: Report):
        self.steps, self._total, self._report, self._lock = 0, total, report, Lock()

    def add(self, steps: int) -> None:
        with self._lock:
            self.steps += steps
            self._report(self.steps, self._total)


def _added(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(part[name] for part in parts) for name in (parts[0] if parts else ())}


@jax.jit
def joined(parts: Sequence[Agents]) -> Agents:
    """One population of several."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


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
