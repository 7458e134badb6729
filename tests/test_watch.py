"""Run folders as a page and a report show them: what is read, what the figures say, and the server. No browser here."""

import fcntl
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import tomli_w

import test_tuners
from oht import cli, runs
from oht.report import (
    agent_pictures,
    histories,
    html_report,
    plots,
    return_pictures,
    rundata,
    runnames,
    tuning_pictures,
    watch,
)
from oht.report.figure_parts import MOST_POINTS, Figure, duration, thinned
from oht.report.rundata import Folder, RunData
from oht.runs import eventlog

Row = dict[str, float]


def write_table(path: Path, rows: list[Row]) -> None:
    lines = [",".join(f"{value:.9g}" for value in row.values()) for row in rows]
    path.write_text("\r\n".join([",".join(rows[0]), *lines, ""]), newline="")


def happened(event: str, env_steps: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": event, "env_steps": env_steps, "iteration": env_steps // 100, "wall_time": env_steps / 50, **more}


def make_run(
    path: Path,
    schedule: list[Row] | None = None,
    events: list[dict[str, Any]] | None = None,
    evals: list[float] = [-3.0, -1.0, -2.0],  # noqa: B006
    **config: Any,
) -> Path:
    """A run of 100 env steps and 2 s an iteration, with an evaluation after each of its iterations."""
    path.mkdir(parents=True)
    facts = {"format": runs.FORMAT, "command": ["oht", "train", "A task"], "started": "2026-01-02T03:04:05+0000"}
    facts |= {"python": "3.11.7", "packages": {"oht": "0.2.0", "jax": "0.10.2"}}
    (path / runs.FACTS).write_text(json.dumps(facts))
    settings = {"task": "Pendulum-v1", "algo": "td3", "method": "static", "seed": 0, "steps": 300, **config}
    (path / "config.toml").write_text(tomli_w.dumps(settings))
    head = [{"iteration": i, "env_steps": 100 * i} for i in range(1, len(evals) + 1)]
    timed = [{**row, "updates": 2 * row["env_steps"], "wall_time": 2.0 * row["iteration"]} for row in head]
    if evals:
        write_table(path / "metrics.csv", timed)
        returns = [{"return_mean": mean, "return_std": 0.5, "return_1": mean} for mean in evals]
        at = [{"env_steps": row["env_steps"]} for row in head]
        wall = [{"wall_time": row["wall_time"]} for row in timed]
        write_table(path / "evals.csv", [a | b | c for a, b, c in zip(at, returns, wall, strict=True)])
        rows = schedule or [{"sample/0/agent": 0, "sample/0/return": mean} for mean in evals]
        write_table(path / "schedule.csv", [a | b for a, b in zip(head, rows, strict=True)])
    lines = [happened("start"), happened("end", 300)] if events is None else events
    (path / runs.EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def the_run(path: Path) -> RunData:
    (run,) = Folder(path).runs()
    return run


def grow_old(path: Path, seconds: float = 3600) -> None:
    for file in path.iterdir():
        then = time.time() - seconds
        os.utime(file, (then, then))


# What is read


def test_what_a_run_has_reached(tmp_path):
    run = the_run(make_run(tmp_path / "runs" / "a", steps=400))
    assert (run.env_steps, run.updates, run.wall_time, run.progress, run.cost) == (300, 600, 6.0, 0.75, 2.0)
    assert run.last == (300, -2.0, 0.5)
    assert run.best == (200, -1.0, 0.5)
    assert run.speed == 50.0
    assert run.eta is None  # it is not training
    assert (run.state, run.reason) == ("done", "")
    row = runnames.summary(run, "static")
    assert (row["last"], row["best"], row["best_at"], row["name"]) == (-2.0, -1.0, 200, "a")
    json.dumps(row, allow_nan=False)


def test_the_same_run_twice_is_one_seed(tmp_path):
    for name, evals in (("a", [5.0]), ("b", [1.0, 3.0]), ("c", [3.0, 5.0])):
        make_run(tmp_path / name, evals=evals, seed=int(name == "c"))
    found = Folder(tmp_path).runs()
    labels = runnames.labels(found)
    mean = traces(return_pictures.returns(found, labels)[0])["static (2 seeds)"]
    assert mean["y"][-1] == 4.0
    assert len(return_pictures.returns(found, labels, each=True)[0].data) == 3
    page = html_report.report(tmp_path)
    assert '>static</td><td class="">Pendulum-v1</td><td class="number">2</td><td class="number">4.0 ± 1.0</td>' in page


def test_a_run_that_trains_has_a_speed_of_late_and_a_time_left(tmp_path):
    path = make_run(tmp_path / "a", events=[happened("start")], steps=1300)
    run = the_run(path)
    assert (run.state, run.speed, run.eta) == ("running", 50.0, 20.0)


def test_runs_are_found_below_a_folder_in_a_natural_order_and_nothing_inside_of_them(tmp_path):
    for place in ("sweep/task/b/s10", "sweep/task/b/s9", "a", ".hidden/c"):
        make_run(tmp_path / place)
    shutil.copytree(tmp_path / "a", tmp_path / "a" / "best" / "inner")
    found = Folder(tmp_path).runs()
    assert [run.name for run in found] == ["a", "sweep/task/b/s9", "sweep/task/b/s10"]
    assert len({run.id for run in found}) == 3
    assert the_run(tmp_path / "a").name == "a"  # a run itself


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (["start", "checkpoint", "end"], "done"),
        (["start", "stop", "checkpoint"], "stopped"),
        (["start", "evaluation"], "failed"),
        (["start", "stop", "resume"], "failed"),
        (["start", "checkpoint", "failure"], "failed"),
        (["start", "end", "resume", "end"], "done"),
    ],
)
def test_the_state_of_a_run_that_was_left_alone(events, state, tmp_path):
    path = make_run(tmp_path / "a", events=[happened(event, reason="The env broke.") for event in events])
    grow_old(path)
    run = the_run(path)
    assert run.state == state
    if events[-1] == "failure":
        assert run.reason == "The env broke."
    elif state == "failed":
        assert "was killed" in run.reason


