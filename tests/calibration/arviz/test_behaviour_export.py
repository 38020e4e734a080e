"""Parameters of persons as InferenceData: the same numbers, and LOO by choice and by person."""

import warnings

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.behaviour import ChoiceLog, fit, log_likelihood
from bayes_mdp.calibration.arviz.export import dataset
from bayes_mdp.calibration.arviz.generation import arviz
from bayes_mdp.inference import SamplingWarning
from tests.behaviour.bandits import MODEL, play


@pytest.fixture(scope="module")
def posterior():
    log = play()
    observed = np.ones((6, 40), bool)
    observed[1, 30:] = False
    columns = (log.state, log.action, log.reward, log.next_state, None, observed)
    ragged = ChoiceLog(*columns, subjects=list("abcdef"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return fit(jax.random.key(1), MODEL, ragged, sampler=bm.inference.NUTS(100, 100, 2))


@pytest.fixture(scope="module")
def tree(posterior):
    return bm.to_arviz(posterior, num_draws=100)


def test_groups_hold_the_draws_and_the_choices(posterior, tree):
    made = tree["posterior"]
    assert dict(made.sizes) == {"chain": 2, "draw": 50, "subject": 6}
    assert {"rate", "rate_group", "rate_mean", "rate_sd", "rate_z", "beta"} <= set(made.data_vars)
    kept = np.linspace(0, 99, 50).round().astype(int)
    np.testing.assert_array_equal(made["rate"].values, posterior.params["rate"][:, kept])
    assert tree["observed_data"]["chosen_action"].sizes == {"choice": 230}
    assert tree["posterior_predictive"]["chosen_action"].shape == (2, 50, 230)
    assert (tree["observed_data"]["choice_subject"].values == "b").sum() == 30
    assert set(made.data_vars) == set(tree["prior"].data_vars)
    assert "diverging" in tree["sample_stats"]


def test_log_likelihood_is_that_of_each_draw(posterior, tree):
    values = tree["log_likelihood"]["chosen_action"]
    one = {name: tree["posterior"][name].values[1, 7] for name in ("rate", "beta")}
    expected = np.asarray(log_likelihood(MODEL, one, posterior.log))[np.asarray(posterior.log.observed)]
    np.testing.assert_allclose(values.values[1, 7], expected, rtol=1e-5)
    assert values.dtype == np.float64


def test_loo_by_choice_and_by_person_are_apart(posterior, tree):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_choice = arviz().loo(tree)
        by_person = arviz().loo(bm.to_arviz(posterior, num_draws=60, log_likelihood="subject"))
    assert np.isfinite([float(x.elpd_loo if hasattr(x, "elpd_loo") else x.elpd) for x in (by_choice, by_person)]).all()
    assert (by_choice.n_data_points, by_person.n_data_points) == (230, 6)


def test_a_single_group_and_wrong_options():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = fit(jax.random.key(1), MODEL, play(10), sampler=bm.inference.NUTS(10, 20, 1), pooling="complete")
    assert "rate" in dataset(posterior, "prior", num_draws=10)
    with pytest.raises(ValueError, match="log_likelihood is 'cell', expected one of choice, subject, none"):
        bm.to_arviz(posterior, log_likelihood="cell")
    with pytest.raises(ValueError, match="group is 'log_likelihood', expected another"):
        dataset(posterior, "log_likelihood", log_likelihood="none", num_draws=10)
    with pytest.raises(ValueError, match="data is given, expected None"):
        bm.to_arviz(posterior, data=bm.Transitions(0, 0, 0.0, 0))
