"""Planning in large sparse MDPs beside QuantEcon and scipy, in one run: `python -m benchmarks.large_planning 1e4,1e5`.

Arguments: sizes, discounts (default .95,.99,.999), problems (river,random). CPU time of the process (all threads),
median of repeats after a warm-up, compilation left out. QuantEcon: modified policy iteration, epsilon 1e-6, with which
it stops where no value is off by more than 5e-7, as ours does here; then ours at rounding. scipy: one product with the
CSR matrix and a maximum, beside one sweep of ours.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from quantecon.markov import DiscreteDP
from scipy.sparse import csr_matrix

from bayes_mdp.mdp import Discounted, SparseMDP
from bayes_mdp.planning import solve
from bayes_mdp.planning.policy_arrays import action_values_by_column
from benchmarks.record.turns import Measured, Size, in_turns

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""successor [S A K], probability [S A K], reward [S A]."""

REPEATS = 9
EQUAL = 5e-7


def river(n: int) -> Arrays:
    """A chain of n states with a small reward on the left, a large one on the right, and a cost on the way."""
    states = np.arange(n)
    successor = np.clip(states[:, None] + np.array([-1, 0, 1]), 0, n - 1)[:, None].repeat(4, 1)
    moves = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.05, 0.6, 0.35]])
    reward = np.zeros((n, 4))
    reward[states % 7 == 0, 3] = -0.001
    reward[0, 0], reward[-1, 3] = 0.005, 1.0
    return successor.astype(np.int32), np.broadcast_to(moves, (n, 4, 3)).copy(), reward


def random_rows(n: int) -> Arrays:
    """Eight successors a pair, drawn from all states."""
    rng = np.random.default_rng(0)
    successor = rng.integers(0, n, (n, 4, 8), dtype=np.int32)
    weights = rng.exponential(size=successor.shape)
    return successor, weights / weights.sum(-1, keepdims=True), rng.standard_normal((n, 4))


PROBLEMS = {"river": river, "random": random_rows}


def cpu(call: Callable[[], Any]) -> float:
    """Median CPU seconds of a call, the first one left out."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(REPEATS):
        began = time.process_time()
        jax.block_until_ready(call())
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def matrix(arrays: Arrays) -> csr_matrix:
    """Rows of pairs in CSR; a copy, since duplicates are summed in place."""
    successor, probability, _ = arrays
    n, n_actions, listed = probability.shape
    start = np.arange(0, probability.size + 1, listed)
    rows = csr_matrix((probability.flatten(), successor.flatten(), start), shape=(n * n_actions, n))
    rows.sum_duplicates()
    return rows


def quantecon(problem: DiscreteDP) -> np.ndarray:
    """Values by modified policy iteration."""
    return problem.solve(method="modified_policy_iteration", epsilon=1e-6, max_iter=10**5).v


def main(sizes: list[int], discounts: list[float], problems: list[str]) -> None:
    """One line a problem, size and discount."""
    plan = jax.jit(lambda mdp, discount, tolerance: solve(mdp, Discounted(discount), tolerance=tolerance))
    sweep = jax.jit(lambda mdp, v: (q := action_values_by_column(mdp, v, 0.99), jnp.max(q, -1)))
    print(
        "problem, S, discount: ours s (iterations, proven gap, converged), quantecon s, ratio; at rounding s; peak MB"
    )
    for n in sizes:
        for name in problems:
            arrays = PROBLEMS[name](n)
            rows, reward, mdp = matrix(arrays), arrays[2], SparseMDP(*arrays)
            v = np.random.default_rng(1).normal(size=n)
            ours = cpu(lambda m=mdp, v=v: sweep(m, jnp.asarray(v)))
            peer = cpu(lambda p=rows, r=reward, v=v: (r + 0.99 * (p @ v).reshape(r.shape)).max(-1))
            print(f"{name} {n}: one sweep {1e3 * ours:.3g} ms, scipy {1e3 * peer:.3g} ms")
            for discount in discounts:
                ours, exact = (cpu(lambda m=mdp, d=discount, t=t: plan(m, d, t)) for t in (EQUAL, 0.0))
                found = plan(mdp, discount, EQUAL)
                index = np.divmod(np.arange(reward.size), reward.shape[1])
                problem = DiscreteDP(reward.ravel(), rows, discount, *index)
                peer = cpu(lambda p=problem: quantecon(p))
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(
                    f"{name} {n} {discount}: {ours:.3g} ({int(found.iterations)}, {float(found.gap):.1e}, "
                    f"{bool(found.converged)}), {peer:.3g}, {ours / peer:.2f}; {exact:.3g}; {peak}",
                    flush=True,
                )


def lines(n: int, name: str, discounts: tuple[float, ...], size: Size) -> list[Measured]:
    """Lines of the record, of one problem: plans at an equal bound."""
    arrays = PROBLEMS[name](n)
    rows, reward = matrix(arrays), arrays[2]
    index, found = np.divmod(np.arange(reward.size), reward.shape[1]), []
    with jax.enable_x64(True):
        mdp = SparseMDP(*arrays)
        for discount in discounts:
            plan = jax.jit(lambda mdp, d=discount: solve(mdp, Discounted(d), tolerance=EQUAL).v)
            problem = DiscreteDP(reward.ravel(), rows, discount, *index)
            np.testing.assert_allclose(plan(mdp), quantecon(problem), atol=2.01 * EQUAL)
            task, peer = f"{name} S = {n}, discount {discount}, float64", "quantecon, modified policy iteration"
            ours, theirs = lambda plan=plan: plan(mdp), lambda problem=problem: quantecon(problem)
            found.append(in_turns(task, "solve", ours, peer, theirs, size))
    return found


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for n in (10**4, 10**5) if size == "full" else (10**4,):
        for name in PROBLEMS:
            yield from lines(n, name, (0.95, 0.99), size)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    given = [*sys.argv[1:], *["1e4,1e5", ".95,.99,.999", "river,random"][len(sys.argv) - 1 :]]
    main([int(float(x)) for x in given[0].split(",")], [float(x) for x in given[1].split(",")], given[2].split(","))
