"""The state of a run on disk: written aside and renamed, with checksums; the newest two are kept.

    checkpoint/000000010000/state.npz    agents and tuner, each array by its path in the tree
    checkpoint/000000010000/state.json   counters and the names, sizes and checksums of all files it needs
    checkpoint/replay/0-10010.npz        the slots of the replay written between two checkpoints

The replay is stored in pieces: a checkpoint writes only the slots that are new since the one before.
Nothing is ever unpickled.
"""

import hashlib
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from oht import replay as ring
from oht.errors import UserError

KEEP = 2


def save(folder: Path, number: int, state: Any, counters: Mapping[str, Any], replay: ring.Replay) -> None:
    """Checkpoint `number` (they grow) of a run: a pytree of arrays, plain counters, and the replay."""
    pieces = folder / "replay"
    pieces.mkdir(parents=True, exist_ok=True)
    known = _newest(folder)
    files = dict(known["pieces"]) if known else {}
    files |= _write_new_pieces(pieces, replay, since=max((int(name.split("-")[1]) for name in files), default=0))
    oldest = int(replay.written) - replay.end.shape[0]
    files = {name: digest for name, digest in files.items() if int(name.split("-")[1]) > oldest}

    aside = folder / "new.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    _write_arrays(aside / "state.npz", arrays)
    facts = {
        "counters": dict(counters),
        "state": _digest(aside / "state.npz"),
        "pieces": files,
        "replay": {name: int(getattr(replay, name)) for name in ("written", "stored", "dropped")},
    }
    (aside / "state.json").write_text(json.dumps(facts))
    _sync(aside / "state.json")
    place = folder / f"{number:012d}"
    shutil.rmtree(place, ignore_errors=True)  # only when a run stops where it was resumed
    os.replace(aside, place)
    _tidy(folder)


def load(folder: Path, state: Any, replay: ring.Replay | None) -> tuple[Any, dict[str, Any], ring.Replay | None]:
    """The newest checkpoint that is whole, in the shape of the given state and replay (None: not wanted).

    Who asks for the replay goes on from here, so damaged checkpoints are then removed.
    """
    damaged: list[Path] = []
    for path in _all(folder):
        try:
            facts = _facts(path)
            arrays = _read_arrays(path / "state.npz", facts["state"])
            restored = _unflatten(state, arrays)
            if replay is not None:
                replay = _read_replay(folder, facts, replay)
                for other in damaged:
                    shutil.rmtree(other)
            return restored, facts["counters"], replay
        except Damaged as damage:
            damaged.append(path)
            warnings.warn(f"checkpoint {path.name} is damaged ({damage}); the one before is used.", stacklevel=2)
    raise UserError(f"{folder.parent} has no checkpoint that can be read, so it cannot be loaded or resumed.")


class Damaged(Exception):
    """A checkpoint that cannot be used."""


def _all(folder: Path) -> Iterator[Path]:
    return iter(sorted((p for p in folder.glob("[0-9]*") if p.is_dir()), reverse=True))


def _newest(folder: Path) -> dict[str, Any] | None:
    for path in _all(folder):
        try:
            return _facts(path)
        except Damaged:
            continue
    return None


def _facts(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / "state.json").read_text())
    except (OSError, ValueError) as error:
        raise Damaged(f"state.json: {error}") from None


def _unflatten(state: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    paths = jax.tree_util.tree_leaves_with_path(state)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise UserError(f"the checkpoint does not fit this algorithm or method: {odd} is on one side only.")
    leaves = []
    for name, (_, leaf) in zip(names, paths, strict=True):
        if arrays[name].shape != np.shape(leaf):
            raise UserError(
                f"the checkpoint does not fit: {name} has shape {arrays[name].shape}, not {np.shape(leaf)}."
            )
        leaves.append(jax.numpy.asarray(arrays[name]) if isinstance(leaf, jax.Array) else arrays[name])
    return jax.tree.unflatten(jax.tree.structure(state), leaves)


def _write_new_pieces(pieces: Path, replay: ring.Replay, since: int) -> dict[str, str]:
    slots, written = replay.end.shape[0], int(replay.written)
    since = max(since, written - slots)
    if since >= written:
        return {}
    name = f"{since}-{written}"
    index = np.arange(since, written) % slots
    part = {field: np.asarray(getattr(replay, field))[index] for field in ("obs", "action", "reward", "end")}
    _write_arrays(pieces / f"{name}.part", part)
    os.replace(pieces / f"{name}.part", pieces / f"{name}.npz")
    return {name: _digest(pieces / f"{name}.npz")}


def _read_replay(folder: Path, facts: Mapping[str, Any], replay: ring.Replay) -> ring.Replay:
    slots = replay.end.shape[0]
    parts = {field: np.array(getattr(replay, field)) for field in ("obs", "action", "reward", "end")}
    for name, digest in sorted(facts["pieces"].items(), key=lambda item: int(item[0].split("-")[0])):
        piece = _read_arrays(folder / "replay" / f"{name}.npz", digest)
        since, until = map(int, name.split("-"))
        first = max(since, until - slots)
        for field, whole in parts.items():
            whole[np.arange(first, until) % slots] = piece[field][first - since :]
    count = {name: np.int32(value) for name, value in facts["replay"].items()}
    newest_first = np.arange(count["written"] - 1, max(-1, count["written"] - slots - 1), -1) % slots
    begins = newest_first[parts["end"][newest_first] != ring.NO_STEP][::-1]
    starts = np.zeros(slots, np.int32)
    starts[np.arange(count["dropped"], count["stored"]) % slots] = begins
    return ring.Replay(*(jax.numpy.asarray(x) for x in (*parts.values(), starts, *count.values())))


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    _sync(path)


def _read_arrays(path: Path, digest: str) -> dict[str, np.ndarray]:
    try:
        if _digest(path) != digest:
            raise Damaged(f"{path.name}: the checksum differs")
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Damaged(f"{path.name}: {error}") from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _tidy(folder: Path) -> None:
    """Keeps the newest checkpoints and the pieces that they need."""
    paths = list(_all(folder))
    for path in paths[KEEP:]:
        shutil.rmtree(path, ignore_errors=True)
    needed: set[str] = set()
    for path in paths[:KEEP]:
        try:
            needed |= set(_facts(path)["pieces"])
        except Damaged:
            continue
    for piece in (folder / "replay").iterdir():
        if piece.stem not in needed:
            piece.unlink()
