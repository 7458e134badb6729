"""The plot of one run: returns over env steps and, below, how the hyper-parameters moved."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # writes files only
import matplotlib.pyplot as plt
import numpy as np

from oht.errors import UserError
from oht.report.schedules import (
    agent_numbers,
    agents_of,
    champion_names,
    discrete_values,
    first,
    log_scaled,
    names,
    samples,
    tune_of,
)
from oht.runs import Columns, columns


def plot_run(run: Path, out: Path, beside: Sequence[Path] = ()) -> Path:
    """Draw a run folder to a PNG, PDF or SVG file; of the runs `beside` it only the evaluations."""
    evals, metrics, schedule = (columns(run / name) for name in ("evals.csv", "metrics.csv", "schedule.csv"))
    if not metrics:
        raise UserError(f"{run} has no finished iteration to plot yet (metrics.csv is missing or empty).")
    others = [(other, columns(other / "evals.csv")) for other in beside]
    for path, table, needed in (
        (run, metrics, ("env_steps", "return_mean")),
        *((path, table, ("env_steps", "return_mean", "return_std")) for path, table in ((run, evals), *others)),
    ):
        if table and not set(needed) <= set(table):
            raise UserError(f"the tables of {path} lack some of the columns {', '.join(needed)}.")
    panels = schedule_panels(schedule, log_scaled(tune_of(run / "config.toml")))
    height = 3.2 + 2.2 * len(panels)
    figure, axes = plt.subplots(
        1 + len(panels), 1, figsize=(8, height), sharex=True, squeeze=False, layout="constrained"
    )
    draw_returns(axes[0, 0], evals, metrics)
    short = [path.resolve().name for path in (run, *beside)]
    for number, (path, table) in enumerate(others, start=1):
        name = path if len(set(short)) < len(short) else short[number]  # runs of a sweep are all called s0, s1
        if table:
            style = {"color": f"C{number}", "marker": "o", "markersize": 3, "linewidth": 1}
            axes[0, 0].plot(table["env_steps"], table["return_mean"], label=f"evaluation of {name}", **style)
            axes[0, 0].legend(fontsize=8, loc="best")
    axes[0, 0].set_title(run.resolve().name, fontsize=10)
    for axis, draw in zip(axes[1:, 0], panels, strict=True):
        draw(figure, axis)
    axes[-1, 0].set_xlabel("environment steps of all agents")
    try:
        with plt.rc_context({"pdf.fonttype": 42}):  # TrueType, embedded, as publishers ask
            figure.savefig(out, dpi=300)
    except (OSError, ValueError) as error:
        raise UserError(f"the plot cannot be written to {out}: {error}.") from None
    finally:
        plt.close(figure)
    return out


def schedule_panels(schedule: Columns, logarithmic: set[str]) -> list[Callable[[Any, Any], None]]:
    """What draws each panel under the returns, whatever the method: from the columns that its schedule has."""
    if agent_numbers(schedule):
        return [partial(draw_belief, schedule), partial(draw_shares, schedule)]
    panels: list[Callable[[Any, Any], None]] = []
    distributions = names(schedule)
    for name in distributions:
        if f"{name}/mu" in schedule:
            panels.append(partial(draw_gaussian, schedule, name, name in logarithmic))
        else:
            panels.append(partial(draw_probabilities, schedule, name))
    drawn = {part for name in distributions for part in name.split("+")}
    panels += [partial(draw_champion, schedule, name) for name in champion_names(schedule) if name not in drawn]
    return panels or [partial(draw_columns, schedule, *group) for group in other_columns(schedule).items()]


def other_columns(schedule: Columns) -> dict[str, list[str]]:
    """The columns of a method of a user's own whose meaning is not known, those with the same first word together."""
    groups: dict[str, list[str]] = {}
    for column in schedule:
        if column not in ("iteration", "env_steps") and not column.startswith("sample/"):
            groups.setdefault(column.partition("/")[0], []).append(column)
    return groups


def draw_returns(axis: Any, evals: Columns, metrics: Columns) -> None:
    axis.plot(metrics["env_steps"], metrics["return_mean"], color="0.7", linewidth=0.8, label="training episodes, mean")
    if evals:
        mean, spread = evals["return_mean"], evals["return_std"]
        axis.plot(evals["env_steps"], mean, color="tab:blue", marker="o", markersize=3, label="evaluation, mean")
        band = (mean - spread, mean + spread)
        axis.fill_between(evals["env_steps"], *band, color="tab:blue", alpha=0.2, label="one standard deviation")
    axis.set_ylabel("episode return")
    axis.legend(fontsize=8, loc="best")
    axis.grid(alpha=0.3)


