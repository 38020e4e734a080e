"""`weight` of TD-BMA against literal normal densities in high precision, its limits, and what goes into it."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from bayes_mdp.agents import TDBMA
from bayes_mdp.agents.model_free.trial_learning import weight

SIZES = (0.0, 1e-30, 1e-12, 1e-3, 1.0, 3.0, 1e3, 1e12, 1e30)
VARIANCES = (0.0, 1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e30, np.inf)
COUNTS = (0.0, 1.0, 2.0, 7.0, 1e3, 1e6)
NUM = 3000


def _cases(dtype):
    """[5 NUM]: q_mc, q_td, mean, variance, count; many estimates near each other, or as far from the mean."""
    rng = np.random.default_rng(0)
    q_mc, q_td, mean = (rng.choice([-1.0, 1.0], NUM) * rng.choice(SIZES, NUM) for _ in range(3))
    kind = rng.integers(6, size=NUM)
    tiny = 1.0 + 4.0 * float(np.finfo(dtype).eps) * rng.integers(-3, 4, size=NUM)
    q_td = np.where(kind == 0, q_mc * tiny, np.where(kind == 1, 2.0 * mean - q_mc * tiny, q_td))
    variance = np.where(kind == 2, np.maximum(np.abs(q_mc), 1e-3) ** 0.5, rng.choice(VARIANCES, NUM))
    near = kind >= 3
    q_mc, q_td = (
        np.where(near, mean + rng.normal(size=NUM) * np.sqrt(np.minimum(variance, 1e30)), x) for x in (q_mc, q_td)
    )
    return np.stack([q_mc, q_td, mean, variance, rng.choice(COUNTS, NUM)]).astype(dtype)


def _exact(case):
    """f(q_mc)^N / (f(q_mc)^N + f(q_td)^N) from the densities themselves, or its limit."""
    q_mc, q_td, mean, variance, count = (mpmath.mpf(float(x)) for x in case)
    if variance == 0 and count > 0:
        return (1 + mpmath.sign(abs(q_td - mean) - abs(q_mc - mean))) / 2
    if variance == mpmath.inf:
        return mpmath.mpf(1) / 2
    law = [mpmath.npdf(x, mean, mpmath.sqrt(variance)) ** count if variance else mpmath.mpf(1) for x in (q_mc, q_td)]
    return law[0] / (law[0] + law[1])


def _bound(case, unit):
    """What rounding may do: the error of the evidence e, at the sigmoid.

    e = N (q_td - q_mc) m / variance, m half of the sum of two deviations. m is off by at most u (|a| + |b|) / 2 and its
    own rounding; the other operations (difference, root, two divisions by it, two products) by 8 u at most in all.
    """
    q_mc, q_td, mean, variance, count = (mpmath.mpf(float(x)) for x in case)
    a, b = q_td - mean, q_mc - mean
    if count == 0 or variance == mpmath.inf:
        return mpmath.mpf(0)
    if variance == 0:  # undecided within rounding, else exact
        return mpmath.mpf(1 if abs(a + b) <= 2 * unit * (abs(a) + abs(b)) else 0)
    evidence = count * (a - b) * (a + b) / (2 * variance)
    off = 10 * unit * (abs(evidence) + count * abs(a - b) * (abs(a) + abs(b)) / (2 * variance))
    sigmoid = [1 / (1 + mpmath.exp(-x)) for x in (evidence - off, evidence, evidence + off)]
    return max(sigmoid[1] - sigmoid[0], sigmoid[2] - sigmoid[1]) + 4 * unit


def _errors(function, cases):
    """Errors over their bounds."""
    found = np.asarray(jax.jit(function)(*cases))
    assert found.dtype == cases.dtype and ((found >= 0) & (found <= 1)).all()  # and so never nan
    unit = mpmath.mpf(float(np.finfo(cases.dtype).eps)) / 2
    with mpmath.workdps(80):
        gap = [abs(mpmath.mpf(float(x)) - _exact(case)) for x, case in zip(found, cases.T, strict=True)]
        return np.array(
            [float(g / (_bound(case, unit) + mpmath.mpf(10) ** -30)) for g, case in zip(gap, cases.T, strict=True)]
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weight_is_the_ratio_of_densities(dtype):
    """Values from 1e-30 to 1e30, N up to 10^6, equal and nearly equal estimates and deviations, no and all spread."""
    with jax.enable_x64(dtype is np.float64):
        assert _errors(weight, _cases(dtype)).max() <= 1.0


def test_the_textbook_form_would_be_caught():
    """Powers of densities underflow to nan; squares that cancel are off by more than the bound."""

    def squares(q_mc, q_td, mean, variance, count):
        evidence = count * ((q_td - mean) ** 2 - (q_mc - mean) ** 2) / (2.0 * variance)
        known = (count > 0) & (variance > 0) & jnp.isfinite(variance) & jnp.isfinite(evidence)
        return jnp.where(known, jax.nn.sigmoid(evidence), weight(q_mc, q_td, mean, variance, count))

    assert _errors(squares, _cases(np.float32)).max() > 1.0


@pytest.mark.parametrize(
    ("q_mc", "q_td", "mean", "variance", "count", "expected"),
    [
        (1.0, 5.0, 0.0, 2.0, 0.0, 0.5),  # nothing was seen
        (1.0, 5.0, 0.0, np.inf, 3.0, 0.5),  # one return: no variance yet
        (1.0, 1.0, 0.0, 1e-30, 1e6, 0.5),  # the same estimate
        (-2.0, 2.0, 0.0, 1e-30, 1e6, 0.5),  # as near
        (-2.0, 2.0, 0.0, 0.0, 5.0, 0.5),
        (1.0, 5.0, 0.0, 0.0, 5.0, 1.0),
        (5.0, 1.0, 0.0, 0.0, 5.0, 0.0),
        (1.0, 1.5, 0.0, 1.0, 1e6, 1.0),  # for large N the nearer one
        (1.5, 1.0, 0.0, 1.0, 1e6, 0.0),
        (0.0, 1.0, 0.0, 1.0, 2.0, 1.0 / (1.0 + np.exp(-1.0))),
    ],
)
def test_limits(q_mc, q_td, mean, variance, count, expected):
    """The rules of the stable form."""
    assert weight(q_mc, q_td, mean, variance, count) == pytest.approx(expected, abs=1e-7)


def test_the_first_two_returns_of_a_pair_have_weight_one_half():
    """Variance is the sum of squares over N, known from two returns on."""
    agent = TDBMA()
    entries = jnp.array([[0.0, 0.0, 0.0], [1.0, 3.0, 0.0], [2.0, 3.0, 4.0], [2.0, 3.0, 0.0]])
    decays = [float(agent.trace_decay_at(entry, 4.0, 5.0)) for entry in entries]
    assert decays == [0.5, 0.5, pytest.approx(1.0 / (1.0 + np.exp(-1.5))), 1.0]
