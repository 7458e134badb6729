"""Does tuning pay? Situations x methods x seeds on small networks: the judge of `oht` and of its defaults.

    python benchmarks/tuning.py run --seeds 3,4,5 --jobs 2     # hours; again: continues where it stopped
    python benchmarks/tuning.py show                           # the table and the figure from the CSV

Every finished run adds its evaluations to results/tuning.csv and is never repeated; runs that were cut off are resumed
from their folders below --runs. The score of a run is the mean of its last three evaluations; its cost is the gradient
steps of all agents for each env step. The reference is static TD3: with the default values in the situations a to d,
with the better of n = 3 and n = 5 in e.

    python benchmarks/tuning.py run --situations p --seeds 0,1   # each entry of the portfolio as a constant value
    python benchmarks/tuning.py show --seeds 0,1
    python benchmarks/tuning.py run --situations o               # what `overlap` does to returns
    python benchmarks/tuning.py leaders --runs DIR               # the leader of each run of `random` in this folder

Each evaluation episode of `random` is played by an agent drawn at random. "random, its leader" is an evaluation, when
the run has ended, of the agent whose training returns are believed to be the highest, as `oht` is evaluated.
"""

import argparse
import csv
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import oht
from oht import runs, training
from oht.envs.tasks import TASKS
from oht.experiments.job import shares
from oht.experiments.results import read as read_run
from oht.experiments.scores import interval, iqm
from oht.tuners import race

ROOT = Path(__file__).parent.parent
CSV = ROOT / "results" / "tuning.csv"
FIGURE = ROOT / "results" / "tuning.png"
COLUMNS = ("task", "situation", "method", "seed", "env_steps", "return", "gradient_steps", "wall_time")
COMMON = ["--hidden", "64,64", "--steps", "150000", "--eval-every", "10000", "--tensorboard", "false"]
LAST = 3  # evaluations that a score is the mean of
LEADER_EPISODES = 10  # of the evaluation of a leader

REFERENCES = ("static, n = 3", "static, n = 5")  # of situation e; the default is that of b, c and d
MATRIX = "abcde"  # the situations that methods are judged by
RANDOM, LEADER = "random", "random, its leader"
ORDER = ("static", "static, ratio 2", *REFERENCES, "oht", RANDOM, LEADER)  # in tables, before all others
CURVES = ORDER[:-1]  # a leader is evaluated once

CHEETAH, GYM, WALKER = "dm/cheetah-run", "gym/half-cheetah", "dm/walker-walk"
DELAY = "@delay5"
RATES = "actor_lr+critic_lr=log:1e-5..1e-2"


class Situation(NamedTuple):
    title: str
    tasks: Sequence[str]
    start: Sequence[str]  # settings that the run begins with
    tune: Sequence[str]  # what a tuner may change; none: the portfolio of oht
    delay: str = ""  # behind the task's name
    default: str = "a"  # the situation in which static is trained from the default


SITUATIONS: Mapping[str, Situation] = {
    "a": Situation("from the default", (CHEETAH, GYM, WALKER), (), ()),
    "b": Situation(
        "learning rates 1e-5", (CHEETAH, GYM, WALKER), ("--actor-lr", "1e-5", "--critic-lr", "1e-5"), ("--tune", RATES)
    ),
    "c": Situation(
        "learning rates 1e-2", (CHEETAH, GYM), ("--actor-lr", "1e-2", "--critic-lr", "1e-2"), ("--tune", RATES)
    ),
    "d": Situation("gamma 0.8", (CHEETAH, GYM), ("--gamma", "0.8"), ("--tune", "gamma=0.8,0.9,0.95,0.98,0.99")),
    "e": Situation(
        "delayed rewards, n = 1", (CHEETAH, GYM), ("--n-step", "1"), ("--tune", "n_step=1,2,3,5"), "@delay5"
    ),
    "o": Situation("from the default, played while learning", (CHEETAH, GYM), ("--overlap", "true"), ()),
    "p": Situation("one entry of the portfolio", (CHEETAH, GYM, WALKER), (), (), default="p"),
}
CANDIDATES: Mapping[str, tuple[str, ...]] = {  # for the portfolio that is raced where nothing is named
    "rates of 3e-4": ("--actor-lr", "3e-4", "--critic-lr", "3e-4"),
    "rates of 1e-4": ("--actor-lr", "1e-4", "--critic-lr", "1e-4"),
    "n = 3": ("--n-step", "3"),
    "gamma 0.98": ("--gamma", "0.98"),
    "noise 0.3": ("--exploration-noise", "0.3"),
}
OHT_RUN = "{oht}"  # in the words of a run: the folder of oht's run in the same situation with the same seed
SEPARATE = ("--tune", "actor_lr=log:1e-5..1e-2", "--tune", "critic_lr=log:1e-5..1e-2")  # pbt does not tie values


