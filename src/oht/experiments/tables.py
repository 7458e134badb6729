"""Tables as Markdown and LaTeX: our scores beside the paper's, with the env steps that both took."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oht.envs.tasks import TASKS
from oht.experiments import paper
from oht.experiments.scores import deviation, normalised
from oht.experiments.suites import Suite

FEWEST_SEEDS = 3  # with fewer, a test between methods says nothing
LEVEL = 0.05
WORDS = 2  # the first columns of a table, to the left; numbers stand to the right

Scores = Mapping[tuple[str, str], np.ndarray]  # (task, label) -> a score for each seed


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
        lines = [" & ".join(map(_latex, row)) + r" \\" for row in (self.header, *self.rows)]
        columns = "l" * WORDS + "r" * (len(self.header) - WORDS)
        return "\n".join(
            [
                r"\begin{table}  % needs \usepackage{booktabs,graphicx}",
                rf"\caption{{{_escaped(self.title)}}}",
                r"\centering",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}}",
                *(rf"\par\footnotesize\raggedright {_escaped(note)}" for note in self.notes),
                r"\end{table}",
                "",
            ]
        )


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
    "<": r"\textless{}",  # this and the next two: LaTeX's default font has other signs in their places
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def _escaped(text: str) -> str:
    return re.sub("|".join(map(re.escape, _SPECIAL)), lambda sign: _SPECIAL[sign[0]], text)


def comparison(suite: Suite, scores: Scores, steps: int, notes: Sequence[str] = ()) -> Table:
    """Layout `table`: for each task our scores at `steps` env steps and, under them, those of the paper's Table 1."""
    rows: list[list[Cell]] = []
    untested: list[str] = []
    for task in suite.tasks:
        ours = {label: scores[task, label] for label in suite.labels if (task, label) in scores}
        if not ours:
            continue
        bold = best(ours)
        if min(map(len, ours.values())) < FEWEST_SEEDS:
            untested.append(task)
        digits = _digits(float(np.mean(values)) for values in ours.values())
        cells = (summary(ours[label], digits, label in bold) if label in ours else "" for label in suite.labels)
        rows.append([task, "ours", f"{steps:,}", *cells])
        if theirs := paper.TABLE1.get(task):
            cells = (Score(*theirs[label]) if label in theirs else "" for label in suite.labels)
            rows.append(["", "paper", f"{paper.STEPS:,}", *cells])
    told = [
        f"Ours: mean ± standard deviation over {_seeds(scores)} of the test nearest to {steps:,} env steps.",
        f"The suite asks for {suite.steps:,} env steps and {counted(suite.seeds, 'seed')}.",
        "Bold, ours only: the best mean of a task and every method that Welch's t-test "
        f"(two-sided, {LEVEL:.0%}) does not tell from it.",
    ]
    if untested:
        told.append(f"Nothing is bold where a method has fewer than {FEWEST_SEEDS} seeds: {', '.join(untested)}.")
    if any(task in paper.TABLE1 for task in suite.tasks):
        told.append(
            "Paper: its Table 1, as printed, which names neither steps nor seeds; "
            f"{paper.STEPS:,} env steps (and three seeds) are those of its Figure 2."
        )
    return Table(suite.title, ["task", "whose", "env steps", *suite.labels], rows, [*told, *notes])


def low_scores(suite: Suite, scores: Scores, notes: Sequence[str] = ()) -> Table:
    """Layout `scores`: what we measured beside the low and high score of the paper's Table 2."""
    rows: list[list[Cell]] = []
    for (name, label), values in scores.items():
        known: list[Cell] = ["", "", ""]
        task = TASKS.get(name.partition("@")[0])
        if task and task.low is not None and task.high is not None:
            known = [Score(task.low), Score(task.high), Score(float(np.mean(normalised(name, values))), digits=3)]
        rows.append([name, label, summary(values, 1), *known])
    ours = [task.id for task in TASKS.values() if task.ours]
    told = (
        f"Measured: mean ± standard deviation over {_seeds(scores)}; each seed is the mean of its test episodes.",
        f"Low and high: Table 2 of the paper, which lacks {', '.join(ours)}: there they are ours.",
        "Normalised: (measured - low) / (high - low); 0 is the low score.",
    )
    return Table(suite.title, ["task", "policy", "measured", "low", "high", "normalised"], rows, [*told, *notes])


def best(scores: Mapping[str, np.ndarray]) -> set[str]:
    """The labels with the best mean or no different from it by Welch's t-test; none where seeds are too few to tell."""
    if len(scores) < 2 or min(map(len, scores.values())) < FEWEST_SEEDS:
        return set()
    top = max(scores, key=lambda label: float(np.mean(scores[label])))
    return {label for label, values in scores.items() if label == top or welch(values, scores[top]) >= LEVEL}


def welch(a: np.ndarray, b: np.ndarray) -> float:
    """The two-sided p-value of Welch's t-test: the means may differ, so may the variances.

    t = (mean a - mean b) / sqrt(va + vb) with v = variance / size, and
    (va + vb)^2 / (va^2 / (size a - 1) + vb^2 / (size b - 1)) degrees of freedom.
    """
    from scipy.special import stdtr

    difference = abs(float(np.mean(a) - np.mean(b)))
    va, vb = (float(np.var(x, ddof=1)) / len(x) for x in (a, b))
    if va + vb == 0:  # seeds that all agree: any difference is one
        return float(difference == 0)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return 2 * float(stdtr(freedom, -difference / (va + vb) ** 0.5))


def summary(values: np.ndarray, digits: int, bold: bool = False) -> Score:
    return Score(float(np.mean(values)), float(deviation(values)) if len(values) > 1 else None, digits, bold)


def seeds_of(sizes: Iterable[int]) -> str:
    """3 seeds, or 1 to 3 seeds."""
    fewest, *_, most = sorted([*sizes] * 2)
    return counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"


def _seeds(scores: Scores) -> str:
    return seeds_of(map(len, scores.values()))


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def _digits(numbers: Iterable[float]) -> int:
    """Decimals that three figures need: 757, 75.7, 7.57."""
    largest = max(map(abs, numbers))
    return 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 1 else 3
