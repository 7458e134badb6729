"""Scores of a sweep: evaluations read from the run folders, statistics over tasks, and their summary at one step.

The statistics are the paper's and those of Agarwal et al. (2021), the authors of rliable. Equations: docs/scores.md.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oht import runs
from oht.envs.tasks import TASKS
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.suites import Job, Pair, Suite

SLACK = 1.02  # evaluations later than this multiple of the budget do not count
MAX_NAMED = 4  # tasks that a note names
MIN_SEEDS = 3  # with fewer, a comparison of methods says nothing
THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the performance profile

Scores = Sequence[np.ndarray]  # of a method: an array for each task, with the seeds on its last axis


# Evaluations


class Curve(NamedTuple):
    """The evaluations of one run that count."""

    env_steps: np.ndarray
    return_mean: np.ndarray
    trained: int | None = None  # env steps of the run's last evaluation, if that does not count
    updates: np.ndarray | None = None  # gradient steps of all agents up to then; None: not known
    seconds: np.ndarray | None = None  # since the run began

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
    try:
        rows = runs.rows(path)
        steps = np.array([int(row["env_steps"]) for row in rows], int)
        returns = np.array([row["return_mean"] for row in rows], float)
        seconds = np.array([row["wall_time"] for row in rows], float) if rows and "wall_time" in rows[0] else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a table of evaluations: {error}.") from None
    if not np.isfinite(returns).all() or (np.diff(steps) < 0).any():
        raise UserError(f"{path} is damaged: returns must be finite and env_steps must grow.")
    return Curve(steps, returns, None, _updates(run, steps), seconds) if rows else None


def _updates(run: Path, env_steps: np.ndarray) -> np.ndarray | None:
    """The gradient steps of all agents up to each number of env steps; None if the run has not written them."""
    path = run / "metrics.csv"
    try:
        rows = runs.rows(path)
        known, updates = (np.array([row[name] for row in rows], float) for name in ("env_steps", "updates"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read as a table of iterations: {error}.") from None
    return np.concatenate([[0], updates])[np.searchsorted(known, env_steps, side="right")] if rows else None


def within(curve: Curve, budget: int) -> Curve:
    """Without evaluations far beyond the budget, as long iterations give (cem-rl: 10 episodes), if others are left."""
    counts = curve.env_steps <= SLACK * budget
    if counts.all() or not counts.any():
        return curve
    kept = [None if values is None else values[counts] for values in (curve.updates, curve.seconds)]
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


# Statistics. Axes before the last are kept, so a whole curve (ticks x seeds) or many resamples (repeats x seeds) go
# through at once; tasks may have different numbers of seeds.


def has_scale(task: str) -> bool:
    """Whether a low and a high score are known for the task."""
    return task.partition("@")[0] in TASKS


def normalised(task: str, returns: ArrayLike) -> np.ndarray:
    """Z = (R - L) / (U - L): 0 is a random policy, 1 a high performing one. Delayed rewards do not change L and U."""
    known = TASKS.get(task.partition("@")[0])
    if known is None or known.low is None or known.high is None:
        raise UserError(f"task {task!r} has no low and high score to normalise with; those of `oht tasks` have.")
    return (np.asarray(returns, float) - known.low) / (known.high - known.low)


def task_means(scores: Scores) -> np.ndarray:
    """Z_j = mean over the seeds of task j; tasks on the last axis."""
    return np.stack([np.mean(task, axis=-1) for task in scores], axis=-1)


def deviation(values: np.ndarray) -> np.ndarray:
    """s = sqrt(sum_i (x_i - mean)^2 / (n - 1)) over seeds; nan for a single one."""
    return np.std(values, axis=-1, ddof=1) if values.shape[-1] > 1 else np.full(values.shape[:-1], np.nan)


def mean(scores: Scores) -> np.ndarray:
    """(1/m) sum_j Z_j"""
    return task_means(scores).mean(axis=-1)


def median(scores: Scores) -> np.ndarray:
    """median_j Z_j"""
    return np.median(task_means(scores), axis=-1)


def best_ratio(scores: Mapping[str, Scores]) -> dict[str, np.ndarray]:
    """(1/m) sum_j 1[i in B_j] / |B_j|, where B_j are the methods with the highest Z_j: a tie is shared."""
    means = np.stack([task_means(method) for method in scores.values()])
    best = np.isclose(means, means.max(axis=0), rtol=1e-9, atol=1e-12)  # equal but for the order of a sum
    ratios = np.mean(best / best.sum(axis=0), axis=-1)
    return dict(zip(scores, ratios, strict=True))


def iqm(scores: Scores) -> np.ndarray:
    """The mean of the middle half of all n runs: floor(n/4) of the lowest and of the highest are cut."""
    runs = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = runs.shape[-1] // 4
    return runs[..., cut : runs.shape[-1] - cut].mean(axis=-1)


def performance_profile(scores: Scores, thresholds: ArrayLike) -> np.ndarray:
    """F(tau) = (1/m) sum_j share of the seeds of task j with Z > tau; thresholds on the last axis."""
    tau = np.asarray(thresholds, float)[:, None]
    return np.mean([(task[..., None, :] > tau).mean(axis=-1) for task in scores], axis=0)


def probability_of_improvement(x: Scores, y: Scores) -> np.ndarray:
    """P(X > Y) = (1/m) sum_j U_j / (n_x n_y), with Mann and Whitney's U_j = #(x > y) + #(x = y) / 2."""
    signs = (np.sign(a[..., :, None] - b[..., None, :]) for a, b in zip(x, y, strict=True))
    return np.mean([((sign + 1) / 2).mean(axis=(-2, -1)) for sign in signs], axis=0)


