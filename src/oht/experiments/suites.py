"""Suites: the tasks, methods, seeds and budget behind a figure or a table, read from TOML files.

The paper's suites are in `built_in/`; users' own have the same format (docs/experiments.md). Only `check` loads JAX.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import tomli_w

from oht import runs, settings
from oht.errors import UserError, unknown
from oht.experiments import readings

FILE = "suite.toml"  # in the folder of a sweep: everything that it was asked to run
BUILT_IN = Path(__file__).parent / "built_in"
LAYOUTS = ("aggregate", "curves", "table", "scores")
KEYS = ("name", "title", "layout", "steps", "seeds", "settings", "titles", "methods", "tasks", "rows")
ELSEWHERE = {  # settings of `oht train` that a suite gives in another way
    "task": "tasks are listed in `tasks`",
    "delay": "write it behind the task, as in Pendulum-v1@delay5",
    "seed": "`seeds` is the number of seeds",
    "steps": "`steps` at the top holds for all runs",
    "out": "the sweep chooses the folders",
    "overwrite": "the sweep never repeats a finished run",
    "progress": "the sweep shows it",
    "callbacks": "they are for oht.train",
}
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
NAMING = "must begin with a letter or digit and may contain only letters, digits, '_', '.', '+' and '-'"
MAX_STEPS, MAX_SEEDS = 10**9, 10_000
MIN_EVALUATIONS = 10  # of a run whose budget --steps changes
FAMILIES = {"dm": "", "gym": " (Gym)", "robo": " (Roboschool)", "bullet": " (Bullet)"}  # in readable names of tasks

Settings = Mapping[str, Any]
Pair = tuple[str, str]  # task, label
Place = tuple[str | int, ...]  # keys and indices that lead to a value of a TOML file


@dataclass(frozen=True)
class Job:
    """One run of a suite."""

    task: str
    label: str
    seed: int
    settings: Settings = field(hash=False)  # all but task, seed and steps

    @property
    def name(self) -> str:
        return f"{slug(self.task)}-{self.label}-s{self.seed}"

    def path(self, root: Path) -> Path:
        """Its run folder in the folder of a sweep."""
        return root / slug(self.task) / self.label / f"s{self.seed}"


@dataclass(frozen=True)
class Row:
    """Tasks that share their methods: a row of a figure."""

    tasks: tuple[str, ...]
    methods: Mapping[str, Settings]  # label -> settings, in the file's order


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    layout: str  # how `oht figures` draws it
    steps: int
    seeds: int
    rows: tuple[Row, ...]
    titles: Mapping[str, str] = field(default_factory=dict)  # task or label -> how figures and tables call it

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for row in self.rows for task in row.tasks))

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for row in self.rows for label in row.methods))

    @property
    def pairs(self) -> dict[Pair, Settings]:
        """The settings of each task and label."""
        return {(task, label): s for row in self.rows for task in row.tasks for label, s in row.methods.items()}

    def jobs(self) -> list[Job]:
        """All runs, the first seed of every pair before the second, so that early results show the whole picture."""
        return [Job(*pair, seed, s) for seed in range(self.seeds) for pair, s in self.pairs.items()]

    def title_of(self, name: str) -> str:
        """A readable name of a task or label: the suite's own title, or that of a known task or the paper's method."""
        values = self.methods.get(name, {})
        known = readings.title(values) if values.get("method") == name else None
        return self.titles.get(name) or known or readable(name)

    @property
    def methods(self) -> dict[str, Settings]:
        """The settings of each label, in the first row that has it."""
        return {label: s for row in reversed(self.rows) for label, s in row.methods.items()}

    def readings(self, labels: Iterable[str] | None = None) -> list[str]:
        """Sentences on what of the paper is trained, for these labels or all."""
        chosen = {label: self.methods[label] for label in labels or self.labels}
        return readings.sentences({label: self.title_of(label) for label in chosen}, chosen)

    def mapped(self, change: Callable[[str, str, Settings], Settings | None]) -> "Suite":
        """With the settings that `change(task, label, settings)` returns; None removes this task and label."""
        entries = (
            (number, task, {label: change(task, label, s) for label, s in row.methods.items()})
            for number, row in enumerate(self.rows)
            for task in row.tasks
        )
        kept = ((n, task, {k: s for k, s in methods.items() if s is not None}) for n, task, methods in entries)
        return replace(self, rows=_grouped(kept))

    def narrowed(self, tasks: Iterable[str] | None = None, methods: Iterable[str] | None = None) -> "Suite":
        """Only these tasks and labels; None keeps all."""
        tasks, methods = _known("task", tasks, self.tasks), _known("method", methods, self.labels)
        suite = self.mapped(lambda task, label, s: s if task in tasks and label in methods else None)
        if not suite.rows:
            raise UserError(f"the suite {self.name} has none of these methods on any of these tasks.")
        return suite

    def joined(self, other: "Suite") -> "Suite":
        """This suite and the runs that only `other` has, with the larger budget of both."""
        pairs = {**other.pairs, **self.pairs}
        rows = next((suite.rows for suite in (self, other) if suite.pairs == pairs), None)
        if rows is None:
            methods: dict[str, dict[str, Settings]] = {}
            for (task, label), values in pairs.items():
                methods.setdefault(task, {})[label] = values
            rows = _grouped((0, task, own) for task, own in methods.items())
        steps, seeds = max(self.steps, other.steps), max(self.seeds, other.seeds)
        return replace(self, rows=rows, steps=steps, seeds=seeds, titles={**other.titles, **self.titles})

    def with_settings(self, extra: Settings) -> "Suite":
        """With these settings in every run; they override its own."""
        extra = _settings(extra, "settings")
        return self.mapped(lambda task, label, s: {**s, **extra})

    def with_budget(self, steps: int | None = None, seeds: int | None = None) -> "Suite":
        """With another number of steps or seeds. `eval_every` is scaled with the steps."""
        steps, seeds = self.steps if steps is None else steps, self.seeds if seeds is None else seeds
        settings.within("steps", steps, 1, MAX_STEPS)
        settings.within("seeds", seeds, 1, MAX_SEEDS)
        scaled = self if steps == self.steps else self.mapped(lambda task, label, s: _scaled(s, self.steps, steps))
        return replace(scaled, steps=steps, seeds=seeds)


def slug(task: str) -> str:
    """A task's name as the name of a folder: dm/walker-run@delay5 -> dm-walker-run@delay5."""
    return re.sub(r"[/:]", "-", task)


