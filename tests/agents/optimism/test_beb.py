# pyright: reportArgumentType=false
"""BEB against loops, episodic and discounted; known rows and known rewards; what is refused."""

import numpy as np
import pytest

from bayes_mdp.agents import BEB
from bayes_mdp.agents.optimism.mean_mdp_plans import exploration_bonus
from bayes_mdp.inference.draws.weighted_samples import CountedSamples
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic
from tests.agents.optimism_problems import LEGAL, A, Belief, H, S, first_plan, legal_only, world

DISCOUNT = 0.8


def bonus_of(case, beta, index):
    """beta / (1 + c0) of one pair; visits in place of c0 where only the reward is unknown."""
    if not case.known[index]:
        return beta / (1.0 + case.concentration[index].sum())
    return beta / (1.0 + case.visits[index]) if case.variance[index] > 0 else 0.0


def by_loops(case, beta, sweeps, discount=1.0):
    """q after `sweeps` backward steps (of every step, the first in front)."""
    values, tables = np.zeros(S + 1), []
    for step in reversed(range(sweeps)):
        q = np.full((S, A), -np.inf)
        for s, a in np.argwhere(LEGAL):
            index = (step, s, a) if case.loc.ndim == 3 else (s, a)
            q[s, a] = case.loc[index] + bonus_of(case, beta, index) + discount * case.rows[index] @ values
        values = np.append(q.max(-1), 0.0)
        tables.append(q)
    return np.stack(tables[::-1])


@pytest.mark.parametrize(("steps", "beta"), [(True, None), pytest.param(False, 0.7, marks=pytest.mark.slow)])
def test_episodic_is_the_equation(steps, beta, key):
    case = world(0, steps=steps)
    policy, state = first_plan(BEB(beta), case.problem(), case.posterior, key)
    expected = by_loops(case, 2.0 * H**2 if beta is None else beta, H)
    np.testing.assert_allclose(legal_only(policy.q), legal_only(expected), rtol=1e-4)
    np.testing.assert_array_equal(policy.best, expected.argmax(-1))
    assert state is None and np.isneginf(policy.q[:, 1, 1]).all()


def test_discounted_is_the_fixed_point(key):
    case, objective = world(1, steps=False), Discounted(DISCOUNT)
    policy, _ = first_plan(BEB(), case.problem(objective), case.posterior, key)
    expected = by_loops(case, 2.0 / (1 - DISCOUNT) ** 2, 200, DISCOUNT)[0]
    np.testing.assert_allclose(legal_only(policy.q), legal_only(expected), rtol=1e-4)


def test_the_bonus_of_a_known_row():
    """Nothing where the reward is known too, else by visits."""
    spread, visits = np.array([[0.0, 0.0, 0.25]]), np.full((1, 3), 4.0)
    unknown = np.array([[True, False, True]])
    np.testing.assert_allclose(exploration_bonus(spread, 2.0, visits=visits, unknown_reward=unknown), [[0.4, 0, 0.5]])
    np.testing.assert_allclose(exploration_bonus(spread, 2.0, visits=visits), [[0.0, 0.0, 0.5]])


def test_what_it_cannot_use_is_refused(key):
    case = world(0)
    for make, kind, message in (
        (lambda: BEB(-1.0), ValueError, "scale is -1.0, expected a finite number, zero or greater"),
        (lambda: BEB().init(key, case.problem(AverageReward())), ValueError, "objective is AverageReward, expected"),
        (
            lambda: BEB().check_belief(Belief(case.posterior.mean_mdp(), case.visits)),
            TypeError,
            "BEB needs a posterior that has .*variance_factor",
        ),
    ):
        with pytest.raises(kind, match=message):
            make()
    with pytest.raises(ValueError, match="the others need Dirichlet rows"):
        BEB().check_belief(
            CountedSamples(MDP(np.ones((2, 1, 1, 1)), np.zeros((2, 1, 1))), np.full(2, 0.5), np.zeros((1, 1)))
        )
    assert BEB().init(key, case.problem(Episodic(H))) is None
