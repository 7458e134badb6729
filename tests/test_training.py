"""Runs as a whole: the same seed gives the same run, and a run that stopped goes on as if it had not."""

import json
import math
import os
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

import oht
from clocks import without_clocks
from environments import FollowObservation, Probe, TwoStepCredit
from oht import api, config, runs, training
from oht import replay as ring
from oht.api import Interrupted
from oht.callbacks import Callback
from oht.errors import UserError
from oht.runs import checkpoints
from oht.training import Progress, Setup
from oht.types import Clock

TINY: dict[str, Any] = {
    "steps": 120,
    "start_steps": 30,
    "eval_every": 40,
    "eval_episodes": 3,
    "batch_size": 8,
    "hidden": (8, 8),
    "replay_size": 100,
    "max_episode": 20,
    "tensorboard": False,
}
EPISODE = 10  # steps of FollowObservation
METHODS: dict[str, dict[str, Any]] = {
    "static": {},
    "oht-nstep": {"window": 2},
    "oht-lr": {"population": 4},
    "oht": {"tune": {"n_step": oht.Choice(1, 2), "gamma": oht.Float(0.9, 0.05, 0.5, 0.99)}, "population": 4},
    "random": {},
    "meta-gradient": {},
    "cem-rl": {"population": 4, "gradient": 2},
    "pbt": {"population": 4, "interval": 1, "start_steps": 20},
    "schedule": {},
}


def tiny(out: Path, method: str = "static", **settings) -> oht.Run:
    """A short run, or as much of it as was trained before a signal."""
    if method == "schedule":
        settings["source"] = str(out.with_suffix(".csv"))
        Path(settings["source"]).write_text("env_steps,champion/actor_lr\n60,0.001\n120,0.01\n")
    try:
        return oht.train(FollowObservation, method=method, out=out, **{**TINY, **METHODS[method], **settings})
    except Interrupted as stop:
        return stop.run


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[str], oht.Run]:
    """The run of a method that was never stopped; tests only read it."""
    return cache(lambda method: tiny(tmp_path_factory.mktemp("whole") / method, method))


def same(one: oht.Run, other: oht.Run) -> None:
    """The same weights and the same tables, clocks aside, bit for bit."""
    for a, b in zip(jax.tree.leaves(one.progress.agents), jax.tree.leaves(other.progress.agents), strict=True):
        np.testing.assert_array_equal(a, b)
    for table in runs.TABLES:
        assert without_clocks(one.path / table) == without_clocks(other.path / table)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_run(method, whole, tmp_path):
    one = whole(method)
    same(one, tiny(tmp_path / "b", method))
    different = tiny(tmp_path / "c", method, seed=1)
    assert without_clocks(different.path / "metrics.csv") != without_clocks(one.path / "metrics.csv")


def test_members_of_an_iteration_start_from_the_same_state(tmp_path):
    run = tiny(tmp_path / "run", "oht-lr", steps=TINY["start_steps"] + 8 * EPISODE)
    assert run.progress.replay.written == 11 * (EPISODE + 1)  # three random episodes, then four in each iteration
    firsts = np.arange(3, 11) * (EPISODE + 1) % TINY["replay_size"]
    one, two = np.asarray(run.progress.replay.obs)[firsts, 0].reshape(2, 4)
    assert len(set(one)) == len(set(two)) == 1
    assert one[0] != two[0]


class StopsAfter(Callback):
    """Asks the process to end, as a cluster would, after some iterations."""

    def __init__(self, iterations: int):
        self.left = iterations

    def on_iteration(self, iteration):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_one_that_never_stopped(method, whole, tmp_path):
    stopped = tiny(tmp_path / "stopped", method, callbacks=[StopsAfter(2)])
    assert stopped.progress.env_steps < whole(method).progress.env_steps
    same(whole(method), oht.resume(stopped.path, env=FollowObservation))


@pytest.mark.parametrize("method", ["oht-nstep", "pbt", "oht"])
def test_names_that_are_not_in_the_order_of_the_alphabet_survive_a_checkpoint(method, tmp_path):
    """JAX sorts dicts, and tuners draw in the order of what is tuned."""
    tune = {"n_step": oht.Choice(1, 2, 3), "gamma": oht.Choice(0.9, 0.99)}
    one = tiny(tmp_path / "one", method, tune=tune)
    stopped = tiny(tmp_path / "stopped", method, tune=tune, callbacks=[StopsAfter(2)])
    resumed = oht.resume(stopped.path, env=FollowObservation)
    same(one, resumed)
    loaded = oht.load(one.path, env=FollowObservation)
    for run in (resumed, loaded):
        assert run.evaluate(episodes=6) == one.evaluate(episodes=6)
        run.close()
    one.close()


