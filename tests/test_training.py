"""Runs as a whole: the same seed gives the same run, and a run that stopped goes on as if it had not."""

import json
import os
import shutil
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

import oht
from environments import FollowObservation, TwoStepCredit
from oht import runs
from oht.api import Interrupted
from oht.errors import UserError
from oht.report.progress import Reporter
from oht.runs import checkpoints

TINY = {
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
METHODS = {
    "static": {},
    "oht-nstep": {"window": 2},
    "oht-lr": {"population": 4},
    "oht": {"tune": {"n_step": oht.Choice(1, 2), "gamma": oht.Float(0.9, 0.05, 0.5, 0.99)}, "population": 4},
    "random": {"population": 4},
    "meta-gradient": {},
    "cem-rl": {"population": 4, "gradient": 2},
    "pbt": {"population": 4, "interval": 1, "start_steps": 20},
}


def tiny(out: Path, method: str = "static", **settings) -> oht.Run:
    """A short run, or as much of it as was trained before a signal."""
    try:
        return oht.train(FollowObservation, method=method, out=out, **{**TINY, **METHODS[method], **settings})
    except Interrupted as stop:
        return stop.run


def same(one: oht.Run, other: oht.Run) -> None:
    """The same weights and the same tables, wall time aside, bit for bit."""
    for a, b in zip(jax.tree.leaves(one.progress.agents), jax.tree.leaves(other.progress.agents), strict=True):
        np.testing.assert_array_equal(a, b)
    for table in runs.TABLES:
        assert without_wall_time(one.path / table) == without_wall_time(other.path / table)


def without_wall_time(path: Path) -> list[str]:
    lines = path.read_text().splitlines()
    last = lines[0].endswith("wall_time")
    return [line.rpartition(",")[0] if last else line for line in lines]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_run(method, tmp_path):
    one, other = tiny(tmp_path / "a", method), tiny(tmp_path / "b", method)
    same(one, other)
    different = tiny(tmp_path / "c", method, seed=1)
    assert without_wall_time(different.path / "metrics.csv") != without_wall_time(one.path / "metrics.csv")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("same_start", [True, False])
def test_agents_of_a_round_start_from_the_same_state(together, same_start, tmp_path):
    settings = {"together": together, "same_start": same_start, "steps": TINY["start_steps"] + 8 * EPISODE}
    run = tiny(tmp_path / "run", "oht-lr", replay_size=1000, **settings)
    slots = int(run.progress.replay.written)
    firsts = np.asarray(run.progress.replay.obs)[: slots : EPISODE + 1, 0][TINY["start_steps"] // EPISODE :]
    main, member = firsts[0::2], firsts[1::2]
    assert len(set(main)) == 4
    assert (main == member).tolist() == 4 * [same_start]


class StopsAfter(Reporter):
    """Asks the process to end, as a cluster would, after some iterations."""

    def __init__(self, iterations: int):
        self.left = iterations

    def iteration(self, t, row, outcome):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_one_that_never_stopped(method, tmp_path):
    whole = tiny(tmp_path / "whole", method)
    stopped = tiny(tmp_path / "stopped", method, progress=StopsAfter(2))
    assert stopped.progress.env_steps < whole.progress.env_steps
    same(whole, oht.resume(stopped.path, env=FollowObservation))


def test_a_run_can_go_on_to_more_steps(tmp_path):
    whole = tiny(tmp_path / "whole", steps=120)
    short = tiny(tmp_path / "short", steps=70)
    assert len(short.evals) == 2  # at 40 and at its end
    longer = oht.resume(short.path, env=FollowObservation, steps=120)
    same(whole, longer)
    assert "steps = 120" in (short.path / "config.toml").read_text()


def test_rows_after_the_checkpoint_are_cut_not_doubled(tmp_path):
    whole = tiny(tmp_path / "whole")
    stopped = tiny(tmp_path / "stopped", progress=StopsAfter(2))
    for table in runs.TABLES:
        with (stopped.path / table).open("a") as file:
            file.write("1,2,3,a row that a crash left behi")
    same(whole, oht.resume(stopped.path, env=FollowObservation))


@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(harm, tmp_path):
    whole = tiny(tmp_path / "whole")
    stopped = tiny(tmp_path / "stopped", progress=StopsAfter(2), checkpoint_every=0)
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
    same(whole, resumed)


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


def test_loading_acts_and_evaluates_as_the_run_did(tmp_path):
    run = tiny(tmp_path / "run")
    loaded = oht.load(run.path, env=FollowObservation)
    obs = np.array([0.3], np.float32)
    np.testing.assert_array_equal(loaded.policy(obs), run.policy(obs))
    assert loaded.policy(obs).shape == (1,)
    action, state = loaded.policy.predict(np.stack([obs, obs]), deterministic=True)
    assert action.shape == (2, 1)
    assert state is None
    assert loaded.evaluate(episodes=4, seed=3) == run.evaluate(episodes=4, seed=3)
    assert len(loaded.evaluate(episodes=4)) == 4


def test_the_config_of_a_run_gives_the_same_run(tmp_path):
    from oht import config

    run = tiny(tmp_path / "run", "oht")
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
    enough = {"steps": 1200, "start_steps": 200, "hidden": (32, 32), "batch_size": 32, "replay_size": 2000, "tau": 0.05}
    run = oht.train(TwoStepCredit, out=tmp_path / "run", **{**TINY, **enough, "eval_every": 10_000})
    assert np.mean(run.evaluate(20)) > 0.95  # the best is 1, always 0 gets 0.75


@pytest.mark.parametrize("together", [True, False])
def test_a_member_that_diverges_is_replaced_and_gets_the_worst_fitness(together, tmp_path):
    class Notes(Reporter):
        sick: list[int] = []  # noqa: RUF012

        def iteration(self, t, row, outcome):
            self.sick += outcome.sick
            for place, got in enumerate(outcome.returns):
                assert (got == -np.inf) == (outcome.schedule[f"sample/{place}/agent"] in outcome.sick)

    extreme = {"critic_lr": oht.LogFloat(1e3, sigma=3.0, low=1e-3, high=1e6)}
    crowd = {"population": 6, "at_once": 6, "together": together}
    run = tiny(tmp_path / "run", "oht", tune=extreme, tau=1.0, progress=Notes(), **crowd)
    assert Notes.sick
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.progress.agents))


