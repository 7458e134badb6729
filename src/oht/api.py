"""The Python interface: train, resume, load."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from oht import (
    agents,
    compilation,
    config,
    lookup,
    methods,
    policies,
    population,
    running,
    runs,
    seeds,
    settings,
    training,
)
from oht.agents import normalise
from oht.callbacks import Callbacks, checked
from oht.errors import UserError
from oht.report.progress import Terminal
from oht.report.trackers import TensorBoard, WandB
from oht.runs import checkpoints
from oht.signals import raise_missed
from oht.training import Champion, Progress, Setup
from oht.types import Algorithm, Method

if TYPE_CHECKING:
    from oht.envs.rendered import Scene
    from oht.report.videos import Frame

RUNS = Path("runs")  # where the folder of a run is made, unless it is given
MOST_EPISODES = 100_000  # of an evaluation


class Policy:
    """The champion: observations in, actions in the env's own range out."""

    def __init__(self, setup: Setup, champion: Champion):
        self._setup, self._calls, key = setup, 0, seeds.key(setup.config.run.seed, "policy")
        self._state, self._env_steps = champion.state, champion.env_steps
        agent = jax.device_put(jax.tree.map(lambda leaf: leaf[None], self._state))
        hyper = {name: np.array([value], np.float32) for name, value in champion.hyper.items()}
        self._act = cache(lambda explore: setup.actors.policies(key, agent, hyper, explore))
        self._layout = policies.layout_of(setup.eval_pool.spaces[0])

    def __call__(self, obs: Any, deterministic: bool = True) -> np.ndarray:
        """The action for one observation as the env gives it, or one action per row of a batch."""
        vectors, box = policies.vectors(self._layout, obs), self._setup.eval_pool.spaces[1]
        act, rows = self._act(not deterministic), []
        for vector in np.atleast_2d(vectors):
            self._calls += 1
            rows.append(act(self._calls, vector[None])[0])
        return policies.scaled(box.low, box.high, np.stack(rows) if vectors.ndim == 2 else rows[0])

    def predict(self, obs: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True):
        """As in Stable-Baselines3: one observation or a batch in, (action or actions, state) out."""
        return self(obs, deterministic), state

    def save(self, path: str | Path) -> Path:
        """Write the policy to a .npz file, which `oht.load_policy` reads without JAX, env or run folder."""
        return self._portable().save(path)

    def export(self, path: str | Path) -> Path:
        """Write the policy to an ONNX file, with the scaling of observations and the env's range of actions."""
        return self._portable().export(path)

    def _portable(self) -> policies.SavedPolicy:
        """The policy without JAX; refuse networks that it cannot compute."""
        run, box = self._setup.config.run, self._setup.eval_pool.spaces[1]
        facts = {"task": run.task, "algo": run.algo, "method": run.method, "env_steps": self._env_steps}
        facts["activation"] = self._setup.config.options.get("activation", "relu")
        try:
            arrays = policies.actor_arrays(self._state, normalise.CLIP, normalise.SMALLEST_VARIANCE)
            portable = policies.SavedPolicy(self._layout, {**arrays, "low": box.low, "high": box.high}, facts)
            probes = np.random.default_rng(0).normal(size=(16, self._setup.eval_pool.obs)).astype(np.float32)
            if not np.allclose(portable(probes), self(probes), rtol=0, atol=1e-4 * np.max(box.high - box.low)):
                raise policies.CannotExport("its actions differ")
        except (policies.CannotExport, ValueError, TypeError) as error:
            raise UserError(
                f"the policy of {run.algo} cannot be saved to a file: the NumPy forward pass knows networks like those "
                f"of td3, ddpg and sac ({error}). Load its run with oht.load instead."
            ) from None
        return portable


