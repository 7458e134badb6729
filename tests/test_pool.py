import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import environments
from oht.envs.backend import Episode, Pool
from oht.envs.pool import EnvError, open_pool
from oht.envs.workers import WorkerDied
from oht.errors import UserError

ENVPOOL = ["dm/walker-run", "dm/cheetah-run", "gym/ant", "gym/half-cheetah", "gym/walker2d"]
PROCESSES = pytest.mark.parametrize("workers", [0, 2])


def noise(seeds: list[int], action: int):
    """A policy whose row depends on its seed and the time alone."""
    tables = np.stack([np.random.default_rng(seed).uniform(-1, 1, (1000, action)) for seed in seeds]).astype(np.float32)
    return lambda t, obs: tables[:, t]


def play(pool: Pool, seeds: list[int]) -> list[Episode]:
    return pool.rollout(noise(seeds, pool.action), seeds)


def still(t: int, obs: np.ndarray) -> np.ndarray:
    return np.zeros((len(obs), 1), np.float32)


def equal(one: Episode, other: Episode) -> bool:
    return one.terminal == other.terminal and all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))


@pytest.mark.parametrize("task", [*ENVPOOL, "bullet/ant", "robo/walker2d", "Pendulum-v1"])
def test_an_episode_depends_on_its_seed_and_actions_alone(task: str):
    pool = open_pool(task, 4, max_episode=60, workers=0)
    crowd = play(pool, [7, 8, 2**31 - 1, 0])
    moved = play(pool, [3, 0, 7])
    assert equal(moved[2], crowd[0])
    assert equal(moved[1], crowd[3])
    assert not np.array_equal(crowd[0].obs[0], crowd[1].obs[0])
    pool.close()
    alone = open_pool(task, 1, max_episode=60)
    assert equal(play(alone, [7])[0], crowd[0])
    alone.close()


@pytest.mark.parametrize("task", ["bullet/ant", "environments:VariableLength"])
def test_workers_play_the_same_episodes(task: str):
    here, there = open_pool(task, 5, max_episode=40, workers=0), open_pool(task, 5, max_episode=40, workers=2)
    assert (here.obs, here.action) == (there.obs, there.action)
    for seeds in ([1, 2, 3, 4, 5], [9, 1], [6]):
        for one, other in zip(play(here, seeds), play(there, seeds), strict=True):
            assert equal(one, other)
    here.close()
    there.close()


@pytest.mark.parametrize(
    "task", ["dm/walker-run", "gym/half-cheetah", "bullet/half-cheetah", "robo/ant", "Pendulum-v1"]
)
def test_a_time_limit_is_a_truncation(task: str):
    pool = open_pool(task, 2, max_episode=7)
    for episode in play(pool, [1, 2]):
        assert not episode.terminal
        assert episode.obs.shape == (8, pool.obs)
        assert episode.action.shape == (7, pool.action)
        assert episode.reward.shape == (7,)
        assert {part.dtype for part in episode[:3]} == {np.dtype(np.float32)}
    pool.close()


def test_the_envs_own_limit_holds_where_it_is_shorter():
    pool = open_pool("Pendulum-v1", 1)
    assert len(play(pool, [1])[0].reward) == 200
    pool.close()
    pool = open_pool("dm/cheetah-run", 1, max_episode=2000)
    assert len(play(pool, [1])[0].reward) == 1000
    pool.close()


def test_a_terminal_at_the_very_limit_stays_a_terminal():
    seeds = list(range(6))
    pool = open_pool("gym/walker2d", 6)
    first = play(pool, seeds)
    pool.close()
    length = len(first[0].reward)
    assert first[0].terminal
    pool = open_pool("gym/walker2d", 6, max_episode=length)
    for free, cut in zip(first, play(pool, seeds), strict=True):
        assert cut.terminal == (len(free.reward) <= length)
    pool.close()


def test_the_last_observation_is_the_true_one():
    """The fallen walker, not the standing one that a reset would show; each falls at its own time."""
    pool = open_pool("gym/walker2d", 6)
    episodes = play(pool, [1, 2, 3, 4, 5, 6])
    assert len({len(episode.reward) for episode in episodes}) > 2
    for episode in episodes:
        assert episode.terminal
        height, angle = episode.obs[-1, :2]
        assert not (0.8 < height < 2.0 and -1.0 < angle < 1.0)
        assert (episode.obs[:-1, 0] > 0.8).all()
    pool.close()


