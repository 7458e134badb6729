"""What `oht scores` tells of a sweep: methods over all tasks, each task by itself, and what is too little to tell."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from oht import runs
from oht.errors import UserError
from oht.experiments import results, scores
from oht.experiments.results import MOST_TOLD, Pair, Results
from oht.experiments.scores import Scores
from oht.experiments.tables import FEWEST_SEEDS, WORDS, Cell, Score, Table, counted, summary

THRESHOLDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
COLUMNS: Sequence[str] = (
    "steps",
    "statistic",
    "method",
    "versus",
    "task",
    "threshold",
    "value",
    "low",
    "high",
    "std",
    "seeds",
)
GAP = 2  # blanks between columns


class Estimate(NamedTuple):
    """A number and its 95 % interval, which single seeds do not have."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Summary:
    """Every number at one number of env steps; methods are compared on the tasks that all of them have."""

    steps: int
    tasks: Sequence[str]  # of all methods
    scaled: Sequence[str]  # those of them with a low and a high score
    labels: Sequence[str]
    returns: Mapping[Pair, np.ndarray]  # over seeds, by task and label
    statistics: Mapping[str, Mapping[str, Estimate]]  # of normalised scores: label -> name
    profiles: Mapping[str, Sequence[Estimate]]  # label -> for each threshold
    improvements: Mapping[Pair, Estimate]  # (X, Y) -> P(X > Y)
    notes: Sequence[str]

    def seeds(self, label: str) -> str:
        """How many the normalised scores have."""
        return _range(len(self.returns[task, label]) for task in self.scaled)


def summarise(found: Results, at: int | None = None) -> Summary:
    """All statistics at `at` env steps, by default at the largest number that all runs have."""
    held_back = _held_back(found) if at is None else []
    at = found.reached if at is None else at
    returns = results.table(found, at)
    labels = [label for label in found.labels if any(label == other for _, other in returns)]
    tasks = [task for task in found.tasks if all((task, label) in returns for label in labels)]
    scaled = [task for task in tasks if scores.has_scale(task)]
    raw = {label: [returns[task, label] for task in tasks] for label in labels}
    normal = {label: [scores.normalised(task, returns[task, label]) for task in scaled] for label in labels}
    return Summary(
        at,
        tasks,
        scaled,
        labels,
        returns,
        statistics=_statistics(normal) if scaled else {},
        profiles={label: _profile(method) for label, method in normal.items()} if scaled else {},
        improvements={(x, y): _improvement(raw[x], raw[y]) for x, y in combinations(labels, 2)} if tasks else {},
        notes=[
            *found.notes,
            *held_back,
            *results.left_out(found, at),
            *_warnings(found, returns, labels, tasks, scaled),
        ],
    )


def _statistics(normal: Mapping[str, Scores]) -> dict[str, dict[str, Estimate]]:
    ratios = scores.best_ratio(normal)
    names = {"mean": scores.mean, "median": scores.median, "iqm": scores.iqm}
    return {
        label: {
            **{name: _estimates(statistic, method)[0] for name, statistic in names.items()},
            "best_ratio": Estimate(float(ratios[label])),
        }
        for label, method in normal.items()
    }


def _profile(method: Scores) -> list[Estimate]:
    return _estimates(partial(scores.performance_profile, thresholds=THRESHOLDS), method)


def _improvement(x: Scores, y: Scores) -> Estimate:
    """Needs no normalised scores: only the order counts."""
    return _estimates(scores.probability_of_improvement, x, y)[0]


def _estimates(statistic: Callable[..., np.ndarray], *methods: Scores) -> list[Estimate]:
    """The statistic, a number or several, and what other seeds might have given."""
    values = np.atleast_1d(statistic(*methods)).tolist()
    if all(len(task) == 1 for method in methods for task in method):
        return [Estimate(value) for value in values]
    low, high = (np.atleast_1d(end).tolist() for end in scores.stratified_bootstrap(statistic, *methods))
    return [Estimate(*numbers) for numbers in zip(values, low, high, strict=True)]


def _held_back(found: Results) -> list[str]:
    if not found.steps or found.reached == found.steps:
        return []
    most = f"{found.reached:,} steps, the most that every tested run has"
    return [f"All are compared at {most}; --at looks further, without the shorter runs."]


