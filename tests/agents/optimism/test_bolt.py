"""BOLT against brute force over all imaginary successors, episodic and discounted."""

import equinox as eqx
import jax
import numpy as np
import pytest

from bayes_mdp.agents import BOLT
from bayes_mdp.agents.common.mean_model import mean_model, row_variance_factor
from bayes_mdp.agents.optimism.mean_mdp_plans import episodic_values, imaginary_share
from bayes_mdp.mdp import AverageReward, Discounted, Episodic
from tests.agents.optimism_problems import LEGAL, A, Belief, H, S, first_plan, legal_only, world

DISCOUNT = 0.8


def brute_force(case, eta, sweeps, discount=1.0, max_reward=None):
    """q after `sweeps` backward steps: every successor is tried, (c + eta e) / (c0 + eta) written down."""
    values, tables = np.zeros(S + 1), []
    for step in reversed(range(sweeps)):
        q = np.full((S, A), -np.inf)
        for s, a in np.argwhere(LEGAL):
            index = (step, s, a) if case.loc.ndim == 3 else (s, a)
            c, reward = case.concentration[index], case.loc[index]
            if max_reward is not None and case.variance[index] > 0:
                reward = (case.visits[index] * reward + eta * max_reward) / (case.visits[index] + eta)
            if case.known[index]:
                q[s, a] = reward + discount * case.rows[index] @ values
                continue
            tried = [(c + eta * np.eye(S + 1)[y]) / (c.sum() + eta) @ values for y in np.flatnonzero(c > 0)]
            q[s, a] = reward + discount * max(tried)
        values = np.append(q.max(-1), 0.0)
        tables.append(q)
    return np.stack(tables[::-1])


@pytest.mark.parametrize(("steps", "eta", "max_reward"), [(True, 0.5, 1.0), (False, None, None)])
def test_episodic_is_brute_force(steps, eta, max_reward, key):
    case = world(0, steps=steps)
    policy, state = first_plan(BOLT(eta, max_reward=max_reward), case.problem(), case.posterior, key)
    expected = brute_force(case, H if eta is None else eta, H, max_reward=max_reward)
    np.testing.assert_allclose(legal_only(policy.q), legal_only(expected), rtol=1e-4)
    np.testing.assert_array_equal(policy.best, expected.argmax(-1))
    assert state is None and np.isneginf(policy.q[:, 1, 1]).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_discounted_is_the_fixed_point_of_brute_force(seed, key):
    case, objective = world(seed, steps=False), Discounted(DISCOUNT)
    policy, plan = first_plan(BOLT(), case.problem(objective), case.posterior, key)
    expected = brute_force(case, 1 / (1 - DISCOUNT), 200, DISCOUNT)[0]
    np.testing.assert_allclose(legal_only(policy.q), legal_only(expected), rtol=1e-4)
    assert plan.converged


@jax.jit
def with_losses(posterior, support):
    """q of the equation with all mean rewards lowered by 2."""
    model = mean_model(posterior, Episodic(H), "BOLT")
    model = eqx.tree_at(lambda m: m.reward, model, model.reward - 2.0)
    share = imaginary_share(row_variance_factor(posterior, "BOLT"), 5.0)
    return episodic_values(model, share, support=support, ends=True)


def test_losses_make_the_end_the_imagined_successor():
    """An end is worth nothing, which is then the best; without it as a candidate the values are lower."""
    case = world(3)
    lower = case._replace(loc=case.loc - 2.0)
    q = with_losses(case.posterior, case.support)
    np.testing.assert_allclose(legal_only(q), legal_only(brute_force(lower, 5.0, H)), rtol=1e-4)
    without = case.support & (np.arange(S + 1) < S)
    assert (legal_only(with_losses(case.posterior, without))[:-1] < legal_only(q)[:-1] - 0.1).any()


def test_it_is_optimistic_and_more_so_with_more_imagined(key):
    """q grows with eta from the mean model's (eta = 0); a largest reward below the mean changes nothing."""
    case = world(4)
    q = [
        legal_only(first_plan(BOLT(eta, max_reward=0.0), case.problem(), case.posterior, key)[0].q)
        for eta in (0.0, 0.5, 3.0)
    ]
    np.testing.assert_allclose(q[0], legal_only(brute_force(case, 0.0, H)), rtol=1e-4)
    assert (q[1] >= q[0] - 1e-5).all() and (q[2] >= q[1] - 1e-5).all() and (q[2] > q[0] + 0.1).any()


def test_what_it_cannot_use_is_refused(key):
    case = world(0)
    for make, kind, message in (
        (lambda: BOLT(np.nan), ValueError, "eta is nan, expected a finite number, zero or greater"),
        (lambda: BOLT(max_reward=np.inf), ValueError, "max_reward is inf, expected a finite number"),
        (
            lambda: BOLT().init(key, case.problem(AverageReward())),
            ValueError,
            "expected Discounted or Episodic for BOLT",
        ),
        (
            lambda: BOLT().check_belief(Belief(case.posterior.mean_mdp(), case.visits)),
            TypeError,
            "BOLT needs a posterior that has .*variance_factor",
        ),
    ):
        with pytest.raises(kind, match=message):
            make()
