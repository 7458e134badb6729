"""Meta-gradients as a method: the tuner leaves the one agent alone, which learns its learning rates by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oht.agents.api import Algorithm
from oht.agents.metagrad import Rate, metagrad
from oht.errors import UserError
from oht.settings import setting
from oht.spaces import Choice, Dimension, Int, LogFloat, Space, resolved
from oht.tuners import columns
from oht.tuners.api import Proposal, State, Tuner
from oht.tuners.search import Gaussian
from oht.tuners.static import lone


@dataclass(frozen=True)
class MetaGradient:
    meta_lr: float = setting(1e-4, "meta-gradient: learning rate beta of the learning rates (Adam)", low=0)
    meta_critic_lr: float = setting(1e-3, "meta-gradient: learning rate of the critic that judges, fixed", low=0)
    meta_trace: float = setting(0.0, "meta-gradient: how much of earlier slopes stays in the trace", low=0, high=1)
    replay_ratio: float = setting(1.0, "meta-gradient: gradient steps for each env step", low=0)


def adapt(settings: MetaGradient, tune: Mapping[str, Dimension], algorithm: Algorithm) -> Algorithm:
    """The agent that learns the rates of the space: a LogFloat by its log10, a Float as it is."""
    rates = {name: _rate(name, resolved(name, dim)) for name, dim in tune.items()}
    rule = {"meta_lr": settings.meta_lr, "meta_critic_lr": settings.meta_critic_lr, "meta_trace": settings.meta_trace}
    return metagrad(algorithm, rates, **rule)


def _rate(name: str, dim: Dimension) -> Rate:
    if isinstance(dim, Choice | Int) or dim.init is None or dim.low is None or dim.high is None:
        raise UserError(f"meta-gradients need a slope, so {name} must be a LogFloat or a Float, as in log:1e-3.")
    return Rate(dim.init, dim.low, dim.high, isinstance(dim, LogFloat))


def make(settings: MetaGradient, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> Tuner:
    space = Space(tune, dict.fromkeys(tune, 0.0))

    def record(state: State, proposal: Proposal, returns: Sequence[float]) -> dict[str, float]:
        rates = {name: float(proposal.hyper[name][0]) for name in space.names}
        row = columns.gaussian(space.names, Gaussian(space.encode(rates), np.zeros(len(rates))))
        return row | columns.champion(rates) | columns.samples(proposal, space.names, returns)

    return lone(settings.replay_ratio, lambda env_steps: dict(base))._replace(record=record)
