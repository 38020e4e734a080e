"""Value of perfect information, against quadrature."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_mdp.inference.value.returns import ReturnBelief, value_of_perfect_information
from bayes_mdp.inference.value.student_t import StudentT, expected_excess

_vpi = jax.jit(value_of_perfect_information)
LOC = np.array([0.3, 1.0, 0.9, -30.0])
REST = np.array([[2.0, 4.0, 0.5, 9.0], [2.5, 1.5, 1.2, 60.0], [1.0, 3.0, 0.2, 900.0]])


def vpi(*numbers):
    """Of one state with four actions."""
    return np.asarray(_vpi(ReturnBelief(*(jnp.asarray(x, dtype=float) for x in numbers))))


def by_quadrature(loc, pseudo, concentration, rate):
    """E[max over actions after learning mu_a] - max over actions, one action at a time."""
    answer = []
    for a in range(len(loc)):
        rest = max(x for b, x in enumerate(loc) if b != a)
        law: Any = stats.t(2 * concentration[a], loc[a], np.sqrt(rate[a] / (pseudo[a] * concentration[a])))

        def gain(x, law=law, rest=rest):
            return (max(x, rest) - max(loc)) * law.pdf(x)

        ends = [-np.inf, -20.0, rest - 5, rest, rest + 5, np.inf]
        answer.append(sum(integrate.quad(gain, *piece, epsabs=1e-13)[0] for piece in pairwise(ends)))
    return np.array(answer)


def misprinted(loc, pseudo, concentration, rate):
    """The version in circulation, E[mu]^2 in place of z^2."""
    x = np.where(np.arange(len(loc)) == np.argmax(loc), np.sort(loc)[-2], np.max(loc))
    nu, s = 2 * concentration, np.sqrt(rate / (pseudo * concentration))
    z = np.abs(x - loc) / s
    return s * (nu + loc**2) / (nu - 1) * stats.t.pdf(z, nu) - np.abs(x - loc) * stats.t.sf(z, nu)


def test_against_quadrature(x64):
    """Shifted or not; the version with E[mu]^2 in place of z^2 is caught."""
    expected = by_quadrature(LOC, *REST)
    assert np.allclose(vpi(LOC, *REST), expected, rtol=1e-7, atol=1e-12)
    assert np.allclose(vpi(LOC + 100.0, *REST), expected, rtol=1e-7, atol=1e-12)
    assert not np.allclose(misprinted(LOC, *REST), expected, rtol=1e-2)


def test_ties_masks_and_a_single_action(x64):
    """A tie is worth the same to both; an illegal action and the only one are worth nothing; no mean, no bound."""
    ones, no = np.ones(4), -np.inf
    tie = np.sqrt(0.5) * integrate.quad(lambda x: x * stats.t.pdf(x, 4), 0, np.inf)[0]
    assert np.allclose(vpi([2.0, 2.0, no, no], ones, 2 * ones, ones), [tie, tie, 0.0, 0.0], rtol=1e-8)
    assert np.array_equal(vpi([no, 2.0, no, no], ones, 2 * ones, ones), np.zeros(4))
    assert np.array_equal(vpi([2.0, 1.0, 0.0, no], ones, 0.5 * ones, ones), [np.inf, np.inf, np.inf, 0.0])


@pytest.mark.slow
def test_excess_of_a_number_that_is_known():
    """Scale 0: nothing is exceeded."""
    law = StudentT(jnp.zeros(()), jnp.zeros(()), jnp.asarray(3.0))
    assert float(expected_excess(jnp.asarray(0.0), law)) == 0


@pytest.mark.slow
def test_float32():
    """To 1e-5 of the scale."""
    scale = np.sqrt(REST[2] / (REST[0] * REST[1]))
    assert np.all(np.abs(vpi(LOC, *REST) - by_quadrature(LOC, *REST)) < 1e-5 * scale)
