"""Rust's bus engines, group 4, discount .9999: time of estimate and posterior, beside plain NumPy.

    python -m benchmarks.rust path/to/bus_engine_replacement.csv [--bins 175]

CPU-seconds of the process, all threads, with compilation ("first") and without ("again"). All estimates use the same
optimiser and the same scores; what differs is who solves the fixed point: `solve_soft`, with proven gaps, or NumPy's
Newton-Kantorovich (`rust_numpy.py`). NUTS: two chains, 120 + 400, in RC and theta11.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size

import bayes_mdp as bm
from benchmarks import rust_numpy
from benchmarks.record.turns import Measured, Size, in_turns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import rust_bus_engine as rust

Result = TypeVar("Result")


def timed(task: str, call: Callable[[], Result], repeats: int = 1) -> Result:
    """Print CPU-seconds of the first call and the mean of the others."""
    began = time.process_time()
    result = call()
    first, began = time.process_time() - began, time.process_time()
    for _ in range(repeats):
        call()
    print(f"{task:58}{first:9.2f} first{(time.process_time() - began) / repeats:9.4f} again", flush=True)
    return result


def main(path: str, n_bins: int) -> None:
    """Print the times, and how far the routes are apart."""
    sample = rust.read(path, (4,), n_bins)
    ours = timed("estimate and both standard errors, solve_soft", lambda: rust.estimate(sample), 5)
    args = (sample.bin, sample.replaced, sample.increment, n_bins, rust.MONTHLY)
    plain = timed("estimate and BHHH standard errors, NumPy", lambda: rust_numpy.nfxp(*args), 20)
    print(f"  RC {ours.theta[0]:.6f} and {plain.theta[0]:.6f}, theta11 {ours.theta[1]:.6f} and {plain.theta[1]:.6f}")
    theta = jnp.asarray(ours.theta)
    mdp = jax.jit(lambda theta: rust.bus_mdp(theta[:2], jnp.append(theta[2:], 1 - theta[2:].sum()), n_bins))(theta)
    solve = jax.jit(lambda mdp: bm.planning.solve_soft(mdp, bm.Discounted(rust.MONTHLY), 1.0))
    plan = timed("one plan, solve_soft", lambda: jax.block_until_ready(solve(mdp)), 100)
    print(f"  {plan.iterations} Newton steps, gap {plan.gap:.1e}")
    timed(
        "plan and scores, solve_soft", lambda: jax.block_until_ready(rust.with_scores(theta, n_bins, rust.MONTHLY)), 50
    )
    timed("plan and scores, NumPy", lambda: rust_numpy.log_probs(ours.theta, n_bins, rust.MONTHLY), 50)
    draws = timed("posterior, NUTS (compiled at every call)", lambda: rust.infer(jax.random.key(0), sample))
    for name, x in draws.items():
        print(f"  {name}: {x.mean():.4f} +- {x.std():.4f}, effective sample size {effective_sample_size(x):.0f}")
    prices = np.linspace(3.0, 16.0, 14)
    some = {name: x.ravel()[:: x.size // 100] for name, x in draws.items()}
    timed("demand, 14 prices x 100 draws", lambda: rust.demand(prices, some, sample.frequencies, n_bins))


THETA = np.array([10.0, 2.3, 0.39, 0.6])
"""Near the published estimates of group 4: RC, theta11, and how often a month adds 0 and 1 bins."""


def simulated(n_bins: int, n_buses: int = 37, n_months: int = 117) -> rust.Sample:
    """A log of as many buses and months as the published one, drawn from `THETA`."""
    rng = np.random.default_rng(0)
    prob = np.exp(rust_numpy.log_probs(THETA, n_bins, rust.MONTHLY)[0])[:, 1]
    cumulative, now, months = np.cumsum(THETA[2:]), np.zeros(n_buses, int), []
    for _ in range(n_months):
        replaced = (rng.random(n_buses) < prob[now]).astype(int)
        added = np.searchsorted(cumulative, rng.random(n_buses))
        months.append((now, replaced, added))
        now = np.minimum(np.where(replaced == 1, 0, now) + added, n_bins - 1)
    return rust.Sample(*(np.concatenate(part) for part in zip(*months, strict=True)), n_bins)


def lines(n_bins: int, size: Size) -> list[Measured]:
    """Lines of the record, of simulated data. Ours gives both kinds of standard errors, numpy BHHH alone."""
    sample = simulated(n_bins)
    arguments = (sample.bin, sample.replaced, sample.increment, n_bins, rust.MONTHLY)
    with jax.enable_x64(True):
        theta = jnp.asarray(THETA)
        scores = lambda: rust.with_scores(theta, n_bins, rust.MONTHLY)  # noqa: E731
        their_scores = lambda: rust_numpy.log_probs(THETA, n_bins, rust.MONTHLY)  # noqa: E731
        np.testing.assert_allclose(rust.estimate(sample).theta, rust_numpy.nfxp(*arguments).theta, rtol=1e-3)
        return [
            in_turns(f"plan and scores, {n_bins} bins", "plan", scores, "numpy", their_scores, size),
            in_turns(f"estimate from 4,329 months, {n_bins} bins", "estimate", lambda: rust.estimate(sample).theta,
                     "numpy", lambda: rust_numpy.nfxp(*arguments).theta, size),
        ]  # fmt: skip


def measure(size: Size) -> Iterator[Measured]:
    """Lines of the record."""
    for n_bins in (90, 175):
        yield from lines(n_bins, size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--bins", type=int, default=90)
    options = parser.parse_args()
    with jax.enable_x64(True):
        main(options.path, options.bins)
