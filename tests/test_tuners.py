"""Tuners by themselves: NumPy data in, data out, with returns that are made up."""

import dataclasses
import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oht import methods
from oht.errors import UserError
from oht.methods import METHODS
from oht.spaces import Choice, Float, Int, LogFloat
from oht.tuners import columns, race, sampled
from oht.tuners.sampled import likeliest
from oht.tuners.search import Gaussian, categorical
from oht.types import Clock, Outcome, Proposal, Row, Tuner

HYPER = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.99, "n_step": 1.0, "tau": 0.005, "exploration_noise": 0.1}
MIXED = {"n_step": Choice(1, 2, 3), "critic_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1)}
STEPS = 1000  # of an episode

CASES = {
    "static": ("static", {}, {}),
    "oht": ("oht", {}, {}),
    "oht, mixed": ("oht", {}, MIXED),
    "oht, discrete": ("oht", {}, {"n_step": Choice(1, 2)}),
    "oht, tied choices": ("oht", {}, {"actor_lr+critic_lr": Choice(1e-4, 1e-3)}),
    "oht, replay ratio": ("oht", {}, {"replay_ratio": Choice(0.5, 1, 2)}),
    "oht, many combinations": ("oht", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.9, 0.98, 0.99)}),
    "oht, whole and real numbers": ("oht", {}, {"n_step": Int(3, 1, 1, 5), "gamma": Float(0.99, 0.01, 0.9, 1.0)}),
    "random": ("random", {}, MIXED),
    "oht-nstep": ("oht-nstep", {}, None),
    "arms, two dimensions": ("oht-nstep", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)}),
    "oht-lr": ("oht-lr", {}, None),
    "oht-lr, es": ("oht-lr", {"search": "es", "population": 4}, None),
    "oht-lr, fork": ("oht-lr", {"members": "fork", "population": 5}, None),
    "oht-lr, tied": ("oht-lr", {}, {"actor_lr+critic_lr": LogFloat(1e-3)}),
    "oht-lr, mixed": ("oht-lr", {}, MIXED),
    "pbt": ("pbt", {}, None),
    "cem-rl": ("cem-rl", {"population": 4, "gradient": 2}, {}),
}
Returns = Callable[[Proposal], Any]


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def build(name: str, settings: dict[str, Any], tune: dict | None) -> Tuner:
    method = methods.find(name)
    return method.make(method.settings(**settings), tune if tune is not None else method.tune, HYPER)


def outcome_of(tuner: Tuner, returns: Any, replaced: Any = ()) -> Outcome:
    gone = np.isin(np.arange(tuner.population), replaced)
    return Outcome(np.asarray(returns, float), gone, {"sigma": np.ones(tuner.population)})


def turn(tuner: Tuner, state: Any, returns: Returns, i: int = 0) -> tuple[Any, Proposal, Row]:
    """One iteration; `returns` maps a proposal to the returns of its actors."""
    state, proposal = tuner.ask(rng_of(2 * i), state, Clock(i * STEPS, 100 * STEPS, i))
    state, row = tuner.tell(rng_of(2 * i + 1), state, proposal, outcome_of(tuner, returns(proposal)))
    return state, proposal, row


def run(tuner: Tuner, iterations: int, returns: Returns, seed: int = 0) -> tuple[Any, list[Proposal], list[Row]]:
    state, proposals, rows = tuner.init(rng_of(seed)), [], []
    for i in range(iterations):
        state, proposal, row = turn(tuner, state, returns, 1000 * seed + i)
        proposals.append(proposal)
        rows.append(row)
    return state, proposals, rows


def by_value(name: str, score: Callable) -> Returns:
    """Returns that depend on the hyper-parameter of who plays."""
    return lambda proposal: score(proposal.hyper[name][proposal.actors])


def zeros(proposal: Proposal) -> np.ndarray:
    return np.zeros(len(proposal.actors))


def leaves(state: Any) -> list[Any]:
    if isinstance(state, dict | tuple):
        parts = state.values() if isinstance(state, dict) else state
        return [leaf for part in parts for leaf in leaves(part)]
    return [state]


# What every tuner keeps


@pytest.mark.parametrize("case", CASES)
def test_contract(case):
    tuner = build(*CASES[case])
    state, columns = tuner.init(rng_of(9)), None
    shapes = [(np.shape(leaf), leaf.dtype) for leaf in leaves(state)]
    noise = rng_of(0)
    for i in range(14):
        state, proposal, row = turn(tuner, state, lambda p: noise.standard_normal(len(p.actors)), i)
        assert set(proposal.hyper) >= set(HYPER)
        assert all(values.shape == (tuner.population,) for values in proposal.hyper.values())
        assert proposal.ratios.shape == proposal.sources.shape == (tuner.population,)
        assert proposal.actors.shape == proposal.starts.shape
        assert ((proposal.actors >= 0) & (proposal.actors < tuner.population)).all()
        assert ((proposal.sources >= -1) & (proposal.sources < tuner.population)).all()
        assert 0 <= tuner.champion(rng_of(i), state) < tuner.population
        assert [(np.shape(leaf), leaf.dtype) for leaf in leaves(state)] == shapes
        assert all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves(state))
        assert columns in (None, list(row))
        assert all(isinstance(value, float) and math.isfinite(value) for value in row.values())
        columns = list(row)


