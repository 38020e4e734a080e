"""Speed of the planners beside numpy and QuantEcon, in one run: `python -m benchmarks.planning`.

CPU time of the process (all threads), median over repeats after a warm-up, compilation apart.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.envs import riverswim
from bayes_mdp.mdp import MDP, Discounted, Episodic, SparseMDP
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from benchmarks.record.turns import Measured, Size, Skipped, in_turns

SEEDS, ROUNDS = 100, 200


def cpu(call: Callable[[], Any], repeats: int = 7) -> float:
    """Median CPU seconds of a call, the first one left out."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        jax.block_until_ready(call())
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def compiled(function: Callable[..., Any], *args: Any) -> tuple[Callable[[], Any], float]:
    """A call of the compiled function, and the seconds that compiling took."""
    began = time.perf_counter()
    program = jax.jit(function).lower(*args).compile()
    return lambda: program(*args), time.perf_counter() - began


def show(task: str, who: str, seconds: float, unit: str, per: float, compile_s: float | None = None) -> None:
    """One line of the table."""
    note = "" if compile_s is None else f"   compiled in {compile_s:.1f} s"
    print(f"{task:44s} {who:26s} {seconds * per:10.4g} {unit}{note}")


def numpy_policy_iteration(rows: np.ndarray, reward: np.ndarray, discount: float, policy: np.ndarray) -> Any:
    """The plain peer, batched over leading axes: [.. S A S], [.. S A], [.. S]."""
    eye = np.eye(rows.shape[-1], dtype=rows.dtype)
    while True:
        chain = np.take_along_axis(rows, policy[..., None, None], -2)[..., 0, :]
        gain = np.take_along_axis(reward, policy[..., None], -1)
        values = np.linalg.solve(eye - discount * chain, gain)[..., 0]
        q = reward + discount * np.einsum("...saz,...z->...sa", rows, values)
        better = q.max(-1) - np.take_along_axis(q, policy[..., None], -1)[..., 0] > 1e-5 * np.abs(q).max()
        if not better.any():
            return q, policy
        policy = np.where(better, q.argmax(-1), policy)


def riverswim_draws() -> tuple[np.ndarray, np.ndarray]:
    """Posterior-like draws around RiverSwim: [rounds, seeds, S, A, S] and [rounds, seeds, S, A]."""
    truth = riverswim().mdp
    assert isinstance(truth, MDP)
    rng = np.random.default_rng(0)
    concentration = 1 / 6 + 200 * np.asarray(truth.transition_probs)
    rows = rng.gamma(concentration, size=(ROUNDS, SEEDS, *concentration.shape))
    reward = np.asarray(truth.reward) / 1e4 + 0.01 * rng.standard_normal((ROUNDS, SEEDS, *truth.reward.shape))
    return (rows / rows.sum(-1, keepdims=True)).astype(np.float32), reward.astype(np.float32)


def tiny_pair() -> tuple[Callable[[], Any], float, Callable[[], None]]:
    """RiverSwim, 100 seeds at a time, a new draw each, warm-started: ours, its seconds to compile, numpy."""
    rows, reward = riverswim_draws()
    objective = Discounted(0.95)

    def ours(rows: Any, reward: Any) -> Any:
        def step(plan: Solution, mdps: Any) -> Any:
            plan = jax.vmap(lambda p, r, s: solve(MDP(p, r), objective, start=s))(mdps[0], mdps[1], plan)
            return plan, (jnp.sum(plan.q[..., 0]), jnp.max(plan.gap), jnp.max(plan.iterations))

        blank = jax.vmap(lambda _: Solution.blank(reward.shape[-2:]))(jnp.arange(SEEDS))
        return jax.lax.scan(step, blank, (rows, reward))[1]

    call, compile_s = compiled(ours, jnp.asarray(rows), jnp.asarray(reward))

    def peer() -> None:
        policy = np.zeros((SEEDS, rows.shape[2]), int)
        for p, r in zip(rows, reward, strict=True):
            _, policy = numpy_policy_iteration(p, r, 0.95, policy)

    return call, compile_s, peer


def tiny() -> None:
    """RiverSwim: 100 seeds at a time, a new draw each, warm-started."""
    call, compile_s, peer = tiny_pair()
    per = 1e9 / (SEEDS * ROUNDS)
    show("S = 6, A = 2, 100 seeds, warm", "bayes_mdp", cpu(call), "ns a solve", per, compile_s)
    show("S = 6, A = 2, 100 seeds, warm", "numpy, batched", cpu(peer), "ns a solve", per)
    rows, reward = riverswim_draws()
    _quantecon("S = 6, A = 2, one at a time", reward[0, 0], rows[0, 0], 0.95, "ns a solve", 1e9)


def _quantecon(task: str, reward: np.ndarray, rows: np.ndarray, discount: float, unit: str, per: float) -> None:
    from quantecon.markov import DiscreteDP

    problem = DiscreteDP(reward.astype(float), rows.astype(float), discount)
    for method in ("policy_iteration", "modified_policy_iteration"):
        show(task, f"QuantEcon {method[:13]}", cpu(lambda m=method: problem.solve(method=m).v), unit, per)