def test_a_run_whose_lock_is_held_is_running_however_silent_and_fails_when_it_is_let_go(tmp_path):
    path = make_run(tmp_path / "a", events=[happened("start")])
    grow_old(path)
    folder = Folder(tmp_path)
    with runs.locked(path):
        assert [run.state for run in folder.runs()] == ["running"]
        grow_old(path, seconds=0)
    assert [run.state for run in folder.runs()] == ["failed"]  # at once: it was seen to be held
    assert [run.state for run in Folder(tmp_path).runs()] == ["running"]  # perhaps on another machine


def test_looking_takes_no_lock_and_writes_nothing(tmp_path):
    path = make_run(tmp_path / "a", events=[happened("start")])
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*")}
    watched = watch.Watch(tmp_path)
    (row,) = watched.runs()["runs"]
    watched.returns(row["id"])
    watched.tuning(row["id"])
    watched.config(row["id"])
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.rglob("*")} == before
    with (tmp_path / "a" / "probe").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status = os.fstat(file.fileno())
        assert (status.st_dev, status.st_ino) in rundata.held_locks()
    assert rundata.held_locks(tmp_path / "no such table") == set()


def test_a_run_without_rows_and_a_run_that_is_just_being_created(tmp_path):
    make_run(tmp_path / "a", events=[happened("start")], evals=[])
    (make_run(tmp_path / "b") / "config.toml").unlink()
    folder = Folder(tmp_path)
    (run,) = folder.runs()
    assert (run.env_steps, run.speed, run.eta, run.last, run.best, run.cost) == (0, None, None, None, None, None)
    assert folder.problems == []
    assert [figure.title for figure in tuning_pictures.tuning(run)] == ["Events"]
    assert return_pictures.returns([run], {run.id: "static"})[0].caption == "No evaluation yet."


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("run.json", "{", "damaged"),
        ("run.json", '{"format": 1, "packages": {"oht": "0.1"}}', "use oht 0.1"),
        ("config.toml", "task = ", "cannot be read"),
        ("config.toml", 'task = "A"', "does not say the method"),
        ("evals.csv", "env_steps,return_mean\n1,2\n", "lacks the column return_std"),
        ("evals.csv", "env_steps,return_mean\n1\n", "cannot be read as a table"),
    ],
)
def test_a_damaged_run_is_a_sentence_beside_the_others(name, content, hint, tmp_path):
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bad") / name).write_text(content)
    folder = Folder(tmp_path)
    assert [run.name for run in folder.runs()] == ["good"]
    (sentence,) = folder.problems
    assert hint in sentence


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    path = make_run(tmp_path / "a", events=[happened("start")])
    read: list[Path] = []
    columns = runs.columns
    monkeypatch.setattr(runs, "columns", lambda path: read.append(path) or columns(path))
    folder = Folder(tmp_path)
    folder.runs()
    folder.runs()
    assert read == [path / "evals.csv"]
    with (path / "evals.csv").open("a") as file:
        file.write("400,7,0.5,7,8\r\n500,9,0.5,")  # the last row is being written
    (run,) = folder.runs()
    assert read == 2 * [path / "evals.csv"]
    assert run.last == (400, 7.0, 0.5)


