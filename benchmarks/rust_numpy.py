"""Rust's bus engines in plain NumPy: Newton-Kantorovich on EV, analytic scores, BFGS. No line of the package.

Rust (1987), and his NFXP manual (2000). EV(x) = E log(exp(u(keep, y) + beta EV(y)) + exp(-RC + beta EV(0))), y the bin
that a month of keeping leads to from x. Used by `benchmarks/rust.py` for times and by the tests as another route.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize


class Fit(NamedTuple):
    """theta = (RC, theta11, theta30, ...), the log-likelihood, BHHH standard errors, evaluations."""

    theta: Float[np.ndarray, " K"]
    log_likelihood: float
    se: Float[np.ndarray, " K"]
    evaluations: int


def kernel(theta3: Float[np.ndarray, " J"], n: int) -> Float[np.ndarray, "n n"]:
    """Rows of keeping: a month adds j bins with probability theta3[j]; all that is beyond the last bin stays there."""
    rows = np.zeros((n, n))
    for j, prob in enumerate(theta3):
        np.add.at(rows, (np.arange(n), np.minimum(np.arange(n) + j, n - 1)), prob)
    return rows


def expected_values(
    costs: Float[np.ndarray, " 2"], rows: Float[np.ndarray, "n n"], beta: float, guess: Float[np.ndarray, " n"] | None
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
    """EV, P(keep), the log-sums, and I - (derivative of the operator): Newton from `guess`."""
    n = len(rows)
    ev, before = np.zeros(n) if guess is None else guess, np.inf
    for _ in range(100):
        keep = -0.001 * costs[1] * np.arange(n) + beta * ev
        replace = -costs[0] + beta * ev[0]
        log_sum = np.logaddexp(keep, replace)
        prob = np.exp(keep - log_sum)
        matrix = np.eye(n) - beta * rows * prob
        matrix[:, 0] -= beta * rows @ (1 - prob)
        step = np.linalg.solve(matrix, ev - rows @ log_sum)
        size = np.abs(step).max() / (1 + np.abs(ev).max())
        # At rounding, or near it without progress.
        if size <= 1e-13 or (size <= 1e-9 and size > before / 2):
            return ev, prob, log_sum, matrix
        ev, before = ev - step, size
    raise RuntimeError("Newton's method on EV did not converge")


def log_probs(
    theta: Float[np.ndarray, " K"], n: int, beta: float, guess: Float[np.ndarray, " n"] | None = None
) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n 2 K"], Float[np.ndarray, " n"]]:
    """Log-probabilities of keep and replace by bin, their derivatives by theta, and EV."""
    theta3 = np.append(theta[2:], 1 - theta[2:].sum())
    rows, bins = kernel(theta3, n), np.arange(n)
    ev, prob, log_sum, matrix = expected_values(theta[:2], rows, beta, guess)
    # Derivatives of the operator at fixed EV, then of EV, then of the difference of the two choices.
    last = log_sum[np.minimum(bins + len(theta3) - 1, n - 1)]
    shifted = [log_sum[np.minimum(bins + j, n - 1)] - last for j in range(len(theta3) - 1)]
    moved = np.stack([-rows @ (1 - prob), -0.001 * rows @ (prob * bins), *shifted], -1)
    d_ev = np.linalg.solve(matrix, moved)
    d_difference = beta * (d_ev - d_ev[0])
    d_difference[:, 0] += 1.0
    d_difference[:, 1] -= 0.001 * bins
    difference = -0.001 * theta[1] * bins + theta[0] + beta * (ev - ev[0])
    values = np.stack([-np.logaddexp(0, -difference), -np.logaddexp(0, difference)], -1)
    return values, np.stack([(1 - prob)[:, None] * d_difference, -prob[:, None] * d_difference], 1), ev


def nfxp(
    bins: Int[np.ndarray, " N"],
    replaced: Int[np.ndarray, " N"],
    increment: Int[np.ndarray, " N"],
    n: int,
    beta: float,
    first: tuple[float, float] = (10.0, 2.0),
) -> Fit:
    """The full likelihood by BFGS, in standard errors of the first guess; EV is solved from that of the last step."""
    frequencies = np.bincount(increment) / len(increment)
    start, last = np.concatenate([first, frequencies[:-1]]), [np.zeros(n)]

    def entries(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, scores, last[0] = log_probs(theta, n, beta, last[0])
        theta3 = np.append(theta[2:], 1 - theta[2:].sum())
        of_increment = np.pad(np.diag(1 / theta3)[:, :-1], ((0, 0), (2, 0)))
        of_increment[-1, 2:] = -1 / theta3[-1]
        return (
            values[bins, replaced] + np.log(theta3)[increment],
            scores[bins, replaced] + of_increment[increment],
        )

    def loss(z: np.ndarray) -> tuple[float, np.ndarray]:
        values, scores = entries(start + scale @ z)
        return -values.sum(), -scores.sum(0) @ scale

    def covariance(theta: np.ndarray) -> np.ndarray:
        scores = entries(theta)[1]
        return np.linalg.inv(scores.T @ scores)

    scale = np.linalg.cholesky(covariance(start))
    found = optimize.minimize(loss, np.zeros(len(start)), jac=True, method="BFGS", options={"gtol": 1e-6})
    theta = start + scale @ found.x
    return Fit(theta, -float(found.fun), np.sqrt(np.diag(covariance(theta))), found.nfev)
