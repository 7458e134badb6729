"""Tests train many tiny agents of the same shapes: what is compiled once is kept for the others.

Most of their time goes into tracing and compiling. So that is done with few optimisations, in this process and in those
it starts, and runs with the same algorithm share its programs.
"""

import contextlib
import ctypes
import gc
import os
from pathlib import Path

# the newer code generator takes four times as long to compile, the older one as long to run what tests run
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import jax
import pytest

from oht import population
from sharing import share_programs

# tracing makes many objects that live on; looking through them again and again takes a sixth of the time
gc.set_threshold(100_000, 50, 100)
MOST_MEMORY = 900_000_000  # bytes of a process between two modules of tests
# files that take longest, the longest first; those of Ray mostly wait, while others compute
LONGEST = [
    *("training", "ray_engine", "learning", "runs", "sweep", "devices", "probes", "ray_pool", "browser", "metagrad"),
    *("population", "faults", "cemrl", "examples", "docs", "hyper", "pool", "cli", "pbt", "peers_envs", "asktell"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that all workers finish at about the same time."""
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    shared = tmp_path_factory.getbasetemp().parent  # the same for all workers of pytest-xdist
    jax.config.update("jax_compilation_cache_dir", str(shared / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_include_full_tracebacks_in_locations", False)
    os.environ |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS": "0"}
    os.environ["OHT_CACHE"] = str(shared / "compiled-by-processes")  # never the user's own


@pytest.fixture
def compiled_before(monkeypatch):
    """Processes that a test starts find what this one and others like them have compiled."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(jax.config.jax_compilation_cache_dir))  # pyright: ignore
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")


@pytest.fixture(scope="session", autouse=True)
def _shared_programs():
    with pytest.MonkeyPatch.context() as patch:
        share_programs(patch.setattr)
        yield


@pytest.fixture(scope="module", autouse=True)
def no_old_programs():
    """A process that keeps thousands of compiled programs crashes in the end when it registers one more."""
    yield
    if memory() > MOST_MEMORY:
        population._program.cache_clear()
        population._creation.cache_clear()
        jax.clear_caches()
        with contextlib.suppress(AttributeError, OSError):  # what is freed stays with the process unless it is asked
            ctypes.CDLL(None).malloc_trim(0)


def memory() -> int:
    """Bytes that this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 2**62
    return pages * os.sysconf("SC_PAGE_SIZE")