class Run:
    """A run and its files."""

    def __init__(self, path: Path, setup: Setup, progress: Progress, best: Champion | None = None):
        """With `best` every agent is that one."""
        self.path, self.setup, self.progress = path, setup, progress
        self._folder = path.absolute()  # the current folder may change
        self.policy = Policy(setup, best or training.champion(setup, progress))
        everyone = setup.tuner.population
        self._hyper = {name: np.full(everyone, value) for name, value in best.hyper.items()} if best else None

    def __repr__(self) -> str:
        run = self.setup.config.run
        steps = f"{self.progress.env_steps:,} of {run.steps:,} steps"
        return f"<Run {str(self.path)!r}: {run.method} {run.algo} on {run.task}, seed {run.seed}, {steps}>"

    @property
    def finished(self) -> bool:
        """Whether it has trained for all its steps."""
        return self.progress.env_steps >= self.setup.config.run.steps

    @property
    def schedule(self) -> list[dict[str, float]]:
        """How the hyper-parameters moved: the rows of schedule.csv."""
        return runs.rows(self._folder / "schedule.csv")

    @property
    def evals(self) -> list[dict[str, float]]:
        """The evaluations: the rows of evals.csv."""
        return runs.rows(self._folder / "evals.csv")

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The iterations: the rows of metrics.csv."""
        return runs.rows(self._folder / "metrics.csv")

    @property
    def events(self) -> list[runs.Event]:
        """What happened and when: the lines of events.jsonl."""
        return runs.events(self._folder)

    @property
    def env_errors(self) -> int:
        """How many episodes were dropped because the env failed in them."""
        return sum(event["event"] == "env-error" for event in self.events)

    def evaluate(self, episodes: int = 10, seed: int = 0) -> list[float]:
        """Returns of the champion without exploration noise, one per episode."""
        episodes, seed = evaluation_numbers(episodes, seed)
        returns = training.evaluate(self.setup, self.progress, seed, episodes, self._hyper)
        for dropped in training.take_dropped(self.setup):
            warnings.warn(f"an episode was repeated: {dropped.error}", stacklevel=2)
        return returns

    def video(self, path: str | Path | None = None, episodes: int = 1, seed: int = 0) -> Path:
        """Film episodes of the champion, with the return in the corner, and return the file: an MP4 or a GIF.

        Without `path` it is video.mp4 in the run folder.
        """
        from oht.envs.rendered import Scene
        from oht.report import videos

        episodes, seed = evaluation_numbers(episodes, seed)
        file = Path(path) if path is not None else self._folder / "video.mp4"
        videos.check(file)
        run, pool = self.setup.config.run, self.setup.eval_pool
        scene = Scene(self.setup.env or run.task, pool.obs, pool.action, self.setup.config.env_kwargs)
        try:
            return videos.write(file, self._frames(scene, episodes, seed), scene.fps)
        finally:
            scene.close()

    def _frames(self, scene: "Scene", episodes: int, seed: int) -> "Iterator[Frame]":
        """Pictures of episodes of the deployed agent, from the starts of `evaluate(episodes, seed)`."""
        _, starts = training.evaluation_plan(self.setup, self.progress, seed, episodes)
        for number, start in enumerate(starts, 1):
            obs, total, over, steps = scene.reset(start), 0.0, False, 0
            prefix = f"episode {number}: " if episodes > 1 else ""
            while not over and steps < self.setup.eval_pool.limit:
                yield scene.picture(), f"{prefix}return {total:.1f}"
                obs, reward, over = scene.step(self.policy(obs))
                total, steps = total + reward, steps + 1
            yield scene.picture(), f"{prefix}return {total:.1f}"

    def close(self) -> None:
        """Close the envs."""
        training.close(self.setup)


class Interrupted(KeyboardInterrupt):
    """Raised by `train` and `resume` after Ctrl-C or SIGTERM, when the run is saved.

    `run` is the run as far as it came; its envs are closed.
    """

    def __init__(self, run: Run):
        super().__init__(f"the run is saved; continue with oht.resume({str(run.path)!r})")
        self.run = run


def train(
    task: str | Callable[[], Any],
    *,
    algo: str | Callable[..., Algorithm] = "td3",
    method: str | Method | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
    callbacks: Sequence[Any] = (),
    **settings: Any,
) -> Run:
    """Train on a task, a Gymnasium id or a function that makes an env, and return the run.

    `algo` is a name or a user's own factory (spec, **options) -> Algorithm; `method` is a name or a user's own Method,
    by default `oht` where there is something to tune and `static` where not. Users' own have names, too: `module:name`.
    `env_kwargs` are arguments with which the env is made.
    Every setting of the command line is an argument here (`n_step=3`, `steps=1_000_000`,
    `tune={"n_step": oht.Choice(1, 2, 3)}`).
    `out` is the run folder; without it a new one is made under runs/. `progress` shows a progress bar; `callbacks`
    are objects with methods such as `on_evaluation` (see `oht.Callback`), which can also stop the run.
    On Ctrl-C the run is saved and KeyboardInterrupt is raised; `resume` continues it.
    """
    compilation.set_up()
    if hasattr(task, "step") and hasattr(task, "reset") and not callable(task):
        raise UserError(
            "task is an env, but a run makes envs of its own: give its name, its class or a function that makes it, "
            "as in oht.train(MyEnv) or oht.train(lambda: gymnasium.make('Pendulum-v1'))."
        )
    env = task if callable(task) else None
    own_algo = algo if callable(algo) else None
    own_method = method if isinstance(method, Method) else None
    values = {**settings, "task": lookup.name_of(env) if env else task}
    values["algo"] = lookup.name_of(own_algo) if own_algo else algo
    values["method"] = lookup.name_of(own_method, own_method.make) if own_method else method
    resolved = config.resolve(values, own_algo, own_method)
    run, hooks = resolved.run, _callbacks(resolved, progress, callbacks)
    if out is not None:
        runs.vacant(Path(out), overwrite)
    else:
        runs.writable(RUNS)
    with _opened(resolved, env) as setup:
        _check_memory(setup)
        state = training.start(setup)
        raise_missed()
        path = Path(out) if out is not None else runs.fresh_folder(RUNS, run.task, run.method, run.seed)
        with runs.created(path, config.to_toml(setup.config), overwrite):
            return _continue(path, setup, state, {}, hooks)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    env_errors: int | None = None,
    env: Callable[[], Any] | None = None,
    algo: Callable[..., Algorithm] | None = None,
    method: Method | None = None,
    progress: bool = False,
    callbacks: Sequence[Any] = (),
) -> Run:
    """Continue a run exactly as if it had never stopped, to more steps if `steps` is given.

    `env_errors` replaces the run's setting, so that a run that stopped because its env failed can be continued.
    An env, algorithm, method or callback that was given as a Python object must be given again.
    """
    compilation.set_up()
    path = Path(path)
    changes = {name: value for name, value in (("steps", steps), ("env_errors", env_errors)) if value is not None}
    resolved = _config_of(path, algo, method, changes)
    _check_env(path, resolved, env)
    hooks = _callbacks(resolved, progress, callbacks)
    with runs.locked(path), _opened(resolved, env) as setup:
        _check_memory(setup)
        state, counters = _read(path, setup)
        if changes:
            last = setup.config.run.steps
            if last != config.read_file(path / "config.toml")["steps"] and last < state.env_steps:
                raise UserError(f"{path} has {state.env_steps} steps already, so it cannot end at {steps}.")
            with runs.refused(path):
                runs.write_aside(path / "config.toml", config.to_toml(setup.config))
        return _continue(path, setup, state, counters, hooks)


def load(
    path: str | Path,
    *,
    best: bool = False,
    env: Callable[[], Any] | None = None,
    algo: Callable[..., Algorithm] | None = None,
    method: Method | None = None,
) -> Run:
    """Load a run, to act, evaluate and look at its tables, without its replay.

    With `best` every agent is the one with the best evaluation, else they are those of the last checkpoint.
    An env, algorithm or method that was given as a Python object must be given again.
    """
    compilation.set_up()
    path = Path(path)
    resolved = _config_of(path, algo, method)
    _check_env(path, resolved, env)
    with _opened(resolved, env) as setup:
        shapes = _shapes(setup)
        state = (shapes.agents, shapes.tuner, shapes.owed)
        (members, tuner, owed), counters, _ = checkpoints.load(path / "checkpoint", state, None)
        champion = None
        if best:
            one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), shapes.agents)
            agent, facts = checkpoints.load_best(path / "best", one)
            champion = Champion(agent, facts.get("hyper", setup.config.hyper), facts["env_steps"])
            members = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (setup.tuner.population, *leaf.shape)), agent)
        progress = Progress(jax.device_put(members), tuner, shapes.replay, owed, **_counts(counters))
        return Run(path, setup, progress, champion)


def evaluation_numbers(episodes: Any, seed: Any) -> tuple[int, int]:
    """The number of episodes and the seed of an evaluation, checked."""
    episodes, seed = settings.number("episodes", episodes, int), settings.number("seed", seed, int)
    settings.within("episodes", episodes, 1, MOST_EPISODES)
    settings.within("seed", seed, 0, seeds.MOST)
    return episodes, seed


def _callbacks(resolved: config.Config, progress: bool, given: Sequence[Any]) -> Callbacks:
    """What shows and tracks the run, then the user's own."""
    run = resolved.run
    own = [TensorBoard()] if run.tensorboard else []
    own += [WandB()] if run.track == "wandb" else []
    return Callbacks([*own, *([Terminal()] if progress else []), *checked(given)])


