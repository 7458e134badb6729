"""M policies in, M whole episodes out: EnvPool where it can, other Gymnasium envs here, in workers or on Ray."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from oht import seeds as streams
from oht.envs.backend import Backend, Dropped, EnvError, Pool
from oht.envs.delay import pay_late
from oht.envs.gym import InProcess, Maker, maker
from oht.envs.tasks import Task, find, named, require
from oht.envs.workers import Workers, portable
from oht.errors import UserError
from oht.machine import cores
from oht.types import Act, Episode

__all__ = ["Dropped", "EnvError", "Pool", "open_pool"]


def open_pool(
    task: str | Callable[[], gymnasium.Env],
    size: int,
    *,
    delay: int = 0,
    max_episode: int = 1000,
    workers: int | None = None,
    kind: str = "auto",
    env_errors: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Pool:
    """A pool that plays up to `size` episodes at once.

    `task` is a name (see `oht.envs.tasks`) or a callable that makes an env. An episode is cut after the env's own limit
    or after `max_episode` steps, whichever comes first. `workers` is the number of processes for envs that EnvPool does
    not have: 0 steps them in this process, as is done with callables that cannot be pickled; None: one for each of
    several cores if their steps are known to be slow. With `kind` "ray" Ray actors step them instead of processes.
    An episode in which the env fails is dropped and repeated from another seed, up to `env_errors` times in a row.
    `env_kwargs` are the arguments with which each env is made.
    """
    if size < 1 or max_episode < 1 or delay < 0 or (workers or 0) < 0:
        raise UserError("a pool needs size >= 1, max_episode >= 1, delay >= 0 and workers >= 0.")
    known = find(task) if isinstance(task, str) else Task(_callable_name(task), "gymnasium", "")
    if delay and known.delay and delay != known.delay:
        raise UserError(f"{known.name!r} and delay={delay} contradict each other; give the delay once.")
    require(known)
    if known.backend == "envpool":
        backend = _envpool(known, kind, env_kwargs)
    else:
        make = maker(known, env_kwargs) if isinstance(task, str) else partial(task, **(env_kwargs or {}))
        backend = (_on_ray if kind == "ray" else _gymnasium)(known, make, size, workers)
    delay = delay or known.delay
    limit = min(known.limit or max_episode, max_episode)
    return Rollouts(named(known.id, delay), backend, size, limit, delay, env_errors)


def _envpool(task: Task, kind: str, env_kwargs: Mapping[str, Any] | None) -> Backend:
    """Stepped in threads of EnvPool's own, as many at once as are asked for."""
    if kind == "ray":
        raise UserError(f"{task.id} is stepped by EnvPool; pool ray is for envs that EnvPool does not have.")
    if env_kwargs:
        raise UserError(
            f"{task.id} is simulated by EnvPool and takes no arguments such as {next(iter(env_kwargs))}; "
            "env_kwargs (--env-arg) are for Gymnasium envs and your own."
        )
    from oht.envs.envpool import EnvPool

    return EnvPool(task)


def _gymnasium(task: Task, make: Maker, size: int, workers: int | None) -> Backend:
    """Slow envs in as many processes as there are cores, others in this one, unless the number is given."""
    if workers is None:
        workers = min(size, cores()) if task.slow and size > 1 and cores() > 1 else 0
    if workers and (sent := portable(make)):
        return Workers(task.id, sent, size, min(workers, size), _prints_at_start(task))
    return InProcess(task.id, make, size, _prints_at_start(task))


def _on_ray(task: Task, make: Maker, size: int, workers: int | None) -> Backend:
    """On Ray actors; refused where that is not possible."""
    from oht.envs.ray_pool import actors

    if workers == 0:
        raise UserError("pool ray needs at least one worker.")
    if not (sent := portable(make)):
        raise UserError(f"{task.id} cannot be pickled, so it cannot be sent to Ray's actors.")
    return actors(task.id, sent, size, workers, _prints_at_start(task))


def _prints_at_start(task: Task) -> bool:
    """PyBullet prints when it is imported and connected."""
    return task.extra == "bullet"


