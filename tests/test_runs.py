"""The run folder and what users get from it: events, the best agent, interrupts, saved policies, cached programs."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import oht
from environments import Echo, FollowObservation, search_path
from oht import cli, compilation, csvtables, onnxmodel, policies, runs, seeds, signals, training
from oht.agents import networks
from oht.agents.td3 import td3
from oht.api import Interrupted
from oht.callbacks import Callback
from oht.envs.backend import EnvError
from oht.errors import UserError
from oht.runs import recorder
from oht.tuners import static
from oht.types import Algorithm, Iteration, Proposal, Spec, Tuner
from test_training import TINY, PaysAction, StopsAfter, same, tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> oht.Run:
    return tiny(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory) -> oht.Run:
    stopped = tiny(tmp_path_factory.mktemp("resumed") / "run", callbacks=[StopsAfter(5)])
    return oht.resume(stopped.path, env=FollowObservation)


# Tables


def test_a_table_is_read_as_columns_and_as_rows(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('a,"b,c"\r\n1,nan\r\n2,-inf\r\n3,0.')  # the last row is being written
    assert runs.columns(path)["a"].tolist() == [1, 2]
    assert runs.rows(path)[1] == {"a": 2, "b,c": -np.inf}
    assert runs.last_row(path) == {"a": 2, "b,c": -np.inf}
    assert (runs.columns(tmp_path / "none.csv"), runs.rows(tmp_path / "none.csv")) == ({}, [])


def test_rows_of_other_columns_are_refused_and_truth_is_a_number(tmp_path):
    table = csvtables.Table(tmp_path / "table.csv")
    table.append({"a": 1, "b": True})
    for row, sentence in (({"a": 2}, "a row without b"), ({"a": 2, "b": 3, "c": 4}, "a row with c")):
        with pytest.raises(UserError, match=sentence):
            table.append(row)
    table.append({"b": False, "a": 2.5})
    table.close()
    assert runs.rows(tmp_path / "table.csv") == [{"a": 1, "b": 1}, {"a": 2.5, "b": 0}]


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-120000")
    made = [runs.fresh_folder(tmp_path / "runs", "dm/walker-run", "oht", 0) for _ in range(3)]
    assert [path.name.removeprefix("dm-walker-run_oht_s0_20260101-120000") for path in made] == ["", "-1", "-2"]
    assert all(path.is_dir() for path in made)


@pytest.mark.parametrize("text", ["a,b\n1,2\n1\n", "a,b\n1,x\n", "a\n\xff\n"])
def test_a_damaged_table_is_refused(text, tmp_path):
    (tmp_path / "table.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="cannot be read as a table of numbers"):
        runs.columns(tmp_path / "table.csv")


@pytest.mark.parametrize("name", ["metrics.csv", "events.jsonl"])
def test_a_file_that_is_deleted_during_a_run_is_written_again_with_a_warning(name, whole, tmp_path):
    class Deletes(Callback):
        def on_iteration(self, iteration):
            if iteration.iteration == 3:
                (tmp_path / "run" / name).unlink()

    with pytest.warns(UserWarning, match=f"{name} was deleted while the run was training"):
        run = tiny(tmp_path / "run", callbacks=[Deletes()])
    same(whole, run)
    assert [event["event"] for event in run.events] == [event["event"] for event in whole.events]


def test_a_replaced_table_keeps_its_rows(tmp_path):
    table = csvtables.Table(tmp_path / "table.csv")
    table.append({"a": 1})
    (tmp_path / "other").write_text("edited\n")
    (tmp_path / "other").rename(tmp_path / "table.csv")
    with pytest.warns(UserWarning, match="was replaced"):
        table.append({"a": 2})
    table.close()
    assert [row["a"] for row in runs.rows(tmp_path / "table.csv")] == [1, 2]


def test_a_run_whose_folder_is_deleted_stops_and_leaves_nothing(tmp_path):
    class Deletes(Callback):
        def on_iteration(self, iteration):
            if iteration.iteration == 3:
                shutil.rmtree(tmp_path / "run")

    with pytest.raises(UserError, match="was deleted or moved"):
        tiny(tmp_path / "run", callbacks=[Deletes()])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["/proc/nothing", "/proc/nothing/below", "a-file/below"])
def test_a_place_that_cannot_be_written_is_refused_before_set_up(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a-file").write_text("")
    monkeypatch.setattr(training, "build", lambda *_: pytest.fail("the envs were opened"))
    with pytest.raises(UserError, match="cannot be a run folder"):
        tiny(Path(place))
    assert [path.name for path in tmp_path.iterdir()] == ["a-file"]
    Path("a-file").rename("runs")
    with pytest.raises(UserError, match="runs cannot be a run folder: Not a directory"):
        oht.train(FollowObservation, **TINY)


def test_cpu_time_is_counted_as_wall_time_is_and_goes_on_after_a_resume(tmp_path, monkeypatch):
    ticks = (recorder.Clocks(float(k), 3.0 * k) for k in itertools.count())
    monkeypatch.setattr(recorder.Clocks, "now", lambda: next(ticks))
    stopped = tiny(tmp_path / "run", callbacks=[StopsAfter(5)])
    before = list(stopped.evals)
    for _ in range(10_000):  # the machine does something else
        next(ticks)
    run = oht.resume(stopped.path, env=FollowObservation)
    assert run.evals[: len(before)] == before
    assert len(run.evals) > len(before) > 0
    assert [row["cpu_time"] for row in run.evals] == [3 * row["wall_time"] for row in run.evals]
    assert run.evals[-1]["wall_time"] < 10_000
    assert (np.diff([row["wall_time"] for row in run.evals]) > 0).all()


# Events


def kinds(run: oht.Run) -> list[str]:
    return [event["event"] for event in run.events]


def test_the_events_of_a_run(whole):
    evaluations = [event for event in whole.events if event["event"] == "evaluation"]
    records = [event for event in whole.events if event["event"] == "record"]
    assert [event["return_mean"] for event in evaluations] == pytest.approx([row["return_mean"] for row in whole.evals])
    best = np.maximum.accumulate([row["return_mean"] for row in whole.evals])
    assert len(records) == 1 + np.count_nonzero(np.diff(best) > 0)
    assert kinds(whole)[:2] == ["start", "checkpoint"]
    assert kinds(whole)[-1] == "end"
    for event in whole.events:
        assert {"event", "env_steps", "iteration", "wall_time"} <= set(event)
    assert whole.events == runs.events(whole.path) == runs.events(whole.path / runs.EVENTS)


def test_a_resumed_run_has_the_events_of_the_whole_run_and_those_of_its_stop(whole, resumed):
    extra = {"stop", "resume", "checkpoint"}
    assert [kind for kind in kinds(resumed) if kind not in extra] == [k for k in kinds(whole) if k not in extra]
    assert kinds(resumed).index("stop") < kinds(resumed).index("resume")


def test_events_after_the_checkpoint_are_cut(whole, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(whole.path, copy)
    longer = oht.resume(copy, env=FollowObservation, steps=140)
    assert kinds(longer).count("end") == 1
    with (copy / runs.EVENTS).open("a") as file:
        file.write('{"event": "evalu')
    assert kinds(longer).count("end") == 1  # an incomplete line is not read


def test_a_replaced_agent_is_an_event(tmp_path, monkeypatch):
    iterate = training.iterate

    def replacing(setup, t, look):
        t, outcome = iterate(setup, t, look)
        replaced = np.array([t.iteration == 2])
        return t, outcome._replace(health=outcome.health._replace(replaced=replaced))

    monkeypatch.setattr(training, "iterate", replacing)
    run = tiny(tmp_path / "run")
    replaced = [event for event in run.events if event["event"] == "replacement"]
    assert [(event["agent"], event["iteration"]) for event in replaced] == [(0, 2)]
    assert (replaced[0]["reason"], replaced[0]["source"]) == ("saturated", -1)


def test_why_a_run_failed_is_an_event_until_it_is_resumed(tmp_path, monkeypatch):
    iterate = training.iterate

    def failing(setup, t, look):
        if t.iteration == 2:
            raise UserError("the env broke.")
        return iterate(setup, t, look)

    with monkeypatch.context() as patch:
        patch.setattr(training, "iterate", failing)
        with pytest.raises(UserError, match="the env broke"):
            tiny(tmp_path / "run")
    last = runs.events(tmp_path / "run")[-1]
    assert (last["event"], last["iteration"], last["reason"]) == ("failure", 2, "the env broke.")
    assert "failure" not in kinds(oht.resume(tmp_path / "run", env=FollowObservation))


class FailsIn(Callback):
    def __init__(self, hook: str, error: BaseException):
        self.error = error
        setattr(self, hook, self.fail)

    def fail(self, event: Any) -> None:
        if getattr(event, "env_steps", 0) >= (50 if isinstance(event, Iteration) else 0):
            raise self.error


@pytest.mark.parametrize(
    ("hook", "error", "event", "reason"),
    [
        ("on_iteration", ZeroDivisionError("oops"), "failure", "ZeroDivisionError: oops"),
        ("on_iteration", ValueError("line\n" * 9999), "failure", f"ValueError: {'line ' * 95}line [...]"),
        ("on_start", UserError("no disk."), "failure", "no disk."),
        ("on_evaluation", UserError("no disk."), "failure", "no disk."),
        ("on_phase", KeyboardInterrupt(), "stop", "a second signal arrived"),
    ],
)
def test_why_a_run_was_broken_off_is_an_event_too(hook, error, event, reason, tmp_path):
    with pytest.raises(type(error)):
        tiny(tmp_path / "run", callbacks=[FailsIn(hook, error)])
    found = [each for each in runs.events(tmp_path / "run") if each["event"] in ("failure", "stop")]
    assert [(each["event"], each["reason"]) for each in found] == [(event, reason)]


def climbing(settings: Any, tune: Any, base: Mapping[str, float]) -> Tuner:
    """One agent, and a value for each quarter of the run."""

    def ask(rng, state, clock):
        value = (1, 2, 3, 4)[int(4 * clock.steps / clock.total)]
        hyper = {name: np.full(1, value if name == "n_step" else base[name]) for name in base}
        one = np.zeros(1, int)
        return state, Proposal(hyper, np.ones(1), one, one, one + clock.iteration)

    return Tuner(1, lambda rng: (), ask, lambda rng, state, p, outcome: (state, {}), lambda rng, state: 0)


def test_a_tuner_is_not_asked_for_values_beyond_the_end_of_the_run(tmp_path):
    method = oht.Method("a schedule", static.Static, climbing)
    settings: dict[str, Any] = {**TINY, "method": method, "out": tmp_path / "run"}
    run = oht.train(FollowObservation, **settings)
    assert run.finished
    assert oht.load(run.path, env=FollowObservation, method=method).finished


# The best agent


def test_a_run_whose_last_evaluation_failed_can_be_finished(tmp_path, monkeypatch):
    """It has more steps than it was asked for, since its last episode went on."""

    def fails(*_):
        raise EnvError("the simulator is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", fails)
        with pytest.raises(EnvError, match=r"the simulator is gone \(to repeat such episodes: .* --env-errors 5\)"):
            tiny(tmp_path / "run", steps=115, eval_every=1000)
    assert runs.events(tmp_path / "run")[-1]["event"] == "failure"
    run = oht.resume(tmp_path / "run", env=FollowObservation, steps=115, env_errors=5)
    assert (run.progress.env_steps, [row["env_steps"] for row in run.evals]) == (120, [120])
    assert "steps = 115" in (run.path / "config.toml").read_text()
    with pytest.raises(UserError, match="has 120 steps already, so it cannot end at 100"):
        oht.resume(run.path, env=FollowObservation, steps=100)


def test_an_evaluation_in_which_the_env_failed_is_made_when_the_run_is_resumed(whole, tmp_path, monkeypatch):
    evaluate, calls = training.evaluate, itertools.count()

    def fails_once(*given):
        if next(calls) == 1:
            raise EnvError("the simulator is gone.")
        return evaluate(*given)

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", fails_once)
        with pytest.raises(EnvError):
            tiny(tmp_path / "run")
    run = oht.resume(tmp_path / "run", env=FollowObservation, env_errors=5)
    returns = [[(row["env_steps"], row["return_mean"]) for row in each.evals] for each in (run, whole)]
    assert returns[0] == returns[1]


def test_the_deployed_agent_is_the_likeliest_champion():
    """Where the champion is drawn for each episode of an evaluation, as by oht-nstep."""
    unused: Any = None
    tuner = Tuner(3, unused, unused, unused, champion=lambda rng, p: int(rng.choice(len(p), p=p)))
    for seed in range(10):
        assert tuner.deployed(np.random.default_rng(seed), [0.3, 0.1, 0.6]) == 2


def test_a_policy_explores_anew_at_every_call_and_not_where_it_is_deterministic(whole):
    obs = np.zeros(1, np.float32)
    assert len({whole.policy(obs, deterministic=False).item() for _ in range(200)}) > 150
    assert len({whole.policy(obs).item() for _ in range(3)}) == 1


def best_of(run: oht.Run) -> dict[str, float]:
    return max(run.evals, key=lambda row: row["return_mean"])


def test_the_best_agent_is_kept_and_loaded(whole):
    best, last = (oht.load(whole.path, env=FollowObservation, best=flag) for flag in (True, False))
    newest = max((whole.path / "best").glob("0*"))
    facts = json.loads((newest / "state.json").read_text())["facts"]
    assert facts["env_steps"] == int(newest.name) == best_of(whole)["env_steps"]
    assert facts["return_mean"] == pytest.approx(best_of(whole)["return_mean"])
    same_weights = [
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(best.progress.agents), jax.tree.leaves(last.progress.agents), strict=True)
    ]
    assert all(same_weights) == (best_of(whole)["env_steps"] == whole.progress.env_steps)
    assert len(best.evaluate(3)) == 3
    assert best.policy._env_steps == facts["env_steps"]


def pushing(spec: Spec, *, hidden: tuple[int, ...]) -> Algorithm:
    """Its action is a hyper-parameter."""
    made = td3(spec, hidden=hidden)

    def act(key, state, obs, hyper, explore):
        return jnp.full((spec.action,), hyper["push"])

    return made._replace(act=act, hyper={**made.hyper, "push": 0.0})


def test_the_deployed_agent_acts_with_its_own_hyper_parameters(tmp_path):
    """Agents that do 0.5 and -0.5, rewarded for what they do: the run's own value, 0, is nobody's."""
    tune = {"push": oht.Choice(-0.5, 0.5)}
    settings = {**TINY, "steps": 200, "method": "oht", "algo": pushing, "tune": tune, "out": tmp_path / "run"}
    run = oht.train(PaysAction, **settings)
    loads = [oht.load(run.path, env=PaysAction, algo=pushing, best=best) for best in (False, True)]
    for each in (run, *loads):
        np.testing.assert_allclose(each.evaluate(2), 5 * 0.5)
        np.testing.assert_allclose(each.policy(np.zeros(1)), 0.5)
    assert all(row["return_mean"] in (-2.5, 2.5) for row in run.evals)
    assert run.evals[-1]["return_mean"] == 2.5
    facts = json.loads((max((run.path / "best").glob("0*")) / "state.json").read_text())["facts"]
    assert facts["hyper"]["push"] == 0.5


def test_the_best_agent_of_a_resumed_run_is_that_of_the_whole_run(whole, resumed):
    one, other = (oht.load(run.path, env=FollowObservation, best=True) for run in (whole, resumed))
    for a, b in zip(jax.tree.leaves(one.progress.agents), jax.tree.leaves(other.progress.agents), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_record_that_a_longer_run_does_not_have_is_dropped(tmp_path):
    short = tiny(tmp_path / "short", steps=70)  # its last evaluation, at 70, is not one of the longer run
    long = tiny(tmp_path / "long", steps=120)
    longer = oht.resume(short.path, env=FollowObservation, steps=120)
    assert best_of(longer)["env_steps"] == best_of(long)["env_steps"]
    one, other = (oht.load(run.path, env=FollowObservation, best=True) for run in (longer, long))
    for a, b in zip(jax.tree.leaves(one.progress.agents), jax.tree.leaves(other.progress.agents), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(list((longer.path / "best").glob("0*"))) <= 3  # those of the two checkpoints, and the newest


def test_a_damaged_best_agent_is_noticed(whole, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(whole.path, copy)
    for state in (copy / "best").glob("*/state.npz"):
        state.write_bytes(state.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="checksum"), pytest.raises(UserError, match="no best agent"):
        oht.load(copy, env=FollowObservation, best=True)


def test_the_summary_names_first_last_and_best_of_the_whole_run(tmp_path, capsys):
    stopped = tiny(tmp_path / "run", callbacks=[StopsAfter(5)])
    first = stopped.evals[0]
    resumed = oht.resume(stopped.path, env=FollowObservation, progress=True)
    out = " ".join(capsys.readouterr().out.split())
    for name, row in (("first", first), ("last", resumed.evals[-1]), ("best", best_of(resumed))):
        assert f"{name} evaluation {row['return_mean']:.1f} at {row['env_steps']:.0f} steps" in out


# Interrupts


def test_an_interrupt_from_python_saves_and_raises(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt, match=r"continue with oht\.resume") as stop:
        oht.train(FollowObservation, out=tmp_path / "run", callbacks=[StopsAfter(2)], **TINY)
    assert isinstance(stop.value, Interrupted)
    assert not stop.value.run.finished
    assert "saving and stopping" in capsys.readouterr().err
    assert int(max((tmp_path / "run" / "checkpoint").glob("0*")).name) == stop.value.run.progress.env_steps
    assert oht.resume(tmp_path / "run", env=FollowObservation).finished


def test_an_interrupt_in_the_last_iteration_is_not_swallowed(whole, tmp_path):
    last = int(whole.metrics[-1]["iteration"])
    with pytest.raises(Interrupted) as stop:
        oht.train(FollowObservation, out=tmp_path / "run", callbacks=[StopsAfter(last)], **TINY)
    assert stop.value.run.finished
    same(whole, stop.value.run)


def test_the_second_signal_raises_at_once():
    said = threading.Event()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with signals.interruption(said.set) as interrupted:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupted()
        assert said.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


@pytest.mark.parametrize("first", ["request", "signal"])
def test_a_request_to_stop_and_a_signal_are_not_two_signals(first):
    """A scheduler sends a signal to a sweep and to its runs; then the sweep asks its runs to stop, too."""
    acts = [signals.request_stop, lambda: os.kill(os.getpid(), signal.SIGTERM)]
    with signals.interruption() as interrupted:
        for act in acts if first == "request" else reversed(acts):
            act()
            assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with signals.interruption() as interrupted:
        assert not interrupted()


def test_a_ctrl_c_that_python_dropped_is_not_lost(tmp_path, monkeypatch):
    """Python drops what is raised in a callback of its garbage collector; JAX has one."""
    old = tiny(tmp_path / "run")
    evaluations = (old.path / "evals.csv").read_text()
    monkeypatch.setattr(signals, "_interrupted", threading.Event())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run
    try:
        signals.note_interrupts()
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt):
        tiny(old.path, overwrite=True, seed=9)
    assert (old.path / "evals.csv").read_text() == evaluations
    with pytest.raises(KeyboardInterrupt), signals.interruption():
        pass


def test_a_run_that_was_killed_before_its_first_checkpoint_is_resumed_from_its_start(whole, tmp_path):
    with contextlib.suppress(Interrupted):
        oht.train(FollowObservation, out=tmp_path / "run", callbacks=[StopsAfter(1)], **TINY)
    for name in ("checkpoint", "best"):
        shutil.rmtree(tmp_path / "run" / name)
    for name in ("metrics.csv", "schedule.csv", "evals.csv"):
        (tmp_path / "run" / name).unlink()
    same(whole, oht.resume(tmp_path / "run", env=FollowObservation))


def test_tables_are_read_after_the_current_folder_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = oht.train(FollowObservation, out="run", **TINY)
    monkeypatch.chdir("/")
    assert run.evals
    assert run.schedule
    assert run.metrics
    assert run.events


def test_signals_are_left_alone_in_other_threads():
    found = []

    def look():
        with signals.interruption() as interrupted:
            found.append(interrupted())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [False]


# Names


def test_a_run_and_the_package_describe_themselves(whole):
    assert (
        repr(whole)
        == f"<Run {str(whole.path)!r}: static td3 on {whole.setup.config.run.task}, seed 0, 120 of 120 steps>"
    )
    assert whole.finished
    assert set(oht.__all__) < set(dir(oht))
    assert oht.__version__.count(".") == 2


# Start-up


def test_loading_computes_no_new_agents(whole, monkeypatch):
    traced, start = [], training.start

    def watched(setup):
        t = start(setup)
        traced.append(isinstance(jax.tree.leaves(t.agents)[0], Tracer))
        return t

    monkeypatch.setattr(training, "start", watched)
    loaded = oht.load(whole.path, env=FollowObservation)
    assert traced == [True]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loaded.progress.agents))
    same(whole, loaded)


def test_loading_leaves_nothing_behind_that_a_later_run_cannot_use(whole):
    """As in a new process, where loading is the first to ask for the stream of the agents."""
    seeds._stream.cache_clear()
    oht.load(whole.path, env=FollowObservation).close()
    assert jax.random.uniform(seeds.key(0, "agents")).shape == ()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seed": -1}, "seed is -1, but must be"),
        ({"episodes": "few"}, "episodes is 'few', but must be"),
        ({"episodes": 0}, "episodes is 0, but must be"),
    ],
)
def test_numbers_of_an_evaluation_are_checked(given, sentence, whole):
    with pytest.raises(UserError, match=sentence):
        whole.evaluate(**given)


def test_a_closed_run_says_so(whole):
    run = oht.load(whole.path, env=FollowObservation)
    run.close()
    with pytest.raises(UserError, match="are closed; load the run again"):
        run.evaluate()


@pytest.fixture
def no_cache():
    """JAX without a cache of its own, until the test ends."""
    names = ("dir", "min_compile_time_secs", "min_entry_size_bytes")
    names = [f"jax_compilation_cache_{names[0]}", *(f"jax_persistent_cache_{name}" for name in names[1:])]
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation.compilation_cache.reset_cache()


@pytest.mark.usefixtures("no_cache")
def test_where_compiled_programs_are_kept(tmp_path, monkeypatch):
    def folder() -> str | None:
        return jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]

    monkeypatch.setenv("OHT_CACHE", "")
    compilation.use_cache()
    assert folder() is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OHT_CACHE", str(tmp_path / "file" / "below"))
    compilation.use_cache()
    assert folder() is None
    monkeypatch.setenv("OHT_CACHE", str(tmp_path / "cache"))
    compilation.use_cache()
    assert Path(str(folder())).is_relative_to(tmp_path / "cache")
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    compilation.use_cache()
    assert folder() == str(tmp_path / "own")  # the user's choice


def test_the_cache_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "LARGEST", 25)
    for age in range(5):
        (tmp_path / str(age)).write_bytes(bytes(10))
        os.utime(tmp_path / str(age), (1e9 - age, 1e9 - age))
    compilation._shrink(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_a_cached_run_is_the_same_run(whole, tmp_path):
    """Compiled here, compiled there, and read from the cache: the same rows."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY, "hidden": "8,8"}.items()]
    command = [sys.executable, "-c", "import sys; from oht.cli import main; sys.exit(main())", "train"]
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))
        },
        "PYTHONPATH": search_path(),
        "OHT_CACHE": str(tmp_path / "cache"),
    }
    before: set[str] = set()
    for name in ("cold", "warm"):
        words = ["environments:FollowObservation", *flags, "--out", str(tmp_path / name)]
        since = time.monotonic()
        ended = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.startswith("oht "), time.monotonic() - since  # the first line comes before JAX is loaded
        same(whole, oht.load(tmp_path / name))
        entries = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
        assert len(entries) > 5
        if name == "warm":
            assert entries == before
        before = entries


