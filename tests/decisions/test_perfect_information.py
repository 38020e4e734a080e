# pyright: reportArgumentType=false
"""Value of perfect information, against closed forms of bandits and numpy on the same draws."""

import jax
import numpy as np
import pytest
from scipy import integrate, stats

from bayes_mdp.decisions.perfect_information import expected_regret, validity_of
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, StateActionSpace
from bayes_mdp.mdp.validity import Validity
from tests.inference.policy_problems import ACTIONS, START, posterior

pytestmark = pytest.mark.numerics


def bandit(belief):
    """One state; two arms."""
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 1))
    return conjugate_posterior(rows, reward_cells(belief, (1, 2)), StateActionSpace(1, 2))


def _close(answer, expected, scale=1.0):
    """|z| <= 6: false alarm below 1e-8."""
    return abs(answer.value - expected * scale) < 6 * answer.standard_error


@pytest.mark.slow
def test_a_two_armed_gaussian_bandit_in_closed_form(key):
    """E max(m1, m2) - max(E m1, E m2) = s (phi(d / s) - d / s Phi(-d / s)), d the difference, s its sd. Catches 4 %."""
    loc, scale = np.array([0.3, 0.0]), np.array([0.5, 1.2])
    d, s = loc[0] - loc[1], np.hypot(*scale)
    expected = s * (stats.norm.pdf(d / s) - d / s * stats.norm.cdf(-d / s))
    belief = bandit(NormalBelief(loc, scale, np.ones(2)))
    answer = expected_regret(key, belief, Discounted(0.9), num_draws=20_000)
    assert _close(answer, expected, 10.0)
    assert not _close(answer, expected, 9.0), "the broken twin: another discount"
    assert answer.validity.kind == "exact", "the unknown rewards are met again, and yet: the value is linear in them"
    assert (answer.draws >= -answer.gap).all() and (answer.draws > 0).any()
    low, high = answer.interval
    np.testing.assert_allclose(
        [high - low, low + high], [2 * 1.96 * answer.standard_error, 2 * answer.value], rtol=1e-4
    )
    np.testing.assert_allclose(answer.value_with_information - answer.in_use.mean, answer.value, rtol=1e-9)
    gain = expected_regret(key, belief, AverageReward(), num_draws=2000)
    assert _close(gain, expected)


@pytest.mark.slow
def test_a_bernoulli_bandit_by_quadrature(key):
    belief = bandit(BetaBelief(np.array([2.0, 1.0]), np.array([3.0, 1.0])))
    tail = lambda x: 1 - stats.beta.cdf(x, 2, 3) * stats.beta.cdf(x, 1, 1)  # noqa: E731
    expected = integrate.quad(tail, 0, 1)[0] - 0.5
    answer = expected_regret(key, belief, Episodic(4), num_draws=10_000)
    assert _close(answer, expected, 4.0) and answer.validity.kind == "exact"
    worse = expected_regret(key, belief, Episodic(4), policy=np.zeros(1, int), num_draws=10_000)
    assert _close(worse, expected + 0.1, 4.0) and worse.validity.kind == "upper bound"
    assert "upper bound: it is measured from the policy given" in str(worse)


@pytest.mark.slow
def test_the_same_draws_in_numpy(key):
    """Discounted, one policy, all policies enumerated in each draw."""
    belief, number = posterior(), 40
    answer = expected_regret(key, belief, Discounted(0.9), policy=ACTIONS, initial=START, num_draws=number)
    with jax.enable_x64(True):
        mdps = jax.vmap(belief.sample)(jax.random.split(key, number))
        rows, reward = np.asarray(mdps.transition_probs), np.asarray(mdps.reward)

    def value(n, policy):
        pick = np.arange(4), np.asarray(policy)
        return START @ np.linalg.solve(np.eye(4) - 0.9 * rows[n][pick], reward[n][pick])

    # The optimal policy is optimal from every state: the best value from START is the largest over all policies.
    grid = [[(i >> s) & 1 for s in range(4)] for i in range(16)]
    expected = [max(value(n, policy) for policy in grid) - value(n, ACTIONS) for n in range(number)]
    np.testing.assert_allclose(answer.draws, expected, atol=1e-9)
    assert (answer.draws >= -answer.gap).all() and answer.gap < 1e-9
    assert "upper bound" in str(answer) and "start: the given distribution over 3 of 4 states" in str(answer)


def _chain(horizon=None, loop=False):
    """From 0 to 1 or 2, which are absorbing and known; with `loop` also back to 0."""
    space = StateActionSpace(3, 2, horizon=horizon, states=("start", "good", "bad"))
    known = np.zeros((3, 2, 3))
    known[1, :, 1] = known[2, :, 2] = 1.0
    row = np.full((3, 2), -1)
    row[0] = [0, 1]
    column = np.full((3, 2, 3), -1)
    column[0] = [0, 1, 2] if loop else [-1, 0, 1]
    rows = dirichlet_rows(np.ones((2, 3 if loop else 2)), (3, 2, 3), row=row, column=column, known=known)
    return conjugate_posterior(rows, known_rewards([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), space)


@pytest.mark.slow
def test_validity_says_whether_greedy_is_the_best_fixed_policy(key):
    """Arms with Beta(1, 1) probabilities of the good state: E max - max E = 2/3 - 1/2."""
    exact = expected_regret(key, _chain(), Discounted(0.5), initial=np.array([1.0, 0, 0]), num_draws=4000)
    assert exact.validity.kind == "exact" and _close(exact, 1 / 6)


def test_validity_names_what_is_in_the_way():
    cyclic = validity_of(_chain(loop=True), True)
    assert cyclic.kind == "upper bound"
    assert "can come back to states whose transition probabilities are not known (start -> start)" in cyclic.reason
    assert "need not be the largest of all fixed policies" in cyclic.reason
    several = validity_of(mixture([_chain(), _chain()], weights=[1, 1]), True)
    assert several.kind == "upper bound" and "rows of a mixture" in several.reason
    rows = _chain().transition_probs
    row = np.where(np.asarray(rows.row) < 0, -1, 0)
    tied = dirichlet_rows(np.asarray(rows.prior)[:1], rows.shape, row=row, column=rows.column, known=rows.known)
    tied = conjugate_posterior(tied, _chain().reward_cells, _chain().space)
    assert validity_of(tied, True) == Validity("upper bound", validity_of(tied, True).reason)
    assert "rows are not independent" in validity_of(tied, True).reason


def test_a_posterior_without_a_mean_needs_a_policy(key):
    class OnlySamples:
        def sample(self, key, sample_shape=()):
            return posterior().sample(key, sample_shape)

    with pytest.raises(TypeError, match="greedy needs a posterior that has mean_mdp"):
        expected_regret(key, OnlySamples(), Discounted(0.9))
    answer = expected_regret(key, OnlySamples(), Discounted(0.9), policy=ACTIONS, num_draws=4)
    assert answer.validity.kind == "upper bound"
