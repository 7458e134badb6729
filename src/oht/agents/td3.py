"""TD3 (Fujimoto et al. 2018) with the numbers of Spinning Up."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from oht.agents.networks import Actor, adam, critics, descend, network, polyak
from oht.hyper import OPTIONS, defaults
from oht.types import ActorCriticSteps, Algorithm, Array, Batch, Hyper, Key, Metrics, Spec


class ActorCritic(NamedTuple):
    actor: Any
    critic: Any
    target_actor: Any
    target_critic: Any
    actor_moments: Any
    critic_moments: Any


def td3(
    spec: Spec,
    *,
    hidden: Sequence[int] = OPTIONS["hidden"].default,
    activation: str = OPTIONS["activation"].default,
    layer_norm: bool = OPTIONS["layer_norm"].default,
    policy_delay: int = OPTIONS["policy_delay"].default,
    twins: int = 2,
    smooth: bool = True,
) -> Algorithm:
    """`policy_delay` critic steps, each on its own minibatch, then one step of the actor and of all targets."""
    body = (hidden, activation, layer_norm)
    actor, critic, first_critic = network(Actor(spec.action, *body)), critics(twins, *body), critics(1, *body)
    hyper = defaults("actor_lr", "critic_lr", "gamma", "n_step", "recency", "tau", "exploration_noise")
    if smooth:
        hyper |= defaults("target_noise", "noise_clip")

    def init(key: Key) -> ActorCritic:
        actor_key, critic_key = jax.random.split(key)
        obs, action = jnp.zeros(spec.obs), jnp.zeros(spec.action)
        pi, q = actor.init(actor_key, obs), critic.init(critic_key, obs, action)
        return ActorCritic(pi, q, pi, q, adam.init(pi), adam.init(q))

    def act(key: Key, state: ActorCritic, obs: Array, hyper: Hyper, explore: bool) -> Array:
        action = actor.apply(state.actor, obs)
        if not explore:
            return action
        noise = hyper["exploration_noise"] * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1.0, 1.0)

    def next_action(key: Key, target_actor, obs: Array, hyper: Hyper) -> Array:
        action = actor.apply(target_actor, obs)
        if not smooth:
            return action
        noise = hyper["target_noise"] * jax.random.normal(key, action.shape)
        return jnp.clip(action + jnp.clip(noise, -hyper["noise_clip"], hyper["noise_clip"]), -1.0, 1.0)

    def td_target(key: Key, state: ActorCritic, batch: Batch, hyper: Hyper) -> Array:
        """y = reward + discount * min_i Q'_i(x', a'), a' the smoothed action of the target actor."""
        action = next_action(key, state.target_actor, batch.next_obs, hyper)
        q = critic.apply(state.target_critic, batch.next_obs, action)
        return batch.reward + batch.discount * q.min(axis=0)

    def critic_loss(params, batch: Batch, target: Array) -> tuple[Array, Array]:
        """sum_i mean (Q_i(x, a) - y)^2."""
        q = critic.apply(params, batch.obs, batch.action)
        return jnp.square(q - target).mean(axis=-1).sum(), q.mean()

    def actor_loss(params, critic_params, obs: Array) -> Array:
        """- mean Q_1(x, pi(x))."""
        first = jax.tree.map(lambda leaf: leaf[:1], critic_params)
        return -first_critic.apply(first, obs, actor.apply(params, obs)).mean()

    def critic_step(state: ActorCritic, batch: Batch, target: Array, hyper: Hyper) -> tuple[ActorCritic, Metrics]:
        (loss, q), grads = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
        params, moments = descend(state.critic, grads, state.critic_moments, hyper["critic_lr"])
        return state._replace(critic=params, critic_moments=moments), {"critic_loss": loss, "q": q}

    def actor_step(state: ActorCritic, batch: Batch, hyper: Hyper) -> tuple[ActorCritic, Metrics]:
        loss, grads = jax.value_and_grad(actor_loss)(state.actor, state.critic, batch.obs)
        params, moments = descend(state.actor, grads, state.actor_moments, hyper["actor_lr"])
        return state._replace(actor=params, actor_moments=moments), {"actor_loss": loss}

    def critic_steps(
        key: Key, state: ActorCritic, batch: Batch, hyper: Hyper, number: int
    ) -> tuple[ActorCritic, Metrics]:
        """`number` steps, each on its part of the batch.

        The target networks do not change in between, so the targets of all parts are computed in one call.
        """
        targets = jnp.split(td_target(key, state, batch, hyper), number)
        metrics: Metrics = {}
        for part, target in zip(batch.split(number), targets, strict=True):
            state, metrics = critic_step(state, part, target, hyper)
        return state, metrics

    def targets_step(state: ActorCritic, hyper: Hyper) -> ActorCritic:
        return state._replace(
            target_actor=polyak(state.target_actor, state.actor, hyper["tau"]),
            target_critic=polyak(state.target_critic, state.critic, hyper["tau"]),
        )

    def update(key: Key, state: ActorCritic, batch: Batch, hyper: Hyper) -> tuple[ActorCritic, Metrics]:
        state, metrics = critic_steps(key, state, batch, hyper, policy_delay)
        state, more = actor_step(state, batch.split(policy_delay)[-1], hyper)
        return targets_step(state, hyper), metrics | more

    steps = ActorCriticSteps(critic_steps, actor_step, targets_step, actor_loss)
    return Algorithm(init, act, update, hyper, batches=policy_delay, steps=steps)
