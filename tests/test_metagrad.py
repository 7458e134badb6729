"""Meta-gradients: they are the slope of the whole update, and what Eqn (3) estimates."""

import copy
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht.agents import make
from oht.agents.metagrad import MetaAgent, Rate, metagrad
from oht.agents.networks import adam
from oht.errors import UserError
from oht.tuners.search import Gaussian, antithetic, es_step
from oht.types import Batch, Spec

SPEC = Spec(obs=3, action=2)
ROWS = 16
KEY = jax.random.key(0)
RATES = {"actor_lr": Rate(1e-3, 1e-6, 1e-1), "critic_lr": Rate(3e-2, 1e-6, 1e-1)}
LINEAR = {name: rate._replace(log10=False) for name, rate in RATES.items()}


def batch_of(algorithm, seed: int, dtype: Any = np.float32) -> Batch:
    rng = np.random.default_rng(seed)
    rows = (algorithm.batches + algorithm.spare) * ROWS
    draw = lambda *shape: rng.normal(size=(rows, *shape)).astype(dtype)  # noqa: E731
    columns = (draw(3), np.tanh(draw(2)), draw(), np.full(rows, 0.9, dtype), draw(3))
    return Batch(*map(jnp.asarray, columns))


class Meta:
    """A meta-agent after some updates, and J as a function of its learning rates."""

    def __init__(self, name: str, rates, dtype: Any = np.float32, **options):
        self.inner = make(name, SPEC, hidden=(8, 8))
        self.algorithm = metagrad(self.inner, rates, **options)
        self.init, self.update = jax.jit(self.algorithm.init), jax.jit(self.algorithm.update)
        assert self.inner.steps is not None
        self.actor_loss = jax.jit(self.inner.steps.actor_loss)
        self.batch = batch_of(self.algorithm, 9, dtype)
        state = self.init(KEY)
        self.state: MetaAgent = jax.tree.map(lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, state)
        for seed in range(6):
            batch = batch_of(self.algorithm, seed, dtype)
            self.state, _ = self.update(jax.random.key(seed), self.state, batch, self.algorithm.hyper)
        self.state = self.state._replace(moments=adam.init(self.state.points))

    def at(self, state: MetaAgent) -> "Meta":
        """The same in another state."""
        other = copy.copy(self)
        other.state = state
        return other

    def after(self, points) -> MetaAgent:
        return self.update(KEY, self.state._replace(points=points), self.batch, self.algorithm.hyper)[0]

    def objective(self, points):
        """mean Q_meta(x, pi_phi'(x)) on the rows that the agent did not learn from."""
        new, x = self.after(points), self.batch.split(2)[1].obs
        return -self.actor_loss(new.agent.actor, new.judge.critic, x)

    def gradient(self) -> np.ndarray:
        """dJ / d points: the first moment of a fresh Adam is a tenth of the gradient of - J."""
        return -10.0 * np.asarray(self.after(self.state.points).moments.mu)


@cache
def td3(double: bool = False) -> Meta:
    """Most tests share its compiled update; those of float64 call it where that is enabled."""
    return Meta("td3", RATES, np.float64) if double else Meta("td3", RATES, meta_lr=0.0)


@cache
def ddpg(**options) -> Meta:
    return Meta("ddpg", RATES, **options)


TRACED = {"meta_trace": 0.5, "meta_lr": 100.0}


def test_first_steps_have_the_given_sizes():
    """Adam's first step is as long as its learning rate: 1e-4 of the points, 1e-3 of the judge's weights."""
    meta, traced = ddpg(), ddpg(**TRACED)
    first = meta.init(KEY)
    np.testing.assert_allclose(10.0**first.points, [1e-3, 3e-2], rtol=1e-5)
    new, metrics = meta.update(KEY, first, meta.batch, meta.algorithm.hyper)
    assert np.abs(new.points - first.points).max() == pytest.approx(1e-4, rel=0.02)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), new.judge.critic, first.judge.critic)
    np.testing.assert_allclose(jax.tree.leaves(moved), 1e-3, rtol=0.02)
    loss = meta.actor_loss(new.agent.actor, new.judge.critic, meta.batch.split(2)[1].obs)
    assert metrics["meta_q"] == pytest.approx(-float(loss), rel=1e-4)
    other, _ = traced.update(KEY, first, meta.batch, meta.algorithm.hyper)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), new.trace, other.trace)


def test_the_trace_keeps_a_share_of_earlier_slopes():
    with_trace, without = ddpg(**TRACED).at(ddpg().state), ddpg()
    kept, slope = with_trace.after(without.state.points).trace, without.after(without.state.points).trace
    for z, old, d in zip(*map(jax.tree.leaves, (kept, without.state.trace, slope)), strict=True):
        np.testing.assert_allclose(z, 0.5 * old + d, rtol=1e-3, atol=1e-7)


def test_rates_stay_within_their_bounds():
    meta = ddpg(**TRACED)
    learned = meta.algorithm.learned(meta.after(meta.state.points))
    assert all(float(learned[name]) in (pytest.approx(1e-6), pytest.approx(1e-1)) for name in RATES)


