"""The evaluations of a sweep's runs: which of them count at which step, and notes on runs that are not there."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oht import runs
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.suites import Job, Pair, Suite

SLACK = 1.02  # evaluations later than this multiple of the budget do not count
MAX_NAMED = 4  # tasks that a note names


class Curve(NamedTuple):
    """The evaluations of one run that count."""

    env_steps: np.ndarray
    return_mean: np.ndarray
    trained: int | None = None  # env steps of the run's last evaluation, if that does not count
    updates: np.ndarray | None = None  # gradient steps of all agents up to then; None: not known
    seconds: np.ndarray | None = None  # since the run began, by the clock
    cpu_seconds: np.ndarray | None = None

    @property
    def end(self) -> int:
        return self.trained or int(self.env_steps[-1])

    @property
    def cost(self) -> np.ndarray | None:
        """Gradient steps of all agents for each env step."""
        return None if self.updates is None else self.updates / self.env_steps

    @property
    def minutes(self) -> np.ndarray | None:
        return None if self.seconds is None else self.seconds / 60

    @property
    def cpu_minutes(self) -> np.ndarray | None:
        return None if self.cpu_seconds is None else self.cpu_seconds / 60


@dataclass(frozen=True)
class Results:
    """The evaluations of all runs. Runs without evaluations are left out and named in `notes`."""

    curves: Mapping[Pair, Mapping[int, Curve]]  # by task and label, then by seed; none is empty
    steps: int  # the budget of each run
    planned: Sequence[Pair]  # what was asked for, in the suite's order
    notes: tuple[str, ...] = ()  # sentences on missing, shorter and longer runs

    @property
    def tasks(self) -> list[str]:
        """Tasks with an evaluated run, in the suite's order."""
        return list(dict.fromkeys(task for task, _ in self.planned if any(task == t for t, _ in self.curves)))

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for _, label in self.planned if any(label == k for _, k in self.curves)))

    @property
    def reached(self) -> int:
        """The largest number of steps that all runs have, at most the budget."""
        return min(self.steps, *(curve.end for seeds in self.curves.values() for curve in seeds.values()))


def load(root: Path, suite: Suite | None = None) -> Results:
    """The evaluations of the runs in the folder of a sweep: those of `suite`, or all.

    The sweep has stored what it was asked to run: nothing else is expected, and its budget counts. Without that file,
    all of `suite` is expected.
    """
    plan = suites.of_folder(root) or suite
    if plan is None:
        raise UserError(_nothing(root, suite))
    planned = [pair for pair in (suite or plan).pairs if pair in plan.pairs]
    curves: dict[Pair, dict[int, Curve]] = {}
    missing, short, beyond = [], [], []
    for pair in planned:
        for seed in _seeds(root, *pair, plan.seeds):
            curve = read(Job(*pair, seed, {}).path(root))
            if curve is None:
                missing.append((pair, f"s{seed}"))
                continue
            curve = curves.setdefault(pair, {})[seed] = within(curve, plan.steps)
            if curve.trained or curve.end < plan.steps:
                (beyond if curve.trained else short).append((pair, f"s{seed} at {curve.end:,}"))
    if not curves:
        raise UserError(_nothing(root, suite))
    notes = [
        *_notes("without an evaluation yet", missing),
        *_notes(f"not yet at {plan.steps:,} steps", short),
        *_notes(f"beyond {plan.steps:,} steps, where the last evaluation within the budget counts", beyond),
    ]
    return Results(curves, plan.steps, planned, tuple(notes))


def read(run: Path) -> Curve | None:
    """The evaluations of a run folder; None if there are none yet."""
    path = run / "evals.csv"
    table = _table(path, "env_steps", "return_mean")
    if not table:
        return None
    steps, returns = table["env_steps"], table["return_mean"]
    if not np.isfinite([steps, returns]).all() or (np.diff(steps) < 0).any():
        raise UserError(f"{path} is damaged: returns must be finite and env_steps must grow.")
    spent = (table.get(name) for name in ("wall_time", "cpu_time"))  # which runs of older versions do not have
    return Curve(steps.astype(int), returns, None, _updates(run, steps), *spent)


def _table(path: Path, *needed: str) -> runs.Columns:
    """The columns of a table, among them these; an empty dict where there is no row."""
    table = runs.columns(path)
    for name in needed if table else ():
        if name not in table:
            raise UserError(f"{path} cannot be read: it has no column {name}.")
    return table


