"""The state of a run on disk: written aside and renamed, with checksums; the newest two are kept.

    checkpoint/000000010000/state.npz    agents and tuner, each array by its path in the tree
    checkpoint/000000010000/state.json   counters, and the names and checksums of all files it needs
    checkpoint/replay/0-10010.npz        the slots of the replay written between two checkpoints
    checkpoint/replay/0-10010-3.npz      the same for agent 3, where each agent has its own replay
    best/000000010000/                   state.npz and state.json of the agent with the best evaluation

The replay is stored in pieces: a checkpoint writes only the slots that are new since the one before.
Nothing is ever unpickled.
"""

import hashlib
import io
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from oht import replay as ring
from oht.errors import UserError
from oht.runs.folder import sync_names, write_through

KEEP = 2


def exists(folder: Path, number: int) -> bool:
    return _place(folder, number).exists()


def any_in(folder: Path) -> bool:
    """Whether there is a checkpoint, damaged or not."""
    return any(_all(folder))


def save(folder: Path, number: int, state: Any, counters: Mapping[str, Any], replay: ring.Replay) -> None:
    """Save checkpoint `number` (numbers grow): a pytree of arrays, plain counters, and the replay."""
    if exists(folder, number):  # a run that stops where it was resumed
        return
    pieces = folder / "replay"
    pieces.mkdir(parents=True, exist_ok=True)
    known = _newest(folder)
    files = dict(known["pieces"]) if known else {}
    for suffix, one in _rings(replay).items():
        ours = {piece.until for piece in map(_piece, files) if piece.suffix == suffix}
        files |= _write_new_pieces(pieces, one, max(ours, default=0), suffix)
    oldest = {suffix: int(one.written) - len(one.end) for suffix, one in _rings(replay).items()}
    files = {name: digest for name, digest in files.items() if _piece(name).until > oldest[_piece(name).suffix]}
    facts = {
        "counters": dict(counters),
        "pieces": files,
        "slots": list(replay.end.shape),
        "replay": {name: np.asarray(getattr(replay, name)).tolist() for name in ("written", "stored", "dropped")},
    }
    _write_state(folder, number, state, facts)
    _tidy(folder)


def save_best(folder: Path, number: int, agent: Any, facts: Mapping[str, Any]) -> None:
    """Save the agent of the best evaluation so far, made at env step `number`, with facts about the evaluation."""
    if not exists(folder, number):
        folder.mkdir(exist_ok=True)
        _write_state(folder, number, agent, {"env_steps": number, **facts})


def load_best(folder: Path, agent: Any) -> tuple[Any, dict[str, Any]]:
    """The agent of the best evaluation, in the structure of the given one, and the facts about the evaluation."""
    for path in _all(folder):  # each one is better than those before
        try:
            facts = _facts(path)
            return _unflatten(agent, _read_arrays(path / "state.npz", facts["state"])), facts
        except Damaged as damage:
            warnings.warn(f"best agent {path.name} is damaged ({damage}); the one before is used.", stacklevel=2)
    raise UserError(f"{folder.parent} has no best agent that can be read: the first evaluation saves one.")


def drop_later(folder: Path, number: int | None) -> None:
    """Remove best agents that were saved after evaluation `number` (None: all): a resumed run evaluates again."""
    for path in _all(folder):
        if number is None or int(path.name) > number:
            shutil.rmtree(path)


def drop_unneeded(folder: Path, checkpoints: Path) -> None:
    """Remove best agents that no kept checkpoint names, except the newest."""
    needed = set()
    for path in _all(checkpoints):
        try:
            needed.add((_facts(path)["counters"].get("best") or {}).get("env_steps"))
        except Damaged:
            continue
    for path in list(_all(folder))[1:]:
        if int(path.name) not in needed:
            shutil.rmtree(path)


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}"


def _write_state(folder: Path, number: int, state: Any, facts: Mapping[str, Any]) -> None:
    """Write a pytree and facts to a folder of their own, beside its place, and rename it."""
    aside = folder / "new.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    arrays = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    facts = {**facts, "state": _write_arrays(aside / "state.npz", arrays)}
    write_through(aside / "state.json", json.dumps({"facts": facts, "checksum": _checksum(_text(facts))}).encode())
    sync_names(aside)
    os.replace(aside, _place(folder, number))
    sync_names(folder)