def stratified_bootstrap(
    statistic: Callable[..., Any], *methods: Scores, level: float = 0.95, repeats: int = 10_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of `statistic(*methods)` when the seeds of each task and method are drawn again.

    The tasks stay as they are: the interval shows what other seeds might have given on the same tasks.
    """
    rng = np.random.default_rng(seed)

    def again(task: np.ndarray) -> np.ndarray:
        seeds = task.shape[-1]
        drawn = task[..., rng.integers(seeds, size=(repeats, seeds))]
        return np.moveaxis(drawn, -2, 0)  # repeats first; the ticks of a curve share their draws

    values = statistic(*([again(task) for task in method] for method in methods))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


# The summary


class Number(NamedTuple):
    """A statistic of a method: a line of the CSV file."""

    statistic: str
    method: str
    versus: str = ""  # the other method of a probability of improvement
    task: str = ""  # of a return
    threshold: float | None = None  # of a performance profile
    value: float = math.nan  # nan: too few seeds
    low: float | None = None  # of the 95 % interval, which single seeds do not have
    high: float | None = None
    std: float | None = None  # of a return over seeds, of a cost over runs
    seeds: str = ""  # of each task; of a cost: runs


@dataclass(frozen=True)
class Summary:
    """All statistics at one number of env steps; methods are compared on the tasks that all of them have."""

    steps: int
    labels: Sequence[str]
    tasks: Sequence[str]  # that all methods have
    scaled: Sequence[str]  # those with a low and a high score
    numbers: Sequence[Number]
    notes: Sequence[str]


def summarise(results: Results, at: int | None = None) -> Summary:
    """All statistics at `at` env steps; None: at the largest number that all runs have."""
    steps = results.reached if at is None else at
    returns = returns_at(results, steps)
    labels = [label for label in results.labels if any(label == other for _, other in returns)]
    tasks = [task for task in results.tasks if all((task, label) in returns for label in labels)]
    scaled = [task for task in tasks if has_scale(task)]
    notes = [*results.notes, *left_out(results, steps)]
    if at is None and steps < results.steps:
        most = f"{steps:,} steps, the most that every run has"
        notes.append(f"All are compared at {most}; --at compares later, without the shorter runs.")
    if lacking := [task for task in results.tasks if task not in tasks]:
        notes.append(f"Methods are compared without {some(lacking)}: not every method has a run there.")
    if unknown := [task for task in tasks if task not in scaled]:
        notes.append(f"Normalised scores are without {some(unknown)}: low and high scores are not known.")
    if few := [pair for pair, values in returns.items() if len(values) < MIN_SEEDS]:
        methods = ", ".join(label for label in labels if any(label == other for _, other in few))
        notes.append(
            f"Fewer than three seeds in {len(few)} of {len(returns)} pairs of task and method ({methods}): differences "
            "may be chance, intervals are too narrow, and there is no probability of improvement."
        )
    normal = {label: [normalised(task, returns[task, label]) for task in scaled] for label in labels}
    raw = {label: [returns[task, label] for task in tasks] for label in labels}
    numbers = [
        *(_statistics(normal) if scaled else ()),
        *(_improvements(raw) if tasks else ()),
        *_returns(returns),
        *_costs(results, steps),
    ]
    return Summary(steps, labels, tasks, scaled, numbers, notes)


def _statistics(normal: Mapping[str, Scores]) -> Iterator[Number]:
    ratios = best_ratio(normal)
    profile = partial(performance_profile, thresholds=THRESHOLDS)
    for label, method in normal.items():
        seeds = span(map(len, method))
        for statistic in (mean, median, iqm):
            yield Number(statistic.__name__, label, **_estimates(statistic, method)[0], seeds=seeds)
        yield Number("best_ratio", label, value=float(ratios[label]), seeds=seeds)
        for threshold, share in zip(THRESHOLDS, _estimates(profile, method), strict=True):
            yield Number("profile", label, threshold=threshold, **share, seeds=seeds)


def _improvements(raw: Mapping[str, Scores]) -> Iterator[Number]:
    """Of returns, not of normalised scores: only their order counts. The better method comes first."""
    for x, y in combinations(raw, 2):
        if min(len(task) for method in (raw[x], raw[y]) for task in method) < MIN_SEEDS:
            yield Number("improvement", x, versus=y)
            continue
        if probability_of_improvement(raw[x], raw[y]) < 0.5:
            x, y = y, x
        yield Number("improvement", x, versus=y, **_estimates(probability_of_improvement, raw[x], raw[y])[0])


def _returns(returns: Mapping[Pair, np.ndarray]) -> Iterator[Number]:
    for (task, label), values in returns.items():
        std = float(deviation(values)) if len(values) > 1 else None
        yield Number("return", label, task=task, value=float(np.mean(values)), std=std, seeds=str(len(values)))


def _costs(results: Results, steps: int) -> Iterator[Number]:
    """Of all runs of a method that have both a score and a file that tells the cost."""
    for label in results.labels:
        own = [curve for (_, other), seeds in results.curves.items() if other == label for curve in seeds.values()]
        for name in ("cost", "minutes"):
            values = np.array([on_grid(curve, steps, x) for curve in own if (x := getattr(curve, name)) is not None])
            if (known := values[~np.isnan(values)]).size:
                std = float(deviation(known)) if len(known) > 1 else None
                yield Number(name, label, value=float(np.mean(known)), std=std, seeds=str(len(known)))


def _estimates(statistic: Callable[..., np.ndarray], *methods: Scores) -> list[dict[str, Any]]:
    """The values of a statistic, one or several, with their 95 % intervals."""
    values = np.atleast_1d(statistic(*methods)).tolist()
    if all(len(task) == 1 for method in methods for task in method):
        return [{"value": value} for value in values]
    low, high = (np.atleast_1d(end).tolist() for end in stratified_bootstrap(statistic, *methods))
    return [{"value": v, "low": a, "high": b} for v, a, b in zip(values, low, high, strict=True)]


def to_csv(summary: Summary) -> str:
    """A line for each number; what a statistic does not have is empty."""
    file = io.StringIO()
    lines = [(summary.steps, *number) for number in summary.numbers if not math.isnan(number.value)]
    csv.writer(file, lineterminator="\n").writerows([("steps", *Number._fields), *lines])
    return file.getvalue()
