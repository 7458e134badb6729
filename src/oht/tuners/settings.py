"""Settings of a tuner: a frozen dataclass whose fields say what they mean (shown by --help) and what they may be."""

from dataclasses import dataclass, field, fields
from typing import Any

from oht import errors
from oht.errors import UserError


def setting(
    default: Any, help: str, *, choices: tuple[str, ...] = (), low: float | None = None, high: float | None = None
) -> Any:
    """A dataclass field with its help and the values it may take; None is always taken where it is the default."""
    metadata = {"help": help, "choices": choices, "low": low, "high": high}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Base of all settings: refuses values that a field may not take."""

    def __post_init__(self):
        for item in fields(self):
            value, may = getattr(self, item.name), item.metadata
            if value is None and item.default is None:
                continue
            if may.get("choices") and value not in may["choices"]:
                raise errors.unknown(f"value of {item.name}", str(value), may["choices"])
            low, high = may.get("low"), may.get("high")
            if low is not None and not value >= low:
                raise UserError(f"{item.name} must be at least {low:g}, not {value!r}.")
            if high is not None and not value <= high:
                raise UserError(f"{item.name} must be at most {high:g}, not {value!r}.")
