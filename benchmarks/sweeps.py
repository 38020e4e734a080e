"""What a sweep adds to its cells: `python benchmarks/sweeps.py [CELLS]`.

Cells of one small run (Q-learning in DeepSea of 3, 2 seeds, 5 episodes), warm, in a loop over `run`, in a serial sweep
that keeps every cell, and in a sweep of worker processes. The overhead of a cell is the difference to the loop. On
worker processes the wall time of a cell falls with their number, if there are cores. `tasks` are empty tasks on two
workers, which are warm: what sending and answering costs. With Dask installed, the same on a cluster of two.
"""

import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import jax
from jaxtyping import PRNGKeyArray

import bayes_mdp as bm
from bayes_mdp.experiments.sweep_grid import Cell, Variant
from bayes_mdp.parallel import Task, open_executor, run_tasks

REPEATS = 3
OPTIONS = bm.experiments.RunOptions(progress=False)
AGENT, ENV = bm.agents.EpsilonGreedyQ(), "deep_sea:3"
LENGTH = {"num_episodes": 5, "num_seeds": 2}


def loop(cells: int) -> None:
    """The runs alone."""
    env = bm.envs.deep_sea(3)
    for block in range(cells):
        bm.run(AGENT, env, objective=bm.Episodic(3), key=_key(block), options=OPTIONS, **LENGTH)


def _key(block: int) -> PRNGKeyArray:
    return Cell(Variant("agents", "a"), Variant("envs", ENV), None, block).key(jax.random.key(0))


def sweep(cells: int, executor: str | None) -> None:
    """The same runs as the blocks of a sweep."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "sweep"
        options = bm.experiments.SweepOptions(**vars(OPTIONS), num_blocks=cells, executor=executor)
        bm.sweeps.sweep(
            "epsilon_greedy_q",
            ENV,
            key=jax.random.key(0),
            path=place,
            options=options,
            **LENGTH,
        )


def nothing(number: int) -> int:
    """An empty task."""
    return number


def tasks(number: int, executor: str) -> float:
    """Milliseconds of wall time a task, on workers that are warm."""
    with open_executor(executor) as opened:
        some = [Task(str(i), (i,)) for i in range(number)]
        list(run_tasks(nothing, some[:50], opened))
        began = time.perf_counter()
        list(run_tasks(nothing, some, opened))
        return 1e3 * (time.perf_counter() - began) / number


def measured(work, cells: int) -> tuple[float, float]:
    """(CPU, wall) milliseconds a cell, medians; the CPU time is of this process."""
    cpu, wall = [], []
    for _ in range(REPEATS):
        began = time.process_time(), time.perf_counter()
        work(cells)
        cpu.append(1e3 * (time.process_time() - began[0]) / cells)
        wall.append(1e3 * (time.perf_counter() - began[1]) / cells)
    return statistics.median(cpu), statistics.median(wall)


def main(cells: int) -> None:
    """Print the table."""
    loop(2)  # compiles
    alone = measured(loop, cells)
    serial = measured(lambda number: sweep(number, None), cells)
    print(f"{cells} cells; ms a cell       CPU    wall")
    print(f"loop over run            {alone[0]:6.1f}  {alone[1]:6.1f}")
    print(f"serial sweep             {serial[0]:6.1f}  {serial[1]:6.1f}")
    print(f"overhead                 {serial[0] - alone[0]:6.1f}  {serial[1] - alone[1]:6.1f}")
    for name in ("processes:2", *(["dask:2"] if find_spec("distributed") else [])):
        began = time.process_time(), time.perf_counter()
        sweep(cells, name)
        cpu, wall = time.process_time() - began[0], time.perf_counter() - began[1]
        print(f"{name:<12} cold, client {1e3 * cpu / cells:6.1f}  {1e3 * wall / cells:6.1f}   {wall:.1f} s in all")
        print(f"{name:<12} an empty task         {tasks(1000, name):6.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
