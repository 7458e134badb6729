"""CEM-RL: sepCEM by hand, one critic for all who learn, and plain CEM on a probe."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oht
from environments import FollowObservation, TwoStepCredit
from oht import population
from oht import replay as ring
from oht.agents import make
from oht.errors import UserError
from oht.population import SharedCritic
from oht.tuners import cemrl
from oht.types import Spec

KEY = jax.random.key(0)
TD3 = make("td3", Spec(1, 1), hidden=(8, 8))
TINY: dict[str, Any] = {
    "method": "cem-rl",
    "start_steps": 20,
    "eval_every": 100_000,
    "eval_episodes": 2,
    "batch_size": 8,
    "hidden": (8, 8),
    "max_episode": 20,
    "replay_size": 2000,
    "tensorboard": False,
}


def agents_of(number: int, **settings) -> tuple[Any, Any, Any]:
    chosen = cemrl.CemRl(population=number, gradient=number // 2, **settings)
    algorithm = cemrl.adapt(chosen, {}, TD3)
    return cemrl.make(chosen, {}, TD3.hyper), algorithm, population.create(KEY, algorithm, number + 1)


def test_sepcem_by_hand():
    """Old mean 1; elites 4, then 2 with weights log(3/1) and log(3/2), normalised; the rest does not count."""
    tuner, _, agents = agents_of(4, damp=0.01, damp_limit=0.001)
    values = jnp.array([1.0, 2.0, -7.0, 4.0, 9.0])
    filled = jax.tree.map(lambda x: jnp.ones_like(x) * values.reshape(-1, *(1,) * (x.ndim - 1)), agents.agent.actor)
    agents = agents._replace(agent=agents.agent._replace(actor=filled))
    state, told = tuner.tell(KEY, tuner.init(KEY), agents, None, np.array([5.0, 1.0, 8.0, -np.inf]))
    w1, w2 = 0.7304, 0.2696
    for weights, variance in zip(*map(jax.tree.leaves, (told.agent.actor, told.variance)), strict=True):
        np.testing.assert_allclose(weights[0], w1 * 4 + w2 * 2, rtol=1e-4)
        np.testing.assert_allclose(variance, (w1 * 9 + w2 * 1) / 2 + 0.01, rtol=1e-4)
    assert state.damp == pytest.approx(0.95 * 0.01 + 0.05 * 0.001)
    assert state.sigma == pytest.approx(np.sqrt((w1 * 9 + w2) / 2 + 0.01), rel=1e-4)


def test_actors_are_drawn_in_mirrored_pairs_and_start_anew():
    tuner, _, agents = agents_of(4, variance=0.04)
    moved = agents.agent._replace(actor_moments=jax.tree.map(lambda leaf: leaf + 1, agents.agent.actor_moments))
    _, proposal = tuner.ask(KEY, tuner.init(KEY), agents._replace(agent=moved), 0)
    new = proposal.agents.agent
    for old, x in zip(jax.tree.leaves(agents.agent.actor), jax.tree.leaves(new.actor), strict=True):
        np.testing.assert_array_equal(x[0], old[0])
        np.testing.assert_allclose(x[1] + x[3], 2 * old[0], atol=1e-6)
        assert (x[1] != x[2]).all()
    drawn = np.concatenate([np.ravel(x[1] - x[0]) for x in jax.tree.leaves(new.actor)])
    assert drawn.std() == pytest.approx(0.2, rel=0.2)
    jax.tree.map(np.testing.assert_array_equal, new.actor, new.target_actor)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(new.actor_moments))
    for leaf, old in zip(jax.tree.leaves(new.critic), jax.tree.leaves(agents.agent.critic), strict=True):
        np.testing.assert_array_equal(leaf, np.broadcast_to(old[1], leaf.shape))
    np.testing.assert_array_equal(proposal.actors, [1, 2, 3, 4])
    np.testing.assert_array_equal(proposal.ratios, [0, 1, 1, 0, 0])
    assert not tuner.explore


def test_those_who_learn_share_one_critic():
    _, algorithm, agents = agents_of(4)
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    replay = ring.extend(ring.empty(100, 1, 1), draw(41, 1), draw(40, 1), draw(40), True)
    some = population.take(agents, np.array([1, 2]))
    hyper = {name: np.full(2, value, np.float32) for name, value in algorithm.hyper.items()}
    learned, metrics = SharedCritic(algorithm, 8).learn(KEY, some, replay, hyper, 6)
    for part in ("critic", "target_critic", "critic_moments"):
        for leaf in jax.tree.leaves(getattr(learned.agent, part)):
            np.testing.assert_array_equal(leaf[0], leaf[1])
    assert learned.agent.critic_moments.count.tolist() == [6, 6]  # three in each of two turns
    assert learned.agent.actor_moments.count.tolist() == [6, 6]
    assert metrics["actor_loss"].shape == (2,)
    for before, after in zip(jax.tree.leaves(some.agent.actor), jax.tree.leaves(learned.agent.actor), strict=True):
        assert (np.asarray(before) != np.asarray(after)).any(axis=tuple(range(1, before.ndim))).all()


def test_plain_cem_solves_a_probe(tmp_path):
    settings: dict[str, Any] = {**TINY, "gradient": 0, "variance": 0.05, "steps": 620}
    run = oht.train(TwoStepCredit, out=tmp_path / "run", **settings)
    assert run.progress.updates == 0
    assert np.mean(run.evaluate(5)) > 0.97  # the best is 1, the action 0 gets 0.75
    assert run.schedule[-1]["weights/sigma"] < run.schedule[0]["weights/sigma"]


def test_actor_steps_are_the_env_steps_of_the_generation_before(tmp_path):
    settings: dict[str, Any] = {**TINY, "population": 4, "gradient": 2, "steps": 100}
    run = oht.train(FollowObservation, out=tmp_path / "run", **settings)
    assert [row["env_steps"] for row in run.metrics] == [60, 100]
    assert [row["updates"] for row in run.metrics] == [2 * 20, 2 * 20 + 2 * 40]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algo": "sac"}, "td3 or ddpg"),
        ({"normalise": True}, "normalise"),
        ({"gradient": 11}, "only 10 actors"),
        ({"tune": {"n_step": oht.Choice(1, 2)}}, "tunes no hyper-parameters"),
    ],
)
def test_what_it_cannot_do(settings, words, tmp_path):
    with pytest.raises(UserError, match=words):
        oht.train(FollowObservation, method="cem-rl", out=tmp_path / "run", **settings)
