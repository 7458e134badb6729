import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oht.errors import UserError
from oht.spaces import Choice, Float, Int, LogFloat
from oht.tuners import METHODS, arms, method, sampled, schedule, tuned
from oht.tuners.api import Proposal, Tuner

HYPER = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.99, "n_step": 1.0, "tau": 0.005}
MIXED = {"n_step": Choice(1, 2, 3), "critic_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1)}
KEY = jax.random.key(0)

CASES = {
    "static": ("static", {}, {}),
    "oht-nstep": ("oht-nstep", {}, None),
    "arms, two dimensions": ("oht-nstep", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)}),
    "oht-lr": ("oht-lr", {}, None),
    "oht-lr, all at once": ("oht-lr", {"population": 10, "at_once": 10, "episodes": 2, "explore": False}, None),
    "oht-lr, together": ("oht-lr", {"together": True, "population": 10, "at_once": 5}, None),
    "oht-lr, cem": ("oht-lr", {"search": "cem", "population": 4, "at_once": 2}, None),
    "oht-lr, persist": ("oht-lr", {"members": "persist", "population": 5}, None),
    "oht-lr, tied": ("oht-lr", {}, {"actor_lr+critic_lr": LogFloat(1e-3)}),
    "oht, mixed": ("oht", {}, MIXED),
    "oht, arms": ("oht", {}, {"n_step": Choice(1, 2)}),
    "oht, many combinations": ("oht", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.9, 0.98, 0.99)}),
    "oht, whole and real numbers": ("oht", {}, {"n_step": Int(3, 1, 1, 5), "gamma": Float(0.99, 0.01, 0.9, 1.0)}),
    "random": ("random", {}, None),
    "pbt": ("pbt", {}, None),
}


def build(name: str, settings: dict, tune: dict | None) -> Tuner:
    chosen = method(name)
    return chosen.make(chosen.settings(**settings), tuned(chosen, tune), HYPER)


def new_agents(tuner: Tuner) -> dict:
    return {"w": jnp.arange(3.0 * tuner.population).reshape(tuner.population, 3), "steps": jnp.arange(tuner.population)}


def turn(tuner: Tuner, key, state, agents, returns) -> tuple:
    """One iteration; `returns` maps a proposal to what its actors got."""
    state, proposal = tuner.ask(key, state, agents, 0)
    got = returns(proposal)
    row = tuner.record(state, proposal, got)
    state, agents = tuner.tell(key, state, proposal.agents, proposal, got)
    return state, agents, proposal, row


def by_value(name: str, score):
    """Returns that depend on the hyper-parameter of who plays."""
    return lambda proposal: score(proposal.hyper[name][proposal.actors])


def run(tuner: Tuner, iterations: int, returns) -> tuple:
    state, agents, proposal, rows = tuner.init(KEY), new_agents(tuner), None, []
    for i in range(iterations):
        state, agents, proposal, row = turn(tuner, jax.random.fold_in(KEY, i), state, agents, returns)
        rows.append(row)
    return state, agents, proposal, rows


def zeros(proposal: Proposal) -> np.ndarray:
    return np.zeros(len(proposal.actors))


# What every tuner keeps


@pytest.mark.parametrize("case", CASES)
def test_contract(case):
    tuner = build(*CASES[case])
    agents, state, columns = new_agents(tuner), tuner.init(KEY), None
    shape = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    rng = np.random.default_rng(0)
    for i in range(14):
        key = jax.random.fold_in(KEY, i)
        state, agents, proposal, row = turn(
            tuner, key, state, agents, lambda proposal: rng.standard_normal(len(proposal.actors))
        )
        assert set(proposal.hyper) == set(HYPER)
        assert all(values.shape == (tuner.population,) for values in proposal.hyper.values())
        assert proposal.ratios.shape == (tuner.population,)
        assert ((proposal.actors >= 0) & (proposal.actors < tuner.population)).all()
        assert 0 <= tuner.champion(key, state) < tuner.population
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == shape
        assert all(isinstance(leaf, np.ndarray | np.generic | jax.Array) for leaf in jax.tree.leaves(state))
        assert jax.tree.map(jnp.shape, agents) == jax.tree.map(jnp.shape, new_agents(tuner))
        assert columns in (None, list(row))
        assert all(isinstance(value, float) and math.isfinite(value) for value in row.values())
        columns = list(row)