class Rollouts:
    """The pool over any backend. Envs whose episode has ended are not stepped; a rollout that fails closes the pool."""

    def __init__(self, name: str, backend: Backend, size: int, limit: int, delay: int, env_errors: int):
        self.obs, self.action, self.size, self.spaces = backend.obs, backend.action, size, backend.spaces
        self.dropped: list[Dropped] = []
        self._name, self._backend, self.limit, self._delay = name, backend, limit, delay
        self._env_errors, self._closed = env_errors, False
        self._observations = np.empty((limit + 1, size, self.obs), np.float32)
        self._actions = np.empty((limit, size, self.action), np.float32)
        self._rewards = np.empty((limit, size), np.float32)

    def rollout(self, act: Act, seeds: Sequence[int]) -> list[Episode]:
        if not 0 < len(seeds) <= self.size or not all(0 <= seed < 2**31 for seed in seeds):
            raise ValueError(f"a rollout takes 1 to {self.size} seeds, each from 0 to 2**31 - 1, not {list(seeds)}")
        if self._closed:
            raise UserError(f"the envs of {self._name} are closed; load the run again with oht.load.")
        try:
            return self._episodes(act, seeds)
        except BaseException:  # envs may be anywhere in their episodes and workers still busy
            self.close()
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._backend.close()

    def _episodes(self, act: Act, seeds: Sequence[int]) -> list[Episode]:
        """Those of a first attempt, and of more where the env failed, each from another seed."""
        episodes: dict[int, Episode] = {}
        missing = list(range(len(seeds)))
        for attempt in range(self._env_errors + 1):
            starts = [streams.another_start(seeds[i], attempt) if attempt else seeds[i] for i in missing]
            policy = _only(missing, len(seeds), act, attempt * self.limit) if attempt else act
            again = []
            for i, seed, result in zip(missing, starts, self._play(policy, starts), strict=True):
                if not isinstance(result, EnvError):
                    episodes[i] = result
                elif attempt < self._env_errors:
                    self.dropped.append(Dropped(int(seed), result))
                    again.append(i)
                else:
                    raise EnvError(_too_often(result, self._env_errors)) from result
            if not (missing := again):
                break
        return [episodes[i] for i in range(len(seeds))]

    def _play(self, act: Act, seeds: Sequence[int]) -> list[Episode | EnvError]:
        """An episode for each seed, or the error of the env; without any patience the first error is raised."""
        count = len(seeds)
        obs, action, reward = self._observations[:, :count], self._actions[:, :count], self._rewards[:, :count]
        alive = np.arange(count)
        length, terminal = np.full(count, self.limit), np.zeros(count, bool)
        errors: dict[int, EnvError] = {}
        starts = self._backend.reset(seeds)
        obs[0] = starts.obs
        found = self._not_finite("observation", obs[0], 0, alive, seeds) | starts.errors
        alive = alive[~self._failed(alive, found, errors)]
        for t in range(self.limit):
            if not alive.size:
                break
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
            found = self._not_finite("reward", reward[t, alive], t + 1, alive, seeds)
            found |= self._not_finite("observation", obs[t + 1, alive], t + 1, alive, seeds)
            over = steps.terminated | steps.truncated
            if found or steps.errors or over.any():
                length[alive[over]] = t + 1
                terminal[alive[over]] = steps.terminated[over]
                alive = alive[~(over | self._failed(alive, found | steps.errors, errors))]
        return [
            errors.get(i)
            or Episode(
                obs=obs[: length[i] + 1, i].copy(),
                action=action[: length[i], i].copy(),
                reward=pay_late(reward[: length[i], i].copy(), self._delay),
                terminal=bool(terminal[i]),
            )
            for i in range(count)
        ]

    def _failed(self, alive: np.ndarray, found: Mapping[int, EnvError], errors: dict[int, EnvError]) -> np.ndarray:
        """Whether each env is among those `found`, by row; they are added to `errors`, by env."""
        if found and not self._env_errors:
            raise found[min(found)]
        errors.update({int(alive[row]): error for row, error in found.items()})
        return np.isin(np.arange(len(alive)), list(found))

    def _not_finite(
        self, what: str, values: np.ndarray, step: int, alive: np.ndarray, seeds: Sequence[int]
    ) -> dict[int, EnvError]:
        """By row: values that are infinite or NaN."""
        if (finite := np.isfinite(values)).all():
            return {}
        place = f"that is not finite at step {step} of the episode with seed"
        rows = np.flatnonzero(~finite.reshape(len(alive), -1).all(axis=1))
        return {int(row): EnvError(f"{self._name} gave a {what} {place} {seeds[alive[row]]}.") for row in rows}


def _only(rows: list[int], count: int, act: Act, later: int) -> Act:
    """A policy of `count` rows for some of them alone, `later` steps later."""

    def some(t: int, obs: np.ndarray) -> np.ndarray:
        everyone = np.zeros((count, obs.shape[1]), obs.dtype)
        everyone[rows] = obs
        return np.asarray(act(later + t, everyone))[rows]

    return some


def _too_often(error: EnvError, env_errors: int) -> str:
    times = "time" if env_errors == 1 else "times"
    return f"{str(error).rstrip('.')}; this episode had been repeated {env_errors} {times} already (env_errors)."


def _callable_name(make: object) -> str:
    if not callable(make):
        raise UserError(f"a task is a name or a function that makes an env, not {type(make).__name__}.")
    if isinstance(make, partial):
        return _callable_name(make.func)
    return f"{make.__module__}:{getattr(make, '__qualname__', type(make).__name__)}"
