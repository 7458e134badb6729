"""Figures of what a run tunes: values of its agents, belief or probabilities, who continued from whom, events.

They are drawn from the columns that a schedule.csv has, whatever the method.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from oht.report.figure_parts import (
    FAINT,
    INK,
    MOST_AGENTS,
    MOST_MARKS,
    MOST_POINTS,
    MUTED,
    PALETTE,
    SCALE,
    STEPS,
    Figure,
    Trace,
    colour_range,
    duration,
    faded,
    layout_of,
    numbers,
    scatter,
    shades,
    thinned,
    with_gaps,
    wrapped,
)
from oht.report.rundata import RunData
from oht.report.schedules import agent_numbers, agents_of, discrete_values, first, names, sample_numbers
from oht.runs import Columns, Event

SMOOTH = 10  # episodes of a running mean
ABOVE = 0.3  # of a row: where the marks of events are


class Story(NamedTuple):
    """What the schedule and the events of a run say about its agents."""

    run: RunData
    schedule: Columns
    events: list[Event]
    episodes: "Episodes"
    champions: np.ndarray  # (rows,) the agent that would be evaluated; -1: unknown
    tuned: list[str]  # names; those that always have the same values are joined by +
    logarithmic: set[str]


class Episodes(NamedTuple):
    """Every training episode of a run, (episodes,) each."""

    row: np.ndarray  # of the schedule
    agent: np.ndarray
    returns: np.ndarray  # -inf: the agent was replaced
    values: dict[str, np.ndarray]  # by the name of the hyper-parameter


def story(run: RunData) -> Story:
    schedule, events = run.schedule(), run.events()
    episodes = episodes_of(schedule)
    tuned = tuned_names(schedule, episodes)
    return Story(run, schedule, events, episodes, champions_of(schedule, episodes), tuned, log_names(run, tuned))


def tuning(run: RunData) -> list[Figure]:
    """Everything that shows how a run's agents and their values developed, for every method."""
    told = story(run)
    if not told.schedule:
        return [event_figure(told)] if told.events else []
    figures = [value_figure(told, name) for name in told.tuned]
    if "agent/0/ratio" in told.schedule:
        figures += [belief_figure(told), share_figure(told)]
    figures += [probability_figure(told, name) for name in names(told.schedule) if discrete_values(told.schedule, name)]
    if "weights/sigma" in told.schedule:
        figures.append(weights_figure(told))
    alone = len(set(told.episodes.agent.tolist())) == 1
    figures.append(episode_figure(told) if alone else agent_figure(told))
    return [*figures, event_figure(told)] if told.events else figures


def tuning_note(run: RunData) -> str:
    """A sentence on what the run tunes and how far it has come."""
    tune = dict(run.config.get("tune", {}))
    words = f"{run.method} tunes {' and '.join(tune)}." if tune else FIXED.get(run.method, "")
    words = f"{words} {run.env_steps:,} of {run.steps:,} env steps in {duration(run.wall_time)}".lstrip()
    words += f", {run.cost:.2f} gradient steps of all agents for each env step." if run.cost else "."
    return words + (f" {run.reason}" if run.reason else "")


FIXED = {
    "static": "static keeps its hyper-parameters as they are.",
    "schedule": "schedule replays the values of another run.",
    "cem-rl": "cem-rl evolves the actor's weights; its hyper-parameters stay as they are.",
    "oht": "oht races a portfolio of values.",
    "random": "random trains a portfolio of values; their returns decide nothing.",
}


def episodes_of(schedule: Columns) -> Episodes:
    numbers = sample_numbers(schedule)
    if not numbers:
        return Episodes(np.zeros(0, int), np.zeros(0, int), np.zeros(0), {})
    rows = np.arange(len(schedule["env_steps"]))
    prefix = f"sample/{numbers[0]}/"
    tuned = [c.removeprefix(prefix) for c in schedule if c.startswith(prefix)]
    joined = {name: np.stack([schedule[f"sample/{i}/{name}"] for i in numbers], axis=1).ravel() for name in tuned}
    total = joined.pop("return")
    agent = joined.pop("agent", np.zeros(len(total))).astype(int)  # a tuner of one's own may not say who played
    return Episodes(np.repeat(rows, len(numbers)), agent, total, joined)