@pytest.mark.parametrize("method", ["static", "oht"])
def test_a_run_that_plays_while_it_learns_is_reproducible_and_can_be_resumed(method, tmp_path):
    one = tiny(tmp_path / "one", method, overlap=True)
    stopped = tiny(tmp_path / "stopped", method, overlap=True, callbacks=[StopsAfter(2)])
    assert stopped.progress.env_steps < one.progress.env_steps
    same(one, oht.resume(stopped.path, env=FollowObservation))


def test_who_plays_while_learning_goes_on_has_not_learned_from_it_yet(tmp_path):
    def actions(name: str, **settings) -> np.ndarray:
        run = tiny(tmp_path / name, steps=TINY["start_steps"] + EPISODE, replay_size=1000, **settings)
        return np.asarray(run.progress.replay.action[: int(run.progress.replay.written)])

    untrained = actions("untrained", replay_ratio=0)
    np.testing.assert_array_equal(actions("overlap", overlap=True), untrained)
    assert (actions("in turn") != untrained).any()


def test_a_method_that_draws_new_agents_when_it_learns_cannot_play_meanwhile(tmp_path):
    with pytest.raises(UserError, match="overlap must be false"):
        tiny(tmp_path / "run", "cem-rl", overlap=True)


def test_a_run_can_go_on_to_more_steps(whole, tmp_path):
    short = tiny(tmp_path / "short", steps=70)
    assert len(short.evals) == 2  # at 40 and at its end
    longer = oht.resume(short.path, env=FollowObservation, steps=120)
    same(whole("static"), longer)
    assert "steps = 120" in (short.path / "config.toml").read_text()


def test_rows_after_the_checkpoint_are_cut_not_doubled(whole, tmp_path):
    stopped = tiny(tmp_path / "stopped", callbacks=[StopsAfter(2)])
    for table in runs.TABLES:
        with (stopped.path / table).open("a") as file:
            file.write("1,2,3,a row that a crash left behi")
    same(whole("static"), oht.resume(stopped.path, env=FollowObservation))


@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(harm, whole, tmp_path):
    stopped = tiny(tmp_path / "stopped", callbacks=[StopsAfter(2)], checkpoint_every=0)
    newest = max((stopped.path / "checkpoint").glob("0*"))
    state = newest / "state.npz"
    content = bytearray(state.read_bytes())
    if harm == "missing":
        state.unlink()
    elif harm == "truncated":
        state.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        state.write_bytes(content)
    with pytest.warns(UserWarning, match="damaged"):
        resumed = oht.resume(stopped.path, env=FollowObservation)
    same(whole("static"), resumed)


def test_a_run_without_any_whole_checkpoint_is_refused(tmp_path):
    run = tiny(tmp_path / "run")
    shutil.rmtree(run.path / "checkpoint")
    with pytest.raises(UserError, match="no checkpoint that can be read"):
        oht.resume(run.path, env=FollowObservation)


def test_the_replay_is_saved_in_pieces_and_old_ones_are_dropped(tmp_path):
    run = tiny(tmp_path / "run", checkpoint_every=0, steps=400)
    folder = run.path / "checkpoint"
    assert len(list(folder.glob("0*"))) == checkpoints.KEEP
    written = int(run.progress.replay.written)
    oldest = min(int(piece.stem.split("-")[1]) for piece in (folder / "replay").iterdir())
    assert oldest > written - 100 - 2 * 21  # nothing that neither of the two needs


def test_loading_acts_and_evaluates_as_the_run_did(whole):
    run = whole("static")
    loaded = oht.load(run.path, env=FollowObservation)
    obs = np.array([0.3], np.float32)
    np.testing.assert_array_equal(loaded.policy(obs), run.policy(obs))
    assert loaded.policy(obs).shape == (1,)
    action, state = loaded.policy.predict(np.stack([obs, obs]), deterministic=True)
    assert action.shape == (2, 1)
    assert state is None
    assert loaded.evaluate(episodes=4, seed=3) == run.evaluate(episodes=4, seed=3)
    assert len(loaded.evaluate(episodes=4)) == 4


@pytest.mark.parametrize("method", ["meta-gradient", "cem-rl", "oht"])
def test_a_policy_of_any_method_can_be_saved(method, whole, tmp_path):
    run = whole(method)
    policy = oht.load_policy(run.policy.save(tmp_path / "policy.npz"))
    obs = np.array([0.3], np.float32)
    np.testing.assert_allclose(policy(obs), run.policy(obs), atol=1e-5)