@pytest.mark.parametrize("case", CASES)
def test_same_stream_same_proposal_and_the_given_state_is_left_alone(case):
    tuner = build(*CASES[case])
    state = tuner.init(rng_of(0))
    before = [np.array(leaf) for leaf in leaves(state)]
    first, second = (turn(tuner, state, zeros) for _ in range(2))
    for a, b in zip(leaves(first[0]), leaves(second[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in first[1].hyper:
        np.testing.assert_array_equal(first[1].hyper[name], second[1].hyper[name])
    assert first[2] == second[2]
    for a, b in zip(leaves(state), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("case", CASES)
def test_diverged_agents_do_not_spoil_the_distribution(case, bad):
    tuner = build(*CASES[case])
    state, _, _ = run(tuner, 12, lambda proposal: np.where(np.arange(len(proposal.actors)) % 2, bad, 1.0))
    for i in range(6):
        state, *_ = turn(tuner, state, lambda proposal: np.full(len(proposal.actors), bad), i)
    *_, row = turn(tuner, state, zeros)
    assert all(map(math.isfinite, row.values()))


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_says_what_it_means(name):
    for field in dataclasses.fields(METHODS[name].settings):
        assert field.metadata["help"]


# The default of each setting, its lowest and its highest value:
ANY = (-math.inf, math.inf)
RATIO = (1.0, 0, 1000)
SETTINGS: dict[str, dict[str, tuple]] = {
    "static": {"replay_ratio": RATIO},
    "oht": {"population": (None, 2, 1000), "budget": (2.0, 0, 1000)},
    "random": {"population": (None, 2, 1000), "budget": (2.0, 0, 1000)},
    "oht-nstep": {
        "beta": (None, 0, math.inf),
        "epsilon": (0.1, 0, 1),
        "importance": (False, *ANY),
        "fitness": ("standard", *ANY),
        "window": (6, 1, 1_000_000),
        "train": ("all", *ANY),
        "champion": ("sample", *ANY),
        "replay_ratio": (None, 0, math.inf),
    },
    "oht-lr": {
        "population": (10, 1, 1000),
        "members": ("persist", *ANY),
        "search": ("cem", *ANY),
        "elite_fraction": (0.5, 0, 1),
        "es_rate": (0.2, 0, math.inf),
        "es_scale": ("natural", *ANY),
        "beta": (None, 0, math.inf),
        "fitness": ("standard", *ANY),
        "replay_ratio": RATIO,
        "member_ratio": (None, 0, 1000),
    },
    "pbt": {
        "population": (10, 2, 1000),
        "interval": (5, 1, math.inf),
        "quantile": (0.25, 0, 0.5),
        "resample": (0.25, 0, 1),
        "share_replay": (False, *ANY),
        "replay_ratio": (None, 0, math.inf),
    },
    "cem-rl": {
        "population": (10, 2, 1000),
        "gradient": (5, 0, math.inf),
        "replay_ratio": RATIO,
        "variance": (1e-3, 0, math.inf),
        "damp": (1e-3, 0, math.inf),
        "damp_limit": (1e-5, 0, math.inf),
    },
    "meta-gradient": {
        "meta_lr": (1e-4, 0, math.inf),
        "meta_critic_lr": (1e-3, 0, math.inf),
        "meta_trace": (0.0, 0, 1),
        "replay_ratio": RATIO,
    },
    "schedule": {"source": ("", *ANY), "replay_ratio": RATIO},
}


@pytest.mark.parametrize("name", METHODS)
def test_the_defaults_and_bounds_of_settings_are_those_that_users_know(name):
    fields = dataclasses.fields(METHODS[name].settings)
    assert {f.name: (f.default, f.metadata["low"], f.metadata["high"]) for f in fields} == SETTINGS[name]


def test_the_papers_continuous_method_has_at_most_ten_settings():
    assert len(dataclasses.fields(METHODS["oht-lr"].settings)) <= 10


def test_tuners_are_numpy_only():
    code = "import sys, oht.methods, oht.asktell; sys.exit('jax' in sys.modules or 'oht.agents' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_method_and_unknown_name():
    with pytest.raises(UserError, match="oht-nstep"):
        methods.find("oht-nsteps")
    with pytest.raises(UserError, match="actor_lr and critic_lr"):
        build("oht", {}, {"learning_rate": LogFloat(1e-3)})


def test_nothing_to_tune_or_nothing_that_tunes():
    with pytest.raises(UserError, match="nothing to tune"):
        build("oht-lr", {}, {})
    with pytest.raises(UserError, match="static"):
        build("static", {}, {"n_step": Choice(1, 2)})


# Static


def test_static_is_constant():
    tuner = build("static", {"replay_ratio": 0.5}, None)
    _, proposals, rows = run(tuner, 3, lambda proposal: np.array([7.0]))
    assert proposals[-1].hyper == {name: np.array([value]) for name, value in HYPER.items()}
    assert (proposals[-1].ratios, proposals[-1].actors) == (np.array([0.5]), np.array([0]))
    assert [int(p.starts[0]) for p in proposals] == [0, 1, 2]  # each episode begins somewhere else
    assert rows[-1] == {"sample/0/agent": 0.0, "sample/0/return": 7.0}


# oht: the race


def noisy(level: Callable[[Proposal], Any], noise: float, seed: int = 0) -> Returns:
    """What agents get on average, and luck."""
    rng = rng_of(seed)
    return lambda proposal: level(proposal) + noise * rng.standard_normal(len(proposal.actors))


def rate_of(proposal: Proposal) -> np.ndarray:
    return np.log10(proposal.hyper["critic_lr"][proposal.actors])


RATES = {"actor_lr+critic_lr": Choice(1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}


def test_the_start_is_among_the_agents_and_the_others_cover_the_space():
    tuner = build("oht", {"population": 5}, {"critic_lr": LogFloat(1e-4, 1.0), "gamma": Float(0.95, 0.02, 0.9, 0.99)})
    values = tuner.init(rng_of(3)).values
    assert values["critic_lr"][0] == pytest.approx(1e-4)
    assert values["gamma"][0] == pytest.approx(0.95)
    drawn = np.sort((np.log10(values["critic_lr"][1:]) + 4) / 1.0)
    np.testing.assert_allclose(drawn, [-1.282, -0.524, 0.524, 1.282], atol=1e-3)  # quantiles 0.1, 0.3, 0.7, 0.9
    assert not np.array_equal(np.argsort(values["critic_lr"]), np.argsort(values["gamma"]))


@pytest.mark.parametrize("start", [1e-5, 1e-3, 1e-2])
def test_the_start_stands_for_its_own_part_of_a_range(start):
    """Nobody is sent where the start is already: a part of the range without an agent may be the one that works."""
    tune = {"critic_lr": LogFloat(low=1e-5, high=1e-2)}
    tuner = methods.find("oht").make(race.Race(population=5), tune, {**HYPER, "critic_lr": start})
    values = np.log10(tuner.init(rng_of(0)).values["critic_lr"])
    parts = np.minimum((values + 5) / 3 * 5, 4.999).astype(int)
    assert sorted(parts) == [0, 1, 2, 3, 4]


def test_an_even_population_has_no_two_equal_agents():
    tuner = build("oht", {"population": 6}, {"critic_lr": LogFloat(1e-3, 0.5), "gamma": Float(low=0.9, high=0.99)})
    values = tuner.init(rng_of(0)).values
    for column in values.values():
        assert len(set(column)) == 6


def test_few_combinations_get_an_agent_each_and_many_a_population():
    assert build("oht", {}, {"n_step": Choice(1, 2, 3)}).population == 3
    tuner = build("oht", {"population": 6}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.9, 0.98, 0.99)})
    assert tuner.population == 6
    values = tuner.init(rng_of(0)).values
    assert (values["n_step"][0], values["gamma"][0]) == (1, 0.99)
    assert set(values["n_step"]) == {1, 2, 3}
    with pytest.raises(UserError, match="at least two"):
        build("oht", {}, {"n_step": Choice(1)})


def test_without_a_space_a_portfolio_is_raced():
    tuner = build("oht", {}, {})
    values = tuner.init(rng_of(0)).values
    assert tuner.population == 1 + len(race.PORTFOLIO)
    for name, column in values.items():
        assert column[0] == HYPER[name]  # the run's own values first
    assert 3 in values["n_step"]
    assert values["actor_lr"].min() < HYPER["actor_lr"]


def test_values_and_weights_stay_with_their_agents():
    tuner = build("oht", {}, MIXED)
    _, proposals, _ = run(tuner, 30, noisy(rate_of, 1.0))
    for proposal in proposals:
        np.testing.assert_array_equal(proposal.sources, np.arange(tuner.population))
        for name in MIXED:
            np.testing.assert_array_equal(proposal.hyper[name], proposals[0].hyper[name])


def test_everyone_plays_before_the_belief_decides():
    tuner = build("oht", {}, RATES)
    _, proposals, _ = run(tuner, 40, noisy(rate_of, 0.1))
    played = [int(p.actors[0]) for p in proposals[:25]]  # a quarter of the run
    assert sorted(played) == sorted(5 * list(range(5)))
    for proposal in proposals[:25]:
        np.testing.assert_allclose(proposal.ratios, 2 / 5)
    assert np.mean([p.ratios[4] for p in proposals[25:]]) > 0.8


def test_a_run_that_is_continued_for_longer_does_not_begin_anew():
    tuner = build("oht", {}, RATES)
    state, _, _ = run(tuner, 100, noisy(rate_of, 0.1))
    _, proposal = tuner.ask(rng_of(0), state, Clock(100 * STEPS, 10_000 * STEPS, 100))
    assert proposal.ratios[4] > 0.6


def test_agents_that_dip_before_they_learn_are_not_starved():
    """A small learning rate hardly changes anything; larger ones are worse than that at first, then far better."""
    tuner = build("oht", {}, RATES)
    for seed in range(5):
        own, state, rng = np.zeros(5), tuner.init(rng_of(seed)), rng_of(seed)
        for i in range(140):
            clock = Clock((10 + i) * STEPS, 150 * STEPS, i)
            state, proposal = tuner.ask(rng_of(1000 * seed + 2 * i), state, clock)
            own += proposal.ratios * (10 if i == 0 else 1)
            dip = np.where(own < 10, -500.0, -500 + 50 * (own - 10))
            level = np.array([-300 + 2 * own[0], *dip[1:4], -500.0])
            returns = level[proposal.actors] + 100 * rng.standard_normal(1)
            outcome = outcome_of(tuner, returns)
            state, _ = tuner.tell(rng_of(1000 * seed + 2 * i + 1), state, proposal, outcome)
        assert tuner.champion(rng_of(0), state) in (1, 2, 3)


def told(number: int, *episodes: tuple[int, float]) -> race.Belief:
    """The belief after these episodes: who played, and the return."""
    belief = race.unknown(number)
    for actor, value in episodes:
        belief = race.learn(belief, actor, value)
    return belief


def test_the_belief_by_hand():
    """Two agents; the first got 10 and 14, then the second 11: they differ less than by noise, so the prior is 0.5."""
    belief = race.unknown(2)
    for actor, value in ((0, 10.0), (0, 14.0), (1, 11.0)):
        belief = race.learn(belief, actor, value)
    d, n0 = 0.95, 0.5
    s0, w0, s1, w1 = d * (d * 10 + 14), d * (d + 1), 11.0, 1.0
    middle = (s0 / w0 + s1 / w1) / 2
    noise = np.sqrt(4.0**2 / 2)
    mean, error = race.means(belief)
    np.testing.assert_allclose(mean, [(s0 + n0 * middle) / (w0 + n0), (s1 + n0 * middle) / (w1 + n0)])
    np.testing.assert_allclose(error, noise / np.sqrt([w0 + n0, w1 + n0]))


def test_who_improves_by_hand():
    """Phi of slope over error of a weighted line; an agent with one episode, or none, may as well improve as not."""
    belief = race.unknown(3)
    played = [(0, 10.0), (0, 13.0), (1, 50.0), (0, 12.0), (0, 20.0)]
    for actor, value in played:
        belief = race.learn(belief, actor, value)
    time = np.array([-4.0, -3.0, -1.0, 0.0])
    value, weight = np.array([10.0, 13.0, 12.0, 20.0]), 0.95**-time
    slope = np.polyfit(time, value, 1, w=np.sqrt(weight))[0]
    centred = time - np.average(time, weights=weight)
    squares = np.array([9.0, 1.0, 64.0]) @ (discounts := 0.95 ** np.array([3, 1, 0])) / discounts.sum()
    score = slope * np.sqrt((weight * centred**2).sum()) / np.sqrt(squares / 2)
    np.testing.assert_allclose(race.improving(belief), [(1 + math.erf(score / math.sqrt(2))) / 2, 0.5, 0.5])
    np.testing.assert_array_equal(race.improving(race.unknown(3)), 0.5)
    steady = race.improving(race.learn(race.learn(race.unknown(2), 0, 1.0), 0, 1.0))
    np.testing.assert_array_equal(steady, 0.5)  # no noise is known yet


def test_who_improves_does_not_depend_on_the_unit_of_returns():
    episodes = [(0, 10.0), (1, 5.0), (0, 13.0), (1, 4.0), (0, 12.0), (1, 4.0), (0, 20.0)]
    improving = race.improving(told(2, *episodes))
    assert improving[0] > 0.9
    assert improving[1] < 0.45
    for unit in (1e-4, 1e4):
        np.testing.assert_allclose(race.improving(told(2, *((j, unit * value) for j, value in episodes))), improving)


def champion_of_learning_curves(tuner: Tuner, seed: int, iterations: int = 140) -> int:
    """A race of agents whose level depends on their own gradient steps (in thousands), with noise of a third.

    Agent 0 learns at once and stops at 100; agent 1 gets 20 for every thousand steps beyond 17 000; the others
    stay at 5.
    """
    rng, own, state = rng_of(seed), np.zeros(tuner.population), tuner.init(rng_of(seed))
    for i in range(iterations):
        clock = Clock((10 + i) * STEPS, (10 + iterations) * STEPS, i)
        state, proposal = tuner.ask(rng_of(1000 * seed + 2 * i), state, clock)
        own += proposal.ratios * (10 if i == 0 else 1)
        level = np.array(
            [min(100.0, 5 + 4 * own[0]), 5 + max(0.0, 20 * (own[1] - 17)), *[5.0] * (tuner.population - 2)]
        )
        returns = level[proposal.actors] * (1 + rng.standard_normal(1) / 3)
        state, _ = tuner.tell(rng_of(1000 * seed + 2 * i + 1), state, proposal, outcome_of(tuner, returns))
    return tuner.champion(rng_of(0), state)


def test_a_leader_that_stops_improving_is_overtaken():
    """Agent 1 needs gradient steps to show that it is better: while the leader stands still, it must get them."""
    tuner = build("oht", {}, RATES)
    champions = [champion_of_learning_curves(tuner, seed) for seed in range(20)]
    assert champions.count(1) >= 13  # 3 without giving back


def test_a_leader_that_improves_keeps_the_gradient_steps():
    tuner = build("oht", {}, RATES)
    rng = rng_of(0)

    def returns(proposal: Proposal) -> Any:
        rising = 5 + 3 * next(clock) if proposal.actors[0] == 3 else 5.0
        return [rising * (1 + rng.standard_normal() / 3)]

    for seed in range(3):
        clock = itertools.count()
        _, proposals, _ = run(tuner, 100, returns, seed)
        assert np.mean([p.ratios[3] for p in proposals[40:]]) > 1.4


def test_play_and_gradient_steps_go_to_the_best_within_the_budget():
    tuner = build("oht", {"budget": 2.0}, RATES)
    for seed in range(5):
        state, proposals, rows = run(tuner, 100, noisy(lambda p: -10 * abs(rate_of(p) + 3), 5.0, seed), seed)
        late = proposals[50:]
        assert np.mean([p.actors[0] == 3 for p in late]) > 0.7
        assert np.mean([p.ratios[3] for p in late]) > 1.3
        assert tuner.champion(rng_of(0), state) == 3
        assert rows[-1]["champion/critic_lr"] == 1e-3
        assert all(p.ratios.sum() <= 2.0 + 1e-9 for p in proposals)
        assert all(p.ratios.min() >= race.FLOOR - 1e-12 for p in proposals)


def test_a_belief_that_was_wrong_is_left_again():
    """The last agent is best for 40 episodes, then the first."""
    tuner = build("oht", {}, RATES)
    clock = itertools.count()

    def returns(proposal: Proposal) -> np.ndarray:
        sign = 1 if next(clock) < 40 else -1
        return 20 * sign * rate_of(proposal)

    state, proposals, _ = run(tuner, 140, noisy(returns, 5.0))
    assert np.mean([p.actors[0] == 4 for p in proposals[20:40]]) > 0.5
    assert np.mean([p.actors[0] == 0 for p in proposals[-30:]]) > 0.6
    assert tuner.champion(rng_of(0), state) == 0


def test_returns_that_are_noise_move_nothing_for_good():
    """No agent is favoured over many runs, and none is starved within one."""
    plays = np.zeros(5)
    for seed in range(20):
        _, proposals, _ = run(build("oht", {}, RATES), 100, noisy(lambda p: 0.0, 1.0, seed), seed)
        own = np.bincount([int(p.actors[0]) for p in proposals], minlength=5)
        assert own.min() >= 4
        plays += own
    assert plays.max() / plays.min() < 1.6


def test_episodes_of_all_agents_begin_in_the_same_states():
    tuner = build("oht", {}, RATES)
    _, proposals, _ = run(tuner, 60, noisy(rate_of, 3.0))
    starts: dict[int, list[int]] = {}
    for proposal in proposals:
        starts.setdefault(int(proposal.actors[0]), []).append(int(proposal.starts[0]))
    for own in starts.values():
        assert own == list(range(len(own)))  # the k-th episode of every agent begins in state k


def test_who_was_replaced_is_unknown_again_and_its_episode_does_not_count():
    tuner = build("oht", {}, RATES)
    state, _, _ = run(tuner, 12, noisy(rate_of, 0.1))
    state, proposal = tuner.ask(rng_of(0), state, Clock(0, 1, 12))
    actor = int(proposal.actors[0])
    after, row = tuner.tell(rng_of(0), state, proposal, outcome_of(tuner, [-np.inf], [actor]))
    assert after.belief.counts[actor] == 0
    assert np.isnan(after.belief.last[actor])
    others = np.arange(5) != actor
    np.testing.assert_array_equal(after.belief.sums[others], state.belief.sums[others])
    assert all(map(math.isfinite, (v for k, v in row.items() if not k.startswith("sample"))))


def test_the_replay_ratio_is_a_value_like_others():
    tuner = build("oht", {"budget": 2.0}, {"replay_ratio": Choice(0.2, 1.0, 2.0)})
    _, proposals, _ = run(tuner, 80, noisy(lambda p: 10 * p.hyper["replay_ratio"][p.actors], 1.0))
    ratios = np.array([p.ratios for p in proposals])
    assert (ratios <= np.array([0.2, 1.0, 2.0]) + 1e-9).all()
    assert ratios[-20:, 2].mean() > 1.5


def test_random_gives_everyone_the_same():
    tuner = build("random", {}, RATES)
    state, proposals, _ = run(tuner, 50, noisy(rate_of, 0.1))
    assert np.bincount([int(p.actors[0]) for p in proposals]).tolist() == [10] * 5
    for proposal in proposals:
        np.testing.assert_allclose(proposal.ratios, 0.4)
    assert {tuner.champion(rng_of(i), state) for i in range(60)} == set(range(5))
    np.testing.assert_array_equal(
        build("oht", {}, MIXED).init(rng_of(1)).values["critic_lr"],
        build("random", {}, MIXED).init(rng_of(1)).values["critic_lr"],
    )


def test_the_portfolio_by_hand():
    def raced(base: dict[str, float]) -> dict[str, np.ndarray]:
        return race.make(race.Race(), {}, base).init(rng_of(0)).values

    values = raced(HYPER)
    assert set(values) == {"exploration_noise", "n_step", "actor_lr", "critic_lr"}
    np.testing.assert_array_equal(values["exploration_noise"], [0.1, 0.3, 0.1, 0.1])
    np.testing.assert_array_equal(values["n_step"], [1, 1, 3, 1])
    np.testing.assert_array_equal(values["actor_lr"], [1e-3, 1e-3, 1e-3, 3e-4])
    np.testing.assert_array_equal(values["critic_lr"], [1e-3, 1e-3, 1e-3, 3e-4])
    few = raced({"n_step": 1.0, "exploration_noise": 0.3})  # what is there, each once
    np.testing.assert_array_equal(few["n_step"], [1, 3])


@pytest.mark.parametrize(
    ("base", "first"),
    [((1e-3, 1e-4), 1e-3), ((1e-4, 1e-3), 1e-4), ((5e-4, 1e-4), 1e-4), ((5e-4, 5e-4), 1e-2)],
)
def test_the_first_agent_has_the_runs_own_choice_if_it_is_one(base, first):
    """Five agents and three choices: two of the ends, one of the middle; or one end less, for the start."""
    tune = {"actor_lr+critic_lr": Choice(1e-2, 1e-3, 1e-4), "gamma": Float(low=0.9, high=0.99)}
    own = HYPER | dict(zip(("actor_lr", "critic_lr"), base, strict=True))
    values = race.make(race.Race(population=5), tune, own).init(rng_of(0)).values
    np.testing.assert_array_equal(values["actor_lr"], values["critic_lr"])
    assert values["actor_lr"][0] == first
    assert sorted(values["actor_lr"], reverse=True) == [1e-2, 1e-2, 1e-3, 1e-4, 1e-4]


def test_as_many_choices_as_agents_leave_the_other_dimensions_what_they_are():
    tune = {"n_step": Choice(1, 2, 3, 4, 5), "gamma": Float(low=0.9, high=1.0)}
    values = build("oht", {"population": 5}, tune).init(rng_of(0)).values
    assert sorted(values["n_step"]) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(np.sort(values["gamma"]), [0.91, 0.93, 0.95, 0.97, 0.99])


def test_eight_combinations_get_an_agent_each():
    eight = {"n_step": Choice(1, 2, 3, 4), "gamma": Choice(0.98, 0.99)}
    values = build("oht", {}, eight).init(rng_of(0)).values
    np.testing.assert_array_equal(values["n_step"], [1, 1, 2, 2, 3, 3, 4, 4])
    np.testing.assert_array_equal(values["gamma"], 4 * [0.98, 0.99])


def test_there_are_two_more_agents_than_dimensions_unless_the_population_is_given():
    """The gradient steps are divided among all of them."""
    nine, rate = {"n_step": Choice(*range(1, 10))}, {"actor_lr+critic_lr": LogFloat(low=1e-5, high=1e-2)}
    assert build("oht", {}, nine).population == 3
    assert build("oht", {}, rate).population == 3
    assert build("oht", {}, {**nine, **rate, "gamma": Float(low=0.9, high=0.99)}).population == 5
    assert build("random", {}, {**nine, **rate}).population == 4
    assert build("oht", {"population": 7}, rate).population == 7


@pytest.mark.parametrize(
    ("steps", "played", "decides"),
    [(24, 2, False), (25, 2, True), (25, 1, False), (100, 1, False), (90, 2, True)],
)
def test_the_belief_decides_from_a_quarter_of_the_run_and_two_episodes_of_each_on(steps, played, decides):
    tuner = build("oht", {}, RATES)
    belief = told(5, (0, 1.0), (1, 2.0), (0, 1.0))
    state = tuner.init(rng_of(0))._replace(belief=belief, played=np.array([9, played, 9, 9, 9]))
    after, proposal = tuner.ask(rng_of(0), state, Clock(steps, 100, 50))
    assert after.decides == decides
    control, equal = build("random", {}, RATES).ask(rng_of(0), state, Clock(steps, 100, 50))
    assert not control.decides
    assert (len(set(proposal.ratios)) > 1) == decides
    assert set(equal.ratios) == {0.4}


def test_who_plays_and_who_learns_by_hand():
    """Agent 3 is better for certain (there is no noise), and as likely to improve as not.

    After a quarter of the run it gives back 1/2 x 3/4 of its share, a fifth of this to each: 0.625 + 0.075 = 0.7. Of
    the budget of 2 each has 0.05, and 1.75 are shared. One episode in ten is for who has waited longest, agent 1.
    """
    tuner = build("oht", {}, RATES)
    belief = told(5, *((actor, 10.0 * (actor == 3)) for actor in (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)))
    state = tuner.init(rng_of(0))._replace(belief=belief, played=np.full(5, 2), last=np.array([5, 4, 8, 7, 6]))
    actors = np.zeros(5)
    for seed in range(600):
        after, proposal = tuner.ask(rng_of(seed), state, Clock(25, 100, 10))
        np.testing.assert_allclose(proposal.ratios, [0.18125, 0.18125, 0.18125, 1.275, 0.18125])
        actor = int(proposal.actors[0])
        np.testing.assert_array_equal(after.last, np.where(np.arange(5) == actor, 10, state.last))
        actors[actor] += 1
    np.testing.assert_allclose(actors / 600, [0.0675, 0.1675, 0.0675, 0.63, 0.0675], atol=0.06)
    _, late = tuner.ask(rng_of(0), state, Clock(120, 100, 10))
    np.testing.assert_allclose(late.ratios, [0.05, 0.05, 0.05, 1.8, 0.05])  # nothing is given back at the end
    _, row = tuner.tell(rng_of(0), state, late, outcome_of(tuner, [1.0]))
    assert row["leader"] == 3
    assert row["champion/critic_lr"] == 1e-3
    assert (row["agent/3/ratio"], row["agent/3/improving"]) == (pytest.approx(1.8), 0.5)
    assert row["agent/3/mean"] > 7 > 1 > row["agent/4/mean"]
    assert row["agent/4/critic_lr"] == 1e-2


def test_the_champion_has_the_best_mean_and_not_the_most_episodes():
    tuner = build("oht", {}, RATES)
    belief = told(5, (0, 10.0), (1, 14.0), (0, 10.0), (2, 9.0), (3, 9.0), (0, 10.0), (1, 14.0), (4, 9.0), (0, 10.0))
    assert belief.sums[0] > belief.sums[1]
    assert tuner.champion(rng_of(0), tuner.init(rng_of(0))._replace(belief=belief)) == 1


def test_what_is_told_changes_the_belief_about_who_played():
    tuner = build("oht", {}, RATES)
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 100, 0))
    for value, counts in ((7.0, [0, 0, 1, 0, 0]), (0.0, [0, 0, 1, 0, 0]), (np.inf, [0] * 5), (np.nan, [0] * 5)):
        after, _ = tuner.tell(rng_of(0), state, proposal._replace(actors=np.array([2])), outcome_of(tuner, [value]))
        np.testing.assert_array_equal(after.belief.counts, counts)
        np.testing.assert_array_equal(after.played, [0, 0, 1, 0, 0])


def test_agents_that_have_not_played_have_the_mean_of_the_others():
    """Agent 0 got 10 and 14, agent 1 got 6: S / W are 12.05 and 6; who has not played is as good as their mean."""
    belief = told(3, (1, 6.0), (0, 10.0), (0, 14.0))
    mean, error = race.means(belief)
    middle = ((0.95 * 10 + 14) / 1.95 + 6) / 2
    assert mean[2] == pytest.approx(middle)
    assert mean[1] == pytest.approx((0.95**2 * 6 + 0.5 * middle) / (0.95**2 + 0.5))
    assert error[2] == pytest.approx(np.sqrt(16 / 2 / 0.5))
    for numbers in race.means(race.unknown(3)):
        np.testing.assert_array_equal(numbers, 0.0)


def test_noise_is_that_of_successive_returns_of_the_same_agent():
    """Differences of 3 and, a step later, of -5; older ones count less. Agents that differ are no noise."""
    belief = told(3, (0, 10.0), (1, 100.0), (0, 13.0), (1, 95.0), (2, -40.0))
    squares, pairs = 0.95 * (0.95 * 9 + 25), 0.95 * (0.95 + 1)
    assert belief.squares == pytest.approx(squares)
    assert belief.pairs == pytest.approx(pairs)
    assert race.noise(belief) == pytest.approx(np.sqrt(squares / pairs / 2))
    assert race.noise(told(2, (0, 1.0), (1, 5.0))) == 0.0
    assert race.noise(told(2, (0, 1.0), (0, 3.0), (1, 0.0))) == pytest.approx(np.sqrt(2))


def test_the_belief_about_a_replaced_agent_is_forgotten():
    belief = told(2, (0, 10.0), (1, 20.0), (0, 13.0), (1, 25.0))
    after = race.forget(belief, np.array([True, False]))
    for name in ("sums", "counts", "times", "squared_times", "products"):
        before, now = getattr(belief, name), getattr(after, name)
        assert before[0] != 0 or before[1] != 0
        np.testing.assert_array_equal(now, [0, before[1]])
    np.testing.assert_array_equal(after.last, [np.nan, 25.0])
    assert (after.squares, after.pairs) == (belief.squares, belief.pairs)  # how noisy returns are is still known


def test_a_replaced_agent_has_no_claim_until_it_has_played_again():
    """A value that saturates after every replacement would otherwise be as promising as one that nobody knows."""
    belief = told(3, (0, 4.0), (1, 5.0), (2, 9.0), (0, 6.0), (1, 9.0), (2, 5.0))
    assert (race.best_probabilities(rng_of(0), belief) > 0.05).all()
    after = race.forget(belief, np.array([False, False, True]))
    best = race.best_probabilities(rng_of(0), after)
    assert best[2] == 0
    assert best.sum() == pytest.approx(1.0)
    assert race.best_probabilities(rng_of(0), race.learn(after, 2, 7.0))[2] > 0.05
    nobody = race.forget(belief, np.full(3, True))
    np.testing.assert_allclose(race.best_probabilities(rng_of(0), nobody), 1 / 3, atol=0.06)


def test_a_replaced_agent_does_not_lead_until_it_has_played_again():
    """Its mean, as nothing is known, is that of the others: the same as theirs where they are equal."""
    tuner = build("oht", {}, {"n_step": Choice(1, 2, 3)})
    belief = race.forget(told(3, (0, 1.0), (1, 5.0), (2, 5.0)), np.array([True, False, False]))
    np.testing.assert_allclose(race.means(belief)[0], 5.0)
    state = tuner.init(rng_of(0))._replace(belief=belief)
    _, row = tuner.tell(rng_of(0), state, first_proposal(tuner), outcome_of(tuner, [0.0]))
    assert race.leader(belief) == tuner.champion(rng_of(0), state) == row["leader"] == 1
    assert race.leader(race.learn(belief, 0, 6.0)) == 0
    assert race.leader(race.unknown(3)) == 0


@pytest.mark.parametrize("value", [0.0, -200.0, 1 / 3])
def test_agents_share_while_a_sparse_reward_is_not_found(value):
    """All returns are the same: no agent is better, and none may take what the others need to find the reward."""
    belief = told(3, *((i % 3, value) for i in range(40)))
    np.testing.assert_allclose(race.best_probabilities(rng_of(0), belief), 1 / 3)
    _, proposals, _ = run(build("oht", {}, {"n_step": Choice(1, 2, 3)}), 60, lambda p: [value])
    for proposal in proposals:
        np.testing.assert_allclose(proposal.ratios, 2 / 3)


@pytest.mark.parametrize("name", ["mean", "error", "improving", "ratio"])
def test_what_is_tuned_is_not_called_as_a_column_of_the_schedule(name):
    method = methods.find("oht")
    with pytest.raises(UserError, match=f"{name} is already a column of the schedule"):
        method.make(method.settings(), {name: Choice(1, 2)}, {**HYPER, name: 1.0})
    method.make(method.settings(), {f"{name}s": Choice(1, 2)}, {**HYPER, f"{name}s": 1.0})


def test_the_shares_by_hand():
    """Of noisy returns: the share of an agent is its probability, less what it gives back, more of what all gave."""
    belief = told(3, (0, 4.0), (1, 5.0), (0, 6.0), (1, 5.0), (2, 5.0), (0, 8.0), (1, 5.0))
    best = race.best_probabilities(rng_of(0), belief)
    mean, error = race.means(belief)
    assert error.min() > 0.5
    draws = mean + error * rng_of(1).standard_normal((100_000, 3))
    np.testing.assert_allclose(best, np.bincount(draws.argmax(axis=1)) / 100_000, atol=0.05)
    improving = race.improving(belief)
    assert improving[0] > 0.9
    for steps, left in ((0, 1.0), (60, 0.4), (100, 0.0), (150, 0.0)):
        gives = best * (1 - improving) * left
        shares = race.wanted(rng_of(0), belief, Clock(steps, 100, 9))
        np.testing.assert_allclose(shares, best - gives + gives.sum() / 3)
        assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("budget", "most", "ratios"),
    [
        (2.0, (9, 9, 9, 9), (1.13, 0.59, 0.23, 0.05)),  # 0.05 each and 0.6, 0.3, 0.1, 0 of 1.8
        (2.0, (1, 9, 9, 0.01), (1.0, 0.602, 0.234, 0.01)),  # at most as much as an agent may have, floor included
        (0.1, (9, 9, 9, 9), (0.025, 0.025, 0.025, 0.025)),  # less than the floor: equal shares
        (0.0, (9, 9, 9, 9), (0, 0, 0, 0)),
    ],
)
def test_gradient_steps_are_divided_by_hand(budget, most, ratios):
    got = race.divided(budget, np.array([0.6, 0.3, 0.1, 0.0]), np.array(most, float))
    np.testing.assert_allclose(got, ratios)


