"""Pictures of values: what each agent has, what is believed of it, and what is drawn how often.

They are drawn from the columns that a schedule.csv has, whatever the method.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oht.report.figure_parts import (
    FAINT,
    INK,
    MOST_AGENTS,
    MOST_POINTS,
    MUTED,
    PALETTE,
    Figure,
    Trace,
    faded,
    layout_of,
    scatter,
    shades,
    thinned,
    with_gaps,
)
from oht.report.histories import History, coloured, episode_marks, x_axis
from oht.report.schedules import agent_numbers, agents_of, discrete_values, first


def value_figure(history: History, name: str) -> Figure:
    """The value of every agent over time, episodes coloured by return, the champion's value as a strong line."""
    steps, column = history.schedule["env_steps"], first(name)
    search = _distribution(history, name)
    champion = history.schedule[f"champion/{column}"]
    keep = thinned(len(steps), MOST_POINTS, changes=champion)
    words = [f"The champion uses {name} {champion[i]:.4g}<br>at {steps[i]:,.0f} env steps." for i in keep]
    strong = {"color": INK, "width": 3, "shape": "hv"}
    data = [*search, *_agent_lines(history, column)]
    data.append(scatter(steps[keep], champion[keep], "champion", words, mode="lines", line=strong))
    if column in history.episodes.values:
        own = history.episodes.values[column]
        data.append(episode_marks(history, own, lambda i: f"{name} {own[i]:.4g}"))
    caption = "Dots are training episodes, coloured by their return. The strong line is the champion's value"
    caption += ", the dashed one the mean of the search with a band of one standard deviation." if search else "."
    values = np.concatenate([champion, history.episodes.values.get(column, champion)])
    y = value_axis(name, values, name in history.logarithmic)
    return Figure(f"Values of {name}", caption, data, layout_of(x_axis(history), y, coloured(history)))


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


def _distribution(history: History, name: str) -> list[Trace]:
    """The Gaussian that values are drawn from, or mean and deviation of a population."""
    for known in (name, *name.split("+")):
        if f"{known}/mu" in history.schedule:
            break
    else:
        return []
    steps, mu = history.schedule["env_steps"], history.schedule[f"{known}/mu"]
    sigma = history.schedule.get(f"{known}/sigma", np.zeros(len(mu)))
    if not (sigma > 0).any():  # a value that is learned, not drawn
        return []
    keep = thinned(len(steps), MOST_POINTS)
    x = steps[keep]
    middle, low, high = ((10.0**v if known in history.log_scaled else v)[keep] for v in (mu, mu - sigma, mu + sigma))
    band = scatter(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]), "one standard deviation", None,
                    mode="lines", fill="toself", fillcolor=FAINT, line={"width": 0}, showlegend=False)  # fmt: skip
    words = [
        f"mean {m:.4g}, one standard deviation from {a:.4g} to {b:.4g}"
        for m, a, b in zip(middle, low, high, strict=True)
    ]
    style = {"color": MUTED, "width": 1.5, "dash": "dash"}
    return [band, scatter(x, middle, "mean of the search", words, mode="lines", line=style)]


def _agent_lines(history: History, column: str) -> list[Trace]:
    """A thin line for each agent that keeps its value for a while; with gaps between them, as one trace."""
    steps = history.schedule["env_steps"]
    own_columns = {i: f"agent/{i}/{column}" for i in agent_numbers(history.schedule)}
    if own_columns and {*own_columns.values()} <= history.schedule.keys():
        lines = {i: (steps, history.schedule[own]) for i, own in own_columns.items()}
    elif column in history.episodes.values:
        lines = {}
        for agent in sorted(set(history.episodes.agent.tolist())):
            own = history.episodes.agent == agent
            lines[agent] = (steps[history.episodes.row[own]], history.episodes.values[column][own])
        changes = [np.mean(np.diff(values) != 0) for _, values in lines.values() if len(values) > 1]
        if not changes or np.mean(changes) > 0.5:  # drawn anew in each iteration: a line would mean nothing
            return []
    else:
        return []
    x, y = with_gaps([(x[keep], v[keep]) for x, v in lines.values() for keep in [thinned(len(x), MOST_POINTS, v)]])
    return [scatter(x, y, "agents", None, mode="lines", line={"color": MUTED, "width": 1, "shape": "hv"}, opacity=0.55)]


