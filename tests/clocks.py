"""Two runs of the same seed differ in their clocks alone."""

import csv
from pathlib import Path

CLOCKS = ("wall_time", "cpu_time")


def without_clocks(table: Path) -> list[list[str]]:
    """The header and rows of a table as they are written, but for the time that they took."""
    with table.open(newline="") as file:
        lines = list(csv.reader(file))
    kept = [place for place, name in enumerate(lines[0] if lines else ()) if name not in CLOCKS]
    return [[line[place] for place in kept] for line in lines]
