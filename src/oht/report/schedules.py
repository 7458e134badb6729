"""What the columns of a schedule.csv say, whatever the method; docs/run-folder.md describes them.

A tuner of one's own may write only some of them: what is not there is not drawn.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oht.errors import UserError
from oht.runs import Columns


def tune_of(config: Path) -> dict[str, Any]:
    """What a run tunes, as its config.toml says."""
    try:
        return tomllib.loads(config.read_text("utf-8")).get("tune", {})
    except (OSError, ValueError) as error:
        raise UserError(f"{config} cannot be read: {error}.") from None


def log_scaled(tune: Mapping[str, Any]) -> set[str]:
    """The names that are tuned on a log scale, joined ones and their parts: mu and sigma of these are log10."""
    joined = [name for name, space in tune.items() if str(space).startswith("log:")]
    return {part for name in joined for part in (name, *name.split("+"))}


def names(schedule: Columns) -> list[str]:
    """The names that a schedule has a distribution for: `actor_lr`, or `actor_lr+critic_lr` where both share one."""
    return list(dict.fromkeys(match[1] for column in schedule if (match := re.match(r"(.+?)/(?:mu$|p/)", column))))


def discrete_values(schedule: Columns, name: str) -> list[str]:
    return [column.split("/")[2] for column in schedule if column.startswith(f"{name}/p/")]


def first(name: str) -> str:
    """Hyper-parameters that share a distribution have the same value, so the first stands for all."""
    return name.split("+")[0]


def sample_numbers(schedule: Columns) -> list[int]:
    """The numbers of the training episodes of an iteration."""
    return sorted({int(m[1]) for c in schedule if (m := re.fullmatch(r"sample/(\d+)/return", c))})


def agent_numbers(schedule: Columns) -> list[int]:
    """The agents of a race: those that have a belief and gradient steps."""
    known = {int(m[1]) for column in schedule if (m := re.fullmatch(r"agent/(\d+)/ratio", column))}
    return sorted(i for i in known if {f"agent/{i}/mean", f"agent/{i}/error"} <= schedule.keys())


def samples(schedule: Columns, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(env steps, value, return) of every training episode for which the value is known."""
    columns = {f"sample/{i}/{first(name)}": f"sample/{i}/return" for i in sample_numbers(schedule)}
    known = {own: total for own, total in columns.items() if own in schedule}
    none = np.zeros(0)
    steps = np.concatenate([none, *(schedule["env_steps"] for _ in known)])
    values = np.concatenate([none, *(schedule[own] for own in known)])
    return steps, values, np.concatenate([none, *(schedule[total] for total in known.values())])


def champion_names(schedule: Columns) -> list[str]:
    """The hyper-parameters with a column of the champion's values."""
    return own_names(schedule, "champion/")


def own_names(schedule: Columns, prefix: str) -> list[str]:
    """What follows this prefix in the names of columns."""
    return [column.removeprefix(prefix) for column in schedule if column.startswith(prefix)]


def agents_of(schedule: Columns) -> dict[int, str]:
    """The agents of a race by their values, each named by those in which it differs from others."""
    numbers = agent_numbers(schedule)
    tuned = [name for name in champion_names(schedule) if all(f"agent/{i}/{name}" in schedule for i in numbers)]
    values = {name: [float(schedule[f"agent/{i}/{name}"][0]) for i in numbers] for name in tuned}
    varied = [name for name in tuned if len(set(values[name])) > 1]
    same: dict[tuple[float, ...], list[str]] = {}  # hyper-parameters that have the same values share a name
    for name in varied:
        same.setdefault(tuple(values[name]), []).append(name)
    order = sorted(range(len(numbers)), key=lambda place: [column[place] for column in same])
    return {
        numbers[i]: ", ".join(f"{'+'.join(group)} {column[i]:.3g}" for column, group in same.items()) or f"agent {i}"
        for i in order
    }
