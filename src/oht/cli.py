"""The command `oht`: each of its commands is a few lines that call other modules."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from oht import train_command
from oht.errors import UserError, unknown
from oht.parsing import Parser, assignments, names
from oht.signals import exit_process, note_interrupts

if TYPE_CHECKING:
    from oht.experiments.job import Engine


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `oht`. A user's mistake is one sentence on stderr and exit code 2; 130: stopped by a signal."""
    if arguments is None:
        note_interrupts()
        sys.path.insert(0, "")  # as with `python -m`: `oht train my_file:MyEnv` finds what lies here
        warnings.formatwarning = lambda message, *_, **__: f"oht: {' '.join(str(message).split())}\n"
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]; a screen may lack signs
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and words[:1] == ["train"] and not {"--quiet", "-h", "--help"} & set(words):
        print(f"oht {version('oht')}: loading JAX ...", flush=True)  # importing and compiling take some seconds
    try:
        if words and not words[0].startswith("-") and words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        parser = Parser(prog="oht", description="Off-policy learning that tunes its own hyper-parameters.")
        parser.add_argument("--version", action="version", version=f"oht {version('oht')}")
        commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
        for name, (describe, run, line) in COMMANDS.items():
            command = commands.add_parser(name, help=line, description=line, allow_abbrev=False)
            command.set_defaults(run=run, flags=command.flags)
            if words[:1] == [name]:
                command.words = words[1:]
                describe(command)
        options, rest = parser.parse_known_args(words)
        for word in rest:
            name = word.split("=")[0]
            if name.startswith("-"):
                raise unknown("flag", name, options.flags())
            raise UserError(f"there is no place for {word!r}; see `oht {options.command} --help`.")
        return options.run(options) or 0
    except UserError as error:
        return _refuse(str(error))
    except MemoryError:
        return _refuse("there is not enough memory; make population, batch_size, hidden or replay_size smaller.")
    except BrokenPipeError:  # as in `oht tasks | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:  # not about a path that was given
            raise
        return _refuse(f"{shortened(str(error.filename))} cannot be used: {error.strerror}.")
    except KeyboardInterrupt:
        print("oht: stopped.", file=sys.stderr)
        return 130


def shortened(name: str) -> str:
    """A path as it is shown in a sentence."""
    return name if len(name) <= 100 else f"{name[:100]}..."


def _refuse(sentence: str) -> int:
    print("oht:", " ".join(sentence.split()), file=sys.stderr)
    return 2


