"""The comparisons of results/suites at 200 000 env steps: days of training, on one machine or on several in turn.

    python benchmarks/evidence.py run --jobs 2     # trains what the CSV files lack; again: continues where it stopped
    python benchmarks/evidence.py show             # tables of what there is, and figures in results/evidence
    python benchmarks/evidence.py write            # the same, and puts tables into both README.md

`oht sweep` trains, one seed of everything before the second. Each finished run is added to results/evidence/SUITE.csv
at once. On another machine these runs are put back into the folder of the sweep, which then trains only the others.
Two calls may train side by side if their --suites differ.
The score of a run is its last evaluation; its cost is the gradient steps of all agents for each env step. `champion`
are the tuned values of the agent that led before the last episode; runs stored before there was this column have none.
"""

import argparse
import csv
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from oht import runs
from oht.experiments import figures, results, scores, suites
from oht.experiments.job import finished
from oht.experiments.result_tables import PAPER
from oht.experiments.results import Curve, Results
from oht.experiments.scores import Scores
from oht.experiments.suites import Job, Suite
from oht.hyper import HYPER_PARAMETERS
from oht.tuners.columns import CHAMPION, tuned

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "results" / "evidence"
PAGES = (ROOT / "README.md", ROOT / "results" / "README.md")
COLUMNS = ("task", "method", "seed", "env_steps", "return", "return_std")
COLUMNS += ("gradient_steps", "wall_time", "cpu_time", "champion")
FILES = {  # of a run folder: their columns, and what these are called here
    "evals.csv": {
        "env_steps": "env_steps",
        "return_mean": "return",
        "return_std": "return_std",
        "wall_time": "wall_time",
        "cpu_time": "cpu_time",
    },
    "metrics.csv": {"env_steps": "env_steps", "updates": "gradient_steps"},
}
CHEETAH = "dm/cheetah-run"
WRONG_RATES = ("1e-5", "1e-4", "1e-2")
RATES = ("actor_lr", "critic_lr")
VERSUS: Mapping[str, Mapping[str, str]] = {  # the static agent that a method should improve on
    "delayed": {"oht": "n1", "n5": "n1"},
    "wrong-start": {f"oht-{rate}": f"static-{rate}" for rate in WRONG_RATES},
    "dense": dict.fromkeys(("oht", "ratio2", "oht-nstep"), "static"),
    "others": {},
    "long": {"oht": "static"},
}
SAME_COST = {"dense": dict.fromkeys(("oht", "oht-nstep"), "ratio2")}  # the static agent with as many gradient steps
PAPERS_NAMES = {"static": "td3"}  # in its Table 1
DPI = 150
NAP = 10.0  # seconds between two looks at the sweep


class Part(NamedTuple):
    """A call of `oht sweep`."""

    suite: str
    seeds: int
    methods: Sequence[str] | None = None  # None: all

    def chosen(self) -> Suite:
        return source(self.suite).with_budget(seeds=self.seeds).narrowed(methods=self.methods)

    def words(self, folder: Path, jobs: int) -> list[str]:
        only = ["--methods", ",".join(self.methods)] if self.methods else []
        return [str(path_of(self.suite)), "--seeds", str(self.seeds), *only, "--jobs", str(jobs), "--out", str(folder)]


SUITES = ("delayed", "wrong-start", "dense", "others", "long")
FIVE_SEEDS = {"delayed": ("n1", "oht"), "dense": ("static", "oht")}  # all others have three
MAIN = (("delayed", None), ("wrong-start", None), ("dense", FIVE_SEEDS["dense"]), ("dense", None))
PARTS = [  # one seed of everything before the second; of dense rewards first what is compared most
    *(Part(suite, seeds, methods) for seeds in (1, 2, 3) for suite, methods in MAIN),
    *(Part(suite, seeds, methods) for seeds in (4, 5) for suite, methods in FIVE_SEEDS.items()),
    Part("others", 3),
    Part("long", 1),
]
OHT = (sys.executable, "-c", "import sys; from oht.cli import main; sys.exit(main(sys.argv[1:]))")


def path_of(suite: str) -> Path:
    return ROOT / "results" / "suites" / f"{suite}.toml"


def source(suite: str) -> Suite:
    return suites.load(path_of(suite))


# Runs as rows of a CSV


