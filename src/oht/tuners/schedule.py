"""One agent with the schedule of an earlier run, a control: is the schedule worth something without the population?"""

import csv
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from oht.errors import UserError
from oht.settings import setting
from oht.tuners import columns
from oht.tuners.columns import CHAMPION
from oht.tuners.static import lone
from oht.types import Outcome, Proposal, Row, Tune, Tuner

FILE = "schedule.csv"


@dataclass(frozen=True)
class Schedule:
    source: str = setting("", "the run folder, or its schedule.csv, whose champion's values are replayed")
    replay_ratio: float = setting(1.0, "gradient steps for each env step", low=0, high=1000)


class Timetable(NamedTuple):
    """Values that hold until the env steps of their row are reached; those of the last row stay."""

    env_steps: list[int]
    values: dict[str, list[float]]

    def at(self, env_steps: int) -> dict[str, float]:
        row = min(bisect_right(self.env_steps, env_steps), len(self.env_steps) - 1)
        return {name: column[row] for name, column in self.values.items()}


def read(source: str | Path) -> Timetable:
    """The champion columns of a schedule.csv, whose rows hold the env steps at the end of each iteration."""
    path = Path(source)
    path = path / FILE if path.is_dir() else path
    if not str(source) or not path.is_file():
        raise UserError(f"there is no schedule at {str(source)!r}; give a run folder with a {FILE}.")
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        names = [name for name in (rows[0] if rows else {}) if name and name.startswith(CHAMPION)]
        table = Timetable(
            [int(float(row["env_steps"])) for row in rows],
            {name.removeprefix(CHAMPION): [float(row[name]) for row in rows] for name in names},
        )
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is no schedule: a number is missing or unreadable ({error!r}).") from None
    if not table.values:
        raise UserError(
            f"{path} holds no schedule: it needs rows and columns like {CHAMPION}n_step, as a tuned run writes."
        )
    if not all(math.isfinite(value) for column in table.values.values() for value in column):
        raise UserError(f"{path} is no schedule: a value is not finite.")
    if table.env_steps != sorted(table.env_steps):
        raise UserError(f"{path} is no schedule: its env_steps must grow from row to row.")
    return table


def make(settings: Schedule, tune: Tune, base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(f"the method schedule replays values, so {', '.join(tune)} cannot be tuned at the same time.")
    table = read(settings.source)
    for name in table.values:
        if name not in base:
            raise UserError(
                f"the schedule sets {name!r}, which this algorithm does not have; known: {', '.join(sorted(base))}."
            )

    def row(proposal: Proposal, outcome: Outcome) -> Row:
        return columns.champion({name: proposal.hyper[name][0] for name in table.values})

    return lone(settings.replay_ratio, lambda env_steps: {**base, **table.at(env_steps)}, row)