def _config_of(path: Path, algo: Any, method: Method | None, changes: Mapping[str, Any] | None = None) -> config.Config:
    """The config of a run folder, with changes; users' own algorithms and methods are given or found by their names."""
    runs.check(path)
    values = config.read_file(path / "config.toml")
    for what, given, find in (("algo", algo, agents.factory), ("method", method, methods.find)):
        if given is None:
            with _again(path, what, str(values.get(what))):
                find(str(values.get(what)))
    return config.resolve({**values, **(changes or {})}, algo, method)


def _check_env(path: Path, resolved: config.Config, env: Callable | None) -> None:
    """Refuse a run whose env is a user's own, has no name by which it is found, and was not given again."""
    if env is None and ":" in resolved.run.task:
        with _again(path, "env", resolved.run.task):
            training.check_env(resolved)


@contextlib.contextmanager
def _again(path: Path, what: str, name: str) -> Iterator[None]:
    """Say how to give a user's own object again, where it is not found by its name."""
    try:
        yield
    except UserError as error:
        why = lookup.why_not_found(name, error)
        raise UserError(
            f"{path} was trained with the {what} {name!r}, which is not found here: {why} "
            f"give it again from Python, as in oht.load(path, {what}=...)."
        ) from error


@contextlib.contextmanager
def _opened(resolved: config.Config, env: Callable | None) -> Iterator[Setup]:
    """Build the parts of a run; if anything fails, close its envs."""
    setup = training.build(resolved, env)
    try:
        yield setup
    except BaseException:
        training.close(setup)
        raise


