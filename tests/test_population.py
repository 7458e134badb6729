"""Many agents learn as each would alone, in one compiled call."""

from collections import Counter
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht import devices, population
from oht import replay as ring
from oht.agents import make
from oht.learners.own_replays import OwnReplays
from oht.population import Actors, Learner
from oht.types import NEW, Algorithm, Spec

SPEC = Spec(3, 2)


@cache
def of(name: str) -> Algorithm:
    """One for all tests, so that they share what is compiled."""
    return make(name, SPEC, hidden=(8, 8))


@pytest.fixture(scope="module")
def replay():
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    ring_ = ring.empty(200, 3, 2)
    for steps in (40, 7, 60):
        ring_ = ring.extend(ring_, draw(steps + 1, 3), draw(steps, 2), draw(steps), steps == 7)
    return ring_


def hyper_of(algorithm, number, **changed) -> dict[str, np.ndarray]:
    values = {name: np.full(number, value, np.float32) for name, value in algorithm.hyper.items()}
    return values | {name: np.array(value, np.float32) for name, value in changed.items()}


def learn(learner: Learner, agents, replay, hyper, *updates: int):
    return learner.learn(jax.random.key(1), agents, replay, hyper, np.array(updates), lambda done, of: None)


# An algorithm that can be followed by hand


class Counted(NamedTuple):
    calls: Any
    weights: Any  # (3,)


def counting(batches: int = 1, spare: int = 0) -> Algorithm:
    """Counts its updates, and tells what it is given."""

    def init(key: Any) -> Counted:
        return Counted(jnp.zeros((), jnp.int32), jax.random.normal(key, (3,)))

    def update(key: Any, state: Counted, batch: Any, hyper: Any):
        told = {"rate": hyper["rate"], "rows": jnp.float32(len(batch.reward))}
        told |= {"discount": batch.discount.min(), "reward": batch.reward.max()}
        return state._replace(calls=state.calls + 1), told

    return Algorithm(
        init=init,
        act=lambda key, state, obs, hyper, explore: obs[:2] + state.weights[:2],
        update=update,
        hyper={"n_step": 1, "gamma": 0.5, "rate": 1.0},
        batches=batches,
        spare=spare,
        learned=lambda state: {"rate": state.weights.sum()},
    )


@pytest.fixture(scope="module")
def long_episode():
    return ring.extend(ring.empty(70, 3, 2), np.ones((61, 3)), np.zeros((60, 2)), np.zeros(60), False)


@pytest.mark.parametrize(
    ("separate", "expected"), [(True, [(10, 18), (14, 18), (18, 18)]), (False, [(12, 18), (18, 18)])]
)
def test_metrics_are_means_over_all_gradient_steps(separate, expected, long_episode, monkeypatch):
    """Of minibatches with 16 rows, two for each update and one to spare; discounts are 0.5^n."""
    monkeypatch.setattr(devices, "separate", lambda: separate)
    algorithm, reports = counting(batches=2, spare=1), []
    agents = population.create(jax.random.key(0), algorithm, 4)
    hyper = hyper_of(algorithm, 4, rate=[1, 2, 3, 4], n_step=[1, 2, 3, 3])
    after, metrics = Learner(algorithm, 16).learn(
        jax.random.key(1), agents, long_episode, hyper, np.array([10, 0, 4, 4]), lambda *report: reports.append(report)
    )
    assert after.calls.tolist() == [5, 0, 2, 2]
    assert reports == expected
    means = {"rate": (10 * 1 + 4 * 3 + 4 * 4) / 18, "rows": 48, "discount": (10 * 0.5 + 8 * 0.125) / 18, "reward": 0}
    assert metrics == pytest.approx(means)
    assert Learner(algorithm, 16).metric_names(agents, long_episode, hyper) == list(metrics)
    nobody, nothing = learn(Learner(algorithm, 16), agents, long_episode, hyper, 0, 0, 0, 0)
    assert nobody is agents
    assert nothing == {}