def test_an_agent_has_at_most_the_budget_and_its_own_replay_ratio():
    belief = told(3, *((actor, float(actor)) for actor in (0, 1, 2, 0, 1, 2)))
    for budget, ratio in ((2.0, 1.5), (1.0, 0.9)):
        tuner = build("oht", {"budget": budget}, {"replay_ratio": Choice(0.2, 1.0, 1.5)})
        state = tuner.init(rng_of(0))._replace(belief=belief, played=np.full(3, 2))
        _, proposal = tuner.ask(rng_of(0), state, Clock(100, 100, 6))
        np.testing.assert_allclose(proposal.ratios, [0.05, 0.05, ratio])
        np.testing.assert_array_equal(proposal.hyper["replay_ratio"], [0.2, 1.0, 1.5])
    tuner = build("oht", {"budget": 3.0}, RATES)
    _, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 100, 0))
    np.testing.assert_array_equal(proposal.hyper["replay_ratio"], 3.0)


# Arms


def first_proposal(tuner: Tuner) -> Proposal:
    return tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 0))[1]


def test_arms_are_all_combinations():
    tuner = build("oht-nstep", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)})
    proposal = first_proposal(tuner)
    assert tuner.population == 6
    np.testing.assert_array_equal(proposal.hyper["n_step"], [1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(proposal.hyper["gamma"], [0.98, 0.99, 0.98, 0.99, 0.98, 0.99])
    np.testing.assert_array_equal(proposal.hyper["tau"], 0.005)


def test_tied_choices_share_an_arm():
    proposal = first_proposal(build("oht-nstep", {}, {"actor_lr+critic_lr": Choice(1e-4, 1e-3)}))
    np.testing.assert_array_equal(proposal.hyper["actor_lr"], [1e-4, 1e-3])
    np.testing.assert_array_equal(proposal.hyper["critic_lr"], [1e-4, 1e-3])


def test_arms_train_all_or_who_plays():
    np.testing.assert_allclose(first_proposal(build("oht-nstep", {}, None)).ratios, 2 / 3)
    proposal = first_proposal(build("oht-nstep", {"train": "played"}, None))
    np.testing.assert_array_equal(proposal.ratios, np.eye(3)[proposal.actors[0]])
    np.testing.assert_array_equal(first_proposal(build("oht-nstep", {"replay_ratio": 1.0}, None)).ratios, 1.0)


def test_logits_move_once_in_a_window():
    tuner = build("oht-nstep", {"beta": 0.02}, None)
    _, _, rows = run(tuner, 13, by_value("n_step", lambda n: n))
    logits = [tuple(row[f"n_step/logit/{n}"] for n in (1, 2, 3)) for row in rows]
    assert set(logits[:6]) == {(0.0, 0.0, 0.0)}
    assert len(set(logits[6:12])) == 1
    assert logits[6] != logits[0]
    assert logits[12] != logits[6]
    assert max(map(abs, logits[6])) == pytest.approx(0.02, rel=1e-3)


def test_the_window_is_one_step_of_eqn_4():
    # arms 0 and 1 played with returns 3 and 1: standardised 1 and -1; 1/2 [(1,0,0) - (0,1,0)] = (1/2, -1/2, 0)
    tuner = build("oht-nstep", {"window": 2, "beta": 0.02}, None)
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 0))
    for arm, value in ((0, 3.0), (1, 1.0)):
        played = proposal._replace(actors=np.array([arm]))
        state, _ = tuner.tell(rng_of(0), state, played, outcome_of(tuner, [value]))
    np.testing.assert_allclose(state.logits["n_step"].first, 0.1 * np.array([0.5, -0.5, 0.0]), rtol=1e-6)
    np.testing.assert_allclose(state.logits["n_step"].logits, [0.02, -0.02, 0.0], atol=1e-8)


