"""Random search, an ablation: the sampled population, but its distribution never learns from the returns.

The main agent stays at the centre of the space, so any gain over `static` comes from the diversity of the data.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from oht.spaces import Dimension
from oht.tuners import sampled
from oht.tuners.api import Tuner


@dataclass(frozen=True)
class Random(sampled.Population):
    pass


def make(settings: Random, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    frozen = sampled.Sampled(**asdict(settings), search="es")
    return sampled.make(frozen, tune, base)._replace(tell=lambda key, state, agents, proposal, returns: (state, agents))
