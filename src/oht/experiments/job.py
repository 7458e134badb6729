"""One run of a sweep, in the process that trains it: `python -m oht.experiments.job` with an order on stdin.

The order is one line of JSON (see `engines.Local`). When stdin ends, because the sweep wants to stop or is dead, the
run saves and stops.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from oht import runs
from oht.errors import UserError
from oht.experiments.suites import Job
from oht.report.progress import Reporter
from oht.runs import last_row

PATIENCE = 600.0  # seconds that the process of a killed sweep may take to save its last iteration


def work(job: Job, path: Path, steps: int, reporter: Reporter | None = None) -> bool:
    """Trains a run to `steps`, from its start or its last checkpoint; False: a signal stopped it before."""
    _wait_until_free(path)
    if finished(path, steps):
        return True
    try:
        _train(job, path, steps, reporter or Reporter())
    except KeyboardInterrupt:  # the run is saved
        return finished(path, steps)
    return True


def _train(job: Job, path: Path, steps: int, reporter: Reporter) -> None:
    from oht import api

    reached = saved_steps(path)
    if reached is None:
        if last_row(path / "evals.csv"):
            raise UserError(f"{path} has tests but no checkpoint to go on from; move it away to train it anew.")
        (path / f"{runs.FACTS}.part").unlink(missing_ok=True)  # of a run that was killed while it was described
        begun = (path / runs.FACTS).exists()
        where = {"out": path, "overwrite": begun, "progress": reporter}
        run = api.train(job.task, **job.settings, seed=job.seed, steps=steps, **where)
    else:
        run = api.resume(path, steps=max(steps, reached), progress=reporter)
    run.close()


def finished(path: Path, steps: int) -> bool:
    """Whether a run has so many steps, is saved there (unless its checkpoints were removed), and was tested there."""
    tested, saved = (last_row(path / "evals.csv") or {}).get("env_steps", 0), saved_steps(path)
    return tested >= steps and (saved is None or saved >= steps)


def saved_steps(path: Path) -> int | None:
    """The env steps of the newest checkpoint."""
    numbers = (int(place.name) for place in (path / "checkpoint").glob("[0-9]*") if place.name.isdecimal())
    return max(numbers, default=None)


def _wait_until_free(path: Path) -> None:
    """The process of a sweep that was killed may still be training here; it ends after its iteration."""
    patience = time.monotonic() + PATIENCE
    while path.is_dir() and os.access(path, os.W_OK):
        try:
            with runs.locked(path):
                return
        except UserError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.2)


class Log(Reporter):
    """A line for each event."""

    def begin(self, path: Any, setup: Any, t: Any) -> None:
        run = setup.config.run
        self._say(
            f"{run.method} {run.algo} on {run.task}, seed {run.seed}, from {t.env_steps:,} to {run.steps:,} steps"
        )

    def iteration(self, t: Any, row: dict[str, float], outcome: Any) -> None:
        for agent in outcome.sick:
            self._say(f"agent {agent} learns no more at {t.env_steps:,} steps; a healthy one takes its place")

    def evaluation(self, t: Any, returns: list[float]) -> None:
        self._say(f"test at {t.env_steps:,} steps: {sum(returns) / len(returns):.1f}")

    def end(self, run: Any, wall: float, interrupted: bool) -> None:
        self._say(f"{'stopped' if interrupted else 'done'} at {run.progress.env_steps:,} steps, {wall / 60:.1f} min")

    def _say(self, line: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)


def main() -> int:
    """0: done; 2: a mistake, told in the last line; 130: stopped before the end."""
    line = sys.stdin.readline()
    if not line:  # the sweep died before it could say what to do
        return 130
    order = json.loads(line)
    threading.Thread(target=_stop_with_stdin, daemon=True).start()
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])  # before JAX counts them
    sys.argv = order["command"]  # what run.json tells
    try:
        return 0 if work(Job(**order["job"]), Path(order["path"]), order["steps"], Log()) else 130
    except UserError as error:
        print("oht:", " ".join(str(error).split()), flush=True)
        return 2


def _stop_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
