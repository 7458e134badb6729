"""Proposition 1 of the paper on a problem whose meta-gradient is known: draws docs/images/proposition-1.png.

python benchmarks/proposition1.py [FILE]

The agent psi takes one gradient step on a quadratic loss with learning rate 10^x. The meta-objective is a return,
another quadratic, of the new psi. How it changes with x is known in closed form; Eqn (3) is compared with that.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from oht.tuners.search import Gaussian, Scale, antithetic, es_step

PSI = np.array([1.0, -2.0])  # the agent before the step
CURVATURE = np.array([[3.0, 1.0], [1.0, 2.0]])  # of the loss 1/2 psi' A psi
WORTH = np.array([[2.0, 0.0], [0.0, 1.0]])  # of the return -1/2 (psi - best)' B (psi - best)
BEST = np.array([0.2, 0.1])
MU = -1.0  # log10 of the learning rate: alpha = 0.1
GRADIENT = CURVATURE @ PSI


def updated(x: np.ndarray) -> np.ndarray:
    """psi' = psi + f(psi, x), f = -10^x grad loss(psi)."""
    return PSI - 10.0 ** np.asarray(x)[..., None] * GRADIENT


def meta_objective(x: np.ndarray) -> np.ndarray:
    """L(psi') = -1/2 (psi' - best)' B (psi' - best)."""
    off = updated(x) - BEST
    return -0.5 * np.einsum("...i,ij,...j", off, WORTH, off)


def meta_gradient(x: float) -> float:
    """dL/dx = grad L(psi')' df/dx, with df/dx = -ln(10) 10^x grad loss(psi): the right side of Proposition 1."""
    off = updated(np.asarray(x)) - BEST
    return float((-WORTH @ off) @ (-np.log(10) * 10.0**x * GRADIENT))


def expected_estimate(sigma: float, scale: Scale, nodes: int = 60) -> float:
    """The expectation of Eqn (3)'s sum over x ~ N(mu, sigma^2), by Gauss-Hermite quadrature."""
    z, weight = np.polynomial.hermite_e.hermegauss(nodes)
    points = MU + sigma * z
    fitness = nodes * weight / weight.sum() * meta_objective(points)  # so that the mean is the expectation
    return _estimate(sigma, points, fitness, scale)


def sampled_estimate(rng: np.random.Generator, sigma: float, scale: Scale, number: int) -> float:
    """What a population of `number` agents estimates from its returns."""
    points = MU + sigma * antithetic(rng, number, 1)[:, 0]
    return _estimate(sigma, points, meta_objective(points), scale)


def _estimate(sigma: float, points: np.ndarray, fitness: np.ndarray, scale: Scale) -> float:
    state = Gaussian(np.array([MU]), np.array([sigma]))
    return float(es_step(state, points[:, None], fitness, scale)[0])


def draw(path: Path) -> None:
    exact = meta_gradient(MU)
    sigmas = np.logspace(-3, np.log10(0.2), 40)
    rng = np.random.default_rng(0)
    styles: tuple[tuple[Scale, str, str], ...] = (
        ("unbiased", r"$\frac{1}{\sigma^2 N}$ (unbiased)", "tab:blue"),
        ("paper", r"$\frac{1}{\sigma N}$ (as printed)", "tab:orange"),
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for scale, label, colour in styles:
        expected = np.array([expected_estimate(sigma, scale) for sigma in sigmas])
        some = sigmas[::3]
        draws = np.array([[sampled_estimate(rng, sigma, scale, 10) for _ in range(200)] for sigma in some])
        left.plot(sigmas, expected, color=colour, label=label)
        left.errorbar(some, draws.mean(axis=1), draws.std(axis=1), fmt="o", ms=3, lw=1, color=colour)
        right.plot(sigmas, np.abs(expected - exact) / abs(exact), color=colour, label=label)
    left.axhline(exact, color="black", ls="--", lw=1, label="meta-gradient")
    left.set(xscale="log", xlabel=r"$\sigma$ (in $\log_{10}$ of the learning rate)", ylabel="estimate")
    left.set_title("Lines: expectation. Dots: populations of 10, mean and deviation", fontsize=10)
    right.set(xscale="log", yscale="log", xlabel=r"$\sigma$ (in $\log_{10}$ of the learning rate)")
    right.set_ylabel("relative error of the expectation")
    right.set_title("How far it is from the meta-gradient", fontsize=10)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.set_ylim(top=4.5)  # room for the legend
    left.legend(loc="upper left")
    right.legend(loc="center left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/proposition-1.png"))
