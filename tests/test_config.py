"""Settings are sorted by owner, checked, and written so that reading them gives the same config."""

import tomllib
from dataclasses import dataclass, fields

import pytest

import oht
from oht import config, methods, settings
from oht.agents.td3 import td3
from oht.errors import UserError
from oht.types import Method

TASK = {"task": "Pendulum-v1"}


@pytest.mark.parametrize(
    ("given", "eval_every"),
    [
        ({}, 20_000),
        ({"steps": 10_000_000}, 20_000),
        ({"steps": 100_000}, 10_000),
        ({"steps": 105, "start_steps": 5}, 10),
        ({"steps": 5, "start_steps": 1}, 1),
        ({"steps": 100_000, "eval_every": 7}, 7),
        ({"steps": 100_000, "eval_every": None}, 10_000),
    ],
)
def test_steps_scale_eval_every_unless_it_is_given(given, eval_every):
    resolved = config.resolve({**TASK, **given})
    assert resolved.run.eval_every == eval_every
    assert tomllib.loads(config.to_toml(resolved))["eval_every"] == eval_every


@pytest.mark.parametrize(
    ("name", "hint"),
    {
        "total_timesteps": "steps",
        "learning_rate": "actor_lr and critic_lr",
        "lr": "actor_lr and critic_lr",
        "buffer_size": "replay_size",
        "learning_starts": "start_steps",
        "gradient_steps": "replay_ratio",
        "train_freq": "replay_ratio",
        "device": "JAX",
        "policy_kwargs": "hidden, activation and layer_norm",
        "net_arch": "hidden",
        "ent_coef": "alpha",
    }.items(),
)
@pytest.mark.parametrize("value", [1, None])
def test_names_of_stable_baselines3_lead_to_ours(name, hint, value):
    with pytest.raises(UserError) as error:
        config.resolve({**TASK, name: value})
    assert f"unknown setting '{name}'" in str(error.value)
    assert hint in str(error.value)
    assert "did you mean" not in str(error.value)


def test_an_unknown_name_is_refused_even_if_its_value_is_none():
    with pytest.raises(UserError, match="unknown setting 'gama'; did you mean 'gamma'"):
        config.resolve({**TASK, "gama": None})
    config.resolve({**TASK, "gamma": None, "workers": None, "tune": None, "window": None})  # known, not given


def test_a_tuple_in_python_is_refused():
    with pytest.raises(UserError, match=r"oht.Choice\(1e-4, 1e-2\).*oht.LogFloat\(low=1e-4, high=1e-2\)"):
        oht.train("Pendulum-v1", tune={"critic_lr": (1e-4, 1e-2)})
    with pytest.raises(UserError, match=r"critic_lr=log:1e-4..1e-2"):
        oht.train("Pendulum-v1", tune={"critic_lr": oht.LogFloat(1e-4, 1e-2)})


def test_a_list_is_a_choice():
    assert config.resolve({**TASK, "tune": {"n_step": [1, 2]}}).tune == {"n_step": oht.Choice(1, 2)}


def test_written_and_read_again():
    tune = {
        "actor_lr+critic_lr": oht.Choice(1e-4, 1e-3),
        "gamma": "0.9..0.999",
        "n_step": "1..5",
        "tau": oht.LogFloat(low=1e-3, high=1e-1),
    }
    odd = 'a "name"\n\\ of \x7f sorts'
    resolved = config.resolve({"task": odd, "hidden": (8, 16), "critic_lr": 3e-4, "tune": tune})
    values = tomllib.loads(config.to_toml(resolved))
    assert values["task"] == odd
    assert values["hidden"] == [8, 16]
    assert values["tune"]["gamma"] == "float:0.9..0.999"
    assert values["tune"]["n_step"] == "int:1..5"
    assert config.resolve(values) == resolved


def test_a_method_with_a_range_starts_at_the_value_of_the_run():
    tuned = {"critic_lr": "log:1e-5..1e-2"}
    resolved = config.resolve({**TASK, "method": "oht-lr", "critic_lr": 3e-5, "tune": tuned})
    space = config.spaces.Space(resolved.tune, {"critic_lr": resolved.hyper["critic_lr"]})
    assert 10 ** space.mu[0] == pytest.approx(3e-5)


def test_a_space_without_an_end_is_allowed_where_the_hyper_parameter_has_none():
    tune = {"target_entropy": "float:-6:1"}
    resolved = config.resolve({"task": "Pendulum-v1", "algo": "sac", "tune": tune})
    assert config.resolve(config.flat(resolved)).tune == resolved.tune


def test_what_a_method_cannot_tune_is_refused_before_anything_is_opened():
    values = {"task": "Pendulum-v1", "method": "oht-nstep", "tune": {"actor_lr": "log:1e-4..1e-2"}}
    with pytest.raises(UserError, match="arms need discrete values"):
        config.resolve(values)


def test_gradient_steps_are_not_negative():
    with pytest.raises(UserError, match="the space of replay_ratio: its lowest value is -1"):
        config.resolve({"task": "Pendulum-v1", "tune": {"replay_ratio": "-1,1"}})


def test_a_name_that_algorithm_and_method_share_is_refused():
    def own(spec):
        made = td3(spec, hidden=(8, 8))
        return made._replace(hyper={**made.hyper, "epsilon": 0.1})

    values = {"task": "Pendulum-v1", "algo": "own", "method": "oht-nstep", "tune": {"n_step": "1,2"}}
    with pytest.raises(UserError, match="epsilon is a hyper-parameter of own and a setting of the run or of oht-nstep"):
        config.resolve(values, own)
    assert config.resolve({**values, "method": "oht", "epsilon": 0.2}, own).hyper == {"epsilon": 0.2}


def test_a_name_that_an_option_and_a_setting_share_is_refused():
    @dataclass(frozen=True)
    class Steps:
        hidden: float = settings.setting(0.7, "of a tuner")

    own = Method("own", Steps, methods.METHODS["static"].make)
    with pytest.raises(UserError, match="hidden is an option of td3 and a setting of the run or of"):
        config.resolve({"task": "Pendulum-v1", "method": "own"}, method=own)


def test_a_setting_without_help_has_its_default_only():
    @dataclass(frozen=True)
    class Plain:
        rate: float = 0.5

    assert settings.help_of(fields(Plain)[0]) == " [0.5]"
