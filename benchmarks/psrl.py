"""Speed of PSRL: whole runs (environment, posterior, planning, bookkeeping) beside plain numpy programs and rlberry.

    python -m benchmarks.psrl [--quick] [--rlberry-python PATH]

Figures are items per CPU-second of the process (all threads), warm, the median of the repeats; an item is a step
(RiverSwim, chain) or an episode (DeepSea). "literal" plans with `solve(posterior.sample(key))`. The fair
numpy peer is the one batched over the seeds. rlberry needs an environment of its own; its column is empty without one.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bayes_mdp.agents import PSRL, Greedy
from bayes_mdp.envs import deep_sea, riverswim
from bayes_mdp.experiments import RunOptions
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import Prepared, execute, play_chunk, prepare, start_all
from bayes_mdp.experiments.run_config import RunConfig
from bayes_mdp.mdp import MDP, Discounted, Environment, Episodic, NormalReward
from bayes_mdp.models import dirichlet_normal, dirichlet_normal_gamma
from bayes_mdp.planning import solve
from bayes_mdp.utils.progress import Progress
from benchmarks import psrl_numpy
from benchmarks.record.turns import Measured, Size, in_turns
from benchmarks.scaled_rewards import scaled

SEEDS = (1, 20, 100)
IN_CHECK = ("RiverSwim, every 20, steps", "DeepSea L = 20, episodes")
RLBERRY = """
import time, warnings; warnings.filterwarnings("ignore")
from rlberry.agents.psrl import PSRLAgent
from rlberry.envs.finite import Chain
agent = PSRLAgent(Chain(L={n}, fail_prob=0.1), gamma=1.0, horizon={n}, stage_dependent=False)
agent.fit(budget=5)
start = time.process_time(); agent.fit(budget={episodes}); print({n} * {episodes} / (time.process_time() - start))
"""


class Literal(PSRL):
    """PSRL along the literal path, whatever the belief can do."""

    def plan(self, key: Any, problem: Any, state: Any, belief: Any) -> tuple[Greedy, Any]:
        """Greedy for one draw."""
        solution = solve(belief.sample(key), problem.objective)
        return Greedy(solution.q), state


@dataclass(frozen=True)
class Task:
    """One line: ours as a `RunConfig` for an agent, a length and seeds; numpy's twin; items of a run of that length."""

    name: str
    case: Callable[[PSRL, int, int], RunConfig]
    peer: Callable[[int, int], Any]
    length: int
    items: int  # of one unit of length
    replan: Any = None
    chain: int | None = None


def stationary_chain(n: int) -> Environment:
    """rlberry's Chain(L=n): action 1 goes right, 0 left, with probability .1 the other way; pays .01 left, 1 right."""
    rows, reward, states = np.zeros((n, 2, n)), np.zeros((n, 2)), np.arange(n)
    for a, (to, slip) in enumerate(((-1, 1), (1, -1))):
        rows[states, a, np.clip(states + to, 0, n - 1)] += 0.9
        rows[states, a, np.clip(states + slip, 0, n - 1)] += 0.1
    reward[0, 0], reward[-1, 1] = 0.01, 1.0
    mdp = MDP(rows, reward, initial=np.eye(n)[0])
    return Environment(mdp, NormalReward(mdp.reward), name=f"chain_{n}")


def tasks(quick: bool) -> list[Task]:
    """The table's lines."""
    short = 5 if quick else 1
    swim = scaled(riverswim(), 1e-4)
    lines = []
    for every, steps in ((20, 5000), (1, 1000)):
        lines.append(
            Task(
                f"RiverSwim, every {every}, steps",
                lambda agent, length, seeds: _case(
                    agent, swim, Discounted(0.95), dirichlet_normal_gamma(), length, seeds
                ),
                lambda length, seeds, every=every: psrl_numpy.riverswim(swim, length, every, seeds),
                steps // short,
                1,
                every,
            )
        )
    for size, episodes in ((10, 1000), (20, 200), (50, 20)):
        lines.append(
            Task(
                f"DeepSea L = {size}, episodes",
                lambda agent, length, seeds, size=size: _case(
                    agent, deep_sea(size), Episodic(size), dirichlet_normal(noise_scale=0.1), length, seeds
                ),
                lambda length, seeds, size=size: psrl_numpy.deep_sea(size, length, seeds),
                episodes // short,
                1,
            )
        )
    for n, episodes in ((10, 200), (20, 100), (50, 20)):
        lines.append(
            Task(
                f"chain S = H = {n}, steps",
                lambda agent, length, seeds, n=n: _case(
                    agent, stationary_chain(n), Episodic(n), dirichlet_normal(noise_scale=0.1), length, seeds
                ),
                lambda length, seeds, n=n: psrl_numpy.chain(stationary_chain(n), n, length, seeds),
                episodes // short,
                n,
                chain=n,
            )
        )
    return lines


