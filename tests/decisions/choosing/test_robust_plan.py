"""Robust dynamic programming against linear programs, brute force over vertices and the goldens."""

import jax
import numpy as np
import pytest
from scipy.optimize import linprog

from bayes_mdp.decisions.choosing.credible_set import CredibleSet, centre, robust_plan
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, policy_set
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit
from tests.decisions.choosing.problems import (
    GAMMA,
    REWARD,
    ROWS,
    START,
    dense_table,
    dense_value,
    everything,
    mdps,
    random_problem,
    worlds,
)

pytestmark = pytest.mark.numerics

S, A = 3, 3


def members_of(rows: np.ndarray, reward: np.ndarray, radius: np.ndarray, reward_radius: float = 0.0) -> CredibleSet:
    """The set around given rows [S, A, S or S + 1], the last outcome being the end where there is one more."""
    state, action = np.indices(reward.shape).reshape(2, -1)
    outcomes = np.tile(np.arange(rows.shape[-1], dtype=np.int32), (len(state), 1))
    probs = rows[state, action]
    return CredibleSet(
        state,
        action,
        outcomes,
        probs,
        np.ones(probs.shape, bool),
        reward[state, action],
        np.broadcast_to(radius, reward.shape)[state, action].astype(float),
        np.full(len(state), reward_radius),
        *reward.shape,
    )


def worst_mean(row: np.ndarray, radius: float, values: np.ndarray) -> float:
    """min p . values over distributions p within an L1 distance of `row`: a linear program in p and |p - row|."""
    n = len(row)
    eye, nothing = np.eye(n), np.zeros(n)
    found = linprog(
        np.concatenate([values, nothing]),
        A_ub=np.block([[eye, -eye], [-eye, -eye], [nothing[None], np.ones((1, n))]]),
        b_ub=np.concatenate([row, -row, [radius]]),
        A_eq=np.concatenate([np.ones(n), nothing])[None],
        b_eq=[1.0],
        bounds=[(0, None)] * (2 * n),
        method="highs",
    )
    assert found.success
    return float(found.fun)


def a_member(rng: np.random.Generator, rows: np.ndarray, radius: np.ndarray, values: np.ndarray | None) -> np.ndarray:
    """Rows within the distance: at random, on the edge, or the worst for some values."""
    shape, n = rows.shape[:2], rows.shape[-1]
    found = np.empty_like(rows)
    for pair in np.ndindex(*shape):
        row = rows[pair]
        target = np.eye(n)[rng.integers(n) if values is None else int(values.argmin())]
        target = rng.dirichlet(np.ones(n)) if values is None and rng.random() < 0.5 else target
        distance = np.abs(target - row).sum()
        step = min(1.0, float(radius[pair]) / max(distance, 1e-12))
        found[pair] = row + step * (rng.random() if values is None and rng.random() < 0.3 else 1.0) * (target - row)
    return found


def test_the_reference_example():
    """Radii: the largest of the five distances; the whole, half and none of them."""
    mean = ROWS.mean(0)
    radius = np.abs(ROWS - mean).sum(-1).max(0)
    table = dense_table(ROWS, REWARD, GAMMA, START)
    plans = {}
    for share, policy, value in (
        (1.0, (0, 0, 0), 8.0693158727),
        (0.5, (0, 0, 1), 8.1192632),
        (0, (2, 0, 1), 8.6692378),
    ):
        plan = plans[share] = robust_plan(members_of(mean, REWARD, share * radius), Discounted(GAMMA), everything())
        np.testing.assert_array_equal(plan.choice, policy)
        assert plan.values @ START == pytest.approx(value, abs=1e-7)
        assert plan.gap < 1e-10
    assert plans[1.0].values @ START == pytest.approx(8.0693158727, abs=1e-9)
    assert table[0].min() >= 8.0693158727 - 1e-9
    # Half of the radius promises nothing: the worst of the five worlds is outside.
    assert table[1].min() == pytest.approx(7.7865, abs=5e-5)


def test_the_centre_of_draws_is_their_mean():
    """The way that `choose` takes: the mean of the five worlds, by `centre`."""
    middle = centre(worlds(), mdps(ROWS.mean(0), REWARD))
    alone = centre(worlds(), None)
    for members in (middle, alone):
        plan = robust_plan(members, Discounted(GAMMA), everything())
        assert plan.values @ START == pytest.approx(8.6692378089, abs=1e-9)


@pytest.fixture(scope="module")
def cases() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """20 random problems: rows with some zeros, rewards, radii from small to larger than 2."""
    made = []
    for seed in range(20):
        rows, reward = random_problem(seed, S, A, 1)
        rng = np.random.default_rng(seed)
        rows = np.where(rows[0] < 0.05, 0.0, rows[0])
        made.append((rows / rows.sum(-1, keepdims=True), reward, rng.choice([0.05, 0.3, 0.9, 2.5], (S, A))))
    return made


def test_values_solve_the_equation_of_the_linear_programs(cases):
    """v = max_a (reward - its radius + discount * worst mean): a contraction, so there is one solution."""
    for rows, reward, radius in cases:
        plan = robust_plan(members_of(rows, reward, radius, 0.1), Discounted(GAMMA), everything())
        q = np.array(
            [
                [reward[s, a] - 0.1 + GAMMA * worst_mean(rows[s, a], radius[s, a], plan.values) for a in range(A)]
                for s in range(S)
            ]
        )
        np.testing.assert_allclose(plan.values, q.max(-1), atol=1e-8)
        np.testing.assert_allclose(np.take_along_axis(q, plan.choice[:, None], -1)[:, 0], q.max(-1), atol=1e-8)