def load(folder: Path, state: Any, replay: ring.Replay | None) -> tuple[Any, dict[str, Any], ring.Replay | None]:
    """The newest undamaged checkpoint, in the structure of the given state and replay (None: do not read the replay).

    Leaves of the given state may be arrays or `jax.ShapeDtypeStruct`; the latter are read as NumPy arrays.
    With a replay the run continues from here, so newer, damaged checkpoints are removed.
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
        content = json.loads((path / "state.json").read_bytes())
        if content["checksum"] != _checksum(_text(content["facts"])):
            raise Damaged("state.json: the checksum differs")
        return content["facts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
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
    return _in_order(state, jax.tree.unflatten(jax.tree.structure(state), leaves))


def _in_order(given: Any, restored: Any) -> Any:
    """The same with dicts in the order of the given ones: JAX sorts them, and a tuner may draw in their order."""
    match given:
        case dict():
            return {name: _in_order(part, restored[name]) for name, part in given.items()}
        case tuple() if hasattr(given, "_fields"):
            return type(given)(*map(_in_order, given, restored))
        case tuple() | list():
            return type(given)(map(_in_order, given, restored))
    return restored


class Piece(NamedTuple):
    """Which slots of which replay a file holds."""

    since: int
    until: int
    suffix: str


def _piece(name: str) -> Piece:
    since, until, *agent = name.split("-")
    return Piece(int(since), int(until), "".join(f"-{number}" for number in agent))


def _rings(replay: ring.Replay) -> dict[str, ring.Replay]:
    """The shared replay, or those of all agents, by the suffix of their file names."""
    parts = [np.asarray(leaf) for leaf in replay]
    if replay.written.ndim == 0:
        return {"": ring.Replay(*parts)}  # pyright: ignore[reportArgumentType]
    return {f"-{j}": ring.Replay(*(part[j] for part in parts)) for j in range(len(replay.written))}  # pyright: ignore


def _write_new_pieces(pieces: Path, replay: ring.Replay, since: int, suffix: str) -> dict[str, str]:
    slots, written = len(replay.end), int(replay.written)
    since = max(since, written - slots)
    if since >= written:
        return {}
    name = f"{since}-{written}{suffix}"
    index = np.arange(since, written) % slots
    part = {field: np.asarray(getattr(replay, field))[index] for field in ("obs", "action", "reward", "end")}
    checksum = _write_arrays(pieces / f"{name}.part", part)
    os.replace(pieces / f"{name}.part", pieces / f"{name}.npz")
    sync_names(pieces)
    return {name: checksum}


def _read_replay(folder: Path, facts: Mapping[str, Any], replay: ring.Replay) -> ring.Replay:
    if facts["slots"] != list(replay.end.shape):
        raise UserError("the replay in the checkpoint has another size than the settings say.")
    counts = {name: np.asarray(value, np.int32) for name, value in facts["replay"].items()}
    rings = []
    for number, (suffix, one) in enumerate(_rings(replay).items()):
        pieces = {name: digest for name, digest in facts["pieces"].items() if _piece(name).suffix == suffix}
        count = {name: value[number] if value.ndim else value for name, value in counts.items()}
        rings.append(_read_ring(folder / "replay", pieces, one, count))
    return jax.tree.map(
        lambda *leaves: jax.numpy.asarray(np.stack(leaves) if replay.written.ndim else leaves[0]), *rings
    )


def _read_ring(folder: Path, pieces: Mapping[str, str], replay: ring.Replay, count: Mapping[str, Any]) -> ring.Replay:
    slots = len(replay.end)
    parts = {field: np.array(getattr(replay, field)) for field in ("obs", "action", "reward", "end")}
    for name, digest in sorted(pieces.items(), key=lambda item: _piece(item[0]).since):
        arrays = _read_arrays(folder / f"{name}.npz", digest)
        since, until, _ = _piece(name)
        first = max(since, until - slots)
        for field, whole in parts.items():
            whole[np.arange(first, until) % slots] = arrays[field][first - since :]
    newest_first = np.arange(count["written"] - 1, max(-1, count["written"] - slots - 1), -1) % slots
    begins = newest_first[parts["end"][newest_first] != ring.NO_STEP][::-1]
    starts = np.zeros(slots, np.int32)
    starts[np.arange(count["dropped"], count["stored"]) % slots] = begins
    return ring.Replay(*parts.values(), starts, *count.values())  # pyright: ignore[reportCallIssue]


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write arrays without pickle and return the checksum of the file."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # pyright: ignore[reportArgumentType]
    write_through(path, content.getbuffer())
    return _checksum(content.getbuffer())


def _read_arrays(path: Path, checksum: str) -> dict[str, np.ndarray]:
    try:
        content = path.read_bytes()
        if _checksum(content) != checksum:
            raise Damaged(f"{path.name}: the checksum differs")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Damaged(f"{path.name}: {error}") from None


def _text(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _checksum(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _tidy(folder: Path) -> None:
    """Remove all but the newest checkpoints and the pieces that they need."""
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
