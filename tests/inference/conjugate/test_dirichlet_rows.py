# pyright: reportArgumentType=false
"""Tables of the rows: what is dropped, what is refused, evidence by quadrature."""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, gammaln

from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows, expected_information

pytestmark = pytest.mark.numerics


def test_tables_that_change_nothing_are_dropped():
    shape = (2, 3, 2)
    rows = dirichlet_rows(
        np.ones((6, 2)), shape, row=np.arange(6).reshape(2, 3), column=np.broadcast_to(np.arange(2), shape)
    )
    assert rows.row is None and rows.column is None and rows.unit_prior and rows.independent
    assert not dirichlet_rows(np.full((6, 2), 2.0), shape).unit_prior


def test_evidence_by_quadrature(x64):
    """A Dirichlet with whole concentrations: Gauss-Legendre on sticks integrates the polynomial without error."""
    c, n = np.array([2.0, 1.0, 3.0]), np.array([1.0, 2.0, 4.0])
    x, w = np.polynomial.legendre.leggauss(20)
    x, w = (x + 1) / 2, w / 2
    first, stick = x[:, None], x[None, :]
    p = np.stack(np.broadcast_arrays(first, (1 - first) * stick, (1 - first) * (1 - stick)), -1)
    weight = w[:, None] * w[None, :] * (1 - first)
    integral = (weight * (p ** (c + n - 1)).prod(-1)).sum() / (weight * (p ** (c - 1)).prod(-1)).sum()
    rows = dirichlet_rows(c[None], (1, 1, 3)).update((np.zeros(3, int), np.zeros(3, int)), np.arange(3), n)
    np.testing.assert_allclose(rows.log_evidence(), np.log(integral), rtol=1e-9)


def test_drawn_rows_sum_to_one_and_honour_zeros():
    prior = np.array([[0.01, 0.0, 0.01], [1e4, 3.0, 0.0]])
    rows = dirichlet_rows(prior, (1, 2, 3))
    drawn = np.asarray(jax.jit(type(rows).sample)(rows, jax.random.key(0)))
    np.testing.assert_allclose(drawn.sum(-1), 1.0, rtol=1e-6)
    assert drawn[0, 0, 1] == 0 and drawn[0, 1, 2] == 0


@jax.jit
def next_values(rows, keys, inflation, count):
    """Many draws of one row, worth 0, 1 and 1, with a pseudo outcome worth 1."""
    values = np.array([0.0, 1.0, 1.0], np.float32)
    return jax.vmap(lambda key: rows.sample_next(key, values, None, inflation, (count, 1.0)))(keys)[:, 0]


@pytest.mark.parametrize(("inflation", "count"), [(1.0, 0.5), (3.0, 0.5), (1.0, 0.0)])
def test_inflated_rows_with_a_pseudo_outcome_are_dirichlet(inflation, count, key):
    """Dirichlet(2.1, .4, 1.5) with a pseudo outcome worth 1: Beta((1.9 + count) / inflation, 2.1 / inflation).

    Kolmogorov-Smirnov at 1e-6 on 8000 draws: catches a distance of 0.03. Another inflation and another count are shown
    to be caught. The second row is known and has no pseudo outcome.
    """
    prior = np.array([[2.0, 0.4, 0.6], [0.0, 1.0, 0.0]])
    rows = dirichlet_rows(prior, (1, 2, 3)).update((np.zeros(2, int), np.zeros(2, int)), np.array([0, 2]), [0.1, 0.9])
    drawn = np.asarray(next_values(rows, jax.random.split(key, 8000), inflation, count), float)

    def p_value(inflation, count):
        return stats.kstest(drawn[:, 0], stats.beta((1.9 + count) / inflation, 2.1 / inflation).cdf).pvalue

    np.testing.assert_allclose(drawn[:, 1], 1.0)
    assert p_value(inflation, count) > 1e-6
    assert max(p_value(4.0 - inflation, count), p_value(inflation, 0.5 - count)) < 1e-6


