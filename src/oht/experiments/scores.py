"""Scores of a sweep: statistics over tasks, and their summary at one step.

The statistics are the paper's and those of Agarwal et al. (2021), the authors of rliable. Equations: docs/scores.md.
"""

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from oht.envs.tasks import TASKS
from oht.errors import UserError
from oht.experiments.results import Results, left_out, on_grid, returns_at, some, span
from oht.experiments.suites import Pair

MIN_SEEDS = 3  # with fewer, a comparison of methods says nothing
THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # of the performance profile

Scores = Sequence[np.ndarray]  # of a method: an array for each task, with the seeds on its last axis


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


def interval(
    statistic: Callable[..., Any], *methods: Scores, repeats: int = 10_000
) -> tuple[np.ndarray, np.ndarray] | None:
    """The 95 % interval, unless a task has a single run: drawn again it is the same, as if it were known exactly."""
    if any(task.shape[-1] == 1 for method in methods for task in method):
        return None
    return stratified_bootstrap(statistic, *methods, repeats=repeats)


# The summary


class Number(NamedTuple):
    """A statistic of a method: a line of the CSV file."""

    statistic: str
    method: str
    versus: str = ""  # the other method of a probability of improvement
    task: str = ""  # of a return
    threshold: float | None = None  # of a performance profile
    value: float = math.nan  # nan: too few seeds
    low: float | None = None  # of the 95 % interval, which needs two seeds on every task
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
        for name in ("cost", "minutes", "cpu_minutes"):
            values = np.array([on_grid(curve, steps, x) for curve in own if (x := getattr(curve, name)) is not None])
            if (known := values[~np.isnan(values)]).size:
                std = float(deviation(known)) if len(known) > 1 else None
                yield Number(name, label, value=float(np.mean(known)), std=std, seeds=str(len(known)))


def _estimates(statistic: Callable[..., np.ndarray], *methods: Scores) -> list[dict[str, Any]]:
    """The values of a statistic, one or several, with their 95 % intervals."""
    values = np.atleast_1d(statistic(*methods)).tolist()
    ends = interval(statistic, *methods)
    if ends is None:
        return [{"value": value} for value in values]
    low, high = (np.atleast_1d(end).tolist() for end in ends)
    return [{"value": v, "low": a, "high": b} for v, a, b in zip(values, low, high, strict=True)]


def to_csv(summary: Summary) -> str:
    """A line for each number; what a statistic does not have is empty."""
    file = io.StringIO()
    lines = [(summary.steps, *number) for number in summary.numbers if not math.isnan(number.value)]
    csv.writer(file, lineterminator="\n").writerows([("steps", *Number._fields), *lines])
    return file.getvalue()
