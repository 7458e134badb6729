"""Everything a run is made of, resolved from Python values, a TOML file and command-line flags.

The algorithms and methods are imported when a run is resolved, so that help needs no JAX.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from oht import methods, settings, spaces
from oht.errors import UserError, unknown
from oht.hyper import HYPER_PARAMETERS, OPTIONS, find, owners
from oht.settings import setting
from oht.types import Method, Spec

if TYPE_CHECKING:
    from oht.types import Algorithm


@dataclass(frozen=True)
class RunSettings:
    """The settings that every run has, whatever its algorithm and method."""

    task: str = setting("", "one of `oht tasks`, a Gymnasium id, or module:Id")
    algo: str = setting("td3", "the algorithm: td3, ddpg, sac, uniform (random actions), or module:name")
    method: str = setting(
        "static", "how hyper-parameters are chosen: see below, or module:name (default with --tune: oht)"
    )
    steps: int = setting(1_000_000, "env steps of all agents together, random start included", low=1, high=10**9)
    start_steps: int = setting(10_000, "env steps with random actions at the start", low=1, high=10**9)
    # always a number once a config is resolved
    eval_every: int = setting(
        None, "env steps between evaluations (default: a tenth of steps, at most 20000)", low=1, high=10**9
    )
    eval_episodes: int = setting(10, "episodes of an evaluation, without exploration noise", low=1, high=1000)
    seed: int = setting(0, "random seed; the same seed gives the same run", low=0, high=2**31 - 1)
    delay: int = setting(0, "delayed rewards: summed and paid every so many steps (0: no delay)", low=0, high=10**6)
    max_episode: int = setting(1000, "time limit of an episode, in steps; not a terminal", low=1, high=10**6)
    replay_size: int = setting(1_000_000, "observations that the replay buffer holds", low=2, high=10**9)
    batch_size: int = setting(100, "transitions of a minibatch", low=1, high=10**6)
    normalise: bool = setting(False, "normalise observations by their running mean and standard deviation")
    unstick: bool | None = setting(
        None, "replace agents whose actions are all at their bounds: they cannot learn (default: in populations)"
    )
    overlap: bool = setting(False, "play the episodes of an iteration while agents learn, by the policies from before")
    workers: int | None = setting(
        None, "processes that step the envs; 0: none (default: depends on the task)", low=0, high=1000
    )
    pool: Literal["auto", "ray"] = setting("auto", "ray: the workers are actors of a Ray cluster")
    env_errors: int = setting(
        0, "times in a row that an episode is repeated from another seed if the env fails in it", low=0, high=1000
    )
    checkpoint_every: float = setting(5.0, "minutes between checkpoints", low=0, high=10**6)
    tensorboard: bool = setting(True, "write TensorBoard files")
    track: Literal["none", "wandb"] = setting("none", "wandb: also send the run to Weights & Biases")


MOST_EVAL_EVERY, EVALUATIONS = 20_000, 10  # the default of eval_every: at least so many evaluations of a run


@dataclass(frozen=True)
class Config:
    run: RunSettings
    options: Mapping[str, Any]  # of the algorithm, fixed for the run
    hyper: Mapping[str, float]  # of the algorithm: those that are given; after `with_hyper` all
    tuner: Any  # the method's own settings
    tune: Mapping[str, spaces.Dimension]  # what the method tunes
    factory: "Callable[..., Algorithm]"  # the algorithm
    method: Method  # how its hyper-parameters are chosen
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)  # the arguments with which envs are made

    def algorithm(self, spec: Spec) -> "Algorithm":
        """The algorithm for a task of these sizes, as the method wants it."""
        from oht.agents.normalise import normalised

        algorithm = self.factory(spec, **self.options)
        if self.method.adapt:
            algorithm = self.method.adapt(self.tuner, self.tune, algorithm)
        return normalised(algorithm, spec) if self.run.normalise else algorithm

    def with_hyper(self, defaults: Mapping[str, Any]) -> "Config":
        """The same with the algorithm's defaults written out."""
        plain = {n: v.item() if hasattr(v, "item") else v for n, v in defaults.items()}  # NumPy or JAX
        return replace(self, hyper={**plain, **self.hyper})


