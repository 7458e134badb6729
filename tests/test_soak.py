"""The soak: many kills, many inputs, many damaged checkpoints. `make soak` runs it and prints how many of each.

Smaller: OHT_SOAK_KILLS=18 OHT_SOAK_INPUTS=1000 OHT_SOAK_DAMAGES=100; again: OHT_SOAK_SEED=the printed seed.
"""

import contextlib
import io
import json
import os
import random
import shutil
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as drawn_from
from hypothesis import strategies as st

import oht
import soak
import test_fuzz
from oht import methods, training
from oht.errors import UserError
from oht.runs import checkpoints
from soak import Process, contents, newest
from test_training import StopsAfter, tiny

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# Kills

STEPS, EVAL_EVERY = 400, 80
TASKS = {"EnvPool": "gym/half-cheetah", "Gymnasium": "Pendulum-v1"}
SMALL = [
    *("--steps", str(STEPS), "--start-steps", "40", "--eval-every", str(EVAL_EVERY), "--eval-episodes", "2"),
    *("--batch-size", "8", "--hidden", "8,8", "--replay-size", "150", "--max-episode", "10", "--quiet"),
]
POPULATION = ["--population", "4"]
METHODS: dict[str, list[str]] = {
    "static": [],
    "oht": [*POPULATION, "--tune", "n_step=1,2"],
    "random": [*POPULATION, "--tune", "n_step=1,2"],
    "oht-nstep": [],
    "oht-lr": POPULATION,
    "meta-gradient": [],
    "cem-rl": [*POPULATION, "--gradient", "2"],
    "pbt": [*POPULATION, "--interval", "1"],
    "schedule": ["--from", "schedule.csv"],
}
PAIRS = [(method, pool) for method in METHODS for pool in TASKS]
KILLS = -(-soak.size("KILLS", 100) // len(PAIRS))  # of each method in each pool


def test_every_method_is_killed():
    assert set(METHODS) == set(methods.METHODS)


@pytest.mark.parametrize(("method", "pool"), PAIRS)
def test_a_run_that_is_killed_at_random_moments_ends_as_if_it_never_was(method, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schedule.csv").write_text(f"env_steps,champion/actor_lr\n{STEPS // 2},0.001\n{STEPS},0.01\n")
    rng = random.Random(f"{soak.SEED} {method} {pool}")
    # with 0 a checkpoint is written in every iteration; otherwise a resumed run repeats some
    often = ["--checkpoint-every", rng.choice(["0", "0.005"])]
    words = [TASKS[pool], "--method", method, *METHODS[method], *SMALL, *often]
    whole = Path("whole")
    with Process.started(whole, STEPS, EVAL_EVERY, [*words, "--out", str(whole)]) as reference:
        assert reference.finish() == 0
    start_up = (whole / "run.json").stat().st_mtime - reference.since
    kills, runs_killed = Counter(), 0
    moments = soak.moments(rng)
    while kills.total() < KILLS:
        run = Path(f"killed-{runs_killed}")
        runs_killed += 1
        kills += killed(run, words, moments, KILLS - kills.total(), start_up)
        assert contents(run) == contents(whole)
        same_actions(run, whole)
    print(f"\nkilled {kills.total()} times, seed {soak.SEED}: {method}, {pool}: {dict(kills)}, {runs_killed} runs")


def killed(run: Path, words: list[str], moments, most: int, start_up: float) -> Counter:
    """Train, kill and resume until the run is finished; how often it was killed, by the kind of moment."""
    kills = Counter()
    while True:
        again = ["--resume", str(run), "--quiet"] if newest(run) >= 0 else [*words, "--out", str(run), "--overwrite"]
        with Process.started(run, STEPS, EVAL_EVERY, again) as process:
            if kills.total() == most:
                assert process.finish() == 0
                return kills
            kind, moment = next(moments)
            if not process.kill_when(*moment(process, start_up)):
                return kills
            kills[kind] += 1


def same_actions(one: Path, other: Path) -> None:
    """The policies of both runs answer the same."""
    loaded = [oht.load(path) for path in (one, other)]
    obs = np.random.default_rng(0).normal(size=(5, loaded[0].setup.eval_pool.obs)).astype(np.float32)
    np.testing.assert_array_equal(loaded[0].policy(obs), loaded[1].policy(obs))
    for run in loaded:
        run.close()


# Inputs

INPUTS = soak.size("INPUTS", 10_000)
verdicts = Counter()


class Accepted(Exception):
    """All checks are passed: the envs would be opened next."""


@pytest.fixture
def no_training(monkeypatch):
    def accept(*_):
        raise Accepted

    monkeypatch.setattr(training, "build", accept)


def many(examples: int):
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def storable(value: Any) -> bool:
    """Whether TOML has this value."""
    try:
        tomli_w.dumps({"value": value})
    except (TypeError, ValueError, UnicodeEncodeError):
        return False
    return True


TASK_WORDS = st.sampled_from(["Pendulum-v1", "dm/walker-run", "gym/ant@delay5", "environments:FollowObservation", "x"])
FLAG_WORDS = st.one_of(
    st.tuples(st.sampled_from(test_fuzz.FLAGS), test_fuzz.PLAIN.map(str)).map(list),
    st.tuples(st.sampled_from(test_fuzz.FLAGS), test_fuzz.PLAIN).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(
        st.just("--tune"),
        st.tuples(st.sampled_from([*test_fuzz.TUNABLE, "actor_lr+critic_lr", "x"]), test_fuzz.SPACES).map(
            lambda pair: f"{pair[0]}={pair[1]}"
        ),
    ).map(list),
    st.tuples(st.just("--method"), st.sampled_from([*methods.METHODS, "pbtt"])).map(list),
    st.tuples(st.just("--algo"), st.sampled_from(["td3", "sac", "ddpg", "uniform", "ppo"])).map(list),
    st.tuples(st.just("--out"), st.sampled_from(["run", "config.toml", "config.toml/run", "/proc/run", ""])).map(list),
    st.sampled_from([["--quiet"], ["--overwrite"], ["--resume", "run"], ["--config", "none.toml"], ["--steps"]]),
)
TRAIN_LINES = st.tuples(TASK_WORDS, st.lists(FLAG_WORDS, max_size=4)).map(
    lambda parts: ["train", parts[0], *(word for words in parts[1] for word in words)]
)


def outcome(words: list[str], config: str | None) -> int:
    """The exit code of a command in an empty folder; -1 if it would train. Checks that it says one sentence."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if config is not None:
            Path("config.toml").write_text(config, "utf-8")
        before = os.listdir()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = test_fuzz.run(words)
        except Accepted:
            code = -1
        assert os.listdir() == before, "something is left behind"
    if code == 2:
        assert err.getvalue().count("\n") == 1, err.getvalue()
        assert err.getvalue().startswith("oht: ")
        test_fuzz.one_sentence(err.getvalue())
    return code


@pytest.mark.usefixtures("no_training")
@many(INPUTS // 2)
@drawn_from(soak.SEED)
@given(test_fuzz.CONFIGS.map(lambda values: {k: v for k, v in values.items() if storable(v)}), TASK_WORDS)
def test_config_files(values, task):
    code = outcome(["train", "--config", "config.toml", "--quiet"], tomli_w.dumps({"task": task, **values}))
    assert code in (-1, 2)
    verdicts["config files " + ("accepted" if code == -1 else "refused")] += 1


@pytest.mark.usefixtures("no_training")
@many(INPUTS - INPUTS // 2)
@drawn_from(soak.SEED)
@given(st.one_of(test_fuzz.LINES, TRAIN_LINES))
def test_command_lines(words):
    code = outcome([word.replace("\0", "") for word in words], None)
    assert code in (-1, 0, 2)
    verdicts["command lines " + {-1: "accepted", 0: "answered", 2: "refused"}[code]] += 1


def test_that_all_inputs_were_judged():
    print(f"\njudged {verdicts.total()} inputs, seed {soak.SEED}: {dict(verdicts)}")
    assert verdicts.total() >= INPUTS


# Damages

DAMAGES = soak.size("DAMAGES", 1000)


def harmed(content: bytes, rng: random.Random) -> tuple[str, bytes | None]:
    """The same content with one kind of damage."""
    kind = rng.choice(["bit", "bytes", "sector", "truncated", "missing", "longer", "repeated"])
    place, noise = rng.randrange(len(content)), bytearray(content)
    if kind == "bit":
        noise[place] ^= 1 << rng.randrange(8)
    elif kind == "bytes":
        for _ in range(rng.randint(1, 8)):
            noise[rng.randrange(len(content))] = rng.randrange(256)
    elif kind == "sector":
        noise[place : place + 512] = bytes(len(noise[place : place + 512]))
    elif kind == "truncated":
        del noise[place:]
    elif kind == "longer":
        noise += rng.randbytes(rng.randint(1, 100))
    elif kind == "repeated":  # a block that was written twice
        length = rng.randint(1, 64)
        noise[place : place + length] = content[max(0, place - length) : place]
    return kind, None if kind == "missing" else bytes(noise)


@pytest.fixture(scope="module", params=["static", "pbt"])
def stopped(request, tmp_path_factory) -> oht.Run:
    """A run with two checkpoints, several pieces of replay (with pbt one replay for each agent) and a best agent."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    return tiny(out, request.param, callbacks=[StopsAfter(4)], checkpoint_every=0)


def bits(tree: Any) -> list[tuple]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return [(leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in leaves]


def opened(folder: Path, state: Any, replay: Any) -> tuple[str, Any]:
    """What a damaged folder is read as, and how: refused, said (the one before is used) or accepted silently."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            restored, counters, ring = checkpoints.load(folder / "checkpoint", state, replay)
            _, facts = checkpoints.load_best(folder / "best", jax.tree.map(lambda leaf: leaf[0], state[0]))
        except UserError as error:
            test_fuzz.one_sentence(str(error))
            return "refused", None
    assert all("is damaged" in str(warning.message) for warning in said)
    return ("said" if said else "accepted"), (bits(restored), counters, bits(ring), facts)


def needed(folder: Path) -> set[Path]:
    """The files that the newest checkpoint and the newest best agent consist of."""
    last, best = max((folder / "checkpoint").glob("0*")), max((folder / "best").glob("0*"))
    pieces = json.loads((last / "state.json").read_text())["facts"]["pieces"]
    replay = {folder / "checkpoint" / "replay" / f"{name}.npz" for name in pieces}
    return replay | {place / name for place in (last, best) for name in ("state.npz", "state.json")}


def changes_nothing(path: Path, before: bytes, after: bytes | None) -> bool:
    """Whether a file says the same as before: JSON with other white space or another spelling of the same number."""
    if after is None or path.suffix != ".json":
        return before == after
    try:
        return json.dumps(json.loads(before)) == json.dumps(json.loads(after))
    except ValueError:
        return False


def test_damaged_checkpoints(stopped, tmp_path):
    t, verdicts = stopped.progress, Counter()
    method = stopped.setup.config.run.method
    rng = random.Random(f"{soak.SEED} {method}")
    state = t.agents, t.tuner, t.owed
    folders = [path for name in ("checkpoint", "best") for path in (stopped.path / name).rglob("*")]
    files = sorted(path for path in folders if path.is_file())
    copy = tmp_path / "copy"
    undamaged = opened(stopped.path, state, t.replay)[1]
    older = tmp_path / "older"
    shutil.copytree(stopped.path, older)
    shutil.rmtree(max((older / "checkpoint").glob("0*")))
    before = opened(older, state, t.replay)[1]
    while verdicts["said"] + verdicts["refused"] < DAMAGES // 2:
        shutil.copytree(stopped.path, copy)
        matters, done = False, []
        for path in rng.sample(files, rng.choice([1, 1, 1, 2, 3])):
            content = path.read_bytes()
            kind, damaged = harmed(content, rng)
            victim = copy / path.relative_to(stopped.path)
            victim.unlink()
            if damaged is not None:
                victim.write_bytes(damaged)
            done.append((kind, path))
            matters |= path in needed(stopped.path) and not changes_nothing(path, content, damaged)
        verdict, found = opened(copy, state, t.replay)
        assert (verdict == "accepted") == (not matters), (verdict, done)
        if verdict == "accepted":
            assert found == undamaged
        elif verdict == "said":
            assert found[:3] in (undamaged[:3], before[:3])
        verdicts[verdict if matters else "harmless"] += 1
        shutil.rmtree(copy)
    print(f"\nread {verdicts.total()} damaged checkpoints of {method}, seed {soak.SEED}: {dict(verdicts)}")
    assert verdicts["said"] > 0
    assert verdicts["refused"] > 0
