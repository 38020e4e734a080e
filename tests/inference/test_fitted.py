# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportIndexIssue=false
# pyright: reportOptionalSubscript=false, reportOptionalMemberAccess=false, reportIncompatibleMethodOverride=false
"""A posterior class of one's own: what it says of itself serves values, decisions, checks, ArviZ and print."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference.fitted import Fitted, Law
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.models.mdp_spec import RewardTable

DISCOUNT = 0.9
OBJECTIVE = bm.Discounted(DISCOUNT)
DATA = bm.Transitions([0, 1, 1, 0], [0, 1, 0, 1], [1.0, 0.0, 1.0, 0.0], [1, 0, 1, 0])
CELLS = (np.asarray(DATA.state), np.asarray(DATA.action))


class TwoWorlds(Fitted):
    """Which of two known worlds it is.

    Args:
        rows: [2 S A S], pays: [2 S A], probabilities of a reward of one; visits: [S A].
    """

    space: Any
    rows: Any
    pays: Any
    log_weights: Any
    visits: Any
    method: str = eqx.field(static=True, default="two worlds")
    independent_rows: bool = eqx.field(static=True, default=False)
    shared_parameters: str = eqx.field(static=True, default="all rows are of one world")

    def law_at(self, key, k):
        return Law(jnp.asarray(self.rows)[k], RewardTable(dist.BernoulliProbs(jnp.asarray(self.pays)[k]), None, False))

    def visit_counts(self):
        return self.visits

    def mean(self, values):
        return jnp.tensordot(jax.nn.softmax(jnp.asarray(self.log_weights)), jnp.asarray(values), 1)

    def mean_mdp(self):
        return self.space.mdp(self.mean(self.rows), self.mean(self.pays))

    def reward_variance(self):
        return self.bellman_variance(jnp.zeros(self.space.n_states), 0.0)

    def bellman_variance(self, values, discount):
        backup = self.pays + discount * self.rows @ values
        return self.mean(backup**2) - self.mean(backup) ** 2

    def effective_sample_size(self):
        return 1 / jnp.sum(jax.nn.softmax(jnp.asarray(self.log_weights)) ** 2)

    def check(self, transitions, weight=1.0):
        check_transitions(transitions, self.space)

    def update(self, transitions, weight=1.0):
        s, a, o, r = map(
            jnp.atleast_1d, (transitions.state, transitions.action, transitions.next_state, transitions.reward)
        )
        weight = jnp.broadcast_to(jnp.asarray(weight, float), s.shape)
        density = jnp.log(self.rows[:, s, a, o]) + dist.BernoulliProbs(self.pays[:, s, a]).log_prob(r)
        visits = jnp.asarray(self.visits).at[s, a].add(weight)
        return replace(self, log_weights=self.log_weights + (weight * density).sum(-1), visits=visits)


@pytest.fixture(scope="module")
def worlds():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(2), (2, 2, 2)), rng.uniform(0.3, 0.7, (2, 2, 2))


@pytest.fixture(scope="module")
def posterior(worlds):
    space = bm.StateActionSpace(2, 2)
    prior = TwoWorlds(space, *map(jnp.asarray, worlds), jnp.zeros(2), jnp.zeros((2, 2)))
    return prior.update(DATA)


@pytest.fixture(scope="module")
def weights(worlds):
    """Bayes' rule in NumPy."""
    rows, pays = worlds
    reward = np.asarray(DATA.reward)
    density = rows[:, *CELLS, np.asarray(DATA.next_state)] * np.where(reward == 1, pays[:, *CELLS], 1 - pays[:, *CELLS])
    likelihood = density.prod(-1)
    return likelihood / likelihood.sum()


def test_it_is_a_posterior_and_is_shown(posterior):
    assert isinstance(posterior, bm.mdp.Posterior)
    text = str(posterior)
    assert "two worlds" in text and "4 transitions, 4 rewards" in text and "all rows are of one world" in text


def test_moments_of_its_draws(posterior, worlds, weights):
    """Of the 1000 draws behind the table, within four standard errors."""
    rows, _ = worlds
    moments = posterior.pair_moments()
    mean = np.tensordot(weights, rows, 1)
    sd = np.sqrt(np.tensordot(weights, rows**2, 1) - mean**2)
    np.testing.assert_array_less(np.abs(moments.probs - mean), 4 * sd / np.sqrt(1000) + 1e-6)


def test_values_and_decisions(posterior, worlds, weights):
    """Against both worlds solved by NumPy."""
    policy = np.array([0, 1])
    values = []
    for rows, pays in zip(*worlds, strict=True):
        follows, paid = rows[np.arange(2), policy], pays[np.arange(2), policy]
        values.append(np.linalg.solve(np.eye(2) - DISCOUNT * follows, paid).mean())
    value = bm.policy_value(jax.random.key(0), posterior, policy, OBJECTIVE)
    np.testing.assert_allclose(np.unique(value.draws), np.sort(values), rtol=1e-5)
    share = float(np.isclose(value.draws, values[0], rtol=1e-5).mean())
    assert abs(share - weights[0]) < 4 * np.sqrt(weights[0] * weights[1] / len(value.draws))
    mean = [np.tensordot(weights, x, 1) for x in worlds]
    q = np.zeros((2, 2))
    for _ in range(400):
        q = mean[1] + DISCOUNT * mean[0] @ q.max(-1)
    np.testing.assert_array_equal(bm.greedy(posterior, OBJECTIVE), q.argmax(-1))


def test_its_draws_in_arviz(posterior, worlds, weights):
    rows, pays = worlds
    tree = bm.to_arviz(posterior, num_draws=400, data=DATA)
    drawn = tree["posterior"]["transition_probs"].to_numpy().reshape(-1, 2, 2, 2)
    world = np.abs(drawn[:, None] - rows).max((2, 3, 4)).argmin(-1)
    np.testing.assert_allclose(drawn, rows[world], atol=1e-6)
    # Drawn by weight, systematically: off by one draw at most.
    np.testing.assert_allclose((world == 0).sum(), 400 * weights[0], atol=1.0)
    density = stats.bernoulli(pays[world][:, *CELLS]).logpmf(np.asarray(DATA.reward).astype(int))
    density += np.log(rows[world][:, *CELLS, np.asarray(DATA.next_state)])
    found = tree["log_likelihood"]["observed_transition"].to_numpy().reshape(400, -1)
    np.testing.assert_allclose(found, density, atol=1e-4)


def test_other_data_are_refused(posterior):
    with pytest.raises(ValueError, match="that the posterior was inferred from"):
        bm.to_arviz(posterior, num_draws=4, data=bm.Transitions([0], [0], [1.0], [1]))


def test_checks(posterior):
    check = bm.calibration.predictive_check(posterior, DATA, num_draws=100)
    assert "100 replicates of 4 transitions" in str(check) and not check.surprises
    assert "two worlds: 2 draws" in str(bm.calibration.diagnose(posterior))


def test_what_it_has_not_is_said(posterior):
    with pytest.raises(ValueError, match="no prior to draw from"):
        bm.calibration.predictive_check(posterior, DATA, group="prior")
    with pytest.raises(ValueError, match="no program"):
        bm.evidence(posterior)