def _describe_eval(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--best", action="store_true", help="the agent with the best evaluation [the last one]")
    parser.add_argument("--episodes", default="10", help="number of episodes [10]")
    parser.add_argument("--seed", default="0", help="seed of the envs [0]")


def _eval(options: argparse.Namespace) -> None:
    from oht import api
    from oht.report.terminal import print_evaluation

    episodes, seed = api.evaluation_numbers(options.episodes, options.seed)
    run = api.load(options.path, best=options.best)
    print_evaluation(options.path, run.evaluate(episodes, seed))
    run.close()


def _describe_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("file", type=Path, metavar="FILE", help="policy.onnx, or policy.npz for oht.load_policy")
    parser.add_argument("--best", action="store_true", help="the agent with the best evaluation [the last one]")


def _export(options: argparse.Namespace) -> None:
    from oht import api

    file = options.file
    if file.suffix not in (".onnx", ".npz"):
        raise UserError(f"{file} must end in .onnx, for ONNX, or in .npz, for oht.load_policy.")
    run = api.load(options.path, best=options.best)
    print(run.policy.export(file) if file.suffix == ".onnx" else run.policy.save(file))
    run.close()


def _describe_video(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--out", type=Path, metavar="FILE", help="an MP4 or GIF file [video.mp4 in the run's folder]")
    parser.add_argument("--best", action="store_true", help="the agent with the best evaluation [the last one]")
    parser.add_argument("--episodes", default="1", help="number of episodes [1]")


def _video(options: argparse.Namespace) -> None:
    from oht import api, settings

    episodes = settings.number("episodes", options.episodes, int)
    settings.within("episodes", episodes, 1, 1000)
    run = api.load(options.path, best=options.best)
    print(run.video(options.out, episodes))
    run.close()


def _describe_tasks(parser: argparse.ArgumentParser) -> None:
    del parser


def _tasks(options: argparse.Namespace) -> None:
    from oht.report.terminal import print_tasks

    print_tasks()


def _describe_plot(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A run is drawn with its schedule, and the evaluations of other runs beside it. Of a folder, all runs below it "
        "are compared: a panel for each task, the seeds of a method as mean with a band."
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="RUN|DIR", help="run folders, or folders of runs")
    parser.add_argument("--out", type=Path, help="a PNG, PDF or SVG file [plot.png in the first folder]")


def _plot(options: argparse.Namespace) -> None:
    from oht import runs

    first, *others = options.paths
    out = options.out or first / "plot.png"
    if any(path.is_dir() and not (path / runs.FACTS).exists() for path in options.paths):
        from oht.experiments.comparison import compare

        for note in compare(options.paths, out):
            print("oht:", note, file=sys.stderr)
    else:
        from oht.report.plots import plot_run

        for path in options.paths:
            runs.check(path)
        plot_run(first, out, others)
    print(out)


def _describe_watch(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The page is for this machine only and needs no network. It reads run folders and never writes."
    parser.add_argument(
        "path", type=Path, nargs="?", default=Path("runs"), metavar="DIR", help="runs below this folder [runs]"
    )
    parser.add_argument("--port", help="of the page [a free one]")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _watch(options: argparse.Namespace) -> None:
    import webbrowser

    from oht import settings
    from oht.report.watch import Server

    port = 0 if options.port is None else settings.number("port", options.port, int)
    settings.within("port", port, 0, 65535)
    with Server(options.path, port) as server:
        print(f"{server.address}  the runs below {options.path}; Ctrl-C ends it", flush=True)
        if options.open:
            webbrowser.open(server.address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _describe_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN|DIR", help="a run folder, or a folder with runs below it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the HTML file [report.html in the folder]")


def _report(options: argparse.Namespace) -> None:
    from oht.report.html_report import write_report

    print(write_report(options.path, options.out))


def _describe_suites(parser: argparse.ArgumentParser) -> None:
    del parser


def _suites(options: argparse.Namespace) -> None:
    from oht.experiments.sweep import print_suites

    print_suites()


def _describe_sweep(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The same command again continues where it stopped; finished runs are never repeated."
    parser.add_argument("suite", metavar="SUITE", help="one of `oht suites`, or a TOML file")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder of all runs [runs/SUITE]")
    parser.add_argument("--steps", help="env steps of each run; eval_every is scaled with them [the suite's]")
    parser.add_argument("--seeds", help="number of seeds [the suite's]")
    parser.add_argument("--tasks", type=names, metavar="A,B", help="only these tasks of the suite")
    parser.add_argument("--methods", type=names, metavar="A,B", help="only the methods with these labels")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of `oht train`, for every run"
    )
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where the runs train [local]")
    local = parser.add_argument_group("local engine: each run in a process of this machine")
    local.add_argument("--jobs", help="runs at the same time, each with its share of the cores [one for each core]")
    ray = parser.add_argument_group("ray engine: each run as a task of a Ray cluster")
    ray.add_argument("--address", help="of the cluster [Ray's own choice]")
    ray.add_argument("--cpus", help="cores for each run [1]")
    ray.add_argument("--gpus", help="GPUs for each run, also a fraction [0]")


def _sweep(options: argparse.Namespace) -> int:
    from rich.console import Console

    from oht import settings
    from oht.experiments import suites
    from oht.experiments.sweep import sweep

    given = {name: getattr(options, name) for name in ("steps", "seeds") if getattr(options, name) is not None}
    extra = assignments(options.set, "--set NAME=VALUE", "--set batch_size=256")
    suite = suites.load(options.suite, runnable=True).narrowed(options.tasks, options.methods)
    suite = suite.with_budget(**{name: settings.number(name, value, int) for name, value in given.items()})
    suite = suite.with_settings(extra)
    root = options.out or Path("runs", suite.name)
    return sweep(suite, root, engine=_engine(options), console=Console(), second=exit_process)


def _engine(options: argparse.Namespace) -> "Engine":
    from oht import settings
    from oht.experiments.job import Local

    foreign = ("address", "cpus", "gpus") if options.engine == "local" else ("jobs",)
    for name in foreign:
        if getattr(options, name) is not None:
            raise UserError(f"--{name} is not for the {options.engine} engine; see `oht sweep --help`.")
    if options.engine == "ray":
        from oht.experiments.ray_engine import Ray

        cpus, gpus = (settings.number(n, getattr(options, n) or default) for n, default in (("cpus", 1), ("gpus", 0)))
        return Ray(options.address, cpus, gpus)
    return Local() if options.jobs is None else Local(settings.number("jobs", options.jobs, int))


def _describe_figures(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="one of `oht suites`, or a TOML file")
    parser.add_argument("path", type=Path, nargs="?", metavar="DIR", help="the folder of its sweep [runs/SUITE]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go [figures in the sweep's folder]")
    parser.add_argument("--at", metavar="STEPS", help="leave out runs that have fewer steps; tables show this step")
    parser.add_argument("--caption", action="store_true", help="draw the title and a caption into figures")


def _figures(options: argparse.Namespace) -> None:
    from oht import settings
    from oht.experiments import figures, suites

    suite = suites.load(options.suite)
    at = None if options.at is None else settings.number("at", options.at, int)
    root = options.path or Path("runs", suite.name)
    files, notes = figures.make(suite, root, options.out or root / "figures", at, options.caption)
    for file in files:
        print(file)
    for note in notes:
        print("oht:", note, file=sys.stderr)


def _describe_scores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="DIR", help="the folder of a sweep")
    parser.add_argument(
        "--at", metavar="STEPS", help="compare at this number of env steps [the most that all runs have]"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write every number to this file")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")


def _scores(options: argparse.Namespace) -> None:
    from rich.console import Console

    from oht import runs, settings
    from oht.experiments import result_tables, results, scores

    at = None if options.at is None else settings.number("at", options.at, int)
    summary = scores.summarise(results.load(options.path), at)
    for path, text in ((options.csv, scores.to_csv), (options.markdown, result_tables.markdown)):
        if path is not None:
            if path.is_dir():
                raise UserError(f"{path} is a folder; name a file in it.")
            with runs.refused(path):
                runs.write_aside(path, text(summary))
    result_tables.show(summary, Console())


COMMANDS = {
    "train": (train_command.describe, train_command.run, "train an agent"),
    "tasks": (_describe_tasks, _tasks, "the tasks of the paper and what they need"),
    "eval": (_describe_eval, _eval, "evaluate a trained agent"),
    "export": (_describe_export, _export, "write the policy of a run to a file: ONNX, or .npz for NumPy"),
    "video": (_describe_video, _video, "film the agent of a run: MP4 or GIF"),
    "plot": (_describe_plot, _plot, "draw a run and its schedule, or compare all runs of a folder"),
    "watch": (_describe_watch, _watch, "a live page of all runs below a folder"),
    "report": (_describe_report, _report, "the pictures and numbers of runs as one HTML file"),
    "suites": (_describe_suites, _suites, "the figures and tables of the paper that `oht sweep` runs"),
    "sweep": (_describe_sweep, _sweep, "train every run of a figure or a table"),
    "scores": (_describe_scores, _scores, "compare the methods of a sweep"),
    "figures": (_describe_figures, _figures, "draw a figure or write a table from the runs of a sweep"),
}
