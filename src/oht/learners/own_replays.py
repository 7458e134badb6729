"""Agents that learn only from their own episodes, as in population-based training."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from oht import devices
from oht import replay as ring
from oht.errors import UserError
from oht.population import Learner, take
from oht.types import Array, Episode, Key


class OwnReplays(Learner):
    """A ring for each agent: every leaf of the replay has a leading axis P."""

    replay_axis = 0

    def empty_replay(self, population: int, slots: int, obs: int, action: int, longest: int) -> ring.Replay:
        each = slots // population
        if each <= longest:
            raise UserError(
                f"replay_size {slots} gives each of {population} agents {each} places, which cannot hold an episode of "
                f"max_episode {longest}; make it larger."
            )
        one = ring.empty(each, obs, action)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (population, *leaf.shape)).copy(), one)

    def store(self, replay: ring.Replay, episodes: Sequence[Episode], actors: np.ndarray | None) -> ring.Replay:
        """Each episode goes to its actor's ring; those of random actions to every ring."""
        replay = devices.everywhere(replay)
        for number, episode in enumerate(episodes):
            for member in range(len(replay.written)) if actors is None else (int(actors[number]),):
                replay = _put_ring(replay, member, ring.extend(take(replay, member), *episode))
        return replay

    def replay_of(self, replay: ring.Replay, members: np.ndarray) -> ring.Replay:
        return replay if len(members) == len(replay.written) else take(replay, members)

    def observations(self, key: Key, replay: ring.Replay, number: int) -> Array:
        return super().observations(key, take(replay, 0), number)


@partial(jax.jit, donate_argnums=0)
def _put_ring(replays: ring.Replay, member: Array, one: ring.Replay) -> ring.Replay:
    return jax.tree.map(lambda leaf, new: leaf.at[member].set(new), replays, one)