def test_arms_find_the_best_in_every_dimension():
    tuner = build("oht-nstep", {"beta": 0.02}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)})

    def returns(proposal: Proposal) -> np.ndarray:
        arm = proposal.actors
        return proposal.hyper["n_step"][arm] - 100 * proposal.hyper["gamma"][arm]

    state, _, rows = run(tuner, 1500, returns)
    assert rows[-1]["champion/n_step"] == 3.0
    assert rows[-1]["champion/gamma"] == 0.98
    assert rows[-1]["n_step/p/3"] > 0.8
    assert rows[-1]["gamma/p/0.98"] > 0.8
    evaluated = [tuner.champion(rng_of(i), state) for i in range(50)]
    assert evaluated.count(4) > 30  # n = 3, gamma = 0.98


def test_champion_is_a_draw_from_p_without_epsilon_or_its_mode():
    for choice, seen in (("sample", {0, 1, 2}), ("argmax", {1})):
        tuner = build("oht-nstep", {"champion": choice}, None)
        state = tuner.init(rng_of(0))
        logits = state.logits["n_step"]._replace(logits=np.array([0.0, 0.3, 0.0]))
        state = state._replace(logits={"n_step": logits})
        assert {tuner.champion(rng_of(i), state) for i in range(60)} == seen
    certain = logits._replace(logits=np.array([0.0, 50.0, 0.0]))  # epsilon would still give the others a tenth
    tuner = build("oht-nstep", {"epsilon": 1.0}, None)
    state = tuner.init(rng_of(0))._replace(logits={"n_step": certain})
    assert {tuner.champion(rng_of(i), state) for i in range(60)} == {1}


