"""Who may know whom (the rooms of the house), and what must stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import oht

SOURCE = Path(oht.__file__).parent
COMMON = {"errors"}
MAY_KNOW = {
    "errors": set(),
    "settings": set(),
    "hyper": set(),
    "spaces": {"hyper"},
    "types": {"spaces"},
    "seeds": {"types"},
    "replay": {"types"},
    "agents": {"hyper", "types"},
    "envs": {"types"},
    "tuners": {"settings", "spaces", "types"},
    "population": {"replay", "types"},
    "learners": {"agents", "population", "replay", "tuners", "types"},
    "methods": {"agents", "learners", "population", "spaces", "tuners", "types"},
    "health": {"population", "types"},
    "config": {"agents", "hyper", "methods", "settings", "spaces", "types"},
    "training": {"config", "envs", "health", "population", "replay", "seeds", "types"},
    "csvtables": set(),
    "runs": {"csvtables", "replay", "training"},
    "policies": {"runs"},
    "asktell": {"methods", "runs", "seeds", "settings", "spaces", "types"},
    "compilation": set(),
    "signals": set(),
    "report": {"envs", "runs", "spaces"},
    "api": {
        "agents",
        "compilation",
        "config",
        "methods",
        "policies",
        "population",
        "report",
        "runs",
        "seeds",
        "signals",
        "training",
        "types",
    },
    "experiments": {"api", "config", "envs", "report", "runs", "settings", "signals"},
    "cli": {"api", "config", "experiments", "hyper", "methods", "report", "runs", "settings"},
}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def known(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "oht":
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oht."):
            rooms.add((node.module or "").split(".")[1])
    return rooms - {room(path)}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_knowledge_flows_one_way(path):
    if room(path) == "__init__":
        return
    assert known(path) <= MAY_KNOW[room(path)] | COMMON


def test_modules_of_experiments_have_names_of_their_own():
    names = [path.name for path in SOURCE.rglob("*.py")]
    own = {path.name for path in (SOURCE / "experiments").glob("*.py")} - {"__init__.py"}
    assert [name for name in own if names.count(name) > 1] == []


@pytest.mark.parametrize(
    "module",
    [
        "oht.hyper",
        "oht.spaces",
        "oht.config",
        "oht.envs.workers",
        "oht.envs.tasks",
        "oht.report.progress",
        "oht.report.terminal",
        "oht.runs",
        "oht.policies",
        "oht.report.plots",
        "oht.experiments.suites",
        "oht.experiments.sweep",
        "oht.experiments.job",
        "oht.experiments.ray_engine",
        "oht.experiments.scores",
        "oht.experiments.result_tables",
        "oht.experiments.figures",
        "oht.cli",
    ],
)
def test_what_needs_no_jax_does_not_load_it(module):
    code = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
