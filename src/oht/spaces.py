"""What may be tuned: `Choice`, `LogFloat`, `Float`, `Int`, and the `Space` that a set of them spans.

A continuous dimension is searched in an encoded space where a Gaussian makes sense: log10 of the value for `LogFloat`,
the value itself for `Float` and `Int` (which rounds when decoded). Its `sigma` is in those units: 0.5 of a `LogFloat`
is half a decade. Whatever a search draws is clipped to the bounds in the encoded space, so no value ever leaves them.

On the command line and in config files a dimension is a short text, see `parse`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oht import errors
from oht.errors import UserError


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
class Float:
    """A number searched by a Gaussian on its own scale, starting at `init` with standard deviation `sigma`."""

    init: float
    sigma: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self):
        _check(self)

    def encode(self, value):
        return np.asarray(value, np.float64)

    def decode(self, point):
        return np.asarray(point, np.float64)


@dataclass(frozen=True)
class LogFloat:
    """A positive number searched by a Gaussian on log10 of it; `sigma` is in decades."""

    init: float
    sigma: float = 0.5
    low: float | None = None
    high: float | None = None

    def __post_init__(self):
        _check(self)
        for what, value in (("init", self.init), ("low", self.low)):
            if value is not None and value <= 0:
                raise UserError(f"a LogFloat is positive: its {what} must be above 0, not {value:g}.")

    def encode(self, value):
        return np.log10(value)

    def decode(self, point):
        return np.power(10.0, point)


@dataclass(frozen=True)
class Int:
    """A whole number: a Gaussian on its own scale, rounded."""

    init: float
    sigma: float = 1.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self):
        _check(self)
        for what, value in (("init", self.init), ("low", self.low), ("high", self.high)):
            if value is not None and math.isfinite(value) and value != int(value):
                raise UserError(f"the {what} of an Int is a whole number, not {value:g}.")

    def encode(self, value):
        return np.asarray(value, np.float64)

    def decode(self, point):
        return np.rint(point)


Continuous = Float | LogFloat | Int
Dimension = Choice | Continuous

_KINDS: dict[str, type[Continuous]] = {"log": LogFloat, "float": Float, "int": Int}

# Where bounds are not given. Outside of these the usual algorithms do not learn; who knows better gives bounds.
_BOUNDS = {
    "n_step": (1.0, 10.0),
    "gamma": (0.9, 0.9999),  # 1 would bootstrap for ever in tasks that never terminate
    "tau": (1e-4, 1.0),
    "exploration_noise": (0.0, 1.0),  # actions lie in [-1, 1]
    "target_noise": (0.0, 1.0),
    "noise_clip": (0.0, 2.0),
    "alpha": (1e-4, 10.0),
}
_LEARNING_RATE = (1e-6, 1e-1)  # every name that ends in _lr
_DECADES = 3  # either side of init, for a LogFloat of any other name


class Space:
    """Named dimensions, all bounded: the discrete ones, and the continuous ones side by side in encoded space.

    A continuous dimension may be that of several hyper-parameters at once, `actor_lr+critic_lr`: they share its value.
    """

    def __init__(self, tune: Mapping[str, Dimension], hyper: Mapping[str, float]):
        """`hyper` holds every hyper-parameter that the algorithm has: only these can be tuned."""
        self.names = tuple(part for name in tune for part in tied(name))  # of the hyper-parameters
        for name in self.names:
            if name not in hyper:
                raise UserError(f"there is no hyper-parameter {name!r} to tune; known: {', '.join(sorted(hyper))}.")
            if self.names.count(name) > 1:
                raise UserError(f"{name} is tuned twice; name it in one space only.")
        for name, dim in tune.items():
            if len(tied(name)) > 1 and (isinstance(dim, Choice) or "n_step" in tied(name)):
                raise UserError(
                    f"{name} cannot be tied: only hyper-parameters of a log, float or int space can, not n_step."
                )
        dimensions = {name: bounded(tied(name)[0], dim) for name, dim in tune.items()}
        self.choices = {name: dim for name, dim in dimensions.items() if isinstance(dim, Choice)}
        self.continuous = {name: dim for name, dim in dimensions.items() if not isinstance(dim, Choice)}

    @property
    def mu(self) -> np.ndarray:
        return self.encode({name: dim.init for name, dim in self.continuous.items()})

    @property
    def sigma(self) -> np.ndarray:
        return np.array([dim.sigma for dim in self.continuous.values()], np.float64)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest point of the continuous dimensions, encoded."""
        limits = {name: _limits(dim) for name, dim in self.continuous.items()}
        low = self.encode({name: low for name, (low, _) in limits.items()})
        high = self.encode({name: high for name, (_, high) in limits.items()})
        return low, high

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Points (..., D) of the continuous dimensions below which these shares of each distribution lie."""
        from scipy.special import ndtri

        low, high = self.bounds
        return np.clip(self.mu + self.sigma * ndtri(shares), low, high)

    def extremes(self) -> tuple[dict[str, float], dict[str, float]]:
        """The lowest and the highest value of every hyper-parameter."""
        ends = {name: (min(dim.values), max(dim.values)) for name, dim in self.choices.items()}
        ends |= {part: _limits(dim) for name, dim in self.continuous.items() for part in tied(name)}
        return {name: low for name, (low, _) in ends.items()}, {name: high for name, (_, high) in ends.items()}

    def encode(self, values: Mapping[str, float]) -> np.ndarray:
        """The point of these values of the continuous dimensions."""
        return np.array([dim.encode(values[name]) for name, dim in self.continuous.items()], np.float64)

    def decode(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """The values of the hyper-parameters at points (..., D), first clipped to the bounds."""
        return {
            part: np.clip(dim.decode(points[..., index]), *_limits(dim))
            for index, (name, dim) in enumerate(self.continuous.items())
            for part in tied(name)
        }


def tied(name: str) -> list[str]:
    """The hyper-parameters of a dimension: `actor_lr+critic_lr` has two, any other name one."""
    return [part.strip() for part in name.split("+")]


def bounded(name: str, dim: Dimension) -> Dimension:
    """The dimension with bounds, checked against what its name demands.

    Bounds that are not given come from the name where it is a usual one, widened to hold `init`; otherwise a LogFloat
    may move three decades either way and a Float or an Int keeps its sign.
    """
    if name == "n_step":
        _check_n_step(dim)
    if isinstance(dim, Choice):
        return dim
    low, high = _LEARNING_RATE if name.endswith("_lr") else _BOUNDS.get(name, (None, None))
    if isinstance(dim, LogFloat):
        low = low or dim.init / 10**_DECADES  # also where the usual bound is 0
        high = high or dim.init * 10**_DECADES
    low = (0.0 if dim.init > 0 else -math.inf) if low is None else low
    high = (0.0 if dim.init < 0 else math.inf) if high is None else high
    return replace(
        dim,
        low=min(low, dim.init) if dim.low is None else dim.low,
        high=max(high, dim.init) if dim.high is None else dim.high,
    )


def max_n(tune: Mapping[str, Dimension], hyper: Mapping[str, float]) -> int:
    """The largest n_step that any agent can get."""
    dim = tune.get("n_step")
    if dim is None:
        return int(hyper["n_step"])
    dim = bounded("n_step", dim)
    return int(max(dim.values) if isinstance(dim, Choice) else _limits(dim)[1])


def dimension(space: "Dimension | str | float | Sequence[float]") -> Dimension:
    """A dimension as it is, or from what `parse` reads."""
    return space if isinstance(space, Dimension) else parse(space)


def parse(text: str | float | Sequence[float]) -> Dimension:
    """A dimension from a command line or a config file.

    "1,2,3" or a list of numbers is a Choice; "log:INIT[:SIGMA[:LOW:HIGH]]" a LogFloat; "float:INIT:SIGMA[:LOW:HIGH]" a
    Float; "int:INIT[:SIGMA[:LOW:HIGH]]" an Int. A part left empty takes its default.
    """
    if not isinstance(text, str):
        return Choice(*(text if isinstance(text, Sequence) else [text]))
    kind, *parts = text.split(":")
    if not parts:
        return Choice(*(_parsed(text, part) for part in text.split(",")))
    if kind.strip() not in _KINDS:
        raise errors.unknown("kind of dimension", kind, _KINDS)
    if len(parts) > 4:
        raise UserError(f"{text!r} has too many parts: {kind}:INIT:SIGMA:LOW:HIGH is the longest form.")
    given = {
        name: _parsed(text, part)
        for name, part in zip(("init", "sigma", "low", "high"), parts, strict=False)
        if part.strip()
    }
    missing = {"init", "sigma"} - set(given) if kind == "float" else {"init"} - set(given)
    if missing:
        raise UserError(f"{text!r} lacks its {min(missing)}: {kind}:INIT:SIGMA or {kind}:INIT:SIGMA:LOW:HIGH.")
    return _KINDS[kind.strip()](**given)


def format(dim: Dimension) -> str:
    """The text that `parse` turns back into this very dimension."""
    if isinstance(dim, Choice):
        return format_values(dim.values)
    kind = next(kind for kind, cls in _KINDS.items() if isinstance(dim, cls))
    parts = [dim.init, dim.sigma] if dim.low is dim.high is None else [dim.init, dim.sigma, dim.low, dim.high]
    return ":".join([kind, *("" if part is None else label(part) for part in parts)])


def format_values(values: Sequence[float]) -> str:
    return ",".join(label(value) for value in values)


def label(value: float) -> str:
    """The shortest text that is read back as the same number: 3, 0.001, 1e-06."""
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(float(value))


def _parsed(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise UserError(
            f"{text!r} is no set of values to tune: {part.strip()!r} is no number; "
            "write 1,2,3 or log:1e-3:0.5 or float:0.99:0.01 or int:3:1."
        ) from None


def _number(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(value):
        raise UserError(f"{what} must be a number, not {value!r}.")
    if math.isinf(value):
        raise UserError(f"{what} must be finite, not {value!r}.")
    return float(value)


def _limits(dim: Continuous) -> tuple[float, float]:
    return -math.inf if dim.low is None else dim.low, math.inf if dim.high is None else dim.high


def _check(dim: Continuous) -> None:
    kind = type(dim).__name__
    for what in ("init", "sigma"):
        object.__setattr__(dim, what, _number(f"the {what} of {kind}", getattr(dim, what)))
    for what in ("low", "high"):
        value = getattr(dim, what)
        if value is not None and not (isinstance(value, float) and math.isinf(value)):
            object.__setattr__(dim, what, _number(f"the {what} of {kind}", value))
    if dim.sigma < 0:
        raise UserError(f"the sigma of {kind} is a standard deviation: 0 or more, not {dim.sigma:g}.")
    low, high = _limits(dim)
    if low >= high:
        raise UserError(f"the low of {kind} must lie below its high, but {low:g} >= {high:g}.")
    if not low <= dim.init <= high:
        raise UserError(
            f"the init of {kind} must lie within its bounds, but {dim.init:g} is not in [{low:g}, {high:g}]."
        )


def _check_n_step(dim: Dimension) -> None:
    if isinstance(dim, Float | LogFloat):
        raise UserError("n_step is a whole number: tune it with a Choice (1,2,3) or an Int (int:3:1).")
    lowest = dim.values if isinstance(dim, Choice) else (dim.init, 1.0 if dim.low is None else dim.low)
    if any(n < 1 or n != int(n) for n in lowest):
        raise UserError(f"n_step is a whole number from 1 on, so {format(dim)!r} cannot be tuned.")
    if isinstance(dim, Int) and dim.high == math.inf:
        raise UserError("n_step needs a finite upper bound, as in int:3:1:1:10.")
