"""It must help, not only run: where a wrong value cannot learn, OHT-ES finds one that can."""

import numpy as np

import oht
from environments import FollowObservation, HiddenCredit
from oht import training

SMALL = {"hidden": (32, 32), "batch_size": 32, "start_steps": 100, "workers": 0, "tensorboard": False}


def last_evaluation(run: oht.Run) -> float:
    return run.evals[-1]["return_mean"]


# The best return of FollowObservation is 10, and 9.5 is near; actions that know nothing of what is seen get about 6.7.


def test_bad_learning_rates_are_left(tmp_path):
    """Of three learning rates one can learn; equal shares for all three are not enough."""
    settings = {**SMALL, "gamma": 0.0, "steps": 1500, "eval_every": 1500, "eval_episodes": 30}
    tune = {"actor_lr+critic_lr": oht.Choice(1e-6, 1e-5, 3e-3)}
    raced, control = (
        oht.train(FollowObservation, method=method, tune=tune, out=tmp_path / method, **settings)
        for method in ("oht", "random")
    )
    assert last_evaluation(control) < 9.0
    assert last_evaluation(raced) > 9.5
    late = raced.schedule[len(raced.schedule) // 2 :]
    assert np.mean([row["sample/0/agent"] == 2 for row in late]) > 0.6
    assert np.mean([row["agent/2/ratio"] for row in late]) > 1.2
    assert {row["champion/actor_lr"] for row in late} == {3e-3}


def test_eqn_3_climbs_to_a_learning_rate_that_learns(tmp_path):
    """Members fork from the main agent, so that their returns show what their learning rates do."""
    bad = 3e-5
    settings = {**SMALL, "gamma": 0.0, "critic_lr": 1e-2, "steps": 1300, "eval_every": 1300}
    static = oht.train(FollowObservation, actor_lr=bad, out=tmp_path / "static", **settings)
    tuned = oht.train(
        FollowObservation,
        method="oht-lr",
        tune={"actor_lr": oht.LogFloat(bad, 1.0)},
        members="fork",
        search="es",
        es_rate=0.5,
        population=10,
        member_ratio=2.0,
        out=tmp_path / "tuned",
        **settings,
    )
    assert tuned.schedule[-1]["actor_lr/mu"] > np.log10(bad) + 0.8
    assert last_evaluation(static) < 9.0
    assert last_evaluation(tuned) > 9.5


def test_a_wrong_n_cannot_learn_what_it_never_sees(tmp_path):
    """The best return is 1; an action that knows nothing of the observation gets 0 at most.

    With some seeds the first weights are near the best policy by luck, and nothing leads away from them.
    """
    settings = {**SMALL, "steps": 900, "eval_every": 900, "eval_episodes": 1, "seed": 1}
    both = {"method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2)}, "beta": 0, "replay_ratio": 1}
    run = oht.train(HiddenCredit, out=tmp_path / "run", **both, **settings)
    returns = np.array(run.evaluate(60))
    champions, _ = training.evaluation_plan(run.setup, run.progress, 0, 60)
    assert {0, 1} == {*champions}
    assert all(returns[champions == agent].mean() < 0.7 for agent in (0, 1))


def test_the_right_n_is_found(tmp_path):
    """Of 1, 2 and 3 only 3 can learn, and soon only 3 plays."""
    settings = {**SMALL, "steps": 1200, "eval_every": 1200, "eval_episodes": 30}
    run = oht.train(HiddenCredit, method="oht-nstep", beta=0.1, replay_ratio=1, out=tmp_path / "run", **settings)
    shares = np.array([[row[f"n_step/p/{n}"] for n in (1, 2, 3)] for row in run.schedule])
    assert np.allclose(shares[0], 1 / 3)
    assert shares[-1, 2] > 0.8
    assert last_evaluation(run) > 0.85