@pytest.mark.parametrize("case", CASES)
def test_same_key_same_proposal_and_the_given_state_is_left_alone(case):
    tuner = build(*CASES[case])
    agents, state = new_agents(tuner), tuner.init(KEY)
    before = jax.tree.map(np.array, state)
    first, second = (turn(tuner, KEY, state, agents, zeros) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    jax.tree.map(np.testing.assert_array_equal, state, before)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("case", CASES)
def test_diverged_agents_do_not_spoil_the_distribution(case, bad):
    tuner = build(*CASES[case])
    state, *_ = run(tuner, 12, lambda proposal: np.where(np.arange(len(proposal.actors)) % 2, bad, 1.0))
    for i in range(6):
        key = jax.random.fold_in(KEY, i)
        state, *_ = turn(tuner, key, state, new_agents(tuner), lambda proposal: np.full(len(proposal.actors), bad))
    *_, row = turn(tuner, KEY, state, new_agents(tuner), zeros)
    assert all(map(math.isfinite, row.values()))


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_says_what_it_means(name):
    for field in dataclasses.fields(METHODS[name].settings):
        assert field.metadata["help"]


def test_unknown_method_and_unknown_name():
    with pytest.raises(UserError, match="oht-nstep"):
        method("oht-nsteps")
    with pytest.raises(UserError, match="actor_lr, critic_lr, gamma, n_step, tau"):
        build("oht", {}, {"learning_rate": LogFloat(1e-3)})


def test_nothing_to_tune_or_nothing_that_tunes():
    with pytest.raises(UserError, match="nothing to tune"):
        build("oht", {}, None)
    with pytest.raises(UserError, match="static"):
        build("static", {}, {"n_step": Choice(1, 2)})


# Static


def test_static_is_constant():
    tuner = build("static", {"replay_ratio": 0.5}, None)
    _, _, proposal, rows = run(tuner, 3, lambda proposal: np.array([7.0]))
    assert proposal.hyper == {name: np.array([value]) for name, value in HYPER.items()}
    assert (proposal.ratios, proposal.actors) == (np.array([0.5]), np.array([0]))
    assert rows[-1] == {"sample/0/agent": 0.0, "sample/0/return": 7.0}


# Arms


def test_arms_are_all_combinations():
    tuner = build("oht-nstep", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)})
    _, proposal = tuner.ask(KEY, tuner.init(KEY), new_agents(tuner), 0)
    assert tuner.population == 6
    np.testing.assert_array_equal(proposal.hyper["n_step"], [1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(proposal.hyper["gamma"], [0.98, 0.99, 0.98, 0.99, 0.98, 0.99])
    np.testing.assert_array_equal(proposal.hyper["tau"], 0.005)


def test_arms_train_all_or_who_plays():
    everyone = build("oht-nstep", {}, None)
    _, proposal = everyone.ask(KEY, everyone.init(KEY), new_agents(everyone), 0)
    np.testing.assert_allclose(proposal.ratios, 2 / 3)
    played = build("oht-nstep", {"train": "played"}, None)
    _, proposal = played.ask(KEY, played.init(KEY), new_agents(played), 0)
    np.testing.assert_array_equal(proposal.ratios, np.eye(3)[proposal.actors[0]])
    full = build("oht-nstep", {"replay_ratio": 1.0}, None)
    _, proposal = full.ask(KEY, full.init(KEY), new_agents(full), 0)
    np.testing.assert_array_equal(proposal.ratios, 1.0)


def test_logits_move_once_in_a_window():
    tuner = build("oht-nstep", {}, None)
    _, _, _, rows = run(tuner, 13, by_value("n_step", lambda n: n))
    logits = [tuple(row[f"n_step/logit/{n}"] for n in (1, 2, 3)) for row in rows]
    assert set(logits[:6]) == {(0.0, 0.0, 0.0)}
    assert len(set(logits[6:12])) == 1
    assert logits[6] != logits[0]
    assert logits[12] != logits[6]
    assert max(map(abs, logits[6])) == pytest.approx(0.02, rel=1e-3)


def test_the_window_is_one_step_of_eqn_4():
    # arms 0 and 1 played with returns 3 and 1: standardised 1 and -1; 1/2 [(1,0,0) - (0,1,0)] = (1/2, -1/2, 0)
    tuner = build("oht-nstep", {"window": 2}, None)
    state, agents = tuner.init(KEY), new_agents(tuner)
    _, proposal = tuner.ask(KEY, state, agents, 0)
    for arm, got in ((0, 3.0), (1, 1.0)):
        state, agents = tuner.tell(KEY, state, agents, proposal._replace(actors=np.array([arm])), np.array([got]))
    np.testing.assert_allclose(state.logits["n_step"].first, 0.1 * np.array([0.5, -0.5, 0.0]), rtol=1e-6)
    np.testing.assert_allclose(state.logits["n_step"].logits, [0.02, -0.02, 0.0], atol=1e-8)


def test_arms_find_the_best_in_every_dimension():
    tuner = build("oht-nstep", {}, {"n_step": Choice(1, 2, 3), "gamma": Choice(0.98, 0.99)})

    def returns(proposal: Proposal) -> np.ndarray:
        arm = proposal.actors
        return proposal.hyper["n_step"][arm] - 100 * proposal.hyper["gamma"][arm]

    state, _, _, rows = run(tuner, 1500, returns)
    assert rows[-1]["champion/n_step"] == 3.0
    assert rows[-1]["champion/gamma"] == 0.98
    assert rows[-1]["n_step/p/3"] > 0.8
    assert rows[-1]["gamma/p/0.98"] > 0.8
    tested = [tuner.champion(jax.random.fold_in(KEY, i), state) for i in range(50)]
    assert tested.count(4) > 30  # n = 3, gamma = 0.98


def test_champion_is_a_draw_from_p_or_its_mode():
    for choice, seen in (("sample", {0, 1, 2}), ("argmax", {1})):
        tuner = build("oht-nstep", {"champion": choice}, None)
        state = tuner.init(KEY)
        logits = state.logits["n_step"]._replace(logits=np.array([0.0, 0.3, 0.0]))
        state = state._replace(logits={"n_step": logits})
        assert {tuner.champion(jax.random.fold_in(KEY, i), state) for i in range(60)} == seen


def test_beta_zero_is_the_control():
    tuner = build("oht-nstep", {"beta": 0.0}, None)
    _, _, _, rows = run(tuner, 300, by_value("n_step", lambda n: n))
    assert rows[-1]["n_step/p/1"] == pytest.approx(1 / 3)
    played = [row["sample/0/agent"] for row in rows]
    assert all(70 < played.count(arm) < 130 for arm in (0, 1, 2))


def test_too_many_arms_and_no_arms():
    with pytest.raises(UserError, match="method oht"):
        build("oht-nstep", {}, {"n_step": Choice(*range(1, 10)), "gamma": Choice(*np.linspace(0.9, 0.99, 8))})
    with pytest.raises(UserError, match="discrete"):
        build("oht-nstep", {}, MIXED)


# Sampled


def test_the_main_agent_is_the_centre():
    tuner = build("oht-lr", {"population": 10, "at_once": 10, "together": True}, None)
    _, _, proposal, _ = run(tuner, 1, zeros)
    assert tuner.population == 11
    assert proposal.hyper["actor_lr"][0] == pytest.approx(1e-3)
    assert len(set(proposal.hyper["actor_lr"])) == 11
    np.testing.assert_array_equal(proposal.actors, np.arange(11))
    np.testing.assert_array_equal(proposal.ratios, [1.0] + 10 * [0.1])
    assert tuner.champion(KEY, tuner.init(KEY)) == 0


def test_members_live_one_after_the_other_and_teach_when_all_have_lived():
    alone = build("oht-lr", {"life": 1, "together": True, "population": 10}, None)
    crowd = build("oht-lr", {"life": 1, "together": True, "population": 10, "at_once": 10}, None)
    assert alone.population == 2
    pays = by_value("critic_lr", np.log10)
    state, agents, rows, drawn = alone.init(KEY), new_agents(alone), [], []
    for i in range(11):
        key = KEY if i == 0 else jax.random.fold_in(KEY, i)
        state, agents, proposal, row = turn(alone, key, state, agents, pays)
        np.testing.assert_array_equal(proposal.ratios, [1.0, 1.0])
        rows.append(row)
        drawn.append(proposal.hyper["critic_lr"][1])
    told, _, proposal, first = turn(crowd, KEY, crowd.init(KEY), new_agents(crowd), pays)
    np.testing.assert_array_equal(drawn[:10], proposal.hyper["critic_lr"][1:])  # the same draws, one by one
    assert {row["critic_lr/mu"] for row in rows[:10]} == {first["critic_lr/mu"]}
    assert rows[10]["critic_lr/mu"] == pytest.approx(told.gaussian.mu[1])
    assert told.gaussian.mu[1] != first["critic_lr/mu"]


@pytest.mark.parametrize("episodes", [1, 2])
def test_agents_take_turns_and_teach_what_they_teach_together(episodes):
    settings = {"life": 2, "population": 4, "at_once": 2, "episodes": episodes}
    in_turn, together = build("oht-lr", settings, None), build("oht-lr", {**settings, "together": True}, None)
    pays = by_value("critic_lr", np.log10)
    state, agents, order = in_turn.init(KEY), new_agents(in_turn), []
    for i in range(12):  # 2 lives of 2 rounds of 3 turns
        state, agents, proposal, row = turn(in_turn, KEY, state, agents, pays)
        assert row["champion/critic_lr"] == (
            proposal.hyper["critic_lr"].max() if i in (5, 11) else proposal.hyper["critic_lr"][0]
        )
        assert proposal.since == i % 3
        assert len(proposal.actors) == episodes
        order.append(int(proposal.actors[0]))
    assert order == [0, 1, 2, 2, 1, 0] * 2  # whoever is the first of a round is the last of the next
    told, after = together.init(KEY), new_agents(together)
    for _ in range(4):
        told, after, proposal, _ = turn(together, KEY, told, after, pays)
        assert proposal.since == 0
    jax.tree.map(np.testing.assert_allclose, (state, agents), (told, after))
    assert told.gaussian.mu[1] > -3


@pytest.mark.parametrize(
    ("life", "margin", "heirs"),
    [
        # ahead by 1, 3, 5: mean 3, standard deviation 2, error 2 / sqrt(3) = 1.155
        ([[0, 0, 0], [1, 3, 5]], 0.0, [1, 1]),
        ([[0, 0, 0], [1, 3, 5]], 2.59, [1, 1]),
        ([[0, 0, 0], [1, 3, 5]], 2.61, [0, 1]),
        ([[1, 3, 5], [0, 0, 0]], 2.59, [0, 0]),  # it is the same the other way round
        ([[1, 3, 5], [0, 0, 0]], 2.61, [0, 1]),
        ([[7, 8, 9], [8, 11, 14]], 2.59, [1, 1]),  # the same differences
        # the second has the better mean, 4, but is not sure of it: its error is 4
        ([[0, 0, 0], [0, 0, 12], [1, 3, 5]], 1.5, [2, 1, 2]),
        ([[0, 0, 0], [0, 0, 12], [1, 3, 5]], 0.5, [1, 1, 2]),  # and 1 ahead of the third with an error of 3
        ([[0, 0, 0], [0, 0, 12], [1, 3, 5]], 0.0, [1, 1, 1]),
        ([[3], [4]], 100.0, [1, 1]),  # one round has no error
        ([[3], [3]], 0.0, [0, 0]),
        ([[-np.inf, 3], [1, 2]], 1.0, [1, 1]),
        ([[5, 3], [-np.inf, 9]], 1.0, [0, 0]),
        ([[-np.inf, 3], [np.nan, 2]], 0.0, [0, 0]),
    ],
)
def test_who_is_copied_is_ahead_by_more_than_luck(life, margin, heirs):
    np.testing.assert_array_equal(sampled.heirs(np.array(life, float), margin), heirs)


def test_how_far_members_are_ahead():
    life = np.array([[1.0, 3.0], [4.0, 4.0], [-np.inf, 9.0]])
    np.testing.assert_array_equal(sampled.ahead(life, 2), [2.0, -np.inf])
    np.testing.assert_array_equal(sampled.ahead(life[1:], 2), [4.0, -np.inf])  # the main agent watches
    np.testing.assert_array_equal(sampled.ahead(life[::-1], 2), [0.0, 0.0])  # nobody knows: it diverged
    np.testing.assert_array_equal(sampled.ahead(life[[2, 2]], 1), [-np.inf])


@pytest.mark.parametrize("when", range(4))  # of a life of two rounds in which two play
def test_who_diverges_has_lived_badly_even_out_of_turn(when):
    tuner = build("oht-lr", {"life": 2, "population": 2}, None)
    state, agents = tuner.init(KEY), new_agents(tuner)
    for i in range(4):
        state, proposal = tuner.ask(KEY, state, agents, 0)
        proposal = proposal._replace(sick=[1] if i == when else [])
        row = tuner.record(state, proposal, [float(proposal.actors[0])])
        assert row["champion/critic_lr"] == proposal.hyper["critic_lr"][0]
        state, agents = tuner.tell(KEY, state, agents, proposal, proposal.actors.astype(float))
    assert state.returns[0] == -np.inf
    np.testing.assert_array_equal(agents["w"][1], new_agents(tuner)["w"][0])
    assert not state.life.any()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"at_once": 3}, "not a multiple of at_once 3"),
        ({"at_once": 20}, "not a multiple of at_once 20"),
        ({"at_once": 2, "members": "persist"}, "at_once must be 4"),
    ],
)
def test_how_many_play_at_once(settings, sentence):
    with pytest.raises(UserError, match=sentence):
        build("oht-lr", settings, None)


