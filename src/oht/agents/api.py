"""What an off-policy algorithm is: four functions and numbers, for ONE agent.

Nothing in this package knows of populations: `oht.population` adds that axis with `jax.vmap`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Key = jax.Array
State = Any  # a pytree of arrays; each algorithm has its own
Hyper = Mapping[str, Any]  # of numbers, traced or not
Metrics = dict[str, Array]


class Spec(NamedTuple):
    """The sizes of a task's observation and action vectors; actions lie in [-1, 1]."""

    obs: int
    action: int


class Batch(NamedTuple):
    """Transitions with their n-step targets already summed, one row each.

    target = reward + discount * V(next_obs), where reward is the discounted sum of m <= n rewards and
    discount is gamma^m, or 0 after a terminal.
    """

    obs: Array
    action: Array
    reward: Array
    discount: Array
    next_obs: Array

    def split(self, parts: int) -> list["Batch"]:
        """Into so many of the same number of rows."""
        return [Batch(*part) for part in zip(*(jnp.split(leaf, parts) for leaf in self), strict=True)]


class Steps(NamedTuple):
    """The pieces of a deterministic actor-critic's update, for methods that arrange them in another way."""

    critic: Callable[[Key, State, Batch, Hyper, int], tuple[State, Metrics]]  # so many gradient steps of the critic
    actor: Callable[[State, Batch, Hyper], tuple[State, Metrics]]  # one of the actor, by the critic as it is now
    targets: Callable[[State, Hyper], State]  # all targets move
    actor_loss: Callable[[Any, Any, Array], Array]  # (actor, critic, obs) -> - mean Q(x, pi(x))


class Algorithm(NamedTuple):
    """One agent as pure functions.

    `update` gets `batches` minibatches in one Batch, rows of the first before rows of the second, for as many gradient
    steps; `spare` more come after them, of which it makes what it likes.
    `hyper` holds the default of every number that `update`, `act` or the replay reads, so all can be tuned;
    it must have `n_step` and `gamma`, which the replay uses to make the targets.
    """

    init: Callable[[Key], State]
    act: Callable[[Key, State, Array, Hyper, bool], Array]  # (key, state, obs, hyper, explore) -> action
    update: Callable[[Key, State, Batch, Hyper], tuple[State, Metrics]]
    hyper: dict[str, float]
    batches: int = 1
    spare: int = 0
    learned: Callable[[State], dict[str, Array]] = (
        lambda state: {}
    )  # hyper-parameters that the agent itself has learned
    steps: Steps | None = None
