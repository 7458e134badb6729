"""Arguments of envs, and envs that are Python objects: kept in the config, or asked for again."""

import sys
from functools import partial

import pytest

import environments
import oht
from environments import Probe
from oht import cli, config, train_command
from oht.envs.pool import open_pool
from oht.errors import UserError
from test_own import WORDS
from test_pool import PROCESSES, still
from test_training import TINY

SHORT = {**TINY, "steps": 60, "eval_every": 30}


@PROCESSES
@pytest.mark.parametrize("task", [Probe, "environments:Probe"])
def test_they_are_passed_to_the_env(task, workers: int):
    pool = open_pool(task, 2, workers=workers, env_kwargs={"length": 3, "terminal": False})
    for episode in pool.rollout(still, [1, 2]):
        assert (episode.total, episode.terminal) == (3, False)
    pool.close()


def test_gymnasium_gets_them():
    with_gravity, without = (open_pool("Pendulum-v1", 1, env_kwargs=given) for given in (None, {"g": 0.0}))
    one, other = (pool.rollout(still, [3])[0] for pool in (with_gravity, without))
    assert one.obs[0].tolist() == other.obs[0].tolist()
    assert one.obs[5].tolist() != other.obs[5].tolist()


def test_a_run_keeps_them(tmp_path, capsys):
    out = tmp_path / "run"
    given = ["--env-arg", "length=7", "--env-arg=terminal=false", "--steps", "60", "--eval-every", "30"]
    assert cli.main(["train", "environments:Probe", *WORDS, *given, "--out", str(out)]) == 0
    assert "env arguments: length=7, terminal=False" in capsys.readouterr().out
    assert config.read_file(out / "config.toml")["env_kwargs"] == {"length": 7, "terminal": False}
    assert oht.load(out).evaluate(2) == [7, 7]
    assert oht.resume(out, steps=80).evaluate(1) == [7]
    assert cli.main(["eval", str(out), "--episodes", "1"]) == 0
    assert "7.0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9.0", 9.0),
        ("3", 3),
        ("true", True),
        ("True", True),
        ("[1, 2]", [1, 2]),
        ("(1, 2)", [1, 2]),
        ("{'a': 1}", {"a": 1}),
        ("human", "human"),
        ("'3'", "3"),
        ("2020-01-01", "2020-01-01"),
        ("a=b", "a=b"),
    ],
)
def test_values_of_the_command_line(text, value, monkeypatch):
    given: dict = {}
    monkeypatch.setattr("oht.api.train", lambda **values: given.update(values))
    monkeypatch.setattr(train_command, "_ended", lambda train, shown: train() or 0)
    cli.main(["train", "Pendulum-v1", "--env-arg", f"x={text}"])
    resolved = config.resolve({n: v for n, v in given.items() if n not in ("out", "overwrite", "progress")})
    assert resolved.env_kwargs == {"x": value}
    again = config.resolve(config.tomllib.loads(config.to_toml(resolved)))
    assert again == resolved


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("environments:Probe --env-arg lenght=3", "TypeError: Probe.__init__() got an unexpected keyword argument"),
        ("Pendulum-v1 --env-arg gravity=3", "unexpected keyword argument 'gravity'"),
        ("dm/walker-run --env-arg gravity=3", "dm/walker-run is simulated by EnvPool and takes no arguments such as"),
        ("Pendulum-v1 --env-arg gravity", "--env-arg 'gravity' is not NAME=VALUE; for example --env-arg gravity=9.8"),
        ("Pendulum-v1 --env-arg g=[None]", "g in env_kwargs is None, which config.toml cannot hold"),
    ],
)
def test_what_is_wrong_is_one_sentence(words, sentence, tmp_path, capsys):
    assert cli.main(["train", *words.split(), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert sentence in error
    assert not (tmp_path / "run").exists()


def test_near_names_lead_to_it(capsys):
    with pytest.raises(UserError, match="unknown setting 'env_kwarg'; did you mean 'env_kwargs'"):
        config.resolve({"task": "Pendulum-v1", "env_kwarg": {"g": 1.0}})
    assert cli.main(["train", "Pendulum-v1", "--env-kwargs", "g=1"]) == 2
    assert "as in --env-arg gravity=9.8" in capsys.readouterr().err


def test_what_a_file_cannot_hold_is_refused():
    with pytest.raises(UserError, match=r"f in env_kwargs is .* which config\.toml cannot hold"):
        config.resolve({"task": "Pendulum-v1", "env_kwargs": {"f": print}})
    with pytest.raises(UserError, match="env_kwargs is 3, but must be a table"):
        config.resolve({"task": "Pendulum-v1", "env_kwargs": 3})


MAKE = lambda: Probe(4)  # noqa: E731


def test_envs_that_are_objects_are_found_again_or_asked_for(tmp_path, monkeypatch):
    class Inner(Probe):
        pass

    class Script(Probe):
        pass

    Script.__module__, Script.__qualname__ = "__main__", "Script"
    monkeypatch.setattr(sys.modules["__main__"], "Script", Script, raising=False)
    nameless = {"lambda": lambda: Probe(4), "partial": partial(Probe, 4), "inner": Inner}
    for name, env in {**nameless, "script": Script, "named": MAKE}.items():
        oht.train(env, out=tmp_path / name, **SHORT).close()
    for name, env in nameless.items():
        why = "a functools.partial, whose arguments are not kept" if name == "partial" else "it is a lambda or was made"
        with pytest.raises(UserError, match=rf"was trained with the env '.*', which is not found here: .*{why}"):
            oht.load(tmp_path / name)
        with pytest.raises(UserError, match=r"give it again from Python, as in oht.load\(path, env="):
            oht.resume(tmp_path / name)
        assert len(oht.load(tmp_path / name, env=env).evaluate(1)) == 1
    assert oht.load(tmp_path / "named").evaluate(1) == [4]
    assert oht.load(tmp_path / "script").evaluate(1) == [5]  # the same script again
    monkeypatch.delattr(sys.modules["__main__"], "Script")
    with pytest.raises(UserError, match="the env '__main__:Script', which is not found here: it belongs to a script"):
        oht.load(tmp_path / "script")
    assert oht.load(tmp_path / "script", env=environments.Probe).evaluate(1) == [5]