def test_antithetic_learning_rates():
    tuner = build("oht-lr", {"population": 10, "at_once": 10}, None)
    _, _, proposal, _ = run(tuner, 1, zeros)
    rates = np.log10(proposal.hyper["critic_lr"][1:])
    np.testing.assert_allclose(rates[0::2] + rates[1::2], -6.0)


@pytest.mark.parametrize(
    ("settings", "returns", "sources"),
    [
        ({"members": "fork", "main": "plays"}, [0, 1, 2, 9, 3], [0, 0, 0, 0, 0]),
        ({"members": "fork", "main": "watches"}, [1, 2, 9, 3], [0, 0, 0, 0, 0]),
        ({"members": "fork"}, [0, 1, 2, 9, 3], [3, 3, 3, 3, 3]),
        ({"members": "fork"}, [9, 1, 2, 9, 3], [0, 0, 0, 3, 0]),  # as good as the main agent is not better, nor worse
        ({"members": "fork", "margin": 0.0}, [9, 1, 2, 9, 3], [0, 0, 0, 0, 0]),
        ({"members": "fork"}, [-7, -np.inf, -8, -np.inf, np.nan], [0, 0, 0, 0, 0]),
        ({"members": "fork", "episodes": 2}, [0, 0, 5, 5, 9, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1]),
        ({"members": "persist", "main": "plays"}, [0, 1, 2, 9, 3], [0, 1, 2, 3, 4]),
        ({"members": "persist"}, [0, 1, 2, 9, 3], [3, 1, 2, 3, 4]),
    ],
)
def test_who_goes_on_as_whose_copy(settings, returns, sources):
    tuner = build("oht-lr", {"population": 4, "at_once": 4, "life": 1, "together": True, **settings}, None)
    agents = new_agents(tuner)
    state, proposal = tuner.ask(KEY, tuner.init(KEY), agents, 0)
    assert proposal.agents is agents
    _, after = tuner.tell(KEY, state, agents, proposal, np.array(returns, float))
    for name, leaf in agents.items():
        np.testing.assert_array_equal(after[name], leaf[np.array(sources)])
    row = tuner.record(state, proposal, returns)
    assert row["champion/actor_lr"] == proposal.hyper["actor_lr"][sources[0]]


