"""Gathers the evaluations of many runs into one small CSV, and draws them: a line per method, a band over seeds.

    python benchmarks/collect.py TASK RUNS... --csv results/NAME.csv --plot results/NAME.png

A run folder's parent names its method: RUNS are folders such as cheetah-run/static-n1/s0. `--only static-n1,oht-lr`
draws only these; the CSV has all.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from oht.runs import columns

COLUMNS: list[str] = ["task", "method", "seed", "env_steps", "return_mean", "return_std"]


def gather(task: str, runs: list[Path]) -> list[dict[str, object]]:
    rows = []
    for run in sorted(runs):
        evals = columns(run / "evals.csv")
        for i, steps in enumerate(evals["env_steps"]):
            numbers = [round(float(evals[name][i]), 3) for name in COLUMNS[4:]]
            labels = {"task": task, "method": run.parent.name, "seed": run.name.removeprefix("s")}
            rows.append({**labels, "env_steps": int(steps), **dict(zip(COLUMNS[4:], numbers, strict=True))})
    return rows


def draw(rows: list[dict[str, object]], title: str, out: Path) -> None:
    """The mean over seeds of the test return, with a band of one standard deviation; the best at the end come first."""
    curves: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        curves[str(row["method"])][int(str(row["env_steps"]))].append(float(str(row["return_mean"])))
    figure, axis = plt.subplots(figsize=(9, 4.5), layout="constrained")
    best_first = sorted(curves, key=lambda method: -np.mean(curves[method][max(curves[method])]))
    for method in best_first:
        points = curves[method]
        seeds = max(map(len, points.values()))
        steps = sorted(step for step, returns in points.items() if len(returns) == seeds)
        mean, std = (np.array([statistic(points[step]) for step in steps]) for statistic in (np.mean, np.std))
        (line,) = axis.plot(steps, mean, label=f"{method}: {mean[-1]:.0f} ({seeds} seed{'s' * (seeds > 1)})")
        axis.fill_between(steps, mean - std, mean + std, color=line.get_color(), alpha=0.12, linewidth=0)
    axis.set_xlabel("env steps of all agents")
    axis.set_ylabel("test return, 10 episodes")
    axis.set_title(title)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axis.grid(alpha=0.3)
    figure.savefig(out, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--plot", type=Path, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","))
    args = parser.parse_args()
    rows = gather(args.task, args.runs)
    with args.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    draw([row for row in rows if not args.only or row["method"] in args.only], args.task, args.plot)


if __name__ == "__main__":
    main()
