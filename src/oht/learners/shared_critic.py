"""CEM-RL's learning: actors drawn from a Gaussian over weights, some of them trained with one critic that all share.

Agent 0 holds the mean of the Gaussian, and its variance for each weight. In each generation the others are drawn from
it; those that train take turns with the critic; after they have played, the best half make the next Gaussian.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht import devices
from oht import replay as ring
from oht.agents.networks import adam, polyak
from oht.errors import UserError
from oht.population import Learner, Report, put, sampled, take, values_of, zeros
from oht.tuners.search import elite_weights
from oht.types import Agents, Algorithm, Array, Batch, Hyper, Key, Metrics, Outcome, Proposal


class Evolved(NamedTuple):
    """An agent of the population; its first one holds the Gaussian."""

    agent: Any  # an oht.agents.td3.ActorCritic
    variance: Any  # like its actor


def evolving(algorithm: Algorithm, variance: float) -> Algorithm:
    """The same algorithm with a variance beside the actor's weights."""
    if algorithm.steps is None:
        raise UserError("cem-rl is built on td3 or ddpg; choose one of them with --algo.")

    def init(key: Key) -> Evolved:
        agent = algorithm.init(key)
        return Evolved(agent, jax.tree.map(lambda leaf: jnp.full_like(leaf, variance), agent.actor))

    def act(key: Key, state: Evolved, obs: Array, hyper: Hyper, explore: bool) -> Array:
        return algorithm.act(key, state.agent, obs, hyper, explore)

    def update(key: Key, state: Evolved, batch: Batch, hyper: Hyper) -> tuple[Evolved, Metrics]:
        agent, metrics = algorithm.update(key, state.agent, batch, hyper)
        return state._replace(agent=agent), metrics

    def learned(state: Evolved) -> dict[str, Array]:
        """The root of the mean variance."""
        leaves = jax.tree.leaves(state.variance)
        return {"sigma": jnp.sqrt(sum(leaf.sum() for leaf in leaves) / sum(leaf.size for leaf in leaves))}

    return algorithm._replace(init=init, act=act, update=update, learned=learned)


class SharedCritic(Learner):
    """The agents take turns with one critic, which goes from each to the next."""

    draws = True

    def __init__(self, algorithm: Algorithm, batch_size: int):
        super().__init__(algorithm, batch_size)
        if algorithm.steps is None:
            raise UserError("cem-rl does not work with normalise; leave it out.")
        self._steps = algorithm.steps

    def learn(
        self,
        key: Key,
        agents: Agents,
        replay: ring.Replay,
        hyper: Mapping[str, np.ndarray],
        updates: np.ndarray,
        report: Report,
    ) -> tuple[Agents, dict[str, float]]:
        """A new generation. In each of k agents' turns the critic takes n // k steps and the actor n, its `updates`."""
        draw_key, learn_key = jax.random.split(key)
        agents, replay = drawn(draw_key, agents), devices.first_copy(replay)
        members = np.flatnonzero(updates)
        if not members.size:
            return agents, {}
        number, steps = len(members), int(updates[members[0]])
        eta, max_n = values_of(hyper, members), int(hyper["n_step"].max())
        turns, metrics = [take(agents, int(member)) for member in members], []
        for turn, turn_key in enumerate(jax.random.split(learn_key, number)):
            own = {name: values[turn] for name, values in eta.items()}
            one = _with_critic_of(turns[turn], turns[turn - 1]) if turn else turns[0]
            turns[turn], shown = self._turn(
                turn_key, one, replay, own, np.int32(steps // number), np.int32(steps), max_n
            )
            metrics.append(shown)
            report((turn + 1) * steps, number * steps)
        turns = [_with_critic_of(one, turns[-1]) for one in turns]
        agents = put(agents, members, jax.tree.map(lambda *leaves: jnp.stack(leaves), *turns))
        agents = _all_with_critic_of(agents, turns[-1])
        return agents, {name: float(np.mean([shown[name] for shown in metrics])) for name in metrics[0]}

    def evolve(self, agents: Evolved, proposal: Proposal, outcome: Outcome) -> Evolved:
        """The Gaussian moves to the best half of those that played."""
        fitness = np.where(np.isfinite(outcome.returns), outcome.returns, -np.inf)
        weights = elite_weights(len(fitness) // 2, log_weights=True).astype(np.float32)
        elites = proposal.actors[np.argsort(-fitness, kind="stable")[: len(weights)]]
        return evolved(agents, elites, weights, np.float32(proposal.hyper["damp"][0]))

    def metric_names(self, agents: Evolved, replay: ring.Replay, hyper: Mapping[str, np.ndarray]) -> list[str]:
        eta = dict.fromkeys(hyper, np.float32(0))
        one, calls, max_n = jax.eval_shape(take, agents, 0), np.int32(1), int(hyper["n_step"].max())
        turn = jax.eval_shape(
            lambda key, one: self._turn(key, one, replay, eta, calls, calls, max_n), jax.random.key(0), one
        )
        return list(turn[1])

    @partial(jax.jit, static_argnums=(0, 7))
    def _turn(
        self,
        key: Key,
        evolved: Any,
        replay: ring.Replay,
        hyper: Hyper,
        critic_calls: Array,
        actor_calls: Array,
        max_n: int,
    ):
        def batch(key: Key) -> Batch:
            return sampled(key, replay, self.batch_size, hyper, max_n)

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
            agent, total = jax.lax.fori_loop(0, calls, add, (agent, zeros(metrics)))
            return agent, jax.tree.map(lambda t: t / jnp.maximum(calls, 1), total)

        agent, critic_metrics = repeated(critic_step, critic_calls, evolved.agent)
        agent, actor_metrics = repeated(actor_step, actor_calls, agent)
        return evolved._replace(agent=agent), critic_metrics | actor_metrics


def _with_critic_of(evolved: Any, other: Any) -> Any:
    return evolved._replace(agent=evolved.agent._replace(**_critic_of(other)))


def _critic_of(evolved: Any) -> dict[str, Any]:
    return {name: getattr(evolved.agent, name) for name in ("critic", "target_critic", "critic_moments")}


@jax.jit
def _all_with_critic_of(agents: Evolved, one: Any) -> Evolved:
    """All with the critic of one agent, so that whoever is copied over another passes it on; not if it has diverged."""
    new = _critic_of(one)
    finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(new)]).all()
    parts = jax.tree.map(lambda old, leaf: jnp.where(finite, leaf, old), _critic_of(agents), new)
    return agents._replace(agent=agents.agent._replace(**parts))


