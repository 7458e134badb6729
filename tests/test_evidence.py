"""Runs that went into a CSV on one machine are not trained again on another (`benchmarks/evidence.py`)."""

import runpy
from pathlib import Path

import pytest

from oht.experiments import scores, suites
from oht.experiments.suites import Row, Suite
from oht.experiments.sweep import plan

EVIDENCE = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "evidence.py"))
SUITE = Suite("small", "A small one", "curves", 2000, 1, (Row(("Pendulum-v1",), {"static": {}, "oht": {}}),))


@pytest.fixture
def folder(tmp_path):
    """The folder of a sweep with one finished run and one that was cut off."""
    for job, end in zip(SUITE.jobs(), (2000, 1000), strict=True):
        run = job.path(tmp_path / "sweep")
        run.mkdir(parents=True)
        evals = [f"{steps},{-steps},1.5,{-steps},{steps / 100}" for steps in range(1000, end + 1, 1000)]
        metrics = [f"{k},{500 * k},{1000 * k}" for k in range(1, end // 500 + 1)]
        (run / "evals.csv").write_text("\n".join(["env_steps,return_mean,return_std,return_1,wall_time", *evals, ""]))
        (run / "metrics.csv").write_text("\n".join(["iteration,env_steps,updates", *metrics, ""]))
    return tmp_path / "sweep"


def test_a_stored_run_is_done_on_another_machine(folder, tmp_path):
    table, elsewhere = tmp_path / "tables" / "small.csv", tmp_path / "elsewhere"
    for _ in range(2):  # a run is stored once
        EVIDENCE["store"](SUITE.jobs(), SUITE.steps, folder, table)
    assert table.read_text().splitlines() == [
        "task,method,seed,env_steps,return,return_std,gradient_steps,wall_time",
        "Pendulum-v1,static,0,1000,-1000,1.5,2000,10",
        "Pendulum-v1,static,0,2000,-2000,1.5,4000,20",
    ]
    EVIDENCE["put_back"](table, elsewhere)
    assert [item.state for item in plan(SUITE, elsewhere)] == ["done", "waiting"]
    suites.save(SUITE, elsewhere / suites.FILE)
    assert scores.load(elsewhere).curves["Pendulum-v1", "static"][0].return_mean.tolist() == [-1000, -2000]


def test_what_is_in_the_folder_already_is_left_as_it_is(folder, tmp_path):
    table, run = tmp_path / "small.csv", SUITE.jobs()[0].path(folder)
    EVIDENCE["store"](SUITE.jobs(), SUITE.steps, folder, table)
    before = (run / "evals.csv").read_text()
    EVIDENCE["put_back"](table, folder)
    assert (run / "evals.csv").read_text() == before


def test_every_part_is_a_part_of_its_suite():
    """One seed of everything first; five seeds of the methods that are compared most."""
    parts = EVIDENCE["PARTS"]
    assert [part.seeds for part in parts] == sorted(part.seeds for part in parts)
    runs = {(part.suite, job.name) for part in parts for job in part.chosen().jobs()}
    assert len(runs) == 4 * (5 + 5 + 3) + 6 * 3 + 4 * (5 + 5 + 3 + 3)
