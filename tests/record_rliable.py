"""Records numbers of rliable into tests/data/rliable.json, for test_scores.py to compare ours with.

Run with a Python that has it (version 1.2.0 was used; the project is archived):

    pip install rliable 'pandas<3' && python tests/record_rliable.py
"""
# pyright: reportMissingImports=false

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

DATA = Path(__file__).parent / "data" / "rliable.json"
THRESHOLDS = [-0.2, 0.0, 0.25, 0.5, 0.75, 1.0]
SHAPES = {"three seeds": (3, 3, 13), "one task": (10, 7, 1), "unequal": (5, 9, 4), "odd": (7, 7, 3), "ties": (6, 5, 5)}
REPEATS = 5000
FEW_REPEATS = 1000  # where each costs a call of SciPy for each task

POINTS = {"mean": metrics.aggregate_mean, "median": metrics.aggregate_median, "iqm": metrics.aggregate_iqm}


def drawn(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two methods' scores (runs x tasks) that overlap; with `ties`, rounded until many are equal."""
    runs_x, runs_y, tasks = SHAPES[name]
    rng = np.random.default_rng(len(name))
    level = rng.uniform(0.1, 0.9, tasks)
    x, y = (rng.normal(level + gain, 0.2, (runs, tasks)) for gain, runs in ((0.1, runs_x), (0.0, runs_y)))
    decimals = 1 if name == "ties" else 4
    return x.round(decimals), y.round(decimals)


def points(scores: np.ndarray) -> np.ndarray:
    return np.array([point(scores) for point in POINTS.values()])


def improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.array([metrics.probability_of_improvement(x, y)])


def measured(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    np.random.seed(0)  # noqa: NPY002 (rliable draws from here)
    estimates, intervals = library.get_interval_estimates({"x": x}, points, reps=REPEATS)
    profiles, bands = library.create_performance_profile({"x": x}, THRESHOLDS, reps=REPEATS)
    chances, ends = library.get_interval_estimates({"x, y": (x, y)}, improvement, reps=FEW_REPEATS)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "points": dict(zip(POINTS, estimates["x"].tolist(), strict=True)),
        "intervals": dict(zip(POINTS, intervals["x"].T.tolist(), strict=True)),
        "profile": profiles["x"].tolist(),
        "profile_interval": bands["x"].tolist(),
        "improvement": float(chances["x, y"][0]),
        "improvement_interval": ends["x, y"][:, 0].tolist(),
    }


if __name__ == "__main__":
    cases = {name: measured(*drawn(name)) for name in SHAPES}
    record = {"rliable": version("rliable"), "thresholds": THRESHOLDS, "cases": cases}
    DATA.write_text(json.dumps(record, indent=1) + "\n")
