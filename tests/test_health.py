"""Agents that cannot learn any more are found, replaced and reported."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht import health, population
from oht import replay as ring
from oht.agents import make
from oht.population import Learner
from oht.types import Spec

KEY = jax.random.key(0)
SPEC = Spec(3, 2)
TD3 = make("td3", SPEC, hidden=(8, 8))
OBS = jax.random.normal(jax.random.key(7), (health.LOOKS, SPEC.obs))


def hyper_of(number: int) -> dict[str, np.ndarray]:
    return {name: np.full(number, value, np.float64) for name, value in TD3.hyper.items()}


def agents_of(number: int, saturated: Any = (), diverged: Any = ()) -> Any:
    """Healthy agents but for those that are named."""
    agents = population.create(KEY, TD3, number)
    push = 50.0 * np.isin(np.arange(number), saturated)[:, None] * np.array([1.0, -1.0])
    layers = agents.actor["params"]["MLP_0"]
    last = layers[max(layers)]
    layers[max(layers)] = {"kernel": last["kernel"], "bias": last["bias"] + push}
    wrong = jnp.where(np.isin(np.arange(number), diverged), jnp.nan, 0.0)
    moments = agents.critic_moments
    nu = jax.tree.map(lambda leaf: leaf + wrong.reshape(-1, *(1,) * (leaf.ndim - 1)), moments.nu)
    return agents._replace(critic_moments=moments._replace(nu=nu))


def checked(
    agents: Any, champion: int = 0, unstick: bool = True, keep_champion: bool = True
) -> tuple[Any, health.Health]:
    number = population.number_of(agents)
    return health.check(KEY, TD3, agents, hyper_of(number), OBS, champion, unstick, keep_champion)


def weights(agents: Any, member: int) -> np.ndarray:
    return np.concatenate([np.ravel(leaf[member]) for leaf in jax.tree.leaves(agents.actor)])


def members(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def test_healthy_agents_are_left_alone():
    agents = agents_of(3)
    same, report = checked(agents)
    assert same is agents
    assert not np.any([report.diverged, report.saturated, report.replaced])


@pytest.mark.parametrize(("champion", "donor"), [(2, 2), (1, 0), (3, 0)])
def test_the_ill_continue_as_copies_of_the_champion_or_of_the_first_healthy(champion, donor):
    agents = agents_of(4, saturated=[3], diverged=[1])
    after, report = checked(agents, champion, keep_champion=False)
    assert (members(report.diverged), members(report.saturated), members(report.replaced)) == ([1], [3], [1, 3])
    assert report.donor == donor
    for member in (1, 3):
        np.testing.assert_array_equal(weights(after, member), weights(agents, donor))
    for member in (0, 2):
        np.testing.assert_array_equal(weights(after, member), weights(agents, member))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))  # optimisers are replaced as well


def test_a_diverged_agent_among_saturated_ones_is_reported_and_replaced():
    agents = agents_of(3, saturated=[0, 1], diverged=[2])
    after, report = checked(agents)
    assert (members(report.diverged), members(report.replaced)) == ([2], [1, 2])  # the champion may be right
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    again = checked(after)[1]
    assert members(again.saturated) == [0]  # the others have fresh weights


def test_when_all_are_saturated_all_start_again_unless_one_has_played():
    agents = agents_of(2, saturated=[0, 1])
    after, report = checked(agents, keep_champion=False)
    assert (members(report.replaced), report.donor) == ([0, 1], health.NEW)
    assert not checked(after)[1].saturated.any()
    assert (weights(after, 0) != weights(after, 1)).any()
    kept, report = checked(agents)
    assert members(report.replaced) == [1]
    np.testing.assert_array_equal(weights(kept, 0), weights(agents, 0))


def test_without_unstick_saturated_agents_are_only_reported():
    agents = agents_of(3, saturated=[1], diverged=[2])
    after, report = checked(agents, unstick=False, keep_champion=False)
    assert (members(report.saturated), members(report.replaced)) == ([1], [2])
    np.testing.assert_array_equal(weights(after, 1), weights(agents, 1))


def test_nobody_left_is_an_error():
    with pytest.raises(health.Diverged, match="learning rate"):
        checked(agents_of(2, diverged=[0, 1]))


def test_a_policy_that_is_saturated_whatever_it_sees_learns_no_more():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    replay = ring.extend(ring.empty(200, 3, 2), draw(61, 3), draw(60, 2), draw(60), False)
    agents = agents_of(4)
    layers = agents.actor["params"]["MLP_0"]
    output = layers[max(layers)]
    push = jnp.array([[0.0, 0.0], [50.0, 0.0], [0.0, 0.0], [50.0, -50.0]])  # 1: only one of its actions is at a bound
    steep = jnp.array([1.0, 1.0, 1e6, 1.0])[:, None, None]  # 2 is always at a bound, at which depends on what it sees
    layers[max(layers)] = {"kernel": output["kernel"] * steep, "bias": output["bias"] + push}
    _, report = health.check(KEY, TD3, agents, hyper_of(4), replay.obs[:61], 0, False, True)
    assert members(report.saturated) == [2, 3]
    after, _ = Learner(TD3, 16).learn(
        jax.random.key(1), agents, replay, hyper_of(4), np.full(4, 20), lambda done, of: None
    )
    moved = [(a != b).reshape(4, -1).any(axis=1) for a, b in zip(*map(jax.tree.leaves, (agents, after)), strict=True)]
    actor = len(jax.tree.leaves(agents.actor))
    assert np.any(moved[:actor], axis=0).tolist() == [True, True, False, False]