def test_two_hundred_runs_of_a_thousand_rows_are_read_quickly(tmp_path):
    evals = (-1000 + 0.5 * np.arange(1000)).tolist()
    model = make_run(tmp_path / "model", evals=evals, steps=100_000)
    for number in range(200):
        (tmp_path / "runs" / str(number)).mkdir(parents=True)
        for file in model.iterdir():
            os.link(file, tmp_path / "runs" / str(number) / file.name)
    folder = Folder(tmp_path / "runs")
    begin = time.process_time()
    found = folder.runs()
    drawn = return_pictures.returns(found, runnames.labels(found), each=True)
    first = time.process_time() - begin
    begin = time.process_time()
    folder.runs()
    again = time.process_time() - begin
    assert len(found) == 200
    assert first < 2.0  # 0.5 s on an idle core
    assert again < 0.5
    assert len(json.dumps(drawn[0].as_json())) < 4e6


# Names of methods, settings side by side


def test_seeds_of_one_method_share_a_label_and_other_settings_are_named(tmp_path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1, checkpoint_every=2.0, eval_every=50)
    make_run(tmp_path / "c", method="oht", population=4, tune={"n_step": "1,3"})
    make_run(tmp_path / "d", method="oht", population=6, tune={"n_step": "1,3"})
    make_run(tmp_path / "e", method="oht", population=4, tune={"n_step": "1,5"}, seed=3)
    found = Folder(tmp_path).runs()
    labels = runnames.labels(found)
    assert [labels[run.id] for run in found] == [
        *("static", "static"),
        *("oht, population 4, tune n_step 1,3", "oht, population 6, tune n_step 1,3"),
        "oht, population 4, tune n_step 1,5",
    ]


def test_settings_side_by_side(tmp_path):
    a = the_run(make_run(tmp_path / "a", seed=0, hidden=[8, 8], only_0=True))
    b = the_run(make_run(tmp_path / "b", seed=1, hidden=[8, 8], only_1=True))
    lines = {line.name: line for line in runnames.side_by_side([a, b])}
    assert lines["seed"].values == ("0", "1")
    assert lines["seed"].differs
    assert lines["hidden"] == ("hidden", ("8, 8", "8, 8"), False)
    assert lines["only_0"].values == ("yes", "")
    assert lines["command"].values == 2 * ("oht train 'A task'",)
    assert lines["jax"].values == ("0.10.2", "0.10.2")
    assert {name for name, line in lines.items() if line.differs} == {"seed", "only_0", "only_1"}


# Figures


def traces(figure: Figure) -> dict[str, dict[str, Any]]:
    """The traces that have something to say, by name."""
    return {trace["name"]: trace for trace in figure.data if trace["hoverinfo"] == "text"}


