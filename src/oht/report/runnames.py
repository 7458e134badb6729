"""What a page calls a run and says of it in words: its method, its settings beside those of others, its origin."""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from oht.report.rundata import RunData
from oht.runs import NO_METHOD

MOST_IN_LABEL = 3  # other settings that differ which a label names


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Every setting as text; what is tuned as `tune NAME`."""
    settings = {name: text_of(value) for name, value in config.items() if name != "tune"}
    return settings | {f"tune {name}": text_of(space) for name, space in dict(config.get("tune", {})).items()}


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(text_of, value)) if isinstance(value, list) else str(value)


class Line(NamedTuple):
    """A setting, or a version, and what each run has; "" where it has none."""

    name: str
    values: tuple[str, ...]
    differs: bool


def side_by_side(chosen: Sequence[RunData]) -> list[Line]:
    """The settings of some runs, then their commands and versions."""
    lines = []
    for tables in ([flat(run.config) for run in chosen], [origin(run) for run in chosen]):
        for name in dict.fromkeys(name for table in tables for name in table):
            values = tuple(table.get(name, "") for table in tables)
            lines.append(Line(name, values, len(set(values)) > 1))
    return lines


def origin(run: RunData) -> dict[str, str]:
    """Where a run comes from: its command, when it started, and the versions."""
    return {"command": command(run), "started": str(run.facts.get("started", "")), **versions(run)}


def versions(run: RunData) -> dict[str, str]:
    return {"Python": str(run.facts.get("python", "")), **{name: str(v) for name, v in run.facts["packages"].items()}}


def command(run: RunData) -> str:
    return shlex.join(map(str, run.facts.get("command", [])))


def labels(all_runs: Iterable[RunData]) -> dict[str, str]:
    """A name for the method of each run, by the run's id; runs that differ in their seed only have the same.

    It is the method and, where runs of one task and method have different settings, the settings that differ.
    """
    kinds: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in all_runs:
        settings = {name: value for name, value in flat(run.config).items() if name not in NO_METHOD}
        kinds.setdefault((run.task, run.method), {}).setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    named: dict[str, str] = {}
    for (_, method), groups in kinds.items():
        settings = [flat(members[0].config) for members in groups.values()]
        names = dict.fromkeys(name for each in settings for name in each if name not in NO_METHOD)
        varied = [name for name in names if len({each.get(name) for each in settings}) > 1]
        used: dict[str, int] = {}
        for each, members in zip(settings, groups.values(), strict=True):
            parts = [f"{name} {each[name]}" for name in varied[:MOST_IN_LABEL] if name in each]
            label = ", ".join([method, *parts])
            used[label] = used.get(label, 0) + 1
            label += f" ({used[label]})" if used[label] > 1 else ""
            named |= {run.id: label for run in members}
    return named


def summary(run: RunData, label: str) -> dict[str, Any]:
    """A row of the table of runs, as JSON can hold it."""
    return {
        "id": run.id,
        "name": run.name,
        "task": run.task,
        "method": run.method,
        "label": label,
        "algo": run.config.get("algo", ""),
        "seed": run.seed,
        "state": run.state,
        "reason": run.reason,
        "progress": run.progress,
        "env_steps": run.env_steps,
        "steps": run.steps,
        "speed": run.speed,
        "eta": run.eta,
        "wall_time": run.wall_time,
        "cost": run.cost,
        "last": finite(run.last.mean) if run.last else None,
        "best": finite(run.best.mean) if run.best else None,
        "best_at": run.best.env_steps if run.best else None,
        "started": run.facts.get("started", ""),
    }


def finite(value: float) -> float | None:
    """JSON knows neither nan nor infinity."""
    return value if math.isfinite(value) else None