# Policies in a file


def trained(tmp_path: Path, **settings) -> oht.Run:
    return oht.train(FollowObservation, out=tmp_path / "run", **{**TINY, "steps": 60, **settings})


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_a_saved_policy_acts_as_the_run_does(algo, normalise, tmp_path):
    ratio = 1 if normalise else 0  # first weights do as well; what scales observations is learned
    run = trained(tmp_path, algo=algo, normalise=normalise, replay_ratio=ratio)
    policy = oht.load_policy(run.policy.save(tmp_path / "policy.npz"))
    batch = np.random.default_rng(0).normal(size=(50, 1)).astype(np.float32)
    np.testing.assert_allclose(policy(batch), run.policy(batch), atol=1e-5)
    np.testing.assert_allclose(policy(batch[0]), policy(batch)[0], atol=1e-6)
    action, state = policy.predict(batch[0], deterministic=True)
    assert action.dtype == run.policy(batch[0]).dtype
    assert action.shape == run.policy(batch[0]).shape
    assert state is None
    with pytest.raises(UserError, match="deterministic"):
        policy.predict(batch, deterministic=False)
    for path in (run.policy.export(tmp_path / "run.onnx"), policy.export(tmp_path / "file.onnx")):
        for rows in (100 * batch, batch[:1]):  # beyond what the clipping of observations lets through, and a single row
            np.testing.assert_allclose(by_onnx(path, {"obs": rows}), run.policy.predict(rows)[0], atol=1e-5)


