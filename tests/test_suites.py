"""Suites: the paper's figures and tables as data, users' own files, and the line of every kind of mistake."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oht import config
from oht.envs.tasks import TASKS
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.suites import Job, Row, Suite

STATIC = ["n1", "n2", "n3", "n5"]
CONTROL = ["dm/walker-run", "dm/walker-stand", "dm/walker-walk", "dm/cheetah-run"]

SHORT = """\
steps = 1000
tasks = ["Pendulum-v1", "dm/walker-run@delay5"]

[settings]
start_steps = 200

[methods.n1]
n_step = 1

[methods.tuned]
method = "oht-nstep"
tune = { n_step = "1,2" }
"""

ROWS = """\
name = "both"
title = "A \\"title\\" with \u00e4"
layout = "table"
steps = 1e5
seeds = 2

[settings]
eval-every = 100

[methods.n1]
n_step = 1

[methods.n2]
n_step = 2

[[rows]]
tasks = ["Pendulum-v1"]

[[rows]]
tasks = [
    "dm/walker-run",
    "dm/walker-walk",
]
[rows.methods.n2]
eval-every = 50
[rows.methods.n3]
n_step = 3
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# The paper


def test_what_the_paper_shows():
    loaded = {name: suites.load(name) for name in suites.names()}
    assert list(loaded) == ["figure1", "figure2", "figure3", "figure4", "table1", "table2"]
    assert {name: suite.layout for name, suite in loaded.items()} == {
        "figure1": "aggregate",
        "figure2": "curves",
        "figure3": "curves",
        "figure4": "aggregate",
        "table1": "table",
        "table2": "scores",
    }
    assert {suite.steps for name, suite in loaded.items() if name != "table2"} == {10_000_000}
    assert {suite.seeds for suite in loaded.values()} == {3}
    assert loaded["figure1"].tasks == loaded["table2"].tasks == list(TASKS)
    assert loaded["figure4"].tasks == [f"{task}@delay5" for task in TASKS]
    assert loaded["figure2"].tasks == CONTROL
    assert loaded["figure3"].tasks == CONTROL + [f"{task}@delay5" for task in CONTROL]
    assert len(loaded["table1"].tasks) == 10
    assert set(TASKS) - set(loaded["table1"].tasks) == {"gym/walker2d", "robo/walker2d", "bullet/walker2d"}
    for name in ("figure1", "figure3", "figure4"):
        assert loaded[name].labels == [*STATIC, "oht-nstep"]
    assert loaded["figure2"].labels == ["td3", "meta-gradient", "oht-lr"]
    assert loaded["table1"].labels == ["oht-nstep", "oht-lr", "cem-rl", "td3", "sac"]


@pytest.mark.parametrize("name", suites.names())
def test_every_run_of_the_paper_could_start(name):
    suite = suites.load(name, runnable=True)
    for (task, label), values in suite.pairs.items():
        resolved = config.resolve({**values, "task": task, "steps": suite.steps})
        if label in STATIC:
            assert (resolved.run.method, resolved.hyper["n_step"]) == ("static", int(label[1:]))
        elif label == "oht-nstep":
            assert resolved.tune["n_step"] == config.spaces.Choice(*range(1, 6 if "@delay5" in task else 4))
        elif label == "sac":
            assert (resolved.run.algo, resolved.options["alpha"]) == ("sac", 0.2)
        elif label == "random":
            assert (resolved.run.algo, resolved.run.eval_episodes) == ("uniform", 100)
        elif label == "td3":
            assert (resolved.run.algo, resolved.run.method, dict(resolved.hyper)) == ("td3", "static", {})
        else:
            assert (resolved.run.algo, resolved.run.method) == ("td3", label)


def test_the_suites_behind_the_results_could_start():
    found = sorted((Path(__file__).parent.parent / "results" / "suites").glob("*.toml"))
    assert [path.stem for path in found] == ["delayed", "dense", "long", "others", "wrong-start"]
    for path in found:
        suite = suites.load(str(path), runnable=True)
        assert (suite.steps, suite.seeds) == ((1_000_000, 1) if suite.name == "long" else (200_000, 3))


# The format


