"""Helpers of the soak: the size of it, moments at which a run is killed, and what two equal runs have in common."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clocks import without_clocks
from environments import search_path
from oht import runs

COMMAND = [sys.executable, "-c", "import sys; from oht.cli import main; sys.exit(main())", "train"]


def size(name: str, full: int) -> int:
    """How much is done: OHT_SOAK_KILLS=20 and the like choose another size than that of the nightly run."""
    return int(os.environ.get(f"OHT_SOAK_{name}", full))


SEED = size("SEED", random.SystemRandom().randrange(10**6))  # printed by every test of the soak


@dataclass(frozen=True)
class Process:
    """`oht train` in a process of its own, and the run folder that it writes."""

    run: Path
    steps: int
    eval_every: int
    popen: subprocess.Popen
    since: float

    @staticmethod
    @contextlib.contextmanager
    def started(run: Path, steps: int, eval_every: int, words: list[str]) -> "Iterator[Process]":
        environment = {**os.environ, "PYTHONPATH": search_path()}
        since = time.time()
        with subprocess.Popen([*COMMAND, *words], env=environment, stderr=subprocess.PIPE, text=True) as popen:
            try:
                yield Process(run, steps, eval_every, popen, since)
            finally:
                popen.kill()  # only if the test has failed: nothing is left running

    def opened(self) -> bool:
        """Whether it has begun to write its tables."""
        try:
            return (self.run / runs.EVENTS).stat().st_mtime > self.since
        except FileNotFoundError:
            return False

    def iterations(self) -> float:
        return self._last("metrics.csv", "iteration")

    def saving(self) -> bool:
        return self.opened() and (self.run / "checkpoint" / "new.part").exists()

    def evaluating(self) -> bool:
        trained, evaluated = (self._last(name, "env_steps") for name in ("metrics.csv", "evals.csv"))
        return self.opened() and trained // self.eval_every > evaluated // self.eval_every

    def trained(self) -> bool:
        return self.opened() and newest(self.run) >= self.steps

    def _last(self, table: str, column: str) -> float:
        return (runs.last_row(self.run / table) or {}).get(column, 0)

    def kill_when(self, moment: Callable[[], bool], delay: float) -> bool:
        """Wait for a moment and a little longer, and kill; False if the process has ended before."""
        while self.popen.poll() is None and not moment():
            time.sleep(0.001 if self.opened() else 0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(delay)
        self.popen.kill()
        return self.finish() == -signal.SIGKILL

    def finish(self) -> int:
        _, errors = self.popen.communicate()
        assert self.popen.returncode in (0, -signal.SIGKILL), errors
        assert "Traceback" not in errors, errors
        return self.popen.returncode


def newest(run: Path) -> int:
    """Env steps of the newest checkpoint; -1 if there is none."""
    return max((int(path.name) for path in (run / "checkpoint").glob("0*")), default=-1)


Moment = tuple[Callable[[], bool], float]  # wait for this, and then so many seconds


def moments(rng: random.Random) -> Iterator[tuple[str, Callable[[Process, float], Moment]]]:
    """Endless kinds of moments, each a function of the process and the seconds that a start-up takes.

    They cover the life of a process: importing and opening, compiling, iterations, checkpoints, evaluations, the end.
    """

    def some_iterations_on(process: Process) -> Callable[[], bool]:
        goal = process.iterations() + rng.randint(1, 8)
        return lambda: process.opened() and process.iterations() >= goal

    def some_checkpoints_on(process: Process) -> Callable[[], bool]:
        earliest = some_iterations_on(process)
        return lambda: earliest() and process.saving()

    kinds: dict[str, Callable[[Process, float], Moment]] = {
        "start-up": lambda _, start_up: (lambda: True, rng.uniform(0, start_up)),
        "compiling": lambda process, _: (process.opened, rng.uniform(0, 3)),
        "iterations": lambda process, _: (some_iterations_on(process), rng.uniform(0, 0.2)),
        "checkpoint": lambda process, _: (some_checkpoints_on(process), rng.uniform(0, 0.005)),
        "evaluation": lambda process, _: (process.evaluating, rng.uniform(0, 0.05)),
    }
    while True:
        for kind in rng.sample(sorted(kinds), len(kinds)):
            yield kind, kinds[kind]
        yield "end", lambda process, _: (process.trained, rng.uniform(0, 1))


def contents(run: Path) -> dict[str, Any]:
    """Everything in a run folder that two equal runs have in common; arrays as bytes.

    Left out: wall times, the sizes of files that contain them, how often checkpoints were written and how the replay
    was cut into pieces, the command and its time (run.json), TensorBoard.
    """
    assert not list(run.rglob("*.part")), "something is left half-written"
    facts = _facts(run / "checkpoint")
    best = _facts(run / "best")
    ignored = {"wall", "cpu", "sizes"}
    return {
        "files": sorted(path.name for path in run.iterdir()),
        "config": (run / "config.toml").read_text(),
        "tables": {name: without_clocks(run / name) for name in runs.TABLES},
        "events": [
            {name: value for name, value in event.items() if name != "wall_time"}
            for event in runs.events(run)
            if event["event"] not in ("checkpoint", "resume")
        ],
        "state": _arrays(max((run / "checkpoint").glob("0*")) / "state.npz"),
        "counters": {name: value for name, value in facts["counters"].items() if name not in ignored},
        "replay": _replay(run / "checkpoint" / "replay", facts),
        "replay counters": facts["replay"],
        "best": _arrays(max((run / "best").glob("0*")) / "state.npz"),
        "best evaluation": {name: value for name, value in best.items() if name != "state"},
    }


def _facts(folder: Path) -> dict[str, Any]:
    return json.loads((max(folder.glob("0*")) / "state.json").read_text())["facts"]


def _arrays(path: Path) -> dict[str, tuple]:
    with np.load(path) as file:
        return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in file.items()}


def _replay(folder: Path, facts: dict[str, Any]) -> dict[str, bytes]:
    """The slots in use of each replay, oldest first."""
    slots = facts["slots"][-1]
    parts: dict[str, list[np.ndarray]] = {}
    for name in sorted(facts["pieces"], key=lambda name: int(name.split("-")[0])):
        agent = "-".join(name.split("-")[2:])
        with np.load(folder / f"{name}.npz") as file:
            for field, array in file.items():
                parts.setdefault(f"{agent}/{field}", []).append(array)
    return {name: np.concatenate(arrays)[-slots:].tobytes() for name, arrays in parts.items()}
