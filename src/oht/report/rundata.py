"""Run folders as a page or a report shows them: read from their files, again only when a file has changed.

Nothing is ever written, and no lock is taken: a run does not notice that it is looked at.
"""

import hashlib
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from oht import runs
from oht.errors import UserError
from oht.runs import Columns, Event

State = Literal["running", "done", "stopped", "failed"]
STATES: tuple[State, ...] = ("running", "done", "stopped", "failed")
RECENT = 50  # iterations over which the speed is measured
TAIL = 16 * 1024  # bytes from the end of events.jsonl in which a run's last word is looked for
PATIENCE = 60.0  # seconds without a new row before a run whose lock cannot be seen is taken for dead; at least ...
ROWS_OF_PATIENCE = 5  # ... the time of as many iterations


T = TypeVar("T")


class Evaluation(NamedTuple):
    env_steps: int
    mean: float
    std: float


@dataclass(frozen=True)
class RunData:
    """What a run has reached."""

    id: str  # short, the same for the same place below the folder
    name: str  # its place below the folder
    path: Path
    config: Mapping[str, Any]
    facts: Mapping[str, Any]  # run.json
    state: State
    reason: str  # a sentence: why it failed
    env_steps: int
    updates: int  # gradient steps of all agents
    wall_time: float  # seconds
    speed: float | None  # env steps per second: lately while it trains, otherwise of the whole run
    evals: Columns = field(repr=False)

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def steps(self) -> int:
        """Env steps that it is to train for."""
        return int(self.config["steps"])

    @property
    def progress(self) -> float:
        return min(1.0, self.env_steps / self.steps)

    @property
    def eta(self) -> float | None:
        """Seconds until it has trained for all its steps, at the speed of now."""
        if self.state != "running" or not self.speed:
            return None
        return max(0.0, (self.steps - self.env_steps) / self.speed)

    @property
    def cost(self) -> float | None:
        """Gradient steps of all agents for each env step."""
        return self.updates / self.env_steps if self.env_steps else None

    @property
    def last(self) -> Evaluation | None:
        return self._evaluation(-1) if self.evals else None

    @property
    def best(self) -> Evaluation | None:
        if not self.evals or not np.isfinite(self.evals["return_mean"]).any():
            return None
        return self._evaluation(int(np.nanargmax(self.evals["return_mean"])))

    def _evaluation(self, row: int) -> Evaluation:
        steps, mean, std = (self.evals[name][row] for name in ("env_steps", "return_mean", "return_std"))
        return Evaluation(int(steps), float(mean), float(std))

    def schedule(self) -> Columns:
        return runs.columns(self.path / "schedule.csv")

    def events(self) -> list[Event]:
        return runs.events(self.path)


def one_of_each_seed(members: Iterable[RunData]) -> list[RunData]:
    """Of runs of one method the longest of each seed: the same run twice is no second seed."""
    longest: dict[int, RunData] = {}
    for run in members:
        known = longest.setdefault(run.seed, run)
        longest[run.seed] = run if run.env_steps > known.env_steps else known
    return list(longest.values())


