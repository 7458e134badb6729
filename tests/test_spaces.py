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
    ],
)
def test_parse(text, dim):
    assert parse(text) == dim


def test_format_is_short():
    assert format(Choice(1, 2, 0.5)) == "1,2,0.5"
    assert format(LogFloat(1e-3, 0.5, 1e-6, 1e-1)) == "log:0.001:0.5:1e-06:0.1"
    assert format(Int(3, high=5)) == "int:3:1::5"


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
        lambda: parse(["a"]),  # pyright: ignore[reportArgumentType]
    ],
)
def test_nonsense_is_refused_in_one_sentence(wrong):
    with pytest.raises(UserError) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_sigma_zero_is_allowed():
    assert LogFloat(1e-3, 0.0).sigma == 0.0


def test_unknown_name_lists_the_known():
    with pytest.raises(UserError, match="actor_lr, critic_lr, gamma, n_step, noise, offset, tau"):
        Space({"learning_rate": LogFloat(1e-3)}, HYPER)


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
        ({"actor_lr+crtic_lr": LogFloat(1e-3)}, "no hyper-parameter 'crtic_lr'"),
        ({"actor_lr+critic_lr": LogFloat(1e-3), "actor_lr": LogFloat(1e-3)}, "actor_lr is tuned twice"),
        ({"actor_lr+critic_lr": Choice(1e-3, 1e-4)}, "cannot be tied"),
        ({"noise+n_step": Int(3, 1, 1, 5)}, "cannot be tied"),
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


def test_max_n():
    assert spaces.max_n({}, HYPER) == 1
    assert spaces.max_n({"n_step": Choice(1, 5, 3)}, HYPER) == 5
    assert spaces.max_n({"n_step": Int(3, 1, 1, 7)}, HYPER) == 7
    assert spaces.max_n({"n_step": Int(3)}, HYPER) == 10
