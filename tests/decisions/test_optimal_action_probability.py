# pyright: reportArgumentType=false
"""Probabilities of being optimal, against quadrature, numpy on the same draws, and Thompson sampling's frequencies."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bayes_mdp as bm
from bayes_mdp.agents import PSRL
from bayes_mdp.decisions import policy_evaluation as judge
from bayes_mdp.decisions.perfect_information import probability_optimal, share_among_best
from bayes_mdp.inference import mixture
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, Problem, StateActionSpace
from tests.inference.policy_problems import ISLANDS, OnlySamples, posterior

pytestmark = pytest.mark.numerics

LOC, SCALE = np.array([0.3, 0.0, -0.5]), np.array([0.4, 1.0, 1.5])


def bandit(loc=LOC, scale=SCALE, legal=None):
    """One state, arms of Gaussian mean reward."""
    arms = len(loc)
    space = StateActionSpace(1, arms, actions=tuple("abcdef"[:arms]), legal=legal)
    rows = dirichlet_rows(np.ones((arms, 1)), (1, arms, 1))
    rewards = reward_cells(NormalBelief(np.array(loc), np.array(scale), np.ones(arms)), (1, arms))
    return conjugate_posterior(rows, rewards, space)


def arm_probability(arm):
    """P(this arm has the largest mean), by quadrature."""

    def density(x):
        others = [stats.norm.cdf(x, LOC[k], SCALE[k]) for k in range(3) if k != arm]
        return stats.norm.pdf(x, LOC[arm], SCALE[arm]) * np.prod(others)

    return integrate.quad(density, -12, 12, limit=200)[0]


def test_a_gaussian_bandit_by_quadrature(key):
    """False alarm: |z| > 6 in three shares, below 1e-8. Catches 2 % of a probability."""
    answer = probability_optimal(key, bandit(), Discounted(0.9), num_draws=20_000)
    expected = np.array([arm_probability(k) for k in range(3)])
    np.testing.assert_allclose(expected.sum(), 1.0, rtol=1e-8)
    error = np.sqrt(expected * (1 - expected) / 20_000)
    assert (np.abs(answer.sel(state=0).values - expected) < 6 * error).all()
    assert (np.abs(np.ones(3) / 3 - expected) > 6 * error).any(), "the broken twin must be caught"
    np.testing.assert_allclose(answer.attrs["monte_carlo_error"], error.max(), rtol=0.05)
    assert answer.attrs["num_draws"] == 20_000 and answer.attrs["objective"] == "discount 0.9"
    assert list(answer.action.values) == ["a", "b", "c"] and answer.dims == ("state", "action")


def test_thompson_sampling_takes_actions_with_these_probabilities(key):
    """PSRL's greedy actions over 4000 plans. False alarm: |z| > 6 in 8 shares, below 1e-7. Catches 0.07 of a share.

    Rewards belong to states: which action is best is a matter of the unknown rows.
    """
    objective, number = Discounted(0.9), 4000
    narrow, wide = (posterior(dtype=dtype) for dtype in (np.float32, np.float64))
    belief, exact = (eqx.tree_at(lambda b: b.reward, b, b.reward[:, :1].repeat(2, 1)) for b in (narrow, wide))
    problem = Problem(StateActionSpace(4, 2), objective)
    agent = PSRL(1)

    def act(k):
        plan, _ = agent.plan(k, problem, agent.init(k, problem), belief)
        return jax.vmap(lambda s: plan.act(k, s, 0))(jnp.arange(4))

    taken = np.asarray(jax.jit(jax.vmap(act))(jax.random.split(key, number)))
    share = np.stack([(taken == a).mean(0) for a in range(2)], -1)
    ours = probability_optimal(jax.random.fold_in(key, 1), exact, objective, num_draws=number)
    assert ours.values.min() > 0.005, "nothing is decided beforehand"
    assert (np.abs(share - ours) < 6 * np.sqrt(2 * ours * (1 - ours) / number)).all()


@pytest.mark.slow
def test_episodes_are_the_numpy_recursion_on_the_same_draws(key, monkeypatch):
    """Steps, ends, chunks that do not divide the number of draws, a posterior that only samples."""
    belief, number, horizon = posterior(ends=True), 50, 3
    ours = probability_optimal(key, OnlySamples(belief), Episodic(horizon), num_draws=number)
    with jax.enable_x64(True):
        mdps = jax.vmap(belief.sample)(jax.random.split(key, number))
        rows, reward = np.asarray(mdps.transition_probs), np.asarray(mdps.reward)
    v, expected = np.zeros((number, 4)), np.zeros((horizon, 4, 2))
    for h in reversed(range(horizon)):
        q = reward + np.einsum("nsaz,nz->nsa", rows, v)
        v = q.max(-1)
        expected[h] = (q == v[..., None]).mean(0)
    np.testing.assert_allclose(ours.values, expected, atol=1e-12)
    assert ours.dims == ("step", "state", "action") and list(ours.step.values) == [0, 1, 2]
    monkeypatch.setattr(judge, "NUMBERS_AT_ONCE", 7 * 48)
    again = probability_optimal(key, belief, Episodic(horizon), num_draws=number)
    np.testing.assert_allclose(again.values, ours.values, atol=1e-12)


def test_ties_are_shared_and_illegal_actions_never_optimal():
    q = jnp.array([[[1.0, 1.0, 0.0]], [[2.0, -jnp.inf, 1.0]]])
    np.testing.assert_allclose(share_among_best(q), [[[0.5, 0.5, 0]], [[1, 0, 0]]])
    legal = np.array([[True, False, True]])
    space = StateActionSpace(1, 3, legal=legal)
    belief = conjugate_posterior(dirichlet_rows(np.ones((3, 1)), (1, 3, 1)), known_rewards(np.ones((1, 3))), space)
    answer = probability_optimal(jax.random.key(0), belief, Discounted(0.5), num_draws=5)
    np.testing.assert_allclose(answer.values, [[0.5, 0.0, 0.5]], atol=1e-12)
    assert answer.attrs["monte_carlo_error"] == 0.0


@pytest.mark.slow
def test_draws_and_mixtures_and_the_average_reward(key):
    """Both arms are best in one of two sampled MDPs, by weight."""
    mdps = MDP(np.ones((2, 1, 2, 1)), np.array([[[0.0, 1.0]], [[1.0, 0.0]]]))
    belief = bm.inference.posterior_samples(mdps, weights=[0.25, 0.75])
    share = probability_optimal(key, belief, AverageReward(), num_draws=4000)
    assert abs(float(share[0, 0]) - 0.75) < 6 * np.sqrt(0.75 * 0.25 / 4000)
    worlds = mixture([bandit([0.0, 9.0], [0.1, 0.1]), bandit([9.0, 0.0], [0.1, 0.1])], weights=[0.25, 0.75])
    share = probability_optimal(key, worlds, Discounted(0.5), num_draws=4000)
    assert abs(float(share[0, 0]) - 0.75) < 6 * np.sqrt(0.75 * 0.25 / 4000)


def test_what_cannot_be_solved_is_refused(key):
    with pytest.raises(ValueError, match=r"the best policy: its value in draw 0 .* expected one gain"):
        probability_optimal(key, ISLANDS, AverageReward(), num_draws=2)
    with pytest.raises(ValueError, match=r"end probability .* in draw 0"):
        probability_optimal(key, posterior(ends=True), AverageReward(), num_draws=2)
    with pytest.raises(ValueError, match=r"the best policy: .* ends with probability one"):
        probability_optimal(key, posterior(), FirstExit(), num_draws=2)
    with pytest.raises(ValueError, match="num_draws is 1"):
        probability_optimal(key, posterior(), Discounted(0.9), num_draws=1)
    with pytest.raises(TypeError, match="probability_optimal needs a posterior that has sample"):
        probability_optimal(key, object(), Discounted(0.9))
