"""The Ray engine: the runs of a sweep as tasks of a Ray cluster.

Where a node sees the folder of the sweep, a run is trained in that folder, checkpoints included. Where not, it is
trained in a temporary folder of the node, and its files come back when it ends. Ray restarts the run of a killed
worker: it continues from its last checkpoint if its new node sees that, and begins anew if not.
"""

import contextlib
import io
import os
import secrets
import shutil
import sys
import tarfile
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from oht import runs, settings
from oht.envs.ray_pool import connect
from oht.errors import UserError
from oht.experiments.job import Ended, Log, work
from oht.experiments.suites import Job
from oht.lookup import adopt_path, python_path
from oht.signals import interruption

RETRIES = 5  # how often Ray restarts a run whose worker or node died
MARK = ".sweep"  # the file among the logs that tells a node whether it sees the sweep's folder


class Order(NamedTuple):
    """What a node needs to train a run."""

    job: Job
    path: Path
    steps: int
    log: Path
    mark: str  # the content of the file MARK
    begun: bool  # whether the sweep has files of this run
    cpus: int
    python_path: list[str]
    command: list[str]  # for run.json


class Answer(NamedTuple):
    """What comes back from a node."""

    error: str | None = None
    files: bytes | None = None  # the run folder, packed, if it is not in the sweep's folder
    log: str = ""
    needs_files: bool = False  # it cannot continue without the files that the sweep has
    stopped: bool = False  # by a signal


class Ray:
    """Implements `job.Engine` on a Ray cluster; see `connect` for the address."""

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0):
        self._cpus, self._gpus = settings.number("cpus", cpus, int), gpus
        settings.within("cpus", self._cpus, 1, 1000)
        settings.within("gpus", gpus, 0, 1000)
        if gpus > 1 and gpus != int(gpus):
            raise UserError(f"gpus is {gpus:g}, but must be a fraction of one or a whole number.")
        self._ray = connect(address)
        if not self.slots:
            raise UserError(f"no node of the Ray cluster has {self._cpus} CPUs and {gpus:g} GPUs for a run.")
        request = {"num_cpus": self._cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        self._train = self._ray.remote(max_calls=1, max_retries=RETRIES, **request)(train)  # a new process for each
        self._mark = secrets.token_hex(8)
        self._running: dict[Any, Order] = {}  # by Ray's reference to the answer
        self._marked: set[Path] = set()  # folders
        self._stopping = False

    @property
    def slots(self) -> int:
        """How many runs fit on the nodes that are alive now."""
        nodes = (node["Resources"] for node in self._ray.nodes() if node["Alive"])
        wanted = {"CPU": self._cpus, **({"GPU": self._gpus} if self._gpus else {})}
        return sum(min(fits(number, node.get(kind, 0)) for kind, number in wanted.items()) for node in nodes)

    def start(self, job: Job, path: Path, steps: int, log: Path) -> None:
        path, log = path.absolute(), log.absolute()
        with runs.refused(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            if log.parent not in self._marked:
                runs.write_aside(log.parent / MARK, self._mark)
                self._marked.add(log.parent)
        with runs.refused(path):
            settle(path)
        self._submit(Order(job, path, steps, log, self._mark, path.exists(), self._cpus, python_path(), sys.argv))

    def _submit(self, order: Order, files: bytes | None = None) -> None:
        self._running[self._train.remote(order, files)] = order

    def poll(self) -> list[Ended]:
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        ended = (self._conclude(self._running.pop(answer), self._answer(answer)) for answer in ready)
        return [run for run in ended if run]

    def _answer(self, reference: Any) -> Answer:
        """The answer of a run, or one that says what went wrong."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.TaskCancelledError:
            return Answer(stopped=True)
        except errors.RayTaskError as error:
            return Answer(f"Ray could not train it: {str(error).strip().splitlines()[-1]}")
        except errors.RayError as error:
            return Answer(f"its Ray worker died, also after restarts ({type(error).__name__}).")

    def _conclude(self, order: Order, answer: Answer) -> Ended | None:
        """Stores the files that came back. Returns None if the run must continue elsewhere."""
        try:
            with runs.refused(order.path):
                if answer.log:
                    with order.log.open("a") as file:
                        file.write(answer.log)
                if answer.files:
                    place(answer.files, order.path)
        except UserError as error:
            return Ended(order.job, str(error))
        if self._stopping or not (answer.needs_files or answer.stopped):
            return Ended(order.job, answer.error)
        files = pack(order.path) if answer.needs_files else None
        self._submit(order._replace(begun=order.path.exists()), files)
        return None

    def stop(self) -> None:
        self._stopping = True
        for reference in self._running:
            self._ray.cancel(reference)  # the run receives it as SIGINT

    def close(self) -> None:
        self.stop()
        while self._running:
            self._ray.wait(list(self._running))
            self.poll()
        for folder in self._marked:
            (folder / MARK).unlink(missing_ok=True)


def train(order: Order, files: bytes | None) -> Answer:
    """Trains a run in a process of a node. JAX is not loaded yet and will use as many threads as the run has CPUs."""
    os.environ["NPROC"] = str(order.cpus)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # runs may share a GPU
    adopt_path(order.python_path)
    sys.argv = order.command
    mark = None
    with contextlib.suppress(OSError):
        mark = (order.log.parent / MARK).read_text()
    if mark == order.mark:  # this node sees the sweep's folder
        return _worked(order, order.path, order.log)
    here = Path(tempfile.gettempdir(), f"oht-{order.mark}", order.job.name)
    if order.begun and not here.exists():
        if files is None:
            return Answer(needs_files=True)
        place(files, here)
    log = here.with_name(f"{here.name}.log")
    answer = _worked(order, here, log)
    with interruption():  # it is too late for a signal to stop the run
        answer = answer._replace(files=pack(here) if here.exists() else None, log=log.read_text())
        shutil.rmtree(here, ignore_errors=True)
        log.unlink()
    return answer


def _worked(order: Order, path: Path, log: Path) -> Answer:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            return Answer(stopped=not work(order.job, path, order.steps, [Log()]))
        except UserError as error:
            sentence = " ".join(str(error).split())
            print("oht:", sentence)
        except Exception as error:
            sentence = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        return Answer(sentence)


def fits(part: float, whole: float) -> int:
    """How many times; a tenth is in binary a little more than a tenth."""
    return int(whole / part + 1e-9)


# Run folders as bytes


def pack(path: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(path, ".")
    return content.getvalue()


def place(files: bytes, path: Path) -> None:
    """Replaces the folder `path` by a packed one. At every moment one of the two is complete: see `settle`."""
    settle(path)
    aside, whole = (path.with_name(f".{path.name}.{end}") for end in ("part", "new"))
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(aside, filter="data")
    os.replace(aside, whole)
    settle(path)


def settle(path: Path) -> None:
    """Completes a `place` that was killed."""
    whole = path.with_name(f".{path.name}.new")
    if whole.exists():
        shutil.rmtree(path, ignore_errors=True)
        os.replace(whole, path)
