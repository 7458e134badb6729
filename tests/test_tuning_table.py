"""The table of `benchmarks/tuning.py`: scores beside a reference that is itself a few runs."""

import runpy
from pathlib import Path

import numpy as np
import pytest

TUNING = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "tuning.py"))
TASK, LATE = "dm/cheetah-run", "dm/cheetah-run@delay5"


def found(**scores: dict[tuple[str, str], list[float]]):
    """Runs with these scores, by situation, then by task and method."""
    return {
        (task, situation, method, seed): TUNING["Result"](score, score, 1.0, 10.0, np.array([score]))
        for situation, methods in scores.items()
        for (task, method), values in methods.items()
        for seed, score in enumerate(values)
    }


def test_the_reference_is_the_better_constant_in_the_mean():
    runs = found(
        a={(TASK, "static"): [100, 300]},
        e={(LATE, "static, n = 3"): [100, 500], (LATE, "static, n = 5"): [250, 250]},
    )
    assert TUNING["reference"](runs, TASK, "b") == 200
    assert TUNING["reference"](runs, LATE, "e") == 300
    del runs[LATE, "e", "static, n = 5", 0], runs[LATE, "e", "static, n = 5", 1]
    assert TUNING["reference"](runs, LATE, "e") is None
    assert TUNING["reference"](runs, "dm/walker-walk", "a") is None


def test_an_interval_knows_that_the_reference_is_a_few_runs():
    """Runs that are all 200 beside a reference of 100 and 300: only the reference is uncertain, by 1/2 to 3/2."""
    runs = found(a={(TASK, "static"): [100, 300], (TASK, "oht"): [200, 200]})
    a = TUNING["aggregate"](runs, "oht", "a")
    assert (a.cells, a.iqm, a.worst) == (1, 1.0, 1.0)
    assert a.interval == pytest.approx((200 / 300, 200 / 100))
    own = TUNING["aggregate"](runs, "static", "a")  # the same runs above and below the line
    assert (own.iqm, own.interval) == (1.0, (1.0, 1.0))
    assert TUNING["aggregate"](runs, "oht", "b") is None


def test_a_single_run_has_no_interval():
    runs = found(a={(TASK, "static"): [100, 300], (TASK, "oht"): [150]})
    assert TUNING["aggregate"](runs, "oht", "a").interval is None
    assert (
        "| the default | oht | 1 | 0.75 | 0.75 (a, `dm/cheetah-run`) | 1.00 |" in TUNING["summary"](runs).splitlines()
    )
