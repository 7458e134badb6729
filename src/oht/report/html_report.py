"""The report of a run, or of all runs below a folder: one HTML file with pictures, numbers, commands and configs.

It holds everything it needs, plotly.js included, and so can be sent to anyone who has a browser.
"""

import json
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from oht import runs
from oht.errors import UserError
from oht.report import return_pictures, rundata, runnames, tuning_pictures
from oht.report.figure_parts import Figure, duration
from oht.report.rundata import Evaluation, RunData, one_of_each_seed
from oht.report.watch import WEB, plotly_js

MOST_DETAILS = 24  # runs with pictures of their own; of more, only the first seed of each method has them


def write_report(path: Path, out: Path | None = None) -> Path:
    """Write the report of a run folder, or of a folder with runs below it; by default to report.html in it."""
    out = path / "report.html" if out is None else out
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file in it.")
    text = report(path)
    with runs.refused(out):
        runs.write_aside(out, text)
    return out


def report(path: Path) -> str:
    """The whole file."""
    plotly = plotly_js().decode("utf-8")
    folder = rundata.Folder(path)
    found = folder.runs()
    if not found:
        why = " ".join(folder.problems) or f"there is no run below {path}; `oht train` makes one."
        raise UserError(why)
    labels = runnames.labels(found)
    detailed = with_details(found, labels)
    pictures, problems = {}, list(folder.problems)
    for run in detailed:
        try:
            pictures[run.id] = _json(tuning_pictures.tuning(run))
        except UserError as error:  # a damaged file: the other runs are still worth a report
            pictures[run.id] = []
            problems.append(str(error))
    parts = {
        "title": escape(f"oht report: {path.resolve().name}"),
        "style": (WEB / "style.css").read_text("utf-8"),
        "head": _head(path, found, problems),
        "numbers": _numbers(found, labels),
        "details": _details(found, detailed, labels),
        "data": _for_script({"returns": _variants(found, labels), "runs": pictures}),
        "plotly": plotly.replace("</script", "<\\/script"),
        "draw": (WEB / "draw.js").read_text("utf-8") + (WEB / "report.js").read_text("utf-8"),
    }
    page = (WEB / "report.html").read_text("utf-8")
    before, *pieces = page.split("{{")
    return before + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces))


def with_details(found: Sequence[RunData], labels: Mapping[str, str]) -> list[RunData]:
    """The runs that have pictures of their own."""
    if len(found) <= MOST_DETAILS:
        return list(found)
    first: dict[tuple[str, str], RunData] = {}
    for run in sorted(found, key=lambda run: run.seed):
        first.setdefault((run.task, labels[run.id]), run)
    return list(first.values())


def _variants(found: Sequence[RunData], labels: Mapping[str, str]) -> dict[str, Any]:
    """The figures of returns for each choice that the reader has."""
    ways = product(("steps", "time"), ("mean", "each"))
    return {f"{by}-{seeds}": _json(return_pictures.returns(found, labels, by, seeds == "each")) for by, seeds in ways}