def tuned_names(schedule: Columns, episodes: Episodes) -> list[str]:
    """The hyper-parameters with a champion's value; names that share their values are joined by +."""
    same: dict[bytes, list[str]] = {}
    for name in (column.removeprefix("champion/") for column in schedule if column.startswith("champion/")):
        values = np.concatenate([schedule[f"champion/{name}"], episodes.values.get(name, np.zeros(0))])
        same.setdefault(values.tobytes(), []).append(name)
    return ["+".join(group) for group in same.values()]


def log_names(run: RunData, tuned: Iterable[str]) -> set[str]:
    """Those drawn on a log scale: spaces that are searched so, and learning rates."""
    spaces = {part: str(space) for name, space in dict(run.config.get("tune", {})).items() for part in name.split("+")}
    return {name for name in tuned if spaces.get(first(name), "").startswith("log:") or first(name).endswith("_lr")}


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


def value_figure(told: Story, name: str) -> Figure:
    """The value of every agent over time, episodes coloured by return, the champion's value as a strong line."""
    steps, column = told.schedule["env_steps"], first(name)
    search = _distribution(told, name, name in told.logarithmic)
    champion = told.schedule[f"champion/{column}"]
    keep = thinned(len(steps), MOST_POINTS, changes=champion)
    words = [f"The champion uses {name} {champion[i]:.4g}<br>at {steps[i]:,.0f} env steps." for i in keep]
    strong = {"color": INK, "width": 3, "shape": "hv"}
    data = [*search, *_agent_lines(told, column)]
    data.append(scatter(steps[keep], champion[keep], "champion", words, mode="lines", line=strong))
    if column in told.episodes.values:
        data.append(_episode_marks(told, told.episodes.values[column], lambda i: f"{name} {_value(told, column, i)}"))
    caption = "Dots are training episodes, coloured by their return. The strong line is the champion's value"
    caption += ", the dashed one the mean of the search with a band of one standard deviation." if search else "."
    values = np.concatenate([champion, told.episodes.values.get(column, champion)])
    y = value_axis(name, values, name in told.logarithmic)
    return Figure(f"Values of {name}", caption, data, layout_of(_x_axis(told), y, coloured(told)))


def value_axis(name: str, values: np.ndarray, logarithmic: bool) -> dict[str, Any]:
    """A log axis with ticks that can be read also where it spans less than a decade; a tick for each of few values."""
    known = np.unique(values[np.isfinite(values)])
    if not len(known):
        return {"title": name}
    if logarithmic and known[0] > 0 and known[-1] > 2 * known[0]:
        every = [multiple * 10.0**power for power in range(-9, 10) for multiple in (1, 2, 5)]
        ticks = [tick for tick in every if 0.4 * known[0] <= tick <= 2.5 * known[-1]]
        ticks = ticks if len(ticks) <= 7 else [tick for tick in ticks if f"{tick:e}".startswith("1")]
        return {"title": name, "type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
    if len(known) <= 8 and not logarithmic:
        return {"title": name, "tickvals": known.tolist(), "ticktext": [f"{value:g}" for value in known]}
    return {"title": name, "tickformat": "~g" if known[-1] >= 0.01 else ".2e"}


def _x_axis(told: Story) -> dict[str, Any]:
    """The same for all figures of a run, so that they can be compared."""
    ends = [float(told.schedule["env_steps"][-1])] if told.schedule else []
    end = max([*ends, *(float(event["env_steps"]) for event in told.events)], default=0.0) or 1.0
    return {"title": STEPS, "range": [-0.015 * end, 1.02 * end]}


def _value(told: Story, column: str, i: int) -> str:
    return f"{told.episodes.values[column][i]:.4g}"


def _distribution(told: Story, name: str, logarithmic: bool) -> list[Trace]:
    """The Gaussian that values are drawn from, or mean and deviation of a population."""
    for known in (name, *name.split("+")):
        if f"{known}/mu" in told.schedule:
            break
    else:
        return []
    steps, mu, sigma = told.schedule["env_steps"], told.schedule[f"{known}/mu"], told.schedule[f"{known}/sigma"]
    if not (sigma > 0).any():  # a value that is learned, not drawn
        return []
    keep = thinned(len(steps), MOST_POINTS)
    x = steps[keep]
    middle, low, high = ((10.0**v if logarithmic else v)[keep] for v in (mu, mu - sigma, mu + sigma))
    band = scatter(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]), "one standard deviation", None,
                    mode="lines", fill="toself", fillcolor=FAINT, line={"width": 0}, showlegend=False)  # fmt: skip
    words = [
        f"mean {m:.4g}, one standard deviation from {a:.4g} to {b:.4g}"
        for m, a, b in zip(middle, low, high, strict=True)
    ]
    style = {"color": MUTED, "width": 1.5, "dash": "dash"}
    return [band, scatter(x, middle, "mean of the search", words, mode="lines", line=style)]


