"""Observations with running mean 0 and variance 1, for any algorithm."""

from typing import NamedTuple

import jax.numpy as jnp

from oht.types import Algorithm, Array, Batch, Hyper, Key, Metrics, Spec, State

CLIP = 10.0  # standard deviations
SMALLEST_VARIANCE = 1e-8


class Moments(NamedTuple):
    """Of all observations that `update` has seen."""

    rows: Array
    mean: Array
    variance: Array


class Normalised(NamedTuple):
    agent: State  # of the algorithm inside
    moments: Moments


def merge(moments: Moments, obs: Array) -> Moments:
    """Moments of the old observations and of the new rows together (Welford's rule for groups).

    With n old rows of mean m and variance v, k new ones of mean m' and variance v', d = m' - m and N = n + k:
    mean = m + d k / N, variance = (n v + k v' + d^2 n k / N) / N.
    """
    old, new = moments.rows, obs.shape[0]
    total = old + new
    delta = obs.mean(axis=0) - moments.mean
    squares = old * moments.variance + new * obs.var(axis=0) + jnp.square(delta) * old * new / total
    return Moments(total, moments.mean + delta * new / total, squares / total)


def standardise(moments: Moments, obs: Array) -> Array:
    scale = jnp.sqrt(moments.variance + SMALLEST_VARIANCE)
    return jnp.clip((obs - moments.mean) / scale, -CLIP, CLIP)


def normalised(algorithm: Algorithm, spec: Spec) -> Algorithm:
    """The same algorithm on standardised observations; their moments are part of its state."""

    def init(key: Key) -> Normalised:
        return Normalised(algorithm.init(key), Moments(jnp.zeros(()), jnp.zeros(spec.obs), jnp.ones(spec.obs)))

    def act(key: Key, state: Normalised, obs: Array, hyper: Hyper, explore: bool) -> Array:
        return algorithm.act(key, state.agent, standardise(state.moments, obs), hyper, explore)

    def update(key: Key, state: Normalised, batch: Batch, hyper: Hyper) -> tuple[Normalised, Metrics]:
        moments = merge(state.moments, batch.obs)
        batch = batch._replace(obs=standardise(moments, batch.obs), next_obs=standardise(moments, batch.next_obs))
        agent, metrics = algorithm.update(key, state.agent, batch, hyper)
        return Normalised(agent, moments), metrics

    def learned(state: Normalised) -> dict[str, Array]:
        return algorithm.learned(state.agent)

    return algorithm._replace(init=init, act=act, update=update, learned=learned, steps=None)
