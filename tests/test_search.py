import jax
import numpy as np
import pytest

from oht.tuners import search
from oht.tuners.search import Categorical, Gaussian


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers)


def gaussian(mu: float, sigma: float) -> Gaussian:
    return Gaussian(vector(mu), vector(sigma))


# Fitness


def test_standardised_by_hand():
    np.testing.assert_allclose(search.fitness("standard", vector(1, 2, 3)), [-1.224745, 0, 1.224745], rtol=1e-6)
    np.testing.assert_array_equal(search.fitness("standard", vector(0.1, 0.1, 0.1)), 0.0)


def test_ranks_by_hand():
    np.testing.assert_allclose(search.fitness("ranks", vector(10, -5, 1e9, 11, 10)), [-0.125, -0.5, 0.5, 0.25, -0.125])
    np.testing.assert_allclose(search.fitness("ranks", vector(7)), [0.0])


def test_raw():
    np.testing.assert_array_equal(search.fitness("raw", vector(3, -4)), [3, -4])


def test_two_returns_have_ranks_and_differences_of_rounding_count_less():
    np.testing.assert_array_equal(search.fitness("ranks", vector(5, 1)), [0.5, -0.5])
    np.testing.assert_allclose(search.fitness("standard", vector(0, 1)), [-1, 1], rtol=1e-6)
    np.testing.assert_allclose(search.fitness("standard", vector(0, 2e-8)), [-0.5, 0.5])  # 1e-8 / (1e-8 + eps)


@pytest.mark.parametrize("shape", search.SHAPES)
def test_diverged_agents_count_as_the_worst_of_the_others(shape):
    got = search.fitness(shape, vector(5, np.nan, 2, -np.inf, np.inf))
    np.testing.assert_array_equal(got, search.fitness(shape, vector(5, 2, 2, 2, 2)))
    np.testing.assert_array_equal(search.fitness(shape, vector(np.nan, -np.inf)), 0.0)


# Eqn (4)


def test_softmax_of_large_logits():
    np.testing.assert_allclose(search.softmax(np.log([2.0, 1.0, 1.0])), [0.5, 0.25, 0.25])
    np.testing.assert_array_equal(search.softmax(vector(1000, 0, 1000)), [0.5, 0, 0.5])
    np.testing.assert_array_equal(search.softmax(vector(-1000, -3000)), [1, 0])


def test_beta_by_hand():
    assert search.beta_for(None, 10_000_000) == 0.02
    assert search.beta_for(None, 100_000) == pytest.approx(0.2)
    assert search.beta_for(0.3, 100_000) == 0.3
    assert search.beta_for(0.0, 100_000) == 0.0


def test_score_gradient_by_hand():
    # P = (1/2, 1/4, 1/4); samples 0 and 2 with fitness 1 and -1:
    # 1/2 [(1, 0, 0) - P] - 1/2 [(0, 0, 1) - P] = (1/2, 0, -1/2)
    logits = np.log([2.0, 1.0, 1.0])
    np.testing.assert_allclose(search.score_gradient(logits, np.array([0, 2]), vector(1, -1)), [0.5, 0, -0.5])
    # one sample, fitness 2: 2 [(0, 1, 0) - P]
    np.testing.assert_allclose(search.score_gradient(logits, np.array([1]), vector(2)), [-1, 1.5, -0.5])


def test_score_gradient_is_the_gradient_of_the_expected_fitness():
    logits, fitness = vector(0.3, -0.2, 0.5), vector(1.0, 5.0, -2.0)
    expected = jax.grad(lambda x: jax.nn.softmax(x) @ fitness)(logits)
    probability = search.softmax(logits)
    exact = sum(p * search.score_gradient(logits, np.array([i]), fitness[[i]]) for i, p in enumerate(probability))
    np.testing.assert_allclose(exact, expected, rtol=1e-5)


def test_adam_by_hand():
    # The first step is the rate in the direction of the sign. Then with gradients 1 and 3: m = 0.1 * 0.9 + 0.3 = 0.39,
    # m / (1 - 0.81) = 2.052632; v = 0.000999 + 0.009 = 0.009999, v / (1 - 0.998001) = 5.002001; 2.052632 / 2.236516
    zero = Categorical(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros((), np.int64), np.array(0.02))
    once = search.adam_ascent(zero, vector(1, -4))
    np.testing.assert_allclose(once.logits, [0.02, -0.02], rtol=1e-6)
    twice = search.adam_ascent(once, vector(3, -4))
    np.testing.assert_allclose(twice.logits, [0.02 + 0.02 * 0.917781, -0.04], rtol=1e-5)
    assert twice.steps == 2


