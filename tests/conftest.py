"""Shared fixtures: one key per test, float64 on request."""

import gc
import os
import platform
import zlib
from importlib.metadata import version
from pathlib import Path

# Set before JAX is imported; `XLA_FLAGS= pytest -m optimised` leaves XLA as users have it.
# Most of a run is compilation, and what LLVM could do better pays for itself in longer programs only. The older code
# generator takes half the time. It may compute a number twice, which is the same number where multiply-add is not fused
# (AVX has no such instruction). A program goes to LLVM in one piece, not in up to 32: a fifth less again. A jaxlib that
# lacks a flag stops the process: 0.10 alone is asked.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + (
        " --xla_cpu_use_fusion_emitters=false --xla_cpu_max_isa=AVX --xla_cpu_parallel_codegen_split_count=1"
        if version("jaxlib").startswith("0.10.") and platform.machine() in ("x86_64", "AMD64")
        else ""
    ),
)

# A line of Python beside every operation of a compiled program helps to read a profile; nothing here reads one.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax
import pytest

from tests import tf32, typecheck
from tests.one_python import mark_numerics
from tests.thorough import mark_thorough

# Tracing makes very many small objects, of which few are in cycles: looking for those took a twelfth of the time.
gc.set_threshold(100_000, 20, 50)

CHECKED = typecheck.install(os.environ.get("BAYES_MDP_TYPES", "off"))
"""Sub-packages whose annotations are checked in this run. Here, since nothing may import the package before it."""
KEPT_FROM = 0.2
"""Programs that take this many seconds to compile are kept on disk; below, writing costs more than it saves."""


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="seed of every test's key (default: 0)")
    parser.addoption("--part", help="I/N: one of N parts, chosen by name (tests/thorough.py)")
    parser.addoption("--tf32", action="store_true", help="products of float32 arrays as on a GPU (tests/tf32.py)")


def pytest_report_header(config):
    return [
        f"bayes_mdp keys: fold_in(key({config.getoption('--seed')}), crc32(test id))",
        f"XLA flags: {os.environ['XLA_FLAGS'] or 'default'}",
        f"bayes_mdp types (BAYES_MDP_TYPES): {', '.join(CHECKED) or 'not checked'}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of a test that is marked `few(n)` or `some(n)`, n of the cases that are not slow run by default, the others are
    slow. Before pytest selects."""
    mark_numerics(items)
    mark_thorough(items, config.getoption("--part"))
    cases = {}
    for item in items:
        if item.get_closest_marker("slow") is None and any(map(item.get_closest_marker, ("few", "some"))):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, of_test in cases.items():
        few, some = (of_test[0].get_closest_marker(mark) for mark in ("few", "some"))
        chosen = range(few.args[0]) if few else spread(name, len(of_test), some.args[0])
        for index in set(range(len(of_test))) - set(chosen):
            of_test[index].add_marker("slow")


def spread(name: str, number: int, some: int) -> list[int]:
    """`some` of `number` cases, evenly apart; the first depends on the test, so that together tests meet all kinds."""
    first = zlib.crc32(name.rpartition("/")[2].encode())
    some = min(some, number)
    return [(first + index * number // some) % number for index in range(some)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """The largest error that a test has measured stands in its report."""
    tf32.MEASURED.clear()
    try:
        return (yield)
    finally:
        item.user_properties.extend(("error", x) for x in sorted(tf32.MEASURED)[-1:])


def pytest_collection_finish():
    """Annotations are checked from the first test on: files may make wrong arguments when they are imported."""
    typecheck.begin()
    # Modules and items stay to the end: collections of garbage need not look at them.
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _products(request):
    """With `--tf32` all tests compute as on a GPU."""
    if request.config.getoption("--tf32"):
        with tf32.gpu_products():
            yield
    else:
        yield


@pytest.fixture
def gpu_products():
    """Products of float32 arrays as on a GPU for the length of a test."""
    with tf32.gpu_products():
        yield


@pytest.fixture
def key(request):
    """The test's own stream: order-free and reproducible."""
    return jax.random.fold_in(
        jax.random.key(request.config.getoption("--seed")), zlib.crc32(request.node.nodeid.encode())
    )


@pytest.fixture
def x64():
    """float64 for the length of a test."""
    with jax.enable_x64(True):
        yield


def pytest_configure(config):
    """Compiled programs are kept between runs in pytest's own cache, for workers and processes that tests start too.

    An entry that another process is still writing cannot be read: pyproject.toml ignores the warning, and the program
    is compiled.
    """
    if hasattr(config, "cache") and config.cache is not None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = str(config.cache.mkdir("jax"))
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", KEPT_FROM)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = str(KEPT_FROM)


PROCESS = Path("/proc/self")
MOST_MAPPINGS = 35_000
"""Linux gives a process 65,530 by default. Every compiled program takes some; XLA aborts where there are no more."""
MOST_PAGES = 2 * 2**30 // os.sysconf("SC_PAGE_SIZE")
"""Of memory: two GiB, so that a worker stays below three."""


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """Between files, forget traced and compiled programs where a long run has gathered very many."""
    yield
    if PROCESS.exists():
        mappings = (PROCESS / "maps").read_bytes().count(b"\n")
        pages = int((PROCESS / "statm").read_text().split()[1])
        if mappings > MOST_MAPPINGS or pages > MOST_PAGES:
            jax.clear_caches()
            gc.collect()
