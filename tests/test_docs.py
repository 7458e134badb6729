"""The docs cannot drift: links exist, commands parse, Python compiles, tables say what the code says."""

import ast
import csv
import inspect
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import nbclient
import nbformat
import numpy as np
import pytest

import oht
from oht import agents, api, cli, config, hyper, methods, settings, spaces
from oht.callbacks import HOOKS
from oht.envs import tasks
from oht.experiments import sweep
from oht.tuners import race, schedule
from oht.types import Spec
from test_layers import IMPORTS

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.md"  # its first block is the module dock
OTHERS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "results/README.md",
    "results/notes.md",
    "benchmarks/README.md",
)
PAGES = [*(ROOT / name for name in OTHERS), *sorted((ROOT / "docs").rglob("*.md"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The fenced blocks of these languages."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield body


def tables(page: Path) -> Iterator[list[list[str]]]:
    """Each table as rows of cells, the header first."""
    for lines in re.findall(r"(?:^\|.*\|\n)+", page.read_text(), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
        yield [row for row in rows if not set("".join(row)) <= set("-: ")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# Links


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@by_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_the_site_builds_without_a_warning(tmp_path):
    """Every page is in the menu, every link and anchor of every page leads somewhere, formulas are converted."""
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([*build, "--site-dir", str(tmp_path)], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "methods" / "oht" / "index.html").read_text()
    assert "<math" in page
    assert "arithmatex" not in page
    reference = (tmp_path / "api" / "index.html").read_text()
    assert all(f'id="oht.{name}"' in reference for name in oht.__all__)


# Commands


class Understood(Exception):
    """A command that would now do something."""


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `oht ...` in shell blocks and indented blocks; a shell variable has the value 0."""
    shell = "\n".join(blocks(page, "sh", "bash", "console", ""))
    indented = "\n".join(re.findall(r"^    (oht .*)$", page.read_text(), re.MULTILINE))
    lines = re.sub(r'"\$\w+"', "0", f"{shell}\n{indented}".replace("\\\n", " "))
    for line in lines.splitlines():
        if line.removeprefix("$ ").startswith("oht "):
            yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


@by_page
def test_commands_are_understood(page, monkeypatch, tmp_path):
    """Up to where they would do something: settings belong to their algorithm and method, tasks exist."""

    def train(*, out: Any, overwrite: bool, progress: bool, **values: Any) -> None:
        tasks.find(config.resolve(values).run.task)
        raise Understood

    def understood(*_: Any, **__: Any) -> None:
        raise Understood

    monkeypatch.setattr(api, "train", train)
    monkeypatch.setattr(api, "resume", understood)
    monkeypatch.setattr(sweep, "sweep", understood)
    monkeypatch.setattr(config, "read_file", lambda path: {"task": "Pendulum-v1"})
    monkeypatch.setattr(schedule, "read", lambda source: schedule.Timetable(np.zeros(1), {}))
    (tmp_path / "dock.py").write_text(next(blocks(TUTORIAL, "python")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(ROOT / "examples")  # where the user's own methods and algorithms are
    for name, (describe, run, line) in cli.COMMANDS.items():
        monkeypatch.setitem(cli.COMMANDS, name, (describe, run if name == "train" else understood, line))
    for words in commands(page):
        with pytest.raises(Understood):
            cli.main(words)


def test_a_command_with_an_unknown_flag_would_be_noticed(capsys):
    assert cli.main(["train", "Pendulum-v1", "--widgets", "3"]) == 2
    assert "--widgets" in capsys.readouterr().err


def test_there_are_commands_to_check():
    assert sum(1 for page in PAGES for _ in commands(page)) > 15


# Python


def known_settings() -> set[str]:
    known = set(settings.names(config.RunSettings)) | set(inspect.signature(oht.train).parameters) | {"tune"}
    for factory in agents.ALGORITHMS.values():
        known |= set(agents.options_of(factory)) | set(factory(Spec(1, 1)).hyper)
    for method in methods.METHODS.values():
        known |= set(settings.names(method.settings))
    return known


@by_page
def test_python_compiles_and_uses_what_there_is(page):
    for block in blocks(page, "python"):
        tree = ast.parse(block)
        deliberate_mistake = "except oht.UserError" in block
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "oht":
                assert node.attr in oht.__all__
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "oht.train" and not deliberate_mistake:
                assert {keyword.arg for keyword in node.keywords} <= known_settings()


def test_the_tutorial_runs_top_to_bottom(tmp_path, monkeypatch, capsys):
    environment, *rest = blocks(TUTORIAL, "python")
    (tmp_path / "dock.py").write_text(environment)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    for block in rest:  # the first is a file of the reader's, which the others import
        exec(shortened(block), names)
    assert "env steps:" in capsys.readouterr().out
    assert names["force"].shape == (1,)


def shortened(code: str) -> str:
    """The training of the tutorial in a second."""
    return code.replace("steps=8_000", "steps=300").replace("eval_every=1_000", "eval_every=150").replace("500", "60")


def test_the_notebook_is_the_tutorial_and_runs_top_to_bottom(tmp_path, compiled_before, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # EnvPool sets it in the process of a test before
    notebook = nbformat.read(ROOT / "examples" / "tutorial.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)  # nothing stale is stored
    tutorial = "\n".join(blocks(TUTORIAL, "python"))
    assert cells[0].source in tutorial
    for cell in cells:
        cell.source = shortened(cell.source)
    nbclient.NotebookClient(notebook, timeout=250, resources={"metadata": {"path": tmp_path}}).execute()
    assert cells[-1].outputs[-1]["data"]["text/plain"].startswith("array([")
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)


@pytest.mark.parametrize("plug_in", [oht.Algorithm, oht.Batch, oht.Method, oht.Proposal, oht.Tuner])
def test_every_part_of_a_plug_in_is_told_of(plug_in):
    text = (ROOT / "docs" / "python.md").read_text()
    for field in plug_in._fields:
        assert re.search(rf"\b{field}\b", text), field


def test_every_hook_and_every_part_of_what_it_gets_is_told_of():
    page = ROOT / "docs" / "callbacks.md"
    hooks, parts = (next(t for t in tables(page) if t[0][0] == first) for first in ("method", "argument"))
    assert {names(row[0])[0]: names(row[2])[0] for row in hooks[1:]} == {h: e.__name__ for e, h in HOOKS.items()}
    told: dict[str, list[str]] = {}
    for kind, cell, _ in parts[1:]:
        told.setdefault(names(kind)[0] if kind else [*told][-1], []).extend(names(cell))
    assert told == {event.__name__: [*event._fields] for event in HOOKS}


# Tables of settings


def check(name: str, text: str, default: Any, hint: Any) -> None:
    """The text, read as a user's would be, is the default; "none" stands for a default that is worked out."""
    if default is None:
        assert text == "none", name
    elif default == "":
        assert text == "", name
    else:
        assert settings.convert(name, text, hint) == default, name


def defaults_of(settings_type: type) -> dict[str, tuple[Any, Any]]:
    hints = get_type_hints(settings_type)
    return {f.name: (f.default, hints[f.name]) for f in fields(settings_type)}


def documented(page: Path) -> dict[str, str]:
    """Setting -> default of all tables whose header begins with these two."""
    rows = [row for table in tables(page) if table[0][:2] == ["setting", "default"] for row in table[1:]]
    return {name: row[1] for row in rows for name in names(row[0])}


def compare(page: Path, defaults: Mapping[str, tuple[Any, Any]]) -> None:
    told = documented(page)
    assert set(told) == set(defaults)
    for name, text in told.items():
        check(name, text.strip("`"), *defaults[name])


METHODS_OF = {"random-and-schedule": ("random", "schedule")}  # pages that are not named after their one method


@pytest.mark.parametrize("method", methods.METHODS)
def test_every_method_has_a_page_with_all_its_defaults(method):
    stem = next((stem for stem, methods in METHODS_OF.items() if method in methods), method)
    page = ROOT / "docs" / "methods" / f"{stem}.md"
    assert page.exists(), f"{page.name} is missing; it needs a table with the columns setting and default"
    defaults: dict[str, tuple[Any, Any]] = {}
    for other in METHODS_OF.get(stem, (method,)):
        defaults |= defaults_of(methods.METHODS[other].settings)
    compare(page, defaults)


def test_every_method_is_in_the_readme():
    table = next(table for table in tables(ROOT / "README.md") if table[0][0] == "method")
    assert {name for row in table[1:] for name in names(row[0])} == set(methods.METHODS)


def test_what_every_run_has():
    defaults = defaults_of(config.RunSettings)
    del defaults["task"]
    compare(ROOT / "docs" / "algorithms.md", defaults)


IN_WORDS = {"minus the number of actions": -3.0}  # with three actions
SPEC = Spec(obs=5, action=3)


@pytest.mark.parametrize(("kind", "column"), [("hyper-parameter", 1), ("option", 1)])
def test_hyper_parameters_and_options_of_the_algorithms(kind, column):
    found = [table for table in tables(ROOT / "docs" / "algorithms.md") if table[0][0] == kind]
    (header, *rows) = found[0]
    for algo in header[1:-1]:
        told = {names(row[0])[0]: row[header.index(algo)] for row in rows}
        told = {name: text for name, text in told.items() if text != "-"}
        factory = agents.factory(algo)
        if kind == "hyper-parameter":
            assert {name: IN_WORDS.get(text) or float(text) for name, text in told.items()} == factory(SPEC).hyper
        else:
            options = {n: default for n, default in agents.options_of(factory).items() if n in hyper.OPTIONS}
            assert set(told) == set(options)
            for name, text in told.items():
                check(name, text, options[name], hyper.OPTIONS[name].kind)


def test_bounds_of_spaces_without_bounds():
    table = next(t for t in tables(ROOT / "docs" / "methods" / "oht.md") if t[0] == ["name", "low", "high"])
    learning_rates = {name for name in hyper.HYPER_PARAMETERS if name.endswith("_lr")}
    checked = set()
    for cell, low, high in table[1:]:
        for name in learning_rates if "_lr" in cell else [name for name in names(cell) if hyper.find(name).usual]:
            assert hyper.find(name).usual == (float(low), float(high)), name
            checked.add(name)
    assert checked == {name for name, declared in hyper.HYPER_PARAMETERS.items() if declared.usual}


def test_the_forms_of_spaces():
    """Both columns of the table say the same."""
    table = next(t for t in tables(ROOT / "docs" / "methods" / "oht.md") if t[0][0] == "in Python")
    assert len(table) > 6
    for python, text, _ in table[1:]:
        dim = eval(names(python)[0], dict(vars(spaces)))
        for form in names(text):
            assert spaces.parse(form, "n_step") == dim


def test_the_constants_and_the_portfolio_of_oht():
    page = ROOT / "docs" / "methods" / "oht.md"
    constants = next(table for table in tables(page) if table[0][:2] == ["constant", "value"])
    for name, value, _ in constants[1:]:
        assert getattr(race, names(name)[0]) == float(value), name
    portfolio = next(table for table in tables(page) if table[0][0] == "portfolio")
    told = [{n: float(x) for n, _, x in (text.partition("=") for text in names(row[0]))} for row in portfolio[1:]]
    assert told == list(race.PORTFOLIO)


def test_the_config_of_a_run_has_every_setting():
    """As docs/run-folder.md says; what is none by default is left out."""
    resolved = config.resolve({"task": "Pendulum-v1"})
    algorithm = agents.make("td3", SPEC)
    text = config.to_toml(resolved.with_hyper(algorithm.hyper))
    options = {name for name, option in hyper.OPTIONS.items() if "td3" in option.algorithms}
    expected = {*settings.names(config.RunSettings), *options, *algorithm.hyper, "replay_ratio"}
    assert set(re.findall(r"^(\w+) = ", text, re.MULTILINE)) == expected - {"workers", "unstick"}


# Modules


def test_the_table_of_modules():
    table = next(table for table in tables(ROOT / "docs" / "design.md") if table[0][0] == "module")
    told = {names(row[0])[0].removesuffix(".py").strip("/"): set(filter(None, row[2].split(", "))) for row in table[1:]}
    assert told == IMPORTS


# Tasks


def test_the_table_of_tasks_and_its_measurements():
    table = next(table for table in tables(ROOT / "docs" / "tasks.md") if table[0][0] == "task")
    with (ROOT / "results" / "random_scores.csv").open(newline="") as file:
        measured = {row["task"]: row for row in csv.DictReader(file)}
    told = {names(row[0])[0]: row for row in table[1:]}
    assert list(told) == list(tasks.TASKS)
    for id, task in tasks.TASKS.items():
        scores = measured[id]
        expected = [task.env.split(":")[-1], *(f"{x:g}" for x in (task.obs, task.action, task.low, task.high))]
        assert told[id][1:] == [*expected, scores["mean"], scores["standard_error"], scores["length"]]


def test_the_tasks_of_the_readme():
    table = next(table for table in tables(ROOT / "README.md") if "Walker" in table[0])
    assert {name for row in table[1:] for cell in row for name in names(cell)} == set(tasks.TASKS)


def test_the_table_beside_the_originals():
    table = next(table for table in tables(ROOT / "docs" / "tasks.md") if table[0][:2] == ["task", "original"])
    columns = ("original", "reward_error_1", "reward_error_10", "mean", "original_mean", "standard_errors_apart")
    with (ROOT / "results" / "side_by_side.csv").open(newline="") as file:
        expected = [[f"`{row['task']}`", *(row[column] for column in columns)] for row in csv.DictReader(file)]
    assert table[1:] == expected


def test_the_numbers_of_the_readme_are_those_of_their_files():
    """The table of `make train` against the last evaluations in results/pendulum.csv, and their cost."""
    with (ROOT / "results" / "pendulum.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = next(t for t in tables(ROOT / "README.md") if "evaluation return at the end" in t[0][1])
    for label, returns, cost in table[1:]:
        method = names(label)[0]
        runs = {row["seed"]: row for row in rows if row["method"] == method}  # the last row of each seed
        assert [round(float(runs[seed]["return"])) for seed in "0123"] == [int(text) for text in returns.split(",")]
        for row in runs.values():
            assert int(row["gradient_steps"]) / int(row["env_steps"]) == pytest.approx(float(cost), abs=0.05)


def test_the_tables_of_the_evidence_are_those_of_its_files():
    evidence = runpy.run_path(str(ROOT / "benchmarks" / "evidence.py"))
    stored = evidence["all_found"](evidence["SUITES"])
    number = sum(map(evidence["count"], stored.values()))
    for path, names in (("README.md", ["all"]), ("results/README.md", ["all", *stored])):
        page = (ROOT / path).read_text()
        assert page == evidence["with_tables"](page, stored), "run: python benchmarks/evidence.py write"
        assert f"{number} of {sum(map(evidence['planned'], evidence['SUITES']))} runs" in page
        assert all(f"<!-- tables of {name} -->" in page for name in names)


def test_the_tables_of_the_tuning_benchmark_are_those_of_its_file():
    shown = re.search(r"benchmarks/tuning.py show --seeds ([\d,]+)", (ROOT / "README.md").read_text())
    assert shown
    tuning = runpy.run_path(str(ROOT / "benchmarks" / "tuning.py"))
    found = tuning["results"]([int(seed) for seed in shown[1].split(",")])
    for page in ("README.md", "results/README.md"):
        assert tuning["summary"](found) in (ROOT / page).read_text(), page
    entries = tuning["results"](range(3))
    for table in (
        *(tuning[name](found) for name in ("every_cell", "every_method")),
        *(tuning[name](entries) for name in ("every_cell", "summary")),
    ):
        assert table in (ROOT / "results" / "README.md").read_text()
