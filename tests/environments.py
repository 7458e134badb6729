"""Probe environments whose right answer is known, and environments that misbehave in one known way."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

UNIT = spaces.Box(-1.0, 1.0, (1,), np.float32)
PAUSE = float(os.environ.get("PROBE_PAUSE", "0"))  # seconds of a step: a run that leaves the machine to others


class Probe(gymnasium.Env):
    """Shows the share of the episode that has passed, pays 1 for every step, and ends after `length` of them."""

    observation_space: spaces.Space = UNIT
    action_space: spaces.Space = UNIT

    def __init__(self, length: int = 5, terminal: bool = True):
        self.length, self.terminal, self.time = length, terminal, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self.reward(np.asarray(action))
        time.sleep(PAUSE)
        self.time += 1
        over = self.time >= self.length
        return self.observe(), reward, over and self.terminal, over and not self.terminal, {}

    def observe(self) -> Any:
        return np.array([self.time / self.length], np.float32)

    def reward(self, action: np.ndarray) -> float:
        return 1.0


class ConstantReward(Probe):
    """One step, reward 1: the value is 1."""

    def __init__(self):
        super().__init__(length=1)


class Endless(Probe):
    """Always the same observation and reward 1, cut after one step: the value is 1 / (1 - gamma), and 1 if terminal."""

    def __init__(self, terminal: bool = False):
        super().__init__(length=1, terminal=terminal)

    def observe(self) -> Any:
        return np.zeros(1, np.float32)


class TwoStepCredit(Probe):
    """The action of step 1, seen again in step 2, decides the reward of step 2: 1 - (a - 1/2)^2. Best: 1/2."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self):
        super().__init__(length=2)
        self.first = 0.0

    def observe(self) -> Any:
        self.first = self.first if self.time else 0.0
        return np.array([self.time / self.length, self.first], np.float32)

    def reward(self, action: np.ndarray) -> float:
        if self.time == 0:
            self.first = float(action[0])
            return 0.0
        return 1.0 - (self.first - 0.5) ** 2


class FollowObservation(Probe):
    """Each step shows a new x from U(-1, 1) and pays 1 - (a - x)^2: the best action is the observation."""

    def __init__(self):
        super().__init__(length=10)
        self.x = 0.0

    def observe(self) -> Any:
        self.x = self.np_random.uniform(-1, 1)
        return np.array([self.x], np.float32)

    def reward(self, action: np.ndarray) -> float:
        return 1.0 - float(action[0] - self.x) ** 2


class VariableLength(Probe):
    """Lasts 1 to 9 steps, as its seed decides; shows its length and its time."""

    observation_space = spaces.Box(0.0, 9.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = int(self.np_random.integers(1, 10))
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.time >= self.length:
            raise RuntimeError("stepped after its end")
        return super().step(action)

    def observe(self) -> Any:
        return np.array([self.length, self.time], np.float32)


class Echo(Probe):
    """Takes actions of shape (2, 2) with bounds of its own and shows them as a nested observation."""

    action_space = spaces.Box(np.array([[0, -1], [-4, 2]], np.float32), np.array([[10, 1], [4, 3]], np.float32))
    observation_space = spaces.Dict(
        {
            "row": spaces.Box(-10.0, 10.0, (2,), np.float64),
            "pair": spaces.Tuple((spaces.Box(-10.0, 10.0, (), np.float32), spaces.Box(0, 10, (1,), np.int64))),
        }
    )

    def __init__(self):
        super().__init__(length=3)
        self.seen = np.zeros((2, 2))

    def observe(self) -> Any:
        return {"row": self.seen[0].astype(np.float64), "pair": (self.seen[1, 0], np.array([self.time]))}

    def reward(self, action: np.ndarray) -> float:
        assert action.shape == (2, 2)
        assert action.dtype == np.float32
        self.seen = action
        return float(action[1, 1])


class OldStep(Probe):
    """Its `step` returns four values, as in Gym before 0.26."""

    def step(self, action: Any) -> Any:
        obs, reward, *_, info = super().step(action)
        return obs, reward, False, info


class AnswersInLists(Probe):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return list(super().reset(seed=seed))

    def step(self, action: Any) -> Any:
        return list(super().step(action))


class OldReset(Probe):
    """Its `reset` returns the observation alone, as in Gym before 0.26."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class RewardIsText(Probe):
    def reward(self, action: np.ndarray) -> Any:
        return "much"


class Raises(Probe):
    """Raises in its third step."""

    def reward(self, action: np.ndarray) -> float:
        if self.time == 2:
            raise RuntimeError("the wheel came off")
        return 1.0


class RaisesNowAndThen(FollowObservation):
    """Fails in the third step of a quarter of its episodes, and in the reset of another eighth, as the seed decides."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed % 8 == 7:  # pyright: ignore[reportOptionalOperand]
            raise ConnectionError("no answer")
        self.fragile = seed % 4 == 1  # pyright: ignore[reportOptionalOperand]
        return super().reset(seed=seed, options=options)

    def reward(self, action: np.ndarray) -> float:
        if self.fragile and self.time == 2:
            raise RuntimeError("the wheel came off")
        return super().reward(action)


class NotFinite(Probe):
    """Gives NaN as the reward or inf in the observation of its third step."""

    def __init__(self, where: str):
        super().__init__()
        self.where = where

    def observe(self) -> Any:
        return np.array([np.inf if self.where == "observation" and self.time == 3 else 0.0], np.float32)

    def reward(self, action: np.ndarray) -> float:
        return np.nan if self.where == "reward" and self.time == 2 else 1.0


class Dies(FollowObservation):
    """Kills its process in the third step of the episode with seed 1, until `deaths` are noted in a file."""

    def __init__(self, notes: Path, deaths: int = 1, obeys_seed: bool = True):
        super().__init__()
        self.notes, self.deaths, self.obeys_seed, self.doomed = notes, deaths, obeys_seed, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.doomed = seed == 1
        return super().reset(seed=seed if self.obeys_seed else None, options=options)

    def reward(self, action: np.ndarray) -> float:
        if self.doomed and self.time == 2 and (not self.notes.exists() or len(self.notes.read_text()) < self.deaths):
            with self.notes.open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reward(action)


class Image(Probe):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)


class DiscreteActions(Probe):
    action_space = spaces.Discrete(3)


class UnboundedActions(Probe):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class NoActions(Probe):
    action_space = None  # pyright: ignore[reportAssignmentType]; as if it were forgotten


class WrongShape(Probe):
    """Declares one number and shows two."""

    def observe(self) -> Any:
        return np.zeros(2, np.float32)


class HiddenCredit(Probe):
    """Shows x from U(-1, 1) once; the first action decides the reward of the third step: 1 - 3 (a - x)^2. Best: x.

    Neither is seen again, so a target that bootstraps from a later step knows nothing of them: only n_step 3 can learn.
    """

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self):
        super().__init__(length=3)
        self.x = self.first = 0.0

    def observe(self) -> Any:
        if self.time == 0:
            self.x = self.np_random.uniform(-1, 1)
        return np.array([self.time / self.length, 0.0 if self.time else self.x], np.float32)

    def reward(self, action: np.ndarray) -> float:
        if self.time == 0:
            self.first = float(action[0])
        return 1.0 - 3.0 * (self.first - self.x) ** 2 if self.time == 2 else 0.0


def search_path() -> str:
    """PYTHONPATH for a process that finds these envs, and otherwise what this one finds."""
    return os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
