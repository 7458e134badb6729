"""One agent with the schedule of an earlier run, a control: is the schedule worth something without the population?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oht import csvtables
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

    def __post_init__(self):
        """The run can be loaded and resumed from other folders than the one it was started in."""
        if self.source:
            object.__setattr__(self, "source", str(Path(self.source).absolute()))


class Timetable(NamedTuple):
    """Values that hold until the env steps of their row are reached; those of the last row stay."""

    env_steps: np.ndarray
    values: dict[str, np.ndarray]

    def at(self, env_steps: int) -> dict[str, float]:
        row = min(int(np.searchsorted(self.env_steps, env_steps, side="right")), len(self.env_steps) - 1)
        return {name: float(column[row]) for name, column in self.values.items()}


def read(source: str) -> Timetable:
    """The champion columns of a schedule.csv, whose rows hold the env steps at the end of each iteration."""
    path = Path(source)
    path = path / FILE if path.is_dir() else path
    if not source or not path.is_file():
        raise UserError(f"there is no schedule at {source!r}; give a run folder with a {FILE}.")
    table = csvtables.columns(path)
    values = {name.removeprefix(CHAMPION): column for name, column in table.items() if name.startswith(CHAMPION)}
    if not values or "env_steps" not in table:
        raise UserError(
            f"{path} holds no schedule: it needs rows and columns like env_steps and {CHAMPION}n_step, as a tuned run "
            "writes."
        )
    if not all(np.isfinite(column).all() for column in (table["env_steps"], *values.values())):
        raise UserError(f"{path} is no schedule: a value is not finite.")
    if (np.diff(table["env_steps"]) < 0).any():
        raise UserError(f"{path} is no schedule: its env_steps must grow from row to row.")
    return Timetable(table["env_steps"], values)


def make(settings: Schedule, tune: Tune, base: Mapping[str, float]) -> Tuner:
    if tune:
        raise UserError(f"the method schedule replays values, so {', '.join(tune)} cannot be tuned at the same time.")
    table = read(settings.source)
    for name in table.values:
        if name not in base and name != "replay_ratio":
            raise UserError(
                f"the schedule sets {name!r}, which this algorithm does not have; known: {', '.join(sorted(base))}."
            )

    def row(proposal: Proposal, outcome: Outcome) -> Row:
        return columns.champion({name: proposal.hyper[name][0] for name in table.values})

    return lone(settings.replay_ratio, lambda env_steps: {**base, **table.at(env_steps)}, row)
