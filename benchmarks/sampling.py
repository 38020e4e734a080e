"""Speed of the posterior draws, beside numpy batched over the seeds, in one run: CPU time, medians after a warm-up.

    python benchmarks/sampling.py

Draws: nanoseconds an entry, 100 seeds of 5,000 entries. Backup: episodes per CPU-second of PSRL's inner loop on an
episodic L x L grid with two actions, 100 seeds: for each of L layers a new Dirichlet row over the L states of the
next layer for every state and action (prior of ones, one counted successor), its expectation of the next values, the
maximum over actions. Run it on one core (`taskset -c 0`) to leave out the hand-over between threads.
"""

import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bayes_mdp.random import dirichlet, dirichlet_expectation, exponential, fused_key, gamma, loggamma

SEEDS = 100
ENTRIES = 5_000
ACTIONS = 2
REPEATS = 7


def cpu_seconds(call: Callable[[], object], calls: int) -> float:
    """Return the median CPU time of one call, over `REPEATS` groups of `calls`, after one call for the compilation."""
    jax.block_until_ready(call())
    groups = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(calls):
            jax.block_until_ready(call())
        groups.append((time.process_time() - start) / calls)
    return statistics.median(groups)


def report_draws() -> None:
    """Print nanoseconds an entry of words, exponentials, gamma and Dirichlet draws."""
    keys, rng = jax.random.split(jax.random.key(0), SEEDS), np.random.default_rng(0)
    shape, size = (SEEDS, ENTRIES), SEEDS * ENTRIES

    def line(name: str, ours: Callable, args: tuple, numpy_call: Callable[[], object]) -> None:
        compiled = jax.jit(jax.vmap(ours))
        here = cpu_seconds(lambda: compiled(keys, *args), 10) / size * 1e9
        print(f"{name:28s} {here:8.2f} {cpu_seconds(numpy_call, 2) / size * 1e9:8.2f}", flush=True)

    print(f"{'ns an entry':28s} {'here':>8s} {'numpy':>8s}")
    line("random words", lambda key: jax.random.bits(fused_key(key), (ENTRIES,)), (), lambda: rng.bytes(4 * size))
    line("random words, plain key", lambda key: jax.random.bits(key, (ENTRIES,)), (), lambda: rng.bytes(4 * size))
    line("exponential", lambda key: exponential(key, (ENTRIES,)), (),
         lambda: rng.standard_exponential(shape, np.float32))  # fmt: skip
    for concentration in (0.01, 1.0, 2.5, 40.0, 1e4):
        full = np.full(shape, concentration, np.float32)
        line(f"gamma({concentration:g})", gamma, (full,), lambda full=full: rng.standard_gamma(full, dtype=np.float32))
        line(f"loggamma({concentration:g})", loggamma, (full,),
             lambda full=full: np.log(rng.standard_gamma(full, dtype=np.float32) + 1e-38))  # fmt: skip
    rows = np.full((SEEDS, ENTRIES // 50, 50), 0.5, np.float32)
    line("dirichlet(.5), rows of 50", dirichlet, (rows,), lambda: _numpy_rows(rng, rows))


def _numpy_rows(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    weights = rng.standard_gamma(concentration, dtype=np.float32)
    return weights / weights.sum(-1, keepdims=True)


def episode(
    key: Key[Array, ""], counts: Float[Array, "L S A 1"], successor: Int[Array, "L S A 1"]
) -> Int[Array, "L S"]:
    """Return the greedy policy of one posterior draw, the rows drawn inside the backward induction."""
    length, prior = len(counts), jnp.ones((len(counts), ACTIONS, len(counts)))

    def backup(values: Array, layer: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        index, seen, reached = layer
        row_key = jax.random.fold_in(key, index)
        q = dirichlet_expectation(row_key, prior, seen, reached, values, unit_prior=True)
        return q.max(-1), q.argmax(-1)

    last = jnp.linspace(0.0, 1.0, length)
    return lax.scan(backup, last, (jnp.arange(length), counts, successor), reverse=True)[1]


def numpy_episodes(rng: np.random.Generator, counts: np.ndarray, successor: np.ndarray) -> np.ndarray:
    """Return the same policies for all seeds at once, as numpy does it best."""
    seeds, length, states, actions, _ = counts.shape
    values, policy = np.broadcast_to(np.linspace(0, 1, states, dtype=np.float32), (seeds, states)), []
    for layer in reversed(range(length)):
        weights = rng.standard_exponential((seeds, states, actions, states), np.float32)
        seen = rng.standard_gamma(counts[:, layer], dtype=np.float32)[..., 0]
        reached = np.take_along_axis(values, successor[:, layer, ..., 0].reshape(seeds, -1), 1).reshape(seen.shape)
        numerator = np.matmul(weights.reshape(seeds, -1, states), values[..., None]).reshape(seen.shape)
        q = (numerator + seen * reached) / (weights.sum(-1) + seen)
        values = q.max(-1)
        policy.append(q.argmax(-1))
    return np.stack(policy[::-1], 1)


def report_backup() -> None:
    """Print episodes per CPU-second of the layer backup at three sizes."""
    print(f"\n{'episodes per CPU-second':28s} {'here':>8s} {'numpy':>8s}")
    for length, calls in ((10, 20), (20, 8), (50, 2)):
        rng = np.random.default_rng(length)
        counts = rng.poisson(3.0, (SEEDS, length, length, ACTIONS, 1)).astype(np.float32)
        successor = rng.integers(0, length, counts.shape, dtype=np.int32)
        keys = fused_key(jax.random.split(jax.random.key(0), SEEDS))
        compiled = jax.jit(jax.vmap(episode))
        here = SEEDS / cpu_seconds(lambda args=(keys, counts, successor), run=compiled: run(*args), calls)
        peer = cpu_seconds(lambda args=(rng, counts, successor): numpy_episodes(*args), 1)
        print(f"L = {length:<24d} {here:8.0f} {SEEDS / peer:8.0f}", flush=True)


if __name__ == "__main__":
    report_draws()
    report_backup()
