"""CEM-RL (Pourchot & Sigaud 2019), the paper's ES-RL: evolution of the policies' weights, helped by TD3's gradients.

Agent 0 is the mean of a Gaussian over the weights of the actor, with a variance for each weight. In each generation N
actors are drawn from it; the first half of them learn from the critic that all share; all play; the best half make the
next Gaussian. The mean is the champion; it neither learns nor plays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht.agents.api import Algorithm, Array, Batch, Hyper, Metrics
from oht.agents.networks import adam
from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Dimension
from oht.tuners import columns
from oht.tuners.api import Agents, Key, Proposal, Tuner
from oht.tuners.search import elite_weights


@dataclass(frozen=True)
class CemRl:
    population: int = setting(10, "cem-rl: actors drawn in each generation", low=2, high=1000)
    gradient: int = setting(5, "cem-rl: how many of them take gradient steps; 0 is plain CEM", low=0)
    replay_ratio: float = setting(
        1.0, "cem-rl: actor steps of each of these for each env step of all", low=0, high=1000
    )
    variance: float = setting(1e-3, "cem-rl: variance of each weight at the start", low=0)
    damp: float = setting(1e-3, "cem-rl: added to the variances at the start ...", low=0)
    damp_limit: float = setting(1e-5, "cem-rl: ... and in the end", low=0)


class Evolved(NamedTuple):
    """An agent of the population; its first one holds the Gaussian."""

    agent: Any  # an oht.agents.td3.ActorCritic
    variance: Any  # like its actor


def adapt(settings: CemRl, tune: Mapping[str, Dimension], algorithm: Algorithm) -> Algorithm:
    """The same algorithm with a variance beside the actor's weights."""

    def init(key: Key) -> Evolved:
        agent = algorithm.init(key)
        return Evolved(agent, jax.tree.map(lambda leaf: jnp.full_like(leaf, settings.variance), agent.actor))

    def act(key: Key, state: Evolved, obs: Array, hyper: Hyper, explore: bool) -> Array:
        return algorithm.act(key, state.agent, obs, hyper, explore)

    def update(key: Key, state: Evolved, batch: Batch, hyper: Hyper) -> tuple[Evolved, Metrics]:
        agent, metrics = algorithm.update(key, state.agent, batch, hyper)
        return state._replace(agent=agent), metrics

    if algorithm.steps is None:
        raise UserError("cem-rl is built on td3 or ddpg; choose one of them with --algo.")
    return algorithm._replace(init=init, act=act, update=update)


class State(NamedTuple):
    damp: np.ndarray
    sigma: np.ndarray  # root of the mean variance, for the record


def make(settings: CemRl, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(f"the method cem-rl tunes no hyper-parameters, so {', '.join(tune)} cannot be tuned.")
    number, learning = settings.population, settings.gradient
    if learning > number:
        raise UserError(f"gradient is {learning}, but there are only {number} actors in the population.")
    ratios = np.array([0.0] + learning * [settings.replay_ratio] + (number - learning) * [0.0])
    weights = elite_weights(number // 2, log_weights=True)
    everyone = np.arange(1, number + 1)

    def init(key: Key) -> State:
        return State(np.array(settings.damp), np.sqrt(settings.variance))

    def ask(key: Key, state: State, agents: Evolved, env_steps: int) -> tuple[State, Proposal]:
        hyper = {name: np.full(number + 1, value, np.float64) for name, value in base.items()}
        return state, Proposal(drawn(key, agents), hyper, ratios, everyone)

    def tell(key: Key, state: State, agents: Evolved, proposal: Proposal, returns: np.ndarray) -> tuple[State, Agents]:
        fitness = np.where(np.isfinite(returns), returns, -np.inf)
        elites = 1 + np.argsort(-fitness, kind="stable")[: len(weights)]
        agents = evolved(agents, elites, weights.astype(np.float32), np.float32(state.damp))
        leaves = [np.asarray(leaf[0]) for leaf in jax.tree.leaves(agents.variance)]
        sigma = np.sqrt(sum(leaf.sum() for leaf in leaves) / sum(leaf.size for leaf in leaves), dtype=np.float64)
        return State(0.95 * state.damp + 0.05 * settings.damp_limit, sigma), agents

    def champion(key: Key, state: State) -> int:
        return 0

    def record(state: State, proposal: Proposal, returns: Sequence[float]) -> dict[str, float]:
        row = {"weights/sigma": float(state.sigma), "weights/damp": float(state.damp)}
        return row | columns.samples(proposal, (), returns)

    return Tuner(number + 1, init, ask, tell, champion, record, explore=False, shared_critic=learning > 0)


@jax.jit
def drawn(key: Key, agents: Evolved) -> Evolved:
    """Agent 0 stays; the others are x = mu + sigma e, the second half with - e of the first.

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
    half = jax.random.normal(key, ((number + 1) // 2, *shape))
    noise = jnp.concatenate([jnp.zeros((1, *shape)), half, -half])[: number + 1]
    return weights[0] + jnp.sqrt(variance[0]) * noise


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
