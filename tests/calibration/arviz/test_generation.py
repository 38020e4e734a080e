"""Both generations of ArviZ take the same groups."""

import numpy as np
import pytest
import xarray as xr

from bayes_mdp.calibration.arviz.generation import TIES_SPREAD, arviz, as_tree, break_ties, smooth_weights


def tree_of(values):
    """Log-likelihoods [C N K], and draws of one parameter."""
    draws = np.random.default_rng(1).normal(size=values.shape[:2])
    posterior = xr.Dataset({"x": (("chain", "draw"), draws)})
    return as_tree({"posterior": posterior, "log_likelihood": xr.Dataset({"y": (("chain", "draw", "row"), values)})})


def test_terms_that_vary_are_left_as_they_are():
    values = np.random.default_rng(0).normal(size=(80, 3, 2))
    values[:4, 0, 0] = values[:, 0, 0].min() - 1  # four equal ones, fewer than a tail
    np.testing.assert_array_equal(break_ties(values), values)
    np.testing.assert_array_equal(break_ties(values[:4] * 0), values[:4] * 0)


def test_tied_terms_are_spread_by_less_than_any_error():
    values = np.random.default_rng(0).normal(size=(100, 3))
    values[:, 1] = np.log(0.5)  # the same in all draws
    values[:60, 2] = values[:, 2].min()  # in a tail alone
    made = break_ties(values)
    np.testing.assert_array_equal(made[:, 0], values[:, 0])
    assert abs(made - values).max() <= TIES_SPREAD
    assert len(np.unique(made[:, 1])) == 100


@pytest.mark.filterwarnings("ignore")
def test_loo_takes_terms_that_do_not_depend_on_the_parameters():
    values = np.random.default_rng(0).normal(size=(2, 100, 6)) * 0.1 - 1
    values[:, :, 4], values[:, :, 5] = np.log(0.5), 0.0
    result = arviz().loo(tree_of(break_ties(values.reshape(200, 6)).reshape(values.shape)), pointwise=True)
    pareto_k = np.asarray(result.pareto_k)
    assert (pareto_k[4:] < 0.5).all()
    by_term = np.asarray(getattr(result, "elpd_i", None) if hasattr(result, "elpd_i") else result.loo_i)
    np.testing.assert_allclose(by_term[4:], [np.log(0.5), 0.0], atol=1e-9)


def test_weights_outside_the_tail_are_only_normalised():
    log_weights = np.random.default_rng(0).normal(0.0, 0.5, (3, 400))
    smoothed, pareto_k = smooth_weights(log_weights)
    np.testing.assert_allclose(np.exp(smoothed).sum(-1), 1.0)
    # The largest 3 sqrt(N) are smoothed; the sum hardly changes by that.
    kept = np.argsort(log_weights, -1)[:, :-60]
    exact = log_weights - np.logaddexp.reduce(log_weights, -1, keepdims=True)
    ours, theirs = (np.take_along_axis(x, kept, -1) for x in (smoothed, exact))
    np.testing.assert_allclose(ours, theirs, atol=0.02)
    assert (pareto_k < 0.5).all()
