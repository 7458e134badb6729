"""Gymnasium envs in workers, stepped in parallel.

A worker answers every message with a result or with the sentence of an error, and ends when the parent is gone. It is a
process of this machine, or a Ray actor (see `oht.envs.ray_pool`).
"""

import pickle
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

import cloudpickle
import numpy as np

from oht.envs.backend import EnvError, EnvStarts, EnvSteps
from oht.envs.gym import InProcess, Maker
from oht.errors import UserError
from oht.lookup import adopt_path, python_path

Message = tuple[Any, ...]  # the name of one of InProcess's methods and its arguments


class WorkerDied(Exception):
    """The process ended without an answer."""


class Worker(ABC):
    """One process with some of the envs, behind a link at whose other end it runs `serve`."""

    _link: Connection

    def send(self, message: Message) -> None:
        with suppress(OSError):  # if the worker has died, `receive` notices
            self._link.send(message)

    def receive(self) -> Any:
        try:
            good, answer = self._link.recv()
        except (EOFError, OSError) as error:
            raise WorkerDied(self._cause_of_death()) from error
        if not good:
            raise EnvError(answer)
        return answer

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _cause_of_death(self) -> str: ...


class Process(Worker):
    """A new Python interpreter that runs this module: no fork (JAX is loaded in the parent) and no second import of the
    user's script, so nobody needs an `if __name__ == "__main__"`."""

    def __init__(self):
        self._link, far = Pipe()
        command = [sys.executable, "-m", "oht.envs.workers", str(far.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)
        far.close()

    def close(self) -> None:
        self._link.close()  # which the worker takes as its end
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _cause_of_death(self) -> str:
        return f"exit code {self._process.wait()}"


class Workers:
    """A backend whose env i is in worker i % k; see `oht.envs.backend.Backend`.

    A worker that dies is replaced once in a rollout. The new one gets all messages of this rollout again, which brings
    envs to the same state if they depend on seed and actions alone.
    """

    def __init__(
        self, name: str, make: bytes, size: int, workers: int, prints: bool, start: Callable[[], Worker] = Process
    ):
        self._name, self._start = name, start
        shares = [len(range(size)[i::workers]) for i in range(workers)]
        self._first: list[Message] = [(name, make, share, prints, python_path()) for share in shares]
        self._sent: list[list[Message]] = [[] for _ in shares]  # the messages of this rollout, for each worker
        self._last_obs = [np.empty(0, np.float32) for _ in shares]
        self._replaced: set[int] = set()  # workers that were replaced in this rollout
        self._lost: set[int] = set()  # workers that died again, to be started anew for the next rollout
        self._workers = [start() for _ in shares]
        try:
            for worker, message in zip(self._workers, self._first, strict=True):
                worker.send(message)
            sizes = [worker.receive() for worker in self._workers]
        except WorkerDied as died:
            self.close()
            raise EnvError(f"{name} ended its worker process when it was made ({died}).") from died
        except BaseException:
            self.close()
            raise
        self.obs, self.action, self.spaces = sizes[0]

    def reset(self, seeds: Sequence[int]) -> EnvStarts:
        self._sent = [[] for _ in self._workers]
        self._replaced = set()
        while self._lost:
            try:
                self._restart(self._lost.pop())
            except WorkerDied as died:
                raise EnvError(f"{self._name} ended its worker process when it was made again ({died}).") from died
        count, n = len(self._workers), len(seeds)
        rows = {i: np.arange(n)[i::count] for i in range(min(count, n))}
        starts = EnvStarts(np.zeros((n, self.obs), np.float32), {})
        self._join(starts, rows, {i: ("reset", [seeds[row] for row in own]) for i, own in rows.items()})
        return starts

    def step(self, alive: np.ndarray, actions: np.ndarray) -> EnvSteps:
        count, n = len(self._workers), len(alive)
        rows = {i: np.flatnonzero(alive % count == i) for i in range(count)}
        rows = {i: own for i, own in rows.items() if own.size}
        steps = EnvSteps(np.zeros((n, self.obs), np.float32), np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), {})
        self._join(steps, rows, {i: ("step", alive[own] // count, actions[own]) for i, own in rows.items()})
        return steps

    def _join(self, whole: EnvStarts | EnvSteps, rows: dict[int, np.ndarray], shares: dict[int, Message]) -> None:
        """Asks each worker for its rows; all of a worker that is lost have failed."""
        for i, part in self._ask(shares).items():
            if isinstance(part, EnvError):
                whole.errors.update(dict.fromkeys(rows[i].tolist(), part))
                continue
            self._last_obs[i] = part.obs
            for array, own in zip(whole[:-1], part[:-1], strict=True):
                array[rows[i]] = own
            whole.errors.update({int(rows[i][row]): error for row, error in part.errors.items()})

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _ask(self, shares: dict[int, Message]) -> dict[int, Any]:
        """Sends each worker its share, then waits for all answers; that of a lost worker is an EnvError."""
        for i, message in shares.items():
            self._workers[i].send(message)
        answers = {}
        for i, message in shares.items():
            try:
                answers[i] = self._workers[i].receive()
            except WorkerDied as died:
                try:
                    answers[i] = self._again(i, message, died)
                except EnvError as error:
                    answers[i] = error
                    self._lost.add(i)
            self._sent[i].append(message)
        return answers

    def _again(self, i: int, message: Message, died: WorkerDied) -> Any:
        """The answer of a new worker that has first repeated what the dead one did in this rollout."""
        if i in self._replaced:
            raise EnvError(f"{self._name} ended its worker process twice in one rollout ({died}).") from died
        self._replaced.add(i)
        try:
            self._restart(i)
            obs = self._last_obs[i]
            for earlier in self._sent[i]:
                self._workers[i].send(earlier)
                obs = self._workers[i].receive().obs
            if not np.array_equal(obs, self._last_obs[i]):
                raise EnvError(
                    f"{self._name} ended its worker process ({died}) and its episode cannot be repeated: "
                    "the same seed and actions gave other observations."
                )
            self._workers[i].send(message)
            return self._workers[i].receive()
        except WorkerDied as again:
            raise EnvError(f"{self._name} ended its worker process twice in one rollout ({again}).") from again

    def _restart(self, i: int) -> None:
        self._workers[i].close()
        self._workers[i] = self._start()
        self._workers[i].send(self._first[i])
        self._workers[i].receive()


def portable(make: Maker) -> bytes | None:
    """A maker of envs as bytes for another process; None where it cannot be sent."""
    try:
        return cloudpickle.dumps(make)
    except Exception:  # whatever the user's object raises when pickled
        return None


def serve(link: Connection) -> None:
    """What a worker does: answer messages until the link is closed."""
    envs: InProcess | None = None
    try:
        while True:
            message = link.recv()
            try:
                if envs is None:
                    name, make, size, prints, path = message
                    adopt_path(path)
                    envs = InProcess(name, pickle.loads(make), size, prints)
                    answer = envs.obs, envs.action, envs.spaces
                else:
                    answer = getattr(envs, message[0])(*message[1:])
            except UserError as error:
                link.send((False, str(error)))
            except Exception as error:
                link.send((False, f"a worker process failed with {type(error).__name__}: {error}"))
            else:
                link.send((True, answer))
    except (EOFError, OSError):  # the parent closed the link or is gone
        if envs is not None:
            envs.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    serve(Connection(int(sys.argv[1])))
