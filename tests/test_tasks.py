import subprocess
import sys
from pathlib import Path

import pytest

from oht.envs import tasks
from oht.envs.pool import open_pool
from oht.envs.tasks import TASKS, Task, find, installed, named
from oht.errors import UserError


def test_the_table_has_the_papers_13_tasks_and_scores():
    assert len(TASKS) == 13
    scores = {id: (task.low, task.high) for id, task in TASKS.items()}
    assert scores["dm/cheetah-run"] == (0, 1000)
    assert scores["gym/half-cheetah"] == (-290, 10_000)
    assert scores["robo/ant"] == (53, 2500)
    assert scores["bullet/half-cheetah"] == (-1272, 3000)
    assert [id for id, task in TASKS.items() if task.ours] == ["gym/walker2d"]
    assert scores["gym/walker2d"] == (2, 5000)


def test_names_with_a_delay():
    task = find("dm/walker-run@delay5")
    assert (task.id, task.delay, task.name) == ("dm/walker-run", 5, "dm/walker-run@delay5")
    assert find("dm/walker-run").name == "dm/walker-run"
    assert named("Pendulum-v1", 3) == "Pendulum-v1@delay3"
    assert find(named("environments:Probe", 2)).delay == 2


@pytest.mark.parametrize("name", ["Pendulum-v1", "pybullet_envs_gymnasium:AntBulletEnv-v0", "environments:Probe"])
def test_any_gymnasium_id_and_any_callable(name: str):
    task = find(name)
    assert (task.id, task.backend, task.env) == (name, "gymnasium", name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("dm/walker-rum", "did you mean 'dm/walker-run'"),
        ("walker-stand", "did you mean 'dm/walker-stand'"),
        ("Pendulum-v9", "did you mean 'Pendulum-v1'"),
        ("xyzzy", "known: bullet/ant"),
        ("dm/walker-run@delay", "'@delay5'"),
        ("dm/walker-run@delay0", "'@delay5'"),
        ("dm/walker-run@slow", "'@delay5'"),
        ("no_such_module:Env", "neither in the current folder nor installed"),
        ("environments:", "'module:name'"),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(name: str, sentence: str):
    with pytest.raises(UserError, match=sentence):
        find(name)


def test_a_module_without_the_name_is_refused():
    with pytest.raises(UserError, match="neither has 'Nothing' nor registers it"):
        open_pool("environments:Nothing", 1)


@pytest.mark.parametrize(("name", "extra"), [("dm/walker-run", "envpool"), ("robo/ant", "bullet")])
def test_a_missing_extra_says_how_to_install_it(name: str, extra: str, monkeypatch: pytest.MonkeyPatch):
    assert installed(find(name))
    monkeypatch.setattr(tasks, "PACKAGES", {extra: ("no_such_package",)})
    assert not installed(find(name))
    with pytest.raises(UserError, match=rf"pip install 'oht\[{extra}\]'"):
        open_pool(name, 1)


@pytest.mark.parametrize(
    ("module", "heavy"),
    [("tasks", {"jax", "envpool", "pybullet", "gymnasium"}), ("workers", {"jax", "envpool", "pybullet"})],
)
def test_nothing_heavy_is_imported(module: str, heavy: set[str]):
    code = f"""
import sys, types
sys.modules["oht"] = package = types.ModuleType("oht")  # without what `import oht` itself brings
package.__path__ = [{str(Path(tasks.__file__).parent.parent)!r}]
import oht.envs.{module}
assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_sizes_are_those_of_the_simulator(task: Task):
    pool = open_pool(task.id, 1)
    assert (pool.obs, pool.action) == (task.obs, task.action)
    pool.close()