@PROCESSES
def test_variable_lengths_without_a_step_too_many(workers: int):
    pool = open_pool(environments.VariableLength, 8, workers=workers)
    calls: list[int] = []

    def act(t: int, obs: np.ndarray) -> np.ndarray:
        calls.append(t)
        assert obs.shape == (8, 2)
        return still(t, obs)

    episodes = pool.rollout(act, range(8))  # the env raises where it is stepped after its end
    lengths = [int(episode.obs[0, 0]) for episode in episodes]
    assert calls == list(range(max(lengths)))
    assert len(set(lengths)) > 2
    for episode, length in zip(episodes, lengths, strict=True):
        assert episode.terminal
        assert episode.obs[:, 1].tolist() == list(range(length + 1))
        assert episode.total == len(episode.reward) == length
    pool.close()


@pytest.mark.parametrize("terminal", [True, False])
def test_terminal_and_truncation_are_told_apart(terminal: bool):
    pool = open_pool(partial(environments.Probe, 5, terminal), 2)
    assert [episode.terminal for episode in pool.rollout(still, [0, 1])] == [terminal] * 2
    pool.close()


def test_actions_are_rescaled_and_observations_flattened():
    pool = open_pool(environments.Echo, 1)
    assert (pool.obs, pool.action) == (4, 4)
    given = np.array([[-1, -1, -1, -1], [1, 1, 1, 1], [0, 0.5, -0.5, 1.1]], np.float32)
    (episode,) = pool.rollout(lambda t, obs: given[t : t + 1], [0])
    # the third action and the time, then the first two: Gymnasium sorts the keys, "pair" before "row"
    assert episode.obs[1:].tolist() == [[-4, 1, 0, -1], [4, 2, 10, 1], [-2, 3, 5, 0.5]]
    assert episode.reward.tolist() == [2, 3, 3]  # 1.1 is beyond the bound and clipped for the env
    assert np.array_equal(episode.action, given)  # but stored as the policy gave it
    pool.close()


@PROCESSES
def test_delays(workers: int):
    pool = open_pool("environments:Probe@delay3", 2, workers=workers)
    assert [episode.reward.tolist() for episode in pool.rollout(still, [0, 1])] == [[0, 0, 3, 0, 2]] * 2
    pool.close()
    pool = open_pool(environments.Probe, 1, delay=4)
    assert pool.rollout(still, [0])[0].reward.tolist() == [0, 0, 0, 4, 1]
    pool.close()
    plain, late = (open_pool(f"dm/walker-stand{delay}", 1, max_episode=22) for delay in ("", "@delay5"))
    (one,), (other,) = play(plain, [3]), play(late, [3])
    assert np.flatnonzero(other.reward).tolist() == [4, 9, 14, 19, 21]
    assert other.total == pytest.approx(one.total)
    plain.close()
    late.close()
    with pytest.raises(UserError, match="contradict"):
        open_pool("dm/cheetah-run@delay5", 1, delay=3)


@PROCESSES
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (environments.Raises, r"Raises failed in its step at step 3 of the episode with seed 4: .*the wheel came off"),
        (partial(environments.NotFinite, "reward"), r"a reward that is not finite at step 3 .* seed 4"),
        (partial(environments.NotFinite, "observation"), r"an? observation that is not finite at step 3 .* seed 4"),
        (
            environments.OldStep,
            r"in its step at step 1 .*: it returned 4 values, not \(observation, reward, term.*info\)",
        ),
        (
            environments.RewardIsText,
            r"RewardIsText failed with its reward at step 1 of the episode with seed 4: .*'much'",
        ),
    ],
)
def test_an_env_that_breaks_is_named_with_its_step(make, sentence: str, workers: int):
    pool = open_pool(make, 3, workers=workers)
    with pytest.raises(EnvError, match=sentence):
        pool.rollout(still, [4, 5, 6])
    with pytest.raises(UserError, match="closed"):
        pool.rollout(still, [4])


@PROCESSES
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (environments.Image, "supported are Box observations"),
        (environments.DiscreteActions, "supported are continuous actions"),
        (environments.UnboundedActions, "supported are continuous actions"),
        (environments.WrongShape, "gave 2 numbers as observation .* not 1"),
        (dict, "should make a gymnasium.Env"),
        (environments.NoActions, "NoActions has no action_space; set it to a gymnasium.spaces.Box"),
        (environments.OldReset, r"failed in its reset .*it returned one ndarray, not \(observation, info\)"),
        (partial(gymnasium.make, "NoSuchEnv-v0"), "failed when it was made"),
    ],
)
def test_what_is_not_supported_is_refused(make, sentence: str, workers: int):
    with pytest.raises(UserError, match=sentence):
        open_pool(make, 2, workers=workers)


def test_a_function_that_gives_the_same_env_again_is_refused():
    env = environments.FollowObservation()
    with pytest.raises(UserError, match="gave the same env twice; it should make a new one at each call"):
        open_pool(lambda: gymnasium.wrappers.TimeLimit(env, 5), 2)


