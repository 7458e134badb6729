"""Trains all runs of a suite in one folder; the same call again continues where it stopped.

What a run has reached is read from its own folder only, so a sweep can be killed at any moment.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from oht import runs
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.job import Engine, finished, saved_steps
from oht.experiments.suites import Job, Settings, Suite
from oht.runs import last_row
from oht.signals import interruption, raise_interrupt

NAP = 0.1  # seconds between two calls of `Engine.poll`

State = Literal["done", "running", "failed", "stopped", "waiting"]
STATES: tuple[State, ...] = ("done", "running", "failed", "stopped", "waiting")


@dataclass
class Item:
    """A run of the sweep and what it has reached."""

    job: Job
    path: Path
    log: Path
    state: State = "waiting"
    error: str = ""
    steps: int = 0
    score: float | None = None  # its last evaluation

    def look(self) -> None:
        """Reads what is on the disk."""
        row = last_row(self.path / "metrics.csv") or {}
        self.steps = int(row.get("env_steps") or saved_steps(self.path) or 0)
        self.score = (last_row(self.path / "evals.csv") or {}).get("return_mean")

    @property
    def name(self) -> str:
        return f"{self.job.task} {self.job.label} s{self.job.seed}"


def sweep(
    suite: Suite, root: Path, *, engine: Engine, console: Console, second: Callable[[int], None] = raise_interrupt
) -> int:
    """Trains the runs that the folder `root` lacks. The exit code: 0 all done, 1 some failed, 130 stopped.

    `second` is what a second signal does.
    """
    with contextlib.closing(engine):
        suites.check(suite)
        if (root / runs.FACTS).exists():
            raise UserError(f"{root} is a run folder; choose another --out for the sweep.")
        with runs.refused(root):
            root.mkdir(parents=True, exist_ok=True)
        with runs.locked(root):
            before = suites.of_folder(root)
            asked, suite = suite, as_begun(suite, before, root)
            if asked != suite:
                console.print("runs that have begun keep their eval_every.", highlight=False)
            suites.save(suite.joined(before) if before else suite, root / suites.FILE)
            items = plan(suite, root)
            with interruption(second=second) as interrupted, Overview(console, items, suite.steps) as view:
                _train(items, suite.steps, engine, view, interrupted)
    states = {item.state for item in items}
    return 130 if states & {"waiting", "stopped"} else 1 if "failed" in states else 0


def as_begun(suite: Suite, before: Suite | None, root: Path) -> Suite:
    """The suite with the settings of its runs that have begun in `root`, which was asked for `before`.

    Only `eval_every` may differ, since it changes nothing that is learned; other differences are refused.
    """

    def meant(task: str, settings: Settings) -> dict[str, Any]:
        """As a run reads them: a flag's text is the number of a file."""
        from oht import config

        return config.flat(config.resolve({**settings, "task": task, "steps": suite.steps}))

    def known(task: str, label: str, settings: Settings) -> Settings:
        folder = Job(task, label, 0, {}).path(root).parent
        if not any(folder.glob(f"s*/{runs.FACTS}")):
            return settings
        if before is None:
            raise UserError(f"{folder} has runs, but {root / suites.FILE} is missing; choose another --out.")
        old = before.pairs.get((task, label), settings)
        then, now = (meant(task, values) for values in (old, settings))
        for name in {**then, **now}:
            if name != "eval_every" and then.get(name) != now.get(name):
                values = (f"{name} = {s[name]}" if name in s else f"no {name}" for s in (then, now))
                raise UserError(
                    f"{root} has runs of {label} on {task} with {', not '.join(values)}; "
                    "choose another label or another --out."
                )
        return old

    return suite.mapped(known)


def plan(suite: Suite, root: Path) -> list[Item]:
    """All runs and their states; those that are done will not be touched again."""
    items = [Item(job, job.path(root), root / "logs" / f"{job.name}.log") for job in suite.jobs()]
    for item in items:
        item.look()
        item.state = "done" if finished(item.path, suite.steps) else "waiting"
    return items


