"""What the schedule and the events of a run say about its agents, and the parts that pictures of it share."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from oht.report.figure_parts import MOST_MARKS, SCALE, STEPS, Trace, colour_range, numbers, scatter, thinned
from oht.report.rundata import RunData
from oht.report.schedules import champion_names, first, log_scaled, own_names, sample_numbers
from oht.runs import Columns, Event


class History(NamedTuple):
    """What the schedule and the events of a run say about its agents."""

    run: RunData
    schedule: Columns
    events: list[Event]
    episodes: "Episodes"
    champions: np.ndarray  # (rows,) the agent that would be evaluated; -1: unknown
    tuned: list[str]  # names; those that always have the same values are joined by +
    log_scaled: set[str]  # names whose mu and sigma are log10
    logarithmic: set[str]  # those that are drawn on a log axis


class Episodes(NamedTuple):
    """Every training episode of a run, (episodes,) each."""

    row: np.ndarray  # of the schedule
    agent: np.ndarray
    returns: np.ndarray  # -inf: the agent was replaced
    values: dict[str, np.ndarray]  # by the name of the hyper-parameter


def history_of(run: RunData) -> History:
    schedule, events = run.schedule(), run.events()
    episodes = episodes_of(schedule)
    tuned, scaled = tuned_names(schedule, episodes), log_scaled(run.config.get("tune", {}))
    logarithmic = {name for name in tuned if first(name) in scaled or first(name).endswith("_lr")}
    return History(run, schedule, events, episodes, champions_of(schedule, episodes), tuned, scaled, logarithmic)


def episodes_of(schedule: Columns) -> Episodes:
    numbers = sample_numbers(schedule)
    if not numbers:
        return Episodes(np.zeros(0, int), np.zeros(0, int), np.zeros(0), {})
    rows = np.arange(len(schedule["env_steps"]))
    prefix = f"sample/{numbers[0]}/"
    columns = {name: [f"sample/{i}/{name}" for i in numbers] for name in own_names(schedule, prefix)}
    complete = {name: all_of for name, all_of in columns.items() if schedule.keys() >= {*all_of}}
    joined = {name: np.stack([schedule[c] for c in of], axis=1).ravel() for name, of in complete.items()}
    total = joined.pop("return")
    agent = joined.pop("agent", np.zeros(len(total))).astype(int)  # a tuner of one's own may not say who played
    return Episodes(np.repeat(rows, len(numbers)), agent, total, joined)


def tuned_names(schedule: Columns, episodes: Episodes) -> list[str]:
    """The hyper-parameters with a champion's value; names that share their values are joined by +."""
    same: dict[bytes, list[str]] = {}
    for name in champion_names(schedule):
        values = np.concatenate([schedule[f"champion/{name}"], episodes.values.get(name, np.zeros(0))])
        same.setdefault(values.tobytes(), []).append(name)
    return ["+".join(group) for group in same.values()]


def champions_of(schedule: Columns, episodes: Episodes) -> np.ndarray:
    """(rows,) the index of the champion: the leader of a race; elsewhere the agent that has the champion's values.

    A main agent that never plays itself (oht-lr, cem-rl) has index 0. -1 where nobody is known to have the values.
    """
    number = len(schedule["env_steps"]) if schedule else 0
    if "leader" in schedule:
        return schedule["leader"].astype(int)
    if not len(episodes.agent) or 0 not in episodes.agent or len(set(episodes.agent.tolist())) == 1:
        return np.zeros(number, int)
    wanted = {name: schedule[f"champion/{name}"] for name in episodes.values if f"champion/{name}" in schedule}
    found = np.full(number, -1)
    seen: dict[int, tuple[float, ...]] = {}  # the values that each agent had last
    per_row = len(episodes.row) // max(1, number)
    for row in range(number):
        for i in range(row * per_row, (row + 1) * per_row):
            seen[int(episodes.agent[i])] = tuple(float(episodes.values[name][i]) for name in wanted)
        values = tuple(float(wanted[name][row]) for name in wanted)
        before = found[row - 1] if row else -1
        same = [agent for agent, own in seen.items() if own == values]
        found[row] = before if before in same else min(same, default=before)
    return found


# Parts of pictures


def x_axis(history: History) -> dict[str, Any]:
    """The same for all figures of a run, so that they can be compared."""
    ends = [float(history.schedule["env_steps"][-1])] if history.schedule else []
    end = max([*ends, *(float(event["env_steps"]) for event in history.events)], default=0.0) or 1.0
    return {"title": STEPS, "range": [-0.015 * end, 1.02 * end]}


def coloured(history: History) -> dict[str, Any]:
    low, high = colour_range(history.episodes.returns)
    bar = {"title": {"text": "return", "side": "right"}, "thickness": 10, "len": 0.9, "outlinewidth": 0}
    return {"coloraxis": {"colorscale": SCALE, "cmin": low, "cmax": high, "colorbar": bar}}


def episode_marks(history: History, y: np.ndarray, what: Callable[[int], str]) -> Trace:
    """A dot for each training episode, coloured by its return; a cross where the agent was replaced."""
    episodes, steps = history.episodes, history.schedule["env_steps"]
    keep = thinned(len(y), MOST_MARKS)
    good = np.isfinite(episodes.returns[keep])
    words = [
        f"Agent {episodes.agent[i]}, {what(i)}: "
        + (f"return {episodes.returns[i]:,.4g}" if math.isfinite(episodes.returns[i]) else "it was replaced")
        + f"<br>at {steps[episodes.row[i]]:,.0f} env steps."
        for i in keep
    ]
    colour = np.where(good, episodes.returns[keep], colour_range(episodes.returns)[0])
    size = 6 if len(keep) < 400 else 4
    marker = {
        "color": numbers(colour),
        "coloraxis": "coloraxis",
        "size": size,
        "symbol": np.where(good, "circle", "x").tolist() if not good.all() else "circle",
        "line": {"width": 0.7, "color": "@paper"},
    }
    return scatter(steps[episodes.row[keep]], y[keep], "training episodes", words, mode="markers", marker=marker,
                    showlegend=False)  # fmt: skip