class Cell(NamedTuple):
    """A run: what it is called, and its words on the command line."""

    task: str
    situation: str
    method: str
    seed: int
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return "_".join((self.task.replace("/", "-"), self.situation, self.method, f"s{self.seed}"))

    def command(self, folder: Path) -> list[str]:
        source = str(folder / self._replace(method="oht").name)
        words = [source if word == OHT_RUN else word for word in self.words]
        return [*words, "--seed", str(self.seed), "--out", str(folder / self.name)]


def methods_of(situation: str, task: str) -> dict[str, tuple[str, ...]]:
    """The methods that are compared, each with its words besides those of the situation's start."""
    where = SITUATIONS[situation]
    if situation == "p":
        entries = {f"static, {name}": ("--method", "static", *words) for name, words in CANDIDATES.items()}
        return {"static": ("--method", "static"), **entries}
    found: dict[str, tuple[str, ...]] = {"static": ("--method", "static"), "oht": ("--method", "oht", *where.tune)}
    if situation == "o":
        return found
    found["random"] = ("--method", "random", *where.tune)
    if situation == "a":
        found["static, ratio 2"] = ("--method", "static", "--replay-ratio", "2")
    if situation == "e":
        found |= {f"static, n = {n}": ("--method", "static", "--n-step", str(n)) for n in (3, 5)}
    if task == CHEETAH:
        found |= _papers(situation, where)
    return found


def _papers(situation: str, where: Situation) -> dict[str, tuple[str, ...]]:
    """The paper's methods where they fit the space, and PBT everywhere."""
    found = {"pbt": ("--method", "pbt", *(SEPARATE if situation in "bc" else where.tune))}
    if situation in "ade":
        found["oht-nstep"] = ("--method", "oht-nstep", *where.tune)
    if situation in "abc":
        found["oht-lr"] = ("--method", "oht-lr", *where.tune)
    return found


