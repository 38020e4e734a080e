"""VAPOR's program: bandits by scipy, the cone program, the gap, the optimum where all is known, E max by draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from bayes_mdp.agents.optimism.cone_programs import solve_vapor_program
from bayes_mdp.agents.optimism.vapor import VaporProblem, solve_vapor
from bayes_mdp.mdp import MDP, Episodic
from bayes_mdp.planning import occupancy, solve

H, S, A = 3, 4, 3
LEGAL = np.ones((S, A), bool)
START = np.array([0.7, 0.0, 0.3, 0.0])


@jax.jit
def planned(problem, rows, start, num_iterations, tolerance, smoothing):
    def expected_next(values, layer):
        return rows[layer] @ values

    return solve_vapor(
        problem, expected_next, start=start, num_iterations=num_iterations, tolerance=tolerance, smoothing=smoothing
    )


def plan(reward, sigma, rows, *, legal=LEGAL, initial=START, start=None, iterations=200, smoothing=0.01):
    """To a gap of 1e-10 of the scale, or as far as it goes."""
    probs = legal / legal.sum(-1, keepdims=True) if start is None else start
    problem = VaporProblem(*map(jnp.asarray, (reward, sigma, initial, legal)))
    probs = jnp.broadcast_to(jnp.asarray(probs, float), (H, S, A))
    return planned(problem, jnp.asarray(rows), probs, iterations, 1e-10, smoothing)


def world(seed, *, masked=False, ends=False, known=0.0):
    """Rewards, scales (a share `known` of them zero), rows, legal actions of a random problem."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(S + ends, 0.3), size=(H, S, A))[..., :S]
    legal = LEGAL.copy()
    if masked:
        legal[0, 1] = legal[2, 0] = legal[2, 2] = legal[3, 2] = False
    sigma = np.where(rng.random((H, S, A)) < known, 0.0, rng.uniform(0.1, 2.0, (H, S, A)))
    return rng.normal(size=(H, S, A)), sigma, rows, legal


def bandit(reward, sigma):
    """The optimum over the simplex: the multiplier by brentq, each d by brentq on its own derivative."""

    def pull(v, r, s):
        def slope(log_d):
            depth = np.sqrt(-2 * log_d)
            return r + s * (depth - 1 / depth) - v

        log_d: Any = brentq(slope, -1e7, -1e-13, xtol=1e-15)
        return np.exp(log_d)

    def total(v):
        return sum(pull(v, r, s) for r, s in zip(reward, sigma, strict=True)) - 1

    v: Any = brentq(total, -20.0, 20.0, xtol=1e-13)
    d = np.array([pull(v, r, s) for r, s in zip(reward, sigma, strict=True)])
    return d, (d * (reward + sigma * np.sqrt(-2 * np.log(d)))).sum()


