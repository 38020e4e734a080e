"""Draws, likelihoods and replicates against the closed forms of the posterior.

Every statistical test compares at most 400 numbers with |z| < 6.5: false-alarm rate below 1e-7 at the fixed key. With
N = 4000 draws a mean that is off by 0.11 standard deviations is caught.
"""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.draws import draw
from bayes_mdp.calibration.belief.observed_data import Cells, observe
from bayes_mdp.inference.mixtures import log_predictive
from bayes_mdp.models.sufficient_statistics import log_base_measure

NUM_DRAWS = 4000
Z = 6.5


def _observe(case) -> tuple[Any, Cells]:
    return observe(case.posterior, case.data)


def _assert_mean(samples, expected, floor=1e-9):
    """The mean over the first axis is `expected`, up to `Z` standard errors."""
    error = samples.std(0) / np.sqrt(len(samples)) + floor
    assert np.max(np.abs(samples.mean(0) - expected) / error) < Z


@pytest.fixture(scope="module")
def drawn():
    """Draws by posterior, made once."""
    made = {}

    def get(name, posterior):
        if name not in made:
            made[name] = draw(jax.random.key(11), posterior, NUM_DRAWS)
        return made[name]

    return get


@pytest.mark.some(1)
def test_draws_have_the_moments_of_the_posterior(case, drawn):
    draws = drawn(case.name, case.posterior)
    rows, rewards = case.posterior.transition_probs, case.posterior.reward_cells
    mean, inverse = np.asarray(rows.mean(), float), np.asarray(rows.inverse_total(), float)[..., None]
    np.testing.assert_allclose(draws.transition_probs.sum(-1), 1.0, atol=1e-5)
    _assert_mean(draws.transition_probs, mean, 1e-6)
    _assert_mean((draws.transition_probs - mean) ** 2, mean * (1 - mean) * inverse, 1e-6)
    if draws.rewards.law is not None:
        expected, variance = (np.asarray(x, float) for x in (rewards.mean(), rewards.variance()))
        _assert_mean(draws.rewards.mean, expected, 1e-5)
        _assert_mean((draws.rewards.mean - expected) ** 2, variance, 1e-5)


def test_precision_is_the_gamma_of_the_posterior(cases, drawn):
    case = cases("normal_gamma")
    belief = case.posterior.reward
    concentration, rate = np.asarray(belief.concentration), np.asarray(belief.rate)
    precision = drawn(case.name, case.posterior).variables()["reward_precision"]
    _assert_mean(precision, concentration / rate)
    _assert_mean((precision - concentration / rate) ** 2, concentration / rate**2)


def test_what_is_shared_is_drawn_once_and_what_is_known_stays(cases, drawn):
    case = cases("tied")
    draws = drawn("tied", case.posterior)
    np.testing.assert_array_equal(draws.transition_probs[:, 1:, 0], draws.transition_probs[:, 1:, 1])
    np.testing.assert_array_equal(draws.transition_probs[:, 0], np.broadcast_to([0.25, 0.75, 0.0], (NUM_DRAWS, 2, 3)))
    np.testing.assert_array_equal(draws.rewards.mean[:, :2, 0], draws.rewards.mean[:, :2, 1])
    assert (draws.rewards.mean[:, 2, 1] == -7.0).all()


@pytest.mark.few(1)
def test_mean_likelihood_over_the_prior_is_the_predictive_density(case):
    draws = draw(jax.random.key(3), case.prior, NUM_DRAWS)
    rows, _ = _observe(case)
    likelihood = np.exp(predictive.log_likelihood_rows(draws, rows))
    with jax.enable_x64(True):
        expected = np.exp(np.asarray(log_predictive(case.prior, case.data)))
    _assert_mean(likelihood, expected, 1e-6)


