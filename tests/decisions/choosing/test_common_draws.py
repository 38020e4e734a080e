"""Common draws: values, slopes and optima against dense solves, by both routes and for every objective."""

from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.choosing import common_draws as module
from bayes_mdp.decisions.choosing.common_draws import CommonDraws, draws_of
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from tests.decisions.choosing.problems import (
    GAMMA,
    POLICIES,
    REWARD,
    ROWS,
    START,
    dense_table,
    dense_value,
    given_draws,
    mdps,
    random_problem,
    worlds,
)
from tests.inference.policy_problems import posterior

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
S, A = 4, 2
LEGAL = np.array([[True, True], [True, False], [True, True], [False, True]])
OBJECTIVES = [Discounted(0.9), Episodic(3, 0.6), Episodic(3), AverageReward(), FirstExit()]


def of_objective(objective: Any, number: int = 6) -> CommonDraws:
    """Draws of a belief that is drawn whole."""
    belief = posterior(ends=isinstance(objective, FirstExit))
    return draws_of(KEY, belief, objective, number, initial=np.eye(S)[0])


def shape_of(objective: Any) -> tuple[int, ...]:
    """That of a policy."""
    return (objective.horizon, S, A) if isinstance(objective, Episodic) else (S, A)


def test_values_are_dense_solves():
    """Of all policies of the reference example, in every world; and the optimum of each."""
    draws = worlds()
    table = dense_table(ROWS, REWARD, GAMMA, START)
    values, gaps = draws.evaluations(np.eye(3)[POLICIES])
    np.testing.assert_allclose(values, table.T, rtol=1e-12)
    assert gaps.max() < 1e-9
    np.testing.assert_allclose(draws.best(), table.max(0), rtol=1e-12)
    np.testing.assert_array_equal(draws.optimal_policies(3).argmax(-1), POLICIES[table.argmax(0)][:3])


def test_the_order_of_the_draws_is_irrelevant():
    """Each keeps its value."""
    order = np.array([3, 0, 4, 2, 1])
    policies = np.eye(3)[POLICIES[:5]]
    np.testing.assert_allclose(worlds(order).values(policies), worlds().values(policies)[order], rtol=1e-13)


def test_slopes_by_central_differences():
    """Of dense values, by the action probabilities, each alone."""
    rows, reward = random_problem(0, 3, 2, 5)
    draws = given_draws(mdps(rows, reward), Discounted(GAMMA), initial=START)
    rng = np.random.default_rng(0)
    policy, weights = rng.dirichlet(np.ones(2), 3), rng.random(5)
    each = draws.gradients(policy)
    for world, p in enumerate(rows):
        for pair in np.ndindex(3, 2):
            step = np.zeros((3, 2))
            step[pair] = 1e-5
            ahead, behind = (dense_value(p, reward, policy + sign * step, GAMMA, START) for sign in (1, -1))
            assert each[(world, *pair)] == pytest.approx((ahead - behind) / 2e-5, abs=1e-6)
    np.testing.assert_allclose(draws.gradient(policy, weights), np.tensordot(weights, each, 1), atol=1e-12)


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_slopes_of_every_objective(objective):
    """Along the way from one policy to another, by central differences of the values."""
    draws, rng = of_objective(objective), np.random.default_rng(1)
    policy, other = (rng.dirichlet(np.ones(A), shape_of(objective)[:-1]) for _ in range(2))
    step = 1e-5
    ahead, behind = draws.values(np.stack([policy + step * (other - policy), policy - step * (other - policy)])).T
    slopes = (draws.gradients(policy) * (other - policy)).reshape(draws.num, -1).sum(-1)
    np.testing.assert_allclose(slopes, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-8)


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_the_best_is_the_value_of_the_optimal_policy(objective):
    """And no lower than that of any other."""
    draws, rng = of_objective(objective), np.random.default_rng(2)
    best = draws.best()
    own = np.diag(draws.values(draws.optimal_policies(draws.num)))
    np.testing.assert_allclose(best, own, rtol=1e-9)
    others = draws.values(rng.dirichlet(np.full(A, 0.2), (20, *shape_of(objective)[:-1])))
    assert (others <= best[:, None] + 1e-9).all()


