import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oht import spaces
from oht.errors import UserError
from oht.spaces import Choice, Float, Int, LogFloat, Space, format, parse

HYPER = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.99, "n_step": 1, "tau": 0.005, "noise": 0.1, "offset": -2.0}

numbers = st.floats(-1e6, 1e6)
positive = st.floats(1e-9, 1e6)


@st.composite
def dimensions(draw):
    kind = draw(st.sampled_from([Choice, Float, LogFloat, Int]))
    if kind is Choice:
        return Choice(*draw(st.lists(numbers, min_size=1, max_size=5, unique=True)))
    value = {Float: numbers, LogFloat: positive, Int: st.integers(-1000, 1000)}[kind]
    low, init, high = sorted(draw(st.tuples(value, value, value)))
    if low < high and draw(st.booleans()):
        return kind(low=low, high=high)
    bounds = (
        draw(st.sampled_from([(None, None), (low, None), (None, high), (low, high)])) if low < high else (None, None)
    )
    return kind(init, draw(st.floats(0, 10)), *bounds)


@given(dimensions())
def test_text_round_trip(dim):
    assert parse(format(dim)) == dim


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("1,2,3", Choice(1, 2, 3)),
        ("0.5, 1e-2", Choice(0.5, 0.01)),
        ([1, 2, 3], Choice(1, 2, 3)),
        (4, Choice(4)),
        ("log:1e-3", LogFloat(1e-3, 0.5)),
        ("log:1e-3:0.2", LogFloat(1e-3, 0.2)),
        ("log:1e-3:0.5:1e-6:1e-1", LogFloat(1e-3, 0.5, 1e-6, 1e-1)),
        ("log:1e-3::1e-6:", LogFloat(1e-3, 0.5, low=1e-6)),
        ("float:0.99:0.01", Float(0.99, 0.01)),
        ("int:3:1:1:5", Int(3, 1, 1, 5)),
        ("int:3", Int(3)),
        ("log:1e-5..1e-2", LogFloat(low=1e-5, high=1e-2)),
        (" log : 1e-5 .. 1e-2 ", LogFloat(low=1e-5, high=1e-2)),
        ("float:0.9..0.999", Float(low=0.9, high=0.999)),
        ("float:-2..-0.5", Float(low=-2, high=-0.5)),
        ("int:1..5", Int(low=1, high=5)),
        ("0.9..0.999", Float(low=0.9, high=0.999)),
    ],
)
def test_parse(text, dim):
    assert parse(text) == dim


def test_format_is_short():
    assert format(Choice(1, 2, 0.5)) == "1,2,0.5"
    assert format(LogFloat(1e-3, 0.5, 1e-6, 1e-1)) == "log:0.001:0.5:1e-06:0.1"
    assert format(Int(3, high=5)) == "int:3:1::5"
    assert format(LogFloat(low=1e-5, high=1e-2)) == "log:1e-05..0.01"
    assert format(Int(low=1, high=5)) == "int:1..5"


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        ("n_step", Int(low=1, high=5)),  # a whole number
        ("noise+n_step", Int(low=1, high=5)),
        ("gamma", Float(low=1, high=5)),
        ("effort", Float(low=1, high=5)),
    ],
)
def test_the_name_decides_the_kind_of_a_bare_range(name, dim):
    assert parse("1..5", name) == dim


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Choice(),
        lambda: Choice(1, 1),
        lambda: Choice(math.nan),
        lambda: Choice("a"),  # pyright: ignore[reportArgumentType]
        lambda: LogFloat(0.0),
        lambda: LogFloat(-1e-3),
        lambda: LogFloat(1e-3, low=0.0),
        lambda: LogFloat(1e-3, sigma=-0.1),
        lambda: LogFloat(1e-3, low=1e-2),
        lambda: LogFloat(math.inf),
        lambda: Float(0.5, 0.1, 1.0, 0.0),
        lambda: Float(0.5, 0.1, 0.5, 0.5),
        lambda: Float(0.5, math.nan),
        lambda: Float(0.5, 0.1, low=math.nan),
        lambda: Int(1.5),
        lambda: Int(1, high=2.5),
        lambda: parse(""),
        lambda: parse("1,,2"),
        lambda: parse("one"),
        lambda: parse("lgo:1e-3"),
        lambda: parse("log:"),
        lambda: parse("log:x"),
        lambda: parse("float:1"),
        lambda: parse("log:1:1:1:1:1"),
        lambda: parse([]),
        lambda: LogFloat(),
        lambda: LogFloat(low=1e-5),
        lambda: LogFloat(high=1e-2),
        lambda: LogFloat(sigma=0.5),
        lambda: LogFloat(sigma=0.5, low=1e-5, high=1e-2),
        lambda: LogFloat(low=0, high=1e-2),
        lambda: LogFloat(low=1e-2, high=1e-5),
        lambda: Float(0.5),
        lambda: Float(low=0.5, high=math.inf),
        lambda: Int(low=1.5, high=3),
        lambda: parse("1.."),
        lambda: parse("..2"),
        lambda: parse("2..1"),
        lambda: parse("1..2..3"),
        lambda: parse("log:1e-5..1e-2:0.5"),
        lambda: parse("lgo:1e-5..1e-2"),
        lambda: parse("log:0..1"),
        lambda: parse((1, 2, 3)),
        lambda: parse((0.1, "a")),  # pyright: ignore[reportArgumentType]
        lambda: parse(()),
        lambda: parse(["a"]),  # pyright: ignore[reportArgumentType]
    ],
)
def test_nonsense_is_refused_in_one_sentence(wrong):
    with pytest.raises(UserError) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_sigma_zero_is_allowed():
    assert LogFloat(1e-3, 0.0).sigma == 0.0


