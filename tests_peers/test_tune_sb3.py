"""The example against the real Stable-Baselines3: `make peers-test`."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed here; see make peers-test")

MAIN = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "tune_sb3.py"))["main"]
FIRST = 1000  # steps of the random start
EPISODE = 200


def finite(row: dict[str, float]) -> bool:
    return all(map(math.isfinite, row.values()))


def test_oht_leaves_the_bad_learning_rate():
    tuner, score = MAIN(steps=10_000, population=5)
    assert tuner.env_steps == 10_000
    assert len(tuner.schedule) == (10_000 - FIRST) // EPISODE
    assert all(map(finite, tuner.schedule))
    last = tuner.schedule[-1]
    ratios = np.array([[row[f"agent/{j}/ratio"] for j in range(5)] for row in tuner.schedule])
    assert (ratios.sum(axis=1) < 2 + 1e-9).all()
    assert ratios[-1].max() > 2 * ratios[0].max()  # the best have most of the gradient steps
    assert last["champion/learning_rate"] > 5e-5
    assert score > -600  # a policy that does nothing useful gets about -1200


COPYING: dict[str, dict[str, Any]] = {
    "pbt": {"population": 3, "interval": 1, "replay_ratio": 0.05},
    "oht-lr": {"population": 4, "members": "fork", "replay_ratio": 0.1},
}


@pytest.mark.parametrize("method", COPYING)
def test_methods_that_copy_weights(method: str):
    tuner, score = MAIN(steps=3_000, method=method, **COPYING[method])
    assert tuner.finished
    assert all(map(finite, tuner.schedule))
    assert -2000 < score < 0


def test_the_same_seed_gives_the_same_run():
    (one, score), (other, again) = (MAIN(steps=1_600, seed=4, budget=0.5) for _ in range(2))
    assert one.schedule == other.schedule
    assert score == again
