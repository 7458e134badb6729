"""Randomness: a stream of its own for each purpose, used once."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from environments import FollowObservation
from oht import api, config, population, seeds, training

TINY = {"steps": 1000, "start_steps": 25, "eval_episodes": 2, "batch_size": 8, "hidden": (8, 8), "replay_size": 100}
TINY |= {"max_episode": 20, "tensorboard": False, "task": "probe", "seed": 3}


class Spy:
    """Notes every key and generator that is made, by what it is made for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.streams: list[tuple[str, tuple, tuple]] = []  # kind, (seed, purpose, number), what it begins with
        monkeypatch.setattr(seeds, "key", self.noted("key", seeds.key, jax.random.key_data))
        monkeypatch.setattr(seeds, "generator", self.noted("generator", seeds.generator, self.begins))
        monkeypatch.setattr(population.Actors, "policies", self.acting(population.Actors.policies))

    def noted(self, kind: str, make: Callable, look: Callable) -> Callable:
        def call(seed: int, purpose: Any, number: int = 0) -> Any:
            stream = make(seed, purpose, number)
            self.streams.append((kind, (seed, purpose, number), tuple(np.asarray(look(stream)).tolist())))
            return stream

        return call

    @staticmethod
    def begins(generator: np.random.Generator) -> np.ndarray:
        """Its state, without drawing from it."""
        state = generator.bit_generator.state["state"]
        return np.array([state["state"] % 2**62, state["inc"] % 2**62])

    def acting(self, policies: Callable) -> Callable:
        """The keys of exploration noise, which come from those of an iteration or evaluation."""

        def call(actors: Any, key: Any, *rest: Any, **more: Any) -> Any:
            self.streams.append(("noise", (len(self.streams),), tuple(np.asarray(jax.random.key_data(key)).tolist())))
            return policies(actors, key, *rest, **more)

        return call

    def of(self, *kinds: str) -> list[tuple[tuple, tuple]]:
        return [(made_for, content) for kind, made_for, content in self.streams if kind in kinds]


@pytest.mark.parametrize("method", ["oht-lr", "pbt"])
def test_no_two_streams_of_a_run_are_equal(method, monkeypatch):
    """Random start, two iterations, two evaluations, evaluations on demand and a policy, all by the same seed."""
    spy = Spy(monkeypatch)
    values = {**TINY, "method": method, "population": 4}
    setup = training.build(config.resolve(values), FollowObservation)
    t = training.start(setup)
    while t.env_steps < TINY["start_steps"]:
        t = training.explore_at_random(setup, t)
    for _ in range(2):
        t, _ = training.iterate(setup, t, lambda done, of: None)
        training.evaluate(setup, t, number=5)  # three waves of two
    for seed in (3, 4):
        training.evaluate(setup, t, seed=seed, number=5)
    api.Policy(setup, training.champion(setup, t))(np.zeros(1, np.float32))
    training.close(setup)

    purposes = {made_for[1] for made_for, _ in spy.of("key", "generator")}
    assert purposes == set(seeds.PURPOSES) - {"another start"}  # no env failed
    for kinds in (("key", "noise"), ("generator",)):
        streams = [(made_for, content) for made_for, content in spy.of(*kinds) if made_for[1:2] != ("start",)]
        repeated = [made_for for (made_for, content), number in Counter(streams).items() if number > 1]
        planned = {(3, "ask", 1), (3, "ask", 2)}  # an evaluation asks for the values of the iteration after it
        assert not {*repeated} - planned  # each of the others is made once
        contents = Counter(
            content for made_for, content in {*streams} if not (kinds[0] == "key" and made_for[1:2] == ("policy",))
        )
        assert [number for number in contents.values() if number > 1] == []
    starts = {made_for: content for made_for, content in spy.of("generator") if made_for[1] == "start"}
    assert len(set(starts.values())) == len(starts)  # the same state again only where the same number is asked for


def test_streams_differ_by_seed_purpose_and_number():
    cases = list(itertools.product((0, 1, 2), seeds.PURPOSES, (0, 1, 2, 14)))
    keys = {tuple(jax.random.key_data(seeds.key(*case)).tolist()) for case in cases}
    draws = {seeds.generator(*case).random() for case in cases}
    assert len(keys) == len(draws) == len(cases)


def test_the_same_stream_again():
    assert seeds.start(1, 5) == seeds.start(1, 5) != seeds.start(1, 6)
    assert 0 <= seeds.start(1, 5) < seeds.MOST
    assert (seeds.key(1, "learn", 2) == seeds.key(1, "learn", 2)).all()
