"""The comparisons of results/suites at 200 000 env steps: days of training, on one machine or on several in turn.

    python benchmarks/evidence.py run --jobs 2     # trains what the CSV files lack; again: continues where it stopped
    python benchmarks/evidence.py show             # scores and figures of what there is

`oht sweep` trains, one seed of everything before the second. Each finished run is added to results/evidence/SUITE.csv
at once. On another machine these runs are put back into the folder of the sweep, which then trains only the others.
The score of a run is its last evaluation; its cost is the gradient steps of all agents for each env step.
"""

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from oht import runs
from oht.experiments import suites
from oht.experiments.job import finished
from oht.experiments.suites import Job, Suite

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "results" / "evidence"
COLUMNS = ("task", "method", "seed", "env_steps", "return", "return_std", "gradient_steps", "wall_time")
EVALS = {"env_steps": "env_steps", "return_mean": "return", "return_std": "return_std", "wall_time": "wall_time"}
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


SUITES = ("delayed", "wrong-start", "dense")
FIVE_SEEDS = {"delayed": ("n1", "oht"), "dense": ("static", "oht")}  # all others have three
PARTS = [
    *(Part(suite, seeds) for seeds in (1, 2, 3) for suite in SUITES),
    *(Part(suite, seeds, methods) for seeds in (4, 5) for suite, methods in FIVE_SEEDS.items()),
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
    """The evaluations of stored runs where `oht sweep` and `oht scores` look for them; others are left as they are."""
    for (task, label, seed), rows in stored(table).items():
        path = Job(task, label, seed, {}).path(folder) / "evals.csv"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(EVALS)
                writer.writerows([row[name] for name in EVALS.values()] for row in rows)


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


def evaluations(run: Path) -> Iterator[tuple[int, str, str, int, str]]:
    """Env steps, mean and deviation of the returns, gradient steps up to then and seconds, of each evaluation."""
    metrics = runs.columns(run / "metrics.csv")
    for row in runs.rows(run / "evals.csv"):
        updates = int(metrics["updates"][metrics["env_steps"] <= row["env_steps"]][-1])
        mean, deviation = f"{row['return_mean']:.6g}", f"{row['return_std']:.6g}"
        yield int(row["env_steps"]), mean, deviation, updates, f"{row['wall_time']:.0f}"


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


def show(names: Sequence[str], folder: Path) -> int:
    for name in names:
        if (table := TABLES / f"{name}.csv").exists():
            place = folder / name
            put_back(table, place)
            if not (place / suites.FILE).exists():
                suites.save(source(name), place / suites.FILE)
            for words in (["scores", str(place)], ["figures", str(path_of(name)), str(place), "--out", str(TABLES)]):
                subprocess.run([*OHT, *words], check=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--suites", default=",".join(SUITES), help="some of them [%(default)s]")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time [2]")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "evidence")
    options = parser.parse_args()
    names = options.suites.split(",")
    if other := set(names).difference(SUITES):
        parser.error(f"there is no suite {', '.join(sorted(other))}; choose from {', '.join(SUITES)}.")
    if options.what == "show":
        return show(names, options.runs)
    return train([part for part in PARTS if part.suite in names], options.runs, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
