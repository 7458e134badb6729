"""The one kind of error that is the user's to mend: a sentence that says what is wrong and what would be right."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Shown as one sentence without a traceback; the command line then ends with exit code 2."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """An unknown name, with the nearest known one or, where none is near, all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}."
    return UserError(f"unknown {kind} {name!r}; {hint}")