def test_the_mean_over_seeds_counts_each_as_far_as_it_goes():
    curves = [(np.array([0.0, 10.0]), np.array([0.0, 10.0])), (np.array([0.0, 20.0]), np.array([2.0, 2.0]))]
    x, mean, error, count = return_pictures.mean_over_seeds(curves)
    at = dict(zip(x.tolist(), zip(mean, error, count, strict=True), strict=True))
    assert at[0.0] == (1.0, pytest.approx(1.0), 2)  # 0 and 2: deviation sqrt(2), over sqrt(2) seeds
    assert at[10.0] == (6.0, pytest.approx(4.0), 2)
    assert at[20.0] == (2.0, 0.0, 1)


def test_returns_as_a_mean_with_a_band_or_each_seed_over_steps_or_time(tmp_path):
    for seed, evals in enumerate([[0.0, 4.0], [2.0, 8.0]]):
        make_run(tmp_path / f"static{seed}", seed=seed, evals=evals)
    make_run(tmp_path / "oht", method="oht", evals=[1.0, 2.0])
    make_run(tmp_path / "other", task="Other-v0", evals=[5.0])
    found = Folder(tmp_path).runs()
    labels = runnames.labels(found)
    pendulum, other = return_pictures.returns([run for run in found if run.task == "Pendulum-v1"] + found[1:2], labels)
    assert (pendulum.title, other.title) == ("Pendulum-v1", "Other-v0")
    shown = traces(pendulum)
    assert set(shown) == {"static (2 seeds)", "oht"}
    assert shown["static (2 seeds)"]["x"] == [100, 200]
    assert shown["static (2 seeds)"]["y"] == [1, 6]
    assert shown["static (2 seeds)"]["text"][1] == "static: 6 ± 2, mean of 2 of 2 seeds,<br>at 200 env steps"
    (band,) = (trace for trace in pendulum.data if trace.get("fill") == "toself")
    assert band["y"] == [2, 8, 4, 0]
    assert pendulum.layout["xaxis"]["title"]["text"] == "env steps of all agents"
    (timed, _) = return_pictures.returns(found, labels, by="time", each=True)[:2]
    assert set(traces(timed)) == {"static, seed 0", "static, seed 1", "oht"}
    assert traces(timed)["oht"]["x"] == [2, 4]
    assert timed.layout["xaxis"]["title"]["text"] == "wall time (seconds)"
    colours = {trace["name"]: trace["line"]["color"] for trace in timed.data}
    assert colours["static, seed 0"] == colours["static, seed 1"] != colours["oht"]


def race(mean: tuple[float, float], leader: int, played: int, total: float) -> Row:
    row: Row = {"champion/actor_lr": (1e-4, 1e-2)[leader], "champion/critic_lr": (1e-4, 1e-2)[leader], "leader": leader}
    for agent, value in enumerate((1e-4, 1e-2)):
        row |= {f"agent/{agent}/mean": mean[agent], f"agent/{agent}/error": 0.5, f"agent/{agent}/ratio": 1.0 + agent}
        row |= {f"agent/{agent}/actor_lr": value, f"agent/{agent}/critic_lr": value}
    value = (1e-4, 1e-2)[played]
    return row | {
        "sample/0/agent": played,
        "sample/0/actor_lr": value,
        "sample/0/critic_lr": value,
        "sample/0/return": total,
    }


RACE = [race((0, 0), 0, 0, -3.0), race((-3, -3), 0, 1, -1.0), race((-3, -1), 1, 1, -np.inf)]


@pytest.mark.parametrize("case", ["oht, mixed", "arms, two dimensions", "oht-lr, tied", "pbt", "cem-rl"])
def test_a_schedule_that_lacks_any_column_is_drawn_without_it(case, tmp_path, monkeypatch):
    """As a tuner of one's own may write it."""
    tuner = test_tuners.build(*test_tuners.CASES[case])
    _, _, rows = test_tuners.run(tuner, 6, lambda proposal: 1.0 + np.arange(len(proposal.actors)))
    rows = [{"env_steps": 100.0 * i, **row} for i, row in enumerate(rows, 1)]
    whole = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    run = the_run(make_run(tmp_path / "a", method=case.partition(",")[0]))
    panels = matplotlib.figure.Figure().subplots(1, 8)
    for missing in [None, *(name for name in whole if name != "env_steps")]:
        schedule = {name: values for name, values in whole.items() if name != missing}
        monkeypatch.setattr(RunData, "schedule", lambda self, schedule=schedule: schedule)
        assert tuning_pictures.tuning(run)
        for draw, panel in zip(plots.schedule_panels(schedule, {"critic_lr"}), panels, strict=False):
            draw(panel.figure, panel)


