"""Regularised information-directed sampling: its rewards by the formula of the paper, its plan, where it differs."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.special import digamma

import bayes_mdp as bm
from bayes_mdp.agents import InformationGain
from bayes_mdp.agents.common.replan import Doubling
from bayes_mdp.agents.optimism.mean_mdp_plans import RegularisedIDS
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.mdp import AverageReward, Episodic, Problem, StateActionSpace

H, S, A, SCALE = 4, 3, 2, 1.7


def information(c):
    """E KL(P || mean) of Dirichlet rows [... S]: sum_j p_j (psi(c_j + 1) - psi(c0 + 1) - log p_j)."""
    total = c.sum(-1, keepdims=True)
    mean = c / total
    return (mean * (digamma(c + 1) - digamma(total + 1) - np.log(mean))).sum(-1)


def world(*, layered):
    """(belief, concentrations, rewards): Dirichlet rows, known rewards."""
    rng = np.random.default_rng(2)
    shape = (H, S, A) if layered else (S, A)
    prior, reward = rng.uniform(0.2, 1.5, (*shape, S)), rng.normal(size=shape)
    counts = rng.integers(0, 6, prior.shape).astype(float)
    rows = dirichlet_rows(prior.reshape(-1, S), prior.shape)
    rows = eqx.tree_at(lambda r: r.counts, rows, counts.reshape(-1, S))
    space = StateActionSpace(S, A, horizon=H if layered else None)
    return conjugate_posterior(rows, known_rewards(reward), space), prior + counts, reward


@pytest.mark.parametrize("layered", [True, False])
def test_the_plan_is_dynamic_programming_in_the_mean_mdp(layered, key):
    """Rewards and information by numpy, H steps backwards; without the information the plan is another."""
    belief, c, reward = world(layered=layered)
    task, agent = Problem(belief.space, Episodic(H)), RegularisedIDS(SCALE)
    q = np.asarray(agent.plan(key, task, agent.init(key, task), belief)[0].q)
    mean, worth, v = c / c.sum(-1, keepdims=True), reward + SCALE * information(c), np.zeros(S)
    for h in reversed(range(H)):
        expected = worth[h] + mean[h] @ v if layered else worth + mean @ v
        np.testing.assert_allclose(q[h], expected, rtol=1e-4)
        v = expected.max(-1)
    assert np.abs(q - np.asarray(InformationGain(0.0).plan(key, task, None, belief)[0].q)).max() > 0.1


def test_the_formula_is_the_mean_divergence_of_draws():
    """200,000 numpy draws of three rows, 6 standard errors (false alarm 6e-9); caught: 1 %. The twin without + 1 is."""
    rng = np.random.default_rng(0)
    for c in ([0.3, 0.9, 2.0], [1.0, 1.0, 1.0], [4.0, 2.5, 7.0]):
        c = np.array(c)
        draws, mean = rng.dirichlet(c, 200_000), c / c.sum()
        told = np.where(draws > 0, draws * np.log(np.where(draws > 0, draws, 1.0) / mean), 0.0).sum(-1)
        error = told.std() / len(told) ** 0.5
        assert 6 * error < 0.02 * information(c)
        assert abs(told.mean() - information(c)) < 6 * error
        twin = (mean * (digamma(c) - digamma(c.sum()) - np.log(mean))).sum()
        assert abs(told.mean() - twin) > 6 * error


def test_it_is_information_gain():
    """With rewards, whose plan would be no trade-off without them."""
    agent = RegularisedIDS(SCALE, replan="doubling")
    assert agent == InformationGain(SCALE, rewards=True, replan=Doubling())


def test_unknown_rewards_add_nothing_to_the_information(key):
    """The means of rewards are planned for; what is not known of them does not count, whatever it is."""
    space = StateActionSpace(S, A)
    beliefs: list[Any] = [
        bm.infer(key, bm.models.dirichlet_normal(0.5, 0.0, spread, 0.1), None, space=space) for spread in (10.0, 1e-3)
    ]
    task, agent = Problem(space, Episodic(H)), RegularisedIDS(SCALE)
    one, other = (np.asarray(agent.plan(key, task, None, belief)[0].q) for belief in beliefs)
    expected = SCALE * information(np.full(S, 0.5)) * np.arange(H, 0, -1)
    np.testing.assert_allclose(one, np.broadcast_to(expected[:, None, None], one.shape), rtol=1e-4)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_refusals(key):
    with pytest.raises(ValueError, match=r"scale is -1\.0, expected a finite number, zero or greater"):
        RegularisedIDS(-1.0)
    with pytest.raises(ValueError, match=r"objective is AverageReward, expected .* for InformationGain"):
        RegularisedIDS().init(key, Problem(StateActionSpace(S, A), AverageReward()))
    mute: Any = jax.random.key(0)
    with pytest.raises(TypeError, match="InformationGain needs a posterior that has"):
        RegularisedIDS().check_belief(mute)