def test_beta_is_the_papers_in_its_steps_and_more_in_fewer():
    tuner = build("oht-nstep", {}, None)
    for steps, beta in ((10_000_000, 0.02), (400_000, 0.1)):
        state, _ = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, steps, 0))
        assert state.logits["n_step"].rate == pytest.approx(beta)


def test_noise_seldom_decides_and_a_clear_lead_does():
    """140 episodes of a run of 150 000 steps: with 0.02 nothing moves, with 0.02 x 1e7 / steps noise decides."""

    def ends(lead: float) -> np.ndarray:
        final = []
        for seed in range(20):
            tuner = build("oht-nstep", {}, None)
            rng, state, row = rng_of(seed), tuner.init(rng_of(seed)), {}
            for i in range(140):
                state, proposal = tuner.ask(rng, state, Clock(1000 * i, 150_000, i))
                value = rng.standard_normal() + lead * (proposal.actors[0] == 2)
                state, row = tuner.tell(rng, state, proposal, outcome_of(tuner, [value]))
            final.append([row[f"n_step/p/{n}"] for n in (1, 2, 3)])
        return np.array(final)

    assert np.mean(ends(0.0).max(axis=1) > 0.8) < 0.5
    assert np.mean(ends(1.0)[:, 2] > 0.8) > 0.8


