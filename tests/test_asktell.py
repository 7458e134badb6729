"""The tuners in loops that are not ours: the same as in `oht.train`, and with agents written in NumPy."""

import inspect
import json
import math
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht import csvtables, methods, seeds
from oht.asktell import AskTell, Plan
from oht.callbacks import Callback
from oht.errors import UserError
from oht.types import Iteration, Method, Row

BASE = {"learning_rate": 1e-3, "gamma": 0.99, "n_step": 1}
RATE = {"learning_rate": oht.LogFloat(1e-3, 0.5)}
MIXED = {"learning_rate": oht.LogFloat(low=1e-5, high=1e-2), "n_step": oht.Choice(1, 3)}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "oht": ("oht", MIXED, {}),
    "oht, discrete": ("oht", {"n_step": [1, 2, 3]}, {"budget": 1}),
    "oht, replay ratio": ("oht", {"replay_ratio": oht.Choice(0.5, 1.0)}, {}),
    "oht, tied": ("oht", {"actor_lr+critic_lr": "log:1e-5..1e-2"}, {}),
    "random": ("random", MIXED, {}),
    "static": ("static", None, {"replay_ratio": 0.3}),
    "oht-nstep": ("oht-nstep", None, {"window": 2}),
    "oht-lr": ("oht-lr", RATE, {"population": 4}),
    "oht-lr, es and fork": ("oht-lr", MIXED, {"population": 4, "search": "es", "members": "fork"}),
    "pbt": ("pbt", RATE, {"population": 4, "interval": 2}),
    "schedule": ("schedule", None, {}),
}
STEPS = 10  # of an episode


def made(case: str, folder: Path, seed: int = 3) -> AskTell:
    method, tune, settings = CASES[case]
    if method == "schedule":
        path = folder / "schedule.csv"
        path.write_text("env_steps,champion/gamma\n30,0.9\n60,0.95\n")
        settings = {"source": str(path)}
    return AskTell(method, tune, BASE, steps=400, seed=seed, **settings)


def returns_of(plan: Plan, iteration: int) -> list[float]:
    """Made up: the larger the values, the better; and noise."""
    noise = np.random.default_rng(iteration).standard_normal(len(plan.actors))
    return [sum(plan.values[j].values()) + float(x) for j, x in zip(plan.actors, noise, strict=True)]


def go(tuner: AskTell, iterations: int) -> list[Plan]:
    plans = []
    for _ in range(iterations):
        plans.append(tuner.ask())
        tuner.tell(returns_of(plans[-1], tuner.iteration), STEPS * len(plans[-1].actors))
    return plans


# What every method keeps


@pytest.mark.parametrize("case", CASES)
def test_contract(case, tmp_path):
    tuner = made(case, tmp_path)
    names = {"actor_lr", "critic_lr", *BASE} if "tied" in case else {*BASE, "replay_ratio"} & {*BASE, *tuner.tune}
    everyone, total, iteration = range(tuner.population), np.zeros(tuner.population), 0
    tuner.add_steps(50)
    while not tuner.finished:
        plan = tuner.ask()
        assert plan == tuner.ask()
        assert len(plan.values) == len(plan.sources) == len(plan.updates) == tuner.population
        assert all(set(values) == names for values in plan.values)
        assert set(plan.sources) | set(plan.actors) <= set(everyone)
        assert len(plan.actors) == len(plan.seeds) > 0
        total += plan.updates
        row = tuner.tell(returns_of(plan, iteration), STEPS * len(plan.actors))
        iteration += 1
        assert tuner.schedule[-1] == row
        assert (row["iteration"], row["env_steps"]) == (tuner.iteration, tuner.env_steps)
        assert tuner.iteration == iteration
        assert tuner.champion in everyone
        json.dumps([plan, row])  # plain numbers only
    assert len(tuner.schedule) == iteration
    assert len({tuple(row) for row in tuner.schedule}) == 1
    assert 0 < total.sum() <= 2.5 * tuner.env_steps


