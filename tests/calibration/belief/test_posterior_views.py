# pyright: reportArgumentType=false, reportOptionalSubscript=false, reportCallIssue=false
"""Collapsed and sampled posteriors, and mixtures, as groups: chains, sites, weights, what is left out."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from bayes_mdp.calibration import to_arviz
from bayes_mdp.calibration.arviz.diagnostics import diagnose, predictive_loo
from bayes_mdp.calibration.arviz.export import dataset
from bayes_mdp.calibration.belief.draws import draw, draw_prior
from bayes_mdp.inference import infer, mixture
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import unknown_concentration
from tests.calibration.beliefs import CHAINS, SAMPLES, SPACE, collapsed, sampled, student, transitions


def _names(tree):
    return list(tree.children) if not version("arviz").startswith("0.") else list(tree.groups())


@pytest.fixture(scope="module")
def tree():
    """All groups of a sampled posterior whose reward law has no sufficient statistics."""
    return to_arviz(sampled(), num_draws=40, data=transitions(), log_likelihood="transition")


@pytest.mark.slow
def test_groups_of_a_sampled_posterior(tree):
    assert set(_names(tree)) >= {"posterior", "prior", "sample_stats", "log_likelihood", "posterior_predictive"}
    posterior = tree["posterior"]
    assert dict(posterior.sizes)["chain"] == CHAINS and dict(posterior.sizes)["draw"] == 20
    assert set(posterior.data_vars) == {"transition_probs", "reward_mean", "width", "drift", "transition", "m"}
    assert posterior["m"].dims == ("chain", "draw", "state", "action")
    assert posterior["drift"].dims == ("chain", "draw", "state", "drift_dim_1")
    assert posterior["width"].dims == ("chain", "draw")
    assert set(tree["prior"].data_vars) == set(posterior.data_vars)
    stats = {"diverging", "acceptance_rate", "n_steps", "lp", "energy", "tree_depth"}
    assert set(tree["sample_stats"].data_vars) == stats
    assert int(tree["sample_stats"]["diverging"].sum()) == 2  # draws 0 and 2 of 0, 1, 2 are kept
    assert posterior.attrs["inference_method"] == "nuts" and "weighted_draws" not in posterior.attrs


@pytest.mark.slow
def test_draws_of_a_sampled_posterior_are_its_own(tree):
    posterior = sampled()
    for name in ("width", "m"):
        kept = np.asarray(posterior.sites[name]).reshape(CHAINS, SAMPLES, *posterior.sites[name].shape[1:])[:, ::2]
        np.testing.assert_array_equal(tree["posterior"][name], kept)


@pytest.mark.slow
def test_log_likelihood_of_a_law_without_statistics(tree):
    data, posterior = transitions(), tree["posterior"]
    likelihood = np.asarray(tree["log_likelihood"]["observed_transition"])
    probs = np.asarray(posterior["transition_probs"])[:, :, data.state, data.action, data.next_state]
    reward = stats.t.logpdf(data.reward, 4.0, np.asarray(posterior["m"])[:, :, data.state, data.action])
    np.testing.assert_allclose(likelihood, np.log(probs) + np.where(data.reward_observed, reward, 0.0), rtol=1e-4)


@pytest.mark.slow
def test_prior_draws_are_those_of_the_program(tree):
    """The width is Gamma(2, 1): 40 draws pass a test that has a false-alarm rate of 1e-6."""
    assert stats.kstest(np.ravel(tree["prior"]["width"]), stats.gamma(2.0).cdf).pvalue > 1e-6
    prior = tree["prior"]
    np.testing.assert_allclose(prior["reward_mean"], prior["m"], rtol=1e-6)


def test_weights_are_resampled_and_it_is_said():
    posterior = replace(sampled(), log_weights=np.log(np.arange(1.0, 81.0)))
    group = dataset(posterior, num_draws=40)
    assert dict(group.sizes)["chain"] == 4 and group.attrs["weighted_draws"] == "resampled by weight from 80"
    assert group.attrs["weights_ess"] == pytest.approx(float(posterior.effective_sample_size()), rel=1e-4)


@pytest.mark.slow
def test_what_a_sampled_posterior_cannot_show():
    with pytest.raises(ValueError, match="the rewards of a StudentT law have none, expected the transitions"):
        dataset(sampled(), "log_likelihood", log_likelihood="cell")
    data = transitions()
    other = Transitions(data.state[:-1], data.action[:-1], data.reward[:-1], data.next_state[:-1])
    with pytest.raises(ValueError, match=r"data has .* transitions from state, action, next_state"):
        to_arviz(sampled(), data=other)
    without = replace(sampled(), recipe=replace(sampled().recipe, prior=None))
    with pytest.raises(ValueError, match="group is 'prior', expected another: the posterior was built without a"):
        dataset(without, "prior")
    with pytest.raises(ValueError, match="posterior has no prior to draw from"):
        draw_prior(jax.random.key(0), without, 4)
    assert "prior" not in _names(to_arviz(without, num_draws=4, data=data))


@pytest.mark.slow
def test_leaves_of_a_collapsed_posterior_are_drawn_given_each_parent():
    """The mean of each row over draws: 80 draws, 6.5 standard errors."""
    posterior = collapsed()
    draws = draw(jax.random.key(0), posterior, CHAINS * SAMPLES)
    np.testing.assert_array_equal(draws.run.sites["scale"], posterior.hyperparameters["scale"])
    counts = np.asarray(posterior.data_statistics.transition_probs.counts).reshape(2, 2, 2)
    concentration = counts + np.asarray(posterior.hyperparameters["scale"])[:, None, None, None]
    total = concentration.sum(-1, keepdims=True)
    mean = concentration / total
    sd = np.sqrt(mean * (1 - mean) / (total + 1))
    z = ((draws.transition_probs - mean) / sd).mean(0) * np.sqrt(len(mean))
    assert np.abs(z).max() < 6.5
    rewards = np.asarray(posterior.component(0).reward_cells.mean())
    assert np.abs(draws.rewards.mean.mean(0) - rewards).max() < 0.1


@pytest.mark.slow
def test_groups_of_a_collapsed_posterior_that_was_loaded():
    made = to_arviz(collapsed(), num_draws=40, log_likelihood="cell")
    assert "prior" not in _names(made) and "sample_stats" in _names(made)
    assert set(made["posterior"].data_vars) == {"transition_probs", "reward_mean", "scale"}
    assert dict(made["log_likelihood"].sizes) == {"chain": 2, "draw": 20, "cell": 4}
    loo = predictive_loo(collapsed(), transitions(), num_draws=40)
    assert -150 < loo.elpd < -50


@pytest.mark.slow
def test_a_mixture_before_data_has_its_prior_weights(cases):
    """Weights 1 : 3 a priori, times the evidence; and back."""
    case = cases("normal_gamma")
    with jax.enable_x64(True):
        other = jax.tree.map(np.asarray, replace(case.prior, transition_probs=_doubled(case.prior)).update(case.data))
    pair = [case.posterior, other]
    evidence = np.array([each.log_evidence for each in pair])
    weights = np.array([1.0, 3.0]) * np.exp(evidence - evidence.max())
    prior = mixture(pair, weights=weights).before_data()
    np.testing.assert_allclose(prior.weights, [0.25, 0.75], rtol=1e-5)
    assert not np.any(prior.components.transition_probs.counts)


def _doubled(prior) -> Any:
    rows = prior.transition_probs
    return replace(rows, prior=2 * rows.prior)


def test_sample_stats_where_there_are_chains_only(cases):
    with pytest.raises(ValueError, match="group is 'sample_stats', expected another"):
        dataset(cases("known").posterior, "sample_stats")


def test_diagnosis_in_words(cases):
    exact = diagnose(cases("known").posterior)
    assert not exact.problems and "Nothing to diagnose" in str(exact)
    found = diagnose(collapsed())
    assert found.divergences == 3 and found.problems
    assert found.sites is not None and 0.9 < found.sites.loc["scale", "r_hat"] < 1.2
    assert found.sites.loc["scale", "ess_bulk"] > 20
    assert "3 of 80 draws diverged" in str(found) and "3 divergences" in str(found)
    collapsed_weights = replace(collapsed(), log_weights=np.linspace(0.0, 50.0, 80), mcmc=None)
    assert "call refit(key)" in str(diagnose(collapsed_weights))
    guide = replace(sampled(), mcmc=None)
    assert diagnose(guide).sites is None


def test_diagnosis_of_integrals_in_words():
    """Nodes of a grid are no draws; draws with weights are."""
    space, data = StateActionSpace(2, 1), Transitions([0, 1, 0], [0, 0, 0], [0.0, 1.0, 1.0], [0, 1, 1])
    found = [
        diagnose(infer(jax.random.key(0), unknown_concentration(), data, space=space, method=method))
        for method in ("quadrature", "importance")
    ]
    assert all(not one.problems and one.sites is None for one in found)
    assert str(found[0]).startswith(f"quadrature: {found[0].num_draws} nodes of a grid, no Monte Carlo error")
    assert str(found[1]).startswith(f"importance: {found[1].num_draws} draws, effective sample size of the weights ")
    assert found[0].weights_ess is None and 400 < (found[1].weights_ess or 0) <= 4000


def test_an_improper_prior_is_left_out():
    """ImproperUniform cannot be drawn."""
    from bayes_mdp.inference.draws.methods import NUTS
    from bayes_mdp.inference.sampled.recipe import recipe_for

    def flat(space):
        with space.plates():
            mean = numpyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
            rows = numpyro.sample("transition", dist.Dirichlet(jnp.ones(2)))
        from bayes_mdp.models import MDPSpec

        return MDPSpec(rows, reward=dist.StudentT(4.0, mean, 1.0))

    posterior = replace(sampled(), recipe=recipe_for(flat, SPACE, NUTS()))
    assert sampled().why_no_prior() is None
    assert posterior.why_no_prior() == "the prior is improper: ImproperUniform at 'm' is no distribution to draw from"
    assert student is sampled().recipe.prior
