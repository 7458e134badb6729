"""events.jsonl: what happened in a run and when, one JSON object per line."""

import json
from pathlib import Path
from typing import Any

from oht.csvtables import GrowingFile
from oht.errors import UserError

Event = dict[str, Any]
KINDS = (
    *("start", "resume", "checkpoint", "evaluation", "record", "fork", "replacement", "saturation", "env-error"),
    *("stop", "failure", "end"),
)


class EventLog(GrowingFile):
    """A file of events, one per line."""

    def append(self, event: Event) -> None:
        self.write(json.dumps(event) + "\n")


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
