"""Agents that learn: no dead knobs, pure functions of their keys, and probes whose answer is known."""

from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht import population
from oht import replay as ring
from oht.learners.own_replays import OwnReplays
from oht.types import Algorithm
from test_agents import SPEC, VARIANTS, every_variant, hyper_of

ROWS = 32
MAX_N = 2


class Episode(NamedTuple):
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray


def stored(episodes: list[Episode], terminal: bool) -> ring.Replay:
    replay = ring.empty(2048, SPEC.obs, SPEC.action)
    for episode in episodes:
        replay = ring.extend(replay, *episode, terminal=terminal)
    return replay


def floats(*values) -> np.ndarray:
    return np.array(values, np.float32)


def random_episodes(number: int, steps: int) -> list[Episode]:
    random = np.random.default_rng(0)
    return [
        Episode(
            floats(*random.standard_normal((steps + 1, SPEC.obs))),
            floats(*random.uniform(-1, 1, (steps, SPEC.action))),
            floats(*random.standard_normal(steps)),
        )
        for _ in range(number)
    ]


# What is in `hyper` matters, and nothing but the arguments does


def two_updates_and_an_action(algorithm: Algorithm):
    """A function of the hyper-parameters alone."""
    replay = stored(random_episodes(4, 20), terminal=True)
    keys = jax.random.split(jax.random.key(0), 4)

    def update(hyper, state, key):
        batch = population.sampled(key, replay, ROWS * algorithm.batches, hyper, MAX_N)
        return algorithm.update(key, state, batch, hyper)

    def live(hyper):
        state, metrics = jax.lax.scan(partial(update, hyper), algorithm.init(keys[0]), keys[1:3])
        return state, metrics, algorithm.act(keys[3], state, jnp.ones(SPEC.obs), hyper, True)

    return live


@pytest.mark.parametrize("name", [name for name in VARIANTS if "normalised" not in name])
def test_no_dead_knobs(name: str):
    """One agent for each hyper-parameter, in which only that one differs from the defaults."""
    algorithm = VARIANTS[name]()
    knobs = list(algorithm.hyper)
    hyper = hyper_of(algorithm, 1 + len(knobs))
    for row, knob in enumerate(knobs, start=1):
        hyper[knob][row] = 2 if knob == "n_step" else 0.5 * hyper[knob][row]

    live = jax.jit(jax.vmap(two_updates_and_an_action(algorithm)))
    result = jax.tree.map(np.asarray, live(hyper))
    for row, knob in enumerate(knobs, start=1):
        changed = jax.tree.map(lambda leaf, row=row: (leaf[row] != leaf[0]).any(), result)
        assert any(jax.tree.leaves(changed)), f"{knob} of {name} changes nothing"

    among_others = live({knob: values[::-1] for knob, values in hyper.items()})
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[::-1], rtol=1e-5, atol=1e-7), result, among_others)


# Probes: all at once, a few hundred updates of ten agents, each with its own episodes whose answer is known


