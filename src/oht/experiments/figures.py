"""What a suite has found, in the paper's layout: figures as PNG and PDF, tables as Markdown and LaTeX."""

import io
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from oht import runs
from oht.errors import UserError
from oht.experiments import results, scores, tables
from oht.experiments.results import Curve, Pair, Results, on_grid
from oht.experiments.scores import Scores
from oht.experiments.suites import Suite
from oht.experiments.tables import Table, counted, seeds_of

COLOURS = {  # of a method in every figure; the paper names the blue, the red and the green
    "oht-nstep": "#0a5fd6",
    "oht-lr": "#1f9bea",
    "oht": "#0b3c8c",
    "td3": "#d62728",
    "n1": "#d62728",  # TD3 by another name
    "n2": "#f28e1c",
    "n3": "#b35fb0",
    "n5": "#7a5548",
    "meta-gradient": "#2a9d4a",
    "cem-rl": "#0f9d9d",
    "sac": "#e377a8",
    "pbt": "#9a9a1f",
    "random": "#8a8a8a",
}
SPARE = ("#444444", "#c2a100", "#6a3fb5", "#00796b", "#a8324a", "#6d8fa8", "#8bc34a", "#d08c60")  # of other labels
ABREAST = 4  # panels in a line, as in the paper
MOST_TICKS = 200
FEW_TICKS = 10  # fewer are drawn as points
TITLE_SIGNS, CAPTION_SIGNS = 10, 14  # that fit into an inch
LEGEND_WIDTH = 1.5  # inches for a label
REPEATS = 1000  # of the bootstrap at each tick
NUMBERS = EngFormatter(sep="")  # 500k, 10M


def make(suite: Suite, root: Path, out: Path, at: int | None = None) -> tuple[list[Path], Sequence[str]]:
    """The files written to `out` from the suite's runs in `root`, and in sentences what is missing in them.

    Runs that have not come as far as `at` env steps are left out; tables then tell of that step.
    """
    found = results.load(root, suite)
    if at is not None or suite.layout == "table":  # which tells of one step, by default the largest that all have
        found = _as_far_as(found, found.reached if at is None else at)
    if suite.layout == "aggregate":
        found = _on_common_tasks(found)
    made = LAYOUTS[suite.layout](suite, found)
    contents = _table_files(made) if isinstance(made, Table) else _figure_files(made)
    with runs.refused(out):
        out.mkdir(parents=True, exist_ok=True)
        files = {out / f"{suite.name}.{kind}": content for kind, content in contents.items()}
        for path, content in files.items():
            runs.write_aside(path, content)
    return list(files), found.notes


def _as_far_as(found: Results, at: int) -> Results:
    curves = {
        pair: {seed: curve for seed, curve in found.curves[pair].items() if not np.isnan(on_grid(curve, at))}
        for pair in results.table(found, at)  # refuses a step that no run has come to
    }
    return _only(curves, found, results.left_out(found, at), steps=at)


def _on_common_tasks(found: Results) -> Results:
    """Statistics over tasks compare methods on the same ones."""
    common = [task for task in found.tasks if all((task, label) in found.curves for label in found.labels)]
    if not common:
        raise UserError(f"no task has a tested run of each of {', '.join(found.labels)}, so they cannot be compared.")
    gone = [task for task in found.tasks if task not in common]
    notes = [f"left out, because a method has no tested run there: {', '.join(gone)}."] if gone else []
    return _only({pair: seeds for pair, seeds in found.curves.items() if pair[0] in common}, found, notes)


def _only(curves: Mapping[Pair, Mapping[int, Curve]], found: Results, notes: Sequence[str], **changes: Any) -> Results:
    """Some of what was found, and a word about the rest."""
    return replace(
        found,
        curves=curves,
        tasks=tuple(task for task in found.tasks if any(task == t for t, _ in curves)),
        labels=tuple(label for label in found.labels if any(label == k for _, k in curves)),
        notes=(*found.notes, *notes),
        **changes,
    )


# Tables 1 and 2


def _table(suite: Suite, found: Results) -> Table:
    return tables.comparison(suite, results.table(found), found.reached, found.notes)


def _scores(suite: Suite, found: Results) -> Table:
    """Of policies that do not learn: the last test, whenever it was."""
    last = {pair: np.array([curve.return_mean[-1] for curve in seeds.values()]) for pair, seeds in found.curves.items()}
    return tables.low_scores(suite, last, found.notes)


# Figures 2 and 3: a panel for each task


def _curves(suite: Suite, found: Results) -> Figure:
    """The mean over seeds with a band of one standard deviation."""
    lines = [line for row in suite.rows for line in _lines([task for task in row.tasks if task in found.tasks])]
    figure, grid = _grid(len(lines), max(map(len, lines)))
    colour = colours(suite.labels)
    for panels, line in zip(grid, lines, strict=True):
        panels[0].set_ylabel("return of a test")
        for axis, task in zip(panels, line, strict=False):
            _name(axis, task)
            for label in found.labels:
                if seeds := found.curves.get((task, label)):
                    ticks = shared_ticks(seeds.values())
                    returns = _on_ticks(seeds, ticks)
                    middle, spread = returns.mean(axis=-1), scores.deviation(returns)
                    _draw(axis, ticks, middle, (middle - spread, middle + spread), label, colour[label])
        for axis in panels[len(line) :]:
            axis.remove()
    _finish(figure, suite, found, band="one standard deviation")
    return figure


def _lines(tasks: Sequence[str]) -> list[Sequence[str]]:
    return [tasks[start : start + ABREAST] for start in range(0, len(tasks), ABREAST)]


# Figures 1 and 4: statistics over all tasks


