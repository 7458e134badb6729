"""Figures (PNG, PDF) and tables (Markdown, LaTeX) of a suite, in the paper's layout."""

import io
import math
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from oht import runs
from oht.errors import UserError
from oht.experiments import result_tables, results, scores, suites
from oht.experiments.results import Curve, Results, counted, on_grid, span
from oht.experiments.suites import Suite

COLOURS = {  # of a label in every figure; blue, red and green are those of the paper
    "oht-nstep": "#3d95f5",
    "oht-lr": "#7cc4f7",
    "oht": "#0b3c8c",
    "td3": "#d62728",
    "n1": "#d62728",  # this and the next: the same method as td3
    "static": "#d62728",
    "n2": "#f28e1c",
    "n3": "#b35fb0",
    "n5": "#7a5548",
    "meta-gradient": "#2a9d4a",
    "cem-rl": "#0f9d9d",
    "sac": "#e377a8",
    "pbt": "#9a9a1f",
    "random": "#8a8a8a",
}
SPARE = ("#c2a100", "#6a3fb5", "#00796b", "#a8324a", "#6d8fa8", "#8bc34a", "#d08c60")  # of other labels
BAND = 0.15  # opacity
GREY = "0.3"  # of the legend's entries for all methods
PANELS = 4  # in a line, as in the paper
MAX_TICKS = 200
FEW_TICKS = 10  # fewer are drawn as points
REPEATS = 1000  # of the bootstrap at each tick
TITLE_CHARACTERS, CAPTION_CHARACTERS = 10, 14  # that fit into an inch
LEGEND_WIDTH = 1.9  # inches for an entry
DPI = 300


def make(
    suite: Suite, root: Path, out: Path, at: int | None = None, caption: bool = False
) -> tuple[list[Path], list[str]]:
    """Draws the suite's runs in the folder `root`. Returns the files written to `out`, and notes on what they lack.

    Runs that have not reached `at` env steps are left out; tables then show that step. `caption`: figures have a title
    and a caption; without, the caption is a note.
    """
    found = results.load(root, suite)
    swept = (suites.of_folder(root) or suite).pairs  # with what --set has changed
    suite = suite.mapped(lambda task, label, s: swept[task, label] if (task, label) in found.planned else None)
    if at is not None or suite.layout == "table":  # which shows one step, by default the largest that all have
        found = _as_far_as(found, found.reached if at is None else at)
    if suite.layout == "table":
        returns = results.returns_at(found, found.reached)
        files = _table_files(result_tables.comparison(suite, returns, found.reached, found.notes))
    elif suite.layout == "scores":  # of a policy that does not learn: its last evaluation
        last = {p: np.array([curve.return_mean[-1] for curve in seeds.values()]) for p, seeds in found.curves.items()}
        files = _table_files(result_tables.low_scores(suite, last, found.notes))
    else:
        if suite.layout == "aggregate":
            found = on_common_tasks(found)
        files = _figure_files(draw(suite, found, caption))
        found = found if caption else replace(found, notes=(f"caption: {describe(suite, found)}.", *found.notes))
    with runs.refused(out):
        out.mkdir(parents=True, exist_ok=True)
        for kind, content in files.items():
            runs.write_aside(out / f"{suite.name}.{kind}", content)
    return [out / f"{suite.name}.{kind}" for kind in files], list(found.notes)


def _as_far_as(found: Results, at: int) -> Results:
    """Without the runs that have no evaluation near `at`."""
    curves = {
        pair: {seed: curve for seed, curve in found.curves[pair].items() if not np.isnan(on_grid(curve, at))}
        for pair in results.returns_at(found, at)  # refuses a step that no run has reached
    }
    return replace(found, curves=curves, steps=at, notes=(*found.notes, *results.left_out(found, at)))


