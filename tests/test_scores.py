"""Statistics over tasks: numbers computed by hand, those of rliable, and what `oht scores` says of a folder."""

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from oht.cli import main
from oht.errors import UserError
from oht.experiments import result_tables, scores, suites
from oht.experiments.results import Curve, Results
from oht.experiments.suites import Job, Row, Suite

RLIABLE = json.loads((Path(__file__).parent / "data" / "rliable.json").read_text())
CASES = RLIABLE["cases"]
POINTS = {"mean": scores.mean, "median": scores.median, "iqm": scores.iqm}


def of(*tasks: Sequence[float]) -> list[np.ndarray]:
    return [np.array(seeds, float) for seeds in tasks]


# By hand


@pytest.mark.parametrize(
    ("task", "value", "expected"),
    [
        ("dm/walker-run", 250, 0.25),
        ("gym/ant", -55, 0),
        ("gym/ant", 6000, 1),
        ("bullet/half-cheetah", 864, 0.5),
        ("gym/walker2d", 5000, 1),
        ("gym/ant@delay5", 2972.5, 0.5),
    ],
)
def test_normalised_scores(task, value, expected):
    assert scores.has_scale(task)
    np.testing.assert_allclose(scores.normalised(task, [value, value]), [expected] * 2)


def test_a_task_without_scores_is_refused():
    assert not scores.has_scale("Pendulum-v1")
    with pytest.raises(UserError, match="'Pendulum-v1' has no low and high score"):
        scores.normalised("Pendulum-v1", [1.0])


def test_every_task_of_the_paper_has_a_scale():
    for task in suites.load("figure1").tasks:
        np.testing.assert_array_equal(scores.normalised(task, [np.nan]), [np.nan])


def test_mean_and_median_are_over_tasks_however_many_seeds_they_have():
    method = of([0, 1], [1], [0.2, 0.4, 0.6])  # means 0.5, 1, 0.4
    np.testing.assert_allclose(scores.mean(method), 1.9 / 3)
    np.testing.assert_allclose(scores.median(method), 0.5)


def test_the_best_ratio_compares_means_over_seeds_and_shares_ties():
    methods = {
        "a": of([0.1, 0.9], [0.3], [0.1, 0.2], [1.0]),  # means 0.5, 0.3, 0.15, 1
        "b": of([0.6, 0.2], [0.3], [0.3], [0.0]),  # means 0.4, 0.3, 0.3, 0
        "c": of([0.4], [0.3], [0.2, 0.2, 0.2], [0.9]),  # means 0.4, 0.3, 0.2, 0.9
    }
    assert scores.best_ratio(methods) == pytest.approx({"a": (1 + 1 / 3 + 1) / 4, "b": (1 / 3 + 1) / 4, "c": 1 / 12})


def test_a_tie_is_one_although_sums_round():
    assert scores.best_ratio({"a": of([0.1, 0.2, 0.3]), "b": of([0.3, 0.2, 0.1])}) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ([[1, 8, 3, 6], [5, 4, 7, 2]], 4.5),  # 1, 2 and 7, 8 are cut
        ([[1, 2, 3, 100, 5, 6, 7, 8, 9, -50]], 31 / 6),  # -50, 1 and 9, 100 are cut: two of ten
        ([[0], [9, 1, 2]], 1.5),  # tasks with one and three seeds
        ([[4.0], [2.0]], 3.0),  # too few to cut any
    ],
)
def test_the_interquartile_mean(tasks, expected):
    np.testing.assert_allclose(scores.iqm(of(*tasks)), expected)


def test_the_profile_is_the_share_above_and_tasks_weigh_the_same():
    method = of([0.2, 0.4, 0.6, 0.8], [0.5])
    expected = [1, (3 / 4 + 1) / 2, (1 / 2 + 0) / 2, 0]
    np.testing.assert_allclose(scores.performance_profile(method, [0, 0.2, 0.5, 0.8]), expected)


def test_the_probability_of_improvement_counts_ties_half():
    x, y = of([1, 2], [5]), of([1, 0], [3, 5, 9])
    np.testing.assert_allclose(scores.probability_of_improvement(x, y), ((0.5 + 1 + 1 + 1) / 4 + (1 + 0.5 + 0) / 3) / 2)
    both = scores.probability_of_improvement(x, y) + scores.probability_of_improvement(y, x)
    np.testing.assert_allclose(both, 1)


