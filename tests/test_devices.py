"""Where agents train: each alone on a CPU, in groups on several accelerators, with the same results."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from environments import search_path
from oht import devices, population
from oht import replay as ring
from oht.agents import make
from oht.population import Learner
from oht.types import Spec

TD3 = make("td3", Spec(3, 2), hidden=(8, 8))
UPDATES = np.array([4, 0, 10, 6])


@pytest.fixture(scope="module")
def replay():
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(41, 3)), rng.normal(size=(40, 2))
    return ring.extend(ring.empty(100, 3, 2), obs, action, rng.normal(size=40), terminal=False)


def members(groups: list[devices.Group]) -> list[list[int]]:
    return [group.members.tolist() for group in groups]


def trained(learner: Learner, replay, agents=None, updates: np.ndarray = UPDATES):
    agents = population.create(jax.random.key(0), TD3, len(updates)) if agents is None else agents
    hyper = {name: np.full(len(updates), value) for name, value in TD3.hyper.items()}
    return learner.learn(jax.random.key(1), agents, replay, hyper, updates, lambda *_: None)


def largest_difference(one, other) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def test_on_a_cpu_everyone_trains_alone_and_the_longest_first():
    assert members(devices.groups(UPDATES)) == [[2], [3], [0]]
    assert devices.groups(np.zeros(3, int)) == []


def test_accelerators_share_the_gradient_steps(monkeypatch):
    monkeypatch.setattr(devices, "separate", lambda: False)
    assert members(devices.groups(UPDATES)) == [[0, 2, 3]]
    assert devices.groups(np.zeros(3, int)) == []
    monkeypatch.setattr(jax, "local_devices", lambda: ["first", "second"])
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    divided = devices.groups(np.array([4, 0, 10, 6, 2, 0]))
    assert members(divided) == [[2, 4], [0, 3]]  # 12 and 10 gradient steps
    assert [group.device for group in divided] == ["first", "second"]
    assert members(devices.groups(np.array([0, 7]))) == [[1]]  # nothing to do for the second


def test_in_threads_agents_learn_the_same_to_the_bit(replay):
    learner = Learner(TD3, 16)
    one_after_another, metrics = trained(learner, replay)  # compiles
    at_once, same = trained(learner, replay)
    assert largest_difference(one_after_another, at_once) == 0
    assert metrics == same


def test_together_agents_learn_the_same(replay, monkeypatch):
    alone, metrics = trained(Learner(TD3, 16), replay)
    monkeypatch.setattr(devices, "separate", lambda: False)
    together, others = trained(Learner(TD3, 16), replay)
    assert largest_difference(alone, together) < 1e-6
    assert metrics == pytest.approx(others, rel=1e-5)


def test_what_an_agent_learns_does_not_depend_on_the_others(replay):
    """Its random numbers are its own: not those of whoever trains beside it, or as long as it does."""
    agents = population.create(jax.random.key(0), TD3, 4)
    every, _ = trained(Learner(TD3, 16), replay, agents)
    lone, _ = trained(Learner(TD3, 16), replay, agents, np.array([0, 0, 10, 0]))
    assert largest_difference(population.take(every, 2), population.take(lone, 2)) == 0
    assert largest_difference(population.take(every, 0), population.take(every, 2)) > 0


TWO_DEVICES = """
from pathlib import Path
import sys
import jax, numpy as np
import oht
from oht import devices
from sharing import share_programs

assert jax.local_device_count() == 2
share_programs()
devices.separate = lambda: False  # as on accelerators
settings = dict(
    steps=120, seed=3, start_steps=30, eval_every=60, eval_episodes=2, batch_size=8, hidden=(8,), replay_size=300,
    max_episode=20, tensorboard=False, algo="ddpg",
)
methods = {
    "random": {"tune": {"n_step": oht.Choice(1, 2, 3)}},
    "pbt": {"population": 3, "interval": 1},
    "cem-rl": {"population": 4, "gradient": 2},
}


def weights(run):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.progress.agents)]


def close(one, other):
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(one, other, strict=True))


def trained(name, number, **settings):
    # a run on so many devices
    devices.several = lambda: number == 2
    run = oht.train("environments:FollowObservation", out=Path(sys.argv[1]) / name, **settings)
    assert len(jax.tree.leaves(run.progress.replay)[0].devices()) == number
    return run


for method, own in methods.items():
    own = settings | own | {"method": method}
    two = trained(f"{method} on two", 2, **own)
    half = trained(f"{method}, half of it on two", 2, **own | {"steps": 60})
    half.close()
    devices.several = lambda: False
    resumed = oht.resume(half.path, steps=120)  # the other half on one device
    assert len(jax.tree.leaves(resumed.progress.replay)[0].devices()) == 1
    assert not close(weights(half), weights(two)), method
    assert close(weights(resumed), weights(two)), method
"""


def test_a_run_on_two_devices_goes_on_on_one_as_it_would_have_on_two(tmp_path):
    """In a process of its own, where JAX makes two devices of the CPU."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": search_path()}
    command = [sys.executable, "-c", TWO_DEVICES, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