def test_a_race_shows_values_belief_shares_agents_and_events(tmp_path):
    tune = {"actor_lr+critic_lr": "log:1e-05..0.01"}
    events = [
        happened("start"),
        happened("replacement", 300, agent=1, reason="diverged", source=0),
        happened("end", 300),
    ]
    run = the_run(make_run(tmp_path / "a", RACE, events, method="oht", tune=tune))
    values, belief, shares, agents, strip = tuning_pictures.tuning(run)
    assert [figure.title for figure in (values, belief, shares, agents, strip)] == [
        *("Values of actor_lr+critic_lr", "Belief about each agent", "Who learns", "Agents", "Events"),
    ]
    assert values.layout["yaxis"]["type"] == "log"
    assert traces(values)["champion"]["y"] == [1e-4, 1e-4, 1e-2]
    marks = traces(values)["training episodes"]
    assert (marks["x"], marks["y"]) == ([100, 200, 300], [1e-4, 1e-2, 1e-2])
    assert marks["marker"]["color"][:2] == [-3, -1]
    assert marks["marker"]["symbol"] == ["circle", "circle", "x"]
    assert marks["text"][1] == "Agent 1, actor_lr+critic_lr 0.01: return -1<br>at 200 env steps."
    assert "it was replaced" in marks["text"][2]
    (lines,) = (trace for trace in values.data if trace["name"] == "agents")
    assert lines["y"] == [1e-4, 1e-4, 1e-4, None, 1e-2, 1e-2, 1e-2]
    assert list(traces(belief)) == ["actor_lr+critic_lr 0.0001", "actor_lr+critic_lr 0.01 (champion)"]
    widths = [trace["line"]["width"] for trace in traces(belief).values()]
    assert widths[1] > 2 * widths[0]
    assert [trace["y"] for trace in shares.data] == [[1, 1, 1], [2, 2, 2]]
    assert agents.layout["yaxis"]["tickvals"] == [0, 1]
    assert traces(agents)["champion"]["y"] == [0, 0, None, 1, 1]
    assert "agent 1 had diverged and was replaced" in traces(agents)["replacement"]["text"][0].replace("<br>", " ")
    assert [trace["name"] for trace in strip.data] == ["start", "replacement", "end"]


def test_the_copies_of_pbt_and_where_the_champion_comes_from(tmp_path):
    def row(values: tuple[float, float, float], best: int) -> Row:
        shown: Row = {"actor_lr/mu": -3, "actor_lr/sigma": 0.5, "champion/actor_lr": values[best]}
        for agent, value in enumerate(values):
            shown |= {
                f"sample/{agent}/agent": agent,
                f"sample/{agent}/actor_lr": value,
                f"sample/{agent}/return": -agent,
            }
        return shown

    schedule = [row((1e-3, 2e-3, 3e-3), 0), row((1e-3, 2e-3, 2.4e-3), 1), row((1e-3, 2e-3, 2.4e-3), 2)]
    events = [happened("start"), happened("fork", 200, agent=2, source=1), happened("fork", 300, agent=0, source=2)]
    run = the_run(make_run(tmp_path / "a", schedule, events, method="pbt", tune={"actor_lr": "log:1e-5..1e-2"}))
    assert histories.history_of(run).champions.tolist() == [0, 1, 2]
    figures = {figure.title: figure for figure in tuning_pictures.tuning(run)}
    agents = figures["Agents"]
    descent = traces(agents)["descent of the champion"]
    assert (descent["x"], descent["y"]) == ([0, 200, 200, 300], [1, 1, 2, 2])
    (forks,) = (trace for trace in agents.data if trace["name"] == "continued from its weights")
    assert (forks["x"], forks["y"]) == ([200, 200, None, 300, 300], [1, 2, None, 2, 0])
    text = traces(agents)["fork"]["text"][0].replace("<br>", " ")
    assert text == "At 200 env steps (4 s) agent 2 gave up its own weights and continued from the weights of agent 1."
    mean = traces(figures["Values of actor_lr"])["mean of the search"]
    assert mean["y"] == [1e-3, 1e-3, 1e-3]