@jax.jit
def drawn(key: Key, agents: Evolved) -> Evolved:
    """Agent 0 stays; the others are x = mu + sigma e, if their number is even the second half with - e of the first.

    Their targets are themselves, their optimisers are new, and all have the critic of agent 1, which learned last.
    """
    state = agents.agent
    leaves, tree = jax.tree.flatten(state.actor)
    keys = jax.tree.unflatten(tree, list(jax.random.split(key, len(leaves))))
    actor = jax.tree.map(_drawn, keys, state.actor, agents.variance)
    shared = partial(jax.tree.map, lambda leaf: jnp.broadcast_to(leaf[1], leaf.shape))
    return agents._replace(
        agent=state._replace(
            actor=actor,
            target_actor=actor,
            actor_moments=jax.vmap(adam.init)(actor),
            critic=shared(state.critic),
            target_critic=shared(state.target_critic),
            critic_moments=shared(state.critic_moments),
        )
    )


def _drawn(key: Key, weights: Array, variance: Array) -> Array:
    number, shape = weights.shape[0] - 1, weights.shape[1:]
    noise = jax.random.normal(key, (number // 2 if number % 2 == 0 else number, *shape))
    noise = jnp.concatenate([noise, -noise]) if number % 2 == 0 else noise
    return jnp.concatenate([weights[:1], weights[0] + jnp.sqrt(variance[0]) * noise])


@jax.jit
def evolved(agents: Evolved, elites: Array, weights: Array, damp: Array) -> Evolved:
    """sepCEM: mu' = sum_i w_i x_i and sigma'^2 = 1/E sum_i w_i (x_i - mu)^2 + damp over E elites, best first."""

    def update(x: Array) -> tuple[Array, Array]:
        best, old = x[elites], x[0]
        variance = jnp.tensordot(weights, jnp.square(best - old), 1) / len(weights) + damp
        return x.at[0].set(jnp.tensordot(weights, best, 1)), jnp.broadcast_to(variance, x.shape)

    leaves, tree = jax.tree.flatten(agents.agent.actor)
    means, variances = zip(*map(update, leaves), strict=True)
    state = agents.agent._replace(actor=jax.tree.unflatten(tree, means))
    return Evolved(state, jax.tree.unflatten(tree, variances))