def test_beta_zero_is_the_control():
    tuner = build("oht-nstep", {"beta": 0.0}, None)
    _, _, rows = run(tuner, 300, by_value("n_step", lambda n: n))
    assert rows[-1]["n_step/p/1"] == pytest.approx(1 / 3)
    played = [row["sample/0/agent"] for row in rows]
    assert all(70 < played.count(arm) < 130 for arm in (0, 1, 2))


def test_too_many_arms_and_no_arms():
    with pytest.raises(UserError, match="method oht"):
        build("oht-nstep", {}, {"n_step": Choice(*range(1, 10)), "gamma": Choice(*np.linspace(0.9, 0.99, 8))})
    with pytest.raises(UserError, match="discrete"):
        build("oht-nstep", {}, MIXED)


def test_sixty_four_arms_are_not_too_many():
    assert build("oht-nstep", {}, {"n_step": Choice(*range(1, 9)), "tau": Choice(*range(1, 9))}).population == 64
    with pytest.raises(UserError, match="5 x 13 = 65 arms are more than 64"):
        build("oht-nstep", {}, {"n_step": Choice(*range(1, 6)), "tau": Choice(*range(1, 14))})
    for tune in ({}, {"critic_lr": LogFloat(1e-3, 0.5)}):
        with pytest.raises(UserError, match="discrete"):
            build("oht-nstep", {}, tune)


def test_who_plays_alone_learns_as_much_as_is_said():
    proposal = first_proposal(build("oht-nstep", {"train": "played", "replay_ratio": 0.3}, None))
    np.testing.assert_allclose(proposal.ratios, 0.3 * np.eye(3)[proposal.actors[0]])
    np.testing.assert_array_equal(first_proposal(build("oht-nstep", {}, {"n_step": Choice(1)})).ratios, 1.0)


def test_every_episode_of_the_window_counts_once():
    # returns 4, 1, 1 of arms 0, 1, 2 are sqrt(2), -1/sqrt(2), -1/sqrt(2) when standardised; their mean is the step
    tuner = build("oht-nstep", {"window": 3}, None)
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 0))
    for arm, value in ((0, 4.0), (1, 1.0), (2, 1.0)):
        played = proposal._replace(actors=np.array([arm]))
        state, _ = tuner.tell(rng_of(0), state, played, outcome_of(tuner, [value]))
    gradient = np.array([2, -1, -1]) / np.sqrt(2) / 3
    np.testing.assert_allclose(state.logits["n_step"].first, 0.1 * gradient, rtol=1e-6)


def test_every_step_of_the_logits_is_of_its_own_window():
    """Arms 0 and 2 play in turn and get 1 and 0: three windows of two are three equal steps of Adam."""
    tuner = build("oht-nstep", {"window": 2, "beta": 0.02}, None)
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 0))
    seen = []
    for arm in (0, 2, 0, 2, 2, 0):
        played = proposal._replace(actors=np.array([arm]))
        state, row = tuner.tell(rng_of(0), state, played, outcome_of(tuner, [float(arm == 0)]))
        seen.append(round(row["n_step/logit/1"], 4))
    assert seen == [0, 0, 0.02, 0.02, 0.04, 0.04]
    np.testing.assert_allclose(state.logits["n_step"].logits, [0.06, 0, -0.06], rtol=1e-2, atol=1e-12)
    assert state.logits["n_step"].steps == 3


# Sampled: the paper's continuous method


