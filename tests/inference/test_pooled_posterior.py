"""`PooledPosterior` and the route to it: closed forms against component by component, weights, files, refusals."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference import Gibbs, fit_for
from bayes_mdp.inference.mixtures import MixturePosterior
from bayes_mdp.inference.pooled_posterior import PooledPosterior
from tests.inference.hospitals import N_ACTIONS, N_STATES, hospital, stays

pytestmark = pytest.mark.numerics

KEY, DRAWS = jax.random.key(0), 6
REWARD = np.zeros((N_STATES, N_ACTIONS)) + np.eye(N_STATES)[4][:, None]
PRIOR = bm.models.partial_pooling(partial(bm.models.known_rewards, REWARD))
FEW = Gibbs(num_warmup=5, num_samples=DRAWS, num_chains=1)
START = np.array([0.5, 0.25, 0.25, 0.0, 0.0])


@pytest.fixture(scope="module")
def fit() -> Any:
    return fit_for(PRIOR, hospital(), FEW)


@pytest.fixture(scope="module")
def posterior(fit) -> PooledPosterior:
    return fit.on_host(KEY, stays(30).transitions)


def test_means_are_those_of_the_components(posterior):
    mean = MixturePosterior.mean_mdp(posterior)
    for name in ("transition_probs", "end_probs", "reward"):
        np.testing.assert_allclose(getattr(posterior.mean_mdp(), name), getattr(mean, name), atol=1e-6)


def test_new_data_move_the_weights_by_their_predictive_density(posterior):
    new = stays(4, seed=1).transitions
    moved = posterior.update(new)
    components = [posterior.component(k) for k in range(DRAWS)]
    gain = np.array([float(c.update(new).log_evidence - c.log_evidence) for c in components])
    np.testing.assert_allclose(np.exp(gain - np.logaddexp.reduce(gain)), moved.weights, rtol=1e-3)
    assert np.asarray(moved.visit_counts()).sum() == np.asarray(posterior.visit_counts()).sum() + len(new.state)


def test_what_is_written_is_read(posterior, tmp_path):
    bm.save(posterior, tmp_path / "p.bmdp")
    loaded: Any = bm.load(tmp_path / "p.bmdp")
    np.testing.assert_array_equal(loaded.state_rows, posterior.state_rows)
    np.testing.assert_array_equal(loaded.sample(KEY).transition_probs, posterior.sample(KEY).transition_probs)
    assert loaded.options == FEW and loaded.prior is None and str(loaded)


@pytest.mark.parametrize(("field", "change"), [("state_rows", lambda x: x[:, 1:]), ("totals", lambda x: x[1:])])
def test_a_file_whose_parts_do_not_fit_is_refused(posterior, tmp_path, field, change):
    """The checksum is right: `save` wrote it."""
    bm.save(eqx.tree_at(lambda p: getattr(p, field), posterior, replace_fn=change), tmp_path / "p.bmdp")
    with pytest.raises(ValueError, match="holds no posterior that bayes-mdp"):
        bm.load(tmp_path / "p.bmdp")


def test_a_policy_is_judged_by_needed_rows_and_by_whole_draws_alike(posterior):
    """`policy_value` draws single rows; the same draws whole, by linear systems of numpy."""
    found = bm.policy_value(KEY, posterior, np.zeros(N_STATES, int), bm.FirstExit(), initial=START, num_draws=8)
    drawn = posterior.sample(KEY, (400,))
    rows = np.asarray(drawn.transition_probs, float)[:, :, 0]
    values = np.linalg.solve(np.eye(N_STATES) - rows, np.broadcast_to(REWARD[:, 0, None], (400, N_STATES, 1)))[..., 0]
    # 8 draws against 400: six standard errors of their difference.
    spread = (values @ START).std() * (1 / 8 + 1 / 400) ** 0.5
    assert abs(found.draws.mean() - (values @ START).mean()) < 6 * spread
    assert found.draws.std() > 0.0 and found.draws.max() <= 1.0 + 1e-9


def test_without_data_it_is_the_prior(fit):
    before = fit.on_host(KEY, None)
    assert before.mcmc is None and np.asarray(before.visit_counts()).sum() == 0
    assert len(set(np.asarray(before.hyperparameters["concentration"]).tolist())) == DRAWS


def test_what_it_does_not_have_is_refused_in_words(posterior, fit):
    for call, message in (
        (lambda: bm.evidence(posterior), "posterior is a PooledPosterior, whose evidence is not estimated"),
        (
            lambda: bm.calibration.prior_sensitivity(posterior),
            "posterior is a PooledPosterior, which keeps no prior density",
        ),
        (lambda: fit.infer(KEY, stays(2).transitions), "partial_pooling is inferred on the host"),
        (lambda: bm.infer(KEY, bm.models.dirichlet_bernoulli(), space=hospital(), method=Gibbs()), "method is Gibbs"),
        (lambda: bm.infer(KEY, PRIOR, space=hospital(), method="nuts"), "method is 'nuts', expected \"auto\""),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_parts_of_transitions_are_refused(fit):
    counts = bm.Counts.of(stays(3).transitions, hospital())
    half = replace(counts, transitions=np.asarray(counts.transitions) / 2)
    with pytest.raises(ValueError, match=r"data has 0.5 transitions of state .*, expected whole numbers"):
        fit.on_host(KEY, half)


def test_rewards_that_are_not_conjugate_are_refused():
    odd = bm.models.partial_pooling(lambda concentration: bm.models.shared_rewards(concentration=concentration))
    with pytest.raises((TypeError, ValueError), match="rewards of partial_pooling have to be conjugate"):
        bm.infer(KEY, odd, stays(3), space=hospital())


def test_a_hyperprior_is_of_its_family():
    wrong: Any = dist.Gamma(1.0, 1.0)
    with pytest.raises(TypeError, match=r"concentration is .*Gamma.*, expected a numpyro.distributions.LogNormal"):
        bm.models.partial_pooling(concentration=wrong)
