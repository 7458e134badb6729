"""A control: the population of `oht`, but the returns decide nothing.

All play in turn with equal shares of the gradient steps; each evaluation episode is played by an agent at random.
"""

from collections.abc import Mapping

from oht.tuners.race import Race, race
from oht.types import Tune, Tuner


def make(settings: Race, tune: Tune, base: Mapping[str, float]) -> Tuner:
    return race(settings, tune, base, follow=False)
