"""`choice_spread`: one where nothing else could be chosen, more where the choice is open; against plain NumPy."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.choose import NUM_CHOICES, choice_spread
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, policy_set
from bayes_mdp.mdp import Discounted, Episodic

KEY = jax.random.key(3)
SPACE = bm.StateActionSpace(1, 3)


def posterior_of(means: list[float], number: int) -> Any:
    """One state, three actions, `number` rewards of each, with the sample mean that is given."""
    action = np.repeat([0, 1, 2], number)
    noise = np.tile(np.resize([1.0, -1.0], number), 3)
    data = bm.Transitions(
        np.zeros(3 * number, int), action, np.repeat(means, number) + noise, np.zeros(3 * number, int)
    )
    return bm.infer(KEY, bm.models.dirichlet_normal(scale=100.0), data, space=SPACE)


def spread_of(posterior: Any, chosen: int, limits: PolicyLimits = PolicyLimits()) -> float:
    """Of the policy that takes one action, over doing each as often."""
    objective, today = Episodic(1), np.full((1, 1, 3), 1 / 3)
    policies = policy_set(limits, None, (1, 1, 3), np.asarray(posterior.visit_counts()), today)
    candidate = policies.policy(np.array([[chosen]]))
    draws = draws_of(jax.random.key(4), posterior, objective, 400)
    values = draws.values(np.stack([candidate, today]))
    return choice_spread(KEY, posterior, objective, policies, candidate, values[:, 0] - values[:, 1])


def test_it_is_one_where_nothing_else_can_be_chosen():
    assert (
        spread_of(posterior_of([0.0, 1.0, 0.0], 10), 1, PolicyLimits(allowed=np.array([[False, True, False]]))) == 1.0
    )
    # Nor does it matter where every draw chooses the same.
    assert spread_of(posterior_of([0.0, 50.0, 0.0], 10), 1) == 1.0


def test_it_is_that_of_the_formula():
    """Three actions that are alike: the variance of what the best of a draw gains there and not on average."""
    posterior = posterior_of([0.0, 0.1, 0.05], 10)
    draws = draws_of(KEY, posterior, Episodic(1), NUM_CHOICES, needed=np.ones((1, 3), bool), fewest=20)
    means = draws.values(np.eye(3)[:, None, None, :])  # [draw, action]
    best = means.argmax(-1)
    ahead = means[:, best] - means[:, [1]]  # [draw, the best action of another draw]
    optimism = np.diag(ahead) - ahead.mean(0)
    gains = draws_of(jax.random.key(4), posterior, Episodic(1), 400).values(
        np.stack([np.eye(3)[1][None, None], np.full((1, 1, 3), 1 / 3)])
    )
    gain = gains[:, 0] - gains[:, 1]
    expected = np.sqrt(1 + optimism.var() / gain.var())
    assert spread_of(posterior, 1) == pytest.approx(expected, rel=1e-9) and expected > 1.1


def test_the_more_data_the_less():
    few, many = (spread_of(posterior_of([0.0, 0.4, 0.0], number), 1) for number in (10, 1000))
    assert many == 1.0 < few


def test_draws_of_a_larger_problem_and_a_discount():
    """A gain without variance has nothing to widen."""
    rng = np.random.default_rng(0)
    state, action, reached = (rng.integers(k, size=300) for k in (4, 3, 4))
    data = bm.Transitions(state, action, rng.normal(size=300), reached)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(), data, space=bm.StateActionSpace(4, 3))
    today = np.full((4, 3), 1 / 3)
    policies = policy_set(PolicyLimits(bootstrap_below=5), None, (4, 3), np.asarray(posterior.visit_counts()), today)
    candidate = policies.policy(np.zeros(4, int))
    gain = np.random.default_rng(1).normal(size=100)
    assert choice_spread(KEY, posterior, Discounted(0.9), policies, candidate, gain) > 1
    assert choice_spread(KEY, posterior, Discounted(0.9), policies, candidate, np.ones(100)) == 1.0