@pytest.mark.parametrize(("name", "rates"), [("td3", RATES), ("ddpg", RATES), ("td3", LINEAR)])
def test_the_meta_gradient_is_the_finite_difference_of_the_whole_update(name, rates):
    with jax.enable_x64(True):
        meta = td3(double=True) if (name, rates) == ("td3", RATES) else Meta(name, rates, np.float64)
        exact, objective = meta.gradient(), meta.objective
        for i in range(2):
            size = 1e-4 if rates is RATES else 1e-4 * float(meta.state.points[i])
            step = size * np.eye(2)[i]
            slope = (objective(meta.state.points + step) - objective(meta.state.points - step)) / (2 * size)
            assert abs(slope) > 1e-8  # the critic's rate has one too
            assert exact[i] == pytest.approx(float(slope), rel=1e-4)


def test_eqn_3_estimates_the_meta_gradient_of_a_real_agent():
    """Proposition 1: sign and scale, for each rate by what 2000 updates with it perturbed are worth."""
    with jax.enable_x64(True):
        meta = td3(double=True)
        mu, exact, objectives = np.asarray(meta.state.points), meta.gradient(), jax.jit(jax.vmap(meta.objective))
        for i in range(2):
            sigma = 1e-4 * np.eye(2)[i]  # small: the claim is about the limit
            points = mu + sigma * antithetic(np.random.default_rng(0), 2000, 2)
            worth = np.asarray(objectives(points))
            estimate = es_step(Gaussian(mu, sigma), points, worth - worth.mean(), "unbiased")
            assert estimate[i] == pytest.approx(exact[i], rel=0.15)


def test_the_agent_inside_learns_as_it_would_alone():
    meta = td3()
    rates = {name: rate.start for name, rate in RATES.items()}
    alone, _ = jax.jit(meta.inner.update)(
        jax.random.split(KEY)[0], meta.state.agent, meta.batch.split(2)[0], {**meta.inner.hyper, **rates}
    )
    new = meta.after(meta.state.points)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(new.agent), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(new.points, meta.state.points)
    assert meta.algorithm.learned(new)["critic_lr"] == pytest.approx(3e-2)


def test_the_judge_learns_from_other_rows_and_another_start():
    meta = td3()
    agent, judge = jax.tree.leaves(meta.state.agent.critic), jax.tree.leaves(meta.state.judge.critic)
    assert all((a != b).any() for a, b in zip(agent, judge, strict=True))
    ours, others = meta.batch.split(2)
    changed = Batch(
        *(jnp.concatenate([a, b]) for a, b in zip(ours._replace(reward=ours.reward + 1), others, strict=True))
    )
    before, after = (meta.update(KEY, meta.state, rows, meta.algorithm.hyper)[0] for rows in (meta.batch, changed))
    jax.tree.map(np.testing.assert_array_equal, before.judge, after.judge)
    assert any(jax.tree.leaves(jax.tree.map(lambda a, b: (a != b).any(), before.agent.critic, after.agent.critic)))


def test_the_judges_target_follows_its_critic():
    meta = td3()
    before, after, tau = meta.state.judge, meta.after(meta.state.points).judge, meta.algorithm.hyper["tau"]
    for old, new, critic in zip(*map(jax.tree.leaves, (before.target, after.target, after.critic)), strict=True):
        np.testing.assert_allclose(new, (1 - tau) * old + tau * critic, rtol=1e-5, atol=1e-7)
        assert (new != old).any()


def test_dead_units_do_not_spoil_the_slope():
    """A relu that never fires has second moments of exactly 0, where the root in Adam has no derivative."""
    meta = td3()
    dead = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf - 100.0 if "bias" in jax.tree_util.keystr(path) and leaf.shape[-1] == 8 else leaf,
        (meta.state.agent.actor, meta.state.agent.critic),
    )
    fresh = jax.tree.map(adam.init, dead, is_leaf=lambda x: isinstance(x, dict))
    agent = meta.state.agent._replace(actor=dead[0], critic=dead[1], actor_moments=fresh[0], critic_moments=fresh[1])
    assert np.isfinite(meta.at(meta.state._replace(agent=agent)).gradient()).all()


def test_a_run_tells_its_learning_rates(tmp_path):
    settings = {"steps": 120, "start_steps": 30, "batch_size": 8, "hidden": (8, 8), "replay_size": 200}
    settings |= {"max_episode": 20, "tensorboard": False, "eval_every": 1000, "eval_episodes": 2, "normalise": True}
    run = oht.train(
        FollowObservation, method="meta-gradient", algo="ddpg", meta_lr=1e-2, out=tmp_path / "r", **settings
    )
    rates = [row["champion/critic_lr"] for row in run.schedule]
    assert len(set(rates)) == len(rates)
    assert 1e-4 < rates[0] < 1e-2
    last = run.schedule[-1]
    assert last["critic_lr/mu"] == pytest.approx(np.log10(last["champion/critic_lr"]))
    assert last["sample/0/actor_lr"] == last["champion/actor_lr"]
    learned = run.setup.algorithm.learned(jax.tree.map(lambda leaf: leaf[0], run.progress.agents))
    assert float(learned["critic_lr"]) == pytest.approx(rates[-1], rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algo": "sac"}, "td3 or ddpg"),
        ({"tune": {"gamma": oht.Float(0.9, 0.01)}}, "td3 or ddpg"),
        ({"tune": {"actor_lr": oht.Choice(1e-3, 1e-4)}}, "LogFloat"),
        ({"actor_lr": 1e-4}, "log:0.0001"),
        ({"tune": {"actor_lr+critic_lr": oht.LogFloat(1e-3)}}, "name each in a space of its own"),
    ],
)
def test_what_it_cannot_do(settings, words, tmp_path):
    with pytest.raises(UserError, match=words):
        oht.train(FollowObservation, method="meta-gradient", out=tmp_path / "run", **settings)
