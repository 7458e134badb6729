"""How compiled programs are kept and called."""

import hashlib
import os
import platform
import warnings
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from oht.machine import cores

LARGEST = 2 * 10**9  # bytes; beyond that the programs that were written first are removed


def set_up() -> None:
    """Settings of JAX that make runs start and act quickly; for a CPU before anything is computed on it."""
    # a call of a policy is over sooner than another thread could have begun it, and learning has threads of its own
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    use_cache()


def use_cache() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX has been given another one.

    So the second start of a run does not compile again. `OHT_CACHE` names another folder; where it is empty, nothing is
    kept.
    """
    root = os.environ.get("OHT_CACHE", str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "oht")))
    if not root or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return
    folder = Path(root).expanduser() / "compiled" / _machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _shrink(folder)
    except (OSError, RuntimeError):  # a read-only or missing home folder: compile as usual
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")  # it only costs time
    compilation_cache.reset_cache()  # JAX decides at its first compilation whether there is a cache


def _machine() -> str:
    """What compiled code depends on beside the program: XLA splits loops by the number of cores, and uses CPU features.

    Programs compiled for other cores could round differently, so each number of cores has its own folder.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        features = platform.processor()
    facts = (jax.__version__, platform.machine(), features, cores())
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _shrink(folder: Path) -> None:
    """Remove the oldest files while the folder is too large."""
    found = [(entry.stat(), entry.path) for entry in os.scandir(folder) if entry.is_file()]
    size = sum(status.st_size for status, _ in found)
    for status, path in sorted(found, key=lambda item: item[0].st_mtime):
        if size <= LARGEST:
            break
        Path(path).unlink(missing_ok=True)
        size -= status.st_size
