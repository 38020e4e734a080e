"""ArviZ's answers through one call on both generations."""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

from bayes_mdp.calibration import predictive_loo, to_arviz
from bayes_mdp.calibration.arviz import diagnostics
from bayes_mdp.calibration.arviz.diagnostics import diagnose, load_draws, save_draws, summary
from bayes_mdp.calibration.arviz.generation import arviz
from bayes_mdp.inference import NUTS, infer
from bayes_mdp.inference.draws.chains import Chains, Scalars
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec, dirichlet_bernoulli
from tests.calibration.beliefs import collapsed, sampled
from tests.flips import NUMBER, refused_flips

SPACE = StateActionSpace(3, 1)
CHAINS, SAMPLES = 4, 500


def under(parents, concentration, discrete=()):
    """A collapsed posterior whose rows have the prior `concentration` [chains, draws], a function of the parents."""
    flat = {name: np.asarray(x).reshape(-1) for name, x in parents.items()}
    values = (np.asarray(concentration, np.float64).reshape(-1, 1), *(np.ones((CHAINS * SAMPLES, 1)) for _ in range(2)))
    nothing: Any = np.zeros(CHAINS * SAMPLES)
    mcmc = Chains(dict(parents), discrete=discrete)
    return replace(collapsed(), values=values, hyperparameters=flat, log_weights=nothing, mcmc=mcmc)


def labels(*probs):
    """Independent draws of a label, each chain with its own probability of 1."""
    return (np.random.default_rng(3).random((CHAINS, SAMPLES)) < np.array(probs)[:, None]).astype(int)


def test_a_discrete_parent_whose_chains_disagree_is_reported():
    """Chain means of .39 to .50: it was called no problem."""
    label = labels(0.36, 0.42, 0.46, 0.52)
    found = diagnose(under({"label": label}, 1.0 + 4.0 * label, ("label",)))
    assert found.problems and "r-hat of site 'label'" in found.problems[0]
    assert "R-hat of site 'label'" in " ".join(str(under({"label": label}, 1.0 + label, ("label",))).split())
    sites: Any = found.sites
    assert sites.loc["label", "r_hat"] > 1.01 and sites.loc["transition_probs", "r_hat"] > 1.005


def test_discrete_parents_alone_that_mix_are_no_problem():
    """All parents are discrete: it crashed. ArviZ on the indicator is the reference."""
    label = labels(0.45, 0.45, 0.45, 0.45)
    found = diagnose(under({"label": label}, 1.0 + 4.0 * label, ("label",)))
    assert not found.problems and found.notes == [] and str(found).endswith("No problem was seen.")
    with pytest.warns(FutureWarning, match="trustworthy is not diagnosis.problems since 0.3"):
        assert found.trustworthy
    sites: Any = found.sites
    assert sites.loc["label", "r_hat"] == pytest.approx(float(arviz().rhat(label.astype(float))))
    assert sites.loc["label", "ess_bulk"] == pytest.approx(float(arviz().ess(label.astype(float))))
    assert sites.loc["transition_probs", ["moved", "elements"]].tolist() == [8, 8]
    assert sites.loc["reward_mean", "moved"] == 0 and np.isnan(sites.loc["reward_mean", "r_hat"])


def test_a_discrete_parent_that_never_moved_is_told():
    label = np.ones((CHAINS, SAMPLES), int)
    posterior = under({"label": label}, label, ("label",))
    found = diagnose(posterior)
    assert "discrete site 'label' did not move" in found.notes[0] and found.problems == []
    assert str(found).endswith("No other problem was seen.")
    assert "Discrete site 'label' did not move" in " ".join(str(posterior).split())
    known = under({"label": label}, label)
    assert diagnose(known).notes == [] and str(diagnose(known)).endswith("No problem was seen.")


def test_rows_that_disagree_under_parents_that_agree_are_reported():
    """The sites have one law in all chains, their product has not: so have the rows."""
    rng = np.random.default_rng(0)
    one, sign = rng.normal(size=(CHAINS, SAMPLES)), np.array([1, 1, -1, -1])[:, None]
    other = sign * one + 0.1 * rng.normal(size=(CHAINS, SAMPLES))
    posterior = under({"one": one, "other": other}, 1.0 + 9.0 * (one * other > 0))
    assert diagnose(posterior).problems[0].startswith("r-hat of transition_probs[")
    assert any("r-hat of transition_probs[" in text for text in posterior.problems())


def test_rows_given_the_parents_are_those_of_the_components():
    label = labels(0.4, 0.4, 0.5, 0.5)
    posterior = under({"label": label}, 1.0 + 4.0 * label, ("label",))
    tables = posterior.derived_tables()
    rows, rewards = tables["transition_probs"], tables["reward_mean"]
    for place in rows.places:
        *pair, outcome = rows.element(int(place))
        expected = [posterior.component(k).mean_mdp().transition_probs[(*pair, outcome)] for k in (0, 1, -1)]
        np.testing.assert_allclose(rows.block(np.array([place])).reshape(-1)[[0, 1, -1]], expected, rtol=1e-5)
    for place in rewards.places:
        expected = posterior.component(3).mean_mdp().reward[rewards.element(int(place))]
        np.testing.assert_allclose(rewards.block(np.array([place]))[0, 3, 0], expected, rtol=1e-5)


