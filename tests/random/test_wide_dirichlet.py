import jax
import numpy as np
from scipy.stats import beta, kstest

from bayes_mdp.random.host_generator import draw_dirichlet_rows
from bayes_mdp.random.wide_dirichlet import WideRows, suits_jumps

WIDTH, FIRST = 150, np.array([0, 150, 300, 450])
"""Three rows: with two outcomes that were seen, without any, and one whose concentrations differ."""
COUNTS = np.zeros(450)
COUNTS[[3, 7, 400]] = 2.0, 1.5, 4.0
UNEVEN = np.repeat([0.0, 9e-3, 3e-3], 50)
PRIORS = np.full(450, 4e-3), np.full(450, 0.5)
for prior in PRIORS:
    prior[300:] = UNEVEN


def wide_rows(seed: int = 0) -> WideRows:
    return WideRows(jax.random.key(seed), 16, np.array([4, 7, 9]), FIRST, COUNTS, lambda k: PRIORS[k])


def test_rows_have_the_law_of_dirichlet_rows():
    """Kolmogorov-Smirnov tests of sums over outcomes, 4,000 rows, at the level 1e-6.

    Component 1 makes more jumps than there are outcomes. A law whose concentrations are a third too large fails.
    """
    component = np.resize([0, 1], 8000)
    rows = wide_rows().draw(component)
    np.testing.assert_allclose(np.add.reduceat(rows, FIRST[:-1], -1), 1.0)
    rejected = []
    for k, prior in enumerate(PRIORS):
        for n in range(3):
            alpha, drawn = (prior + COUNTS)[FIRST[n] : FIRST[n + 1]], rows[component == k, FIRST[n] : FIRST[n + 1]]
            for chosen in (np.arange(5), np.arange(40, 90), np.arange(0, 150, 2)):
                one, others = alpha[chosen].sum(), np.delete(alpha, chosen).sum()
                if one == 0:
                    continue
                values, law = drawn[:, chosen].sum(-1), beta(one, others)
                # What is as good as zero, or as one, is of no law that a test could tell.
                if max(law.cdf(1e-9), law.sf(1 - 1e-9)) < 0.01:
                    assert kstest(values, law.cdf).pvalue > 1e-6
                    rejected.append(kstest(values, beta(4 / 3 * one, 4 / 3 * others).cdf).pvalue < 1e-6)
                np.testing.assert_allclose(values.mean(), law.mean(), atol=5 * law.std() / 4000**0.5)
                np.testing.assert_allclose(values.std(), law.std(), rtol=0.1)
    assert np.mean(rejected) > 0.8


def test_rows_agree_with_those_that_are_drawn_outcome_by_outcome():
    """Sums of squares, which tell how few outcomes are likely, of 2,000 rows by either way."""
    alpha = (PRIORS[0] + COUNTS).reshape(3, WIDTH)
    plain = draw_dirichlet_rows(np.random.default_rng(0), np.broadcast_to(alpha, (2000, 3, WIDTH)))
    wide = wide_rows().draw(np.zeros(2000, int)).reshape(2000, 3, WIDTH)
    squares, errors = [], []
    for rows in (plain, wide):
        squares.append((rows**2).sum(-1).mean(0))
        errors.append((rows**2).sum(-1).std(0) / 2000**0.5)
    np.testing.assert_array_less(np.abs(squares[0] - squares[1]), 4 * np.hypot(*errors))
    # Impossible outcomes stay so; of 150 of concentration .004 about 15 have a jump.
    assert (wide[:, 2, UNEVEN == 0] == 0).all()
    assert 13 < (wide[:, 1] > 0).sum(-1).mean() < 17


def test_rows_do_not_depend_on_blocks_or_on_other_rows():
    component = np.array([0, 1, 1, 0, 0, 1])
    whole, parts = wide_rows().draw(component), wide_rows()
    np.testing.assert_array_equal(
        whole, np.concatenate([parts.draw(component[a:b]) for a, b in ((0, 1), (1, 4), (4, 6))])
    )
    alone = WideRows(jax.random.key(0), 16, np.array([7]), FIRST[:2], COUNTS[150:300], lambda k: PRIORS[k][150:300])
    np.testing.assert_array_equal(whole[:, 150:300], alone.draw(component))
    assert (whole != wide_rows(1).draw(component)).any()


def test_without_any_jump_all_rows_are_drawn_outcome_by_outcome():
    prior = np.full(450, 0.5)
    rows = WideRows(jax.random.key(0), 16, np.array([4, 7, 9]), FIRST, COUNTS, lambda _: prior).draw(
        np.zeros(2000, int)
    )
    np.testing.assert_allclose(np.add.reduceat(rows, FIRST[:-1], -1), 1.0)
    assert (rows > 0).all()
    mean = ((prior + COUNTS).reshape(3, WIDTH) / (75 + COUNTS.reshape(3, WIDTH).sum(-1, keepdims=True))).ravel()
    np.testing.assert_array_less(np.abs(rows.mean(0) - mean), 6.5 * rows.std(0) / 2000**0.5)


def test_rows_of_few_outcomes_many_likely_ones_or_small_weights_are_drawn_otherwise():
    counts = np.zeros((5, 2))
    counts[3:, 0] = 0.5, 3.0
    suits = suits_jumps(np.array([100, 150, 150, 150, 150]), np.array([0.1, 9.0, 0.1, 0.1, 0.1]), counts)
    assert suits.tolist() == [False, False, True, False, True]