@pytest.mark.slow
def test_a_pseudo_outcome_beside_a_prior_of_ones(key):
    """Listed counts on a prior of ones, which take another route: Beta(2.9 + .5, 1.1), as above; no .5 is caught."""
    cell = np.zeros(2, int), np.zeros(2, int)
    rows = dirichlet_rows(np.ones((1, 3)), (1, 1, 3)).update(cell, np.array([0, 2]), np.array([0.1, 0.9]))
    rows, values = rows.listed(np.array([[[0, 2]]])), np.array([0.0, 1.0, 1.0], np.float32)
    draw = jax.jit(jax.vmap(lambda key: rows.sample_next(key, values, pseudo=(0.5, 1.0))))
    drawn = np.asarray(draw(jax.random.split(key, 8000)), float).ravel()
    p_values = [stats.kstest(drawn, stats.beta(a, 1.1).cdf).pvalue for a in (3.4, 2.9)]
    assert p_values[0] > 1e-6 > p_values[1]


@pytest.mark.parametrize(
    ("prior", "tables", "sentence"),
    [
        (np.array([[1.0, -1.0]]), {}, r"concentration\[0, 1\] is -1"),
        (np.array([[1.0, np.nan]]), {}, r"concentration\[0, 1\] is nan"),
        (np.array([[0.0, 0.0]]), {}, r"concentration\[0\] is 0.0, expected a row"),
        (np.ones((1, 2)), {"row": np.array([[3]])}, "row holds the index 3"),
        (np.ones((1, 2)), {"row": np.zeros((2, 2), int)}, r"row has shape \(2, 2\)"),
        (np.ones((1, 2)), {"column": np.array([[[0, 5]]])}, "column holds 5"),
    ],
)
def test_bad_tables_are_refused(prior, tables, sentence):
    with pytest.raises(ValueError, match=sentence):
        dirichlet_rows(prior, (1, 1, 2), **tables)


def test_other_prior_concentrations():
    """A prior of ones is remembered as such; under other concentrations nothing may rest on it."""
    rows = dirichlet_rows(np.ones((2, 3)), (1, 2, 3)).with_prior(np.full((2, 3), 4.0))
    np.testing.assert_allclose(rows.total(), 12.0)
    np.testing.assert_allclose(rows.inverse_total(), 1 / 13)
    np.testing.assert_allclose(rows.expectation(np.array([0.0, 1.0, 2.0])), 1.0)


def test_one_factor_makes_the_covariance():
    concentration = np.array([1.3, 0.4, 2.2])
    rows = dirichlet_rows(concentration[None], (1, 1, 3))
    mean = np.asarray(rows.mean())[0, 0]
    covariance = float(rows.inverse_total()[0, 0]) * (np.diag(mean) - np.outer(mean, mean))
    np.testing.assert_allclose(covariance, stats.dirichlet(concentration).cov(), rtol=1e-12)


def test_expected_information_is_the_mean_divergence_of_what_one_outcome_teaches():
    """E_i KL(Dir(c + e_i) || Dir(c)), by the divergence of Dirichlet laws."""
    c = np.array([1.3, 0.4, 2.2])

    def divergence(a):
        constant = gammaln(a.sum()) - gammaln(a).sum() - gammaln(c.sum()) + gammaln(c).sum()
        return constant + ((a - c) * (digamma(a) - digamma(a.sum()))).sum()

    mean = sum(c[i] / c.sum() * divergence(c + np.eye(3)[i]) for i in range(3))
    np.testing.assert_allclose(expected_information(dirichlet_rows(c[None], (1, 1, 3)))[0, 0], mean, rtol=1e-9)


def test_the_evidence_of_many_outcomes_leaves_out_those_without_data(x64):
    """By JAX, whose formula has a term for each outcome; some are impossible."""
    rng = np.random.default_rng(0)
    prior = rng.gamma(0.1, 1.0, (40, 500)) * (rng.random((40, 500)) < 0.9) + 1e-3 * (np.arange(500) < 5)
    rows = dirichlet_rows(prior, (20, 2, 500))
    cells = rng.integers(0, 20, 60), rng.integers(0, 2, 60)
    rows = rows.update(cells, rng.integers(0, 5, 60), rng.uniform(0.5, 3.0, 60))
    expected = jax.jit(type(rows).log_evidence)(rows)
    np.testing.assert_allclose(rows.log_evidence(), expected, rtol=1e-11)
    assert np.isfinite(expected)
