"""The run folder: what was asked for, what happened, and the state to go on from.

config.toml   every setting, resolved: `oht train --config` runs it again
run.json      the command, package versions, the format of this folder
metrics.csv   a row per iteration            evals.csv      a row per evaluation
schedule.csv  the tuner's row per iteration  tensorboard/   the same numbers for TensorBoard
checkpoint/   the newest two states (see oht.checkpoints)
"""

import contextlib
import csv
import fcntl
import json
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from oht.errors import UserError

FORMAT = 1
FACTS, LOCK = "run.json", ".lock"
TABLES = ("metrics.csv", "evals.csv", "schedule.csv")
PACKAGES = ("oht", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium", "envpool", "mujoco", "pybullet")


def fresh_path(root: Path, task: str, method: str, seed: int) -> Path:
    """A readable folder that does not exist yet, such as runs/dm-walker-run_static_s0_20260101-120000."""
    stem = re.sub(r"[^\w.@-]+", "-", f"{task}_{method}_s{seed}_{time.strftime('%Y%m%d-%H%M%S')}")
    numbered = (root / (stem if k == 0 else f"{stem}-{k}") for k in range(1000))
    return next(path for path in numbered if not path.exists())


def vacant(path: Path, overwrite: bool) -> None:
    """Refuses a place where something lies already, unless it is a run that may be overwritten."""
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file; --out must name a folder for the run.")
        if not path.exists() or {entry.name for entry in path.iterdir()} <= {LOCK}:
            return
        if not overwrite:
            raise UserError(f"{path} exists already; go on with --resume {path}, or replace it with --overwrite.")
        if not (path / FACTS).exists():
            raise UserError(f"{path} is not a run folder, so --overwrite leaves it alone; choose another --out.")
    except OSError as error:
        raise UserError(f"{path} cannot be a run folder: {error.strerror}.") from None


@contextlib.contextmanager
def created(path: Path, config_text: str, overwrite: bool = False) -> Iterator[None]:
    """A locked folder that holds nothing but the description of a new run."""
    vacant(path, overwrite)
    with refused(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        with refused(path):
            _clear(path)
            _describe(path, config_text)
        yield


def _clear(path: Path) -> None:
    """Removes what an earlier run left, its mark as a run folder last."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in (FACTS, LOCK):
            entry.unlink()
    (path / FACTS).unlink(missing_ok=True)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """What the disk refuses is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error


def check(path: Path) -> dict[str, Any]:
    """The facts of an existing run folder of a format that this version reads."""
    try:
        facts = json.loads((path / FACTS).read_text("utf-8"))
        found, writer = facts["format"], facts["packages"].get("oht", "?")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path} is not a run folder (it has no {FACTS}).") from None
    except OSError as error:
        raise UserError(f"{path / FACTS} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path / FACTS} is damaged, so {path} cannot be read as a run.") from None
    if found != FORMAT:
        raise UserError(
            f"{path} has format {found}, this version of oht reads format {FORMAT}; it was written by oht {writer}."
        )
    return facts


def _describe(path: Path, config_text: str) -> None:
    facts = {
        "format": FORMAT,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": sys.version.split()[0],
        "packages": {name: v for name in PACKAGES if (v := _version(name))},
    }
    write_aside(path / FACTS, json.dumps(facts, indent=2) + "\n")
    write_aside(path / "config.toml", config_text)


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def write_aside(path: Path, content: str | bytes) -> None:
    """Never leaves half a file: written beside, then renamed."""
    aside = path.with_name(path.name + ".part")
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(aside, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process may write to a run folder."""
    with refused(path):
        file = (path / LOCK).open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is training in {path}; wait for it or choose another --out.") from None
        yield


class Table:
    """A CSV file that grows by rows; the first row fixes the columns."""

    def __init__(self, path: Path, size: int | None = None):
        """Goes on at byte `size` (rows written after a checkpoint are cut), or starts anew."""
        if size is not None:
            _cut(path, size)
        self._file = path.open("a" if size is not None else "w", newline="")
        self._columns = columns(path)

    def append(self, row: Mapping[str, Any]) -> None:
        writer = csv.writer(self._file)
        if self._columns is None:
            self._columns = list(row)
            writer.writerow(self._columns)
        writer.writerow([_cell(row[name]) for name in self._columns])
        self._file.flush()

    def size(self) -> int:
        """How many bytes are safe on the disk."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def _cut(path: Path, size: int) -> None:
    """Shortens a table to what it was at a checkpoint; a shorter one has lost rows, and keeps the whole ones it has."""
    content = path.read_bytes() if path.exists() else b""
    if len(content) < size:
        warnings.warn(f"{path} has lost rows; it goes on with those that are left.", stacklevel=2)
    if content:
        os.truncate(path, content.rfind(b"\n", 0, size) + 1)


def _cell(value: Any) -> str:
    """Short, and exact: reading it back as float32 or int gives the same number."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def columns(path: Path) -> list[str] | None:
    with path.open(newline="") as file:
        return next(csv.reader(file), None)


def rows(path: Path) -> list[dict[str, float]]:
    """All complete rows of a table, as numbers."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file) if None not in row.values()]


class Board:
    """The same numbers for TensorBoard, written here and now: a full disk must be noticed where it can be handled."""

    FLUSH_SECONDS = 10.0

    def __init__(self, path: Path, enabled: bool):
        self._writer = None
        if enabled:
            from tensorboardX.event_file_writer import EventsWriter

            (path / "tensorboard").mkdir(exist_ok=True)
            self._writer = EventsWriter(str(path / "tensorboard" / "events"))
            self._flushed = time.monotonic()

    def add(self, group: str, values: Mapping[str, float], env_steps: int, skip: Sequence[str] = ()) -> None:
        """Numbers that are finite; the board has no place for others."""
        if self._writer is None:
            return
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        for name, value in values.items():
            if name not in skip and math.isfinite(value):
                summary = scalar(f"{group}/{name}", value)
                self._writer.write_event(Event(wall_time=time.time(), step=env_steps, summary=summary))
        if time.monotonic() - self._flushed > self.FLUSH_SECONDS:
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