def test_methods_with_other_tasks_cannot_be_compared():
    with pytest.raises(ValueError, match="shorter"):
        scores.probability_of_improvement(of([1], [2]), of([1]))


def test_the_deviation_over_seeds():
    np.testing.assert_allclose(scores.deviation(np.array([[1.0, 3.0], [2.0, 2.0]])), [np.sqrt(2), 0])
    np.testing.assert_array_equal(scores.deviation(np.array([[1.0], [2.0]])), [np.nan, np.nan])


# The bootstrap


def test_the_bootstrap_draws_as_if_all_resamples_were_listed():
    """Three and two seeds: all 27 x 4 resamples are equally likely."""
    method = of([0.0, 0.13, 1.0], [0.2, 0.7])
    resamples = itertools.product(itertools.product(method[0], repeat=3), itertools.product(method[1], repeat=2))
    listed = [np.mean([np.mean(task) for task in tasks]) for tasks in resamples]
    for level in (0.95, 0.5):
        low, high = scores.stratified_bootstrap(scores.mean, method, level=level, repeats=50_000)
        expected = np.quantile(listed, [(1 - level) / 2, (1 + level) / 2])
        np.testing.assert_allclose([low, high], expected, atol=0.02)


def test_seeds_are_drawn_within_their_task():
    method = of([1, 1, 1], [5, 5], [9])
    assert scores.stratified_bootstrap(scores.mean, method) == (5, 5)
    assert scores.stratified_bootstrap(scores.iqm, method) == (scores.iqm(method), scores.iqm(method))


def test_two_methods_are_drawn_apart():
    """The same seeds on both sides: if both were drawn together, every resample would be a draw."""
    method = of([0, 1, 2], [0, 1])
    low, high = scores.stratified_bootstrap(scores.probability_of_improvement, method, method)
    assert low < 0.3
    assert high > 0.7


def test_a_curve_is_drawn_as_a_whole():
    curves = [np.random.default_rng(0).normal(size=(4, seeds)) for seeds in (3, 5)]
    low, high = scores.stratified_bootstrap(scores.iqm, curves, repeats=100)
    for tick in range(4):
        expected = scores.stratified_bootstrap(scores.iqm, [task[tick] for task in curves], repeats=100)
        assert (low[tick], high[tick]) == expected


# rliable


