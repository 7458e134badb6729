"""Own methods and algorithms by `module:name`: on the command line, in files, suites and Python, and found again."""

import sys
from pathlib import Path

import numpy as np
import pytest

import oht
from oht import agents, cli, config, lookup
from oht.errors import UserError
from oht.experiments import job, suites
from oht.report.plots import plot_run
from test_training import TINY, StopsAfter, same

TUNER = """
from dataclasses import dataclass

import numpy as np

import oht
from oht.settings import setting


@dataclass(frozen=True)
class Settings:
    pull: float = setting(0.5, "how much a return moves its value", low=0, high=1)


def bandit(settings, tune, base):
    values = tune["n_step"].values

    def init(rng):
        return {"value": np.zeros(len(values)), "arm": np.array(0)}

    def ask(rng, state, clock):
        arm = int(rng.integers(len(values)))
        hyper = {name: np.full(1, value) for name, value in base.items()} | {"n_step": np.array([values[arm]])}
        one = np.zeros(1, int)
        return {**state, "arm": np.array(arm)}, oht.Proposal(hyper, np.ones(1), one, one, one + clock.iteration)

    def tell(rng, state, proposal, outcome):
        value = state["value"].copy()
        value[state["arm"]] += settings.pull * (outcome.returns[0] - value[state["arm"]])
        return {**state, "value": value}, {f"value/{n}": x for n, x in zip(values, value.tolist())}

    return oht.Tuner(1, init, ask, tell, lambda rng, state: 0)


BANDIT = oht.Method("a bandit", Settings, bandit, tune={"n_step": oht.Choice(1, 2)})
NUMBER = 3
"""
ALGORITHM = """
from oht.agents.td3 import td3


def warm(spec, *, hidden=(8, 8)):
    made = td3(spec, hidden=hidden)
    return made._replace(hyper={**made.hyper, "warmth": 0.5})


def without(*names):
    def factory(spec):
        made = td3(spec, hidden=(8, 8))
        return made._replace(hyper={name: value for name, value in made.hyper.items() if name not in names})

    return factory


no_gamma, neither = without("gamma"), without("gamma", "n_step")


def nothing(spec):
    return 3


def broken(spec):
    raise KeyError("weights")
"""
BAD = "import a_package_that_nobody_has"
FLAGS = {name: ",".join(map(str, v)) if isinstance(v, tuple) else str(v).lower() for name, v in TINY.items()}
WORDS = [word for name, value in FLAGS.items() for word in (f"--{name.replace('_', '-')}", value)]
TASK = "environments:FollowObservation"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """The user's folder, which is not on sys.path, and the run that was trained there."""
    folder = tmp_path_factory.mktemp("user")
    for name, text in (("own_bandit", TUNER), ("own_td3", ALGORITHM), ("own_bad", BAD)):
        (folder / f"{name}.py").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        own = ["--method", "own_bandit:BANDIT", "--algo", "own_td3:warm", "--pull", "0.25", "--warmth", "0.75"]
        assert cli.main(["train", TASK, *WORDS, *own, "--out", "run", "--quiet"]) == 0
        yield folder
    for name in ("own_bandit", "own_td3", "own_bad"):
        sys.modules.pop(name, None)


def test_the_config_has_their_names_and_settings(folder):
    values = config.read_file(folder / "run" / "config.toml")
    assert (values["method"], values["algo"]) == ("own_bandit:BANDIT", "own_td3:warm")
    assert (values["pull"], values["warmth"], values["hidden"]) == (0.25, 0.75, [8, 8])
    assert config.resolve(values).hyper["warmth"] == 0.75
    assert str(folder) not in sys.path  # only while they were looked up


def test_they_are_found_again_by_eval_load_and_plot(folder, capsys):
    assert cli.main(["eval", "run", "--episodes", "2"]) == 0
    assert cli.main(["plot", "run", "--out", "plot.png"]) == 0
    run = oht.load("run")
    assert run.setup.config.hyper["warmth"] == 0.75
    assert np.isfinite(run.evaluate(2)).all()
    assert (folder / "plot.png").stat().st_size > 10_000


@pytest.mark.parametrize("given", ["a config file", "a suite", "strings", "objects"])
def test_the_same_run_however_they_are_given(given, folder, tmp_path):
    out = tmp_path / "run"
    values = {**TINY, "method": "own_bandit:BANDIT", "algo": "own_td3:warm", "pull": 0.25, "warmth": 0.75}
    if given == "a config file":
        (tmp_path / "run.toml").write_text(
            f'task = "{TASK}"\nmethod = "own_bandit:BANDIT"\nalgo = "own_td3:warm"\nwarmth = 0.75\n'
        )
        words = ["train", "--config", str(tmp_path / "run.toml"), *WORDS, "--pull", "0.25", "--out", str(out)]
        assert cli.main([*words, "--quiet"]) == 0
        run = oht.load(out)
    elif given == "a suite":
        methods = "".join(f"{n} = {v if n != 'hidden' else list(v)!r}\n" for n, v in values.items() if n != "steps")
        methods = methods.replace("= own", '= "own').replace("BANDIT\n", 'BANDIT"\n').replace("warm\n", 'warm"\n')
        text = f'steps = 120\nseeds = 1\ntasks = ["{TASK}"]\n[methods.mine]\n{methods}'.replace("False", "false")
        (tmp_path / "mine.toml").write_text(text)
        (one,) = suites.load(tmp_path / "mine.toml", runnable=True).jobs()
        assert job.work(one, out, 120)
        run = oht.load(out)
    elif given == "strings":
        assert not oht_train_stopped(TASK, out, values)
        run = oht.resume(out)
    else:
        objects = {"method": lookup.find("method", "own_bandit:BANDIT"), "algo": lookup.find("algo", "own_td3:warm")}
        run = oht.train(TASK, out=out, **{**values, **objects})
        assert 'method = "own_bandit:BANDIT"' in (out / "config.toml").read_text()
    same(oht.load(folder / "run"), run)


