"""What may be tuned: `Choice`, `LogFloat`, `Float`, `Int`, and the `Space` that a set of them spans.

A continuous dimension is given either as a range, `LogFloat(low=1e-5, high=1e-2)`, or as a start and a standard
deviation, `LogFloat(1e-3, sigma=0.5)`. It is searched in an encoded space where a Gaussian makes sense: log10 of the
value for `LogFloat`, the value itself for `Float` and `Int` (which is rounded when decoded). `sigma` is in those units:
0.5 of a `LogFloat` is half a decade. Every point is clipped to the bounds, so no value ever leaves them.

On the command line and in config files a dimension is a short text, see `parse`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtri

from oht import errors
from oht.errors import UserError
from oht.hyper import find

DECADES = 3  # either side of the start: the bounds of a LogFloat whose name has no usual ones
LEAST_DECADES = 0.02  # a smaller deviation is probably a mistake; the paper tried 0.02 to 0.5
SHARE = 0.25  # sigma of a range, as a share of its encoded width
LEAST_INT_SIGMA = 0.5  # of a range of whole numbers; with less, rounding would hide every draw


@dataclass(frozen=True, init=False)
class Choice:
    """One of finitely many numbers: `Choice(1, 2, 3)`."""

    values: tuple[float, ...]

    def __init__(self, *values: float):
        if not values:
            raise UserError("a Choice needs at least one value, as in Choice(1, 2, 3).")
        numbers = tuple(_number("a value of Choice", value) for value in values)
        if len(set(numbers)) < len(numbers):
            raise UserError(f"a Choice names each value once, not {format_values(numbers)}.")
        object.__setattr__(self, "values", numbers)


@dataclass(frozen=True)
class Continuous:
    """A number from a range (`low` and `high`), or searched from `init` with the standard deviation `sigma`.

    `is_range` says which of the two was given, also after `resolved` has filled in the start and deviation of a range.
    """

    init: float | None = None
    sigma: float | None = None
    low: float | None = None
    high: float | None = None
    is_range: bool = field(default=False, kw_only=True, repr=False)

    usual_sigma: ClassVar[float | None] = None
    forms: ClassVar[str]  # for messages: how to write it, as a range and with a deviation

    def __post_init__(self):
        kind = type(self).__name__
        for what in ("init", "sigma", "low", "high"):
            value = getattr(self, what)
            unbounded = what in ("low", "high") and isinstance(value, float) and math.isinf(value)
            if value is not None and not unbounded:
                object.__setattr__(self, what, _number(f"the {what} of {kind}", value))
        if self.init is None:
            object.__setattr__(self, "is_range", True)
            if self.sigma is not None or self.low is None or self.high is None:
                raise UserError(f"{kind} is either a range or a start and a deviation: {self.forms}.")
            if not (math.isfinite(self.low) and math.isfinite(self.high)):
                raise UserError(f"the ends of a range must be finite, not {self.low:g} and {self.high:g}.")
        elif self.sigma is None:
            if self.usual_sigma is None:
                raise UserError(f"{kind} with a start needs its sigma, too: {self.forms}.")
            object.__setattr__(self, "sigma", self.usual_sigma)
        _check(self)

    def encode(self, value):
        return np.asarray(value, np.float64)

    def decode(self, point):
        return np.asarray(point, np.float64)


class Float(Continuous):
    """A number searched on its own scale."""

    forms = "Float(low=0.9, high=0.999) or Float(0.99, sigma=0.01)"


class LogFloat(Continuous):
    """A positive number searched by its log10; `sigma` is in decades."""

    usual_sigma = 0.5
    forms = "LogFloat(low=1e-5, high=1e-2) or LogFloat(1e-3, sigma=0.5)"

    def __post_init__(self):
        super().__post_init__()
        for what in ("init", "low"):
            value = getattr(self, what)
            if value is not None and value <= 0:
                raise UserError(f"a LogFloat is positive: its {what} must be above 0, not {value:g}.")

    def encode(self, value):
        return np.log10(value)

    def decode(self, point):
        return np.power(10.0, point)


class Int(Continuous):
    """A whole number: searched on its own scale and rounded."""

    usual_sigma = 1.0
    forms = "Int(low=1, high=5) or Int(3, sigma=1)"

    def __post_init__(self):
        super().__post_init__()
        for what in ("init", "low", "high"):
            value = getattr(self, what)
            if value is not None and math.isfinite(value) and value != int(value):
                raise UserError(f"the {what} of an Int is a whole number, not {value:g}.")

    def decode(self, point):
        return np.rint(point)


Dimension = Choice | Continuous

KINDS: dict[str, type[Continuous]] = {"log": LogFloat, "float": Float, "int": Int}


class Space:
    """Named dimensions, all bounded: the discrete ones, and the continuous ones side by side in encoded space.

    A dimension may be that of several hyper-parameters at once, `actor_lr+critic_lr`: they share its value. `choices`
    and `continuous` are by the names of the dimensions, `names` are the hyper-parameters; `untie` converts values of
    the former to values of the latter.
    """

    def __init__(self, tune: Mapping[str, Dimension], hyper: Mapping[str, float]):
        """`hyper` holds the run's value of every hyper-parameter of the algorithm: only these can be tuned."""
        self.names = tuple(part for name in tune for part in tied(name))
        for name in self.names:
            if name == "replay_ratio" and name not in hyper:
                raise UserError("replay_ratio can only be tuned by the methods oht and random, which divide a budget.")
            if name not in hyper:
                raise errors.unknown("hyper-parameter", name, hyper)
            if self.names.count(name) > 1:
                raise UserError(f"{name} is tuned twice; name it in one space only.")
        dimensions = {name: resolved(name, dim, hyper) for name, dim in tune.items()}
        self.choices = {name: dim for name, dim in dimensions.items() if isinstance(dim, Choice)}
        self.continuous = {name: dim for name, dim in dimensions.items() if isinstance(dim, Continuous)}

    @property
    def mu(self) -> np.ndarray:
        """Where the search of the continuous dimensions starts, encoded."""
        return np.array([dim.encode(dim.init) for dim in self.continuous.values()], np.float64)

    @property
    def sigma(self) -> np.ndarray:
        """The standard deviations that it starts with, in encoded units."""
        return np.array([dim.sigma for dim in self.continuous.values()], np.float64)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest point of the continuous dimensions, encoded."""
        limits = {name: _limits(dim) for name, dim in self.continuous.items()}
        low = self.encode({name: low for name, (low, _) in limits.items()})
        high = self.encode({name: high for name, (_, high) in limits.items()})
        return low, high

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """The points (..., D) below which these shares of the continuous dimensions lie, encoded.

        A range is uniform; a dimension with a start and a deviation is Gaussian, clipped to its bounds.
        """
        low, high = self.bounds
        uniform = np.array([dim.is_range for dim in self.continuous.values()], bool)
        gaussian = np.clip(self.mu + self.sigma * ndtri(shares), low, high)
        with np.errstate(invalid="ignore"):  # bounds may be infinite where there is no range
            return np.where(uniform, low + shares * (high - low), gaussian)

    def extremes(self) -> tuple[dict[str, float], dict[str, float]]:
        """The lowest and the highest value of every hyper-parameter."""
        ends = {name: (min(dim.values), max(dim.values)) for name, dim in self.choices.items()}
        ends = self.untie(ends | {name: _limits(dim) for name, dim in self.continuous.items()})
        return {name: low for name, (low, _) in ends.items()}, {name: high for name, (_, high) in ends.items()}

    def encode(self, values: Mapping[str, float]) -> np.ndarray:
        """The point of these values of the continuous dimensions."""
        return np.array([dim.encode(values[name]) for name, dim in self.continuous.items()], np.float64)

    def decode(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """The values of the hyper-parameters at points (..., D), first clipped to the bounds."""
        return self.untie(
            {
                name: np.clip(dim.decode(points[..., index]), *_limits(dim))
                for index, (name, dim) in enumerate(self.continuous.items())
            }
        )

    def untie(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by the names of dimensions, as values by the names of hyper-parameters."""
        return {part: value for name, value in values.items() for part in tied(name)}


