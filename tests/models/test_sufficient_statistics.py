"""Densities on sufficient statistics against the sum of the densities of the single data, to 1e-9 in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from bayes_mdp.mdp import Counts, StateActionSpace, Transitions
from bayes_mdp.models.sufficient_statistics import (
    CategoricalCounts,
    RewardStatistics,
    Statistics,
    check_counts,
    check_rewards,
    fit_counts,
    has_statistics,
)

SPACE = StateActionSpace(3, 2, ends=True)
N = 200


def transitions(reward, rng, **options) -> Any:
    """N random transitions in SPACE."""
    state, action, outcome = (rng.integers(n, size=N) for n in (3, 2, 4))
    return Transitions(state, action, reward, np.where(outcome == 3, state, outcome), outcome == 3, **options)


REWARDS = {
    dist.Normal: lambda rng: rng.normal(1e3, 0.5, N),
    dist.BernoulliProbs: lambda rng: rng.integers(2, size=N) * 1.0,
    dist.BernoulliLogits: lambda rng: rng.integers(2, size=N) * 1.0,
    dist.Poisson: lambda rng: rng.poisson(30.0, N) * 1.0,
}


def law_and_densities(kind, shape, rng):
    """A law with random parameters in every cell, and scipy's log density of one reward in a cell."""
    a, b = rng.normal(size=shape), rng.uniform(0.2, 0.8, shape)
    if kind is dist.Normal:
        return dist.Normal(a + 1e3, b), lambda cell, x: scipy.stats.norm.logpdf(x, a[cell] + 1e3, b[cell])
    if kind is dist.Poisson:
        return dist.Poisson(30 + a), lambda cell, x: scipy.stats.poisson.logpmf(x, 30 + a[cell])
    if kind is dist.BernoulliProbs:
        return dist.BernoulliProbs(b), lambda cell, x: scipy.stats.bernoulli.logpmf(x, b[cell])
    return dist.BernoulliLogits(a), lambda cell, x: scipy.stats.bernoulli.logpmf(x, 1 / (1 + np.exp(-a[cell])))


@pytest.mark.parametrize("by_outcome", [False, True])
@pytest.mark.parametrize("kind", REWARDS)
def test_rewards_have_the_density_of_their_sequence(kind, by_outcome, x64):
    rng = np.random.default_rng(0)
    data = transitions(REWARDS[kind](rng), rng, reward_observed=rng.random(N) < 0.8)
    law, density = law_and_densities(kind, (3, 2, 4) if by_outcome else (3, 2), rng)
    outcome = np.where(data.terminated, 3, data.next_state)
    cell = (data.state, data.action, outcome) if by_outcome else (data.state, data.action)
    expected = np.zeros(law.batch_shape)
    np.add.at(expected, cell, np.where(data.reward_observed, density(cell, data.reward), 0.0))
    statistics = Statistics.of(data, SPACE, kind, by_outcome)
    actual = RewardStatistics(law).log_prob(statistics.reward_value)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_outcomes_have_the_density_of_their_sequence(x64):
    rng = np.random.default_rng(1)
    data, probs = transitions(None, rng), rng.dirichlet(np.ones(4), (3, 2))
    outcome = np.where(data.terminated, 3, data.next_state)
    statistics = Statistics.of(data, SPACE, None, False)
    actual = CategoricalCounts(jnp.asarray(probs)).log_prob(statistics.counts.transitions)
    np.testing.assert_allclose(actual.sum(), np.log(probs[data.state, data.action, outcome]).sum(), rtol=1e-12)
    assert float(statistics.reward_value.sum()) == 0.0