def _warnings(
    found: Results,
    returns: Mapping[Pair, np.ndarray],
    labels: Sequence[str],
    tasks: Sequence[str],
    scaled: Sequence[str],
) -> Iterator[str]:
    if lacking := [task for task in found.tasks if task not in tasks]:
        yield f"Methods are compared without {_some(lacking)}: not every method has a run there."
    if unknown := [task for task in tasks if task not in scaled]:
        yield f"Normalised scores are without {_some(unknown)}: low and high scores are not known."
    if few := [pair for pair, values in returns.items() if len(values) < FEWEST_SEEDS]:
        methods = ", ".join(label for label in labels if any(label == other for _, other in few))
        yield (
            f"Fewer than three seeds in {len(few)} of {len(returns)} pairs of task and method ({methods}): "
            "differences may be chance, and intervals are too narrow."
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_TOLD
    return ", ".join(names if more <= 0 else [*names[:MOST_TOLD], f"and {more} more"])


# Tables


def tables(told: Summary) -> list[Table]:
    made = []
    if told.statistics:
        made += [_overall(told), _profiles(told)]
    if told.improvements:
        made.append(_improvements(told))
    return [*made, _by_task(told)]


def _overall(told: Summary) -> Table:
    rows: list[list[Cell]] = []
    for label in told.labels:
        numbers = told.statistics[label]
        shown: list[Cell] = [Score(numbers[name].value, digits=3) for name in ("mean", "median", "best_ratio", "iqm")]
        rows.append([label, told.seeds(label), *shown, _interval(numbers["iqm"], 3)])
    note = (
        "0 is a random policy, 1 a high performing one. Best ratio: the share of tasks where the method is best, "
        "ties shared. IQM: the mean of the middle half of all runs; its interval by stratified bootstrap over seeds."
    )
    title = f"Normalised scores at {told.steps:,} env steps, {counted(len(told.scaled), 'task')}"
    header = ["method", "seeds", "mean", "median", "best ratio", "IQM", "95 % interval"]
    return Table(title, header, rows, [note])


def _profiles(told: Summary) -> Table:
    rows: list[list[Cell]] = [
        [label, told.seeds(label), *(Score(share.value, digits=2) for share in told.profiles[label])]
        for label in told.labels
    ]
    header = ["method", "seeds", *(f"> {threshold:g}" for threshold in THRESHOLDS)]
    return Table("Performance profile", header, rows, ["The share of runs with a higher normalised score."])


def _improvements(told: Summary) -> Table:
    better = dict(_better(*pair, chance) for pair, chance in told.improvements.items())
    rows: list[list[Cell]] = [
        [x, y, Score(better[x, y].value, digits=2), _interval(better[x, y], 2)]
        for x, y in permutations(told.labels, 2)
        if (x, y) in better
    ]
    note = (
        "The chance that a run of X returns more than one of Y on the same task, mean over "
        f"{counted(len(told.tasks), 'task')}; the better one is X. No difference: 0.5."
    )
    return Table("Probability of improvement", ["X", "Y", "P(X > Y)", "95 % interval"], rows, [note])


def _better(x: str, y: str, chance: Estimate) -> tuple[Pair, Estimate]:
    """The pair with the better one first: P(Y > X) = 1 - P(X > Y), as ties count half."""
    if chance.value >= 0.5:
        return (x, y), chance
    if chance.low is None or chance.high is None:
        return (y, x), Estimate(1 - chance.value)
    return (y, x), Estimate(1 - chance.value, 1 - chance.high, 1 - chance.low)


def _by_task(told: Summary) -> Table:
    rows: list[list[Cell]] = []
    for task in dict.fromkeys(task for task, _ in told.returns):
        returns = {label: told.returns[task, label] for label in told.labels if (task, label) in told.returns}
        digits = 0 if max(abs(np.mean(values)) for values in returns.values()) >= 100 else 2
        cells = [summary(returns[label], digits) if label in returns else "-" for label in told.labels]
        rows.append([task, _range(map(len, returns.values())), *cells])
    note = "Mean ± standard deviation over seeds, of the test nearest to that step."
    return Table(f"Returns at {told.steps:,} env steps", ["task", "seeds", *told.labels], rows, [note])


def _range(numbers: Iterable[int]) -> str:
    """3, or 1-3 where they differ."""
    least, *_, most = sorted([*numbers] * 2)
    return str(least) if least == most else f"{least}-{most}"


def _interval(estimate: Estimate, digits: int) -> str:
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"[{Score(estimate.low, digits=digits)}, {Score(estimate.high, digits=digits)}]"


# Files and the terminal


def write(path: Path, text: str) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it.")
    with runs.refused(path):
        runs.write_aside(path, text)


def markdown(told: Summary) -> str:
    notes = "".join(f"- {note}\n" for note in told.notes)
    return "\n".join([*(table.markdown() for table in tables(told)), *([f"# Notes\n\n{notes}"] if notes else [])])


def to_csv(told: Summary) -> str:
    """A line for each number; what a statistic does not have is left empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({"steps": told.steps, **record} for record in _records(told))
    return file.getvalue()


def _records(told: Summary) -> Iterator[dict[str, Any]]:
    for label in told.labels:
        for name, estimate in told.statistics.get(label, {}).items():
            yield {"statistic": name, "method": label, "seeds": told.seeds(label), **estimate._asdict()}
    for label, shares in told.profiles.items():
        for threshold, share in zip(THRESHOLDS, shares, strict=True):
            yield {"statistic": "profile", "method": label, "threshold": threshold, **share._asdict()}
    for (x, y), chance in told.improvements.items():
        yield {"statistic": "improvement", "method": x, "versus": y, **chance._asdict()}
    for (task, label), values in told.returns.items():
        std = float(scores.deviation(values)) if len(values) > 1 else None
        numbers = {"value": float(np.mean(values)), "std": std, "seeds": len(values)}
        yield {"statistic": "return", "method": label, "task": task, **numbers}


def show(told: Summary, console: Console) -> None:
    for table in tables(told):
        _show(table, console)
    for note in told.notes:
        console.print(Text(note, "yellow"))


def _show(table: Table, console: Console) -> None:
    """As wide as the terminal: columns that find no room beside the others go below them; nothing is cut."""
    cells = [list(map(str, row)) for row in (table.header, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    console.print(Text(table.title, "bold"))
    for number, block in enumerate(_blocks(widths, console.width)):
        if number:
            console.print()
        for row in cells:
            aligned = (f"{row[c]:{'<' if c < WORDS else '>'}{widths[c]}}" for c in block)
            line = Text((" " * GAP).join(aligned).rstrip(), "bold" if row is cells[0] else "")
            console.print(line, overflow="ignore", no_wrap=True, crop=False)
    for note in table.notes:
        console.print(Text(note, "dim"))
    console.print()


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns of each block: the words, which every block repeats, and as many others as fit beside them."""
    words = list(range(WORDS))
    block = words
    for column in range(WORDS, len(widths)):
        wider = [*block, column]
        if block != words and _width(widths, wider) > room:
            yield block
            wider = [*words, column]
        block = wider
    yield block


def _width(widths: Sequence[int], block: Sequence[int]) -> int:
    return sum(widths[column] + GAP for column in block) - GAP
