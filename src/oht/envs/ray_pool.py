"""Ray: joining a cluster, and envs that are stepped by Ray actors on any of its nodes.

Ray places the actors on nodes and notices when a node dies. Steps go over a direct connection between the run and
the actor, because a call through Ray takes far longer than a step (docs/cluster.md has the numbers).
"""

import logging
import os
import secrets
import socket
import warnings
from functools import cached_property
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from oht.envs.workers import Worker, WorkerDied, Workers, serve
from oht.errors import UserError

PATIENCE = 5.0  # seconds without an answer after which Ray is asked whether an actor is alive
OBJECT_STORE = 512 * 2**20  # bytes, of a cluster that is started here


def connect(address: str | None = None) -> Any:
    """The module `ray`, in a cluster: at an address, or the one that this process is in already.

    Without an address it is that of RAY_ADDRESS or of this machine; if there is none, one is started here, to end with
    this process.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # reports of dead workers, which we report ourselves
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "3")  # a cluster that refuses once will refuse again
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed; it is an extra: pip install 'oht[ray]'") from None
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address:
            _check_that_someone_listens(address)
        init(address or "auto", **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        if address:
            raise UserError(
                f"there is no Ray cluster at {address!r} that this process may join; does `ray status` see one, "
                "and is RAY_AUTH_MODE the same here and there?"
            ) from error
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        init("local", include_dashboard=False, object_store_memory=OBJECT_STORE, **quiet)
    return ray


def init(address: str, **options: Any) -> None:
    """`ray.init` without JAX's warning of forks, which is wrong here: Ray's forks start other programs at once."""
    import ray

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        ray.init(address, **options)


def _check_that_someone_listens(address: str) -> None:
    """Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=10).close()


def actors(name: str, make: bytes, size: int, workers: int | None, prints: bool) -> Workers:
    """A backend like `Workers` on Ray actors; without a number of them, one for each env, as far as there are CPUs."""
    ray = connect()
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if (workers or 1) > cpus:
        raise UserError(f"the Ray cluster has {cpus} CPUs, too few for {workers or 1} workers; ask for fewer.")
    return Workers(name, make, size, min(workers or cpus, size), prints, Actor)


class Actor(Worker):
    """A Ray actor with some of the envs; half a CPU, since those for evaluation wait while those for training play."""

    def __init__(self):
        self._ray, self._key = connect(), secrets.token_bytes(32)
        options = {"num_cpus": 0.5, "scheduling_strategy": "SPREAD"}
        self._host = self._ray.remote(Host).options(**options).remote(self._key)
        self._address, self._life = self._host.address.remote(), self._host.serve.remote()

    @cached_property
    def _link(self) -> Connection:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Opened when first used, so that many actors start at once."""
        try:
            return Client(self._ray.get(self._address), authkey=self._key)
        except (self._ray.exceptions.RayError, OSError, EOFError) as error:
            raise WorkerDied(str(error).strip().splitlines()[-1]) from error

    def receive(self) -> Any:
        while not self._link.poll(PATIENCE):
            if self._ended(0):
                raise WorkerDied(self._cause_of_death())
        return super().receive()

    def close(self) -> None:
        opened = "_link" in self.__dict__
        if opened:
            self._link.close()  # which the actor takes as its end
        if self._ray.is_initialized():
            if opened:
                self._ended(PATIENCE)
            self._ray.kill(self._host)

    def _ended(self, timeout: float) -> bool:
        return bool(self._ray.wait([self._life], timeout=timeout)[0])

    def _cause_of_death(self) -> str:
        return "its Ray actor died"


class Host:
    """What runs in the actor: `serve`, as in a worker process, on a connection that only the run can open."""

    def __init__(self, key: bytes):
        from ray.util import get_node_ip_address

        self._listener = Listener((get_node_ip_address(), 0), authkey=key)

    def address(self) -> Any:
        return self._listener.address

    def serve(self) -> None:
        serve(self._listener.accept())
