"""Speed of OIM with prioritized sweeping beside a numba loop in the same run: `python -m benchmarks.oim`.

Environment steps per CPU-second of the process (all threads), warm, compilation apart: the median over repeats in which
all take turns. FlagMaze has 264 states, the maze with subgoals 2,500; the model is swept after every step, with the
same number of pops and the same threshold. `run` (its loop with the first states, the record of rows and visits; regret
and Dataset apart) by XLA, which plays all seeds at once, and by numba (`RunOptions(compiler=...)`), both in float32;
the peer (see `oim_numba.py`) plays one seed after the other in float64. All learn from the first step on in every
repeat, and earn about the same.
"""

import os

# The iterations are tiny: a second thread of XLA's pool mostly waits for the first, which costs up to 3 x the CPU time.
os.environ.setdefault("NPROC", "1")

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from bayes_mdp.agents import OIM
from bayes_mdp.agents.model_based.empirical_planning import PrioritizedSweeping
from bayes_mdp.envs import flag_maze, maze_with_subgoals
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import Prepared, execute, prepare
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import Discounted, Environment
from bayes_mdp.planning.prioritized_sweeping import predecessors_of
from bayes_mdp.utils.progress import Progress

RUNS, REPEATS = (1, 100), 5  # by default


@dataclass(frozen=True)
class Task:
    """One line: what is played, with which constants, for how many steps of a run."""

    name: str
    env: Environment
    v_max: float
    discount: float
    threshold: float
    num_pops: int
    num_steps: int


def tasks() -> list[Task]:
    """The two environments, with few and with many pops."""
    flags, maze = flag_maze(), maze_with_subgoals()
    return [
        Task("FlagMaze, 5 pops", flags, 0.1, 0.95, 1e-4, 5, 5000),
        Task("FlagMaze, 20 pops", flags, 0.1, 0.95, 1e-4, 20, 5000),
        Task("maze, 5 pops", maze, 1000.0, 0.995, 0.1, 5, 5000),
        Task("maze, 20 pops", maze, 1000.0, 0.995, 0.1, 20, 5000),
    ]


def tables(env: Environment) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Outcomes [S A E], cumulative probabilities [S A E - 1], rewards [S A E] and the first state."""
    known: Any = env.mdp
    law: Any = env.reward_law
    cumulative = np.cumsum(np.asarray(known.probability, np.float64), -1)[..., :-1]
    return np.asarray(known.successor), cumulative, np.asarray(law.value, np.float64), int(np.argmax(known.initial))


def list_lengths(env: Environment) -> tuple[int, int]:
    """The longest lists of different successors and of predecessors."""
    known: Any = env.mdp
    successor, probability = np.asarray(known.successor), np.asarray(known.probability)
    rows = zip(successor.reshape(-1, successor.shape[-1]), probability.reshape(-1, successor.shape[-1]), strict=True)
    before = np.diff(predecessors_of(successor, probability > 0).first)
    return max(len(set(y[p > 0])) for y, p in rows), int(before.max())


def ours(task: Task, num_runs: int, compiler: str, repeats: int) -> Callable[[int], tuple[float, float]]:
    """By the loop of `run`: (reward of a step, nan: backups are not told)."""
    planner = PrioritizedSweeping(task.num_pops, task.threshold, *list_lengths(task.env))
    agent, options = OIM(v_max=task.v_max, planner=planner), RunOptions(progress=False, compiler=compiler)

    def prepared(seed: int) -> Prepared:
        key, objective = jax.random.key(seed), Discounted(task.discount)
        return prepare(
            RunConfig(agent, task.env, objective, key, None, task.num_steps, None, num_runs, "average", options)
        )

    ready = [prepared(seed) for seed in range(repeats + 1)]

    def run(seed: int) -> tuple[float, float]:
        outcome = execute(ready[seed], Progress(1, 1, show=False), Snapshots(None, {}))
        return float(outcome.reward.sum(1).mean()) / task.num_steps, float("nan")

    return run


def peer(task: Task, num_runs: int) -> Callable[[int], tuple[float, float]]:
    """One run after the other, by numba."""
    try:
        from benchmarks import oim_numba
    except ImportError:
        raise SystemExit("numba is missing, expected it beside quantecon: pip install 'bayes_mdp[test]'") from None
    agent = (task.v_max, task.discount, task.threshold, task.num_pops)
    env, lists = tables(task.env), list_lengths(task.env)
    one_run: Any = oim_numba.play

    def run(seed: int) -> tuple[float, float]:
        played = [one_run(env, lists, agent, task.num_steps, 1000 * seed + i) for i in range(num_runs)]
        rewards, backups, _ = zip(*played, strict=True)
        return float(np.mean(rewards)) / task.num_steps, float(np.mean(backups)) / task.num_steps

    return run


def timed(run: Callable[[int], tuple[float, float]], seed: int) -> tuple[float, float, float]:
    """(CPU seconds, reward of a step, backups of a step)."""
    began = time.process_time()
    reward, backups = run(seed)
    return time.process_time() - began, reward, backups


def report(task: Task, num_runs: int, repeats: int) -> None:
    """One line of the table."""
    each = ours(task, num_runs, "xla", repeats), ours(task, num_runs, "numba", repeats), peer(task, num_runs)
    for run in each:
        run(0)
    turns = np.array([[timed(run, 1 + i) for run in each] for i in range(repeats)])
    speeds = np.median(task.num_steps * num_runs / turns[..., 0], axis=0)
    ratios = np.median(turns[:, 2:, 0] / turns[:, :2, 0], axis=0)
    columns = " ".join(f"{speed:12,.0f}" for speed in speeds) + " ".join(f"{ratio:7.2f}" for ratio in ratios)
    earned = " ".join(f"{reward:8.4f}" for reward in turns[..., 1].mean(0))
    print(f"{task.name:18s} {task.num_steps:7d} {num_runs:5d} {columns}    {earned}", flush=True)


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore", "v_max is")  # the constants of the tables of [OIM08]
    parser = argparse.ArgumentParser(description="Speed of OIM with prioritized sweeping.")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--runs", type=int, nargs="*", default=RUNS, help="numbers of seeds")
    parser.add_argument("--steps", type=int, default=5000, help="of a seed")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    print(f"jax {jax.__version__}; steps per CPU-second, median of {options.repeats}")
    columns = f"{'steps':>7s} {'seeds':>5s} {'by XLA':>12s} {'by numba':>12s} {'peer':>12s} ratios to the peer, rewards"
    print(f"{'':18s} {columns}")
    for task in tasks():
        for num_runs in options.runs if options.only in task.name else ():
            report(replace(task, num_steps=options.steps), num_runs, options.repeats)


if __name__ == "__main__":
    main()
