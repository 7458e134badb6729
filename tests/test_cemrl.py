"""CEM-RL: sepCEM by hand, one critic for all who learn, and plain CEM on a probe."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oht
from environments import FollowObservation, TwoStepCredit
from oht import population
from oht import replay as ring
from oht.agents import make
from oht.agents.td3 import ActorCritic
from oht.errors import UserError
from oht.learners.shared_critic import Evolved, SharedCritic, drawn, evolving
from oht.tuners import cemrl
from oht.types import Clock, Outcome, Proposal, Spec

KEY = jax.random.key(0)
TD3 = make("td3", Spec(1, 1), hidden=(8, 8))
TINY: dict[str, Any] = {
    "method": "cem-rl",
    "start_steps": 20,
    "eval_every": 100_000,
    "eval_episodes": 2,
    "batch_size": 8,
    "hidden": (8, 8),
    "max_episode": 20,
    "replay_size": 2000,
    "tensorboard": False,
}


def agents_of(number: int, variance: float = 1e-3) -> tuple[Any, Any]:
    algorithm = evolving(TD3, variance)
    return algorithm, population.create(KEY, algorithm, number + 1)


def filled(agents: Any, *values: float) -> Any:
    """Every weight of an actor has the same value."""
    column = jnp.array(values)
    actor = jax.tree.map(lambda x: jnp.ones_like(x) * column.reshape(-1, *(1,) * (x.ndim - 1)), agents.agent.actor)
    return agents._replace(agent=agents.agent._replace(actor=actor))


def proposal_of(number: int, iteration: int = 0, **settings: Any) -> Proposal:
    tuner = cemrl.make(cemrl.CemRl(population=number, gradient=number // 2, **settings), {}, TD3.hyper)
    state, rng = tuner.init(np.random.default_rng(0)), np.random.default_rng(0)
    for i in range(iteration):
        state, _ = tuner.ask(rng, state, Clock(0, 1, i))
    return tuner.ask(rng, state, Clock(0, 1, iteration))[1]


def test_sepcem_by_hand():
    """Old mean 1; elites 4, then 2 with weights log(3/1) and log(3/2), normalised; the rest does not count."""
    algorithm, agents = agents_of(4)
    agents = filled(agents, 1.0, 2.0, -7.0, 4.0, 9.0)
    proposal = proposal_of(4, damp=0.01, damp_limit=0.001)
    outcome = Outcome(np.array([5.0, 1.0, 8.0, -np.inf]), np.zeros(5, bool))
    after = SharedCritic(algorithm, 8).evolve(agents, proposal, outcome)
    w1, w2, damp = 0.7304, 0.2696, 0.95 * 0.01 + 0.05 * 0.001  # it decays before it is used
    for weights, variance in zip(*map(jax.tree.leaves, (after.agent.actor, after.variance)), strict=True):
        np.testing.assert_allclose(weights[0], w1 * 4 + w2 * 2, rtol=1e-4)
        np.testing.assert_allclose(variance, (w1 * 9 + w2 * 1) / 2 + damp, rtol=1e-4)
    sigma = jax.vmap(algorithm.learned)(after)["sigma"]
    np.testing.assert_allclose(sigma, np.sqrt((w1 * 9 + w2) / 2 + damp), rtol=1e-4)


NUMBERS = json.loads((Path(__file__).parent / "data" / "cemrl.json").read_text())


@pytest.mark.parametrize("case", NUMBERS["cases"], ids=lambda case: f"population {case['population']}")
def test_six_generations_of_the_original(case):
    """The numbers are those of CEM-RL's own code; record_cemrl.py says how they were made."""
    number, start = case["population"], NUMBERS["settings"]
    limits = {"damp": start["damp"], "damp_limit": start["damp_limit"]}
    learner = SharedCritic(evolving(TD3, start["sigma_init"]), 8)
    variance = jnp.full((number + 1, 3), start["sigma_init"])
    for iteration, generation in enumerate(case["generations"]):
        weights = np.array([generation["mean"], *generation["drawn"]], np.float32)
        offsets = np.array(generation["drawn"]) - generation["mean"]
        mirrored = np.allclose(offsets[: number // 2], -offsets[number // 2 : 2 * (number // 2)])
        assert mirrored == (number % 2 == 0)
        agents = Evolved(ActorCritic({"weights": jnp.asarray(weights)}, *5 * [None]), {"weights": variance})
        proposal = proposal_of(number, iteration, **limits)
        assert proposal.hyper["damp"][0] == pytest.approx(generation["damp"], rel=1e-9)
        outcome = Outcome(np.array(generation["scores"]), np.zeros(number + 1, bool))
        after = learner.evolve(agents, proposal, outcome)
        np.testing.assert_allclose(after.agent.actor["weights"][0], generation["new_mean"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.variance["weights"][0], generation["new_variance"], rtol=1e-5)
        variance = after.variance["weights"]


def test_damp_decays_to_its_limit():
    for iteration, damp in ((0, 0.95 * 0.01 + 0.05 * 0.001), (1, 0.95**2 * 0.01 + (1 - 0.95**2) * 0.001), (200, 0.001)):
        got = proposal_of(4, iteration, damp=0.01, damp_limit=0.001).hyper["damp"]
        np.testing.assert_allclose(got, damp, rtol=1e-3)


def test_who_learns_and_who_plays():
    proposal = proposal_of(4)
    np.testing.assert_array_equal(proposal.actors, [1, 2, 3, 4])
    np.testing.assert_array_equal(proposal.ratios, [0, 1, 1, 0, 0])
    np.testing.assert_array_equal(proposal.sources, np.arange(5))
    assert not proposal.explore


@pytest.mark.parametrize("number", [4, 5])
def test_actors_are_drawn_and_start_anew(number):
    """In mirrored pairs, if there are as many of them as of their mirror images."""
    _, agents = agents_of(number, variance=0.04)
    moved = agents.agent._replace(actor_moments=jax.tree.map(lambda leaf: leaf + 1, agents.agent.actor_moments))
    new = drawn(KEY, agents._replace(agent=moved)).agent
    for old, x in zip(jax.tree.leaves(agents.agent.actor), jax.tree.leaves(new.actor), strict=True):
        np.testing.assert_array_equal(x[0], old[0])
        for one in range(1, number + 1):
            for other in range(1, one):
                mirrored = number == 4 and one - other == 2
                assert np.allclose(x[one] + x[other], 2 * old[0], atol=1e-6) == mirrored
                assert (x[one] != x[other]).all()
    noise = np.concatenate([np.ravel(x[1:] - x[0]) for x in jax.tree.leaves(new.actor)])
    assert noise.std() == pytest.approx(0.2, rel=0.1)
    jax.tree.map(np.testing.assert_array_equal, new.actor, new.target_actor)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(new.actor_moments))
    for leaf, old in zip(jax.tree.leaves(new.critic), jax.tree.leaves(agents.agent.critic), strict=True):
        np.testing.assert_array_equal(leaf, np.broadcast_to(old[1], leaf.shape))


def test_those_who_learn_share_one_critic():
    algorithm, agents = agents_of(4)
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    replay = ring.extend(ring.empty(100, 1, 1), draw(41, 1), draw(40, 1), draw(40), True)
    hyper = {name: np.full(5, value, np.float64) for name, value in algorithm.hyper.items()}
    reports: list[tuple[int, int]] = []
    learned, metrics = SharedCritic(algorithm, 8).learn(
        KEY, agents, replay, hyper, np.array([0, 6, 6, 0, 0]), lambda *report: reports.append(report)
    )
    for part in ("critic", "target_critic", "critic_moments"):
        for leaf in jax.tree.leaves(getattr(learned.agent, part)):
            np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[1], leaf.shape))
    assert learned.agent.critic_moments.count.tolist() == 5 * [6]  # three in each of two turns; all have it
    assert learned.agent.actor_moments.count.tolist() == [0, 6, 6, 0, 0]
    assert reports == [(6, 12), (12, 12)]
    assert set(metrics) == {"critic_loss", "q", "actor_loss"}
    before = drawn(jax.random.split(KEY)[0], agents)
    for old, new in zip(jax.tree.leaves(before.agent.actor), jax.tree.leaves(learned.agent.actor), strict=True):
        moved = (np.asarray(old) != np.asarray(new)).any(axis=tuple(range(1, old.ndim)))
        assert moved.tolist() == [False, True, True, False, False]
    again = SharedCritic(algorithm, 8).learn(
        KEY, learned, replay, hyper, np.array([0, 6, 6, 0, 0]), lambda *report: None
    )[0]
    assert again.agent.critic_moments.count.tolist() == 5 * [12]  # it goes on in the next generation


