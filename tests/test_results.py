"""Reading the runs of a sweep: which tests count at which step, and what is said about runs that are not there."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from oht.errors import UserError
from oht.experiments import results, suites
from oht.experiments.results import Curve
from oht.experiments.suites import Job, Row, Suite

TASKS, LABELS = ("dm/walker-run", "gym/ant@delay5"), ("n1", "oht-nstep")
SUITE = Suite("small", "A small one", "curves", 3000, 2, (Row(TASKS, {label: {} for label in LABELS}),))


def write(root: Path, task: str, label: str, seed: int, tests: Mapping[int, float]) -> Path:
    """A run folder with these tests: env_steps -> return."""
    run = Job(task, label, seed, {}).path(root)
    run.mkdir(parents=True)
    rows = [f"{steps},{value},0.5,{value},1.0" for steps, value in tests.items()]
    (run / "evals.csv").write_text("\n".join(["env_steps,return_mean,return_std,return_1,wall_time", *rows, ""]))
    (run / "config.toml").write_text(f'task = "{task}"\n')
    return run


@pytest.fixture
def sweep(tmp_path):
    """Two tasks, two methods, two seeds, three evaluations each, made a little after 1000, 2000 and 3000 steps."""
    suites.save(SUITE, tmp_path / "suite.toml")
    for job in SUITE.jobs():
        late = 50 if job.label == "oht-nstep" else 10
        write(tmp_path, job.task, job.label, job.seed, {1000 * k + late: 10 * k + job.seed for k in (1, 2, 3)})
    return tmp_path


def test_all_runs_are_read(sweep):
    found = results.load(sweep)
    assert (found.tasks, found.labels, found.steps, found.notes) == ([*TASKS], [*LABELS], 3000, ())
    curve = found.curves["gym/ant@delay5", "oht-nstep"][1]
    assert curve.env_steps.tolist() == [1050, 2050, 3050]
    assert curve.return_mean.tolist() == [11, 21, 31]
    assert found.reached == 3000


def test_the_nearest_test_counts():
    curve = Curve(np.array([1010, 2200, 3000]), np.array([1.0, 2.0, 3.0]))
    ticks = [0, 505, 506, 1000, 1605, 1606, 2600, 2601, 3000, 3001]
    expected = [np.nan, np.nan, 1, 1, 1, 2, 2, 3, 3, np.nan]
    np.testing.assert_array_equal(results.on_grid(curve, ticks), expected)


def test_a_single_test_counts_from_half_way_to_it():
    curve = Curve(np.array([400]), np.array([7.0]))
    np.testing.assert_array_equal(results.on_grid(curve, [200, 201, 400, 401]), [np.nan, 7, 7, np.nan])


def test_scores_are_taken_at_the_budget_although_runs_overshoot_it(sweep):
    for pair, returns in results.returns_at(results.load(sweep), at=3000).items():
        assert returns.tolist() == [30, 31], pair
    for pair, returns in results.returns_at(results.load(sweep), at=2000).items():
        assert returns.tolist() == [20, 21], pair


def test_a_shorter_run_holds_all_back_unless_the_steps_are_given(sweep):
    shutil.rmtree(sweep / "dm-walker-run" / "n1" / "s1")
    write(sweep, "dm/walker-run", "n1", 1, {1010: 11, 2010: 21})
    found = results.load(sweep)
    assert found.notes == ("n1: 1 run not yet at 3,000 steps: dm/walker-run (s1 at 2,010).",)
    assert found.reached == 2010
    assert all(returns.tolist() == [20, 21] for returns in results.returns_at(found, found.reached).values())
    assert results.left_out(found, found.reached) == []
    at_end = results.returns_at(found, at=3000)
    assert at_end["dm/walker-run", "n1"].tolist() == [30]
    assert at_end["dm/walker-run", "oht-nstep"].tolist() == [30, 31]
    (note,) = results.left_out(found, 3000)
    assert note == "n1: 1 run left out, having no evaluation near 3,000 steps: dm/walker-run (s1)."


def test_missing_runs_are_told_and_the_rest_is_used(sweep):
    shutil.rmtree(sweep / "dm-walker-run" / "n1")
    (sweep / "gym-ant@delay5" / "n1" / "s0" / "evals.csv").write_text("")  # begun, but not tested yet
    found = results.load(sweep)
    assert found.notes == ("n1: 3 runs without an evaluation yet: dm/walker-run (s0, s1), gym/ant@delay5 (s0).",)
    assert ("dm/walker-run", "n1") not in found.curves
    assert list(found.curves["gym/ant@delay5", "n1"]) == [1]
    assert found.labels == [*LABELS]  # in the suite's order still


def test_a_note_stays_short(sweep):
    tasks = [f"t{i}-v0" for i in range(9)]
    many = Suite("many", "", "curves", 3000, 2, (*SUITE.rows, Row(tuple(tasks), {"n1": {}})))
    suites.save(many, sweep / "suite.toml")
    (note,) = results.load(sweep).notes
    assert note.startswith("n1: 18 runs without an evaluation yet: t0-v0 (s0, s1), ")
    assert note.endswith("t3-v0 (s0, s1), and 5 more tasks.")


def test_more_seeds_than_planned_are_used(sweep):
    write(sweep, "dm/walker-run", "n1", 7, {3010: 5})
    assert list(results.load(sweep).curves["dm/walker-run", "n1"]) == [0, 1, 7]


def test_a_suite_narrows_what_is_read_but_the_sweep_tells_the_budget(sweep):
    paper = Suite("paper", "", "curves", 10**7, 9, (Row(TASKS[:1], {"oht-nstep": {}}),))
    found = results.load(sweep, paper)
    assert (list(found.curves), found.steps, found.notes) == ([("dm/walker-run", "oht-nstep")], 3000, ())


def test_what_a_sweep_was_not_asked_for_is_not_missing(sweep):
    """As after `oht sweep --tasks ... --methods ...`: the suite of the folder has no more."""
    shutil.rmtree(sweep / "gym-ant@delay5")
    suites.save(SUITE.narrowed(tasks=["dm/walker-run"], methods=["n1"]), sweep / "suite.toml")
    for suite in (None, SUITE):
        found = results.load(sweep, suite)
        assert (list(found.curves), found.planned, found.notes) == ([(TASKS[0], "n1")], [(TASKS[0], "n1")], ())


def test_the_last_evaluation_within_the_budget_counts(sweep):
    """An iteration of a third of the budget: the run trains on to 3900 steps, which no other method had."""
    shutil.rmtree(sweep / "dm-walker-run" / "n1" / "s1")
    write(sweep, "dm/walker-run", "n1", 1, {1300: 1, 2600: 2, 3900: 3})
    found = results.load(sweep)
    (note,) = found.notes
    assert note == (
        "n1: 1 run beyond 3,000 steps, where the last evaluation within the budget counts: dm/walker-run (s1 at 3,900)."
    )
    assert found.reached == 3000
    assert found.curves["dm/walker-run", "n1"][1].env_steps.tolist() == [1300, 2600]
    assert results.returns_at(found, 3000)["dm/walker-run", "n1"].tolist() == [30, 2]


def test_a_run_that_was_only_evaluated_beyond_the_budget_keeps_that(sweep):
    shutil.rmtree(sweep / "dm-walker-run" / "n1" / "s1")
    write(sweep, "dm/walker-run", "n1", 1, {3900: 3})
    assert results.returns_at(results.load(sweep), 3000)["dm/walker-run", "n1"].tolist() == [30, 3]


def test_without_a_suite_nobody_knows_what_should_be_there(sweep):
    (sweep / "suite.toml").unlink()
    with pytest.raises(UserError, match=r"no suite\.toml or no evaluated runs; `oht sweep` writes both"):
        results.load(sweep)
    assert results.load(sweep, SUITE).notes == ()


def test_a_half_written_row_does_not_count(sweep):
    with (sweep / "dm-walker-run" / "n1" / "s0" / "evals.csv").open("a") as file:
        file.write("4010,99")
    assert results.load(sweep).curves["dm/walker-run", "n1"][0].return_mean[-1] == 30


@pytest.mark.parametrize("text", ["env_steps,return_mean\n10,x", "env_steps\n10", "env_steps,return_mean\n10,nan"])
def test_a_damaged_table_is_refused_by_its_name(sweep, text):
    (sweep / "dm-walker-run" / "n1" / "s0" / "evals.csv").write_text(text + "\n")
    with pytest.raises(UserError, match=r"dm-walker-run/n1/s0/evals\.csv"):
        results.load(sweep)


def test_folders_without_results_are_refused(sweep, tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        results.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no evaluated runs; `oht sweep` writes both"):
        results.load(tmp_path / "empty")
    run = sweep / "dm-walker-run" / "n1" / "s0"
    (run / "run.json").write_text("{}")
    with pytest.raises(UserError, match="is a single run"):
        results.load(run)
    other = Suite("other", "", "curves", 10, 1, (Row(("dm/walker-walk",), {"n1": {}}),))
    with pytest.raises(UserError, match="no evaluated runs of the suite other"):
        results.load(sweep, other)


@pytest.mark.parametrize("at", [400, 10**6])
def test_a_step_that_no_run_has_is_refused(sweep, at):
    with pytest.raises(UserError, match=f"near {at:,} steps; evaluations go from 1,010 to 3,050"):
        results.returns_at(results.load(sweep), at=at)