def test_who_continued_from_whose_weights_is_an_event(whole, tmp_path):
    run = whole("pbt")
    forks = [event for event in run.events if event["event"] == "fork"]
    assert [event["iteration"] for event in forks] == [2, 3]  # one of four agents after each iteration but the first
    assert all(event["agent"] != event["source"] and 0 <= event["source"] < 4 for event in forks)
    values = [[row[f"sample/{agent}/actor_lr"] for agent in range(4)] for row in run.schedule]
    for before, after, event in zip(values[:-1], values[1:], forks, strict=True):
        assert [agent for agent in range(4) if before[agent] != after[agent]] == [event["agent"]]
    forked = tiny(tmp_path / "forked", "oht-lr", members="fork")
    copies = [(e["agent"], e["source"]) for e in forked.events if e["event"] == "fork" and e["iteration"] == 2]
    assert copies == [(agent, 0) for agent in range(1, 5)]


def test_the_config_of_a_run_gives_the_same_run(whole):
    run = whole("oht")
    text = (run.path / "config.toml").read_text()
    again = config.resolve(config.read_file(run.path / "config.toml"))
    assert config.to_toml(again) == text


def test_evaluation_is_neither_stored_nor_counted(tmp_path):
    often, seldom = tiny(tmp_path / "often", eval_every=10), tiny(tmp_path / "seldom", eval_every=100)
    assert len(often.evals) > len(seldom.evals)
    for a, b in zip(jax.tree.leaves(often.progress.agents), jax.tree.leaves(seldom.progress.agents), strict=True):
        np.testing.assert_array_equal(a, b)
    assert often.progress.env_steps == seldom.progress.env_steps


def test_replay_ratio_is_gradient_steps_for_each_env_step(tmp_path):
    run = tiny(tmp_path / "run", replay_ratio=0.5)
    last = run.metrics[-1]
    before = run.metrics[-2]["env_steps"]  # what the last episode brought is learned from in the next iteration
    assert last["updates"] == pytest.approx(0.5 * before, abs=2)


def test_an_existing_run_is_not_touched(tmp_path):
    run = tiny(tmp_path / "run")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="--overwrite"):
        tiny(run.path)
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    tiny(run.path, overwrite=True)


def test_overwrite_spares_folders_that_are_no_runs(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a run folder"):
        tiny(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_only_one_process_trains_in_a_folder(tmp_path):
    run = tiny(tmp_path / "run")
    with runs.locked(run.path), pytest.raises(UserError, match="another process"):
        oht.resume(run.path, env=FollowObservation)


def test_an_older_format_is_refused_by_name(tmp_path):
    run = tiny(tmp_path / "run")
    facts = json.loads((run.path / "run.json").read_text()) | {"format": 0}
    (run.path / "run.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match="format 0"):
        oht.load(run.path, env=FollowObservation)


def test_a_lone_agent_that_diverges_stops_with_the_state_from_before(tmp_path):
    with pytest.raises(UserError, match="learning rate"):
        tiny(tmp_path / "run", critic_lr=1e5, actor_lr=1e5, tau=1.0)
    run = oht.load(tmp_path / "run", env=FollowObservation)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.progress.agents))


def test_an_env_that_breaks_leaves_readable_files(tmp_path):
    from environments import Raises

    with pytest.raises(UserError, match="step"):
        oht.train(Raises, out=tmp_path / "run", **TINY)
    assert runs.check(tmp_path / "run")


def test_two_step_credit_is_learned(tmp_path):
    enough = {"steps": 700, "start_steps": 200, "hidden": (32, 32), "batch_size": 32, "replay_size": 2000, "tau": 0.05}
    enough["replay_ratio"] = 2
    run = oht.train(TwoStepCredit, out=tmp_path / "run", **{**TINY, **enough, "eval_every": 10_000})
    assert np.mean(run.evaluate(20)) > 0.95  # the best is 1, always 0 gets 0.75


class Notes(Callback):
    """Who was found to be ill, and who was replaced; their returns must not count."""

    def __init__(self):
        self.saturated: set[int] = set()
        self.replaced: set[int] = set()

    def on_iteration(self, iteration):
        self.saturated |= {*iteration.saturated}
        self.replaced |= {*iteration.replaced}
        for place, got in enumerate(iteration.returns):
            assert (got == -np.inf) == (iteration.schedule[f"sample/{place}/agent"] in iteration.replaced)


@pytest.mark.parametrize("method", ["oht", "oht-lr"])
def test_a_member_that_diverges_is_replaced_and_gets_the_worst_fitness(method, tmp_path):
    extreme = {"critic_lr": oht.LogFloat(1e3, sigma=3.0, low=1e-3, high=1e6)}
    notes = Notes()
    run = tiny(tmp_path / "run", method, tune=extreme, tau=1.0, callbacks=[notes], population=6)
    assert notes.replaced
    replacements = [event for event in run.events if event["event"] == "replacement"]
    assert {event["agent"] for event in replacements} == notes.replaced
    assert {event["reason"] for event in replacements} == {"diverged"}
    assert not {event["source"] for event in replacements} & {-1, None}
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.progress.agents))