def test_a_critic_that_diverged_is_not_given_to_those_who_did_not_learn():
    algorithm, agents = agents_of(2)
    ones = partial(np.ones, dtype=np.float32)
    replay = ring.extend(ring.empty(100, 1, 1), ones((41, 1)), ones((40, 1)), ones(40), True)
    hyper = {name: np.full(3, value, np.float64) for name, value in {**algorithm.hyper, "critic_lr": np.inf}.items()}
    learned = SharedCritic(algorithm, 8).learn(KEY, agents, replay, hyper, np.array([0, 4, 0]), lambda *_: None)[0]
    finite = [np.isfinite(leaf).reshape(3, -1).all(axis=1) for leaf in jax.tree.leaves(learned.agent.critic)]
    assert np.all(finite, axis=0).tolist() == [True, False, True]


def test_the_shared_targets_follow_their_networks():
    """With tau = 1 a target is its network; with 0.5 one step is half of the way."""
    algorithm, agents = agents_of(2)
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    replay = ring.extend(ring.empty(100, 1, 1), draw(41, 1), draw(40, 1), draw(40), True)
    before = drawn(jax.random.split(KEY)[0], agents).agent
    for tau in (1.0, 0.5):
        hyper = {name: np.full(3, value, np.float64) for name, value in {**algorithm.hyper, "tau": tau}.items()}
        after = SharedCritic(algorithm, 8).learn(KEY, agents, replay, hyper, np.array([0, 1, 0]), lambda *_: None)[0]
        for part in ("critic", "actor"):
            old, new = getattr(before, f"target_{part}"), getattr(after.agent, f"target_{part}")
            for o, n, network in zip(*map(jax.tree.leaves, (old, new, getattr(after.agent, part))), strict=True):
                np.testing.assert_allclose(n[1], (1 - tau) * o[1] + tau * network[1], rtol=1e-4, atol=1e-6)
                assert (n[1] != o[1]).any()


