"""SAC (Haarnoja et al. 2018) with twin critics, and a temperature that is learned unless it is given."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from oht.agents.networks import GaussianActor, adam, critics, descend, network, polyak
from oht.hyper import OPTIONS, defaults
from oht.types import Algorithm, Array, Batch, Hyper, Key, Metrics, Spec


class SoftActorCritic(NamedTuple):
    actor: Any
    critic: Any
    target_critic: Any
    actor_moments: Any
    critic_moments: Any
    log_alpha: Any  # this and its moments: None where alpha is fixed
    alpha_moments: Any


def squash(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """a = tanh(u) with u = mean + std * noise, and log p(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2).

    1 - tanh(u)^2 = 4 / (e^u + e^-u)^2, so its logarithm is 2 (log 2 - u - softplus(-2 u)): finite for every u.
    """
    u = mean + jnp.exp(log_std) * noise
    log_normal = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
    log_slope = 2.0 * (jnp.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), (log_normal - log_slope).sum(axis=-1)


def sac(
    spec: Spec,
    *,
    hidden: Sequence[int] = OPTIONS["hidden"].default,
    activation: str = OPTIONS["activation"].default,
    layer_norm: bool = OPTIONS["layer_norm"].default,
    alpha: float | None = OPTIONS["alpha"].default,
) -> Algorithm:
    """Each update: one step of the critics, of the actor, of the temperature and of the targets.

    With `alpha` the temperature stays at that value (a hyper-parameter); without, it starts at 1 and is moved
    until the policy's entropy is near `target_entropy`.
    """
    learned = alpha is None
    body = (hidden, activation, layer_norm)
    actor, critic = network(GaussianActor(spec.action, *body)), critics(2, *body)
    hyper = defaults("actor_lr", "critic_lr", "gamma", "n_step", "recency", "tau")
    hyper |= {"alpha": alpha} if alpha is not None else defaults("alpha_lr") | {"target_entropy": -float(spec.action)}

    def init(key: Key) -> SoftActorCritic:
        actor_key, critic_key = jax.random.split(key)
        obs, action = jnp.zeros(spec.obs), jnp.zeros(spec.action)
        pi, q = actor.init(actor_key, obs), critic.init(critic_key, obs, action)
        log_alpha: Any = jnp.zeros(()) if learned else None
        return SoftActorCritic(pi, q, q, adam.init(pi), adam.init(q), log_alpha, adam.init(log_alpha))

    def policy(key: Key, params, obs: Array) -> tuple[Array, Array]:
        """An action and its log probability, for each row."""
        mean, log_std = actor.apply(params, obs)
        return squash(mean, log_std, jax.random.normal(key, mean.shape))

    def act(key: Key, state: SoftActorCritic, obs: Array, hyper: Hyper, explore: bool) -> Array:
        if explore:
            return policy(key, state.actor, obs)[0]
        return jnp.tanh(actor.apply(state.actor, obs)[0])

    def temperature(state: SoftActorCritic, hyper: Hyper) -> Array:
        return jnp.exp(state.log_alpha) if learned else hyper["alpha"]

    def td_target(key: Key, state: SoftActorCritic, batch: Batch, hyper: Hyper) -> Array:
        """y = reward + discount * (min_i Q'_i(x', a') - alpha log pi(a' | x')), a' drawn from the current policy."""
        action, log_prob = policy(key, state.actor, batch.next_obs)
        q = critic.apply(state.target_critic, batch.next_obs, action).min(axis=0)
        return batch.reward + batch.discount * (q - temperature(state, hyper) * log_prob)

    def critic_loss(params, batch: Batch, target: Array) -> tuple[Array, Array]:
        """1/2 sum_i mean (Q_i(x, a) - y)^2."""
        q = critic.apply(params, batch.obs, batch.action)
        return 0.5 * jnp.square(q - target).mean(axis=-1).sum(), q.mean()

    def actor_loss(params, key: Key, critic_params, alpha: Array, obs: Array) -> tuple[Array, Array]:
        """mean (alpha log pi(a | x) - min_i Q_i(x, a)), a drawn from pi."""
        action, log_prob = policy(key, params, obs)
        q = critic.apply(critic_params, obs, action).min(axis=0)
        return (alpha * log_prob - q).mean(), log_prob.mean()

    def temperature_loss(log_alpha: Array, log_prob: Array, target_entropy: Array) -> Array:
        """- log alpha * mean (log pi(a | x) + target entropy): alpha grows while the entropy is too low."""
        return -log_alpha * (log_prob + target_entropy)

    def critic_step(key: Key, state: SoftActorCritic, batch: Batch, hyper: Hyper) -> tuple[SoftActorCritic, Metrics]:
        target = td_target(key, state, batch, hyper)
        (loss, q), grads = jax.value_and_grad(critic_loss, has_aux=True)(state.critic, batch, target)
        params, moments = descend(state.critic, grads, state.critic_moments, hyper["critic_lr"])
        return state._replace(critic=params, critic_moments=moments), {"critic_loss": loss, "q": q}

    def actor_step(key: Key, state: SoftActorCritic, batch: Batch, hyper: Hyper) -> tuple[SoftActorCritic, Metrics]:
        alpha = temperature(state, hyper)
        loss_and_grads = jax.value_and_grad(actor_loss, has_aux=True)
        (loss, log_prob), grads = loss_and_grads(state.actor, key, state.critic, alpha, batch.obs)
        params, moments = descend(state.actor, grads, state.actor_moments, hyper["actor_lr"])
        state = state._replace(actor=params, actor_moments=moments)
        return state, {"actor_loss": loss, "entropy": -log_prob, "alpha": alpha}

    def temperature_step(state: SoftActorCritic, entropy: Array, hyper: Hyper) -> SoftActorCritic:
        grad = jax.grad(temperature_loss)(state.log_alpha, -entropy, hyper["target_entropy"])
        log_alpha, moments = descend(state.log_alpha, grad, state.alpha_moments, hyper["alpha_lr"])
        return state._replace(log_alpha=log_alpha, alpha_moments=moments)

    def update(key: Key, state: SoftActorCritic, batch: Batch, hyper: Hyper) -> tuple[SoftActorCritic, Metrics]:
        """Critic and actor use the temperature from before this update; the actor uses the critic from after it."""
        critic_key, actor_key = jax.random.split(key)
        state, metrics = critic_step(critic_key, state, batch, hyper)
        state, more = actor_step(actor_key, state, batch, hyper)
        if learned:
            state = temperature_step(state, more["entropy"], hyper)
        return state._replace(target_critic=polyak(state.target_critic, state.critic, hyper["tau"])), metrics | more

    return Algorithm(init, act, update, hyper)