def test_the_search_of_a_linear_range_is_not_taken_for_a_logarithm(tmp_path):
    row: Row = {"actor_lr/mu": 0.002, "actor_lr/sigma": 0.001, "champion/actor_lr": 0.002}
    for space, mean in (("float:1e-3:2e-4", 0.002), ("log:1e-3..1e-2", 10**0.002)):
        run = the_run(make_run(tmp_path / space[:3], [row] * 3, method="oht-lr", tune={"actor_lr": space}))
        figures = {figure.title: figure for figure in tuning_pictures.tuning(run)}
        assert traces(figures["Values of actor_lr"])["mean of the search"]["y"] == pytest.approx([mean] * 3)


def test_probabilities_of_discrete_values(tmp_path):
    def row(p: float, arm: int) -> Row:
        head = {"n_step/logit/1": 0, "n_step/logit/3": 0, "n_step/p/1": p, "n_step/p/3": 1 - p, "champion/n_step": 3}
        return {**head, "sample/0/agent": arm, "sample/0/n_step": (1, 3)[arm], "sample/0/return": -1}

    schedule = [row(0.5, 0), row(0.4, 1), row(0.1, 1)]
    run = the_run(make_run(tmp_path / "a", schedule, method="oht-nstep", tune={"n_step": "1,3"}))
    values, probabilities, *_ = tuning_pictures.tuning(run)
    assert [trace["y"] for trace in probabilities.data] == [[0.5, 0.4, 0.1], [0.5, 0.6, 0.9]]
    assert [trace["name"] for trace in probabilities.data] == ["n_step 1", "n_step 3"]
    assert all(trace["stackgroup"] for trace in probabilities.data)
    assert values.layout["yaxis"]["ticktext"] == ["1", "3"]
    assert histories.history_of(run).champions.tolist() == [-1, 1, 1]  # nobody with n_step 3 was seen before it played


def test_a_tuner_of_ones_own_is_shown_as_far_as_its_columns_say(tmp_path):
    some = the_run(make_run(tmp_path / "a", [{"champion/gamma": 0.9 + i / 100} for i in range(3)], method="climb"))
    values, *_ = tuning_pictures.tuning(some)
    assert traces(values)["champion"]["y"] == [0.9, 0.91, 0.92]
    others = the_run(make_run(tmp_path / "b", [{"sample/0/return": -1.0, "mood": i} for i in range(3)], method="climb"))
    assert [figure.title for figure in tuning_pictures.tuning(others)] == ["Training episodes", "Events"]
    json.dumps([figure.as_json() for run in (some, others) for figure in tuning_pictures.tuning(run)], allow_nan=False)


def test_a_lone_agent_shows_its_training_episodes(tmp_path):
    run = the_run(make_run(tmp_path / "a", evals=np.arange(40.0).tolist()))
    episodes, _ = tuning_pictures.tuning(run)
    assert episodes.title == "Training episodes"
    mean = traces(episodes)["mean of the last 10"]
    assert (mean["x"][0], mean["y"][0], mean["y"][-1]) == (1000, 4.5, 34.5)
    assert "static keeps its hyper-parameters" in tuning_pictures.tuning_note(run)


def test_a_long_run_is_thinned_but_keeps_its_ends_and_changes():
    moved = np.repeat([1.0, 2.0], [5001, 4999])
    keep = thinned(10_000, MOST_POINTS, moved)
    assert len(keep) <= MOST_POINTS + 2
    assert {0, 5000, 5001, 9999} <= set(keep.tolist())