def test_adam_takes_small_steps_where_the_gradient_is_almost_nothing():
    zero = Categorical(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros((), np.int64), np.array(0.02))
    np.testing.assert_allclose(search.adam_ascent(zero, vector(1e-8)).logits, 0.01)  # 1e-8 / (1e-8 + eps)


def test_a_categorical_begins_without_a_preference():
    state = search.categorical(3).init()
    for part in (state.logits, state.first, state.second):
        np.testing.assert_array_equal(part, [0, 0, 0])
    assert (state.steps, state.rate) == (0, 0.02)
    np.testing.assert_array_equal(search.categorical(3).best(state._replace(logits=vector(1, 4, 2))), 1)


def test_a_tenth_is_drawn_uniformly_and_nothing_is_weighed_unless_it_is_said():
    rule, state = search.categorical(2), search.categorical(2).init()._replace(logits=vector(100, 0))
    assert (rule.draw(np.random.default_rng(0), state, 20_000) == 1).mean() == pytest.approx(0.05, abs=0.005)
    # P = (1, 0): 1/2 [(0, 1) - P] of the sample 1, which with importance would count nothing
    np.testing.assert_allclose(rule.learn(state, np.array([0, 1]), vector(1, 1)).first, [-0.05, 0.05])


def test_categorical_step_and_importance_by_hand():
    # P = (2/3, 1/3), mixed with epsilon = 0.4: 0.6 P + 0.2 = (0.6, 0.4); weights 10/9 and 5/6
    state = Categorical(np.log([2.0, 1.0]), np.zeros(2), np.zeros(2), np.zeros((), np.int64), np.array(0.02))
    np.testing.assert_allclose(search.mixed(state.logits, 0.4), [0.6, 0.4])
    samples, fitness = np.array([0, 1]), vector(1, 1)
    plain = search.categorical(2, epsilon=0.4).learn(state, samples, fitness)
    np.testing.assert_allclose(plain.first, 0.1 * vector(-1 / 6, 1 / 6))
    weighted = search.categorical(2, epsilon=0.4, importance=True).learn(state, samples, fitness)
    np.testing.assert_allclose(weighted.first, 0.1 * (10 / 9 * vector(1, -1) + 5 / 6 * vector(-2, 2)) / 6)


def test_draws_are_epsilon_mixed():
    rule = search.categorical(2, epsilon=0.1)
    state = rule.init()._replace(logits=vector(100, 0))
    draws = rule.draw(np.random.default_rng(0), state, 20_000)
    assert (draws == 1).mean() == pytest.approx(0.05, abs=0.005)


def test_zero_rate_is_uniform_for_ever():
    rule = search.categorical(3)
    state = rule.learn(rule.init()._replace(rate=np.array(0.0)), np.array([0, 1, 2]), vector(1, 0, -1))
    np.testing.assert_array_equal(state.logits, 0.0)


# CEM


def test_elite_weights_by_hand():
    np.testing.assert_allclose(search.elite_weights(4), 0.25)
    np.testing.assert_allclose(
        search.elite_weights(5, log_weights=True), [0.4295, 0.2634, 0.1662, 0.0972, 0.0437], atol=5e-5
    )


def test_cem_by_hand():
    # elites of (0, 1, 2, 3, 4, 5) by fitness: 4, 3, 1; mean 8/3; variance (16/9 + 1/9 + 25/9) / 3 = 14/9
    points, fitness = np.arange(6.0)[:, None], vector(0, 5, 1, 6, 7, -1)
    rule = search.cem(vector(0), vector(1), vector(-9), vector(9))
    mu, sigma = rule.learn(rule.init(), points, fitness)
    np.testing.assert_allclose([mu[0], sigma[0] ** 2], [8 / 3, 14 / 9])


def test_cem_with_log_weights_by_hand():
    points, fitness = vector(2, 1, -5, -5)[:, None], vector(9, 8, 1, 0)
    state, weights = gaussian(0.0, 1.0), search.elite_weights(2, log_weights=True)
    # log 3 : log 3/2 = 1.098612 : 0.405465 = 0.730423 : 0.269577
    new = search.cem_update(state, points, fitness, weights)
    np.testing.assert_allclose([new.mu[0], new.sigma[0] ** 2], [1.730423, 0.730423 * 0.269577], rtol=1e-5)


