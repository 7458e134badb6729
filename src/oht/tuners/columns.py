"""The columns of schedule.csv, the same for every method that has them.

NAME/logit/VALUE and NAME/p/VALUE: a discrete distribution. NAME/mu and NAME/sigma: a Gaussian, in encoded units (log10
for a LogFloat). champion/NAME: the value that the tested agent uses; for arms the likeliest. sample/I/agent,
sample/I/NAME and sample/I/return: who played episode I of the iteration, with which value, and what it got.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from oht.spaces import Choice, label
from oht.tuners.api import Proposal
from oht.tuners.search import Categorical, Gaussian, softmax


def logits(name: str, choice: Choice, state: Categorical) -> dict[str, float]:
    labels = [label(value) for value in choice.values]
    row = {f"{name}/logit/{value}": float(logit) for value, logit in zip(labels, state.logits, strict=True)}
    return row | {f"{name}/p/{value}": float(p) for value, p in zip(labels, softmax(state.logits), strict=True)}


def gaussian(names: Sequence[str], state: Gaussian) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, mu, sigma in zip(names, state.mu, state.sigma, strict=True):
        row |= {f"{name}/mu": float(mu), f"{name}/sigma": float(sigma)}
    return row


def champion(values: Mapping[str, float]) -> dict[str, float]:
    return {f"champion/{name}": float(value) for name, value in values.items()}


def samples(proposal: Proposal, names: Sequence[str], returns: Sequence[float] | np.ndarray) -> dict[str, float]:
    row: dict[str, float] = {}
    for i, (agent, value) in enumerate(zip(proposal.actors, returns, strict=True)):
        row[f"sample/{i}/agent"] = float(agent)
        row |= {f"sample/{i}/{name}": float(proposal.hyper[name][agent]) for name in names}
        row[f"sample/{i}/return"] = float(value)
    return row