@pytest.mark.some(2)
def test_a_cell_is_the_sum_of_its_transitions(case, drawn):
    draws = drawn(case.name, case.posterior)
    law = None if draws.rewards.law is None else jax.tree.map(lambda x: x[:50], draws.rewards.law)
    rewards = draws.rewards._replace(law=law, mean=draws.rewards.mean[:50])
    draws = draws._replace(transition_probs=draws.transition_probs[:50], rewards=rewards)
    rows, cells = _observe(case)
    each = predictive.log_likelihood_rows(draws, rows)
    if draws.rewards.law is not None:
        # Sums do not hold the base measures (log r! of Poisson rewards).
        owed = np.isfinite(rows.reward) & ~rewards.known[rows.reward_cell(rewards.by_outcome)]
        with jax.enable_x64(True):
            base = np.asarray(log_base_measure(type(rewards.law), np.nan_to_num(rows.reward)))
        each = each - np.where(owed, base, 0.0)
    whole = predictive.log_likelihood_cells(draws, cells)
    for number, index in enumerate(zip(*cells.pairs_with_data, strict=True)):
        mine = np.all([i == j for i, j in zip(rows.cell, index, strict=True)], axis=0)
        np.testing.assert_allclose(whole[:, number], each[:, mine].sum(-1), rtol=1e-9)


def test_the_posterior_s_own_sums_are_those_of_the_data(cases):
    for name in ("normal_gamma", "by_outcome", "horizon", "known"):
        case = cases(name)
        (_, own), (_, given) = observe(case.posterior, None), observe(case.posterior, case.data)
        np.testing.assert_array_equal(own.transition_counts, given.transition_counts)
        if name != "known":
            np.testing.assert_allclose(np.stack(own.rewards), np.stack(given.rewards), rtol=1e-5, atol=1e-5)


@pytest.mark.some(2)
def test_replicates_of_cells_keep_the_visits_and_have_the_predictive_means(case, drawn):
    draws = drawn(case.name, case.posterior)
    _, cells = _observe(case)
    made = predictive.replicate_cells(np.random.default_rng(5), draws, cells)
    visits = cells.transition_counts.sum(-1)
    np.testing.assert_array_equal(
        made["transition_counts"].sum(-1), np.broadcast_to(visits, (NUM_DRAWS, *visits.shape))
    )
    _assert_mean(
        made["transition_counts"].astype(float), visits[..., None] * np.asarray(case.posterior.transition_probs.mean())
    )
    if draws.rewards.law is not None:
        expected = cells.rewards.count * np.asarray(case.posterior.reward_cells.mean())
        _assert_mean(made["reward_total"].astype(float), expected, 1e-5)


def test_replicates_of_transitions_have_the_predictive_moments(case, drawn):
    draws = drawn(case.name, case.posterior)
    rows, _ = _observe(case)
    made = predictive.replicate_rows(np.random.default_rng(6), draws, rows)
    outcomes = np.arange(case.space.n_outcomes)
    mean = np.asarray(case.posterior.transition_probs.mean())[rows.cell]
    _assert_mean((made["observed_next_state"][..., None] == outcomes).astype(float), mean, 1e-5)
    if draws.rewards.law is None:
        assert "observed_reward" not in made
        return
    where = rows.reward_cell(draws.rewards.by_outcome)
    _assert_mean(made["observed_reward"].astype(float), np.asarray(case.posterior.reward_cells.mean())[where], 1e-4)
    if case.name == "normal_gamma":
        belief = SimpleNamespace(**{k: np.asarray(v)[where] for k, v in vars(case.posterior.reward).items()})
        student = belief.rate * (belief.pseudo_count + 1) / (belief.pseudo_count * (belief.concentration - 1))
        _assert_mean((made["observed_reward"] - belief.loc) ** 2.0, student)


def test_an_outcome_of_probability_zero_is_never_drawn():
    probs = np.array([[[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    drawn = predictive._categorical(np.random.default_rng(0), probs, np.tile([0, 1], 500))
    assert (drawn[0, ::2] == 1).all() and set(drawn[0, 1::2]) == {0, 2}
    assert (drawn[1, ::2] == 0).all() and (drawn[1, 1::2] == 2).all()


@pytest.mark.some(2)
def test_before_data_is_the_prior(case):
    with jax.enable_x64(True):
        listed = case.posterior.listed(np.zeros((*case.space.shape, 1), int))
        for posterior in (case.posterior, listed):
            for ours, theirs in zip(
                jax.tree.leaves(posterior.before_data().transition_probs),
                jax.tree.leaves(case.prior.transition_probs),
                strict=True,
            ):
                np.testing.assert_array_equal(ours, theirs)
