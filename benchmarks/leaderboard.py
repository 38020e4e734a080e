"""Which rule explores best where: all agents on seven problems, the same 30 seeds for all, at a stated budget.

    python -m benchmarks.leaderboard [agent,...]
    python -m benchmarks.leaderboard_page

The first command plays what is missing in docs/measured/leaderboard.json, a line an agent and problem, and stores each
agent as soon as it is played: it goes on from there after it was killed, and an agent that is added costs only its own
time (half a minute of one core, most of it compilation; minutes where an agent plans by many draws). One that takes
more than five minutes of CPU time for all problems is stopped, and stored as over the budget. The second command writes
the tables and the pictures of docs/measured/leaderboard.md.

Problems: those of `bm.compare` (episodes of 8 or 10 steps, 500 of them), and DeepSea of depth 16 (1,000 episodes; a
random policy meets the goal once in 65,536). Constants: `comparison_agents`, "scaled". Seconds a step: a second run of
the same compiled program (of `chain`, `osband_chain` and `garnet`, which share one, the fastest), all seeds together.
"""

import multiprocessing
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import jax

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS
from bayes_mdp.experiments.compare_agents import PROBLEMS, Task, comparison_agents, levels_of, name_tasks, unit_task
from bayes_mdp.experiments.describe import machine, versions
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.files import read_json, write_json
from bayes_mdp.utils.validation import check_name

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import xarray as xr

STORED = Path(__file__).parents[1] / "docs" / "measured" / "leaderboard.json"
NUM_SEEDS, SEED = 30, 0
CPU_SECONDS = 300
"""Of an agent, for all problems, compilation included."""
DEPTH, DEEP_EPISODES = 16, 1000
ONE_SHAPE = ("chain", "osband_chain", "garnet")
"""Problems whose arrays have the shapes of RiverSwim's, which is played before them: they compile nothing."""


@dataclass(frozen=True)
class Cell:
    """An agent on a problem.

    Args:
        agent, problem: names.
        episodes, horizon: of a run; steps are their product.
        optimal, random: expected reward of an episode by an optimal policy, and by uniformly random actions.
        scores: of the seeds in turn, with blanks between; 0 random, 1 optimal; empty where the agent was refused.
        last: mean score of the last tenth of the runs; None where it was refused.
        seconds: of all seeds, compilation included.
        refused: why it was not played; else empty.
    """

    agent: str
    problem: str
    episodes: int
    horizon: int
    optimal: float
    random: float
    scores: str
    last: float | None
    seconds: float
    refused: str


def tasks() -> dict[str, Task]:
    """The problems by name."""
    deep = replace(unit_task(bm.envs.deep_sea(DEPTH), DEPTH), length=DEEP_EPISODES)
    return {**name_tasks(list(PROBLEMS), None, None, None), f"deep_sea_{DEPTH}": deep}


def play(agent: str, problems: dict[str, Task]) -> list[Cell]:
    """The cells of one agent."""
    # Progress is printed a line an agent, by `main`.
    options = bm.experiments.RunOptions(progress=False)
    key = jax.random.key(SEED)
    try:
        board = bm.compare(comparison_agents([agent]), problems, key=key, num_seeds=NUM_SEEDS, options=options)
    except ValueError as error:  # refused on every problem: `compare` has no board then
        refused = str(error).partition(": ")[2]
        return [_cell(agent, name, task, None, refused) for name, task in problems.items()]
    return [_cell(agent, name, task, board.sel(agent=agent, env=name), "") for name, task in problems.items()]


def play_within_budget(agent: str) -> list[Cell]:
    """The cells of one agent, played in a process that the system ends after `CPU_SECONDS`."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(agent, sender))
    process.start()
    sender.close()
    try:
        cells = receiver.recv()
    except EOFError:  # it ended without an answer
        cells = None
    process.join()
    if cells is None and process.exitcode != -signal.SIGXCPU:
        raise RuntimeError(f"{agent}: its process ended with code {process.exitcode}")
    over = f"more than {CPU_SECONDS} CPU-seconds"
    return cells or [_cell(agent, name, task, None, over) for name, task in tasks().items()]


def _send(agent: str, sender: "Connection") -> None:
    """In that process."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    sender.send(play(agent, tasks()))


def _cell(agent: str, problem: str, task: Task, played: "xr.Dataset | None", refused: str) -> Cell:
    """One cell from the part of the board that is about it."""
    assert isinstance(task.objective, Episodic)
    size = (agent, problem, task.length, task.objective.horizon)
    if played is None:
        levels = levels_of(task.env.mdp, task.objective)
        return Cell(*size, levels.optimal, levels.random, "", None, 0.0, refused)
    levels = float(played["optimal"]), float(played["random"])
    if message := str(played["refused"].item()):
        return Cell(*size, *levels, "", None, 0.0, message)
    scores = " ".join(f"{score:.4f}" for score in played["score"].to_numpy())
    # Two of twenty checkpoints.
    last = round(float(played["curve"][:, -2:].mean()), 4)
    return Cell(*size, *levels, scores, last, round(float(played["seconds"]), 3), "")


def read_cells() -> list[Cell]:
    """Those that are stored."""
    return [Cell(**cell) for cell in read_json(STORED, "a leaderboard")["cells"]] if STORED.is_file() else []


def main(arguments: list[str]) -> None:
    """Play the agents that are named, or all, but for those that are stored; store each."""
    for name in arguments:
        check_name("agent", name, AGENTS)
    cells = read_cells()
    stored = {cell.agent for cell in cells}
    for agent in arguments or AGENTS:
        if agent in stored:
            continue
        began = time.perf_counter()
        cells += play_within_budget(agent)
        # In the order of the package's table, whichever came first.
        cells.sort(key=lambda cell: list(AGENTS).index(cell.agent))
        about = {"num_seeds": NUM_SEEDS, "seed": SEED, "versions": versions(), "machine": machine()}
        about["finished"] = datetime.now(UTC).date().isoformat()
        write_json(STORED, {**about, "cells": [asdict(cell) for cell in cells]})
        print(f"{agent}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