def test_every_kind_of_event_has_a_sentence():
    for kind in eventlog.KINDS:
        words = agent_pictures.sentence(happened(kind, 1000, agent=1, source=2, return_mean=3.5, reason="diverged"))
        assert re.fullmatch(r"At 1,000 env steps \(20 s\) (the|a|an|agent|all) .*[^.]\.", words), words
        assert kind == "evaluation" or kind in agent_pictures.MARKS
    new = agent_pictures.sentence(happened("replacement", 0, agent=1, source=-1, reason="saturated"))
    assert "was saturated and was replaced: it got new weights" in new


def test_every_kind_of_event_is_documented():
    page = (Path(__file__).parent.parent / "docs" / "run-folder.md").read_text()
    table = page.partition("## events.jsonl")[2].partition("```")[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE) == list(eventlog.KINDS)


def test_times_in_words():
    assert [duration(s) for s in (0.4, 99, 150, 7500)] == ["0 s", "99 s", "2.5 min", "2 h 05 min"]


# The server


@pytest.fixture
def server(tmp_path) -> Iterator[watch.Server]:
    make_run(tmp_path / "runs" / "a", RACE, method="oht", tune={"actor_lr+critic_lr": "log:1e-05..0.01"})
    make_run(tmp_path / "runs" / "b", seed=1)
    with watch.Server(tmp_path / "runs") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server: watch.Server, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)  # pyright: ignore[reportArgumentType]
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_the_server_gives_the_page_and_what_it_asks_for(server):
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.address)
    status, page = get(server, "/")
    assert status == 200
    for file in re.findall(r'(?:src|href)="([^"]+)"', page.decode()):
        assert file.startswith("data:") or get(server, f"/{file}")[0] == 200
    told = json.loads(get(server, "/api/runs")[1])
    assert [run["label"] for run in told["runs"]] == ["oht", "static"]
    a, b = (run["id"] for run in told["runs"])
    (figure,) = json.loads(get(server, f"/api/returns?runs={a},{b}&by=time&each=1")[1])
    assert figure["layout"]["xaxis"]["title"]["text"] == "wall time (seconds)"
    tuning = json.loads(get(server, f"/api/tuning?run={a}")[1])
    assert tuning["figures"][0]["title"] == "Values of actor_lr+critic_lr"
    assert tuning["note"].startswith("oht tunes actor_lr+critic_lr. 300 of 300 env steps in 6 s, 2.00 gradient steps")
    config = json.loads(get(server, f"/api/config?run={a}&other={b}")[1])
    assert config["columns"] == ["oht, seed 0 (a)", "static, seed 1 (b)"]
    assert {"name": "seed", "values": ["0", "1"], "differs": True} in config["rows"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/tuning?run=..%2Fsecret", "no longer there"),
        ("/api/tuning", "run"),
        ("/../../etc/passwd", "there is nothing at"),
        ("/api/what", "there is nothing at"),
    ],
)
def test_the_server_refuses_what_it_does_not_have(path, hint, server):
    status, body = get(server, path)
    assert status == 404
    assert hint in json.loads(body)["error"]


def test_the_server_answers_this_machine_only(server):
    assert get(server, "/api/runs", host="evil.example:80")[0] == 403
    assert get(server, "/api/runs", host="localhost:8000")[0] == 200  # as through a tunnel of ssh
    assert server.server_address[0] == "127.0.0.1"


def test_the_page_loads_nothing_from_elsewhere():
    """But names of SVG's namespaces are no addresses."""
    for file in watch.WEB.iterdir():
        assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", file.read_text()), file


# The commands


def refused(capsys, *words: str) -> str:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"oht: [^\n]+\n", err), err
    return err


