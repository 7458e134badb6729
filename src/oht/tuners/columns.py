"""The columns of schedule.csv, the same for every method that has them.

NAME/logit/VALUE and NAME/p/VALUE: a discrete distribution. NAME/mu and NAME/sigma: a Gaussian, in encoded units (log10
for a LogFloat). champion/NAME: the value of the agent that is evaluated; for arms the likeliest. agent/I/COLUMN: of
agent I. sample/I/agent, sample/I/NAME and sample/I/return: who played episode I of the iteration, with which value,
and its return.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from oht.spaces import Choice, label
from oht.tuners.search import Categorical, Gaussian, softmax
from oht.types import Outcome, Proposal, Row

CHAMPION = "champion/"


def logits(name: str, choice: Choice, state: Categorical) -> Row:
    labels = [label(value) for value in choice.values]
    row = {f"{name}/logit/{value}": float(logit) for value, logit in zip(labels, state.logits, strict=True)}
    return row | {f"{name}/p/{value}": float(p) for value, p in zip(labels, softmax(state.logits), strict=True)}


def gaussian(names: Sequence[str], state: Gaussian) -> Row:
    row: Row = {}
    for name, mu, sigma in zip(names, state.mu, state.sigma, strict=True):
        row |= {f"{name}/mu": float(mu), f"{name}/sigma": float(sigma)}
    return row


def champion(values: Mapping[str, float]) -> Row:
    return {f"{CHAMPION}{name}": float(value) for name, value in values.items()}


def agents(columns: Mapping[str, np.ndarray]) -> Row:
    """(P,) numbers of each agent, by the name of their column."""
    return {f"agent/{i}/{name}": float(x) for name, values in columns.items() for i, x in enumerate(values)}


def tuned(row: Iterable[str]) -> list[str]:
    """The hyper-parameters of which a row has the champion's value."""
    return [name.removeprefix(CHAMPION) for name in row if name.startswith(CHAMPION)]


def samples(proposal: Proposal, names: Sequence[str], outcome: Outcome) -> Row:
    hyper = {**proposal.hyper, **outcome.learned}
    row: Row = {}
    for i, (agent, value) in enumerate(zip(proposal.actors, outcome.returns, strict=True)):
        row[f"sample/{i}/agent"] = float(agent)
        row |= {f"sample/{i}/{name}": float(hyper[name][agent]) for name in names}
        row[f"sample/{i}/return"] = float(value)
    return row
