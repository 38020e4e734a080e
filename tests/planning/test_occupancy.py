"""Occupancies: sum of occupancy times reward is the value, for every objective; totals by theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import planning
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from tests.planning.planning_problems import arrays, evaluate, listed, make_mdp

occupancy = jax.jit(planning.occupancy)


OBJECTIVES = [Discounted(0.9), Episodic(7), Episodic(7, 0.8), FirstExit()]


@pytest.mark.few(3)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_occupancy_times_reward_is_value(objective, sparse, x64):
    data = arrays("ending", 6)
    mdp = listed(make_mdp(*data)) if sparse else make_mdp(*data)
    rng = np.random.default_rng(0)
    policy, initial = rng.dirichlet(np.ones(2), 6), rng.dirichlet(np.ones(6))
    visits, value = occupancy(mdp, policy, objective, initial), evaluate(mdp, policy, objective).v
    value = value[0] if value.ndim == 2 else value
    np.testing.assert_allclose(np.sum(visits * data[1]), value @ initial, rtol=1e-11)
    assert (visits >= -1e-15).all()


def test_totals(x64):
    data = arrays("random", 6)
    mdp, policy, initial = make_mdp(*data), np.zeros(6, int), np.eye(6)[2]
    np.testing.assert_allclose(np.sum(occupancy(mdp, policy, Discounted(0.9), initial)), 10.0, rtol=1e-12)
    steps = occupancy(mdp, policy, Episodic(7), initial)
    np.testing.assert_allclose(np.sum(steps, (1, 2)), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(steps[0], np.outer(initial, [1, 0]))


def test_initial_is_checked():
    mdp = make_mdp(*arrays("random", 6))
    with pytest.raises(ValueError, match="initial is None"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9))
    with pytest.raises(ValueError, match=r"initial has shape \(5,\), expected \(6,\)"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9), np.full(5, 0.2))
    with pytest.raises(ValueError, match=r"initial sums to 0\.6"):
        planning.occupancy(mdp, np.zeros(6, int), Discounted(0.9), np.full(6, 0.1))


def test_discounted_time_of_an_episode(x64):
    """discount^t at every step where nothing ends; a chance to end of 1 - discount is the same."""
    rows, reward, ends, legal = arrays("random", 6)
    mdp, policy, initial = make_mdp(rows, reward, ends, legal), np.full((6, 2), 0.5), np.eye(6)[0]
    time = np.asarray(occupancy(mdp, policy, Episodic(5, 0.8), initial))
    np.testing.assert_allclose(time.sum((1, 2)), 0.8 ** np.arange(5), rtol=1e-14)
    leaving = make_mdp(0.8 * rows, reward, ends + 0.2, legal)
    np.testing.assert_allclose(time, occupancy(leaving, policy, Episodic(5), initial), rtol=1e-13)


def random_chain(rng, n):
    """Rows of a chain with few successors: of one or several recurrent classes, with transient states or without."""
    rows = np.zeros((n, n))
    for s in range(n):
        where = rng.choice(n, rng.integers(1, 3), replace=False)
        rows[s, where] = rng.dirichlet(np.ones(len(where)))
    return rows


def limit_matrix(rows):
    """Cesaro limit of the powers of P: the mean of I, Q, ..., of Q = (I + P) / 2, by doubling."""
    power = (np.eye(len(rows)) + rows) / 2
    for _ in range(60):
        power = power @ power
        power /= power.sum(1, keepdims=True)
    return power


@pytest.mark.parametrize("sparse", [False, True])
def test_average_time_is_refused_exactly_where_evaluate_has_no_bound(sparse, x64):
    """30 chains: the long-run shares depend on the start, or they are the occupancy; jitted it is not finite there."""
    rng, refused = np.random.default_rng(0), 0
    for _ in range(30):
        n = 5
        rows, reward = random_chain(rng, n), rng.normal(size=(n, 2))
        both = np.stack([rows, random_chain(rng, n)], 1)
        mdp = make_mdp(both, reward, np.zeros((n, 2)), np.ones((n, 2), bool))
        mdp, policy = listed(mdp) if sparse else mdp, np.zeros(n, int)
        shares, traced = limit_matrix(rows), occupancy(mdp, policy, AverageReward())
        several = np.ptp(shares, 0).max() > 1e-6
        assert several == (not np.isfinite(evaluate(mdp, policy, AverageReward()).gap))
        assert several == (not np.isfinite(traced).all())
        if several:
            refused += 1
            with pytest.raises(
                ValueError, match=r"the policy has \d recurrent classes \(state \d is in one, state \d in"
            ):
                planning.occupancy(mdp, policy, AverageReward())
        else:
            found = planning.occupancy(mdp, policy, AverageReward())
            np.testing.assert_allclose(found, np.outer(shares[0], [1, 0]), atol=1e-10)
            np.testing.assert_allclose(traced, found, atol=1e-14)
    assert 6 <= refused <= 24


def test_time_of_what_ends_or_never_ends_is_refused_as_evaluate_refuses_it():
    """It was .667 of an MDP that ends with probability 1/2 a step."""
    ending = MDP([[[0.5]]], [[1.0]], end_probs=[[0.5]])
    trap = MDP([[[0.5, 0.0]], [[0.0, 1.0]]], [[1.0], [1.0]], end_probs=[[0.5], [0.0]])
    steps = MDP(np.ones((2, 1, 1, 1)), np.ones((2, 1, 1)))
    cases = [(ending, AverageReward()), (trap, FirstExit()), (steps, Discounted(0.5)), (steps, Episodic(3))]
    for mdp, objective in cases:
        policy, start = np.zeros(mdp.n_states, int), np.eye(mdp.n_states)[0]
        with pytest.raises(ValueError) as of_values:
            planning.evaluate(mdp, policy, objective)
        with pytest.raises(ValueError) as of_time:
            planning.occupancy(mdp, policy, objective, start)
        assert str(of_time.value) == str(of_values.value)
    assert not np.isfinite(occupancy(ending, np.zeros(1, int), AverageReward())).any()


def test_average_time_has_derivatives(x64):
    """d mu_1 / d p of the chain (1 - p, p), (q, 1 - q): q / (p + q)^2."""

    @jax.jit
    def second(p):
        rows = jnp.stack([jnp.stack([1 - p, p]), jnp.array([0.3, 0.7])])
        return planning.occupancy(MDP(rows[:, None], np.zeros((2, 1))), np.zeros(2, int), AverageReward())[1, 0]

    assert float(jax.grad(second)(0.1)) == pytest.approx(0.3 / 0.4**2, rel=1e-10)
    assert float(jax.jacfwd(second)(0.1)) == pytest.approx(0.3 / 0.4**2, rel=1e-10)
