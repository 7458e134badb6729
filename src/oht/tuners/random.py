"""Random search, an ablation: the sampled population, but its distribution learns at a rate of zero.

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
    return sampled.make(sampled.Sampled(**asdict(settings), search="es", es_rate=0.0, beta=0.0), tune, base)