def _agent_lines(told: Story, column: str) -> list[Trace]:
    """A thin line for each agent that keeps its value for a while; with gaps between them, as one trace."""
    steps = told.schedule["env_steps"]
    if f"agent/0/{column}" in told.schedule:
        numbers = agent_numbers(told.schedule)
        lines = {i: (steps, told.schedule[f"agent/{i}/{column}"]) for i in numbers}
    elif column in told.episodes.values:
        lines = {}
        for agent in sorted(set(told.episodes.agent.tolist())):
            own = told.episodes.agent == agent
            lines[agent] = (steps[told.episodes.row[own]], told.episodes.values[column][own])
        changes = [np.mean(np.diff(values) != 0) for _, values in lines.values() if len(values) > 1]
        if not changes or np.mean(changes) > 0.5:  # drawn anew in each iteration: a line would mean nothing
            return []
    else:
        return []
    x, y = with_gaps([(x[keep], v[keep]) for x, v in lines.values() for keep in [thinned(len(x), MOST_POINTS, v)]])
    return [scatter(x, y, "agents", None, mode="lines", line={"color": MUTED, "width": 1, "shape": "hv"}, opacity=0.55)]


def _episode_marks(told: Story, y: np.ndarray, what: Callable[[int], str]) -> Trace:
    """A dot for each training episode, coloured by its return; a cross where the agent was replaced."""
    episodes, steps = told.episodes, told.schedule["env_steps"]
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


def belief_figure(told: Story) -> Figure:
    """The return that is believed of each agent of a race, with its standard error."""
    steps, agents = told.schedule["env_steps"], agents_of(told.schedule)
    colours = dict(zip(agents, shades(len(agents)), strict=True))
    leader = int(told.champions[-1])
    shown = _most_important(told, agents)
    keep = thinned(len(steps), MOST_POINTS)
    data: list[Trace] = []
    for agent in sorted(shown, key=lambda agent: agent == leader):  # the leader on top
        mean, error = told.schedule[f"agent/{agent}/mean"][keep], told.schedule[f"agent/{agent}/error"][keep]
        known = error > 0  # before two episodes of anyone there is no error
        x, mean, error = steps[keep][known], mean[known], error[known]
        name = agents[agent] + (" (champion)" if agent == leader else "")
        words = [
            f"Agent {agent}, {agents[agent]}: believed return {m:,.4g} ± {e:,.3g}<br>at {s:,.0f} env steps."
            for s, m, e in zip(x, mean, error, strict=True)
        ]
        group = {"legendgroup": str(agent)}
        data.append(scatter(np.concatenate([x, x[::-1]]), np.concatenate([mean + error, (mean - error)[::-1]]), name,
                             None, mode="lines", fill="toself", fillcolor=faded(colours[agent], 0.15),
                             line={"width": 0}, showlegend=False, **group))  # fmt: skip
        line = {"color": colours[agent], "width": 3.5 if agent == leader else 1.5}
        data.append(scatter(x, mean, name, words, mode="lines", line=line, **group))
    caption = "What the race believes of each agent's return, with one standard error; the thick line leads now."
    if len(shown) < len(agents):
        caption += f" The {len(shown)} best of {len(agents)} agents are shown."
    return Figure("Belief about each agent", caption, data, layout_of(_x_axis(told), {"title": "believed return"}))


