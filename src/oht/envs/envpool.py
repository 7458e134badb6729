"""The tasks that EnvPool simulates in C++.

EnvPool fixes the seeds of its envs when they are made (its `reset(seed=...)` is ignored). So that an episode depends on
its seed alone, every reset makes new envs; with the lean models below that takes about a millisecond for each.
"""

import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from oht.envs.backend import EnvStarts, EnvSteps
from oht.envs.tasks import Task
from oht.errors import UserError
from oht.machine import cores

UNTIL_WE_CUT = 2**30  # EnvPool reports a terminal at its own limit as a truncation, so the limit is left to the pool


class EnvPool:
    """A backend; see `oht.envs.backend.Backend`."""

    def __init__(self, task: Task):
        from envpool import make_gymnasium
        from envpool.registration import base_path

        self._make = make_gymnasium
        self._options: dict[str, Any] = {"task_id": task.env, "max_episode_steps": UNTIL_WE_CUT}
        if task.id.startswith("dm/") and (models := _lean_models(Path(base_path))):
            self._options["base_path"] = str(models)
            weakref.finalize(self, shutil.rmtree, models, ignore_errors=True)
        self._envs = self._make(num_envs=1, **self._options)
        space, box = self._envs.observation_space, self._envs.action_space
        self._parts = list(space.spaces) if isinstance(space, spaces.Dict) else []  # in the order of dm_control's spec
        self.obs = spaces.flatdim(space)
        if not (isinstance(box, spaces.Box) and (box.low == -1).all() and (box.high == 1).all()):
            raise UserError(f"EnvPool's {task.env} takes actions in {box}; only those in [-1, 1] are supported.")
        self.action, self.spaces = box.shape[0], (self._envs.observation_space, box)

    def reset(self, seeds: Sequence[int]) -> EnvStarts:
        threads = min(len(seeds), cores())
        self._envs = self._make(num_envs=len(seeds), num_threads=threads, seed=list(seeds), **self._options)
        return EnvStarts(self._flat(self._envs.reset()[0]), {})

    def step(self, alive: np.ndarray, actions: np.ndarray) -> EnvSteps:
        obs, reward, terminated, truncated, _ = self._envs.step(np.clip(actions, -1, 1), alive)
        return EnvSteps(self._flat(obs), reward, terminated, truncated, {})

    def close(self) -> None:
        self._envs.close()

    def _flat(self, obs: Any) -> np.ndarray:
        """The parts of a dict observation side by side."""
        if not self._parts:
            return obs
        parts = [obs[part] for part in self._parts]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1, dtype=np.float32)


def _lean_models(assets: Path) -> Path | None:
    """A copy of the control suite's models with a sky of one pixel.

    Drawing the sky, which is never shown, takes 0.1 s for each env that is made: far more than all the rest.
    """
    original = assets / "mujoco" / "assets_dmc"
    if not (original / "common" / "skybox.xml").exists():
        return None
    root = Path(tempfile.mkdtemp(prefix="oht-models-"))
    copy = root / "mujoco" / "assets_dmc"
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns("dog_assets"))
    sky = copy / "common" / "skybox.xml"
    sky.write_text(re.sub(r'(width|height)="\d+"', r'\1="1"', sky.read_text()))
    return root