LENGTH, GRIDS = 50, 8


def episodes_pair() -> tuple[Callable[[], Any], float, Callable[[], None]]:
    """Backward induction over layered grids: ours, its seconds to compile, numpy."""
    length, seeds = LENGTH, GRIDS
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(length), (seeds, length, length, 2)).astype(np.float32)
    reward = rng.standard_normal((seeds, length, length, 2)).astype(np.float32)
    ours = jax.vmap(lambda p, r: solve(MDP(p, r), Episodic(length)))
    call, compile_s = compiled(ours, jnp.asarray(rows), jnp.asarray(reward))

    def peer() -> None:
        values = np.zeros((seeds, length), np.float32)
        for h in reversed(range(length)):
            values = (reward[:, h] + np.einsum("nsaz,nz->nsa", rows[:, h], values, optimize=True)).max(-1)

    return call, compile_s, peer


def episodes() -> None:
    """Backward induction over a layered grid, L = 50."""
    call, compile_s, peer = episodes_pair()
    show("episodes, H = S = 50, A = 2, 8 at a time", "bayes_mdp", cpu(call), "us a solve", 1e6 / GRIDS, compile_s)
    show("episodes, H = S = 50, A = 2, 8 at a time", "numpy, batched", cpu(peer), "us a solve", 1e6 / GRIDS)


def dense(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and rewards of one dense problem, A = 4."""
    rng = np.random.default_rng(2)
    rows = rng.dirichlet(np.ones(size), (size, 4)).astype(np.float32)
    return rows, rng.standard_normal((size, 4)).astype(np.float32)


def large() -> None:
    """One dense problem with S = 1000, and sparse ones."""
    rng = np.random.default_rng(3)
    rows, reward = dense(1000)
    mdp = MDP(jnp.asarray(rows), jnp.asarray(reward))
    task = "dense S = 1000, A = 4, discount .99"
    call, compile_s = compiled(lambda m: solve(m, Discounted(0.99)), mdp)
    show(task, "bayes_mdp", cpu(call), "ms", 1e3, compile_s)
    start = np.zeros(1000, int)
    show(task, "numpy policy iteration", cpu(lambda: numpy_policy_iteration(rows, reward, 0.99, start), 3), "ms", 1e3)
    _quantecon(task, reward, rows, 0.99, "ms", 1e3)
    for size in (10_000, 100_000):
        successor = rng.integers(0, size, (size, 4, 8)).astype(np.int32)
        weights = rng.dirichlet(np.ones(8), (size, 4)).astype(np.float32)
        listed = SparseMDP(successor, weights, rng.standard_normal((size, 4)).astype(np.float32))
        sweep, _ = compiled(lambda m, v: m.expected_next(v), listed, jnp.ones(size))
        call, compile_s = compiled(lambda m: solve(m, Discounted(0.99)), listed)
        task = f"sparse S = {size}, A = 4, K = 8, discount .99"
        show(task, "bayes_mdp", cpu(call, 3), "ms", 1e3, compile_s)
        show(task, "one sweep", cpu(sweep, 5), "ns a nonzero", 1e9 / weights.size)
        print(f"{'':44s} {int(call().iterations)} iterations, gap {float(call().gap):.2g}, {bool(call().converged)}")


def measure(size: Size) -> Iterator[Measured | Skipped]:
    """Lines of the record."""
    call, _, peer = tiny_pair()
    name = "S = 6, A = 2, 100 seeds at a time, warm start, float32"
    yield in_turns(name, "solve", call, "numpy, batched", peer, size, units=SEEDS * ROUNDS)
    if size != "check":
        call, _, peer = episodes_pair()
        name = f"episodes, H = S = {LENGTH}, A = 2, {GRIDS} at a time, float32"
        yield in_turns(name, "solve", call, "numpy, batched", peer, size, units=GRIDS)
    for states in (200,) if size == "check" else (200, 1000):
        yield from _dense_lines(states, size)


def _dense_lines(states: int, size: Size) -> Iterator[Measured | Skipped]:
    """One dense problem beside numpy (float32) and QuantEcon (float64, as it takes nothing else)."""
    rows, reward = dense(states)
    call, _ = compiled(lambda m: solve(m, Discounted(0.99)), MDP(jnp.asarray(rows), jnp.asarray(reward)))
    name, start = f"dense S = {states}, A = 4, discount .99", np.zeros(states, int)
    plain = lambda: numpy_policy_iteration(rows, reward, 0.99, start)  # noqa: E731
    yield in_turns(name, "solve", call, "numpy, policy iteration", plain, size)
    try:
        from quantecon.markov import DiscreteDP
    except ImportError:
        yield Skipped(f"{name} beside quantecon", "quantecon not installed (pip install quantecon)")
        return
    problem = DiscreteDP(reward.astype(float), rows.astype(float), 0.99)
    for method in ("policy_iteration", "modified_policy_iteration"):
        peer = f"quantecon, {method.replace('_', ' ')}"
        yield in_turns(name, "solve", call, peer, lambda m=method: problem.solve(method=m).v, size)


if __name__ == "__main__":
    tiny()
    episodes()
    large()