def oht_train_stopped(task: str, out: Path, values: dict) -> bool:
    """Whether a run that is stopped after three iterations is finished."""
    with pytest.raises(KeyboardInterrupt) as stop:
        oht.train(task, out=out, callbacks=[StopsAfter(3)], **values)
    return stop.value.run.finished  # pyright: ignore[reportAttributeAccessIssue]


def test_help_shows_their_settings(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--method", "own_bandit:BANDIT", "--algo=own_td3:warm", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "method own_bandit:BANDIT: --pull V how much a return moves its value [0.5]" in text
    assert "--warmth V of your own algorithm [0.5]" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--method own_bandit:BANDTI", "unknown name in the module 'own_bandit': 'BANDTI'; did you mean 'BANDIT'?"),
        ("--method own_bandot:BANDIT", "needs the module 'own_bandot', which is neither in the current folder nor"),
        ("--method own_bandit:NUMBER", "own_bandit:NUMBER is no method, but of type int; a method is an oht.Method"),
        ("--method own_td3:warm", "own_td3:warm is no method, but of type function"),
        ("--method own_bandit:", "the method 'own_bandit:' must name a module and what is in it"),
        ("--method own_bad:X", "cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has'"),
        ("--method own_bandit:BANDIT --pull 2", "pull is 2.0, but must be from 0 to 1"),
        ("--algo own_td3:wram", "unknown name in the module 'own_td3': 'wram'; did you mean 'warm'?"),
        ("--algo own_td4:warm", "the algorithm 'own_td4:warm' needs the module 'own_td4'"),
        ("--algo own_bandit:BANDIT", "own_bandit:BANDIT is no algorithm, but of type Method"),
        ("--algo own_td3:nothing", "own_td3:nothing returns something of type int; an algorithm is a function"),
        ("--algo own_td3:broken", "own_td3:broken cannot be made: KeyError: 'weights'"),
        ("--algo own_td3:no_gamma", "the hyper of the algorithm own_td3:no_gamma lacks gamma, which"),
        ("--algo own_td3:neither", "the hyper of the algorithm own_td3:neither lacks n_step and gamma, which"),
        ("--algo own_td3:warm --wramth 1", "unknown flag '--wramth'; did you mean '--warmth'?"),
    ],
)
def test_what_is_wrong_is_one_sentence(words, sentence, folder, capsys):
    assert cli.main(["train", TASK, *words.split(), "--out", "wrong"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert sentence in error
    assert not (folder / "wrong").exists()


def test_a_run_whose_method_is_gone_says_what_to_do(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_bandit")
    assert cli.main(["eval", str(folder / "run")]) == 2
    error = capsys.readouterr().err
    assert "was trained with the method 'own_bandit:BANDIT', which is not found here: the method" in error
    assert "run this where it can be imported, or give it again from Python, as in oht.load(path, method=...)" in error


def test_one_that_has_no_name_is_never_taken_for_one_of_ohts_own(tmp_path):
    def td3(spec, *, hidden=(8,)):
        made = agents.factory("td3")(spec, hidden=hidden)
        return made._replace(hyper={**made.hyper, "gamma": np.float32(0.5)})  # a number of NumPy, too

    oht.train(TASK, algo=td3, out=tmp_path / "run", **TINY).close()
    values = config.read_file(tmp_path / "run" / "config.toml")
    assert "<locals>.td3" in values["algo"]
    assert values["gamma"] == 0.5
    for again in (oht.load, oht.resume):
        with pytest.raises(UserError, match=r"it is a lambda or was made inside of a function; give it again"):
            again(tmp_path / "run")
    assert oht.load(tmp_path / "run", algo=td3).setup.config.hyper["gamma"] == 0.5


def test_ask_tell_takes_the_same_name():
    tuner = oht.AskTell("own_bandit:BANDIT", base={"n_step": 1}, steps=100)
    assert tuner.ask().values[0]["n_step"] in (1, 2)


def test_a_plot_of_columns_that_only_its_method_knows(tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "metrics.csv").write_text("env_steps,return_mean\n1,2\n3,4\n")
    (tmp_path / "schedule.csv").write_text("iteration,env_steps,x/mu,odd/one,sample/0/return\n1,1,5,6,7\n2,3,5,6,7\n")
    assert plot_run(tmp_path, tmp_path / "plot.png").exists()  # a mean without deviation, samples or champion