@pytest.mark.parametrize("asked", [False, True], ids=["after tell", "after ask"])
@pytest.mark.parametrize("case", CASES)
def test_a_saved_tuner_goes_on_as_if_it_had_not_stopped(case, asked, tmp_path):
    tuner = made(case, tmp_path)
    tuner.add_steps(7)
    go(tuner, 5)
    if asked:
        tuner.ask()
    tuner.save(tmp_path / "tuner.npz")
    again = AskTell.load(tmp_path / "tuner.npz")
    assert repr(again) == repr(tuner)
    if asked:
        plan = made(case, tmp_path).ask()  # of the same number of actors
        number = len(plan.actors)
        assert again.tell(np.arange(number), 20) == tuner.tell(np.arange(number), 20)
    assert again.schedule == tuner.schedule
    assert go(again, 6) == go(tuner, 6)
    assert again.schedule == tuner.schedule
    assert (again.champion, again.env_steps, again.iteration) == (tuner.champion, tuner.env_steps, tuner.iteration)


def test_another_seed_is_another_run(tmp_path):
    assert go(made("oht", tmp_path, 1), 8) == go(made("oht", tmp_path, 1), 8)
    assert go(made("oht", tmp_path, 1), 8) != go(made("oht", tmp_path, 2), 8)


@pytest.mark.parametrize("method", ["cem-rl", "meta-gradient"])
def test_methods_that_change_the_algorithm_are_refused(method):
    with pytest.raises(UserError, match=f"{method} changes the algorithm itself, so it works with oht.train only"):
        AskTell(method, steps=100)


def test_every_method_is_tested_or_refused():
    assert {method for method, _, _ in CASES.values()} | {"cem-rl", "meta-gradient"} == set(methods.METHODS)


# The same as in training

TINY = {"start_steps": 30, "eval_every": 1000, "eval_episodes": 2, "batch_size": 8, "hidden": (8,), "policy_delay": 1}
TINY |= {"replay_size": 300, "max_episode": 20, "tensorboard": False, "unstick": False}
TRAINED: dict[str, dict[str, Any]] = {
    "static": {},
    "oht": {"tune": {"n_step": oht.Choice(1, 2), "gamma": oht.Float(low=0.5, high=0.99)}, "population": 3},
    "oht-nstep": {"window": 2},
    "oht-lr": {"population": 3},
    "pbt": {"population": 3, "interval": 2},
}


class Listens(Callback):
    """Keeps what the tuner heard and answered: schedule.csv has nine digits only."""

    def __init__(self):
        self.rows: list[tuple[np.ndarray, Row]] = []

    def on_iteration(self, iteration: Iteration) -> None:
        head = {"iteration": iteration.iteration, "env_steps": iteration.env_steps}
        self.rows.append((iteration.returns, {**head, **iteration.schedule}))


@pytest.mark.parametrize("method", TRAINED)
def test_the_same_returns_give_the_schedule_of_a_training_run(method, tmp_path):
    given, heard = TRAINED[method], Listens()
    fixed: dict[str, Any] = {"method": method, "steps": 250, "seed": 5, **given}
    run = oht.train(FollowObservation, out=tmp_path / "run", callbacks=[heard], **fixed, **TINY)
    tuner, updates = AskTell(base=run.setup.config.hyper, **fixed), 0
    tuner.add_steps(30)
    for (returns, row), metrics in zip(heard.rows, run.metrics, strict=True):
        plan = tuner.ask()
        updates += sum(plan.updates)
        assert tuner.tell(returns, STEPS * len(plan.actors)) == row
        assert updates == metrics["updates"]
    assert tuner.finished
    assert len(tuner.schedule) == len(run.schedule) >= 7
    assert tuner.champion == run.setup.tuner.deployed(seeds.generator(5, "policy"), run.progress.tuner)


# Agents in NumPy, driven by the loop of the example


