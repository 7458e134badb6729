"""TensorBoard files."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path


class Board:
    """Write scalars for TensorBoard in this thread, so that a full disk raises here, where it can be handled."""

    FLUSH_SECONDS = 10.0

    def __init__(self, path: Path, enabled: bool):
        self._writer = None
        if enabled:
            from tensorboardX.event_file_writer import EventsWriter

            (path / "tensorboard").mkdir(exist_ok=True)
            self._writer = EventsWriter(str(path / "tensorboard" / "events"))
            self._flushed = time.monotonic()

    def add(self, group: str, values: Mapping[str, float], env_steps: int, skip: Sequence[str] = ()) -> None:
        """Write the finite values; TensorBoard cannot show others."""
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
