"""The parts of a run, one at a time and with numbers by hand; most agents act at random, so that little is compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht import config, training
from oht.errors import UserError
from oht.learners.own_replays import OwnReplays
from oht.population import Learner
from oht.training import Progress, Setup
from oht.types import NEW, Clock, Episode, Outcome, Proposal
from test_training import EPISODE, with_last_bias

SMALL = {"steps": 120, "start_steps": 25, "eval_episodes": 2, "batch_size": 8, "replay_size": 200, "max_episode": 20}
FOUR: dict[str, Any] = {"method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2, 3, 4)}}  # agents
TWO: dict[str, Any] = {"method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2)}}
Build = Callable[..., Setup]


@pytest.fixture
def build():
    made: list[Setup] = []

    def call(env: Any = FollowObservation, **settings: Any) -> Setup:
        values = {**SMALL, "tensorboard": False, "task": "probe", "algo": "uniform", **settings}
        made.append(training.build(config.resolve(values), env))
        return made[-1]

    yield call
    for setup in made:
        training.close(setup)


def silent(done: int, of: int) -> None:
    pass


def asked(setup: Setup, t: Progress) -> Proposal:
    return setup.tuner.ask(np.random.default_rng(0), t.tuner, Clock(0, 1, 0))[1]


def test_a_new_run(build: Build):
    setup = build(**TWO)
    t = training.start(setup)
    assert t.owed.tolist() == [0.0, 0.0]
    assert [getattr(t, name) for name in training.COUNTERS] == [0, 0, 0, 0]
    assert setup.pool() is setup.pool()
    assert type(setup.learner) is Learner
    assert setup.learner.batch_size == 8
    each = build(method="pbt", population=4, tune={"gamma": oht.Float(0.9, 0.05, 0.5, 0.99)})
    assert type(each.learner) is OwnReplays


def test_stuck_agents_are_replaced_where_there_are_others_unless_the_user_says(build: Build):
    assert [build().unstick, build(**TWO).unstick] == [False, True]
    assert [build(unstick=True).unstick, build(**TWO, unstick=False).unstick] == [True, False]


def test_the_random_start_plays_no_more_episodes_than_it_needs(build: Build):
    """25 steps in episodes of 10, which might take 20: two at once and then one, or one at a time."""
    for settings, steps in ((FOUR, [20, 30]), ({}, [10, 20, 30])):
        setup = build(**settings)
        t, seen = training.start(setup), []
        while t.env_steps < 25:
            t = training.explore_at_random(setup, t)
            seen.append((t.env_steps, t.fresh, int(t.replay.stored)))
        assert seen == [(number,) * 3 for number in steps]


def test_counters_by_hand(build: Build):
    """A gradient step for each four env steps: 30 give 7.5, and 10 more then 0.5 + 2.5."""
    setup = build(replay_ratio=0.25)
    t = training.start(setup)
    while t.env_steps < 25:
        t = training.explore_at_random(setup, t)
    for iteration, updates, owed in ((1, 7, 0.5), (2, 10, 0.0)):
        t, results = training.iterate(setup, t, silent)
        assert (t.iteration, t.updates, t.owed.tolist()) == (iteration, updates, [owed])
        assert (t.env_steps, t.fresh) == (30 + EPISODE * iteration, EPISODE)
        assert results.returns.shape == (1,)


def test_gradient_steps_are_taken_in_whole_updates(build: Build):
    """The first agent is owed 1.5 + 0.5 * 10, of which three updates of two are taken; the second 10."""
    taken = []

    class Noting(Learner):
        def learn(self, key, agents, replay, hyper, updates, report):
            taken.append(updates.tolist())
            return agents, {"q": 1.0}

    setup = build(**TWO)
    setup = setup._replace(algorithm=setup.algorithm._replace(batches=2), learner=Noting(setup.algorithm, 8))
    t = training.start(setup)._replace(owed=np.array([1.5, 0.0]), fresh=10)
    p = asked(setup, t)._replace(ratios=np.array([0.5, 1.0]))
    agents, owed, number, metrics = training.learn(setup, None, t, t.agents, p, silent)
    assert agents is t.agents
    assert (taken, owed.tolist(), number, metrics) == ([[6, 10]], [0.5, 0.0], 16, {"q": 1.0})


def test_the_tuner_gets_other_randomness_at_each_call(build: Build):
    setup, draws = build(**TWO), []

    def noted(function: Any) -> Any:
        return lambda rng, *rest: draws.append(rng.random()) or function(rng, *rest)

    def ask(rng: np.random.Generator, state: Any, clock: Clock) -> tuple[Any, Proposal]:
        state, p = setup.tuner.ask(rng, state, clock)
        return state, p._replace(sources=np.array([NEW, 0]))  # also needs new weights

    calls = {"ask": noted(ask), "tell": noted(setup.tuner.tell), "champion": noted(setup.tuner.champion)}
    changed = setup._replace(tuner=setup.tuner._replace(**calls))
    t = training.explore_at_random(changed, training.start(changed))
    for _ in range(2):
        t, results = training.iterate(changed, t, silent)
        assert results.sources.tolist() == [NEW, 0]
    assert len(draws) == len(set(draws)) == 6


def test_an_agent_that_was_replaced_gets_the_worst_return(build: Build):
    setup = build(**TWO)
    t = training.start(setup)
    p = asked(setup, t)._replace(actors=np.array([1, 0, 1]))
    one = np.ones((2, 1), np.float32)
    episodes = [Episode(one, one[1:], np.array([reward], np.float32), terminal=True) for reward in (1, 2, 3)]
    outcome: Outcome = training.summarise(setup, t.agents, p, episodes, np.array([False, True]))
    assert outcome.returns.tolist() == [-np.inf, 2.0, -np.inf]
    assert outcome.replaced.tolist() == [False, True]


def test_dropped_episodes_are_told_once(build: Build):
    setup = build()
    failures: list[Any] = ["one", "two"]
    setup.eval_pool.dropped.append(failures[0])
    setup.pool().dropped.append(failures[1])
    assert training.take_dropped(setup) == failures
    assert training.take_dropped(setup) == []


def test_closing_opens_no_envs_and_closes_those_that_are_open(build: Build):
    idle, busy = build(), build()
    training.explore_at_random(busy, training.start(busy))
    for setup in (idle, busy):
        training.close(setup)
    assert idle.pool.cache_info().currsize == 0
    for pool in (idle.eval_pool, busy.eval_pool, busy.pool()):
        with pytest.raises(UserError, match="are closed"):
            pool.rollout(lambda t, obs: np.zeros((1, 1)), [0])


def test_a_task_without_an_env_is_refused():
    for task in ("environments:FollowObservation", "dm/cheetah-run", "Pendulum-v1"):
        training.check_env(config.resolve({"task": task}))
    with pytest.raises(UserError, match="Nothing"):
        training.check_env(config.resolve({"task": "environments:Nothing"}))


def test_a_stuck_champion_starts_again_only_before_it_has_played(build: Build):
    setup = build(algo="td3", hidden=(8, 8), unstick=True, replay_ratio=0.0)
    t = with_last_bias(training.explore_at_random(setup, training.start(setup)), 50.0)
    for iteration, replaced in ((1, False), (0, True)):
        _, results = training.iterate(setup, t._replace(iteration=iteration), silent)
        assert (results.health.saturated.tolist(), results.health.replaced.tolist()) == ([True], [replaced])
        assert (results.returns[0] == -np.inf) == replaced
        t = with_last_bias(training.explore_at_random(setup, training.start(setup)), 50.0)  # storing uses a replay up


def test_an_evaluation_does_not_depend_on_the_number_of_envs(build: Build):
    returns = []
    for envs in (2, 5):
        setup = build(algo="td3", hidden=(8, 8), eval_episodes=envs)
        t = training.start(setup)
        assert len(training.evaluate(setup, t)) == envs
        returns.append(training.evaluate(setup, t, seed=1, number=5))
    assert len(set(returns[0])) == 5
    assert returns[0] == pytest.approx(returns[1], abs=1e-5)