def test_of_large_tables_arviz_sees_the_worst(monkeypatch):
    """One element of 300 disagrees, by a little."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(CHAINS, SAMPLES, 300))
    values[0, :, 123] += 0.5
    table = Scalars(np.arange(300), lambda places: values[..., places], lambda place: (place,))
    monkeypatch.setattr(diagnostics, "MOST_ASKED", 4)
    chains = Chains({"x": rng.normal(size=(CHAINS, SAMPLES))})
    row = diagnostics._table_row(chains, table)
    assert row[0] == pytest.approx(float(arviz().rhat(values[..., 123]))) and row[3:] == (300, 300)


def test_the_tables_of_a_sampled_posterior_are_its_draws():
    posterior = sampled()
    tables = posterior.derived_tables()
    place = int(tables["transition_probs"].places[5])
    seen = tables["transition_probs"].block(np.array([place]))[..., 0].ravel()
    np.testing.assert_array_equal(seen, posterior.transition_probs[:, *tables["transition_probs"].element(place)])
    assert replace(posterior, mcmc=None).derived_tables() == {}


def _flags(space):
    """Rows that depend on one discrete parent for each state."""
    with space.plates("state"):
        flag = numpyro.sample("flag", dist.Bernoulli(0.4))
    tilt = 0.2 + 0.6 * flag
    return MDPSpec(jnp.stack([tilt, 1 - tilt], -1), jnp.zeros((2, 1)))


@pytest.mark.slow
def test_a_program_of_discrete_sites_alone():
    """By Metropolised Gibbs, end to end; the labels move freely."""
    data = Transitions(np.array([0, 0, 1, 1]), np.zeros(4, int), np.zeros(4), np.array([0, 1, 0, 1]))
    method = NUTS(num_warmup=50, num_samples=500, num_chains=4)
    posterior = infer(jax.random.key(0), _flags, data, space=StateActionSpace(2, 1), method=method)
    found = diagnose(posterior)
    sites: Any = found.sites
    assert not found.problems and found.notes == [] and sites.loc["flag", "elements"] == 2


@pytest.fixture(scope="module")
def data():
    state = np.arange(120) % 3
    return Transitions(state, np.zeros(120, int), (state == 2).astype(float), (state + 1) % 3)


def posterior(data, concentration):
    return infer(jax.random.key(0), dirichlet_bernoulli(concentration), data, space=SPACE)


def test_summary_of_draws_has_a_row_per_variable():
    draws = xr.Dataset({"v": (("chain", "draw"), np.random.default_rng(0).normal(3.0, 1.0, (2, 500)))})
    assert float(summary(draws).loc["v", "mean"]) == pytest.approx(3.0, abs=0.2)


@pytest.mark.slow
def test_loo_prefers_the_prior_that_predicts_and_matches_the_closed_form(data):
    """Deterministic data: a sparse Dirichlet predicts better; leaving one out has a closed form here."""
    sparse, wide = (posterior(data, c) for c in (0.1, 5.0))
    better, worse = (predictive_loo(p, data, key=jax.random.key(1)) for p in (sparse, wide))
    exact = 120 * (np.log((39 + 5) / (39 + 15)) + np.log(40 / 41))  # transition and Bernoulli reward, Beta(1, 1)
    assert better.elpd > worse.elpd + 10
    assert worse.elpd == pytest.approx(exact, abs=2.0)
    assert 0 <= worse.share_unreliable <= 1
    assert "LOO" in str(worse)


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_loo_is_that_of_arviz_though_transitions_are_repeated():
    rng = np.random.default_rng(0)
    data = Transitions(rng.integers(3, size=40), np.zeros(40, int), rng.integers(2, size=40), rng.integers(3, size=40))
    fitted, key = posterior(data, 0.2), jax.random.key(1)
    found = predictive_loo(fitted, data, key=key, num_draws=100)
    tree = to_arviz(fitted, num_draws=100, key=key, log_likelihood="transition", data=data)
    by_arviz = arviz().loo(tree, pointwise=True, reff=1.0)
    by_row = np.asarray(by_arviz.elpd_i if hasattr(by_arviz, "elpd_i") else by_arviz.loo_i)
    # ArviZ 1.x divides the variance by N - 1, 0.x by N, as here.
    assert (found.elpd, found.se) == pytest.approx((by_row.sum(), np.sqrt(40 * by_row.var())), rel=1e-9)
    assert found.share_unreliable == pytest.approx(float((np.asarray(by_arviz.pareto_k) > 0.7).mean()))


def test_saved_draws_are_read_back(cases, tmp_path):
    tree = to_arviz(cases("known").posterior, num_draws=50)
    save_draws(tree, tmp_path / "draws.nc")
    with xr.open_dataset(tmp_path / "draws.nc", group="posterior", engine="h5netcdf") as back:
        assert np.array_equal(back["transition_probs"], tree["posterior"]["transition_probs"])
    assert [p.name for p in tmp_path.iterdir()] == ["draws.nc"]
    rows = lambda found: found["posterior"]["transition_probs"].to_numpy()  # noqa: E731
    same = lambda found: np.array_equal(rows(found), rows(tree))  # noqa: E731
    assert refused_flips(tmp_path / "draws.nc", lambda: load_draws(tmp_path / "draws.nc"), same) == NUMBER
    tree.to_netcdf(str(tmp_path / "other.nc"), engine="h5netcdf")
    with pytest.raises(ValueError, match="which has no checksum, expected a whole NetCDF file that save wrote"):
        load_draws(tmp_path / "other.nc")
