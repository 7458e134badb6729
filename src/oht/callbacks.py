"""What is called while a run trains: the hooks, and who calls them.

The progress display, TensorBoard and W&B are callbacks like those of a user.
"""

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from oht.errors import UserError, unknown
from oht.types import End, EnvFailure, Evaluation, Iteration, Phase, Start

Event = Start | Phase | Iteration | EnvFailure | Evaluation | End
HOOKS = {
    Start: "on_start",
    Phase: "on_phase",
    Iteration: "on_iteration",
    EnvFailure: "on_env_error",
    Evaluation: "on_evaluation",
    End: "on_end",
}


class Callback:
    """Every hook. A callback may be a subclass, or any object that has some of these methods.

    A hook that returns True stops the run after the iteration, as Ctrl-C would, but without KeyboardInterrupt.
    """

    def on_start(self, start: Start, /) -> bool | None: ...
    def on_phase(self, phase: Phase, /) -> bool | None: ...
    def on_iteration(self, iteration: Iteration, /) -> bool | None: ...
    def on_env_error(self, failure: EnvFailure, /) -> bool | None: ...
    def on_evaluation(self, evaluation: Evaluation, /) -> bool | None: ...
    def on_end(self, end: End, /) -> bool | None: ...


class Callbacks:
    """Calls the hooks of all callbacks. `stop` says who has asked the run to stop; it is empty before."""

    def __init__(self, callbacks: Iterable[Any]):
        self._all = list(callbacks)
        self._begun: list[Any] = []
        self.stop = ""

    def start(self, event: Start) -> None:
        for callback in self._all:
            self._begun.append(callback)
            self._tell(callback, event)

    def tell(self, event: Phase | Iteration | EnvFailure | Evaluation) -> None:
        for callback in self._begun:
            self._tell(callback, event)

    def end(self, event: End) -> None:
        """Tell all that know of the start, even if one fails."""
        with contextlib.ExitStack() as stack:
            for callback in reversed(self._begun):
                stack.callback(self._tell, callback, event)

    def _tell(self, callback: Any, event: Event) -> None:
        hook = HOOKS[type(event)]
        if not hasattr(callback, hook):
            return
        name = type(callback).__name__
        try:
            answer = getattr(callback, hook)(event)
        except OSError as error:
            raise UserError(
                f"{name}.{hook} failed ({error.strerror or error}); the last checkpoint is still valid."
            ) from error
        if isinstance(answer, bool | np.bool_) and answer and not self.stop:
            self.stop = f"{name}.{hook} returned True"


def checked(callbacks: Any) -> list[Any]:
    """A user's callbacks; refuse what would never be called."""
    if not isinstance(callbacks, list | tuple):
        raise UserError(f"callbacks is {callbacks!r}, but must be a list of callbacks, as in callbacks=[MyCallback()].")
    for callback in callbacks:
        if isinstance(callback, type):
            name = callback.__name__
            raise UserError(f"the callback {name} is a class; give an instance of it, as in callbacks=[{name}()].")
        hooks = [name for name in dir(callback) if name.startswith("on_")]
        for name in hooks:
            if name not in HOOKS.values():
                raise unknown(f"hook of the callback {type(callback).__name__}", name, HOOKS.values())
        if not hooks:
            raise UserError(f"the callback {callback!r} has none of the methods {', '.join(HOOKS.values())}.")
    return list(callbacks)


def scalars(event: Iteration | Evaluation) -> dict[str, float]:
    """The finite numbers of an event in the groups train, schedule and eval: what TensorBoard and W&B show."""
    if isinstance(event, Evaluation):
        groups = {"eval": {"return_mean": event.mean, "return_std": event.std}}
    else:
        counts = {"updates": event.updates, "steps_per_second": event.steps_per_second}
        groups = {"train": {**counts, **event.metrics}, "schedule": event.schedule}
    everything = {f"{group}/{name}": value for group, row in groups.items() for name, value in row.items()}
    return {name: value for name, value in everything.items() if math.isfinite(value)}
