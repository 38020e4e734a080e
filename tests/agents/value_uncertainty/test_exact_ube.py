# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalOperand=false
# pyright: reportOptionalMemberAccess=false
"""The uncertainty Bellman equation whose solution is the variance, against the covariance recursion.

Z = 6 standard errors an entry (false-alarm rate below 1e-6 a test) with the errors of a plain variance of Gaussian
values, sqrt(2 / N): the equation has about that. With 20,000 draws a fault of 6 % of a variance is caught.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS, ExactUBE
from bayes_mdp.agents.value_uncertainty import moment_matching
from bayes_mdp.agents.value_uncertainty.exact import by_draws, exact_ube, value_covariance
from bayes_mdp.agents.value_uncertainty.exact_ube import next_pair_variance
from bayes_mdp.inference import mixture, posterior_samples
from bayes_mdp.mdp import AverageReward, Discounted, Episodic
from tests.agents.believed import Z, layered, not_levelled, with_known_cycles

NUMBER = 20_000
ERROR = (2 / NUMBER) ** 0.5


def _worst(ours, exact):
    exact = np.asarray(exact)
    return float(np.max(np.abs(np.asarray(ours) - exact) / np.where(exact > 0, exact, 1.0)))


@pytest.mark.parametrize(
    ("case", "objective"),
    [
        pytest.param(layered(), Episodic(4), marks=pytest.mark.slow),
        pytest.param(not_levelled(), Discounted(0.9), marks=pytest.mark.slow),
        pytest.param(with_known_cycles(), Discounted(0.9), marks=pytest.mark.slow),
    ],
    ids=["layered", "acyclic", "known cycles"],
)
def test_it_is_the_exact_variance(case, objective, key):
    """Q and V (stochastic policies too) as by the covariance recursion; all variances together within 3 %."""
    exact = value_covariance(case.posterior, case.policy, objective)
    answer = exact_ube(key, case.posterior, case.policy, objective, num_draws=NUMBER)
    assert answer.validity.kind == "exact" and "20000 draws" in answer.validity.reason and bool(answer.converged)
    assert _worst(answer.q_variance, exact.q_variance) < Z * ERROR
    assert _worst(answer.v_variance, exact.v_variance) < Z * ERROR
    assert abs(np.sum(answer.q_variance) / np.sum(exact.q_variance) - 1) < 0.03
    np.testing.assert_allclose(answer.q_mean, exact.q_mean, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_without_the_last_term_it_is_an_upper_bound(key):
    """Clipping, and leaving the term out (moment matching has that local variance), can only add: the broken twins."""
    case, objective = layered(), Episodic(4)
    exact = value_covariance(case.posterior, case.policy, objective)
    clipped = exact_ube(key, case.posterior, case.policy, objective, num_draws=NUMBER, clip=True)
    pombu = moment_matching.value_variance(case.posterior, case.policy, objective)
    assert clipped.validity.kind == "upper bound" and np.all(clipped.local >= 0)
    assert np.all(clipped.q_variance > exact.q_variance * (1 - Z * ERROR))
    assert np.all(pombu.q_variance > clipped.q_variance * (1 - Z * ERROR))
    assert _worst(pombu.q_variance, exact.q_variance) > 4 * Z * ERROR


@pytest.mark.slow
def test_a_mixture_by_total_variance(key):
    """Component by component: E[Var] + Var[E]."""
    one = layered()
    two = one._replace(loc=one.loc + 1.0)
    posterior = mixture([one.posterior, two.posterior], weights=[0.5, 0.5])
    exact = value_covariance(posterior, one.policy, Episodic(4))
    answer = exact_ube(key, posterior, one.policy, Episodic(4), num_draws=NUMBER)
    assert answer.validity.kind == "exact"
    assert _worst(answer.q_variance, exact.q_variance) < Z * ERROR


@pytest.mark.slow
def test_episodes_of_a_stationary_acyclic_belief(key):
    """Steps share their rows, yet no row meets a value that rests on it: exact, beside as many draws."""
    case, objective = not_levelled(), Episodic(4)
    drawn = by_draws(key, case.posterior, case.policy, objective, num_draws=NUMBER)
    answer = exact_ube(jax.random.fold_in(key, 1), case.posterior, case.policy, objective, num_draws=NUMBER)
    assert answer.validity.kind == "exact"
    assert _worst(answer.q_variance, drawn.q_variance) < Z * 2**0.5 * ERROR


@pytest.mark.slow
def test_what_is_not_exact_says_why(key):
    """Draws, cycles."""
    case = layered()
    ensemble = posterior_samples(jax.jit(lambda k: case.posterior.sample(k, (50,)))(key))
    answer = exact_ube(key, ensemble, case.policy, Episodic(4))
    assert str(answer.validity).startswith("heuristic: rows are not independent (draws do not show")
    ring = not_levelled()
    ring.concentration[4, 0, 2] = 1.0
    again = exact_ube(key, ring.posterior, ring.policy, Discounted(0.9))
    assert again.validity.kind == "heuristic" and "can be visited again" in again.validity.reason


@pytest.mark.slow
def test_the_agent_runs_and_is_deterministic_by_key(key):
    """A few episodes; every pair keeps a finite standard deviation."""
    env = bm.envs.deep_sea(3)
    prior = bm.models.dirichlet_normal_gamma()
    assert AGENTS["exact_ube"] is ExactUBE
    run = lambda key: bm.run(  # noqa: E731
        ExactUBE(num_draws=6), env, prior=prior, objective=Episodic(3), num_episodes=10, num_seeds=2, key=key
    )
    one, again = run(key), run(key)
    assert np.array_equal(one.reward, again.reward) and np.all(np.isfinite(one.reward))
    assert not np.array_equal(one.reward, run(jax.random.fold_in(key, 1)).reward)


def test_refusals(key):
    """What is no number of draws, cannot sample, or has no variance."""
    case = layered()
    with pytest.raises(ValueError, match="num_draws is 0"):
        exact_ube(key, case.posterior, case.policy, Episodic(4), num_draws=0)
    with pytest.raises(TypeError, match=r"exact\.exact_ube needs a posterior that has sample"):
        exact_ube(key, object(), case.policy, Episodic(4))
    with pytest.raises(ValueError, match="objective is AverageReward"):
        exact_ube(key, case.posterior, case.policy, AverageReward())
    with pytest.raises(ValueError, match="scale is nan"):
        ExactUBE(scale=float("nan"))


def test_the_variance_of_the_next_pair_is_discounted_twice():
    rows, mean, square = np.array([[[0.2, 0.8]], [[0.5, 0.5]]]), np.array([1.0, -2.0]), np.array([1.5, 7.0])
    mdp = bm.MDP(rows, np.zeros((2, 1)))
    found = next_pair_variance(mdp, jnp.asarray(mean), jnp.asarray(square), Discounted(0.9))
    np.testing.assert_allclose(found[:, 0], 0.81 * (rows[:, 0] @ square - (rows[:, 0] @ mean) ** 2), rtol=1e-5)