def test_an_unknown_name_is_refused_with_what_there_is():
    for name, hint in {
        "zzz": "known: actor_lr, critic_lr, gamma, n_step, noise, offset, tau",
        "gama": "did you mean 'gamma'?",
        "learning_rate": "actor_lr and critic_lr",
    }.items():
        with pytest.raises(UserError, match=f"unknown hyper-parameter '{name}'") as error:
            Space({name: LogFloat(1e-3)}, HYPER)
        assert hint in str(error.value)


def test_the_replay_ratio_is_refused_where_there_is_no_budget():
    with pytest.raises(UserError, match="replay_ratio can only be tuned by the methods oht and random"):
        Space({"replay_ratio": Choice(1, 2)}, HYPER)
    Space({"replay_ratio": Choice(1, 2)}, {**HYPER, "replay_ratio": 1.0})


@pytest.mark.parametrize(
    "dim", [Choice(0, 1), Choice(1.5), Int(3, low=0), LogFloat(3), Float(3, 1), Int(3, 1, 1, math.inf)]
)
def test_n_step_is_a_whole_number_from_1_on(dim):
    with pytest.raises(UserError, match="n_step"):
        Space({"n_step": dim}, HYPER)


def test_encode_and_decode_by_hand():
    space = Space(
        {"n_step": Choice(1, 2), "actor_lr": LogFloat(1e-3), "gamma": Float(0.99, 0.01), "noise": Int(3)}, HYPER
    )
    np.testing.assert_allclose(space.mu, [-3.0, 0.99, 3.0])
    np.testing.assert_allclose(space.sigma, [0.5, 0.01, 1.0])
    decoded = space.decode(np.array([[-2.0, 0.95, 2.4], [-4.0, 0.97, 2.6]]))
    np.testing.assert_allclose(decoded["actor_lr"], [1e-2, 1e-4])
    np.testing.assert_allclose(decoded["gamma"], [0.95, 0.97])
    np.testing.assert_allclose(decoded["noise"], [2.0, 3.0])
    assert list(space.choices) == ["n_step"]


def test_tied_hyper_parameters_share_one_value():
    space = Space({"actor_lr+critic_lr": LogFloat(1e-3, 0.5), "gamma": Float(0.99, 0.01)}, HYPER)
    assert space.names == ("actor_lr", "critic_lr", "gamma")
    np.testing.assert_allclose(space.mu, [-3.0, 0.99])
    decoded = space.decode(np.array([[-2.0, 0.95], [-9.0, 0.97]]))
    np.testing.assert_allclose(decoded["actor_lr"], [1e-2, 1e-6])  # the usual bounds of a learning rate
    np.testing.assert_array_equal(decoded["actor_lr"], decoded["critic_lr"])
    assert space.extremes()[0] == {"actor_lr": 1e-6, "critic_lr": 1e-6, "gamma": 0.9}


