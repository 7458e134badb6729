"""An environment of your own: any Gymnasium env with Box observations and bounded Box actions.

Observations may also be a Dict or Tuple of Boxes. Actions are given in the env's own range. An episode that ends with
`terminated` is worth nothing from there on; one that is cut (`truncated`, or by `max_episode`) would have gone on.

    python examples/own_environment.py
"""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import oht

SECONDS = 0.1  # that one action lasts


class Dock(gymnasium.Env):
    """A boat on a line, pushed by up to 3 newtons, is to come to rest at the dock at 0."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)  # all randomness from self.np_random: an episode then depends on its seed alone
        self.place, self.speed = self.np_random.uniform(-2.0, 2.0), 0.0
        return self.look(), {}

    def step(self, action: np.ndarray):
        self.speed += SECONDS * (float(action[0]) - 0.5 * self.speed)
        self.place += SECONDS * self.speed
        lost = abs(self.place) > 10.0
        reward = -100.0 if lost else -(self.place**2) - 0.1 * self.speed**2
        return self.look(), reward, lost, False, {}

    def look(self) -> np.ndarray:
        return np.array([self.place, self.speed], np.float32)


def main(steps: int = 8000, out: str | Path | None = None, **settings: Any) -> oht.Run:
    small: dict[str, Any] = {
        "start_steps": 500,
        "eval_every": 2000,
        "eval_episodes": 5,
        "population": 4,
        "hidden": (64, 64),
    }
    small |= {"max_episode": 50}
    tune = {"n_step": oht.Choice(1, 3), "critic_lr": oht.LogFloat(1e-3, sigma=0.5)}
    return oht.train(Dock, tune=tune, steps=steps, out=out, **(small | settings))


if __name__ == "__main__":
    run = main()
    print(f"returns of the evaluations: {[round(row['return_mean'], 1) for row in run.evals]}")
    force = run.policy(np.array([1.5, 0.0], np.float32))
    print(f"force at rest, 1.5 m right of the dock: {force[0]:.2f} N; the run is in {run.path}")
