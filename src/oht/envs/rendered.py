"""Envs that draw themselves, for videos: with the observations and actions that a task was trained with."""

import ctypes.util
import inspect
import os
import warnings
from collections import OrderedDict  # Gymnasium sorts the keys of a plain dict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box

from oht.envs.gym import flat, silence
from oht.envs.tasks import Task, find, require
from oht.errors import UserError

SIZE = (320, 240)  # pixels of what is drawn here, width and height
HOW = "render_mode='rgb_array'"


class Scene:
    """One env that plays and draws: flat observations, the env's own actions, pictures as (height, width, 3) bytes."""

    def __init__(
        self, task: str | Callable[..., Any], obs: int, action: int, env_kwargs: Mapping[str, Any] | None = None
    ):
        """`obs` and `action` are the sizes that the policy was trained with, `env_kwargs` the env's arguments."""
        self._name = task if isinstance(task, str) else getattr(task, "__name__", type(task).__name__)
        self._task = find(task) if isinstance(task, str) else None
        if self._task:
            require(self._task)
        with self._drawing("be made to draw"):
            self._env = self._made(task, env_kwargs or {})
        sizes = spaces.flatdim(self._env.observation_space), spaces.flatdim(self._env.action_space)
        if sizes != (obs, action):
            self.close()
            raise UserError(
                f"{self._name} cannot be drawn: the env that draws has {sizes[0]} observations and {sizes[1]} actions, "
                f"but the policy was trained with {obs} and {action}."
            )
        self.fps = float(self._env.metadata.get("render_fps") or 30)

    def _made(self, task: str | Callable[..., Any], env_kwargs: Mapping[str, Any]) -> gymnasium.Env:
        if self._task is None:
            return asked_to_draw(task, **env_kwargs)  # pyright: ignore[reportArgumentType]
        if self._task.backend == "envpool":
            return _equal_of_envpool(self._task)
        module, colon, name = self._task.env.partition(":")
        make: Any = import_module(module) if colon else None
        for part in name.split("."):
            make = getattr(make, part, None)
        if make is not None:
            return asked_to_draw(make, **env_kwargs)
        return _registered(name if colon else self._task.env, **env_kwargs)

    def reset(self, seed: int) -> np.ndarray:
        with self._drawing("begin an episode"):
            obs, _ = self._env.reset(seed=seed)
        return flat(self._env.observation_space, obs)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """(observation, reward, whether the episode is over)"""
        with self._drawing("take a step"):
            obs, reward, terminated, truncated, _ = self._env.step(action)
        return flat(self._env.observation_space, obs), float(reward), bool(terminated or truncated)

    def picture(self) -> np.ndarray:
        with self._drawing("be drawn"):
            picture = np.asarray(self._env.render())
            if picture.ndim != 3 or picture.shape[2] < 3:
                raise ValueError(f"its render() gave {type(picture).__name__} of shape {picture.shape}, no RGB picture")
        return picture[..., :3].astype(np.uint8)

    def close(self) -> None:
        self._env.close()

    @contextmanager
    def _drawing(self, what: str) -> Iterator[None]:
        """One sentence for whatever a renderer raises."""
        try:
            with self._quiet():
                yield
        except UserError:
            raise
        except gymnasium.error.DependencyNotInstalled as error:
            raise UserError(f"{self._name} cannot {what}: {error}; pip install 'oht[video]' brings pygame.") from error
        except Exception as error:
            raise UserError(f"{self._name} cannot {what} here: {type(error).__name__}: {error}.") from error

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Without warnings, and without what the simulators of our tasks print when they load a model."""
        with warnings.catch_warnings(), silence() if self._task and self._task.extra else nullcontext():
            warnings.simplefilter("ignore")
            yield


def asked_to_draw(make: Callable[..., gymnasium.Env], **options: Any) -> gymnasium.Env:
    """The env of a class or function, which must take a `render_mode` or draw RGB pictures of its own accord."""
    try:
        takes = "render_mode" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        takes = False
    takes |= options.pop("render_mode", None) is not None  # the training gave it one
    env = make(**options, render_mode="rgb_array") if takes else make(**options)
    if env.render_mode != "rgb_array":
        env.close()
        name = getattr(make, "__name__", type(make).__name__)
        raise UserError(
            f"{name} cannot be drawn: let it take {HOW} and keep it as self.render_mode, "
            "and let its render() return a picture."
        )
    return env


def _registered(name: str, **options: Any) -> gymnasium.Env:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # machines without a sound card
    spec = gymnasium.spec(name)
    if "mujoco" in str(spec.entry_point):
        _choose_opengl()
    env = gymnasium.make(spec, **{**options, "render_mode": "rgb_array"}, disable_env_checker=True)
    if "rgb_array" not in env.metadata.get("render_modes", ()):
        env.close()
        raise UserError(f"{name} cannot be drawn: it has no {HOW}.")
    return env


def _equal_of_envpool(task: Task) -> gymnasium.Env:
    """EnvPool draws nothing; Gymnasium and dm_control have the same envs with the same observations."""
    _choose_opengl()
    package = "dm_control" if task.id.startswith("dm/") else "mujoco"
    try:
        import_module(package)
    except ImportError:
        extra = "dm_control" if package == "dm_control" else "oht[mujoco]"
        raise UserError(
            f"{task.id} is simulated by EnvPool, which draws nothing; its equal that does needs {package}: "
            f"pip install '{extra}'."
        ) from None
    if package == "dm_control":
        return ControlSuite(*task.id.removeprefix("dm/").split("-"))
    return _registered(task.env, width=SIZE[0], height=SIZE[1])


def _choose_opengl() -> None:
    """MuJoCo draws by OpenGL, on a machine without a screen by EGL or OSMesa; MUJOCO_GL, if set, says by which."""
    if os.environ.get("MUJOCO_GL"):
        return
    for library, name in (("EGL", "egl"), ("OSMesa", "osmesa")):
        if ctypes.util.find_library(library):
            os.environ["MUJOCO_GL"] = name
            return
    if not os.environ.get("DISPLAY"):
        raise UserError("MuJoCo has nothing to draw with here: install EGL (libegl1) or OSMesa (libosmesa6).")


class ControlSuite(gymnasium.Env):
    """A task of dm_control with its observations as a Dict in the order of its spec."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 40}  # noqa: RUF012

    def __init__(self, domain: str, task: str):
        from dm_control import suite

        self.render_mode = "rgb_array"
        self._load = partial(suite.load, domain, task)
        self._env = self._load()
        parts = self._env.observation_spec().items()
        self.observation_space = spaces.Dict(
            OrderedDict((name, Box(-np.inf, np.inf, part.shape)) for name, part in parts)
        )
        bounds = self._env.action_spec()
        self.action_space = Box(bounds.minimum.astype(np.float32), bounds.maximum.astype(np.float32))
        self.metadata = {**self.metadata, "render_fps": 1 / self._env.control_timestep()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        self._env = self._load(task_kwargs={"random": seed})
        return self._env.reset().observation, {}

    def step(self, action: np.ndarray):
        step = self._env.step(action)
        return step.observation, step.reward or 0.0, False, step.last(), {}

    def render(self) -> Any:
        return self._env.physics.render(SIZE[1], SIZE[0], camera_id=0)
