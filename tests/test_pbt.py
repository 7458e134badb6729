"""PBT: who copies whom, how values move, and that each agent lives from its own episodes."""

from typing import Any

import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht.errors import UserError
from oht.spaces import Choice, Float, Int, LogFloat, Space
from oht.tuners import pbt
from oht.types import Clock, Outcome

HYPER = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.99, "n_step": 1.0}
SPACE = {
    "actor_lr": LogFloat(1e-3, 0.5, 1e-5, 1e-2),
    "gamma": Float(0.99, 0.01, 0.9, 1.0),
    "n_step": Int(3, 1, 1, 4),
    "critic_lr": Choice(1e-2, 1e-4, 1e-3),
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_truncation_replaces_the_worst_by_the_best():
    fitness = np.array([5.0, -np.inf, 9.0, 1.0, 8.0, 4.0, 3.0, 2.0])
    for seed in range(20):
        parents = pbt.truncation(rng(seed), fitness, 0.25)
        kept = [0, 2, 4, 5, 6, 7]
        np.testing.assert_array_equal(parents[kept], kept)
        assert {parents[1], parents[3]} <= {2, 4}
    assert {pbt.truncation(rng(seed), fitness, 0.25)[1] for seed in range(20)} == {2, 4}


@pytest.mark.parametrize(("number", "quantile", "copies"), [(2, 0.0, 1), (3, 0.5, 1), (10, 0.2, 2), (10, 0.25, 2)])
def test_how_many_copy(number, quantile, copies):
    parents = pbt.truncation(rng(), np.arange(number, dtype=float), quantile)
    assert (parents != np.arange(number)).sum() == copies


def test_values_move_by_a_factor_or_to_a_neighbour():
    space = Space(SPACE, HYPER)
    moved = {
        name: set(np.round(pbt.explored(rng(), space, name, np.full(50, value), 0.0), 9))
        for name, value in {"actor_lr": 1e-3, "n_step": 2.0, "critic_lr": 1e-3}.items()
    }
    assert moved == {"actor_lr": {0.0008, 0.0012}, "n_step": {1.0, 3.0}, "critic_lr": {1e-4, 1e-2}}


def test_choices_move_to_a_neighbour_also_at_the_ends():
    space = Space(SPACE, HYPER)
    for value, moved in ((1e-4, {1e-4, 1e-3}), (1e-3, {1e-4, 1e-2}), (1e-2, {1e-3, 1e-2})):
        assert set(pbt.explored(rng(), space, "critic_lr", np.full(50, value), 0.0)) == moved


def test_values_never_leave_their_bounds():
    space = Space(SPACE, HYPER)
    low, high = space.extremes()
    for name in SPACE:
        values = np.array([low[name], high[name]] * 10)
        for i in range(50):
            values = pbt.explored(rng(i), space, name, values, 0.1)
            assert ((low[name] <= values) & (values <= high[name])).all()
    assert set(pbt.explored(rng(), space, "actor_lr", np.full(50, 1e-2), 0.0)) == {0.8 * 1e-2, 1e-2}


def test_resampling_draws_from_the_whole_space():
    space = Space(SPACE, HYPER)
    drawn = pbt.explored(rng(), space, "actor_lr", np.full(4000, 1e-3), 1.0)
    logs = np.log10(drawn)
    assert logs.mean() == pytest.approx(-3.5, abs=0.05)  # log-uniform over 1e-5 .. 1e-2
    assert logs.std() == pytest.approx(3 / np.sqrt(12), abs=0.05)
    some = pbt.explored(rng(), space, "critic_lr", np.full(4000, 1e-4), 0.25)
    assert (some == 1e-2).mean() == pytest.approx(0.25 / 3, abs=0.02)  # no neighbour of 1e-4: only drawn


def test_whole_numbers_are_drawn_equally_often():
    values = pbt.draw(rng(), Space({"n_step": Int(low=1, high=5)}, {"n_step": 1.0}), 5000)["n_step"]
    for whole in range(1, 6):
        assert (values == whole).mean() == pytest.approx(0.2, abs=0.02)


def test_copies_take_weights_and_record_along_and_only_at_the_interval():
    tuner = pbt.make(pbt.Pbt(population=4, interval=2, resample=0.0), {"actor_lr": SPACE["actor_lr"]}, HYPER)
    everyone, nobody = np.arange(4), np.zeros(4, bool)

    def turn(state: Any, iteration: int, *returns: float) -> tuple[Any, Any]:
        state, proposal = tuner.ask(rng(), state, Clock(0, 1, iteration))
        return tuner.tell(rng(), state, proposal, Outcome(np.array(returns), nobody))[0], proposal

    start = tuner.init(rng())
    first, proposal = turn(start, 0, 4.0, 2.0, 3.0, 9.0)
    np.testing.assert_array_equal(proposal.actors, everyone)
    np.testing.assert_allclose(proposal.ratios, 0.25)
    np.testing.assert_array_equal(proposal.sources, everyone)
    assert len(set(proposal.starts)) == 4
    assert tuner.champion(rng(), first) == 3
    second, proposal = turn(first, 1, 4.0, 2.0, 30.0, 0.0)
    np.testing.assert_array_equal(proposal.sources, everyone)
    assert tuner.champion(rng(), second) == 2  # the copy of it is yet to be made
    before, after = start.values["actor_lr"], second.values["actor_lr"]
    np.testing.assert_array_equal(after[[0, 2, 3]], before[[0, 2, 3]])
    assert after[1] / before[2] in (pytest.approx(0.8), pytest.approx(1.2))
    np.testing.assert_array_equal(second.returns[1], [3.0, 30.0])
    third, proposal = turn(second, 2, 4.0, 2.0, 30.0, 0.0)
    np.testing.assert_array_equal(proposal.sources, [0, 2, 2, 3])  # means 4, 2, 16.5, 4.5: the second copies the third
    np.testing.assert_array_equal(proposal.hyper["actor_lr"], after)
    _, proposal = turn(third, 3, 0.0, 0.0, 0.0, 0.0)
    np.testing.assert_array_equal(proposal.sources, everyone)  # once


def test_a_return_of_zero_counts_and_one_that_is_not_finite_is_the_worst():
    tuner = pbt.make(pbt.Pbt(population=4, interval=1, replay_ratio=0.7), {"actor_lr": SPACE["actor_lr"]}, HYPER)
    state = tuner.init(rng())
    for iteration, bad in enumerate((np.nan, np.inf, -np.inf)):
        state, proposal = tuner.ask(rng(), state, Clock(0, 1, iteration))
        np.testing.assert_array_equal(proposal.ratios, 0.7)
        np.testing.assert_array_equal(proposal.starts, 4 * iteration + np.arange(4))
        np.testing.assert_array_equal(proposal.hyper["gamma"], 0.99)
        returns = np.array([-5.0, bad, 0.0, -9.0])
        state, _ = tuner.tell(rng(), state, proposal, Outcome(returns, np.zeros(4, bool)))
        np.testing.assert_array_equal(state.parents, [0, 2, 2, 3])
        assert tuner.champion(rng(), state) == 2


def test_the_first_copies_are_made_after_a_whole_interval():
    tuner = pbt.make(pbt.Pbt(population=2, interval=3), {"actor_lr": SPACE["actor_lr"]}, HYPER)
    state, sources = tuner.init(rng()), []
    for iteration in range(8):
        state, proposal = tuner.ask(rng(), state, Clock(0, 1, iteration))
        sources.append(proposal.sources.tolist())
        returns = np.array([float(iteration), 10.0 * iteration])
        state, _ = tuner.tell(rng(), state, proposal, Outcome(returns, np.zeros(2, bool)))
    assert sources == 3 * [[0, 1]] + [[1, 1]] + 2 * [[0, 1]] + [[1, 1]] + [[0, 1]]
    np.testing.assert_array_equal(state.returns, [[6, 7, 50], [60, 70, 50]])  # the last three; a copy has its parent's


def test_the_row_tells_the_population_by_hand():
    tuner = pbt.make(pbt.Pbt(population=4, interval=2), SPACE, HYPER)
    values = {
        "actor_lr": np.array([1e-5, 1e-4, 1e-3, 1e-2]),
        "gamma": np.array([0.9, 0.9, 0.98, 0.98]),
        "n_step": np.array([1.0, 2.0, 2.0, 3.0]),
        "critic_lr": np.array([1e-2, 1e-4, 1e-2, 1e-2]),
    }
    state = tuner.init(rng())._replace(
        values=values, returns=np.array([[1.0, 2.0], [5.0, 0.0], [4.0, 3.0], [6.0, -9.0]])
    )
    state, proposal = tuner.ask(rng(), state, Clock(0, 1, 2))
    _, row = tuner.tell(rng(), state, proposal, Outcome(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4, bool)))
    means = {"actor_lr/mu": -3.5, "gamma/mu": 0.94, "n_step/mu": 2.0}
    deviations = {"actor_lr/sigma": 1.25**0.5, "gamma/sigma": 0.04, "n_step/sigma": 0.5**0.5}
    shares = {"critic_lr/p/0.01": 0.75, "critic_lr/p/0.0001": 0.25, "critic_lr/p/0.001": 0.0}
    champion = {"champion/actor_lr": 1e-3, "champion/gamma": 0.98, "champion/n_step": 2.0, "champion/critic_lr": 1e-2}
    samples = {
        f"sample/{i}/{name}": value
        for i in range(4)
        for name, value in {"agent": i, **{name: values[name][i] for name in SPACE}, "return": i + 1.0}.items()
    }
    assert row == pytest.approx({**means, **deviations, **shares, **champion, **samples})


