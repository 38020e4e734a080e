"""Speed of OIM with prioritized sweeping beside a numba loop in the same run: `python benchmarks/oim.py`.

Environment steps per CPU-second of the process (all threads), warm, compilation apart: the median over repeats in which
the two take turns. FlagMaze has 264 states, the maze with subgoals 2,500; the model is swept after every step, with the
same number of pops and the same threshold. Ours plays 1, 4 or 20 runs at once in float32, the peer (see
`oim_numba.py`) one after the other in float64. Both learn from the first step on in every repeat, and earn about the
same. numba comes with quantecon, of the extra `test`.
"""

import os

# The iterations are tiny: a second thread of XLA's pool mostly waits for the first, which costs up to 3 x the CPU time.
os.environ.setdefault("NPROC", "1")

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents import OIM
from bayes_mdp.agents.model_based.planners import PrioritizedSweeping
from bayes_mdp.envs import flag_maze, maze_with_subgoals
from bayes_mdp.mdp import Discounted, Environment, Problem, StateActionSpace, Transitions
from bayes_mdp.planning.predecessors import predecessors_of

RUNS, REPEATS = (1, 4, 20), 5


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


def ours(task: Task, num_runs: int) -> Callable[[int], tuple[float, float]]:
    """All runs at once: (reward of a step, backups of a step)."""
    outcome, cumulative, paid, first = tables(task.env)
    space = StateActionSpace(task.env.mdp.n_states, task.env.mdp.n_actions)
    problem = Problem(space, Discounted(task.discount))
    planner = PrioritizedSweeping(task.num_pops, task.threshold, *list_lengths(task.env))
    env = (
        jnp.asarray(outcome, jnp.int32),
        jnp.asarray(cumulative, jnp.float32),
        jnp.asarray(paid, jnp.float32),
    )

    def step(run: Any, time: Any) -> Any:
        state, own, key = run
        plan_key, act_key, env_key = jax.random.split(jax.random.fold_in(key, time), 3)
        policy, own = agent.plan(plan_key, problem, own)
        action = policy.act(act_key, state)
        entry = jnp.sum(jax.random.uniform(env_key) >= env[1][state, action], dtype=jnp.int32)
        after, reward = env[0][state, action, entry], env[2][state, action, entry]
        observed = Transitions(state, action, reward, after, None, None, None)
        return (after, agent.observe(problem, own, observed), key), reward

    @jax.jit
    def play(keys: Any) -> Any:
        begin = jax.vmap(lambda key: (jnp.int32(first), agent.init(key, problem), key))
        last, rewards = jax.lax.scan(jax.vmap(step, (0, None)), begin(keys), jnp.arange(task.num_steps))
        return jnp.mean(rewards), jnp.mean(last[1].sweeps.num_backups) / task.num_steps

    agent = OIM(v_max=task.v_max, planner=planner)

    def run(seed: int) -> tuple[float, float]:
        reward, backups = play(jax.random.split(jax.random.key(seed), num_runs))
        return float(reward), float(backups)

    return run


def peer(task: Task, num_runs: int) -> Callable[[int], tuple[float, float]]:
    """One run after the other, by numba."""
    try:
        import oim_numba
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


def report(task: Task, num_runs: int) -> None:
    """One line of the table."""
    both = ours(task, num_runs), peer(task, num_runs)
    for run in both:
        run(0)
    turns = np.array([[timed(run, 1 + i) for run in both] for i in range(REPEATS)])
    total = task.num_steps * num_runs
    fast, slow = np.median(total / turns[..., 0], axis=0)
    ratio = np.median(turns[:, 1, 0] / turns[:, 0, 0])
    reward, backups = turns[..., 1].mean(0), turns[..., 2].mean(0)
    learnt = "    ".join(f"{a:8.4f} {b:8.4f}" for a, b in (reward, backups))
    print(f"{task.name:18s} {num_runs:5d} {fast:12,.0f} {slow:12,.0f} {ratio:7.2f}    {learnt}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of OIM with prioritized sweeping.")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--runs", type=int, nargs="*", default=RUNS)
    options = parser.parse_args()
    print(f"jax {jax.__version__}; steps per CPU-second, median of {REPEATS}")
    columns = f"{'runs':>5s} {'ours':>12s} {'numba':>12s} {'ratio':>7s}    reward: ours, numba  backups: ours, numba"
    print(f"{'':18s} {columns}")
    for task in tasks():
        for num_runs in options.runs if options.only in task.name else ():
            report(task, num_runs)


if __name__ == "__main__":
    main()