def tied(name: str) -> list[str]:
    """The hyper-parameters of a dimension: `actor_lr+critic_lr` has two, any other name one."""
    return [part.strip() for part in name.split("+")]


def resolved(name: str, dim: Dimension, hyper: Mapping[str, float] | None = None) -> Dimension:
    """The dimension with start, deviation and bounds, checked against what its hyper-parameters allow.

    A range starts at the run's own value (in `hyper`; the declared default if it is not there) where that lies within
    it and otherwise in its middle; its sigma is a quarter of its encoded width. Bounds that are not given are the usual
    ones of the name, widened to hold the start; without usual ones a LogFloat may move three decades either way, and a
    Float or an Int keeps its sign.
    """
    for part in tied(name):
        if find(part).whole:
            _check_whole(part, dim)
    if isinstance(dim, Choice):
        return dim
    if dim.is_range:
        return _started(dim, [(hyper or {}).get(part, find(part).default) for part in tied(name)])
    assert dim.init is not None
    _check_deviation(name, dim)
    low, high = _usual(name) or (None, None)
    if isinstance(dim, LogFloat):
        low = low or dim.init / 10**DECADES  # also where the usual bound is 0
        high = high or dim.init * 10**DECADES
    declared = [find(part) for part in tied(name)]
    low = max(0.0 if dim.init > 0 else -math.inf, *(each.low for each in declared)) if low is None else low
    high = min(0.0 if dim.init < 0 else math.inf, *(each.high for each in declared)) if high is None else high
    return replace(
        dim,
        low=min(low, dim.init) if dim.low is None else dim.low,
        high=max(high, dim.init) if dim.high is None else dim.high,
    )


