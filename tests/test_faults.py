"""Runs survive: sudden death, a full disk, damaged files; and they never run code that a file brings along."""

import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oht
from environments import search_path
from oht import cli, runs
from oht import replay as ring
from oht.callbacks import Callback
from oht.errors import UserError
from oht.runs import checkpoints
from test_training import StopsAfter, same, tiny

TESTS = Path(__file__).parent
COMMAND = [sys.executable, "-c", "import sys; from oht.cli import main; sys.exit(main())", "train"]
STEPS, EPISODE = 300, 10
WORDS = [
    *("environments:FollowObservation", "--steps", str(STEPS), "--start-steps", "30", "--eval-every", "100"),
    *("--eval-episodes", "2", "--batch-size", "8", "--hidden", "8", "--replay-size", "100", "--max-episode", "20"),
    *("--algo", "ddpg", "--checkpoint-every", "0", "--quiet"),  # the algorithm that is compiled soonest
]


def started(*words: str, cache: Path | None = None) -> subprocess.Popen:
    """`oht train` in a process of its own, with its own cache or with the compiled programs of the other tests."""
    environment = {**os.environ, "PYTHONPATH": search_path()}
    if cache:
        environment["OHT_CACHE"] = str(cache)
    else:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),  # pyright: ignore
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
    return subprocess.Popen([*COMMAND, *words], env=environment, stderr=subprocess.PIPE, text=True)


def newest(run: Path) -> int:
    return max((int(path.name) for path in (run / "checkpoint").glob("0*")), default=-1)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(tmp_path):
    """Among the fast tests, test_sweep.py kills runs and compares what they end with."""
    assert cli.main(["train", *WORDS, "--out", str(tmp_path / "whole")]) == 0
    run, rng, deaths = tmp_path / "killed", random.Random(0), 0
    while not run.exists() or newest(run) < STEPS:
        resumable = (run / "checkpoint").exists() and newest(run) >= 0
        words = ["--resume", str(run), "--quiet"] if resumable else [*WORDS, "--out", str(run), "--overwrite"]
        process = started(*words)
        target = min(STEPS, newest(run) + EPISODE * rng.randint(4, 9))  # some way on, then any moment
        while process.poll() is None and newest(run) < target:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        process.kill()
        _, err = process.communicate()
        deaths += process.returncode == -signal.SIGKILL
        assert process.returncode in (0, -signal.SIGKILL), err
    assert deaths >= 3
    resumed = oht.resume(run)
    same(oht.load(tmp_path / "whole"), resumed)


def test_a_full_disk_is_reported_and_the_last_checkpoint_stays(tmp_path):
    """No file may grow beyond 60 kB: soon that of TensorBoard does."""
    process = started(*WORDS, "--steps", "1e6", "--out", str(tmp_path / "run"), cache=tmp_path / "cache")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (60_000, 60_000))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err.startswith(f"oht: {tmp_path / 'run' / 'tensorboard'} cannot be written: File too large")
    assert err.count("\n") == 1
    before = newest(tmp_path / "run")
    assert before > 0
    resumed = oht.resume(tmp_path / "run", steps=before + 100)
    assert resumed.progress.env_steps == before + 100
    rows = resumed.metrics
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))


def arrays_of(run: oht.Run) -> tuple:
    return run.progress.agents, run.progress.tuner, run.progress.owed


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> oht.Run:
    """A run with two checkpoints and several pieces of replay."""
    return tiny(tmp_path_factory.mktemp("stopped") / "run", callbacks=[StopsAfter(4)], checkpoint_every=0)


def harmed(content: bytes, harm: str) -> bytes | None:
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return {"missing": None, "empty": b"", "truncated": content[:middle], "flipped": flipped}[harm]


@pytest.mark.parametrize("harm", ["missing", "empty", "truncated", "flipped"])
def test_harm_to_any_file_of_a_checkpoint_is_noticed(harm, stopped, tmp_path):
    state, replay = arrays_of(stopped), stopped.progress.replay
    folder = stopped.path / "checkpoint"
    last, before = sorted((path.name for path in folder.glob("0*")), reverse=True)
    shared = set.intersection(*(set(checkpoints._facts(folder / name)["pieces"]) for name in (last, before)))
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        victim = copy / path.relative_to(folder)
        content = harmed(path.read_bytes(), harm)
        victim.unlink()
        if content is not None:
            victim.write_bytes(content)
        if victim.parent.name == before:  # not looked at
            assert checkpoints.load(copy, state, replay)[1]["env_steps"] == int(last)
        elif victim.stem in shared:
            with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match="no checkpoint"):
                checkpoints.load(copy, state, replay)
        else:
            with pytest.warns(UserWarning, match=f"{last} is damaged"):
                assert checkpoints.load(copy, state, replay)[1]["env_steps"] == int(before)
            assert not (copy / last).exists()


class Crash(BaseException):
    """The power is gone."""