def controls(task: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """On dm/cheetah-run: is it diversity (one value for all agents), or the schedule (one agent with that of `oht`)?

    Whether it is the belief, `random` tells.
    """
    if task != CHEETAH:
        return {}
    replayed = ("--method", "schedule", "--from", OHT_RUN, "--replay-ratio", "2")

    def alike(rate: str, number: str) -> tuple[str, ...]:
        """As many agents as `oht` has there."""
        return ("--method", "oht", "--population", number, "--tune", f"actor_lr+critic_lr=log:{rate}:0:1e-6:1e-1")

    return {
        ("a", "oht, one value"): alike("1e-3", "4"),
        ("b", "oht, one value"): alike("1e-5", "3"),
        ("a", "schedule of oht, ratio 2"): replayed,
        ("b", "schedule of oht, ratio 2"): replayed,
    }


def cells(seeds: Sequence[int], only: Sequence[str], situations: str) -> Iterator[Cell]:
    """One seed of everything before the second."""
    for seed, (name, where) in product(seeds, SITUATIONS.items()):
        for task in where.tasks:
            chosen = methods_of(name, task) | {m: w for (s, m), w in controls(task).items() if s == name}
            for method, words in chosen.items():
                if name in situations and (not only or method in only):
                    settings = (*where.start, *words) if "--n-step" not in words else words
                    yield Cell(task + where.delay, name, method, seed, (task + where.delay, *settings, *COMMON))


# Running


def finished() -> set[tuple[str, str, str, int]]:
    return {(row["task"], row["situation"], row["method"], int(row["seed"])) for row in read()}


def read() -> list[dict[str, str]]:
    if not CSV.exists():
        return []
    with CSV.open(newline="") as file:
        return list(csv.DictReader(file))


def run(todo: Sequence[Cell], folder: Path, jobs: int) -> None:
    """Trains cells in processes of their own, each on its share of the cores."""
    waiting, free, running = list(todo), shares(jobs), []
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    while waiting or running:
        while waiting and free:
            cell, cores = waiting.pop(0), free.pop(0)
            running.append((cell, cores, _start(cell, folder, cores)))
            print(time.strftime("%H:%M"), "started", cell.name, flush=True)
        for item in [item for item in running if item[2].poll() is not None]:
            running.remove(item)
            free.append(item[1])
            if item[2].returncode == 0:
                _collect(item[0], folder / item[0].name)
            print(time.strftime("%H:%M"), "ended", item[0].name, f"(exit code {item[2].returncode})", flush=True)
        time.sleep(1)


def _start(cell: Cell, folder: Path, cores: Sequence[int]) -> subprocess.Popen:
    path = folder / cell.name
    resumable = any((path / "checkpoint").glob("[0-9]*"))
    words = ["--resume", str(path)] if resumable else cell.command(folder)
    pin = f"import os, sys; os.sched_setaffinity(0, {list(cores)})"
    code = f"{pin}; from oht.cli import main; sys.exit(main(sys.argv[1:]))"
    with (folder / "logs" / f"{cell.name}.log").open("a") as log:
        return subprocess.Popen([sys.executable, "-c", code, "train", *words], stdout=log, stderr=log)


def _collect(cell: Cell, path: Path) -> None:
    """Adds the evaluations of a finished run to the CSV, with the gradient steps up to each."""
    curve = read_run(path)
    assert curve is not None
    assert curve.updates is not None
    new = not CSV.exists()
    with CSV.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        for row, updates in zip(runs.rows(path / "evals.csv"), curve.updates, strict=True):
            numbers = (int(row["env_steps"]), f"{row['return_mean']:.6g}", int(updates), f"{row['wall_time']:.0f}")
            writer.writerow((cell.task, cell.situation, cell.method, cell.seed, *numbers))


def evaluate_leaders(folder: Path, seeds: Sequence[int], situations: str) -> None:
    """Adds a row for the leader of each finished run of `random` that lies in the folder."""
    done, known = finished(), read()
    for cell in cells(seeds, [RANDOM], situations):
        path = folder / cell.name
        if not path.exists() or (cell.task, cell.situation, LEADER, cell.seed) in done:
            continue
        rows = [r for r in known if (r["task"], r["situation"], r["method"], int(r["seed"])) == cell[:4]]
        if [row["return"] for row in rows] != [f"{row['return_mean']:.6g}" for row in runs.rows(path / "evals.csv")]:
            raise SystemExit(f"{path} is not the run whose evaluations are in {CSV.name}.")
        loaded = oht.load(path)
        leader = race.leader(loaded.progress.tuner.belief)
        chosen = loaded.setup._replace(tuner=loaded.setup.tuner._replace(champion=lambda *_, leader=leader: leader))
        mean = np.mean(training.evaluate(chosen, loaded.progress, seed=0, number=LEADER_EPISODES))
        loaded.close()
        numbers = (rows[-1]["env_steps"], f"{mean:.6g}", rows[-1]["gradient_steps"], rows[-1]["wall_time"])
        with CSV.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow((*cell[:2], LEADER, cell.seed, *numbers))
        print(cell.name, f"leader {leader}: {mean:.0f}", flush=True)


# Showing


class Result(NamedTuple):
    score: float  # mean of the last evaluations, 0 for the paper's low score
    area: float  # mean of all evaluations
    cost: float
    minutes: float
    curve: np.ndarray

    @property
    def kept(self) -> float:
        """The score beside the best that the run ever had: well below 1 if it learned and then collapsed."""
        means = np.convolve(self.curve, np.full(LAST, 1 / LAST), "valid")
        return float(means[-1] / means.max())


def results(seeds: Sequence[int] | None = None) -> dict[tuple[str, str, str, int], Result]:
    grouped: dict[tuple[str, str, str, int], list[dict[str, str]]] = {}
    for row in read():
        if seeds is None or int(row["seed"]) in seeds:
            grouped.setdefault((row["task"], row["situation"], row["method"], int(row["seed"])), []).append(row)
    found = {}
    for key, rows in grouped.items():
        low = TASKS[key[0].partition("@")[0]].low or 0.0
        curve = np.array([float(row["return"]) for row in rows]) - low
        cost = int(rows[-1]["gradient_steps"]) / int(rows[-1]["env_steps"])
        found[key] = Result(curve[-LAST:].mean(), curve.mean(), cost, float(rows[-1]["wall_time"]) / 60, curve)
    return found


Found = Mapping[tuple[str, str, str, int], Result]
Place = tuple[str, str, str]  # task, situation, method


def scores_of(found: Found) -> dict[Place, np.ndarray]:
    """Those of each seed."""
    lists: dict[Place, list[float]] = {}
    for (*place, _), result in found.items():
        lists.setdefault((place[0], place[1], place[2]), []).append(result.score)
    return {place: np.array(values) for place, values in lists.items()}


def references(task: str, situation: str) -> list[Place]:
    """Constant values, of which the best in the mean over seeds is the reference."""
    if situation == "e":
        return [(task, "e", method) for method in REFERENCES]
    return [(task, SITUATIONS[situation].default, "static")]


def reference(found: Found, task: str, situation: str) -> float | None:
    """The score of the reference, if it is known."""
    known, places = scores_of(found), references(task, situation)
    return float(max(known[place].mean() for place in places)) if all(place in known for place in places) else None


class Aggregate(NamedTuple):
    """A method over some situations."""

    cells: int
    iqm: float
    interval: tuple[float, float] | None  # None: a task has a single run
    worst: float  # mean over seeds of the worst cell
    where: Place


def aggregate(found: Found, method: str, situations: str) -> Aggregate | None:
    """Scores / reference. The seeds of the reference are drawn again, too: with three it is not known exactly."""
    known = scores_of(found)
    own = [place for place in known if place[2] == method and place[1] in situations and reference(found, *place[:2])]
    if not own:
        return None
    needed = list(dict.fromkeys([*own, *(best for place in own for best in references(*place[:2]))]))

    def ratios(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        now = dict(zip(needed, values, strict=True))
        return [now[place] / _best([now[other] for other in references(*place[:2])]) for place in own]

    values = [known[place] for place in needed]
    each = ratios(values)
    worst = int(np.argmin([ratio.mean() for ratio in each]))
    ends = interval(lambda drawn: iqm(ratios(drawn)), values)
    between = (float(ends[0]), float(ends[1])) if ends else None
    return Aggregate(len(own), float(iqm(each)), between, float(each[worst].mean()), own[worst])


def _best(scores: Sequence[np.ndarray]) -> np.ndarray:
    """The highest of the means over the last axis, which stays."""
    return np.max([values.mean(axis=-1, keepdims=True) for values in scores], axis=0)


# what a run starts from, and the situations
GROUPS = {"the default": "a", "wrong values": "bcde", "one entry of the portfolio": "p"}


def methods_in(found: Found) -> list[str]:
    every = {key[2] for key in found}
    return [method for method in ORDER if method in every] + sorted(every.difference(ORDER))


def summary(found: Found) -> str:
    """Methods over all situations of a kind, if they were run on every task: the table of the README."""
    lines = [
        "| start | method | runs | IQM of score / reference, 95 % interval | worst of the cells | cost |",
        "|---|---|---|---|---|---|",
    ]
    for start, situations in GROUPS.items():
        number = len({key[:2] for key in found if key[1] in situations})
        for method in methods_in(found):
            a = aggregate(found, method, situations)
            if a is None or a.cells < number:
                continue
            costs = [result.cost for (_, s, m, _), result in found.items() if m == method and s in situations]
            between = " [{:.2f}, {:.2f}]".format(*a.interval) if a.interval else ""
            worst = f"{a.worst:.2f} ({a.where[1]}, `{a.where[0]}`)"
            words = (start, method, len(costs), f"{a.iqm:.2f}{between}", worst, f"{np.mean(costs):.2f}")
            lines.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join(lines)


def _cell(found: Found, task: str, situation: str, method: str) -> str:
    """Score / reference and, in brackets, the scores in the order of seeds."""
    best = reference(found, task, situation)
    own = [found[key].score for key in sorted(found) if key[:3] == (task, situation, method)]
    each = ", ".join(f"{score:.0f}" for score in own)
    return f"{np.mean(own) / best:.2f} ({each})" if own and best else each


def every_cell(found: Found) -> str:
    """The methods that were not run on dm/cheetah-run alone, for each situation and task."""
    methods = [m for m in methods_in(found) if any(key[2] == m and not key[0].startswith(CHEETAH) for key in found)]
    lines = [" | ".join(["| ", "task", *methods, "reference's score |"]), "|---" * (len(methods) + 3) + "|"]
    for situation, task in sorted({(key[1], key[0]) for key in found}):
        best = reference(found, task, situation)
        texts = [_cell(found, task, situation, method) for method in methods]
        lines.append(" | ".join([f"| {situation}", f"`{task}`", *texts, f"{best:.0f} |" if best else "- |"]))
    return "\n".join(lines)


def every_method(found: Found) -> str:
    """All methods on dm/cheetah-run, for each situation, and what they cost."""
    places = sorted({(key[1], key[0]) for key in found if key[0].startswith(CHEETAH)})
    lines = [" | ".join(["| method", *(place[0] for place in places), "cost |"]), "|---" * (len(places) + 2) + "|"]
    for method in methods_in(found):
        texts = [_cell(found, task, situation, method) for situation, task in places]
        costs = [result.cost for key, result in found.items() if key[2] == method and (key[1], key[0]) in places]
        lines.append(" | ".join([f"| {method}", *texts, f"{np.mean(costs):.2f} |"]))
    return "\n".join(lines)


def details(found: Found) -> str:
    """Regret, area under the curve, cost, wall time, and what the worst seed kept of its best score."""
    lines = ["| | task | method | score | regret | area | cost | minutes | kept |", "|---" * 9 + "|"]
    for situation, task, method in sorted({(key[1], key[0], key[2]) for key in found}):
        own = [result for key, result in found.items() if key[:3] == (task, situation, method)]
        score, area, cost, minutes = np.mean([result[:4] for result in own], axis=0)
        best = reference(found, task, situation)
        regret = f"{best - score:.0f}" if best else "-"
        numbers = f"{score:.0f} | {regret} | {area:.0f} | {cost:.2f} | {minutes:.1f}"
        lines.append(f"| {situation} | `{task}` | {method} | {numbers} | {min(r.kept for r in own):.2f} |")
    return "\n".join(lines)


def show(seeds: Sequence[int] | None) -> None:
    found = results(seeds)
    print(summary(found), every_cell(found), every_method(found), details(found), sep="\n\n")
    places = sorted({(key[1], key[0]) for key in found if key[1] in MATRIX})
    if places:
        _draw(found, places, [method for method in methods_in(found) if method in CURVES])


def _draw(found: Found, places: Sequence[tuple[str, str]], order: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    columns = 4
    height = -(-len(places) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.7 * height), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    colours = dict(zip(order, (f"C{i % 10}" for i in range(len(order))), strict=True))
    for panel, (situation, task) in zip(panels, places, strict=False):
        for method in order:
            own = [r.curve for (t, s, m, _), r in found.items() if (t, s, m) == (task, situation, method)]
            if own:
                length = min(map(len, own))
                mean = np.mean([curve[:length] for curve in own], axis=0)
                panel.plot(np.arange(1, length + 1) * 10, mean, color=colours[method], label=method, linewidth=1.3)
        if (best := reference(found, task, situation)) is not None:
            panel.axhline(best, color="0.6", linestyle=":", linewidth=1)
        panel.set_title(f"{task}: {SITUATIONS[situation].title}", fontsize=8)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=7)
    for panel in panels[len(places) :]:
        panel.remove()
    drawn = {str(line.get_label()): line for panel in figure.axes for line in panel.get_lines()}
    shown = {label: line for label, line in drawn.items() if not label.startswith("_")}
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=6, fontsize=8)
    figure.supxlabel("1000 env steps of all agents", fontsize=9)
    figure.supylabel("evaluation return above the paper's low score", fontsize=9)
    figure.savefig(FIGURE, dpi=150)
    print(f"\n{FIGURE.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "list", "leaders"))
    parser.add_argument("--seeds", default="3,4,5")
    parser.add_argument("--methods", default="", help="only these, separated by ';'")
    parser.add_argument("--situations", default=MATRIX)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "tuning")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    only = [name.strip() for name in options.methods.split(";") if name.strip()]
    if options.what == "show":
        return show(seeds)
    if options.what == "leaders":
        return evaluate_leaders(options.runs, seeds, options.situations)
    done = finished()
    todo = [c for c in cells(seeds, only, options.situations) if (c.task, c.situation, c.method, c.seed) not in done]
    print(f"{len(todo)} runs to do, {len(done)} in {CSV.name}")
    if options.what == "list":
        for cell in todo:
            print(cell.name, *cell.words)
        return None
    return run(todo, options.runs, options.jobs)


if __name__ == "__main__":
    main()
