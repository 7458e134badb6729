"""Envs that fail now and then: the episode is dropped and repeated from another seed, and the run stays exact."""

import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import environments
import oht
from environments import RaisesNowAndThen
from oht import cli, runs, seeds
from oht.envs.pool import EnvError, open_pool
from oht.errors import UserError
from oht.report.progress import Terminal
from test_pool import PROCESSES, equal, still
from test_training import METHODS, TINY, StopsAfter, same

PATIENCE, LIMIT = 20, 1000


def noise(t: int, obs: np.ndarray) -> np.ndarray:
    """Actions that depend on the time and the row alone."""
    return np.random.default_rng(t).uniform(-1, 1, (4, 1)).astype(np.float32)


@PROCESSES
def test_failed_episodes_are_repeated_and_the_others_stay_as_they_are(workers: int):
    given = [1, 2, 7, 4]  # 1 fails in its third step, 7 in its reset
    pool = open_pool(RaisesNowAndThen, 4, workers=workers, env_errors=PATIENCE)
    healthy = open_pool(environments.FollowObservation, 4)
    found, expected = pool.rollout(noise, given), healthy.rollout(noise, given)
    assert equal(found[1], expected[1])
    assert equal(found[3], expected[3])
    first = {drop.seed: str(drop.error) for drop in pool.dropped[:2]}
    assert "RuntimeError: the wheel came off" in first[1]
    assert "ConnectionError: no answer" in first[7]
    for row, seed in ((0, 1), (2, 7)):
        tries = [seed, *(seeds.another_start(seed, attempt) for attempt in range(1, PATIENCE))]
        attempt = next(i for i, start in enumerate(tries) if start % 4 != 1 and start % 8 != 7)
        assert {drop.seed for drop in pool.dropped} >= set(tries[:attempt])
        (again,) = healthy.rollout(
            lambda t, obs, a=attempt, r=row: noise(a * LIMIT + t, obs)[r : r + 1], [tries[attempt]]
        )
        assert equal(found[row], again)
    pool.close()
    healthy.close()


@PROCESSES
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (environments.Raises, "the wheel came off; this episode had been repeated 2 times already"),
        (partial(environments.NotFinite, "reward"), "not finite at step 3 .*; this episode had been repeated 2 times"),
    ],
)
def test_an_env_that_fails_always_stops_the_run_with_its_own_message(make, sentence: str, workers: int):
    pool = open_pool(make, 3, workers=workers, env_errors=2)
    with pytest.raises(EnvError, match=sentence):
        pool.rollout(still, [4, 5, 6])
    assert len(pool.dropped) == 6
    with pytest.raises(UserError, match="closed"):
        pool.rollout(still, [4])


def test_an_env_that_kills_its_worker_again_loses_these_episodes_only(tmp_path: Path):
    healthy = open_pool(environments.FollowObservation, 3)
    pool = open_pool(partial(environments.Dies, tmp_path / "notes", 9), 3, workers=3, env_errors=1)
    found, expected = pool.rollout(still, [1, 2, 3]), healthy.rollout(still, [1, 2, 3])
    assert [equal(a, b) for a, b in zip(found, expected, strict=True)] == [False, True, True]
    assert [drop.seed for drop in pool.dropped] == [1]
    assert equal(pool.rollout(still, [2])[0], expected[1])
    pool.close()
    healthy.close()


class BrokenAfterItFailed(environments.Probe):
    """Fails in its very first episode, and then in every one until it is made again."""

    failures = 0

    def reward(self, action: np.ndarray) -> float:
        if BrokenAfterItFailed.failures == 0 or self.time == -1:
            BrokenAfterItFailed.failures += 1
            self.length = -1
        if self.length == -1:
            raise RuntimeError("still broken")
        return 1.0


class StaysNan(environments.Probe):
    """The state of its first env becomes NaN in the third step, and would stay so for ever."""

    made = 0

    def __init__(self):
        super().__init__()
        StaysNan.made += 1
        self.state = 0.0

    def observe(self):
        if StaysNan.made == 1 and self.time >= 3:
            self.state = np.nan
        return np.array([self.state], np.float32)


class CannotBeClosed(environments.Raises):
    def close(self):
        raise RuntimeError("not connected")


class Grows(environments.FollowObservation):
    """Its first env gives one number too many in the third step, and would for ever."""

    made = 0

    def __init__(self):
        super().__init__()
        Grows.made += 1
        self.first = Grows.made == 1

    def observe(self):
        obs = super().observe()
        return np.append(obs, obs) if self.first and self.time >= 3 else obs


def test_an_env_whose_observation_grew_is_made_anew():
    pool = open_pool(Grows, 1, workers=0, env_errors=1)
    assert len(pool.rollout(still, [0])) == 1
    assert Grows.made == 2
    pool.close()


def test_an_env_whose_state_is_nan_is_made_anew():
    pool = open_pool(StaysNan, 1, workers=0, env_errors=1)
    assert pool.rollout(still, [0])[0].total == 5
    assert [StaysNan.made, len(pool.dropped)] == [2, 1]
    pool.close()


def test_the_error_is_that_of_the_env_even_if_it_cannot_be_closed(tmp_path):
    with pytest.raises(UserError, match="the wheel came off"):
        oht.train(CannotBeClosed, out=tmp_path / "run", **{**TINY, "start_steps": 1})
    pool = open_pool(CannotBeClosed, 1, workers=0)
    pool.close()


