"""One picture of all runs below some folders: a panel for each task, the seeds of a method as mean with a band."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from oht import runs
from oht.errors import UserError
from oht.experiments import figures, results
from oht.experiments.results import Curve, Results
from oht.experiments.suites import Pair, Row, Suite

APART = {*runs.NO_METHOD, "task"}  # what does not tell the lines of a panel apart


def compare(folders: Sequence[Path], out: Path) -> list[str]:
    """Draw the evaluations of all runs in and below the folders to a PNG, PDF or SVG file; return notes on others."""
    found = [run for folder in folders for run in _below(folder)]
    curves = {run: results.read(run) for run in dict.fromkeys(found)}
    missing = [str(run) for run, curve in curves.items() if curve is None]
    evaluated = {run: curve for run, curve in curves.items() if curve is not None}
    if not evaluated:
        raise UserError(f"no run in {', '.join(map(str, folders))} has been evaluated yet.")
    suite, found, repeated = _grouped(evaluated)
    figure = figures.draw(suite, found)
    try:
        with rc_context({"pdf.fonttype": 42}):
            figure.savefig(out, dpi=figures.DPI)
    except (OSError, ValueError) as error:
        raise UserError(f"the plot cannot be written to {out}: {error}.") from None
    left_out = {"they have no evaluation yet": missing, "others have their settings and seed": repeated}
    return [f"left out, because {why}: {', '.join(which)}." for why, which in left_out.items() if which]


def _below(folder: Path) -> Iterator[Path]:
    """The run folders in and below a folder."""
    places = runs.below(folder)
    if not places:
        raise UserError(f"{folder} is not a run folder, and there is none below it.")
    yield from places


def _grouped(curves: dict[Path, Curve]) -> tuple[Suite, Results, list[str]]:
    """The runs as if a sweep had trained them, by task, label and seed; and those whose seed is there already."""
    configs = {run: _config(run) for run in curves}
    groups: dict[Pair, dict[int, Curve]] = {}
    of_seed: dict[tuple[str, str, int], list[Path]] = {}
    repeated: list[str] = []
    for task in dict.fromkeys(config["task"] for config in configs.values()):
        own = {run: config for run, config in configs.items() if config["task"] == task}
        for run, label in zip(own, labels(list(own.values())), strict=True):
            of_seed.setdefault((task, label, own[run]["seed"]), []).append(run)
    for (task, label, seed), same in of_seed.items():
        longest, *others = sorted(same, key=lambda run: -curves[run].end)  # the same run twice: a band too narrow
        groups.setdefault((task, label), {})[seed] = curves[longest]
        repeated += map(str, others)
    steps = max(curve.end for curve in curves.values())
    tasks = tuple(dict.fromkeys(task for task, _ in groups))
    methods = {label: {} for _, label in groups}
    most = max(map(len, groups.values()))
    suite = Suite("comparison", "comparison", "curves", steps, most, (Row(tasks, methods),))
    return suite, Results(groups, steps, list(groups)), repeated


def _config(run: Path) -> dict[str, Any]:
    """The settings of a run, those of `tune` under names of their own."""
    runs.check(run)
    try:
        values = tomllib.loads((run / "config.toml").read_text("utf-8"))
        tune = values.pop("tune", {})
        return {
            **values,
            **{f"tune {name}": space for name, space in tune.items()},
            "task": str(values["task"]),
            "seed": int(values["seed"]),
        }
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{run / 'config.toml'} cannot be read: {error}.") from None


def labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The name of each run: its method, and as few settings as tell apart runs with different ones."""
    names = [str(config.get("method", "?")) for config in configs]
    whole = [json.dumps({k: v for k, v in config.items() if k not in APART}, sort_keys=True) for config in configs]
    keys = sorted({key for config in configs for key in config} - APART)
    for key in sorted(keys, key=lambda key: (key != "algo", not key.startswith("tune "), key)):
        for name in set(names):
            members = [i for i, other in enumerate(names) if other == name]
            values = {i: _short(configs[i].get(key)) for i in members}
            if len({whole[i] for i in members}) > 1 and len(set(values.values())) > 1:
                for i in members:
                    names[i] += f", {key} {values[i]}"
    return names


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
