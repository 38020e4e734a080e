# pyright: reportArgumentType=false
"""Variances of one row, against enumerated covariance matrices."""

import numpy as np
import pytest

from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_factor, dirichlet_rows, expected_square, row_variance
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief

pytestmark = pytest.mark.numerics


def _covariance(c):
    mean = c / c.sum()
    return (np.diag(mean) - np.outer(mean, mean)) / (c.sum() + 1)


ROWS = np.array([[1.0, 2.0, 0.5], [3.0, 3.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])


LEAVES = np.array([[1.0, 2.0, 0.5], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
TIED = np.array([[0, 0], [1, 2], [2, -1]])


@pytest.mark.parametrize("name", ["dense", "listed", "tied"])
def test_the_spread_of_known_rows_and_of_one_possible_outcome_is_zero(name):
    """(`test_layered` has other tables.)"""
    known = np.full((3, 2, 3), 1 / 3)
    if name == "tied":
        rows, spread = dirichlet_rows(LEAVES, (3, 2, 3), row=TIED, known=known), [[1 / 4.5] * 2, [0, 1 / 4], [1 / 4, 0]]
    else:
        rows, spread = dirichlet_rows(np.repeat(LEAVES, 2, 0), (3, 2, 3)), [[1 / 4.5] * 2, [0, 0], [1 / 4] * 2]
    rows = rows.listed(np.ones((3, 2, 1), int)) if name == "listed" else rows
    np.testing.assert_allclose(rows.inverse_total(), spread, rtol=1e-6)


def test_the_only_state_has_no_spread():
    np.testing.assert_array_equal(dirichlet_rows(np.ones((2, 1)), (1, 2, 1)).inverse_total(), 0.0)


def test_spread_forms(x64):
    visits = np.array([4.0, 0.0, 2.0, 1.0])
    forms = {
        form: np.asarray(dirichlet_factor(form, ROWS, visits))
        for form in ("ratio", "dirichlet", "printed", "twice", "count")
    }
    for i, c in enumerate(ROWS[:2]):
        variance, mean = np.diag(_covariance(c)), c / c.sum()
        possible = mean > 0
        np.testing.assert_allclose(forms["ratio"][i], (variance[possible] / mean[possible]).sum(), rtol=1e-12)
        np.testing.assert_allclose(forms["printed"][i], variance.sum(), rtol=1e-12)
        np.testing.assert_allclose(forms["twice"][i], 2 * variance.sum(), rtol=1e-12)
        np.testing.assert_allclose(forms["dirichlet"][i], 1 / (c.sum() + 1), rtol=1e-12)
    np.testing.assert_allclose(forms["count"], [1 / 4, 1 / 7, 0.0, 0.0], rtol=1e-12)
    for values in forms.values():
        assert (values[2:] == 0).all(), "one possible outcome, or a known row: nothing is unknown"


def test_unknown_form_is_refused():
    with pytest.raises(ValueError, match="form is 'other', expected one of ratio, dirichlet"):
        dirichlet_factor("other", ROWS, np.zeros(4))


def test_the_printed_form_is_no_bound_where_values_have_both_signs(x64):
    """Two absorbing states worth +-1 behind a Dirichlet(a, a) row: the variance is twice the printed form."""
    c = np.array([1.5, 1.5])
    variance = row_variance(c / c.sum(), 1 / (c.sum() + 1), np.array([1.0, -1.0]))
    np.testing.assert_allclose(variance, dirichlet_factor("twice", c, np.zeros(())), rtol=1e-12)


def test_row_variance_of_a_worked_example(x64):
    """Var_T E[r] + 2 gamma Cov_T(E r, E w) + gamma^2 Var_T E[w], term by term."""
    c, m, w, discount = np.array([1.0, 2.0, 0.5]), np.array([1.0, -1.0, 2.0]), np.array([3.0, 0.5, -2.0]), 0.8
    cov = _covariance(c)
    terms = m @ cov @ m + 2 * discount * m @ cov @ w + discount**2 * w @ cov @ w
    np.testing.assert_allclose(row_variance(c / c.sum(), 1 / (c.sum() + 1), m + discount * w), terms, rtol=1e-12)


def test_expected_square_of_separate_and_shared_leaves(x64):
    c, v = np.array([1.0, 2.0, 0.5]), np.array([0.3, 0.7, 0.7])
    mean = c / c.sum()
    second = _covariance(c) + np.outer(mean, mean)
    alone = reward_cells(NormalBelief(np.zeros(3), np.sqrt(v), np.ones(3)), (1, 1, 3), by_outcome=True)
    average = alone.variance_of_average(mean[None, None])[0, 0]
    ours = expected_square(mean, 1 / (c.sum() + 1), v, average)
    np.testing.assert_allclose(ours, np.diag(second) @ v, rtol=1e-12)
    shared = np.array([[0.3, 0, 0], [0, 0.7, 0.7], [0, 0.7, 0.7]])
    two = NormalBelief(np.zeros(2), np.sqrt([0.3, 0.7]), np.ones(2))
    together = reward_cells(two, (1, 1, 3), by_outcome=True, cell=np.array([[[0, 1, 1]]]))
    average = together.variance_of_average(mean[None, None])[0, 0]
    ours = expected_square(mean, 1 / (c.sum() + 1), v, average)
    np.testing.assert_allclose(ours, (second * shared).sum(), rtol=1e-12)
    # Coefficients: Cov(2 x, -3 x) = -6 Var x.
    signs = np.array([1.0, 2.0, -3.0])
    affine = reward_cells(
        two,
        (1, 1, 3),
        by_outcome=True,
        cell=np.array([[[0, 1, 1]]]),
        affine=(signs[None, None], np.zeros((1, 1, 3))),
    )
    average = affine.variance_of_average(mean[None, None])[0, 0]
    np.testing.assert_allclose(average, mean @ (shared * np.outer(signs, signs)) @ mean, rtol=1e-12)
    impossible = expected_square(np.array([1.0, 0.0]), np.array(0.0), np.array([0.5, np.inf]), np.array(0.5))
    np.testing.assert_allclose(impossible, 0.5)
