"""Speed of the posterior draws, beside numpy batched over the seeds, in one run: CPU time, medians after a warm-up.

    python -m benchmarks.sampling

Draws: nanoseconds an entry, 100 seeds of 5,000 entries. Backup: episodes per CPU-second of PSRL's inner loop on an
episodic L x L grid with two actions, 100 seeds: for each of L layers a new Dirichlet row over the L states of the
next layer for every state and action (prior of ones, one counted successor), its expectation of the next values, the
maximum over actions. Run it on one core (`taskset -c 0`) to leave out the hand-over between threads.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bayes_mdp.random.dirichlet_draws import dirichlet, dirichlet_expectation
from bayes_mdp.random.gamma_draws import exponential, gamma, loggamma
from bayes_mdp.random.threefry import fused_key
from benchmarks.record.turns import Measured, Size, in_turns

SEEDS = 100
ENTRIES = 5_000
ACTIONS = 2
REPEATS = 7
IN_CHECK = ("gamma(2.5)", "dirichlet(.5), rows of 50", "backup, L = 20")

Pair = tuple[str, Callable[[], object], Callable[[], object]]
"""A task; here; numpy."""


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


def draws() -> Iterator[Pair]:
    """Words, exponentials, gamma and Dirichlet draws: SEEDS x ENTRIES of each."""
    keys, rng = jax.random.split(jax.random.key(0), SEEDS), np.random.default_rng(0)
    shape, size = (SEEDS, ENTRIES), SEEDS * ENTRIES

    def line(name: str, ours: Callable, args: tuple, numpy_call: Callable[[], object]) -> Pair:
        compiled = jax.jit(jax.vmap(ours))
        return name, lambda: compiled(keys, *args), numpy_call

    yield line("random words", lambda key: jax.random.bits(fused_key(key), (ENTRIES,)), (), lambda: rng.bytes(4 * size))
    yield line("random words, plain key", lambda key: jax.random.bits(key, (ENTRIES,)), (), lambda: rng.bytes(4 * size))
    yield line("exponential", lambda key: exponential(key, (ENTRIES,)), (),
               lambda: rng.standard_exponential(shape, np.float32))  # fmt: skip
    for concentration in (0.01, 1.0, 2.5, 40.0, 1e4):
        full = np.full(shape, concentration, np.float32)
        yield line(f"gamma({concentration:g})", gamma, (full,),
                   lambda full=full: rng.standard_gamma(full, dtype=np.float32))  # fmt: skip
        yield line(f"loggamma({concentration:g})", loggamma, (full,),
                   lambda full=full: np.log(rng.standard_gamma(full, dtype=np.float32) + 1e-38))  # fmt: skip
    rows = np.full((SEEDS, ENTRIES // 50, 50), 0.5, np.float32)
    yield line("dirichlet(.5), rows of 50", dirichlet, (rows,), lambda: _numpy_rows(rng, rows))


def report_draws() -> None:
    """Print nanoseconds an entry."""
    print(f"{'ns an entry':28s} {'here':>8s} {'numpy':>8s}")
    for name, ours, theirs in draws():
        times = [cpu_seconds(call, calls) / (SEEDS * ENTRIES) * 1e9 for call, calls in ((ours, 10), (theirs, 2))]
        print(f"{name:28s} {times[0]:8.2f} {times[1]:8.2f}", flush=True)


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


def backups() -> Iterator[Pair]:
    """The layer backup at three sizes: SEEDS episodes of each."""
    for length in (10, 20, 50):
        rng = np.random.default_rng(length)
        counts = rng.poisson(3.0, (SEEDS, length, length, ACTIONS, 1)).astype(np.float32)
        successor = rng.integers(0, length, counts.shape, dtype=np.int32)
        keys = fused_key(jax.random.split(jax.random.key(0), SEEDS))
        compiled = jax.jit(jax.vmap(episode))
        yield (
            f"backup, L = {length}",
            lambda args=(keys, counts, successor), run=compiled: run(*args),
            lambda args=(rng, counts, successor): numpy_episodes(*args),
        )


def report_backup() -> None:
    """Print episodes per CPU-second."""
    print(f"\n{'episodes per CPU-second':28s} {'here':>8s} {'numpy':>8s}")
    for name, ours, theirs in backups():
        print(f"{name:28s} {SEEDS / cpu_seconds(ours, 2):8.0f} {SEEDS / cpu_seconds(theirs, 1):8.0f}", flush=True)


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for unit, units, pairs in (("entry", SEEDS * ENTRIES, draws()), ("episode", SEEDS, backups())):
        for name, ours, theirs in pairs:
            if size != "check" or name in IN_CHECK:
                yield in_turns(f"{name}, {SEEDS} seeds", unit, ours, "numpy, batched", theirs, size, units=units)


if __name__ == "__main__":
    report_draws()
    report_backup()
