"""It must help, not only run: where a wrong value cannot learn, OHT-ES finds one that can."""

import numpy as np
import pytest

import oht
from environments import FollowObservation, HiddenCredit

SMALL = {"hidden": (32, 32), "batch_size": 32, "start_steps": 100, "workers": 0, "tensorboard": False}


def last_test(run: oht.Run) -> float:
    return run.evals[-1]["return_mean"]


def test_a_bad_learning_rate_is_left(tmp_path):
    """The best return is 10, and 9.5 is near; actions that know nothing of the observation get less than 7."""
    bad = 1e-5
    settings = {**SMALL, "gamma": 0.0, "steps": 5200, "eval_every": 5200}
    static = oht.train(FollowObservation, actor_lr=bad, critic_lr=bad, out=tmp_path / "static", **settings)
    tuned = oht.train(
        FollowObservation,
        method="oht-lr",
        tune={"actor_lr": oht.LogFloat(bad, 1.0), "critic_lr": oht.LogFloat(bad, 1.0)},
        es_rate=1.0,
        population=10,
        at_once=10,
        together=True,
        life=1,
        episodes=4,
        member_ratio=1.0,
        out=tmp_path / "tuned",
        **settings,
    )
    assert last_test(static) < 7.5
    assert last_test(tuned) > 9.5
    used = {name: max(row[f"champion/{name}"] for row in tuned.schedule) for name in ("actor_lr", "critic_lr")}
    assert min(used.values()) > 5 * bad


@pytest.mark.parametrize("n_step", [1, 2])
def test_a_wrong_n_cannot_learn_what_it_never_sees(tmp_path, n_step):
    """The best return is 1; an action that knows nothing of the observation gets 0 at most."""
    settings = {**SMALL, "steps": 900, "eval_every": 900, "eval_episodes": 30}
    assert last_test(oht.train(HiddenCredit, n_step=n_step, out=tmp_path / "run", **settings)) < 0.7


def test_the_right_n_is_found(tmp_path):
    """Of 1, 2 and 3 only 3 can learn, and soon only 3 plays."""
    settings = {**SMALL, "steps": 1200, "eval_every": 1200, "eval_episodes": 30}
    run = oht.train(HiddenCredit, method="oht-nstep", beta=0.1, replay_ratio=1, out=tmp_path / "run", **settings)
    shares = np.array([[row[f"n_step/p/{n}"] for n in (1, 2, 3)] for row in run.schedule])
    assert np.allclose(shares[0], 1 / 3)
    assert shares[-1, 2] > 0.8
    assert last_test(run) > 0.85
