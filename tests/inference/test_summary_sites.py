"""Latent sites in words, and the table of posteriors that are not in closed form."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.inference.summary import _quantiles, _sites, table
from tests.calibration.beliefs import collapsed, sampled

WIDEST = 100  # of a line of the tables


def test_weighted_quantiles():
    """Weights that are numbers of copies: as if each value were there so often."""
    rng = np.random.default_rng(0)
    values, copies = rng.normal(size=(60, 2)), rng.integers(1, 6, 60)
    low, high = _quantiles(values, copies / copies.sum())
    each = np.repeat(values, copies, axis=0)
    np.testing.assert_allclose(low, np.quantile(each, 0.05, axis=0, method="inverted_cdf"))
    np.testing.assert_allclose(high, np.quantile(each, 0.95, axis=0, method="inverted_cdf"))


def test_a_line_for_each_parent():
    posterior = collapsed()
    section: Any = _sites(posterior.latent_sites())
    assert section.title == "Latent sites (posterior)"
    head, cells = section.parts[0].head, section.parts[0].rows[0]
    assert head == ("site", "mean", "sd", "5 %", "95 %", "ess", "r-hat")
    scale = np.asarray(posterior.hyperparameters["scale"], float)
    np.testing.assert_allclose(float(cells[1]), scale.mean(), rtol=1e-3)
    np.testing.assert_allclose(float(cells[2]), scale.std(), rtol=1e-3)
    chains: Any = posterior.mcmc
    assert list(cells[-2:]) == [f"{chains.ess()['scale']:.0f}", f"{chains.r_hat()['scale']:.3f}"]


def test_large_sites_take_one_line():
    posterior = replace(sampled(), sites={"big": np.random.default_rng(0).normal(size=(80, 3, 4))})
    section: Any = _sites(posterior.latent_sites())
    text = section.text()
    assert "big (3, 4)" in text and " to " in text and len(text.splitlines()) == 3


def test_collapsed_in_words():
    text = str(collapsed())
    assert max(map(len, text.splitlines())) <= WIDEST
    lines = text.splitlines()
    assert lines[0] == "Posterior over 2 states x 2 actions"
    words = " ".join(text.split())
    assert "collapsed (hyperparameters by 2 chains of 40 draws, the rest in closed form)" in words
    assert "effective sample size 80 of 80" in words
    assert "60 transitions, 59 rewards; 4 of 4 pairs, 2 of 2 states" in words
    assert "3 of 80 draws diverged" in words
    worn = replace(collapsed(), log_weights=np.linspace(0.0, 50.0, 80))
    assert "call refit(key)" in " ".join(str(worn).split())


def test_table_of_a_collapsed_posterior_is_by_total_variance():
    """Each component in closed form by scipy, then the laws of total expectation and variance."""
    frame = table(collapsed()).set_index(["state", "action"])
    posterior = collapsed()
    counts = np.asarray(posterior.data_statistics.transition_probs.counts)[0]
    parts = [stats.dirichlet(counts + float(scale)) for scale in posterior.hyperparameters["scale"]]
    means, variances = (np.array([getattr(part, name)() for part in parts]) for name in ("mean", "var"))
    row = frame.loc[("low", "stay")]
    best = means.mean(0).argmax()
    np.testing.assert_allclose(row.likeliest_prob, means.mean(0)[best], rtol=1e-6)
    np.testing.assert_allclose(row.likeliest_sd**2, (variances.mean(0) + means.var(0))[best], rtol=1e-5)
    np.testing.assert_allclose(row.row_sd**2, (variances.mean(0) + means.var(0)).sum(), rtol=1e-5)
    assert row.visits == counts.sum()


@pytest.mark.slow
def test_table_of_a_sampled_posterior_is_that_of_its_draws():
    posterior = replace(sampled(), log_weights=np.log(np.arange(1.0, 81.0)))
    frame = table(posterior).set_index(["state", "action"])
    weights = np.arange(1.0, 81.0) / np.arange(1.0, 81.0).sum()
    reward = np.asarray(posterior.sites["m"], float)[:, 1, 0]
    row = frame.loc[("high", "stay")]
    np.testing.assert_allclose(row.reward_mean, weights @ reward, rtol=1e-4)
    np.testing.assert_allclose(row.reward_sd**2, np.cov(reward, aweights=weights, ddof=0), rtol=1e-4)
    assert frame.prior_share.isna().all()
    assert "nuts (2 chains of 40 draws)" in str(posterior)


@pytest.mark.slow
def test_a_mixture_in_words(cases):
    case = cases("flat")
    both = [case.prior, jax.tree.map(np.asarray, case.prior.update(case.data))]
    text = str(mixture([both[1], both[1]], weights=[1.0, 3.0]))
    assert "mixture of 2 posteriors in closed form" in text
    assert "effective sample size 1.6 of 2" in text


@pytest.mark.parametrize("posterior", [collapsed, sampled])
def test_many_at_once_give_their_repr(posterior):
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), posterior())
    assert str(stacked) == repr(stacked)