def test_plain_cem_solves_a_probe(tmp_path):
    settings: dict[str, Any] = {**TINY, "gradient": 0, "variance": 0.05, "steps": 620}
    run = oht.train(TwoStepCredit, out=tmp_path / "run", **settings)
    assert run.progress.updates == 0
    assert np.mean(run.evaluate(5)) > 0.97  # the best is 1, the action 0 gets 0.75
    assert run.schedule[-1]["weights/sigma"] < run.schedule[0]["weights/sigma"]


def test_actor_steps_are_the_env_steps_of_the_generation_before(tmp_path):
    settings: dict[str, Any] = {**TINY, "population": 4, "gradient": 2, "steps": 100}
    run = oht.train(FollowObservation, out=tmp_path / "run", **settings)
    assert [row["env_steps"] for row in run.metrics] == [60, 100]
    assert [row["updates"] for row in run.metrics] == [2 * 20, 2 * 20 + 2 * 40]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algo": "sac"}, "td3 or ddpg"),
        ({"normalise": True}, "normalise"),
        ({"gradient": 11}, "only 10 actors"),
        ({"tune": {"n_step": oht.Choice(1, 2)}}, "tunes no hyper-parameters"),
    ],
)
def test_what_it_cannot_do(settings, words, tmp_path):
    with pytest.raises(UserError, match=words):
        oht.train(FollowObservation, method="cem-rl", out=tmp_path / "run", **settings)