@pytest.mark.parametrize(("prime", "updates"), [(True, 2 * (30 + 10)), (False, 2 * 10)])
def test_the_random_start_counts_for_the_ratios_or_not(prime, updates, tmp_path):
    twice = {"steps": TINY["start_steps"] + 2 * EPISODE, "prime": prime}
    assert tiny(tmp_path / "run", "oht-lr", **twice).progress.updates == updates  # what is played last is learned next


class Sick(Reporter):
    """Notes who had to be replaced."""

    def __init__(self):
        self.agents: set[int] = set()

    def iteration(self, t, row, outcome):
        self.agents |= set(outcome.sick)


@pytest.mark.parametrize("unstick", [True, False])
def test_a_member_whose_actions_are_stuck_is_replaced(unstick, tmp_path):
    wild = {"actor_lr": oht.LogFloat(1e-3, sigma=50.0, low=1e-6, high=1e2)}  # one member hardly moves, one gets stuck
    crowd = {"tune": wild, "population": 2, "at_once": 2, "life": 2, "unstick": unstick}
    notes = Sick()
    run = tiny(tmp_path / "run", "oht-lr", progress=notes, **crowd)
    high = {int(row["sample/0/agent"]) for row in run.schedule if row["sample/0/actor_lr"] > 1}
    assert high
    assert notes.agents == (high if unstick else set())


@pytest.mark.parametrize(
    ("episodes", "unstick", "stuck"),
    [
        (1, True, [False, False]),  # nobody has played yet
        (2, True, [True, False]),  # the champion stays
        (1, False, [True, True]),
        (2, False, [True, True]),
    ],
)
def test_agents_that_are_all_stuck_start_again(episodes, unstick, stuck, tmp_path):
    huge = {"actor_lr": oht.LogFloat(1e2, sigma=0.0, low=1e-3, high=1e2)}
    once = {"steps": TINY["start_steps"] + episodes * EPISODE, "tune": huge, "unstick": unstick, "prime": True}
    notes = Sick()
    run = tiny(tmp_path / "run", "oht-lr", progress=notes, **once)
    hyper = {name: np.full(2, value, np.float32) for name, value in run.setup.config.hyper.items()}
    t = run.progress
    assert run.setup.actors.saturated(jax.random.key(0), t.agents, hyper, t.replay).tolist() == stuck
    assert not notes.agents


@pytest.mark.parametrize("task", ["dm/cheetah-run", "gym/half-cheetah", "robo/half-cheetah", "bullet/ant"])
def test_resume_is_exact_on_every_backend(task, tmp_path):
    """Two arms, so that a pool of two is open; PyBullet's envs then live in worker processes."""
    short = {**TINY, "method": "oht-nstep", "tune": {"n_step": oht.Choice(1, 2)}, "window": 2}
    whole = oht.train(task, out=tmp_path / "whole", **short)
    with pytest.raises(KeyboardInterrupt):
        oht.train(task, out=tmp_path / "stopped", progress=StopsAfter(2), **short)
    resumed = oht.resume(tmp_path / "stopped")
    same(whole, resumed)
    whole.close()
    resumed.close()
