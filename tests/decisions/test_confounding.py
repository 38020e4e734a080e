"""Unrecorded causes of the actions: golden numbers of the clinic, linear programs, invariants of the model."""

import itertools

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

import bayes_mdp as bm
from bayes_mdp.decisions import tilted, tilted_draws, tipping_point, value_bounds
from bayes_mdp.decisions.confounding import outcomes_of_mdp, tipping_tilt
from tests.subjects import (
    DISCOUNTED,
    OUTCOME_REWARD,
    POLICIES,
    golden,
    needs_clinic,
    practice,
    rows_at_ml,
    subject_weights,
    wide,
)

FLAT = OUTCOME_REWARD


def random_world(seed: int, ends: bool = True):
    """Rows, a policy, practice and rewards by outcome of 4 states and 2 actions; some rows have zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(4 + ends, 0.5), (4, 2)) * (rng.random((4, 2, 4 + ends)) > 0.2)
    rows[..., 0] += 1e-3
    rows /= rows.sum(-1, keepdims=True)
    paid = rng.normal(size=rows.shape)
    reward = (rows * paid).sum(-1)
    mdp = bm.MDP(rows[..., :4], reward, end_probs=rows[..., 4] if ends else None, initial=rng.dirichlet(np.ones(4)))
    return mdp, rng.dirichlet(np.ones(2), 4), rng.dirichlet(np.ones(2), 4), paid


def by_programs(mdp, policy, logged, discount, factor, paid, sign):
    """The same bound by value iteration whose inner step is a linear program."""
    rows = np.concatenate([np.asarray(mdp.transition_probs), np.asarray(mdp.end_probs)[..., None]], -1)
    values = np.zeros(4)
    for _ in range(400):
        worth = paid + discount * np.append(values, 0.0)
        new = np.zeros(4)
        for s, a in np.ndindex(4, 2):
            p, e = rows[s, a], logged[s, a]
            program = linprog(sign * p * worth[s, a], A_eq=p[None], b_eq=[1.0], bounds=[(1 / factor, factor)] * len(p))
            new[s] += policy[s, a] * (e * p @ worth[s, a] + (1 - e) * sign * program.fun)
        if np.abs(new - values).max() < 1e-11:
            break
        values = new
    return float(np.asarray(mdp.initial) @ values)


@needs_clinic
@pytest.mark.parametrize("name", ["drug", "drug if frail or ill"])
def test_golden_bounds_and_tipping_points_of_the_clinic(name):
    with jax.enable_x64(True):
        mdp = wide(rows_at_ml(), subject_weights())
        case = mdp, POLICIES[name].reshape(16), practice().reshape(16, 2), DISCOUNTED
        paid = {"outcome_reward": FLAT}
        for factor in (1.1, 1.5, 2.0):
            low, high = value_bounds(*case, factor, **paid)
            assert low == pytest.approx(golden()["tipping", f"{name}: worst value, Lambda {factor}"], abs=1e-8)
            assert high == pytest.approx(golden()["tipping", f"{name}: best value, Lambda {factor}"], abs=1e-8)
        assert tipping_point(*case, **paid) == pytest.approx(golden()["tipping", f"{name}: Lambda"], abs=1e-8)
        tilt = tipping_tilt(*case, [0.0, 0.5, 1.0], **paid)
        assert tilt == pytest.approx(golden()["tipping", f"{name}: delta"], abs=1e-8)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sign", [1, -1])
def test_the_bounds_are_those_of_linear_programs(seed, sign):
    with jax.enable_x64(True):
        mdp, policy, logged, paid = random_world(seed)
        bounds = value_bounds(mdp, policy, logged, bm.Discounted(0.4), 1.8, outcome_reward=paid)
        expected = by_programs(mdp, policy, logged, 0.4, 1.8, paid, sign)
    assert (bounds.low if sign == 1 else bounds.high) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(6, discount=0.95)])
def test_invariants(seed, objective):
    with jax.enable_x64(True):
        mdp, policy, logged, paid = random_world(seed)
        at_one = value_bounds(mdp, policy, logged, objective, 1.0, outcome_reward=paid)
        assert at_one.low == pytest.approx(at_one.high, abs=1e-10)
        # Without unrecorded causes the reward of an outcome and its mean are worth the same.
        assert at_one.low == pytest.approx(value_bounds(mdp, policy, logged, objective, 1.0).low, abs=1e-10)
        several = [value_bounds(mdp, policy, logged, objective, f, outcome_reward=paid) for f in (1.0, 1.2, 2.0, 9.0)]
        assert all(b.low <= a.low + 1e-12 and b.high >= a.high - 1e-12 for a, b in itertools.pairwise(several))
        # Where the log always does what the policy does, nothing is left open.
        certain = np.eye(2)[np.zeros(4, int)]
        same = value_bounds(mdp, np.zeros(4, int), certain, objective, 5.0, outcome_reward=paid)
        assert same.low == pytest.approx(same.high, abs=1e-10)


def test_the_value_without_unrecorded_causes_is_that_of_the_planner():
    with jax.enable_x64(True):
        mdp, policy, logged, paid = random_world(7)
        low, _ = value_bounds(mdp, policy, logged, bm.Discounted(0.9), 1.0, outcome_reward=paid)
        values = np.asarray(bm.evaluate(mdp, policy, bm.Discounted(0.9)).v)
    assert low == pytest.approx(float(np.asarray(mdp.initial) @ values), abs=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_at_the_tipping_point_the_worst_value_is_that_of_practice(seed):
    """Practice as it was has the value of the log, whatever the factor: what the policy is compared with stays."""
    with jax.enable_x64(True):
        mdp, policy, logged, paid = random_world(seed)
        objective = bm.Discounted(0.9)
        factor = tipping_point(mdp, policy, logged, objective, outcome_reward=paid)
        practised, value = (
            value_bounds(mdp, p, logged, objective, 1.0, outcome_reward=paid).low for p in (logged, policy)
        )
        if factor == 1.0:
            assert value <= practised + 1e-9
            return
        assert value > practised
        worst = value_bounds(mdp, policy, logged, objective, min(factor, 1e6), outcome_reward=paid).low
    assert worst == pytest.approx(practised, abs=1e-6) if np.isfinite(factor) else worst > practised


def test_a_policy_that_is_no_better_has_tipping_point_one_and_a_certain_one_infinity():
    mdp = bm.MDP([[[1.0], [1.0]]], [[0.0, 1.0]])
    half = [[0.5, 0.5]]
    assert tipping_point(mdp, [0], half, bm.Discounted(0.9)) == 1.0
    assert tipping_point(mdp, [1], half, bm.Discounted(0.9)) == float("inf")


def test_the_bounds_hold_rows_that_hidden_causes_made(key):
    """A cause u doubles the odds of treatment and of a bad outcome: the true value lies inside at the true factor."""
    with jax.enable_x64(True):
        # u in {0, 1}, each 1/2; P(treated | u) .3 or .6; P(bad | treated, u) .2 or .5.
        treated, bad = np.array([0.3, 0.6]), np.array([0.2, 0.5])
        share = treated.mean()
        seen = (treated * bad).sum() / treated.sum()
        true = bad.mean()
        rows = np.array([[[1 - seen, seen], [0.7, 0.3]], [[0.0, 1.0], [0.0, 1.0]]])
        mdp = bm.MDP(rows, [[1.0, 1.0], [0.0, 0.0]], initial=[1.0, 0.0])
        logged = [[share, 1 - share], [0.5, 0.5]]
        # r_k = P(k | not treated by policy) / P(k | treated): within the ratio of odds of treatment.
        factor = (0.6 / 0.4) / (0.3 / 0.7)
        objective = bm.Episodic(2)
        low, high = value_bounds(mdp, [0, 0], logged, objective, factor)
        value = 1.0 + (1.0 - true)
    assert low < value < high
    assert not value_bounds(mdp, [0, 0], logged, objective, 1.01).high >= value >= low + 0.2


def test_tilted_rows_sum_to_one_and_zero_changes_nothing():
    with jax.enable_x64(True):
        mdp, _, logged, _ = random_world(3)
        same, moved = (tilted(mdp, logged, np.linspace(0, 1, 5), delta) for delta in (0.0, 0.8))
    same, moved, mdp = jax.tree.map(np.asarray, (same, moved, mdp))
    np.testing.assert_allclose(same.transition_probs, mdp.transition_probs, atol=1e-15)
    np.testing.assert_allclose(moved.transition_probs.sum(-1) + moved.end_probs, 1.0, atol=1e-14)
    assert (moved.end_probs >= mdp.end_probs - 1e-15).all()


def test_draws_are_tilted_by_draws_of_the_prior_that_the_log_does_not_move(key):
    """Kolmogorov-Smirnov at 1e-7: sd .5 against .75 is caught with 4,000 draws."""
    from scipy.stats import kstest, norm

    space = bm.StateActionSpace(2, 2)
    data = bm.Transitions([0, 0, 1], [0, 1, 1], None, [1, 0, 1])
    posterior = bm.infer(key, bm.models.known_rewards(np.zeros((2, 2))), data, space=space)
    logged = np.full((2, 2), 0.5)
    draws, delta = tilted_draws(key, posterior, logged, [0.0, 1.0], num_draws=4000)
    assert kstest(delta, norm(0, 0.5).cdf).pvalue > 1e-7
    assert kstest(delta, norm(0, 0.75).cdf).pvalue < 1e-7
    # The mean of outcome 1 is moved by its own delta.
    with jax.enable_x64(True):
        plain = posterior.sample(jax.random.split(key)[0], (4000,))
    more = np.asarray(draws.mdps.transition_probs)[..., 1] - np.asarray(plain.transition_probs)[..., 1]
    assert (np.sign(more.mean((1, 2))) == np.sign(delta)).mean() > 0.99


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factor": 0.5}, "factor is 0.5, expected a finite number, 1 or greater"),
        ({"logged": [[0.5, 0.6]] * 4}, r"logged\[0\] sums to"),
        ({"logged": [[0.5, 0.5]] * 3}, "logged has shape"),
        ({"objective": bm.AverageReward()}, "objective is"),
        ({"outcome_reward": np.zeros(3)}, r"outcome_reward has shape \(3,\)"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    mdp, policy, logged, paid = random_world(0)
    given = {"logged": logged, "objective": bm.Discounted(0.9), "factor": 1.5, "outcome_reward": paid} | changes
    with pytest.raises((ValueError, TypeError), match=message):
        value_bounds(mdp, policy, **given)


@pytest.mark.parametrize("seed", range(5))
def test_rewards_of_listed_outcomes_are_those_of_dense_ones(seed):
    """Outcomes in any order, the end among them: the tipping point is that of dense rows with the end last."""
    rng = np.random.default_rng(seed)
    rows, paid = rng.dirichlet(np.ones(4), (3, 2)), rng.normal(size=(3, 2, 4))
    listed = rng.permuted(np.broadcast_to(np.arange(4), (3, 2, 4)), axis=-1)
    spaces = bm.StateActionSpace(3, 2, ends=True), bm.StateActionSpace(3, 2, ends=True, successors=listed)
    logged = rng.dirichlet(np.ones(2), 3)
    answers = []
    for space, order in zip(spaces, (np.broadcast_to(np.arange(4), listed.shape), listed), strict=True):
        p, r = (np.take_along_axis(x, order, -1) for x in (rows, paid))
        with jax.enable_x64(True):
            mdp = space.mdp(p, (p * r).sum(-1))
            call = {"outcome_reward": outcomes_of_mdp(r, space), "initial": [0.2, 0.3, 0.5]}
            answers.append(value_bounds(mdp, [1, 0, 1], logged, bm.Discounted(0.9), 1.5, **call))
    np.testing.assert_allclose(*answers, rtol=1e-9)
