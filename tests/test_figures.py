"""Figures of suites: what is drawn from which tests, and the files that `oht figures` writes."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from oht import cli
from oht.errors import UserError
from oht.experiments import figures, results, suites
from oht.experiments.results import Curve
from oht.experiments.suites import Job, Row, Suite

WALK, RUN, ANT = "dm/walker-walk", "dm/walker-run", "gym/ant"
Tests = Mapping[int, float]  # env steps -> return


def suite(layout: str, *rows: Sequence[str], labels: Sequence[str] = ("n1", "oht-nstep"), **changes) -> Suite:
    methods = {label: {"method": "static"} for label in labels}
    made = Suite("mine", "My suite", layout, 100, 2, tuple(Row(tuple(tasks), methods) for tasks in rows))
    return replace(made, **changes)


def write(root: Path, task: str, label: str, seed: int, tests: Tests) -> None:
    """The tests of a run, as `oht train` writes them."""
    path = Job(task, label, seed, {}).path(root)
    path.mkdir(parents=True)
    lines = [f"{steps},{value},0.0,1.0" for steps, value in tests.items()]
    (path / "evals.csv").write_text("\n".join(["env_steps,return_mean,return_std,wall_time", *lines, ""]))


def drawn(root: Path, asked: Suite, caption: bool = False) -> Figure:
    return figures.draw(asked, results.load(root, asked), caption)


def line(axis: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = (line for line in axis.lines if line.get_label() == label)
    x, y = found.get_data()
    return [float(value) for value in np.asarray(x)], [float(value) for value in np.asarray(y)]


def bands(axis: Axes) -> list[tuple[float, float]]:
    """The lowest and highest point of each band that has a height."""
    corners = [path.get_extents() for c in axis.collections if isinstance(c, PolyCollection) for path in c.get_paths()]
    return [(float(corner.y0), float(corner.y1)) for corner in corners if np.isfinite(corner.y0)]


def places(figure: Figure) -> list[tuple[int, int, int]]:
    """Rows, columns and number of each panel."""
    return [spec.get_geometry()[:3] for axis in figure.axes if (spec := axis.get_subplotspec())]


def legend(figure: Figure) -> Legend:
    (found,) = figure.legends
    return found


def caption(figure: Figure) -> str:
    return " ".join(legend(figure).get_title().get_text().split())


def entries(figure: Figure) -> list[str]:
    return [text.get_text() for text in legend(figure).get_texts()]


# Curves


@pytest.fixture
def walker(tmp_path: Path) -> Path:
    """Two seeds that differ by 20 and, with the other method, by nothing."""
    for task in (WALK, RUN):
        for seed in (0, 1):
            write(tmp_path, task, "n1", seed, {50: 10 + 20 * seed, 100: 30 + 20 * seed})
            write(tmp_path, task, "oht-nstep", seed, {50: 100, 100: 200})
    return tmp_path


def test_a_panel_for_each_task_in_the_rows_of_the_suite(walker):
    write(walker, ANT, "n1", 0, {50: 1, 100: 2})
    figure = drawn(walker, suite("curves", [WALK, RUN], [ANT]))
    assert [axis.get_title() for axis in figure.axes] == ["Walker walk", "Walker run", "Ant (Gym)"]
    assert places(figure) == [(2, 2, 0), (2, 2, 1), (2, 2, 2)]
    assert all(axis.get_xlabel() == "environment steps of all agents" for axis in figure.axes)


def test_no_more_than_four_panels_abreast(tmp_path):
    tasks = [f"Task{number}-v0" for number in range(5)]
    for task in tasks:
        write(tmp_path, task, "n1", 0, {100: 1})
    assert places(drawn(tmp_path, suite("curves", tasks))) == [(2, 4, number) for number in range(5)]


def test_mean_and_standard_deviation_over_seeds(walker):
    axis = drawn(walker, suite("curves", [WALK])).axes[0]
    assert line(axis, "n1") == ([50, 100], [20, 40])
    assert line(axis, "oht-nstep") == ([50, 100], [100, 200])
    deviation = 20 / 2**0.5  # of 10 and 30
    assert bands(axis)[0] == pytest.approx((20 - deviation, 40 + deviation))


def test_one_seed_has_no_band(tmp_path):
    write(tmp_path, WALK, "n1", 0, {50: 1, 100: 2})
    figure = drawn(tmp_path, suite("curves", [WALK], seeds=1, labels=["n1"]), caption=True)
    assert bands(figure.axes[0]) == []
    assert entries(figure) == ["n1", "1 seed"]
    assert caption(figure) == "1 task; 1 seed; 1 run, the shortest 100 env steps"


def test_a_mean_ends_where_its_shortest_run_does(tmp_path):
    write(tmp_path, WALK, "n1", 0, {25: 0, 50: 2, 75: 4, 100: 6})
    write(tmp_path, WALK, "n1", 1, {25: 0, 50: 4})
    assert line(drawn(tmp_path, suite("curves", [WALK])).axes[0], "n1") == ([25, 50], [0, 3])


def test_the_caption_says_how_much_there_is(walker):
    asked = suite("curves", [WALK, RUN], [ANT], steps=1000, seeds=3)
    figure = drawn(walker, asked, caption=True)
    assert figure.get_suptitle() == "My suite"
    tasks, seeds, runs = caption(figure).split("; ")
    assert tasks == "2 of 3 tasks"
    assert seeds == "mean over 2 seeds, band: one standard deviation over seeds"
    assert runs == "8 of 18 runs, the shortest 100 of 1,000 env steps"


def test_without_being_asked_there_is_neither_title_nor_caption(walker):
    figure = drawn(walker, suite("curves", [WALK]))
    assert (figure.get_suptitle(), caption(figure)) == ("", "")
    _, notes = figures.make(suite("curves", [WALK]), walker, walker / "out")
    assert notes[0].startswith("caption: 1 task; mean over 2 seeds, band: one standard deviation over seeds; 4 runs")
    _, notes = figures.make(suite("curves", [WALK]), walker, walker / "out", caption=True)
    assert notes == []


def test_readable_names(walker):
    titles = {"n1": "TD3, n = 1", RUN: "My run"}
    figure = drawn(walker, suite("curves", [WALK, RUN], titles=titles))
    assert entries(figure) == ["TD3, n = 1", "oht-nstep", "mean over 2 seeds", "one standard deviation"]
    assert [axis.get_title() for axis in figure.axes] == ["Walker walk", "My run"]
    statistic = ["statistic over 2 tasks", "95 % bootstrap interval"]
    assert entries(drawn(walker, suite("aggregate", [WALK, RUN])))[2:] == statistic


@pytest.mark.parametrize("name", suites.names())
def test_every_label_and_task_of_the_paper_has_a_readable_name(name):
    paper = suites.load(name)
    shown = [paper.title_of(thing) for thing in (*paper.labels, *paper.tasks)]
    assert len(set(shown)) == len(shown)
    assert not [title for title in shown if title in (*paper.labels, *paper.tasks) or "/" in title or "@" in title]


def test_the_legend_hides_no_curve(walker):
    for asked in (suite("curves", [WALK, RUN]), suite("aggregate", [WALK, RUN]), suite("curves", [WALK])):
        figure = drawn(walker, asked, caption=True)
        figure.savefig(Path(walker / "drawn.png"))
        assert entries(figure)[:2] == ["n1", "oht-nstep"]
        boxes = [legend(figure).get_window_extent(), *(axis.get_tightbbox() for axis in figure.axes)]
        assert not any(a.overlaps(b) for a, b in combinations(filter(None, boxes), 2))
        assert boxes[0].x0 >= 0
        assert boxes[0].x1 <= figure.bbox.x1


def test_dollars_in_a_title_are_no_formula(walker):
    figure = drawn(walker, suite("curves", [WALK], title="$\\broken$"), caption=True)
    figure.savefig(walker / "drawn.png")


# Aggregates


@pytest.fixture
def three_tasks(tmp_path: Path) -> Path:
    """Normalised scores at 50 and at 100 steps; low and high are 0 and 1000, for Ant -55 and 6000."""
    scores = {
        ("n1", WALK): (0.1, 0.2),
        ("n1", RUN): (0.2, 0.6),
        ("n1", ANT): (0.6, 0.7),
        ("oht-nstep", WALK): (0.1, 0.5),
        ("oht-nstep", RUN): (0.3, 0.8),
        ("oht-nstep", ANT): (0.5, 0.6),
    }
    for (label, task), (early, late) in scores.items():
        low, high = (-55, 6000) if task == ANT else (0, 1000)
        for seed, shift in enumerate((-0.05, 0.05)):
            tests = {steps: low + (z + shift) * (high - low) for steps, z in ((50, early), (100, late))}
            write(tmp_path, task, label, seed, tests)
    return tmp_path


def test_mean_median_and_best_ratio_of_normalised_scores(three_tasks):
    mean, median, ratio = drawn(three_tasks, suite("aggregate", [WALK, RUN, ANT])).axes
    assert [axis.get_title() for axis in (mean, median, ratio)] == ["Mean", "Median", "Best ratio"]
    assert line(mean, "n1")[1] == pytest.approx([0.3, 0.5])
    assert line(mean, "oht-nstep")[1] == pytest.approx([0.3, 1.9 / 3])
    assert line(median, "n1")[1] == pytest.approx([0.2, 0.6])
    assert line(median, "oht-nstep")[1] == pytest.approx([0.3, 0.6])
    assert line(ratio, "n1")[1] == pytest.approx([0.5, 1 / 3])  # at 50 steps one task each, and a tie
    assert line(ratio, "oht-nstep")[1] == pytest.approx([0.5, 2 / 3])
    assert line(mean, "n1")[0] == [50, 100]


def test_the_band_of_a_statistic_is_that_of_other_seeds(three_tasks):
    """With two seeds, a task drawn again is 0.05 too low or too high with probability 1/4 each.

    The mean of three tasks is too low by 0.05 in 1/64 and by 0.1/3 in 3/32 of all cases: the lowest 2.5 % end there.
    """
    mean, median, ratio = drawn(three_tasks, suite("aggregate", [WALK, RUN, ANT])).axes
    assert bands(mean)[0] == pytest.approx((0.3 - 0.1 / 3, 0.5 + 0.1 / 3))
    assert bands(mean)[1] == pytest.approx((0.3 - 0.1 / 3, 2 / 3))
    assert len(bands(median)) == 2
    assert bands(ratio) == []


def test_a_single_seed_on_a_task_leaves_no_band(three_tasks):
    shutil.rmtree(Job(RUN, "n1", 1, {}).path(three_tasks))
    mean, median, _ = drawn(three_tasks, suite("aggregate", [WALK, RUN, ANT])).axes
    assert bands(mean) == [pytest.approx((0.3 - 0.1 / 3, 2 / 3))]  # of oht-nstep alone
    assert len(bands(median)) == 1


def test_the_legend_names_a_band_only_where_one_is_drawn(three_tasks):
    asked = suite("aggregate", [WALK, RUN, ANT])
    for task, label, named in ((RUN, "n1", True), (ANT, "oht-nstep", False)):
        shutil.rmtree(Job(task, label, 1, {}).path(three_tasks))
        [legend] = drawn(three_tasks, asked).legends
        assert ("95 % bootstrap interval" in [text.get_text() for text in legend.get_texts()]) == named
        assert ("band" in figures.describe(asked, results.load(three_tasks, asked))) == named


def test_methods_are_compared_on_the_tasks_that_all_have(three_tasks):
    write(three_tasks, "gym/walker2d", "n1", 0, {100: 5000})
    asked = suite("aggregate", [WALK, RUN, ANT, "gym/walker2d"], labels=["n1", "oht-nstep", "n5"])
    out = three_tasks / "out"
    _, notes = figures.make(asked, three_tasks, out)
    assert notes[-1] == "left out, because a method has no evaluated run there: gym/walker2d."
    assert any(note.startswith("n5: 8 runs without an evaluation yet") for note in notes)
    found = figures.on_common_tasks(results.load(three_tasks, asked))
    assert found.tasks == [WALK, RUN, ANT]
    assert found.labels == ["n1", "oht-nstep"]


def test_nothing_in_common(tmp_path):
    write(tmp_path, WALK, "n1", 0, {100: 1})
    write(tmp_path, RUN, "oht-nstep", 0, {100: 1})
    with pytest.raises(UserError, match="no task has an evaluated run of each of n1, oht-nstep"):
        figures.make(suite("aggregate", [WALK, RUN]), tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_too_short_to_compare_with(tmp_path):
    write(tmp_path, WALK, "n1", 0, {10: 1})
    write(tmp_path, WALK, "n1", 1, {50: 1, 100: 2})
    write(tmp_path, WALK, "oht-nstep", 0, {50: 1, 100: 2})
    asked = suite("aggregate", [WALK])
    with pytest.raises(UserError, match="ends at 10 env steps, where others have no evaluation yet"):
        figures.make(asked, tmp_path, tmp_path / "out")
    _, notes = figures.make(asked, tmp_path, tmp_path / "out", at=90)
    assert notes[-1] == "n1: 1 run left out, having no evaluation near 90 steps: dm/walker-walk (s0)."


# Ticks and colours


def curve(*steps: int) -> Curve:
    return Curve(np.array(steps), np.zeros(len(steps)))


def test_ticks_lie_where_all_runs_are():
    assert figures.shared_ticks([curve(10, 20, 30, 40), curve(12, 24, 36)]).tolist() == [12, 24, 36]
    assert figures.shared_ticks([curve(10), curve(11, 21)]).tolist() == [10]
    assert len(figures.shared_ticks([curve(*range(1, 5001))])) == figures.MAX_TICKS


@pytest.mark.parametrize("name", suites.names())
def test_the_methods_of_a_suite_differ_in_colour(name):
    labels = suites.load(name).labels
    assert set(labels) <= set(figures.COLOURS)
    assert len(set(figures.colours(labels).values())) == len(labels)


def test_colours_of_the_paper():
    """TD3 is red, meta-gradients are green, OHT-ES is blue."""
    named = {"td3": "red", "n1": "red", "meta-gradient": "green", "oht-lr": "blue", "oht-nstep": "blue"}
    for label, name in named.items():
        strongest = ("red", "green", "blue")[int(np.argmax(to_rgb(figures.COLOURS[label])))]
        assert strongest == name, label


def test_a_label_keeps_its_colour_in_other_company(walker):
    alone, together = figures.colours(["my-method"]), figures.colours(["n1", "my-method", "td3"])
    assert alone["my-method"] == together["my-method"]
    assert len(set(figures.colours(["n1", "static", "td3", "oht"]).values())) == 4  # the first has the fixed one
    many = figures.colours([f"m{number}" for number in range(len(figures.SPARE) + 1)])
    assert set(many.values()) == set(figures.SPARE)
    figure = drawn(walker, suite("curves", [WALK], labels=["oht-nstep"]))
    assert to_hex(figure.axes[0].lines[0].get_color()) == figures.COLOURS["oht-nstep"]


# Files and the command


def test_the_same_runs_give_the_same_files(walker):
    asked, out = suite("curves", [WALK]), walker / "out"
    files, notes = figures.make(asked, walker, out)
    assert files == [out / "mine.png", out / "mine.pdf"]
    assert len(notes) == 1  # the caption
    before = [file.read_bytes() for file in files]
    assert before[0].startswith(b"\x89PNG")
    assert before[1].startswith(b"%PDF")
    assert b"CreationDate" not in before[1]
    assert b"/FontFile2" in before[1]  # TrueType, embedded
    assert b"/Type3" not in before[1]
    figures.make(asked, walker, out)
    assert [file.read_bytes() for file in files] == before
    assert sorted(out.iterdir()) == sorted(files)


def test_a_table_at_a_step_leaves_out_what_is_not_that_far(walker):
    write(walker, WALK, "n1", 2, {50: 1000})
    asked, out = suite("table", [WALK], seeds=3), walker / "out"
    _, notes = figures.make(asked, walker, out)
    assert "| Walker walk | ours | 50 | 347 ± 566 | 100 ± 0 |" in (out / "mine.md").read_text()
    files, notes = figures.make(asked, walker, out, at=100)
    text = (out / "mine.md").read_text()
    assert files == [out / "mine.md", out / "mine.tex"]
    assert "| Walker walk | ours | 100 | 40 ± 14 | 200 ± 0 |" in text
    assert "n1: 1 run left out, having no evaluation near 100 steps: dm/walker-walk (s2)." in notes
    assert all(f"- {note}" in text for note in notes)


def test_a_table_says_which_run_has_no_test_there(tmp_path):
    write(tmp_path, RUN, "n1", 0, {20: 1.0, 40: 2.0})
    write(tmp_path, RUN, "oht-nstep", 0, {110: 3.0})  # its first iteration ended beyond the others' last
    figures.make(suite("table", [RUN], seeds=1), tmp_path, tmp_path / "out")
    told = (tmp_path / "out" / "mine.md").read_text()
    assert "oht-nstep: 1 run left out, having no evaluation near 40 steps: dm/walker-run (s0)." in told


@pytest.mark.parametrize("name", suites.names())
def test_every_suite_of_the_paper_from_its_runs(name, tmp_path, capsys):
    asked = suites.load(name)
    for job in asked.jobs():
        if job.seed < 2:
            write(tmp_path, job.task, job.label, job.seed, {1000: 10 * job.seed, 2000: 20 + len(job.label)})
    assert cli.main(["figures", name, str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    kinds = ("md", "tex") if name.startswith("table") else ("png", "pdf")
    assert out.split() == [str(tmp_path / "figures" / f"{name}.{kind}") for kind in kinds]
    assert all(Path(file).stat().st_size > 500 for file in out.split())
    assert re.search(r"^oht: \S+: \d+ runs without an evaluation yet: ", err, re.MULTILINE)


def refused(capsys, *words: str) -> str:
    assert cli.main(["figures", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"oht: [^\n]+\n", err), err
    return err


def test_mistakes_are_one_sentence(tmp_path, capsys):
    write(tmp_path, WALK, "td3", 0, {100: 1})
    root = str(tmp_path)
    assert "did you mean 'figure" in refused(capsys, "figrue2", root)
    assert "is not a folder" in refused(capsys, "figure2", str(tmp_path / "nowhere"))
    assert "no evaluated runs of the suite figure1" in refused(capsys, "figure1", root)
    assert "no run has an evaluation near 5,000 steps" in refused(capsys, "figure2", root, "--at", "5e3")
    assert "at is 'soon'" in refused(capsys, "figure2", root, "--at", "soon")
    (tmp_path / "file").touch()
    assert "cannot be written" in refused(capsys, "figure2", root, "--out", str(tmp_path / "file"))
    assert "no low and high score" in refused(capsys, _own_suite(tmp_path), root)


def _own_suite(tmp_path: Path) -> str:
    """Aggregates of a task that has no scale."""
    write(tmp_path, "Pendulum-v1", "n1", 0, {100: -900})
    own = tmp_path / "own.toml"
    own.write_text('layout = "aggregate"\nsteps = 100\ntasks = ["Pendulum-v1"]\n[methods.n1]\nmethod = "static"\n')
    return str(own)


def test_the_folder_of_the_sweep_is_found(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(Path("runs/table2"), WALK, "random", 0, {1000: 25})
    assert cli.main(["figures", "table2", "--out", "here"]) == 0
    assert capsys.readouterr().out.split() == ["here/table2.md", "here/table2.tex"]
    assert "| Walker walk | uniformly random | 25.0 | 0 | 1000 | 0.025 |" in Path("here/table2.md").read_text()


def test_drawing_needs_no_jax():
    code = "import sys, oht.experiments.figures; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
