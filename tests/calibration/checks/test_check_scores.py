"""Numbers of a check against plain loops and exact expectations."""

import numpy as np
import pytest

from bayes_mdp.calibration.checks.checking import (
    Simulated,
    brier,
    coverage,
    energy_scores,
    numbers,
    posterior_moments,
    reliability,
)
from bayes_mdp.calibration.simulation_based.ecdf import p_value

N, L, K = 40, 19, 3


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


def ranks(truth, draws):
    return (draws < truth[:, None]).sum(1)


def test_coverage_counts_truths_between_the_order_statistics(rng):
    truth, draws = rng.normal(size=(N, K)), 0.8 * rng.normal(size=(N, L, K))
    level, covered = coverage(ranks(truth, draws), L)
    ordered = np.sort(draws, axis=1)
    for nominal, of_quantity in zip(level, covered.T, strict=True):
        j = round((1 - nominal) * (L + 1) / 2)
        assert nominal == pytest.approx(1 - 2 * j / (L + 1))
        inside = (truth > ordered[:, j - 1]) & (truth < ordered[:, L - j])
        np.testing.assert_allclose(of_quantity, inside.mean(0))
    assert level.min() <= 0.1 and level.max() >= 0.9


def test_uniform_ranks_are_covered_exactly_as_often_as_the_levels_say():
    every = np.arange(L + 1)[:, None]
    level, covered = coverage(every, L)
    np.testing.assert_allclose(covered[0], level, atol=1e-12)


def test_moments_are_those_of_each_posterior(rng):
    truth, draws = rng.normal(size=(N, K)), rng.normal(2.0, 0.5, size=(N, L, K))
    truth[:, 2] = 1.5
    draws[:, :, 2] = 1.5
    moments = posterior_moments(truth, draws)
    for n in range(0, N, 7):
        sd = np.sqrt(((draws[n, :, 0] - draws[n, :, 0].mean()) ** 2).sum() / (L - 1))
        assert moments.z_score[n, 0] == pytest.approx((truth[n, 0] - draws[n, :, 0].sum() / L) / sd)
        assert moments.contraction[n, 0] == pytest.approx(1 - sd**2 / np.var(truth[:, 0], ddof=1))
    assert np.isnan(moments.z_score[:, 2]).all() and np.isnan(moments.contraction[:, 2]).all()


def test_energy_score_is_its_definition(rng):
    truth, draws = rng.normal(size=(N, K)) * [1.0, 10.0, 0.1], rng.normal(size=(N, L, K)) * [1.0, 10.0, 0.1]
    score, of_draws, rank = energy_scores(rng, truth, draws)
    scale = np.vstack([truth, draws.reshape(-1, K)]).std(0)

    def energy(x, others):
        near = np.mean([np.linalg.norm((x - y) / scale) for y in others])
        return near - np.mean([[np.linalg.norm((y - z) / scale) for y in others] for z in others]) / 2

    for n in (0, 5):
        assert score[n] == pytest.approx(energy(truth[n], draws[n]))
        everyone = np.vstack([truth[n], draws[n]])
        own = [energy(everyone[i], np.delete(everyone, i, 0)) for i in range(1, L + 1)]
        assert of_draws[n] == pytest.approx(np.mean(own))
        assert rank[n] == np.sum(np.array(own) < score[n])


def test_ranks_of_the_joint_score_see_a_dependence_that_ranks_one_by_one_do_not(rng):
    """Draws of the right margins and correlation 0 in place of .9, in 3 quantities: p < 1e-6 from 400 simulations.

    The right draws: p > 1e-6, a false alarm once in 1e6.
    """
    num = 400
    root = np.linalg.cholesky(0.9 * np.ones((K, K)) + 0.1 * np.eye(K))
    truth = rng.normal(size=(num, K)) @ root.T
    right, wrong = rng.normal(size=(num, L, K)) @ root.T, rng.normal(size=(num, L, K))
    assert p_value(energy_scores(rng, truth, right)[2], L) > 1e-6
    assert p_value(energy_scores(rng, truth, wrong)[2], L) < 1e-6
    assert min(p_value(r, L) for r in ranks(truth, wrong).T) > 1e-6


