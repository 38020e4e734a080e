"""CPU-seconds of `infer` for Dirichlet rows beside rewards without a closed form: `python benchmarks/factorised.py`.

Student-t rewards (four degrees of freedom, unknown means), S = 10 and 30, A = 2, 20 transitions a pair. Three routes,
in one process, in turn: the whole program by NUTS (what was done before), factorised (rows in closed form), and the
rewards alone (rows known), whose price is what the second should cost. Proof and statistics are in it; the first run,
which also compiles, is shown apart, then medians of three with other keys. CPU time of the process, all threads.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import bayes_mdp as bm

A, EACH = 2, 20
SAMPLER = bm.inference.NUTS(300, 500, 4)


def heavy_tails(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """Flat Dirichlet rows, Student-t rewards."""
    with space.plates():
        probs = numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))
    return bm.models.MDPSpec(probs, _rewards(space))


def rewards_alone(space: bm.StateActionSpace) -> bm.models.MDPSpec:
    """Known rows, the same rewards."""
    return bm.models.MDPSpec(jnp.full(space.n_outcomes, 1.0 / space.n_outcomes), _rewards(space))


def _rewards(space: bm.StateActionSpace) -> dist.Distribution:
    with space.plates():
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    return dist.StudentT(4.0, mean, 0.5)


ROUTES = {
    "whole program": (heavy_tails, "nuts"),
    "factorised": (heavy_tails, "factorised"),
    "rewards alone": (rewards_alone, "nuts"),
}


def main() -> None:
    """Print a table."""
    print(f"{'S':>4} {'route':<14} {'first':>8} {'median of 3':>12} {'over rewards alone':>19}")
    for size in (10, 30):
        space, rng = bm.StateActionSpace(size, A), np.random.default_rng(0)
        number = size * A * EACH
        data = bm.Transitions(
            rng.integers(size, size=number),
            rng.integers(A, size=number),
            rng.standard_t(4, size=number),
            rng.integers(size, size=number),
        )
        took: dict[str, list[float]] = {name: [] for name in ROUTES}
        for turn in range(4):
            for name, (prior, method) in ROUTES.items():
                start = time.process_time()
                bm.infer(jax.random.key(turn), prior, data, space=space, method=method, sampler=SAMPLER)
                took[name].append(time.process_time() - start)
        medians = {name: statistics.median(times[1:]) for name, times in took.items()}
        for name, times in took.items():
            ratio = medians[name] / medians["rewards alone"]
            print(f"{size:>4} {name:<14} {times[0]:>8.1f} {medians[name]:>12.2f} {ratio:>19.2f}")


if __name__ == "__main__":
    main()