def test_a_short_file(tmp_path):
    suite = suites.load(written(tmp_path / "short one.toml", SHORT), runnable=True)
    n1, tuned = (
        {"start_steps": 200, "n_step": 1},
        {"start_steps": 200, "method": "oht-nstep", "tune": {"n_step": "1,2"}},
    )
    row = Row(("Pendulum-v1", "dm/walker-run@delay5"), {"n1": n1, "tuned": tuned})
    assert suite == Suite("short-one", "short-one", "curves", 1000, 3, (row,))
    jobs = suite.jobs()
    assert len(jobs) == 2 * 2 * 3
    assert jobs[0] == Job("Pendulum-v1", "n1", 0, n1)
    assert [job.seed for job in jobs] == 4 * [0] + 4 * [1] + 4 * [2]
    assert jobs[-1].path(Path("out")) == Path("out/dm-walker-run@delay5/tuned/s2")
    assert jobs[-1].name == "dm-walker-run@delay5-tuned-s2"
    assert Job("module:Env", "n1", 0, {}).path(Path("out")) == Path("out/module-Env/n1/s0")


def test_rows_and_what_comes_over_what(tmp_path):
    suite = suites.load(written(tmp_path / "file.toml", ROWS))
    assert (suite.name, suite.title, suite.layout, suite.steps, suite.seeds) == (
        "both",
        'A "title" with \u00e4',
        "table",
        100_000,
        2,
    )
    first, second = suite.rows
    assert first.methods == {"n1": {"eval_every": 100, "n_step": 1}, "n2": {"eval_every": 100, "n_step": 2}}
    assert second.methods["n2"] == {"eval_every": 50, "n_step": 2}
    assert suite.labels == ["n1", "n2", "n3"]
    assert suite.tasks == ["Pendulum-v1", "dm/walker-run", "dm/walker-walk"]
    assert len(suite.jobs()) == (2 + 2 * 3) * 2


@pytest.mark.parametrize("text", [SHORT, ROWS])
def test_what_is_saved_is_read_back(tmp_path, text):
    suite = suites.load(written(tmp_path / "file.toml", text)).with_settings({"hidden": "8,8", "gamma": 1e-05})
    suites.save(suite, tmp_path / "there" / "suite.toml")
    assert suites.load(tmp_path / "there" / "suite.toml") == suite


def test_narrowed(tmp_path):
    suite = suites.load(written(tmp_path / "file.toml", ROWS))
    assert suite.narrowed() == suite
    narrow = suite.narrowed(tasks=["dm/walker-walk", "Pendulum-v1"], methods=["n3"])
    assert list(narrow.pairs) == [("dm/walker-walk", "n3")]
    with pytest.raises(UserError, match="unknown task 'dm/walker-wal'; did you mean 'dm/walker-walk'"):
        suite.narrowed(tasks=["dm/walker-wal"])
    with pytest.raises(UserError, match="unknown method 'n33'"):
        suite.narrowed(methods=["n33"])
    with pytest.raises(UserError, match="none of these methods on any of these tasks"):
        suite.narrowed(tasks=["Pendulum-v1"], methods=["n3"])


def test_other_budgets_and_settings(tmp_path):
    suite = suites.load(written(tmp_path / "file.toml", SHORT))
    assert suite.with_budget(seeds=1).jobs() == suite.jobs()[:4]
    assert suite.with_budget(steps=7).steps == 7
    with pytest.raises(UserError, match="seeds is 0"):
        suite.with_budget(seeds=0)
    assert {s["n_step"] for s in suite.with_settings({"n-step": 3}).pairs.values()} == {3}
    with pytest.raises(UserError, match="seed is no setting of a method: `seeds` is"):
        suite.with_settings({"seed": "3"})


