"""Many agents learn as each would alone, in one compiled call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht import population
from oht import replay as ring
from oht.agents import make
from oht.population import Actors, Learner
from oht.types import Spec

SPEC = Spec(3, 2)


@pytest.fixture(scope="module")
def replay():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    ring_ = ring.empty(200, 3, 2)
    for steps in (40, 7, 60):
        ring_ = ring.extend(ring_, draw(steps + 1, 3), draw(steps, 2), draw(steps), steps == 7)
    return ring_


def hyper_of(algorithm, number, **changed):
    values = {name: np.full(number, value, np.float32) for name, value in algorithm.hyper.items()}
    return values | {name: np.float32(value) for name, value in changed.items()}


@pytest.mark.parametrize("name", ["td3", "ddpg", "sac"])
def test_agents_do_not_touch_each_other(name, replay):
    """Changing the hyper-parameters of one agent leaves the others as they are."""
    algorithm = make(name, SPEC, hidden=(8, 8))
    learner = Learner(algorithm, batch_size=16, max_n=3)
    agents = population.create(jax.random.key(0), algorithm, 3)
    one = hyper_of(algorithm, 3, n_step=[1, 2, 3])
    other = hyper_of(algorithm, 3, n_step=[1, 2, 3], critic_lr=[1e-3, 1e-3, 1e-1])
    same, _ = learner.learn(jax.random.key(1), agents, replay, one, 4)
    changed, _ = learner.learn(jax.random.key(1), agents, replay, other, 4)
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(changed), strict=True):
        np.testing.assert_array_equal(a[:2], b[:2])
    assert any((a[2] != b[2]).any() for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(changed), strict=True))


def test_no_recompilation_for_new_numbers(replay):
    algorithm = make("td3", SPEC, hidden=(8, 8))
    learner = Learner(algorithm, batch_size=16, max_n=3)
    agents = population.create(jax.random.key(0), algorithm, 2)
    before = Learner._learn._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    for updates, n_step, rate in ((2, 1, 1e-3), (10, 2, 1e-4), (6, 3, 1e-2)):
        hyper = hyper_of(algorithm, 2, n_step=[n_step] * 2, actor_lr=[rate] * 2)
        agents, _ = learner.learn(jax.random.key(updates), agents, replay, hyper, updates)
    assert Learner._learn._cache_size() == before + 1  # pyright: ignore[reportAttributeAccessIssue]


def test_updates_come_in_whole_rounds(replay):
    algorithm = make("td3", SPEC, hidden=(8, 8), policy_delay=2)
    agents = population.create(jax.random.key(0), algorithm, 1)
    with pytest.raises(ValueError, match="multiple of 2"):
        Learner(algorithm, 16).learn(jax.random.key(0), agents, replay, hyper_of(algorithm, 1), 3)


def test_own_replays_give_each_agent_its_own_data(replay):
    """Agent 1 learns from a ring with other rewards, and so other things."""
    algorithm = make("td3", SPEC, hidden=(8, 8))
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), replay)
    rich = twins._replace(reward=twins.reward.at[1].add(10.0))
    learner = Learner(algorithm, 16, own_replays=True)
    agents = population.create(jax.random.key(0), algorithm, 2)
    poor, _ = learner.learn(jax.random.key(1), agents, twins, hyper_of(algorithm, 2), 4)
    some, metrics = learner.learn(jax.random.key(1), agents, rich, hyper_of(algorithm, 2), 4)
    first = [jax.tree.leaves(population.take(a, np.array([0]))) for a in (poor, some)]
    assert all((a == b).all() for a, b in zip(*first, strict=True))
    assert metrics["critic_loss"][1] > 10 * metrics["critic_loss"][0]


def test_policies_act_by_row_and_repeat():
    algorithm = make("td3", SPEC, hidden=(8, 8))
    agents = population.create(jax.random.key(0), algorithm, 3)
    actors, hyper = Actors(algorithm), hyper_of(algorithm, 3)
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    act = actors.policies(jax.random.key(5), agents, hyper, explore=True)
    np.testing.assert_array_equal(act(4, obs), act(4, obs))
    assert (act(4, obs) != act(5, obs)).all()
    other = obs.copy()
    other[2] = 0.0
    np.testing.assert_array_equal(act(4, obs)[:2], act(4, other)[:2])


def test_finite_finds_the_sick():
    algorithm = make("td3", SPEC, hidden=(8, 8))
    agents = population.create(jax.random.key(0), algorithm, 3)
    bias = jax.tree.leaves(agents)[0]
    agents = jax.tree.map(lambda leaf: leaf.at[1].set(jnp.nan) if leaf is bias else leaf, agents)
    assert population.finite(agents).tolist() == [True, False, True]


def test_a_policy_that_is_saturated_whatever_it_sees_learns_no_more(replay):
    algorithm = make("td3", SPEC, hidden=(8, 8))
    agents, hyper = population.create(jax.random.key(0), algorithm, 4), hyper_of(algorithm, 4)
    layers = agents.actor["params"]["MLP_0"]
    output = layers[max(layers)]
    push = jnp.array([[0.0, 0.0], [50.0, 0.0], [0.0, 0.0], [50.0, -50.0]])  # 1 is stuck in one of its actions only
    steep = jnp.array([1.0, 1.0, 1e6, 1.0])[:, None, None]  # 2 is always at a bound, at which depends on what it sees
    layers[max(layers)] = {"kernel": output["kernel"] * steep, "bias": output["bias"] + push}
    stuck = Actors(algorithm).saturated(jax.random.key(0), agents, hyper, replay)
    np.testing.assert_array_equal(stuck, [False, False, True, True])
    after, _ = Learner(algorithm, batch_size=16).learn(jax.random.key(1), agents, replay, hyper, 20)
    moved = [(a != b).reshape(4, -1).any(axis=1) for a, b in zip(*map(jax.tree.leaves, (agents, after)), strict=True)]
    actor = len(jax.tree.leaves(agents.actor))
    assert np.any(moved[:actor], axis=0).tolist() == [True, True, False, False]