@pytest.mark.parametrize(
    ("settings", "sources"),
    [
        ({"margin": 1.0}, [2, 1, 2, 2, 2]),  # the first member's 0 and 20 may be luck, the second's 6 and 7 are not
        ({"margin": 0.0}, [1, 1, 1, 1, 1]),
        ({"margin": 1.0, "main": "plays"}, [0, 0, 0, 0, 0]),
        ({"margin": 1.0, "members": "persist"}, [2, 1, 2, 3, 4]),
    ],
)
def test_who_is_not_clearly_behind_keeps_its_weights(settings, sources):
    tuner = build("oht-lr", {"population": 4, "at_once": 4, "life": 2, "together": True, **settings}, None)
    state, agents = tuner.init(KEY), new_agents(tuner)
    before = agents
    for returns in ([1, 0, 6, 2, -np.inf], [1, 20, 7, 0, 3]):
        state, proposal = tuner.ask(KEY, state, agents, 0)
        state, agents = tuner.tell(KEY, state, agents, proposal, np.array(returns, float))
    for name, leaf in before.items():
        np.testing.assert_array_equal(agents[name], leaf[np.array(sources)])


@pytest.mark.parametrize("search", ["cem", "es"])
def test_learning_rates_move_to_what_pays(search):
    crowd = {"population": 30, "at_once": 30, "together": True}
    tuner = build("oht-lr", {"search": search, "main": "plays", "life": 1, **crowd}, None)
    _, _, proposal, rows = run(tuner, 60, by_value("critic_lr", lambda rate: -abs(np.log10(rate) + 3.5)))
    assert np.log10(proposal.hyper["critic_lr"][0]) == pytest.approx(-3.5, abs=0.15)
    assert rows[-1]["critic_lr/mu"] == pytest.approx(np.log10(rows[-1]["champion/critic_lr"]))
    assert rows[0]["actor_lr/sigma"] == 0.5
    assert (rows[-1]["actor_lr/sigma"] < 0.1) == (search == "cem")