@pytest.mark.parametrize("separate", [True, False])
def test_learning_is_traced_once_though_its_metrics_were_asked_for(separate, long_episode, monkeypatch):
    monkeypatch.setattr(devices, "separate", lambda: separate)
    algorithm, traced = counting(), []
    algorithm = algorithm._replace(update=lambda *given, f=algorithm.update: traced.append(1) or f(*given))
    agents, learner = population.create(jax.random.key(0), algorithm, 3), Learner(algorithm, 16)
    hyper = hyper_of(algorithm, 3, n_step=[1, 2, 3])
    learner.metric_names(agents, long_episode, hyper)
    after, _ = learn(learner, agents, long_episode, hyper, 2, 2, 2)
    assert after.calls.tolist() == [2, 2, 2]
    assert len(traced) == 1


def test_progress_is_reported_after_2000_gradient_steps(long_episode, monkeypatch):
    def reports(batches: int, *updates: int) -> list[tuple[int, int]]:
        algorithm, seen = counting(batches), []
        agents = population.create(jax.random.key(0), algorithm, len(updates))
        hyper, report = hyper_of(algorithm, len(updates)), lambda *report: seen.append(report)
        Learner(algorithm, 1).learn(jax.random.key(1), agents, long_episode, hyper, np.array(updates), report)
        return seen

    assert reports(1, 4000) == [(2000, 4000), (4000, 4000)]
    monkeypatch.setattr(population, "CHUNK", 8)
    assert reports(2, 10, 10) == [(8, 20), (10, 20), (18, 20), (20, 20)]
    monkeypatch.setattr(devices, "separate", lambda: False)
    assert reports(2, 10, 10) == [(8, 20), (16, 20), (20, 20)]  # of both agents
    monkeypatch.setattr(population, "CHUNK", 1)
    assert reports(2, 4, 4) == [(4, 8), (8, 8)]  # an update at least


def test_a_program_is_compiled_before_agents_learn_in_threads(long_episode, monkeypatch):
    """Three, two and one agent with two cores; the first time, and the first with n_step 2, one after another."""
    algorithm, used = counting(), []

    class Threads:
        def __init__(self, number: int):
            used.append(number)

        def __enter__(self):
            return self

        def __exit__(self, *error: object) -> None:
            pass

        map = staticmethod(map)

    monkeypatch.setattr(population, "ThreadPoolExecutor", Threads)
    monkeypatch.setattr(population, "cores", lambda: 2)
    learner, agents = Learner(algorithm, 1), population.create(jax.random.key(0), algorithm, 3)
    seen = []
    for n_step, *updates in ((1, 1, 1, 1), (1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 0), (2, 1, 1, 1)):
        hyper = hyper_of(algorithm, 3, n_step=[n_step] * 3)
        agents, _ = learn(learner, agents, long_episode, hyper, *updates)
        seen.append(list(used))
    assert seen == [[], [2], [2, 2], [2, 2], [2, 2]]
    assert agents.calls.tolist() == [4, 4, 4]


@pytest.mark.parametrize("separate", [True, False])
def test_agents_learn_from_their_own_rings(separate, long_episode, monkeypatch):
    monkeypatch.setattr(devices, "separate", lambda: separate)
    algorithm = counting()
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), long_episode)
    rings = twins._replace(reward=jnp.stack([long_episode.reward + 1, long_episode.reward + 2]))
    agents = population.create(jax.random.key(0), algorithm, 2)
    after, metrics = learn(OwnReplays(algorithm, 4), agents, rings, hyper_of(algorithm, 2), 4, 2)
    assert after.calls.tolist() == [4, 2]
    assert metrics["reward"] == pytest.approx((4 * 1 + 2 * 2) / 6)


def test_similar_n_steps_share_a_program(long_episode):
    algorithm, size = counting(), Learner._learn._cache_size  # pyright: ignore[reportAttributeAccessIssue]
    agents, before = population.create(jax.random.key(0), algorithm, 1), size()
    for n in (3, 4):
        learn(Learner(algorithm, 1), agents, long_episode, hyper_of(algorithm, 1, n_step=[n]), 1)
    assert size() == before + 1


