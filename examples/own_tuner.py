"""A tuner of your own: a hill climber with two agents.

A tuner says who trains next with which values (`ask`) and what the returns teach (`tell`). Here agent 0 keeps the best
values so far; agent 1 is its copy with values drawn around them. Both train and play one episode. If the copy did
better, it takes over: its values and its weights.

    python examples/own_tuner.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import oht
from oht import population
from oht.settings import setting
from oht.spaces import Dimension, Space
from oht.tuners import columns
from oht.tuners.search import generator


@dataclass(frozen=True)
class Climb:
    """The method's settings: arguments of `oht.train`, kept in the run's config.toml."""

    spread: float = setting(1.0, "how far the copy's values are drawn, in sigmas of their spaces", low=0)
    replay_ratio: float = setting(1.0, "gradient steps of each of the two agents for each env step", low=0)


class State(NamedTuple):
    """Arrays only, so that a checkpoint can hold it."""

    best: np.ndarray  # (D,) the values of agent 0, encoded (log10 for a LogFloat)
    tried: np.ndarray  # (D,) those of agent 1


def climb(settings: Climb, tune: Mapping[str, Dimension], base: Mapping[str, float]) -> oht.Tuner:
    """`tune` is what the user wants tuned; `base` holds every hyper-parameter of the algorithm."""
    space = Space(tune, base)
    if space.choices or not space.names:
        raise oht.UserError("climb tunes numbers, as in tune={'critic_lr': LogFloat(1e-3)}.")

    def init(key) -> State:
        return State(space.mu, space.mu)

    def ask(key, state: State, agents, env_steps: int) -> tuple[State, oht.Proposal]:
        step = settings.spread * space.sigma * generator(key).standard_normal(len(space.names))
        state = state._replace(tried=np.clip(state.best + step, *space.bounds))
        hyper = {name: np.full(2, value) for name, value in base.items()}
        hyper |= space.decode(np.stack([state.best, state.tried]))
        both = population.take(agents, np.array([0, 0]))  # the copy has the optimiser and the targets too
        return state, oht.Proposal(both, hyper, ratios=np.full(2, settings.replay_ratio), actors=np.array([0, 1]))

    def tell(key, state: State, agents, proposal: oht.Proposal, returns: np.ndarray) -> tuple[State, Any]:
        if returns[1] <= returns[0]:
            return state, agents
        return State(state.tried, state.tried), population.take(agents, np.array([1, 1]))

    def champion(key, state: State) -> int:
        return 0

    def record(state: State, proposal: oht.Proposal, returns: Sequence[float]) -> dict[str, float]:
        used = columns.champion({name: proposal.hyper[name][0] for name in space.names})
        return used | columns.samples(proposal, space.names, returns)

    return oht.Tuner(2, init, ask, tell, champion, record)


CLIMB = oht.Method("a hill climber with two agents", Climb, climb, tune={"critic_lr": oht.LogFloat(1e-3)})


def main(steps: int = 10_000, out: str | Path | None = None, **settings: Any) -> oht.Run:
    small: dict[str, Any] = {
        "start_steps": 600,
        "eval_every": 2000,
        "eval_episodes": 3,
        "hidden": (64, 64),
        "max_episode": 200,
    }
    return oht.train("Pendulum-v1", method=CLIMB, steps=steps, out=out, **(small | settings))


if __name__ == "__main__":
    run = main()
    print(f"returns of the tests: {[round(row['return_mean']) for row in run.evals]}")
    print(f"critic_lr at the end: {run.schedule[-1]['champion/critic_lr']:.2g}; the run is in {run.path}")