def on_common_tasks(found: Results) -> Results:
    """Only the tasks that every method has: statistics over tasks must compare methods on the same ones."""
    common = [task for task in found.tasks if all((task, label) in found.curves for label in found.labels)]
    if not common:
        labels = ", ".join(found.labels)
        raise UserError(f"no task has an evaluated run of each of {labels}, so they cannot be compared.")
    gone = [task for task in found.tasks if task not in common]
    notes = [f"left out, because a method has no evaluated run there: {', '.join(gone)}."] if gone else []
    curves = {pair: seeds for pair, seeds in found.curves.items() if pair[0] in common}
    return replace(found, curves=curves, notes=(*found.notes, *notes))


# Drawing


def draw(suite: Suite, found: Results, caption: bool = False) -> Figure:
    """The figure of a suite with the layout `curves` or `aggregate`, with one legend for all panels below them."""
    figure = _aggregate(suite, found) if suite.layout == "aggregate" else _curves(suite, found)
    handles: dict[str, Line2D | Patch] = {}
    for axis in figure.axes:
        axis.grid(alpha=0.3)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 500k, 10M
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_xlabel("environment steps of all agents", fontsize=9)
        handles |= {str(line.get_label()): line for line in axis.lines}
    entries = {suite.title_of(label): handles[label] for label in suite.labels if label in handles}
    entries[_line_of(suite, found)] = Line2D([], [], color=GREY, linewidth=1.5)
    if _has_bands(suite, found):
        entries[_band_of(suite)] = Patch(color=GREY, alpha=BAND, linewidth=0)
    width = figure.get_figwidth()
    lines = math.ceil(len(entries) / max(1, int(width / LEGEND_WIDTH)))
    columns = math.ceil(len(entries) / lines)  # of about equal length
    title = textwrap.fill(describe(suite, found), int(width * CAPTION_CHARACTERS)) if caption else None
    if caption:
        figure.suptitle(textwrap.fill(suite.title, int(width * TITLE_CHARACTERS)), fontsize=12, parse_math=False)
    figure.legend(
        list(entries.values()),
        list(entries),
        title=title,
        title_fontsize=9,
        fontsize=8,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )
    return figure


def _line_of(suite: Suite, found: Results) -> str:
    """What a line shows."""
    if suite.layout == "aggregate":
        return f"statistic over {counted(len(found.tasks), 'task')}"
    seeds = counted(span(map(len, found.curves.values())), "seed")
    return seeds if seeds == "1 seed" else f"mean over {seeds}"


def _band_of(suite: Suite) -> str:
    return "95 % bootstrap interval" if suite.layout == "aggregate" else "one standard deviation"


def _has_bands(suite: Suite, found: Results) -> bool:
    """A curve over several seeds has one; a statistic over tasks, if its method has several seeds on each of them."""
    enough = all if suite.layout == "aggregate" else any
    several = {pair: len(seeds) > 1 for pair, seeds in found.curves.items()}
    return any(enough(several[pair] for pair in several if pair[1] == label) for label in found.labels)


def describe(suite: Suite, found: Results) -> str:
    """The caption: what is drawn, and how much of what the suite asks for."""

    def part(number: int, planned: int, thing: str) -> str:
        return f"{number:,} of {counted(planned, thing)}" if number < planned else counted(number, thing)

    seeds = counted(span(map(len, found.curves.values())), "seed")
    runs = sum(map(len, found.curves.values()))
    return "; ".join(
        (
            part(len(found.tasks), len(suite.tasks), "task"),
            (seeds if seeds == "1 seed" else f"mean over {seeds}")
            + (f", band: {_band_of(suite)} over seeds" if _has_bands(suite, found) else ""),
            f"{part(runs, len(suite.jobs()), 'run')}, the shortest {part(found.reached, suite.steps, 'env step')}",
            *(sentence.rstrip(".") for sentence in suite.readings(found.labels)),
        )
    )


