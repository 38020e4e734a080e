# pyright: reportArgumentType=false
"""A posterior given by draws, against numpy's weighted moments."""

import jax
import numpy as np
import pytest

from bayes_mdp.inference.draws.weighted_samples import CountedSamples, posterior_samples
from bayes_mdp.mdp import MDP, CanCount, CanMean, CanSample, HasVariances, SparseMDP
from bayes_mdp.mdp.abilities import require_ability

pytestmark = pytest.mark.numerics


def _mdps(ends, number=5):
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.ones(4), (number, 3, 2))
    rewards = rng.normal(size=(number, 3, 2))
    if not ends:
        rows = rows[..., :3] / rows[..., :3].sum(-1, keepdims=True)
        return jax.vmap(MDP)(rows, rewards)
    return jax.vmap(lambda p, r, e: MDP(p, r, end_probs=e))(rows[..., :3], rewards, rows[..., 3])


@pytest.mark.parametrize("ends", [False, True])
def test_weighted_moments(x64, ends):
    mdps, weights = _mdps(ends), np.array([1.0, 2.0, 0.0, 4.0, 3.0])
    belief, values, discount = posterior_samples(mdps, weights=weights), np.array([1.0, -2.0, 3.0]), 0.9
    mean = belief.mean_mdp()
    np.testing.assert_allclose(mean.transition_probs, np.average(mdps.transition_probs, 0, weights), rtol=1e-12)
    backups = np.asarray(mdps.reward + discount * mdps.transition_probs @ values)
    for ours, sample in (
        (belief.reward_variance(), np.asarray(mdps.reward)),
        (belief.bellman_variance(values, discount), backups),
    ):
        expected = np.average((sample - np.average(sample, 0, weights)) ** 2, 0, weights)
        np.testing.assert_allclose(ours, expected, rtol=1e-12)
    rows = np.asarray(mdps.transition_probs)
    rows = np.concatenate([rows, np.asarray(mdps.end_probs)[..., None]], -1) if ends else rows
    centre = np.average(rows, 0, weights)
    variance = np.average((rows - centre) ** 2, 0, weights)
    np.testing.assert_allclose(belief.variance_factor("printed"), variance.sum(-1), rtol=1e-12)
    np.testing.assert_allclose(belief.variance_factor("ratio"), (variance / centre).sum(-1), rtol=1e-12)
    with pytest.raises(ValueError, match="form is 'dirichlet'"):
        belief.variance_factor("dirichlet")


def test_what_all_draws_agree_on_has_no_spread_in_float32():
    """A mean of many equal numbers is off by some 1e-5 there, which would pass for uncertainty."""
    mdps = _mdps(False, 4001)
    rows, reward = (np.array(x, np.float32) for x in (mdps.transition_probs, mdps.reward))
    rows[:, 0, 1], reward[:, 1, 1] = [0.2, 0.3, 0.5], 0.7
    belief = posterior_samples(jax.vmap(MDP)(rows, reward))
    assert np.array_equal(np.argwhere(np.asarray(belief.variance_factor("ratio")) == 0), [[0, 1]])
    assert np.array_equal(np.argwhere(np.asarray(belief.reward_variance()) == 0), [[1, 1]])


def test_draws_of_weight_zero_are_never_drawn(x64):
    belief = posterior_samples(_mdps(False), weights=np.array([0.0, 1.0, 0.0, 1.0, 0.0]))
    drawn = belief.sample(jax.random.key(0), (50,))
    first = np.asarray(_mdps(False).reward)[[1, 3], 0, 0]
    assert set(np.asarray(drawn.reward)[:, 0, 0]) == set(first)
    assert belief.sample(jax.random.key(0)).reward.shape == (3, 2)


def test_abilities():
    mdps = _mdps(False)
    plain, counted = posterior_samples(mdps), posterior_samples(mdps, visits=np.ones((3, 2)))
    for ability in (CanSample, CanMean, HasVariances):
        require_ability(plain, ability, "the test")
    assert isinstance(counted, CountedSamples) and isinstance(counted, CanCount)
    with pytest.raises(TypeError, match="UBE needs a posterior that has visit_counts, got a PosteriorSamples without"):
        require_ability(plain, CanCount, "UBE")


def test_sparse_draws_stay_sparse_where_all_list_the_same():
    probability = np.array([[[[0.5, 0.5]], [[1.0, 0.0]]], [[[0.1, 0.9]], [[0.2, 0.8]]]])
    same = np.broadcast_to([[[0, 1]], [[1, 0]]], (2, 2, 1, 2))
    other = np.array([[[[0, 1]], [[1, 0]]], [[[1, 0]], [[0, 1]]]])
    values = np.array([2.0, 5.0])
    for successor, kind in ((same, SparseMDP), (other, MDP)):
        mdps = jax.vmap(SparseMDP)(successor, probability, np.ones((2, 2, 1)))
        belief, dense = posterior_samples(mdps), posterior_samples(jax.vmap(SparseMDP.to_dense)(mdps))
        mean = belief.mean_mdp()
        assert isinstance(mean, kind)
        mean = mean.to_dense() if isinstance(mean, SparseMDP) else mean
        np.testing.assert_allclose(mean.transition_probs, dense.mean_mdp().transition_probs, rtol=1e-6)
        for method in ("bellman_variance", "transition_variance", "row_bound"):
            expected = getattr(dense, method)(values, 0.9)
            np.testing.assert_allclose(getattr(belief, method)(values, 0.9), expected, rtol=1e-5)
        np.testing.assert_allclose(belief.variance_factor("ratio"), dense.variance_factor("ratio"), rtol=1e-5)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (np.ones(4), r"weights has shape \(4,\), expected \(5,\)"),
        (np.array([1, 1, -1, 1, 1.0]), r"weights\[2\] is -1"),
        (np.zeros(5), "weights sum to 0"),
    ],
)
def test_bad_weights_are_refused(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        posterior_samples(_mdps(False), weights=weights)