def test_mistakes_are_one_sentence(tmp_path, capsys, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    assert "runs2 does not exist" in refused(capsys, "watch", "runs2")
    assert "is a file" in refused(capsys, "watch", "runs/a/config.toml")
    assert "port is 'http', but must be a whole number" in refused(capsys, "watch", "--port", "http")
    assert "65535" in refused(capsys, "watch", "--port", "70000")
    taken = str(server.server_address[1])
    assert f"port {taken} cannot be used" in refused(capsys, "watch", "--port", taken)
    (tmp_path / "empty").mkdir()
    assert "there is no run below empty" in refused(capsys, "report", "empty")
    assert "does not exist" in refused(capsys, "report", "nothing")
    assert "is a folder" in refused(capsys, "report", "runs", "--out", "empty")
    assert "cannot be written" in refused(capsys, "report", "runs", "--out", "no/such/file.html")
    (make_run(tmp_path / "bad") / "run.json").write_text("{")
    assert "damaged" in refused(capsys, "report", "bad")
    monkeypatch.setattr(watch.importlib.util, "find_spec", lambda name: None)
    watch.plotly_js.cache_clear()
    for command in ("watch", "report"):
        assert "pip install 'oht[watch]'" in refused(capsys, command, "runs")
    watch.plotly_js.cache_clear()


def test_watch_prints_its_address_starts_without_jax_and_ends_quietly(tmp_path):
    make_run(tmp_path / "runs" / "a")
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # ignored in the background
    code = "import sys; from oht.cli import main; code = main(); assert 'jax' not in sys.modules; sys.exit(code)"
    words = [sys.executable, "-c", f"{listen}; {code}", "watch"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.match(r"http://127\.0\.0\.1:(\d+)/ ", line)
    assert match, line
    connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=20)
    connection.request("GET", "/api/runs")
    assert json.loads(connection.getresponse().read())["runs"][0]["name"] == "a"
    connection.close()
    process.send_signal(2)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")


# The report


def test_the_report_is_one_file_with_pictures_numbers_commands_and_configs(tmp_path, capsys):
    make_run(tmp_path / "runs" / "a", RACE, method="oht", tune={"actor_lr+critic_lr": "log:1e-05..0.01"})
    for seed, evals in enumerate([[0.0, 4.0], [2.0, 8.0]]):
        make_run(tmp_path / "runs" / f"s{seed}", seed=seed, evals=evals, note="<b>&</script>")
    assert cli.main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out.html'}\n"
    text = (tmp_path / "out.html").read_text("utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])  # pyright: ignore[reportOptionalSubscript]
    assert set(data["returns"]) == {"steps-mean", "steps-each", "time-mean", "time-each"}
    assert sorted(len(figures) for figures in data["runs"].values()) == [2, 2, 5]
    page = text.replace(watch.plotly_js().decode(), "")
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells[8:16] == ["static", "Pendulum-v1", "2", "6.0 ± 2.0", "6.0 ± 2.0", "2.00", "200", "4 s"]
    assert cells[16:25] == ["oht", "Pendulum-v1", "0", "-2.0 ± 0.5", "-1.0 ± 0.5 at 200", "2.00", "300", "6 s", "done"]
    assert "oht train &#x27;A task&#x27;" in page
    assert "Python 3.11.7, oht 0.2.0, jax 0.10.2" in page
    assert "<dt>note</dt><dd>&lt;b&gt;&amp;&lt;/script&gt;</dd>" in page
    assert text.count("</script>") == 3
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", page)


def test_the_report_of_a_run_is_in_its_folder_by_default(tmp_path, capsys):
    path = make_run(tmp_path / "a")
    assert cli.main(["report", str(path)]) == 0
    text = (path / "report.html").read_text("utf-8")
    assert "<details open>" in text
    assert "The run" in text


def test_a_damaged_schedule_does_not_cost_the_report_of_the_others(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / name)
    (tmp_path / "a" / "schedule.csv").write_text("iteration,env_steps\n1,what?\n")
    text = html_report.report(tmp_path)
    assert "schedule.csv cannot be read as a table of numbers" in text
    assert text.count("<details>") == 2


def test_of_many_runs_only_the_first_seed_of_each_method_has_pictures(tmp_path):
    for number in range(html_report.MOST_DETAILS + 2):
        make_run(tmp_path / str(number), seed=number // 2, method=("static", "oht")[number % 2])
    found = Folder(tmp_path).runs()
    assert [run.name for run in html_report.with_details(found, runnames.labels(found))] == ["0", "1"]
    assert len(html_report.with_details(found[:10], runnames.labels(found))) == 10