def _aggregate(suite: Suite, found: Results) -> Figure:
    """Mean, median and best ratio of the normalised scores over training."""
    ticks = shared_ticks(curve for seeds in found.curves.values() for curve in seeds.values())
    methods = {
        label: [scores.normalised(task, _on_ticks(found.curves[task, label], ticks)) for task in found.tasks]
        for label in found.labels
    }
    if any(np.isnan(seeds).any() for tasks in methods.values() for seeds in tasks):
        raise UserError(
            f"the shortest run ends at {int(ticks[-1]):,} env steps, where others have no test yet; "
            "leave it out with --at STEPS."
        )
    figure, [[mean, median, ratio]] = _grid(1, 3)
    colour, ratios = colours(suite.labels), scores.best_ratio(methods)
    for label, tasks in methods.items():
        for axis, statistic in ((mean, scores.mean), (median, scores.median)):
            _draw(axis, ticks, statistic(tasks), interval(statistic, tasks), label, colour[label])
        _draw(ratio, ticks, ratios[label], None, label, colour[label])  # other seeds only blur who is best
    for axis, name in ((mean, "mean"), (median, "median"), (ratio, "best ratio")):
        _name(axis, name)
    mean.set_ylabel("normalised score")
    ratio.set_ylim(-0.02, 1.02)
    _finish(figure, suite, found, band="95 % of a bootstrap over seeds")
    return figure


def interval(statistic: Callable[[Scores], np.ndarray], tasks: Scores) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of a statistic over tasks at each tick, by drawing the seeds of each task again."""
    return scores.stratified_bootstrap(statistic, tasks, repeats=REPEATS)


# Drawing


def colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label: a fixed one, or a spare one that follows from its name, while there are any."""
    chosen: dict[str, str] = {}
    for label in labels:
        start = zlib.crc32(label.encode()) % len(SPARE)
        spare = SPARE[start:] + SPARE[:start]
        free = (colour for colour in spare if colour not in chosen.values())
        chosen[label] = COLOURS.get(label) or next(free, spare[0])
    return chosen


def shared_ticks(curves: Iterable[Curve]) -> np.ndarray:
    """Env steps that all runs have been tested at, as many as the run with the fewest tests has."""
    steps = [curve.env_steps for curve in curves]
    last = min(s[-1] for s in steps)
    first = min(last, max(s[0] for s in steps))  # of a run that was tested once, the test is a little off the others'
    return np.linspace(first, last, min(MOST_TICKS, *map(len, steps)))


def _on_ticks(seeds: Mapping[int, Curve], ticks: np.ndarray) -> np.ndarray:
    """(ticks, seeds)"""
    return np.stack([on_grid(curve, ticks) for curve in seeds.values()], axis=-1)


def _grid(rows: int, columns: int) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(0.5 + 3.0 * columns, 1.2 + 2.4 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _draw(
    axis: Axes,
    ticks: np.ndarray,
    middle: np.ndarray,
    band: tuple[np.ndarray, np.ndarray] | None,
    label: str,
    colour: str,
) -> None:
    marker = "o" if len(ticks) < FEW_TICKS else ""
    axis.plot(ticks, middle, color=colour, linewidth=1.5, marker=marker, markersize=3, label=label)
    if band:
        axis.fill_between(ticks, *band, color=colour, alpha=0.15, linewidth=0)


def _name(axis: Axes, name: str) -> None:
    axis.set_title(name, fontsize=10, parse_math=False)


def _finish(figure: Figure, suite: Suite, found: Results, band: str) -> None:
    """Title, caption, and one legend for all panels, outside of them."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        axis.grid(alpha=0.3)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(NUMBERS)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_xlabel("env steps of all agents", fontsize=8)
        drawn, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    order = [label for label in suite.labels if label in handles]
    wide = figure.get_figwidth()
    figure.suptitle(textwrap.fill(suite.title, int(wide * TITLE_SIGNS)), fontsize=12, parse_math=False)
    figure.legend(
        [handles[label] for label in order],
        order,
        title=textwrap.fill(_caption(suite, found, band), int(wide * CAPTION_SIGNS)),
        title_fontsize=9,
        loc="outside lower center",
        ncols=int(wide / LEGEND_WIDTH),
        frameon=False,
    )


def _caption(suite: Suite, found: Results, band: str) -> str:
    """What is drawn, of how much that the suite asks for."""
    seeds = seeds_of(map(len, found.curves.values()))
    ends = [int(curve.env_steps[-1]) for seeds in found.curves.values() for curve in seeds.values()]
    return "; ".join(
        (
            _of(len(found.tasks), len(suite.tasks), "task"),
            seeds if seeds == "1 seed" else f"mean over {seeds}, band: {band}",
            f"{_of(len(ends), len(suite.jobs()), 'run')}, the shortest {_of(min(ends), suite.steps, 'env step')}",
        )
    )


def _of(number: int, planned: int, thing: str) -> str:
    """12 of 13 tasks, or 13 tasks."""
    return f"{number:,} of {counted(planned, thing)}" if number < planned else counted(number, thing)


# Files


def _table_files(table: Table) -> dict[str, bytes]:
    return {"md": table.markdown().encode(), "tex": table.latex().encode()}


def _figure_files(figure: Figure) -> dict[str, bytes]:
    undated: dict[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}}  # the same runs, the same bytes
    files = {kind: io.BytesIO() for kind in undated}
    for kind, file in files.items():
        figure.savefig(file, format=kind, dpi=150, metadata=undated[kind])
    return {kind: file.getvalue() for kind, file in files.items()}


LAYOUTS: Mapping[str, Callable[[Suite, Results], Figure | Table]] = {
    "aggregate": _aggregate,
    "curves": _curves,
    "table": _table,
    "scores": _scores,
}