@pytest.mark.usefixtures("x64")
def test_bandits_are_those_of_scipy_and_equal_arms_have_a_closed_form():
    """Every step starts in state 0 again: three bandits at once."""
    rng = np.random.default_rng(0)
    reward, sigma = rng.normal(size=(H, S, A)), rng.uniform(0.2, 2.0, (H, S, A))
    reward[2], sigma[2] = 0.3, 1.5
    rows = np.broadcast_to(np.eye(S)[0], (H, S, A, S))
    answer = plan(reward, sigma, rows, initial=np.eye(S)[0])
    arms = [bandit(reward[h, 0], sigma[h, 0]) for h in range(H)]
    np.testing.assert_allclose(arms[2][1], 0.3 + 1.5 * np.sqrt(2 * np.log(A)), rtol=1e-10)
    np.testing.assert_allclose(answer.value, sum(value for _, value in arms), rtol=1e-8)
    np.testing.assert_allclose(answer.occupancy[:, 0], [d for d, _ in arms], atol=1e-4)
    assert answer.converged
    assert answer.gap < 1e-7


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("masked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_optimum_is_that_of_the_cone_program(masked):
    """Illegal actions and ends in one of the two. The solver's own accuracy is about 1e-7."""
    reward, sigma, rows, legal = world(1, masked=masked, ends=masked)
    answer = plan(reward, sigma, rows, legal=legal)
    oracle = solve_vapor_program(VaporProblem(reward, sigma, START, legal), rows)
    assert oracle.status == "optimal"
    assert answer.converged
    np.testing.assert_allclose([answer.value, answer.bound, oracle.bound], oracle.value, rtol=1e-6)
    np.testing.assert_allclose(answer.occupancy, oracle.occupancy, atol=1e-3)
    assert (np.asarray(answer.occupancy)[:, ~legal] == 0).all()
    assert (np.asarray(answer.policy)[:, ~legal] == 0).all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("known", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(6))
def test_value_and_bound_enclose_the_cone_program(seed, known):
    """Also where most pairs are known: the gap is then that of the smoothing, and it says so."""
    reward, sigma, rows, legal = world(seed, masked=seed % 2 == 1, ends=seed % 3 == 0, known=known)
    oracle = solve_vapor_program(VaporProblem(reward, sigma, START, legal), rows)
    slack = 1e-6 * abs(oracle.value) + 1e-6
    gaps = []
    for smoothing in (0.1, 0.01):
        answer = plan(reward, sigma, rows, legal=legal, smoothing=smoothing)
        assert answer.value <= oracle.value + slack
        assert answer.bound >= oracle.value - slack
        gaps.append(float(answer.gap))
    assert gaps[1] < 0.05
    if known == 0:
        np.testing.assert_allclose(answer.value, oracle.value, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_gap_is_valid_at_every_iteration_and_a_good_start_needs_fewer():
    reward, sigma, rows, legal = world(2, masked=True, ends=True)
    best = plan(reward, sigma, rows, legal=legal)
    optimum, last = float(best.value), -np.inf
    for iterations in (1, 2, 3, 5):
        answer = plan(reward, sigma, rows, legal=legal, iterations=iterations)
        assert last < answer.value <= optimum + 1e-9
        assert answer.bound >= optimum - 1e-9
        assert answer.gap >= optimum - float(answer.value) - 1e-9
        last = float(answer.value)
    warm = plan(reward, 0.99 * sigma, rows, legal=legal, start=best.policy)
    cold = plan(reward, 0.99 * sigma, rows, legal=legal)
    assert warm.converged and cold.converged
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.value, cold.value, rtol=1e-8)


@pytest.mark.usefixtures("x64")
def test_the_occupancy_is_that_of_its_policy():
    reward, sigma, rows, legal = world(3, masked=True, ends=True)
    answer = plan(reward, sigma, rows, legal=legal)
    mdp = MDP(rows, reward, end_probs=1.0 - rows.sum(-1), legal=legal)
    visits = occupancy(mdp, answer.policy, Episodic(H), START)
    np.testing.assert_allclose(answer.occupancy, visits, atol=1e-12)
    np.testing.assert_allclose(answer.policy.sum(-1), 1.0, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_where_everything_is_known_it_is_the_optimal_plan():
    reward, sigma, rows, legal = world(4, masked=True)
    answer = plan(reward, 0 * sigma, rows, legal=legal, smoothing=1e-3)
    optimum = START @ np.asarray(solve(MDP(rows, reward, legal=legal), Episodic(H)).v[0])
    assert optimum - 0.02 < answer.value <= optimum + 1e-9
    assert answer.bound >= optimum - 1e-9


def optimal_values(reward, rows):
    """Value of the best plan of every draw of the rewards [N H S A], by numpy."""
    v = np.zeros((len(reward), S))
    for h in reversed(range(H)):
        v = (reward[:, h] + np.einsum("saz,nz->nsa", rows[h], v)).max(-1)
    return v @ START


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_bounds_the_mean_optimal_value(seed):
    """Gaussian rewards, known rows, 20,000 draws, 6 standard errors (false alarms 1e-9).

    The twin, the reward of the same occupancy without its uncertainty, is caught: it is no bound.
    """
    reward, sigma, rows, _ = world(seed)
    answer = plan(reward, sigma, rows)
    noise = np.random.default_rng(seed).standard_normal((20_000, H, S, A))
    draws = optimal_values(reward + sigma * noise, rows)
    error = draws.std() / len(draws) ** 0.5
    assert answer.value > draws.mean() + 6 * error
    assert (np.asarray(answer.occupancy) * reward).sum() < draws.mean() - 6 * error


@pytest.mark.parametrize(
    ("field", "index", "number", "message"),
    [
        ("sigma", (0, 1, 2), -1.0, r"sigma\[0, 1, 2\] is -1.0, expected a finite number, zero or greater"),
        ("reward", (2, 0, 0), np.nan, r"reward\[2, 0, 0\] is nan, expected a finite number"),
        ("initial", (1,), 0.5, r"initial sums to 1.5, expected a row that sums to 1"),
    ],
)
def test_bad_numbers_are_refused(field, index, number, message):
    tables = {"reward": np.zeros((H, S, A)), "sigma": np.ones((H, S, A)), "initial": START.copy()}
    tables[field][index] = number
    with pytest.raises(ValueError, match=message):
        VaporProblem(**tables)


def test_options_are_refused():
    problem = VaporProblem(np.zeros((H, S, A)), np.ones((H, S, A)), START)
    for name in ("tolerance", "smoothing"):
        option: Any = {name: 0.0}
        with pytest.raises(ValueError, match=f"{name} is 0.0, expected a finite number greater than zero"):
            solve_vapor(problem, lambda v, h: v[:, None], **option)
    with pytest.raises(ValueError, match="start has shape"):
        solve_vapor(problem, lambda v, h: v[:, None], start=jnp.ones((S, A)))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="reward has shape"):
        VaporProblem(np.zeros((S, A)), np.ones((S, A)), START)
    with pytest.raises(ValueError, match="sigma has shape"):
        VaporProblem(np.zeros((H, S, A)), np.ones((S, A)), START)