def _case(agent: PSRL, env: Environment, objective: Any, prior: Any, length: int, seeds: int) -> RunConfig:
    steps, episodes = (None, length) if isinstance(objective, Episodic) else (length, None)
    options = RunOptions(progress=False)
    return RunConfig(agent, env, objective, jax.random.key(0), prior, steps, episodes, seeds, "average", options)


def ours(case: RunConfig, repeats: int) -> tuple[float, float]:
    """(CPU-seconds of a warm run, seconds to compile)."""
    prepared = prepare(case)
    start = time.perf_counter()
    _compile(prepared)
    compiling = time.perf_counter() - start
    once = _run_of(prepared)
    once()
    return cpu_seconds(once, repeats), compiling


def _run_of(prepared: Prepared) -> Callable[[], None]:
    def once() -> None:
        execute(prepared, Progress(1, 1, show=False), Snapshots(None, {}))

    return once


def _compile(p: Prepared) -> None:
    carry = jax.eval_shape(lambda: start_all(p.layout, (p.own_env, False), p.setting, p.keys, p.belief))
    play_chunk.lower(p.layout, p.own_env, p.setting, p.keys, carry, np.int32(0), np.int32(1)).compile()


def cpu_seconds(action: Callable[[], Any], repeats: int) -> float:
    """Median CPU-seconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times)


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record: whole runs beside numpy batched over the same seeds."""
    for task in tasks(quick=True):
        for seeds in SEEDS if size == "full" else SEEDS[-1:]:
            if size == "check" and task.name not in IN_CHECK:
                continue
            what, _, items = task.name.rpartition(", ")
            yield in_turns(
                f"{what}, {task.length * task.items} {items}, {seeds} seeds",
                items.removesuffix("s"),
                _run_of(prepare(task.case(PSRL(task.replan), task.length, seeds))),
                "numpy, batched",
                lambda task=task, seeds=seeds: task.peer(task.length, seeds),
                size,
                units=task.length * task.items * seeds,
            )


def rlberry(python: str | None, n: int | None) -> str:
    """Steps per CPU-second of rlberry's numba PSRL, or an empty cell."""
    if python is None or n is None:
        return ""
    script = RLBERRY.format(n=n, episodes=40_000 // n**2)
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return f"{float(done.stdout.split()[-1]):,.0f}" if done.returncode == 0 and done.stdout else "failed"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of PSRL.")
    parser.add_argument("--quick", action="store_true", help="a fifth of the length, 3 repeats, 100 seeds only")
    parser.add_argument("--rlberry-python", default=None, help="interpreter of an environment with rlberry-scool")
    options = parser.parse_args()
    repeats, all_seeds = (3, (100,)) if options.quick else (5, SEEDS)
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, Python {sys.version.split()[0]}")
    columns = ("seeds", "ours", "literal", "numpy batched", "numpy 1 seed", "rlberry", "compile s")
    print(f"{'items per CPU-second':<28}" + "".join(f"{c:>15}" for c in columns), flush=True)
    for task in tasks(options.quick):
        other = rlberry(options.rlberry_python, task.chain)
        single = task.length * task.items / cpu_seconds(lambda task=task: task.peer(task.length, 1), repeats)
        for seeds in all_seeds:
            total = task.length * task.items * seeds
            fast, compiling = ours(task.case(PSRL(task.replan), task.length, seeds), repeats)
            slow, _ = ours(task.case(Literal(task.replan), task.length, seeds), repeats)
            batched = cpu_seconds(lambda task=task, seeds=seeds: task.peer(task.length, seeds), repeats)
            rates = [f"{total / t:,.0f}" for t in (fast, slow, batched)]
            cells = (str(seeds), *rates, f"{single:,.0f}", other, f"{compiling:.1f}")
            print(f"{task.name:<28}" + "".join(f"{c:>15}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
