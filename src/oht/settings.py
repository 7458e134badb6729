"""Settings are fields of frozen dataclasses: how they are declared, read from text, TOML or Python, and checked."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from types import NoneType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from oht.errors import UserError, unknown

S = TypeVar("S")


def setting(default: Any, help: str, *, low: float = -math.inf, high: float = math.inf) -> Any:
    """A field with a default, a line for `--help`, and the bounds of a number."""
    return field(default=default, metadata={"help": help, "low": low, "high": high})


def names(settings: type) -> list[str]:
    """The settings of a dataclass."""
    return [f.name for f in fields(settings)]


def help_of(f: Field) -> str:
    """The line of a setting for `--help`."""
    return f.metadata.get("help", "") + default_of("" if f.default is MISSING else f.default)


def default_of(value: Any) -> str:
    """A default for `--help`, in brackets; nothing where there is none."""
    return "" if value is None or value == "" else f" [{show(value)}]"


def show(value: Any) -> str:
    """A value as users write it on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(show, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(settings: type[S], values: Mapping[str, Any]) -> S:
    """An instance from texts (the command line) or plain values (TOML, Python), each converted and checked."""
    hints = get_type_hints(settings)
    by_name = {f.name: f for f in fields(settings)}  # pyright: ignore[reportArgumentType]
    given = {}
    for name, value in values.items():
        if name not in by_name:
            raise unknown("setting", name, by_name)
        given[name] = convert(name, value, hints[name])
        within(name, given[name], by_name[name].metadata.get("low"), by_name[name].metadata.get("high"))
    return settings(**given)


def within(name: str, value: Any, low: float | None, high: float | None) -> None:
    """Refuses numbers that are outside their bounds or not finite."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not math.isfinite(number) or (low is not None and number < low) or (high is not None and number > high):
            raise UserError(f"{name} is {show(value)}, but must be {_range(low, high)}.")


def _range(low: float | None, high: float | None) -> str:
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if high == math.inf:
        return "a finite number" if low == -math.inf else f"at least {low:g}, and finite"
    return f"at most {high:g}" if low == -math.inf else f"from {low:g} to {high:g}"


def convert(name: str, value: Any, kind: Any) -> Any:
    """`value` as a `kind`; numbers may be written 1e6 or 10_000."""
    if get_origin(kind) in (Union, type(int | None)):
        if value is None or (isinstance(value, str) and value == "none"):
            if NoneType in get_args(kind):
                return None
            raise UserError(f"{name} needs a value.")
        return convert(name, value, next(k for k in get_args(kind) if k is not NoneType))
    if get_origin(kind) is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            raise unknown(f"{name}", str(value), get_args(kind))
        return value
    if get_origin(kind) is tuple:
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        return tuple(convert(name, part, get_args(kind)[0]) for part in parts)
    if kind is bool:
        return _bool(name, value)
    if kind in (int, float):
        return number(name, value, kind)
    if not isinstance(value, kind):
        raise UserError(f"{name} is {value!r}, but must be a text.")
    return value


def number(name: str, value: Any, kind: type = float) -> Any:
    """`value` as a float or an int."""
    try:
        if isinstance(value, bool):
            raise ValueError
        result = float(value)
        if kind is float:
            return result
        if result != int(result):
            raise ValueError
        return int(result)
    except (TypeError, ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise UserError(f"{name} is {value!r}, but must be {what}.") from None


def _bool(name: str, value: Any) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise UserError(f"{name} is {value!r}, but must be true or false.")
