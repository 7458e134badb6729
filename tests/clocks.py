"""Two runs of the same seed differ in their clocks alone."""

import csv
from pathlib import Path

CLOCKS = ("wall_time", "cpu_time")


def without_clocks(table: Path) -> list[dict[str, str]]:
    """The rows of a table as they are written, but for the time that they took."""
    with table.open(newline="") as file:
        return [{name: cell for name, cell in row.items() if name not in CLOCKS} for row in csv.DictReader(file)]
