"""Logs of 10^6 to 10^8 rows to sufficient statistics: `python -m benchmarks.fold_log [--sizes 6 7 8] [--kinds csv]`.

Rows per CPU-second and peak memory, each reader in a process of its own: `fold_log` (exact sums of rewards), the
group-by of pandas on the whole log, and that of polars where it can be imported (lazy, streaming). The log: 10^4
states, 4 actions, 8 successors each, 360,000 cells; rewards are float32, drawn from a normal or (--rewards whole) from
0, 1, 2. It is written in chunks to a temporary folder (about 12 bytes a row as Parquet, 25 as CSV) and removed.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.record.turns import REPEATS, Measured, Size, Skipped, from_turns

STATES, ACTIONS, SUCCESSORS = 10_000, 4, 8
BLOCK = 10**6
KEYS = ["s", "a", "n", "end"]


def block(rng: np.random.Generator, size: int, rewards: str) -> pd.DataFrame:
    """So many rows of the log."""
    state, action = rng.integers(0, STATES, size), rng.integers(0, ACTIONS, size)
    reached = (state * 7 + action * 13 + rng.integers(0, SUCCESSORS, size) * 101) % STATES
    end = rng.random(size) < 0.01
    reward = rng.normal(size=size) if rewards == "normal" else rng.integers(0, 3, size)
    columns = {
        "s": state.astype(np.int32),
        "a": action.astype(np.int32),
        "n": np.where(end, 0, reached).astype(np.int32),
    }
    return pd.DataFrame(columns | {"r": reward.astype(np.float32), "end": end})


def write(path: Path, rows: int, rewards: str) -> None:
    """The log, in chunks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    sizes = [min(BLOCK, rows - start) for start in range(0, rows, BLOCK)]
    if path.suffix == ".csv":
        for i, size in enumerate(sizes):
            block(rng, size, rewards).to_csv(path, index=False, mode="a", header=i == 0)
        return
    with pq.ParquetWriter(path, pa.Schema.from_pandas(block(rng, 1, rewards), preserve_index=False)) as writer:
        for size in sizes:
            writer.write_table(pa.Table.from_pandas(block(rng, size, rewards), preserve_index=False))


def by_fold(path: Path) -> int:
    """`bayes_mdp.read_log` with `chunksize`."""
    import bayes_mdp as bm

    folded = bm.read_log(path, state="s", action="a", reward="r", next_state="n", terminated="end", chunksize=10**6)
    mean, _ = folded.cells.reward_moments()
    return len(mean)


def by_pandas(path: Path) -> int:
    """The whole log, grouped."""
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    return len(frame.groupby(KEYS, sort=False)["r"].agg(["count", "mean", "var"]))


def by_polars(path: Path) -> int:
    """The log, scanned and grouped."""
    import polars as pl  # pyright: ignore[reportMissingImports]

    scan = pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
    reward = pl.col("r")
    grouped = scan.group_by(KEYS).agg(pl.len(), reward.mean().alias("mean"), reward.var().alias("var"))
    return grouped.collect(engine="streaming").height


READERS: dict[str, Callable[[Path], int]] = {"fold_log": by_fold, "pandas": by_pandas, "polars": by_polars}


def measured(reader: str, path: Path) -> dict[str, float]:
    """Seconds of the wall and of the CPU, and GB at most, of one reader in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.fold_log", "--child", reader, str(path)]
    return json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout)


def child(reader: str, path: Path) -> None:
    """In that process. What is imported, and compiled for a first call, is no part of the seconds."""
    tiny = path.with_name(f"tiny{path.suffix}")
    READERS[reader](tiny)
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    cells = READERS[reader](path)
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    most, least = after.ru_maxrss / 2**20, before.ru_maxrss / 2**20
    print(json.dumps({"cells": cells, "wall": wall, "cpu": cpu, "gb": most, "gb before": least}))


def measure(size: Size) -> Iterator[Measured | Skipped]:
    """Lines of the record: a row of a Parquet log, read, grouped and summed up, in processes that take turns."""
    power = 7 if size == "full" else 6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.parquet")
        write(path.with_name("tiny.parquet"), 1000, "normal")
        write(path, 10**power, "normal")
        for peer in ("pandas", "polars"):
            name = f"10^{power} rows of Parquet"
            if importlib.util.find_spec(peer) is None:
                yield Skipped(f"{name} beside {peer}", f"{peer} not installed (pip install {peer})")
                continue
            turns = [
                [measured(reader, path)["cpu"] / 10**power for reader in ("fold_log", peer)]
                for _ in range(REPEATS[size])
            ]
            yield from_turns(name, "row", f"{peer}, group-by", [(a, b) for a, b in turns])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[6, 7], help="powers of ten: rows")
    parser.add_argument("--kinds", nargs="+", default=["parquet", "csv"], choices=["parquet", "csv"])
    parser.add_argument("--rewards", default="normal", choices=["normal", "whole"])
    parser.add_argument("--readers", nargs="+", default=list(READERS), choices=list(READERS))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child[0], Path(arguments.child[1]))
        return
    readers = [name for name in arguments.readers if name == "fold_log" or importlib.util.find_spec(name)]
    speeds = f"{'rows / CPU-s':>13} {'rows / s':>12}"
    print(f"{'rows':>6} {'kind':8} {'reader':10} {speeds} {'GB':>6} {'before':>6} {'cells':>8}")
    for power in arguments.sizes:
        for kind in arguments.kinds:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"log.{kind}")
                write(path.with_name(f"tiny.{kind}"), 1000, arguments.rewards)
                write(path, 10**power, arguments.rewards)
                for reader in readers:
                    found = measured(reader, path)
                    speeds = [f"{10**power / found[name]:,.0f}" for name in ("cpu", "wall")]
                    memory = f"{found['gb']:6.2f} {found['gb before']:6.2f}"
                    print(
                        f"  10^{power} {kind:8} {reader:10} {speeds[0]:>13} {speeds[1]:>12} {memory} {found['cells']:8}"
                    )


if __name__ == "__main__":
    main()
