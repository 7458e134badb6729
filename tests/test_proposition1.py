"""Proposition 1: as sigma goes to 0, Eqn (3)'s sum goes to the meta-gradient with 1/sigma^2, and to 0 as printed."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

path = Path(__file__).parents[1] / "benchmarks" / "proposition1.py"
spec = importlib.util.spec_from_file_location("proposition1", path)
assert spec is not None
assert spec.loader is not None
problem = importlib.util.module_from_spec(spec)
spec.loader.exec_module(problem)

EXACT = problem.meta_gradient(problem.MU)
SIGMAS = (0.1, 0.03, 0.01, 0.003)


def test_the_closed_form_is_what_differentiating_through_the_update_gives():
    def loss(psi):
        return 0.5 * psi @ jnp.array(problem.CURVATURE) @ psi

    def objective(x):
        psi = jnp.array(problem.PSI)
        off = psi - 10.0**x * jax.grad(loss)(psi) - problem.BEST
        return -0.5 * off @ jnp.array(problem.WORTH) @ off

    assert jax.grad(objective)(problem.MU) == pytest.approx(EXACT, rel=1e-5)
    assert abs(EXACT) > 0.1  # a problem without a slope would show nothing


def test_the_quadrature_is_the_closed_form_of_the_smoothed_objective():
    """L = c0 + c1 a + c2 a^2 with a = 10^x log-normal, so d E[L] / d mu = s-corrected terms, s = sigma ln 10."""
    gradient, off = problem.GRADIENT, problem.PSI - problem.BEST
    c1, c2 = off @ problem.WORTH @ gradient, -0.5 * gradient @ problem.WORTH @ gradient
    ln10, alpha = np.log(10), 10.0**problem.MU
    for sigma in SIGMAS:
        s2 = (sigma * ln10) ** 2
        smoothed = c1 * ln10 * alpha * np.exp(s2 / 2) + 2 * c2 * ln10 * alpha**2 * np.exp(2 * s2)
        assert problem.expected_estimate(sigma, "unbiased") == pytest.approx(smoothed, rel=1e-8)


def test_unbiased_goes_to_the_meta_gradient_with_sigma_squared():
    errors = [abs(problem.expected_estimate(sigma, "unbiased") - EXACT) for sigma in SIGMAS]
    assert errors[-1] < 1e-3 * abs(EXACT)
    order = np.polyfit(np.log(SIGMAS), np.log(errors), 1)[0]
    assert order == pytest.approx(2.0, abs=0.1)


def test_as_printed_goes_to_zero_with_sigma():
    estimates = [problem.expected_estimate(sigma, "paper") for sigma in SIGMAS]
    assert abs(estimates[-1]) < 0.01 * abs(EXACT)
    for sigma, estimate in zip(SIGMAS[1:], estimates[1:], strict=True):
        assert estimate / sigma == pytest.approx(EXACT, rel=0.02)


@pytest.mark.parametrize(("scale", "factor"), [("unbiased", 1.0), ("paper", 0.01)])
def test_many_agents_estimate_the_expectation(scale, factor):
    estimate = problem.sampled_estimate(np.random.default_rng(0), 0.01, scale, 20_000)
    assert estimate == pytest.approx(factor * EXACT, rel=0.03)


def test_the_figure_is_drawn(tmp_path):
    problem.draw(tmp_path / "images" / "figure.png")
    assert (tmp_path / "images" / "figure.png").read_bytes().startswith(b"\x89PNG")