def _started(dim: Continuous, values: Sequence[float | None]) -> Continuous:
    """A range with its start, the first of these values that it holds or its middle, and its deviation."""
    lowest, highest = _limits(dim)
    low, high = float(dim.encode(lowest)), float(dim.encode(highest))
    middle = float(dim.decode((low + high) / 2))
    start = next((value for value in values if value is not None and lowest <= value <= highest), middle)
    if isinstance(dim, Int):
        return replace(dim, init=round(start), sigma=max(SHARE * (high - low), LEAST_INT_SIGMA))
    return replace(dim, init=start, sigma=SHARE * (high - low))


def _usual(name: str) -> tuple[float, float] | None:
    """The usual bounds that all hyper-parameters of a dimension share."""
    known = [usual for part in tied(name) if (usual := find(part).usual)]
    low, high = max((low for low, _ in known), default=0.0), min((high for _, high in known), default=0.0)
    return (low, high) if low < high else None


# Texts


def dimension(name: str, space: Any) -> Dimension:
    """A dimension as it is, or from what `parse` reads."""
    try:
        return space if isinstance(space, Dimension) else parse(space, name)
    except OverflowError:
        raise UserError(f"the space of {name} has a number that is too large.") from None


def parse(text: str | float | Sequence[float], name: str = "") -> Dimension:
    """A dimension from a command line, a config file or Python; `name` is what it is to tune.

    "1,2,3" or a list of numbers is a Choice; "log:LOW..HIGH", "float:LOW..HIGH" and "int:LOW..HIGH" are ranges;
    "log:INIT[:SIGMA[:LOW:HIGH]]", "float:INIT:SIGMA[:LOW:HIGH]" and "int:INIT[:SIGMA[:LOW:HIGH]]" have a start and a
    deviation, where a part left empty takes its default. "LOW..HIGH" is a Float range, or an Int range where the
    hyper-parameter is a whole number.
    """
    if isinstance(text, tuple):
        raise UserError(_two_readings(name, text))
    if not isinstance(text, str):
        return Choice(*(text if isinstance(text, Sequence) else [text]))
    kind, colon, rest = text.partition(":")
    kind = kind.strip()
    if colon and kind not in KINDS:
        raise errors.unknown("kind of dimension", kind, KINDS)
    if ".." in text:
        return _parse_range(text, kind if colon else "", rest if colon else text, name)
    if not colon:
        return Choice(*(_parsed(text, part) for part in text.split(",")))
    parts = rest.split(":")
    if len(parts) > 4:
        raise UserError(f"{text!r} has too many parts: {kind}:INIT:SIGMA:LOW:HIGH is the longest form.")
    init, sigma, low, high = (_parsed(text, part) if part.strip() else None for part in (parts + 3 * [""])[:4])
    if init is None or (kind == "float" and sigma is None):
        raise UserError(
            f"{text!r} lacks its {'start' if init is None else 'deviation'}: write {kind}:LOW..HIGH for a range, "
            f"or {kind}:INIT:SIGMA or {kind}:INIT:SIGMA:LOW:HIGH for a start and a standard deviation."
        )
    return KINDS[kind](init, sigma, low, high)


