"""The algorithms: numbers by hand, and actions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from oht import agents
from oht.agents.ddpg import ddpg
from oht.agents.networks import (
    MLP,
    Actor,
    Critic,
    GaussianActor,
    adam,
    critics,
    descend,
    fan_in_uniform,
    network,
    polyak,
)
from oht.agents.normalise import Moments, merge, normalised, standardise
from oht.agents.sac import sac, squash
from oht.agents.td3 import td3
from oht.errors import UserError
from oht.types import Algorithm, Batch, Spec

SPEC = Spec(obs=2, action=1)
HIDDEN = (32, 32)
VARIANTS = {
    "td3": lambda: td3(SPEC, hidden=HIDDEN),
    "ddpg": lambda: ddpg(SPEC, hidden=HIDDEN),
    "sac": lambda: sac(SPEC, hidden=HIDDEN),
    "sac with fixed alpha": lambda: sac(SPEC, hidden=HIDDEN, alpha=0.2),
    "ddpg, normalised": lambda: normalised(ddpg(SPEC, hidden=HIDDEN), SPEC),
}
every_variant = pytest.mark.parametrize("name", VARIANTS)


def hyper_of(algorithm: Algorithm, agents: int, **values) -> dict[str, Any]:
    """The defaults and the given values, each a number for all agents or one for each."""
    known = {name: value for name, value in values.items() if name in algorithm.hyper}
    return {name: np.full(agents, value, np.float32) for name, value in (algorithm.hyper | known).items()}


# Algorithms by name, and what they have


def checked(made: Any, **options: object) -> Algorithm:
    """With an algorithm of a user's own that gives this, or raises it."""

    def own(spec: Spec, *, warmth: float = 0.5) -> Algorithm:
        assert spec == Spec(1, 1)  # a task of one number
        if isinstance(made, Exception):
            raise made
        return made

    assert agents.options_of(own) == {"warmth": 0.5}
    return agents.checked("mine:own", own, options)


def test_algorithms_are_found_by_name():
    assert agents.factory("sac") is sac
    assert agents.factory("oht.agents.sac:sac") is sac
    assert agents.make("td3", SPEC, policy_delay=3).batches == 3
    with pytest.raises(UserError, match="unknown algorithm 'td4'"):
        agents.factory("td4")
    with pytest.raises(UserError, match=r"oht.agents:ALGORITHMS is no algorithm, but of type dict"):
        agents.factory("oht.agents:ALGORITHMS")


def test_options_are_the_arguments_by_name():
    assert set(agents.options_of(ddpg)) == {"hidden", "activation", "layer_norm"}
    assert agents.options_of(td3)["policy_delay"] == 2
    unsigned: Any = dict
    assert agents.options_of(unsigned) == {}


def test_hyper_of_each_algorithm():
    """A setting that an algorithm does not read is not among its hyper-parameters."""
    common = {"actor_lr", "critic_lr", "gamma", "n_step", "recency", "tau"}
    assert set(VARIANTS["ddpg"]().hyper) == common | {"exploration_noise"}
    assert set(VARIANTS["td3"]().hyper) == common | {"exploration_noise", "target_noise", "noise_clip"}
    assert set(VARIANTS["sac"]().hyper) == common | {"alpha_lr", "target_entropy"}
    assert set(VARIANTS["sac with fixed alpha"]().hyper) == common | {"alpha"}
    assert sac(Spec(3, 6)).hyper["target_entropy"] == -6.0


def test_what_is_no_algorithm_is_refused():
    whole = Algorithm(lambda key: 0, lambda *args: args[2], lambda *args: (0, {}), {"n_step": 1, "gamma": 0.99})
    assert checked(whole, warmth=1.0) is whole
    for made, words in (
        (3, "mine:own returns something of type int; an algorithm is a function"),
        (whole._replace(hyper={"gamma": 0.99}), "mine:own lacks n_step, which"),
        (whole._replace(hyper={}), "mine:own lacks n_step and gamma, which"),
        *(
            (whole._replace(hyper={"n_step": 1, "gamma": bad}), f"the default of gamma in the .* mine:own is {words}")
            for bad, words in ((float("nan"), "nan"), (np.float32("nan"), "nan"), (None, "None, but must be a number"))
        ),
        (ValueError("too cold"), "mine:own cannot be made: ValueError: too cold; an algorithm is a function"),
        (UserError("warmth is a temperature."), "^warmth is a temperature.$"),
    ):
        with pytest.raises(UserError, match=words):
            checked(made)
    with pytest.raises(UserError, match="cannot be made: TypeError"):
        checked(whole, cold=1)
    with pytest.raises(TypeError):  # a mistake of ours is not one of the user's
        agents.checked("td3", td3, {"cold": 1})


