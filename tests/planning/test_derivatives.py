"""Derivatives of the planners: published numbers, central differences, both modes, ties, illegal actions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, SparseMDP
from bayes_mdp.planning.bellman import HardMax, Rounding
from bayes_mdp.planning.derivatives import with_gain_derivatives
from bayes_mdp.planning.discounted import solve_discounted
from bayes_mdp.planning.solution import Solution
from tests.planning.gradient_problems import (
    OBJECTIVES,
    PLANNERS,
    answer,
    difference,
    direction,
    dot,
    mdp_at,
    moved,
    parameters,
    river,
    size,
    summary,
)

AT = np.array([0.35, 0.05, 0.05, 0.95])  # p, b, r0, discount


def river_exit(p, b):
    """From the left end to the right one, -1 a step."""
    mdp = river(p, b, 0.0)
    last = (jnp.arange(6) == 5)[:, None] * jnp.ones((1, 2))
    return MDP(jnp.where(last[..., None] > 0, 0.0, mdp.transition_probs), last - 1.0, end_probs=last)


def close(got, expected):
    """To the ten digits that are published."""
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------ published numbers
def test_river_discounted(x64):
    def value(x):
        return planning.solve(river(x[0], x[1], x[2]), Discounted(x[3])).v[0]

    program = jax.jit(lambda x: (value(x), jax.grad(value)(x), jax.hessian(value)(x)))
    v, gradient, hessian = program(AT)
    close(v, 8.1282717195)
    close(gradient, [20.7707993676, -34.3241102953, 0, 279.4827873141])
    close(hessian[0], [-63.4221133023, 33.6024925754, 0, 420.746183994])
    close(hessian[1, 1], 69.8843950448)
    close(hessian[3], [420.746183994, -1087.935219414, 0, 13011.280666904])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-8)
    # A kink: left and right tie in state 0, and the answer is the derivative of the policy that comes with it.
    tie = 0.40641358597556865
    for r0, slope in ((tie - 1e-9, 0.0), (tie + 1e-9, 20.0)):
        close(program(np.array([0.35, 0.05, r0, 0.95]))[1][2], slope)
    solution = planning.solve(river(0.35, 0.05, tie), Discounted(0.95))
    assert solution.gap_to_second <= 4 * solution.gap
    at_tie = program(np.array([0.35, 0.05, tie, 0.95]))[1][2]
    assert any(abs(at_tie - slope) < 1e-9 for slope in (0.0, 20.0))
    assert abs(planning.solve(river(*AT[:3]), Discounted(0.95)).gap_to_second - 0.3564) < 5e-5


def test_river_of_a_policy(x64):
    uniform = np.full((6, 2), 0.5)
    value = lambda x: planning.evaluate(river(x[0], x[1], x[2]), uniform, Discounted(x[3])).v[0]  # noqa: E731
    v, gradient = jax.jit(jax.value_and_grad(value))(AT)
    close(v, 0.3699245121)
    close(gradient, [-0.1942801843, 0.0561548710, 7.0824874882, 7.2082702441])


def test_river_gain_and_bias(x64):
    def gain(x):
        solution = planning.solve(river(*x), AverageReward())
        return solution.gain, solution.v[5]

    gradient, bias = jax.jit(jax.jacrev(gain))(AT[:3])
    close(planning.solve(river(*AT[:3]), AverageReward()).gain, 0.8571501428)
    close(gradient, [0.4080418366, -2.8562928565, 0])
    close(bias, [-37.8713950093, -11.0936253881, 0])
    hessian = jax.jit(jax.hessian(lambda x: gain(x)[0]))(AT[:3])
    close(hessian[0, :2], [-2.3300022946, 8.1491793294])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-10)


def test_river_exit_and_episodes(x64):
    out = jax.jit(jax.value_and_grad(lambda x: planning.solve(river_exit(*x), FirstExit()).v[0]))(AT[:2])
    close(out[0], -16.1111441661)
    close(out[1], [51.8525444330, -40.7449277087])
    out = jax.jit(jax.value_and_grad(lambda x: planning.solve(river(*x), Episodic(20)).v[0, 0]))(AT[:3])
    close(out[0], 4.8703455389)
    close(out[1], [27.0837084433, -24.0283096689, 0.6767754485])


# ---------------------------------------------------------------------------------------------- central differences
QUICK = {(6, "discounted", "solve", False), (12, "average", "solve_soft", True), (6, "first_exit", "evaluate", True)}
CASES = [
    pytest.param(n, kind, planner, sparse, marks=[] if (n, kind, planner, sparse) in QUICK else pytest.mark.slow)
    for n in (6, 12, 150)
    for kind in OBJECTIVES
    for planner in PLANNERS
    for sparse in (False, True)
]


@pytest.mark.parametrize(("n", "kind", "planner", "sparse"), CASES)
def test_against_differences(n, kind, planner, sparse, x64):
    """Along a direction in which all parameters move: gradient, Hessian-vector product, and both under vmap."""
    discounts = (0.9, 0.9999) if kind == "discounted" else (0.9,)
    thetas = [parameters(n, discount=discount) for discount in discounts]
    # Kinks are nearer together the more states there are; values of an episode bear the smallest steps.
    step = 1e-6 if kind == "episodic" else 1e-3 if n < 100 else 1e-4
    if kind == "episodic":  # a second problem: time-inhomogeneous
        _compare(partial(summary, planner=planner, kind=kind, sparse=sparse, steps=5), thetas, step)
    _compare(partial(summary, planner=planner, kind=kind, sparse=sparse), thetas, step)


def _compare(number, thetas, step):
    value_and_grad = jax.value_and_grad(number, has_aux=True)

    @jax.jit
    @jax.vmap
    def both(theta, way):
        (value, found), gradient = value_and_grad(theta)
        gradient_of = lambda t: value_and_grad(t)[1]  # noqa: E731
        return value, found, gradient, jax.jvp(gradient_of, (theta,), (way,))[1]

    ways = [direction(theta) for theta in thetas]
    stack = lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees)  # noqa: E731
    theta, way = stack(thetas), stack(ways)
    _, found, gradient, product = both(theta, way)
    assert np.all(found.converged)
    # The same policy at all points of the difference: no kink between them.
    if isinstance(found, Solution):
        for by in (-2 * step, 2 * step):
            np.testing.assert_array_equal(both(moved(theta, way, by), way)[1].policy, found.policy)
    slopes, bends = difference(lambda t: both(t, way)[::2], theta, way, step)
    for i in range(len(thetas)):
        of = lambda tree: jax.tree.map(lambda x: x[i], tree)  # noqa: B023, E731
        assert abs(dot(of(gradient), ways[i]) - slopes[i]) <= 1e-6 * abs(slopes[i])
        error = jax.tree.map(jnp.subtract, of(product), of(bends))
        assert size(error) <= 1e-6 * size(of(bends))


# -------------------------------------------------------------------------------------------------- modes and batches
@pytest.mark.parametrize("planner", ["solve", pytest.param("solve_soft", marks=pytest.mark.slow)])
def test_all_modes_agree(planner, x64):
    """Forward, reverse, either over the other, one at a time or in a batch, compiled or not."""
    theta, way = jax.tree.map(jnp.asarray, (parameters(6), direction(parameters(6))))
    f = lambda t: summary(t, planner, "discounted", False)[0]  # noqa: E731
    gradient = jax.grad(f)(theta)
    _, slope = jax.jvp(f, (theta,), (way,))
    np.testing.assert_allclose(dot(gradient, way), slope, rtol=1e-10)
    forward, backward = jax.jit(jax.jacfwd(f))(theta), jax.jit(jax.jacrev(f))(theta)
    for other in (forward, backward):
        assert size(jax.tree.map(jnp.subtract, other, gradient)) <= 1e-12 * size(gradient)
    over_reverse = jax.jit(lambda t: jax.jvp(jax.grad(f), (t,), (way,))[1])(theta)
    over_forward = jax.jit(jax.grad(lambda t: jax.jvp(f, (t,), (way,))[1]))(theta)
    assert size(jax.tree.map(jnp.subtract, over_reverse, over_forward)) <= 1e-10 * size(over_reverse)
    batch = jax.tree.map(lambda x: jnp.stack([x, 1.01 * x, x]), theta)
    many = jax.jit(jax.vmap(jax.grad(f)))(batch)
    assert size(jax.tree.map(lambda x, y: x[2] - y, many, gradient)) <= 1e-12 * size(gradient)


@pytest.mark.slow
def test_by_every_entry_of_a_policy_that_is_zero_somewhere(x64):
    """The derivative by pi(a | s) is visits(s) q(s, a), where the probability is zero too."""
    mdp, weights = river(*AT[:3]), np.arange(1.0, 7)
    probs = np.eye(2)[[1, 0, 1, 1, 1, 1]]
    for objective in (Discounted(0.9), Episodic(4)):
        value = lambda p: jnp.sum(weights * planning.evaluate(mdp, p, objective).v[..., :6].reshape(-1, 6)[0])  # noqa: B023, E731
        got = jax.grad(value)(jnp.asarray(probs))
        visits = planning.occupancy(mdp, probs, objective, weights / weights.sum()) * weights.sum()
        q = planning.evaluate(mdp, probs, objective).q
        expected = np.reshape(visits.sum(-1, keepdims=True) * q, (-1, 6, 2)).sum(0)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.some(2)
@pytest.mark.parametrize("planner", PLANNERS)
def test_illegal_actions_take_no_part(planner, x64):
    """No NaN from their -inf, and no derivative by their rewards."""
    theta = parameters(6)
    for kind in OBJECTIVES:
        gradient = jax.jit(jax.grad(lambda t: summary(t, planner, kind, False)[0]))(theta)  # noqa: B023
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))
        legal = mdp_at(theta, "discounted", False).legal
        # A policy's q of a pair that is not taken still holds its own reward: illegal ones have none.
        assert np.all(np.asarray(gradient["reward"])[~np.asarray(legal)] == 0)
        assert np.all(np.asarray(gradient["reward"])[np.asarray(legal)] != 0)


def test_what_is_not_differentiated():
    """Proofs have no derivative, answers are those of the planner to the last bit, in both widths."""
    for wide in (False, True):
        with jax.enable_x64(wide):
            theta = jax.tree.map(jnp.asarray, parameters(6))
            mdp = mdp_at(theta, "discounted", False)
            solution = jax.jit(planning.solve)(mdp, Discounted(0.9))
            plain = jax.jit(lambda m: solve_discounted(m, 0.9, Rounding.of(m), None))(mdp)
            jax.tree.map(np.testing.assert_array_equal, solution, plain)
            gradient = jax.jit(jax.grad(lambda t: answer(t, "solve", "discounted", False).gap))(theta)
            assert size(gradient) == 0
            assert gradient["reward"].dtype == solution.v.dtype == (jnp.float64 if wide else jnp.float32)


def test_integer_successors_do_not_trouble_a_gradient_by_the_whole_mdp(x64):
    sparse = mdp_at(parameters(6), "first_exit", True)
    assert isinstance(sparse, SparseMDP)
    f = lambda m: planning.solve(m, FirstExit()).v[0]  # noqa: E731
    by_all = jax.jit(jax.grad(f, allow_int=True))(sparse)
    assert by_all.successor.dtype == by_all.legal.dtype == jax.dtypes.float0
    # The value is sum_s visits(s) reward(s, policy(s)).
    np.testing.assert_allclose(jnp.sum(by_all.reward * sparse.reward), jax.jit(f)(sparse), rtol=1e-10)


@pytest.mark.slow
def test_a_large_deterministic_sparse_cycle(x64):
    """Krylov iterations stagnate there; the adjoint is solved by sweeps."""
    n, discount = 1100, 0.99
    successor = np.stack([(np.arange(n) + 1) % n, (np.arange(n) + 2) % n], 1)[..., None]
    reward = np.random.default_rng(0).normal(size=(n, 2))

    def value(reward):
        solution = planning.solve(SparseMDP(successor, np.ones((n, 2, 1)), reward), Discounted(discount))
        return solution.v[0], solution.policy

    got, policy = jax.jit(jax.grad(value, has_aux=True))(reward)
    chain = np.zeros((n, n))
    chain[np.arange(n), successor[np.arange(n), policy, 0]] = 1
    visits = np.linalg.solve((np.eye(n) - discount * chain).T, np.eye(n)[0])
    np.testing.assert_allclose(np.asarray(got)[np.arange(n), policy], visits, atol=1e-10)


def test_the_rule_for_gain_and_bias_is_that_of_linear_equations(x64):
    """A chain of three states: dv + dgain = dr + P dv with dv[0] = 0, solved by numpy."""
    rows, change = np.random.default_rng(0).dirichlet(np.ones(3), 3), np.array([0.3, -1.0, 2.0])

    def solved(reward):
        matrix = np.eye(3) - rows
        matrix[:, 0] = 1.0  # the gain in the place of v[0], which is zero
        x = np.linalg.solve(matrix, reward)
        return np.array([0.0, *x[1:]]), x[0]

    reward = np.array([1.0, 0.0, -2.0])
    v, gain = solved(reward)

    def of_reward(r):
        values = jnp.asarray((reward - gain + rows @ v)[:, None]), jnp.asarray(v), jnp.asarray(gain)
        return with_gain_derivatives(values, MDP(rows[:, None], r[:, None]), HardMax())

    _, (dq, dv, dgain) = jax.jvp(of_reward, (jnp.asarray(reward),), (jnp.asarray(change),))
    expected = solved(change)
    np.testing.assert_allclose(dv, expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dgain, expected[1], rtol=1e-10)
    np.testing.assert_allclose(dq[:, 0], dv, rtol=1e-10, atol=1e-12)
