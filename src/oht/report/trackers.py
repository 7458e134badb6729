"""Callbacks that send the numbers of a run to TensorBoard and to Weights & Biases."""

import importlib.util
import os
import time
from typing import Any

from oht.callbacks import Callback, scalars
from oht.errors import UserError
from oht.runs import refused, write_aside
from oht.types import End, Evaluation, Iteration, Start


class TensorBoard(Callback):
    """Write the files in this thread, so that a full disk raises here, where it can be handled."""

    FLUSH_SECONDS = 10.0

    def on_start(self, start: Start) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        self._path = start.path / "tensorboard"
        with refused(self._path):
            self._path.mkdir(exist_ok=True)
            self._writer = EventsWriter(str(self._path / "events"))
        self._flushed = time.monotonic()

    def on_iteration(self, event: Iteration | Evaluation, /) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        with refused(self._path):
            for name, value in scalars(event).items():
                summary = scalar(name, value)
                self._writer.write_event(Event(wall_time=time.time(), step=event.env_steps, summary=summary))
            if time.monotonic() - self._flushed > self.FLUSH_SECONDS:
                self._writer.flush()
                self._flushed = time.monotonic()

    on_evaluation = on_iteration

    def on_end(self, end: End) -> None:
        if hasattr(self, "_writer"):
            with refused(self._path):
                self._writer.close()


class WandB(Callback):
    """Send config, returns, schedule and speed to Weights & Biases, or keep them for it (WANDB_MODE=offline).

    W&B's own environment variables win; without them the project is `oht`, seeds of a method are one group, and the
    files are in the run folder. A resumed run continues the same W&B run.
    """

    def __init__(self) -> None:
        """Refuse at once what could not be tracked."""
        found = importlib.util.find_spec("wandb")
        if found is None or found.origin is None:  # without origin: a folder `wandb`, as W&B itself writes
            raise UserError("track is wandb, but the package wandb is not installed; pip install 'oht[wandb]'.")
        if os.environ.get("WANDB_MODE", "online") == "online":
            self._or_refused(lambda wandb: wandb.login())

    def on_start(self, start: Start) -> None:
        config, place = start.config, start.path / "wandb"
        group = f"{config['task']} {config['method']}"
        place.mkdir(exist_ok=True)
        if not (place / "id").exists():
            write_aside(place / "id", os.environ.get("WANDB_RUN_ID") or os.urandom(6).hex())
        defaults = {"project": "oht", "name": f"{group} s{config['seed']}", "run_group": group, "dir": str(start.path)}
        given = {name: os.environ.get(f"WANDB_{name.upper()}", value) for name, value in defaults.items()}
        group = given.pop("run_group")

        def begin(wandb: Any) -> Any:
            quiet = wandb.Settings(console="off")  # it would read the progress display along
            id = (place / "id").read_text()
            return wandb.init(**given, group=group, id=id, resume="allow", config=dict(config), settings=quiet)

        self._run = self._or_refused(begin)
        self._run.define_metric("*", step_metric="env_steps")

    def on_iteration(self, event: Iteration | Evaluation, /) -> None:
        self._run.log({"env_steps": event.env_steps, **scalars(event)})

    on_evaluation = on_iteration

    def on_end(self, end: End) -> None:
        if hasattr(self, "_run"):
            self._run.summary.update({"state": end.state, "reason": end.reason})
            self._run.finish(exit_code=int(end.state == "failed"))

    def _or_refused(self, call: Any) -> Any:
        import wandb

        try:
            return call(wandb)
        except wandb.Error as error:
            what = str(error).rstrip(".")
            raise UserError(f"W&B refused: {what}; log in with `wandb login`, or set WANDB_MODE=offline.") from error