def test_brier_score_is_that_of_the_truth_against_every_draw_in_its_place(rng):
    happened, event = (rng.random((N, L, 4)) < 0.3).astype(float), (rng.random((N, 4)) < 0.3).astype(float)
    answer = brier(happened, event)
    assert answer.score == pytest.approx(((happened.mean(1) - event) ** 2).mean())
    scores = np.zeros((N, L + 1))
    for n in range(N):
        everyone = np.vstack([event[n], happened[n]])
        for i in range(L + 1):
            scores[n, i] = np.mean((np.delete(everyone, i, 0).mean(0) - everyone[i]) ** 2)
    assert answer.expected == pytest.approx(scores.mean())
    sd = np.sqrt(scores.var(1).sum())
    assert answer.z == pytest.approx((scores[:, 0].sum() - scores.mean(1).sum()) / sd)


def test_brier_p_value_is_a_bound_on_the_exact_one():
    """Three simulations of four members each: all 64 choices of the truths, and the tail that each one is in."""
    rng = np.random.default_rng(3)
    everyone = (rng.random((3, 4, 2)) < 0.5).astype(float)
    choices = list(np.ndindex(4, 4, 4))
    answers = []
    for chosen in choices:
        event = everyone[np.arange(3), chosen]
        happened = np.stack([np.delete(x, i, 0) for x, i in zip(everyone, chosen, strict=True)])
        answers.append(brier(happened, event))
    z = np.array([answer.z for answer in answers])
    assert z.mean() == pytest.approx(0.0, abs=1e-12) and z.var() == pytest.approx(1.0)
    for answer in answers:
        tail = np.mean(z >= answer.z - 1e-9) if answer.z > 0 else np.mean(z <= answer.z + 1e-9)
        assert answer.p_value >= tail - 1e-9
    assert min(answer.p_value for answer in answers) < 0.3


def test_rare_events_are_no_alarm_and_overconfident_forecasts_are(rng):
    """Events of probability .002, which mostly nowhere come true: p > 1e-6, a false alarm once in 1e6 at most.

    Broken twin: forecasts of .02 for events of .5 in 40 simulations.
    """
    happened, event = (rng.random((2000, L, 1)) < 0.002).astype(float), (rng.random((2000, 1)) < 0.002).astype(float)
    assert brier(happened, event).p_value > 1e-6
    sure = brier((rng.random((N, L, 1)) < 0.02).astype(float), (rng.random((N, 1)) < 0.5).astype(float))
    assert sure.p_value < 1e-6 and sure.z > 0
    assert brier(np.ones((N, L, 2)), np.ones((N, 2))).p_value == 1.0


def test_reliability_bins_by_one_half_and_averages_the_other(rng):
    happened = (rng.random((N, L, 2)) < rng.random((N, 1, 2))).astype(float)
    event = (rng.random((N, 2)) < 0.5).astype(float)
    answer = reliability(happened, event)
    even, odd = happened[:, 0::2].mean(1), happened[:, 1::2].mean(1)
    pairs = [
        (a, b, e) for by, of in ((even, odd), (odd, even)) for a, b, e in zip(by.flat, of.flat, event.flat, strict=True)
    ]
    for b in range(10):
        members = [(of, e) for by, of, e in pairs if min(int(by * 10), 9) == b]
        assert answer.count[b] == len(members) // 2
        if members:
            assert answer.forecast[b] == pytest.approx(np.mean([m[0] for m in members]))
            assert answer.frequency[b] == pytest.approx(np.mean([m[1] for m in members]))


def simulated(truth, draws):
    names = [f"q{k}" for k in range(truth.shape[1])]
    return Simulated(
        names, truth, draws, ranks(truth, draws), (), np.zeros((len(truth), 0)), np.zeros((len(truth), L, 0))
    )


def test_what_does_not_vary_is_left_out_and_what_is_not_finite_is_refused(rng):
    truth, draws = rng.normal(size=(N, 2)), rng.normal(size=(N, L, 2))
    truth[:, 1], draws[..., 1] = 3.0, 3.0
    found = numbers(rng, simulated(truth, draws))
    assert found["varies"].values.tolist() == [True, False]
    assert "joint_rank" not in found
    with pytest.raises(ValueError, match="none differs between truths"):
        numbers(rng, simulated(truth[:, 1:], draws[..., 1:]))
    draws[3, 0, 0] = np.inf
    with pytest.raises(ValueError, match="q0 is not finite"):
        numbers(rng, simulated(truth, draws))
