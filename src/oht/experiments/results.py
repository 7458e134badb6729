"""What a sweep has measured so far: the tests of its runs, read from their files.

Tests are made when an iteration ends, so a little after the step they were due at, and each method's iterations have a
length of their own. So "at 100,000 steps" means for every run: its test nearest to 100,000 steps.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oht import runs
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.suites import Job, Suite

MOST_TOLD = 4  # places that a note names before it says "and so on"

Pair = tuple[str, str]  # task, label


class Curve(NamedTuple):
    """The tests of one run."""

    env_steps: np.ndarray
    return_mean: np.ndarray


@dataclass(frozen=True)
class Results:
    """The tests of all runs; what has none yet is left out and told in `notes`."""

    curves: Mapping[Pair, Mapping[int, Curve]]  # by task and label, then by seed; none is empty
    steps: int | None  # the budget of each run, if a suite tells it
    tasks: tuple[str, ...]  # those with a tested run, in the suite's order
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()  # runs that are missing or shorter than the budget, in sentences

    @property
    def reached(self) -> int:
        """The largest budget that all have: scores at it compare like with like."""
        shortest = min(int(curve.env_steps[-1]) for seeds in self.curves.values() for curve in seeds.values())
        return min(shortest, self.steps or shortest)


def load(root: Path, suite: Suite | None = None) -> Results:
    """The runs in the folder of a sweep: those of `suite`, or else all.

    How many steps and seeds there should be is what the sweep wrote down, if it did.
    """
    plan = suites.load(root / suites.FILE) if (root / suites.FILE).exists() else None
    budget, wanted = plan or suite, suite or plan
    pairs = list(wanted.pairs) if wanted else _found(root)
    curves: dict[Pair, dict[int, Curve]] = {}
    missing: list[tuple[Pair, str]] = []
    short: list[tuple[Pair, str]] = []
    for task, label in pairs:
        for seed in _seeds(root, task, label, budget.seeds if budget else 0):
            curve = read(Job(task, label, seed, {}).path(root))
            if curve is None:
                missing.append(((task, label), f"s{seed}"))
                continue
            curves.setdefault((task, label), {})[seed] = curve
            if budget and curve.env_steps[-1] < budget.steps:
                short.append(((task, label), f"s{seed} at {curve.env_steps[-1]:,}"))
    if not curves:
        raise UserError(_nothing(root, suite))
    notes = _notes("without a test yet", missing)
    if budget:
        notes += _notes(f"not yet at {budget.steps:,} steps", short)
    return Results(
        curves,
        steps=budget.steps if budget else None,
        tasks=tuple(dict.fromkeys(task for task, _ in pairs if any(task == t for t, _ in curves))),
        labels=tuple(dict.fromkeys(label for _, label in pairs if any(label == k for _, k in curves))),
        notes=tuple(notes),
    )


def read(run: Path) -> Curve | None:
    """The tests of a run folder; None if there are none yet."""
    path = run / "evals.csv"
    try:
        rows = runs.rows(path)
        steps = np.array([int(row["env_steps"]) for row in rows], int)
        returns = np.array([row["return_mean"] for row in rows], float)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a table of tests: {error}.") from None
    if not np.isfinite(returns).all() or (np.diff(steps) < 0).any():
        raise UserError(f"{path} is damaged: returns must be finite and env_steps must grow.")
    return Curve(steps, returns) if rows else None


def on_grid(curve: Curve, grid: ArrayLike) -> np.ndarray:
    """The test nearest to each tick; nan where that would be the start of the run, and after its last test."""
    ticks = np.asarray(grid, float)
    steps = np.concatenate([[0], curve.env_steps])
    returns = np.concatenate([[np.nan], curve.return_mean])
    middles = (steps[1:] + steps[:-1]) / 2
    return np.where(ticks > steps[-1], np.nan, returns[np.searchsorted(middles, ticks)])


def table(results: Results, at: int | None = None) -> dict[Pair, np.ndarray]:
    """The returns over seeds at a number of steps, by default the largest that all have; runs without are left out."""
    at = results.reached if at is None else at
    found: dict[Pair, np.ndarray] = {}
    for pair, seeds in results.curves.items():
        returns = np.concatenate([on_grid(curve, [at]) for curve in seeds.values()])
        if (known := returns[~np.isnan(returns)]).size:
            found[pair] = known
    if not found:
        ends = [curve.env_steps[[0, -1]] for seeds in results.curves.values() for curve in seeds.values()]
        raise UserError(f"no run has a test near {at:,} steps; tests go from {np.min(ends):,} to {np.max(ends):,}.")
    return found


def left_out(results: Results, at: int) -> list[str]:
    """The runs that `table` leaves out, in sentences."""
    gone = [
        (pair, f"s{seed}")
        for pair, seeds in results.curves.items()
        for seed, curve in seeds.items()
        if np.isnan(on_grid(curve, at))
    ]
    return _notes(f"left out, having no test near {at:,} steps", gone)


def _found(root: Path) -> list[Pair]:
    """Tasks and labels of a folder without a suite; the runs themselves tell their task."""
    pairs: dict[Pair, None] = {}
    for config in sorted(root.glob("*/*/s*/config.toml")):
        try:
            task = tomllib.loads(config.read_text("utf-8"))["task"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{config} cannot be read as the settings of a run: {error}.") from None
        pairs[str(task), config.parent.parent.name] = None
    return list(pairs)


def _seeds(root: Path, task: str, label: str, planned: int) -> list[int]:
    """The planned ones and any others that are there."""
    folder = Job(task, label, 0, {}).path(root).parent
    there = (re.fullmatch(r"s(\d+)", path.name) for path in folder.glob("s*"))
    return sorted({*range(planned), *(int(match[1]) for match in there if match)})


def _notes(what: str, where: Iterable[tuple[Pair, str]]) -> list[str]:
    """For each label, as in n1: 3 runs without a test yet: dm/walker-run (s1, s2), gym/ant (s0)."""
    by_label: dict[str, dict[str, list[str]]] = {}
    for (task, label), run in where:
        by_label.setdefault(label, {}).setdefault(task, []).append(run)
    notes = []
    for label, by_task in by_label.items():
        count = sum(map(len, by_task.values()))
        places = [f"{task} ({', '.join(told)})" for task, told in by_task.items()]
        if len(places) > MOST_TOLD:
            places[MOST_TOLD:] = [f"and {len(places) - MOST_TOLD} more tasks"]
        notes.append(f"{label}: {count} {'run' if count == 1 else 'runs'} {what}: {', '.join(places)}.")
    return notes


def _nothing(root: Path, suite: Suite | None) -> str:
    if not root.is_dir():
        return f"{root} is not a folder; give the one that `oht sweep` wrote to."
    if (root / runs.FACTS).exists():
        return f"{root} is a single run; give the folder of a sweep, or look at the run with `oht plot {root}`."
    of = f" of the suite {suite.name}" if suite else ""
    return f"{root} has no tested runs{of}; `oht sweep` writes them as {root}/TASK/METHOD/s0."