def test_a_zero_that_was_not_seen_costs_nothing_and_passes_the_gradient():
    counts = jnp.array([2.0, 0.0, 1.0])
    value, gradient = jax.value_and_grad(lambda p: CategoricalCounts(p).log_prob(counts))(jnp.array([0.5, 0.0, 0.5]))
    np.testing.assert_allclose(value, 3 * np.log(0.5), rtol=1e-6)
    np.testing.assert_allclose(gradient, [4.0, 0.0, 2.0], rtol=1e-6)
    assert CategoricalCounts(jnp.array([1.0, 0.0, 0.0])).log_prob(counts) == -jnp.inf
    sure = RewardStatistics(dist.BernoulliProbs(jnp.array([0.0, 1.0])))
    value = jnp.array([[3.0, 0.0, 0.0, 0.0], [3.0, 1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(sure.log_prob(value), 0.0)


def test_impossible_rewards_have_density_zero_in_a_trace_and_a_sentence_outside():
    data = Transitions([0, 1], [0, 0], [1.0, 0.5], [1, 1], [False, False])
    for kind, law in ((dist.BernoulliProbs, dist.BernoulliProbs(0.5)), (dist.Poisson, dist.Poisson(2.0))):
        statistics = jax.jit(lambda data, kind=kind: Statistics.of(data, SPACE, kind, False))(data)
        log_density = RewardStatistics(law.expand((3, 2)).base_dist).log_prob(statistics.reward_value)
        assert np.isfinite(log_density[0, 0]) and log_density[1, 0] == -np.inf
    with pytest.raises(
        ValueError, match=r"transitions.reward\[1\] is 0.5, expected 0 or 1 \(the reward law is BernoulliPr"
    ):
        check_rewards(dist.BernoulliProbs, data)
    with pytest.raises(
        ValueError, match=r"transitions.reward\[1\] is 0.5, expected 0, 1, 2, ... \(the reward law is Poi"
    ):
        check_rewards(dist.Poisson, data)
    with pytest.raises(ValueError, match=r"transitions.reward\[0\] is -2.0, expected a number greater than 0 "):
        check_rewards(dist.Gamma, Transitions([0], [0], [-2.0], [1]))
    check_rewards(dist.Normal, data)
    check_rewards(None, data)
    hidden = Transitions([0, 1], [0, 0], [1.0, 0.5], [1, 1], reward_observed=[True, False])
    check_rewards(dist.BernoulliProbs, hidden)


def test_only_bare_families_have_statistics():
    assert has_statistics(dist.Normal) and has_statistics(dist.Poisson(1.0))
    assert not has_statistics(dist.StudentT) and not has_statistics(dist.Normal(0.0, 1.0).mask(False))
    with pytest.raises(TypeError, match="law is a StudentT, expected one of Normal, BernoulliProbs"):
        RewardStatistics(dist.StudentT(3.0))


def test_pooled_outcomes_are_the_statistics_of_the_pairs(x64):
    rng = np.random.default_rng(2)
    data = transitions(rng.normal(1e4, 1.0, N), rng)
    pooled = fit_counts(Counts.of(data, SPACE, by_outcome=True), SPACE, dist.Normal, False)
    direct = Counts.of(data, SPACE)
    for a, b in zip(jax.tree.leaves(pooled), jax.tree.leaves(direct), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def counts_with(**changes):
    """Counts of nothing in SPACE, with some fields replaced."""
    empty: dict[str, Any] = {"transitions": np.zeros((3, 2, 4))} | {
        f"reward_{x}": np.zeros((3, 2)) for x in ("count", "mean", "ss")
    }
    return Counts(**(empty | changes))


@pytest.mark.parametrize(
    ("changes", "law", "sentence"),
    [
        ({"transitions": np.zeros((3, 2, 3))}, None, r"data.transitions has shape \(3, 2, 3\), expected \(3, 2, 4\)"),
        ({"reward_count": np.zeros(3)}, None, r"counts.reward_count has shape \(3,\), expected \(3, 2\)"),
        ({"transitions": np.full((3, 2, 4), -1.0)}, None, r"data.transitions\[0, 0, 0\] is -1.0, expected a finite"),
        (
            {"reward_count": np.ones((3, 2)), "reward_mean": np.full((3, 2), -1.0)},
            dist.Poisson,
            r"data.reward_mean\[0, 0\] is -1.0, expected zero or greater \(the reward law is Poisson\)",
        ),
        (
            {"reward_count": np.ones((3, 2)), "reward_mean": np.full((3, 2), np.nan)},
            None,
            r"data.reward_mean\[0, 0\] is nan, expected a finite number",
        ),
        (
            {"reward_count": np.ones((3, 2)), "reward_ss": np.full((3, 2), -50.0)},
            dist.Normal,
            r"data.reward_ss\[0, 0\] is -50.0, expected a finite number, zero or greater",
        ),
        (
            {"reward_count": np.ones((3, 2)), "reward_mean": np.full((3, 2), 5.0)},
            dist.BernoulliLogits,
            r"data.reward_mean\[0, 0\] is 5.0, expected from 0 to 1 \(a Bernoulli reward law\)",
        ),
        ({"reward_ss": np.zeros(3)}, None, r"counts.reward_ss has shape \(3,\), expected \(3, 2\) \(as reward_count\)"),
        (
            {"reward_count": np.ones((3, 2)), "reward_mean": np.full((3, 2), 0.5)},
            dist.BernoulliProbs,
            r"data.reward_ss\[0, 0\] is 0.0, expected that of rewards that are 0 or 1",
        ),
    ],
)
def test_bad_counts_get_one_sentence(changes, law, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_counts(counts_with(**changes), SPACE, law, by_outcome=False)


def test_counts_of_what_the_space_rules_out_are_refused():
    legal = np.array([[True, True], [True, False], [True, True]])
    seen = np.zeros((3, 2, 4))
    seen[1, 1, 2] = 1
    with pytest.raises(ValueError, match=r"data.transitions\[1, 1, 2\] is 1.0, expected 0 \(an illegal action\)"):
        check_counts(counts_with(transitions=seen), StateActionSpace(3, 2, ends=True, legal=legal), None, False)
    support = np.ones((3, 2, 4), bool)
    support[1, 1, 2] = False
    with pytest.raises(ValueError, match=r"expected 0 \(an outcome outside the known support\)"):
        check_counts(counts_with(transitions=seen), StateActionSpace(3, 2, ends=True, support=support), None, False)


def test_counts_of_zero_one_rewards_pass():
    rng = np.random.default_rng(3)
    data = transitions(rng.integers(2, size=N) * 1.0, rng)
    check_counts(Counts.of(data, SPACE), SPACE, dist.BernoulliProbs, by_outcome=False)


def test_a_cell_without_rewards_may_have_parameters_that_are_no_law():
    """The illegal pairs of a program may hold anything."""
    law = RewardStatistics(dist.Normal(jnp.array([0.0, jnp.nan, jnp.inf]), 1.0, validate_args=False))
    value = jnp.array([[2.0, 0.5, 0.3, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    density = law.log_prob(value)
    assert np.isfinite(density[0]) and density[0] < 0
    np.testing.assert_array_equal(density[1:], 0.0)