def share_figure(told: Story) -> Figure:
    """Who learns how much: stacked areas."""
    steps, agents = told.schedule["env_steps"], agents_of(told.schedule)
    colours = dict(zip(agents, shades(len(agents)), strict=True))
    shown, keep = _most_important(told, agents), thinned(len(steps), MOST_POINTS)
    parts = {agents[agent]: (told.schedule[f"agent/{agent}/ratio"], colours[agent]) for agent in shown}
    others = [told.schedule[f"agent/{agent}/ratio"] for agent in agents if agent not in shown]
    if others:
        parts["all others"] = (np.sum(others, axis=0), MUTED)
    data = _stacked(steps[keep], {name: (ratio[keep], colour) for name, (ratio, colour) in parts.items()}, "{:.2g}")
    y = {"title": "gradient steps per env step", "rangemode": "tozero"}
    caption = "Gradient steps that each agent takes for each env step: those that are probably best take the most."
    return Figure("Who learns", caption, data, layout_of(_x_axis(told), y))


def _most_important(told: Story, agents: Mapping[int, str]) -> list[int]:
    """At most so many agents that a legend can name them: those believed best now."""
    best = sorted(agents, key=lambda agent: -told.schedule[f"agent/{agent}/mean"][-1])[:MOST_AGENTS]
    return [agent for agent in agents if agent in best]


def probability_figure(told: Story, name: str) -> Figure:
    """Stacked areas: at each step the heights are the probabilities of the values."""
    steps, values = told.schedule["env_steps"], discrete_values(told.schedule, name)
    keep = thinned(len(steps), MOST_POINTS)
    parts = {
        f"{name} {value}": (told.schedule[f"{name}/p/{value}"][keep], colour)
        for value, colour in zip(values, shades(len(values)), strict=True)
    }
    if told.run.method == "pbt":
        title, y, caption = "Shares", "share of the agents", f"How many of the agents use each value of {name}."
    else:
        title, y = "Probabilities", "probability"
        caption = f"How probably each value of {name} is drawn; heights at one step add up to 1."
    layout = layout_of(_x_axis(told), {"title": y, "range": [0, 1]})
    return Figure(f"{title} of {name}", caption, _stacked(steps[keep], parts, "{:.3f}"), layout)


def _stacked(x: np.ndarray, parts: Mapping[str, tuple[np.ndarray, str]], form: str) -> list[Trace]:
    data = []
    for name, (y, colour) in parts.items():
        words = [f"{name}: {form.format(value)}<br>at {step:,.0f} env steps." for step, value in zip(x, y, strict=True)]
        fill = colour if colour.startswith("@") else faded(colour, 0.75)
        data.append(scatter(x, y, name, words, mode="lines", stackgroup="all", fillcolor=fill,
                             line={"width": 0.5, "color": colour}))  # fmt: skip
    return data


def weights_figure(told: Story) -> Figure:
    """CEM-RL: how far the drawn actors are from their mean."""
    steps = told.schedule["env_steps"]
    keep = thinned(len(steps), MOST_POINTS)
    data = []
    for column, name, colour in (
        ("weights/sigma", "spread of the weights", PALETTE[0]),
        ("weights/damp", "added to their variance", PALETTE[1]),
    ):
        y = told.schedule[column][keep]
        words = [
            f"{name}: {value:.3g}<br>at {step:,.0f} env steps." for step, value in zip(steps[keep], y, strict=True)
        ]
        data.append(scatter(steps[keep], y, name, words, mode="lines", line={"color": colour, "width": 2}))
    y = value_axis("size", np.concatenate([told.schedule[f"weights/{name}"] for name in ("sigma", "damp")]), True)
    caption = "How widely the actors are drawn around the mean actor, which is the champion."
    return Figure("Spread of the actor's weights", caption, data, layout_of(_x_axis(told), y))


# Agents and events


