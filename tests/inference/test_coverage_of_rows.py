"""How often 90 % intervals hold the truth, in logs that the prior made: weighted draws about the mode, Polya-Gamma.

Coefficients are drawn from their prior, a log from them: the posterior has to hold each with probability .9. The mean
over the coefficients of N logs has a standard error of at most .3 / sqrt(N), whatever their correlation: five of these
are a false alarm of 6e-7. With 300 logs intervals that hold .81 are caught, with 200 sticks such that hold .79.
"""

# What `from_log` and `infer` return depends on whether the log has covariates, which a type checker cannot see.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportOptionalSubscript=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportArgumentType=false, reportOperatorIssue=false

import numpy as np
import pytest
from scipy.special import expit

import bayes_mdp as bm
from bayes_mdp.inference import Gibbs
from bayes_mdp.inference.integrals.mode_draws import draw_about_mode
from bayes_mdp.inference.polya_gamma import _chain, _Stick

COLUMNS = np.array([[1.0, *map(float, f"{i:04b}")] for i in range(16)])
SD = 2.5


class SoftmaxDensity:
    """Minus the log posterior of the coefficients of a softmax, by NumPy."""

    def __init__(self, counts):
        self.counts, self.total = counts, counts.sum(1)

    def minus_log(self, points):
        b = points.reshape(len(points), 5, 2)
        eta = np.concatenate([np.zeros((len(points), 16, 1)), np.einsum("mp,npk->nmk", COLUMNS, b)], -1)
        top = eta.max(-1, keepdims=True)
        log_sum = np.log(np.exp(eta - top).sum(-1)) + top[..., 0]
        prior = 0.5 * ((points / SD) ** 2).sum(1) + 5 * np.log(2 * np.pi * SD**2)
        return prior - (self.counts * eta).sum((1, 2)) + log_sum @ self.total

    def slopes(self, point):
        eta = np.concatenate([np.zeros((16, 1)), COLUMNS @ point.reshape(5, 2)], 1)
        p = np.exp(eta - eta.max(1, keepdims=True))
        p = (p / p.sum(1, keepdims=True))[:, 1:]
        gradient = COLUMNS.T @ (self.total[:, None] * p - self.counts[:, 1:]) + point.reshape(5, 2) / SD**2
        weight = self.total[:, None, None] * (np.eye(2) * p[:, :, None] - p[:, :, None] * p[:, None, :])
        hessian = np.einsum("mp,mkl,mq->pkql", COLUMNS, weight, COLUMNS).reshape(10, 10) + np.eye(10) / SD**2
        return float(self.minus_log(point[None])[0]), gradient.ravel(), hessian


def simulated(rng, rows, sticks):
    """Coefficients from the prior, and counts of the outcomes of so many rows."""
    b = rng.normal(0, SD, (5, 2))
    eta = COLUMNS @ b
    if sticks:
        first, second = expit(eta).T
        probs = np.stack([first, (1 - first) * second, (1 - first) * (1 - second)], 1)
    else:
        odds = np.exp(np.concatenate([np.zeros((16, 1)), eta], 1))
        probs = odds / odds.sum(1, keepdims=True)
    number = rng.multinomial(rows, np.full(16, 1 / 16))
    return b, np.array([rng.multinomial(n, p / p.sum()) for n, p in zip(number, probs, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [40, 150, 600])
def test_weighted_draws_about_the_mode_hold_the_truth(rows):
    rng, held, refused, logs = np.random.default_rng(rows), [], 0, 300
    for _ in range(logs):
        b, counts = simulated(rng, rows, sticks=False)
        try:
            points = draw_about_mode(rng, SoftmaxDensity(counts), np.zeros(10), 250).points
        except ValueError:  # a heavy tail of weights: it says so
            refused += 1
            continue
        low, high = np.quantile(points, (0.05, 0.95), axis=0)
        held.append(np.mean((low < b.ravel()) & (b.ravel() < high)))
    assert refused < 0.05 * logs
    assert abs(np.mean(held) - 0.9) < 5 * 0.3 / len(held) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("rows", [40, 150, 600])
def test_polya_gamma_draws_hold_the_truth(rows):
    pytest.importorskip("polyagamma")
    rng, held, logs = np.random.default_rng(rows), [], 100
    options = Gibbs(num_warmup=100, num_samples=400, num_chains=1)
    for _ in range(logs):
        b, counts = simulated(rng, rows, sticks=True)
        for j in range(2):
            reached = counts[:, j:].sum(1).astype(float)
            used = reached > 0
            stick = _Stick(COLUMNS[used], reached[used], counts[used, j] * 1.0, np.zeros(5), np.full(5, SD**-2.0), 0)
            low, high = np.quantile(_chain(rng, stick, options)[0], (0.05, 0.95), axis=0)
            held.append(np.mean((low < b[:, j]) & (b[:, j] < high)))
    assert abs(np.mean(held) - 0.9) < 5 * 0.3 / len(held) ** 0.5


def test_the_density_of_these_tests_is_that_of_the_library(key):
    """The log evidence of a small log by the library and by the density above."""
    import jax
    import pandas as pd

    rng = np.random.default_rng(3)
    _, counts = simulated(rng, 60, sticks=False)
    rows = [
        {"s": 0, "a": 0, "t": k, **{f"x{i}": COLUMNS[m, i] for i in range(1, 5)}}
        for m in range(16)
        for k in range(3)
        for _ in range(counts[m, k])
    ]
    log = bm.read_log(
        pd.DataFrame(rows),
        state="s",
        action="a",
        next_state="t",
        states=[0, 1, 2],
        covariates=["x1", "x2", "x3", "x4"],
    )
    space = bm.StateActionSpace.from_log(log)

    def prior(space):
        return bm.models.MDPSpec(
            bm.models.logit_rows(
                space, "x1 + x2 + x3 + x4", reference=0, options=bm.models.RegressionOptions(standardise=False)
            ),
            np.zeros((3, 1)),
        )

    method = bm.inference.Laplace(num_samples=100)
    found = bm.infer(jax.random.key(0), prior, log, space=space, method=method).laplace.laplace_evidence
    assert found == pytest.approx(
        draw_about_mode(rng, SoftmaxDensity(counts), np.zeros(10), 100).laplace_evidence, abs=1e-8
    )
