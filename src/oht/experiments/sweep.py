"""Runs all jobs of a suite in one folder; the same call again goes on where it stopped.

What a run has reached is read from its own folder and from nowhere else, so a sweep can be killed at any moment.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from oht import runs
from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.engines import Ended, Engine
from oht.experiments.job import finished
from oht.experiments.overview import Item, Overview
from oht.experiments.suites import Job, Row, Settings, Suite
from oht.signals import exit_process, interruption

NAP = 0.1  # seconds between two looks at the engine


def sweep(
    suite: Suite,
    root: Path,
    *,
    engine: Engine,
    console: Console,
    steps: int | None = None,
    seeds: int | None = None,
) -> int:
    """Trains what is missing. The exit code: 0 all done, 1 some failed, 130 stopped by a signal."""
    with contextlib.closing(engine):
        suite = suite.with_budget(steps, seeds)
        suites.check(suite)
        if (root / runs.FACTS).exists():
            raise UserError(f"{root} is a run folder; choose another --out for the sweep.")
        with runs.refused(root):
            root.mkdir(parents=True, exist_ok=True)
        with runs.locked(root):
            suites.save(joined(suite, root), root / suites.FILE)
            items = plan(suite, root)
            with interruption(second=exit_process) as interrupted, Overview(console, items, suite.steps) as view:
                _work_off(items, suite.steps, engine, view, interrupted)
    states = {item.state for item in items}
    return 130 if states & {"waiting", "stopped"} else 1 if "failed" in states else 0


def plan(suite: Suite, root: Path) -> list[Item]:
    """All runs and how they stand: those that are done are not touched again."""
    items = [Item(job, job.path(root), root / "logs" / f"{job.name}.log") for job in suite.jobs()]
    for item in items:
        item.look()
        item.state = "done" if finished(item.path, suite.steps) else "waiting"
    return items


def _work_off(
    items: Sequence[Item], steps: int, engine: Engine, view: Overview, interrupted: Callable[[], bool]
) -> None:
    waiting = deque(item for item in items if item.state == "waiting")
    running: dict[Job, Item] = {}
    stopping = False
    while running or (waiting and not stopping):
        if interrupted() and not stopping:
            stopping = True
            engine.stop()
            view.stopping()
        while waiting and len(running) < engine.slots and not stopping:
            item = waiting.popleft()
            engine.start(item.job, item.path, steps, item.log)
            item.state = "running"
            running[item.job] = item
            view.started(item)
        for ended in engine.poll():
            item = running.pop(ended.job)
            _conclude(item, ended, steps, stopping)
            view.ended(item)
        view.refresh()
        time.sleep(NAP)


def _conclude(item: Item, ended: Ended, steps: int, stopping: bool) -> None:
    """What counts is what is on the disk."""
    item.look()
    if finished(item.path, steps):
        item.state = "done"
    elif stopping:
        item.state = "stopped"
    else:
        item.state, item.error = "failed", ended.error or "it ended before its last step."


def joined(suite: Suite, root: Path) -> Suite:
    """What the folder holds with this suite in it. Runs that are there must have the settings that it asks for."""
    if not (root / suites.FILE).exists():
        for task, label in suite.pairs:
            if _begun(root, task, label):
                place = Job(task, label, 0, {}).path(root).parent
                raise UserError(
                    f"{place} has runs, but no {root / suites.FILE} tells their settings; choose another --out."
                )
        return suite
    before = suites.load(root / suites.FILE)
    for (task, label), settings in suite.pairs.items():
        known = before.pairs.get((task, label), settings)
        if known != settings and _begun(root, task, label):
            raise UserError(
                f"{root} has runs of {label} on {task} with {_difference(known, settings)}; "
                "choose another label or another --out."
            )
    pairs = {**before.pairs, **suite.pairs}
    rows = next((known.rows for known in (suite, before) if known.pairs == pairs), None) or _rows(pairs)
    return replace(suite, rows=rows, steps=max(suite.steps, before.steps), seeds=max(suite.seeds, before.seeds))


def _begun(root: Path, task: str, label: str) -> bool:
    return any(Job(task, label, 0, {}).path(root).parent.glob(f"s*/{runs.FACTS}"))


def _difference(before: Settings, now: Settings) -> str:
    name = next(name for name in {**before, **now} if before.get(name) != now.get(name))
    told = (f"{name} = {s[name]}" if name in s else f"no {name}" for s in (before, now))
    return ", not ".join(told)


def _rows(pairs: Mapping[tuple[str, str], Settings]) -> tuple[Row, ...]:
    """Neighbours with the same methods share a row."""
    methods: dict[str, dict[str, Settings]] = {}
    for (task, label), settings in pairs.items():
        methods.setdefault(task, {})[label] = settings
    rows: list[Row] = []
    for task, own in methods.items():
        if rows and rows[-1].methods == own:
            rows[-1] = Row((*rows[-1].tasks, task), own)
        else:
            rows.append(Row((task,), own))
    return tuple(rows)