def belief_figure(history: History) -> Figure:
    """The return that is believed of each agent of a race, with its standard error."""
    steps, agents = history.schedule["env_steps"], agents_of(history.schedule)
    colours = dict(zip(agents, shades(len(agents)), strict=True))
    leader = int(history.champions[-1])
    shown = _most_important(history, agents)
    keep = thinned(len(steps), MOST_POINTS)
    data: list[Trace] = []
    for agent in sorted(shown, key=lambda agent: agent == leader):  # the leader on top
        mean, error = history.schedule[f"agent/{agent}/mean"][keep], history.schedule[f"agent/{agent}/error"][keep]
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
    return Figure("Belief about each agent", caption, data, layout_of(x_axis(history), {"title": "believed return"}))


def share_figure(history: History) -> Figure:
    """Who learns how much: stacked areas."""
    steps, agents = history.schedule["env_steps"], agents_of(history.schedule)
    colours = dict(zip(agents, shades(len(agents)), strict=True))
    shown, keep = _most_important(history, agents), thinned(len(steps), MOST_POINTS)
    parts = {agents[agent]: (history.schedule[f"agent/{agent}/ratio"], colours[agent]) for agent in shown}
    others = [history.schedule[f"agent/{agent}/ratio"] for agent in agents if agent not in shown]
    if others:
        parts["all others"] = (np.sum(others, axis=0), MUTED)
    data = _stacked(steps[keep], {name: (ratio[keep], colour) for name, (ratio, colour) in parts.items()}, "{:.2g}")
    y = {"title": "gradient steps per env step", "rangemode": "tozero"}
    caption = "Gradient steps that each agent takes for each env step: those that are probably best take the most."
    return Figure("Who learns", caption, data, layout_of(x_axis(history), y))


def _most_important(history: History, agents: Mapping[int, str]) -> list[int]:
    """At most so many agents that a legend can name them: those believed best now."""
    best = sorted(agents, key=lambda agent: -history.schedule[f"agent/{agent}/mean"][-1])[:MOST_AGENTS]
    return [agent for agent in agents if agent in best]


def probability_figure(history: History, name: str) -> Figure:
    """Stacked areas: at each step the heights are the probabilities of the values."""
    steps, values = history.schedule["env_steps"], discrete_values(history.schedule, name)
    keep = thinned(len(steps), MOST_POINTS)
    parts = {
        f"{name} {value}": (history.schedule[f"{name}/p/{value}"][keep], colour)
        for value, colour in zip(values, shades(len(values)), strict=True)
    }
    if history.run.method == "pbt":
        title, y, caption = "Shares", "share of the agents", f"How many of the agents use each value of {name}."
    else:
        title, y = "Probabilities", "probability"
        caption = f"How probably each value of {name} is drawn; heights at one step add up to 1."
    layout = layout_of(x_axis(history), {"title": y, "range": [0, 1]})
    return Figure(f"{title} of {name}", caption, _stacked(steps[keep], parts, "{:.3f}"), layout)


def _stacked(x: np.ndarray, parts: Mapping[str, tuple[np.ndarray, str]], form: str) -> list[Trace]:
    data = []
    for name, (y, colour) in parts.items():
        words = [f"{name}: {form.format(value)}<br>at {step:,.0f} env steps." for step, value in zip(x, y, strict=True)]
        fill = colour if colour.startswith("@") else faded(colour, 0.75)
        data.append(scatter(x, y, name, words, mode="lines", stackgroup="all", fillcolor=fill,
                             line={"width": 0.5, "color": colour}))  # fmt: skip
    return data


def weights_figure(history: History) -> Figure:
    """CEM-RL: how far the drawn actors are from their mean."""
    steps = history.schedule["env_steps"]
    keep = thinned(len(steps), MOST_POINTS)
    data = []
    for column, name, colour in (
        ("weights/sigma", "spread of the weights", PALETTE[0]),
        ("weights/damp", "added to their variance", PALETTE[1]),
    ):
        y = history.schedule[column][keep]
        words = [
            f"{name}: {value:.3g}<br>at {step:,.0f} env steps." for step, value in zip(steps[keep], y, strict=True)
        ]
        data.append(scatter(steps[keep], y, name, words, mode="lines", line={"color": colour, "width": 2}))
    y = value_axis("size", np.concatenate([history.schedule[f"weights/{name}"] for name in ("sigma", "damp")]), True)
    caption = "How widely the actors are drawn around the mean actor, which is the champion."
    return Figure("Spread of the actor's weights", caption, data, layout_of(x_axis(history), y))
