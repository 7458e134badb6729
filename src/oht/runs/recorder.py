"""Writes the files of a run folder while the run trains: tables, events, TensorBoard, checkpoints, the best agent."""

import contextlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from oht import training
from oht.csvtables import Table
from oht.errors import UserError
from oht.runs import checkpoints
from oht.runs.board import Board
from oht.runs.eventlog import EventLog
from oht.runs.folder import EVENTS, FACTS, TABLES
from oht.training import Progress, Setup


class Recorder:
    """Everything that a run writes. `counters` are those of the checkpoint that it continues from, or empty."""

    def __init__(self, path: Path, setup: Setup, t: Progress, counters: dict[str, Any]):
        self.path = path
        sizes = counters.get("sizes", {})
        self.tables = {name: Table(path / name, sizes.get(name)) for name in TABLES}
        self.events = EventLog(path / EVENTS, sizes.get(EVENTS))
        self.board = Board(path, setup.config.run.tensorboard)
        self.evaluated: int = counters.get("evaluated", 0)  # env steps at the last evaluation
        self.best: dict[str, Any] | None = counters.get("best")  # env_steps and return_mean of the best evaluation
        self.saturated: list[int] = counters.get("saturated", [])  # agents, at the last iteration
        checkpoints.drop_later(path / "best", self.best["env_steps"] if self.best else None)
        self._without_updates = dict.fromkeys(_metric_names(setup, t), math.nan)
        self._before, self._since = counters.get("wall", 0.0), time.monotonic()
        self.saved = time.monotonic()

    def wall(self) -> float:
        """Seconds of training so far, those before a resume included."""
        return self._before + time.monotonic() - self._since

    def event(self, kind: str, t: Progress, **more: Any) -> None:
        head = {"event": kind, "env_steps": t.env_steps, "iteration": t.iteration, "wall_time": round(self.wall(), 3)}
        self.events.append({**head, **more})

    def env_error(self, t: Progress, dropped: training.Dropped) -> None:
        """Note an episode in which the env failed."""
        self.event("env-error", t, seed=dropped.seed, message=str(dropped.error))

    def iteration(self, t: Progress, outcome: training.Iteration) -> dict[str, float]:
        """Write one row of metrics.csv, which is returned, and one of schedule.csv."""
        self._check_folder()
        finite = outcome.returns[np.isfinite(outcome.returns)]
        finite = finite if finite.size else np.array([math.nan])  # every agent that played had diverged
        returns = {"return_mean": finite.mean(), "return_min": finite.min(), "return_max": finite.max()}
        head = {"iteration": t.iteration, "env_steps": t.env_steps, "updates": t.updates}
        row = {**head, **{k: float(v) for k, v in returns.items()}, **self._without_updates, **outcome.metrics}
        self.tables["metrics.csv"].append({**row, "wall_time": round(self.wall(), 3)})
        self.board.add("train", row, t.env_steps, skip=("iteration", "env_steps"))
        self.tables["schedule.csv"].append({"iteration": t.iteration, "env_steps": t.env_steps, **outcome.schedule})
        self.board.add("schedule", outcome.schedule, t.env_steps)
        for agent in np.flatnonzero(outcome.health.replaced):
            self.event("replacement", t, agent=int(agent))
        saturated = np.flatnonzero(outcome.health.saturated & ~outcome.health.replaced).tolist()
        for agent in saturated:
            if agent not in self.saturated:
                self.event("saturation", t, agent=agent)
        self.saturated = saturated
        return row

    def evaluation(self, t: Progress, returns: list[float], champion: Any) -> None:
        """Write one row of evals.csv; if its mean return is the best so far, also save the champion's state."""
        self._check_folder()
        self.evaluated = t.env_steps
        row = {"env_steps": t.env_steps, "return_mean": float(np.mean(returns)), "return_std": float(np.std(returns))}
        single = {f"return_{i}": value for i, value in enumerate(returns, 1)}
        self.tables["evals.csv"].append({**row, **single, "wall_time": round(self.wall(), 3)})
        self.board.add("eval", row, t.env_steps, skip=("env_steps",))
        result = {"return_mean": row["return_mean"], "return_std": row["return_std"]}
        self.event("evaluation", t, **result)
        if self.best is None or row["return_mean"] > self.best["return_mean"]:
            self.best = {"env_steps": t.env_steps, "return_mean": row["return_mean"]}
            checkpoints.save_best(self.path / "best", t.env_steps, champion, {"iteration": t.iteration, **result})
            self.event("record", t, **result)

    def checkpoint(self, t: Progress) -> None:
        """Save the state, unless this state is saved already."""
        self._check_folder()
        folder = self.path / "checkpoint"
        if not checkpoints.exists(folder, t.env_steps):
            self.event("checkpoint", t)
            counters = {name: getattr(t, name) for name in training.COUNTERS}
            counters |= {"evaluated": self.evaluated, "best": self.best, "wall": self.wall()}
            counters["saturated"] = self.saturated
            counters["sizes"] = {name: file.size() for name, file in (*self.tables.items(), (EVENTS, self.events))}
            checkpoints.save(folder, t.env_steps, (t.agents, t.tuner, t.owed), counters, t.replay)
            checkpoints.drop_unneeded(self.path / "best", folder)
        self.saved = time.monotonic()

    def _check_folder(self) -> None:
        if not (self.path / FACTS).exists():
            raise UserError(f"{self.path} was deleted or moved while the run was training, so the run has stopped.")

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:  # closes every file, even if one fails
            for file in (*self.tables.values(), self.events, self.board):
                stack.callback(file.close)


def _metric_names(setup: Setup, t: Progress) -> list[str]:
    """The names of the metrics before anything is learned: a row without updates needs the same columns."""
    return setup.learner.metric_names(t.agents, t.replay, setup.config.hyper)
