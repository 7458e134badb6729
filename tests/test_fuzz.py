"""Whatever is given is either taken or refused with one sentence; never anything else."""

import contextlib
import io
import os
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oht
from oht import agents, cli, config, methods
from oht.config import RunSettings
from oht.errors import UserError
from oht.hyper import HYPER_PARAMETERS, OPTIONS
from oht.settings import names

METHOD_SETTINGS = {name for method in methods.METHODS.values() for name in names(method.settings)}
NAMES = sorted({*names(RunSettings), *OPTIONS, *HYPER_PARAMETERS, *METHOD_SETTINGS})
WORDS = st.sampled_from(["", "none", "true", "no", "td3", "sac", "cem", "es", "all", "ranks", "persist", "1,2", "8,8"])
NUMBERS = st.one_of(
    st.integers(-3, 30),
    st.sampled_from([10**400, -(10**400), 2**31, 2**63, 1_000_000]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
)
PLAIN = st.one_of(NUMBERS, NUMBERS.map(str), WORDS, st.booleans(), st.none(), st.text(max_size=8))
VALUES = st.one_of(PLAIN, st.lists(PLAIN, max_size=3), st.dictionaries(st.text(max_size=3), PLAIN, max_size=2))
NUMBER_TEXTS = st.one_of(NUMBERS.map(str), st.sampled_from(["", "1e-3", "0.5", "x"]))
SPACES = st.one_of(
    VALUES,
    st.lists(NUMBERS, max_size=4),
    st.lists(NUMBER_TEXTS, max_size=4).map(",".join),
    st.tuples(st.sampled_from(["log", "float", "int", "lgo"]), st.lists(NUMBER_TEXTS, max_size=5)).map(
        lambda parts: ":".join([parts[0], *parts[1]])
    ),
    st.tuples(st.sampled_from(["", "log:", "float:", "int:"]), NUMBER_TEXTS, NUMBER_TEXTS).map(
        lambda parts: f"{parts[0]}{parts[1]}..{parts[2]}"
    ),
    st.tuples(NUMBERS, NUMBERS),
)
TUNABLE = sorted(HYPER_PARAMETERS)
TUNED = st.dictionaries(
    st.one_of(
        st.sampled_from(TUNABLE),
        st.lists(st.sampled_from(TUNABLE), min_size=2, max_size=3).map("+".join),
        st.text(max_size=5),
    ),
    SPACES,
    max_size=3,
)
CONFIGS = st.tuples(
    st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=6)), VALUES, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "algo": st.sampled_from(sorted(agents.ALGORITHMS)),
            "method": st.sampled_from(sorted(methods.METHODS)),
            "tune": st.one_of(TUNED, VALUES),
        },
    ),
).map(lambda parts: parts[0] | parts[1])


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONFIGS)
def test_a_config_resolves_to_one_that_can_be_written_and_read_or_is_refused(values):
    try:
        resolved = config.resolve(values)
    except UserError as error:
        one_sentence(str(error))
        return
    text = config.to_toml(resolved)
    assert config.to_toml(config.resolve(tomllib.loads(text))) == text


def one_sentence(text: str) -> None:
    assert text.strip()
    assert "Traceback" not in text
    assert text.rstrip()[-1] in ".?'`"


FLAGS = ["--" + name.replace("_", "-") for name in NAMES]
# Nothing that would train: no known task is among them.
LINES = st.lists(
    st.one_of(
        st.sampled_from(["train", "tasks", "eval", "plot", "nowhere", "no-task", "--help", "--", "-x", "--steps=3"]),
        st.sampled_from([*FLAGS, "--tune", "--config", "--out", "--resume", "--overwrite", "--quiet", "--episodes"]),
        st.one_of(
            NUMBERS.map(str),
            WORDS,
            st.sampled_from(["n_step=1,2", "gamma=log:", "gamma=0.9..1", "tau=..", "=", "a=b=c"]),
        ),
        st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=6),
    ),
    max_size=7,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_a_command_line_is_followed_or_refused_with_one_sentence(words):
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(words)
        assert os.listdir(folder) == []  # nothing half-made is left behind
    assert code in (0, 2)
    if code == 2:
        lines = err.getvalue().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("oht: ")
        one_sentence(lines[0])


def run(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as end:  # --help
        return int(end.code or 0)


RUNNABLE = st.fixed_dictionaries(
    {
        "algo": st.sampled_from(sorted(agents.ALGORITHMS)),
        "method": st.sampled_from(["static", "oht", "oht-nstep", "oht-lr"]),
    },
    optional={
        "n_step": st.integers(-1, 4),
        "gamma": st.floats(0, 1.2),
        "critic_lr": st.sampled_from([0.0, 1e-3, 1e6]),
        "tau": st.sampled_from([0, 1, 0.005]),
        "policy_delay": st.integers(0, 3),
        "normalise": st.booleans(),
        "replay_ratio": st.sampled_from([0, 0.01, 1]),
        "population": st.integers(0, 4),
        "window": st.integers(0, 2),
        "budget": st.sampled_from([0, 0.1, 2]),
        "activation": st.sampled_from(["tanh", "silu", "sigmoid"]),
        "layer_norm": st.booleans(),
        "members": st.sampled_from(["fork", "persist", "flee"]),
        "delay": st.integers(-1, 30),
        "alpha": st.one_of(st.none(), st.floats(0, 2)),
        "max_episode": st.integers(0, 30),
        "replay_size": st.integers(2, 40),
    },
)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RUNNABLE)
def test_what_resolves_runs_or_says_why_not(values):
    runs_or_refuses(values)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RUNNABLE)
def test_much_of_what_resolves_runs_or_says_why_not(values):
    runs_or_refuses(values)


def runs_or_refuses(values: dict) -> None:
    small = {"steps": 25, "start_steps": 10, "eval_every": 20, "eval_episodes": 1, "batch_size": 4, "hidden": (8, 8)}
    small |= {"replay_size": 40, "max_episode": 12, "tensorboard": False}
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = oht.train("environments:FollowObservation", out=Path(folder) / "run", **(small | values))
        except UserError as error:
            one_sentence(str(error))
        else:
            assert run.progress.iteration >= 1
            assert len(run.metrics) == run.progress.iteration
            assert run.evals
            run.close()