def test_agents_are_copied_and_made_new():
    algorithm = counting()
    agents = population.create(jax.random.key(0), algorithm, 4)
    new = population.create(jax.random.key(1), algorithm, 1).weights[0]
    for sources in ([0, 1, 2, 3], [2, 1, 0, 0], [2, 1, NEW, 0]):
        key: Any = jax.random.key(1) if NEW in sources else None  # needed for new ones only
        gathered = population.gather(key, algorithm, agents, np.array(sources))
        expected = [new if source == NEW else agents.weights[source] for source in sources]
        np.testing.assert_array_equal(gathered.weights, expected)
        assert (gathered is agents) == (sources == [0, 1, 2, 3])


def test_a_population_has_a_leading_axis():
    algorithm = counting()
    shapes = jax.eval_shape(lambda key: population.create(key, algorithm, 5), jax.random.key(0))
    assert (shapes.calls.shape, shapes.weights.shape) == ((5,), (5, 3))
    agents = population.create(jax.random.key(0), algorithm, 5)
    np.testing.assert_allclose(population.learned(algorithm, agents)["rate"], agents.weights.sum(axis=1), rtol=1e-6)
    assert population.number_of(np.zeros((5, 2))) == 5
    bounds = [population._max_n({"n_step": np.array([1.0, n])}) for n in range(1, 10)]
    assert bounds == [1, 2, 4, 4, 8, 8, 8, 8, 16]


def test_acting_is_compiled_once_and_its_keys_are_made_for_many_steps(monkeypatch):
    algorithm, number = counting(), Counter()

    def counted(name: str, function: Any) -> Any:
        return lambda *given: number.update([name]) or function(*given)

    for name in ("_keys", "_program"):
        monkeypatch.setattr(population, name, counted(name, getattr(population, name)))
    algorithm = algorithm._replace(act=counted("act", algorithm.act))
    agents, obs = population.create(jax.random.key(0), algorithm, 2), np.ones((2, 3), np.float32)
    act = Actors(algorithm).policies(jax.random.key(1), agents, hyper_of(algorithm, 2), explore=True)
    np.testing.assert_allclose(act(128, obs), 1.0 + agents.weights[:, :2], rtol=1e-6)
    before = number["act"]
    for t in (129, 255):
        act(t, obs)
    assert number == {"_keys": 1, "_program": 1, "act": before}
    act(256, obs)
    assert number == {"_keys": 2, "_program": 1, "act": before}


def test_the_start_is_compiled_with_few_optimisations(monkeypatch):
    """Random numbers take seconds to compile well. Agents of the same kind are made by the same program."""
    options, algorithm = [], counting()
    monkeypatch.setattr(jax, "jit", lambda function, **given: options.append(given) or function)
    for _ in range(2):
        population.create(jax.random.key(0), algorithm, 2)
    assert options == [{}, {"compiler_options": {"xla_backend_optimization_level": 0}}]


def test_agents_that_train_alone_are_copied_only_once(long_episode, monkeypatch):
    """Taken from the population before, and put back together after."""
    algorithm, number = counting(), Counter()
    agents = population.create(jax.random.key(0), algorithm, 3)
    for owner, name in ((population, "take"), (population, "put"), (Learner, "replay_of")):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, n=name, f=function: number.update([n]) or f(*given))
    learn(Learner(algorithm, 1), agents, long_episode, hyper_of(algorithm, 3), 2, 1, 1)
    assert number == {"take": 3, "replay_of": 3, "put": 1}


def test_one_agent_alone_gets_what_it_gets_on_an_axis_of_its_own():
    shapes = []

    def scaled(agent, shared):
        shapes.append(agent["w"].shape)
        return {"w": agent["w"] * shared["c"]}, agent["w"].sum()

    agents, shared, axes = {"w": jnp.arange(6.0).reshape(1, 2, 3)}, {"c": jnp.array(3.0)}, (0, None)
    found, expected = (f(agents, shared) for f in (population.alone(scaled, axes), jax.vmap(scaled, axes)))
    assert jax.tree.all(jax.tree.map(lambda a, b: a.shape == b.shape and (a == b).all(), found, expected))
    assert shapes == [(2, 3), (2, 3)]


