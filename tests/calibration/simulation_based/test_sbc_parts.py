"""What simulation-based calibration is made of: simulated transitions, drawn laws, quantities, ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration.simulation_based.prior_sbc import SbcOptions, sbc
from bayes_mdp.calibration.simulation_based.ranks import rank_of_truth, simulate, uniform_policy
from bayes_mdp.mdp import MDP, Environment, StateActionSpace
from bayes_mdp.mdp.data.transitions import check_transitions
from bayes_mdp.mdp.environment import NormalReward
from bayes_mdp.models.priors import dirichlet_bernoulli

LEGAL = np.array([[True, True], [True, False]])
SPACE = StateActionSpace(2, 2, horizon=2, ends=True, legal=LEGAL)
NUM = 400


def _environment():
    rows = np.array([0.5, 0.25]) * np.ones((2, 2, 2, 2))
    reward = jnp.arange(8.0).reshape(2, 2, 2)
    mdp = MDP(rows, reward, end_probs=np.full((2, 2, 2), 0.25), legal=LEGAL, initial=np.array([0.0, 1.0]))
    return Environment(mdp, NormalReward(reward))


@pytest.fixture(scope="module")
def simulated():
    """Transitions from pairs at random, and those of a policy, in a space with everything."""
    environment = _environment()
    policy = uniform_policy(SPACE)
    return jax.jit(lambda key: [simulate(key, environment, SPACE, NUM, behaviour) for behaviour in (None, policy)])(
        jax.random.key(1)
    )


def test_pairs_at_random(simulated):
    """Every legal pair of every step equally often (chi-square, false alarm 1e-6), rewards those of the pair."""
    data = jax.tree.map(np.asarray, simulated[0])
    check_transitions(data, SPACE)
    counts = np.zeros(SPACE.shape)
    np.add.at(counts, (data.step, data.state, data.action), 1)
    assert stats.chisquare(counts[:, LEGAL].ravel()).pvalue > 1e-6
    np.testing.assert_array_equal(data.reward, np.arange(8.0).reshape(2, 2, 2)[data.step, data.state, data.action])


def test_a_followed_policy_is_a_trajectory(simulated):
    """States follow on each other, until an end or the last step, and then from the initial distribution."""
    data = jax.tree.map(np.asarray, simulated[1])
    check_transitions(data, SPACE)
    over = data.terminated | (data.step == 1)
    assert data.terminated.any() and not over.all()
    np.testing.assert_array_equal(data.state[1:], np.where(over, 1, data.next_state)[:-1])
    np.testing.assert_array_equal(data.step[1:], np.where(over, 0, data.step + 1)[:-1])


def test_ties_are_broken_at_random():
    """A truth that equals two of four draws, with one below, has the ranks 1, 2 and 3 equally often."""
    values = jnp.array([2.0, 1.0, 2.0, 2.0, 5.0])
    ranks = jax.jit(jax.vmap(lambda key: rank_of_truth(key, values).rank))(jax.random.split(jax.random.key(0), 3000))
    counts = np.bincount(np.asarray(ranks), minlength=5)
    assert counts[0] == counts[4] == 0
    assert stats.chisquare(counts[1:4]).pvalue > 1e-6


@pytest.mark.slow
def test_the_likelihood_of_a_drawn_law(case):
    """Against SciPy, transition by transition, for every kind of posterior."""
    draw = lambda key: case.posterior.sample_law(key)  # noqa: E731, PLW0108 - a method of arrays has no hash
    law = jax.jit(draw)(jax.random.key(2))
    cell, outcome = case.data.cell(case.space), np.asarray(case.data.outcome(case.space))
    expected = np.log(np.asarray(law.rows)[(*cell, outcome)]).sum()
    rewards = law.rewards
    if rewards.law is not None:
        where = (*cell, outcome) if rewards.by_outcome else cell
        mean, variance = np.asarray(rewards.law.mean)[where], np.asarray(rewards.law.variance)[where]
        family = {
            "Normal": lambda r: stats.norm.logpdf(r, mean, np.sqrt(variance)),
            "BernoulliProbs": lambda r: stats.bernoulli.logpmf(r, mean),
            "Poisson": lambda r: stats.poisson.logpmf(r, mean),
        }[type(rewards.law).__name__]
        seen = case.data.reward_observed
        expected += family(np.asarray(case.data.reward))[slice(None) if seen is None else seen].sum()
    found = law.log_likelihood(case.data, case.space)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_a_space_with_everything_passes():
    """Steps, ends, illegal pairs, Bernoulli rewards, what a policy meets; the exact posterior (false alarm 1e-6)."""
    options = SbcOptions(num_transitions=30, behaviour=uniform_policy(SPACE))
    result = sbc(jax.random.key(4), dirichlet_bernoulli(), SPACE, num_simulations=512, options=options)
    assert len(result.judged) == 7
    assert result.passed, str(result)
