"""Many seeds of one run without a suite file: a suite made in memory, trained as a sweep in one folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from oht.errors import UserError
from oht.experiments import suites
from oht.experiments.job import Local
from oht.experiments.suites import Suite
from oht.experiments.sweep import sweep

OWN = ("task", "seed", "steps", "delay", "tune")  # settings that a suite gives in another way


def train_seeds(
    task: str,
    *,
    seeds: int,
    jobs: int | None = None,
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[Path]:
    """Train the seeds 0, 1, ... of a run, each in a process of its own, and return their run folders.

    `jobs` is how many train at the same time [one for each core]; the settings are those of `oht.train`. The same call
    again continues where it stopped.
    """
    if "seed" in settings:
        raise UserError("train_seeds trains the seeds from 0 on; leave out seed, or call oht.train for one run.")
    suite = suite_of({**settings, "task": task}, seeds)
    root = Path(out) if out is not None else default_folder(suite)
    code = sweep(suite, root, engine=Local(jobs), console=Console(quiet=not progress))
    if code == 130:
        raise KeyboardInterrupt(f"the runs are saved; the same call continues them in {root}")
    if code:
        raise UserError(f"some runs failed; {root / 'logs'} says why.")
    return [job.path(root) for job in suite.jobs()]


def suite_of(values: Mapping[str, Any], seeds: Any) -> Suite:
    """One task and one method with these settings; its label is the method's name."""
    from oht import config, spaces
    from oht.envs import tasks

    if not isinstance(values.get("task"), str):
        raise UserError("many seeds train in processes of their own, so the task must be a name, as in module:MyEnv.")
    resolved = config.resolve(values)
    run = resolved.run
    tasks.find(run.task)
    given = {name.replace("-", "_"): value for name, value in values.items() if value is not None}
    chosen = {name: list(v) if isinstance(v, tuple) else v for name, v in given.items() if name not in OWN}
    if given.get("tune"):
        chosen["tune"] = {name: spaces.format(dim) for name, dim in resolved.tune.items()}
    name = suites.slug(f"{run.task}_{run.method}").replace("@", "_")
    label = suites.slug(run.method)  # a method of a user's own is module:name
    if label != run.method:
        chosen["method"] = run.method
    whole = {"tasks": [run.task], "methods": {label: chosen}, "steps": run.steps, "seeds": seeds}
    return suites.from_values(name, whole)


def default_folder(suite: Suite) -> Path:
    return Path("runs", f"{suite.name}_seeds")