def resolve(
    values: Mapping[str, Any], algorithm: "Callable[..., Algorithm] | None" = None, method: Method | None = None
) -> Config:
    """Sorts flat settings by owner (run, algorithm, method), converts and checks them, and refuses unknown ones.

    A value of None is a setting that is not given. A user's own algorithm or method is passed itself; all others are
    found by their names.
    """
    from oht import agents

    everything = {str(name).replace("-", "_"): value for name, value in values.items()}
    given = {name: value for name, value in everything.items() if value is not None}
    tune = {name: spaces.dimension(name, space) for name, space in table(given.pop("tune", {})).items()}
    env_kwargs = _env_kwargs(given.pop("env_kwargs", {}))
    given.setdefault("method", "oht" if tune else "static")
    run = settings.read(RunSettings, {n: given.pop(n) for n in settings.names(RunSettings) if n in given})
    method = method or methods.find(run.method)
    algorithm = algorithm or agents.factory(run.algo)
    own = {name: default for name, default in agents.options_of(algorithm).items() if name in OPTIONS}
    tune = tune or method.tune
    if "alpha" in own and any("alpha" in spaces.tied(name) for name in tune):
        given.setdefault("alpha", HYPER_PARAMETERS["alpha"].default)  # to tune the temperature it must not be learned

    options = {name: _option(name, given.pop(name, default)) for name, default in own.items()}
    defaults = agents.checked(run.algo, algorithm, options).hyper
    for name in {**own, **defaults}.keys() & {*settings.names(RunSettings), *settings.names(method.settings)}:
        what = "a hyper-parameter" if name in defaults else "an option"
        raise UserError(
            f"{name} is {what} of {run.algo} and a setting of the run or of {run.method}, so that nobody "
            "knows which is meant; give that of the algorithm another name."
        )
    hyper = {n: _hyper(n, given.pop(n)) for n in defaults if n in given}
    tuner = settings.read(method.settings, {n: given.pop(n) for n in settings.names(method.settings) if n in given})
    here = [*settings.names(RunSettings), *own, *defaults, *settings.names(method.settings), "tune", "env_kwargs"]
    for name in given:
        raise _misplaced(name, run, here)
    for name in sorted(everything.keys() - _known() - set(here)):
        raise unknown("setting", name, here)
    _check_tune(tune, {**defaults, **hyper})
    run = _run(run)
    config = Config(run, options, hyper, tuner, tune, algorithm, method, env_kwargs)
    known = config.algorithm(Spec(1, 1)).hyper
    for name in hyper.keys() - known.keys():
        raise UserError(f"{name} is learned; give its start in the space, as in tune {name}=log:{hyper[name]:g}.")
    method.make(tuner, tune, {**known, **hyper})  # refuses what it cannot tune, before anything is opened
    return config


