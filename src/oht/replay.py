"""One ring of whole episodes for all agents; n-step targets are made when sampled, for each agent's own n and gamma.

An episode of T steps takes T + 1 slots: each holds an observation once, with the action taken there and its reward; the
last slot holds only the final observation. Old slots are overwritten in order. Every stored episode is complete, so
looking ahead from any transition never meets the end of the data before the end of its episode.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from oht.types import Array, Batch

GOES_ON, TRUNCATED, TERMINAL, NO_STEP = range(4)  # what follows the step that starts in a slot


class Replay(NamedTuple):
    obs: Array  # (slots, obs)
    action: Array  # (slots, action)
    reward: Array  # (slots,)
    end: Array  # (slots,) one of the four marks above
    starts: Array  # (slots,) a ring of the slots where a transition starts: what is sampled from
    written: Array  # slots ever written
    stored: Array  # transitions ever stored
    dropped: Array  # transitions ever overwritten


@partial(jax.jit, static_argnums=(0, 1, 2))
def empty(slots: int, obs: int, action: int) -> Replay:
    return Replay(
        obs=jnp.zeros((slots, obs), jnp.float32),
        action=jnp.zeros((slots, action), jnp.float32),
        reward=jnp.zeros(slots, jnp.float32),
        end=jnp.full(slots, NO_STEP, jnp.int8),
        starts=jnp.zeros(slots, jnp.int32),
        written=jnp.zeros((), jnp.int32),
        stored=jnp.zeros((), jnp.int32),
        dropped=jnp.zeros((), jnp.int32),
    )


def size(replay: Replay) -> Array:
    """The transitions that can be sampled."""
    return replay.stored - replay.dropped


def extend(replay: Replay, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, terminal: bool) -> Replay:
    """Store one whole episode: T + 1 observations, T actions and rewards. Do not use the given replay again."""
    steps = len(action)
    room = 1 << steps.bit_length()  # a power of two above T: few shapes to compile
    padded = [np.zeros((room, *part.shape[1:]), np.float32) for part in (obs, action, reward)]
    for target, part in zip(padded, (obs, action, reward), strict=True):
        target[: len(part)] = part
    return _extend(replay, *padded, np.int32(steps), np.int8(TERMINAL if terminal else TRUNCATED))


@partial(jax.jit, donate_argnums=0)
def _extend(replay: Replay, obs: Array, action: Array, reward: Array, steps: Array, ending: Array) -> Replay:
    slots = replay.end.shape[0]
    offset = jnp.arange(obs.shape[0], dtype=jnp.int32)
    slot = jnp.where(offset <= steps, (replay.written + offset) % slots, slots)  # beyond the ring: dropped
    end = jnp.select([offset < steps - 1, offset == steps - 1], [GOES_ON, ending], NO_STEP).astype(jnp.int8)
    order = jnp.where(offset < steps, (replay.stored + offset) % slots, slots)
    overwritten = (replay.end.at[slot].get(mode="fill", fill_value=NO_STEP) != NO_STEP).sum(dtype=jnp.int32)
    return Replay(
        obs=replay.obs.at[slot].set(obs, mode="drop"),
        action=replay.action.at[slot].set(action, mode="drop"),
        reward=replay.reward.at[slot].set(reward, mode="drop"),
        end=replay.end.at[slot].set(end, mode="drop"),
        starts=replay.starts.at[order].set(slot, mode="drop"),
        written=replay.written + steps + 1,
        stored=replay.stored + steps,
        dropped=replay.dropped + overwritten,
    )


def sample(
    key: Array,
    replay: Replay,
    rows: int,
    n_step: Array | int,
    gamma: Array | float,
    max_n: int,
    recency: Array | float = 1.0,
) -> Batch:
    """`rows` transitions, with targets over n_step <= max_n steps.

    With recency 1 they are drawn uniformly from all that are stored; with r each is as new as the newest of r that are.

    reward = sum_{i<m} gamma^i r_i and discount = gamma^m, where m = n_step, or less where the episode ends before;
    after a terminal discount = 0, at a truncation the bootstrap stays.
    """
    slots = replay.end.shape[0]
    order = replay.dropped + _newer(jax.random.randint(key, (rows,), 0, size(replay)), size(replay), recency)
    start = replay.starts[order % slots]
    ahead = jnp.arange(max_n, dtype=jnp.int32)
    path = (start[:, None] + ahead) % slots
    goes_on = (replay.end[path] == GOES_ON).astype(jnp.int32)
    reached = jnp.cumprod(jnp.concatenate([jnp.ones((rows, 1), jnp.int32), goes_on[:, :-1]], axis=1), axis=1)
    taken = reached * (ahead < n_step)
    steps = taken.sum(axis=1)
    last = (start + steps - 1) % slots
    return Batch(
        obs=replay.obs[start],
        action=replay.action[start],
        reward=(taken * gamma**ahead * replay.reward[path]).sum(axis=1),
        discount=jnp.where(replay.end[last] == TERMINAL, 0.0, gamma**steps),
        next_obs=replay.obs[(start + steps) % slots],
    )


def _newer(age: Array, number: Array, recency: Array | float) -> Array:
    """Uniform numbers below `number`, the oldest 0, moved towards the newest: P(X < x) = (x / number)^recency."""
    moved = number * ((age + 0.5) / number) ** (1 / recency)
    return jnp.where(recency == 1, age, jnp.minimum(moved.astype(jnp.int32), number - 1))
