"""One benchmark in this process: `python -m benchmarks.record.one_benchmark MODULE SIZE`.

What it yields is written to standard output, a JSON value a line, as it comes; the last line is what the process took.
What the benchmark itself prints goes to standard error.
"""

import importlib
import json
import os
import resource
import sys
import time


def main(module: str, size: str) -> None:
    """Run it."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    began = time.perf_counter()
    for line in importlib.import_module(module).measure(size):
        print(json.dumps({type(line).__name__: line._asdict()}), file=out)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cost = {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": sum(one.ru_utime + one.ru_stime for one in used),
        "peak_mb": max(one.ru_maxrss for one in used) / 1024,
    }
    print(json.dumps({"Cost": cost}), file=out)


if __name__ == "__main__":
    main(*sys.argv[1:])