def test_another_budget_scales_how_often_runs_are_evaluated(tmp_path):
    def every(suite: Suite) -> set[int]:
        return {s["eval_every"] for s in suite.pairs.values()}

    paper = suites.load("figure3")
    assert every(paper.with_budget(steps=100_000)) == {1000}  # 100 evaluations, as the suite has
    assert every(paper.with_budget(seeds=1)) == {100_000}
    assert every(paper.with_budget(steps=100_000).with_settings({"eval_every": 7})) == {7}
    unsaid = suites.load(written(tmp_path / "file.toml", SHORT)).with_budget(steps=500)
    assert not any("eval_every" in s for s in unsaid.pairs.values())
    rarely = suites.load(written(tmp_path / "file.toml", changed(SHORT, "start_steps = 200", "eval_every = 500")))
    assert every(rarely.with_budget(steps=500)) == {50}  # ten evaluations at least
    often = suites.load(written(tmp_path / "file.toml", changed(SHORT, "start_steps = 200", "eval_every = 3")))
    assert every(often.with_budget(steps=10)) == {1}
    at_the_end = suites.load("table2")
    assert every(at_the_end.with_budget(steps=2_000)) == every(at_the_end)


def test_titles(tmp_path):
    titled = SHORT + '\n[titles]\nn1 = "TD3, n = 1"\n"Pendulum-v1" = "Pendulum"\n'
    suite = suites.load(written(tmp_path / "file.toml", titled))
    names = ["n1", "tuned", "Pendulum-v1", "dm/walker-run@delay5", "robo/half-cheetah@delay3", "my:Env@delay5"]
    assert [suite.title_of(name) for name in names] == [
        "TD3, n = 1",
        "tuned",
        "Pendulum",
        "Walker run, delayed",
        "Half cheetah (Roboschool), delay 3",
        "my:Env, delayed",
    ]
    suites.save(suite, tmp_path / "again.toml")
    assert suites.load(tmp_path / "again.toml") == suite


# Mistakes


def changed(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after, 1)


