"""Ctrl-C and SIGTERM while a run trains."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


def exit_process(number: int) -> None:
    """End this process without any clean-up: for a command that got a second signal."""
    os._exit(128 + number)


_interrupted = threading.Event()  # by Ctrl-C, since `note_interrupts`


def note_interrupts() -> None:
    """For a command: Python drops the KeyboardInterrupt of a Ctrl-C in certain callbacks, as JAX has them."""

    def handle(number: int, frame: FrameType | None) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, handle)


def raise_missed() -> None:
    """Raise the KeyboardInterrupt that Python has dropped, if there was one."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


_requests: list[threading.Event] = []  # one for each interruption under way


def request_stop() -> None:
    """What a first signal does, but a signal that arrives later is not the second; without an interruption: the end."""
    for requested in _requests:
        requested.set()
    if not _requests:
        os.kill(os.getpid(), signal.SIGTERM)


def raise_interrupt(number: int) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def interruption(
    first: Callable[[], None] | None = None, second: Callable[[int], None] = raise_interrupt
) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM has arrived, or `request_stop` was called.

    The first signal calls `first`, in a thread of its own because a signal may arrive in the middle of a print; the
    second calls `second` with its number, by default to raise KeyboardInterrupt at once. Outside of the main thread,
    where Python allows no signal handlers, signals stay as they are.
    """
    raise_missed()
    arrived, requested = threading.Event(), threading.Event()

    def interrupted() -> bool:
        return arrived.is_set() or requested.is_set()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if arrived.is_set():
            second(number)
        arrived.set()
        if first:
            threading.Thread(target=first, daemon=True).start()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    _requests.append(requested)
    try:
        yield interrupted
    finally:
        _requests.remove(requested)
        for number, handler in before.items():
            signal.signal(number, handler)