def _check_memory(setup: Setup) -> None:
    """Refuse agents and a replay that do not fit into memory."""
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


def _shapes(setup: Setup) -> Progress:
    """The structure of a run's state; no agent is computed or compiled where `training.start` can be traced."""
    try:
        shapes = jax.eval_shape(partial(training.start, setup))
        return shapes._replace(tuner=training.new_tuner_state(setup))  # tracing sorts dicts
    except jax.errors.JAXTypeError:  # a tuner that needs real numbers
        return training.start(setup)


def _read(path: Path, setup: Setup) -> tuple[Progress, dict[str, Any]]:
    """The whole state at the newest checkpoint, or at the start, and its counters."""
    fresh = training.start(setup)
    if not checkpoints.any_in(path / "checkpoint") and not runs.last_row(path / "metrics.csv"):
        return fresh, {}  # killed before its first checkpoint
    state = (fresh.agents, fresh.tuner, fresh.owed)
    (members, tuner, owed), counters, replay = checkpoints.load(path / "checkpoint", state, fresh.replay)
    assert replay is not None
    return Progress(members, tuner, replay, owed, **_counts(counters)), counters


def _counts(counters: dict[str, Any]) -> dict[str, int]:
    return {name: counters[name] for name in training.COUNTERS}


def _continue(path: Path, setup: Setup, t: Progress, counters: dict[str, Any], callbacks: Callbacks) -> Run:
    """Train to the end, or until something stops the run; raise `Interrupted` if that was a signal."""
    t, interrupted = running.train(path, setup, t, counters, callbacks)
    result = Run(path, setup, t)
    if interrupted:
        raise Interrupted(result)
    return result
