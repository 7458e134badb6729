"""Sweeps on a real Ray cluster of this machine, started for these tests."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import environments
from clocks import without_clocks
from oht import runs
from oht.envs.ray_pool import init
from oht.errors import UserError
from oht.experiments import ray_engine as engine
from oht.experiments.job import finished, saved_steps, work
from oht.experiments.suites import Job

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")

TINY = {"algo": "uniform", "start_steps": 5, "eval_every": 50, "eval_episodes": 1, "max_episode": 20}
TINY |= {"replay_size": 200, "batch_size": 4, "checkpoint_every": 0, "tensorboard": False}
NOTES = "OHT_TEST_NOTES"  # where the envs below leave notes


class Deadly(environments.FollowObservation):
    """Kills its process at its 60th step, once."""

    steps = 0

    def reward(self, action: np.ndarray) -> float:
        self.steps += 1
        if self.steps == 60 and not (notes := Path(os.environ[NOTES], "dead")).exists():
            notes.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reward(action)


class Slow(environments.FollowObservation):
    """Takes its time, after it has said that it has begun."""

    def reward(self, action: np.ndarray) -> float:
        Path(os.environ[NOTES], "begun").touch()
        time.sleep(0.02)
        return super().reward(action)


@pytest.fixture(scope="module", autouse=True)
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # by default they give way to everyone, other tests included
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.getbasetemp().parent / "compiled"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv(NOTES, str(tmp_path_factory.mktemp("notes")))  # Ray's workers have the variables of its start
        init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.fixture
def notes() -> Path:
    """Without notes."""
    folder = Path(os.environ[NOTES])
    for note in folder.iterdir():
        note.unlink()
    return folder


def job(task: str, **more: object) -> Job:
    return Job(f"test_ray_engine:{task}", "random", 3, {**TINY, **more})


def start(it: engine.Ray, what: Job, root: Path, steps: int = 100) -> Path:
    it.start(what, what.path(root), steps, root / "logs" / f"{what.name}.log")
    return what.path(root)


def error_of(it: engine.Ray) -> str | None:
    """Waits for the one run that there is."""
    while not (ended := it.poll()):
        time.sleep(0.05)
    return ended[0].error


def tables(path: Path) -> list[list[list[str]]]:
    return [without_clocks(path / name) for name in runs.TABLES]


@pytest.mark.parametrize("shared", [True, False])
def test_the_run_of_a_killed_worker_goes_on_from_its_checkpoint(
    shared: bool, tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
):
    if not shared:
        unseen(monkeypatch)
    what = job("Deadly")
    it = engine.Ray()
    path = start(it, what, tmp_path / "sweep")
    assert error_of(it) is None
    it.close()
    log = (tmp_path / "sweep" / "logs" / f"{what.name}.log").read_text()
    assert "from 0 to 100" in log
    assert "from 50 to 100" in log
    assert finished(path, 100)
    work(what, tmp_path / "unbroken", 100)  # nobody is killed twice
    assert tables(path) == tables(tmp_path / "unbroken")
    assert not list(Path(tempfile.gettempdir()).glob(f"oht-{it._mark}/*"))


def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on nodes that do not see the folder: the workers look for the usual mark."""
    monkeypatch.setattr(engine, "MARK", ".elsewhere")


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch):
    """On nodes that do not see the folder: its files travel there and back."""
    unseen(monkeypatch)
    what = job("Slow")
    first = engine.Ray()
    path = start(first, what, tmp_path / "sweep")
    while not (notes / "begun").exists():
        time.sleep(0.05)
    first.close()
    reached = saved_steps(path)
    assert reached is not None
    assert reached < 100
    second = engine.Ray()
    start(second, what, tmp_path / "sweep")
    assert error_of(second) is None
    second.close()
    log = (tmp_path / "sweep" / "logs" / f"{what.name}.log").read_text()
    assert f"stopped at {reached} steps" in log
    assert f"from {reached} to 100" in log
    work(what, tmp_path / "unbroken", 100)
    assert tables(path) == tables(tmp_path / "unbroken")
    assert not (path.parent / f".{path.name}.new").exists()


def test_a_sweep_joins_the_cluster_at_an_address(tmp_path: Path):
    """A process of its own, from a folder with modules that only it knows of; one of two runs fails."""
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in TINY.items())
    tasks = ["environments:FollowObservation", "environments:Raises"]
    suite = f"steps = 60\nseeds = 1\ntasks = {json.dumps(tasks)}\n[methods.random]\n{settings}"
    (tmp_path / "two.toml").write_text(suite)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", "import sys, oht.cli; sys.exit(oht.cli.main())", "sweep", tmp_path / "two.toml"]
    where = ["--engine", "ray", "--address", address, "--out", tmp_path / "sweep"]
    tests = Path(__file__).parent
    swept = subprocess.run([*command, *where], capture_output=True, text=True, cwd=tests, check=False)
    assert swept.stderr == ""
    assert swept.returncode == 1
    assert "Raises failed in its step at step 3" in " ".join(swept.stdout.split())
    assert finished(tmp_path / "sweep" / "environments-FollowObservation" / "random" / "s0", 60)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"cpus": 99}, "no node of the Ray cluster has 99 CPUs and 0 GPUs"),
        ({"gpus": 0.5}, "no node of the Ray cluster has 1 CPUs and 0.5 GPUs"),
        ({"gpus": 1.5}, "a fraction of one or a whole number"),
        ({"cpus": 0.5}, "a whole number"),
        ({"cpus": 0}, "from 1 to 1000"),
    ],
)
def test_what_the_cluster_does_not_have(request_: dict[str, float], sentence: str):
    with pytest.raises(UserError, match=sentence):
        engine.Ray(**request_)  # pyright: ignore[reportArgumentType]


def test_as_many_runs_at_once_as_there_are_cpus():
    assert engine.Ray().slots == 2
    assert engine.Ray(cpus=2).slots == 1


def test_fractions_of_a_gpu_fill_it():
    assert [engine.fits(part, 1) for part in (0.1, 0.2, 0.3, 1 / 3, 0.5, 1)] == [10, 5, 3, 3, 2, 1]
    assert (engine.fits(0.3, 0), engine.fits(2, 7)) == (0, 3)


def test_without_ray_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed.*oht\[ray\]"):
        engine.Ray()


@pytest.mark.parametrize(("deadly", "kept"), [(1, "old"), (2, "new")])
def test_files_that_come_back_are_never_half_there(
    deadly: int, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Killed before either renaming, the folder is the old one or the new one."""
    for name in ("old", "new"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file").write_text(name)
    files = engine.pack(tmp_path / "new")
    path, calls, replace = tmp_path / "old", count(1), os.replace

    def kill(source: Path, target: Path) -> None:
        if next(calls) == deadly:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            engine.place(files, path)
    engine.settle(path)
    assert (path / "inner" / "file").read_text() == kept
    engine.place(files, path)
    assert (path / "inner" / "file").read_text() == "new"
    assert {entry.name for entry in tmp_path.iterdir()} == {"old", "new"}