class Learner:
    """Noisy gradient descent on |w - 1|^2 / 2; an episode of ten steps pays -|w - 1|^2 and noise."""

    def __init__(self, seed: int):
        self.rng, self.weights, self.values = np.random.default_rng(seed), np.zeros(3), {}

    def copy(self, other: "Learner") -> None:
        self.weights = other.weights.copy()

    def learn(self, values: dict[str, float], updates: int) -> None:
        self.values = values
        with np.errstate(all="ignore"):  # too high a rate diverges
            for _ in range(updates):
                slope = self.weights - 1 + 0.1 * self.rng.standard_normal(3)
                self.weights = self.weights - values["learning_rate"] * slope

    def play(self, seed: int, explore: bool) -> tuple[float, int]:
        with np.errstate(all="ignore"):
            return -float(((self.weights - 1) ** 2).sum()) + 0.1 * self.rng.standard_normal(), STEPS


def driven(method: str, seed: int = 0, steps: int = 2000, **settings: Any) -> tuple[AskTell, Learner]:
    tune = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "tune_sb3.py"))["tune"]
    space = {"learning_rate": oht.LogFloat(low=1e-6, high=10)}
    base = {"learning_rate": 1e-6}
    tuner = AskTell(method, None if method == "static" else space, base, steps=steps, seed=seed, **settings)
    agents = [Learner(number) for number in range(tuner.population)]
    tune(tuner, agents)
    return tuner, agents[tuner.champion]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("method", "settings"), [("oht", {}), ("pbt", {"interval": 3})])
def test_a_bad_learning_rate_is_left(method, settings, seed):
    tuner, best = driven(method, seed, **settings)
    assert best.values["learning_rate"] > 1e-3
    assert best.play(0, False)[0] > -0.5
    assert all(map(math.isfinite, (v for k, v in tuner.schedule[-1].items() if "return" not in k)))


def test_without_tuning_it_is_not():
    _, lone = driven("static")
    assert lone.play(0, False)[0] < -2.5


def test_pbt_says_who_copies_whom():
    tuner = AskTell("pbt", RATE, steps=1000, population=4, interval=2)
    for _ in range(2):
        assert tuner.ask().sources == [0, 1, 2, 3]
        tuner.tell([0, 3, 1, 2], 40)
    assert tuner.champion == 1
    assert tuner.ask().sources == [1, 1, 2, 3]


# Hyper-parameters


def test_agents_get_what_is_tuned_and_what_base_holds_and_nothing_else():
    tuner = AskTell("oht", RATE, {"gamma": 0.9}, steps=100)
    values = tuner.ask().values
    assert all(set(mine) == {"learning_rate", "gamma"} for mine in values)
    assert values[0]["learning_rate"] == pytest.approx(1e-3)
    assert {mine["gamma"] for mine in values} == {0.9}
    tuner = AskTell("oht", {"learning_rate": oht.LogFloat(low=1e-5, high=1e-3)}, {"learning_rate": 5e-4}, steps=100)
    assert tuner.ask().values[0]["learning_rate"] == pytest.approx(5e-4)


def test_agents_learn_for_the_random_start_and_no_gradient_step_is_lost():
    tuner = AskTell("static", base=BASE, steps=1000, replay_ratio=0.3)
    tuner.add_steps(6)
    tuner.add_steps(1)
    taken = []
    for _ in range(9):
        taken += tuner.ask().updates
        tuner.tell(1.0, 5)
    assert taken[:3] == [2, 1, 2]  # 2.1; 0.1 + 1.5; 0.6 + 1.5
    assert sum(taken) == int(0.3 * (7 + 8 * 5))


# Agents that diverged


def test_a_replaced_agent_and_a_return_that_is_not_finite_do_not_count():
    one, other = (AskTell("oht", {"n_step": [1, 2]}, steps=1000) for _ in range(2))
    for _ in range(6):
        assert one.ask() == other.ask()
        row, same = one.tell(math.nan, 10), other.tell([5.0], 10, replaced=[*range(one.population)])
        assert row["sample/0/return"] == same["sample/0/return"] == -math.inf
    assert one.schedule == other.schedule
    assert {one.schedule[-1][f"agent/{j}/mean"] for j in (0, 1)} == {0.0}


def test_infinite_returns_are_saved(tmp_path):
    tuner = AskTell("oht", {"n_step": [1, 2]}, steps=1000)
    tuner.ask()
    tuner.tell([math.inf], 10)
    tuner.save(tmp_path / "tuner.npz")
    assert AskTell.load(tmp_path / "tuner.npz").schedule == tuner.schedule


