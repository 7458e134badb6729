"""Callbacks hear of what happens and can stop a run; TensorBoard, W&B and the progress display are some of them."""

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht import cli
from oht.callbacks import HOOKS, scalars
from oht.errors import UserError
from oht.types import End, EnvFailure, Evaluation, Iteration, Start
from test_training import TINY, same, tiny


class Keeps:
    """Keeps every event."""

    def __init__(self):
        self.events: list[Any] = []

    def on_start(self, start):
        self.events.append(start)

    on_phase = on_iteration = on_evaluation = on_end = on_start

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture(scope="module")
def heard(tmp_path_factory) -> tuple[oht.Run, Keeps]:
    keeps = Keeps()
    return tiny(tmp_path_factory.mktemp("whole") / "run", callbacks=[keeps]), keeps


def test_callbacks_hear_what_the_tables_say(heard):
    run, keeps = heard
    kinds = [type(event) for event in keeps.events]
    assert kinds[0] is Start
    assert kinds[-1] is End
    assert {*kinds} == {*HOOKS} - {EnvFailure}  # of those: test_env_errors.py
    (start,) = keeps.of(Start)
    assert (start.path, start.env_steps, start.config["steps"]) == (run.path, 0, TINY["steps"])
    for event, row, plan in zip(keeps.of(Iteration), run.metrics, run.schedule, strict=True):
        assert (event.iteration, event.env_steps, event.updates) == (row["iteration"], row["env_steps"], row["updates"])
        assert event.metrics["return_mean"] == pytest.approx(row["return_mean"])
        assert {*event.schedule, "iteration", "env_steps"} == {*plan}
        assert event.steps_per_second > 0
    for event, row in zip(keeps.of(Evaluation), run.evals, strict=True):
        assert event.env_steps == row["env_steps"]
        assert event.returns == pytest.approx([row[f"return_{i}"] for i in (1, 2, 3)])
        assert event.mean == pytest.approx(np.mean(event.returns))
    records = [event["env_steps"] for event in run.events if event["event"] == "record"]
    assert [event.env_steps for event in keeps.of(Evaluation) if event.record] == records
    (end,) = keeps.of(End)
    assert (end.state, end.reason, end.env_steps) == ("done", "", run.progress.env_steps)
    assert end.updates == run.progress.updates


class Enough:
    """Not a subclass: any object with a hook is a callback."""

    def __init__(self, hook: str, after: int = 2):
        self.left = after
        setattr(self, hook, self.count)

    def count(self, _: Any) -> Any:
        self.left -= 1
        return np.bool_(self.left <= 0)


@pytest.mark.parametrize("hook", ["on_phase", "on_iteration", "on_evaluation"])
def test_a_hook_that_returns_true_stops_the_run_and_it_resumes_exactly(hook, heard, tmp_path, capsys):
    keeps = Keeps()
    stopped = tiny(tmp_path / "run", callbacks=[Enough(hook), keeps], progress=True)
    assert not stopped.finished
    reason = f"Enough.{hook} returned True"
    assert (keeps.events[-1].state, keeps.events[-1].reason) == ("stopped", reason)
    assert keeps.events[-1].env_steps == stopped.progress.env_steps
    out = " ".join(capsys.readouterr().out.split())
    assert f"stopped early: {reason}" in out
    assert "oht train --resume" in out
    assert [event["reason"] for event in stopped.events if event["event"] == "stop"] == [reason]
    assert int(max((tmp_path / "run" / "checkpoint").glob("0*")).name) == stopped.progress.env_steps
    again = Keeps()
    same(heard[0], oht.resume(stopped.path, env=FollowObservation, callbacks=[again]))
    assert again.of(Start)[0].env_steps == stopped.progress.env_steps


def test_a_stop_at_the_last_step_changes_nothing(heard, tmp_path):
    run = tiny(tmp_path / "run", callbacks=[Enough("on_iteration", after=len(heard[0].metrics))])
    assert run.finished
    same(heard[0], run)


class Fails:
    def __init__(self, error: Exception):
        self.error = error

    def on_evaluation(self, evaluation):
        raise self.error


def test_a_callback_that_fails_ends_the_run_and_all_hear_of_it(heard, tmp_path):
    keeps = Keeps()
    with pytest.raises(ZeroDivisionError, match="oops"):
        tiny(tmp_path / "run", callbacks=[Fails(ZeroDivisionError("oops")), keeps])
    assert (keeps.events[-1].state, keeps.events[-1].reason) == ("failed", "oops")
    same(heard[0], oht.resume(tmp_path / "run", env=FollowObservation))


