"""M policies in, M whole episodes out: EnvPool where it can, other Gymnasium envs here, in workers or on Ray."""

from collections.abc import Callable, Sequence
from functools import partial

import gymnasium
import numpy as np

from oht.envs.backend import Backend, EnvError, Pool, cores
from oht.envs.delay import pay_late
from oht.envs.gym import InProcess, Maker, maker
from oht.envs.tasks import Task, find, named, require
from oht.envs.workers import Workers, portable
from oht.errors import UserError
from oht.types import Act, Episode

__all__ = ["EnvError", "Pool", "open_pool"]


def open_pool(
    task: str | Callable[[], gymnasium.Env],
    size: int,
    *,
    delay: int = 0,
    max_episode: int = 1000,
    workers: int | None = None,
    kind: str = "auto",
) -> Pool:
    """A pool that plays up to `size` episodes at once.

    `task` is a name (see `oht.envs.tasks`) or a callable that makes an env. An episode is cut after the env's own limit
    or after `max_episode` steps, whichever comes first. `workers` is the number of processes for envs that EnvPool does
    not have: 0 steps them in this process, as is done with callables that cannot be pickled; None: one for each of
    several cores if their steps are known to be slow. With `kind` "ray" Ray actors step them instead of processes.
    """
    if size < 1 or max_episode < 1 or delay < 0 or (workers or 0) < 0:
        raise UserError("a pool needs size >= 1, max_episode >= 1, delay >= 0 and workers >= 0.")
    known = find(task) if isinstance(task, str) else Task(_callable_name(task), "gymnasium", "")
    if delay and known.delay and delay != known.delay:
        raise UserError(f"{known.name!r} and delay={delay} contradict each other; give the delay once.")
    require(known)
    open_backend = _on_ray if kind == "ray" else _envpool if known.backend == "envpool" else _gymnasium
    backend = open_backend(known, None if isinstance(task, str) else task, size, workers)
    delay = delay or known.delay
    return Rollouts(named(known.id, delay), backend, size, min(known.limit or max_episode, max_episode), delay)


def _envpool(task: Task, make: Maker | None, size: int, workers: int | None) -> Backend:
    """Stepped in threads of EnvPool's own, as many at once as are asked for."""
    del make, size, workers
    from oht.envs.envpool import EnvPool

    return EnvPool(task)


def _gymnasium(task: Task, make: Maker | None, size: int, workers: int | None) -> Backend:
    """Slow envs in as many processes as there are cores, others in this one, unless the number is given."""
    if workers is None:
        workers = min(size, cores()) if task.slow and size > 1 and cores() > 1 else 0
    make = make or maker(task)
    if workers and (sent := portable(make)):
        return Workers(task.id, sent, size, min(workers, size), _greets(task))
    return InProcess(task.id, make, size, _greets(task))


def _on_ray(task: Task, make: Maker | None, size: int, workers: int | None) -> Backend:
    """On Ray actors; refused where that is not possible."""
    from oht.envs.ray_pool import actors

    if task.backend == "envpool":
        raise UserError(f"{task.id} is stepped by EnvPool; pool ray is for envs that EnvPool does not have.")
    if workers == 0:
        raise UserError("pool ray needs at least one worker.")
    if not (sent := portable(make or maker(task))):
        raise UserError(f"{task.id} cannot be pickled, so it cannot be sent to Ray's actors.")
    return actors(task.id, sent, size, workers, _greets(task))


def _greets(task: Task) -> bool:
    """PyBullet prints when it is imported and connected."""
    return task.extra == "bullet"


class Rollouts:
    """The pool over any backend. Envs whose episode has ended are not stepped; a rollout that fails closes the pool."""

    def __init__(self, name: str, backend: Backend, size: int, limit: int, delay: int):
        self.obs, self.action, self.size, self.spaces = backend.obs, backend.action, size, backend.spaces
        self._name, self._backend, self.limit, self._delay = name, backend, limit, delay
        self._closed = False
        self._observations = np.empty((limit + 1, size, self.obs), np.float32)
        self._actions = np.empty((limit, size, self.action), np.float32)
        self._rewards = np.empty((limit, size), np.float32)

    def rollout(self, act: Act, seeds: Sequence[int]) -> list[Episode]:
        if not 0 < len(seeds) <= self.size or not all(0 <= seed < 2**31 for seed in seeds):
            raise ValueError(f"a rollout takes 1 to {self.size} seeds, each from 0 to 2**31 - 1, not {list(seeds)}")
        if self._closed:
            raise ValueError(f"the pool of {self._name} is closed")
        try:
            return self._play(act, seeds)
        except BaseException:  # envs may be anywhere in their episodes and workers still busy
            self.close()
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._backend.close()

    def _play(self, act: Act, seeds: Sequence[int]) -> list[Episode]:
        count = len(seeds)
        obs, action, reward = self._observations[:, :count], self._actions[:, :count], self._rewards[:, :count]
        alive = np.arange(count)
        length, terminal = np.full(count, self.limit), np.zeros(count, bool)
        obs[0] = self._backend.reset(seeds)
        self._check("observation", obs[0], 0, alive, seeds)
        for t in range(self.limit):
            answer = act(t, obs[t])
            if np.shape(answer) != action[t].shape:
                raise ValueError(f"a policy gave actions of shape {np.shape(answer)}, not {action[t].shape}")
            action[t] = answer
            chosen = action[t, alive]
            if not np.isfinite(chosen).all():
                raise UserError(
                    f"the policy's action at step {t + 1} of {self._name} is not finite: learning diverged."
                )
            steps = self._backend.step(alive, chosen)
            if len(alive) < count:
                obs[t + 1] = obs[t]
            obs[t + 1, alive] = steps.obs
            reward[t, alive] = steps.reward
            self._check("observation", obs[t + 1, alive], t + 1, alive, seeds)
            self._check("reward", reward[t, alive], t + 1, alive, seeds)
            over = steps.terminated | steps.truncated
            if over.any():
                length[alive[over]] = t + 1
                terminal[alive[over]] = steps.terminated[over]
                alive = alive[~over]
                if not alive.size:
                    break
        return [
            Episode(
                obs=obs[: length[i] + 1, i].copy(),
                action=action[: length[i], i].copy(),
                reward=pay_late(reward[: length[i], i].copy(), self._delay),
                terminal=bool(terminal[i]),
            )
            for i in range(count)
        ]

    def _check(self, what: str, values: np.ndarray, step: int, alive: np.ndarray, seeds: Sequence[int]) -> None:
        if not (finite := np.isfinite(values)).all():
            bad = ~finite.reshape(len(alive), -1).all(axis=1)
            seed = seeds[alive[bad][0]]
            raise EnvError(
                f"{self._name} gave a {what} that is not finite at step {step} of the episode with seed {seed}."
            )


def _callable_name(make: object) -> str:
    if not callable(make):
        raise UserError(f"a task is a name or a function that makes an env, not {type(make).__name__}.")
    if isinstance(make, partial):
        return _callable_name(make.func)
    return f"{make.__module__}:{getattr(make, '__qualname__', type(make).__name__)}"
