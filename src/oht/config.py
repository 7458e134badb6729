"""Everything a run is made of, resolved from Python values, a TOML file and command-line flags."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from oht import agents, methods, settings, spaces
from oht.agents.normalise import normalised
from oht.errors import UserError, unknown
from oht.knobs import KNOBS
from oht.settings import setting
from oht.types import Algorithm, Method, Spec


@dataclass(frozen=True)
class RunSettings:
    """What every run has, whatever its algorithm and method."""

    task: str = setting("", "one of `oht tasks`, a Gymnasium id, or module:Id")
    algo: str = setting("td3", f"one of {', '.join(agents.ALGORITHMS)}; uniform: random actions")
    method: str = setting("static", "how hyper-parameters are chosen; see the methods below")
    steps: int = setting(1_000_000, "env steps of all agents together, random start included", low=1, high=10**9)
    start_steps: int = setting(10_000, "env steps with random actions at the start", low=1, high=10**9)
    eval_every: int = setting(20_000, "env steps between tests", low=1, high=10**9)
    eval_episodes: int = setting(10, "deterministic episodes of a test", low=1, high=1000)
    seed: int = setting(0, "the same seed gives the same run", low=0, high=2**31 - 1)
    delay: int = setting(0, "rewards are summed and paid every so many steps (0: at once)", low=0, high=10**6)
    max_episode: int = setting(1000, "longest episode; a cut is not a terminal", low=1, high=10**6)
    replay_size: int = setting(1_000_000, "observations that the replay holds", low=2, high=10**9)
    batch_size: int = setting(100, "transitions of a minibatch", low=1, high=10**6)
    normalise: bool = setting(False, "scale observations by their running mean and deviation")
    unstick: bool | None = setting(
        None, "replace agents whose actions are all at their bounds, as they learn no more (default: in populations)"
    )
    workers: int | None = setting(None, "processes that step the envs; 0: none (default: as fits)", low=0, high=1000)
    pool: Literal["auto", "ray"] = setting("auto", "ray: the workers are actors of a Ray cluster")
    checkpoint_every: float = setting(5.0, "minutes between checkpoints", low=0, high=10**6)
    tensorboard: bool = setting(True, "write TensorBoard files")


OPTIONS: dict[str, tuple[Any, str]] = {
    "hidden": (tuple[int, ...], "units of the hidden layers [300,300]"),
    "policy_delay": (int, "critic steps for each step of the actor, td3 [2]"),
    "alpha": (float | None, "fixed entropy temperature, sac; 0.2 in the paper (default: learned)"),
}


@dataclass(frozen=True)
class Config:
    run: RunSettings
    options: Mapping[str, Any]  # of the algorithm, fixed for the run
    hyper: Mapping[str, float]  # of the algorithm, where they differ from its defaults
    tuner: Any  # the method's own settings
    tune: Mapping[str, spaces.Dimension]  # what the method tunes
    factory: Callable[..., Algorithm]  # the algorithm
    method: Method  # how its hyper-parameters are chosen

    def algorithm(self, spec: Spec) -> Algorithm:
        algorithm = self.factory(spec, **self.options)
        if self.method.adapt:
            algorithm = self.method.adapt(self.tuner, self.tune, algorithm)
        return normalised(algorithm, spec) if self.run.normalise else algorithm

    def with_hyper(self, defaults: Mapping[str, float]) -> "Config":
        """With the algorithm's own defaults written out."""
        return replace(self, hyper={**defaults, **self.hyper})


def resolve(
    values: Mapping[str, Any], algorithm: Callable[..., Algorithm] | None = None, method: Method | None = None
) -> Config:
    """Sorts flat settings by whom they belong to, converts and checks them, and refuses what nobody knows.

    An algorithm or a method of the user's own is given itself; all others are found by their names.
    """
    given = {str(name).replace("-", "_"): value for name, value in values.items() if value is not None}
    tune = {name: _dimension(name, text) for name, text in table(given.pop("tune", {})).items()}
    given.setdefault("method", "oht" if tune else "static")
    run = settings.read(RunSettings, {n: given.pop(n) for n in settings.names(RunSettings) if n in given})
    method = method or methods.find(run.method)
    algorithm = algorithm or agents.factory(run.algo)
    own = {name: default for name, default in agents.options_of(algorithm).items() if name in OPTIONS}
    tune = tune or method.tune
    if "alpha" in own and any("alpha" in spaces.tied(name) for name in tune):
        given.setdefault("alpha", 0.2)  # to tune the temperature it must not be learned

    options = {n: settings.convert(n, given.pop(n, default), OPTIONS[n][0]) for n, default in own.items()}
    _check_options(options)
    defaults = algorithm(Spec(1, 1), **options).hyper
    hyper = {n: _hyper(n, given.pop(n)) for n in defaults if n in given}
    tuner = settings.read(method.settings, {n: given.pop(n) for n in settings.names(method.settings) if n in given})
    if given:
        raise _misplaced(next(iter(given)), run, [*settings.names(RunSettings), *own, *defaults], method)
    _check_tune(tune, defaults)
    _check_run(run)
    if run.delay and "@" not in run.task:
        run = replace(run, task=f"{run.task}@delay{run.delay}")  # the name tells it everywhere
    config = Config(run, options, hyper, tuner, tune, algorithm, method)
    for name in hyper.keys() - config.algorithm(Spec(1, 1)).hyper.keys():
        raise UserError(f"{name} is learned; say where it starts in the space, as in tune {name}=log:{hyper[name]:g}.")
    return config


