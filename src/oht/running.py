"""A run from where it stands to its end: the loop around Algorithm 1, and what it evaluates, writes and reports."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oht import config, training
from oht.callbacks import Callbacks
from oht.envs.backend import EnvError
from oht.errors import UserError
from oht.runs.recorder import Recorder
from oht.signals import interruption
from oht.training import Progress, Setup
from oht.types import EnvFailure, Evaluation, Iteration, Phase, Start

STOPPING = "saving and stopping after this iteration; a second Ctrl-C stops at once"


def train(
    path: Path, setup: Setup, t: Progress, counters: dict[str, Any], callbacks: Callbacks
) -> tuple[Progress, bool]:
    """Train to the end, or until a signal or a callback stops the run; return its state, and whether it was a signal.

    `counters` are those of the checkpoint from which the run continues, and empty if it begins.
    """
    try:
        with interruption(_announce_stop) as interrupted, Recorder(path, setup, t, counters) as recorder:
            try:
                recorder.event("resume" if counters else "start", t)
                recorder.checkpoint(t)  # from the first moment on there is a state to continue from
                callbacks.start(Start(path, config.flat(setup.config), t.env_steps))
                session = Session(setup, recorder, callbacks, interrupted)
                t = session.train(t)
                reason = "" if t.env_steps >= setup.config.run.steps else callbacks.stop or "a signal arrived"
                if reason:
                    recorder.event("stop", t, reason=reason)
                recorder.checkpoint(t)  # a run that is resumed to more steps does not have the last evaluation
                if not reason:
                    session.last_evaluation(t)
                    recorder.event("end", t)
            except BaseException as error:
                recorder.broken_off(error)
                callbacks.end(recorder.end("failed", str(error) or type(error).__name__))
                raise
            callbacks.end(recorder.end("stopped" if reason else "done", reason))
            return t, interrupted()
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}); the last checkpoint is still valid."
        ) from error


class Session:
    """The parts of a run under way. Callbacks hear of what is written already."""

    def __init__(self, setup: Setup, recorder: Recorder, callbacks: Callbacks, interrupted: Callable[[], bool]):
        self.setup, self.recorder, self.callbacks, self.interrupted = setup, recorder, callbacks, interrupted

    def train(self, t: Progress) -> Progress:
        """Iterate until all steps are done or something stops the run."""
        run = self.setup.config.run
        try:
            if t.iteration and self._evaluation_due(t):  # the env failed in this evaluation before
                self.callbacks.tell(self._evaluate(t))
            while t.env_steps < run.start_steps and self._going():
                t = training.explore_at_random(self.setup, t)
                self._report_dropped(t)
                self.callbacks.tell(Phase("random actions", t.env_steps, run.start_steps))
            if not t.iteration and t.env_steps >= run.steps:
                raise UserError(
                    f"the random start took {t.env_steps} steps, because it ends with a whole episode, and steps is "
                    f"{run.steps}: nothing would be learned; make steps larger."
                )
            while t.env_steps < run.steps and self._going():
                t, results = training.iterate(self.setup, t, self._report_learning)
                self._report_dropped(t)
                events: list[Iteration | Evaluation] = [self.recorder.iteration(t, results)]
                if self._evaluation_due(t):
                    events.append(self._evaluate(t))
                if time.monotonic() - self.recorder.saved > 60 * run.checkpoint_every:
                    self.recorder.checkpoint(t)
                for event in events:
                    self.callbacks.tell(event)
        except UserError as error:  # the env failed or every agent diverged: `t` is the state from before
            raise self._failed(error, t) from error
        return t

    def last_evaluation(self, t: Progress) -> None:
        """Evaluate at the end, unless that was done."""
        if self.recorder.evaluated < t.env_steps:
            try:
                evaluation = self._evaluate(t)
            except UserError as error:
                raise self._failed(error, t) from error
            self.callbacks.tell(evaluation)

    def _going(self) -> bool:
        return not (self.interrupted() or self.callbacks.stop)

    def _evaluation_due(self, t: Progress) -> bool:
        every = self.setup.config.run.eval_every
        return t.env_steps // every > self.recorder.evaluated // every

    def _evaluate(self, t: Progress) -> Evaluation:
        returns = training.evaluate(self.setup, t)
        self._report_dropped(t)
        return self.recorder.evaluation(t, returns, training.champion(self.setup, t))

    def _report_learning(self, done: int, of: int) -> None:
        self.callbacks.tell(Phase("learning", done, of))

    def _report_dropped(self, t: Progress, record: bool = True) -> None:
        """Report the episodes in which the env failed, and record them."""
        for dropped in training.take_dropped(self.setup):
            if record:
                self.recorder.env_error(t, dropped)
            self.callbacks.tell(EnvFailure(t.env_steps, dropped.seed, str(dropped.error)))

    def _failed(self, error: UserError, t: Progress) -> UserError:
        """Save the state from before the error and record it; return the error with what would help."""
        self._report_dropped(t, record=False)  # a resumed run drops them again, and then records them
        self.recorder.checkpoint(t)
        self.recorder.broken_off(error)
        if isinstance(error, EnvError) and not self.setup.config.run.env_errors:
            hint = f"to repeat such episodes: oht train --resume {self.recorder.path} --env-errors 5"
            return EnvError(f"{str(error).rstrip('.')} ({hint}).")
        return error


def _announce_stop() -> None:
    """Called from another thread when the first signal arrives."""
    print(f"oht: {STOPPING}.", file=sys.stderr, flush=True)
