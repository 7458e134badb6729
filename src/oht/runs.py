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
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from oht.errors import UserError

FORMAT = 1
TABLES = ("metrics.csv", "evals.csv", "schedule.csv")
PACKAGES = ("oht", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium", "envpool", "mujoco", "pybullet")


def fresh_path(root: Path, task: str, method: str, seed: int) -> Path:
    """A readable folder that does not exist yet, such as runs/dm-walker-run_static_s0_20260101-120000."""
    stem = f"{task}_{method}_s{seed}_{time.strftime('%Y%m%d-%H%M%S')}".replace("/", "-").replace(":", "-")
    numbered = (root / (stem if k == 0 else f"{stem}-{k}") for k in range(1000))
    return next(path for path in numbered if not path.exists())


def create(path: Path, overwrite: bool = False) -> None:
    """An empty folder for a new run; an existing run is replaced only when told so."""
    if path.is_file():
        raise UserError(f"{path} is a file; --out must name a folder for the run.")
    if path.exists() and any(path.iterdir()):
        if not overwrite:
            raise UserError(f"{path} exists already; go on with --resume {path}, or replace it with --overwrite.")
        if not (path / "run.json").exists():
            raise UserError(f"{path} is not a run folder, so --overwrite leaves it alone; choose another --out.")
        with locked(path):
            shutil.rmtree(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the run folder {path}: {error.strerror}.") from None


def check(path: Path) -> dict[str, Any]:
    """The facts of an existing run folder of a format that this version reads."""
    try:
        facts = json.loads((path / "run.json").read_text())
    except FileNotFoundError:
        raise UserError(f"{path} is not a run folder (it has no run.json).") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path / 'run.json'} cannot be read: {error}.") from None
    if facts.get("format") != FORMAT:
        raise UserError(
            f"{path} has format {facts.get('format')}, this version of oht reads format {FORMAT}; "
            f"it was written by oht {facts.get('packages', {}).get('oht', '?')}."
        )
    return facts


def describe(path: Path, config_text: str) -> None:
    write_aside(path / "config.toml", config_text)
    facts = {
        "format": FORMAT,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "python": sys.version.split()[0],
        "packages": {name: v for name in PACKAGES if (v := _version(name))},
    }
    write_aside(path / "run.json", json.dumps(facts, indent=2) + "\n")


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def write_aside(path: Path, text: str) -> None:
    """Never leaves half a file: written beside, then renamed."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text)
    os.replace(aside, path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one process may write to a run folder."""
    with (path / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is training in {path}; wait for it or choose another --out.") from None
        yield


class Table:
    """A CSV file that grows by rows; the first row fixes the columns."""

    def __init__(self, path: Path, size: int | None = None):
        """Goes on at byte `size` (rows written after a checkpoint are cut), or starts anew."""
        self.path = path
        if size is not None and path.exists():
            os.truncate(path, size)
        self._file = path.open("a" if size is not None else "w", newline="")
        self._columns = columns(path) if size else None

    def append(self, row: Mapping[str, Any]) -> None:
        writer = csv.writer(self._file)
        if self._columns is None:
            self._columns = list(row)
            writer.writerow(self._columns)
        writer.writerow([_cell(row[name]) for name in self._columns])
        self._file.flush()

    def size(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


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
    """The same numbers for TensorBoard."""

    def __init__(self, path: Path, enabled: bool):
        self._writer = None
        if enabled:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(str(path / "tensorboard"), flush_secs=10)

    def add(self, group: str, values: Mapping[str, float], env_steps: int, skip: Sequence[str] = ()) -> None:
        if self._writer is not None:
            for name, value in values.items():
                if name not in skip:
                    self._writer.add_scalar(f"{group}/{name}", value, env_steps)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
