"""A mistake in a tuner of a user's own is a sentence when it is made, not a wrong run or one that cannot be loaded."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import oht
from environments import FollowObservation
from oht.errors import UserError
from oht.types import Method, Proposal, Tuner
from test_training import TINY


@dataclass(frozen=True)
class NoSettings:
    pass


class State(NamedTuple):
    history: Any
    parts: dict[str, Any]


STATE = State(np.zeros(2), {"x": 1.0})


def method(
    state: Any = STATE, tell=None, champion=lambda rng, state: np.int64(1), hyper: Any = None, **wrong: Any
) -> Method:
    """Two agents that learn and play, but for what is wrong."""

    def make(own, tune, base):
        values = {name: np.full(2, value, float) for name, value in base.items()} | (hyper or {})
        both = np.arange(2)
        right = {"hyper": values, "ratios": np.ones(2), "sources": both, "actors": both, "starts": both}

        def ask(rng, state, clock):
            return state, Proposal(**{**right, **wrong})

        return Tuner(2, lambda rng: state, ask, tell or (lambda rng, state, p, o: (state, {"x": 1.0})), champion)

    return Method("own", NoSettings, make)


def train(out, own: Method) -> oht.Run:
    return oht.train(FollowObservation, method=own, out=out, **TINY)


def grown(rng, state, proposal, outcome):
    return state._replace(history=np.append(state.history, 1.0)), {"x": 1.0}


MISTAKES = {
    "a state that grows": (
        {"tell": grown},
        r"state.history is of shape \(3,\), and before it was of shape \(2,\); a checkpoint needs the same arrays",
    ),
    "a list that grows": (
        {"state": [1.0], "tell": lambda rng, state, p, o: ([*state, 1.0], {})},
        r"a state in which state\[1\] is of shape \(\), and before it was missing",
    ),
    "an object": ({"state": State(object(), {})}, "has a object at state.history, which no checkpoint can hold"),
    "one answer": ({"tell": lambda rng, state, p, o: state}, r"tell of .* returned a State, not \(state, row\)"),
    "a text in the row": ({"tell": lambda rng, state, p, o: (state, {"who": "me"})}, "the row of .* has who = me"),
    "no row": ({"tell": lambda rng, state, p, o: (state, None)}, r"\(state, NoneType\), not \(state, row\)"),
    "a source too many": ({"sources": [0, 5]}, r"proposes sources of \[0, 5\], but must list agents .* -1 to 1"),
    "a source below -1": ({"sources": [0, -2]}, r"proposes sources of \[0, -2\]"),
    "one source": ({"sources": [0]}, "proposes 1 sources, but there are 2 agents"),
    "an actor from the end": ({"actors": np.array([0, -1])}, r"proposes actors of \[0, -1\]"),
    "no actor": ({"actors": [], "starts": []}, "proposes no actors, but at least one agent must play"),
    "starts of others": ({"starts": [0]}, r"proposes starts of \[0\], but must give 2 finite numbers"),
    "too many values": ({"hyper": {"tau": np.ones(3)}}, r"proposes tau of \[1.0, 1.0, 1.0\], but must give 2 finite"),
    "half a step": ({"hyper": {"n_step": [1, 1.5]}}, r"n_step of \[1.0, 1.5\], but must give a whole number from 1"),
    "no step": ({"hyper": {"n_step": [0, 1]}}, r"proposes n_step of \[0, 1\]"),
    "a value that is not finite": ({"hyper": {"gamma": [np.nan, 0.9]}}, r"proposes gamma of \[nan, 0.9\]"),
    "steps back": ({"ratios": [-1.0, 1.0]}, r"proposes ratios of \[-1.0, 1.0\]"),
    "a champion too many": ({"champion": lambda rng, state: 2}, "has the champion 2, but agents are numbered 0 to 1"),
    "a champion between": ({"champion": lambda rng, state: 0.5}, "has the champion 0.5"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_answered_with_a_sentence(mistake, tmp_path):
    wrong, sentence = MISTAKES[mistake]
    with pytest.raises(UserError, match=sentence):
        train(tmp_path / "run", method(**wrong))


def test_a_value_that_is_missing(tmp_path):
    own = method()
    lacking = own._replace(make=lambda settings, tune, base: own.make(settings, tune, {"gamma": 0.9}))
    with pytest.raises(UserError, match="proposes no actor_lr; hyper has a value of every hyper-parameter"):
        train(tmp_path / "run", lacking)


def test_lists_are_as_good_as_arrays(tmp_path):
    run = train(tmp_path / "run", method(sources=[1, 0], ratios=[0, 1], actors=[1], starts=[0], hyper={"tau": [0, 1]}))
    assert run.finished
    assert oht.load(run.path, env=FollowObservation, method=method()).progress.env_steps == run.progress.env_steps


def test_the_same_in_loops_that_are_not_ours():
    tuner = oht.AskTell(method(tell=grown), base={"lr": 0.1}, steps=100)
    tuner.ask()
    with pytest.raises(UserError, match=r"tell of your method returned a state in which state\.history"):
        tuner.tell([1.0, 2.0], 10)
    with pytest.raises(UserError, match=r"your method proposes actors of \[2\]"):
        oht.AskTell(method(actors=[2]), base={"lr": 0.1}, steps=100).ask()
