"""Figures of evaluation returns: seeds of one method as a mean with a band, or each seed."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from oht.report.figure_parts import (
    MOST_POINTS,
    STEPS,
    Figure,
    Trace,
    colours_of,
    duration,
    faded,
    layout_of,
    scatter,
    thinned,
    time_unit,
)
from oht.report.rundata import RunData, one_of_each_seed

By = Literal["steps", "time"]
FEWEST_POINTS = 60  # of each line, however many lines there are
ALL_POINTS = 12_000  # of all lines, so that 200 runs are still quick to draw


def returns(chosen: Sequence[RunData], labels: Mapping[str, str], by: By = "steps", each: bool = False) -> list[Figure]:
    """For each task the evaluations over env steps or wall time: a mean over seeds with a band, or each seed."""
    colours = colours_of(labels.values())
    most = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // max(1, len(chosen))))
    figures = []
    for task in dict.fromkeys(run.task for run in chosen):
        members = [run for run in chosen if run.task == task and run.evals]
        axis, unit = _x_axis(members, by)
        groups: dict[str, list[RunData]] = {}
        for run in members:
            groups.setdefault(labels[run.id], []).append(run)
        data: list[Trace] = []
        for label, every in groups.items():
            seeds = every if each else one_of_each_seed(every)
            if len(seeds) > 1 and not each:
                data += _mean_with_band(label, colours[label], seeds, by, unit)
            else:
                data += [_line_of(run, label, colours[label], by, unit, len(seeds) > 1, most) for run in seeds]
        figures.append(
            Figure(task, _returns_caption(groups, each), data, layout_of(axis, {"title": "evaluation return"}))
        )
    return figures


def _returns_caption(groups: Mapping[str, Sequence[RunData]], each: bool) -> str:
    if not groups:
        return "No evaluation yet."
    several = any(len(seeds) > 1 for seeds in groups.values())
    if several and not each:
        return "Lines are means over the seeds that have come this far, bands one standard error of these means."
    if several:
        return "One line for each run; runs of one method have the same colour."
    return "Each point is the mean return of one evaluation."


def _x_axis(members: Sequence[RunData], by: By) -> tuple[dict[str, Any], float]:
    """The axis, and the seconds (or steps) of its unit."""
    if by == "steps":
        return {"title": STEPS}, 1.0
    longest = max((float(run.evals["wall_time"][-1]) for run in members), default=0.0)
    name, unit = time_unit(longest)
    return {"title": f"wall time ({name})"}, unit


def _x_of(run: RunData, by: By, unit: float) -> np.ndarray:
    return run.evals["env_steps" if by == "steps" else "wall_time"] / unit


def _line_of(run: RunData, label: str, colour: str, by: By, unit: float, one_of_many: bool, most: int) -> Trace:
    x, mean, std = _x_of(run, by, unit), run.evals["return_mean"], run.evals["return_std"]
    keep = thinned(len(x), most)
    name = f"{label}, seed {run.seed}" if one_of_many else label
    steps = run.evals["env_steps"]
    words = [
        f"{name}: {mean[i]:,.4g} ± {std[i]:,.3g} over its episodes,<br>at {steps[i]:,.0f} env steps, "
        f"{duration(float(run.evals['wall_time'][i]))}"
        for i in keep
    ]
    mode = "lines+markers" if len(keep) <= 60 else "lines"
    style = {"mode": mode, "line": {"color": colour, "width": 1.5 if one_of_many else 2}, "marker": {"size": 4}}
    return scatter(x[keep], mean[keep], name, words, legendgroup=label, **style)


def _mean_with_band(label: str, colour: str, seeds: Sequence[RunData], by: By, unit: float) -> list[Trace]:
    x, mean, error, count = mean_over_seeds([(_x_of(run, by, unit), run.evals["return_mean"]) for run in seeds])
    where = (lambda v: f"{v:,.0f} env steps") if by == "steps" else (lambda v: duration(v * unit))
    words = [
        f"{label}: {mean[i]:,.4g}" + (f" ± {error[i]:,.3g}" if count[i] > 1 else "") + f", mean of {count[i]} of "
        f"{len(seeds)} seeds,<br>at {where(x[i])}"
        for i in range(len(x))
    ]
    several = count > 1
    low, high = (mean - error)[several], (mean + error)[several]
    band = scatter(np.concatenate([x[several], x[several][::-1]]), np.concatenate([high, low[::-1]]), label, None,
                    mode="lines", fill="toself", fillcolor=faded(colour, 0.18), line={"width": 0},
                    legendgroup=label, showlegend=False)  # fmt: skip
    name = f"{label} ({len(seeds)} seeds)"
    middle = scatter(x, mean, name, words, legendgroup=label, mode="lines", line={"color": colour, "width": 2.5})
    return [band, middle] if several.any() else [middle]


def mean_over_seeds(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """x, mean, standard error of the mean and number of curves, where each curve counts as far as it goes.

    Evaluations of different seeds lie at different steps, so each curve is interpolated.
    """
    ends = np.array(sorted({float(x[-1]) for x, _ in curves}))
    start = max(float(x[0]) for x, _ in curves)
    start = start if start < ends[0] else min(float(x[0]) for x, _ in curves)
    number = min(MOST_POINTS, max(len(x) for x, _ in curves))
    grid = np.unique(np.concatenate([np.linspace(start, ends[-1], max(2, number)), ends]))
    on_grid = np.array([np.where((grid >= x[0]) & (grid <= x[-1]), np.interp(grid, x, y), np.nan) for x, y in curves])
    count = np.isfinite(on_grid).sum(axis=0)
    grid, on_grid, count = grid[count > 0], on_grid[:, count > 0], count[count > 0]
    mean = np.nansum(on_grid, axis=0) / count
    squares = np.nansum((on_grid - mean) ** 2, axis=0)
    return grid, mean, np.sqrt(squares / np.maximum(count - 1, 1) / count), count