def draw_probabilities(schedule: Columns, name: str, figure: Any, axis: Any) -> None:
    """Stacked areas: at each step the heights are the probabilities of the values."""
    values = discrete_values(schedule, name)
    shares = [schedule[f"{name}/p/{value}"] for value in values]
    colours = plt.get_cmap("viridis")(np.linspace(0.15, 0.9, len(values)))
    axis.stackplot(schedule["env_steps"], shares, labels=[f"{name} = {v}" for v in values], colors=colours, alpha=0.85)
    axis.set_ylim(0, 1)
    axis.margins(x=0)
    axis.set_ylabel(f"P({name})")
    axis.legend(fontsize=8, loc="upper left", ncols=len(values))


def draw_gaussian(schedule: Columns, name: str, logarithmic: bool, figure: Any, axis: Any) -> None:
    """The mean with a band of one standard deviation, samples coloured by return, rings at the champion's values."""
    mu = schedule[f"{name}/mu"]
    sigma = schedule.get(f"{name}/sigma", np.zeros_like(mu))
    middle, low, high = (10.0**x if logarithmic else x for x in (mu, mu - sigma, mu + sigma))
    axis.plot(schedule["env_steps"], middle, color="black", linewidth=1.2, label="mean")
    axis.fill_between(schedule["env_steps"], low, high, color="black", alpha=0.12, label="one standard deviation")
    steps, values, returns = samples(schedule, name)
    if len(values):
        finite = np.isfinite(returns)
        points = axis.scatter(steps[finite], values[finite], c=returns[finite], s=7, cmap="viridis", alpha=0.8)
        figure.colorbar(points, ax=axis, label="return")
    used = schedule.get(f"champion/{first(name)}", middle)
    other = ~np.isclose(used, middle, rtol=1e-6, atol=0)  # where it is not the mean
    ring = {"s": 30, "facecolors": "none", "edgecolors": "tab:red", "linewidths": 0.8}
    if other.any():
        axis.scatter(schedule["env_steps"][other], used[other], **ring, label="used by the champion")
    axis.legend(fontsize=8, loc="best")
    axis.set_yscale("log" if logarithmic else "linear")
    axis.set_ylabel(name)
    axis.grid(alpha=0.3)


def draw_champion(schedule: Columns, name: str, figure: Any, axis: Any) -> None:
    """The value that the evaluated agent uses."""
    axis.step(schedule["env_steps"], schedule[f"champion/{name}"], color="black", linewidth=1.2, where="post")
    axis.set_ylabel(name)
    axis.grid(alpha=0.3)


def draw_columns(schedule: Columns, title: str, columns: list[str], figure: Any, axis: Any) -> None:
    """A line for each of these columns."""
    for column in columns:
        axis.step(schedule["env_steps"], schedule[column], linewidth=1.2, where="post", label=column)
    axis.set_ylabel(title)
    axis.legend(fontsize=7, loc="best")
    axis.grid(alpha=0.3)


# A race of agents that keep their values


def _colours(number: int) -> Any:
    return plt.get_cmap("viridis")(np.linspace(0.0, 0.95, number))


def draw_belief(schedule: Columns, figure: Any, axis: Any) -> None:
    """The mean return that is believed of each agent, with its error."""
    agents = agents_of(schedule)
    for (agent, label), colour in zip(agents.items(), _colours(len(agents)), strict=True):
        mean, error = schedule[f"agent/{agent}/mean"], schedule[f"agent/{agent}/error"]
        known = np.where(error > 0, mean, np.nan)  # before two episodes of anyone there is no error
        axis.plot(schedule["env_steps"], known, color=colour, linewidth=1.2, label=label)
        axis.fill_between(schedule["env_steps"], known - error, known + error, color=colour, alpha=0.12, linewidth=0)
    axis.set_ylabel("believed return")
    axis.legend(fontsize=7, loc="best")
    axis.grid(alpha=0.3)


def draw_shares(schedule: Columns, figure: Any, axis: Any) -> None:
    """Stacked areas: the gradient steps of each agent for each env step; dots mark who played."""
    agents = agents_of(schedule)
    ratios = [schedule[f"agent/{agent}/ratio"] for agent in agents]
    axis.stackplot(schedule["env_steps"], ratios, colors=_colours(len(agents)), alpha=0.85)
    below = -0.06 * np.sum(ratios, axis=0).max()
    for agent, colour in zip(agents, _colours(len(agents)), strict=True):
        steps = schedule["env_steps"][schedule.get("sample/0/agent", np.nan) == agent]
        axis.scatter(steps, np.full(len(steps), below), s=5, color=colour)
    axis.margins(x=0)
    axis.set_ylabel("gradient steps\nfor each env step")
