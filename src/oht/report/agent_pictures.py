"""Pictures of agents: who played, led and continued from whom, and what happened in a run."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from oht.report.figure_parts import (
    INK,
    MOST_POINTS,
    MUTED,
    PALETTE,
    Figure,
    Trace,
    duration,
    layout_of,
    scatter,
    thinned,
    with_gaps,
    wrapped,
)
from oht.report.histories import History, coloured, episode_marks, x_axis
from oht.runs import Event

SMOOTH = 10  # episodes of a running mean
ABOVE = 0.3  # of a row: where the marks of events are


def agent_figure(history: History) -> Figure:
    """A row for each agent: its episodes coloured by return, when it was the champion, who continued from whom."""
    episodes = history.episodes
    present = {*episodes.agent.tolist(), *(int(i) for i in history.champions if i >= 0)}
    present |= {
        int(event[key]) for event in history.events for key in ("agent", "source") if int(event.get(key, -1)) >= 0
    }
    agents = sorted(present)
    data = [_champion_trail(history), _descent(history), _forks(history)]
    data.append(episode_marks(history, episodes.agent.astype(float), lambda i: "training episode"))
    data += _agent_events(history)
    y = {"title": "agent", "tickvals": agents if len(agents) <= 20 else agents[:: len(agents) // 10], "zeroline": False}
    y["range"] = [agents[-1] + 0.6, agents[0] - 0.6] if agents else [0.6, -0.6]
    caption = "Each dot is a training episode, coloured by its return. The strong line marks the champion"
    if _fork_events(history):
        caption += "; thin lines show who continued from whose weights, the blue one where today's champion comes from"
    height = min(560, 190 + 22 * len(agents))
    layout = layout_of(x_axis(history), y, {**coloured(history), "height": height})
    return Figure("Agents", f"{caption}.", [trace for trace in data if trace["x"]], layout)


def episode_figure(history: History) -> Figure:
    """The returns of the training episodes of a lone agent, with their running mean."""
    steps, episodes = history.schedule["env_steps"], history.episodes
    data = [episode_marks(history, episodes.returns, lambda i: "training episode")]
    good = np.isfinite(episodes.returns)
    x, y = steps[episodes.row[good]], episodes.returns[good]
    if len(y) >= 2 * SMOOTH:
        sums = np.cumsum(np.concatenate([[0.0], y]))
        mean, x = (sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH, x[SMOOTH - 1 :]
        keep = thinned(len(x), MOST_POINTS)
        name = f"mean of the last {SMOOTH}"
        words = [f"{name}: {mean[i]:,.4g}<br>at {x[i]:,.0f} env steps." for i in keep]
        data.append(scatter(x[keep], mean[keep], name, words, mode="lines", line={"color": INK, "width": 2}))
    layout = layout_of(x_axis(history), {"title": "training return"}, coloured(history))
    return Figure("Training episodes", "The return of each training episode, with exploration noise.", data, layout)


def _champion_trail(history: History) -> Trace:
    """A line through the row of whoever is the champion; it breaks where the champion changes."""
    steps, who = history.schedule["env_steps"], history.champions
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


def _fork_events(history: History) -> list[Event]:
    return [e for e in history.events if e["event"] in ("fork", "replacement") and int(e.get("source", -1)) >= 0]


def descent(events: Sequence[Event], agent: int, until: float) -> list[tuple[int, float, float]]:
    """Where an agent's weights come from: (agent, from, to) in env steps, newest first."""
    pieces: list[tuple[int, float, float]] = []
    for event in reversed(events):
        if event["agent"] == agent and event["env_steps"] <= until:
            pieces.append((agent, float(event["env_steps"]), until))
            agent, until = int(event["source"]), float(event["env_steps"])
    return [*pieces, (agent, 0.0, until)]


def _descent(history: History) -> Trace:
    """The line of descent of the agent that is champion now; empty where nobody continued from another."""
    forks, who = _fork_events(history), int(history.champions[-1])
    pieces = descent(forks, who, float(history.schedule["env_steps"][-1])) if forks and who >= 0 else []
    x = np.array([end for _, begin, to in reversed(pieces) for end in (begin, to)])
    y = np.array([float(agent) for agent, _, _ in reversed(pieces) for _ in range(2)])
    words = [f"Agent {agent:.0f}: its weights became those of today's champion." for agent in y]
    return scatter(x, y, "descent of the champion", words, mode="lines", line={"color": PALETTE[0], "width": 2.5})


def _forks(history: History) -> Trace:
    """A vertical line from the source to the agent that continued from its weights."""
    forks = _fork_events(history)
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
    why = {"diverged": "had diverged", "saturated": "was saturated"}.get(
        event.get("reason", ""), "had diverged or was saturated"
    )
    what = {
        "start": "the run started",
        "resume": "the run continued from a checkpoint",
        "checkpoint": "a checkpoint was written",
        "evaluation": f"an evaluation had the mean return {mean:,.4g}",
        "record": f"the evaluation of {mean:,.4g} was the best so far; its agent is in best/",
        "fork": f"agent {agent} gave up its own weights and continued from {weights}",
        "replacement": f"agent {agent} {why} and was replaced" + (f": it got {weights}" if "source" in event else ""),
        "saturation": f"all actions of agent {agent} were at their bounds; it stayed as it was",
        "env-error": "an episode was dropped and repeated, because the env failed: "
        + str(event.get("message", "")).rstrip("."),
        "stop": f"the run was stopped: {event.get('reason') or 'a signal arrived'}",
        "failure": f"the run failed: {event.get('reason', '')}".rstrip("."),
        "end": "the run had trained for all its steps",
    }
    return f"{when} {what.get(event['event'], event['event'])}."


def _agent_events(history: History) -> list[Trace]:
    """Marks just above the rows of the agents that something happened to; their episodes are in the rows."""
    kinds = ("fork", "replacement", "saturation")
    return [_event_marks(history, kind, lambda event: float(event["agent"]) - ABOVE) for kind in kinds]


def _event_marks(history: History, kind: str, y: Callable[[Event], float]) -> Trace:
    found = [event for event in history.events if event["event"] == kind]
    found = [found[i] for i in thinned(len(found), MOST_POINTS)]
    symbol, colour, name = MARKS[kind]
    marker = {"symbol": symbol, "color": colour, "size": 10, "line": {"width": 1, "color": "@paper"}}
    x, rows = (np.array([get(event) for event in found], float) for get in (lambda event: event["env_steps"], y))
    return scatter(x, rows, name, [wrapped(sentence(event)) for event in found], mode="markers", marker=marker)


def event_figure(history: History) -> Figure:
    """A row for each kind of event; evaluations have a figure of their own."""
    kinds = [kind for kind in MARKS if any(event["event"] == kind for event in history.events)]
    data = []
    for place, kind in enumerate(kinds):
        data.append(_event_marks(history, kind, lambda event, place=place: float(place)) | {"showlegend": False})
    y = {"tickvals": list(range(len(kinds))), "ticktext": [MARKS[kind][2] for kind in kinds], "zeroline": False}
    y |= {"range": [len(kinds) - 0.4, -0.6], "title": ""}
    layout = layout_of(x_axis(history), y, {"height": 110 + 26 * len(kinds)})
    return Figure("Events", "What happened in the run; point at a mark to read it.", data, layout)
