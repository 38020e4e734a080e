"""What a reverse gradient of a planner costs beside the plan itself: `python benchmarks/planner_gradients.py`.

The gradient of a weighted sum of values by all rewards, all rows and the discount, dense, A = 4, float64, and beside it
the same from a loop that JAX unrolls: value iteration in a `lax.scan`, as many sweeps as bring the values to 1e-6.
CPU time of the process (all threads), median over repeats after a warm-up, compilation apart. Memory: the scratch
space that the compiled program asks for; the planners' programs take the discount as an argument, so that one number
holds for any number of iterations.

Two problems: rows over all states, where sweeps converge in no time; and a walk to one of seven near states, where
they do not.
"""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, AverageReward, Discounted
from bayes_mdp.planning import evaluate, solve, solve_soft

A, DISCOUNT, TEMPERATURE = 4, 0.99, 0.1


def problem(kind: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and rewards."""
    rng = np.random.default_rng(size)
    if kind == "all states":
        return rng.dirichlet(np.ones(size), (size, A)), rng.normal(size=(size, A))
    rows = np.zeros((size, A, size))
    near = (np.arange(size)[:, None] + np.arange(-3, 4)) % size
    rows[np.arange(size)[:, None, None], np.arange(A)[:, None], near[:, None]] = rng.dirichlet(np.ones(7), (size, A))
    return rows, rng.normal(size=(size, A))


def planners(size: int) -> dict[str, Callable[[Any], Any]]:
    """(rows, reward, discount) -> values, and as a last one the loop."""
    uniform = np.full((size, A), 1 / A)
    sweeps = math.ceil(math.log(1e-6 * (1 - DISCOUNT)) / math.log(DISCOUNT))

    def loop(x: Any) -> Any:
        def sweep(v: Any, _: None) -> tuple[Any, None]:
            return jnp.max(x[1] + x[2] * jnp.einsum("saz,z->sa", x[0], v), -1), None

        return jax.lax.scan(sweep, jnp.zeros(size), None, length=sweeps)[0]

    return {
        "solve, discounted": lambda x: solve(MDP(x[0], x[1]), Discounted(x[2])).v,
        "solve, average reward": lambda x: solve(MDP(x[0], x[1]), AverageReward()).gain,
        "evaluate, discounted": lambda x: evaluate(MDP(x[0], x[1]), uniform, Discounted(x[2])).v,
        "solve_soft, discounted": lambda x: solve_soft(MDP(x[0], x[1]), Discounted(x[2]), TEMPERATURE).v,
        f"scan of {sweeps} sweeps": loop,
    }


def cpu(call: Callable[[], Any], repeats: int) -> float:
    """Median CPU seconds of a call, the first one left out."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        jax.block_until_ready(call())
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def measure(kind: str, size: int) -> None:
    """One block of the table."""
    print(f"\nrows over {kind}, S = {size}, A = {A}, discount {DISCOUNT}")
    print(f"{'':26s} {'plan, ms':>10s} {'and gradient, ms':>18s} {'gradient / plan':>16s} {'scratch, MB':>12s}")
    x = (*map(jnp.asarray, problem(kind, size)), jnp.asarray(DISCOUNT))
    weights = np.random.default_rng(0).normal(size=size)
    gradients = {}
    for name, values in planners(size).items():
        if name == "solve, average reward" and kind == "near states" and size == 1000:
            continue  # it mixes in some 10^5 steps: the plan alone takes 20 s, and does not converge
        number = lambda x, values=values: jnp.sum(weights * values(x))  # noqa: E731
        plan = jax.jit(number).lower(x).compile()
        both = jax.jit(jax.value_and_grad(number)).lower(x).compile()
        repeats = 3 if name.startswith("scan") else 7
        alone, together = cpu(lambda p=plan: p(x), repeats), cpu(lambda b=both: b(x), repeats)
        scratch = both.memory_analysis().temp_size_in_bytes / 1e6
        ratio = (together - alone) / alone
        print(f"{name:26s} {alone * 1e3:10.3g} {together * 1e3:18.3g} {ratio:16.2f} {scratch:12.1f}", flush=True)
        gradients[name] = both(x)[1]
    first, *_, last = gradients.values()
    error = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in zip(first, last, strict=True))
    print(f"largest difference of the gradients of the first and the last: {error:.1e} of the largest entry")


if __name__ == "__main__":
    with jax.enable_x64(True):
        for size in (100, 1000):
            for kind in ("all states", "near states"):
                measure(kind, size)
