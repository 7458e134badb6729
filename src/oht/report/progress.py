"""What a person sees while a run trains."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from oht import spaces

STOPPING = "saving and stopping after this iteration; a second Ctrl-C stops at once"


class Reporter:
    """Called for everything that happens in a run. This one shows only that an interrupted run is about to stop."""

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def begin(self, path: Any, setup: Any, t: Any) -> None: ...
    def steps(self, t: Any, phase: str) -> None: ...
    def learning(self, done: int, of: int) -> None: ...
    def iteration(self, t: Any, row: dict[str, float], outcome: Any) -> None: ...
    def dropped(self, t: Any, episode: Any) -> None: ...
    def evaluation(self, t: Any, returns: list[float]) -> None: ...
    def end(self, run: Any, wall: float, interrupted: bool) -> None: ...

    def stopping(self) -> None:
        """Called from another thread when the first signal arrives."""
        print(f"oht: {STOPPING}.", file=sys.stderr, flush=True)


Silent = Reporter


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} steps/s" if task.speed else "- steps/s", style="cyan")


class Terminal(Reporter):
    """A progress bar with speed, time left and the last returns; a line per evaluation; a table at the end."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            _Speed(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"),
            console=self.console,
            speed_estimate_period=120,
        )
        self._saturated: set[int] = set()
        self._news = {"phase": "", "return": "", "evaluation": ""}

    def __enter__(self) -> "Terminal":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, path: Any, setup: Any, t: Any) -> None:
        run = setup.config.run
        where = f"on [bold]{escape(run.task)}[/], seed {run.seed}, in {escape(str(path))}"
        self.console.print(f"{run.method} {run.algo} {where}", soft_wrap=True)
        if arguments := setup.config.env_kwargs:
            text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            self.console.print(f"  env arguments: {text}", markup=False, highlight=False, soft_wrap=True)
        for line in spaces.descriptions(setup.config.tune, setup.config.hyper):
            self.console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        self._task = self._bar.add_task("train", total=run.steps, completed=t.env_steps, news="")
        self._started = time.monotonic()

    def _show(self, **news: str) -> None:
        self._news |= news
        self._bar.update(self._task, news="  ".join(filter(None, self._news.values())))

    def steps(self, t: Any, phase: str) -> None:
        self._bar.update(self._task, completed=t.env_steps)
        self._show(phase=phase)

    def learning(self, done: int, of: int) -> None:
        self._show(phase=f"learning {done:,}/{of:,}" if of > 4000 else "")

    def iteration(self, t: Any, row: dict[str, float], outcome: Any) -> None:
        for agent in outcome.health.replaced.nonzero()[0]:
            self.console.print(f"agent {agent} diverged or saturated at {t.env_steps:,} steps and was replaced")
        saturated = set((outcome.health.saturated & ~outcome.health.replaced).nonzero()[0].tolist())
        for agent in sorted(saturated - self._saturated):
            self.console.print(
                f"agent {agent} is saturated at {t.env_steps:,} steps: its actions are all at their bounds"
            )
        self._saturated = saturated
        self._bar.update(self._task, completed=t.env_steps)
        self._show(**{"phase": "", "return": f"return {row['return_mean']:.1f}"})

    def dropped(self, t: Any, episode: Any) -> None:
        """An episode in which the env failed and which was repeated."""
        text = " ".join(f"warning: episode dropped and repeated: {episode.error}".split())
        self.console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def evaluation(self, t: Any, returns: list[float]) -> None:
        mean = sum(returns) / len(returns)
        spread = (sum((r - mean) ** 2 for r in returns) / len(returns)) ** 0.5
        self.console.print(f"evaluation at {t.env_steps:>10,} steps: {mean:8.1f} +- {spread:.1f}")
        self._show(evaluation=f"evaluation {mean:.1f}")

    def stopping(self) -> None:
        self.console.print(STOPPING)

    def end(self, run: Any, wall: float, interrupted: bool) -> None:
        """The evaluations are those of the whole run, also after a resume."""
        self._bar.stop()
        table = Table(
            title="stopped early" if interrupted else "done", title_justify="left", show_header=False, box=None
        )
        table.add_column()
        table.add_column(justify="right")
        table.add_row("env steps", f"{run.progress.env_steps:,}")
        table.add_row("gradient steps", f"{run.progress.updates:,}")
        if run.env_errors:
            table.add_row("env errors", f"{run.env_errors:,}", "episodes dropped and repeated from another seed")
        table.add_row("wall time", f"{wall / 60:.1f} min")
        if evals := run.evals:
            best = max(evals, key=lambda row: row["return_mean"])
            for name, row in (("first", evals[0]), ("last", evals[-1]), ("best", best)):
                note = f"at {row['env_steps']:,.0f} steps" + (", saved in best/" if name == "best" else "")
                table.add_row(f"{name} evaluation", f"{row['return_mean']:.1f}", note)
        self.console.print(table)
        self.console.print(f"run folder: {run.path}", markup=False, soft_wrap=True)
        if interrupted:
            self.console.print(f"continue with: oht train --resume {run.path}", markup=False, soft_wrap=True)