TINY: dict[str, Any] = {
    "method": "pbt",
    "population": 4,
    "start_steps": 20,
    "eval_every": 100_000,
    "eval_episodes": 4,
    "batch_size": 16,
    "hidden": (16, 16),
    "max_episode": 20,
    "replay_size": 2000,
    "tensorboard": False,
}


@pytest.mark.parametrize("share", [False, True])
def test_each_agent_lives_from_its_own_episodes_unless_shared(share, tmp_path):
    run = oht.train(FollowObservation, out=tmp_path / "run", steps=100, share_replay=share, **TINY)
    replay = run.progress.replay
    assert run.progress.env_steps == 20 + 2 * 4 * 10  # the random start, then two episodes of each of the four
    stored = np.asarray(replay.stored)
    np.testing.assert_array_equal(stored, 100 if share else [40, 40, 40, 40])  # the random start is everyone's
    if not share:
        obs = np.asarray(replay.obs)
        assert obs.shape == (4, 500, 1)
        np.testing.assert_array_equal(obs[0, :20], obs[3, :20])
        assert (obs[0, 22:32] != obs[3, 22:32]).all()


def test_the_population_ends_where_learning_works(tmp_path):
    """Most of six decades of learning rates teach the actor nothing in this time."""
    settings: dict[str, Any] = TINY | {
        "population": 6,
        "interval": 2,
        "resample": 0.0,
        "quantile": 0.5,
        "replay_ratio": 1.0,
    }
    run = oht.train(
        FollowObservation,
        out=tmp_path / "run",
        steps=1000,
        tune={"actor_lr": LogFloat(1e-4, 0.5, 1e-8, 1e-2)},
        critic_lr=1e-2,
        **settings,
    )
    first = [run.schedule[0][f"sample/{i}/actor_lr"] for i in range(6)]
    last = [run.schedule[-1][f"sample/{i}/actor_lr"] for i in range(6)]
    assert min(first) < 1e-6
    assert min(last) > 1e-4
    assert np.mean(run.evaluate(10)) > 9.0  # the best is 10, an untrained actor gets about 6.7


def test_what_it_cannot_do(tmp_path):
    with pytest.raises(UserError, match="each of 4 agents 15 places"):
        oht.train(FollowObservation, out=tmp_path / "run", steps=100, **{**TINY, "replay_size": 60})
    with pytest.raises(UserError, match="between its bounds"):
        pbt.make(pbt.Pbt(), {"slope": Float(1.0, 0.5)}, {**HYPER, "slope": 1.0})
    with pytest.raises(UserError, match="nothing to tune"):
        pbt.make(pbt.Pbt(), {}, HYPER)