def both(case: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The two recorded methods; there, scores are runs x tasks."""
    return list(np.array(CASES[case]["x"]).T), list(np.array(CASES[case]["y"]).T)


def near(interval, expected, atom: float = 0.0) -> None:
    """With other random numbers the ends differ by 8 % of the width at most, or by one `atom`: what one run counts."""
    expected = np.array(expected)
    tolerance = np.maximum(0.08 * (expected[1] - expected[0]), atom) + 1e-12
    assert (np.abs(np.array(interval) - expected) <= tolerance).all(), (interval, expected)


@pytest.mark.parametrize("case", CASES)
def test_statistics_are_those_of_rliable(case):
    x, y = both(case)
    for name, statistic in POINTS.items():
        np.testing.assert_allclose(statistic(x), CASES[case]["points"][name], rtol=1e-12)
    profile = scores.performance_profile(x, RLIABLE["thresholds"])
    np.testing.assert_allclose(profile, CASES[case]["profile"], rtol=1e-12)
    np.testing.assert_allclose(scores.probability_of_improvement(x, y), CASES[case]["improvement"], rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_intervals_are_those_of_rliable(case):
    x, y = both(case)
    atom = 1 / sum(map(len, x))
    for name, statistic in POINTS.items():
        near(scores.stratified_bootstrap(statistic, x), CASES[case]["intervals"][name])
    profile = partial(scores.performance_profile, thresholds=RLIABLE["thresholds"])
    near(scores.stratified_bootstrap(profile, x), CASES[case]["profile_interval"], atom)
    improvement = scores.stratified_bootstrap(scores.probability_of_improvement, x, y)
    near(improvement, CASES[case]["improvement_interval"], atom)


# oht scores


TASKS = ("dm/walker-run", "gym/ant@delay5")
RETURNS = {  # of seeds 0, 1, 2
    ("dm/walker-run", "td3"): (200, 300, 400),
    ("dm/walker-run", "oht-lr"): (400, 500, 600),
    ("gym/ant@delay5", "td3"): (2972.5, 2972.5, 2972.5),
    ("gym/ant@delay5", "oht-lr"): (1156, 2367, 1761.5),
}


def write(root: Path, task: str, label: str, seed: int, value: float, steps: int = 1000) -> None:
    """A run that was tested half way and at the end, when it was best."""
    run = Job(task, label, seed, {}).path(root)
    run.mkdir(parents=True, exist_ok=True)
    (run / "evals.csv").write_text(f"env_steps,return_mean\n{steps // 2},{value - 100}\n{steps},{value}\n")


@pytest.fixture
def sweep(tmp_path):
    root = tmp_path / "sweep"
    suites.save(Suite("small", "", "curves", 1000, 3, (Row(TASKS, {"td3": {}, "oht-lr": {}}),)), root / "suite.toml")
    for (task, label), values in RETURNS.items():
        for seed, value in enumerate(values):
            write(root, task, label, seed, value)
    return root


def printed(capsys, *words: str) -> str:
    assert main(["scores", *words]) == 0
    return capsys.readouterr().out


def lines(text: str, title: str) -> list[str]:
    """A table's lines after its title, with single blanks."""
    return [" ".join(line.split()) for line in text.split(title)[1].split("\n\n")[0].splitlines()[1:]]


def test_all_tables_are_printed(sweep, capsys):
    text = printed(capsys, str(sweep))
    header, td3, oht_lr, *_ = lines(text, "Normalised scores at 1,000 env steps, 2 tasks")
    assert header == "method seeds mean median best ratio IQM 95 % interval"
    assert td3.startswith("td3 3 0.400 0.400 0.500 0.425 [0.")  # runs 0.2 0.3 0.4 0.5 0.5 0.5
    assert oht_lr.startswith("oht-lr 3 0.400 0.400 0.500 0.400 [0.")  # 0.2 0.3 0.4 0.4 0.5 0.6
    assert lines(text, "Performance profile")[:3] == [
        "method seeds > 0 > 0.2 > 0.4 > 0.6 > 0.8 > 1",
        "td3 3 1.00 0.83 0.50 0.00 0.00 0.00",
        "oht-lr 3 1.00 0.83 0.33 0.00 0.00 0.00",
    ]
    header, chance, *_ = lines(text, "Probability of improvement")
    assert header == "X Y P(X > Y) 95 % interval"
    assert chance.startswith("td3 oht-lr 0.53 [0.5")  # (1/18 + 1) / 2
    assert lines(text, "Returns")[:3] == [
        "task seeds td3 oht-lr",
        "dm/walker-run 3 300 ± 100 500 ± 100",
        "gym/ant@delay5 3 2972 ± 0 1762 ± 606",
    ]
    assert text.endswith("of the evaluation nearest to that step.\n\n")  # nothing to complain of


def spend(root: Path, task: str, label: str, seed: int, updates: Sequence[int], seconds: Sequence[float]) -> None:
    """What the run had spent by its two evaluations, on two cores; an iteration is 250 env steps."""
    run = Job(task, label, seed, {}).path(root)
    evals = (run / "evals.csv").read_text().splitlines()
    words = [("wall_time", "cpu_time"), *((wall, 2 * wall) for wall in seconds)]
    lines = [f"{line},{wall},{cpu}" for line, (wall, cpu) in zip(evals, words, strict=True)]
    (run / "evals.csv").write_text("\n".join([*lines, ""]))
    rows = [f"{250 * (k + 1)},{count}" for k, count in enumerate(updates)]
    (run / "metrics.csv").write_text("\n".join(["env_steps,updates", *rows, ""]))


def test_what_each_method_cost(sweep, tmp_path, capsys):
    for seed, last in enumerate((1900, 2000, 2100)):
        spend(sweep, "dm/walker-run", "oht-lr", seed, (0, 500, 1200, last, 9999), (60, 120 + 60 * seed))
    spend(sweep, "dm/walker-run", "td3", 0, (0, 250, 500, 1000), (30, 90))
    text = printed(capsys, str(sweep), "--csv", str(tmp_path / "scores.csv"))
    assert lines(text, "Cost up to 1,000 env steps")[:3] == [
        "method runs gradient steps / env step minutes CPU minutes",
        "td3 1 1.00 1.5 3.0",
        "oht-lr 3 2.00 ± 0.10 3.0 ± 1.0 6.0 ± 2.0",
    ]
    rows = csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())
    costs = {(row["statistic"], row["method"]): float(row["value"]) for row in rows}
    assert costs["cost", "oht-lr"] == pytest.approx(2)
    assert costs["minutes", "td3"] == pytest.approx(1.5)
    text = printed(capsys, str(sweep), "--at", "500")
    assert lines(text, "Cost up to 500 env steps")[2] == "oht-lr 3 1.00 ± 0.00 1.0 ± 0.0 2.0 ± 0.0"


