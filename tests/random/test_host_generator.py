import jax
import numpy as np
from scipy.stats import beta, gamma, kstest

from bayes_mdp.random.host_generator import LOWEST, ElementStreams, draw_dirichlet_rows, few_gammas


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


def test_few_gammas_have_the_law_of_gamma_variables():
    """Kolmogorov-Smirnov tests at the level 1e-6, 4,000 rows: what is left out is below e^-60.

    200 of concentration .001 add up to one of .2, three of 2 to one of 6. A twin whose concentrations are a third too
    large fails.
    """
    concentration = np.concatenate([[2.0], np.full(100, 1e-3), [2.0], np.full(100, 1e-3), [2.0]])
    large = concentration == 2.0

    def drawn(factor: float) -> np.ndarray:
        generators = np.random.default_rng(0), np.random.default_rng(1)
        return few_gammas(*generators, factor * concentration, (4000, len(concentration)))

    values, twin = drawn(1.0), drawn(4 / 3)
    assert kstest(values[:, large].sum(-1), gamma(6.0).cdf).pvalue > 1e-6
    assert kstest(values[:, ~large].sum(-1), gamma(0.2).cdf).pvalue > 1e-6
    assert kstest(twin[:, ~large].sum(-1), gamma(0.2).cdf).pvalue < 1e-6
    assert kstest(twin[:, large].sum(-1), gamma(6.0).cdf).pvalue < 1e-6
    # About 200 * .001 * 64 of the small ones are drawn at all.
    number = (values[:, ~large] > 0).sum(-1).mean()
    assert abs(number - 200 * -np.expm1(-1e-3 * LOWEST)) < 0.5
    assert (values[:, large] > 0).all()


def test_rows_with_few_gammas_do_not_depend_on_blocks():
    """Concentrations of the second row differ from draw to draw; the third one is drawn as any other."""
    first, flags = np.array([0, 150, 300, 303]), np.array([True, True, False])
    alpha = np.concatenate([[5.0], np.full(149, 1e-3), [1.0], np.full(149, 0.02), [1.0, 2.0, 3.0]])
    alpha = alpha * np.linspace(1.0, 2.0, 6)[:, None] ** (np.arange(303) >= 150)

    def drawn(*blocks: int) -> np.ndarray:
        streams, made, begin = ElementStreams(jax.random.key(0), 1, np.array([4, 7, 9])), [], 0
        for num in blocks:
            made.append(streams.dirichlets(num, alpha[begin : begin + num], first, np.zeros(3, bool), flags))
            begin += num
        return np.concatenate(made)

    whole = drawn(6)
    np.testing.assert_array_equal(whole, drawn(1, 3, 2))
    np.testing.assert_allclose(np.add.reduceat(whole, first[:-1], -1), 1.0)
    assert (whole[:, :150] == 0).mean() > 0.8
    assert (whole[:, 300:] > 0).all()