@pytest.fixture(scope="module")
def learnt() -> Any:
    """A posterior in closed form with illegal actions, which can draw single pairs."""
    space = bm.StateActionSpace(S, A, legal=LEGAL)
    return bm.infer(KEY, bm.models.dirichlet_normal(0.5), space=space, method="exact")


@pytest.mark.parametrize(
    "objective", [Discounted(0.9), pytest.param(AverageReward(), marks=pytest.mark.slow)], ids=repr
)
def test_entries_are_whole_draws(objective, learnt):
    """Single pairs, put into whole MDPs, have the same values, slopes and optima."""
    start = np.eye(S)[0]
    draws = draws_of(KEY, learnt, objective, 7, initial=start)
    assert draws.kept is not None
    rows, reward = np.zeros((7, S, A, S)), np.zeros((7, S, A))
    rows[..., 0] = 1.0
    pairs = draws.rows
    reward[:, pairs.state, pairs.action] = draws.kept.reward
    rows[:, pairs.state, pairs.action] = 0.0
    rows[:, pairs.state[pairs.pair], pairs.action[pairs.pair], pairs.next_state] = draws.kept.probs
    with jax.enable_x64(True):
        listed = MDP(rows, reward)
    whole = given_draws(listed, objective, initial=start)
    rng = np.random.default_rng(0)
    policies = rng.dirichlet(np.ones(A), (5, S)) * LEGAL
    policies /= policies.sum(-1, keepdims=True)
    np.testing.assert_allclose(draws.values(policies), whole.values(policies), rtol=1e-9)
    # Slopes are equal along every way between policies: with the average reward each state has a constant of its own.
    apart = draws.gradients(policies[0]) - whole.gradients(policies[0])
    scale = np.abs(draws.gradients(policies[0])).max()
    assert np.ptp(apart[:, [0, 2]], axis=-1).max() < 1e-9 * scale
    if isinstance(objective, Discounted):
        assert np.abs(apart[:, LEGAL]).max() < 1e-9 * scale
    assert (draws.gradients(policies[0])[:, ~LEGAL] == 0).all()
    options = np.eye(A)[np.array([[i, 0, j, 1] for i in range(2) for j in range(2)])]
    np.testing.assert_allclose(draws.best(), whole.values(options).max(-1), rtol=1e-9)
    assert LEGAL[np.arange(S), draws.optimal_policies(7).argmax(-1)].all()


