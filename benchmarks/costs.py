"""What a population costs: milliseconds of learning for each env step, by the width of the networks, the batch and P.

    python benchmarks/costs.py

Every agent takes one gradient step for each env step (TD3, two hidden layers, observations of 24 numbers); the best of
the repeats counts. Writes benchmarks/costs.csv and docs/images/costs.png and prints a table.
"""

import argparse
import csv
from itertools import product
from pathlib import Path

from throughput import filled_replay, learning, seconds

ROOT = Path(__file__).parent.parent
CSV, FIGURE = ROOT / "benchmarks" / "costs.csv", ROOT / "docs" / "images" / "costs.png"
WIDTHS, BATCHES, POPULATIONS = (64, 128, 300, 512), (100, 256), (1, 2, 5, 10)
COLUMNS = ("width", "batch", "population", "ms_per_env_step")


def measure(repeats: int) -> list[tuple[int, int, int, float]]:
    replay = filled_replay()
    rows = []
    for width, batch, number in product(WIDTHS, BATCHES, POPULATIONS):
        call, updates = learning(number, batch, replay, width)
        seconds(call)  # compiles
        best = min(seconds(call) for _ in range(repeats))
        rows.append((width, batch, number, 1000 * best * number / updates))
        print(*rows[-1], flush=True)
    return rows


def table(rows: list[tuple[int, int, int, float]]) -> str:
    """A line for each width and batch, a column for each number of agents."""
    found = {row[:3]: row[3] for row in rows}
    lines = [
        " | ".join(["| units", "batch", *(f"P = {number}" for number in POPULATIONS)]) + " |",
        "|---" * (2 + len(POPULATIONS)) + "|",
    ]
    for width, batch in product(WIDTHS, BATCHES):
        each = [f"{found[width, batch, number]:.2f}" for number in POPULATIONS]
        lines.append(" | ".join([f"| {width} x {width}", str(batch), *each]) + " |")
    return "\n".join(lines)


def draw(rows: list[tuple[int, int, int, float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(1, len(BATCHES), sharey=True)
    for panel, batch in zip(panels, BATCHES, strict=True):
        for width in WIDTHS:
            own = [(number, ms) for w, b, number, ms in rows if (w, b) == (width, batch)]
            panel.loglog(*zip(*own, strict=True), marker="o", markersize=3, label=f"{width} x {width}")
        panel.set(title=f"batch {batch}", xlabel="agents")
        panel.set_xticks(POPULATIONS, [str(number) for number in POPULATIONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("ms of learning for each env step")
    panels[0].legend(fontsize=8)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    rows = measure(parser.parse_args().repeats)
    with CSV.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row[:3], f"{row[3]:.4g}") for row in rows)
    draw(rows)
    print(table(rows))


if __name__ == "__main__":
    main()
