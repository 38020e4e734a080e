"""CPU seconds and peak memory of the command line, each command in a process of its own.

    python -m benchmarks.commands [ROW ...] [--repeats 5] [--rows 1000000]

Medians and ranges over the repeats, which take turns, without compiled programs kept from before. CPU seconds are of
the whole process, all threads; "imports" are those of them that went into loading modules, taken once, in a process
that times every import. The memory is the largest resident set. The logs have text labels of 12 letters and episodes
that end: 50 states and 4 actions for the long one (46 bytes a row), 4 states and 300 rows for the short one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ACTIONS = ("wait", "treat", "transfer", "discharge")
STATES, ROWS = {"short": 4, "long": 50}, {"short": 300, "long": 10**6}
COLUMNS = "--state state --action action --reward reward --next-state next --terminated over"
COMMANDS = {
    "import": "",
    "help": "--help",
    "list": "list",
    "fit": f"fit short.csv {COLUMNS}",
    "fit, policies": f"fit short.csv {COLUMNS} --discount 0.9",
    "fit, long log": f"fit long.csv {COLUMNS}",
    "fit, long log, policies": f"fit long.csv {COLUMNS} --discount 0.9",
    "decide": f"decide short.csv {COLUMNS} --discount 0.95",
    "decide, long log": f"decide long.csv {COLUMNS} --discount 0.95",
    "demo": "demo --out demo-{turn}",
}
"""Row of the table -> the arguments of `bayes-mdp`; of "import": none, `import bayes_mdp` alone."""
_IMPORTS = """
import sys, json
from benchmarks.first_answer import Meter
meter = Meter()
meter.install()
from bayes_mdp.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(meter.imports), file=sys.stderr)
"""


class Cost(NamedTuple):
    """CPU seconds and the largest resident set in MB of one process."""

    cpu: float
    memory: float


def write_log(path: Path, rows: int, states: int) -> None:
    """A log of so many transitions, drawn with seed 0: three successors of each pair, one row in fifty ends."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    state, action = rng.integers(states, size=rows), rng.integers(len(ACTIONS), size=rows)
    reached = (state * 7 + action * 13 + rng.integers(3, size=rows) * 5) % states
    names = np.array([f"ward {i:03d} bed" for i in range(states)], object)
    columns = {
        "state": names[state],
        "action": np.array(ACTIONS, object)[action],
        "reward": rng.normal(size=rows).round(3),
        "next": names[reached],
        "over": rng.random(rows) < 0.02,
    }
    pd.DataFrame(columns).to_csv(path, index=False)


def run(command: list[str], folder: Path) -> tuple[Cost, str]:
    """What a process cost, and the last line of its stderr.

    Raises:
        RuntimeError: it failed.
    """
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"BAYES_MDP_CACHE": "off", "PYTHONPATH": paths}
    with (folder / "stderr.txt").open("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with code {process.returncode}: {text}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), text.rstrip().rpartition("\n")[2]


def measure(row: str, folder: Path, turn: int) -> Cost:
    """One process of a row of the table."""
    given = COMMANDS[row].format(turn=turn).split()
    program = ["-m", "bayes_mdp.cli", *given] if given else ["-c", "import bayes_mdp"]
    return run([sys.executable, *program], folder)[0]


def imports(row: str, folder: Path) -> float:
    """CPU seconds of the imports of a row."""
    given = COMMANDS[row].format(turn="imports").split()
    return json.loads(run([sys.executable, "-c", _IMPORTS, *given], folder)[1]) if given else 0.0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ROW", help=", ".join(map(repr, COMMANDS)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=ROWS["long"], help="of the long log")
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        path, rows, states = arguments.write
        write_log(Path(path), int(rows), int(states))
        return
    chosen = arguments.names or list(COMMANDS)
    unknown = [name for name in chosen if name not in COMMANDS]
    if unknown:
        parser.error(f"no row is named {unknown[0]!r}, expected {', '.join(map(repr, COMMANDS))}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for log, rows in (ROWS | {"long": arguments.rows}).items():
            # Not here: a process that is started counts the memory of this one as its own.
            written = [str(folder / f"{log}.csv"), str(rows), str(STATES[log])]
            run([sys.executable, "-m", "benchmarks.commands", "--write", *written], folder)
        costs = {row: [] for row in chosen}
        for turn in range(arguments.repeats):
            for row in chosen:
                costs[row].append(measure(row, folder, turn))
        print(f"{'':26} {'CPU-s':>7} {'range':>15} {'imports':>8} {'MB':>6}")
        for row in chosen:
            cpu = [cost.cpu for cost in costs[row]]
            shown = f"{min(cpu):.2f} to {max(cpu):.2f}"
            memory = statistics.median(cost.memory for cost in costs[row])
            print(f"{row:26} {statistics.median(cpu):7.2f} {shown:>15} {imports(row, folder):8.2f} {memory:6.0f}")


if __name__ == "__main__":
    main()
