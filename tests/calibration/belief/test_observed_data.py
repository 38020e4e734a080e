"""What a posterior keeps of its data, against the data themselves."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false, reportOptionalMemberAccess=false

from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from bayes_mdp.calibration.belief.observed_data import data_in_posterior, observe, why_no_kept_data
from bayes_mdp.inference import infer
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec
from tests.calibration.beliefs import sampled, transitions

SPACE = StateActionSpace(2, 2)


def _data(reward: np.ndarray) -> Transitions:
    rng = np.random.default_rng(0)
    state, action, next_state = (rng.integers(0, 2, reward.size) for _ in range(3))
    return Transitions(state, action, reward, next_state)


def test_single_rewards_are_kept_in_order_and_those_without_come_last():
    """A Student-t law has no sums: the posterior keeps each reward. The fifth was not observed."""
    data = transitions()
    rows, cells = data_in_posterior(sampled())
    seen = np.asarray(data.reward_observed)
    order = np.concatenate([np.flatnonzero(seen), np.flatnonzero(~seen)])
    np.testing.assert_array_equal(np.stack(rows.cell), np.stack([data.state, data.action])[:, order])
    np.testing.assert_array_equal(rows.outcome, np.asarray(data.next_state)[order])
    np.testing.assert_array_equal(rows.reward, np.where(seen, data.reward, np.nan)[order])
    given = observe(sampled(), data)[1]
    np.testing.assert_array_equal(cells.transition_counts, given.transition_counts)
    np.testing.assert_allclose(np.stack(cells.rewards), np.stack(given.rewards), atol=1e-12)


def test_data_of_other_weights_are_not_kept_one_by_one():
    posterior = sampled().update(jax.tree.map(lambda x: x[:3], transitions()), weight=0.5)
    assert why_no_kept_data(posterior) == "its transitions have weights that are neither 0 nor 1"
    full = replace(sampled().data_statistics, used=np.asarray(10**6))
    overflown = replace(sampled(), data_statistics=full)
    assert why_no_kept_data(overflown) == "its buffer of rewards has overflowed"


def _affine(space: StateActionSpace) -> MDPSpec:
    with space.plates():
        rows = numpyro.sample("p", dist.Dirichlet(np.ones(2)))
        mean = numpyro.sample("m", dist.Normal(0.0, 1.0))
    return MDPSpec(rows, reward=dist.Normal(1.0 - 3.0 * mean, 0.5))


def _log_normal(space: StateActionSpace) -> MDPSpec:
    with space.plates():
        rows = numpyro.sample("p", dist.Dirichlet(np.ones(2)))
        mean = numpyro.sample("m", dist.Normal(0.0, 1.0))
    return MDPSpec(rows, reward=dist.LogNormal(mean, 0.5))


def test_moments_of_affine_rewards_are_those_of_the_rewards():
    """The closed form keeps the moments of what the rewards are an affine function of."""
    data = _data(np.random.default_rng(1).normal(size=50))
    posterior = infer(jax.random.key(0), _affine, data, space=SPACE)
    (_, own), (_, given) = data_in_posterior(posterior), observe(posterior, data)
    np.testing.assert_allclose(np.stack(own.rewards), np.stack(given.rewards), rtol=1e-9, atol=1e-9)


def test_rewards_whose_moments_are_not_kept():
    """Log-normal rewards: other data are still refused, by what is kept of their logarithms."""
    data = _data(np.random.default_rng(1).gamma(2.0, size=50))
    posterior = infer(jax.random.key(0), _log_normal, data, space=SPACE)
    assert "the moments of LogNormal rewards" in str(why_no_kept_data(posterior))
    observe(posterior, data)
    with pytest.raises(ValueError, match="data has other rewards than those that the posterior was inferred from"):
        observe(posterior, replace(data, reward=np.asarray(data.reward) * 1.1))


def test_before_any_data_nothing_is_missing():
    posterior = infer(jax.random.key(0), _log_normal, None, space=SPACE)
    assert why_no_kept_data(posterior) is None and not data_in_posterior(posterior)[1].transition_counts.any()