def test_draws_that_are_not_held_and_large_ones_are_the_same(learnt, monkeypatch):
    """Drawn anew for every pass; rounded to single precision, held or not."""
    policies = np.eye(A)[np.array([[0, 0, 1, 1], [1, 0, 0, 1]])]
    weights = np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.5])

    def answers():
        draws = draws_of(KEY, learnt, Discounted(0.9), 7)
        return draws, [draws.values(policies), draws.gradient(policies[0], weights), draws.best()]

    held, expected = answers()
    monkeypatch.setattr(module, "MOST_KEPT", 0)
    monkeypatch.setattr(module, "DRAWN_AT_ONCE", 3 * held.numbers)
    anew, again = answers()
    assert held.kept is not None and anew.kept is None
    for one, other in zip(again, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    monkeypatch.setattr(module, "LARGE", 0)
    single = answers()[1]
    monkeypatch.setattr(module, "MOST_KEPT", 1e9)
    rounded, kept = answers()
    assert rounded.kept is not None and rounded.kept.probs.dtype == np.float32
    for one, other, exact in zip(single, kept, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_allclose(one, exact, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_values_of_large_draws_are_worked_out_once(monkeypatch):
    policies = np.stack([np.where(LEGAL, weight, 0.0) for weight in ([1.0, 3.0], [2.0, 1.0], [1.0, 1.0])])
    policies /= policies.sum(-1, keepdims=True)
    expected = of_objective(Discounted(0.9)).values(policies)
    monkeypatch.setattr(module, "LARGE", 0)
    evaluated, evaluations = [], CommonDraws.evaluations
    monkeypatch.setattr(CommonDraws, "evaluations", lambda draws, p: evaluated.append(len(p)) or evaluations(draws, p))
    draws = of_objective(Discounted(0.9))
    first, again = draws.values(policies[[0, 2]]), draws.values(policies[[2, 1, 0]])
    np.testing.assert_allclose(again, expected[:, [2, 1, 0]], rtol=1e-5)  # rows in single precision
    np.testing.assert_array_equal(first, again[:, [2, 0]])
    assert evaluated == [2, 1]


def test_only_needed_pairs_are_drawn(learnt):
    """The best over these alone."""
    needed = LEGAL.copy()
    needed[0, 1] = False
    draws = draws_of(KEY, learnt, Discounted(0.9), 7, needed=needed)
    assert len(draws.rows.state) == needed.sum()
    options = np.eye(A)[np.array([[0, 0, j, 1] for j in range(2)])]
    np.testing.assert_allclose(draws.best(), draws.values(options).max(-1), rtol=1e-9)


@pytest.mark.slow
def test_draws_in_chunks_are_the_same_draws(monkeypatch):
    """Also where sums over draws are taken, and where policies come in batches."""
    draws = of_objective(Discounted(0.9), number=11)
    rng = np.random.default_rng(0)
    policies, weights = rng.dirichlet(np.ones(A), (9, S)), rng.random(11)
    answers = draws.values(policies), draws.gradient(policies[0], weights), draws.best(), draws.gradients(policies[0])
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 4 * 120)
    monkeypatch.setattr(module, "MANY", 4)
    again = draws.values(policies), draws.gradient(policies[0], weights), draws.best(), draws.gradients(policies[0])
    for one, other in zip(answers, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_values_that_are_not_finite_are_refused():
    """A policy that need not end, where it has a name (a search passes it by), and the average reward of what ends."""
    stay = np.zeros((1, 2, 2, 2))
    stay[0, 0, 0, 0] = 1.0
    ends = 1.0 - stay.sum(-1)
    with jax.enable_x64(True):
        mdp = MDP(stay, np.ones((1, 2, 2)), end_probs=ends)
    draws = given_draws(mdp, FirstExit())
    policies = np.eye(2)[np.array([[1, 1], [0, 1]])]
    with pytest.raises(ValueError, match=r"second: its value in draw 0 .*expected a policy that ends"):
        draws.evaluations(policies, names=["first", "second"])
    values, gaps = draws.evaluations(policies)
    np.testing.assert_allclose(values, [[1.0, -np.inf]], rtol=1e-12)
    assert gaps[0, 1] == 0.0
    assert draws.values(np.eye(2)[np.array([[1, 1]])]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="expected MDPs that never end"):
        given_draws(mdp, AverageReward()).values(np.eye(2)[np.array([[1, 1]])])
    with pytest.raises(ValueError, match="expected MDPs that never end"):
        given_draws(mdp, AverageReward()).best()


def test_an_initial_distribution(learnt):
    """Stated or not; wrong ones are refused."""
    assert not draws_of(KEY, learnt, Discounted(0.9), 2).initial_given
    np.testing.assert_array_equal(draws_of(KEY, learnt, Discounted(0.9), 2).start, np.full(S, 1 / S))
    assert draws_of(KEY, learnt, Discounted(0.9), 2, initial=np.eye(S)[1]).initial_given
    with pytest.raises(ValueError, match=r"initial has shape \(3,\), expected \(4,\)"):
        draws_of(KEY, learnt, Discounted(0.9), 2, initial=np.ones(3) / 3)
