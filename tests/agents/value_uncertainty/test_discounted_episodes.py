# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Discounted episodes: each variance of values beside the same belief in rewards that are discounted themselves.

With rewards discount^t r_t and no discount on the way, values of step t are discount^t as large, and variances
discount^2t: for a belief with rows and rewards of its own at every step an exact twin of the discounted episode.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.agents.value_uncertainty.exact import by_draws, exact_ube, value_covariance
from bayes_mdp.agents.value_uncertainty.moment_matching import return_variance
from bayes_mdp.mdp import Episodic
from tests.agents.believed import layered
from tests.agents.value_problems import belief

H, RATE = 4, 0.7
DISCOUNTED, PLAIN = Episodic(H, RATE), Episodic(H)


def smaller(x, power=1):
    """Every step's numbers, times discount^(power t)."""
    x = np.asarray(x)
    return x * (RATE ** (power * np.arange(H))).reshape(H, *(1,) * (x.ndim - 1))


def twins(by_outcome=False):
    """A belief, and the one of discounted rewards; the policy."""
    case = layered(by_outcome=by_outcome)
    other = case._replace(loc=smaller(case.loc), variance=smaller(case.variance, 2))
    return case.posterior, other.posterior, case.policy


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("by_outcome", [False, True])
@pytest.mark.parametrize("of", [value_covariance, moment_matching.value_variance, return_variance])
def test_variances_of_every_kind(of, by_outcome):
    posterior, other, policy = twins(by_outcome)
    answer, twin, plain = of(posterior, policy, DISCOUNTED), of(other, policy, PLAIN), of(posterior, policy, PLAIN)
    names = ("total", "epistemic", "v_total") if of is return_variance else ("q_variance", "v_variance")
    for name in names:
        np.testing.assert_allclose(smaller(getattr(answer, name), 2), getattr(twin, name), rtol=1e-9)
    np.testing.assert_allclose(smaller(answer.q_mean), twin.q_mean, rtol=1e-9, atol=1e-12)
    apart = np.asarray(getattr(plain, names[0])) / np.asarray(getattr(answer, names[0]))
    assert apart[0].min() > 1.1, "without the discount it would be seen"
    np.testing.assert_allclose(apart[-1], 1.0)
    assert answer.validity.kind == twin.validity.kind != "heuristic" and answer.converged and answer.gap < 1e-9


@pytest.mark.usefixtures("x64")
def test_covariances_between_states_and_actions():
    posterior, other, policy = twins()
    answer, twin = value_covariance(posterior, policy, DISCOUNTED), value_covariance(other, policy, PLAIN)
    for name in ("q_covariance", "v_covariance"):
        np.testing.assert_allclose(smaller(getattr(answer, name), 2), getattr(twin, name), rtol=1e-9, atol=1e-15)


@pytest.mark.some(1)
@pytest.mark.parametrize("of", [by_draws, exact_ube])
def test_the_same_draws(of, key, x64):
    """One key draws the same rows, and rewards as much smaller."""
    posterior, other, policy = twins()
    answer, twin, plain = (
        of(key, belief, policy, objective, num_draws=20)
        for belief, objective in ((posterior, DISCOUNTED), (other, PLAIN), (posterior, PLAIN))
    )
    np.testing.assert_allclose(smaller(answer.q_variance, 2), twin.q_variance, rtol=1e-6)
    np.testing.assert_allclose(smaller(answer.v_variance, 2), twin.v_variance, rtol=1e-6)
    assert np.abs(plain.q_variance[0] / answer.q_variance[0] - 1).max() > 0.1


def test_one_random_number_for_all_pairs(x64):
    posterior, other, _ = twins()
    start = jnp.zeros((H, 3))
    answer, twin = (
        moment_matching.single_draw(belief, 0.3, objective, start)
        for belief, objective in ((posterior, DISCOUNTED), (other, PLAIN))
    )
    np.testing.assert_allclose(smaller(answer[0]), twin[0], rtol=1e-9)
    np.testing.assert_allclose(smaller(answer[1], 2), twin[1], rtol=1e-9)
    # Values are clipped where every reward is far away: to what H discounted steps can pay.
    far = np.asarray(moment_matching.single_draw(posterior, 1e3, DISCOUNTED, start)[0])
    steps = (1 - RATE**H) / (1 - RATE)
    mean = posterior.mean_mdp()
    largest = np.max(np.abs(np.asarray(mean.reward)) + 1e3 * np.sqrt(np.asarray(posterior.expected_reward_variance())))
    assert np.abs(far).max() <= np.abs(np.asarray(mean.reward)).max() + RATE * steps * largest * (1 + 1e-9)


@pytest.mark.parametrize("steps", [None, H])
def test_the_uncertainty_bellman_equation(steps, x64):
    """u = v + g^2 q_max^2 k + g^2 sum pbar pi u in numpy, with the default bound of values and a larger one."""
    rng = np.random.default_rng(0)
    shape = (3, 2) if steps is None else (steps, 3, 2)
    concentration, loc = rng.uniform(0.5, 4, (*shape, 3)), rng.normal(size=shape)
    variance, policy = rng.uniform(0.1, 1, shape), rng.dirichlet(np.ones(2), (H, 3))
    posterior = belief(concentration, loc, variance, horizon=steps)
    bound = np.abs(loc).max() * (1 + RATE + RATE**2 + RATE**3)
    np.testing.assert_allclose(ube.default_q_max(posterior, DISCOUNTED), bound, rtol=1e-12)
    for q_max in (None, 9.0):
        answer = ube.solve(posterior, policy, DISCOUNTED, q_max=q_max)
        each = (RATE * (q_max or bound)) ** 2 * 2 / (concentration.sum(-1) + 1) + variance
        each, rows = (np.broadcast_to(x, (H, 3, 2, *x.shape[x.ndim - y :])) for x, y in ((each, 0), (concentration, 1)))
        rows, u = rows / rows.sum(-1, keepdims=True), np.zeros(3)
        for h in reversed(range(H)):
            q = each[h] + RATE**2 * rows[h] @ u
            u = (policy[h] * q).sum(-1)
            np.testing.assert_allclose(answer.q_variance[h], q, rtol=1e-9)


def test_a_bound_on_discounted_values_that_is_too_low_is_refused(x64):
    """The values are those of the discounted episode: a bound between them and the undiscounted ones is one."""
    posterior = belief(np.ones((H, 1, 1, 1)), np.ones((H, 1, 1)), 0.1, horizon=H)
    policy = np.zeros(1, int)
    assert jax.numpy.isfinite(ube.solve(posterior, policy, DISCOUNTED, q_max=2.6).q_variance).all()
    with pytest.raises(ValueError, match=r"q_max is 2.6, expected at least 4"):
        ube.solve(posterior, policy, PLAIN, q_max=2.6)
    with pytest.raises(ValueError, match=r"q_max is 2.5, expected at least 2.533"):
        ube.solve(posterior, policy, DISCOUNTED, q_max=2.5)