def test_a_callback_that_cannot_write_is_named(heard, tmp_path):
    with pytest.raises(UserError, match=r"Fails\.on_evaluation failed \(No space left on device\)"):
        tiny(tmp_path / "run", callbacks=[Fails(OSError(28, os.strerror(28)))])
    same(heard[0], oht.resume(tmp_path / "run", env=FollowObservation))


class Misspelt:
    def on_eval(self, evaluation): ...


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (Keeps(), "must be a list of callbacks"),
        ([Keeps], r"Keeps is a class; give an instance of it, as in callbacks=\[Keeps\(\)\]"),
        ([print], "has none of the methods on_start, on_phase, on_iteration, on_env_error, on_evaluation, on_end"),
        ([Misspelt()], "unknown hook of the callback Misspelt 'on_eval'; did you mean 'on_evaluation'"),
    ],
)
def test_what_would_never_be_called_is_refused(callbacks, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        oht.train(FollowObservation, out=tmp_path / "run", callbacks=callbacks, **TINY)
    assert not (tmp_path / "run").exists()


def test_only_finite_numbers_are_tracked(heard):
    event = heard[1].of(Iteration)[0]
    metrics = {"return_mean": 1.0, "critic_loss": float("nan")}
    numbers = scalars(event._replace(metrics=metrics, schedule={"sample/0/return": -np.inf, "champion/n_step": 3.0}))
    speed = event.steps_per_second
    expected = {"train/updates": event.updates, "train/steps_per_second": speed, "train/return_mean": 1.0}
    assert numbers == {**expected, "schedule/champion/n_step": 3.0}


# Weights & Biases

WORDS = ["train", "environments:FollowObservation", "--quiet"]
WORDS += [f"--{name.replace('_', '-')}={value}" for name, value in (TINY | {"hidden": "8,8"}).items()]


def test_wandb_that_is_not_installed_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main([*WORDS, "--track", "wandb", "--out", str(tmp_path / "run")]) == 2
    assert "the package wandb is not installed; pip install 'oht[wandb]'." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_one_sentence(tmp_path, capsys):
    assert cli.main([*WORDS, "--track", "wandbb", "--out", str(tmp_path / "run")]) == 2
    assert "unknown track 'wandbb'; did you mean 'wandb'?" in capsys.readouterr().err


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log: blocks of 32 KiB, with pieces headed by checksum, length and kind."""
    place, record = 7, b""  # behind the header of W&B
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # the rest of a block is empty
            place += 32768 - place % 32768
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            yield record
            record = b""


def tracked(path: Path) -> dict[str, Any]:
    """What the newest offline file of W&B holds, once its service, which writes it, has ended."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()

    def pairs(items: Any) -> dict[str, Any]:
        return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}

    found: dict[str, Any] = {"history": [], "summary": {}}
    newest = max(path.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    for data in logged(newest.read_bytes()):
        record = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"id": run.run_id, "project": run.project, "name": run.display_name, "group": run.run_group}
            found["config"] = pairs(run.config.update)
        elif kind == "history":
            found["history"].append(pairs(record.history.item))
        elif kind == "summary":
            found["summary"] |= pairs(record.summary.update)
    return found


def test_wandb_offline_has_config_returns_schedule_and_speed_and_goes_on_after_a_resume(tmp_path, monkeypatch):
    environment = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_NAME": "mine", "HOME": str(tmp_path)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run = tiny(tmp_path / "run", track="wandb")
    found = tracked(run.path)
    assert (found["project"], found["name"], found["group"]) == ("oht", "mine", "environments:FollowObservation static")
    assert found["config"]["batch_size"] == TINY["batch_size"]
    returns = [(row["env_steps"], row["eval/return_mean"]) for row in found["history"] if "eval/return_mean" in row]
    assert returns == [(row["env_steps"], pytest.approx(row["return_mean"])) for row in run.evals]
    assert any(row.get("train/steps_per_second", 0) > 0 for row in found["history"])
    assert any(name.startswith("schedule/") for row in found["history"] for name in row)
    assert found["summary"]["state"] == "done"
    oht.resume(run.path, env=FollowObservation, steps=TINY["steps"] + 20).close()
    again = tracked(run.path)
    assert again["id"] == found["id"]
    assert again["history"][0]["env_steps"] > TINY["steps"]