def test_no_member_of_the_set_is_worse(cases):
    """Members at random, on the edge, and the worst for the values found, which attain them."""
    rng = np.random.default_rng(0)
    for rows, reward, radius in cases:
        plan = robust_plan(members_of(rows, reward, radius), Discounted(GAMMA), everything())
        policy = np.eye(A)[plan.choice]
        for _ in range(30):
            member = a_member(rng, rows, radius, None)
            assert (np.abs(member - rows).sum(-1) <= radius + 1e-9).all()
            assert dense_value(member, reward, policy, GAMMA, START) >= plan.values @ START - 1e-9
        worst = np.empty_like(rows)
        for pair in np.ndindex(S, A):
            left, row = min(radius[pair] / 2, 1.0), rows[pair].copy()
            for best in np.argsort(-plan.values):
                moved = min(left, row[best])
                row[best] -= moved
                row[plan.values.argmin()] += moved
                left -= moved
            worst[pair] = row
        assert dense_value(worst, reward, policy, GAMMA, START) == pytest.approx(plan.values @ START, abs=1e-9)
        # No other deterministic policy has a better worst value: against the same adversary all are at most as good.
        assert dense_table(worst[None], reward, GAMMA, START).max() <= plan.values @ START + 1e-9


def test_values_fall_with_the_radius(cases):
    """From `solve` of the mean at zero to the worst successor at two."""
    for rows, reward, radius in cases:
        shares = (0.0, 0.2, 0.5, 1.0, 2.0, 50.0)
        plans = [
            robust_plan(members_of(rows, reward, share * radius), Discounted(GAMMA), everything()) for share in shares
        ]
        values = np.array([plan.values for plan in plans])
        assert (np.diff(values, axis=0) <= 1e-9).all()
        best = dense_table(rows[None], reward, GAMMA, START)[:, 0]
        assert values[0] @ START == pytest.approx(best.max(), abs=1e-9)
        lowest = reward.max(-1)  # one step, then the worst state for ever
        assert values[-1] == pytest.approx(lowest + GAMMA * lowest.min() / (1 - GAMMA), abs=1e-8)


def test_a_fixed_part_of_the_policy_stays(cases):
    """Half of the decisions are the baseline's: the equation with q mixed."""
    for rows, reward, radius in cases[:5]:
        baseline = np.random.default_rng(1).dirichlet(np.ones(A), S)
        policies = policy_set(PolicyLimits(max_change=0.5), None, (S, A), None, baseline)
        members = members_of(rows, reward, radius)
        plan = robust_plan(members, Discounted(GAMMA), policies)
        with jax.enable_x64(True):
            q = np.asarray(members.worst_values(jax.numpy.asarray(plan.values), GAMMA))
        np.testing.assert_allclose(plan.values, 0.5 * (baseline * q).sum(-1) + 0.5 * q.max(-1), atol=1e-9)
        free = robust_plan(members, Discounted(GAMMA), everything())
        assert (plan.values <= free.values + 1e-9).all()


@pytest.mark.parametrize("discount", [1.0, 0.6])
def test_finite_horizons(cases, discount):
    """Backwards by linear programs, four steps."""
    for rows, reward, radius in cases[:5]:
        steps = policy_set(PolicyLimits(), None, (4, S, A), None, None)
        plan = robust_plan(members_of(rows, reward, radius), Episodic(4, discount), steps)
        values, choices = np.zeros(S), []
        for _ in range(4):
            q = np.array(
                [
                    [reward[s, a] + discount * worst_mean(rows[s, a], radius[s, a], values) for a in range(A)]
                    for s in range(S)
                ]
            )
            values = q.max(-1)
            choices.insert(0, q.argmax(-1))
        np.testing.assert_allclose(plan.values, values, atol=1e-9)
        np.testing.assert_array_equal(plan.choice, choices)
        assert plan.gap == 0


def test_an_exit_has_value_zero():
    """Undiscounted: the equation of the linear programs, the end being one more outcome of value zero."""
    rng = np.random.default_rng(0)
    rows, reward = rng.dirichlet(np.ones(S + 1), (S, A)), -rng.uniform(1, 2, (S, A))
    radius = np.minimum(rng.uniform(0, 0.5, (S, A)), rows[..., -1])
    plan = robust_plan(members_of(rows, reward, radius), FirstExit(), everything())
    ahead = np.append(plan.values, 0.0)
    q = np.array([[reward[s, a] + worst_mean(rows[s, a], radius[s, a], ahead) for a in range(A)] for s in range(S)])
    np.testing.assert_allclose(plan.values, q.max(-1), rtol=1e-8)
    assert plan.gap == np.inf


def test_what_has_no_bound_is_refused(monkeypatch):
    """The average reward, and a worst MDP that never ends."""
    members = members_of(ROWS.mean(0), REWARD, np.zeros((3, 3)))
    with pytest.raises(ValueError, match="objective is AverageReward, expected Discounted, Episodic or FirstExit"):
        robust_plan(members, AverageReward(), everything())
    monkeypatch.setattr("bayes_mdp.decisions.choosing.credible_set._SWEEPS", 500)
    with pytest.raises(ValueError, match="FirstExit: the worst values did not settle in 500 sweeps, expected a set"):
        robust_plan(members, FirstExit(), everything())