def by_onnx(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The actions that ONNX Runtime computes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["action"]
    assert session.get_modelmeta().custom_metadata_map["oht"] == oht.__version__
    (actions,) = session.run(None, inputs)
    return np.asarray(actions)


@pytest.mark.parametrize("activation", policies.ACTIVATIONS)
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_policy_with_any_network_can_be_saved(activation, layer_norm, tmp_path):
    """The actor itself is the reference: nothing is trained, so nothing is compiled."""
    actor = networks.Actor(2, (8, 8), activation, layer_norm)
    params = jax.tree.map(lambda leaf: 3 * leaf + 0.1, actor.init(jax.random.key(0), np.zeros(3)))
    arrays = policies.actor_arrays(SimpleNamespace(actor=params), 10.0, 1e-8)
    box = {"low": -np.ones(2, np.float32), "high": np.ones(2, np.float32)}
    policy = policies.SavedPolicy({"box": [3]}, {**arrays, **box}, {"activation": activation})
    batch = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    expected = np.asarray(actor.apply(params, batch))
    np.testing.assert_allclose(oht.load_policy(policy.save(tmp_path / "policy.npz"))(batch), expected, atol=1e-5)
    np.testing.assert_allclose(by_onnx(policy.export(tmp_path / "policy.onnx"), {"obs": batch}), expected, atol=1e-5)


def test_batches_of_dict_observations(tmp_path):
    run = oht.train(Echo, out=tmp_path / "run", **{**TINY, "steps": 60, "replay_ratio": 0})
    policy = oht.load_policy(run.policy.save(tmp_path / "policy.npz"))
    space = Echo().observation_space
    space.seed(0)
    single = [space.sample() for _ in range(4)]
    batch = stacked(single)
    for act in (run.policy, policy):
        np.testing.assert_allclose(act(batch), np.stack([act(obs) for obs in single]), atol=1e-5)
    np.testing.assert_allclose(policy(batch), run.policy.predict(batch)[0], atol=1e-5)
    assert policy(single[0]).shape == Echo().action_space.shape
    path = run.policy.export(tmp_path / "policy.onnx")
    np.testing.assert_allclose(by_onnx(path, named(batch)), run.policy(batch), atol=1e-5)
    with pytest.raises(UserError, match="lacks a part"):
        policy({"unknown": np.zeros(2)})


def test_a_part_of_an_observation_that_is_called_action_is_refused():
    layout = {"dict": [("action", {"box": [2]}), ("place", {"box": [1]})]}
    with pytest.raises(UserError, match=r"is called 'action', the name of the output; save a \.npz file"):
        onnxmodel.build(layout, {"low": np.zeros(1), "high": np.ones(1)}, {}, 1e-6)


def named(obs: Any, path: str = "") -> dict[str, np.ndarray]:
    """The arrays of an observation by their names in an ONNX file."""
    parts = obs.items() if isinstance(obs, dict) else enumerate(obs) if isinstance(obs, tuple) else ()
    below = [named(part, f"{path}/{key}" if path else str(key)) for key, part in parts]
    return {name: array for part in below for name, array in part.items()} or {path: np.asarray(obs, np.float32)}


def stacked(observations):
    first = observations[0]
    if isinstance(first, dict):
        return {key: stacked([obs[key] for obs in observations]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(parts)) for parts in zip(*observations, strict=True))
    return np.stack(observations)


@pytest.fixture(scope="module")
def by_command(tmp_path_factory) -> Path:
    """A run whose env is found by its name, so that commands can load it."""
    path = tmp_path_factory.mktemp("by-command") / "run"
    words = [f"--{name.replace('_', '-')}={value}" for name, value in (TINY | {"hidden": "8,8"}).items()]
    assert cli.main(["train", "environments:FollowObservation", *words, "--quiet", "--out", str(path)]) == 0
    return path


@pytest.mark.parametrize("best", [False, True])
def test_a_run_is_exported_by_a_command(best, by_command, tmp_path, capsys):
    batch = np.linspace(-1, 1, 7, dtype=np.float32)[:, None]
    expected = oht.load(by_command, best=best).policy(batch)
    for suffix in ("onnx", "npz"):
        path = tmp_path / f"policy.{suffix}"
        assert cli.main(["export", str(by_command), str(path), *(["--best"] if best else [])]) == 0
        assert capsys.readouterr().out.strip() == str(path)
        actions = by_onnx(path, {"obs": batch}) if suffix == "onnx" else oht.load_policy(path)(batch)
        np.testing.assert_allclose(actions, expected, atol=1e-5)


def test_what_cannot_be_exported_is_one_sentence(by_command, tmp_path, capsys, monkeypatch):
    run = str(by_command)
    for words, sentence in (
        ([run, str(tmp_path / "policy.pt")], "must end in .onnx, for ONNX, or in .npz"),
        ([run, str(tmp_path / "none" / "policy.onnx")], "cannot be written: No such file or directory"),
        ([str(tmp_path), str(tmp_path / "policy.onnx")], "is not a run folder"),
    ):
        assert cli.main(["export", *words]) == 2
        assert sentence in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert cli.main(["export", run, str(tmp_path / "policy.onnx")]) == 2
    assert "need the package onnx; pip install 'oht[onnx]'." in capsys.readouterr().err
    assert not [*tmp_path.glob("policy*")]


def test_a_network_that_the_file_cannot_hold_is_refused(tmp_path, whole):
    without_network = {name: value for name, value in TINY.items() if name != "hidden"}
    run = oht.train(FollowObservation, algo="uniform", out=tmp_path / "run", **without_network)
    with pytest.raises(UserError, match="the policy of uniform cannot be saved"):
        run.policy.save(tmp_path / "policy.npz")
    kernels = jax.tree.map(np.asarray, whole.policy._state)
    other = kernels._replace(actor={"params": {"Dense_0": {"kernel": np.zeros((1, 1)), "bias": np.ones(1)}}})
    policy = oht.load(whole.path, env=FollowObservation).policy
    policy._state = other  # a network with other layers: its actions differ
    with pytest.raises(UserError, match="its actions differ"):
        policy.save(tmp_path / "policy.npz")
    assert not (tmp_path / "policy.npz").exists()


def test_a_policy_is_loaded_without_jax_and_gymnasium(whole, tmp_path):
    path = whole.policy.save(tmp_path / "policy.npz")
    code = (
        f"import sys, time, oht; p = oht.load_policy({str(path)!r}); print(p([0.3]));"
        "sys.exit(bool({'jax', 'gymnasium', 'flax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_a_file_that_is_no_policy_is_refused(content, tmp_path):
    path = tmp_path / "policy.npz"
    if content is None:
        np.savez(path, kernel_0=np.zeros((1, 1)))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match="not a policy"):
        oht.load_policy(path)
    with pytest.raises(UserError, match="No such file"):
        oht.load_policy(tmp_path / "none.npz")


def test_the_layout_of_observations():
    layout = {"dict": [["a", {"box": [2]}], ["b", {"tuple": [{"box": []}, {"box": [1, 2]}]}]]}
    one = {"a": [1, 2], "b": (3, [[4, 5]])}
    assert policies.width(layout) == 5
    assert policies.vectors(layout, one).tolist() == [1, 2, 3, 4, 5]
    batch = {"a": [[1, 2], [6, 7]], "b": ([3, 8], [[[4, 5]], [[9, 10]]])}
    assert policies.vectors(layout, batch).tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    with pytest.raises(UserError, match="different sizes"):
        policies.vectors(layout, {"a": [[1, 2]], "b": ([3, 8], [[[4, 5]], [[9, 10]]])})
    with pytest.raises(UserError, match="has shape"):
        policies.vectors({"box": [3]}, np.zeros(4))
