"""Meta-gradients for deterministic actor-critics (section 4.1 of the paper): an agent learns its own learning rates.

A second critic, Q_meta, of the same kind as the agent's and trained by the same rule on other minibatches, rates the
updated policy. The learning rates alpha climb J(alpha) = mean Q_meta(x, pi_phi'(x)), where phi'(alpha) is the policy
after the agent's real update: critic steps and then the actor step, which sees the updated critic, each by Adam.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht.agents.networks import adam, descend, polyak
from oht.errors import UserError
from oht.types import Algorithm, Array, Batch, Hyper, Key, Metrics, State


class Rate(NamedTuple):
    """The start and the bounds of a learning rate, and whether it moves by its log10."""

    start: float
    low: float
    high: float
    log10: bool = True


class Judge(NamedTuple):
    """Q_meta: the critic that evaluates the updated policy."""

    critic: Any
    target: Any
    moments: Any


class MetaAgent(NamedTuple):
    agent: State  # of the algorithm inside
    judge: Judge
    points: Array  # (D,) the learning rates, by their log10 or as they are
    moments: Any  # Adam's, of the points
    trace: Any  # like the actor, with a last axis D


def metagrad(
    algorithm: Algorithm,
    rates: Mapping[str, Rate],
    *,
    meta_lr: float = 1e-4,
    meta_critic_lr: float = 1e-3,
    meta_trace: float = 0.0,
) -> Algorithm:
    """The same algorithm, but it learns the named learning rates with step size `meta_lr` (Adam)."""
    steps = algorithm.steps
    if steps is None or not set(rates) <= {"actor_lr", "critic_lr"}:
        raise UserError("meta-gradients learn actor_lr, critic_lr or both, of td3 or ddpg.")
    encoded = [[np.log10(x) if rate.log10 else x for x in rate[:3]] for rate in rates.values()]
    start, low, high = np.array(encoded).T

    def decoded(points: Array) -> dict[str, Array]:
        return {name: 10.0**x if rate.log10 else x for (name, rate), x in zip(rates.items(), points, strict=True)}

    def learned(state: MetaAgent) -> dict[str, Array]:
        return decoded(state.points)

    def init(key: Key) -> MetaAgent:
        agent_key, judge_key = jax.random.split(key)
        agent, other = algorithm.init(agent_key), algorithm.init(judge_key)
        points = jnp.asarray(start, jnp.result_type(float))
        trace = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, len(rates)), leaf.dtype), agent.actor)
        return MetaAgent(
            agent, Judge(other.critic, other.critic, other.critic_moments), points, adam.init(points), trace
        )

    def act(key: Key, state: MetaAgent, obs: Array, hyper: Hyper, explore: bool) -> Array:
        return algorithm.act(key, state.agent, obs, hyper, explore)

    def judged(key: Key, judge: Judge, agent: State, batch: Batch, hyper: Hyper) -> tuple[Judge, Metrics]:
        """The agent's own critic rule, for Q_meta."""
        rule = {**hyper, "critic_lr": meta_critic_lr}
        borrowed = agent._replace(critic=judge.critic, target_critic=judge.target, critic_moments=judge.moments)
        new, metrics = steps.critic(key, borrowed, batch, rule, algorithm.batches)
        judge = Judge(new.critic, polyak(judge.target, new.critic, hyper["tau"]), new.critic_moments)
        return judge, {"meta_critic_loss": metrics["critic_loss"]}

    def sloped(key: Key, state: MetaAgent, batch: Batch, hyper: Hyper) -> tuple[list[Any], State, Metrics]:
        """d phi'/d alpha for each learning rate, and the agent after its update.

        Forward mode, beside the update: the actor's rate enters at the end, the critic's goes through theta' to phi'.
        """
        values, units = jax.jvp(decoded, (state.points,), (jnp.ones_like(state.points),))
        hyper = {**hyper, **values}

        def critic_steps(rate: Array):
            agent, metrics = steps.critic(key, state.agent, batch, {**hyper, "critic_lr": rate}, algorithm.batches)
            return agent.critic, (agent, metrics)

        def actor_step(critic: Any, rate: Array):
            last = batch.split(algorithm.batches)[-1]
            agent, metrics = steps.actor(halfway._replace(critic=critic), last, {**hyper, "actor_lr": rate})
            return agent.actor, (agent, metrics)

        rate = {name: jnp.asarray(hyper[name]) for name in ("critic_lr", "actor_lr")}
        unit = {name: units.get(name, jnp.zeros_like(value)) for name, value in rate.items()}
        critic, moved, (halfway, metrics) = jax.jvp(
            critic_steps, (rate["critic_lr"],), (unit["critic_lr"],), has_aux=True
        )
        _, along, (agent, more) = jax.linearize(actor_step, critic, rate["actor_lr"], has_aux=True)
        still = jax.tree.map(jnp.zeros_like, critic)
        slopes = {
            "critic_lr": along(moved, jnp.zeros_like(rate["actor_lr"])),
            "actor_lr": along(still, unit["actor_lr"]),
        }
        return [slopes[name] for name in rates], steps.targets(agent, hyper), metrics | more

    def update(key: Key, state: MetaAgent, batch: Batch, hyper: Hyper) -> tuple[MetaAgent, Metrics]:
        """z <- mu z + d phi'/d alpha and alpha <- Adam(alpha, grad_phi' J . z); with mu = 0 that is dJ/d alpha."""
        agent_key, judge_key = jax.random.split(key)
        ours, others = batch.split(2)
        judge, judge_metrics = judged(judge_key, state.judge, state.agent, others, hyper)

        slopes, agent, metrics = sloped(agent_key, state, ours, hyper)
        trace = jax.tree.map(lambda z, *d: meta_trace * z + jnp.stack(d, axis=-1), state.trace, *slopes)
        loss, grads = jax.value_and_grad(steps.actor_loss)(agent.actor, judge.critic, others.obs)
        along = jax.tree.map(lambda g, z: jnp.tensordot(g, z, g.ndim), grads, trace)
        points, moments = descend(state.points, sum(jax.tree.leaves(along)), state.moments, meta_lr)
        state = MetaAgent(agent, judge, jnp.clip(points, low, high), moments, trace)
        return state, {**metrics, **judge_metrics, "meta_q": -loss}

    hyper = {name: value for name, value in algorithm.hyper.items() if name not in rates}
    return Algorithm(init, act, update, hyper, algorithm.batches, spare=algorithm.batches, learned=learned)
