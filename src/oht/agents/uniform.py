"""Actions drawn uniformly at random, in training and in evaluations: the score of a random policy."""

import jax
import jax.numpy as jnp

from oht.hyper import defaults
from oht.types import Algorithm, Array, Batch, Hyper, Key, Metrics, Spec


def uniform(spec: Spec) -> Algorithm:
    """a ~ U(-1, 1)^d, whatever is observed; an update changes nothing."""

    def init(key: Key) -> Array:
        return jnp.zeros(())  # a population is made of arrays

    def act(key: Key, state: Array, obs: Array, hyper: Hyper, explore: bool) -> Array:
        return jax.random.uniform(key, (*obs.shape[:-1], spec.action), minval=-1.0, maxval=1.0)

    def update(key: Key, state: Array, batch: Batch, hyper: Hyper) -> tuple[Array, Metrics]:
        return state, {}

    return Algorithm(init, act, update, hyper=defaults("gamma", "n_step"))