def test_cem_holds_a_dimension_without_deviation_whatever_the_points():
    state = Gaussian(vector(1, 1), vector(0, 0.5))
    new = search.cem_update(state, np.array([[3.0, 3.0], [5.0, 5.0]]), vector(1, 2), search.elite_weights(2))
    np.testing.assert_array_equal(new.mu, [1, 4])
    np.testing.assert_array_equal(new.sigma, [0, 1])


def test_cem_learns_from_any_difference():
    rule = search.cem(vector(0), vector(1), vector(-9), vector(9))
    for difference in (1e-3, 1.0, 2.0):
        state = rule.learn(rule.init(), vector(3, 4)[:, None], vector(0, difference))
        np.testing.assert_array_equal(state.mu, 4)


def test_cem_learns_nothing_where_all_are_equal():
    rule = search.cem(vector(0), vector(1), vector(-9), vector(9))
    state = rule.init()
    assert rule.learn(state, rule.draw(np.random.default_rng(0), state, 10), np.zeros(10)) == state


def end_of_cem(seed: int, fitness) -> float:
    """How far mu gets in 60 iterations, in units of the first sigma."""
    rng, rule = np.random.default_rng(seed), search.cem(vector(0), vector(1), vector(-99), vector(99))
    state = rule.init()
    for _ in range(60):
        points = rule.draw(rng, state, 10)
        state = rule.learn(state, points, fitness(rng, points))
    return state.mu[0]


def test_cem_drifts_without_a_signal_and_climbs_with_one():
    """By about one sigma, and by one to two."""
    drift = np.std([end_of_cem(seed, lambda rng, points: rng.standard_normal(len(points))) for seed in range(60)])
    climb = np.median([end_of_cem(seed, lambda rng, points: points[:, 0]) for seed in range(60)])
    assert drift == pytest.approx(1.0, abs=0.3)
    assert climb == pytest.approx(1.5, abs=0.5)


@pytest.mark.parametrize(("share", "elites"), [(0.5, 3), (0.34, 2), (0.01, 1), (1.0, 6)])
def test_the_share_of_elites(share, elites):
    points, fitness = np.arange(6.0)[:, None], np.arange(6.0)
    rule = search.cem(vector(0), vector(1), vector(-9), vector(9), elite_fraction=share)
    np.testing.assert_allclose(rule.learn(rule.init(), points, fitness).mu, np.arange(6.0)[6 - elites :].mean())


# Eqn (3)


# With F = (1/2, 1/8) at e = (2, -2): g = (1/2 * 2 - 1/8 * 2) / 2 = 3/8, sigma = 1/2.


@pytest.mark.parametrize(("scale", "step"), [("unbiased", 0.75), ("paper", 0.375), ("natural", 0.1875)])
def test_es_step_by_hand(scale, step):
    got = search.es_step(gaussian(2, 0.5), vector(3, 1)[:, None], vector(0.5, 0.125), scale)
    np.testing.assert_allclose(got, step)


@pytest.mark.parametrize(("fitness", "step"), [((4.0, 1.0), 0.5), ((-4.0, -1.0), -0.5)])
def test_the_natural_step_is_at_most_one_sigma(fitness, step):
    # g = (4 * 2 - 1 * 2) / 2 = 3
    np.testing.assert_allclose(search.es_step(gaussian(2, 0.5), vector(3, 1)[:, None], vector(*fitness)), step)


def test_the_natural_step_does_not_depend_on_units():
    points, fitness = vector(3, 1)[:, None], vector(0.5, 0.125)
    one = search.es_step(gaussian(2, 0.5), points, fitness)
    np.testing.assert_allclose(search.es_step(gaussian(2000, 500), 1000 * points, fitness), 1000 * one)


def test_ascent_moves_by_beta_and_stays_within_bounds():
    points, fitness = vector(3, 1)[:, None], vector(0.5, 0.125)
    free = search.ascent(vector(2), vector(0.5), vector(0), vector(9), rate=0.4)
    state = free.learn(free.init(), points, fitness)
    np.testing.assert_allclose([state.mu[0], state.sigma[0]], [2.075, 0.5])
    bound = search.ascent(vector(2), vector(0.5), vector(0), vector(2.05), rate=0.4)
    assert bound.learn(bound.init(), points, fitness).mu == 2.05