def test_the_main_agent_is_the_centre_and_does_not_play():
    tuner = build("oht-lr", {}, None)
    proposal = first_proposal(tuner)
    assert tuner.population == 11
    assert proposal.hyper["actor_lr"][0] == pytest.approx(1e-3)
    assert len(set(proposal.hyper["actor_lr"])) == 11
    np.testing.assert_array_equal(proposal.actors, np.arange(1, 11))
    np.testing.assert_array_equal(proposal.ratios, [1.0] + 10 * [0.1])
    assert len(set(proposal.starts.tolist())) == 1  # compared from the same state
    assert tuner.champion(rng_of(0), tuner.init(rng_of(0))) == 0


def test_members_learn_as_much_as_is_said():
    settings = {"population": 4, "replay_ratio": 2.0, "member_ratio": 0.3}
    np.testing.assert_allclose(first_proposal(build("oht-lr", settings, None)).ratios, [2.0, 0.3, 0.3, 0.3, 0.3])


def test_the_likeliest_value_by_hand():
    choice, state = Choice(4, 5, 6), categorical(3).init()
    for logits, usual, value in (
        ((0, 0, 0), [5], 5),  # among equals the usual one ...
        ((0, 0, 0), [6, 5], 6),  # ... the first of those that are tied ...
        ((0, 0, 0), [9, 5], 5),  # ... which can be chosen ...
        ((0, 0, 0), [9], 4),  # ... or the first of all
        ((1, 0, 1), [5], 4),
        ((1, 0, 1), [6], 6),
        ((-3, -1, -2), [4], 5),
    ):
        assert likeliest(choice, state._replace(logits=np.array(logits, float)), usual) == value


def test_the_centre_of_tied_choices_is_one_value_from_the_start():
    tune = {"actor_lr+critic_lr": Choice(1e-4, 1e-3)}
    for actor_lr, both in ((1e-4, 1e-4), (1e-3, 1e-3), (5e-4, 1e-3)):
        tuner = sampled.make(sampled.Sampled(population=4), tune, {**HYPER, "actor_lr": actor_lr})
        proposal = first_proposal(tuner)
        assert proposal.hyper["actor_lr"][0] == proposal.hyper["critic_lr"][0] == both
        np.testing.assert_array_equal(proposal.hyper["actor_lr"], proposal.hyper["critic_lr"])


@pytest.mark.parametrize(("members", "sources"), [("persist", [0, 1, 2, 3, 4]), ("fork", [0, 0, 0, 0, 0])])
def test_members_persist_or_fork_from_the_main_agent(members, sources):
    tuner = build("oht-lr", {"members": members, "population": 4}, None)
    _, proposals, _ = run(tuner, 3, zeros)
    np.testing.assert_array_equal(proposals[0].sources, [0, 1, 2, 3, 4])  # the first weights are everyone's own
    for proposal in proposals[1:]:
        np.testing.assert_array_equal(proposal.sources, sources)


def test_antithetic_learning_rates():
    rates = np.log10(first_proposal(build("oht-lr", {}, None)).hyper["critic_lr"][1:])
    np.testing.assert_allclose(rates[0::2] + rates[1::2], -6.0)


@pytest.mark.parametrize("search", ["cem", "es"])
def test_learning_rates_move_to_what_pays(search):
    tuner = build("oht-lr", {"search": search, "population": 30}, None)
    _, proposals, rows = run(tuner, 80, by_value("critic_lr", lambda rate: -abs(np.log10(rate) + 3.5)))
    assert np.log10(proposals[-1].hyper["critic_lr"][0]) == pytest.approx(-3.5, abs=0.15)
    assert rows[-1]["critic_lr/mu"] == pytest.approx(np.log10(rows[-1]["champion/critic_lr"]))
    assert rows[0]["actor_lr/sigma"] == 0.5
    assert (rows[-1]["actor_lr/sigma"] < 0.1) == (search == "cem")


def test_a_slope_moves_the_mean_its_own_way():
    for slope in (1, -1):
        tuner = build("oht-lr", {"search": "es"}, {"actor_lr+critic_lr": LogFloat(1e-3, 0.5)})
        _, _, rows = run(tuner, 30, by_value("critic_lr", lambda rate, slope=slope: slope * np.log10(rate)))
        assert slope * (rows[-1]["actor_lr+critic_lr/mu"] + 3) > 0.5


@pytest.mark.parametrize("sigma", [1e-4, 0.003, 0.5])
def test_eqn_3_in_sigmas_does_not_depend_on_sigma(sigma):
    """With 1/sigma^2 and standardised returns a small sigma throws mu from bound to bound; in sigmas it cannot."""
    tune = {"gamma": Float(0.99, sigma, 0.0, 2.0)}
    tuner = build("oht-lr", {"search": "es", "population": 4}, tune)
    _, _, rows = run(tuner, 200, noisy(lambda p: np.zeros(len(p.actors)), 1.0))
    mu = np.array([row["gamma/mu"] for row in rows])
    assert np.abs(np.diff(mu)).max() <= 0.2 * sigma * (1 + 1e-9)
    reference = build("oht-lr", {"search": "es", "population": 4}, {"gamma": Float(0.99, 0.1, -9.0, 11.0)})
    _, _, others = run(reference, 200, noisy(lambda p: np.zeros(len(p.actors)), 1.0))
    if sigma < 0.1:  # the bounds are far away: the same walk, measured in sigmas
        walk = np.array([row["gamma/mu"] for row in others])
        np.testing.assert_allclose((mu - 0.99) / sigma, (walk - 0.99) / 0.1, atol=1e-6)


def test_noise_does_not_carry_the_learning_rate_away():
    """Ten members, 100 iterations (1M env steps): returns that are pure noise move it by less than a decade."""
    ends = []
    for seed in range(20):
        tuner = build("oht-lr", {"search": "es"}, {"actor_lr+critic_lr": LogFloat(1e-3, 0.5)})
        _, _, rows = run(tuner, 100, noisy(lambda p: np.zeros(len(p.actors)), 1.0, seed), seed)
        ends.append(rows[-1]["actor_lr+critic_lr/mu"] + 3)
    assert np.sqrt(np.mean(np.square(ends))) < 0.5


def test_tied_learning_rates_move_together():
    tuner = build("oht-lr", {"search": "es", "es_rate": 0.5}, {"actor_lr+critic_lr": LogFloat(1e-5, 1.0)})
    _, proposals, rows = run(tuner, 50, by_value("critic_lr", np.log10))
    np.testing.assert_array_equal(proposals[-1].hyper["actor_lr"], proposals[-1].hyper["critic_lr"])
    assert rows[-1]["actor_lr+critic_lr/mu"] > -4
    assert rows[-1]["champion/actor_lr"] == pytest.approx(10 ** rows[-1]["actor_lr+critic_lr/mu"])
    with pytest.raises(UserError, match="each hyper-parameter by itself"):
        build("pbt", {}, {"actor_lr+critic_lr": LogFloat(1e-3)})


def test_discrete_and_continuous_together():
    tuner = build("oht-lr", {"beta": 0.1, "population": 30}, MIXED)

    def returns(proposal: Proposal) -> np.ndarray:
        n, rate = proposal.hyper["n_step"][proposal.actors], proposal.hyper["critic_lr"][proposal.actors]
        return -abs(n - 2) - abs(np.log10(rate) + 4)

    _, proposals, rows = run(tuner, 80, returns)
    assert rows[0]["champion/n_step"] == 1.0  # the algorithm's own, while all are equal
    assert proposals[-1].hyper["n_step"][0] == 2.0
    assert rows[-1]["n_step/p/2"] > 0.8
    assert np.log10(proposals[-1].hyper["critic_lr"][0]) == pytest.approx(-4, abs=0.35)


def test_sigma_zero_is_the_control():
    tuner = build("oht-lr", {}, {"actor_lr": LogFloat(1e-3, 0.0), "critic_lr": LogFloat(1e-3, 0.0)})
    _, proposals, rows = run(tuner, 21, noisy(lambda p: np.zeros(len(p.actors)), 1.0))
    np.testing.assert_allclose(proposals[-1].hyper["actor_lr"], 1e-3)
    assert rows[-1]["critic_lr/mu"] == -3.0