@pytest.mark.parametrize("call", ["replace", "fsync", "mkdir", "unlink"])
def test_a_crash_at_any_moment_of_saving_leaves_a_state_to_go_on_from(call, tmp_path, monkeypatch):
    def state(number: int) -> dict[str, np.ndarray]:
        return {"weights": np.full(3, float(number))}

    def save(number: int, replay: ring.Replay) -> None:
        checkpoints.save(tmp_path, number, state(number), {"number": number}, replay)

    episode = np.arange(4.0)[:, None], np.zeros((3, 1)), np.ones(3), False
    replay = ring.extend(ring.empty(20, 1, 1), *episode)
    for number in (1, 2, 3):
        save(number, replay)
        replay = ring.extend(replay, *episode)
    number = 3
    original = getattr(os, call)
    for moment in range(1, 50):
        replay = ring.extend(replay, *episode)
        calls = 0

        def crashing(*arguments, moment=moment, **named):
            nonlocal calls
            calls += 1
            if calls == moment:
                raise Crash
            return original(*arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, crashing)
            try:
                save(number + 1, replay)
            except Crash:
                pass
            else:
                assert moment > 1
                break
        restored, counters, stored = checkpoints.load(tmp_path, state(0), ring.empty(20, 1, 1))
        assert counters["number"] in (number, number + 1)
        assert stored is not None
        np.testing.assert_array_equal(restored["weights"], float(counters["number"]))
        number, replay = counters["number"], stored  # goes on from there
    else:
        pytest.fail("saving never came to its end")
    stored = checkpoints.load(tmp_path, state(0), ring.empty(20, 1, 1))[2]
    assert stored is not None
    for one, other in zip(in_use(stored), in_use(replay), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("moment", "overwrite"), [(1, False), (1, True), (2, True)])
def test_a_folder_whose_making_was_cut_short_can_be_used_again(moment, overwrite, tmp_path, monkeypatch):
    calls, original = 0, os.replace

    def crashing(*arguments):
        nonlocal calls
        calls += 1
        if calls == moment:
            raise Crash
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crashing)
        with pytest.raises(Crash):
            runs.created(tmp_path / "run", "steps = 1\n").__enter__()
    with runs.created(tmp_path / "run", "steps = 2\n", overwrite):
        runs.check(tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {runs.LOCK, runs.FACTS, "config.toml"}


def in_use(replay: ring.Replay) -> ring.Replay:
    """Without the entries of its table of starts that point to what is overwritten."""
    order = np.arange(int(replay.dropped), int(replay.stored)) % len(replay.starts)
    return replay._replace(starts=replay.starts[order])


def test_a_file_cannot_bring_code_along(tmp_path):
    class Evil:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    replay = ring.extend(ring.empty(20, 1, 1), np.zeros((2, 1)), np.zeros((1, 1)), np.ones(1), True)
    checkpoints.save(tmp_path, 1, {"weights": np.zeros(1)}, {}, replay)
    content = io.BytesIO()
    np.savez(content, **{"['weights']": np.array([Evil()], object)})  # pyright: ignore[reportArgumentType]
    (tmp_path / "000000000001" / "state.npz").write_bytes(content.getvalue())
    facts = checkpoints._facts(tmp_path / "000000000001") | {"state": checkpoints._checksum(content.getvalue())}
    signed = {"facts": facts, "checksum": checkpoints._checksum(checkpoints._text(facts))}
    (tmp_path / "000000000001" / "state.json").write_text(json.dumps(signed))
    with pytest.warns(UserWarning, match="allow_pickle"), pytest.raises(UserError, match="no checkpoint"):
        checkpoints.load(tmp_path, {"weights": np.zeros(1)}, None)
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_of_other_sizes_is_refused(tmp_path):
    replay = ring.empty(20, 1, 1)
    checkpoints.save(tmp_path, 1, {"weights": jnp.zeros(3)}, {}, replay)
    with pytest.raises(UserError, match="has shape"):
        checkpoints.load(tmp_path, {"weights": jnp.zeros(4)}, None)
    with pytest.raises(UserError, match="on one side only"):
        checkpoints.load(tmp_path, {"biases": jnp.zeros(3)}, None)
    with pytest.raises(UserError, match="another size"):
        checkpoints.load(tmp_path, {"weights": jnp.zeros(3)}, ring.empty(30, 1, 1))


def test_tables_that_lost_rows_go_on_with_a_warning(tmp_path):
    table = runs.Table(tmp_path / "table.csv")
    for number in range(3):
        table.append({"a": number, "b": 0.5})
    size = table.size()
    table.close()
    with (tmp_path / "table.csv").open("r+b") as file:
        file.truncate(size - 2)
    with pytest.warns(UserWarning, match="lost rows"):
        table = runs.Table(tmp_path / "table.csv", size)
    table.append({"a": 3, "b": 0.5})
    table.close()
    assert [row["a"] for row in runs.rows(tmp_path / "table.csv")] == [0, 1, 3]


def test_a_second_process_is_refused(tmp_path, capsys):
    shutil.copytree(tiny(tmp_path / "run").path, tmp_path / "copy")
    with runs.locked(tmp_path / "copy"):
        before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
        process = started("--resume", str(tmp_path / "copy"), "--quiet")
        _, err = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "another process is training" in err
        with pytest.raises(UserError, match="another process"):
            tiny(tmp_path / "copy", overwrite=True)
        assert before == {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}


@pytest.mark.slow
def test_memory_does_not_grow(tmp_path):
    class Notes(Callback):
        resident: list[int] = []  # noqa: RUF012

        def on_iteration(self, iteration):
            if iteration.iteration % 100 == 0:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                self.resident.append(pages * os.sysconf("SC_PAGE_SIZE"))

    tiny(tmp_path / "run", steps=20_030, checkpoint_every=0.02, eval_every=500, tensorboard=True, callbacks=[Notes()])
    settled, last = Notes.resident[5], Notes.resident[-1]
    assert len(Notes.resident) == 20
    assert last - settled < 10e6, [round(size / 1e6) for size in Notes.resident]
