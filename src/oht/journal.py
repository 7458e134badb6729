"""What a run writes down while it trains: the tables, TensorBoard, checkpoints."""

import contextlib
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from oht import checkpoints, runs, training
from oht.training import Progress, Setup


class Journal:
    """Writes the files of a run folder while it trains."""

    def __init__(self, path: Path, setup: Setup, t: Progress, counters: dict[str, Any]):
        self.path = path
        sizes = counters.get("sizes", {})
        self.tables = {name: runs.Table(path / name, sizes.get(name)) for name in runs.TABLES}
        self.board = runs.Board(path, setup.config.run.tensorboard)
        self.evaluated: int = counters.get("evaluated", 0)  # env steps at the last evaluation
        self._nothing_learned = dict.fromkeys(_metric_names(setup, t), math.nan)
        self._before, self._since = counters.get("wall", 0.0), time.monotonic()
        self.saved = time.monotonic()

    def wall(self) -> float:
        return self._before + time.monotonic() - self._since

    def iteration(self, t: Progress, outcome: training.Iteration) -> dict[str, float]:
        finite = outcome.returns[np.isfinite(outcome.returns)]
        finite = finite if finite.size else np.array([math.nan])  # everyone who played had diverged
        returns = {"return_mean": finite.mean(), "return_min": finite.min(), "return_max": finite.max()}
        head = {"iteration": t.iteration, "env_steps": t.env_steps, "updates": t.updates}
        row = {**head, **{k: float(v) for k, v in returns.items()}, **self._nothing_learned, **outcome.metrics}
        self.tables["metrics.csv"].append({**row, "wall_time": round(self.wall(), 3)})
        self.board.add("train", row, t.env_steps, skip=("iteration", "env_steps"))
        self.tables["schedule.csv"].append({"iteration": t.iteration, "env_steps": t.env_steps, **outcome.schedule})
        self.board.add("schedule", outcome.schedule, t.env_steps)
        return row

    def evaluation(self, t: Progress, returns: list[float]) -> None:
        self.evaluated = t.env_steps
        row = {"env_steps": t.env_steps, "return_mean": float(np.mean(returns)), "return_std": float(np.std(returns))}
        single = {f"return_{i}": value for i, value in enumerate(returns, 1)}
        self.tables["evals.csv"].append({**row, **single, "wall_time": round(self.wall(), 3)})
        self.board.add("eval", row, t.env_steps, skip=("env_steps",))

    def checkpoint(self, t: Progress) -> None:
        counters = {name: getattr(t, name) for name in training.COUNTERS}
        counters |= {"evaluated": self.evaluated, "wall": self.wall()}
        counters["sizes"] = {name: table.size() for name, table in self.tables.items()}
        checkpoints.save(self.path / "checkpoint", t.env_steps, (t.agents, t.tuner, t.owed), counters, t.replay)
        self.saved = time.monotonic()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:  # closes all, even if one cannot be
            for file in (*self.tables.values(), self.board):
                stack.callback(file.close)


def _metric_names(setup: Setup, t: Progress) -> list[str]:
    """What learning tells, known before anything is learned: an iteration without updates has the same columns."""
    return setup.learner.metric_names(t.agents, t.replay, setup.config.hyper)