def _train(
    items: Sequence[Item], steps: int, engine: Engine, view: "Overview", interrupted: Callable[[], bool]
) -> None:
    waiting = deque(item for item in items if item.state == "waiting")
    running: dict[Job, Item] = {}
    stopping = False
    while running or (waiting and not stopping):
        if interrupted() and not stopping:
            stopping = True
            engine.stop()
            view.say("stopping: the runs save what they have; a second signal does not wait for them.")
        while waiting and len(running) < engine.slots and not stopping:
            item = waiting.popleft()
            engine.start(item.job, item.path, steps, item.log)
            item.state = "running"
            running[item.job] = item
            view.started(item)
        for job, error in engine.poll():
            item = running.pop(job)
            item.look()
            item.state = "done" if finished(item.path, steps) else "stopped" if stopping else "failed"
            item.error = error or "it ended before its last step."
            view.ended(item)
        view.refresh()
        time.sleep(NAP)


class Overview:
    """Prints a line for each event of a sweep and, on a terminal, a live table of the runs under way."""

    def __init__(self, console: Console, items: Sequence[Item], steps: int):
        self._console, self._items, self._steps = console, items, steps
        self._began, self._before, self._turn = time.monotonic(), self._trained(), 0
        self._live = None
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Overview":
        number = "1 run" if len(self._items) == 1 else f"{len(self._items)} runs"
        self.say(f"{number} to {self._steps:,} steps: {self._counts()}")
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        self.say(self._counts())
        for item in self._in("failed"):
            self.say(f"{item.name} failed: {item.error} (see {item.log})")
        if self._in("waiting", "stopped"):
            self.say("the same command continues.")

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def started(self, item: Item) -> None:
        if not self._live:
            self.say(f"started {item.name}" + (f" at {item.steps:,} steps" if item.steps else ""))

    def ended(self, item: Item) -> None:
        score = "" if item.score is None else f", last evaluation {item.score:.1f}"
        what = item.error if item.state == "failed" else f"{item.steps:,} steps{score}"
        self.say(f"{item.state} {item.name}: {what} ({self._counts()})")

    def refresh(self) -> None:
        """Looks at one run of those under way, the next one each time: there may be hundreds."""
        if running := self._in("running"):
            self._turn += 1
            running[self._turn % len(running)].look()

    def _in(self, *states: State) -> list[Item]:
        return [item for item in self._items if item.state in states]

    def _counts(self) -> str:
        """As in 3 done, 1 running, about 0:10:30 left, if the missing steps take as long as those since the start."""
        counts = {state: len(self._in(state)) for state in STATES}
        words = [f"{number} {state}" for state, number in counts.items() if number or state == "done"]
        missing = sum(max(0, self._steps - item.steps) for item in self._in("running", "waiting"))
        trained = self._trained() - self._before
        if missing and trained > 0:
            seconds = missing * (time.monotonic() - self._began) / trained
            words.append(f"about {timedelta(seconds=round(seconds))} left")
        return ", ".join(words)

    def _trained(self) -> int:
        return sum(min(item.steps, self._steps) for item in self._items)

    def _table(self) -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("task", "method", "seed", "", "steps", "last evaluation"):
            table.add_column(name, justify="left" if name in ("task", "method", "") else "right")
        for item in self._in("running"):
            bar = ProgressBar(total=self._steps, completed=min(item.steps, self._steps), width=20)
            score = "-" if item.score is None else f"{item.score:.1f}"
            table.add_row(Text(item.job.task), Text(item.job.label), str(item.job.seed), bar, f"{item.steps:,}", score)
        return Group(table, Text(self._counts()))


def print_suites() -> None:
    """Prints the built-in suites and their sizes."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("suite", "tasks", "methods", "seeds", "steps"):
        table.add_column(name, justify="left" if name in ("suite", "methods") else "right", no_wrap=True)
    for suite in map(suites.load, suites.names()):
        numbers = (str(suite.seeds), f"{suite.steps:,}")
        table.add_row(suite.name, str(len(suite.tasks)), " ".join(suite.labels), *numbers)
    Console().print(table)