def test_numbers_of_numpy_are_saved(tmp_path):
    def tell(rng, state, proposal, outcome):
        return state, {"better": np.bool_(True), "leader": np.int64(2), "mean": np.float32(0.5)}

    tuner = AskTell(OWN._replace(make=lambda own, tune, base: OWN.make(own, tune, base)._replace(tell=tell)), steps=99)
    tuner.ask()
    tuner.tell([1.0], 10)
    tuner.save(tmp_path / "tuner.npz")
    assert tuner.schedule == [{"iteration": 1, "env_steps": 10, "better": True, "leader": 2, "mean": 0.5}]
    table = csvtables.Table(tmp_path / "schedule.csv")
    table.append({"better": np.bool_(True)})
    table.close()
    assert csvtables.rows(tmp_path / "schedule.csv") == [{"better": 1.0}]


# A method of the user's own


@dataclass(frozen=True)
class NoSettings:
    pass


OWN = Method("another static", NoSettings, lambda own, tune, base: methods.METHODS["static"].make(STATIC, tune, base))
STATIC = methods.METHODS["static"].settings()


def test_a_method_of_ones_own_is_given_again(tmp_path):
    tuner = AskTell(OWN, base=BASE, steps=100)
    go(tuner, 2)
    tuner.save(tmp_path / "tuner.npz")
    assert go(AskTell.load(tmp_path / "tuner.npz", method=OWN), 3) == go(tuner, 3)
    with pytest.raises(UserError, match="a method of your own: give it again"):
        AskTell.load(tmp_path / "tuner.npz")
    AskTell("static", steps=9).save(tmp_path / "tuner.npz")
    with pytest.raises(UserError, match="the method static, so load takes no method"):
        AskTell.load(tmp_path / "tuner.npz", method=OWN)
    with pytest.raises(UserError, match="your method has none"):
        AskTell(OWN, steps=100, population=3)


# The docs


def test_every_part_is_documented():
    text = (Path(__file__).parent.parent / "docs" / "asktell.md").read_text()
    arguments = set(inspect.signature(AskTell).parameters) - {"method_settings"}
    public = {name for name in dir(AskTell("static", steps=1)) if not name.startswith("_")}
    for name in {*Plan._fields, *arguments, *public}:
        assert re.search(rf"`{name}|\b{name}\(", text), name


