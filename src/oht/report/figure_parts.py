"""Parts of which the figures for Plotly are made: plain dicts that JSON can hold.

A colour that begins with @ is a name which the page replaces by the colour of its theme, light or dark.
"""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Trace = dict[str, Any]

MOST_POINTS = 300  # of a line
MOST_MARKS = 1200  # of all training episodes
MOST_AGENTS = 12  # with a line of their own where each has a name in the legend
INK, MUTED, FAINT = "@ink", "@muted", "@faint"
PALETTE = (
    *("#3b76c4", "#e0802b", "#2f9e6e", "#c94f7c", "#8a63d2", "#b58a1b"),
    *("#2aa3b8", "#d1495b", "#7a8f2a", "#9a6b4f", "#5c6fd6", "#6f7d8c"),
)
SEQUENCE = ("#4b5fd0", "#2f93c8", "#2aa893", "#8bb44a", "#e5b22e", "#ee8434")  # low to high, on light and dark
SCALE = [[i / (len(SEQUENCE) - 1), colour] for i, colour in enumerate(SEQUENCE)]
STEPS = "env steps of all agents"


class Figure(NamedTuple):
    """A figure with its words: a title, and a sentence on how to read it."""

    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def layout_of(x: Mapping[str, Any], y: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The layout of one panel, with titles of its axes and whatever `more` there is."""
    axes = {}
    for name, axis in (("xaxis", x), ("yaxis", y)):
        axes[name] = {**axis, "title": {"text": axis.get("title", "")}}
    if not {"type", "tickformat"} & axes["xaxis"].keys():
        axes["xaxis"]["tickformat"] = ",~r" if "time" in str(x.get("title")) else ",~s"
    return {**axes, "hovermode": "closest", "height": 330, **(more or {})}


def colour_range(totals: np.ndarray) -> tuple[float, float]:
    """From the worst to the best return, without a few that are far off."""
    good = totals[np.isfinite(totals)]
    if not len(good):
        return 0.0, 1.0
    low, high = (float(v) for v in np.percentile(good, (2, 98)))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def scatter(x: np.ndarray, y: np.ndarray, name: str, words: Sequence[str | None] | None, **style: Any) -> Trace:
    """A trace; `words` are what it says where the pointer is, None: nothing."""
    hover = {"text": list(words), "hoverinfo": "text"} if words is not None else {"hoverinfo": "skip"}
    return {"type": "scatter", "x": numbers(x), "y": numbers(y), "name": name, **hover, **style}


def numbers(values: np.ndarray) -> list[float | None]:
    """Short numbers; JSON knows no nan."""
    return [float(f"{v:.7g}") if math.isfinite(v) else None for v in np.asarray(values, float).tolist()]


def thinned(number: int, most: int, changes: np.ndarray | None = None) -> np.ndarray:
    """Indices of at most `most` of so many points, evenly spaced, the last included; of a value that moves in steps
    also the places where it changes, if they are not more."""
    if number <= most:
        return np.arange(number)
    keep = np.linspace(0, number - 1, most).round().astype(int)
    if changes is not None:
        moved = np.flatnonzero(np.diff(changes))
        if len(moved) <= most:
            keep = np.union1d(keep, np.concatenate([moved, moved + 1]))
    return np.unique(keep)


def with_gaps(lines: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Many lines as one: nan stands between them."""
    if not lines:
        return np.zeros(0), np.zeros(0)
    gap = np.array([np.nan])
    return tuple(np.concatenate([part for line in lines for part in (line[i], gap)][:-1]) for i in (0, 1))  # pyright: ignore[reportReturnType]


def shades(number: int) -> list[str]:
    """Colours from low to high for values that have an order."""
    places = np.linspace(0, len(SEQUENCE) - 1, number) if number > 1 else np.array([0.0])
    return [_between(SEQUENCE, place) for place in places]


def _between(colours: Sequence[str], place: float) -> str:
    low = min(int(place), len(colours) - 2)
    a, b = (_channels(colours[low + i]) for i in (0, 1))
    mixed = (round(u + (v - u) * (place - low)) for u, v in zip(a, b, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def faded(colour: str, opacity: float) -> str:
    return f"rgba({','.join(map(str, _channels(colour)))},{opacity})"


def duration(seconds: float) -> str:
    """In words: 45 s, 12.3 min, 3 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def wrapped(text: str, width: int = 64) -> str:
    """Lines for a hover label."""
    return "<br>".join(textwrap.wrap(text, width))


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit in which this time is a handy number."""
    if seconds < 180:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 3 * 3600 else ("hours", 3600.0)


def colours_of(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each method, the same as long as the methods are the same."""
    return {label: PALETTE[i % len(PALETTE)] for i, label in enumerate(sorted(set(labels)))}