class Cached(Generic[T]):
    """What a function makes of a file, kept until the file changes."""

    def __init__(self, read: Callable[[Path], T]):
        self._read = read
        self._known: dict[Path, tuple[Any, T]] = {}

    def __call__(self, path: Path) -> T:
        stamp = _stamp(path)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = (stamp, self._read(path))
        return known[1]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Folder:
    """All runs below a folder; the folder may be a run itself."""

    def __init__(self, root: Path):
        if not root.is_dir():
            what = "is a file, not a folder" if root.exists() else "does not exist"
            raise UserError(f"{root} {what}; name a run folder, or a folder with runs below it.")
        self.root = root
        self.problems: list[str] = []  # a sentence for each run that cannot be read
        self._facts, self._config = Cached(_facts), Cached(_config)
        self._metrics, self._evals, self._words = Cached(_metrics), Cached(_evals), Cached(_last_words)
        self._trained: set[Path] = set()  # runs whose lock was seen to be held

    def runs(self) -> list[RunData]:
        """Sorted by name, as they are now."""
        locks, found = held_locks(), []
        self.problems = []
        for path in runs.below(self.root):
            try:
                if run := self._run(path, locks):
                    found.append(run)
            except UserError as error:
                self.problems.append(str(error))
        return found

    def _run(self, path: Path, locks: set[tuple[int, int]]) -> RunData | None:
        facts, config = self._facts(path / runs.FACTS), self._config(path / "config.toml")
        if config is None:  # it is just being created
            return None
        metrics, evals = self._metrics(path / "metrics.csv"), self._evals(path / "evals.csv")
        env_steps = int(metrics["env_steps"][-1]) if metrics else 0
        state, reason = self._state(path, metrics, locks, env_steps >= config["steps"])
        name = path.relative_to(self.root).as_posix() if path != self.root else path.resolve().name
        wall_time = float(metrics["wall_time"][-1]) if metrics else 0.0
        return RunData(
            id=hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10],
            name=name,
            path=path,
            config=config,
            facts=facts,
            state=state,
            reason=reason,
            env_steps=env_steps,
            updates=int(metrics["updates"][-1]) if metrics else 0,
            wall_time=wall_time,
            speed=_speed(metrics) if state == "running" else env_steps / wall_time if wall_time else None,
            evals=evals,
        )

    def _state(self, path: Path, metrics: Columns, locks: set[tuple[int, int]], all_steps: bool) -> tuple[State, str]:
        """From its last word and whether its process is still there."""
        word, reason = self._words(path / runs.EVENTS)
        if word == "end":
            return "done", ""
        lock = _stamp_of_lock(path)
        if lock in locks:
            self._trained.add(path)
            return "running", ""
        if word == "stop":
            return "stopped", ""
        if word == "failure":
            return "failed", reason
        if word is None:  # its events were deleted
            return ("done" if all_steps else "stopped"), ""
        if path not in self._trained and time.time() - _changed(path) < _patience(metrics):
            return "running", ""  # perhaps on another machine
        return "failed", "Its process was killed, or the machine was switched off."


def _facts(path: Path) -> dict[str, Any]:
    return runs.check(path.parent)


def _config(path: Path) -> dict[str, Any] | None:
    try:
        config = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    for name in ("task", "method", "seed", "steps"):
        if name not in config:
            raise UserError(f"{path} does not say the {name} of its run.")
    return config


def _metrics(path: Path) -> Columns:
    """The last rows."""
    return _with_columns(runs.last_rows(path, RECENT), path, ("env_steps", "updates", "wall_time"))


def _evals(path: Path) -> Columns:
    return _with_columns(runs.columns(path), path, ("env_steps", "return_mean", "return_std", "wall_time"))


def _with_columns(table: Columns, path: Path, names: Sequence[str]) -> Columns:
    for name in names if table else ():
        if name not in table:
            raise UserError(f"{path} lacks the column {name}.")
    return {name: table[name] for name in names} if table else {}


def _last_words(path: Path) -> tuple[str | None, str]:
    """The last event that says whether the run goes on, and the reason if it failed; None: there are no events."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None, ""
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:  # the first line may have lost its beginning
            continue
        if event.get("event") in ("start", "resume", "stop", "failure", "end"):
            return event["event"], str(event.get("reason", ""))
    return "start", ""


def _speed(metrics: Columns) -> float | None:
    """Env steps per second in the last iterations."""
    if len(metrics.get("wall_time", ())) < 2:
        return None
    seconds = metrics["wall_time"][-1] - metrics["wall_time"][0]
    return float((metrics["env_steps"][-1] - metrics["env_steps"][0]) / seconds) if seconds > 0 else None


def _patience(metrics: Columns) -> float:
    """Seconds for which a run may be silent."""
    times = metrics.get("wall_time", np.zeros(0))
    longest = float(np.diff(times).max()) if len(times) > 1 else 0.0
    return max(PATIENCE, ROWS_OF_PATIENCE * longest)


def _changed(path: Path) -> float:
    """When a file of the run was written last, in seconds since the epoch."""
    stamps = (_stamp(path / name) for name in (runs.EVENTS, *runs.TABLES))
    return max((stamp[2] / 1e9 for stamp in stamps if stamp), default=0.0)


def _stamp_of_lock(path: Path) -> tuple[int, int] | None:
    try:
        status = (path / runs.LOCK).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def held_locks(table: Path = Path("/proc/locks")) -> set[tuple[int, int]]:
    """(device, inode) of the files that some process of this machine has locked; empty where that cannot be known.

    Asking the kernel, not for the lock itself: that would refuse a run which starts at this moment.
    """
    held = set()
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        words = line.split()
        if len(words) == 8 and words[1] == "FLOCK":
            major, minor, inode = words[5].split(":")
            held.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    return held
