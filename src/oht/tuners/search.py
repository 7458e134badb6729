"""How a distribution over values learns from the fitness of its samples: Eqn (4), CEM and Eqn (3), as pure functions.

Every rule is a `Search`, so that tuners (and one test) can use any of them in the same way. All is NumPy: these are a
few numbers, once per iteration.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray


class Search(NamedTuple):
    """A distribution over points: draws from it, and what their fitness (higher is better) teaches it.

    A point is an index for `categorical` and a vector in encoded space for the Gaussian rules.
    """

    init: Callable[[], Any]
    draw: Callable[[np.random.Generator, Any, int], Array]
    learn: Callable[[Any, Array, Array], Any]  # (state, points, fitness) -> state
    best: Callable[[Any], Array]  # the mode or the mean


# Fitness

EPS = 1e-8


def tamed(returns: Array) -> Array:
    """Returns of diverged agents (not finite) count as the worst of the others."""
    returns = np.asarray(returns, np.float64)
    finite = np.isfinite(returns)
    return np.where(finite, returns, returns[finite].min()) if finite.any() else np.zeros_like(returns)


def standardised(returns: Array) -> Array:
    """(R - mean R) / (std R + eps): exactly 0 where all are equal."""
    centred = returns - returns.mean()
    return np.where(np.ptp(returns) > 0, centred / (centred.std() + EPS), 0.0)


def ranks(returns: Array) -> Array:
    """Centred ranks in [-1/2, 1/2]; ties share the mean of their ranks."""
    if len(returns) < 2:
        return np.zeros(len(returns))
    below = (returns[:, None] > returns).sum(axis=1)
    equal = (returns[:, None] == returns).sum(axis=1)
    return (below + (equal - 1) / 2) / (len(returns) - 1) - 0.5


Shape = Literal["standard", "ranks", "raw"]
SHAPES: dict[Shape, Callable[[Array], Array]] = {
    "standard": standardised,
    "ranks": ranks,
    "raw": lambda returns: returns,
}


def fitness(shape: Shape, returns: Array) -> Array:
    return SHAPES[shape](tamed(returns))


# Categorical by score function


class Categorical(NamedTuple):
    logits: Array
    first: Array  # Adam's moments and count of steps
    second: Array
    steps: Array
    rate: Array  # learning rate beta


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def mixed(logits: Array, epsilon: float) -> Array:
    """(1 - epsilon) P + epsilon / K: what is sampled, so that no value is ever given up."""
    return (1 - epsilon) * softmax(logits) + epsilon / len(logits)


def score_gradient(logits: Array, indices: Array, fitness: Array) -> Array:
    """1/N sum_j F_j grad_L log P(eta_j): Eqn (4) without beta. grad_L log softmax(L)_i = onehot(i) - softmax(L)."""
    onehot = np.eye(len(logits))[indices]
    return (fitness[:, None] * (onehot - softmax(logits))).mean(axis=0)


BETA, PAPER_STEPS = 0.02, 10_000_000  # of the paper: its learning rate, and the env steps of its runs


def beta_for(beta: float | None, env_steps: int) -> float:
    """The given learning rate of the logits, or the paper's for a run of so many env steps.

    beta = 0.02 sqrt(1e7 / steps): logits that follow nothing but noise wander as far in a short run as the paper's do
    in 1e7 steps, and a difference of one standard deviation between values is found.
    """
    return BETA * (PAPER_STEPS / env_steps) ** 0.5 if beta is None else beta


def adam_ascent(state: Categorical, gradient: Array) -> Categorical:
    """One step of Adam (0.9, 0.999) uphill."""
    steps = state.steps + 1
    first = 0.9 * state.first + 0.1 * gradient
    second = 0.999 * state.second + 0.001 * gradient**2
    step = (first / (1 - 0.9**steps)) / (np.sqrt(second / (1 - 0.999**steps)) + EPS)
    return Categorical(state.logits + state.rate * step, first, second, steps, state.rate)


def categorical(size: int, *, epsilon: float = 0.1, importance: bool = False) -> Search:
    """Eqn (4) with Adam, over `size` values; drawn epsilon-mixed.

    With `importance` each sample weighs P / mixed, which makes the gradient that of the unmixed P.
    """

    def init() -> Categorical:
        return Categorical(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros((), np.int64), np.array(BETA))

    def draw(rng: np.random.Generator, state: Categorical, number: int) -> Array:
        return rng.choice(size, size=number, p=mixed(state.logits, epsilon))

    def learn(state: Categorical, indices: Array, fitness: Array) -> Categorical:
        if importance:
            fitness = fitness * (softmax(state.logits) / mixed(state.logits, epsilon))[indices]
        return adam_ascent(state, score_gradient(state.logits, indices, fitness))

    def best(state: Categorical) -> Array:
        return np.asarray(state.logits.argmax())

    return Search(init, draw, learn, best)


# Gaussian, each dimension by itself


class Gaussian(NamedTuple):
    mu: Array
    sigma: Array


def antithetic(rng: np.random.Generator, number: int, size: int) -> Array:
    """`number` standard normal vectors, each followed by its negative."""
    half = rng.standard_normal(((number + 1) // 2, size))
    return np.stack([half, -half], axis=1).reshape(2 * len(half), size)[:number]


def elite_weights(elites: int, log_weights: bool = False) -> Array:
    """Weights of the elites, the best first: equal, or proportional to log((elites + 1) / rank)."""
    weights = np.log((elites + 1) / np.arange(1, elites + 1)) if log_weights else np.ones(elites)
    return weights / weights.sum()


def cem_update(state: Gaussian, points: Array, fitness: Array, weights: Array) -> Gaussian:
    """mu' = sum_i w_i x_i and sigma'^2 = sum_i w_i (x_i - mu')^2 over the elites x_i, best first.

    A dimension with sigma = 0 is held: it stays 0.
    """
    elites = points[np.argsort(-fitness, kind="stable")[: len(weights)]]
    mu = weights @ elites
    sigma = np.sqrt(weights @ (elites - mu) ** 2)
    return Gaussian(np.where(state.sigma > 0, mu, state.mu), np.where(state.sigma > 0, sigma, 0.0))


def cem(mu: Array, sigma: Array, low: Array, high: Array, *, elite_fraction: float = 0.5) -> Search:
    """The textbook's cross-entropy method on (mu, sigma) with antithetic draws.

    Without a signal sigma shrinks, so that mu drifts by about one initial sigma in all; but with ten draws it shrinks
    on a slope as well, and climbs no further than one to two. If all have equal fitness, nothing changes.
    """

    def learn(state: Gaussian, points: Array, fitness: Array) -> Gaussian:
        if np.ptp(fitness) == 0:
            return state
        return cem_update(state, points, fitness, elite_weights(max(1, round(elite_fraction * len(points)))))

    return _gaussian(mu, sigma, low, high, learn)


Scale = Literal["natural", "unbiased", "paper"]
SCALES: dict[Scale, Callable[[Array, Array], Array]] = {  # (sigma, g) -> step, where g = 1/N sum_j F_j e_j
    "natural": lambda sigma, g: sigma * np.clip(g, -1.0, 1.0),
    "unbiased": lambda sigma, g: g / sigma,
    "paper": lambda sigma, g: g,
}


def es_step(state: Gaussian, points: Array, fitness: Array, scale: Scale = "natural") -> Array:
    """Eqn (3) without beta, from g = 1/N sum_j F_j e_j with e_j = (eta_j - mu) / sigma; 0 where sigma = 0.

    sigma g, at most one sigma ("natural"), does not depend on the units of a dimension. g / sigma ("unbiased")
    estimates the gradient of the expected fitness by mu, and g ("paper") is what is printed, sigma times that: of
    standardised returns their steps, measured in sigmas, grow without bound as sigma shrinks.
    """
    moved = state.sigma > 0
    sigma = np.where(moved, state.sigma, 1.0)
    g = (fitness[:, None] * (points - state.mu) / sigma).mean(axis=0)
    return np.where(moved, SCALES[scale](sigma, g), 0.0)


def ascent(mu: Array, sigma: Array, low: Array, high: Array, *, rate: float = 0.2, scale: Scale = "natural") -> Search:
    """Eqn (3): gradient ascent on mu with a fixed sigma and antithetic draws; mu is kept within the bounds."""

    def learn(state: Gaussian, points: Array, fitness: Array) -> Gaussian:
        moved = state.mu + rate * es_step(state, points, fitness, scale)
        return Gaussian(np.clip(moved, low, high), state.sigma)

    return _gaussian(mu, sigma, low, high, learn)


def _gaussian(
    mu: Array, sigma: Array, low: Array, high: Array, learn: Callable[[Gaussian, Array, Array], Gaussian]
) -> Search:
    def init() -> Gaussian:
        return Gaussian(np.array(mu, np.float64), np.array(sigma, np.float64))

    def draw(rng: np.random.Generator, state: Gaussian, number: int) -> Array:
        noise = antithetic(rng, number, len(state.mu))
        return np.clip(state.mu + state.sigma * noise, low, high)

    return Search(init, draw, learn, lambda state: state.mu)