def test_tied_learning_rates_move_together():
    tuner = build(
        "oht-lr",
        {"es_rate": 0.5, "main": "plays", "life": 1, "together": True},
        {"actor_lr+critic_lr": LogFloat(1e-5, 1.0)},
    )
    _, _, proposal, rows = run(tuner, 50, by_value("critic_lr", np.log10))
    np.testing.assert_array_equal(proposal.hyper["actor_lr"], proposal.hyper["critic_lr"])
    assert rows[-1]["actor_lr+critic_lr/mu"] > -4
    assert rows[-1]["champion/actor_lr"] == pytest.approx(10 ** rows[-1]["actor_lr+critic_lr/mu"])
    with pytest.raises(UserError, match="each hyper-parameter by itself"):
        build("pbt", {}, {"actor_lr+critic_lr": LogFloat(1e-3)})


def test_discrete_and_continuous_together():
    crowd = {"population": 30, "at_once": 30, "together": True}
    tuner = build("oht", {"beta": 0.1, "main": "plays", "life": 1, **crowd}, MIXED)

    def returns(proposal: Proposal) -> np.ndarray:
        n, rate = proposal.hyper["n_step"][proposal.actors], proposal.hyper["critic_lr"][proposal.actors]
        return -abs(n - 2) - abs(np.log10(rate) + 4)

    _, _, proposal, rows = run(tuner, 80, returns)
    assert rows[0]["champion/n_step"] == 1.0  # the algorithm's own, while all are equal
    assert proposal.hyper["n_step"][0] == 2.0
    assert rows[-1]["n_step/p/2"] > 0.8
    assert np.log10(proposal.hyper["critic_lr"][0]) == pytest.approx(-4, abs=0.2)


