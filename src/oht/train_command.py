"""The command `oht train`: a flag for every setting that there is."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oht.errors import UserError, unknown
from oht.parsing import Parser, assignments, literal, value_of
from oht.signals import exit_process

if TYPE_CHECKING:
    from oht.api import Run

SPACES = """spaces for --tune:
  n_step=1,2,3                  one of these values
  critic_lr=log:1e-5..1e-2      a range on a log scale
  gamma=0.9..0.999              a range on a linear scale
  n_step=1..5                   a range of whole numbers
  critic_lr=log:1e-3:0.5        log scale: start, standard deviation in decades
  gamma=float:0.99:0.01:0.9:1   linear scale: start, standard deviation, lowest, highest
  n_step=int:3:1:1:10           whole numbers: start, standard deviation, lowest, highest
  actor_lr+critic_lr=...        one value for both"""


def describe(parser: Parser) -> None:
    """Flags for every setting; help shows those of the run, the algorithm and the chosen method only."""
    from oht import settings
    from oht.config import RunSettings
    from oht.hyper import HYPER_PARAMETERS, OPTIONS
    from oht.methods import METHODS, find

    method = _named(parser.words, "method")
    if method and method not in METHODS and ":" not in method:
        raise unknown("method", method, METHODS)
    chosen = find(method) if method else None
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "oht train TASK [--SETTING VALUE ...] [--tune NAME=SPACE ...]\n       oht train --resume RUN"
    methods = "\n".join(f"  {name:14} {known.summary}" for name, known in METHODS.items())
    methods += "\n  module:name    one of your own (docs/python.md)"
    more = "" if chosen else "\nThe settings of a method: oht train --method NAME --help\n"
    parser.epilog = (
        f"methods:\n{methods}\n{more}\n{SPACES}\n\nA config file holds the same names as TOML; flags win over it."
    )
    seen: set[str] = set()

    def flag(group: Any, name: str, help: str) -> None:
        if name not in seen:
            seen.add(name)
            spelled = ["--" + name.replace("_", "-"), *(["--from"] if name == "source" else [])]
            help = help if help == argparse.SUPPRESS else help.replace("%", "%%")
            group.add_argument(*spelled, dest=f"set_{name}", metavar="V", help=help)

    parser.add_argument("task", nargs="?", help=RunSettings.__dataclass_fields__["task"].metadata["help"])
    parser.add_argument("--config", type=Path, help="a TOML file of settings")
    parser.add_argument("--out", type=Path, help="the run folder [a new one under runs/]")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue this run, to --steps if given")
    parser.add_argument("--overwrite", action="store_true", help="replace the run in --out")
    parser.add_argument("--quiet", action="store_true", help="print nothing while training")
    parser.add_argument("--seeds", metavar="N", help="train the seeds 0 to N-1 in one folder; again: continue")
    parser.add_argument("--jobs", metavar="N", help="with --seeds: runs at the same time [one for each core]")
    parser.add_argument(
        "--tune", action="append", default=[], metavar="NAME=SPACE", help="n_step=1,2,3 or actor_lr=log:1e-5..1e-2"
    )
    parser.add_argument(
        "--env-arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the env, as in gravity=9.8"
    )
    run = parser.add_argument_group("run")
    for f in fields(RunSettings):
        if f.name != "task":
            flag(run, f.name, settings.help_of(f))
    algorithm = parser.add_argument_group("algorithm")
    for name, option in OPTIONS.items():
        flag(algorithm, name, _help_of(option))
    hyper = parser.add_argument_group("hyper-parameters (all can be tuned)")
    for name, declared in HYPER_PARAMETERS.items():
        flag(hyper, name, _help_of(declared))
    for own, default in _own_hyper(_named(parser.words, "algo")).items():
        flag(hyper, own, f"of your own algorithm{settings.default_of(default)}")
    if chosen:
        group = parser.add_argument_group(f"method {method}")
        for f in fields(chosen.settings):
            flag(group, f.name, settings.help_of(f))
    for other in METHODS.values():  # taken, so that a setting of another method can be refused by name
        for f in fields(other.settings):
            flag(parser, f.name, argparse.SUPPRESS)


def _named(words: Sequence[str], setting: str) -> str | None:
    """The method or algorithm that a command line names, itself or by its config file: its flags depend on it."""
    name = value_of(words, f"--{setting}")
    file = value_of(words, "--config")
    if name is None and file is not None:
        from oht import config

        name = config.read_file(Path(file)).get(setting)
    return name if isinstance(name, str) else None


def _own_hyper(algo: str | None) -> dict[str, float]:
    """The hyper-parameters of a user's own algorithm that no other has."""
    if algo is None or ":" not in algo:
        return {}
    from oht import agents

    return dict(agents.checked(algo, agents.factory(algo), {}).hyper)


