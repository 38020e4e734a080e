"""Whole plans beside mdpsolver and Storm at an equal bound: `python -m benchmarks.planning_peers 1e3,1e4 [.95,.99]`.

Needs `pip install mdpsolver stormpy` (peers, no dependencies of the project). Problems of `large_planning`. CPU time of
the process, median of three after a warm-up, models built beforehand, compilation left out. No value is off by more
than 5e-7: proven by ours; mdpsolver: modified policy iteration with `tolerance` of 1e-6, its stopping rule as it is;
Storm: sound value iteration, sound optimistic value iteration and policy iteration with an absolute precision of 5e-7,
on the equivalent problem in which an episode stops with probability 1 - discount (rewards moved to be positive). The
last column is the largest difference from our values at rounding.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import mdpsolver
import numpy as np
import stormpy

from bayes_mdp.mdp import Discounted, SparseMDP
from bayes_mdp.planning import solve
from benchmarks.large_planning import EQUAL, PROBLEMS, Arrays
from benchmarks.record.turns import REPEATS as TURNS
from benchmarks.record.turns import Measured, Size, from_turns

REPEATS = 3
POLICY_ITERATION_UP_TO = 2000  # states; Storm takes two minutes for a river of 10^4
METHODS = ("SOUND_VALUE_ITERATION", "OPTIMISTIC_VALUE_ITERATION", "POLICY_ITERATION")


def cpu(call: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Median CPU seconds of a call, the first one left out, and its answer."""
    answer, seconds = np.asarray(call()), []
    for _ in range(REPEATS):
        began = time.process_time()
        answer = np.asarray(call())
        seconds.append(time.process_time() - began)
    return statistics.median(seconds), answer


def of_mdpsolver(arrays: Arrays, discount: float) -> Callable[[], np.ndarray]:
    """Modified policy iteration of mdpsolver, on one thread; a model of its own for each call: it starts from the
    values of its last call."""
    successor, probability, reward = arrays
    lists = {"tranMatProbs": probability.tolist(), "tranMatColumns": successor.tolist()}
    models = [mdpsolver.model() for _ in range(REPEATS + 1)]
    for model in models:
        model.mdp(discount=discount, rewards=reward.tolist(), **lists)

    def call() -> np.ndarray:
        model = models.pop()
        model.solve(algorithm="mpi", tolerance=2 * EQUAL, parallel=False)
        return np.asarray(model.getValueVector())

    return call


def of_storm(arrays: Arrays, discount: float, folder: Path, method: str) -> Callable[[], np.ndarray]:
    """The largest expected total reward until the stop, by one of Storm's methods."""
    successor, probability, reward = arrays
    n, low = len(reward), reward.min()
    path = folder / f"{discount}.drn"
    if not path.exists():
        path.write_text("".join(drn(successor, probability * discount, reward - low, 1 - discount)))
    model = stormpy.build_model_from_drn(str(path))
    (task,) = stormpy.parse_properties('R{"r"}max=? [F "stop"]')
    environment = stormpy.environments.sound()
    solver = environment.solver().min_max()
    solver.method = getattr(stormpy.environments.MinMaxMethod, method)
    solver.precision = stormpy.Rational(EQUAL)
    solver.relative_termination_criterion = False
    shift = low / (1 - discount)

    def call() -> np.ndarray:
        result = stormpy.model_checking(model, task, only_initial_states=False, environment=environment)
        return np.asarray([result.get_value(s) for s in range(n)], float) + shift

    return call


def drn(successor: np.ndarray, probability: np.ndarray, reward: np.ndarray, stop: float) -> list[str]:
    """The model in Storm's explicit format; entries of one successor are added, state n is the stop."""
    n, n_actions = reward.shape
    lines = [f"@type: MDP\n@parameters\n\n@reward_models\nr\n@nr_states\n{n + 1}\n@nr_choices\n{n * n_actions + 1}\n"]
    lines.append("@model\n")
    for s in range(n):
        lines.append(f"state {s} [0]{' init' if s == 0 else ''}\n")
        for a in range(n_actions):
            lines.append(f"\taction {a} [{float(reward[s, a])!r}]\n")
            after, where = np.unique(successor[s, a], return_inverse=True)
            mass = np.bincount(where, probability[s, a])
            lines.extend(f"\t\t{t} : {float(p)!r}\n" for t, p in zip(after, mass, strict=True) if p > 0)
            lines.append(f"\t\t{n} : {stop!r}\n")
    return [*lines, f"state {n} [0] stop\n\taction 0 [0]\n\t\t{n} : 1\n"]


def lines(n: int, name: str, discount: float, size: Size) -> list[Measured]:
    """Lines of the record, of one problem."""
    arrays, found = PROBLEMS[name](n), []
    with jax.enable_x64(True), tempfile.TemporaryDirectory() as folder:
        mdp = SparseMDP(*arrays)
        plan = jax.jit(lambda mdp: solve(mdp, Discounted(discount), tolerance=EQUAL).v)
        peers: dict[str, Callable[[], Callable[[], np.ndarray]]] = {
            "mdpsolver": lambda: of_mdpsolver(arrays, discount),
            "Storm, optimistic value iteration": lambda: of_storm(arrays, discount, Path(folder), METHODS[1]),
        }
        for peer, make in peers.items():
            turns = [(cpu(lambda: np.asarray(plan(mdp)))[0], cpu(make())[0]) for _ in range(TURNS[size])]
            found.append(from_turns(f"{name} S = {n}, discount {discount}, float64", "solve", peer, turns))
    return found


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for n in (10**3, 10**4) if size == "full" else (10**3,):
        for name in PROBLEMS:
            for discount in (0.95, 0.99):
                yield from lines(n, name, discount, size)


def main(sizes: list[int], discounts: list[float]) -> None:
    """A line for each problem, discount and solver."""
    plan = jax.jit(lambda mdp, discount, tolerance: solve(mdp, Discounted(discount), tolerance=tolerance).v)
    print(f"{'problem':<8} {'S':>7} {'discount':>8}  {'solver':<28} {'CPU-s':>8} {'of ours':>8} {'off by':>8}")
    for size in sizes:
        for name, make in PROBLEMS.items():
            arrays = make(size)
            mdp = SparseMDP(*arrays)
            with tempfile.TemporaryDirectory() as folder:
                for discount in discounts:
                    best = np.asarray(plan(mdp, discount, 0.0))
                    calls: dict[str, Callable[[], np.ndarray]] = {}
                    calls["bayes_mdp"] = lambda m=mdp, d=discount: np.asarray(plan(m, d, EQUAL))
                    calls["mdpsolver"] = of_mdpsolver(arrays, discount)
                    for method in METHODS if size <= POLICY_ITERATION_UP_TO else METHODS[:-1]:
                        key = f"Storm {method.lower().replace('_', ' ')}"
                        calls[key] = of_storm(arrays, discount, Path(folder), method)
                    ours = None
                    for solver, call in calls.items():
                        seconds, values = cpu(call)
                        ours = ours or seconds
                        off = np.abs(values - best).max()
                        columns = f"{seconds:8.4f} {seconds / ours:8.1f} {off:8.1e}"
                        print(f"{name:<8} {size:7d} {discount:8}  {solver:<28.28} {columns}", flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    given = [*sys.argv[1:], *["1e3,1e4", ".95,.99"][len(sys.argv) - 1 :]]
    main([int(float(x)) for x in given[0].split(",")], [float(x) for x in given[1].split(",")])
