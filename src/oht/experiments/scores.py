"""How good a method is over many tasks: the paper's statistics, and those of Agarwal et al. (2021), who wrote rliable.

`Scores` of a method are arrays, one for each task, with the seeds on the last axis: tasks may have different numbers of
seeds. Axes before the last are kept, so a whole curve (ticks x seeds) or many resamples (repeats x seeds) go through at
once. Equations: docs/scores.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from oht.envs.tasks import TASKS
from oht.errors import UserError

Scores = Sequence[np.ndarray]


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
    return np.mean([_chance(a[..., :, None] - b[..., None, :]) for a, b in zip(x, y, strict=True)], axis=0)


def _chance(difference: np.ndarray) -> np.ndarray:
    return ((np.sign(difference) + 1) / 2).mean(axis=(-2, -1))


def stratified_bootstrap(
    statistic: Callable[..., Any], *methods: Scores, level: float = 0.95, repeats: int = 10_000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of `statistic(*methods)` when the seeds of each task and method are drawn again.

    The tasks stay as they are: the interval tells what other seeds might have given on these very tasks.
    """
    rng = np.random.default_rng(seed)

    def again(task: np.ndarray) -> np.ndarray:
        seeds = task.shape[-1]
        drawn = task[..., rng.integers(seeds, size=(repeats, seeds))]
        return np.moveaxis(drawn, -2, 0)  # repeats first; the ticks of a curve share their draws

    values = statistic(*([again(task) for task in method] for method in methods))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