def _check_tune(tune: Mapping[str, spaces.Dimension], defaults: Mapping[str, float]) -> None:
    """Refuses names that the algorithm does not have and values that they cannot take."""
    low, high = spaces.Space(tune, defaults).extremes()
    for name in low:
        if knob := KNOBS.get(name):
            settings.within(f"the space of {name}: its lowest value", low[name], knob.low, knob.high)
            settings.within(f"the space of {name}: its highest value", high[name], knob.low, knob.high)


def table(tune: Any) -> dict[str, Any]:
    """What is to be tuned, by name."""
    if not isinstance(tune, Mapping):
        raise UserError(f"tune is {tune!r}, but must be a table of names and spaces, as in n_step = [1, 2, 3].")
    return {str(name).replace("-", "_"): space for name, space in tune.items()}


def _dimension(name: str, value: Any) -> spaces.Dimension:
    try:
        return value if isinstance(value, spaces.Dimension) else spaces.parse(value)
    except OverflowError:
        raise UserError(f"the space of {name} has a number that is too large.") from None


def _check_options(options: Mapping[str, Any]) -> None:
    for name, high in (("hidden", 100_000), ("policy_delay", 100)):
        if name in options:
            settings.within(name, options[name], 1, high)
    if options.get("alpha") is not None:
        settings.within("alpha", options["alpha"], KNOBS["alpha"].low, KNOBS["alpha"].high)


def _hyper(name: str, value: Any) -> float:
    number = settings.number(name, value, int if name == "n_step" else float)
    knob = KNOBS.get(name)
    settings.within(name, number, knob.low if knob else -math.inf, knob.high if knob else math.inf)
    return number


def _check_run(run: RunSettings) -> None:
    if run.start_steps >= run.steps:
        raise UserError(
            f"start_steps {run.start_steps} must be below steps {run.steps}, or nothing would be learned; "
            "make start_steps smaller or steps larger."
        )
    if run.replay_size <= run.max_episode:
        raise UserError(
            f"replay_size {run.replay_size} cannot hold an episode of max_episode {run.max_episode}; make it larger."
        )


def _misplaced(name: str, run: RunSettings, here: list[str], method: Any) -> UserError:
    """A setting that this run does not have: someone else's, or nobody's."""
    for algo in agents.ALGORITHMS:
        factory = agents.factory(algo)
        if name in {*OPTIONS.keys() & agents.options_of(factory).keys(), *factory(Spec(1, 1)).hyper}:
            return UserError(f"{name} is a setting of {algo}, not of {run.algo}.")
    owners = [m for m, other in methods.METHODS.items() if name in settings.names(other.settings)]
    if owners:
        return UserError(f"{name} is a setting of the methods {', '.join(owners)}, not of {run.method}.")
    return unknown("setting", name, [*here, *settings.names(method.settings)])


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file: flat names, and a table `tune`."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"the config file {path} does not exist.") from None
    except OSError as error:
        raise UserError(f"the config file {path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"the config file {path} is not TOML: {error}.") from None
    return {name.replace("-", "_"): value for name, value in values.items()} | {"tune": table(values.get("tune", {}))}


def to_toml(config: Config) -> str:
    """Every setting, so that reading it gives the same config."""
    flat = {**asdict(config.run), **config.options, **config.hyper, **asdict(config.tuner)}
    lines = [settings.toml_line(name, value) for name, value in flat.items() if value is not None]
    if config.tune:
        lines += [
            "",
            "[tune]",
            *(f"{settings.toml_key(name)} = {settings.toml(spaces.format(dim))}" for name, dim in config.tune.items()),
        ]
    return "\n".join(lines) + "\n"