def test_what_act_does_not_read_is_zero():
    leaves, structure = jax.tree.flatten(({"a": np.ones(2, np.float32), "b": np.ones(3, np.float32)}, {}))
    arguments = population.Arguments(structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
    agent, _ = arguments.filled({0: leaves[0]})
    assert (agent["a"].tolist(), agent["b"].tolist()) == ([1, 1], [0, 0, 0])


# Real algorithms


@pytest.mark.parametrize("name", ["td3", "ddpg", "sac"])
def test_agents_do_not_touch_each_other(name, replay):
    """Changing the hyper-parameters of one agent leaves the others as they are."""
    algorithm = of(name)
    learner = Learner(algorithm, batch_size=16)
    agents = population.create(jax.random.key(0), algorithm, 3)
    one = hyper_of(algorithm, 3, n_step=[1, 2, 3])
    other = hyper_of(algorithm, 3, n_step=[1, 2, 3], critic_lr=[1e-3, 1e-3, 1e-1])
    same, _ = learn(learner, agents, replay, one, 4, 4, 4)
    changed, _ = learn(learner, agents, replay, other, 4, 4, 4)
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(changed), strict=True):
        np.testing.assert_array_equal(a[:2], b[:2])
    assert any((a[2] != b[2]).any() for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(changed), strict=True))


def test_no_recompilation_for_new_numbers(replay):
    algorithm = make("td3", SPEC, hidden=(8, 8))
    learner = Learner(algorithm, batch_size=16)
    agents = population.create(jax.random.key(0), algorithm, 2)
    before = Learner._learn._cache_size()  # pyright: ignore[reportAttributeAccessIssue]
    for updates, n_step, rate in ((2, 3, 1e-3), (10, 4, 1e-4), (6, 3, 1e-2)):
        hyper = hyper_of(algorithm, 2, n_step=[n_step, 1], actor_lr=[rate] * 2)
        agents, _ = learn(learner, agents, replay, hyper, updates, updates)
    assert Learner._learn._cache_size() == before + 1  # pyright: ignore[reportAttributeAccessIssue]


def test_each_agent_takes_its_own_number_of_steps(replay):
    """Those without steps stay as they are; the others' metrics are weighed by their steps."""
    algorithm = of("td3")
    agents, hyper = population.create(jax.random.key(0), algorithm, 4), hyper_of(algorithm, 4, n_step=[1, 2, 3, 1])
    reports: list[tuple[int, int]] = []
    after, metrics = Learner(algorithm, 16).learn(
        jax.random.key(1), agents, replay, hyper, np.array([4, 0, 10, 4]), lambda *report: reports.append(report)
    )
    assert after.critic_moments.count.tolist() == [4, 0, 10, 4]
    for old, new in zip(jax.tree.leaves(agents), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old[1], new[1])
    assert reports == [(10, 18), (14, 18), (18, 18)]
    assert set(metrics) == {"critic_loss", "q", "actor_loss"}
    assert all(isinstance(value, float) for value in metrics.values())
    nobody, nothing = learn(Learner(algorithm, 16), agents, replay, hyper, 0, 0, 0, 0)
    assert nobody is agents
    assert nothing == {}


def test_many_steps_are_taken_in_chunks(replay, monkeypatch):
    monkeypatch.setattr(population, "CHUNK", 8)
    algorithm = of("td3")
    agents, reports = population.create(jax.random.key(0), algorithm, 2), []
    hyper, updates = hyper_of(algorithm, 2, n_step=[3, 1]), np.array([10, 10])
    after, _ = Learner(algorithm, 16).learn(
        jax.random.key(1), agents, replay, hyper, updates, lambda *report: reports.append(report)
    )
    assert reports == [(8, 20), (10, 20), (18, 20), (20, 20)]
    assert after.critic_moments.count.tolist() == [10, 10]


def test_metrics_are_known_before_anything_is_learned(replay):
    algorithm = of("sac")
    agents, hyper = population.create(jax.random.key(0), algorithm, 3), hyper_of(algorithm, 3, n_step=[1, 2, 3])
    _, metrics = learn(Learner(algorithm, 16), agents, replay, hyper, 1, 1, 1)
    assert set(Learner(algorithm, 16).metric_names(agents, replay, hyper)) == set(metrics)