def _updates(run: Path, env_steps: np.ndarray) -> np.ndarray | None:
    """The gradient steps of all agents up to each number of env steps; None if the run has not written them."""
    table = _table(run / "metrics.csv", "env_steps", "updates")
    if not table:
        return None
    return np.concatenate([[0], table["updates"]])[np.searchsorted(table["env_steps"], env_steps, side="right")]


def within(curve: Curve, budget: int) -> Curve:
    """Without evaluations far beyond the budget, as long iterations give (cem-rl: 10 episodes), if others are left."""
    counts = curve.env_steps <= SLACK * budget
    if counts.all() or not counts.any():
        return curve
    kept = [None if values is None else values[counts] for values in (curve.updates, curve.seconds, curve.cpu_seconds)]
    return Curve(curve.env_steps[counts], curve.return_mean[counts], curve.end, *kept)


def on_grid(curve: Curve, grid: ArrayLike, values: np.ndarray | None = None) -> np.ndarray:
    """The evaluation nearest to each tick: its return, or its `values`.

    It is nan where the start of the run is nearer, and after its end.
    """
    ticks = np.asarray(grid, float)
    steps = np.concatenate([[0], curve.env_steps])
    known = np.concatenate([[np.nan], curve.return_mean if values is None else values])
    middles = (steps[1:] + steps[:-1]) / 2
    return np.where(ticks > curve.end, np.nan, known[np.searchsorted(middles, ticks)])


def returns_at(results: Results, at: int) -> dict[Pair, np.ndarray]:
    """The returns over seeds at a number of steps; runs without an evaluation near it are left out."""
    found: dict[Pair, np.ndarray] = {}
    for pair, seeds in results.curves.items():
        returns = np.concatenate([on_grid(curve, [at]) for curve in seeds.values()])
        if (known := returns[~np.isnan(returns)]).size:
            found[pair] = known
    if not found:
        ends = [curve.env_steps[[0, -1]] for seeds in results.curves.values() for curve in seeds.values()]
        between = f"from {np.min(ends):,} to {np.max(ends):,}"
        raise UserError(f"no run has an evaluation near {at:,} steps; evaluations go {between}.")
    return found


def left_out(results: Results, at: int) -> list[str]:
    """Notes on the runs that `returns_at` leaves out."""
    gone = [
        (pair, f"s{seed}")
        for pair, seeds in results.curves.items()
        for seed, curve in seeds.items()
        if np.isnan(on_grid(curve, at))
    ]
    return _notes(f"left out, having no evaluation near {at:,} steps", gone)


def _seeds(root: Path, task: str, label: str, planned: int) -> list[int]:
    """The planned seeds and any others on the disk."""
    folder = Job(task, label, 0, {}).path(root).parent
    there = (re.fullmatch(r"s(\d+)", path.name) for path in folder.glob("s*"))
    return sorted({*range(planned), *(int(match[1]) for match in there if match)})


def _notes(what: str, where: Iterable[tuple[Pair, str]]) -> list[str]:
    """A note for each label, as in n1: 2 runs not yet at 500 steps: dm/walker-run (s1 at 10, s2 at 20)."""
    by_label: dict[str, dict[str, list[str]]] = {}
    for (task, label), run in where:
        by_label.setdefault(label, {}).setdefault(task, []).append(run)
    return [
        f"{label}: {counted(sum(map(len, by_task.values())), 'run')} {what}: "
        + some([f"{task} ({', '.join(seeds)})" for task, seeds in by_task.items()], " tasks")
        + "."
        for label, by_task in by_label.items()
    ]


def _nothing(root: Path, suite: Suite | None) -> str:
    if not root.is_dir():
        return f"{root} is not a folder; give the one that `oht sweep` wrote to."
    if (root / runs.FACTS).exists():
        return f"{root} is a single run; give the folder of a sweep, or look at the run with `oht plot {root}`."
    of = f" of the suite {suite.name}" if suite else ""
    return f"{root} has no {suites.FILE} or no evaluated runs{of}; `oht sweep` writes both."


# Words


def some(names: Sequence[str], kind: str = "") -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names if more <= 0 else [*names[:MAX_NAMED], f"and {more} more{kind}"])


def counted(number: int | str, thing: str) -> str:
    """1 task, 2,000 tasks, 2-3 tasks."""
    words = number if isinstance(number, str) else f"{number:,}"
    return f"{words} {thing}" if words == "1" else f"{words} {thing}s"


def span(numbers: Iterable[int]) -> str:
    """3, or 1-3 where they differ."""
    least, *_, most = sorted([*numbers] * 2)
    return str(least) if least == most else f"{least}-{most}"
