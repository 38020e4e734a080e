import jax
import numpy as np
from scipy.stats import beta, kstest

from bayes_mdp.random import host_generator
from bayes_mdp.random.host_generator import draw_dirichlet_rows


def test_rows_have_the_marginals_of_a_dirichlet_law():
    """Kolmogorov-Smirnov tests of six marginals at the level 1e-4 each."""
    concentration = np.array([[0.5, 2.0, 0.0, 1.0], [30.0, 1.0, 0.05, 4.0]])
    rows = draw_dirichlet_rows(np.random.default_rng(0), np.broadcast_to(concentration, (4000, 2, 4)))
    np.testing.assert_allclose(rows.sum(-1), 1.0)
    for m, k in np.argwhere(concentration > 0):
        one, others = concentration[m, k], concentration[m].sum() - concentration[m, k]
        assert kstest(rows[:, m, k], beta(one, others).cdf).pvalue > 1e-4
    assert (rows[:, 0, 2] == 0).all()


def test_tiny_concentrations_leave_one_outcome_and_none_leave_zeros():
    rows = draw_dirichlet_rows(np.random.default_rng(0), np.array([[1e-5, 1e-5, 2e-5], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(rows[0].max(), 1.0)
    assert (rows[1] == 0).all()


def test_short_small_rows_are_those_that_are_made_one_by_one(monkeypatch):
    elements, first, small = np.arange(5), np.arange(6) * 2, np.ones(5, bool)
    for concentration in (np.full(10, 0.03), np.random.default_rng(0).gamma(0.1, size=(4, 10))):
        made = []
        for short in (0, 2):
            monkeypatch.setattr(host_generator, "SHORT", short)
            streams = host_generator.ElementStreams(jax.random.key(0), 7, elements)
            made.append(streams.dirichlets(4, concentration, first, small))
        np.testing.assert_array_equal(made[1], made[0])
        np.testing.assert_allclose(made[0].reshape(4, 5, 2).sum(-1), 1.0)
