"""What the members of oht-lr got beside the main agent in each life, and how that goes with their learning rates.

    python benchmarks/lives.py RUNS... --csv results/NAME.csv

For runs with one member at a time. Spearman's rank correlations are taken over the lives of all runs, one half of the
env steps at a time.
"""

import argparse
import csv
import tomllib
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from oht.report.plots import read

NAMES = ("actor_lr", "critic_lr")
COLUMNS = ("seed", "env_steps", *NAMES, "main", "member")


def lives(run: Path) -> list[tuple[float, ...]]:
    """Of each whole life: its end, the member's values, and the mean returns of the main agent and the member."""
    settings = tomllib.loads((run / "config.toml").read_text())
    table = read(run / "schedule.csv")
    columns = len([name for name in table if name.endswith("/agent")])  # 2 if both play in an iteration, otherwise 1

    def episodes(name: str) -> np.ndarray:
        return np.stack([table[f"sample/{i}/{name}"] for i in range(columns)], axis=1).ravel()

    agents, returns, values = episodes("agent"), episodes("return"), {name: episodes(name) for name in NAMES}
    size = 2 * settings["life"] * settings["episodes"]  # episodes of a life

    def whole(start: int) -> tuple[float, ...]:
        rows = np.arange(start, start + size)
        main, member = rows[agents[rows] == 0], rows[agents[rows] == 1]
        return (
            settings["seed"],
            int(table["env_steps"][rows[-1] // columns]),
            *(float(f"{values[name][member[0]]:.4g}") for name in NAMES),
            *(round(float(returns[of].mean()), 2) for of in (main, member)),
        )

    return [whole(start) for start in range(0, len(agents) - size + 1, size)]


def show(rows: np.ndarray) -> None:
    steps, *rates, main, member = rows[:, 1:].T
    better = member > main
    for half, chosen in (("first", steps <= steps.max() / 2), ("second", steps > steps.max() / 2)):
        print(f"{half} half: {chosen.sum()} lives, {better[chosen].sum()} members did better than the main agent")
        for name, rate in zip(NAMES, rates, strict=True):
            rho, p = spearmanr(rate[chosen], (member - main)[chosen])
            print(f"  {name}: rank correlation with the difference {rho:.2f} (p = {p:.2g})")
            for label, part in (("5e-4 or less", rate <= 5e-4), ("2e-3 or more", rate >= 2e-3)):
                part &= chosen
                print(f"    {label}: {better[part].sum()} of {part.sum()} did better")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    args = parser.parse_args()
    rows = [life for run in args.runs for life in lives(run)]
    with args.csv.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    show(np.array(rows))


if __name__ == "__main__":
    main()
