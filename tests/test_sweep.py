"""Sweeps: what is done is not repeated, what was killed goes on, what fails does not stop the rest."""

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from clocks import without_clocks
from environments import search_path
from oht import cli, runs
from oht.errors import UserError
from oht.experiments import job, suites
from oht.experiments.job import Ended, Engine, Local, finished, saved_steps, shares, work
from oht.experiments.suites import Job, Row, Suite
from oht.experiments.sweep import plan, sweep

TASK = "environments:FollowObservation"
TINY = {"start_steps": 10, "eval_every": 20, "eval_episodes": 2, "max_episode": 10, "replay_size": 100}
RANDOM = {**TINY, "algo": "uniform", "tensorboard": False}
SUITE_OF_TWO = Suite("two", "Two", "curves", 40, 1, (Row((TASK,), {"a": RANDOM, "b": {**RANDOM, "gamma": 0.5}}),))


def pretend(path: Path, saved: int, tested: int | None) -> None:
    """A run folder that looks as if a run had come this far."""
    (path / "checkpoint" / f"{saved:012d}").mkdir(parents=True)
    (path / runs.FACTS).write_text("{}")
    if tested is not None:
        (path / "evals.csv").write_text(f"env_steps,return_mean\n1,0.5\n{tested},2.5\n")


