# pyright: reportArgumentType=false, reportOptionalSubscript=false
"""The uncertainty Bellman equation where rows are tied: refused by name, but for mixtures, which go by component."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import UBE
from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace
from bayes_mdp.models import MDPSpec
from tests.agents.value_problems import absorbing, chain, match_moments, off_by, solve_ube

FIRST = np.zeros(3, int)


def test_a_shared_offset_is_refused_by_name(key):
    """A chain of 10 whose rewards are one unknown number: variance 42.4, where independent rewards have 4.6."""
    length, discount = 10, 0.9
    rows = absorbing(np.eye(length + 1, k=1), length)[:, None]

    def tied(space):
        with space.plates("action"):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        return MDPSpec(rows, dist.Normal(jnp.broadcast_to(offset, (length + 1, 1)), 1.0))

    space, policy = StateActionSpace(length + 1, 1), np.zeros(length + 1, int)
    with jax.enable_x64(True):
        alone = chain(length, 0.0, 1.0)
        marginal = solve_ube(alone, policy, Discounted(discount)).v_variance[0]
        matched = match_moments(alone, policy, Discounted(discount)).v_variance[0]
    powers = discount ** np.arange(length)
    np.testing.assert_allclose([marginal, matched], (powers**2).sum(), rtol=1e-10)
    assert float(marginal) == pytest.approx(4.62, abs=0.01)
    offsets = np.asarray(jax.random.normal(key, (100_000,)))
    assert powers.sum() ** 2 == pytest.approx(42.4, abs=0.05)
    assert off_by(offsets * powers.sum(), powers.sum() ** 2) < 6
    posterior = bm.infer(key, tied, None, space=space)
    for function in (ube.solve, moment_matching.value_variance):
        with pytest.raises(ValueError, match=r"rows that are not independent \(.*'offset'.*exact.by_draws"):
            function(posterior, policy, Discounted(discount))
    with pytest.raises(ValueError, match="not independent"):
        ube.local_uncertainty(posterior, Discounted(discount))
    problem = Problem(space, Discounted(discount))
    with pytest.raises(ValueError, match="expected independent rows, or a mixture of posteriors with such, for UBE"):
        UBE().plan(key, problem, UBE().init(key, problem), posterior)


@pytest.mark.slow
def test_a_mixture_goes_by_component(x64):
    """An offset of +-1 shared by a chain of 6, variance .1 each beside it: truth 22.33, on the marginals 4.15.

    20,000 draws by numpy, six standard errors: chance 1e-8 or so, catches 6 %; the marginals are caught.
    """
    length, discount, objective = 6, 0.9, Discounted(0.9)
    both = mixture([chain(length, 1.0, 0.1), chain(length, -1.0, 0.1)], weights=[0.5, 0.5])
    policy = np.zeros(length + 1, int)
    powers = discount ** np.arange(length)
    truth = powers.sum() ** 2 + 0.1 * (powers**2).sum()
    assert truth == pytest.approx(22.33, abs=5e-3)
    for answer in (solve_ube(both, policy, objective), match_moments(both, policy, objective)):
        np.testing.assert_allclose(answer.v_variance[0], truth, rtol=1e-10)
        np.testing.assert_allclose(answer.v_mean[0], 0.0, atol=1e-12)
    marginal = solve_ube(chain(length, 0.0, 1.1), policy, objective)
    assert float(marginal.v_variance[0]) == pytest.approx(4.15, abs=5e-3)
    rng = np.random.default_rng(0)
    rewards = rng.choice([-1.0, 1.0], (20_000, 1)) + 0.1**0.5 * rng.normal(size=(20_000, length))
    assert off_by(rewards @ powers, truth) < 6 and off_by(rewards @ powers, marginal.v_variance[0]) > 6


def test_a_mixture_says_what_it_is(x64):
    """An upper bound where its components are; the largest q_max of all; refused by `local_uncertainty`."""
    both = mixture([chain(2, 1.0, 0.1), chain(2, -1.0, 0.1)], weights=[0.5, 0.5])
    answer = ube.solve(both, FIRST, Discounted(0.9))
    assert answer.validity.kind == "upper bound" and float(answer.q_max) == pytest.approx(10)
    with pytest.raises(ValueError, match="posterior is a mixture, expected one of its components"):
        ube.local_uncertainty(both, Discounted(0.9))
    with pytest.raises(ValueError, match=r"q_max is 1, expected at least 1.9, .*: that of state 0"):
        ube.solve(both, FIRST, Discounted(0.9), q_max=1.0)
