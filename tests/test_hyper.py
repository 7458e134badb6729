"""One declaration of each hyper-parameter and option: the algorithms, help and checks agree with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht import agents, config, hyper
from oht.agents.networks import ACTIVATIONS
from oht.errors import UserError
from oht.hyper import HYPER_PARAMETERS, OPTIONS
from oht.types import Batch, Spec

SPEC = Spec(obs=5, action=3)
VARIANTS = {
    "td3": lambda: agents.make("td3", SPEC),
    "ddpg": lambda: agents.make("ddpg", SPEC),
    "sac": lambda: agents.make("sac", SPEC),
    "sac with fixed alpha": lambda: agents.make("sac", SPEC, alpha=0.2),
    "uniform": lambda: agents.make("uniform", SPEC),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_algorithms_take_their_defaults_from_the_declaration(variant):
    for name, value in VARIANTS[variant]().hyper.items():
        assert value == (-3.0 if name == "target_entropy" else HYPER_PARAMETERS[name].default)


def test_the_declaration_says_which_algorithms_have_what():
    has: dict[str, set[str]] = {}
    for variant, make in VARIANTS.items():
        algo = variant.split()[0]
        for name in [*make().hyper, *(n for n in agents.options_of(agents.factory(algo)) if n in OPTIONS)]:
            has.setdefault(name, set()).add(algo)
    assert set(has) == {*HYPER_PARAMETERS, *OPTIONS}
    for name, algorithms in has.items():
        assert algorithms == set(hyper.owners(name) or agents.ALGORITHMS), name


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_options_take_their_defaults_from_the_declaration(algo):
    options = agents.options_of(agents.factory(algo))
    declared = {name: option.default for name, option in OPTIONS.items() if algo in option.algorithms}
    assert {name: options[name] for name in declared} == declared


@pytest.mark.parametrize(("name", "declared"), HYPER_PARAMETERS.items())
def test_defaults_and_usual_bounds_lie_within_the_hard_bounds(name, declared):
    assert declared.help
    for value in (declared.default, *(declared.usual or ())):
        if value is not None:
            assert declared.low <= value <= declared.high, name
            assert not declared.whole or float(value).is_integer()


def test_hyper_parameters_of_users():
    assert hyper.find("effort").usual is None
    assert hyper.find("own_lr").usual == HYPER_PARAMETERS["actor_lr"].usual
    assert not hyper.find("own_lr").whole


# Networks


def outputs(algo: str, **options) -> tuple[np.ndarray, np.ndarray, int]:
    """Of the same keys and inputs: the action, the critic's values after an update, the number of weights."""
    algorithm = agents.make(algo, SPEC, hidden=(8, 8), **options)
    state = algorithm.init(jax.random.key(0))
    action = algorithm.act(jax.random.key(1), state, jnp.linspace(-2.0, 2.0, SPEC.obs), algorithm.hyper, False)
    critic = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.critic)])
    return np.asarray(action), critic, sum(leaf.size for leaf in jax.tree.leaves(state.actor))


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_activations_change_the_actor(algo):
    actions = {name: outputs(algo, activation=name)[0] for name in ACTIVATIONS}
    np.testing.assert_array_equal(actions["relu"], outputs(algo)[0])
    for name, action in actions.items():
        assert all(np.abs(action - actions[other]).max() > 1e-6 for other in actions if other != name)


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_layer_norm_adds_scales_and_offsets_to_actor_and_critic(algo):
    plain, normed = outputs(algo), outputs(algo, layer_norm=True)
    np.testing.assert_array_equal(plain[0], outputs(algo, layer_norm=False)[0])
    assert np.abs(plain[0] - normed[0]).max() > 1e-6
    critics = 1 if algo == "ddpg" else 2
    assert normed[2] - plain[2] == 2 * 2 * 8
    assert len(normed[1]) - len(plain[1]) == critics * 2 * 2 * 8


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
@pytest.mark.parametrize("options", [{"activation": "tanh"}, {"layer_norm": True}])
def test_options_change_the_critic(algo, options):
    """From the same weights, its loss is another."""
    losses = []
    for given in ({}, options):
        algorithm = agents.make(algo, SPEC, hidden=(8, 8), **given)
        rows = 4 * algorithm.batches
        obs = jax.random.normal(jax.random.key(2), (rows, SPEC.obs))
        batch = Batch(obs, jnp.ones((rows, SPEC.action)), jnp.ones(rows), jnp.zeros(rows), obs)
        state = jax.jit(algorithm.init)(jax.random.key(0))
        _, metrics = jax.jit(algorithm.update)(jax.random.key(3), state, batch, algorithm.hyper)
        losses.append(float(metrics["q"]))
    assert abs(losses[0] - losses[1]) > 1e-6


def test_layer_norm_by_hand():
    """A hidden layer normalises to mean 0 and variance 1: positive scaling of the input does not change the output."""
    algorithm = agents.make("td3", SPEC, hidden=(8,), layer_norm=True)
    state = algorithm.init(jax.random.key(0))
    state = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "Linear_0" in str(path) and "bias" in str(path) else leaf, state
    )
    obs = jnp.linspace(-2.0, 2.0, SPEC.obs)
    one, ten = (algorithm.act(jax.random.key(1), state, k * obs, algorithm.hyper, False) for k in (1.0, 10.0))
    np.testing.assert_allclose(one, ten, atol=1e-4)


def test_options_reach_the_algorithm_of_a_run():
    resolved = config.resolve({"task": "Pendulum-v1", "activation": "elu", "layer_norm": "yes", "hidden": "8,8"})
    assert resolved.options["activation"] == "elu"
    assert resolved.options["layer_norm"] is True
    with pytest.raises(UserError, match="did you mean 'gelu'"):
        config.resolve({"task": "Pendulum-v1", "activation": "gleu"})
