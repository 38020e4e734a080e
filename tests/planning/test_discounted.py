"""Discounted planning against dense float64 solves, QuantEcon and enumeration; the gap always honoured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from bayes_mdp.mdp import MDP, Discounted, SparseMDP
from bayes_mdp.planning import solve as plan_of
from bayes_mdp.planning.bellman import Rounding
from bayes_mdp.planning.discounted import sweep_with_bounds
from bayes_mdp.planning.solution import Solution
from tests.planning.planning_problems import KINDS, all_policies, arrays, listed, make_mdp, optimal_discounted, solve

DISCOUNTS = (0.0, 0.9, 0.999)


def check(solution, data, discount, relative):
    """The gap is honoured, small, and illegal actions are never chosen."""
    rows, reward, ends, legal = data
    v = optimal_discounted(rows, reward, ends, legal, discount)
    size = 1 + np.abs(v).max()
    q = reward + discount * rows @ v
    errors = np.abs(np.asarray(solution.v, float) - v).max(), np.abs(np.asarray(solution.q, float) - q)[legal].max()
    error = max(errors)
    assert error <= solution.gap
    assert solution.gap <= relative * size / (1 - discount)
    assert solution.converged
    assert legal[np.arange(len(v)), solution.policy].all()
    assert np.isneginf(np.asarray(solution.q)[~legal]).all()
    np.testing.assert_array_equal(solution.v, np.max(solution.q, -1))
    return error / size


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("n", "sparse"),
    [(6, False), (20, False), (150, False), (6, True), pytest.param(150, True, marks=pytest.mark.slow)],
)
def test_float64_agrees_with_dense_solves(n, sparse, x64):
    for kind in KINDS:
        data = arrays(kind, n)
        mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
        for discount in DISCOUNTS:
            error = check(solve(mdp, Discounted(discount)), data, discount, 1e-12)
            assert error < 1e-9


@pytest.mark.parametrize("n", [6, 150])
def test_float32_is_honest(n):
    """The bound covers float32 arithmetic and the rounding of the inputs to float32."""
    for kind in KINDS:
        data = arrays(kind, n)
        for discount in DISCOUNTS:
            check(solve(make_mdp(*data), Discounted(discount)), data, discount, 4e-5)


def test_quantecon(x64):
    from quantecon.markov import DiscreteDP

    for seed in range(5):
        data = arrays("random", 20, seed=seed)
        solution = solve(make_mdp(*data), Discounted(0.97))
        peer = DiscreteDP(data[1], data[0], 0.97).solve(method="policy_iteration")
        np.testing.assert_allclose(solution.v, peer.v, rtol=1e-9)
        np.testing.assert_array_equal(solution.policy, peer.sigma)


def test_no_policy_is_better(x64):
    rows, reward, _, legal = data = arrays("ending", 6)
    best = solve(make_mdp(*data), Discounted(0.9))
    states = np.arange(6)
    values = [
        np.linalg.solve(np.eye(6) - 0.9 * rows[states, policy], reward[states, policy])
        for policy in all_policies(6, 2, legal)
    ]
    np.testing.assert_allclose(best.v, np.max(values, 0), atol=1e-12)


@pytest.mark.parametrize("kind", ["random", "ending", "masked"])
def test_bounds_hold_for_arbitrary_values(kind, x64):
    """The certificate does not trust the solver: it holds for any values, also far ones and with ends."""
    data = arrays(kind, 6)
    mdp, rng = make_mdp(*data), np.random.default_rng(0)
    v = optimal_discounted(*data, 0.9)
    certify = jax.jit(sweep_with_bounds)
    for scale in (1e-6, 1e-2, 1.0, 100.0):
        for _ in range(10):
            guess = v + scale * (rng.normal(size=6) + rng.normal())
            q, gap = certify(mdp, jnp.asarray(0.9), Rounding.of(mdp), jnp.asarray(guess))
            assert np.abs(np.max(q, -1) - v).max() <= gap <= 40 * scale


def test_values_that_are_not_finite_prove_nothing():
    mdp = make_mdp(*arrays("random", 6))
    _, gap = sweep_with_bounds(mdp, 0.9, Rounding.of(mdp), jnp.full(6, jnp.nan))
    assert np.isposinf(gap)


@pytest.mark.parametrize("n", [6, 20])
def test_warm_start_changes_the_effort_only(n, x64):
    data = arrays("random", n)
    cold = solve(make_mdp(*data), Discounted(0.95))
    moved = (0.999 * data[0] + 0.001 / n, *data[1:])
    warm = solve(make_mdp(*moved), Discounted(0.95), start=cold)
    again = solve(make_mdp(*moved), Discounted(0.95))
    np.testing.assert_allclose(warm.v, again.v, rtol=1e-11)
    assert warm.iterations <= again.iterations


def test_a_blank_start_respects_the_mask(x64):
    *_, legal = data = arrays("masked", 6)
    start = Solution.blank((6, 2), legal=legal)
    assert legal[np.arange(6), start.policy].all()
    check(solve(make_mdp(*data), Discounted(0.9), start=start), data, 0.9, 1e-12)
    illegal = Solution.blank((6, 2))
    check(solve(make_mdp(*data), Discounted(0.9), start=illegal), data, 0.9, 1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [6, 20])
def test_batches_equal_single_problems(n, x64):
    """Also with a batch of discounts, nested batches, and a shared reward (the batch-last layout of tiny problems)."""
    data = [arrays("random", n, seed=seed) for seed in range(4)]
    rows, discounts = jnp.stack([d[0] for d in data]), jnp.array([0.5, 0.9, 0.99])
    reward = jnp.asarray(data[0][1])
    one = lambda p, g: solve(MDP(p, reward), Discounted(g))  # noqa: E731
    both = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(rows, discounts)
    for i in range(4):
        for j in range(3):
            alone = optimal_discounted(np.asarray(rows[i]), data[0][1], *data[0][2:], float(discounts[j]))
            np.testing.assert_allclose(both.v[i, j], alone, rtol=1e-10)
    assert both.converged.all()


def test_sparse_beyond_the_direct_solvers(x64):
    """More than 2048 listed states: Krylov only, against a scipy sparse solve of the policy found."""
    rng = np.random.default_rng(3)
    n = 2500
    successor = (np.arange(n)[:, None, None] + rng.integers(-3, 4, (n, 2, 4))) % n
    probability = rng.dirichlet(np.ones(4), (n, 2))
    reward = rng.normal(size=(n, 2))
    solution = solve(SparseMDP(successor, probability, reward), Discounted(0.99))
    states, policy = np.arange(n), np.asarray(solution.policy)
    index = np.repeat(states, 4), successor[states, policy].ravel()
    chain = scipy.sparse.coo_matrix((probability[states, policy].ravel(), index), shape=(n, n))
    system = scipy.sparse.csc_matrix(scipy.sparse.identity(n) - 0.99 * chain)
    v = np.asarray(scipy.sparse.linalg.spsolve(system, reward[states, policy]))
    assert np.abs(v - solution.v).max() <= 2 * solution.gap + 1e-10
    q = reward + 0.99 * np.sum(probability * v[successor], -1)
    assert (q.max(-1) - v).max() < 1e-9
    assert solution.converged


def river(n):
    """Rewards at both ends of a long chain, and a small cost on the way: news travels far."""
    states = np.arange(n)
    successor = np.clip(states[:, None] + np.array([-1, 0, 1]), 0, n - 1)[:, None].repeat(4, 1)
    moves = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.05, 0.6, 0.35]])
    reward = np.zeros((n, 4))
    reward[states % 7 == 0, 3] = -0.001
    reward[0, 0], reward[-1, 3] = 0.005, 1.0
    return successor, np.broadcast_to(moves, (n, 4, 3)), reward


def optimal_sparse(successor, probability, reward, discount, policy):
    """Values of the policy by scipy, which no action improves: the optimum."""
    n, states = len(reward), np.arange(len(reward))
    index = np.repeat(states, probability.shape[-1]), successor[states, policy].ravel()
    chain = scipy.sparse.coo_matrix((probability[states, policy].ravel(), index), shape=(n, n))
    system = scipy.sparse.csc_matrix(scipy.sparse.identity(n) - discount * chain)
    v = np.asarray(scipy.sparse.linalg.spsolve(system, reward[states, policy]))
    q = reward + discount * np.sum(probability * v[successor], -1)
    return v, (q.max(-1) - v).max()


@pytest.mark.parametrize(
    ("n", "discounts"),
    [(3000, (0.95, 0.99, 0.999)), pytest.param(100_000, (0.99, 0.9999), marks=pytest.mark.slow)],
)
def test_a_river(n, discounts, x64):
    """An improvement moves news by four states: policy iteration alone takes hundreds."""
    data = river(n)
    for discount in discounts:
        solution = solve(SparseMDP(*data), Discounted(discount))
        v, better = optimal_sparse(*data, discount, np.asarray(solution.policy))
        size = np.abs(v).max()
        assert better <= 1e-12 * size
        assert np.abs(v - solution.v).max() <= solution.gap + better / (1 - discount) + 1e-13 * size / (1 - discount)
        assert solution.gap <= 2e-14 * size / (1 - discount)
        assert solution.converged


@pytest.mark.slow
def test_a_dense_river(x64):
    data = river(200)
    solution = solve(SparseMDP(*data).to_dense(), Discounted(0.99))
    listed_solution = solve(SparseMDP(*data), Discounted(0.99))
    assert solution.converged
    assert np.abs(solution.v - listed_solution.v).max() <= solution.gap + listed_solution.gap


def cycle(order):
    """A deterministic cycle through the states in this order."""
    n = len(order)
    successor = np.empty(n, int)
    successor[order] = np.roll(order, -1)
    return successor[:, None, None], np.ones((n, 1, 1))


@pytest.mark.parametrize("scrambled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_cycle_and_its_derivative(scrambled, x64):
    """v(0) = sum_t discount^t r(t) / (1 - discount^n), closed form; also where the order of the states says nothing."""
    n, discount = 1100, 0.9999
    order = np.arange(n)
    if scrambled:
        order[1:] = np.random.default_rng(0).permutation(order[1:])
    successor, probability = cycle(order)
    reward = np.random.default_rng(1).normal(size=(n, 1))
    value = lambda r: solve(SparseMDP(successor, probability, r), Discounted(discount)).v[0]  # noqa: E731
    v, slope = jax.value_and_grad(value)(jnp.asarray(reward))
    weights = np.empty(n)
    weights[order] = discount ** np.arange(n) / (1 - discount**n)
    np.testing.assert_allclose(v, weights @ reward[:, 0], rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(slope[:, 0], weights, rtol=1e-9)


def test_no_derivative_without_a_solution(x64):
    """A scrambled cycle beyond the direct solvers: `converged` is false, the gap honest, the derivative no number."""
    n, discount = 2100, 0.999999
    order = np.r_[0, np.random.default_rng(0).permutation(np.arange(1, n))]
    successor, probability = cycle(order)
    reward = jnp.asarray(np.random.default_rng(1).normal(size=(n, 1)))

    def value(r):
        solution = solve(SparseMDP(successor, probability, r), Discounted(discount))
        return solution.v[0], solution

    slope, solution = jax.grad(value, has_aux=True)(reward)
    weights = np.empty(n)
    weights[order] = discount ** np.arange(n) / (1 - discount**n)
    assert not solution.converged
    assert abs(solution.v[0] - weights @ np.asarray(reward)[:, 0]) <= solution.gap
    assert np.isnan(slope).all()


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["random", "ends", "chain"])
def test_a_tolerance_stops_earlier_and_is_kept(name, x64):
    """Against the plan at rounding: no value is off by more than the tolerance, as the gap says, and less is done."""
    rng, n = np.random.default_rng(11), 300
    if name == "chain":
        listed = np.clip(np.arange(n)[:, None] + np.array([-1, 0, 1]), 0, n - 1)[:, None].repeat(2, 1)
        rows = np.broadcast_to(np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]), (n, 2, 3))
        reward = np.zeros((n, 2))
        reward[-1] = 1.0
    else:
        listed, rows = rng.integers(n, size=(n, 2, 5)), rng.dirichlet(np.ones(5), (n, 2))
        reward = rng.normal(size=(n, 2))
    ends = np.full((n, 2), 0.1) if name == "ends" else None
    mdp = SparseMDP(listed, rows * (0.9 if name == "ends" else 1.0), reward, end_probs=ends)
    plan = jax.jit(lambda tolerance: plan_of(mdp, Discounted(0.97), tolerance=tolerance))
    exact = plan(0.0)
    assert exact.converged and exact.gap < 1e-9
    efforts = []
    for tolerance in (1e-2, 1e-5):
        found = plan(tolerance)
        assert found.converged and found.gap <= tolerance * (1 + 1e-6)
        assert np.abs(found.v - exact.v).max() <= found.gap + exact.gap
        efforts.append(int(found.iterations))
    assert efforts[0] <= efforts[1] <= int(exact.iterations)
    # Policy iteration on the chain ends exactly with the last improvement.
    assert efforts[0] < int(exact.iterations) or name == "chain"


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_listed_rows_of_rewards_of_any_size(x64, scale):
    """Changes are swept in single precision, which holds neither size: in units of the change it does."""
    rng = np.random.default_rng(5)
    successor, weight = rng.integers(0, 300, (300, 3, 4)), rng.dirichlet(np.ones(4), (300, 3))
    reward = scale * rng.normal(size=(300, 3))
    found = solve(SparseMDP(successor, weight, reward), Discounted(0.95))
    rows = np.zeros((300, 3, 300))
    np.add.at(rows, (np.arange(300)[:, None, None], np.arange(3)[:, None], successor), weight)
    policy = np.asarray(found.policy)
    chain, paid = rows[np.arange(300), policy], reward[np.arange(300), policy]
    values = np.linalg.solve(np.eye(300) - 0.95 * chain, paid)
    np.testing.assert_allclose(found.v, values, rtol=1e-11)
    assert (reward + 0.95 * rows @ values <= values[:, None] + 1e-11 * scale).all()
    assert bool(found.converged) and float(found.gap) <= 1e-11 * scale
