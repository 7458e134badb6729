"""All randomness of a run, from its seed: a stream of its own for each purpose and number, each used for one thing.

The plan of an iteration may be asked for again, before an evaluation and when a run is loaded: it is the same plan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from oht.types import Key

Purpose = Literal[
    "agents",  # first weights
    "tuner",  # the tuner's first state
    "random start",  # by env steps: starts and actions before anyone plays
    "ask",  # this and what follows: by iteration
    "new weights",
    "learn",
    "health",
    "healthy weights",
    "donor",
    "noise",  # of exploration
    "tell",
    "start",  # by number: the state that an episode begins in
    "evaluation",  # by iteration: starts and champions of an evaluation while training
    "evaluation on demand",  # the same for an evaluation that a user asks for, by its own seed
    "policy",  # which agent is deployed, and its noise
    "another start",  # by attempt, from the seed of an episode in which the env failed
]
PURPOSES = get_args(Purpose)
MOST = 2**31 - 1  # seeds of environments lie below


def generator(seed: int, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """NumPy's randomness for a purpose."""
    return np.random.default_rng([seed, PURPOSES.index(purpose), number])


def key(seed: int, purpose: Purpose, number: int = 0) -> Key:
    """JAX's randomness for a purpose."""
    return folded(_stream(seed, PURPOSES.index(purpose)), number)


@lru_cache(maxsize=256)
def _stream(seed: int, purpose: int) -> Key:
    import jax

    with jax.ensure_compile_time_eval():  # also while something is traced: what is kept must be a number
        return folded(jax.random.key(seed), purpose)


def folded(key: Key, number: int) -> Key:
    """The key for a number, compiled: a run asks for several in each iteration."""
    return _fold_in()(key, number)


@cache
def _fold_in() -> Callable[[Key, int], Key]:
    import jax

    return jax.jit(jax.random.fold_in)


def start(seed: int, number: int) -> int:
    """The seed of the environment for episodes that begin in state `number`."""
    return int(generator(seed, "start", number).integers(MOST))


def another_start(start: int, attempt: int) -> int:
    """The seed of the environment when the episode with the seed `start` is repeated, because the env failed in it."""
    return int(generator(start, "another start", attempt).integers(MOST))
