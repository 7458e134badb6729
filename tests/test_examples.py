"""The examples run, and do what they say, with tiny settings."""

import json
import runpy
import subprocess
import sys
import threading
import tomllib
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oht
from oht import cli
from oht.policies import SavedPolicy

EXAMPLES = Path(__file__).parent.parent / "examples"
TINY = {"start_steps": 60, "eval_every": 100, "eval_episodes": 2, "batch_size": 8, "hidden": (8, 8)}
TINY |= {"replay_size": 300, "max_episode": 20, "tensorboard": False}


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def run(name: str, out: Path, **settings: Any) -> oht.Run:
    return example(name)["main"](steps=300, out=out, **(TINY | settings))


def test_every_example_is_tested():
    tested = {"own_algorithm.py", "own_environment.py", "own_tuner.py", "paper_oht_lr.toml", "serve_onnx.py"}
    elsewhere = {"tune_sb3.py"}  # in tests_peers/; its loop, with agents in NumPy, in test_asktell.py
    elsewhere |= {"tutorial.ipynb"}  # in test_docs.py
    assert {path.name for path in EXAMPLES.glob("*.*")} == tested | elsewhere


def test_own_algorithm_is_tuned_by_its_own_hyper_parameter(tmp_path):
    trained = run("own_algorithm", tmp_path / "run")
    efforts = {row[f"agent/{i}/effort"] for row in trained.schedule for i in range(5)}
    assert len(efforts) == 5
    assert min(efforts) < 0.1 < max(efforts)
    assert "actor_loss" in trained.metrics[-1]
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'algo = "<run_path>:<careful>"' in text  # no module: runpy ran the file
    assert 'effort = "log:0.1:0.5"' in text
    again = oht.load(tmp_path / "run", algo=example("own_algorithm")["careful"])
    obs = np.array([0.5, 0.5, 1.0], np.float32)
    np.testing.assert_array_equal(again.policy(obs), trained.policy(obs))


def test_own_environment_is_acted_on_in_its_own_range(tmp_path):
    trained = run("own_environment", tmp_path / "run")
    assert {trained.schedule[0][f"agent/{i}/n_step"] for i in range(4)} == {1, 3}
    force = trained.policy(np.array([1.0, 0.0], np.float32))
    assert force.shape == (1,)
    assert abs(force[0]) <= 3
    explored = [trained.policy(np.array([1.0, 0.0], np.float32), deterministic=False)[0] for _ in range(3)]
    assert len(set(explored)) == 3


def test_the_papers_settings_are_one_flag_away(tmp_path):
    tiny = [f"--{name.replace('_', '-')}={value}" for name, value in (TINY | {"hidden": "8,8"}).items()]
    config = ["--config", str(EXAMPLES / "paper_oht_lr.toml")]
    assert cli.main(["train", "Pendulum-v1", *config, *tiny, "--steps=300", "--out", str(tmp_path / "run")]) == 0
    schedule = oht.load(tmp_path / "run").schedule
    assert {schedule[0][f"sample/{i}/agent"] for i in range(10)} == {*range(1, 11)}  # not agent 0, the main one
    assert len({row["actor_lr/sigma"] for row in schedule}) > 1  # CEM
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert (config["members"], config["unstick"]) == ("persist", False)


def test_the_boat_can_be_lost():
    boat = example("own_environment")["Dock"]()
    boat.reset(seed=0)
    steps = [boat.step(np.array([3.0]))[1:3] for _ in range(100)]
    assert (-100.0, True) in steps


def test_own_tuner_climbs_and_its_run_is_loaded_with_it(tmp_path):
    trained = run("own_tuner", tmp_path / "run", spread=2.0)
    schedule = trained.schedule
    for row, after in pairwise(schedule):
        better = row["sample/1/return"] > row["sample/0/return"]
        assert after["champion/critic_lr"] == row[f"sample/{int(better)}/critic_lr"]
    assert trained.setup.tuner.champion(np.random.default_rng(0), trained.progress.tuner) == int(
        schedule[-1]["sample/1/return"] > schedule[-1]["sample/0/return"]
    )
    assert "spread = 2.0" in (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(oht.UserError, match="method '<run_path>:<climb>'"):
        oht.load(tmp_path / "run")
    method = example("own_tuner")["CLIMB"]
    again = oht.load(tmp_path / "run", method=method)
    assert again.evaluate(2) == trained.evaluate(2)


def test_own_tuner_refuses_what_it_cannot_tune(tmp_path):
    with pytest.raises(oht.UserError, match="climb tunes numbers"):
        run("own_tuner", tmp_path / "run", tune={"n_step": oht.Choice(1, 2)})


def test_an_exported_policy_is_served_without_jax(tmp_path):
    layout, rng = {"box": [3]}, np.random.default_rng(0)
    arrays = {"kernel_0": rng.normal(size=(3, 1)), "bias_0": np.zeros(1), "low": np.array([-2.0]), "high": np.ones(1)}
    policy = SavedPolicy(layout, arrays)
    path = policy.export(tmp_path / "policy.onnx")
    served = example("serve_onnx")
    batch = rng.normal(size=(4, 3))
    with served["server"](served["Policy"](path)) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{http.server_port}"

        def ask(value: Any) -> Any:
            with urllib.request.urlopen(address, json.dumps(value).encode()) as answer:
                return json.load(answer)

        np.testing.assert_allclose(ask({"obs": batch.tolist()})["action"], policy(batch), atol=1e-5)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask({"observation": []})
        assert json.load(refused.value)["inputs"] == ["obs"]
        http.shutdown()
    code = f"import runpy, sys; runpy.run_path({str(EXAMPLES / 'serve_onnx.py')!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"jax", "oht", "gymnasium"} & {*loaded}