def _parse_range(text: str, kind: str, ends: str, name: str) -> Continuous:
    first, _, last = ends.partition("..")
    if ":" in ends:
        raise UserError(f"{text!r} is a range and has no other parts: write {kind or 'float'}:{ends.split(':')[0]}.")
    low, high = _parsed(text, first), _parsed(text, last)
    if kind:
        return KINDS[kind](low=low, high=high)
    if any(find(part).whole for part in tied(name)) and low.is_integer() and high.is_integer():
        return Int(low=low, high=high)
    if _wide(low, high):
        raise UserError(
            f"the range {text.strip()!r} could be meant on either scale: write log:{text.strip()} for a log scale or "
            f"float:{text.strip()} for a linear one."
        )
    return Float(low=low, high=high)


def format(dim: Dimension) -> str:
    """The text that `parse` turns back into this dimension."""
    if isinstance(dim, Choice):
        return format_values(dim.values)
    kind = _kind(dim)
    if dim.is_range:
        low, high = _limits(dim)
        return f"{kind}:{label(low)}..{label(high)}"
    parts = [dim.init, dim.sigma] if dim.low is dim.high is None else [dim.init, dim.sigma, dim.low, dim.high]
    return ":".join([kind, *("" if part is None else label(part) for part in parts)])


def _kind(dim: Continuous) -> str:
    return next(kind for kind, cls in KINDS.items() if isinstance(dim, cls))


def format_values(values: Sequence[float]) -> str:
    return ",".join(label(value) for value in values)


def label(value: float) -> str:
    """The shortest text that is read back as the same number: 3, 0.001, 1e-06."""
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(float(value))


def describe(name: str, dim: Dimension) -> str:
    """A dimension in words: "critic_lr: 1e-5 to 1e-2 on a log scale, start 1e-3"."""
    parts = tied(name)
    who = name if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]} (same value)"
    if isinstance(dim, Choice):
        return f"{who}: {'one of ' if len(dim.values) > 1 else ''}{', '.join(map(_word, dim.values))}"
    low, high = _limits(dim)
    where = f"{_word(low)} to {_word(high)}" if math.isfinite(low) and math.isfinite(high) else ""
    where = where or (f"at least {_word(low)}" if math.isfinite(low) else "")
    where = where or (f"at most {_word(high)}" if math.isfinite(high) else "any value")
    scale = {LogFloat: " on a log scale", Int: ", whole numbers"}.get(type(dim), " on a linear scale")
    start = "" if dim.init is None else f", start {_word(dim.init)}"
    if dim.is_range:
        return f"{who}: {where}{scale}{start}"
    assert dim.sigma is not None
    unit = " decades" if isinstance(dim, LogFloat) else ""
    return f"{who}: {where}{scale}{start}, standard deviation {_word(dim.sigma)}{unit}"


def descriptions(tune: Mapping[str, Dimension], hyper: Mapping[str, float]) -> list[str]:
    """Every dimension in words, with the start, the deviation and the bounds that a run with these values gives it."""
    return [describe(name, resolved(name, dim, hyper)) for name, dim in tune.items()]


def _word(value: float) -> str:
    """A number as people write it: 3, 0.99, 1e-5."""
    if value and (abs(value) <= 0.01 or abs(value) >= 1e6) and math.isfinite(value):
        mantissa, exponent = f"{value:.5e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:.6g}"


# Checks