def test_a_method_without_a_known_cost_has_a_dash(sweep, capsys):
    spend(sweep, "dm/walker-run", "td3", 0, (0, 250, 500, 1000), (30, 90))
    assert lines(printed(capsys, str(sweep)), "Cost")[2] == "oht-lr - - - -"


def test_a_damaged_table_of_iterations_is_refused_by_its_name(sweep, capsys):
    (sweep / "dm-walker-run" / "td3" / "s0" / "metrics.csv").write_text("env_steps\n10\n")
    assert main(["scores", str(sweep)]) == 2
    assert "metrics.csv cannot be read: it has no column updates" in " ".join(capsys.readouterr().err.split())


def test_scores_at_another_step(sweep, capsys):
    text = printed(capsys, str(sweep), "--at", "5e2")
    assert lines(text, "Returns")[1] == "dm/walker-run 3 200 ± 100 400 ± 100"


def test_few_seeds_and_missing_runs_are_said(sweep, capsys):
    (sweep / "dm-walker-run" / "td3" / "s2" / "evals.csv").unlink()
    text = " ".join(printed(capsys, str(sweep)).split())
    assert "td3: 1 run without an evaluation yet: dm/walker-run (s2)." in text
    assert "Fewer than three seeds in 1 of 4 pairs of task and method (td3)" in text
    assert "dm/walker-run 2-3 250 ± 71 500 ± 100" in text
    assert "P(X > Y) 95 % interval td3 oht-lr - too few seeds" in text


def test_a_single_seed_has_no_interval_and_no_deviation(sweep, capsys):
    for seed in (1, 2):
        for path in sweep.glob(f"*/*/s{seed}/evals.csv"):
            path.unlink()
    text = printed(capsys, str(sweep))
    assert lines(text, "Normalised")[1] == "td3 1 0.350 0.350 0.500 0.350 -"
    assert lines(text, "Probability")[1] == "td3 oht-lr - too few seeds"
    assert lines(text, "Returns")[1] == "dm/walker-run 1 200 400"
    assert "Fewer than three seeds in 4 of 4" in text


def test_a_task_with_a_single_seed_leaves_a_method_without_interval(sweep, capsys):
    for seed in (1, 2):
        (sweep / "dm-walker-run" / "oht-lr" / f"s{seed}" / "evals.csv").unlink()
    rows = lines(printed(capsys, str(sweep)), "Normalised")
    assert [(row.split()[0], row.endswith(" -")) for row in rows[1:3]] == [("td3", False), ("oht-lr", True)]


def test_runs_left_out_by_the_given_step_are_said(sweep, capsys):
    write(sweep, "dm/walker-run", "td3", 0, 777, steps=800)
    assert "All are compared at 800 steps" in printed(capsys, str(sweep))
    text = " ".join(printed(capsys, str(sweep), "--at", "1000").split())
    assert "All are compared" not in text
    assert "td3: 1 run left out, having no evaluation near 1,000 steps: dm/walker-run (s0)." in text
    assert "dm/walker-run 2-3 350 ± 71 500 ± 100" in text


def test_methods_are_compared_on_the_tasks_that_all_have(sweep, capsys):
    for path in sweep.glob("dm-walker-run/td3/*/evals.csv"):
        path.unlink()
    text = printed(capsys, str(sweep))
    assert "Normalised scores at 1,000 env steps, 1 task" in text
    assert "Methods are compared without dm/walker-run: not every method has a run there." in " ".join(text.split())
    assert lines(text, "Returns")[1] == "dm/walker-run 3 - 500 ± 100"


def test_nothing_in_common_still_gives_the_returns(sweep, capsys):
    for gone in ("dm-walker-run/td3", "gym-ant@delay5/oht-lr"):
        for path in sweep.glob(f"{gone}/*/evals.csv"):
            path.unlink()
    text = printed(capsys, str(sweep))
    assert text.startswith("Returns at 1,000 env steps\n")
    assert lines(text, "Returns")[2] == "gym/ant@delay5 3 2972 ± 0 -"