def stored(table: Path) -> dict[tuple[str, str, int], list[dict[str, str]]]:
    """The rows of each run, by task, method and seed."""
    found: dict[tuple[str, str, int], list[dict[str, str]]] = {}
    if table.exists():
        with table.open(newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault((row["task"], row["method"], int(row["seed"])), []).append(row)
    return found


def put_back(table: Path, folder: Path) -> None:
    """Stored runs where `oht sweep` and `oht scores` look for them; runs that are there are left as they are."""
    for (task, label, seed), rows in stored(table).items():
        run = Job(task, label, seed, {}).path(folder)
        if not (run / "evals.csv").exists():
            run.mkdir(parents=True, exist_ok=True)
            for name, columns in FILES.items():
                with (run / name).open("w", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(columns)
                    writer.writerows([row[column] or "nan" for column in columns.values()] for row in rows)


def store(jobs: Sequence[Job], steps: int, folder: Path, table: Path) -> None:
    """Adds the runs that have finished since."""
    known = stored(table)
    for job in jobs:
        if (job.task, job.label, job.seed) not in known and finished(job.path(folder), steps):
            table.parent.mkdir(parents=True, exist_ok=True)
            with table.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if not file.tell():
                    writer.writerow(COLUMNS)
                writer.writerows((job.task, job.label, job.seed, *numbers) for numbers in evaluations(job.path(folder)))


def evaluations(run: Path) -> Iterator[tuple[int, str, str, int, str, str, str]]:
    """Env steps, mean and deviation of the returns, gradient steps up to then, seconds, CPU seconds, tuned values."""
    curve = results.read(run)
    assert curve is not None
    assert curve.updates is not None
    champions = {int(row["env_steps"]): of_champion(row) for row in runs.rows(run / "schedule.csv")}
    for row, updates in zip(runs.rows(run / "evals.csv"), curve.updates, strict=True):
        env_steps, mean, deviation = int(row["env_steps"]), f"{row['return_mean']:.6g}", f"{row['return_std']:.6g}"
        cpu = row.get("cpu_time", math.nan)
        seconds = f"{row['wall_time']:.0f}", "" if math.isnan(cpu) else f"{cpu:.0f}"
        yield env_steps, mean, deviation, int(updates), *seconds, champions.get(env_steps, "")


def of_champion(row: Mapping[str, float]) -> str:
    """The tuned values of the champion in a row of schedule.csv, as in `n_step=3 critic_lr=0.001`."""
    return " ".join(f"{name}={row[CHAMPION + name]:.4g}" for name in tuned(row))


# Tables and figures


def planned(name: str) -> int:
    return len({job.name for part in PARTS if part.suite == name for job in part.chosen().jobs()})


def found_in(name: str) -> Results:
    """The stored runs of a suite, which may be none."""
    suite, curves = source(name), {}
    for (task, label, seed), rows in stored(TABLES / f"{name}.csv").items():
        steps, returns, *spent = (
            np.array([float(row[column] or "nan") for row in rows])
            for column in ("env_steps", "return", "gradient_steps", "wall_time", "cpu_time")
        )
        curve = results.within(Curve(steps.astype(int), returns, None, *spent), suite.steps)
        curves.setdefault((task, label), {})[seed] = curve
    return Results(
        {pair: dict(sorted(curves[pair].items())) for pair in suite.pairs if pair in curves},
        suite.steps,
        list(suite.pairs),
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(cells)} |" for cells in (header, *rows))
    return "\n".join([first, f"|{'---|' * len(header)}", *others])


def summary(suite: Suite, found: Results) -> str:
    """A line for each method: normalised scores, the probability that it improves on static, and what it cost."""
    known = scores.summarise(found, suite.steps)
    numbers = {(n.statistic, n.method): n for n in known.numbers}
    rows = []
    for label in known.labels:
        ratio, minutes = (numbers[name, label] for name in ("cost", "minutes"))
        cpu = numbers.get(("cpu_minutes", label))
        values = ["", "", "", ""]
        if known.scaled:
            mean, median, best, iqm = (numbers[name, label] for name in ("mean", "median", "best_ratio", "iqm"))
            values = [f"{n.value:.2f}" for n in (mean, median, best)] + [with_interval(iqm.value, iqm.low, iqm.high)]
        better = improvement(found, known.tasks, suite.steps, label, VERSUS[suite.name].get(label))
        spent = [f"{ratio.value:.2f}", f"{minutes.value:.0f}", f"{cpu.value:.0f}" if cpu else ""]
        rows.append([suite.title_of(label), ratio.seeds, *values, better, *spent])
    chance = "P(better than static), 95 % interval"
    columns = ["mean", "median", "best ratio", "IQM, 95 % interval", chance, "cost", "minutes", "CPU minutes"]
    return markdown(["method", "runs", *columns], rows)


def improvement(found: Results, tasks: Sequence[str], steps: int, label: str, other: str | None) -> str:
    """P(X > Y) for a run of each on the same task; empty where there is nothing to compare with."""
    returns = results.returns_at(found, steps)
    if other is None or not tasks or (tasks[0], other) not in returns:
        return ""
    x, y = ([returns[task, name] for task in tasks] for name in (label, other))
    if min(map(len, (*x, *y))) < scores.MIN_SEEDS:
        return "too few seeds"
    low, high = scores.stratified_bootstrap(scores.probability_of_improvement, x, y)
    return with_interval(float(scores.probability_of_improvement(x, y)), float(low), float(high))


def with_interval(value: float, low: float | None, high: float | None) -> str:
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def by_task(suite: Suite, found: Results) -> str:
    """The returns of each task: the mean and, if there are several, those of each seed; below, those of the paper."""
    returns = results.returns_at(found, suite.steps)
    rows = []
    for task in found.tasks:
        rows.append([f"`{task}`", *(cell(returns.get((task, label))) for label in found.labels)])
        paper = PAPER["scores"].get(task, {})
        columns = [paper.get(PAPERS_NAMES.get(label, label)) for label in found.labels]
        if any(columns):
            rows.append(["paper, 1e7 steps", *(f"{c[0]} ± {c[1]}" if c else "" for c in columns)])
    return markdown(["return", *map(suite.title_of, found.labels)], rows)


def settled(suite: Suite) -> str:
    """What led each run before its last episode, where that is known; only what is not the default."""
    last = {run: rows[-1]["champion"] for run, rows in stored(TABLES / f"{suite.name}.csv").items()}
    seeds = sorted({seed for (_, _, seed), words in last.items() if words})
    labels = [label for label in suite.labels if any(words and label == of for (_, of, _), words in last.items())]
    rows = []
    for task in suite.tasks:
        for label in labels:
            values = [beside_default(last.get((task, label, seed), "")) for seed in seeds]
            rows += [[f"`{task}`", suite.title_of(label), *values]] if any(values) else []
    return markdown(["led before the last episode", "", *(f"seed {seed}" for seed in seeds)], rows) if rows else ""


def beside_default(words: str) -> str:
    """`default`, or the values that differ from it; nothing where no value is known."""
    values = dict(word.split("=") for word in words.split())
    others = {name: value for name, value in values.items() if float(value) != HYPER_PARAMETERS[name].default}
    rates = {others.get(name) for name in RATES}
    if len(rates) == 1 and None not in rates:  # tied
        others = {"rates": rates.pop(), **{name: value for name, value in others.items() if name not in RATES}}
    return ", ".join(f"{name} {value}" for name, value in others.items()) or ("default" if values else "")


def cell(returns: np.ndarray | None) -> str:
    if returns is None:
        return ""
    each = ", ".join(f"{value:.0f}" for value in returns)
    return each if len(returns) == 1 else f"{np.mean(returns):.0f} ({each})"


def draw(suite: Suite, found: Results) -> None:
    """Returns over training and, where there are several tasks, the three statistics of the paper."""
    figures.draw(suite, found).savefig(TABLES / f"{suite.name}.png", dpi=DPI)
    if len(found.tasks) > 1:
        common = figures.on_common_tasks(found)
        figures.draw(replace(suite, layout="aggregate"), common).savefig(TABLES / f"{suite.name}-scores.png", dpi=DPI)


def tables_of(suite: Suite, found: Results) -> list[str]:
    return [table for table in (summary(suite, found), by_task(suite, found), settled(suite)) if table]


def overview(found: Mapping[str, Results]) -> str:
    """A line for each method beside a static agent, by the runs of the same tasks and seeds."""
    header = ["suite", "method: score", "static TD3: score", "difference, 95 % interval", "runs of each"]
    header += ["tasks where the method's mean is higher"]
    lines = [line for name, has in found.items() for line in beside_static(source(name), has)]
    return markdown(header, lines)


def beside_static(suite: Suite, found: Results) -> Iterator[list[str]]:
    """Seeds differ more than methods do, so only seeds of both count."""
    for pair in (*VERSUS[suite.name].items(), *SAME_COST.get(suite.name, {}).items()):
        returns = {task: both for task in found.tasks if (both := on_common_seeds(found, task, pair))[0].size}
        if returns:
            own, others = ([scores.normalised(task, both[side]) for task, both in returns.items()] for side in (0, 1))
            cells = [
                f"{suite.title_of(label)}: {scores.mean(z):.2f}" for label, z in zip(pair, (own, others), strict=True)
            ]
            ahead = sum(x.mean() > y.mean() for x, y in zip(own, others, strict=True))
            number = sum(x.size for x in own)
            yield [suite.title, *cells, difference(own, others), str(number), f"{ahead} of {len(returns)}"]


def difference(own: Scores, others: Scores) -> str:
    """Of the mean scores, with its interval where every task has at least three seeds."""
    value = float(ahead_by(own, others))
    if min(map(len, own)) < scores.MIN_SEEDS:
        return f"{value:+.2f}"
    low, high = scores.stratified_bootstrap(ahead_by, own, others)
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def ahead_by(own: Scores, others: Scores) -> np.ndarray:
    return scores.mean(own) - scores.mean(others)


def on_common_seeds(found: Results, task: str, pair: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """The last returns of both methods, by the seeds that both have."""
    own, others = (found.curves.get((task, label), {}) for label in pair)
    seeds = sorted(own.keys() & others.keys())
    return np.array([own[s].return_mean[-1] for s in seeds]), np.array([others[s].return_mean[-1] for s in seeds])


def with_tables(page: str, found: Mapping[str, Results]) -> str:
    """The page with tables between its comments, and with the numbers of runs that there are."""
    numbers = {name: (count(has), planned(name)) for name, has in found.items()}
    tables = {name: "\n\n".join(tables_of(source(name), has)) for name, has in found.items()}
    for name, text in (tables | {"all": overview(found)}).items():
        begin, end = f"<!-- tables of {name} -->\n\n", "\n\n<!-- end of tables -->"
        before, here, rest = page.partition(begin)
        _, there, after = rest.partition(end)
        if here and not there:
            raise SystemExit(f"The line {begin.strip()} is not followed by {end.strip()}.")
        page = before + begin + text + end + after if here else page
    numbers["all"] = (sum(n for n, _ in numbers.values()), sum(map(planned, SUITES)))
    for have, of in numbers.values():
        page = re.sub(rf"\b\d+ of {of} runs", f"{have} of {of} runs", page)
    return page


def all_found(names: Sequence[str]) -> dict[str, Results]:
    """The suites that have begun."""
    return {name: found_in(name) for name in names if (TABLES / f"{name}.csv").exists()}


def count(found: Results) -> int:
    return sum(map(len, found.curves.values()))


def plateau(wrong: Results, dense: Results) -> Figure:
    """The last return against the learning rate of the start; static at the default is a run of the suite dense."""
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axis = figure.subplots()
    returns = results.returns_at(wrong, wrong.steps)
    for method, title in (("static", "TD3, this rate for the whole run"), ("oht", "oht, tuned from this rate")):
        places = {rate: returns.get((CHEETAH, f"{method}-{rate}")) for rate in WRONG_RATES}
        if method == "static" and (default := dense.curves.get((CHEETAH, "static"))):
            places["1e-3"] = np.array([curve.return_mean[-1] for curve in default.values()])
        points = sorted((float(rate), values) for rate, values in places.items() if values is not None)
        colour = figures.COLOURS["td3" if method == "static" else method]
        axis.plot([x for x, _ in points], [np.mean(y) for _, y in points], color=colour, label=title)
        for rate, values in points:
            axis.scatter([rate] * len(values), values, color=colour, s=16)
    axis.set(xscale="log", xlabel="learning rates of actor and critic at the start", ylabel="evaluation return")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return figure


# Commands


def train(parts: Sequence[Part], folder: Path, jobs: int) -> int:
    for part in parts:
        place, table, chosen = folder / part.suite, TABLES / f"{part.suite}.csv", part.chosen()
        put_back(table, place)
        sweep = subprocess.Popen([*OHT, "sweep", *part.words(place, jobs)])
        try:
            while sweep.poll() is None:
                time.sleep(NAP)
                store(chosen.jobs(), chosen.steps, place, table)
        except KeyboardInterrupt:  # it reaches the sweep, too, whose runs save what they have
            pass
        code = sweep.wait()
        store(chosen.jobs(), chosen.steps, place, table)
        if code:
            return code
    return 0


def show(names: Sequence[str]) -> int:
    """Prints the tables of results/README.md and draws the figures."""
    found = all_found(names)
    for name, has in found.items():
        suite = source(name)
        title = f"{suite.title}: {results.counted(count(has), 'run')} of {planned(name)}"
        print(title, *tables_of(suite, has), sep="\n\n", end="\n\n")
        for note in scores.summarise(has, suite.steps).notes:
            print(note)
        draw(suite, has)
        print()
    if "wrong-start" in found:
        plateau(found["wrong-start"], found_in("dense")).savefig(TABLES / "plateau.png", dpi=DPI)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "write"))
    parser.add_argument("--suites", default=",".join(SUITES), help="some of them [%(default)s]")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time [2]")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "evidence")
    options = parser.parse_args()
    names = options.suites.split(",")
    if other := set(names).difference(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(other))}; choose from {', '.join(SUITES)}.")
    if options.what == "run":
        return train([part for part in PARTS if part.suite in names], options.runs, options.jobs)
    if options.what == "write":
        found = all_found(SUITES)
        for page in PAGES:
            page.write_text(with_tables(page.read_text(), found))
    return show(names)


if __name__ == "__main__":
    sys.exit(main())
