"""Many agents as one: the only place that knows of the population axis and of devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from oht import replay as ring
from oht.agents.api import Algorithm, Array, Batch, Hyper, Key, Metrics
from oht.agents.networks import polyak
from oht.errors import UserError

Act = Callable[[int, np.ndarray], np.ndarray]
LOOKS = 256  # observations that tell whether an agent still does different things
Agents = Any  # the state of an algorithm, each leaf with a leading axis P


def create(key: Key, algorithm: Algorithm, number: int) -> Agents:
    return jax.jit(jax.vmap(algorithm.init))(jax.random.split(key, number))


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


def own_replays(number: int, slots: int, obs: int, action: int) -> ring.Replay:
    """A ring for each agent: `ring.empty` with a leading axis P."""
    one = ring.empty(slots, obs, action)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (number, *leaf.shape)).copy(), one)


def store(replays: ring.Replay, member: int, episode: tuple[np.ndarray, np.ndarray, np.ndarray, bool]) -> ring.Replay:
    """The rings with an episode in that of one agent. The given ones are used up."""
    return _put_ring(replays, member, ring.extend(take(replays, member), *episode))


@partial(jax.jit, donate_argnums=0)
def _put_ring(replays: ring.Replay, member: Array, one: ring.Replay) -> ring.Replay:
    return jax.tree.map(lambda leaf, new: leaf.at[member].set(new), replays, one)


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


class Learner:
    """Compiles, once per number of agents, the learning call of a whole population.

    `max_n` bounds every agent's n_step; it is the length of the look-ahead that is compiled in.
    With `own_replays` the replay has a leading axis P as well: each agent learns from its own ring.
    """

    def __init__(self, algorithm: Algorithm, batch_size: int, max_n: int = 1, own_replays: bool = False):
        self.algorithm, self.batch_size, self.max_n = algorithm, batch_size, max_n
        self._replay_axis = 0 if own_replays else None
        self.whole = False  # whether a call must not be cut into several

    def learn(
        self, key: Key, agents: Agents, replay: ring.Replay, hyper: Hyper, updates: int
    ) -> tuple[Agents, Metrics]:
        """Each agent takes `updates` gradient steps (a multiple of `algorithm.batches`) with its own hyper-parameters.

        Returns the agents and, for each, the mean of its metrics over the call.
        """
        calls, rest = divmod(updates, self.algorithm.batches)
        if rest or not calls:
            raise ValueError(f"{updates} updates are not a positive multiple of {self.algorithm.batches}")
        return self._learn(key, agents, replay, hyper, np.int32(calls))

    @partial(jax.jit, static_argnums=0)
    def _learn(self, key: Key, agents: Agents, replay: ring.Replay, hyper: Hyper, calls: Array):
        def one(key: Key, agent, replay: ring.Replay, hyper: Hyper):
            sample_key, update_key = jax.random.split(key)
            rows = (self.algorithm.batches + self.algorithm.spare) * self.batch_size
            batch = Batch(*ring.sample(sample_key, replay, rows, hyper["n_step"], hyper["gamma"], self.max_n))
            return self.algorithm.update(update_key, agent, batch, hyper)

        everyone = jax.vmap(one, in_axes=(0, 0, self._replay_axis, 0))

        def step(i: Array, carry):
            agents, total = carry
            keys = jax.random.split(jax.random.fold_in(key, i), number_of(agents))
            agents, metrics = everyone(keys, agents, replay, hyper)
            return agents, jax.tree.map(jnp.add, total, metrics)

        keys = jax.random.split(key, number_of(agents))
        metrics = jax.eval_shape(everyone, keys, agents, replay, hyper)[1]
        agents, total = jax.lax.fori_loop(0, calls, step, (agents, _zeros(metrics)))
        return agents, jax.tree.map(lambda t: t / calls, total)


class SharedCritic(Learner):
    """The learner of CEM-RL: the agents take turns with one critic, which goes from each to the next."""

    def __init__(self, algorithm: Algorithm, batch_size: int, max_n: int = 1):
        super().__init__(algorithm, batch_size, max_n)
        self.whole = True
        if algorithm.steps is None:
            raise UserError("cem-rl sees observations as they are; leave normalise out.")
        self._steps = algorithm.steps

    def learn(
        self, key: Key, agents: Agents, replay: ring.Replay, hyper: Hyper, updates: int
    ) -> tuple[Agents, Metrics]:
        """In the turn of each of the P agents the critic takes updates // P steps, and then its actor `updates`."""
        number = number_of(agents)
        turns, metrics = [take(agents, member) for member in range(number)], []
        for member, turn_key in enumerate(jax.random.split(key, number)):
            eta = {name: values[member] for name, values in hyper.items()}
            one = _with_critic_of(turns[member], turns[member - 1]) if member else turns[0]
            turns[member], told = self._turn(turn_key, one, replay, eta, np.int32(updates // number), np.int32(updates))
            metrics.append(told)
        turns = [_with_critic_of(one, turns[-1]) for one in turns]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns), jax.tree.map(
            lambda *values: jnp.stack(values), *metrics
        )

    @partial(jax.jit, static_argnums=0)
    def _turn(self, key: Key, evolved: Any, replay: ring.Replay, hyper: Hyper, critic_calls: Array, actor_calls: Array):
        def batch(key: Key) -> Batch:
            return Batch(*ring.sample(key, replay, self.batch_size, hyper["n_step"], hyper["gamma"], self.max_n))

        def critic_step(i: Array, agent):
            sample_key, step_key = jax.random.split(jax.random.fold_in(key, i))
            agent, metrics = self._steps.critic(step_key, agent, batch(sample_key), hyper, 1)
            return agent._replace(target_critic=polyak(agent.target_critic, agent.critic, hyper["tau"])), metrics

        def actor_step(i: Array, agent):
            agent, metrics = self._steps.actor(agent, batch(jax.random.fold_in(key, critic_calls + i)), hyper)
            return agent._replace(target_actor=polyak(agent.target_actor, agent.actor, hyper["tau"])), metrics

        def repeated(step, calls: Array, agent):
            """The agent after so many steps, and the mean of their metrics."""

            def add(i: Array, carry):
                agent, metrics = step(i, carry[0])
                return agent, jax.tree.map(jnp.add, carry[1], metrics)

            metrics = jax.eval_shape(lambda: step(0, agent)[1])
            agent, total = jax.lax.fori_loop(0, calls, add, (agent, _zeros(metrics)))
            return agent, jax.tree.map(lambda t: t / jnp.maximum(calls, 1), total)

        agent, critic_metrics = repeated(critic_step, critic_calls, evolved.agent)
        agent, actor_metrics = repeated(actor_step, actor_calls, agent)
        return evolved._replace(agent=agent), critic_metrics | actor_metrics


def _with_critic_of(evolved: Any, other: Any) -> Any:
    parts = {name: getattr(other.agent, name) for name in ("critic", "target_critic", "critic_moments")}
    return evolved._replace(agent=evolved.agent._replace(**parts))


def learned(algorithm: Algorithm, agents: Agents) -> dict[str, np.ndarray]:
    """(P,) of each hyper-parameter that the agents themselves have learned, where the algorithm is of that kind."""
    return {name: np.asarray(values, np.float64) for name, values in jax.vmap(algorithm.learned)(agents).items()}


class Actors:
    """Compiles, once per number of agents, the policies of some agents."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm

    def policies(self, key: Key, agents: Agents, hyper: Hyper, explore: bool) -> Act:
        """(t, observations (P, obs)) -> actions (P, action): row j by agent j, at time t with its own noise."""
        return lambda t, obs: np.asarray(self._act(key, agents, hyper, np.int32(t), obs, explore))

    def saturated(self, key: Key, agents: Agents, hyper: Hyper, replay: ring.Replay) -> np.ndarray:
        """(P,) whether an agent's actions, without noise, are at their bounds whatever it sees.

        Such a policy has no gradient, as that of tanh is zero there: it learns no more.
        """
        return np.asarray(self._saturated(key, agents, hyper, replay))

    @partial(jax.jit, static_argnums=0)
    def _saturated(self, key: Key, agents: Agents, hyper: Hyper, replay: ring.Replay) -> Array:
        obs, act = ring.sample(key, replay, LOOKS, n_step=1, gamma=1.0, max_n=1).obs, self.algorithm.act
        actions = jax.vmap(lambda agent, eta: jax.vmap(lambda x: act(key, agent, x, eta, False))(obs))(agents, hyper)
        return (jnp.abs(actions) > 1 - 1e-6).all(axis=(1, 2))

    @partial(jax.jit, static_argnums=(0, 6))
    def _act(self, key: Key, agents: Agents, hyper: Hyper, t: Array, obs: Array, explore: bool) -> Array:
        keys = jax.random.split(jax.random.fold_in(key, t), obs.shape[0])
        act = self.algorithm.act
        return jax.vmap(lambda k, agent, x, eta: act(k, agent, x, eta, explore))(keys, agents, obs, hyper)


@jax.jit
def _finite(agents: Agents) -> Array:
    each = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(agents)]
    return jnp.stack(each).all(axis=0)


def finite(agents: Agents) -> np.ndarray:
    """(P,) whether all weights of an agent are numbers."""
    return np.asarray(_finite(agents))
