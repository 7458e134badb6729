"""Meta-gradients as a method: one agent that learns its own learning rates, see `oht.agents.metagrad`."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oht.settings import setting
from oht.spaces import Space
from oht.tuners import columns
from oht.tuners.search import Gaussian
from oht.tuners.static import lone
from oht.types import Outcome, Proposal, Row, Tune, Tuner


@dataclass(frozen=True)
class MetaGradient:
    meta_lr: float = setting(1e-4, "learning rate beta of the learning rates (Adam)", low=0)
    meta_critic_lr: float = setting(1e-3, "learning rate of Q_meta, the critic that judges the update; fixed", low=0)
    meta_trace: float = setting(0.0, "share of earlier derivatives that stays in the trace", low=0, high=1)
    replay_ratio: float = setting(1.0, "gradient steps for each env step", low=0, high=1000)


def make(settings: MetaGradient, tune: Tune, base: Mapping[str, float]) -> Tuner:
    space = Space(tune, dict.fromkeys(tune, 0.0))

    def row(proposal: Proposal, outcome: Outcome) -> Row:
        rates = {name: float(outcome.learned[name][0]) for name in space.names}
        means = columns.gaussian(space.names, Gaussian(space.encode(rates), np.zeros(len(rates))))
        return means | columns.champion(rates)

    return lone(settings.replay_ratio, lambda env_steps: base, row)
