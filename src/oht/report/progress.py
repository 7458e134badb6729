"""What a person sees while a run trains."""

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from oht import spaces
from oht.callbacks import Callback
from oht.runs import events, rows
from oht.types import End, EnvFailure, Evaluation, Iteration, Phase, Start


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} steps/s" if task.speed else "- steps/s", style="cyan")


class Terminal(Callback):
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
        self._news = {"phase": "", "return": "", "evaluation": ""}

    def on_start(self, start: Start) -> None:
        config, self._path = start.config, start.path
        where = f"on [bold]{escape(config['task'])}[/], seed {config['seed']}, in {escape(str(start.path))}"
        self.console.print(f"{config['method']} {config['algo']} {where}", soft_wrap=True)
        if arguments := config.get("env_kwargs"):
            text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            self.console.print(f"  env arguments: {text}", markup=False, highlight=False, soft_wrap=True)
        tune = {name: spaces.dimension(name, space) for name, space in config.get("tune", {}).items()}
        budget = {"replay_ratio": config["budget"]} if "budget" in config else {}  # where the start of that range is
        for line in spaces.descriptions(tune, {**budget, **config}):
            self.console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        self._task = self._bar.add_task("train", total=config["steps"], completed=start.env_steps, news="")
        self._bar.start()

    def _show(self, **news: str) -> None:
        self._news |= news
        self._bar.update(self._task, news="  ".join(filter(None, self._news.values())))

    def on_phase(self, phase: Phase) -> None:
        if phase.name == "learning":
            self._show(phase=f"learning {phase.done:,}/{phase.of:,}" if phase.of > 4000 else "")
        else:
            self._bar.update(self._task, completed=phase.done)
            self._show(phase=phase.name)

    def on_iteration(self, iteration: Iteration) -> None:
        at = f"at {iteration.env_steps:,} steps"
        for agent in iteration.replaced:
            self.console.print(f"agent {agent} diverged or saturated {at} and was replaced")
        for agent in iteration.saturated:
            self.console.print(f"agent {agent} is saturated {at}: its actions are all at their bounds")
        self._bar.update(self._task, completed=iteration.env_steps)
        self._show(**{"phase": "", "return": f"return {iteration.metrics['return_mean']:.1f}"})

    def on_env_error(self, failure: EnvFailure) -> None:
        text = " ".join(f"warning: episode dropped and repeated: {failure.message}".split())
        self.console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        mean, std = evaluation.mean, evaluation.std
        self.console.print(f"evaluation at {evaluation.env_steps:>10,} steps: {mean:8.1f} +- {std:.1f}")
        self._show(evaluation=f"evaluation {mean:.1f}")

    def on_end(self, end: End) -> None:
        """The evaluations are those of the whole run, also after a resume."""
        self._bar.stop()
        if end.state == "failed":
            return
        title = "done" if end.state == "done" else f"stopped early: {end.reason}"
        table = Table(title=escape(title), title_justify="left", show_header=False, box=None)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("env steps", f"{end.env_steps:,}")
        table.add_row("gradient steps", f"{end.updates:,}")
        if errors := sum(event["event"] == "env-error" for event in events(self._path)):
            table.add_row("env errors", f"{errors:,}", "episodes dropped and repeated from another seed")
        table.add_row("wall time", f"{end.wall_time / 60:.1f} min")
        if evals := rows(self._path / "evals.csv"):
            best = max(evals, key=lambda row: row["return_mean"])
            for name, row in (("first", evals[0]), ("last", evals[-1]), ("best", best)):
                note = f"at {row['env_steps']:,.0f} steps" + (", saved in best/" if name == "best" else "")
                table.add_row(f"{name} evaluation", f"{row['return_mean']:.1f}", note)
        self.console.print(table)
        self.console.print(f"run folder: {self._path}", markup=False, soft_wrap=True)
        if end.state == "stopped":
            self.console.print(f"continue with: oht train --resume {self._path}", markup=False, soft_wrap=True)