class Pretending:
    """An engine whose runs end at once; those of failing labels with an error."""

    def __init__(self, slots: int = 1, failing: str = ""):
        self.slots, self.failing = slots, failing
        self.started: list[str] = []
        self.most, self.closed = 0, False
        self._running: list[Ended] = []

    def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
        self.started.append(job.name)
        fails = job.label == self.failing
        if not fails:
            pretend(path, steps, steps)
        self._running.append(Ended(job, "there is a reason." if fails else None))
        self.most = max(self.most, len(self._running))

    def poll(self) -> list[Ended]:
        ended, self._running = self._running, []
        return ended

    def stop(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def swept(suite: Suite, root: Path, engine: Engine, **budget: int) -> tuple[int, str]:
    told = io.StringIO()
    code = sweep(suite.with_budget(**budget), root, engine=engine, console=Console(file=told, width=200))
    return code, told.getvalue()


# What is on the disk


def test_when_a_run_is_finished(tmp_path):
    path = tmp_path / "run"
    assert not finished(path, 100)
    pretend(path, saved=100, tested=None)
    assert not finished(path, 100)  # killed before its last test
    (path / "evals.csv").write_text("env_steps,return_mean\n90,1.5\n100,2")
    assert not finished(path, 100)  # a row without an end
    assert runs.last_row(path / "evals.csv") == {"env_steps": 90, "return_mean": 1.5}
    (path / "evals.csv").write_text("env_steps,return_mean\n90,1.5\n100,2\n")
    assert finished(path, 100)
    assert not finished(path, 101)
    assert saved_steps(path) == 100
    (path / "checkpoint" / f"{100:012d}").rename(path / "checkpoint" / f"{90:012d}")
    assert not finished(path, 100)  # tested, but killed before it was saved


def test_the_last_row_of_a_long_table(tmp_path):
    rows = [f"{i},{i / 3}" for i in range(20_000)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b", *rows, ""]))
    assert runs.last_row(tmp_path / "table.csv") == {"a": 19_999, "b": 19_999 / 3}
    (tmp_path / "table.csv").write_text("a,b\n")
    assert runs.last_row(tmp_path / "table.csv") is None
    (tmp_path / "table.csv").write_text("a,b")
    assert runs.last_row(tmp_path / "table.csv") is None
    assert runs.last_row(tmp_path / "none.csv") is None


def test_the_plan(tmp_path):
    suite = SUITE_OF_TWO.with_budget(seeds=2)
    done, part, other, _ = (j.path(tmp_path) for j in suite.jobs())
    pretend(done, saved=40, tested=40)
    pretend(part, saved=20, tested=20)
    pretend(other, saved=50, tested=50)
    items = plan(suite, tmp_path)
    assert [item.state for item in items] == ["done", "waiting", "done", "waiting"]
    assert [item.steps for item in items] == [40, 20, 50, 0]
    assert [item.score for item in items] == [2.5, 2.5, 2.5, None]
    assert items[3].log == tmp_path / "logs" / "environments-FollowObservation-b-s1.log"
    assert {item.state for item in plan(suite.with_budget(steps=60), tmp_path)} == {"waiting"}


# The loop


def test_nothing_is_repeated_and_more_is_added(tmp_path):
    engine = Pretending(slots=2)
    code, told = swept(SUITE_OF_TWO, tmp_path, engine, seeds=2)
    assert (code, engine.most, engine.closed) == (0, 2, True)
    assert len(engine.started) == 4
    assert "started environments:FollowObservation a s0" in told
    assert "done environments:FollowObservation b s1: 40 steps, last evaluation 2.5 (4 done)" in told
    engine = Pretending()
    code, told = swept(SUITE_OF_TWO, tmp_path, engine, seeds=3)
    assert (code, engine.started) == (0, [f"environments-FollowObservation-{label}-s2" for label in "ab"])
    assert "6 runs to 40 steps: 4 done, 2 waiting" in told
    engine = Pretending()
    assert swept(SUITE_OF_TWO, tmp_path, engine, seeds=1)[0] == 0
    assert engine.started == []
    assert suites.load(tmp_path / suites.FILE) == SUITE_OF_TWO.with_budget(seeds=3)


def test_one_failing_method_among_good_ones(tmp_path):
    engine = Pretending(failing="a")
    code, told = swept(SUITE_OF_TWO, tmp_path, engine, seeds=2)
    assert code == 1
    assert len(engine.started) == 4
    assert "failed environments:FollowObservation a s1: there is a reason. (1 done, 2 failed, 1 waiting" in told
    assert "environments:FollowObservation a s0 failed: there is a reason. (see" in told.splitlines()[-2]
    engine = Pretending()
    assert swept(SUITE_OF_TWO, tmp_path, engine, seeds=2)[0] == 0
    assert engine.started == [f"environments-FollowObservation-a-s{seed}" for seed in (0, 1)]


def test_a_run_that_ends_early_has_failed(tmp_path):
    class Early(Pretending):
        def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
            super().start(job, path, steps - 1, log)

    code, told = swept(SUITE_OF_TWO, tmp_path, Early())
    assert code == 1
    assert told.count("it ended before its last step.") == 4


def test_a_live_table_on_a_terminal(tmp_path):
    class Slow(Pretending):
        def poll(self) -> list[Ended]:
            return super().poll() if time.monotonic() - began > 1.5 else []

    told, began = io.StringIO(), time.monotonic()
    console = Console(file=told, force_terminal=True, width=120, height=20, color_system=None)
    assert sweep(SUITE_OF_TWO, tmp_path, engine=Slow(), console=console) == 0
    lines = told.getvalue().splitlines()
    assert any("last evaluation" in line for line in lines)
    assert any("1 running, 1 waiting" in line for line in lines)


def test_a_second_ctrl_c_in_python_raises_and_does_not_end_the_process(tmp_path):
    class Stubborn(Pretending):
        def poll(self) -> list[Ended]:
            os.kill(os.getpid(), signal.SIGINT)
            return []

    engine = Stubborn()
    with pytest.raises(KeyboardInterrupt):
        swept(SUITE_OF_TWO, tmp_path, engine)
    assert engine.closed


# One folder, one set of settings


def test_a_folder_may_grow_and_be_narrowed(tmp_path):
    a, b = SUITE_OF_TWO.narrowed(methods=["a"]), SUITE_OF_TWO.narrowed(methods=["b"])
    other = Suite("o", "O", "table", 20, 5, (Row(("Pendulum-v1",), {"b": RANDOM}),))
    assert suites.of_folder(tmp_path) is None
    for now, expected in [(a, a), (b, SUITE_OF_TWO), (a, SUITE_OF_TWO), (SUITE_OF_TWO, SUITE_OF_TWO)]:
        assert swept(now, tmp_path, Pretending())[0] == 0
        assert suites.of_folder(tmp_path) == expected
    both = other.joined(SUITE_OF_TWO)
    assert (both.name, both.steps, both.seeds) == ("o", 40, 5)
    assert both.rows == (*SUITE_OF_TWO.rows, *other.rows)


def test_other_settings_for_runs_that_are_there_are_refused(tmp_path):
    assert swept(SUITE_OF_TWO, tmp_path, Pretending(failing="b"))[0] == 1
    changed = SUITE_OF_TWO.with_settings({"gamma": 0.9})
    with pytest.raises(UserError, match=f"has runs of a on {TASK} with no gamma, not gamma = 0.9; choose another"):
        swept(changed, tmp_path, Pretending())
    assert suites.load(tmp_path / suites.FILE) == SUITE_OF_TWO
    assert swept(changed.narrowed(methods=["b"]), tmp_path, Pretending())[0] == 0  # it had not begun
    assert suites.load(tmp_path / suites.FILE).pairs[TASK, "b"]["gamma"] == 0.9
    as_text = changed.narrowed(methods=["b"]).with_settings({"gamma": "9e-1", "tensorboard": "no"})
    assert swept(as_text, tmp_path, Pretending())[0] == 0  # a flag is a text; it says the same as the file
    (tmp_path / suites.FILE).unlink()
    with pytest.raises(UserError, match=r"has runs, but .*suite.toml is missing"):
        swept(changed, tmp_path, Pretending())


def test_runs_that_have_begun_keep_their_eval_every(tmp_path):
    """More steps scale it, but what is there was evaluated as often as before; all seeds of a method alike."""
    assert swept(SUITE_OF_TWO, tmp_path, Pretending(failing="b"))[0] == 1
    engine = Pretending()
    code, told = swept(SUITE_OF_TWO, tmp_path, engine, steps=1000, seeds=2)
    assert code == 0
    assert len(engine.started) == 4
    assert "runs that have begun keep their eval_every." in told
    pairs = suites.load(tmp_path / suites.FILE).pairs
    assert [pairs[TASK, label]["eval_every"] for label in "ab"] == [20, 100]


def test_what_is_refused_before_anything_is_made(tmp_path):
    root = tmp_path / "sweep"
    with pytest.raises(UserError, match="a: start_steps 10 must be below steps 5"):
        swept(SUITE_OF_TWO, root, Pretending(), steps=5)
    with pytest.raises(UserError, match="jobs is 0"):
        Local(0)
    assert not root.exists()
    pretend(root, 0, None)
    with pytest.raises(UserError, match="is a run folder; choose another --out"):
        swept(SUITE_OF_TWO, root, Pretending())
    with runs.locked(tmp_path), pytest.raises(UserError, match="another process is training in"):
        swept(SUITE_OF_TWO, tmp_path, Pretending())


# One run


def tables(path: Path) -> dict[str, list[list[str]]]:
    return {name: without_clocks(path / name) for name in runs.TABLES}


ONE = Job(TASK, "a", 0, RANDOM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    assert work(ONE, path, 60)
    return path


HALVES = {
    "empty": [],
    "locked once": [runs.LOCK],
    "before its description": [f"{runs.FACTS}.part"],
    "described": [runs.FACTS],
    "with half a config": [runs.FACTS, "config.toml.part"],
    "with a config": [runs.FACTS, "config.toml"],
    "with tables": [runs.FACTS, "config.toml", *runs.TABLES],
    "in its first checkpoint": [runs.FACTS, "config.toml", *runs.TABLES, "checkpoint/new.part/state.npz"],
}


@pytest.mark.parametrize("half", HALVES)
def test_a_half_made_run_folder_is_made_anew(tmp_path, whole, half):
    path = tmp_path / "run"
    path.mkdir()
    for name in HALVES[half]:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("half of someth")
    assert work(ONE, path, 60)
    assert tables(path) == tables(whole)
    assert finished(path, 60)


def test_a_run_goes_on_to_more_steps(tmp_path, whole):
    path = tmp_path / "run"
    for steps in (30, 60):
        assert work(ONE, path, steps)
        assert finished(path, steps)
    assert tables(path) == tables(whole)
    before = (path / "evals.csv").stat()
    assert work(ONE, path, 40)
    assert (path / "evals.csv").stat() == before  # it has more already


def test_a_run_that_is_further_than_wanted_is_tested_where_it_is(tmp_path):
    rarely = Job(TASK, "a", 0, {**RANDOM, "eval_every": 1000})
    path = tmp_path / "run"
    assert work(rarely, path, 60)
    expected = tables(path)
    (path / "evals.csv").write_text("")  # as if it had been killed at 60 of many more steps
    assert not finished(path, 50)
    assert work(rarely, path, 50)
    assert tables(path) == expected


def test_a_run_without_its_checkpoints_is_never_overwritten(tmp_path, whole):
    """Who removes them to have room keeps the tables."""
    path = tmp_path / "run"
    shutil.copytree(whole, path)
    shutil.rmtree(path / "checkpoint")
    assert finished(path, 60)
    with pytest.raises(UserError, match="has evaluations but no checkpoint to go on from; move it away"):
        work(ONE, path, 80)
    assert tables(path) == tables(whole)


def test_a_folder_that_is_still_being_written(tmp_path, monkeypatch):
    """The process of a killed sweep may still be saving: the next one waits for it, but not for ever."""
    path = tmp_path / "run"
    path.mkdir()
    with runs.locked(path):
        monkeypatch.setattr(job, "PATIENCE", 0.1)
        with pytest.raises(UserError, match="another process is training"):
            work(ONE, path, 20)
    monkeypatch.setattr(job, "PATIENCE", 60)
    holding, free = threading.Event(), threading.Event()

    def hold() -> None:
        with runs.locked(path):
            holding.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    threading.Timer(0.5, free.set).start()
    assert work(ONE, path, 20)
    thread.join()


# The command line


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("figure11", "unknown suite 'figure11'; did you mean 'figure1'?"),
        ("nowhere.toml", "the suite nowhere.toml does not exist"),
        ("figure1 --tasks dm/walker-rum", "unknown task 'dm/walker-rum'; did you mean 'dm/walker-run'?"),
        ("figure1 --methods n1,n4", "unknown method 'n4'"),
        ("figure1 --steps many", "steps is 'many', but must be a whole number."),
        ("figure1 --steps 5e3", "n1: start_steps 10000 must be below steps 5000"),
        ("figure1 --seeds 0", "seeds is 0, but must be from 1 to 10000."),
        ("figure1 --jobs 0", "jobs is 0, but must be from 1 to 1000."),
        ("figure1 --jobs x", "jobs is 'x', but must be a whole number."),
        ("figure1 --set n_step", "--set 'n_step' is not NAME=VALUE; for example --set batch_size=256."),
        ("figure1 --set seed=3", "seed is no setting of a method: `seeds` is the number of seeds."),
        ("figure1 --set hiden=8", "n1: unknown setting 'hiden'; did you mean 'hidden'?"),
        ("figure1 --engine rey", "invalid choice: 'rey'"),
        ("figure1 --cpus 2", "--cpus is not for the local engine"),
        ("figure1 --engine ray --jobs 2", "--jobs is not for the ray engine"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, monkeypatch, capsys, line, sentence):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", *line.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith("oht: ")
    assert len(told.splitlines()) == 1
    assert sentence in told
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_suites(capsys):
    assert cli.main(["suites"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["suite", *suites.names()]
    assert lines[1].split() == ["figure1", "13", "n1", "n2", "n3", "n5", "oht-nstep", "3", "10,000,000"]


# Processes of this machine


def test_equal_shares_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7, 3, 5, 1, 8})
    assert shares(2) == [[1, 3], [5, 7]]
    assert shares(1) == [[1, 3, 5, 7, 8]]
    assert shares(7) == [[1], [3], [5], [7], [8], [1], [3]]
    assert Local().slots == 5
    monkeypatch.delattr(os, "sched_getaffinity")
    assert shares(2) == [[], []]
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert Local().slots == 3


@pytest.fixture
def quick(monkeypatch, compiled_before):
    """Processes find the test envs and what was compiled before."""
    monkeypatch.setenv("PYTHONPATH", search_path())


def test_runs_find_the_modules_that_the_sweep_finds(tmp_path, monkeypatch):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "envs_of_a_script.py").write_text("from environments import FollowObservation as Own\n")
    monkeypatch.syspath_prepend(tmp_path / "beside")
    monkeypatch.chdir(tmp_path)
    suite = Suite("own", "Own", "curves", 40, 1, (Row(("envs_of_a_script:Own",), {"a": RANDOM}),))
    assert swept(suite, tmp_path / "runs", Local(1))[0] == 0


def test_a_failing_run_beside_a_good_one(tmp_path, quick, capsys):
    """In processes of their own, by the command line: one has no such env, the other comes to its end."""
    file = tmp_path / "suite.toml"
    lines = [f'{name} = "{v}"' if isinstance(v, str) else f"{name} = {v}".lower() for name, v in RANDOM.items()]
    tasks = f'["environments:Nowhere", "{TASK}"]'
    file.write_text("\n".join(["steps = 40", "seeds = 1", f"tasks = {tasks}", "[methods.a]", *lines]))
    assert cli.main(["sweep", str(file), "--jobs", "2", "--out", str(tmp_path / "d"), "--set", "gamma=0.5"]) == 1
    told = capsys.readouterr().out
    assert "failed environments:Nowhere a s0: " in told
    assert f"done {TASK} a s0: 40 steps" in told
    good = Job(TASK, "a", 0, {}).path(tmp_path / "d")
    assert finished(good, 40)
    assert "gamma = 0.5" in (good / "config.toml").read_text()
    log = (tmp_path / "d" / "logs" / "environments-FollowObservation-a-s0.log").read_text()
    assert "static uniform on environments:FollowObservation, seed 0, from 0 to 40 steps" in log
    assert "evaluation at 40 steps" in log


STEPS = 9_000
LEARNING = f"""\
steps = {STEPS}
seeds = 1
tasks = ["Pendulum-v1"]
[settings]
algo = "ddpg"
hidden = [8]
tensorboard = false
start_steps = 400
eval_every = 1_000
eval_episodes = 1
max_episode = 200
batch_size = 16
replay_size = 10_000
[methods.saved-rarely]
[methods.saved-always]
checkpoint_every = 0
"""
RUNS = {label: Job("Pendulum-v1", label, 0, {}) for label in ("saved-rarely", "saved-always")}


def command(folder: Path, *more: str) -> subprocess.Popen:
    (folder / "suite.toml").write_text(LEARNING)
    start = "import sys; from oht.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", start, "sweep", "suite.toml", "--jobs", "2", "--out", "d", *more]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def in_the_middle(folder: Path, times: int) -> subprocess.Popen:
    """A sweep whose runs have begun so many times, and have learned since.

    A run that has come so far is held at once until the others have, too: it could end while they begin.
    """
    process, before, held = command(folder), {}, {}

    def all_held() -> bool:
        for label, run in RUNS.items():
            log, metrics = folder / "d" / "logs" / f"{run.name}.log", run.path(folder / "d") / "metrics.csv"
            if label in held or not log.exists() or log.read_text().count(f"to {STEPS:,} steps") != times:
                continue
            if iterations(metrics) >= before.setdefault(label, iterations(metrics)) + 2:
                (held[label],) = [pid for pid in children(process.pid) if Path(f"/proc/{pid}/fd/1").samefile(log)]
                os.kill(held[label], signal.SIGSTOP)
                assert not finished(metrics.parent, STEPS)
        return len(held) == len(RUNS)

    wait(process, all_held)
    for pid in held.values():
        os.kill(pid, signal.SIGCONT)
    return process


def iterations(path: Path) -> float:
    return (runs.last_row(path) or {}).get("iteration", 0)


def wait(process: subprocess.Popen, until: Callable[[], bool]) -> None:
    patience = time.monotonic() + 200  # a busy machine
    while not until():
        assert time.monotonic() < patience
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def completed(process: subprocess.Popen, code: int) -> str:
    told, _ = process.communicate(timeout=300)
    assert process.returncode == code, told
    return told


def everything(folder: Path, label: str) -> tuple:
    """The tables and the weights of a run at its end."""
    path = RUNS[label].path(folder / "d")
    with np.load(path / "checkpoint" / f"{STEPS:012d}" / "state.npz") as arrays:
        return tables(path), {name: array.tobytes() for name, array in arrays.items()}


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.timeout(900)
def test_the_same_command_again_gives_the_same_files(tmp_path, quick):
    """Evaluations, metrics, schedule and weights are those of a sweep that nothing happened to.

    How often a run is saved changes none of them, so that one unbroken run is enough.
    """
    broken, unbroken = tmp_path / "broken", tmp_path / "unbroken"
    broken.mkdir()
    unbroken.mkdir()

    process = in_the_middle(broken, times=1)
    process.kill()  # its runs notice, save and stop; the next sweep begins at once, so it must wait for them
    completed(process, -signal.SIGKILL)

    process = in_the_middle(broken, times=2)
    for pid in (*children(process.pid), process.pid):  # nobody can save anything
        os.kill(pid, signal.SIGKILL)
    completed(process, -signal.SIGKILL)

    process = in_the_middle(broken, times=3)
    for pid in (*children(process.pid), process.pid):  # as a scheduler does
        os.kill(pid, signal.SIGTERM)
    told = completed(process, 130)
    assert "2 stopped" in told
    assert "the same command continues." in told
    for run in RUNS.values():
        path = run.path(broken / "d")
        assert saved_steps(path) == (runs.last_row(path / "metrics.csv") or {})["env_steps"]

    completed(command(broken), 0)
    completed(command(unbroken, "--methods", "saved-rarely"), 0)
    for label in RUNS:
        assert everything(broken, label) == everything(unbroken, "saved-rarely")
