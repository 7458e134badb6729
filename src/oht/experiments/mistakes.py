"""What is wrong in the file of a suite, and in which line.

TOML readers forget where a value stood; the line is found again by reading the file statement by statement.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from oht.errors import UserError

Place = tuple[str | int, ...]  # keys and indices that lead to a value


class Mistake(UserError):
    """What is wrong, and where: keys and indices that lead to it, and a word of its line if it spans several."""

    def __init__(self, sentence: str, place: Sequence[str | int] = (), word: str = "", line: int | None = None):
        super().__init__(sentence)
        self.place, self.word, self.line = tuple(place), word, line


def parsed(text: str) -> dict[str, Any]:
    """Its values, or the line where it ceases to be TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
        what, line = (found[1], found[2]) if found else (str(error), None)
        raise Mistake(f"not TOML: {what}.", line=int(line) if line else len(text.splitlines())) from None


def line_of(text: str, place: Place, word: str) -> int | None:
    """The line of a statement: the first that the file cannot do without to have this place.

    A setting of a row's method may be written in the row, with the method, or for all runs; tasks in a row or for all.
    """
    for written in _spellings(place):
        lines, whole = text.splitlines(), 0
        for number in range(1, len(lines) + 1):
            try:
                values = tomllib.loads("\n".join(lines[:number]))
            except tomllib.TOMLDecodeError:
                continue  # in the middle of a statement
            if _has(values, written):
                statement = range(whole + 1, number + 1)
                named = (n for n in reversed(statement) if word and json.dumps(word) in lines[n - 1])
                return next(named, statement[0])
            whole = number
    return None


def _spellings(place: Place) -> Iterator[Place]:
    match place:
        case ("rows", int(), "methods", str(label), str(name)):
            for spelled in (name, name.replace("_", "-")):
                yield from ((*place[:-1], spelled), ("methods", label, spelled), ("settings", spelled))
        case ("rows", int(), "methods", str(label)):
            yield from (place, ("methods", label))
        case ("rows", int(), "tasks"):
            yield from (place, ("tasks",))
        case ():
            return
        case _:
            yield place


def _has(values: Any, place: Place) -> bool:
    for key in place:
        try:
            values = values[key]
        except (LookupError, TypeError):
            return False
    return True