def test_answers_may_be_lists():
    pool = open_pool(environments.AnswersInLists, 1)
    assert pool.rollout(still, [0])[0].total == 5
    pool.close()


def test_an_env_that_failed_is_made_anew():
    pool = open_pool(BrokenAfterItFailed, 1, env_errors=1)
    assert pool.rollout(still, [0])[0].total == 5
    assert BrokenAfterItFailed.failures == 1
    pool.close()


def train(out: Path, **settings) -> oht.Run:
    try:
        return oht.train(RaisesNowAndThen, out=out, **{**TINY, "env_errors": PATIENCE, **settings})
    except oht.api.Interrupted as stop:  # pyright: ignore[reportAttributeAccessIssue]
        return stop.run


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> oht.Run:
    return train(tmp_path_factory.mktemp("whole") / "run")


def errors(run: oht.Run) -> list[tuple]:
    found = [event for event in run.events if event["event"] == "env-error"]
    return [(event["env_steps"], event["iteration"], event["seed"], event["message"]) for event in found]


def test_a_run_goes_on_and_notes_what_failed(whole):
    assert whole.finished
    assert whole.env_errors == len(errors(whole)) > 0
    steps, _, seed, message = errors(whole)[0]
    assert steps > 0
    assert f"of the episode with seed {seed}: " in message
    single = [f"return_{i}" for i in range(1, TINY["eval_episodes"] + 1)]
    assert all(np.isfinite([row[name] for name in single]).all() for row in whole.evals)
    assert f"env_errors = {PATIENCE}" in (whole.path / "config.toml").read_text()


@pytest.mark.parametrize("stop", [2, 5])
def test_a_run_that_was_stopped_drops_the_same_episodes(stop, whole, tmp_path):
    stopped = train(tmp_path / "run", callbacks=[StopsAfter(stop)])
    assert not stopped.finished
    resumed = oht.resume(tmp_path / "run", env=RaisesNowAndThen)
    same(whole, resumed)
    assert errors(resumed) == errors(whole)


def test_workers_drop_the_same_episodes(whole, tmp_path):
    run = train(tmp_path / "run", workers=2)
    run.close()
    same(whole, run)
    assert errors(run) == errors(whole)


def test_a_population_drops_and_resumes(tmp_path):
    settings = METHODS["oht"]
    one = train(tmp_path / "one", **settings)
    train(tmp_path / "other", **settings, callbacks=[StopsAfter(2)])
    other = oht.resume(tmp_path / "other", env=RaisesNowAndThen)
    same(one, other)
    assert errors(one) == errors(other) != []


def test_a_run_that_an_env_stopped_goes_on_with_more_patience(whole, tmp_path, capsys):
    words = [f"--{name.replace('_', '-')}" for name in TINY]
    values = [",".join(map(str, v)) if isinstance(v, tuple) else str(v).lower() for v in TINY.values()]
    given = [word for pair in zip(words, values, strict=True) for word in pair]
    out = str(tmp_path / "run")
    assert cli.main(["train", "environments:RaisesNowAndThen", *given, "--out", out, "--quiet"]) == 2
    first = capsys.readouterr().err
    assert first.count("\n") == 1
    assert "environments:RaisesNowAndThen failed in its" in first
    assert f"(to repeat such episodes: oht train --resume {out} --env-errors 5)." in first
    assert cli.main(["train", "--resume", out, "--quiet"]) == 2  # the same seed, the same failure
    assert capsys.readouterr().err == first
    assert cli.main(["train", "--resume", out, "--quiet", "--env-errors", str(PATIENCE)]) == 0
    run = oht.load(out)
    same(whole, run)
    assert errors(run) == errors(whole)
    with pytest.warns(UserWarning, match="an episode was repeated: environments:RaisesNowAndThen failed"):
        assert len(run.evaluate(20)) == 20


def test_what_is_shown_of_it(whole, tmp_path):
    shown = io.StringIO()
    train(tmp_path / "run", callbacks=[Terminal(Console(file=shown, width=200))])
    lines = shown.getvalue().splitlines()
    assert sum("warning: episode dropped and repeated: " in line for line in lines) == whole.env_errors
    assert any(line.split()[:3] == ["env", "errors", str(whole.env_errors)] for line in lines)


def test_after_too_many_errors_the_state_before_is_kept(tmp_path):
    class Twice(RaisesNowAndThen):
        """Fails always once it has played enough."""

        played = 0

        def reward(self, action: np.ndarray) -> float:
            if self.time == 0:
                Twice.played += 1
            if Twice.played > 12:
                raise RuntimeError("worn out")
            return super().reward(action)

    with pytest.raises(UserError, match="worn out; this episode had been repeated 20 times already"):
        oht.train(Twice, out=tmp_path / "run", **{**TINY, "env_errors": PATIENCE})
    kinds = [event["event"] for event in runs.events(tmp_path / "run")]
    assert kinds[-2:] == ["checkpoint", "failure"]
    assert kinds.count("env-error") < PATIENCE  # those that the resumed run repeats are not noted twice


@pytest.mark.parametrize("wrong", ["-1", "many", "1.5"])
def test_wrong_numbers_are_refused(wrong, capsys):
    assert cli.main(["train", "Pendulum-v1", f"--env-errors={wrong}"]) == 2
    assert "env_errors is" in capsys.readouterr().err
