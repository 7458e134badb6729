"""How command lines are read, by every command."""

import argparse
import ast
import contextlib
import tomllib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from oht.errors import UserError


class Parser(argparse.ArgumentParser):
    """One sentence for a mistake, with the nearest flag."""

    words: Sequence[str] = ()  # what it is to parse; the help of train depends on it

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see `{self.prog} --help`.")

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]


def value_of(words: Sequence[str], flag: str) -> str | None:
    """What follows a flag for the last time."""
    following = [after for word, after in pairwise(words) if word == flag]
    following += [word.removeprefix(f"{flag}=") for word in words if word.startswith(f"{flag}=")]
    return following[-1] if following else None


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def assignment(text: str, form: str = "--tune NAME=SPACE", example: str = "--tune n_step=1,2,3") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        flag, _, form = form.partition(" ")
        raise UserError(f"{flag} {text!r} is not {form}; for example {example}.")
    return name.replace("-", "_"), value


def assignments(
    texts: Iterable[str], form: str = "--tune NAME=SPACE", example: str = "--tune n_step=1,2,3"
) -> dict[str, str]:
    """Several of them; a name that is given twice is refused."""
    found: dict[str, str] = {}
    for text in texts:
        name, value = assignment(text, form, example)
        if name in found:
            raise UserError(f"{form.split()[0]} gives {name} twice, {found[name]} and {value}; give it once.")
        found[name] = value
    return found


def literal(text: str) -> Any:
    """A value as TOML or Python writes it; anything else, also a date, is a text."""
    for read in (lambda: tomllib.loads(f"value = {text}")["value"], lambda: ast.literal_eval(text)):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            if isinstance(value := read(), bool | int | float | str | list | tuple | dict):
                return value
    return text
