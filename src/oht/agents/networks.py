"""Actors and critics, and the Adam step whose learning rate is an argument."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from oht.types import Array, Key

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nn.relu,
    "tanh": nn.tanh,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "silu": nn.silu,
}


def fan_in_uniform(key: Key, shape: Sequence[int], dtype=jnp.float32) -> Array:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the usual start of actor-critic networks."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


class Linear(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        fan_in = x.shape[-1]
        kernel = self.param("kernel", fan_in_uniform, (fan_in, self.features))
        bias = self.param("bias", lambda key: fan_in_uniform(key, (fan_in, self.features))[0])
        return x @ kernel + bias


class MLP(nn.Module):
    """Hidden layers of act(norm(W x + b)), where norm is layer normalisation or nothing, then a linear layer."""

    features: int
    hidden: Sequence[int]
    activation: str = "relu"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for size in self.hidden:
            x = Linear(size)(x)
            x = ACTIVATIONS[self.activation](nn.LayerNorm()(x) if self.layer_norm else x)
        return Linear(self.features)(x)


class Actor(nn.Module):
    """Deterministic: tanh of a perceptron."""

    actions: int
    hidden: Sequence[int]
    activation: str = "relu"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        return jnp.tanh(MLP(self.actions, self.hidden, self.activation, self.layer_norm)(obs))


class GaussianActor(nn.Module):
    """Mean and log standard deviation of a Gaussian that is squashed by tanh later."""

    actions: int
    hidden: Sequence[int]
    activation: str = "relu"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> tuple[Array, Array]:
        outputs = MLP(2 * self.actions, self.hidden, self.activation, self.layer_norm)(obs)
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        return mean, jnp.clip(log_std, -20.0, 2.0)


class Critic(nn.Module):
    """Q(x, a): a perceptron of observation and action."""

    hidden: Sequence[int]
    activation: str = "relu"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        inputs = jnp.concatenate([obs, action], axis=-1)
        return MLP(1, self.hidden, self.activation, self.layer_norm)(inputs).squeeze(-1)


class Network(NamedTuple):
    """What an algorithm needs of a flax module."""

    init: Callable[..., Any]  # (key, inputs) -> params
    apply: Callable[..., Any]  # (params, inputs) -> outputs


def network(module: nn.Module) -> Network:
    return Network(module.init, module.apply)


def critics(number: int, hidden: Sequence[int], activation: str = "relu", layer_norm: bool = False) -> Network:
    """`number` critics, each with its own weights, on the same input; the output has a leading axis for them."""
    ensemble = nn.vmap(Critic, variable_axes={"params": 0}, split_rngs={"params": True}, axis_size=number)
    module = ensemble(hidden, activation, layer_norm)

    def each(*inputs: Array) -> list[Array]:
        """A copy of the input for each critic: XLA multiplies these faster than one input by several matrices."""
        return [jnp.broadcast_to(array, (number, *array.shape)) for array in inputs]

    return Network(
        init=lambda key, *inputs: module.init(key, *each(*inputs)),
        apply=lambda params, *inputs: module.apply(params, *each(*inputs)),
    )


adam = optax.scale_by_adam()
TINY = 1e-37  # of a second moment: far too small to be seen beside Adam's eps, and its root has a derivative


def descend(params, grads, moments, learning_rate):
    """One Adam step of a traced size, so that it can be vmapped, perturbed and differentiated."""
    moments = moments._replace(nu=jax.tree.map(lambda nu: jnp.maximum(nu, TINY), moments.nu))
    direction, moments = adam.update(grads, moments)
    return jax.tree.map(lambda p, d: p - learning_rate * d, params, direction), moments


def polyak(target, online, tau):
    """target <- (1 - tau) target + tau online."""
    return jax.tree.map(lambda t, o: (1.0 - tau) * t + tau * o, target, online)