# Numbers by hand


def test_log_probability_of_a_squashed_gaussian():
    action, log_prob = squash(jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))
    assert action == 0.0
    np.testing.assert_allclose(log_prob, -0.5 * np.log(2 * np.pi), rtol=1e-6)

    mean, log_std, noise = np.array([0.3, -0.2]), np.array([-0.5, 0.1]), np.array([1.2, -0.7])
    u = mean + np.exp(log_std) * noise
    normal = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    expected = (normal - np.log(1 - np.tanh(u) ** 2)).sum()
    action, log_prob = squash(*map(jnp.asarray, (mean, log_std, noise)))
    np.testing.assert_allclose(action, np.tanh(u), rtol=1e-5)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)


def test_log_probability_stays_finite_far_out():
    """At u = 100 the density of the action grows like e^(2u) / 4; tanh is 1 to all digits there."""
    far, grad = jax.value_and_grad(lambda mean: squash(mean, jnp.zeros(1), jnp.zeros(1))[1])(jnp.array([100.0]))
    np.testing.assert_allclose(far, -0.5 * np.log(2 * np.pi) + 200.0 - np.log(4.0), rtol=1e-6)
    np.testing.assert_allclose(grad, [2.0], rtol=1e-6)


def test_log_std_is_kept_within_bounds():
    actor = GaussianActor(3, HIDDEN)
    obs = jax.random.normal(jax.random.key(0), (200, 4))
    params = jax.tree.map(lambda leaf: 30.0 * leaf, actor.init(jax.random.key(1), obs))
    _, log_std = network(actor).apply(params, obs)
    assert log_std.min() == -20.0
    assert log_std.max() == 2.0


