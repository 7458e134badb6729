"""What the members of oht-lr got beside the main agent in each life, how that goes with their learning rates, and what
adopting them was worth.

    python benchmarks/lives.py RUNS... --csv results/NAME.csv

For runs with one member at a time. Spearman's rank correlations are taken over the lives of all runs of a task and
method, one half of the env steps at a time. A life that ends close to a tie tells what adoption is worth: whether the
member is adopted is luck, so what the main agent gets in the next life differs by nothing else. Members with the main
agent's own rates (sigma = 0) are counted apart: there adoption should be worth nothing.
"""

import argparse
import csv
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from oht import runs

NAMES = ("actor_lr", "critic_lr")


class Life(NamedTuple):
    task: str
    method: str
    seed: int
    env_steps: int  # at its end
    actor_lr: float
    critic_lr: float
    main: float  # mean returns
    member: float
    error: float  # the standard error of their difference

    @property
    def sureness(self) -> float:
        """Standard errors that the member was ahead."""
        return (self.member - self.main) / max(self.error, 1e-9)


def lives(run: Path) -> list[Life]:
    """All whole lives of a run."""
    settings = tomllib.loads((run / "config.toml").read_text())
    table = runs.columns(run / "schedule.csv")
    columns = len([name for name in table if name.endswith("/agent")])  # 2 if both play in an iteration, otherwise 1

    def episodes(name: str) -> np.ndarray:
        return np.stack([table[f"sample/{i}/{name}"] for i in range(columns)], axis=1).ravel()

    agents, returns, values = episodes("agent"), episodes("return"), {name: episodes(name) for name in NAMES}
    size = 2 * settings["life"] * settings["episodes"]  # episodes of a life

    def whole(start: int) -> Life:
        rows = np.arange(start, start + size)
        main, member = rows[agents[rows] == 0], rows[agents[rows] == 1]
        error = (returns[member] - returns[main]).std(ddof=1) / np.sqrt(len(main))
        return Life(
            settings["task"],
            run.parent.name,
            settings["seed"],
            int(table["env_steps"][rows[-1] // columns]),
            *(float(f"{values[name][member[0]]:.4g}") for name in NAMES),
            *(round(float(number), 2) for number in (returns[main].mean(), returns[member].mean(), error)),
        )

    return [whole(start) for start in range(0, len(agents) - size + 1, size)]


def show_rates(lived: list[Life]) -> None:
    """Which learning rates did better than those of the main agent."""
    steps = np.array([life.env_steps for life in lived])
    ahead = np.array([life.member - life.main for life in lived])
    for half, chosen in (("first", steps <= steps.max() / 2), ("second", steps > steps.max() / 2)):
        print(
            f"  {half} half: {chosen.sum()} lives, {(ahead[chosen] > 0).sum()} members did better than the main agent"
        )
        for name in NAMES:
            rate = np.array([getattr(life, name) for life in lived])
            rho, p = spearmanr(rate[chosen], ahead[chosen])
            print(f"    {name}: rank correlation with the difference {rho:.2f} (p = {p:.2g})")
            for label, part in (("5e-4 or less", rate <= 5e-4), ("2e-3 or more", rate >= 2e-3)):
                part &= chosen
                print(f"      {label}: {(ahead[part] > 0).sum()} of {part.sum()} did better")


def show_adoption(runs: list[list[Life]]) -> None:
    """What the main agent got in the next life, beside the mean of both in this one."""
    pairs = [pair for run in runs for pair in pairwise(run)]
    for low, high in ((-np.inf, -1), (-1, 0), (0, 1), (1, np.inf)):
        grown = [after.main - (life.main + life.member) / 2 for life, after in pairs if low < life.sureness <= high]
        error = np.std(grown, ddof=1) / np.sqrt(len(grown))
        lead = f"member ahead by {low:g} to {high:g} errors"
        print(f"  {lead}: {len(grown)} lives, growth {np.mean(grown):.0f} +- {error:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    args = parser.parse_args()
    runs = [lives(run) for run in args.runs]
    lived = [life for run in runs for life in run]
    with args.csv.open("w", newline="") as file:
        csv.writer(file).writerows([Life._fields, *lived])
    groups: dict[tuple[str, str], list[list[Life]]] = defaultdict(list)
    for run in runs:
        groups[run[0].task, run[0].method].append(run)
    spread = {name: len({life.actor_lr for run in group for life in run}) > 1 for name, group in groups.items()}
    for name, group in groups.items():
        if spread[name]:
            print(*name)
            show_rates([life for run in group for life in run])
    for some, title in ((True, "adoption of members with rates of their own"), (False, "adoption without any spread")):
        if chosen := [run for name, group in groups.items() if spread[name] == some for run in group]:
            print(title)
            show_adoption(chosen)


if __name__ == "__main__":
    main()
