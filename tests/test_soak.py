"""The soak: many kills, many inputs, many damaged checkpoints. `make soak` runs it and prints how many of each.

Smaller: OHT_SOAK_KILLS=18 OHT_SOAK_INPUTS=1000 OHT_SOAK_DAMAGES=100; again: OHT_SOAK_SEED=the printed seed.
"""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import oht
import soak
from oht import methods
from soak import Process, contents, newest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Kills

STEPS, EVAL_EVERY = 400, 80
TASKS = {"EnvPool": "gym/half-cheetah", "Gymnasium": "Pendulum-v1"}
SMALL = [
    *("--steps", str(STEPS), "--start-steps", "40", "--eval-every", str(EVAL_EVERY), "--eval-episodes", "2"),
    *("--batch-size", "8", "--hidden", "8,8", "--replay-size", "150", "--max-episode", "10", "--quiet"),
]
POPULATION = ["--population", "4"]
METHODS: dict[str, list[str]] = {
    "static": [],
    "oht": [*POPULATION, "--tune", "n_step=1,2"],
    "random": [*POPULATION, "--tune", "n_step=1,2"],
    "oht-nstep": [],
    "oht-lr": POPULATION,
    "meta-gradient": [],
    "cem-rl": [*POPULATION, "--gradient", "2"],
    "pbt": [*POPULATION, "--interval", "1"],
    "schedule": ["--from", "schedule.csv"],
}
PAIRS = [(method, pool) for method in METHODS for pool in TASKS]
KILLS = -(-soak.size("KILLS", 100) // len(PAIRS))  # of each method in each pool


def test_every_method_is_killed():
    assert set(METHODS) == set(methods.METHODS)


@pytest.mark.parametrize(("method", "pool"), PAIRS)
def test_a_run_that_is_killed_at_random_moments_ends_as_if_it_never_was(method, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schedule.csv").write_text(f"env_steps,champion/actor_lr\n{STEPS // 2},0.001\n{STEPS},0.01\n")
    rng = random.Random(f"{soak.SEED} {method} {pool}")
    # with 0 a checkpoint is written in every iteration; otherwise a resumed run repeats some
    often = ["--checkpoint-every", rng.choice(["0", "0.005"])]
    words = [TASKS[pool], "--method", method, *METHODS[method], *SMALL, *often]
    whole = Path("whole")
    reference = Process.start(whole, STEPS, EVAL_EVERY, [*words, "--out", str(whole)])
    start_up = (whole / "run.json").stat().st_mtime - reference.since
    assert reference.finish() == 0
    kills, runs_killed = Counter(), 0
    moments = soak.moments(rng)
    while kills.total() < KILLS:
        run = Path(f"killed-{runs_killed}")
        runs_killed += 1
        kills += killed(run, words, moments, KILLS - kills.total(), start_up)
        assert contents(run) == contents(whole)
        same_actions(run, whole)
    print(f"\nkilled {kills.total()} times, seed {soak.SEED}: {method}, {pool}: {dict(kills)}, {runs_killed} runs")


def killed(run: Path, words: list[str], moments, most: int, start_up: float) -> Counter:
    """Train, kill and resume until the run is finished; how often it was killed, by the kind of moment."""
    kills = Counter()
    while True:
        again = ["--resume", str(run), "--quiet"] if newest(run) >= 0 else [*words, "--out", str(run), "--overwrite"]
        process = Process.start(run, STEPS, EVAL_EVERY, again)
        if kills.total() == most:
            assert process.finish() == 0
            return kills
        kind, moment = next(moments)
        if not process.kill_when(*moment(process, start_up)):
            return kills
        kills[kind] += 1


def same_actions(one: Path, other: Path) -> None:
    """Both policies act alike, the last one and the best."""
    for best in (False, True):
        loaded = [oht.load(path, best=best) for path in (one, other)]
        obs = np.random.default_rng(0).normal(size=(5, loaded[0].setup.eval_pool.obs)).astype(np.float32)
        np.testing.assert_array_equal(loaded[0].policy(obs), loaded[1].policy(obs))
        for run in loaded:
            run.close()