def test_returns_of_a_member_are_averaged():
    # Of four members with two episodes each, 2 and 3 have the best means though 4 has the best episode.
    settings = {"search": "cem", "population": 4, "at_once": 4, "episodes": 2, "main": "watches", "life": 1}
    tuner = build("oht-lr", {**settings, "together": True}, None)
    state, proposal = tuner.ask(KEY, tuner.init(KEY), new_agents(tuner), 0)
    np.testing.assert_array_equal(proposal.actors, [1, 1, 2, 2, 3, 3, 4, 4])
    told, _ = tuner.tell(KEY, state, proposal.agents, proposal, np.array([0, 0, 5, 5, 6, 4, -9, 9.0]))
    np.testing.assert_allclose(told.gaussian.mu, state.points[[1, 2]].mean(axis=0))


def test_a_member_is_judged_by_its_whole_life_beside_the_main_agent():
    tuner = build("oht-lr", {"population": 2, "life": 3, "together": True, "margin": 0.0}, None)
    agents = new_agents(tuner)
    state = tuner.init(KEY)
    # all get better; the first member is 6 better than the main agent in the mean of its life, the second 3 worse
    lives = [([0, 1], [10, 8], [20, 39]), ([100, 105], [110, 100], [120, 116])]
    for i, (main, member) in enumerate(returns for life in lives for returns in life):
        key = jax.random.fold_in(KEY, i)
        state, proposal = tuner.ask(key, state, agents, 0)
        np.testing.assert_array_equal(proposal.actors, [0, 1])
        row = tuner.record(state, proposal, [main, member])
        before, (state, agents) = agents, tuner.tell(key, state, agents, proposal, np.array([main, member], float))
        adopted = i == 2
        assert row["champion/critic_lr"] == proposal.hyper["critic_lr"][int(adopted)]
        if i % 3 < 2:
            assert agents is before
        else:
            np.testing.assert_array_equal(agents["w"], np.tile(before["w"][int(adopted)], (2, 1)))
        if i == 4:
            np.testing.assert_allclose(state.returns[0], 6.0)
            assert state.gaussian.mu[1] == -3
    np.testing.assert_allclose(state.returns, [6.0, -3.0])
    better = state.points[0] - state.points[1]
    np.testing.assert_array_equal(np.sign(state.gaussian.mu + 3), np.sign(better))


