"""Our tasks beside those of others: the short form of `benchmarks/random_scores.py`."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from oht.envs import roboschool
from oht.envs.pool import Episode, open_pool
from oht.envs.tasks import TASKS


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


random_scores = load(Path(__file__).parent.parent / "benchmarks" / "random_scores.py")

# One step from the same state is the same but for rounding to float32; chaos then blows rounding up, in Ant most.
REWARD_ERRORS = {1: 1e-6, 10: 1e-4}


@pytest.fixture(params=random_scores.ORIGINALS)
def task(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("gym/"):
        pytest.importorskip("imageio", reason="Gymnasium's own MuJoCo tasks need it")
    return request.param


def test_a_task_steps_and_pays_like_its_original(task: str) -> None:
    original = random_scores.ORIGINALS[task][1]()
    entry = TASKS[task]
    assert (original.obs, original.action, original.limit) == (entry.obs, entry.action, entry.limit)
    for ours in random_scores.random_episodes(task, episodes=3, seed=5):
        theirs = random_scores.replay(original, ours, steps=10)
        assert ours.obs.shape[1:] == theirs.obs.shape[1:]
        np.testing.assert_allclose(theirs.obs[0], ours.obs[0], atol=1e-6)
        for steps, bound in REWARD_ERRORS.items():
            assert random_scores.error(ours.reward, theirs.reward, steps) < bound
            assert random_scores.error(ours.obs[:, :14], theirs.obs[:, :14], steps + 1) < 100 * bound


def test_reward_range_and_end_of_the_control_suite() -> None:
    for task in (task for task in random_scores.ORIGINALS if task.startswith("dm/")):
        ours = random_scores.summary(random_scores.random_episodes(task, episodes=2))
        theirs = random_scores.summary(random_scores.original_episodes(random_scores.ORIGINALS[task][1](), 2))
        for episodes in (ours, theirs):
            assert 0.0 <= episodes.reward_min <= episodes.reward_max <= 1.0
            assert (episodes.length, episodes.terminal) == (1000, 0)


def test_a_walker_falls_at_the_same_step_as_gymnasiums() -> None:
    pytest.importorskip("imageio", reason="Gymnasium's own MuJoCo tasks need it")
    original = random_scores.ORIGINALS["gym/walker2d"][1]()
    for ours in random_scores.random_episodes("gym/walker2d", episodes=5):
        theirs = random_scores.replay(original, ours)
        assert ours.terminal
        assert theirs.terminal
        assert len(ours.reward) == len(theirs.reward)


PEERS = {"ant": roboschool.Ant, "half-cheetah": roboschool.HalfCheetah, "walker2d": roboschool.Walker2d}


@pytest.mark.parametrize("robot", PEERS)
def test_roboschool_moves_as_the_bullet_robots_do(robot: str) -> None:
    """Same physics, same rules, but for the floor as a robot part, the price of a joint's limit, the Cheetah's end."""
    ours = PEERS[robot]()
    theirs: Any = gymnasium.make(TASKS[f"bullet/{robot}"].env).unwrapped
    theirs.reset(seed=9)  # AntBulletEnv-v0's first reset is unlike all later ones
    obs, _ = ours.reset(seed=1)
    other, _ = theirs.reset(seed=1)
    shown = [i for i in range(len(obs)) if i not in (1, 2)]  # all but the angle to the target, which needs x and y
    for action in np.random.default_rng(1).uniform(-1.0, 1.0, (40, *theirs.action_space.shape)).astype(np.float32):
        np.testing.assert_allclose(obs[shown], other[shown], atol=1e-3)
        obs, _, _, _, pieces = ours.step(action)
        other, _, _, _, _ = theirs.step(action)
        alive, progress, electricity, joint_limits, _ = theirs.rewards
        assert pieces["alive"] == alive
        assert pieces["electricity"] + pieces["stall"] == pytest.approx(electricity, abs=1e-3)
        assert pieces["joint_limits"] == pytest.approx(2 * joint_limits)
        if robot != "ant":  # 16 links, and there the floor as a seventeenth that never moves
            assert pieces["progress"] * 16 / 17 == pytest.approx(progress, abs=1e-3)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("robot", PEERS)
def test_the_pool_plays_a_bullet_task_as_gymnasium_does(robot: str) -> None:
    task = TASKS[f"bullet/{robot}"]
    pool = open_pool(task.id, size=1, max_episode=30)
    rng = np.random.default_rng(0)
    (ours,) = pool.rollout(lambda t, obs: rng.uniform(-1.0, 1.0, (1, pool.action)), seeds=[4])
    pool.close()
    env = gymnasium.make(task.env)
    env.reset(seed=0)
    rows, rewards, terminated = [env.reset(seed=4)[0]], [], False
    for action in ours.action:
        assert not terminated
        obs, reward, terminated, _, _ = env.step(action)
        rows.append(obs)
        rewards.append(reward)
    env.close()
    assert ours.terminal == terminated
    np.testing.assert_allclose(ours.obs, rows, atol=1e-3)
    np.testing.assert_allclose(ours.reward, rewards, atol=1e-3)


@pytest.mark.parametrize(
    ("task", "episodes", "band"),
    [  # bands of about three standard errors
        ("robo/ant", 4, 110.0),
        ("robo/half-cheetah", 20, 3.0),
        ("robo/walker2d", 20, 3.0),
        ("bullet/ant", 4, 260.0),
        ("bullet/half-cheetah", 3, 180.0),
        ("bullet/walker2d", 20, 3.0),
    ],
)
def test_random_returns_are_near_the_papers_low_scores(task: str, episodes: int, band: float) -> None:
    played: list[Episode] = random_scores.random_episodes(task, episodes, workers=0)
    assert np.mean([episode.total for episode in played]) == pytest.approx(TASKS[task].low, abs=band)
