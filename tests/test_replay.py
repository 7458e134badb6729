"""The replay against a plain Python reference, over rings that wrap, episodes that end either way, and any n."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from oht import replay as ring


class Plain(NamedTuple):
    """An episode whose observations, actions and rewards all name the step they belong to."""

    first: int  # number of the first step in the whole history
    steps: int
    terminal: bool

    def arrays(self):
        index = np.arange(self.first, self.first + self.steps + 1, dtype=np.float32)
        return index[:, None], -index[:-1, None], np.sin(index[:-1]), self.terminal


def history(lengths_and_ends) -> list[Plain]:
    episodes, first = [], 0
    for steps, terminal in lengths_and_ends:
        episodes.append(Plain(first, steps, terminal))
        first += steps + 1
    return episodes


def expected(episodes: list[Plain], slots: int, n: int, gamma: float) -> dict[int, tuple[float, float, float]]:
    """For each step that is still stored: (sum of m rewards, discount, last observation)."""
    written = sum(episode.steps + 1 for episode in episodes)
    targets = {}
    for first, steps, terminal in episodes:
        for step in range(first, first + steps):
            if step < written - slots:
                continue
            m = min(n, first + steps - step)
            total = sum(gamma**i * np.sin(np.float32(step + i)) for i in range(m))
            ended = terminal and step + m == first + steps
            targets[step] = (total, 0.0 if ended else gamma**m, step + m)
    return targets


sample = jax.jit(ring.sample, static_argnames=("rows", "max_n"))
episodes_strategy = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(episodes_strategy, st.sampled_from([12, 40]), st.integers(1, 12), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_targets_are_those_of_the_reference(lengths, slots, n, gamma):
    episodes = history(lengths)
    replay = ring.empty(slots, 1, 1)
    for episode in episodes:
        replay = ring.extend(replay, *episode.arrays())
    targets = expected(episodes, slots, n, gamma)
    assert int(ring.size(replay)) == len(targets)

    batch = sample(jax.random.key(0), replay, rows=600, n_step=jnp.float32(n), gamma=jnp.float32(gamma), max_n=12)
    obs, action, reward, discount, next_obs = (np.asarray(column).reshape(600) for column in batch)
    assert set(obs.tolist()) == set(targets)  # 600 draws of at most 40: a missing one would be a wonder
    np.testing.assert_array_equal(action, -obs)
    drawn = np.array([targets[int(step)] for step in obs])
    np.testing.assert_allclose(np.stack([reward, discount, next_obs], axis=1), drawn, rtol=0, atol=1e-5)


def test_a_new_replay_holds_nothing():
    replay = ring.empty(5, 2, 1)
    assert (np.asarray(replay.end) == ring.NO_STEP).all()
    assert not any(np.any(leaf) for leaf in replay._replace(end=0))  # all else is 0


def test_every_agent_has_its_own_n():
    replay = ring.extend(ring.empty(20, 1, 1), *Plain(0, 6, True).arrays())
    n = jnp.array([1.0, 2.0, 5.0])
    sample_each = jax.vmap(lambda n: sample(jax.random.key(0), replay, rows=64, n_step=n, gamma=1.0, max_n=5))
    batch = sample_each(n)
    ahead = np.asarray(batch.next_obs - batch.obs)[..., 0]
    left = 6 - np.asarray(batch.obs)[..., 0]
    np.testing.assert_array_equal(ahead, np.minimum(np.asarray(n)[:, None], left))


def test_draws_are_uniform_over_what_is_stored():
    replay = ring.empty(64, 1, 1)
    for episode in history([(1, True), (7, False), (30, True), (2, False), (20, True), (11, False)]):
        replay = ring.extend(replay, *episode.arrays())
    rows = 50_000
    obs = np.asarray(sample(jax.random.key(1), replay, rows=rows, n_step=1.0, gamma=1.0, max_n=1).obs)[:, 0]
    _, counts = np.unique(obs, return_counts=True)
    assert len(counts) == int(ring.size(replay))
    share = rows / len(counts)
    chi_square = ((counts - share) ** 2 / share).sum()
    assert chi_square < len(counts) + 5 * np.sqrt(2 * len(counts))


def test_with_recency_each_draw_is_as_new_as_the_newest_of_several():
    replay = ring.empty(200, 1, 1)
    for episode in history([(50, True)] * 5):  # the first is overwritten
        replay = ring.extend(replay, *episode.arrays())
    number, rows = int(ring.size(replay)), 60_000
    assert number < 200

    def ages(recency: float) -> np.ndarray:
        settings = {"rows": rows, "n_step": 1.0, "gamma": 1.0, "max_n": 1}
        obs = np.asarray(sample(jax.random.key(1), replay, recency=recency, **settings).obs)[:, 0]
        stored = np.sort(np.unique(np.asarray(sample(jax.random.key(2), replay, recency=1.0, **settings).obs)))
        assert len(stored) == number
        return np.searchsorted(stored, obs)

    below = np.arange(1, number + 1) / number
    for recency in (1.0, 2.0, 3.0, 5.5):
        share = np.cumsum(np.bincount(ages(recency), minlength=number)) / rows
        np.testing.assert_allclose(share, below**recency, atol=0.02)
    assert ages(1000.0).min() > number - 10  # nearly always the newest, and never beyond it


def test_without_recency_the_draws_are_those_of_a_uniform_replay():
    replay = ring.extend(ring.empty(100, 1, 1), *Plain(0, 90, True).arrays())
    settings = {"rows": 64, "n_step": 1.0, "gamma": 1.0, "max_n": 1}
    np.testing.assert_array_equal(
        sample(jax.random.key(0), replay, recency=jnp.float32(1), **settings).obs,
        sample(jax.random.key(0), replay, **settings).obs,
    )


def test_the_ring_holds_a_million_steps_of_walker_run_in_150_megabytes():
    shapes = jax.eval_shape(lambda: ring.empty(1_000_000, 24, 6))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)) < 150e6


def test_a_used_up_replay_cannot_be_read_again():
    """Storing works in place: nothing of the size of the ring is copied."""
    before = ring.empty(20, 1, 1)
    ring.extend(before, *Plain(0, 3, True).arrays())
    assert before.obs.is_deleted()
