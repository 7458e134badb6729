"""What a person sees of a sweep: a line for each event and, on a terminal, a live table of what is under way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from oht.experiments import suites
from oht.experiments.job import saved_steps
from oht.experiments.suites import Job
from oht.runs import last_row

State = Literal["waiting", "running", "done", "failed", "stopped"]
EVERY = 1.0  # seconds between two looks at the files


@dataclass
class Item:
    """A run of the sweep and how it stands."""

    job: Job
    path: Path
    log: Path
    state: State = "waiting"
    error: str = ""
    steps: int = 0
    test: float | None = None

    def look(self) -> None:
        """Reads its files."""
        row = last_row(self.path / "metrics.csv") or {}
        self.steps = int(row.get("env_steps") or saved_steps(self.path) or 0)
        self.test = (last_row(self.path / "evals.csv") or {}).get("return_mean")

    @property
    def name(self) -> str:
        return f"{self.job.task} {self.job.label} s{self.job.seed}"


class Overview:
    """Hears of everything that happens in a sweep to so many steps."""

    def __init__(self, console: Console, items: Sequence[Item], steps: int):
        self._console, self._items, self._steps = console, items, steps
        self._began, self._looked = time.monotonic(), 0.0
        self._before = self._made()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> "Overview":
        runs = "1 run" if len(self._items) == 1 else f"{len(self._items)} runs"
        self._say(f"{runs} to {self._steps:,} steps: {self._counts()}")
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        self._say(self._counts())
        for item in self._of("failed"):
            self._say(f"{item.name} failed: {item.error} (see {item.log})")
        if self._of("waiting") or self._of("stopped"):
            self._say("the same command goes on.")

    def started(self, item: Item) -> None:
        if not self._live:
            self._say(f"started {item.name}" + (f", which has {item.steps:,} steps" if item.steps else ""))

    def ended(self, item: Item) -> None:
        test = f", test {item.test:.1f}" if item.test is not None else ""
        told = item.error if item.state == "failed" else f"{item.steps:,} steps{test}"
        self._say(f"{item.state} {item.name}: {told} ({self._counts()})")

    def stopping(self) -> None:
        self._say("stopping: the runs save what they have; a second signal does not wait for them.")

    def refresh(self) -> None:
        if time.monotonic() - self._looked < EVERY:
            return
        for item in self._of("running"):
            item.look()
        self._looked = time.monotonic()
        if self._live:
            self._live.update(Group(self._table(), Text(self._counts())), refresh=True)

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _of(self, state: State) -> list[Item]:
        return [item for item in self._items if item.state == state]

    def _counts(self) -> str:
        states: tuple[State, ...] = ("done", "running", "failed", "stopped", "waiting")
        counts = {state: len(self._of(state)) for state in states}
        told = [f"{number} {state}" for state, number in counts.items() if number or state == "done"]
        left = self._seconds_left()
        return ", ".join(told + ([f"about {duration(left)} left"] if left is not None else []))

    def _seconds_left(self) -> float | None:
        """If the steps that are missing take as long as those that were made since the start."""
        open_items = self._of("running") + self._of("waiting")
        missing = sum(max(0, self._steps - item.steps) for item in open_items)
        made = self._made() - self._before
        return missing * (time.monotonic() - self._began) / made if missing and made > 0 else None

    def _made(self) -> int:
        return sum(min(item.steps, self._steps) for item in self._items)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("task", "method", "seed", "", "steps", "last test"):
            table.add_column(name, justify="right" if name in ("seed", "steps", "last test") else "left")
        for item in self._of("running"):
            bar = ProgressBar(total=self._steps, completed=min(item.steps, self._steps), width=20)
            test = "-" if item.test is None else f"{item.test:.1f}"
            table.add_row(Text(item.job.task), Text(item.job.label), str(item.job.seed), bar, f"{item.steps:,}", test)
        return table


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def print_suites() -> None:
    """The built-in suites and how large they are."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("suite", "tasks", "methods", "seeds", "steps"):
        table.add_column(name, justify="right" if name in ("tasks", "seeds", "steps") else "left", no_wrap=True)
    for suite in map(suites.load, suites.names()):
        numbers = (str(suite.seeds), f"{suite.steps:,}")
        table.add_row(suite.name, str(len(suite.tasks)), " ".join(suite.labels), *numbers)
    Console().print(table)
