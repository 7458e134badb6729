"""One run of a sweep, and the local engine, which trains each run in its own process.

Such a process is `python -m oht.experiments.job`: it reads its order, a line of JSON, from stdin. When stdin is closed,
because the sweep stops or has died, the run saves a checkpoint and stops.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Protocol

from oht import runs, settings
from oht.callbacks import Callback
from oht.errors import UserError
from oht.experiments.suites import Job
from oht.lookup import adopt_path, python_path
from oht.machine import core_numbers, cores
from oht.runs import last_row
from oht.signals import request_stop
from oht.types import End, EnvFailure, Evaluation, Iteration, Start

PATIENCE = 600.0  # seconds that the process of a killed sweep may take to save its last iteration


def work(job: Job, path: Path, steps: int, callbacks: Sequence[Callback] = ()) -> bool:
    """Trains a run to `steps`, from its start or its last checkpoint; False: a signal stopped it before."""
    _wait_until_free(path)
    if finished(path, steps):
        return True
    try:
        _train(job, path, steps, callbacks)
    except KeyboardInterrupt:  # the run is saved
        return finished(path, steps)
    return True


def _train(job: Job, path: Path, steps: int, callbacks: Sequence[Callback]) -> None:
    from oht import api

    reached = saved_steps(path)
    if reached is None:
        if last_row(path / "evals.csv"):
            raise UserError(f"{path} has evaluations but no checkpoint to go on from; move it away to train it anew.")
        (path / f"{runs.FACTS}.part").unlink(missing_ok=True)  # left by a run that was killed at its very start
        begun = (path / runs.FACTS).exists()
        where = {"out": path, "overwrite": begun, "callbacks": callbacks}
        run = api.train(job.task, **job.settings, seed=job.seed, steps=steps, **where)
    else:
        run = api.resume(path, steps=None if reached >= steps else steps, callbacks=callbacks)
    run.close()


def finished(path: Path, steps: int) -> bool:
    """Whether a run was evaluated at `steps` or later and saved there; its checkpoints may have been removed since."""
    evaluated, saved = (last_row(path / "evals.csv") or {}).get("env_steps", 0), saved_steps(path)
    return evaluated >= steps and (saved is None or saved >= steps)


def saved_steps(path: Path) -> int | None:
    """The env steps of a run's newest checkpoint."""
    numbers = (int(place.name) for place in (path / "checkpoint").glob("[0-9]*") if place.name.isdecimal())
    return max(numbers, default=None)


def _wait_until_free(path: Path) -> None:
    """Waits for the process of a killed sweep, which may still be training here; it ends after its iteration."""
    deadline = time.monotonic() + PATIENCE
    while path.is_dir() and os.access(path, os.W_OK):
        try:
            with runs.locked(path):
                return
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class Log(Callback):
    """Prints a line for each event."""

    def on_start(self, start: Start) -> None:
        c = start.config
        what = f"{c['method']} {c['algo']} on {c['task']}, seed {c['seed']}"
        self._say(f"{what}, from {start.env_steps:,} to {c['steps']:,} steps")

    def on_iteration(self, iteration: Iteration) -> None:
        for agent in iteration.replaced:
            self._say(f"agent {agent} had diverged or was saturated at {iteration.env_steps:,} steps and was replaced")

    def on_env_error(self, failure: EnvFailure) -> None:
        self._say(f"episode dropped and repeated: {' '.join(failure.message.split())}")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._say(f"evaluation at {evaluation.env_steps:,} steps: {evaluation.mean:.1f}")

    def on_end(self, end: End) -> None:
        self._say(f"{end.state} at {end.env_steps:,} steps, {end.wall_time / 60:.1f} min")

    def _say(self, line: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


# Engines


class Ended(NamedTuple):
    """A run that no longer trains; what it reached is on the disk."""

    job: Job
    error: str | None = None  # why it failed, in a sentence


class Engine(Protocol):
    """Where the runs of a sweep are trained.

    `start` begins `work` on a run in a folder and sends what it prints to the file `log`; `poll` returns the runs that
    ended since the last call and `stop` asks all to save and stop, both without waiting; `close` waits for them.
    """

    @property
    def slots(self) -> int: ...  # how many runs it trains at the same time
    def start(self, job: Job, path: Path, steps: int, log: Path) -> None: ...
    def poll(self) -> list[Ended]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Local:
    """Trains each run in a process of this machine with its own cores.

    All runs have the same number of cores: sums on another number of cores may be rounded differently.
    """

    def __init__(self, jobs: int | None = None):
        """`jobs`: runs at the same time [one for each core]."""
        jobs = cores() if jobs is None else jobs
        settings.within("jobs", jobs, 1, 1000)
        self.slots = jobs
        self._free = deque(shares(jobs))
        self._running: list[tuple[Job, subprocess.Popen, Path, list[int]]] = []

    def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
        own_cores = self._free.popleft()
        with runs.refused(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = log.open("a")
        with file:
            process = subprocess.Popen(
                [sys.executable, "-m", "oht.experiments.job"],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ},  # runs may share a GPU
                text=True,
                start_new_session=True,  # Ctrl-C reaches only the sweep, which then stops its runs
            )
        self._running.append((job, process, log, own_cores))
        order = {"job": asdict(job), "path": str(path), "steps": steps, "cores": own_cores, "command": sys.argv}
        order["python_path"] = python_path()
        assert process.stdin
        with contextlib.suppress(BrokenPipeError):  # it has died already, which `poll` will notice
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()

    def poll(self) -> list[Ended]:
        ended = [run for run in self._running if run[1].poll() is not None]
        self._running = [run for run in self._running if run not in ended]
        for _, process, _, own_cores in ended:
            _close_stdin(process)
            self._free.append(own_cores)
        return [Ended(job, _error(process.returncode, log)) for job, process, log, _ in ended]

    def stop(self) -> None:
        for _, process, _, _ in self._running:
            _close_stdin(process)

    def close(self) -> None:
        self.stop()
        for _, process, _, _ in self._running:
            process.wait()


def shares(jobs: int) -> list[list[int]]:
    """The cores of each of `jobs` processes; empty lists where the system has no such numbers."""
    numbers = core_numbers()
    each = max(1, len(numbers) // jobs)
    return [[numbers[(k * each + i) % len(numbers)] for i in range(each) if numbers] for k in range(jobs)]


def _close_stdin(process: subprocess.Popen) -> None:
    """Makes a run save and stop, exactly as the death of the sweep does."""
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _error(code: int, log: Path) -> str | None:
    if code == 0:
        return None
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}."
    if code == 130:
        return "it was stopped by a signal."
    lines = log.read_text("utf-8", errors="replace").split("\n")
    return next((line.removeprefix("oht: ") for line in reversed(lines) if line.strip()), f"exit code {code}.")


def main() -> int:
    """Works on the order from stdin. The exit code: 0 done, 2 an error (the last line says which), 130 stopped."""
    line = sys.stdin.readline()
    if not line:  # the sweep died before it could send the order
        return 130
    order = json.loads(line)
    threading.Thread(target=_stop_with_stdin, daemon=True).start()
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])  # before JAX counts them
    adopt_path(order["python_path"])  # where the sweep finds modules of the user's own
    sys.argv = order["command"]  # for run.json
    try:
        return 0 if work(Job(**order["job"]), Path(order["path"]), order["steps"], [Log()]) else 130
    except UserError as error:
        print("oht:", " ".join(str(error).split()), flush=True)
        return 2


def _stop_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    request_stop()  # a scheduler may have sent a signal to this process and to the sweep


if __name__ == "__main__":
    sys.exit(main())