def _run(run: RunSettings) -> RunSettings:
    """The settings of the run, checked together, with those that follow from others."""
    if run.start_steps >= run.steps:
        raise UserError(
            f"start_steps {run.start_steps} must be below steps {run.steps}, or nothing would be learned; "
            "make start_steps smaller or steps larger."
        )
    if run.replay_size <= run.max_episode:
        raise UserError(
            f"replay_size {run.replay_size} cannot hold an episode of max_episode {run.max_episode}; make it larger."
        )
    if run.eval_every is None:
        run = replace(run, eval_every=max(1, min(MOST_EVAL_EVERY, run.steps // EVALUATIONS)))
    if run.delay and "@" not in run.task:
        run = replace(run, task=f"{run.task}@delay{run.delay}")  # so that every table and file name shows it
    return run


def _check_tune(tune: Mapping[str, spaces.Dimension], hyper: Mapping[str, float]) -> None:
    """Refuses names that the algorithm does not have and values that they cannot take."""
    low, high = spaces.Space(tune, {"replay_ratio": 1.0, **hyper}).extremes()
    for name in low:
        declared = find(name)
        for which, value in (("lowest", low[name]), ("highest", high[name])):
            if value not in (declared.low, declared.high):  # which may be infinite
                settings.within(f"the space of {name}: its {which} value", value, declared.low, declared.high)


def table(tune: Any) -> dict[str, Any]:
    """The dimensions to be tuned, by name, as they were given."""
    if not isinstance(tune, Mapping):
        raise UserError(f"tune is {tune!r}, but must be a table of names and spaces, as in n_step = [1, 2, 3].")
    return {str(name).replace("-", "_"): space for name, space in tune.items()}


def _env_kwargs(given: Any) -> dict[str, Any]:
    """The arguments of an env: names and values that a config file can hold."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UserError(f"env_kwargs is {given!r}, but must be a table of names and values, as in gravity = 9.8.")
    return {name: _storable(f"{name} in env_kwargs", value) for name, value in given.items()}


def _storable(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _storable(name, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(name, part) for part in value]
    if isinstance(value, str | bool | int | float):
        return value
    raise UserError(
        f"{name} is {value!r}, which config.toml cannot hold; give numbers, texts, true, false, or lists and dicts of "
        "them, or pass a function that makes the env."
    )


def _option(name: str, value: Any) -> Any:
    """An option of the algorithm, converted and checked."""
    option = OPTIONS[name]
    value = settings.convert(name, value, option.kind)
    settings.within(name, value, option.low, option.high)
    return value


def _hyper(name: str, value: Any) -> float:
    """A hyper-parameter, converted and checked."""
    declared = find(name)
    number = settings.number(name, value, int if declared.whole else float)
    settings.within(name, number, declared.low, declared.high)
    return number


def _known() -> set[str]:
    """The names that some run has: of every built-in algorithm and method."""
    own = {name for method in methods.METHODS.values() for name in settings.names(method.settings)}
    return {*settings.names(RunSettings), *OPTIONS, *HYPER_PARAMETERS, *own}


def _misplaced(name: str, run: RunSettings, here: list[str]) -> UserError:
    """A setting that this run does not have: that of another algorithm or method, or an unknown one."""
    algorithms = owners(name)
    if algorithms and run.algo not in algorithms:
        return UserError(f"{name} is a setting of {_joined(algorithms)}, not of {run.algo}.")
    if name in ("alpha_lr", "target_entropy") and "alpha" in here:
        return UserError(f"{name} is for a learned temperature, but alpha is given or tuned; leave out one of the two.")
    others = [m for m, other in methods.METHODS.items() if name in settings.names(other.settings)]
    if others:
        what = "method" if len(others) == 1 else "methods"
        return UserError(f"{name} is a setting of the {what} {_joined(others)}, not of {run.method}.")
    return unknown("setting", name, here)


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file: flat names, and the tables `tune` and `env_kwargs`."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"the config file {path} does not exist.") from None
    except OSError as error:
        raise UserError(f"the config file {path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"the config file {path} is not TOML: {error}.") from None
    return {name.replace("-", "_"): value for name, value in values.items()} | {"tune": table(values.get("tune", {}))}


def flat(config: Config) -> dict[str, Any]:
    """Every setting by its name, and the table `tune`; resolving it gives the same config."""
    everything = {**asdict(config.run), **config.options, **config.hyper, **asdict(config.tuner)}
    values: dict[str, Any] = {name: value for name, value in everything.items() if value is not None}
    if config.tune:
        values["tune"] = {name: spaces.format(dim) for name, dim in config.tune.items()}
    if config.env_kwargs:
        values["env_kwargs"] = config.env_kwargs
    return values


def to_toml(config: Config) -> str:
    """The text of config.toml."""
    return tomli_w.dumps(flat(config))
