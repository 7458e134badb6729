"""Tables for the terminal."""

from pathlib import Path
from statistics import fmean, pstdev

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oht.envs import tasks


def print_tasks() -> None:
    """The paper's tasks, their scores, and whether they can run here."""
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),  # narrow enough for 80 columns
        caption="\nalso: any Gymnasium id with Box observations and bounded Box actions,"
        "\nor module:Id; @delay5 after a name delays rewards",
        caption_justify="left",
    )
    for name in ("task", "backend", "obs", "act", "low", "high", "extra", "installed"):
        table.add_column(name, justify="right" if name in ("obs", "act", "low", "high") else "left", no_wrap=True)
    for task in tasks.TASKS.values():
        numbers = (f"{number:g}" for number in (task.obs, task.action, task.low, task.high) if number is not None)
        table.add_row(task.id, task.backend, *numbers, task.extra, "yes" if tasks.installed(task) else "no")
    Console().print(table)


def print_evaluation(path: Path, returns: list[float]) -> None:
    table = Table(title=escape(str(path)), title_justify="left")
    for name in ("episodes", "mean", "std", "min", "max"):
        table.add_column(name, justify="right")
    numbers = (fmean(returns), pstdev(returns), min(returns), max(returns))
    table.add_row(str(len(returns)), *(f"{number:.2f}" for number in numbers))
    Console().print(table)
