"""The run folder: its files, its lock, and the facts about the run.

config.toml   every setting, resolved: `oht train --config` runs it again
run.json      the command, package versions, the format of this folder
metrics.csv   one row per iteration              evals.csv      one row per evaluation
schedule.csv  the tuner's row of each iteration  events.jsonl   what happened when
tensorboard/  the same numbers for TensorBoard     wandb/         and for W&B, if it tracks the run
checkpoint/   the newest two states              best/          the agent with the best evaluation
"""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from oht.errors import UserError

FORMAT = 2
READERS = {1: "0.1"}  # older formats and the version of oht that reads them
FACTS, LOCK, EVENTS = "run.json", ".lock", "events.jsonl"
UNFINISHED = {LOCK, FACTS + ".part"}  # left by a process that was killed when it made its run folder
TABLES = ("metrics.csv", "evals.csv", "schedule.csv")
NO_METHOD = frozenset(  # runs that differ only in these settings are seeds of one method
    {"seed", "eval_every", "eval_episodes", "checkpoint_every", "tensorboard", "track", "workers", "pool", "env_errors"}
)
PACKAGES = ("oht", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium", "envpool", "mujoco", "pybullet")


def fresh_folder(root: Path, task: str, method: str, seed: int) -> Path:
    """Make a folder with a readable name, such as runs/dm-walker-run_static_s0_20260101-120000, and return it.

    Of runs that start in the same second, each gets its own.
    """
    stem = re.sub(r"[^\w.@-]+", "-", f"{task}_{method}_s{seed}_{time.strftime('%Y%m%d-%H%M%S')}")
    with refused(root):
        root.mkdir(parents=True, exist_ok=True)
    for k in itertools.count():
        path = root / (stem if k == 0 else f"{stem}-{k}")
        with refused(path), contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError


def below(root: Path) -> list[Path]:
    """Every run folder in or below a folder, sorted; neither insides of runs nor hidden folders are searched."""
    found: list[Path] = []
    for place, folders, files in os.walk(root):
        if FACTS in files:
            found.append(Path(place))
            folders.clear()
        else:
            folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found, key=lambda path: [natural(part) for part in path.parts])


def natural(text: str) -> list[tuple[int, int, str]]:
    """For sorting: seed 10 comes after seed 9."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def vacant(path: Path, overwrite: bool) -> None:
    """Refuse a path that is in use, unless it is a run that may be overwritten, or that cannot be written."""
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"{path} is a file; --out must name a folder for the run.")
        if path.exists() and not {entry.name for entry in path.iterdir()} <= UNFINISHED:
            if not overwrite:
                raise UserError(f"{path} exists already; continue it with --resume {path}, or replace it: --overwrite.")
            if not (path / FACTS).exists():
                raise UserError(f"{path} is not a run folder, so --overwrite does not touch it; choose another --out.")
    except OSError as error:
        raise _not_a_folder(path, error) from None
    writable(path)


def writable(path: Path) -> None:
    """Create and remove a folder of another name where this one would be: some places (/proc) refuse only that."""
    try:
        existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        os.rmdir(tempfile.mkdtemp(prefix=".oht-", dir=existing))
    except OSError as error:
        raise _not_a_folder(path, error) from None


def _not_a_folder(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be a run folder: {error.strerror}.")


@contextlib.contextmanager
def created(path: Path, config_text: str, overwrite: bool = False) -> Iterator[None]:
    """Create and lock a folder that holds only the description of a new run."""
    vacant(path, overwrite)
    with refused(path):
        path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        with refused(path):
            _clear(path)
            _describe(path, config_text)
        yield


def _clear(path: Path) -> None:
    """Remove the files of an earlier run; the file that marks a run folder goes last."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in (FACTS, LOCK):
            entry.unlink()
    (path / FACTS).unlink(missing_ok=True)


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Re-raise OSError as UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}.") from error


def check(path: Path) -> dict[str, Any]:
    """Read run.json; refuse folders that are no run, and formats that this version cannot read."""
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
        reader = f"use oht {READERS[found]} for it" if found in READERS else f"it was written by oht {writer}"
        raise UserError(f"{path} has format {found}, but this version of oht reads format {FORMAT}; {reader}.")
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
    """Write a file beside its place and rename it, so that there is never half a file, also after a power cut."""
    aside = path.with_name(path.name + ".part")
    write_through(aside, content.encode() if isinstance(content, str) else content)
    os.replace(aside, path)
    sync_names(path.parent)


def write_through(path: Path, content: bytes | memoryview) -> None:
    """Write a file and return when it is on the disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_names(folder: Path) -> None:
    """Return when the names in the folder are on the disk, so that a power cut cannot undo a renaming."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a run folder: only one process may write to it."""
    with refused(path):
        file = (path / LOCK).open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is training in {path}; wait for it or choose another --out.") from None
        yield
