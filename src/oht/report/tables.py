"""Tables for the terminal."""

from pathlib import Path
from statistics import fmean, pstdev

from rich.console import Console
from rich.table import Table

from oht.envs import tasks


def print_tasks() -> None:
    """The paper's tasks, their scores, and whether they can run here."""
    table = Table(
        caption="besides: any Gymnasium id with Box observations and actions, or module:Id; @delay5 delays rewards"
    )
    for name, justify in (
        ("task", "left"),
        ("backend", "left"),
        ("env", "left"),
        ("obs", "right"),
        ("act", "right"),
        ("low", "right"),
        ("high", "right"),
        ("extra", "left"),
        ("installed", "left"),
    ):
        table.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    for task in tasks.TASKS.values():
        table.add_row(
            task.id,
            task.backend,
            task.env,
            str(task.obs),
            str(task.action),
            f"{task.low:g}",
            f"{task.high:g}",
            task.extra or "",
            "yes" if tasks.installed(task) else "no",
        )
    Console().print(table)


def print_evaluation(path: Path, returns: list[float]) -> None:
    table = Table(title=str(path), title_justify="left")
    for name in ("episodes", "mean", "std", "min", "max"):
        table.add_column(name, justify="right")
    numbers = (fmean(returns), pstdev(returns), min(returns), max(returns))
    table.add_row(str(len(returns)), *(f"{number:.2f}" for number in numbers))
    Console().print(table)
