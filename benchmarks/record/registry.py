"""The benchmarks of the record. A new one is a file with a function `measure(size)`, and a line here."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

ONE_THREAD = {"NPROC": "1"}
"""XLA's pool has one thread: in tiny kernels a second one mostly waits, which costs CPU time."""


@dataclass(frozen=True)
class Benchmark:
    """One process.

    Args:
        name: in the record.
        module: with `measure(size)`, which yields `Measured` or `Skipped`.
        needs: what must be importable: the peers without which there is no line.
        in_check: `--check` runs it: `measure("check")` takes seconds, and its lines are among those of "quick".
        environment: variables of the process.
    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    in_check: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str | None:
        """A sentence part about what is not installed."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed (pip install {' '.join(absent)})" if absent else None


REGISTRY = (
    Benchmark("psrl", "benchmarks.psrl", in_check=True),
    Benchmark("sampling", "benchmarks.sampling", in_check=True),
    Benchmark("value_uncertainty", "benchmarks.value_uncertainty", in_check=True),
    Benchmark("temperature", "benchmarks.temperature", in_check=True),
    Benchmark("planning", "benchmarks.planning", in_check=True),
    Benchmark("large_planning", "benchmarks.large_planning", needs=("quantecon",), environment=ONE_THREAD),
    Benchmark("planning_peers", "benchmarks.planning_peers", needs=("mdpsolver", "stormpy"), environment=ONE_THREAD),
    Benchmark("td_bma", "benchmarks.numba_peers.td_bma", needs=("numba",), environment=ONE_THREAD),
    Benchmark("oim", "benchmarks.numba_peers.oim", needs=("numba",), environment=ONE_THREAD),
    Benchmark("bql", "benchmarks.bql"),
    Benchmark("actor", "benchmarks.actor"),
    Benchmark("bayes_optimal", "benchmarks.bayes_optimal"),
    Benchmark("value_of_information", "benchmarks.value_of_information", needs=("heormodel",)),
    Benchmark("rust", "benchmarks.rust"),
    Benchmark("fold_log", "benchmarks.fold_log", needs=("pandas", "pyarrow")),
    Benchmark("sbc", "benchmarks.sbc", needs=("simuk",)),
)