def test_a_dead_worker_is_replaced_and_its_episodes_are_the_same(tmp_path: Path):
    seeds = [1, 2, 3, 4]
    healthy = open_pool(environments.FollowObservation, 4, workers=0)
    pool = open_pool(partial(environments.Dies, tmp_path / "notes"), 4, workers=2)
    for one, other in zip(play(healthy, seeds), play(pool, seeds), strict=True):
        assert equal(one, other)
    assert (tmp_path / "notes").read_text() == "x"
    pool.close()
    healthy.close()


def test_every_worker_may_be_replaced_once_in_a_rollout(tmp_path: Path):
    pool = open_pool(partial(environments.Dies, tmp_path / "notes", 2), 2, workers=2)
    one, other = play(pool, [1, 1])
    assert equal(one, other)
    assert (tmp_path / "notes").read_text() == "xx"
    pool.close()


def test_a_worker_that_dies_when_it_is_made_again_is_an_error(monkeypatch):
    def dies(*_):
        raise WorkerDied("exit code 1")

    pool = open_pool(environments.FollowObservation, 2, workers=2)
    backend = vars(pool)["_backend"]
    backend._lost.add(0)
    monkeypatch.setattr(backend, "_restart", dies)
    with pytest.raises(EnvError, match=r"ended its worker process when it was made again \(exit code 1\)"):
        play(pool, [1, 2])


@pytest.mark.parametrize(
    ("deaths", "seeded", "sentence"),
    [(9, True, "Dies ended its worker process twice"), (1, False, "cannot be repeated")],
)
def test_a_worker_that_cannot_be_replaced_is_an_error(tmp_path: Path, deaths: int, seeded: bool, sentence: str):
    pool = open_pool(partial(environments.Dies, tmp_path / "notes", deaths, seeded), 2, workers=2)
    with pytest.raises(EnvError, match=sentence):
        play(pool, [1, 2])


def test_a_maker_that_cannot_be_pickled_stays_in_this_process():
    lock = threading.Lock()

    def make() -> gymnasium.Env:
        with lock:
            return Whereabouts()

    here, there = open_pool(make, 2, workers=2), open_pool(lambda: Whereabouts(), 2, workers=2)
    assert here.rollout(still, [0])[0].total == 5 * os.getpid()
    assert there.rollout(still, [0])[0].total != 5 * os.getpid()
    here.close()
    there.close()


class Whereabouts(environments.Probe):
    """Pays the number of its process."""

    def reward(self, action: np.ndarray) -> float:
        return float(os.getpid())


def test_slow_tasks_get_workers_and_others_do_not(monkeypatch: pytest.MonkeyPatch):
    started: list[int] = []
    monkeypatch.setattr(
        "oht.envs.pool.Workers", lambda name, make, size, workers, greets: started.append(workers) or 1 / 0
    )
    for task, size, cores in (("Pendulum-v1", 3, "4"), ("bullet/ant", 1, "4"), ("bullet/ant", 3, "1")):
        monkeypatch.setenv("NPROC", cores)
        open_pool(task, size).close()
    monkeypatch.setenv("NPROC", "2")
    with pytest.raises(ZeroDivisionError):
        open_pool("bullet/ant", 3)
    assert started == [2]


@PROCESSES
def test_a_policy_that_fails_closes_the_pool(workers: int):
    pool = open_pool(environments.Probe, 2, workers=workers)
    with pytest.raises(UserError, match=r"action at step 3 .* not finite"):
        pool.rollout(lambda t, obs: np.full((2, 1), np.nan if t == 2 else 0.0, np.float32), [0, 1])


@pytest.mark.parametrize("seeds", [[], [1, 2, 3], [-1], [2**31]])
def test_seeds_out_of_range(seeds: list[int]):
    pool = open_pool(environments.Probe, 2)
    with pytest.raises(ValueError, match="1 to 2 seeds"):
        pool.rollout(still, seeds)
    pool.close()


@pytest.mark.parametrize("wrong", [{"size": 0}, {"max_episode": 0}, {"delay": -1}, {"workers": -1}])
def test_wrong_settings(wrong: dict[str, Any]):
    with pytest.raises(UserError, match="a pool needs"):
        open_pool(environments.Probe, **{"size": 1, **wrong})


def test_the_lean_models_change_nothing_but_the_time(monkeypatch: pytest.MonkeyPatch):
    lean = open_pool("dm/walker-walk", 1, max_episode=50)
    monkeypatch.setattr("oht.envs.envpool._lean_models", lambda assets: None)
    original = open_pool("dm/walker-walk", 1, max_episode=50)
    assert equal(play(lean, [4])[0], play(original, [4])[0])
    lean.close()
    original.close()


def test_workers_end_with_their_pool():
    pool = open_pool(Whereabouts, 2, workers=2)
    pids = [int(episode.reward[0]) for episode in pool.rollout(still, [0, 1])]
    pool.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIG_DFL)
