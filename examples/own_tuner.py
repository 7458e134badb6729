"""A tuner of your own: a hill climber with two agents.

A tuner is NumPy data in, data out: `ask` says what happens in an iteration (a `Proposal`), `tell` gets what happened
(an `Outcome`). Here agent 0 keeps the best values so far; agent 1 continues from its weights with values drawn around
them. Both train and play one episode from the same state. If agent 1 did better, agent 0 goes on with its values and
weights.

    python examples/own_tuner.py
    cd examples && oht train Pendulum-v1 --method own_tuner:CLIMB --spread 2
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import oht
from oht.settings import setting
from oht.spaces import Space
from oht.tuners import columns
from oht.types import Clock, Outcome, Row, Tune

MAIN, TRIAL = 0, 1


@dataclass(frozen=True)
class Climb:
    """The method's settings: arguments of `oht.train`, kept in the run's config.toml."""

    spread: float = setting(1.0, "how far values are drawn from the best, in sigmas of their spaces", low=0)
    replay_ratio: float = setting(1.0, "gradient steps of each of the two agents for each env step", low=0)


class State(NamedTuple):
    """Arrays only, so that a checkpoint can hold it."""

    best: np.ndarray  # (D,) the values of agent 0, encoded (log10 for a LogFloat)
    tried: np.ndarray  # (D,) those of agent 1
    winner: np.ndarray  # whose weights both continue from


def climb(settings: Climb, tune: Tune, base: Mapping[str, float]) -> oht.Tuner:
    """`tune` is what the user wants tuned; `base` holds every hyper-parameter of the algorithm."""
    space = Space(tune, base)
    if space.choices or not space.names:
        raise oht.UserError("climb tunes numbers, as in tune={'critic_lr': LogFloat(1e-3)}.")

    def init(rng: np.random.Generator) -> State:
        return State(space.mu, space.mu, np.array(MAIN))

    def ask(rng: np.random.Generator, state: State, clock: Clock) -> tuple[State, oht.Proposal]:
        step = settings.spread * space.sigma * rng.standard_normal(len(space.mu))
        state = state._replace(tried=np.clip(state.best + step, *space.bounds))
        hyper = {name: np.full(2, value) for name, value in base.items()}
        hyper |= space.decode(np.stack([state.best, state.tried]))
        ratios, both = np.full(2, settings.replay_ratio), np.array([MAIN, TRIAL])
        return state, oht.Proposal(hyper, ratios, np.full(2, state.winner), both, np.full(2, clock.iteration))

    def tell(rng: np.random.Generator, state: State, proposal: oht.Proposal, outcome: Outcome) -> tuple[State, Row]:
        row = columns.champion({name: proposal.hyper[name][MAIN] for name in space.names})
        better = outcome.returns[TRIAL] > outcome.returns[MAIN]
        best = state.tried if better else state.best
        state = State(best, state.tried, np.array(TRIAL if better else MAIN))
        return state, row | columns.samples(proposal, space.names, outcome)

    def champion(rng: np.random.Generator, state: State) -> int:
        return int(state.winner)

    return oht.Tuner(2, init, ask, tell, champion)


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
    print(f"returns of the evaluations: {[round(row['return_mean']) for row in run.evals]}")
    print(f"critic_lr at the end: {run.schedule[-1]['champion/critic_lr']:.2g}; the run is in {run.path}")
