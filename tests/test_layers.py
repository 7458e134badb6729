"""Imports flow one way, file names are unique, and what must start quickly does not load JAX."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import oht

SOURCE = Path(oht.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
IMPORTS: dict[str, set[str]] = {  # each imports only from those above it, and errors
    "errors": set(),
    "lookup": set(),
    "machine": set(),
    "settings": set(),
    "hyper": set(),
    "spaces": {"hyper"},
    "types": {"spaces"},
    "seeds": {"types"},
    "csvtables": set(),
    "replay": {"types"},
    "agents": {"hyper", "lookup", "settings", "types"},
    "envs": {"lookup", "machine", "seeds", "types"},
    "contract": {"hyper", "types"},
    "tuners": {"csvtables", "settings", "spaces", "types"},
    "devices": {"types"},
    "population": {"devices", "machine", "replay", "types"},
    "learners": {"agents", "devices", "population", "replay", "tuners", "types"},
    "methods": {"agents", "learners", "lookup", "population", "spaces", "tuners", "types"},
    "health": {"population", "types"},
    "config": {"agents", "hyper", "methods", "settings", "spaces", "types"},
    "training": {"config", "contract", "envs", "health", "population", "replay", "seeds", "types"},
    "runs": {"csvtables", "replay", "training", "types"},
    "onnxmodel": set(),
    "policies": {"onnxmodel", "runs"},
    "callbacks": {"types"},
    "asktell": {"contract", "methods", "runs", "seeds", "settings", "spaces", "types"},
    "compilation": {"machine"},
    "signals": set(),
    "running": {"callbacks", "config", "envs", "runs", "signals", "training", "types"},
    "report": {"callbacks", "envs", "runs", "spaces", "types"},
    "api": {
        *("agents", "callbacks", "compilation", "config", "envs", "lookup", "methods", "policies", "population"),
        *("report", "running", "runs", "seeds", "settings", "signals", "training", "types"),
    },
    "experiments": {
        *("api", "callbacks", "config", "envs", "lookup", "machine", "runs", "settings", "signals", "spaces", "types"),
    },
    "parsing": set(),
    "train_command": {"agents", "api", "config", "experiments", "hyper", "methods", "parsing", "settings", "signals"},
    "cli": {"api", "experiments", "parsing", "report", "runs", "settings", "signals", "train_command"},
}


def layer(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The modules and packages of oht that a file imports from, also inside of functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "oht":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oht."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("oht.")}
    return found - {layer(path), "errors"}


def test_the_table_has_an_order():
    earlier: set[str] = set()
    for name, others in IMPORTS.items():
        assert others <= earlier, name
        earlier.add(name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_flow_one_way(path):
    assert imported(path) <= IMPORTS[layer(path)]


def test_the_table_says_no_more_than_there_is():
    real: dict[str, set[str]] = {}
    for path in FILES:
        real.setdefault(layer(path), set()).update(imported(path))
    assert real == IMPORTS


def test_file_names_are_unique():
    names = Counter(path.name for path in FILES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", sorted((SOURCE / "tuners").glob("*.py")), ids=lambda path: path.name)
def test_tuners_are_numpy_only(path):
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in modules} & {"jax", "flax", "optax"}


QUICK = [
    "oht",
    "oht.asktell",
    "oht.cli",
    "oht.config",
    "oht.envs.tasks",
    "oht.envs.workers",
    "oht.experiments.comparison",
    "oht.experiments.figures",
    "oht.experiments.job",
    "oht.experiments.many_seeds",
    "oht.experiments.ray_engine",
    "oht.experiments.result_tables",
    "oht.experiments.results",
    "oht.experiments.scores",
    "oht.experiments.suites",
    "oht.experiments.sweep",
    "oht.hyper",
    "oht.methods",
    "oht.policies",
    "oht.report.html_report",
    "oht.report.plots",
    "oht.report.progress",
    "oht.report.watch",
    "oht.report.terminal",
    "oht.report.trackers",
    "oht.report.videos",
    "oht.runs",
    "oht.seeds",
    "oht.spaces",
    "oht.tuners.race",
    "oht.types",
]


def test_what_needs_no_jax_does_not_load_it():
    """In one process, one after the other: starting Python for each takes longer than all of them together."""
    code = f"""
import importlib, sys
for name in {QUICK}:
    importlib.import_module(name)
    if "jax" in sys.modules:
        sys.exit(name)
"""
    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
