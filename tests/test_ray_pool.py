"""Rollouts on the actors of a real Ray cluster of this machine, started for these tests."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import environments
from oht import config, training
from oht.envs import ray_pool as cluster
from oht.envs.pool import EnvError, open_pool
from oht.envs.workers import Process, WorkerDied
from oht.errors import UserError
from test_pool import Whereabouts, equal, play, still

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
on_ray = partial(open_pool, kind="ray")


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # by default they give way to everyone, other tests included
        cluster.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
        yield
        ray.shutdown()


def test_actors_play_the_same_episodes():
    here, there = (pool("bullet/ant", 3, max_episode=20, workers=n) for pool, n in ((open_pool, 0), (on_ray, 2)))
    assert (here.obs, here.action) == (there.obs, there.action)
    for seeds in ([1, 2, 3], [6]):
        for one, other in zip(play(here, seeds), play(there, seeds), strict=True):
            assert equal(one, other)
    here.close()
    there.close()


def test_actors_live_elsewhere_and_end_with_their_pool():
    pool = on_ray(Whereabouts, 3)
    pids = {int(episode.reward[0]) for episode in pool.rollout(still, [0, 1, 2])}
    assert len(pids) == 2  # as many as the cluster has CPUs
    assert os.getpid() not in pids
    pool.close()
    patience = time.monotonic() + 20  # Ray ends them soon, not at once
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < patience
        time.sleep(0.05)


def test_a_dead_actor_is_replaced_and_its_episodes_are_the_same(tmp_path: Path):
    seeds = [1, 2, 3]
    healthy = open_pool(environments.FollowObservation, 3, workers=0)
    pool = on_ray(partial(environments.Dies, tmp_path / "notes"), 3, workers=2)
    for one, other in zip(play(healthy, seeds), play(pool, seeds), strict=True):
        assert equal(one, other)
    assert (tmp_path / "notes").read_text() == "x"
    pool.close()
    healthy.close()


def test_an_actor_that_dies_again_is_an_error(tmp_path: Path):
    pool = on_ray(partial(environments.Dies, tmp_path / "notes", 9), 2, workers=2)
    with pytest.raises(EnvError, match=r"Dies ended its worker process twice .*its Ray actor died"):
        play(pool, [1, 2])


def test_a_silent_actor_whose_death_only_ray_knows_of(monkeypatch: pytest.MonkeyPatch):
    """As when its node is gone: no end of the connection ever arrives."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    pool = on_ray(Whereabouts, 1, workers=1)
    pid = int(play(pool, [0])[0].reward[0])
    (actor,) = workers_of(pool)
    silent, _ = Pipe()
    actor._link.close()
    actor._link = silent
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="its Ray actor died"):
        actor.receive()


def test_an_env_that_breaks_is_named_with_its_step():
    pool = on_ray(environments.Raises, 2, workers=1)
    with pytest.raises(EnvError, match=r"Raises failed in its step at step 3 of the episode with seed 4: .*wheel"):
        pool.rollout(still, [4, 5])


def test_failed_episodes_are_repeated_as_in_this_process():
    here, there = (
        pool(environments.RaisesNowAndThen, 3, workers=n, env_errors=9) for pool, n in ((open_pool, 0), (on_ray, 2))
    )
    for one, other in zip(here.rollout(still, [1, 2, 7]), there.rollout(still, [1, 2, 7]), strict=True):
        assert equal(one, other)
    assert [drop.seed for drop in here.dropped] == [drop.seed for drop in there.dropped] != []
    here.close()
    there.close()


def workers_of(pool: Any) -> list[Any]:
    return pool._backend._workers


def make_with_a_lock() -> Any:
    lock = threading.Lock()

    def make() -> gymnasium.Env:
        with lock:
            return Whereabouts()

    return make


@pytest.mark.parametrize(
    ("task", "workers", "sentence"),
    [
        ("dm/walker-run", 2, "stepped by EnvPool"),
        ("Pendulum-v1", 0, "at least one worker"),
        ("Pendulum-v1", 99, "has 2 CPUs, too few for 99 workers"),
        (make_with_a_lock(), 2, "cannot be pickled"),
        (environments.Image, 2, "supported are Box observations"),
    ],
)
def test_what_cannot_be_is_refused(task: Any, workers: int, sentence: str):
    with pytest.raises(UserError, match=sentence):
        on_ray(task, 2, workers=workers)


def test_the_setting_of_a_run():
    values = {"task": "environments:VariableLength", "workers": 1}
    setups = [training.build(config.resolve({**values, **pool})) for pool in ({}, {"pool": "ray"})]
    assert [type(worker) for setup in setups for worker in workers_of(setup.pool())] == [Process, cluster.Actor]
    here, there = (play(setup.eval_pool, [1, 2, 3, 4]) for setup in setups)
    assert all(map(equal, here, there))
    for setup in setups:
        training.close(setup)
    with pytest.raises(UserError, match="unknown pool 'rya'; did you mean 'ray'"):
        config.resolve({**values, "pool": "rya"})


def test_without_ray_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed.*oht\[ray\]"):
        on_ray("Pendulum-v1", 2)


def test_an_address_without_a_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(UserError, match=f"no Ray cluster at '{address}'"):  # nobody listens there any more
        cluster.connect(address)