MISTAKES = {
    "syntax": (changed(SHORT, "n_step = 1", "n_step = = 1"), 8, "not TOML"),
    "open at the end": (SHORT + "x = [1,\n", 13, "not TOML"),
    "twice": (changed(SHORT, "n_step = 1", "n_step = 1\nn_step = 2"), 9, "not TOML"),
    "key": (changed(SHORT, "steps", "seed = 1\nsteps"), 1, "unknown key 'seed'; did you mean 'seeds'"),
    "table": (changed(SHORT, "[settings]", "[setings]"), 4, "unknown key 'setings'; did you mean 'settings'"),
    "key of a row": (changed(ROWS, '"]\n', '"]\nmethod = 3\n'), 18, "unknown key of a row 'method'; did you mean"),
    "layout": (changed(ROWS, '"table"', '"tables"'), 3, "unknown layout 'tables'; did you mean 'table'"),
    "title": ("title = 3\n" + SHORT, 1, "title must be a text"),
    "name": ('name = "../x"\n' + SHORT, 1, "must begin with a letter"),
    "steps": (changed(SHORT, "1000", '"many"'), 1, "steps is 'many', but must be a whole number"),
    "seeds": (changed(ROWS, "seeds = 2", "seeds = 0"), 5, "seeds is 0, but must be from 1"),
    "tasks": (changed(SHORT, '["Pendulum-v1", "dm/walker-run@delay5"]', '"Pendulum-v1"'), 2, "must be a list"),
    "task twice": (changed(ROWS, '"dm/walker-walk"', '"dm/walker-run"'), 22, "'dm/walker-run' is listed twice"),
    "no tasks": (changed(ROWS, 'tasks = ["Pendulum-v1"]', ""), 16, "there are no tasks"),
    "no folder": (changed(SHORT, '"Pendulum-v1"', '"../x"'), 2, "'../x' cannot name a folder"),
    "tasks at two places": (changed(ROWS, "steps", 'tasks = ["Pendulum-v1"]\nsteps'), 4, "not both"),
    "rows": ("steps = 3\nrows = 3\n", 2, "must be tables"),
    "folder": (changed(SHORT, '"Pendulum-v1"', '"dm-walker:run@delay5"'), 2, "would share a folder"),
    "other settings": (
        changed(ROWS, '"dm/walker-walk"', '"Pendulum-v1"'),
        22,
        "has other settings of n2 in an earlier row",
    ),
    "label": (changed(SHORT, "methods.n1", 'methods."a/b"'), 7, "the label 'a/b' must begin"),
    "method": (changed(SHORT, "[methods.n1]", "[methods]\nn1 = 3\n[methods.n2]"), 8, "must be a table of settings"),
    "no method": ('steps = 3\ntasks = ["Pendulum-v1"]\n[methods]\n', 3, "there is no method"),
    "elsewhere": (changed(SHORT, "n_step = 1", "n_step = 1\nseed = 3"), 9, "seed is no setting of a method"),
    "titles": (changed(SHORT, "[settings]", "[titles]\nn1 = 3\n[settings]"), 4, "titles must be a table of texts"),
    "a date": (changed(SHORT, "n_step = 1", "n_step = 1979-05-27"), 8, "must be a text, a number"),
}
REFUSED_RUNS = {
    "task": (changed(ROWS, '"dm/walker-walk"', '"dm/walker-wlak"'), 22, "unknown task 'dm/walker-wlak'; did you"),
    "task at the top": (changed(SHORT, "Pendulum-v1", "Pendulm-v1"), 2, "did you mean 'Pendulum-v1'"),
    "setting": (changed(SHORT, "n_step = 1", "n_stp = 1"), 8, "n1: unknown setting 'n_stp'; did you mean 'n_step'"),
    "setting of all": (changed(SHORT, "start_steps", "start_stps"), 5, "unknown setting 'start_stps'"),
    "setting of a row": (changed(ROWS, "n_step = 3", "n_step = 0"), 27, "n3: n_step is 0, but must be"),
    "value": (changed(SHORT, "= 200", "= 2000"), 5, "start_steps 2000 must be below steps 1000"),
    "setting with a dash": (changed(ROWS, "every = 50", "every = 0"), 25, "n2: eval_every is 0, but must be"),
    "budget": (changed(SHORT, "start_steps", "eval_every"), 1, "start_steps 10000 must be below steps 1000"),
    "method": (changed(SHORT, '"oht-nstep"', '"oht-nsetp"'), 11, "unknown method 'oht-nsetp'; did you mean"),
    "space": (changed(SHORT, '"1,2"', '"1,x"'), 12, "tuned: "),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_the_line_that_is_wrong(tmp_path, kind):
    text, line, sentence = MISTAKES[kind]
    path = written(tmp_path / "file.toml", text)
    with pytest.raises(UserError) as error:
        suites.load(path)
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert sentence in str(error.value)


@pytest.mark.parametrize("kind", REFUSED_RUNS)
def test_the_line_of_what_no_run_could_start_with(tmp_path, kind):
    text, line, sentence = REFUSED_RUNS[kind]
    path = written(tmp_path / "file.toml", text)
    suites.load(path)  # who only draws what is there need not be able to train it
    with pytest.raises(UserError) as error:
        suites.load(path, runnable=True)
    assert str(error.value).startswith(f"{path}, line {line}: ")
    assert sentence in str(error.value)


def test_mistakes_without_a_line(tmp_path):
    with pytest.raises(UserError, match="unknown suite 'figure7'; did you mean 'figure"):
        suites.load("figure7")
    with pytest.raises(UserError, match="does not exist; built-in: figure1, "):
        suites.load(tmp_path / "none.toml")
    path = written(tmp_path / "file.toml", changed(SHORT, "steps = 1000\n", ""))
    with pytest.raises(UserError, match=f"{path}: there is no budget"):
        suites.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="not UTF-8 text"):
        suites.load(path)


LINES = (SHORT + ROWS).splitlines()
SOUP = st.lists(st.one_of(st.sampled_from(LINES), st.sampled_from(LINES).map(lambda line: line[::-1])), max_size=12)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SOUP, st.sampled_from([SHORT, ROWS]), st.integers(0, 30))
def test_any_file_is_a_suite_or_refused_with_its_line(tmp_path, soup, text, where):
    """Lines in any order, at any place of a good file."""
    lines = text.splitlines()
    path = written(tmp_path / "file.toml", "\n".join([*lines[:where], *soup, *lines[where:]]))
    refusal = ""
    try:
        suite = suites.load(path)
        suites.save(suite, tmp_path / "again.toml")
        assert suites.load(tmp_path / "again.toml") == suite
    except UserError as error:
        refusal = str(error)
    assert not refusal or re.match(rf"{path}(, line \d+)?: \w", refusal)


def test_suites_are_read_without_jax():
    code = "from oht.experiments import suites; suites.load('figure3'); import sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