def test_a_run_in_which_everyone_who_played_diverged_goes_on(tmp_path):
    extreme = {"critic_lr": oht.LogFloat(1e5, sigma=0.1, low=1e4, high=1e6)}
    settings = {"tune": extreme, "search": "es", "replay_ratio": 0.0, "member_ratio": 1.0}
    run = tiny(tmp_path / "run", "oht-lr", **settings, tau=1.0)
    assert any(math.isnan(row["return_mean"]) for row in run.metrics)
    assert run.progress.env_steps >= 120


def test_the_random_start_counts_for_the_ratios(tmp_path):
    """30 random steps: 30 of the main agent and 7.5 of each of four members, in pairs; then 40, and 10 + 1.5."""
    run = tiny(tmp_path / "run", "oht-lr", steps=TINY["start_steps"] + 8 * EPISODE)
    assert [row["updates"] for row in run.metrics] == [30 + 4 * 6, 30 + 4 * 6 + 40 + 4 * 10]
    np.testing.assert_allclose(run.progress.owed, [0, 1.5, 1.5, 1.5, 1.5])


def test_a_random_start_that_takes_all_steps_is_refused_and_can_be_continued(tmp_path):
    """Asked for 5 steps of 8, it plays a whole episode of 10: there is nothing left to learn in."""
    sentence = "the random start took 10 steps, because it ends with a whole episode, and steps is 8"
    with pytest.raises(UserError, match=sentence):
        tiny(tmp_path / "run", start_steps=5, steps=8)
    run = oht.resume(tmp_path / "run", env=FollowObservation, steps=60)
    same(run, tiny(tmp_path / "whole", start_steps=5, steps=60))


@pytest.mark.parametrize("unstick", [True, False])
def test_a_member_whose_actions_are_stuck_is_replaced(unstick, tmp_path):
    wild = {"actor_lr": oht.Choice(1e-6, 1e2)}  # the first hardly moves, the second gets stuck
    notes = Notes()
    run = tiny(tmp_path / "run", "oht", callbacks=[notes], tune=wild, unstick=unstick)
    assert notes.saturated | notes.replaced == {1}
    assert notes.replaced == ({1} if unstick else set())
    reported = {event["event"] for event in run.events if event.get("agent") == 1}
    assert ("replacement" if unstick else "saturation") in reported
    reasons = [(event["reason"], event["source"]) for event in run.events if event["event"] == "replacement"]
    assert set(reasons) == ({("saturated", 0)} if unstick else set())


def test_a_lone_agent_that_is_stuck_is_only_reported(tmp_path):
    """Otherwise the baseline would not be TD3."""
    notes = Notes()
    run = tiny(tmp_path / "run", callbacks=[notes], actor_lr=1e2)
    assert notes.saturated == {0}
    assert not notes.replaced
    assert [event["agent"] for event in run.events if event["event"] == "saturation"] == [0]  # once


def test_a_lone_agent_that_is_stuck_starts_again_before_it_has_played_if_asked_to(tmp_path):
    notes = Notes()
    tiny(tmp_path / "run", callbacks=[notes], actor_lr=1e2, unstick=True, steps=TINY["start_steps"] + EPISODE)
    assert notes.replaced == {0}


def test_an_agent_that_diverged_among_stuck_ones_gets_the_worst_fitness_and_is_reported():
    setup, t = started("oht-lr", population=3, search="es", replay_ratio=0.0, member_ratio=0.0)
    t = with_last_bias(t._replace(iteration=1), 50.0, 50.0, -50.0, np.nan)
    t, outcome = training.iterate(setup, t, lambda done, of: None)
    assert outcome.health.diverged.tolist() == [False, False, False, True]
    assert outcome.health.saturated.tolist() == [True, True, True, False]
    assert outcome.health.replaced.tolist() == [False, True, True, True]  # all but the champion, which has played
    assert outcome.returns.tolist() == 3 * [-np.inf]
    assert outcome.schedule["sample/2/return"] == -np.inf
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(t.agents))
    training.close(setup)


# Playing and evaluating


class PaysAction(Probe):
    """Pays what is done."""

    def reward(self, action: np.ndarray) -> float:
        return float(action[0])


