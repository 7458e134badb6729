"""The table of tasks: id, backend, sizes, low and high score. Nothing heavy is imported before a task is opened.

A name is one of our ids (`dm/walker-run`), a registered Gymnasium id (`Pendulum-v1`), Gymnasium's `module:Id`, or
`module:callable` for a function or class that makes an env. Each may end in `@delay5` for delayed rewards.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from oht.errors import UserError, unknown
from oht.lookup import importable, not_importable

PACKAGES = {"envpool": ("envpool",), "bullet": ("pybullet", "pybullet_envs_gymnasium")}  # what each extra brings


@dataclass(frozen=True)
class Task:
    """Where a task comes from; scores and sizes are known for the tasks of the paper only."""

    id: str
    backend: Literal["envpool", "gymnasium"]
    env: str  # the backend's own name for it
    low: float | None = None  # return of a random policy; low and high give the normalised score
    high: float | None = None  # return of a high performing policy
    obs: int | None = None
    action: int | None = None
    limit: int | None = None  # steps after which an episode is cut
    extra: str | None = None  # the optional dependency that it needs
    slow: bool = False  # stepping costs more than talking to a worker process
    ours: bool = False  # the scores are this project's, not the paper's
    delay: int = 0

    @property
    def name(self) -> str:
        """The id with its delay: `dm/walker-run@delay5`."""
        return named(self.id, self.delay)


def _dm(id: str, env: str, obs: int) -> Task:
    return Task(id, "envpool", env, low=0, high=1000, obs=obs, action=6, limit=1000, extra="envpool")


def _gym(id: str, env: str, low: float, high: float, obs: int, action: int, ours: bool = False) -> Task:
    return Task(id, "envpool", env, low, high, obs, action, limit=1000, extra="envpool", ours=ours)


def _bullet(id: str, env: str, low: float, high: float, obs: int, action: int) -> Task:
    return Task(id, "gymnasium", env, low, high, obs, action, limit=1000, extra="bullet", slow=True)


TASKS: Mapping[str, Task] = {
    task.id: task
    for task in (
        _dm("dm/walker-run", "WalkerRun-v1", 24),
        _dm("dm/walker-walk", "WalkerWalk-v1", 24),
        _dm("dm/walker-stand", "WalkerStand-v1", 24),
        _dm("dm/cheetah-run", "CheetahRun-v1", 17),
        _gym("gym/ant", "Ant-v5", -55, 6000, 105, 8),
        _gym("gym/half-cheetah", "HalfCheetah-v5", -290, 10_000, 17, 6),
        _gym("gym/walker2d", "Walker2d-v4", 2, 5000, 17, 6, ours=True),
        _bullet("robo/ant", "oht.envs.roboschool:Ant", 53, 2500, 28, 8),
        _bullet("robo/half-cheetah", "oht.envs.roboschool:HalfCheetah", 2, 3000, 26, 6),
        _bullet("robo/walker2d", "oht.envs.roboschool:Walker2d", 16, 2500, 22, 6),
        _bullet("bullet/ant", "pybullet_envs_gymnasium:AntBulletEnv-v0", 372, 2500, 28, 8),
        _bullet("bullet/half-cheetah", "pybullet_envs_gymnasium:HalfCheetahBulletEnv-v0", -1272, 3000, 26, 6),
        _bullet("bullet/walker2d", "pybullet_envs_gymnasium:Walker2DBulletEnv-v0", 17, 2500, 22, 6),
    )
}


def find(name: str) -> Task:
    """The task that a name means; whether a `module:...` really has it shows when it is opened."""
    base, _, suffix = name.partition("@")
    delay = _delay(name, suffix) if "@" in name else 0
    if base in TASKS:
        return replace(TASKS[base], delay=delay)
    module, colon, attribute = base.partition(":")
    if colon:
        if not module or not attribute:
            raise UserError(f"task {base!r} needs a module that can be imported and a name in it, as 'module:name'.")
        if not importable(module):
            raise not_importable("task", base)
        return Task(base, "gymnasium", base, delay=delay)
    import gymnasium

    if base in gymnasium.registry:
        return Task(base, "gymnasium", base, delay=delay)
    everything = [*TASKS, *gymnasium.registry]
    near = get_close_matches(base, everything, n=1, cutoff=0.5)
    raise unknown("task", base, everything if near else TASKS)


def named(task: str, delay: int) -> str:
    """The name of a task with delayed rewards."""
    return f"{task}@delay{delay}" if delay else task


def installed(task: Task) -> bool:
    """Whether the task's optional dependency is there."""
    return task.extra is None or all(importable(package) for package in PACKAGES[task.extra])


def require(task: Task) -> None:
    """Refuses a task whose optional dependency is missing, and says how to install it."""
    if not installed(task):
        raise UserError(f"task {task.id!r} needs an extra that is not installed: pip install 'oht[{task.extra}]'")


def _delay(name: str, suffix: str) -> int:
    if not (match := re.fullmatch(r"delay([1-9]\d*)", suffix)):
        raise UserError(f"task {name!r} ends in {'@' + suffix!r}, which should be '@delay' and a number, as '@delay5'.")
    return int(match[1])
