"""A wish to stop, from a terminal or a cluster."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Turns the first SIGINT or SIGTERM into a wish to stop after this iteration; the second stops at once."""
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if wish.is_set():
            os._exit(128 + number)
        wish.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
