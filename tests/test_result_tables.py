"""Tables of results: the test behind the bold print, and every sign of the Markdown and LaTeX."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from oht.experiments import result_tables as tables
from oht.experiments import suites
from oht.experiments.result_tables import Score, Table
from oht.experiments.suites import Row, Suite


def suite(tasks: tuple[str, ...], labels: tuple[str, ...], **changes: Any) -> Suite:
    values = {"name": "mine", "title": "My 50 % & more", "layout": "table", "steps": 1000, "seeds": 3}
    return Suite(**(values | changes), rows=(Row(tasks, {label: {} for label in labels}),))


def seeds(*scores: float) -> np.ndarray:
    return np.array(scores, float)


# Welch's test


@pytest.mark.parametrize("sizes", [(3, 3), (2, 5), (10, 4)])
def test_welch_is_that_of_scipy(sizes):
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.5, 3.0):
        a, b = rng.normal(0, 1, sizes[0]), rng.normal(shift, 2, sizes[1])
        _, expected = stats.ttest_ind(a, b, equal_var=False)
        assert tables.welch(a, b) == pytest.approx(expected, rel=1e-9)


def test_welch_by_hand():
    """t = -2 / sqrt(1/3 + 1/3) with 4 degrees of freedom, whose distribution has a closed form."""
    t2 = 4 / (2 / 3)
    sine = (t2 / (t2 + 4)) ** 0.5
    expected = 1 - sine * (1 + (1 - sine**2) / 2)
    assert tables.welch(seeds(1, 2, 3), seeds(3, 4, 5)) == pytest.approx(expected)


def test_seeds_that_all_agree():
    assert tables.welch(seeds(5, 5, 5), seeds(5, 5, 5)) == 1
    assert tables.welch(seeds(5, 5, 5), seeds(6, 6, 6)) == 0
    assert 0 < tables.welch(seeds(5, 5, 5), seeds(5, 6, 7)) < 1


def test_the_best_and_what_cannot_be_told_from_it():
    scores = {"good": seeds(99, 100, 101), "as good": seeds(90, 100, 109), "bad": seeds(49, 50, 51)}
    assert tables.best(scores) == {"good", "as good"}


def test_too_few_seeds_or_nothing_to_compare_with():
    assert tables.best({"a": seeds(1, 2, 3), "b": seeds(10, 11)}) == set()
    assert tables.best({"a": seeds(1, 2, 3)}) == set()


# Cells and signs


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score(757.4, 6.6), "757 ± 7"),
        (Score(-55.0), "-55"),
        (Score(-0.0004, 0.01234, digits=3), "0.000 ± 0.012"),
        (Score(7.567, 0.5, digits=2), "7.57 ± 0.50"),
    ],
)
def test_a_score(score, text):
    assert str(score) == text


def test_markdown():
    table = Table(
        "Title", ["task", "a|b", "x"], [["t|1", "", Score(1, 2, bold=True)], ["t2", "w", Score(3)]], ["Note."]
    )
    assert table.markdown() == (
        "# Title\n\n| task | a\\|b | x |\n| --- | --- | ---: |\n| t\\|1 |  | **1 ± 2** |\n| t2 | w | 3 |\n\n- Note.\n"
    )


def test_latex():
    table = Table("5 % & a<b>c|d", ["task", "a_b", "x"], [["t^1", "{#}", Score(-1, 2, bold=True)]], ["Mean ± std."])
    assert table.latex().splitlines() == [
        r"\begin{table}  % needs \usepackage{booktabs,graphicx}",
        r"\caption{5 \% \& a\textless{}b\textgreater{}c\textbar{}d}",
        r"\centering",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"task & a\_b & x \\",
        r"\midrule",
        r"t\textasciicircum{}1 & \{\#\} & $\mathbf{-1 \pm 2}$ \\",
        r"\bottomrule",
        r"\end{tabular}}",
        r"\par\footnotesize\raggedright Mean $\pm$ std.",
        r"\end{table}",
    ]


# Table 1


def test_the_papers_numbers_are_those_of_the_suite():
    ours = suites.load("table1")
    assert list(tables.PAPER["scores"]) == ours.tasks
    assert all(list(row) == ours.labels for row in tables.PAPER["scores"].values())
    assert tables.PAPER["scores"]["gym/ant"]["td3"] == [3968, 801]


def test_our_scores_stand_above_the_papers_with_the_steps_of_both():
    scores = {
        ("dm/walker-run", "td3"): seeds(100, 200, 300),
        ("dm/walker-run", "sac"): seeds(19, 20, 21),
        ("Pendulum-v1", "td3"): seeds(-1.5, -2.0, -2.5),
        ("Pendulum-v1", "mine"): seeds(-9, -9.5, -10),
    }
    asked = suite(("dm/walker-run", "Pendulum-v1", "gym/ant"), ("td3", "sac", "mine"), titles={"mine": "My method"})
    table = tables.comparison(asked, scores, steps=500, notes=["sac: 3 runs are missing."])
    assert table.markdown() == (
        "# My 50 % & more\n"
        "\n"
        "| task | whose | env steps | td3 | sac | My method |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| Walker run | ours | 500 | **200 ± 100** | **20 ± 1** |  |\n"
        "|  | paper | 10,000,000 | 274 ± 200 | 23 ± 1 |  |\n"
        "| Pendulum-v1 | ours | 500 | **-2.00 ± 0.50** |  | -9.50 ± 0.50 |\n"
        "\n"
        "- Ours: mean ± standard deviation over 3 seeds of the evaluation nearest to 500 env steps.\n"
        "- The suite asks for 1,000 env steps and 3 seeds.\n"
        "- Bold, ours only: the best mean of a task and every method that does not differ from it by Welch's t-test"
        " (two-sided, 5%).\n"
        "- Paper: its Table 1, as printed, which gives neither steps nor seeds; 10,000,000 env steps (and three seeds)"
        " are those of its Figure 2.\n"
        "- sac: 3 runs are missing.\n"
    )


def test_with_fewer_than_three_seeds_nothing_is_bold_and_that_is_said():
    scores = {("A-v1", "a"): seeds(1000), ("A-v1", "b"): seeds(10, 20), ("B-v1", "a"): seeds(1, 2, 3)}
    table = tables.comparison(suite(("A-v1", "B-v1"), ("a", "b")), scores, steps=500)
    assert [str(cell) for cell in table.rows[0]] == ["A-v1", "ours", "500", "1000", "15 ± 7"]
    assert not any(isinstance(cell, Score) and cell.bold for row in table.rows for cell in row)
    assert "Nothing is bold where a method has fewer than 3 seeds: A-v1." in table.notes
    assert "over 1-3 seeds" in table.notes[0]
    assert not any("Paper" in note for note in table.notes)


def test_delayed_rewards_have_no_row_in_the_paper():
    scores = {("dm/walker-run@delay5", "td3"): seeds(1, 2, 3)}
    table = tables.comparison(suite(("dm/walker-run@delay5",), ("td3",)), scores, steps=500)
    assert [row[1] for row in table.rows] == ["ours"]


# Table 2


def test_what_we_measured_beside_low_and_high():
    scores = {
        ("gym/ant", "random"): seeds(-55, 5945),  # the low score, and 6000 above it
        ("gym/walker2d@delay5", "random"): seeds(2),
        ("Pendulum-v1", "random"): seeds(-1200, -1300),
    }
    asked = suite(tuple(task for task, _ in scores), ("random",), title="Low and high")
    assert tables.low_scores(asked, scores, notes=["random: a run is missing."]).markdown() == (
        "# Low and high\n"
        "\n"
        "| task | policy | measured | low | high | normalised |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| Ant (Gym) | random | 2945.0 ± 4242.6 | -55 | 6000 | 0.495 |\n"
        "| Walker2d (Gym), delayed | random | 2.0 | 2 | 5000 | 0.000 |\n"
        "| Pendulum-v1 | random | -1250.0 ± 70.7 |  |  |  |\n"
        "\n"
        "- Measured: mean ± standard deviation over 1-2 seeds; each seed is the mean of its episodes.\n"
        "- Low and high: Table 2 of the paper, which lacks Walker2d (Gym): there they are ours.\n"
        "- Normalised: (measured - low) / (high - low); 0 is the low score.\n"
        "- random: a run is missing.\n"
    )
