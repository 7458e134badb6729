"""Agents that cannot learn any more: found, replaced and reported, for every method."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht import population
from oht.errors import UserError
from oht.types import NEW, Agents, Algorithm, Array, Key

LOOKS = 256  # observations on which an agent is checked for saturation
BOUND = 1 - 1e-6  # an action beyond this has no gradient: that of tanh is zero


class Diverged(UserError):
    """No agent is left with finite weights."""


class Health(NamedTuple):
    """What was found and done; each but `donor` is (P,) bool."""

    diverged: np.ndarray  # weights that are infinite or NaN
    saturated: np.ndarray  # all actions at their bounds, whatever is observed
    replaced: np.ndarray  # which of these have new weights
    donor: int = NEW  # whose weights they have


def check(
    key: Key,
    algorithm: Algorithm,
    agents: Agents,
    hyper: Mapping[str, np.ndarray],
    observations: Array,
    champion: int,
    unstick: bool,
    keep_champion: bool,
) -> tuple[Agents, Health]:
    """Replace agents that have diverged and, with `unstick`, those that are saturated.

    They continue as copies of the champion or, if that is not healthy, of the first healthy agent; if there is none,
    they get fresh weights. With `keep_champion` a saturated champion stays: a constant action may be right.
    """
    everyone = np.arange(population.number_of(agents))
    diverged = ~np.asarray(_finite(agents))
    if diverged.all():
        raise Diverged(
            "the weights of every agent became infinite or NaN; a smaller learning rate would help "
            "(the checkpoint holds the state from before)."
        )
    eta = population.values_of(hyper, everyone)
    look, fresh = jax.random.split(key)
    saturated = ~diverged & np.asarray(_saturated(algorithm.act, look, agents, eta, observations))
    unhealthy = diverged | (saturated & unstick & ~((everyone == champion) & keep_champion))
    report = Health(diverged, saturated, unhealthy)
    if not unhealthy.any():
        return agents, report
    members, healthy = np.flatnonzero(unhealthy), np.flatnonzero(~diverged & ~saturated)
    if healthy.size:
        donor = champion if champion in healthy else int(healthy[0])
        others = population.take(agents, np.full(len(members), donor))
        report = report._replace(donor=donor)
    else:
        others = population.create(fresh, algorithm, len(members))
    return population.put(agents, members, others), report


@jax.jit
def _finite(agents: Agents) -> Array:
    each = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in jax.tree.leaves(agents)]
    return jnp.stack(each).all(axis=0)


@partial(jax.jit, static_argnums=0)
def _saturated(act: Any, key: Key, agents: Agents, hyper: Mapping[str, Array], obs: Array) -> Array:
    actions = jax.vmap(lambda agent, eta: jax.vmap(lambda x: act(key, agent, x, eta, False))(obs))(agents, hyper)
    return (jnp.abs(actions) > BOUND).all(axis=(1, 2))