def started(method: str, env: Any = FollowObservation, **settings: Any) -> tuple[Setup, Progress]:
    """A run after its random start."""
    values = {**TINY, **METHODS[method], "task": "probe", "method": method, **settings}
    setup = training.build(config.resolve(values), env)
    return setup, training.explore_at_random(setup, training.start(setup))


def with_last_bias(t: Progress, *biases: float) -> Progress:
    """Agents whose action is tanh of this, whatever they see: their last layer has no other weights."""
    layers = t.agents.actor["params"]["MLP_0"]
    last = layers[max(layers)]
    column = np.array(biases, np.float32).reshape(-1, 1)
    new = {**layers, max(layers): {"kernel": 0 * last["kernel"], "bias": 0 * last["bias"] + column}}
    actor = {**t.agents.actor, "params": {**t.agents.actor["params"], "MLP_0": new}}
    return t._replace(agents=t.agents._replace(actor=actor))


def test_they_play_with_noise_exactly_if_the_proposal_says_so():
    setup, t = started("static", PaysAction)
    t = with_last_bias(t, 0.5)
    _, proposal = setup.tuner.ask(np.random.default_rng(0), t.tuner, Clock(0, 1, 0))
    for explore in (True, False):
        (episode,) = training.play(setup, jax.random.key(0), t.agents, proposal._replace(explore=explore))
        assert np.allclose(episode.action, np.tanh(0.5), atol=1e-6) == (not explore)
    training.close(setup)


def test_evaluation_is_without_noise_and_draws_a_champion_for_each_episode():
    """Two arms, of which one always does 1 and the other -1, in episodes of five steps."""
    settings = {"tune": {"n_step": oht.Choice(1, 2)}, "exploration_noise": 0.5}
    setup, t = started("oht-nstep", PaysAction, **settings)
    t = with_last_bias(t, 50.0, -50.0)
    returns = training.evaluate(setup, t, number=20)
    assert set(returns) == {5.0, -5.0}
    assert training.evaluate(setup, t, number=20) == returns
    assert training.evaluate(setup, t._replace(iteration=1), number=20) != returns
    assert training.evaluate(setup, t, seed=0, number=20) != returns
    training.close(setup)


def test_random_actions_cover_their_range():
    setup, t = started("static", start_steps=1000, steps=2000, replay_size=2000)
    while t.env_steps < 1000:
        t = training.explore_at_random(setup, t)
    actions = np.asarray(t.replay.action)[np.asarray(t.replay.end) != ring.NO_STEP]
    assert len(actions) == 1000
    assert np.abs(actions).max() > 0.9
    assert actions.std() == pytest.approx(1 / np.sqrt(3), rel=0.1)
    assert np.abs(actions.mean()) < 0.1
    training.close(setup)


class FarAway(FollowObservation):
    action_space = spaces.Box(2.0, 6.0, (1,), np.float32)


def test_a_policy_answers_in_the_range_of_the_env():
    setup, t = started("static", FarAway)
    t = with_last_bias(t, 0.5)
    policy = api.Policy(setup, training.champion(setup, t))
    action = policy(np.zeros(1, np.float32))
    np.testing.assert_allclose(action, [4.0 + 2.0 * np.tanh(0.5)], rtol=1e-5)
    assert (action.shape, action.dtype) == ((1,), np.float32)
    np.testing.assert_allclose(
        policy.predict(np.zeros((3, 1)))[0], np.full((3, 1), 4.0 + 2.0 * np.tanh(0.5)), rtol=1e-5
    )
    noisy = [float(policy(np.zeros(1, np.float32), deterministic=False)[0]) for _ in range(20)]
    assert len(set(noisy)) == 20
    assert all(2 <= value <= 6 for value in noisy)
    training.close(setup)


@pytest.mark.parametrize("task", ["dm/cheetah-run", "gym/half-cheetah", "robo/half-cheetah", "bullet/ant"])
def test_resume_is_exact_on_every_backend(task, tmp_path):
    """Two arms, so that a pool of two is open; the envs of robo/ live in a worker process."""
    small = {**TINY, "algo": "ddpg", "hidden": (8,), "workers": int(task.startswith("robo"))}
    short = {**small, "method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2)}, "window": 2}
    whole = oht.train(task, out=tmp_path / "whole", **short)
    with pytest.raises(KeyboardInterrupt):
        oht.train(task, out=tmp_path / "stopped", callbacks=[StopsAfter(2)], **short)
    resumed = oht.resume(tmp_path / "stopped")
    same(whole, resumed)
    whole.close()
    resumed.close()