def test_ascent_moves_by_a_fifth_of_the_step_unless_it_is_said():
    rule = search.ascent(vector(2), vector(0.5), vector(0), vector(9))
    np.testing.assert_allclose(rule.learn(rule.init(), vector(3, 1)[:, None], vector(0.5, 0.125)).mu, 2 + 0.2 * 0.1875)


# All Gaussian rules


def test_draws_are_antithetic_and_within_bounds():
    noise = search.antithetic(np.random.default_rng(0), 7, 3)
    assert noise.shape == (7, 3)
    np.testing.assert_array_equal(noise[0:6:2], -noise[1:6:2])
    rule = search.cem(vector(0, 0), vector(5, 5), vector(-1, -2), vector(1, 2))
    points = rule.draw(np.random.default_rng(0), rule.init(), 100)
    np.testing.assert_array_equal(points.min(axis=0), [-1, -2])
    np.testing.assert_array_equal(points.max(axis=0), [1, 2])


def test_draws_have_the_mean_and_the_deviation():
    rule = search.cem(vector(3, -2), vector(0.5, 2), vector(-99, -99), vector(99, 99))
    points = rule.draw(np.random.default_rng(0), rule.init(), 4000)
    np.testing.assert_allclose(points.mean(axis=0), [3, -2], atol=1e-9)  # antithetic
    np.testing.assert_allclose(points.std(axis=0), [0.5, 2], rtol=0.05)
    np.testing.assert_array_equal(rule.best(rule.init()), [3, -2])


@pytest.mark.parametrize("make", [search.cem, search.ascent])
def test_sigma_zero_holds_a_dimension(make):
    rule = make(vector(1, 1), vector(0, 0.5), vector(-9, -9), vector(9, 9))
    state = rule.init()
    rng = np.random.default_rng(0)
    for _ in range(5):
        points = rule.draw(rng, state, 10)
        np.testing.assert_array_equal(points[:, 0], 1.0)
        state = rule.learn(state, points, points.sum(axis=1))
    assert state.mu[0] == 1.0
    assert state.sigma[0] == 0.0
    assert state.mu[1] > 1.1


# Every rule finds the best value, from afar and through noise

WIDE = (vector(-9), vector(9))
BEST = 2.0


def bandit(indices: np.ndarray) -> np.ndarray:
    return vector(0.0, 0.5, 1.0)[indices]


def quadratic(points: np.ndarray) -> np.ndarray:
    return -((points[:, 0] - BEST) ** 2)


START = (vector(-1), vector(0.5))
RULES = {
    "score function": (search.categorical(3), bandit, 300),
    "score function, importance": (search.categorical(3, importance=True), bandit, 300),
    "cem": (search.cem(vector(-1), vector(3), *WIDE), quadratic, 30),
    "es": (search.ascent(*START, *WIDE, rate=0.2), quadratic, 200),
    "es, unbiased": (search.ascent(*START, *WIDE, rate=0.05, scale="unbiased"), quadratic, 200),
    "es, paper": (search.ascent(*START, *WIDE, rate=0.1, scale="paper"), quadratic, 200),
}


@pytest.mark.parametrize("shape", ["standard", "ranks"])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_finds_the_best_value(name, shape):
    rule, objective, iterations = RULES[name]
    rng = np.random.default_rng(0)
    state = rule.init()
    for _ in range(iterations):
        points = rule.draw(rng, state, 40)
        noisy = objective(points) + 0.3 * rng.standard_normal(40)
        state = rule.learn(state, points, search.fitness(shape, noisy))
    assert np.squeeze(rule.best(state)) == pytest.approx(BEST, abs=0.3)
    if isinstance(state, Categorical):
        assert search.softmax(state.logits)[2] > 0.9


@pytest.mark.parametrize("name", RULES)
def test_learning_leaves_the_given_state_alone(name):
    rule, objective, _ = RULES[name]
    state, same = rule.init(), rule.init()
    points = rule.draw(np.random.default_rng(0), state, 10)
    after = rule.learn(state, points, objective(points))
    jax.tree.map(np.testing.assert_array_equal, state, same)
    assert jax.tree.structure(after) == jax.tree.structure(state)