def three_steps(last_like_first: bool) -> list[Episode]:
    """Reward 1 at each of three steps, whatever the action."""
    random = np.random.default_rng(0)
    time = floats([0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [1.5, 0.0]) * (not last_like_first)
    return [Episode(time, floats(*random.uniform(-1, 1, (3, 1))), np.ones(3, np.float32)) for _ in range(100)]


def one_step() -> list[Episode]:
    """Reward -(a - x)^2: the best action is x."""
    random = np.random.default_rng(0)
    drawn = [(random.choice([-0.5, 0.5]), random.uniform(-1, 1)) for _ in range(300)]
    return [Episode(floats([x, 1.0], [0.0, 0.0]), floats([a]), floats(-((a - x) ** 2))) for x, a in drawn]


def two_steps() -> list[Episode]:
    """The first action becomes the second state and its reward: Q(first, a) = 0.9 a, so the best action is 1."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    return [
        Episode(floats([0.0, 1.0], [first, 0.0], [0.0, 0.0]), floats([first], [second]), floats(0.0, first))
        for first, second in drawn
    ]


@cache
def probes() -> dict[str, tuple[ring.Replay, float]]:
    """What is stored, and the temperature for SAC with a fixed one."""
    return {
        "terminal": (stored(three_steps(last_like_first=False), terminal=True), 0.0),
        "truncation": (stored(three_steps(last_like_first=True), terminal=False), 0.0),
        "entropy": (stored(three_steps(last_like_first=True), terminal=False), 0.5),
        "one step": (stored(one_step(), terminal=True), 0.01),
        "two steps": (stored(two_steps(), terminal=True), 0.01),
    }


class Class:
    """Agents of one algorithm: for each probe two, with n_step 1 and 2."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        self.learner = OwnReplays(algorithm, ROWS)
        number = 2 * len(probes())
        replays, alphas = zip(*(probe for probe in probes().values() for _ in range(2)), strict=True)
        self.replays = jax.tree.map(lambda *leaves: jnp.stack(leaves), *replays)
        quick = {"actor_lr": 3e-3, "critic_lr": 3e-3, "alpha_lr": 1e-2, "tau": 0.1, "gamma": 0.9}
        self.hyper = hyper_of(algorithm, number, **quick, n_step=[1, 2] * len(probes()), alpha=alphas)
        self.agents = population.create(jax.random.key(0), algorithm, number)

    def learn(self, key: int, updates: int):
        """The agents, and the metrics of each."""
        keys = jax.random.split(jax.random.key(key), len(self.hyper["gamma"]))
        calls = np.int32(0), np.int32(updates // self.algorithm.batches)
        return self.learner._learn(keys, self.agents, self.replays, self.hyper, *calls, MAX_N)

    @cached_property
    def trained(self) -> tuple[population.Agents, dict[str, Any]]:
        """The agents after 800 updates, and their metrics over the next 20."""
        self.agents, _ = self.learn(1, 800)
        return self.learn(2, 20)

    def metric(self, probe: str, name: str) -> np.ndarray:
        return np.asarray(self.trained[1][name]).reshape(-1, 2)[list(probes()).index(probe)]

    def greedy(self, probe: str, *obs: float) -> np.ndarray:
        first = 2 * list(probes()).index(probe)
        agents = population.take(self.trained[0], np.array([first, first + 1]))
        act = jax.vmap(lambda agent: self.algorithm.act(jax.random.key(0), agent, jnp.array(obs), {}, False))
        return np.asarray(jax.jit(act)(agents))[:, 0]


@cache
def taught(name: str) -> Class:
    return Class(VARIANTS[name]())


@every_variant
def test_learning_depends_on_the_key_alone(name: str):
    first, again, other = (taught(name).learn(key, 2)[0] for key in (1, 1, 2))
    same = jax.tree.map(lambda a, b: bool((a == b).all()), first, again)
    assert all(jax.tree.leaves(same))
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), first, other)))


VALUED = [name for name in VARIANTS if name != "sac"]  # the learned temperature adds an entropy that changes


@pytest.mark.parametrize("name", VALUED)
def test_probe_terminal(name: str):
    """Q is 1 + 0.9 + 0.81, 1.9 and 1."""
    np.testing.assert_allclose(taught(name).metric("terminal", "q"), (2.71 + 1.9 + 1.0) / 3, rtol=0.03)


@pytest.mark.parametrize("name", VALUED)
def test_probe_truncation(name: str):
    """Time ran out, nothing else did: 1 / (1 - 0.9) = 10 everywhere."""
    np.testing.assert_allclose(taught(name).metric("truncation", "q"), 10.0, rtol=0.03)


def test_probe_entropy():
    """Where no action is better, SAC's policy becomes uniform, H = log 2, and Q = (1 + 0.9 alpha H) / (1 - 0.9)."""
    agents = taught("sac with fixed alpha")
    np.testing.assert_allclose(agents.metric("entropy", "entropy"), np.log(2.0), atol=0.1)
    q, _ = agents.metric("entropy", "q")  # with n_step 1
    np.testing.assert_allclose(q, 10.0 * (1.0 + 0.9 * 0.5 * np.log(2.0)), rtol=0.04)


@every_variant
def test_probe_best_action(name: str):
    for x in (-0.5, 0.5):
        np.testing.assert_allclose(taught(name).greedy("one step", x, 1.0), x, atol=0.15)


@every_variant
def test_probe_two_step_credit(name: str):
    assert (taught(name).greedy("two steps", 0.0, 1.0) > 0.8).all()
