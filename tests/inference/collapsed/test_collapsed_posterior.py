"""A mixture of conjugate posteriors under draws of their parents: what it does, and that its weights are exact."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate
from scipy.special import gammaln
from scipy.stats import halfnorm

import bayes_mdp as bm
from bayes_mdp.inference.collapsed import collapsed_posterior as collapsed
from bayes_mdp.inference.collapsed.collapse import Grouped, find_classes, grouped, log_evidence
from bayes_mdp.inference.collapsed.hierarchy import prove_hierarchy
from bayes_mdp.inference.detection.trace import trace_program
from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.models import MDPSpec
from bayes_mdp.random.resampling import systematic
from tests.inference.hierarchies import SPACE, clusters, shared_rewards, sticky


def some_transitions(seed, num=40):
    rng = np.random.default_rng(seed)
    state, action, following = rng.integers(3, size=num), rng.integers(2, size=num), rng.integers(3, size=num)
    following = np.where(rng.random(num) < 0.5, state, following)
    return bm.Transitions(state, action, rng.normal(size=num), following)


@pytest.fixture(scope="module")
def prior_draws():
    """Sixty-four draws from the sticky prior, before any data."""
    posterior = bm.infer(jax.random.key(0), sticky, None, space=SPACE)
    assert isinstance(posterior, bm.inference.CollapsedPosterior)
    return posterior.thinned(jax.random.key(1), 64, moves=0)


update = jax.jit(lambda posterior, transitions, weight: posterior.update(transitions, weight))


def test_the_prior_as_a_posterior():
    posterior = bm.infer(jax.random.key(0), sticky, None, space=SPACE)
    assert isinstance(posterior, bm.inference.CollapsedPosterior)
    assert posterior.method == "quadrature" and posterior.mcmc is None
    assert posterior.hyperparameters["stickiness"].shape == (2000,)
    assert not posterior.independent_rows and not posterior.rewards_by_outcome


@pytest.mark.usefixtures("x64")
def test_weights_are_the_evidence_of_the_data(prior_draws):
    """Against log-gamma functions written out: Dirichlet-multinomial rows, weights alone (rewards are the same)."""
    data = some_transitions(0)
    posterior = update(prior_draws, data, 1.0)
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (data.state, data.action, data.next_state), 1)
    expected = []
    for stickiness in np.asarray(prior_draws.hyperparameters["stickiness"], np.float64):
        a = np.broadcast_to(0.5 + stickiness * np.eye(3)[:, None], counts.shape)
        rows = gammaln(a.sum(-1)) - gammaln((a + counts).sum(-1)) + (gammaln(a + counts) - gammaln(a)).sum(-1)
        expected.append(rows.sum())
    expected = np.array(expected)
    ours = np.asarray(posterior.log_weights)
    np.testing.assert_allclose(ours - ours.max(), expected - expected.max(), atol=1e-5)


def test_one_by_one_is_a_block_is_row_by_row(prior_draws, monkeypatch):
    data = some_transitions(1, 6)
    block = update(prior_draws, data, 1.0)
    one = prior_draws
    for i in range(6):
        one = update(one, jax.tree.map(lambda x, i=i: x[i], data), 1.0)
    np.testing.assert_allclose(one.weights, block.weights, rtol=2e-4)
    monkeypatch.setattr(collapsed, "DENSE", 0)
    rows = jax.jit(lambda posterior: posterior.update(data))(prior_draws)
    np.testing.assert_allclose(rows.weights, block.weights, rtol=2e-4)
    np.testing.assert_allclose(
        rows.data_statistics.transition_probs.counts, block.data_statistics.transition_probs.counts
    )


def test_a_weight_of_zero_masks(prior_draws):
    data = some_transitions(2, 6)
    masked = update(prior_draws, data, jnp.zeros(6))
    np.testing.assert_array_equal(masked.weights, prior_draws.weights)
    assert masked.visit_counts().sum() == 0


@pytest.mark.slow
def test_nothing_moves_where_nothing_was_learnt(prior_draws):
    """Masked transitions neither resample worn components nor move them; others do."""
    worn = replace(prior_draws, moves=1, share=2.0)
    masked, learnt = (update(worn, some_transitions(2, 6), weight * jnp.ones(6)) for weight in (0.0, 1.0))
    for old, new in zip(jax.tree.leaves(worn), jax.tree.leaves(masked), strict=True):
        np.testing.assert_array_equal(new, jnp.asarray(old))
    assert np.all(learnt.log_weights == 0)
    assert np.mean(learnt.hyperparameters["stickiness"] != prior_draws.hyperparameters["stickiness"]) > 0.5


@pytest.mark.slow
def test_total_variance_by_hand(prior_draws):
    posterior = update(prior_draws, some_transitions(3, 6), 1.0)
    values, weights = jnp.array([1.0, -2.0, 0.5]), np.asarray(posterior.weights)
    means, within = [], []
    for k in range(64):
        component = posterior.component(k)
        mdp = component.mean_mdp()
        means.append(np.asarray(mdp.reward + 0.9 * mdp.transition_probs @ values))
        within.append(np.asarray(component.bellman_variance(values, 0.9)))
    mean = np.tensordot(weights, means, 1)
    expected = np.tensordot(weights, within, 1) + np.tensordot(weights, (np.array(means) - mean) ** 2, 1)
    np.testing.assert_allclose(posterior.bellman_variance(values, 0.9), expected, rtol=1e-4)


def test_effective_sample_size_asks_for_a_refit(prior_draws):
    assert float(prior_draws.effective_sample_size()) == pytest.approx(64) and not prior_draws.needs_refit()
    worn = update(prior_draws, some_transitions(4), 1.0)
    size = float(1 / np.sum(np.asarray(worn.weights) ** 2))
    assert float(worn.effective_sample_size()) == pytest.approx(size, rel=1e-4)
    assert bool(worn.needs_refit()) == (size < 32)


def test_a_loaded_posterior_cannot_be_refitted(prior_draws):
    with pytest.raises(ValueError, match="was loaded and has no program"):
        replace(prior_draws, hierarchy=None).refit(jax.random.key(0))


def test_impossible_data_are_refused(prior_draws):
    with pytest.raises(ValueError, match="transitions"):
        prior_draws.update(bm.Transitions(7, 0, 0.0, 0))


def test_systematic_resampling_is_within_one_of_its_expectation():
    weights = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(50)))
    counts = np.bincount(systematic(jax.random.key(0), weights, 200), minlength=50)
    assert np.all(np.abs(counts - 200 * np.asarray(weights)) < 1)
    assert set(np.asarray(systematic(jax.random.key(1), jnp.array([0.0, 0.5, 0.0, 0.5, 0.0]), 200))) == {1, 3}


def sticky_moments(data):
    """Posterior mean and sd of the stickiness by quadrature."""
    counts = np.zeros((3, 2, 3))
    np.add.at(counts, (data.state, data.action, data.next_state), 1)

    def density(x, power):
        a = np.broadcast_to(0.5 + x * np.eye(3)[:, None], counts.shape)
        rows = gammaln(a.sum(-1)) - gammaln((a + counts).sum(-1)) + (gammaln(a + counts) - gammaln(a)).sum(-1)
        return x**power * np.exp(rows.sum() + 45.0) * halfnorm.pdf(x, scale=5.0)

    total, first, second = (integrate.quad(density, 0, 60, args=(k,), limit=200)[0] for k in range(3))
    return first / total, np.sqrt(second / total - (first / total) ** 2)


@pytest.mark.slow
def test_rejuvenated_draws_follow_the_posterior(prior_draws):
    """From prior draws to the posterior inside a compiled loop, four blocks of ten transitions.

    40 runs of 64 draws: the mean of their means within 6 standard errors (estimated over runs; false alarm 1e-8 for
    normal means, 39 degrees of freedom: 5e-7) of quadrature; a shift of the posterior by half its sd is seen. Without
    moves the same test fails: the draws have collapsed.
    """
    data = some_transitions(5)
    blocks = jax.tree.map(lambda x: x.reshape(4, 10), data)

    def run(key, moves):
        start = replace(prior_draws.thinned(key, 64, moves=moves), share=0.9)
        return jax.lax.scan(lambda p, block: (p.update(block), None), jax.tree.map(jnp.asarray, start), blocks)[0]

    final = jax.jit(jax.vmap(lambda key: run(key, 6)))(jax.random.split(jax.random.key(2), 40))
    draws, weights = np.asarray(final.hyperparameters["stickiness"]), np.asarray(jax.nn.softmax(final.log_weights))
    means = (weights * draws).sum(-1)
    mean, sd = sticky_moments(data)
    error = means.std(ddof=1) / np.sqrt(40)
    assert abs(means.mean() - mean) < 6.5 * error < 0.5 * sd
    spread = np.sqrt((weights * (draws - means[:, None]) ** 2).sum(-1)).mean()
    assert 0.8 * sd < spread < 1.2 * sd
    assert np.mean([len(np.unique(row)) for row in draws]) > 32  # alive: not copies of a few


@pytest.mark.usefixtures("x64")
def test_entries_that_are_always_equal_share_a_class():
    classes = find_classes(prove_hierarchy(trace_program(sticky, bm.StateActionSpace(50, 2))))
    assert [len(first) for first in classes.first] == [2, 1, 1, 1, 1]


def rarely_different(space):
    """Concentrations that are one number but where a parent is beyond 3.9 standard deviations."""
    level = jnp.asarray(numpyro.sample("level", dist.Normal(0.0, 1.0)))
    with space.plates():
        rows = jnp.where(level > 3.9, 1.0 + jnp.arange(space.n_outcomes), 1.0)
        return MDPSpec(numpyro.sample("transition", dist.Dirichlet(rows)), jnp.zeros(()))


@pytest.mark.usefixtures("x64")
def test_entries_that_are_equal_at_most_values_do_not():
    """No draw of the prior would tell them apart: the data flow does."""
    classes = find_classes(prove_hierarchy(trace_program(rarely_different, bm.StateActionSpace(50, 2))))
    assert len(classes.first[0]) == 50


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_grouped_counts_weigh_what_all_counts_weigh():
    hierarchy = prove_hierarchy(trace_program(sticky, bm.StateActionSpace(50, 2)))
    rng = np.random.default_rng(0)
    state, action, following = (rng.integers(n, size=3000) for n in (50, 2, 50))
    data = bm.Transitions(state, action, rng.normal(size=3000), following)
    seen = collapsed.forgotten(hierarchy.prior).update(data)
    classes = find_classes(hierarchy)
    few = grouped(jax.tree.map(np.asarray, seen), classes)
    assert isinstance(few, Grouped) and len(few.count) == 64
    value = {"stickiness": jnp.asarray(1.7)}
    np.testing.assert_allclose(log_evidence(hierarchy, value, few), log_evidence(hierarchy, value, seen), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [sticky, shared_rewards, clusters])
def test_refit_is_a_new_run_of_the_same_shapes(prior):
    # The rewards of `clusters` are known to be zero.
    data = replace(some_transitions(6), reward=None) if prior is clusters else some_transitions(6)
    posterior: Any = bm.infer(jax.random.key(0), prior, data, space=SPACE, method="collapsed")
    posterior = replace(posterior.thinned(jax.random.key(1), 32), options=NUTS(100, 64, 1))
    again = posterior.refit(jax.random.key(2))
    assert jax.tree.structure(again) == jax.tree.structure(posterior)
    assert [x.shape for x in jax.tree.leaves(again)] == [np.shape(x) for x in jax.tree.leaves(posterior)]
    assert any(
        np.any(np.asarray(again.hyperparameters[name]) != posterior.hyperparameters[name])
        for name in again.hyperparameters
    )


@pytest.mark.slow
def test_a_refit_on_the_host_stays_in_float64():
    posterior: Any = bm.infer(jax.random.key(0), sticky, None, space=SPACE, method="collapsed")
    again = replace(posterior, options=NUTS(100, 64, 1)).refit(jax.random.key(2))
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(again))
    assert [x.dtype for x in jax.tree.leaves(again)] == [x.dtype for x in jax.tree.leaves(posterior)]