def agent_figure(told: Story) -> Figure:
    """A row for each agent: its episodes coloured by return, when it was the champion, who continued from whom."""
    episodes = told.episodes
    present = {*episodes.agent.tolist(), *(int(i) for i in told.champions if i >= 0)}
    present |= {int(event[key]) for event in told.events for key in ("agent", "source") if int(event.get(key, -1)) >= 0}
    agents = sorted(present)
    data = [_champion_trail(told), _descent(told), _forks(told)]
    data.append(_episode_marks(told, episodes.agent.astype(float), lambda i: "training episode"))
    data += _agent_events(told)
    y = {"title": "agent", "tickvals": agents if len(agents) <= 20 else agents[:: len(agents) // 10], "zeroline": False}
    y["range"] = [agents[-1] + 0.6, agents[0] - 0.6] if agents else [0.6, -0.6]
    caption = "Each dot is a training episode, coloured by its return. The strong line marks the champion"
    if _fork_events(told):
        caption += "; thin lines show who continued from whose weights, the blue one where today's champion comes from"
    height = min(560, 190 + 22 * len(agents))
    layout = layout_of(_x_axis(told), y, {**coloured(told), "height": height})
    return Figure("Agents", f"{caption}.", [trace for trace in data if trace["x"]], layout)


def episode_figure(told: Story) -> Figure:
    """The returns of the training episodes of a lone agent, with their running mean."""
    steps, episodes = told.schedule["env_steps"], told.episodes
    data = [_episode_marks(told, episodes.returns, lambda i: "training episode")]
    good = np.isfinite(episodes.returns)
    x, y = steps[episodes.row[good]], episodes.returns[good]
    if len(y) >= 2 * SMOOTH:
        sums = np.cumsum(np.concatenate([[0.0], y]))
        mean, x = (sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH, x[SMOOTH - 1 :]
        keep = thinned(len(x), MOST_POINTS)
        name = f"mean of the last {SMOOTH}"
        words = [f"{name}: {mean[i]:,.4g}<br>at {x[i]:,.0f} env steps." for i in keep]
        data.append(scatter(x[keep], mean[keep], name, words, mode="lines", line={"color": INK, "width": 2}))
    layout = layout_of(_x_axis(told), {"title": "training return"}, coloured(told))
    return Figure("Training episodes", "The return of each training episode, with exploration noise.", data, layout)


def _champion_trail(told: Story) -> Trace:
    """A line through the row of whoever is the champion; it breaks where the champion changes."""
    steps, who = told.schedule["env_steps"], told.champions
    changes = [0, *(np.flatnonzero(np.diff(who)) + 1).tolist(), len(who)]
    pieces = []
    for begin, end in pairwise(changes):
        if who[begin] >= 0:
            start = steps[begin - 1] if begin else steps[0]
            pieces.append((np.array([start, steps[end - 1]]), np.full(2, float(who[begin]))))
    x, y = with_gaps(pieces)
    words = [
        None if math.isnan(agent) else f"Agent {agent:.0f} is the champion<br>at {step:,.0f} env steps."
        for step, agent in zip(x, y, strict=True)
    ]
    return scatter(x, y, "champion", words, mode="lines", line={"color": INK, "width": 7}, opacity=0.35)


def _fork_events(told: Story) -> list[Event]:
    return [e for e in told.events if e["event"] in ("fork", "replacement") and int(e.get("source", -1)) >= 0]


def descent(events: Sequence[Event], agent: int, until: float) -> list[tuple[int, float, float]]:
    """Where an agent's weights come from: (agent, from, to) in env steps, newest first."""
    pieces: list[tuple[int, float, float]] = []
    for event in reversed(events):
        if event["agent"] == agent and event["env_steps"] <= until:
            pieces.append((agent, float(event["env_steps"]), until))
            agent, until = int(event["source"]), float(event["env_steps"])
    return [*pieces, (agent, 0.0, until)]


def _descent(told: Story) -> Trace:
    """The line of descent of the agent that is champion now; empty where nobody continued from another."""
    forks, who = _fork_events(told), int(told.champions[-1])
    pieces = descent(forks, who, float(told.schedule["env_steps"][-1])) if forks and who >= 0 else []
    x = np.array([end for _, begin, to in reversed(pieces) for end in (begin, to)])
    y = np.array([float(agent) for agent, _, _ in reversed(pieces) for _ in range(2)])
    words = [f"Agent {agent:.0f}: its weights became those of today's champion." for agent in y]
    return scatter(x, y, "descent of the champion", words, mode="lines", line={"color": PALETTE[0], "width": 2.5})


def _forks(told: Story) -> Trace:
    """A vertical line from the source to the agent that continued from its weights."""
    forks = _fork_events(told)
    forks = [forks[i] for i in thinned(len(forks), MOST_POINTS)]
    pieces = [(np.full(2, float(e["env_steps"])), np.array([e["source"], e["agent"]], float)) for e in forks]
    x, y = with_gaps(pieces)
    return scatter(x, y, "continued from its weights", None, mode="lines", line={"color": MUTED, "width": 1.2})


MARKS: dict[str, tuple[str, str, str]] = {  # event: symbol, colour, name
    "start": ("triangle-right", MUTED, "start"),
    "resume": ("triangle-right", MUTED, "resume"),
    "checkpoint": ("square", MUTED, "checkpoint"),
    "record": ("star", "#e5a21e", "best evaluation so far"),
    "fork": ("diamond", "#3b76c4", "fork"),
    "replacement": ("x", "#d1495b", "replacement"),
    "saturation": ("hourglass", "#c77d2b", "saturation"),
    "env-error": ("triangle-down", "#d1495b", "env error"),
    "stop": ("square", "#c77d2b", "stop"),
    "failure": ("x", "#d1495b", "failure"),
    "end": ("circle", "#2f9e6e", "end"),
}


def sentence(event: Event) -> str:
    """What happened, for a person."""
    when = f"At {event['env_steps']:,} env steps ({duration(event['wall_time'])})"
    agent, source, mean = event.get("agent"), int(event.get("source", -1)), event.get("return_mean", math.nan)
    weights = f"the weights of agent {source}" if source >= 0 else "new weights"
    ill = {"diverged": "had diverged", "saturated": "was saturated"}.get(
        event.get("reason", ""), "had diverged or was saturated"
    )
    what = {
        "start": "the run started",
        "resume": "the run continued from a checkpoint",
        "checkpoint": "a checkpoint was written",
        "evaluation": f"an evaluation had the mean return {mean:,.4g}",
        "record": f"the evaluation of {mean:,.4g} was the best so far; its agent is in best/",
        "fork": f"agent {agent} gave up its own weights and continued from {weights}",
        "replacement": f"agent {agent} {ill} and was replaced" + (f": it got {weights}" if "source" in event else ""),
        "saturation": f"all actions of agent {agent} were at their bounds; it stayed as it was",
        "env-error": "an episode was dropped and repeated, because the env failed: "
        + str(event.get("message", "")).rstrip("."),
        "stop": f"the run was stopped: {event.get('reason') or 'a signal arrived'}",
        "failure": f"the run failed: {event.get('reason', '')}".rstrip("."),
        "end": "the run had trained for all its steps",
    }
    return f"{when} {what.get(event['event'], event['event'])}."


def _agent_events(told: Story) -> list[Trace]:
    """Marks just above the rows of the agents that something happened to; their episodes are in the rows."""
    kinds = ("fork", "replacement", "saturation")
    return [_event_marks(told, kind, lambda event: float(event["agent"]) - ABOVE) for kind in kinds]


def _event_marks(told: Story, kind: str, y: Callable[[Event], float]) -> Trace:
    found = [event for event in told.events if event["event"] == kind]
    found = [found[i] for i in thinned(len(found), MOST_POINTS)]
    symbol, colour, name = MARKS[kind]
    marker = {"symbol": symbol, "color": colour, "size": 10, "line": {"width": 1, "color": "@paper"}}
    x, rows = (np.array([get(event) for event in found], float) for get in (lambda event: event["env_steps"], y))
    return scatter(x, rows, name, [wrapped(sentence(event)) for event in found], mode="markers", marker=marker)


def event_figure(told: Story) -> Figure:
    """A row for each kind of event; evaluations have a figure of their own."""
    kinds = [kind for kind in MARKS if any(event["event"] == kind for event in told.events)]
    data = []
    for place, kind in enumerate(kinds):
        data.append(_event_marks(told, kind, lambda event, place=place: float(place)) | {"showlegend": False})
    y = {"tickvals": list(range(len(kinds))), "ticktext": [MARKS[kind][2] for kind in kinds], "zeroline": False}
    y |= {"range": [len(kinds) - 0.4, -0.6], "title": ""}
    layout = layout_of(_x_axis(told), y, {"height": 110 + 26 * len(kinds)})
    return Figure("Events", "What happened in the run; point at a mark to read it.", data, layout)


def coloured(told: Story) -> dict[str, Any]:
    low, high = colour_range(told.episodes.returns)
    bar = {"title": {"text": "return", "side": "right"}, "thickness": 10, "len": 0.9, "outlinewidth": 0}
    return {"coloraxis": {"colorscale": SCALE, "cmin": low, "cmax": high, "colorbar": bar}}