def test_the_main_agent_is_what_members_are_measured_by_and_may_only_watch():
    settings = {"population": 4, "at_once": 2, "life": 1, "together": True}
    tuner = build("oht-lr", settings, None)
    rising = itertools.count(0, 1000)  # what all get, whatever their values

    def returns(proposal: Proposal) -> np.ndarray:
        return next(rising) + np.log10(proposal.hyper["actor_lr"][proposal.actors])

    state = run(tuner, 2, returns)[0]
    still = run(build("oht-lr", settings, None), 2, by_value("actor_lr", np.log10))[0]
    np.testing.assert_allclose(state.gaussian.mu, still.gaussian.mu)
    assert state.gaussian.mu[0] > -3
    silent = build("oht-lr", {**settings, "main": "watches"}, None)
    np.testing.assert_array_equal(run(silent, 1, zeros)[2].actors, [1, 2])


def test_exploration_noise_is_a_switch():
    assert build("oht-lr", {}, None).explore
    assert not build("oht-lr", {"explore": False}, None).explore


def test_sigma_zero_is_the_control():
    tuner = build("oht-lr", {"life": 1}, {"actor_lr": LogFloat(1e-3, 0.0), "critic_lr": LogFloat(1e-3, 0.0)})
    rng = np.random.default_rng(0)
    _, _, proposal, rows = run(tuner, 21, lambda proposal: rng.standard_normal(len(proposal.actors)))
    np.testing.assert_allclose(proposal.hyper["actor_lr"], 1e-3)
    assert rows[-1]["critic_lr/mu"] == -3.0


