"""Runs that went into a CSV on one machine are not trained again on another (`benchmarks/evidence.py`)."""

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from oht.experiments import results, scores, suites
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
        evals = [f"{steps},{-steps},1.5,{-steps},{steps / 125},{steps / 100}" for steps in range(1000, end + 1, 1000)]
        metrics = [f"{k},{500 * k},{1000 * k}" for k in range(1, end // 500 + 1)]
        header = "env_steps,return_mean,return_std,return_1,cpu_time,wall_time"
        (run / "evals.csv").write_text("\n".join([header, *evals, ""]))
        (run / "metrics.csv").write_text("\n".join(["iteration,env_steps,updates", *metrics, ""]))
        champions = [f"{k},{500 * k},{k},{0.001 / k}" for k in range(1, end // 500 + 1)]
        header = "iteration,env_steps,champion/n_step,champion/critic_lr"
        (run / "schedule.csv").write_text("\n".join([header, *champions, ""]))
    return tmp_path / "sweep"


def test_a_stored_run_is_done_on_another_machine(folder, tmp_path):
    table, elsewhere = tmp_path / "tables" / "small.csv", tmp_path / "elsewhere"
    for _ in range(2):  # a run is stored once
        EVIDENCE["store"](SUITE.jobs(), SUITE.steps, folder, table)
    assert table.read_text().splitlines() == [
        "task,method,seed,env_steps,return,return_std,gradient_steps,wall_time,cpu_time,champion",
        "Pendulum-v1,static,0,1000,-1000,1.5,2000,10,8,n_step=2 critic_lr=0.0005",
        "Pendulum-v1,static,0,2000,-2000,1.5,4000,20,16,n_step=4 critic_lr=0.00025",
    ]
    EVIDENCE["put_back"](table, elsewhere)
    assert [item.state for item in plan(SUITE, elsewhere)] == ["done", "waiting"]
    suites.save(SUITE, elsewhere / suites.FILE)
    found = results.load(elsewhere)
    assert found.curves["Pendulum-v1", "static"][0].return_mean.tolist() == [-1000, -2000]
    costs = {number.statistic: number.value for number in scores.summarise(found).numbers}
    assert (costs["cost"], costs["minutes"], costs["cpu_minutes"]) == (2, 20 / 60, 16 / 60)


def test_what_is_in_the_folder_already_is_left_as_it_is(folder, tmp_path):
    table, run = tmp_path / "small.csv", SUITE.jobs()[0].path(folder)
    EVIDENCE["store"](SUITE.jobs(), SUITE.steps, folder, table)
    before = (run / "evals.csv").read_text()
    EVIDENCE["put_back"](table, folder)
    assert (run / "evals.csv").read_text() == before


def test_every_part_is_a_part_of_its_suite():
    """One seed of everything first; five seeds of the methods that are compared most; others if time allows."""
    parts = [part for part in EVIDENCE["PARTS"] if part.suite not in ("others", "long")]
    assert [part.seeds for part in parts] == sorted(part.seeds for part in parts)
    assert [EVIDENCE["planned"](name) for name in ("delayed", "wrong-start", "dense")] == [
        4 * (5 + 5 + 3),
        6 * 3,
        4 * (5 + 5 + 3 + 3),
    ]
    for name, compared in (*EVIDENCE["VERSUS"].items(), *EVIDENCE["SAME_COST"].items()):
        assert {*compared, *compared.values()} <= set(EVIDENCE["source"](name).labels)


# Tables


def store(
    folder: Path,
    returns: Mapping[tuple[str, str], Sequence[float]],
    cpu: str = "540",
    champions: Mapping[tuple[str, str, int], str] | None = None,
) -> None:
    """The CSV of the suite `dense` with these last returns of each seed.

    Runs have 200 000 env steps, ten minutes and, by default, nine CPU minutes.
    """
    lines = ["task,method,seed,env_steps,return,return_std,gradient_steps,wall_time,cpu_time,champion"]
    for (task, label), values in returns.items():
        for seed, value in enumerate(values):
            last = (champions or {}).get((task, label, seed), "")
            lines += [f"{task},{label},{seed},100000,1,0,200000,300,1,"]
            lines += [f"{task},{label},{seed},200000,{value},0,400000,600,{cpu},{last}"]
    (folder / "dense.csv").write_text("\n".join([*lines, ""]))


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setitem(EVIDENCE["found_in"].__globals__, "TABLES", tmp_path)
    return tmp_path


def of_dense(what: str) -> list[str]:
    return EVIDENCE[what](EVIDENCE["source"]("dense"), EVIDENCE["found_in"]("dense")).splitlines()


def test_the_summary_has_scores_improvement_and_cost(tables):
    walker, cheetah = "dm/walker-run", "dm/cheetah-run"
    store(
        tables,
        {
            (walker, "static"): (100, 200, 300),
            (cheetah, "static"): (100, 100, 100),
            (walker, "oht"): (400, 400, 400),
            (cheetah, "oht"): (50, 150, 100),
        },
    )
    _, _, static, oht = of_dense("summary")
    assert static.startswith("| TD3 | 6 | 0.15 | 0.15 | 0.25 | 0.12 [")  # 0.1 0.1 0.1 0.1 0.2 0.3; the cheetah is a tie
    assert static.endswith("] |  | 2.00 | 10 | 9 |")
    assert oht.startswith("| oht, its portfolio | 6 | 0.25 | 0.25 | 0.75 | 0.26 [")  # 0.05 0.1 0.15 0.4 0.4 0.4
    assert "| 0.75 [" in oht  # (1 + 1/2) / 2
    header, _, first, paper, second, _ = of_dense("by_task")
    assert header == "| return | TD3 | oht, its portfolio |"
    assert first == "| `dm/walker-run` | 200 (100, 200, 300) | 400 (400, 400, 400) |"
    assert paper == "| paper, 1e7 steps | 274 ± 200 |  |"
    assert second == "| `dm/cheetah-run` | 100 (100, 100, 100) | 100 (50, 150, 100) |"


def test_two_seeds_have_no_probability_and_a_missing_run_an_empty_cell(tables):
    store(tables, {("dm/walker-run", "static"): (100, 200), ("dm/walker-walk", "oht"): (400,)})
    assert of_dense("by_task")[2] == "| `dm/walker-run` | 150 (100, 200) |  |"
    assert of_dense("by_task")[4] == "| `dm/walker-walk` |  | 400 |"
    store(tables, {("dm/walker-run", "static"): (100, 200), ("dm/walker-run", "oht"): (400, 400, 400)})
    assert "| too few seeds | 2.00 | 10 | 9 |" in of_dense("summary")[3]


def test_what_led_at_the_end(tables):
    walker, cheetah = "dm/walker-run", "dm/cheetah-run"
    tied = "exploration_noise=0.1 n_step=1 actor_lr=0.0003 critic_lr=0.0003"
    store(
        tables,
        {(task, label): (1, 2, 3) for task in (walker, cheetah) for label in ("static", "oht")},
        champions={
            (walker, "oht", 1): tied,
            (walker, "oht", 2): "exploration_noise=0.1 n_step=3 actor_lr=0.0003 critic_lr=0.001",
            (cheetah, "oht", 2): "exploration_noise=0.1 n_step=1 actor_lr=0.001 critic_lr=0.001",
        },
    )
    assert EVIDENCE["settled"](EVIDENCE["source"]("dense")).splitlines() == [
        "| led before the last episode |  | seed 1 | seed 2 |",
        "|---|---|---|---|",
        "| `dm/walker-run` | oht, its portfolio | rates 0.0003 | n_step 3, actor_lr 0.0003 |",
        "| `dm/cheetah-run` | oht, its portfolio |  | default |",
    ]
    store(tables, {(walker, "static"): (1, 2, 3)})
    assert EVIDENCE["settled"](EVIDENCE["source"]("dense")) == ""


def test_runs_that_did_not_count_cpu_time_have_none(tables, tmp_path):
    store(tables, {("dm/walker-run", "static"): (100, 200, 300)}, cpu="")
    assert of_dense("summary")[2].endswith("| 2.00 | 10 |  |")
    EVIDENCE["put_back"](tables / "dense.csv", tmp_path / "sweep")
    suites.save(EVIDENCE["source"]("dense"), tmp_path / "sweep" / suites.FILE)
    known = {number.statistic for number in scores.summarise(results.load(tmp_path / "sweep")).numbers}
    assert "minutes" in known
    assert "cpu_minutes" not in known


def test_everything_stored_is_shown(tables, capsys):
    tasks = EVIDENCE["source"]("dense").tasks
    store(tables, {(task, label): (1, 2, 3) for task in tasks for label in ("static", "oht", "ratio2", "oht-nstep")})
    assert EVIDENCE["show"](["delayed", "dense"]) == 0
    text = capsys.readouterr().out
    assert "Dense rewards from the default values: 48 runs of 64" in text
    assert "Delayed" not in text
    assert sorted(path.name for path in tables.glob("*.png")) == ["dense-scores.png", "dense.png"]


def test_the_page_gets_the_tables_and_the_numbers_of_runs(tables):
    store(tables, {("dm/walker-run", "static"): (100, 200)})
    found = EVIDENCE["all_found"](["delayed", "dense"])
    page = "1 of 162 runs\n\n<!-- tables of dense -->\n\nold\n\n<!-- end of tables -->\n\n1 of 64 runs, 1 of 52 runs\n"
    assert EVIDENCE["with_tables"]("no tables", found) == "no tables"
    new = EVIDENCE["with_tables"](page, found)
    assert new == page.replace("old", "\n".join([*of_dense("summary"), "", *of_dense("by_task")])).replace(
        "1 of 162", "2 of 162"
    ).replace("1 of 64", "2 of 64")
    assert EVIDENCE["with_tables"](new, found) == new
    with pytest.raises(SystemExit, match="<!-- tables of dense --> is not followed by <!-- end of tables -->"):
        EVIDENCE["with_tables"](page.partition("old")[0], found)


def test_the_overview_compares_with_static_on_the_tasks_and_seeds_of_both(tables):
    walker, cheetah = "dm/walker-run", "dm/cheetah-run"
    returns = {(walker, "static"): (100, 300), (cheetah, "static"): (500,), (walker, "oht"): (200, 400, 900)}
    store(
        tables,
        {**returns, (cheetah, "oht"): (100, 700), (walker, "ratio2"): (500,), ("dm/walker-walk", "ratio2"): (1,)},
    )
    begin = "| Dense rewards from the default values | "
    assert EVIDENCE["overview"](EVIDENCE["all_found"](["dense"])).splitlines()[2:] == [
        f"{begin}oht, its portfolio: 0.20 | TD3: 0.35 | -0.15 | 3 | 1 of 2 |",
        f"{begin}TD3, replay ratio 2: 0.50 | TD3: 0.10 | +0.40 | 1 | 1 of 1 |",
        f"{begin}oht, its portfolio: 0.20 | TD3, replay ratio 2: 0.50 | -0.30 | 1 | 0 of 1 |",
    ]


def test_the_difference_has_an_interval_from_three_seeds_on(tables):
    walker, cheetah = "dm/walker-run", "dm/cheetah-run"
    static = {(walker, "static"): (100, 100, 100), (cheetah, "static"): (200, 200, 200)}
    store(tables, {**static, (walker, "oht"): (300, 300, 600), (cheetah, "oht"): (200, 200, 200)})
    line = EVIDENCE["overview"](EVIDENCE["all_found"](["dense"])).splitlines()[2]
    # the walker's mean is 300 to 600, if one seed is drawn three times; both tasks together: half of its lead
    assert line.endswith("| oht, its portfolio: 0.30 | TD3: 0.15 | +0.15 [+0.10, +0.25] | 6 | 1 of 2 |")