def _json(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    return [figure.as_json() for figure in figures]


def _for_script(data: Any) -> str:
    """JSON in which nothing can end the script that it is in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


# The parts of the page


def _head(path: Path, found: Sequence[RunData], problems: Sequence[str]) -> str:
    states = [f"{number} {state}" for state in rundata.STATES if (number := sum(run.state == state for run in found))]
    many = "1 run" if len(found) == 1 else f"{len(found)} runs"
    words = f"{many} ({', '.join(states)}), written on {time.strftime('%Y-%m-%d at %H:%M')}"
    notes = "".join(f'<p class="note">{escape(problem)}</p>' for problem in problems)
    title = f"<h1>oht report<small>{escape(path.resolve().name)}</small></h1>"
    return f'<header>{title}<span id="status">{words}</span>{notes}</header>'


def _numbers(found: Sequence[RunData], labels: Mapping[str, str]) -> str:
    """A table of methods where there are several seeds, and one of runs."""
    groups: dict[tuple[str, str], list[RunData]] = {}
    for run in found:
        groups.setdefault((run.task, labels[run.id]), []).append(run)
    tables = []
    if any(len(members) > 1 for members in groups.values()):
        head = ("method", "task", "seeds", "final evaluation", "best evaluation", "cost", "env steps", "wall time")
        seeds = {pair: one_of_each_seed(members) for pair, members in groups.items()}
        rows = [[label, task, str(len(own)), *_group_numbers(own)] for (task, label), own in seeds.items()]
        tables.append(_table(head, rows, numeric=range(2, 8)))
        tables.append('<p class="note">Means over the seeds ± one standard error.</p>')
    head = ("method", "task", "seed", "final evaluation", "best evaluation", "cost", "env steps", "wall time", "state")
    rows = [[labels[run.id], run.task, str(run.seed), *_run_numbers(run), run.state] for run in found]
    tables.append(_table(head, rows, numeric=range(2, 8)))
    note = (
        "An evaluation is the mean return of the champion over its episodes, ± their standard deviation. "
        "Cost: gradient steps of all agents for each env step."
    )
    inside = "\n".join([*tables, f'<p class="note">{note}</p>'])
    return f'<section><div class="bar"><h2>Numbers</h2></div><div class="stack">{inside}</div></section>'


def _run_numbers(run: RunData) -> list[str]:
    cost = "–" if run.cost is None else f"{run.cost:.2f}"
    best = _evaluation(run.best) + (f" at {run.best.env_steps:,}" if run.best else "")
    return [_evaluation(run.last), best, cost, f"{run.env_steps:,}", duration(run.wall_time)]


def _evaluation(found: Evaluation | None) -> str:
    return "–" if found is None else f"{found.mean:,.1f} ± {found.std:,.1f}"


def _group_numbers(members: Sequence[RunData]) -> list[str]:
    final = [run.last.mean for run in members if run.last]
    best = [run.best.mean for run in members if run.best]
    costs = [run.cost for run in members if run.cost is not None]
    steps, wall = (np.mean([getattr(run, name) for run in members]) for name in ("env_steps", "wall_time"))
    cost = f"{np.mean(costs):.2f}" if costs else "–"
    return [_mean(final), _mean(best), cost, f"{steps:,.0f}", duration(float(wall))]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:,.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):,.1f}{error}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Container[int] = ()) -> str:
    """`numeric` columns are right-aligned."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = ["number" if i in numeric else "" for i in range(len(cells))]
        shown = (f'<{tag} class="{kind}">{escape(c)}</{tag}>' for c, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="scroll free"><table><thead>{line("th", head)}</thead><tbody>{body}</tbody></table></div>'


def _details(found: Sequence[RunData], detailed: Sequence[RunData], labels: Mapping[str, str]) -> str:
    """A part for each run: pictures, command, versions, config."""
    drawn = {run.id for run in detailed}
    parts = "\n".join(_detail(run, labels[run.id], run.id in drawn, len(found) == 1) for run in found)
    note = "Only the first seed of each method has pictures here; the command and config of every run are."
    note = f'<p class="note">{note}</p>' if len(drawn) < len(found) else ""
    title = "The run" if len(found) == 1 else "Each run"
    return f'<section><div class="bar"><h2>{title}</h2></div>{note}{parts}</section>'


def _detail(run: RunData, label: str, drawn: bool, opened: bool) -> str:
    figures = f'<div class="figures" data-run="{run.id}"></div>' if drawn else ""
    versions = ", ".join(f"{name} {version}" for name, version in runnames.versions(run).items())
    started = run.facts.get("started", "")
    pairs = ((escape(name), escape(value)) for name, value in runnames.flat(run.config).items())
    settings = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in pairs)
    return f"""<details{" open" if opened else ""}><summary>{escape(f"{label}, seed {run.seed}, {run.task}")}
<span class="second">{escape(run.name)}, <span class="state {run.state}">{run.state}</span></span></summary>
<p class="note">{escape(tuning_pictures.tuning_note(run))}</p>{figures}
<h3>Command</h3><pre>{escape(runnames.command(run))}</pre>
<h3>Started and versions</h3><p class="note">{escape(f"{started}; {versions}")}</p>
<h3>Config</h3><dl class="settings">{settings}</dl></details>"""