def test_gather_copies_whole_agents_and_makes_new_ones():
    algorithm = of("td3")
    agents = population.create(jax.random.key(0), algorithm, 4)
    assert population.gather(jax.random.key(1), algorithm, agents, np.arange(4)) is agents
    gathered = population.gather(jax.random.key(1), algorithm, agents, np.array([2, 1, NEW, 0]))
    fresh = jax.jit(algorithm.init)(jax.random.split(jax.random.key(1), 1)[0])
    for old, new, first in zip(*map(jax.tree.leaves, (agents, gathered, fresh)), strict=True):
        np.testing.assert_array_equal(new[np.array([0, 1, 3])], old[np.array([2, 1, 0])])
        np.testing.assert_allclose(new[2], first, atol=1e-6)


def test_own_replays_give_each_agent_its_own_data(replay):
    """Agent 1 learns from a ring with other rewards, and so other things."""
    algorithm = of("td3")
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), replay)
    rich = twins._replace(reward=twins.reward.at[1].add(10.0))
    learner = OwnReplays(algorithm, 16)
    agents = population.create(jax.random.key(0), algorithm, 2)
    poor, _ = learn(learner, agents, twins, hyper_of(algorithm, 2), 4, 4)
    some, _ = learn(learner, agents, rich, hyper_of(algorithm, 2), 4, 4)
    for a, b in zip(jax.tree.leaves(poor), jax.tree.leaves(some), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
    assert any((a[1] != b[1]).any() for a, b in zip(jax.tree.leaves(poor), jax.tree.leaves(some), strict=True))
    alone, _ = learn(learner, agents, rich, hyper_of(algorithm, 2), 0, 4)
    assert alone.critic_moments.count.tolist() == [0, 4]


def test_acting_reads_only_what_act_reads_and_gives_the_same_actions():
    """Also for an algorithm of a user that looks at its critic, and with a hyper-parameter as its answer."""
    td3 = of("td3")

    def curious(key, state, obs, hyper, explore):
        return td3.act(key, state, obs, hyper, explore) + jax.tree.leaves(state.critic)[0].sum()

    expected = {td3.act: {"actor", "exploration_noise"}, curious: {"actor", "critic", "exploration_noise"}}
    agents, hyper = population.create(jax.random.key(0), td3, 3), hyper_of(td3, 3)
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    for act, names in expected.items():
        paths, structure = jax.tree_util.tree_flatten_with_path((agents, hyper))
        arguments = population.Arguments(structure, tuple((leaf.shape[1:], leaf.dtype) for _, leaf in paths))
        read, _ = population._program(act, arguments, 3, True)
        assert {getattr(paths[i][0][1], "name", None) or paths[i][0][1].key for i in read} == names
        policies = Actors(td3._replace(act=act)).policies(jax.random.key(5), agents, hyper, explore=True)
        for t in (4, population.KEYS + 1):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(5), t), 3)
            direct = jax.vmap(partial(act, explore=True))(keys, agents, obs, hyper)
            np.testing.assert_allclose(policies(t, obs), direct, atol=1e-6)


def test_policies_act_by_row_and_repeat():
    algorithm = of("td3")
    agents = population.create(jax.random.key(0), algorithm, 3)
    actors, hyper = Actors(algorithm), hyper_of(algorithm, 3)
    obs = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    act = actors.policies(jax.random.key(5), agents, hyper, explore=True)
    np.testing.assert_array_equal(act(4, obs), act(4, obs))
    assert (act(4, obs) != act(5, obs)).all()
    other = obs.copy()
    other[2] = 0.0
    np.testing.assert_array_equal(act(4, obs)[:2], act(4, other)[:2])
    calm = actors.policies(jax.random.key(5), agents, hyper, explore=False)
    np.testing.assert_array_equal(calm(4, obs), calm(5, obs))
    for row in range(3):
        alone = algorithm.act(
            jax.random.key(0), population.take(agents, row), jnp.asarray(obs[row]), algorithm.hyper, False
        )
        np.testing.assert_allclose(calm(4, obs)[row], alone, atol=1e-6)
