"""What users call: train, resume, load."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from oht import agents, checkpoints, config, methods, population, runs, seeds, training
from oht.errors import UserError
from oht.journal import Journal
from oht.report.progress import Reporter, Silent, Terminal
from oht.signals import interruption
from oht.training import Progress, Setup
from oht.types import Algorithm, Method


class Policy:
    """The champion: observations in, actions in the env's own range out."""

    def __init__(self, setup: Setup, progress: Progress):
        seed = setup.config.run.seed
        champion = setup.tuner.champion(seeds.generator(seed, "policy"), progress.tuner)
        key = seeds.key(seed, "policy")
        self._setup, self._key, self._calls = setup, key, 0
        self._agent = population.take(progress.agents, np.array([champion]))
        self._hyper = {name: np.array([value], np.float32) for name, value in setup.config.hyper.items()}

    def __call__(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, as the env gives it."""
        self._calls += 1
        act = self._setup.actors.policies(self._key, self._agent, self._hyper, explore=not deterministic)
        to_vector, to_action = self._setup.eval_pool.to_vector, self._setup.eval_pool.to_action
        return to_action(act(self._calls, to_vector(obs)[None])[0])

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True):
        """As in Stable-Baselines3: one observation or a batch of vectors in, (action or actions, state) out."""
        if isinstance(obs, np.ndarray) and obs.ndim == 2:
            return np.stack([self(row, deterministic) for row in obs]), state
        return self(obs, deterministic), state


class Run:
    """A run and its files."""

    def __init__(self, path: Path, setup: Setup, progress: Progress):
        self.path, self.setup, self.progress = path, setup, progress
        self.policy = Policy(setup, progress)

    @property
    def schedule(self) -> list[dict[str, float]]:
        """How the hyper-parameters moved: the rows of schedule.csv."""
        return runs.rows(self.path / "schedule.csv")

    @property
    def evals(self) -> list[dict[str, float]]:
        return runs.rows(self.path / "evals.csv")

    @property
    def metrics(self) -> list[dict[str, float]]:
        return runs.rows(self.path / "metrics.csv")

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[float]:
        """Returns of the champion without noise, one for each episode."""
        if episodes < 1:
            raise UserError(f"episodes is {episodes}, but must be at least 1.")
        return training.evaluate(self.setup, self.progress, seed, episodes)

    def close(self) -> None:
        training.close(self.setup)


def train(
    task: str | Callable[[], Any],
    *,
    algo: str | Callable[..., Algorithm] = "td3",
    method: str | Method | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | Reporter = False,
    **settings: Any,
) -> Run:
    """Trains on a task, a Gymnasium id or a function that makes an env, and returns the run.

    `algo` is a name or a user's own factory (spec, **options) -> Algorithm; `method` is a name or a user's own Method,
    by default `oht` where there is something to tune and `static` where not. Every setting of the command line is an
    argument here (`n_step=3`, `steps=1_000_000`, `tune={"n_step": oht.Choice(1, 2, 3)}`).
    `out` is the run folder; without it a new one is made under runs/.
    """
    env = task if callable(task) else None
    own_algo = algo if callable(algo) else None
    own_method = method if isinstance(method, Method) else None
    values = {**settings, "task": _place(task) if env else task, "algo": _name(algo) if own_algo else algo}
    values["method"] = _name(own_method.make) if own_method else method
    resolved = config.resolve(values, own_algo, own_method)
    run = resolved.run
    path = Path(out) if out is not None else runs.fresh_path(Path("runs"), run.task, run.method, run.seed)
    runs.vacant(path, overwrite)
    with _opened(resolved, env) as setup:
        state = training.start(setup)
        with runs.created(path, config.to_toml(setup.config), overwrite):
            return _go_on(path, setup, state, {}, _reporter(progress))


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    env: Callable[[], Any] | None = None,
    algo: Callable[..., Algorithm] | None = None,
    method: Method | None = None,
    progress: bool | Reporter = False,
) -> Run:
    """Goes on with a run exactly as if it had never stopped, if wanted to more steps.

    An env, an algorithm or a method of the user's own, which no file can hold, is given again.
    """
    path = Path(path)
    resolved = _config_of(path, algo, method, steps)
    with runs.locked(path), _opened(resolved, env) as setup:
        state, counters = _read(path, setup, with_replay=True)
        if steps is not None:
            if setup.config.run.steps < state.env_steps:
                raise UserError(f"{path} has {state.env_steps} steps already, so it cannot go on to {steps}.")
            with runs.refused(path):
                runs.write_aside(path / "config.toml", config.to_toml(setup.config))
        return _go_on(path, setup, state, counters, _reporter(progress))


def load(
    path: str | Path,
    *,
    env: Callable[[], Any] | None = None,
    algo: Callable[..., Algorithm] | None = None,
    method: Method | None = None,
) -> Run:
    """A trained run, to act, evaluate and look at; what is the user's own is given again, as in `resume`."""
    path = Path(path)
    with _opened(_config_of(path, algo, method), env) as setup:
        return Run(path, setup, _read(path, setup, with_replay=False)[0])


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", type(thing).__name__).strip("<>")


def _place(thing: Any) -> str:
    """Where a function or class is found again, if it can be: `module:name`."""
    return f"{thing.__module__}:{getattr(thing, '__qualname__', type(thing).__name__)}"


def _reporter(progress: bool | Reporter) -> Reporter:
    if isinstance(progress, Reporter):
        return progress
    return Terminal() if progress else Silent()


def _config_of(path: Path, algo: Any, method: Method | None, steps: int | None = None) -> config.Config:
    runs.check(path)
    values = config.read_file(path / "config.toml")
    for what, given, known in (("algo", algo, agents.ALGORITHMS), ("method", method, methods.METHODS)):
        if given is None and values.get(what) not in known:
            raise UserError(
                f"{path} was trained with the {what} {values.get(what)!r}, which oht does not have; "
                f"if it is your own, give it again from Python, as in oht.load(path, {what}=...)."
            )
    if steps is not None:
        values["steps"] = steps
    return config.resolve(values, algo, method)


@contextlib.contextmanager
def _opened(resolved: config.Config, env: Callable | None) -> Iterator[Setup]:
    """The parts of a run; if anything fails, its simulators end."""
    setup = training.build(resolved, env)
    try:
        _check_memory(setup)
        yield setup
    except BaseException:
        training.close(setup)
        raise


def _check_memory(setup: Setup) -> None:
    """Refuses what this machine cannot hold, before it tries to."""
    run, pool = setup.config.run, setup.eval_pool
    create = partial(population.create, algorithm=setup.algorithm, number=setup.tuner.population)
    leaves = jax.tree.leaves(jax.eval_shape(create, jax.random.key(0)))
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    replay = 4 * run.replay_size * (pool.obs + pool.action + 3)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if weights + replay > memory:
        raise UserError(
            f"the agents would take {weights / 1e9:.1f} GB and the replay {replay / 1e9:.1f} GB, more than the "
            f"{memory / 1e9:.1f} GB of this machine; make hidden, population or replay_size smaller."
        )


def _read(path: Path, setup: Setup, with_replay: bool) -> tuple[Progress, dict[str, Any]]:
    fresh = training.start(setup)
    state = (fresh.agents, fresh.tuner, fresh.owed)
    replay = fresh.replay if with_replay else None
    (agents, tuner, owed), counters, replay = checkpoints.load(path / "checkpoint", state, replay)
    counts = {name: counters[name] for name in training.COUNTERS}
    return Progress(agents, tuner, replay or fresh.replay, owed, **counts), counters


def _go_on(path: Path, setup: Setup, t: Progress, counters: dict[str, Any], reporter: Reporter) -> Run:
    """Trains to the end, or until a signal; keeps the files and the screen up to date."""
    run = setup.config.run
    try:
        with reporter, interruption() as interrupted, Journal(path, setup, t, counters) as journal:
            journal.checkpoint(t)  # from the first moment on there is a state to go on from
            reporter.begin(path, setup, t)
            try:
                while t.env_steps < run.start_steps and not interrupted():
                    t = training.explore_at_random(setup, t)
                    reporter.steps(t, "random start")
                while t.env_steps < run.steps and not interrupted():
                    t, outcome = training.iterate(setup, t, reporter.learning)
                    reporter.iteration(t, journal.iteration(t, outcome), outcome)
                    if t.env_steps // run.eval_every > journal.evaluated // run.eval_every:
                        _test(setup, t, journal, reporter)
                    if time.monotonic() - journal.saved > 60 * run.checkpoint_every:
                        journal.checkpoint(t)
            except UserError:  # the env broke or every agent diverged: `t` is the state from before
                journal.checkpoint(t)
                raise
            journal.checkpoint(t)  # before the last test, which a run that goes on to more steps does not have
            if t.env_steps >= run.steps and journal.evaluated < t.env_steps:
                _test(setup, t, journal, reporter)
            result = Run(path, setup, t)
            reporter.end(result, journal.wall(), interrupted=t.env_steps < run.steps)
            return result
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}); the last checkpoint is still valid."
        ) from error


def _test(setup: Setup, t: Progress, journal: Journal, reporter: Reporter) -> None:
    returns = training.evaluate(setup, t)
    journal.evaluation(t, returns)
    reporter.evaluation(t, returns)
