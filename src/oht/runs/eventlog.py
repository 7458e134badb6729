"""events.jsonl: what happened in a run and when, one JSON object per line."""

import json
import os
from pathlib import Path
from typing import Any

from oht.csvtables import restored, truncate
from oht.errors import UserError

Event = dict[str, Any]
KINDS = ("start", "resume", "checkpoint", "evaluation", "record", "replacement", "saturation", "stop", "end")


class EventLog:
    """Appends events to a file."""

    def __init__(self, path: Path, size: int | None = None):
        """Continue at byte `size` (later events are cut), or start an empty file if `size` is None."""
        self._path = path
        if size is not None:
            truncate(path, size)
        self._file = path.open("a+" if size is not None else "w+", newline="")

    def append(self, event: Event) -> None:
        self._file = restored(self._path, self._file)
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def size(self) -> int:
        """Flush to the disk and return the number of bytes."""
        self._file = restored(self._path, self._file)
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


def events(path: Path | str) -> list[Event]:
    """All complete events of a run folder, or of the file itself; an empty list where there is no file."""
    path = Path(path)
    path = path / "events.jsonl" if path.is_dir() else path
    try:
        content = path.read_bytes()
        return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a list of events: {error}.") from None
