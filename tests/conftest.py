"""Tests train many tiny agents of the same shapes: what is compiled once is kept for the others.

Most of their time goes into compiling, so it is done with few optimisations, in this process and in those it starts.
"""

import os

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    shared = tmp_path_factory.getbasetemp().parent  # the same for all workers of pytest-xdist
    jax.config.update("jax_compilation_cache_dir", str(shared / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    os.environ["OHT_CACHE"] = str(shared / "compiled-by-processes")  # never the user's own


@pytest.fixture(scope="module", autouse=True)
def no_old_programs():
    """A process that keeps thousands of compiled programs crashes in the end when it registers one more."""
    yield
    jax.clear_caches()