def _parsed(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise UserError(
            f"{text!r} cannot be tuned: {part.strip()!r} is not a number; "
            "write values (1,2,3), a range (log:1e-5..1e-2, 0.9..0.999), or a start and a deviation (log:1e-3:0.5)."
        ) from None


def _number(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
        raise UserError(f"{what} must be a number, not {value!r}.")
    if math.isinf(value):
        raise UserError(f"{what} must be finite, not {value!r}.")
    return float(value)


def _limits(dim: Continuous) -> tuple[float, float]:
    return -math.inf if dim.low is None else dim.low, math.inf if dim.high is None else dim.high


def _wide(low: float, high: float) -> bool:
    """Whether two positive numbers are two decades or more apart, where people usually mean a log scale."""
    return low > 0 and high >= 100 * low


def _check(dim: Continuous) -> None:
    kind = type(dim).__name__
    if dim.sigma is not None and dim.sigma < 0:
        raise UserError(f"the sigma of {kind} is a standard deviation: 0 or more, not {dim.sigma:g}.")
    low, high = _limits(dim)
    if low >= high:
        raise UserError(f"the low of {kind} must lie below its high, but {low:g} >= {high:g}.")
    if dim.init is not None and not low <= dim.init <= high:
        raise UserError(
            f"the init of {kind} must lie within its bounds, but {dim.init:g} is not in [{low:g}, {high:g}]."
        )


def _check_whole(name: str, dim: Dimension) -> None:
    """Refuses a dimension with values that a hyper-parameter of whole numbers cannot take."""
    if isinstance(dim, Float | LogFloat):
        raise UserError(f"{name} is a whole number: tune it with a Choice (1,2,3) or an Int (int:1..5 or int:3:1).")
    values = dim.values if isinstance(dim, Choice) else [x for x in (dim.init, dim.low) if x is not None]
    if any(n < find(name).low or not float(n).is_integer() for n in values):
        raise UserError(f"{name} is a whole number from {find(name).low:g} on, so {format(dim)!r} cannot be tuned.")
    if isinstance(dim, Int) and dim.high == math.inf:
        raise UserError(f"{name} needs a finite upper bound, as in int:3:1:1:10.")


def _check_deviation(name: str, dim: Continuous) -> None:
    """Refuses a start and a deviation that were most likely meant as the ends of a range.

    That is a deviation of almost nothing, or one wider than all usual values. Bounds make clear that a deviation is
    meant, so with them it is taken.
    """
    assert dim.init is not None
    assert dim.sigma is not None
    if dim.sigma == 0 or not (dim.low is dim.high is None):
        return
    least, most = _plausible_sigmas(name, dim)
    if least <= dim.sigma <= most:
        return
    kind = _kind(dim)
    ends = [_word(end) for end in sorted((dim.init, dim.sigma))]
    low, high = ends if 0 < dim.init != dim.sigma else ("LOW", "HIGH")
    raise UserError(
        f"{name}={format(dim)} is a start of {_word(dim.init)} with a standard deviation of {_word(dim.sigma)}"
        f"{' decades' if isinstance(dim, LogFloat) else ''}, which is too {'wide' if dim.sigma > most else 'narrow'} "
        f"to search with; for a range write {name}={kind}:{low}..{high} (in Python {type(dim).__name__}(low={low}, "
        f"high={high})), or give bounds as well to keep it: {kind}:INIT:SIGMA:LOW:HIGH."
    )


def _plausible_sigmas(name: str, dim: Continuous) -> tuple[float, float]:
    """The smallest and the largest standard deviation that can be meant as one, in encoded units."""
    low, high = _usual(name) or (0.0, math.inf)
    if isinstance(dim, LogFloat):
        return LEAST_DECADES, math.log10(high / low) if low > 0 and high < math.inf else 2 * DECADES
    return 0.0, high - low


def _two_readings(name: str, values: tuple) -> str:
    """The refusal of a tuple, which may be meant as choices or as a range."""
    listed = ", ".join(_word(value) if _real(value) else repr(value) for value in values)
    range = "oht.LogFloat(low=1e-5, high=1e-2)"
    if len(values) == 2 and all(map(_real, values)) and values[0] < values[1]:
        whole = any(find(part).whole for part in tied(name))
        kind = "Int" if whole else "LogFloat" if _wide(*values) else "Float"
        range = f"oht.{kind}(low={_word(values[0])}, high={_word(values[1])})"
    return (
        f"{name or 'the space'} is the tuple ({listed}), which could mean two things: "
        f"for one of these values write oht.Choice({listed}), for a range {range}."
    )


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
