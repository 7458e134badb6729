"""Tables of scores for the terminal, Markdown and LaTeX, with the paper's Table 1 beside ours."""

import math
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from oht.envs.tasks import TASKS
from oht.experiments.results import counted, span
from oht.experiments.scores import MIN_SEEDS, Number, Summary, deviation, normalised
from oht.experiments.suites import Pair, Suite

LEVEL = 0.05  # of Welch's test
WORDS = 2  # the first columns of a table, aligned left; numbers are aligned right
GAP = 2  # blanks between the columns on a terminal
PAPER = tomllib.loads((Path(__file__).parent / "paper_table1.toml").read_text("utf-8"))

Returns = Mapping[Pair, np.ndarray]  # (task, label) -> a return for each seed


class Score(NamedTuple):
    """A cell: mean ± standard deviation, which a single seed does not have."""

    mean: float
    std: float | None = None
    digits: int = 0
    bold: bool = False

    def __str__(self) -> str:
        numbers = (round(x, self.digits) + 0.0 for x in (self.mean, self.std) if x is not None)  # + 0.0: no "-0"
        return " ± ".join(f"{x:.{self.digits}f}" for x in numbers)


Cell = Score | str


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str]  # printed under it

    def markdown(self) -> str:
        rule = ["---" if number < WORDS else "---:" for number in range(len(self.header))]
        lines = [map(_markdown, self.header), rule, *(map(_markdown, row) for row in self.rows)]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"# {self.title}\n\n{table}\n\n{notes}\n"

    def latex(self) -> str:
        """A floating table for a document with booktabs and graphicx."""
        header, *rows = (" & ".join(map(_latex, row)) + r" \\" for row in (self.header, *self.rows))
        columns = "l" * WORDS + "r" * (len(self.header) - WORDS)
        return "\n".join(
            [
                r"\begin{table}  % needs \usepackage{booktabs,graphicx}",
                rf"\caption{{{_escaped(self.title)}}}",
                r"\centering",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                header,
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}}",
                *(rf"\par\footnotesize\raggedright {_escaped(note)}" for note in self.notes),
                r"\end{table}",
                "",
            ]
        )

    def show(self, console: Console) -> None:
        """Prints it; where the terminal is too narrow, the columns continue below. Nothing is cut."""
        cells = [list(map(str, row)) for row in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        words, blocks = range(WORDS), []
        for column in range(WORDS, len(widths)):
            if not blocks or sum(widths[c] + GAP for c in (*words, *blocks[-1], column)) - GAP > console.width:
                blocks.append([])
            blocks[-1].append(column)
        console.print(Text(self.title, "bold"))
        for number, block in enumerate(blocks):
            if number:
                console.print()
            for row in cells:
                aligned = [f"{row[c]:{'<' if c < WORDS else '>'}{widths[c]}}" for c in (*words, *block)]
                line = Text((" " * GAP).join(aligned).rstrip(), "bold" if row is cells[0] else "")
                console.print(line, overflow="ignore", no_wrap=True, crop=False)
        for note in self.notes:
            console.print(Text(note, "dim"))
        console.print()


def _markdown(cell: Cell) -> str:
    if isinstance(cell, Score):
        return f"**{cell}**" if cell.bold else str(cell)
    return cell.replace("|", r"\|")


def _latex(cell: Cell) -> str:
    if isinstance(cell, Score):
        text = str(cell).replace("±", r"\pm")
        return rf"$\mathbf{{{text}}}$" if cell.bold else f"${text}$"
    return _escaped(cell)


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",  # this and the next two: LaTeX's default font has other characters in their places
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _escaped(text: str) -> str:
    return re.sub("|".join(map(re.escape, _SPECIAL)), lambda found: _SPECIAL[found[0]], text)


def cell(values: np.ndarray, digits: int, bold: bool = False) -> Score:
    """Mean ± standard deviation over seeds."""
    return Score(float(np.mean(values)), float(deviation(values)) if len(values) > 1 else None, digits, bold)


# Tables of a suite


def comparison(suite: Suite, returns: Returns, steps: int, notes: Sequence[str] = ()) -> Table:
    """Layout `table`: for each task our returns at `steps` env steps and, below, those of the paper's Table 1."""
    rows: list[list[Cell]] = []
    few: list[str] = []
    for task in suite.tasks:
        ours = {label: returns[task, label] for label in suite.labels if (task, label) in returns}
        if not ours:
            continue
        bold = best(ours)
        if min(map(len, ours.values())) < MIN_SEEDS:
            few.append(suite.title_of(task))
        largest = max(abs(float(np.mean(values))) for values in ours.values())
        digits = 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 1 else 3
        cells = (cell(ours[label], digits, label in bold) if label in ours else "" for label in suite.labels)
        rows.append([suite.title_of(task), "ours", f"{steps:,}", *cells])
        if paper := PAPER["scores"].get(task):
            cells = (Score(*paper[label]) if label in paper else "" for label in suite.labels)
            rows.append(["", "paper", f"{PAPER['steps']:,}", *cells])
    explained = [
        f"Ours: mean ± standard deviation over {_seeds(returns)} of the evaluation nearest to {steps:,} env steps.",
        f"The suite asks for {suite.steps:,} env steps and {counted(suite.seeds, 'seed')}.",
        "Bold, ours only: the best mean of a task and every method that does not differ from it by Welch's t-test "
        f"(two-sided, {LEVEL:.0%}).",
    ]
    if few:
        explained.append(f"Nothing is bold where a method has fewer than {MIN_SEEDS} seeds: {', '.join(few)}.")
    if any(task in PAPER["scores"] for task in suite.tasks):
        explained.append(
            "Paper: its Table 1, as printed, which gives neither steps nor seeds; "
            f"{PAPER['steps']:,} env steps (and three seeds) are those of its Figure 2."
        )
    explained += suite.readings()
    header = ["task", "whose", "env steps", *map(suite.title_of, suite.labels)]
    return Table(suite.title, header, rows, [*explained, *notes])


def low_scores(suite: Suite, returns: Returns, notes: Sequence[str] = ()) -> Table:
    """Layout `scores`: our returns beside the low and high scores of the paper's Table 2."""
    rows: list[list[Cell]] = []
    for (name, label), values in returns.items():
        known: list[Cell] = ["", "", ""]
        task = TASKS.get(name.partition("@")[0])
        if task and task.low is not None and task.high is not None:
            known = [Score(task.low), Score(task.high), Score(float(np.mean(normalised(name, values))), digits=3)]
        rows.append([suite.title_of(name), suite.title_of(label), cell(values, 1), *known])
    ours = ", ".join(suite.title_of(task.id) for task in TASKS.values() if task.ours)
    explained = (
        f"Measured: mean ± standard deviation over {_seeds(returns)}; each seed is the mean of its episodes.",
        f"Low and high: Table 2 of the paper, which lacks {ours}: there they are ours.",
        "Normalised: (measured - low) / (high - low); 0 is the low score.",
    )
    return Table(suite.title, ["task", "policy", "measured", "low", "high", "normalised"], rows, [*explained, *notes])


def best(returns: Mapping[str, np.ndarray]) -> set[str]:
    """The labels with the best mean or not different from it by Welch's t-test; none where seeds are too few."""
    if len(returns) < 2 or min(map(len, returns.values())) < MIN_SEEDS:
        return set()
    top = max(returns, key=lambda label: float(np.mean(returns[label])))
    return {label for label, values in returns.items() if label == top or welch(values, returns[top]) >= LEVEL}


def welch(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sided p-value of Welch's t-test. If all seeds of both agree, any difference counts: 0 or 1."""
    from scipy.stats import ttest_ind

    if np.ptp(a) == 0 == np.ptp(b):
        return float(a[0] == b[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss", RuntimeWarning)  # the seeds of one method all agree
        return float(ttest_ind(a, b, equal_var=False).pvalue)  # pyright: ignore[reportAttributeAccessIssue]


def _seeds(returns: Returns) -> str:
    return counted(span(map(len, returns.values())), "seed")


# Tables of a summary


def markdown(summary: Summary) -> str:
    notes = "".join(f"- {note}\n" for note in summary.notes)
    return "\n".join([*(table.markdown() for table in tables(summary)), *([f"# Notes\n\n{notes}"] if notes else [])])


def show(summary: Summary, console: Console) -> None:
    for table in tables(summary):
        table.show(console)
    for note in summary.notes:
        console.print(Text(note, "yellow"))


def tables(summary: Summary) -> list[Table]:
    """Normalised scores, performance profile, probabilities of improvement, returns, cost: what the runs allow."""
    made: list[Table] = []
    tasks = counted(len(summary.tasks), "task")
    if summary.scaled:
        header = ["method", "seeds", "mean", "median", "best ratio", "IQM", "95 % interval"]
        rows: list[list[Cell]] = []
        for label in summary.labels:
            found = {n.statistic: n for n in summary.numbers if n.method == label}
            values = [_value(found[name], 3) for name in ("mean", "median", "best_ratio", "iqm")]
            rows.append([label, found["iqm"].seeds, *values, _interval(found["iqm"], 3)])
        made.append(
            Table(
                f"Normalised scores at {summary.steps:,} env steps, {counted(len(summary.scaled), 'task')}",
                header,
                rows,
                [
                    "0 is a random policy, 1 a high performing one. Best ratio: the share of tasks where the method is "
                    "best, ties shared. IQM: the mean of the middle half of all runs; its interval by stratified "
                    "bootstrap over seeds."
                ],
            )
        )
        rows = []
        for label in summary.labels:
            shares = [n for n in summary.numbers if (n.statistic, n.method) == ("profile", label)]
            header = ["method", "seeds", *(f"> {share.threshold:g}" for share in shares)]
            rows.append([label, shares[0].seeds, *(_value(share, 2) for share in shares)])
        made.append(Table("Performance profile", header, rows, ["The share of runs with a higher normalised score."]))
    if pairs := [n for n in summary.numbers if n.statistic == "improvement"]:
        note = (
            "The probability that a run of X returns more than a run of Y on the same task, mean over "
            f"{tasks}; X is the better method where there is a number. No difference: 0.5."
        )
        rows = [[n.method, n.versus, _value(n, 2), _interval(n, 2)] for n in pairs]
        made.append(Table("Probability of improvement", ["X", "Y", "P(X > Y)", "95 % interval"], rows, [note]))
    return [*made, _by_task(summary), *_costs(summary)]


def _by_task(summary: Summary) -> Table:
    rows: list[list[Cell]] = []
    returns = {(n.task, n.method): n for n in summary.numbers if n.statistic == "return"}
    for task in dict.fromkeys(task for task, _ in returns):
        own = {label: returns[task, label] for label in summary.labels if (task, label) in returns}
        digits = 0 if max(abs(n.value) for n in own.values()) >= 100 else 2
        cells = [Score(own[label].value, own[label].std, digits) if label in own else "-" for label in summary.labels]
        rows.append([task, span(int(n.seeds) for n in own.values()), *cells])
    note = "Mean ± standard deviation over seeds of the evaluation nearest to that step."
    return Table(f"Returns at {summary.steps:,} env steps", ["task", "seeds", *summary.labels], rows, [note])


def _costs(summary: Summary) -> Iterator[Table]:
    """None where no run tells what it cost."""
    digits = {"cost": 2, "minutes": 1, "cpu_minutes": 1}
    found = {(n.statistic, n.method): n for n in summary.numbers if n.statistic in digits}
    rows: list[list[Cell]] = []
    for label in summary.labels:
        own = {name: found[name, label] for name in digits if (name, label) in found}
        cells = [Score(own[name].value, own[name].std, digits[name]) if name in own else "-" for name in digits]
        rows.append([label, span(int(n.seeds) for n in own.values()) if own else "-", *cells])
    if found:
        note = (
            "Mean ± standard deviation over runs. Gradient steps are those of all agents. Minutes are those of the "
            "clock: runs beside each other on one machine slow each other down. CPU minutes add up those of all cores."
        )
        header = ["method", "runs", "gradient steps / env step", "minutes", "CPU minutes"]
        yield Table(f"Cost up to {summary.steps:,} env steps", header, rows, [note])


def _value(number: Number, digits: int) -> Cell:
    return "-" if math.isnan(number.value) else Score(number.value, digits=digits)


def _interval(number: Number, digits: int) -> str:
    if math.isnan(number.value):
        return "too few seeds"
    if number.low is None or number.high is None:
        return "-"
    return f"[{Score(number.low, digits=digits)}, {Score(number.high, digits=digits)}]"
