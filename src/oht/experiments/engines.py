"""Where the runs of a sweep are trained: an engine starts them and tells which have ended."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Protocol

from oht import runs, settings
from oht.experiments.suites import Job


class Ended(NamedTuple):
    """A run that no longer trains; what it reached is on the disk."""

    job: Job
    error: str | None = None  # the sentence that tells why it failed


class Engine(Protocol):
    """What a sweep needs of the machines that it runs on."""

    @property
    def slots(self) -> int:
        """How many runs it takes at once."""
        ...

    def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
        """Trains a run to `steps` in the folder `path`, by `job.work`; what it says goes to the file `log`."""
        ...

    def poll(self) -> list[Ended]:
        """The runs that ended since it was last asked; does not wait."""
        ...

    def stop(self) -> None:
        """Asks all runs to save and stop; does not wait: `poll` tells when they have."""
        ...

    def close(self) -> None:
        """Leaves no process behind."""
        ...


class Local:
    """A process on this machine for each run, each on its own cores.

    All runs have the same number of cores: another number may round sums in another way.
    """

    def __init__(self, jobs: int | None = None):
        """So many at once; by default as many as there are cores."""
        jobs = len(cores()) or 1 if jobs is None else jobs
        settings.within("jobs", jobs, 1, 1000)
        self.slots = jobs
        self._free = deque(shares(jobs))
        self._running: list[tuple[Job, subprocess.Popen, Path, list[int]]] = []

    def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
        share = self._free.popleft()
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}  # runs may share a GPU
        with runs.refused(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            file = log.open("a")
        with file:
            process = subprocess.Popen(
                [sys.executable, "-m", "oht.experiments.job"],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=environment,
                text=True,
                start_new_session=True,  # Ctrl-C is for the sweep, which then stops its runs
            )
        self._running.append((job, process, log, share))
        order = {"job": asdict(job), "path": str(path), "steps": steps, "cores": share, "command": sys.argv}
        _tell(process, json.dumps(order) + "\n")

    def poll(self) -> list[Ended]:
        ended = [run for run in self._running if run[1].poll() is not None]
        self._running = [run for run in self._running if run not in ended]
        for _, process, _, share in ended:
            _hang_up(process)
            self._free.append(share)
        return [Ended(job, _error(process.returncode, log)) for job, process, log, _ in ended]

    def stop(self) -> None:
        for _, process, _, _ in self._running:
            _hang_up(process)

    def close(self) -> None:
        """Returns when all runs have saved and ended."""
        self.stop()
        for _, process, _, _ in self._running:
            process.wait()


def cores() -> list[int]:
    """Those that this process may use; none where the system cannot say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def shares(jobs: int) -> list[list[int]]:
    """The cores of each of so many processes."""
    everything = cores()
    each = max(1, len(everything) // jobs)
    return [[everything[(k * each + i) % len(everything)] for i in range(each) if everything] for k in range(jobs)]


def _tell(process: subprocess.Popen, text: str) -> None:
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):  # it is dead already, which `poll` will find
        process.stdin.write(text)
        process.stdin.flush()


def _hang_up(process: subprocess.Popen) -> None:
    """The one way to stop a run, whether the sweep wants to or dies: its stdin ends."""
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