def _help_of(declared: Any) -> str:
    """The line of a hyper-parameter or option: which algorithms have it if not all do, what it is, its default."""
    from oht import hyper, settings

    some = declared.algorithms if len(declared.algorithms) < len(hyper.NETWORKS) else ()
    return (f"{' and '.join(some)}: " if some else "") + declared.help + settings.default_of(declared.default)


def run(options: argparse.Namespace) -> int:
    from oht import api, config, settings

    given = {name[4:]: value for name, value in vars(options).items() if name.startswith("set_") and value is not None}
    show = not options.quiet
    if options.resume:
        others = (options.task, options.out, options.config, options.tune, options.env_arg, options.overwrite)
        others += (options.seeds, options.jobs)
        if any(others) or set(given) - {"steps", "env_errors"}:
            raise UserError(
                "--resume continues the run as it was; only --steps, --env-errors and --quiet can be given with it."
            )
        changes = {name: settings.number(name, value, int) for name, value in given.items()}
        return _ended(partial(api.resume, options.resume, **changes, progress=show), show)
    values = config.read_file(options.config) if options.config else {}
    for name in ("out", "overwrite", "progress", "callbacks", "seeds", "jobs"):
        if name in values:
            raise UserError(f"{name} in {options.config} is no setting of a run; give it on the command line.")
    values |= given | ({"task": options.task} if options.task else {})
    values["tune"] = {**values.get("tune", {}), **assignments(options.tune)}
    if options.env_arg:
        texts = assignments(options.env_arg, "--env-arg NAME=VALUE", "--env-arg gravity=9.8")
        arguments = {name: literal(text) for name, text in texts.items()}
        file = values.get("env_kwargs", {})
        values["env_kwargs"] = {**(file if isinstance(file, dict) else {}), **arguments}
    if not values.get("task"):
        raise UserError("which task? For example: oht train Pendulum-v1, or one of `oht tasks`.")
    if options.seeds is not None:
        return _train_seeds(options, values, given)
    if options.jobs is not None:
        raise UserError("--jobs is for many seeds, as in --seeds 5 --jobs 2; a single run uses all cores.")
    return _ended(partial(api.train, **values, out=options.out, overwrite=options.overwrite, progress=show), show)


def _train_seeds(options: argparse.Namespace, values: dict[str, Any], given: dict[str, Any]) -> int:
    from rich.console import Console

    from oht import settings
    from oht.experiments import job, many_seeds, sweep

    if "seed" in given:
        raise UserError(
            f"--seeds {options.seeds} trains the seeds from 0 on; leave out --seed, or --seeds for one run."
        )
    if options.overwrite:
        raise UserError("--seeds continues what is in its folder; for new runs choose another --out than before.")
    suite = many_seeds.suite_of(values, settings.number("seeds", options.seeds, int))
    engine = job.Local(None if options.jobs is None else settings.number("jobs", options.jobs, int))
    root = options.out or many_seeds.default_folder(suite)
    console = Console(quiet=options.quiet)
    return sweep.sweep(suite, root, engine=engine, console=console, second=exit_process)


def _ended(train: Callable[[], "Run"], shown: bool) -> int:
    """Train and return the exit code; say how to continue an interrupted run, unless the display has."""
    from oht.api import Interrupted

    try:
        train().close()
    except Interrupted as stop:
        if not stop.run.finished:
            if not shown:
                print(f"oht: stopped; continue with: oht train --resume {stop.run.path}", file=sys.stderr)
            return 130
    return 0
