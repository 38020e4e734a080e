"""The temperature of K-learning: Newton against Brent, derivatives against complex steps, certificate, limits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.common.mean_model import MeanModel
from bayes_mdp.agents.optimism.k_learning import derivatives, minimise, optimal_temperature, schedule
from bayes_mdp.agents.optimism.k_model import KModel
from bayes_mdp.mdp import MDP
from tests.agents.believed import layered
from tests.agents.k_reference import Plain, deep_sea_problem, plain

STEP = 1e-30


def model(problem: Plain) -> tuple[KModel, Any]:
    """The same problem for the package."""
    reward, numerator, rows, initial = (jnp.asarray(np.array(x)) for x in problem[:4])
    legal = jnp.asarray(problem.legal)
    mdp = MDP(rows, reward, end_probs=jnp.asarray(np.maximum(1 - problem.rows.sum(-1), 0.0)), legal=legal)
    return KModel(MeanModel(reward, mdp, legal, len(reward)), numerator), initial


solved = jax.jit(minimise)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("seed", range(8))
def test_newton_agrees_with_brent(seed):
    problem = plain(seed)
    answer, tau = solved(*model(problem), 0.0), problem.brent()
    assert bool(answer.converged) and int(answer.iterations) <= 14
    np.testing.assert_allclose(answer.tau, tau, rtol=1e-12)
    np.testing.assert_allclose(answer.objective, problem.objective(tau), rtol=1e-13)
    legal = np.broadcast_to(problem.legal, answer.k.shape)
    np.testing.assert_allclose(answer.k[legal], problem.k(tau)[legal], rtol=1e-10)
    assert 0 <= float(answer.gap) < 1e-14 * max(1.0, abs(float(answer.objective)))
    warm = solved(*model(problem), 1.05 * tau)
    np.testing.assert_allclose(warm.tau, tau, rtol=1e-12)
    far = solved(*model(problem), 1e-12 if seed % 2 else 1e12)  # a bad start costs steps, not the answer
    np.testing.assert_allclose(far.tau, tau, rtol=1e-12)
    assert int(warm.iterations) <= 5 and int(far.iterations) <= 40


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("size", "known"), [(10, False), (10, True), (50, False), (50, True)])
def test_newton_agrees_with_brent_in_deep_sea(size, known):
    for number in (0, 1, 30, 300):
        problem = deep_sea_problem(size, known=known, number=number)
        answer = solved(*model(problem), 0.0)
        np.testing.assert_allclose(answer.tau, problem.brent(), rtol=1e-12)
        assert bool(answer.converged) and int(answer.iterations) <= 10


@pytest.mark.usefixtures("x64")
def test_the_derivatives_are_those_of_complex_steps_and_the_objective_is_convex():
    differentiate = jax.jit(derivatives)
    for seed in range(4):
        problem = plain(seed)
        for tau in np.geomspace(1e-3, 1e3, 7):
            value, first, second = differentiate(*model(problem), tau)
            shifted = problem.objective(tau + 1j * STEP)
            np.testing.assert_allclose(value, shifted.real, rtol=1e-12)
            np.testing.assert_allclose(first, tau * shifted.imag / STEP, rtol=1e-9, atol=1e-11 * abs(value))
            curvature = tau**2 * problem.gradient(tau + 1j * STEP).imag / STEP
            np.testing.assert_allclose(second, curvature, rtol=1e-8, atol=1e-11 * abs(value))
            assert float(second) >= 0


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_gap_bounds_how_far_the_objective_is_from_the_least():
    """At any temperature, by weak duality; to second order in the step it is no more than it must be."""
    from bayes_mdp.agents.optimism.k_learning import _certify

    certify = jax.jit(_certify)
    for seed in range(4):
        problem = plain(seed)
        tau = problem.brent()
        least = problem.objective(tau)
        for factor in (0.1, 0.7, 0.99, 1.01, 2.0, 30.0):
            _, value, gap = certify(*model(problem), factor * tau)
            assert float(gap) >= float(value) - least - 1e-12 * abs(least)
        assert float(certify(*model(problem), 1.0001 * tau)[2]) < 1e-6 * max(abs(least), 1.0)


@pytest.mark.usefixtures("x64")
def test_without_a_bonus_it_is_the_optimal_plan():
    problem = plain(0)
    known, initial = model(problem._replace(numerator=np.zeros_like(problem.numerator)))
    answer = solved(known, initial, 0.0)
    best = problem.bellman()
    assert float(answer.tau) == 0.0 and float(answer.gap) < 1e-150 and bool(answer.converged)
    np.testing.assert_allclose(answer.k, best, rtol=1e-13)
    np.testing.assert_allclose(answer.objective, problem.initial @ best[0].max(-1), rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_a_bonus_out_of_reach_leaves_the_infimum_at_zero():
    """State 4 is never reached: tau goes down until nothing is to be gained, as the gap shows."""
    problem = plain(1)
    rows, initial = problem.rows.copy(), np.eye(5)[0]
    rows[..., 4] = 0.0
    numerator = np.zeros_like(problem.numerator)
    numerator[:, 4, 1] = 1.0
    known, start = model(problem._replace(rows=rows, numerator=numerator, initial=initial))
    answer = solved(known, start, 0.0)
    best = problem._replace(rows=rows).bellman()[0][0].max()
    assert bool(answer.converged) and float(answer.tau) < 1e-2 and int(answer.iterations) < 40
    np.testing.assert_allclose(answer.objective, best, rtol=1e-8)
    assert float(answer.gap) < 1e-14


@pytest.mark.slow
def test_float32_is_near_float64():
    """What decides is the objective: at the float32 temperature it is within 1e-6 of the least."""
    for seed in range(4):
        problem = plain(seed)
        answer = solved(*model(problem), 0.0)
        assert answer.tau.dtype == jnp.float32 and bool(answer.converged) and int(answer.iterations) <= 14
        tau = problem.brent()
        np.testing.assert_allclose(answer.tau, tau, rtol=2e-3)
        least = problem.objective(tau)
        assert abs(problem.objective(float(answer.tau)) - least) <= 1e-6 * max(1.0, abs(least))
        np.testing.assert_allclose(answer.objective, least, rtol=1e-5)


def test_the_door_works_in_float64_on_the_host():
    case = layered(0)
    answer = optimal_temperature(case.posterior, np.eye(3)[0], bonus="posterior", span=1.0)
    assert isinstance(answer.tau, np.generic | np.ndarray) and answer.tau.dtype == np.float64
    mean = case.concentration / case.concentration.sum(-1, keepdims=True)
    numerator = 0.5 * (case.variance + 1.0)
    problem = Plain(case.loc, numerator, mean, np.eye(3)[0], np.ones((3, 2), bool))
    np.testing.assert_allclose(answer.tau, problem.brent(), rtol=1e-12)
    again = optimal_temperature(case.posterior, np.eye(3)[0], bonus="posterior", span=1.0, start=float(answer.tau))
    np.testing.assert_allclose(again.tau, answer.tau, rtol=1e-13)
    assert int(again.iterations) < int(answer.iterations)


def test_the_schedule_is_equation_ten():
    sizes: Any = {"horizon": 2, "num_states": 3, "num_actions": 2}
    np.testing.assert_allclose(schedule(1, noise=1.0, **sizes), np.sqrt(5 * 6 / (8 * np.log(2))))
    expected = np.sqrt((0.25 + 1) * 6 * (1 + np.log(7)) / (8 * 7 * np.log(2)))
    np.testing.assert_allclose(schedule(7, noise=0.5, span=1.0, **sizes), expected)
    traced = jax.jit(lambda t: schedule(t, noise=0.5, span=1.0, **sizes))(jnp.asarray(7.0))
    np.testing.assert_allclose(traced, expected, rtol=1e-6)


SIZES: Any = {"noise": 1.0, "horizon": 2, "num_states": 3}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedule(1, num_actions=1, **SIZES), "num_actions is 1, expected at least 2: with a single action"),
        (lambda: schedule(0, num_actions=2, **SIZES), "t is 0, expected the number of an episode, 1 or greater"),
        (
            lambda: schedule(np.array([1, 0.5]), num_actions=2, **SIZES),
            r"t\[1\] is 0\.5, expected the number of an episode",
        ),
        (lambda: schedule(1, num_actions=2, **(SIZES | {"noise": -1.0})), r"noise is -1\.0, expected a finite number"),
        (lambda: optimal_temperature(layered().posterior, [1.0, 0.0]), r"initial has shape \(2,\), expected \(3,\)"),
        (lambda: optimal_temperature(layered().posterior, [1.0, 0.5, 0.0]), r"initial sums to 1\.5, expected"),
        (
            lambda: optimal_temperature(layered().posterior, np.eye(3)[0], start=0.0),
            r"start is 0\.0, expected a finite",
        ),
        (
            lambda: optimal_temperature(layered().posterior, np.eye(3)[0], bonus="x"),
            "bonus is 'x', expected one of pap",
        ),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
