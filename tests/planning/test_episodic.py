"""Backward induction against a plain recursion and simulation-free identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.envs import riverswim_episodic
from bayes_mdp.mdp import MDP, Discounted, Episodic
from bayes_mdp.planning.episodic import backward_induction
from tests.planning.planning_problems import KINDS, arrays, evaluate, listed, make_mdp, solve

pytestmark = pytest.mark.optimised

HORIZON = 7
OBJECTIVES = [Episodic(HORIZON), Episodic(HORIZON, 1), Episodic(HORIZON, 0.9)]


def induction(rows, reward, legal, policy=None, discount=1.0):
    """The textbook recursion in float64; rows and reward with a leading step axis."""
    v, qs = np.zeros(rows.shape[-1]), []
    for h in reversed(range(len(rows))):
        q = np.where(legal, reward[h] + discount * rows[h] @ v, -np.inf)
        v = q.max(-1) if policy is None else np.where(policy[h] > 0, policy[h] * q, 0).sum(-1)
        qs.append(q)
    return np.array(qs[::-1])


def by_step(kind):
    data = [arrays(kind, 6, seed=h) for h in range(HORIZON)]
    rows, reward, ends = (np.stack([d[i] for d in data]) for i in range(3))
    return rows, reward, ends, data[0][3]


def gap_honoured(solution, q, relative):
    legal = np.isfinite(q)
    assert np.abs(np.asarray(solution.q, float)[legal] - q[legal]).max() <= solution.gap
    assert solution.gap < relative * (1 + np.abs(q[legal]).max())
    assert np.isneginf(np.asarray(solution.q)[~legal]).all()
    assert solution.converged


def test_steps_of_their_own(x64):
    for kind in KINDS:
        data = by_step(kind)
        q = induction(data[0], data[1], data[3])
        for mdp in (make_mdp(*data), listed(make_mdp(*data))):
            gap_honoured(solve(mdp, Episodic(HORIZON)), q, 1e-5)


def test_stationary_rows_are_repeated(x64):
    data = arrays("ending", 6)
    repeated = np.stack([data[0]] * HORIZON), np.stack([data[1]] * HORIZON), data[3]
    solution = solve(make_mdp(*data), Episodic(HORIZON))
    gap_honoured(solution, induction(*repeated), 1e-5)
    assert solution.v.shape == (HORIZON, 6)
    assert solution.iterations == HORIZON


def test_float32_is_honest():
    for kind in KINDS:
        data = by_step(kind)
        gap_honoured(solve(make_mdp(*data), Episodic(HORIZON)), induction(data[0], data[1], data[3]), 1e-4)


@pytest.mark.parametrize("discount", [0.9, 0.05])
def test_discounted_episodes_are_the_recursion(discount, x64):
    """Of every kind, dense and sparse, rows by step and rows that are repeated."""
    for kind in KINDS:
        data = by_step(kind)
        q = induction(data[0], data[1], data[3], discount=discount)
        for mdp in (make_mdp(*data), listed(make_mdp(*data))):
            gap_honoured(solve(mdp, Episodic(HORIZON, discount)), q, 1e-5)
    rows, reward, ends, legal = arrays("ending", 6)
    q = induction(np.stack([rows] * HORIZON), [reward] * HORIZON, legal, discount=discount)
    gap_honoured(solve(make_mdp(rows, reward, ends, legal), Episodic(HORIZON, discount)), q, 1e-5)


def test_a_discount_is_a_chance_to_end(x64):
    """The same values, to the last bits, as an undiscounted episode whose rows lose 1 - discount at every step."""
    rows, reward, ends, legal = arrays("masked", 6)
    leaving = make_mdp(0.8 * rows, reward, ends + 0.2, legal)
    answer, twin = solve(make_mdp(rows, reward, ends, legal), Episodic(9, 0.8)), solve(leaving, Episodic(9))
    np.testing.assert_allclose(answer.v, twin.v, rtol=1e-13)
    np.testing.assert_array_equal(answer.policy, twin.policy)


def test_discounted_float32_is_honest():
    for kind in KINDS:
        data = by_step(kind)
        q = induction(data[0], data[1], data[3], discount=0.7)
        gap_honoured(solve(make_mdp(*data), Episodic(HORIZON, 0.7)), q, 1e-4)


def test_the_bound_of_a_long_discounted_episode(x64):
    """Errors of late steps are discounted: the bound stays that of 1 / (1 - discount) steps."""
    data = arrays("random", 6)
    mdp, long = make_mdp(*data), 2000
    answer, plain = solve(mdp, Episodic(long, 0.9)), solve(mdp, Episodic(long))
    assert answer.gap < 0.01 * plain.gap
    q = induction(np.stack([data[0]] * long), [data[1]] * long, data[3], discount=0.9)
    assert np.abs(answer.q - q).max() <= answer.gap
    np.testing.assert_allclose(answer.v[0], solve(mdp, Discounted(0.9)).v, rtol=1e-11)


def test_one_step_has_no_discount(x64):
    data = arrays("masked", 6)
    for objective in (Episodic(1), Episodic(1, 0.3)):
        np.testing.assert_array_equal(solve(make_mdp(*data), objective).q[0], np.where(data[3], data[1], -np.inf))


def test_an_absorbing_state_pays_a_geometric_sum(x64):
    mdp = MDP(np.ones((1, 1, 1)), np.full((1, 1), 3.0))
    v = np.asarray(solve(mdp, Episodic(6, 0.9)).v[:, 0])
    np.testing.assert_allclose(v, [3 * (1 - 0.9**left) / 0.1 for left in range(6, 0, -1)], rtol=1e-14)


def test_no_discount_computes_what_it_did(x64):
    """A discount of one is the same program, so the same bits, as no discount; a discount is another."""
    mdp = make_mdp(*by_step("ending"))
    programs = [str(jax.make_jaxpr(lambda m, o=o: planning.solve(m, o).q)(mdp)) for o in OBJECTIVES]
    assert programs[0] == programs[1] != programs[2]


def test_published_values(x64):
    mdp = riverswim_episodic().mdp
    expected = [3.397264, 4.052651, 5.301868, 6.678367, 8.094, 9.521445]
    np.testing.assert_allclose(solve(mdp, Episodic(20)).v[0], expected, atol=1e-6)


def test_evaluate_policies_of_every_shape(x64):
    data = by_step("random")
    mdp, rng = make_mdp(*data), np.random.default_rng(0)
    stochastic = rng.dirichlet(np.ones(2), (HORIZON, 6))
    actions = rng.integers(0, 2, (HORIZON, 6))
    for policy, probs in (
        (stochastic, stochastic),
        (actions, np.eye(2)[actions]),
        (stochastic[0], np.stack([stochastic[0]] * HORIZON)),
        (actions[0], np.eye(2)[np.stack([actions[0]] * HORIZON)]),
    ):
        for discount in (1.0, 0.9):
            value = evaluate(mdp, policy, Episodic(HORIZON, discount))
            q = induction(data[0], data[1], data[3], probs, discount)
            assert np.abs(value.q - q).max() <= value.gap
            np.testing.assert_allclose(value.v, (probs * q).sum(-1), atol=1e-12)


def test_the_best_policy_is_worth_the_optimum(x64):
    data = by_step("masked")
    mdp = make_mdp(*data)
    best = solve(mdp, Episodic(HORIZON))
    value = evaluate(mdp, best.policy, Episodic(HORIZON))
    np.testing.assert_allclose(value.v, best.v, rtol=1e-13)


def test_backups_of_any_kind(x64):
    """The generic recursion passes each layer its step, from the last to the first."""
    q = backward_induction(lambda v, h: jnp.stack([v + h, v * 0.0], -1), 3, 2, dtype=float)
    np.testing.assert_array_equal(q[:, 0, 0], [3.0, 3.0, 2.0])
    masked = backward_induction(
        lambda v, h: jnp.stack([v + h, v * 0.0], -1), 3, 2, legal=jnp.array([[False, True]] * 2), dtype=float
    )
    np.testing.assert_array_equal(masked[:, 0, 1], 0.0)


def test_ends_are_worth_nothing_beyond(x64):
    mdp = MDP(np.zeros((1, 1, 1)), np.ones((1, 1)), end_probs=np.ones((1, 1)))
    np.testing.assert_array_equal(solve(mdp, Episodic(5)).v, 1.0)


def test_every_step_has_its_own_policy(x64):
    rows, reward, _, legal = by_step("random")
    probs = np.random.default_rng(1).dirichlet(np.ones(2), (HORIZON, 6))
    ahead, paid = jnp.asarray(rows), jnp.asarray(reward)
    q = backward_induction(lambda v, h: paid[h] + ahead[h] @ v, HORIZON, 6, policy=probs, dtype=float)
    np.testing.assert_allclose(q, induction(rows, reward, legal, probs), rtol=1e-12)