def test_moments_of_observations():
    nothing = Moments(jnp.zeros(()), jnp.zeros(2), jnp.ones(2))
    np.testing.assert_allclose(standardise(nothing, jnp.array([3.0, -4.0])), [3.0, -4.0], rtol=1e-6)

    first = merge(nothing, jnp.array([[1.0, 10.0], [3.0, 10.0]]))
    np.testing.assert_allclose(first.mean, [2.0, 10.0])
    np.testing.assert_allclose(first.variance, [1.0, 0.0])
    np.testing.assert_allclose(standardise(first, jnp.array([3.0, 10.0])), [1.0, 0.0], rtol=1e-6)  # one never changes

    # 1, 3, 5, 7, 9 have mean 5 and variance 8; 10, 10, 10, 10, 15 have mean 11 and variance 4
    both = merge(first, jnp.array([[5.0, 10.0], [7.0, 10.0], [9.0, 15.0]]))
    assert both.rows == 5
    np.testing.assert_allclose(both.mean, [5.0, 11.0], rtol=1e-6)
    np.testing.assert_allclose(both.variance, [8.0, 4.0], rtol=1e-6)
    np.testing.assert_allclose(standardise(both, jnp.array([5.0 + 8**0.5, 15.0])), [1.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(standardise(both, jnp.array([1e3, -1e3])), [10.0, -10.0])


def test_moments_of_many_batches_are_those_of_all_rows():
    rows, joined = 3.0 + 0.1 * np.random.default_rng(0).standard_normal((5000, 2)), jax.jit(merge)
    moments = Moments(jnp.zeros(()), jnp.zeros(2), jnp.ones(2))
    for batch in np.split(rows, 50):
        moments = joined(moments, np.asarray(batch, np.float32))
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-3)


def test_a_normalised_agent_sees_standardised_observations():
    """Around an algorithm that acts by its observation and whose new state is the batch that it was given."""
    mirror = Algorithm(lambda key: (), lambda key, state, obs, hyper, explore: obs, lambda k, s, b, h: (b, {}), {})
    wrapped, key = normalised(mirror, SPEC), jax.random.key(0)
    rows = jnp.array([[1.0, 10.0], [3.0, 30.0]])
    batch = Batch(rows, jnp.zeros((2, 1)), jnp.ones(2), jnp.ones(2), rows + 1.0)
    np.testing.assert_allclose(wrapped.act(key, wrapped.init(key), rows[0], {}, False), rows[0], rtol=1e-6)  # at first
    state, _ = wrapped.update(key, wrapped.init(key), batch, {})
    np.testing.assert_allclose(state.agent.obs, [[-1.0, -1.0], [1.0, 1.0]], rtol=1e-6)
    np.testing.assert_allclose(state.agent.next_obs, [[0.0, -0.9], [2.0, 1.1]], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(state.agent.reward, batch.reward)
    np.testing.assert_allclose(wrapped.act(key, state, jnp.array([2.0, 40.0]), {}, False), [0.0, 2.0], rtol=1e-6)


# Networks and their steps


def layers_of(params: Any) -> dict[str, Any]:
    return jax.tree.map(np.asarray, params["params"]["MLP_0"])


def by_numpy(layers: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Hidden layers of tanh(norm(W x + b)), then a linear one."""
    for i in range(2):
        x = x @ layers[f"Linear_{i}"]["kernel"] + layers[f"Linear_{i}"]["bias"]
        if norm := layers.get(f"LayerNorm_{i}"):
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
            x = norm["scale"] * x + norm["bias"]
        x = np.tanh(x)
    return x @ layers["Linear_2"]["kernel"] + layers["Linear_2"]["bias"]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_networks_compute_what_numpy_computes(layer_norm: bool):
    body, key = ((6, 5), "tanh", layer_norm), jax.random.key(0)
    obs, action = np.random.default_rng(0).uniform(-2, 2, (2, 7, 3)).astype(np.float32)
    action = action[:, :2]

    @jax.jit
    def computed(key):
        actor, gaussian, critic = network(Actor(2, *body)), network(GaussianActor(2, *body)), critics(2, *body)
        pi, normal, q = actor.init(key, obs[0]), gaussian.init(key, obs[0]), critic.init(key, obs[0], action[0])
        outputs = actor.apply(pi, obs), gaussian.apply(normal, obs), critic.apply(q, obs, action)
        return outputs, tuple(params["params"]["MLP_0"] for params in (pi, normal, q))

    (actions, (mean, log_std), values), layers = jax.tree.map(np.asarray, computed(key))
    pi, normal, q = layers
    assert all(("LayerNorm_1" in names) == layer_norm for names in layers)
    np.testing.assert_allclose(actions, np.tanh(by_numpy(pi, obs)), atol=1e-5)
    np.testing.assert_allclose(np.concatenate([mean, log_std], axis=1), by_numpy(normal, obs), atol=1e-5)
    both = np.concatenate([obs, action], axis=1)
    for i in range(2):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], q)
        np.testing.assert_allclose(values[i], by_numpy(one, both)[:, 0], atol=1e-5)
    assert (q["Linear_0"]["kernel"][0] != q["Linear_0"]["kernel"][1]).all()  # the twins are no copies


def test_networks_have_no_layer_norm_unless_asked_for():
    obs, action = jnp.zeros(3), jnp.zeros(2)
    of_obs, of_both = (MLP(2, (4,)), Actor(2, (4,)), GaussianActor(2, (4,))), (Critic((4,)), critics(2, (4,)))
    for made, inputs in [*((each, [obs]) for each in of_obs), *((each, [obs, action]) for each in of_both)]:
        shapes = jax.eval_shape(made.init, jax.random.key(0), *inputs)["params"]
        assert set(shapes.get("MLP_0", shapes)) == {"Linear_0", "Linear_1"}


def test_first_weights_are_uniform_within_one_by_the_root_of_the_inputs():
    weights = np.asarray(fan_in_uniform(jax.random.key(0), (16, 400)))
    assert np.abs(weights).max() <= 0.25
    np.testing.assert_allclose(
        np.quantile(weights, [0.0, 0.25, 0.5, 0.75, 1.0]), np.linspace(-0.25, 0.25, 5), atol=0.02
    )
    params = jax.jit(Actor(300, (400,)).init)(jax.random.key(0), jnp.zeros(16))
    for name, bound in (("Linear_0", 0.25), ("Linear_1", 0.05)):
        for part in layers_of(params)[name].values():
            assert 0.9 * bound < np.abs(part).max() <= bound


def test_steps_of_adam_by_numpy():
    p, g, rate = np.array([1.0, -2.0, 3.0]), [np.array([0.5, -4.0, 0.0]), np.array([1.0, 0.25, 0.0])], 0.1
    params: Any = jnp.asarray(p, jnp.float32)
    moments: Any = adam.init(jnp.zeros(3))
    m = v = np.zeros(3)
    for t in (1, 2):
        params, moments = descend(params, jnp.asarray(g[t - 1], jnp.float32), moments, rate)
        m, v = 0.9 * m + 0.1 * g[t - 1], 0.999 * v + 0.001 * g[t - 1] ** 2
        p = p - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(params, p, rtol=1e-5)
    np.testing.assert_allclose(moments.nu, v, rtol=1e-5, atol=1e-30)


def test_targets_follow_by_tau():
    np.testing.assert_allclose(polyak(jnp.array([4.0, 8.0]), jnp.array([8.0, -8.0]), 0.25), [5.0, 4.0])


# Agents without hidden layers, whose weights are known: the critics are linear and the actor is tanh of a constant

SMALL = {
    "td3": td3(SPEC, hidden=(), policy_delay=1),
    "ddpg": ddpg(SPEC, hidden=()),
    "sac": sac(SPEC, hidden=()),
    "sac with fixed alpha": sac(SPEC, hidden=(), alpha=0.2),
}


def weighed(params: Any, bias: Any, action: float = 0.0) -> Any:
    """A layer that ignores the observation: `bias`, and for critics + `action` times the action."""
    kernel, old = (params["params"]["MLP_0"]["Linear_0"][name] for name in ("kernel", "bias"))
    kernel = jnp.zeros(kernel.shape).at[..., -1, :].set(action)
    return {"params": {"MLP_0": {"Linear_0": {"kernel": kernel, "bias": jnp.reshape(jnp.float32(bias), old.shape)}}}}


def rows_of(number: int, reward: Any = 0.0, discount: Any = 1.0) -> Batch:
    obs, action, column = jnp.ones((number, SPEC.obs)), jnp.zeros((number, SPEC.action)), jnp.zeros(number)
    return Batch(obs, action, column + jnp.asarray(reward), column + jnp.asarray(discount), obs)


@pytest.mark.parametrize("name", ["td3", "sac with fixed alpha"])
def test_losses_of_known_networks(name: str):
    """Q is 1 and 3, Q' is 7 and 6, so y is 0 + 0.5 * 6 and, after a terminal, 2; the twins are off by 2, 0, 1 and 1."""
    algorithm = SMALL[name]
    state = algorithm.init(jax.random.key(0))
    state = state._replace(critic=weighed(state.critic, [1, 3]), target_critic=weighed(state.critic, [7, 6]))
    hyper = {**algorithm.hyper, "critic_lr": 0.0, "alpha": 0.0}
    _, metrics = jax.jit(algorithm.update)(jax.random.key(1), state, rows_of(2, [0, 2], [0.5, 0]), hyper)
    squares = (2**2 + 0**2 + 1**2 + 1**2) / 2
    assert metrics["critic_loss"] == pytest.approx(squares if name == "td3" else squares / 2)
    assert metrics["q"] == pytest.approx(2.0)  # of both
    assert metrics["actor_loss"] == pytest.approx(-1.0)  # the first of TD3, the lower one of SAC


def test_target_actions_are_smoothed_and_stay_in_their_range():
    """Q' is the action and Q is 10, so that the loss of a single row tells which action was taken."""
    algorithm, b = SMALL["td3"], np.arctanh([0.0, 0.9, -0.9])
    state = algorithm.init(jax.random.key(0))
    state = state._replace(critic=weighed(state.critic, [10, 10]), target_critic=weighed(state.critic, [0, 0], 1.0))
    hyper = {**algorithm.hyper, "target_noise": 0.5, "noise_clip": 0.6}

    def taken(key, b):
        given = state._replace(target_actor=weighed(state.actor, b))
        return 10.0 - jnp.sqrt(algorithm.update(key, given, rows_of(1), hyper)[1]["critic_loss"] / 2)

    each = jax.vmap(jax.vmap(taken, (0, None)), (None, 0))
    middle, upper, lower = np.asarray(jax.jit(each)(jax.random.split(jax.random.key(1), 2000), b))
    normal = scipy.stats.norm(scale=0.5)
    for low, action, high, actions in ((-0.6, 0.0, 0.6, middle), (0.3, 0.9, 1.0, upper), (-1.0, -0.9, -0.3, lower)):
        assert (actions.min(), actions.max()) == pytest.approx((low, high), abs=1e-4)
        for x in np.linspace(low + 0.05, high - 0.05, 5):
            assert (actions < x).mean() == pytest.approx(normal.cdf(x - action), abs=0.05)


def test_exploration_adds_noise_and_stays_in_the_range(monkeypatch: pytest.MonkeyPatch):
    algorithm, hyper = SMALL["td3"], {"exploration_noise": 0.3}
    state = algorithm.init(jax.random.key(0))
    state = state._replace(actor=weighed(state.actor, np.arctanh(0.8)))
    act = jax.jit(algorithm.act, static_argnums=4)
    obs = np.ones((4000, SPEC.obs), np.float32)
    np.testing.assert_allclose(act(jax.random.key(1), state, obs, hyper, False), 0.8, rtol=1e-5)
    noise = np.asarray(act(jax.random.key(1), state, obs, hyper, True)) - 0.8
    assert noise.max() == pytest.approx(0.2)
    for x in np.linspace(-0.6, 0.15, 6):
        assert (noise < x).mean() == pytest.approx(scipy.stats.norm(scale=0.3).cdf(x), abs=0.04)
    below = state._replace(actor=weighed(state.actor, -np.arctanh(0.8)))
    assert np.min(act(jax.random.key(1), below, obs, hyper, True)) == -1.0
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: jnp.ones(shape))
    np.testing.assert_allclose(algorithm.act(jax.random.key(1), below, obs[0], hyper, True), [-0.8 + 0.3], rtol=1e-5)


def test_sac_acts_by_the_mean_and_explores_by_the_deviation():
    algorithm = SMALL["sac"]
    state = algorithm.init(jax.random.key(0))
    assert np.exp(state.log_alpha) == 1.0  # the first temperature
    state = state._replace(actor=weighed(state.actor, [0.5, -1.0]))
    act = jax.jit(algorithm.act, static_argnums=4)
    obs = np.ones((4000, SPEC.obs), np.float32)
    np.testing.assert_allclose(act(jax.random.key(1), state, obs, {}, False), np.tanh(0.5), rtol=1e-5)
    before = np.arctanh(act(jax.random.key(1), state, obs, {}, True))  # before the tanh
    for x in (-0.2, 0.3, 0.5, 0.8, 1.2):
        assert (before < x).mean() == pytest.approx(scipy.stats.norm(0.5, np.exp(-1.0)).cdf(x), abs=0.04)
    narrow = state._replace(actor=weighed(state.actor, [0.0, -5.0]))
    _, metrics = jax.jit(algorithm.update)(jax.random.key(1), narrow, rows_of(4000), algorithm.hyper)
    assert metrics["entropy"] == pytest.approx(0.5 * np.log(2 * np.pi * np.e) - 5.0, abs=0.1)
    assert metrics["alpha"] == 1.0


# Actions


@every_variant
def test_actions(name: str):
    algorithm = VARIANTS[name]()
    hyper = {knob: jnp.array(values[0]) for knob, values in hyper_of(algorithm, 1, exploration_noise=5.0).items()}
    state = jax.jit(algorithm.init)(jax.random.key(0))
    act = jax.jit(algorithm.act, static_argnums=4)
    obs = 5.0 * jax.random.normal(jax.random.key(1), (100, SPEC.obs))
    keys = jax.random.split(jax.random.key(2), 3)

    explored = act(keys[0], state, obs, hyper, True)
    assert explored.shape == (100, SPEC.action)
    single = jax.eval_shape(lambda key: algorithm.act(key, state, obs[0], hyper, True), keys[0])
    assert single.shape == (SPEC.action,)
    assert np.abs(explored).max() <= 1.0
    assert (explored == act(keys[0], state, obs, hyper, True)).all()
    assert (explored != act(keys[1], state, obs, hyper, True)).any()

    greedy = act(keys[0], state, obs, hyper, False)
    assert (greedy == act(keys[1], state, obs, hyper, False)).all()
    assert (greedy != explored).any()
