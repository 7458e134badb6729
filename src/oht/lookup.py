"""Objects of users by their names: `module:name` for envs, algorithms and methods, found as `python -m` would."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, reduce
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any

from oht.errors import UserError, unknown


class NotFound(UserError):
    """There is no such module, or it has no such name."""


@contextmanager
def current_folder() -> Iterator[None]:
    """Modules in the current folder are found, too."""
    here = os.getcwd()
    if "" in sys.path or here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def importable(module: str) -> bool:
    """Whether there is such a module; only the packages that it is in are imported."""
    try:
        with current_folder():
            return module in sys.modules or find_spec(module) is not None
    except Exception:  # whatever a user's package raises when it is imported
        return False


def module_of(kind: str, place: str) -> ModuleType:
    """The module of `module:name`, imported."""
    name, _, attribute = place.partition(":")
    if not name or not attribute:
        raise NotFound(f"the {kind} {place!r} must name a module and what is in it, as 'module:name'.")
    if not importable(name):
        raise not_importable(kind, place)
    try:
        with current_folder():
            return import_module(name)
    except UserError:
        raise
    except Exception as error:
        raise NotFound(f"the {kind} {place!r} cannot be imported: {type(error).__name__}: {error}") from error


def not_importable(kind: str, place: str) -> NotFound:
    """The error for `module:name` whose module does not exist."""
    module = place.partition(":")[0]
    return NotFound(
        f"the {kind} {place!r} needs the module {module!r}, which is neither in the current folder nor installed."
    )


def find(kind: str, place: str) -> Any:
    """The object that `module:name` means; `kind` is what it is to be, for the sentence of an error."""
    module, name = module_of(kind, place), place.partition(":")[2]
    try:
        return reduce(getattr, name.split("."), module)
    except AttributeError:
        raise missing(module, name) from None


def missing(module: ModuleType, name: str) -> NotFound:
    """The error for a name that a module does not have, with the nearest that it has."""
    known = [other for other, value in vars(module).items() if not other.startswith("_") and _own(module, value)]
    return NotFound(str(unknown(f"name in the module {module.__name__!r}:", name, known)))


def _own(module: ModuleType, value: Any) -> bool:
    """Whether a module has not just imported this; of plain values nobody knows."""
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return not isinstance(value, ModuleType)


def place_of(thing: Any, module: str | None) -> str | None:
    """`module:name` of an object at the top of its module; None for others, which cannot be found by a name."""
    known = vars(sys.modules[module]) if module in sys.modules else {}
    return next((f"{module}:{name}" for name, value in known.items() if value is thing), None)


def name_of(thing: Any, maker: Any = None) -> str:
    """`module:name` of a user's object, by which it is found again, or one by which nothing is ever found.

    `maker` is a function of the same module, for an object that does not know its own.
    """
    maker, bound = maker or thing, ""
    while isinstance(maker, partial):
        maker, bound = maker.func, "(...)"
    name = getattr(maker, "__qualname__", type(maker).__name__)
    hidden = (name if "<" in name else f"<{name}>") + bound
    return place_of(thing, maker.__module__) or f"{maker.__module__}:{hidden}"


def why_not_found(name: str, error: UserError) -> str:
    """Why there is nothing under a name that `name_of` gave."""
    if name.startswith("__main__:"):
        return "it belongs to a script, not to a module that can be imported;"
    if name.endswith("(...)"):
        return "it is a functools.partial, whose arguments are not kept (those in env_kwargs are);"
    if "<" in name or ":" not in name:
        return "it is a lambda or was made inside of a function;" if "<" in name else "it is none of oht's own;"
    return f"{str(error).rstrip('.')}; run this where it can be imported, or"


def python_path() -> list[str]:
    """The module search path with absolute folders, the current one too, for a process that runs in another folder."""
    return [*(os.path.abspath(place) for place in sys.path), os.getcwd()]


def adopt_path(path: list[str]) -> None:
    """Search modules where the parent does, then where only this process does."""
    sys.path[:] = [*path, *(place for place in sys.path if place not in path)]
