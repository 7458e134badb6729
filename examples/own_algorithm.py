"""An algorithm of your own, whose hyper-parameters are tuned like those of the built-in ones.

An algorithm is ONE agent: the functions `init`, `act` and `update`, and a dict `hyper` with the default of every number
that they read. There is no population in here: `oht` adds that axis. This one is an actor-critic with a single critic
and a hyper-parameter that no built-in algorithm has: `effort`, the price of large actions.

    python examples/own_algorithm.py
    cd examples && oht train Pendulum-v1 --algo own_algorithm:careful --tune effort=log:0.01..1
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import oht
from oht.agents.networks import Actor, adam, critics, descend, network, polyak


class State(NamedTuple):
    actor: Any
    critic: Any
    target: Any  # a slow copy of the critic
    actor_moments: Any  # Adam's
    critic_moments: Any


def careful(spec: oht.Spec, *, hidden: tuple[int, ...] = (64, 64)) -> oht.Algorithm:
    """The factory: everything after * is an option, fixed for a run."""
    actor, critic = network(Actor(spec.action, hidden)), critics(1, hidden)
    hyper = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.98, "n_step": 1, "tau": 0.01, "noise": 0.1, "effort": 0.1}

    def init(key) -> State:
        pi_key, q_key = jax.random.split(key)
        obs, action = jnp.zeros(spec.obs), jnp.zeros(spec.action)
        pi, q = actor.init(pi_key, obs), critic.init(q_key, obs, action)
        return State(pi, q, q, adam.init(pi), adam.init(q))

    def act(key, state: State, obs, hyper, explore: bool):
        action = actor.apply(state.actor, obs)
        noise = hyper["noise"] * jax.random.normal(key, action.shape) if explore else 0.0
        return jnp.clip(action + noise, -1.0, 1.0)

    def critic_loss(params, batch: oht.Batch, target):
        """mean (Q(x, a) - y)^2."""
        return jnp.square(critic.apply(params, batch.obs, batch.action)[0] - target).mean()

    def actor_loss(params, critic_params, obs, effort):
        """mean (effort |pi(x)|^2 - Q(x, pi(x)))."""
        action = actor.apply(params, obs)
        return (effort * jnp.square(action).sum(axis=-1) - critic.apply(critic_params, obs, action)[0]).mean()

    def update(key, state: State, batch: oht.Batch, hyper):
        """The batch has its n-step rewards summed already: y = reward + discount * Q'(x', pi(x'))."""
        next_action = actor.apply(state.actor, batch.next_obs)
        target = batch.reward + batch.discount * critic.apply(state.target, batch.next_obs, next_action)[0]
        q_loss, q_grads = jax.value_and_grad(critic_loss)(state.critic, batch, target)
        q, q_moments = descend(state.critic, q_grads, state.critic_moments, hyper["critic_lr"])
        pi_loss, pi_grads = jax.value_and_grad(actor_loss)(state.actor, q, batch.obs, hyper["effort"])
        pi, pi_moments = descend(state.actor, pi_grads, state.actor_moments, hyper["actor_lr"])
        state = State(pi, q, polyak(state.target, q, hyper["tau"]), pi_moments, q_moments)
        return state, {"critic_loss": q_loss, "actor_loss": pi_loss}

    return oht.Algorithm(init, act, update, hyper)


def main(steps: int = 10_000, out: str | Path | None = None, **settings: Any) -> oht.Run:
    small: dict[str, Any] = {
        "start_steps": 600,
        "eval_every": 2000,
        "eval_episodes": 3,
        "population": 5,
        "max_episode": 200,
    }
    tune = {"effort": oht.LogFloat(0.1, sigma=0.5), "n_step": oht.Choice(1, 2, 3)}
    return oht.train("Pendulum-v1", algo=careful, tune=tune, steps=steps, out=out, **(small | settings))


if __name__ == "__main__":
    run = main()
    print(f"returns of the evaluations: {[round(row['return_mean']) for row in run.evals]}")
    print(f"effort at the end: {run.schedule[-1]['champion/effort']:.3g}; the run is in {run.path}")