def _curves(suite: Suite, found: Results) -> Figure:
    """Figures 2 and 3: a panel for each task with the mean over seeds and a band of one standard deviation."""
    rows = [[task for task in row.tasks if task in found.tasks] for row in suite.rows]
    lines = [row[start : start + PANELS] for row in rows for start in range(0, len(row), PANELS)]
    figure, grid = _grid(len(lines), max(map(len, lines)))
    colour = colours(suite.labels)
    for panels, line in zip(grid, lines, strict=True):
        panels[0].set_ylabel("evaluation return", fontsize=9)
        for axis, task in zip(panels, line, strict=False):
            axis.set_title(suite.title_of(task), fontsize=10, parse_math=False)
            for label in found.labels:
                if seeds := found.curves.get((task, label)):
                    ticks = shared_ticks(seeds.values())
                    returns = _on_ticks(seeds, ticks)
                    middle, spread = returns.mean(axis=-1), scores.deviation(returns)
                    _draw(axis, ticks, middle, (middle - spread, middle + spread), label, colour[label])
        for axis in panels[len(line) :]:
            axis.remove()
    return figure


def _aggregate(suite: Suite, found: Results) -> Figure:
    """Figures 1 and 4: mean, median and best ratio of the normalised scores over training."""
    ticks = shared_ticks(curve for seeds in found.curves.values() for curve in seeds.values())
    methods = {
        label: [scores.normalised(task, _on_ticks(found.curves[task, label], ticks)) for task in found.tasks]
        for label in found.labels
    }
    if any(np.isnan(seeds).any() for tasks in methods.values() for seeds in tasks):
        raise UserError(
            f"the shortest run ends at {int(ticks[-1]):,} env steps, where others have no evaluation yet; "
            "leave it out with --at STEPS."
        )
    figure, [[mean, median, ratio]] = _grid(1, 3)
    colour, ratios = colours(suite.labels), scores.best_ratio(methods)
    for label, tasks in methods.items():
        for axis, statistic in ((mean, scores.mean), (median, scores.median)):
            band = scores.interval(statistic, tasks, repeats=REPEATS)
            _draw(axis, ticks, statistic(tasks), band, label, colour[label])
        _draw(ratio, ticks, ratios[label], None, label, colour[label])  # a band would only blur which is best
    for axis, name in ((mean, "Mean"), (median, "Median"), (ratio, "Best ratio")):
        axis.set_title(name, fontsize=10)
    mean.set_ylabel("normalised score", fontsize=9)
    ratio.set_ylim(-0.02, 1.02)
    return figure


def colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each label: a fixed one, or an unused spare one that follows from its name."""
    chosen: dict[str, str] = {}
    for label in labels:
        start = zlib.crc32(label.encode()) % len(SPARE)
        spare = SPARE[start:] + SPARE[:start]
        free = (colour for colour in spare if colour not in chosen.values())
        fixed = COLOURS.get(label)  # a few have the same: names of one method in different suites
        chosen[label] = fixed if fixed and fixed not in chosen.values() else next(free, spare[0])
    return chosen


def shared_ticks(curves: Iterable[Curve]) -> np.ndarray:
    """Env steps within the evaluations of all runs, as many as the run with the fewest evaluations has."""
    steps = [curve.env_steps for curve in curves]
    last = min(s[-1] for s in steps)
    first = min(last, max(s[0] for s in steps))  # a run that was evaluated once may lie off the others
    return np.linspace(first, last, min(MAX_TICKS, *map(len, steps)))


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
        axis.fill_between(ticks, *band, color=colour, alpha=BAND, linewidth=0)


# Files


def _table_files(table: result_tables.Table) -> dict[str, bytes]:
    return {"md": table.markdown().encode(), "tex": table.latex().encode()}


def _figure_files(figure: Figure) -> dict[str, bytes]:
    """The same runs give the same bytes: no dates. Fonts are embedded as TrueType, as publishers ask."""
    files = {kind: io.BytesIO() for kind in ("png", "pdf")}
    with rc_context({"pdf.fonttype": 42}):
        for kind, file in files.items():
            figure.savefig(file, format=kind, dpi=DPI, metadata={"CreationDate": None} if kind == "pdf" else {})
    return {kind: file.getvalue() for kind, file in files.items()}