# Mistakes

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "ohtt"}, "did you mean 'oht'"),
    "no method": ({"method": None}, "method is None, but must be the name"),
    "steps": ({"steps": 0}, "steps is 0"),
    "steps of a text": ({"steps": "many"}, "steps is 'many', but must be a whole number"),
    "seed": ({"seed": -1}, "seed is -1"),
    "seed and a half": ({"seed": 0.5}, "seed is 0.5, but must be a whole number"),
    "tune": ({"tune": ["learning_rate"]}, "tune is .*must be a dict"),
    "a tuple": ({"tune": {"learning_rate": (1e-5, 1e-2)}}, "two things"),
    "twice": ({"tune": {"a": [1, 2], "a+b": [1, 2]}}, "a is tuned twice"),
    "base": ({"base": 3}, "base is 3, but must be a dict"),
    "value of base": ({"base": {"gamma": "high"}}, "gamma in base is 'high', but must be a number"),
    "not finite": ({"base": {"gamma": math.nan}}, "gamma in base is nan, but must be a finite number"),
    "nothing to tune": ({"method": "pbt", "tune": None}, "pbt tunes actor_lr, which base does not have"),
    "nothing to race": ({"tune": None}, "at least two different values"),
    "static": ({"method": "static"}, "static tunes nothing"),
    "setting": ({"interval": 3}, "unknown setting 'interval': the method oht has population, budget; hyper-parameters"),
    "value of a setting": ({"population": 1}, "population is 1"),
    "continuous arms": ({"method": "oht-nstep"}, "discrete values"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_answered_with_a_sentence(mistake):
    given, answer = MISTAKES[mistake]
    arguments: dict[str, Any] = {"tune": {"learning_rate": oht.LogFloat(1e-3)}, "steps": 100, **given}
    with pytest.raises(UserError, match=answer) as error:
        AskTell(**arguments)
    assert str(error.value).endswith((".", "?"))


def test_mistakes_in_the_loop_change_nothing():
    tuner = AskTell("pbt", RATE, steps=100, population=3)
    with pytest.raises(UserError, match="call ask first"):
        tuner.tell([1, 2, 3], 30)
    plan = tuner.ask()
    wrong: list[tuple[Any, Any, Any, str]] = [
        ([1, 2], 30, (), "3 agents play: tell takes as many, not 2 returns"),
        ([[1, 2, 3]], 30, (), "an array of shape"),
        (["a", "b", "c"], 30, (), "a number for each actor"),
        ([1, None, 3], 30, (), "a number for each actor"),
        ([1, 2, 3], 0, (), "env_steps is 0"),
        ([1, 2, 3], 30.5, (), "env_steps is 30.5"),
        ([1, 2, 3], 30, [3], "numbered 0 to 2"),
        ([1, 2, 3], 30, -1, "numbered 0 to 2"),
        ([1, 2, 3], 30, [True, False, False], "by their numbers"),
    ]
    for returns, steps, replaced, answer in wrong:
        with pytest.raises(UserError, match=answer):
            tuner.tell(returns, steps, replaced)
    with pytest.raises(UserError, match="before ask"):
        tuner.add_steps(10)
    assert (tuner.iteration, tuner.env_steps, tuner.schedule) == (0, 0, [])
    assert tuner.ask() == plan
    tuner.tell(np.arange(3), 30, np.array([1]))
    with pytest.raises(UserError, match="env_steps is -1"):
        tuner.add_steps(-1)
    lone = AskTell("static", steps=10)
    lone.ask()
    with pytest.raises(UserError, match="one agent plays: tell takes its return, not 2 returns"):
        lone.tell([1, 2], 10)
    with pytest.raises(UserError, match="returns is None, but must be a number for each actor"):
        lone.tell(None, 10)  # pyright: ignore[reportArgumentType]


def test_files_that_cannot_be_loaded(tmp_path):
    path, tuner = tmp_path / "tuner.npz", AskTell("pbt", RATE, steps=100, population=3)
    with pytest.raises(UserError, match="No such file"):
        AskTell.load(path)
    with pytest.raises(UserError, match="cannot be read"):
        AskTell.load(tmp_path)
    with pytest.raises(UserError, match="cannot be written"):
        tuner.save(tmp_path / "nowhere" / "tuner.npz")
    tuner.save(path)
    content = path.read_bytes()
    for damage in (b"", b"text", content[: len(content) // 2]):
        path.write_bytes(damage)
        with pytest.raises(UserError, match="is not a tuner"):
            AskTell.load(path)
    for name, value in {"state/1": np.zeros((2, 5)), "about": np.array("[]"), "nothing": None}.items():
        path.write_bytes(content)
        with np.load(path) as file:
            arrays = dict(file)
        arrays[name] = value
        np.savez(path, **{key: array for key, array in arrays.items() if array is not None and name != "nothing"})
        with pytest.raises(UserError, match="is not a tuner"):
            AskTell.load(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(UserError, match="is not a tuner"):
        AskTell.load(tmp_path / "array.npy")
    about = {"format": 99, "method": "pbt"}
    np.savez(path, about=np.array(json.dumps(about)))
    with pytest.raises(UserError, match="has format 99, but this version of oht reads format 1"):
        AskTell.load(path)


def test_it_works_where_jax_is_not_installed(tmp_path):
    code = """
import sys
for missing in ("jax", "flax", "optax", "gymnasium", "matplotlib", "tomli_w", "rich", "tensorboardX"):
    sys.modules[missing] = None
import oht
for method in ("oht", "pbt", "oht-lr"):
    tuner = oht.AskTell(method, {"learning_rate": oht.LogFloat(1e-3)}, steps=100)
    while not tuner.finished:
        tuner.tell([1.0 for _ in tuner.ask().actors], 10)
    tuner.save(sys.argv[1])
    assert oht.AskTell.load(sys.argv[1]).champion == tuner.champion
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "tuner.npz")], check=True)
