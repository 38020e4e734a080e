"""Laws of sites against SciPy, and studies of them against simulation by other means."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from bayes_mdp.decisions.strategies.site_law import StudiedSite, compositions, site_law

pytestmark = pytest.mark.numerics
LAWS = {
    "Beta": (site_law("Beta", {"concentration1": 2.0, "concentration0": 5.0}, ()), stats.beta(2, 5)),
    "Beta U": (site_law("Beta", {"concentration1": 0.3, "concentration0": 0.4}, ()), stats.beta(0.3, 0.4)),
    "Gamma": (site_law("Gamma", {"concentration": 2.5, "rate": 4.0}, ()), stats.gamma(2.5, scale=0.25)),
    "Normal": (site_law("Normal", {"loc": 1.0, "scale": 2.0}, ()), stats.norm(1, 2)),
    "LogNormal": (site_law("LogNormal", {"loc": 0.5, "scale": 0.3}, ()), stats.lognorm(0.3, scale=np.exp(0.5))),
    "Uniform": (site_law("Uniform", {"low": -1.0, "high": 3.0}, ()), stats.uniform(-1, 4)),
}


@pytest.mark.parametrize("name", list(LAWS))
def test_quantiles_means_and_partial_moments(name):
    law, peer = LAWS[name]
    u = np.linspace(0.01, 0.99, 23)
    np.testing.assert_allclose(law.quantiles(u[:, None]), peer.ppf(u), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(law.mean(), peer.mean(), rtol=1e-12)
    upper = peer.ppf([0.1, 0.5, 0.9])
    below, moment = law.partial_moments(upper)
    np.testing.assert_allclose(below, peer.cdf(upper), rtol=1e-9)
    wanted = [integrate.quad(peer.ppf, 0, peer.cdf(x), limit=200)[0] for x in upper]
    np.testing.assert_allclose(moment, wanted, rtol=1e-5, atol=1e-7)
    ends = law.partial_moments(np.array([-np.inf, np.inf]))
    np.testing.assert_allclose(ends, [[0, 1], [0, law.mean()]], atol=1e-12)


@pytest.mark.parametrize("name", list(LAWS))
def test_draws_have_the_law(name):
    law, peer = LAWS[name]
    draws = law.sample(np.random.default_rng(0), 20_000)
    assert stats.kstest(draws, peer.cdf).pvalue > 1e-6  # false alarm 1e-6


def dirichlet(*concentration):
    return site_law("Dirichlet", {"concentration": np.array(concentration)}, np.shape(concentration))


@pytest.mark.parametrize("how", ["sample", "quantiles"])
def test_dirichlet_rows(how):
    law, rng = dirichlet([0.5, 2.0, 3.5], [1e-3, 4.0, 1.0]), np.random.default_rng(1)
    draws = law.sample(rng, 40_000) if how == "sample" else law.quantiles(rng.random((40_000, 6)))
    np.testing.assert_allclose(draws.sum(-1), 1)
    p = law.mean()
    total = law.parameters["concentration"].sum(-1, keepdims=True)
    sd = np.sqrt(p * (1 - p) / (total + 1))
    assert np.all(np.abs(draws.mean(0) - p) < 5.5 * sd / 200)  # false alarm below 1e-6
    np.testing.assert_allclose(draws.var(0)[p > 0.01], sd[p > 0.01] ** 2, rtol=0.05)
    # Rows, and both marginals of a row, are beta.
    for row, k in ((0, 0), (1, 1)):
        marginal = stats.beta(
            law.parameters["concentration"][row, k],
            total[row, 0] - law.parameters["concentration"][row, k],
        )
        assert stats.kstest(draws[:, row, k], marginal.cdf).pvalue > 1e-6


def test_tiny_concentrations_stay_rows():
    rows = dirichlet([1e-4, 1e-4, 2e-4]).quantiles(np.random.default_rng(0).random((20_000, 3)))
    np.testing.assert_allclose(rows.sum(-1), 1)
    shares = (rows > 0.5).mean(0)
    assert np.all(np.abs(shares - [0.25, 0.25, 0.5]) < 5.5 * 0.5 / np.sqrt(20_000))


def test_multivariate_normal():
    tril = np.linalg.cholesky(np.array([[2.0, 0.5], [0.5, 1.0]]))
    law = site_law("MultivariateNormal", {"loc": np.array([1.0, -1.0]), "scale_tril": tril}, (2,))
    draws = law.sample(np.random.default_rng(0), 100_000)
    np.testing.assert_allclose(draws.mean(0), [1, -1], atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), tril @ tril.T, atol=0.04)


STUDIES = {
    "Beta": StudiedSite(LAWS["Beta"][0], np.array(7.0)),
    "Gamma": StudiedSite(LAWS["Gamma"][0], np.array(3.5)),
    "Dirichlet": StudiedSite(dirichlet(1.0, 2.0, 0.5), np.array(4.0)),
    "Normal": StudiedSite(LAWS["Normal"][0], np.array(3.0), 1.5),
}


@pytest.mark.parametrize("name", list(STUDIES))
def test_posterior_means_are_a_martingale(name):
    studied = STUDIES[name]
    after = studied.simulate_law(np.random.default_rng(0).random((50_000, studied.n_uniforms))).mean()
    error = after.std(0) / np.sqrt(len(after))
    assert np.all(np.abs(after.mean(0) - studied.law.mean()) < 5.5 * error)


@pytest.mark.parametrize("name", ["Beta", "Gamma", "Dirichlet"])
def test_enumerated_data_sets_are_those_that_are_simulated(name):
    studied = STUDIES[name]
    found = studied.enumerate_laws(10_000)
    assert found is not None
    after, chances = found
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    simulated = studied.simulate_law(np.random.default_rng(2).random((60_000, studied.n_uniforms))).mean()
    first, exact = (x.reshape(len(x), -1)[:, 0] for x in (simulated, after.mean()))
    for value in np.unique(np.round(exact, 12))[:6]:
        share, wanted = np.isclose(first, value).mean(), chances[np.isclose(exact, value)].sum()
        assert abs(share - wanted) < 5.5 * np.sqrt(max(wanted * (1 - wanted), 1e-4) / len(first))
    assert studied.enumerate_laws(2) is None


def test_a_normal_study_by_its_mean_law():
    law = STUDIES["Normal"].mean_law()
    assert law is not None
    simulated = STUDIES["Normal"].simulate_law(np.random.default_rng(0).random((20_000, 1))).mean()
    assert stats.kstest(simulated, stats.norm(law.parameters["loc"], law.parameters["scale"]).cdf).pvalue > 1e-6


def test_no_observations_change_nothing():
    for studied in STUDIES.values():
        none = StudiedSite(studied.law, np.zeros_like(studied.number), studied.sd)
        after = none.simulate_law(np.random.default_rng(0).random((5, none.n_uniforms))).mean()
        np.testing.assert_allclose(after, np.broadcast_to(studied.law.mean(), after.shape), rtol=1e-9)


def test_compositions():
    rows = compositions(4, 3)
    assert len(rows) == special.comb(6, 2) == len(np.unique(rows, axis=0))
    assert np.all(rows.sum(1) == 4) and rows.min() == 0


def test_no_data_for_other_families():
    with pytest.raises(ValueError, match="no data update a Uniform site"):
        LAWS["Uniform"][0].update({})
