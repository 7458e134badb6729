"""Gymnasium envs in this process: flat observations, actions in [-1, 1]."""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from difflib import get_close_matches
from functools import partial
from math import isfinite
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from oht import lookup
from oht.envs.backend import EnvError, EnvStarts, EnvSteps
from oht.envs.tasks import Task
from oht.errors import UserError

Maker = Callable[[], gymnasium.Env]
RESET = ("observation", "info")  # what the methods of an env return
STEP = ("observation", "reward", "terminated", "truncated", "info")
FIRST_SEEDS = (0, 1, 2)  # of the reset after an env is made, until one works


class Flat:
    """One env with flat observations and actions; any exception becomes an EnvError with the step and the seed.

    An env that has failed may be in any state, so the next reset makes a new one. Values that are not finite are such a
    failure, too, which the pool reports.
    """

    def __init__(self, name: str, make: Maker):
        self.name, self._make = name, make
        self._env = self._made()
        for space in ("observation_space", "action_space"):
            if getattr(self._env, space, None) is None:
                raise UserError(f"{name} has no {space}; set it to a gymnasium.spaces.Box in its __init__.")
        self.obs = _width(name, self._env.observation_space)
        self.spaces = self._env.observation_space, _continuous(name, self._env.action_space)
        self.action = self.spaces[1].low.size
        self._first_reset()

    def reset(self, seed: int) -> np.ndarray:
        if self._failed:
            self.close()
            self._env = self._made()
            self._first_reset()
        return self._reset(seed)

    def _made(self) -> gymnasium.Env:
        self._steps, self._seed, self._failed = 0, None, False
        env = self._guard("when it was made", self._make)
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{self.name} made a {type(env).__name__}; it should make a gymnasium.Env.")
        return env

    def _first_reset(self) -> None:
        """Some envs treat their very first reset differently (AntBulletEnv-v0), and no episode should."""
        errors = []
        for seed in FIRST_SEEDS:
            try:
                self._reset(seed)
            except EnvError as error:
                errors.append(error)
            else:
                self._failed = False
                return
        raise errors[0]

    def _reset(self, seed: int) -> np.ndarray:
        self._steps, self._seed = 0, seed
        reset = partial(self._env.reset, seed=int(seed))
        obs, _ = self._guard("in its reset", partial(_answer, reset, RESET))
        return self._flatten(obs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        self._steps += 1
        native = scaled(self.spaces[1], action)
        step = partial(self._env.step, native)
        obs, reward, terminated, truncated, _ = self._guard("in its step", partial(_answer, step, STEP))
        reward = self._guard("with its reward", partial(float, reward))
        self._failed |= not isfinite(reward)
        return self._flatten(obs), reward, bool(terminated), bool(truncated)

    def close(self) -> None:
        with suppress(Exception):  # a simulator that has died cannot be closed either
            self._env.close()

    @property
    def innermost(self) -> gymnasium.Env:
        """The env inside of all wrappers."""
        return self._env.unwrapped

    def _flatten(self, obs: Any) -> np.ndarray:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, which is refused later
            vector = self._guard("with its observation", partial(flat, self._env.observation_space, obs))
        if vector.size != self.obs:
            self._failed = True
            raise EnvError(f"{self.name} gave {vector.size} numbers as observation{self._when()}, not {self.obs}.")
        self._failed |= not np.isfinite(vector).all()
        return vector

    def _guard(self, where: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except UserError:
            raise
        except Exception as error:
            self._failed = True
            raise EnvError(f"{self.name} failed {where}{self._when()}: {type(error).__name__}: {error}") from error

    def _when(self) -> str:
        return f" at step {self._steps} of the episode with seed {self._seed}" if self._seed is not None else ""


def _answer(method: Callable[[], Any], parts: Sequence[str]) -> Sequence[Any]:
    """What a method of an env returns, which should have these parts; those of the old Gym differ."""
    answer = method()
    several = isinstance(answer, tuple | list)
    if not several or len(answer) != len(parts):
        found = f"{len(answer)} values" if several else f"one {type(answer).__name__}"
        raise TypeError(f"it returned {found}, not ({', '.join(parts)})")
    return answer


class InProcess:
    """A backend of envs that are stepped one after the other; see `oht.envs.backend.Backend`."""

    def __init__(self, name: str, make: Maker, size: int, prints: bool = False):
        with silence() if prints else nullcontext():
            self._envs = [Flat(name, make) for _ in range(size)]
        if len({id(env.innermost) for env in self._envs}) < size:
            raise UserError(f"{name} gave the same env twice; it should make a new one at each call.")
        self.obs, self.action, self.spaces = self._envs[0].obs, self._envs[0].action, self._envs[0].spaces

    def reset(self, seeds: Sequence[int]) -> EnvStarts:
        starts = EnvStarts(np.zeros((len(seeds), self.obs), np.float32), {})
        for row, (env, seed) in enumerate(zip(self._envs, seeds, strict=False)):
            try:
                starts.obs[row] = env.reset(seed)
            except EnvError as error:
                starts.errors[row] = error
        return starts

    def step(self, alive: np.ndarray, actions: np.ndarray) -> EnvSteps:
        n = len(alive)
        steps = EnvSteps(np.zeros((n, self.obs), np.float32), np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), {})
        for row, (env, action) in enumerate(zip(alive, actions, strict=True)):
            try:
                result = self._envs[env].step(action)
                steps.obs[row], steps.reward[row], steps.terminated[row], steps.truncated[row] = result
            except EnvError as error:
                steps.errors[row] = error
        return steps

    def close(self) -> None:
        for env in self._envs:
            env.close()


def maker(task: Task, arguments: Mapping[str, Any] | None = None) -> Maker:
    """A function that makes an env of a task, with arguments; it can be sent to another process."""
    arguments = dict(arguments or {})
    if ":" not in task.env:
        return partial(gymnasium.make, gymnasium.spec(task.env), disable_env_checker=True, **arguments)
    if task.env.startswith("__main__:"):
        return partial(_found(task.env), **arguments)  # another process has another __main__
    if not task.extra:
        _found(task.env)  # an unknown name is noticed here, not in every worker
    return partial(_make, task.env, arguments)


def _make(place: str, arguments: Mapping[str, Any]) -> gymnasium.Env:
    return _found(place)(**arguments)


def _found(place: str) -> Callable[..., gymnasium.Env]:
    """A class or function of a module, or an id that it registers with Gymnasium: `module:name`."""
    module, name = lookup.module_of("task", place), place.partition(":")[2]
    if name in gymnasium.registry and not hasattr(module, name):
        return partial(gymnasium.make, name, disable_env_checker=True)
    try:
        found: Callable[..., gymnasium.Env] = lookup.find("task", place)
    except lookup.NotFound:
        near = get_close_matches(name, [*vars(module), *gymnasium.registry], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise lookup.NotFound(
            f"module {module.__name__!r} neither has {name!r} nor registers it with Gymnasium{hint}"
        ) from None
    if not callable(found):
        raise UserError(
            f"the task {place!r} is of type {type(found).__name__}, but must be a class or function that makes an env."
        )
    return found


def _width(name: str, space: spaces.Space) -> int:
    """The number of values in an observation; images and other spaces than Box, Dict and Tuple are refused."""
    if isinstance(space, spaces.Dict):
        return sum(_width(name, part) for part in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(_width(name, part) for part in space.spaces)
    if isinstance(space, spaces.Box) and len(space.shape) < (2 if space.dtype == np.uint8 else 3):
        return int(np.prod(space.shape))
    raise UserError(
        f"{name} has observations in {space}; supported are Box observations (no images), also in a Dict or Tuple."
    )


def flat(space: spaces.Space, obs: Any) -> np.ndarray:
    """The numbers of an observation, parts in the order of their space."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([flat(part, obs[key]) for key, part in space.spaces.items()])
    if isinstance(space, spaces.Tuple):
        return np.concatenate([flat(part, value) for part, value in zip(space.spaces, obs, strict=True)])
    return np.array(obs, np.float32).ravel()


def scaled(space: spaces.Box, action: np.ndarray) -> np.ndarray:
    """An action in [-1, 1] as the env takes it, within its bounds."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return np.clip(low + (action.reshape(space.shape) + 1.0) / 2 * (high - low), low, high).astype(space.dtype)


def _continuous(name: str, space: spaces.Space) -> spaces.Box:
    if not (isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.is_bounded()):
        raise UserError(f"{name} has actions in {space}; supported are continuous actions: a Box with finite bounds.")
    return space


@contextmanager
def silence() -> Iterator[None]:
    """Suppress what C code prints: PyBullet prints at its import and at every connection."""
    flush = partial(ctypes.CDLL(None).fflush, None)
    flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    void = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(void, stream)
        yield
    finally:
        flush()
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
        for descriptor in (void, *kept):
            os.close(descriptor)