@pytest.mark.parametrize(
    ("tune", "sentence"),
    [
        ({"actor_lr+crtic_lr": LogFloat(1e-3)}, "unknown hyper-parameter 'crtic_lr'"),
        ({"actor_lr+critic_lr": LogFloat(1e-3), "actor_lr": LogFloat(1e-3)}, "actor_lr is tuned twice"),
        ({"actor_lr+actor_lr": LogFloat(1e-3)}, "actor_lr is tuned twice"),
        ({"noise+n_step": Float(low=1, high=5)}, "n_step is a whole number"),
        ({"noise+n_step": Choice(1, 1.5)}, "n_step is a whole number"),
        ({"noise+n_step": Choice(0, 1)}, "n_step is a whole number from 1"),
    ],
)
def test_what_cannot_be_tied(tune, sentence):
    with pytest.raises(UserError, match=sentence):
        Space(tune, HYPER)


def test_bounds_that_are_not_given():
    tune = {
        "actor_lr": LogFloat(1e-3),  # usual for its name
        "critic_lr": LogFloat(0.5),  # ... widened to hold init
        "gamma": Float(0.99, 0.01, low=0.95),  # ... one side given
        "noise": LogFloat(0.1),  # no usual name: three decades either way
        "offset": Float(-2.0, 1.0),  # keeps its sign
        "tau": Float(0.005, 0.001, 0.0, 0.5),
    }
    low, high = Space(tune, HYPER).bounds
    np.testing.assert_allclose(low, [-6, -6, 0.95, -4, -math.inf, 0.0])
    np.testing.assert_allclose(high, [-1, math.log10(0.5), 0.9999, 2, 0.0, 0.5])


@given(st.lists(st.floats(-100, 100), min_size=4, max_size=4))
def test_values_never_leave_their_bounds(point):
    tune = {
        "actor_lr": LogFloat(1e-3, 0.5, 1e-6, 1e-1),
        "gamma": Float(0.99, 0.01, 0.9, 1.0),
        "n_step": Int(3, 1, 1, 5),
        "tau": LogFloat(0.005, 0.5, 3e-4, 0.3),
    }
    decoded = Space(tune, HYPER).decode(np.array(point))
    for name, dim in tune.items():
        assert dim.low is not None
        assert dim.high is not None
        assert dim.low <= decoded[name] <= dim.high
    assert decoded["n_step"] == int(decoded["n_step"])


def test_tied_choices_apply_to_all_their_names():
    space = Space({"actor_lr+critic_lr": Choice(1e-4, 1e-3), "noise+n_step": Choice(1, 2)}, HYPER)
    assert list(space.choices) == ["actor_lr+critic_lr", "noise+n_step"]
    assert space.names == ("actor_lr", "critic_lr", "noise", "n_step")
    assert space.extremes()[1] == {"actor_lr": 1e-3, "critic_lr": 1e-3, "noise": 2, "n_step": 2}
    values = space.untie({"actor_lr+critic_lr": 1e-4, "noise+n_step": 2})
    assert values == {"actor_lr": 1e-4, "critic_lr": 1e-4, "noise": 2, "n_step": 2}


def test_a_range_starts_at_the_value_of_the_run_or_in_its_middle():
    tune = {
        "actor_lr": LogFloat(low=1e-5, high=1e-2),
        "critic_lr": LogFloat(low=1e-6, high=1e-4),  # 1e-3 is not in it
        "gamma": Float(low=0.9, high=0.999),
        "tau": Float(low=0.01, high=0.03),
        "n_step": Int(low=1, high=5),
        "noise": Int(low=3, high=4),
    }
    space = Space(tune, {**HYPER, "actor_lr": 3e-4})
    np.testing.assert_allclose(space.mu, [math.log10(3e-4), -5.0, 0.99, 0.02, 1.0, 4.0])
    np.testing.assert_allclose(space.sigma, [0.75, 0.5, 0.099 / 4, 0.005, 1.0, 0.5])
    low, high = space.bounds
    np.testing.assert_allclose(low, [-5, -6, 0.9, 0.01, 1, 3])
    np.testing.assert_allclose(high, [-2, -4, 0.999, 0.03, 5, 4])
    assert all(dim.is_range for dim in space.continuous.values())
    assert [format(dim) for dim in space.continuous.values()] == [format(dim) for dim in tune.values()]


