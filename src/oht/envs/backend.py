"""The interface of environments: policies in, whole episodes out."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from oht.errors import UserError
from oht.types import Act, Episode


class EnvError(UserError):
    """An environment that failed: which one, at which step, and how."""


class Dropped(NamedTuple):
    """An episode in which the env failed, and which is repeated from another seed."""

    seed: int
    error: EnvError


class Pool(Protocol):
    """Plays whole episodes, each determined by its seed and its actions alone."""

    obs: int
    action: int
    size: int
    limit: int  # steps after which an episode is cut
    spaces: tuple[spaces.Space, spaces.Box]  # the env's own, of observations and actions
    dropped: list[Dropped]  # the episodes that were repeated, until someone takes them from here

    def rollout(self, act: Act, seeds: Sequence[int]) -> list[Episode]:
        """One episode for each of M <= size seeds, all running at once.

        `act` is called once per time step with the observations of all M; the rows of episodes that have ended are
        stale, and what it answers there is ignored. An episode in which the env fails may be repeated from another
        seed; time then counts on, so that no two episodes have the same noise.
        """
        ...

    def close(self) -> None: ...


class EnvStarts(NamedTuple):
    """What a reset of n envs gave."""

    obs: np.ndarray  # (n, obs) float32
    errors: dict[int, EnvError]  # by row: envs that failed; their observations mean nothing


class EnvSteps(NamedTuple):
    """What one step of n envs gave."""

    obs: np.ndarray  # (n, obs) float32
    reward: np.ndarray  # (n,)
    terminated: np.ndarray  # (n,) bool
    truncated: np.ndarray  # (n,) bool, by a time limit of the env's own
    errors: dict[int, EnvError]  # by row: envs that failed; what else is in their rows means nothing


class Backend(Protocol):
    """Envs that are stepped together, with flat observations and actions in [-1, 1]; none resets itself."""

    obs: int
    action: int
    spaces: tuple[spaces.Space, spaces.Box]  # the env's own, of observations and actions

    def reset(self, seeds: Sequence[int]) -> EnvStarts:
        """Starts env 0..M-1 anew, each by its own seed, whatever happened before."""
        ...

    def step(self, alive: np.ndarray, actions: np.ndarray) -> EnvSteps:
        """Steps only the envs whose indices are in `alive`, which is sorted, with one row of `actions` for each."""
        ...

    def close(self) -> None: ...
