"""What a tuner may answer, checked at each call: a mistake in a user's own is a sentence and not a wrong run."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from oht.errors import UserError
from oht.hyper import find
from oht.types import NEW, Proposal, Row, Tuner


def checked(tuner: Tuner, title: str, names: Iterable[str], bounded: bool = False) -> Tuner:
    """The same tuner, with its answers checked. A proposal must have a value of each of these names.

    With `bounded` the names are those of oht's algorithms, and values that these cannot use are refused.
    """
    names = tuple(names)

    def ask(rng, state, clock):
        after, proposal = _two(title, "ask", "Proposal", tuner.ask(rng, state, clock))
        _same_arrays(title, "ask", state, after)
        return after, _proposal(title, tuner.population, proposal, names, bounded)

    def tell(rng, state, proposal, outcome):
        after, row = _two(title, "tell", "row", tuner.tell(rng, state, proposal, outcome))
        _same_arrays(title, "tell", state, after)
        return after, _row(title, row)

    def champion(rng, state):
        index = np.asarray(tuner.champion(rng, state))
        if index.ndim or index.dtype.kind not in "iu" or not 0 <= index < tuner.population:
            raise UserError(f"{title} has the champion {index}, but agents are numbered 0 to {tuner.population - 1}.")
        return int(index)

    return tuner._replace(ask=ask, tell=tell, champion=champion)


def _two(title: str, part: str, second: str, answer: Any) -> tuple[Any, Any]:
    if not isinstance(answer, tuple) or hasattr(answer, "_fields") or len(answer) != 2:
        raise UserError(f"{part} of {title} returned a {type(answer).__name__}, not (state, {second}).")
    return answer


def _proposal(title: str, population: int, p: Any, names: Iterable[str], bounded: bool) -> Proposal:
    """The proposal with arrays for lists."""
    if not isinstance(p, Proposal):
        raise UserError(f"ask of {title} returned (state, {type(p).__name__}), not (state, Proposal).")
    if missing := [name for name in names if name not in p.hyper]:
        raise UserError(f"{title} proposes no {missing[0]}; hyper has a value of every hyper-parameter, as base does.")
    hyper = {name: _numbers(title, name, values, population) for name, values in p.hyper.items()}
    for name, values in hyper.items() if bounded else ():
        _check_values(title, name, values)
    ratios = _numbers(title, "ratios", p.ratios, population)
    if (ratios < 0).any():
        raise UserError(f"{title} proposes ratios of {ratios.tolist()}, but nobody takes less than 0 gradient steps.")
    sources = _agents(title, "sources", p.sources, NEW, population)
    actors = _agents(title, "actors", p.actors, 0, population)
    starts = _numbers(title, "starts", p.starts, len(actors))
    if len(sources) != population:
        raise UserError(f"{title} proposes {len(sources)} sources, but there are {population} agents.")
    if not len(actors):
        raise UserError(f"{title} proposes no actors, but at least one agent must play an episode.")
    return Proposal(hyper, ratios, sources, actors, starts, p.explore)


def _numbers(title: str, what: str, values: Any, number: int) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (number,) or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise UserError(f"{title} proposes {what} of {_shown(values)}, but must give {number} finite numbers.")
    return array


def _agents(title: str, what: str, values: Any, least: int, population: int) -> np.ndarray:
    array = np.asarray(values)
    array = array if array.size else array.astype(int)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not ((array >= least) & (array < population)).all():
        raise UserError(
            f"{title} proposes {what} of {_shown(values)}, but must list agents by their numbers, {least} to "
            f"{population - 1}."
        )
    return array


def _check_values(title: str, name: str, values: np.ndarray) -> None:
    """Refuse values that no algorithm can use; a rounding error of float32 may pass."""
    declared = find(name)
    slack = 1e-6 * np.abs(values)
    outside = (values < declared.low - slack) | (values > declared.high + slack)
    if declared.whole:
        outside |= values != np.round(values)
    if outside.any():
        kind = "a whole number" if declared.whole else "a number"
        raise UserError(
            f"{title} proposes {name} of {_shown(values)}, but must give {kind} from {declared.low:g} to "
            f"{declared.high:g}."
        )


def _row(title: str, row: Any) -> Row:
    """The row with plain numbers for those of NumPy or JAX."""
    if not isinstance(row, Mapping):
        raise UserError(f"tell of {title} returned (state, {type(row).__name__}), not (state, row), a dict of numbers.")
    cells = {name: np.asarray(value) for name, value in row.items()}
    for name, cell in cells.items():
        if cell.ndim or cell.dtype.kind not in "biuf":
            raise UserError(f"the row of {title} has {name} = {_shown(row[name])}, but its cells are numbers.")
    return {name: cell.item() for name, cell in cells.items()}


def _same_arrays(title: str, part: str, before: Any, after: Any) -> None:
    """A checkpoint is read in the structure of the first state, so none may differ from it."""
    old, new = _shapes(title, before), _shapes(title, after)
    if old == new:
        return
    name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
    was, now = (f"of shape {shapes[name]}" if name in shapes else "missing" for shapes in (old, new))
    raise UserError(
        f"{part} of {title} returned a state in which {name} is {now}, and before it was {was}; a checkpoint needs the "
        "same arrays throughout, so make room for all values in init."
    )


def _shapes(title: str, state: Any, place: str = "state") -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in a state, by their places."""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        parts = {f"{place}[{key!r}]": part for key, part in state.items()}
    elif isinstance(state, tuple | list):
        names = getattr(state, "_fields", None)  # of a named tuple
        parts = {f"{place}.{names[i]}" if names else f"{place}[{i}]": part for i, part in enumerate(state)}
    else:
        array = state if hasattr(state, "shape") and hasattr(state, "dtype") else np.asarray(state)
        if getattr(array.dtype, "hasobject", False):
            raise UserError(
                f"the state of {title} has a {type(state).__name__} at {place}, which no checkpoint can hold; use "
                "tuples and dicts of NumPy arrays and numbers."
            )
        return {place: tuple(array.shape)}
    return {name: shape for key, part in parts.items() for name, shape in _shapes(title, part, key).items()}


def _shown(values: Any) -> str:
    text = " ".join(str(values.tolist() if isinstance(values, np.ndarray) else values).split())
    return text if len(text) <= 60 else f"{text[:60]}..."
