"""Writes the files of a run folder while the run trains: tables, events, checkpoints, the best agent."""

import contextlib
import math
import time
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, NamedTuple

import numpy as np

from oht import training
from oht.csvtables import Table
from oht.errors import UserError
from oht.runs import checkpoints
from oht.runs.eventlog import EventLog
from oht.runs.folder import EVENTS, FACTS, TABLES
from oht.training import Champion, Progress, Setup
from oht.types import End, Evaluation, Iteration

MOST_OF_REASON = 500  # characters of why a run was broken off


class Clocks(NamedTuple):
    """Seconds of training so far, those before a resume included."""

    wall: float
    cpu: float  # of all threads of this process; envs in processes of their own are not counted

    @classmethod
    def now(cls) -> "Clocks":
        return cls(time.monotonic(), time.process_time())

    def cells(self) -> dict[str, float]:
        """Their columns in a table."""
        return {"cpu_time": round(self.cpu, 3), "wall_time": round(self.wall, 3)}


class Recorder:
    """Everything that a run writes. `counters` are those of the checkpoint that it continues from, or empty."""

    def __init__(self, path: Path, setup: Setup, t: Progress, counters: dict[str, Any]):
        self.path = path
        self._without_updates = dict.fromkeys(_metric_names(setup, t), math.nan)
        sizes = counters.get("sizes", {})
        self.tables = {name: Table(path / name, sizes.get(name)) for name in TABLES}
        self.events = EventLog(path / EVENTS, sizes.get(EVENTS))
        self.evaluated: int = counters.get("evaluated", 0)  # env steps at the last evaluation
        self.best: dict[str, Any] | None = counters.get("best")  # env_steps and return_mean of the best evaluation
        self.saturated: list[int] = counters.get("saturated", [])  # agents, at the last iteration
        checkpoints.drop_later(path / "best", self.best["env_steps"] if self.best else None)
        self._before, self._since = Clocks(counters.get("wall", 0.0), counters.get("cpu", 0.0)), Clocks.now()
        self.saved = time.monotonic()
        self._broken_off = False
        self._latest, self._latest_wall = t, self._before.wall  # at the last iteration, or the start

    def clocks(self) -> Clocks:
        now = Clocks.now()
        return Clocks(
            *(before + end - start for before, end, start in zip(self._before, now, self._since, strict=True))
        )

    def wall(self) -> float:
        return self.clocks().wall

    def event(self, kind: str, t: Progress, **more: Any) -> None:
        head = {"event": kind, "env_steps": t.env_steps, "iteration": t.iteration, "wall_time": round(self.wall(), 3)}
        self.events.append({**head, **more})

    def env_error(self, t: Progress, dropped: training.Dropped) -> None:
        """Note an episode in which the env failed."""
        self.event("env-error", t, seed=dropped.seed, message=str(dropped.error))

    def iteration(self, t: Progress, results: training.Results) -> Iteration:
        """Write a row of metrics.csv and one of schedule.csv."""
        self._check_folder()
        finite = results.returns[np.isfinite(results.returns)]
        finite = finite if finite.size else np.array([math.nan])  # every agent that played had diverged
        returns = {"return_mean": finite.mean(), "return_min": finite.min(), "return_max": finite.max()}
        metrics = {**{k: float(v) for k, v in returns.items()}, **self._without_updates, **results.metrics}
        head, wall = {"iteration": t.iteration, "env_steps": t.env_steps}, self.wall()
        self.tables["metrics.csv"].append({**head, "updates": t.updates, **metrics, "wall_time": round(wall, 3)})
        self.tables["schedule.csv"].append({**head, **results.schedule})
        for agent, source in enumerate(results.sources.tolist()):
            if source != agent:
                self.event("fork", t, agent=agent, source=source)
        replaced = np.flatnonzero(results.health.replaced).tolist()
        for agent in replaced:
            reason = "diverged" if results.health.diverged[agent] else "saturated"
            self.event("replacement", t, agent=agent, reason=reason, source=results.health.donor)
        saturated = np.flatnonzero(results.health.saturated & ~results.health.replaced).tolist()
        newly = [agent for agent in saturated if agent not in self.saturated]
        for agent in newly:
            self.event("saturation", t, agent=agent)
        self.saturated = saturated
        speed = (t.env_steps - self._latest.env_steps) / max(wall - self._latest_wall, 1e-9)
        self._latest, self._latest_wall = t, wall
        rest = (results.returns, metrics, results.schedule, replaced, newly)
        return Iteration(t.iteration, t.env_steps, t.updates, wall, speed, *rest)

    def evaluation(self, t: Progress, returns: list[float], champion: Champion) -> Evaluation:
        """Write one row of evals.csv; if its mean return is the best so far, also save the champion's state."""
        self._check_folder()
        self.evaluated = t.env_steps
        result = {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns))}
        single = {f"return_{i}": value for i, value in enumerate(returns, 1)}
        clocks = self.clocks()
        self.tables["evals.csv"].append({"env_steps": t.env_steps, **result, **single, **clocks.cells()})
        self.event("evaluation", t, **result)
        record = self.best is None or result["return_mean"] > self.best["return_mean"]
        if record:
            self.best = {"env_steps": t.env_steps, "return_mean": result["return_mean"]}
            facts = {"iteration": t.iteration, "hyper": champion.hyper, **result}
            checkpoints.save_best(self.path / "best", t.env_steps, champion.state, facts)
            self.event("record", t, **result)
        means = result["return_mean"], result["return_std"]
        return Evaluation(t.iteration, t.env_steps, clocks.wall, returns, *means, record)

    def broken_off(self, error: BaseException) -> None:
        """Note once why the run ends here, if the folder can still be written."""
        if self._broken_off or not self._is_there():
            return
        self._broken_off = True
        words = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}".rstrip(": ")
        kind, reason = "failure", shorten(words, MOST_OF_REASON)
        if isinstance(error, KeyboardInterrupt):
            kind, reason = "stop", "a second signal arrived"
        with contextlib.suppress(OSError):
            self.event(kind, self._latest, reason=reason)

    def end(self, state: Literal["done", "stopped", "failed"], reason: str) -> End:
        """The end of the run, as far as it is written."""
        return End(state, reason, self._latest.env_steps, self._latest.updates, self.wall())

    def checkpoint(self, t: Progress) -> None:
        """Save the state, unless this state is saved already."""
        self._check_folder()
        self._latest = t
        folder = self.path / "checkpoint"
        if not checkpoints.exists(folder, t.env_steps):
            self.event("checkpoint", t)
            counters = {name: getattr(t, name) for name in training.COUNTERS}
            counters |= {"evaluated": self.evaluated, "best": self.best, **self.clocks()._asdict()}
            counters["saturated"] = self.saturated
            counters["sizes"] = {name: file.size() for name, file in (*self.tables.items(), (EVENTS, self.events))}
            checkpoints.save(folder, t.env_steps, (t.agents, t.tuner, t.owed), counters, t.replay)
            checkpoints.drop_unneeded(self.path / "best", folder)
        self.saved = time.monotonic()

    def _check_folder(self) -> None:
        if not self._is_there():
            raise UserError(f"{self.path} was deleted or moved while the run was training, so the run has stopped.")

    def _is_there(self) -> bool:
        return (self.path / FACTS).exists()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as stack:  # closes every file, even if one fails
            for file in (*self.tables.values(), self.events):
                stack.callback(file.close)


def _metric_names(setup: Setup, t: Progress) -> list[str]:
    """The names of the metrics before anything is learned: a row without updates needs the same columns."""
    _, proposal = training.planned(setup, t)
    return setup.learner.metric_names(t.agents, t.replay, proposal.hyper)