def test_a_dimension_remembers_how_it_was_given():
    tune = {"actor_lr": LogFloat(1e-3, 0.5, 1e-5, 1e-2), "critic_lr": LogFloat(low=1e-5, high=1e-2)}
    continuous = Space(tune, HYPER).continuous
    assert not continuous["actor_lr"].is_range
    assert continuous["critic_lr"].is_range
    assert LogFloat(1e-3, 0.5, 1e-5, 1e-2) != LogFloat(low=1e-5, high=1e-2)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("critic_lr", "log:1e-4:1e-2", "critic_lr=log:1e-4..1e-2"),
        ("actor_lr+critic_lr", "log:1e-5:1e-3", "actor_lr+critic_lr=log:1e-5..1e-3"),
        ("critic_lr", "log:1e-3:6", "too wide"),
        ("gamma", "float:0.9:0.99", "gamma=float:0.9..0.99"),
        ("gamma", "float:0.99:0.9", "gamma=float:0.9..0.99"),
        ("n_step", "int:1:10", "n_step=int:1..10"),
    ],
)
def test_a_deviation_that_was_meant_as_a_range_is_refused(name, text, hint):
    with pytest.raises(UserError) as error:
        Space({name: parse(text)}, HYPER)
    assert hint in str(error.value)
    assert "too" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("critic_lr", "log:1e-3:0.02"),
        ("critic_lr", "log:1e-3:0"),
        ("critic_lr", "log:1e-4:0.01:1e-5:1e-3"),  # with bounds there is no doubt
        ("gamma", "float:0.99:0.01"),
        ("gamma", "float:0.9:0.99:0:1"),
        ("n_step", "int:3:2"),
        ("offset", "float:-2:100"),  # nothing is known of it
    ],
)
def test_a_deviation_that_can_be_meant_is_taken(name, text):
    assert Space({name: parse(text)}, HYPER).sigma[0] == parse(text).sigma  # pyright: ignore


@pytest.mark.parametrize(
    ("name", "given", "ways"),
    [
        ("critic_lr", (1e-4, 1e-2), ["oht.Choice(1e-4, 1e-2)", "oht.LogFloat(low=1e-4, high=1e-2)"]),
        ("gamma", (0.9, 0.99), ["oht.Choice(0.9, 0.99)", "oht.Float(low=0.9, high=0.99)"]),
        ("n_step", (1, 5), ["oht.Choice(1, 5)", "oht.Int(low=1, high=5)"]),
        ("n_step", (1, 2, 3), ["oht.Choice(1, 2, 3)", "high="]),
    ],
)
def test_a_tuple_is_refused_with_the_two_ways_to_say_it(name, given, ways):
    with pytest.raises(UserError) as error:
        parse(given, name)
    assert all(way in str(error.value) for way in (name, *ways))


def test_a_bare_range_over_decades_must_name_its_scale():
    with pytest.raises(UserError, match=r"log:1e-5..1e-2 .*float:1e-5..1e-2"):
        parse("1e-5..1e-2", "critic_lr")
    assert parse("1e-4..1e-3", "critic_lr") == Float(low=1e-4, high=1e-3)
    assert parse("1..1000", "n_step") == Int(low=1, high=1000)


def test_every_space_in_words():
    tune = {
        "critic_lr": LogFloat(low=1e-5, high=1e-2),
        "gamma": Float(low=0.9, high=0.999),
        "n_step": Int(low=1, high=5),
    }
    assert spaces.descriptions(tune, HYPER) == [
        "critic_lr: 1e-5 to 1e-2 on a log scale, start 1e-3",
        "gamma: 0.9 to 0.999 on a linear scale, start 0.99",
        "n_step: 1 to 5, whole numbers, start 1",
    ]
    tune = {
        "actor_lr+critic_lr": LogFloat(3e-4, 0.5),
        "gamma": Float(0.99, 0.01),
        "n_step": Choice(1, 2, 3),
        "offset": Float(-2, 1),
        "noise": Choice(0.5),
    }
    assert spaces.descriptions(tune, HYPER) == [
        "actor_lr and critic_lr (same value): 1e-6 to 0.1 on a log scale, start 3e-4, standard deviation 0.5 decades",
        "gamma: 0.9 to 0.9999 on a linear scale, start 0.99, standard deviation 1e-2",
        "n_step: one of 1, 2, 3",
        "offset: at most 0 on a linear scale, start -2, standard deviation 1",
        "noise: 0.5",
    ]
    assert spaces.describe("critic_lr", LogFloat(low=1e-5, high=1e-2)) == "critic_lr: 1e-5 to 1e-2 on a log scale"
