"""The algorithm that acts at random and learns nothing."""

import jax
import numpy as np
import pytest

import oht
from oht.agents.uniform import uniform
from oht.errors import UserError
from oht.types import Spec

TINY = {"steps": 25, "start_steps": 5, "eval_every": 10, "max_episode": 5, "replay_size": 50, "tensorboard": False}


@pytest.mark.parametrize("explore", [True, False])
def test_actions_are_uniform_in_training_and_in_tests(explore):
    algorithm = uniform(Spec(obs=2, action=3))
    state = algorithm.init(jax.random.key(0))
    actions = algorithm.act(jax.random.key(1), state, jax.numpy.ones((4000, 2)), algorithm.hyper, explore)
    assert actions.shape == (4000, 3)
    assert np.abs(actions).max() <= 1.0
    shares = np.histogram(actions, bins=4, range=(-1, 1))[0] / actions.size
    np.testing.assert_allclose(shares, 0.25, atol=0.02)  # 12 000 draws: five standard errors
    one = algorithm.act(jax.random.key(1), state, jax.numpy.ones(2), algorithm.hyper, explore)
    assert one.shape == (3,)


def test_a_run_like_any_other(tmp_path):
    """It plays, is tested, saved and loaded; its updates change nothing, and have nothing to tell."""
    run = oht.train("environments:FollowObservation", algo="uniform", eval_episodes=3, out=tmp_path / "run", **TINY)
    assert [row["env_steps"] for row in run.evals] == [10, 20, 25]
    assert oht.load(run.path).evaluate(4, seed=1) == run.evaluate(4, seed=1)
    assert run.progress.updates > 0
    assert list(run.metrics[-1])[-2:] == ["return_max", "wall_time"]


def test_no_learning_rate_to_set(tmp_path):
    with pytest.raises(UserError, match="critic_lr is a setting of td3, ddpg and sac, not of uniform"):
        oht.train("Pendulum-v1", algo="uniform", critic_lr=1e-3, out=tmp_path / "run")
