"""Suites: what a figure or a table is made of, as data. A suite is a product of tasks x methods x seeds with a budget.

The paper's are TOML files in `built_in/`, of the same format as users' own (docs/experiments.md). Nothing here loads
JAX, unless it is asked whether every run of a suite could start.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oht import settings
from oht.errors import UserError, unknown
from oht.experiments.mistakes import Mistake, Place, line_of, parsed

FILE = "suite.toml"  # in the folder of a sweep: what is being run
BUILT_IN = Path(__file__).parent / "built_in"
LAYOUTS = ("aggregate", "curves", "table", "scores")
KEYS = ("name", "title", "layout", "steps", "seeds", "settings", "methods", "tasks", "rows")
ROW_KEYS = ("tasks", "methods")
ELSEWHERE = {  # settings of `oht train` that a suite says in another way
    "task": "tasks are listed in `tasks`",
    "delay": "write it behind the task, as in Pendulum-v1@delay5",
    "seed": "`seeds` says how many there are",
    "steps": "`steps` at the top holds for all runs",
    "out": "the sweep chooses the folders",
    "overwrite": "the sweep never repeats a finished run",
    "progress": "the sweep shows it",
}
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
NAMING = "must begin with a letter or digit; others in it may also be any of '_', '.', '+' and '-'"
MOST_STEPS, MOST_SEEDS = 10**9, 10_000

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One run."""

    task: str
    label: str
    seed: int
    settings: Settings = field(hash=False)  # all but task, seed and steps

    @property
    def name(self) -> str:
        return f"{slug(self.task)}-{self.label}-s{self.seed}"

    def path(self, root: Path) -> Path:
        """Its run folder."""
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

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for row in self.rows for task in row.tasks))

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for row in self.rows for label in row.methods))

    @property
    def pairs(self) -> dict[tuple[str, str], Settings]:
        """The settings of each task and label."""
        return {(task, label): s for row in self.rows for task in row.tasks for label, s in row.methods.items()}

    def jobs(self) -> list[Job]:
        """All runs: the first seed of everything before the second, so that early results show the whole picture."""
        return [Job(*pair, seed, s) for seed in range(self.seeds) for pair, s in self.pairs.items()]

    def narrowed(self, tasks: Iterable[str] | None = None, methods: Iterable[str] | None = None) -> "Suite":
        """Only these tasks and methods."""
        tasks = _known("task", tasks, self.tasks)
        methods = _known("method", methods, self.labels)
        rows = (
            Row(
                tuple(task for task in row.tasks if task in tasks),
                {label: s for label, s in row.methods.items() if label in methods},
            )
            for row in self.rows
        )
        rows = tuple(row for row in rows if row.tasks and row.methods)
        if not rows:
            raise UserError(f"the suite {self.name} has none of these methods on any of these tasks.")
        return replace(self, rows=rows)

    def with_settings(self, extra: Settings) -> "Suite":
        """With these settings in every run, over its own."""
        extra = _settings(extra, ("settings",))
        rows = (Row(row.tasks, {label: {**s, **extra} for label, s in row.methods.items()}) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def with_budget(self, steps: int | None = None, seeds: int | None = None) -> "Suite":
        """With another number of steps or seeds."""
        steps, seeds = self.steps if steps is None else steps, self.seeds if seeds is None else seeds
        settings.within("steps", steps, 1, MOST_STEPS)
        settings.within("seeds", seeds, 1, MOST_SEEDS)
        return replace(self, steps=steps, seeds=seeds)


def slug(task: str) -> str:
    """A task's name as the name of a folder: dm/walker-run@delay5 -> dm-walker-run@delay5."""
    return re.sub(r"[/:]", "-", task)


def names() -> list[str]:
    """The built-in suites."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def load(source: str | Path, *, runnable: bool = False) -> Suite:
    """A built-in suite or a file. `runnable`: also asks whether `oht train` would take every run (loads JAX)."""
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
        raise UserError(f"the suite {path} cannot be read: it is not a text in UTF-8.") from None
    try:
        suite = _suite(path.stem, parsed(text))
        if runnable:
            check(suite)
        return suite
    except Mistake as mistake:
        line = mistake.line or line_of(text, mistake.place, mistake.word)
        where = f"{path}, line {line}" if line else f"{path}"
        raise UserError(f"{where}: {mistake}") from None


def save(suite: Suite, path: Path) -> None:
    """A file that `load` reads back to the same suite."""
    from oht import runs

    with runs.refused(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        runs.write_aside(path, to_toml(suite))


def to_toml(suite: Suite) -> str:
    head = {name: getattr(suite, name) for name in ("name", "title", "layout", "steps", "seeds")}
    lines = [settings.toml_line(name, value) for name, value in head.items()]
    for row in suite.rows:
        lines += ["", "[[rows]]", settings.toml_line("tasks", row.tasks)]
        for label, values in row.methods.items():
            lines += [f"[rows.methods.{settings.toml_key(label)}]", *map(settings.toml_line, values, values.values())]
    return "\n".join(lines) + "\n"


def check(suite: Suite) -> None:
    """Refuses what no run could start with: tasks that nobody has, settings that `oht train` does not take."""
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
                raise Mistake(f"{label}: {error}", _place_of(str(error), number, label, values)) from None


def _place_of(sentence: str, row: int, label: str, values: Settings) -> Place:
    """The setting that a sentence speaks of, or its method."""
    for name in (*values, "steps"):
        if re.search(rf"\b{re.escape(name)}\b", sentence):
            return ("rows", row, "methods", label, name) if name in values else ("steps",)
    return ("rows", row, "methods", label)


# The format


def _suite(name: str, values: Mapping[str, Any]) -> Suite:
    for key in values:
        if key not in KEYS:
            raise Mistake(str(unknown("key", key, KEYS)), (key,))
    for key in ("name", "title", "layout"):
        if not isinstance(values.get(key, ""), str):
            raise Mistake(f"{key} must be a text.", (key,))
    if "name" in values and not LABEL.fullmatch(values["name"]):
        raise Mistake(f"the name {values['name']!r} {NAMING}.", ("name",))
    layout = values.get("layout", "curves")
    if layout not in LAYOUTS:
        raise Mistake(str(unknown("layout", layout, LAYOUTS)), ("layout",))
    if "steps" not in values:
        raise Mistake("there is no budget; add steps, as in steps = 1_000_000.")
    steps = _count("steps", values["steps"], MOST_STEPS)
    seeds = _count("seeds", values.get("seeds", 3), MOST_SEEDS)
    rows = tuple(_rows(values))
    name = values.get("name") or re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).lstrip("_.+-") or "suite"
    suite = Suite(name, values.get("title", name), layout, steps, seeds, rows)
    _check_folders(suite)
    return suite


def _count(name: str, value: Any, most: int) -> int:
    try:
        number = settings.number(name, value, int)
        settings.within(name, number, 1, most)
        return number
    except UserError as error:
        raise Mistake(str(error), (name,)) from None


def _rows(values: Mapping[str, Any]) -> Iterator[Row]:
    """Of the list `rows`, or the one that `tasks` at the top is; methods of a row come over those at the top."""
    shared = _settings(values.get("settings", {}), ("settings",))
    common = _methods(values.get("methods", {}), ("methods",))
    if "rows" not in values:
        tasks = _tasks(values.get("tasks"), ("tasks",))
        yield _row(tasks, shared, common, {}, ("methods",))
        return
    if "tasks" in values:
        raise Mistake("tasks are either at the top or in rows, not both.", ("tasks",))
    rows = values["rows"]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise Mistake("rows must be tables, each headed [[rows]].", ("rows",))
    for number, row in enumerate(rows):
        place = ("rows", number)
        for key in row:
            if key not in ROW_KEYS:
                raise Mistake(str(unknown("key of a row", key, ROW_KEYS)), (*place, key))
        tasks = _tasks(row.get("tasks"), (*place, "tasks") if "tasks" in row else place)
        yield _row(tasks, shared, common, _methods(row.get("methods", {}), (*place, "methods")), place)


def _row(
    tasks: tuple[str, ...],
    shared: Settings,
    common: Mapping[str, Settings],
    own: Mapping[str, Settings],
    place: Sequence[str | int],
) -> Row:
    labels = [*common, *(label for label in own if label not in common)]
    if not labels:
        raise Mistake('there is no method; add one, as in [methods.td3] with method = "static".', place)
    return Row(tasks, {label: {**shared, **common.get(label, {}), **own.get(label, {})} for label in labels})


def _tasks(value: Any, place: Sequence[str | int]) -> tuple[str, ...]:
    if value is None:
        raise Mistake('there are no tasks; add a list, as in tasks = ["dm/walker-run"].', place)
    if not isinstance(value, list) or not value or not all(isinstance(task, str) and task for task in value):
        raise Mistake('tasks must be a list of names, as in tasks = ["dm/walker-run"].', place)
    for index, task in enumerate(value):
        if task in value[:index]:
            raise Mistake(f"the task {task!r} is listed twice.", place, task)
        if slug(task).startswith(".") or not task.isprintable():
            raise Mistake(f"the task {task!r} cannot name a folder.", place, task)
    return tuple(value)


def _methods(value: Any, place: Sequence[str | int]) -> dict[str, Settings]:
    if not isinstance(value, Mapping):
        raise Mistake("methods must be tables, each headed by its label, as in [methods.td3].", place)
    for label in value:
        if not LABEL.fullmatch(label):
            raise Mistake(f"the label {label!r} {NAMING}.", (*place, label))
    return {label: _settings(values, (*place, label)) for label, values in value.items()}


def _settings(value: Any, place: Sequence[str | int]) -> Settings:
    if not isinstance(value, Mapping):
        raise Mistake(f"{place[-1]} must be a table of settings of `oht train`.", place)
    for name, given in value.items():
        if reason := ELSEWHERE.get(name.replace("-", "_")):
            raise Mistake(f"{name} is no setting of a method: {reason}.", (*place, name))
        if not _plain(given):
            raise Mistake(f"{name} must be a text, a number, true or false, or a list of them.", (*place, name))
    return {name.replace("-", "_"): given for name, given in value.items()}


def _plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_plain, value.values()))
    if isinstance(value, list):
        return all(map(_plain, value))
    return isinstance(value, str | bool | int | float)


def _check_folders(suite: Suite) -> None:
    """Each task and label has a folder and settings of its own."""
    seen: dict[tuple[str, str], Settings] = {}
    tasks: dict[str, str] = {}
    for number, row in enumerate(suite.rows):
        for task in row.tasks:
            place = ("rows", number, "tasks")
            if (other := tasks.setdefault(slug(task), task)) != task:
                raise Mistake(f"{task!r} and {other!r} would share a folder.", place, task)
            for label, values in row.methods.items():
                if seen.setdefault((task, label), values) != values:
                    raise Mistake(f"{task!r} has other settings of {label} in a row before.", place, task)


def _known(kind: str, given: Iterable[str] | None, known: Sequence[str]) -> set[str]:
    chosen = list(known if given is None else given)
    for name in chosen:
        if name not in known:
            raise unknown(kind, name, known)
    return set(chosen)