def test_tasks_without_low_and_high_scores(tmp_path, capsys):
    for label, values in {"a": (1, 2, 3), "b": (0, 1, 5)}.items():
        for seed, value in enumerate(values):
            write(tmp_path, "Pendulum-v1", label, seed, value)
    suites.save(Suite("p", "", "curves", 1000, 3, (Row(("Pendulum-v1",), {"a": {}, "b": {}}),)), tmp_path / suites.FILE)
    text = printed(capsys, str(tmp_path))
    assert text.startswith("Probability of improvement\n")
    assert lines(text, "Probability")[1].startswith("a b 0.61 [")  # (1.5 + 2 + 2) / 9
    assert "Normalised scores are without Pendulum-v1" in text


def test_every_number_is_in_the_csv_file(sweep, tmp_path, capsys):
    printed(capsys, str(sweep), "--csv", str(tmp_path / "scores.csv"))
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert {row["steps"] for row in rows} == {"1000"}
    counts = Counter(row["statistic"] for row in rows)
    assert counts == {"mean": 2, "median": 2, "iqm": 2, "best_ratio": 2, "profile": 12, "improvement": 1, "return": 4}
    found = {(row["statistic"], row["method"], row["task"], row["threshold"]): row for row in rows}
    iqm = found["iqm", "td3", "", ""]
    assert float(iqm["low"]) <= float(iqm["value"]) <= float(iqm["high"])
    assert float(iqm["value"]) == pytest.approx(0.425)
    walker = found["return", "oht-lr", "dm/walker-run", ""]
    assert (float(walker["value"]), float(walker["std"]), walker["seeds"]) == (500, pytest.approx(100), "3")
    assert float(found["profile", "td3", "", "0.2"]["value"]) == pytest.approx(5 / 6)
    assert found["improvement", "td3", "", ""]["versus"] == "oht-lr"


def test_a_probability_of_too_few_seeds_is_not_in_the_csv_file(sweep, tmp_path, capsys):
    (sweep / "dm-walker-run" / "td3" / "s2" / "evals.csv").unlink()
    printed(capsys, str(sweep), "--csv", str(tmp_path / "scores.csv"))
    text = (tmp_path / "scores.csv").read_text()
    assert "improvement" not in text
    assert "nan" not in text


def test_the_tables_as_markdown(sweep, tmp_path, capsys):
    (sweep / "dm-walker-run" / "td3" / "s2" / "evals.csv").unlink()
    printed(capsys, str(sweep), "--markdown", str(tmp_path / "scores.md"))
    text = (tmp_path / "scores.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# Normalised scores at 1,000 env steps, 2 tasks",
        "# Performance profile",
        "# Probability of improvement",
        "# Returns at 1,000 env steps",
        "# Notes",
    ]
    assert "| dm/walker-run | 2-3 | 250 ± 71 | 500 ± 100 |" in text
    assert "- td3: 1 run without an evaluation yet: dm/walker-run (s2)." in text


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_tables_fit_the_terminal_and_are_never_cut(width):
    labels = [f"method-{i}" for i in range(9)]
    tests = Curve(np.array([10]), np.array([123456.0]))
    tasks = ("bullet/half-cheetah@delay5", "gym/ant")
    curves = {(task, label): dict.fromkeys(range(3), tests) for task in tasks for label in labels}
    summary = scores.summarise(Results(curves, 10, list(curves)))
    console = Console(file=io.StringIO(), width=width)
    result_tables.show(summary, console)
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert max(map(len, text.splitlines())) <= max(width, len("bullet/half-cheetah@delay5  seeds  123456 ± 0"))
    returns = text.split("Returns at ")[1]
    assert returns.count("123456 ± 0") == 18
    assert all(f" {label}" in returns for label in labels)
    assert "…" not in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["{}", "--at", "soon"], "at is 'soon', but must be a whole number"),
        (["{}", "--at", "-5"], "no run has an evaluation near -5 steps"),
        (["{}", "--csv", "{}"], "is a folder; name a file in it"),
        (["{}", "--csv", "{}/none/x.csv"], "cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(sweep, capsys, words, sentence):
    before = sorted(sweep.parent.rglob("*"))
    assert main(["scores", *(word.format(sweep) for word in words)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert sorted(sweep.parent.rglob("*")) == before