def test_values_stay_within_bounds_whatever_the_returns():
    tune = {"actor_lr": LogFloat(1e-2, 2.0, 1e-3, 1e-1), "n_step": Int(3, 5, 1, 5), "gamma": Float(0.99, 0.5, 0.9, 1.0)}
    settings = {"search": "es", "es_rate": 10.0, "fitness": "raw", "es_scale": "unbiased"}
    for name, own in (("oht-lr", settings), ("oht", {})):
        _, proposals, _ = run(build(name, own, tune), 20, by_value("actor_lr", lambda rate: 1e3 * rate))
        for proposal, (key, dim) in itertools.product(proposals, tune.items()):
            assert ((dim.low <= proposal.hyper[key]) & (proposal.hyper[key] <= dim.high)).all()


def test_cem_needs_elites():
    with pytest.raises(UserError, match="elites"):
        build("oht-lr", {"search": "cem", "population": 2}, None)


@pytest.mark.parametrize("population", [3, 4])
def test_two_elites_are_enough(population):
    assert build("oht-lr", {"population": population}, None).population == population + 1  # half of 3 is rounded to 2


def test_choices_need_no_elites():
    assert build("oht-lr", {"population": 1}, {"n_step": Choice(1, 2)}).population == 2
    assert build("oht-lr", {"population": 2, "search": "es"}, None).population == 3


# Methods of agents that learn something else


def test_cem_rl_by_hand():
    tuner = build("cem-rl", {"population": 4, "gradient": 4, "replay_ratio": 0.5}, {})
    assert tuner.population == 5
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 3))
    np.testing.assert_array_equal(proposal.ratios, [0, 0.5, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(proposal.starts, [13, 14, 15, 16])  # in generation 3, after 1 .. 12
    outcome = Outcome(np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(5, bool), {"sigma": np.array([0.1, 0.2, 0.3, 0.4, 0.5])})
    _, row = tuner.tell(rng_of(0), state, proposal, outcome)
    damp = 0.95 * 1e-3 + 0.05 * 1e-5
    samples = {f"sample/{i}/{name}": i + 1.0 for i in range(4) for name in ("agent", "return")}
    assert row == pytest.approx({"weights/sigma": 0.1, "weights/damp": damp, **samples})
    assert tuner.champion(rng_of(0), state) == 0
    with pytest.raises(UserError, match="gradient is 5, but there are only 4"):
        build("cem-rl", {"population": 4, "gradient": 5}, {})
    with pytest.raises(UserError, match="so n_step cannot be tuned"):
        build("cem-rl", {}, {"n_step": Choice(1, 2)})


def test_learning_rates_that_the_agent_learned_are_told():
    tuner = build("meta-gradient", {"replay_ratio": 0.5}, None)
    state, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(0, 1, 0))
    assert proposal.ratios == 0.5
    assert proposal.hyper["actor_lr"] == 1e-3
    learned = {"actor_lr": np.array([1e-4]), "critic_lr": np.array([1e-2])}
    _, row = tuner.tell(rng_of(0), state, proposal, Outcome(np.array([7.0]), np.zeros(1, bool), learned))
    assert row == pytest.approx(
        {
            "actor_lr/mu": -4.0,
            "actor_lr/sigma": 0.0,
            "critic_lr/mu": -2.0,
            "critic_lr/sigma": 0.0,
            "champion/actor_lr": 1e-4,
            "champion/critic_lr": 1e-2,
            "sample/0/agent": 0.0,
            "sample/0/actor_lr": 1e-4,
            "sample/0/critic_lr": 1e-2,
            "sample/0/return": 7.0,
        }
    )


def test_columns_without_their_numbers_are_refused():
    proposal = first_proposal(build("oht-lr", {"population": 4}, None))
    with pytest.raises(ValueError, match="shorter"):
        columns.samples(proposal, (), Outcome(np.zeros(3), np.zeros(5, bool)))
    with pytest.raises(ValueError, match="shorter"):
        columns.gaussian(("gamma", "tau"), Gaussian(np.zeros(1), np.zeros(1)))
    with pytest.raises(ValueError, match="shorter"):
        columns.logits("n_step", Choice(1, 2, 3), categorical(2).init())


# Schedule


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "schedule.csv"
    path.write_text(
        "iteration,env_steps,n_step/p/1,champion/n_step,champion/actor_lr\n1,100,0.4,1,0.001\n2,200,0.5,3,0.01\n"
    )
    return tmp_path


def test_a_schedule_is_replayed_step_by_step(source):
    tuner = build("schedule", {"source": str(source), "replay_ratio": 0.5}, None)
    state = tuner.init(rng_of(0))
    for env_steps, n, rate in ((0, 1, 0.001), (99, 1, 0.001), (100, 3, 0.01), (250, 3, 0.01)):
        _, proposal = tuner.ask(rng_of(0), state, Clock(env_steps, 300, 0))
        assert proposal.hyper["n_step"] == n
        assert proposal.hyper["actor_lr"] == rate
        assert proposal.hyper["critic_lr"] == 1e-3
        assert proposal.ratios == 0.5
    _, row = tuner.tell(rng_of(0), state, proposal, outcome_of(tuner, [4.0]))
    assert row["champion/n_step"] == 3.0
    assert row["sample/0/n_step"] == 3.0
    assert row["sample/0/return"] == 4.0


def test_a_schedule_of_one_row_and_values_of_zero(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("env_steps,champion/gamma\n10,0\n")
    tuner = build("schedule", {"source": str(path)}, None)
    for env_steps in (0, 9, 10, 500):
        _, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(env_steps, 300, 0))
        assert proposal.hyper["gamma"] == 0


def test_a_schedule_of_the_replay_ratio(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("env_steps,champion/replay_ratio\n10,0.5\n20,2\n")
    tuner = build("schedule", {"source": str(path)}, None)
    for env_steps, ratio in ((0, 0.5), (15, 2)):
        _, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(env_steps, 300, 0))
        assert proposal.ratios.tolist() == [ratio]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "env_steps,champion/n_step\n",
        "env_steps,n_step/p/1\n10,0.5\n",
        "iteration,champion/n_step\n1,2\n",
        "env_steps,champion/n_step\n10,two\n",
        "env_steps,champion/n_step\n10\n",
        "env_steps,champion/n_step\n10,nan\n",
        "env_steps,champion/n_step\n10,1\n20,inf\n",
        "env_steps,champion/n_step\n20,1\n10,1\n",
        "env_steps,champion/epsilon\n10,0.1\n",
    ],
)
def test_a_bad_schedule_is_refused(tmp_path, text):
    (tmp_path / "schedule.csv").write_text(text)
    with pytest.raises(UserError):
        build("schedule", {"source": str(tmp_path)}, None)


def test_a_missing_schedule_is_refused(tmp_path):
    for source in ("", str(tmp_path), str(tmp_path / "none.csv")):
        with pytest.raises(UserError, match="no schedule at"):
            build("schedule", {"source": source}, None)
    with pytest.raises(UserError, match="cannot be tuned"):
        build("schedule", {"source": str(tmp_path)}, {"n_step": Choice(1, 2)})


def test_the_source_of_a_schedule_is_found_from_other_folders(source, monkeypatch):
    monkeypatch.chdir(source)
    assert METHODS["schedule"].settings(source="schedule.csv").source == str(source / "schedule.csv")


def test_a_line_that_is_being_written_is_no_part_of_a_schedule(source):
    with (source / "schedule.csv").open("a") as file:
        file.write("3,300,0.5,1,0.0")
    tuner = build("schedule", {"source": str(source)}, None)
    _, proposal = tuner.ask(rng_of(0), tuner.init(rng_of(0)), Clock(250, 300, 0))
    assert proposal.hyper["actor_lr"] == 0.01


# Many combinations


def test_many_discrete_dimensions_are_not_all_combined():
    """10^6 combinations, of which a few agents are drawn."""
    tune = {name: Choice(*(range(1, 11) if name == "n_step" else np.linspace(0.1, 1, 10))) for name in HYPER}
    tuner = build("oht", {}, tune)
    _, proposal = tuner.ask(rng_of(1), tuner.init(rng_of(0)), Clock(0, 100, 0))
    assert tuner.population == 2 + len(tune)
    assert len(set(proposal.hyper["n_step"])) > 2