def readable(name: str) -> str:
    """A task's name for people: dm/walker-run@delay5 -> Walker run, delayed. Unknown names stay as they are."""
    base, _, delay = name.partition("@delay")
    family, slash, rest = base.partition("/")
    if slash and family in FAMILIES:
        base = rest.replace("-", " ").capitalize() + FAMILIES[family]
    return base + (f", delay {delay}" if delay not in ("", "5") else ", delayed" if delay else "")


def _grouped(entries: Iterable[tuple[int, str, dict[str, Settings]]]) -> tuple[Row, ...]:
    """Rows from (row number, task, methods): neighbours of a row with the same methods stay together."""
    groups = groupby((entry for entry in entries if entry[2]), key=lambda entry: (entry[0], entry[2]))
    return tuple(Row(tuple(task for _, task, _ in group), methods) for (_, methods), group in groups)


def _scaled(values: Settings, before: int, now: int) -> Settings:
    """The settings of a run of `now` instead of `before` steps, with as many evaluations, and not fewer than ten.

    The default of `eval_every`, and runs that are evaluated only at their end, stay as they are.
    """
    every = settings.number("eval_every", values.get("eval_every", before))
    if every >= before:
        return values
    return {**values, "eval_every": max(1, min(round(every * now / before), now // MIN_EVALUATIONS))}


# Files


def names() -> list[str]:
    """The built-in suites."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def load(source: str | Path, *, runnable: bool = False) -> Suite:
    """A built-in suite or a file. With `runnable`, every run must be one that `oht train` can start (loads JAX)."""
    path = BUILT_IN / f"{source}.toml"
    if str(source) not in names():
        path = Path(source)
        if not path.is_file() and path.suffix != ".toml":
            raise unknown("suite", str(source), names())
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise UserError(f"the suite {path} does not exist; built-in: {', '.join(names())}.") from None
    except OSError as error:
        raise UserError(f"the suite {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UserError(f"the suite {path} cannot be read: it is not UTF-8 text.") from None
    try:
        suite = from_values(path.stem, _parsed(text))
        if runnable:
            check(suite)
        return suite
    except Mistake as mistake:
        line = mistake.line or line_of(text, mistake.place, mistake.word)
        where = f"{path}, line {line}" if line else f"{path}"
        raise UserError(f"{where}: {mistake}") from None


def of_folder(root: Path) -> Suite | None:
    """What the sweep in this folder was asked to run; None if it has no such file."""
    return load(root / FILE) if (root / FILE).exists() else None


def save(suite: Suite, path: Path) -> None:
    """Writes a file that `load` reads back to the same suite."""
    values = {name: getattr(suite, name) for name in ("name", "title", "layout", "steps", "seeds", "titles")}
    values["rows"] = [{"tasks": row.tasks, "methods": row.methods} for row in suite.rows]
    with runs.refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        runs.write_aside(path, tomli_w.dumps(values))


def check(suite: Suite) -> None:
    """Refuses unknown tasks and settings that `oht train` does not accept."""
    from oht import config
    from oht.envs import tasks

    for number, row in enumerate(suite.rows):
        for task in row.tasks:
            try:
                tasks.find(task)
            except UserError as error:
                raise Mistake(str(error), ("rows", number, "tasks"), task) from None
        for label, values in row.methods.items():
            try:
                config.resolve({**values, "task": row.tasks[0], "seed": 0, "steps": suite.steps})
            except UserError as error:
                place: Place = ("rows", number, "methods", label)
                words = str(error).replace("tuned", "tune")
                named = (name for name in (*values, "steps") if re.search(rf"\b{re.escape(name)}\b", words))
                if name := next(named, None):
                    place = (*place, name) if name in values else (name,)
                raise Mistake(f"{label}: {error}", place) from None


# The format


class Mistake(UserError):
    """What is wrong in a file, the place of the value, and a word of its line if the value spans several lines."""

    def __init__(self, sentence: str, place: Place = (), word: str = "", line: int | None = None):
        super().__init__(sentence)
        self.place, self.word, self.line = place, word, line


def _require(holds: Any, sentence: str, *place: str | int, word: str = "") -> None:
    if not holds:
        raise Mistake(sentence, place, word)


def _known(kind: str, given: Iterable[str] | None, known: Sequence[str], *place: str | int) -> set[str]:
    chosen = list(known if given is None else given)
    for name in chosen:
        if name not in known:
            raise Mistake(str(unknown(kind, name, known)), (*place, name))
    return set(chosen)


def from_values(name: str, values: Settings) -> Suite:
    """A suite from what its file would hold; `name` counts unless the values have one."""
    _known("key", values, KEYS)
    for key in ("name", "title", "layout"):
        _require(isinstance(values.get(key, ""), str), f"{key} must be a text.", key)
    _require(LABEL.fullmatch(values.get("name", "suite")), f"the name {values.get('name')!r} {NAMING}.", "name")
    name = values.get("name") or re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).lstrip("_.+-") or "suite"
    layout = values.get("layout", "curves")
    _require(layout in LAYOUTS, str(unknown("layout", layout, LAYOUTS)), "layout")
    _require("steps" in values, "there is no budget; add steps, as in steps = 1_000_000.")
    steps = _count("steps", values["steps"], MAX_STEPS)
    seeds = _count("seeds", values.get("seeds", 3), MAX_SEEDS)
    titles = values.get("titles", {})
    texts = isinstance(titles, Mapping) and all(isinstance(title, str) for title in titles.values())
    _require(texts, 'titles must be a table of texts, as in n1 = "TD3, n = 1".', "titles")
    suite = Suite(name, values.get("title", name), layout, steps, seeds, tuple(_rows(values)), titles)
    _check_folders(suite)
    return suite


def _count(name: str, value: Any, most: int) -> int:
    try:
        number = settings.number(name, value, int)
        settings.within(name, number, 1, most)
        return number
    except UserError as error:
        raise Mistake(str(error), (name,)) from None


def _rows(values: Settings) -> Iterator[Row]:
    """From the list `rows`, or one row from `tasks` at the top. A row's methods override those at the top."""
    shared = _settings(values.get("settings", {}), "settings")
    common = _methods(values.get("methods", {}), "methods")
    _require(
        "rows" not in values or "tasks" not in values, "tasks are either at the top or in rows, not both.", "tasks"
    )
    rows = values.get("rows", [{name: values[name] for name in ("tasks",) if name in values}])
    tables = isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows)
    _require(tables, "rows must be tables, each headed [[rows]].", "rows")
    for number, row in enumerate(rows):
        place: Place = ("rows", number) if "rows" in values else ()
        _known("key of a row", row, ("tasks", "methods"), *place)
        tasks = _tasks(row.get("tasks"), *place, *(["tasks"] if "tasks" in row else []))
        own = _methods(row.get("methods", {}), *place, "methods")
        missing = 'there is no method; add one, as in [methods.td3] with method = "static".'
        _require(common or own, missing, *(place or ("methods",)))
        labels = dict.fromkeys([*common, *own])
        yield Row(tasks, {label: {**shared, **common.get(label, {}), **own.get(label, {})} for label in labels})


def _tasks(value: Any, *place: str | int) -> tuple[str, ...]:
    _require(value is not None, 'there are no tasks; add a list, as in tasks = ["dm/walker-run"].', *place)
    texts = isinstance(value, list) and value and all(isinstance(task, str) and task for task in value)
    _require(texts, 'tasks must be a list of names, as in tasks = ["dm/walker-run"].', *place)
    for index, task in enumerate(value):
        _require(task not in value[:index], f"the task {task!r} is listed twice.", *place, word=task)
        names_folder = not slug(task).startswith(".") and task.isprintable()
        _require(names_folder, f"the task {task!r} cannot name a folder.", *place, word=task)
    return tuple(value)


def _methods(value: Any, *place: str | int) -> dict[str, Settings]:
    tables = "methods must be tables, each headed by its label, as in [methods.td3]."
    _require(isinstance(value, Mapping), tables, *place)
    for label in value:
        _require(LABEL.fullmatch(label), f"the label {label!r} {NAMING}.", *place, label)
    return {label: _settings(values, *place, label) for label, values in value.items()}


def _settings(value: Any, *place: str | int) -> Settings:
    _require(isinstance(value, Mapping), f"{place[-1]} must be a table of settings of `oht train`.", *place)
    for name, given in value.items():
        elsewhere = ELSEWHERE.get(name.replace("-", "_"))
        _require(not elsewhere, f"{name} is no setting of a method: {elsewhere}.", *place, name)
        kinds = f"{name} must be a text, a number, true or false, or a list of them."
        _require(_plain(given), kinds, *place, name)
    return {name.replace("-", "_"): given for name, given in value.items()}


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping | list):
        return all(map(_plain, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, str | bool | int | float)


def _check_folders(suite: Suite) -> None:
    """Each task and label must have its own folder and one set of settings."""
    seen: dict[Pair, Settings] = {}
    tasks: dict[str, str] = {}
    for number, row in enumerate(suite.rows):
        for task in row.tasks:
            place, other = ("rows", number, "tasks"), tasks.setdefault(slug(task), task)
            _require(other == task, f"{task!r} and {other!r} would share a folder.", *place, word=task)
            for label, values in row.methods.items():
                same = seen.setdefault((task, label), values) == values
                _require(same, f"{task!r} has other settings of {label} in an earlier row.", *place, word=task)


# Lines of mistakes: TOML parsers do not keep the position of a value


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
        what, line = (found[1], found[2]) if found else (str(error), None)
        raise Mistake(f"not TOML: {what}.", line=int(line) if line else len(text.splitlines())) from None


def line_of(text: str, place: Place, word: str) -> int | None:
    """The line of the statement that gives the file a value at this place, or of `word` in that statement."""
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
    """Where a row's value may be written: a setting in the row, with its method or for all runs; tasks at the top."""
    match place:
        case ("rows", int(), "methods", str(label), str(name)):
            for spelled in (name, name.replace("_", "-")):
                yield from ((*place[:-1], spelled), ("methods", label, spelled), ("settings", spelled))
        case ("rows", int(), *rest):
            yield from (place, *([tuple(rest)] if rest else []))
        case (_, *_):
            yield place


def _has(values: Any, place: Place) -> bool:
    for key in place:
        try:
            values = values[key]
        except (LookupError, TypeError):
            return False
    return True