def test_values_stay_within_bounds_whatever_the_returns():
    tune = {"actor_lr": LogFloat(1e-2, 2.0, 1e-3, 1e-1), "n_step": Int(3, 5, 1, 5), "gamma": Float(0.99, 0.5, 0.9, 1.0)}
    tuner = build("oht", {"search": "es", "es_rate": 10.0, "fitness": "raw", "life": 1}, tune)
    state, agents = tuner.init(KEY), new_agents(tuner)
    for i in range(20):
        returns = by_value("actor_lr", lambda rate: 1e3 * rate)
        state, agents, proposal, _ = turn(tuner, jax.random.fold_in(KEY, i), state, agents, returns)
        for name, dim in tune.items():
            assert ((dim.low <= proposal.hyper[name]) & (proposal.hyper[name] <= dim.high)).all()


def test_cem_needs_elites():
    with pytest.raises(UserError, match="elites"):
        build("oht-lr", {"search": "cem", "population": 2}, None)


def test_random_draws_afresh_and_learns_nothing():
    tuner = build("random", {"life": 1, "together": True}, None)
    state, _, first, _ = run(tuner, 1, by_value("actor_lr", np.log10))
    jax.tree.map(np.testing.assert_array_equal, state.gaussian, tuner.init(KEY).gaussian)
    _, second = tuner.ask(jax.random.fold_in(KEY, 9), state, first.agents, 0)
    assert (first.hyper["actor_lr"][1:] != second.hyper["actor_lr"][1:]).all()
    assert second.hyper["actor_lr"][0] == pytest.approx(1e-3)


def test_oht_gives_few_combinations_an_agent_each():
    assert build("oht", {}, {"n_step": Choice(1, 2, 3)}).population == 3
    assert build("oht", {}, {"n_step": Choice(*range(1, 10))}).population == 2  # the main agent and a member
    assert build("oht", {"at_once": 2}, MIXED).population == 3
    assert issubclass(METHODS["oht"].settings, arms.Arms)
    assert issubclass(METHODS["oht"].settings, sampled.Sampled)


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
    agents = new_agents(tuner)
    for env_steps, n, rate in ((0, 1, 0.001), (99, 1, 0.001), (100, 3, 0.01), (250, 3, 0.01)):
        _, proposal = tuner.ask(KEY, tuner.init(KEY), agents, env_steps)
        assert proposal.hyper["n_step"] == n
        assert proposal.hyper["actor_lr"] == rate
        assert proposal.hyper["critic_lr"] == 1e-3
        assert proposal.ratios == 0.5
    row = tuner.record((), proposal, [4.0])
    assert row["champion/n_step"] == 3.0
    assert row["sample/0/return"] == 4.0
    assert METHODS["schedule"].max_n(schedule.Schedule(str(source / "schedule.csv")), {}, HYPER) == 3


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
