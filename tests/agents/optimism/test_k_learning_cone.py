"""The cone program (11) of [KL21] and its dual (27): certificates, the scalar problem, Phi from the Lagrangian."""

from typing import Any

import numpy as np
import pytest

from bayes_mdp.agents.optimism.cone_programs import phi, solve_k_dual, solve_k_program
from tests.agents.k_reference import Plain, deep_sea_problem, plain


def arguments(problem: Plain) -> tuple[Any, ...]:
    """Positional arguments."""
    return problem.reward, problem.numerator, problem.rows, problem.initial


def bounded(seed: int, shape: tuple[int, int, int]) -> Plain:
    """A random problem with rewards and numerators in [0, 1]."""
    rng = np.random.default_rng(seed)
    return plain(seed, shape)._replace(reward=rng.random(shape), numerator=rng.random(shape))


def check(problem: Plain) -> None:
    """Both programs enclose the optimum of the scalar problem, to 1e-7, and find its temperature."""
    tau = problem.brent()
    least = problem.objective(tau)
    for solve in (solve_k_program, solve_k_dual):
        answer = solve(*arguments(problem), legal=problem.legal)
        assert -1e-12 <= answer.gap < 1e-7
        assert answer.dual_objective - 1e-12 <= least <= answer.objective + 1e-12
        np.testing.assert_allclose(answer.tau, tau, rtol=1e-3)  # J is flat there: 1e-7 in J is 3e-4 in tau
        legal = np.broadcast_to(problem.legal, answer.k.shape)
        # at the same temperature the smallest feasible K is the recursion
        np.testing.assert_allclose(answer.k[legal], problem.k(answer.tau)[legal], rtol=1e-12)
        assert abs(answer.objective - least) < 1e-6
        feasible(problem, answer.occupancy)


def feasible(problem: Plain, occupancy: np.ndarray) -> None:
    """An occupancy of the mean MDP (the constraints of (27))."""
    assert occupancy.min() >= 0 and not occupancy[:, ~problem.legal].any()
    present = problem.initial
    for h, layer in enumerate(occupancy):
        np.testing.assert_allclose(layer.sum(-1), present, atol=1e-12)
        present = np.einsum("sa,saz->z", layer, problem.rows[h])


def test_both_programs_enclose_the_scalar_problem():
    check(bounded(0, (2, 3, 2)))


@pytest.mark.slow
def test_both_programs_enclose_larger_problems():
    for problem in (
        bounded(1, (5, 4, 3)),
        deep_sea_problem(5, known=False, number=30),
        deep_sea_problem(10, known=False, number=30),
        deep_sea_problem(10, known=True, number=30),
    ):
        check(problem)


def test_phi_is_what_is_left_of_the_lagrangian():
    """J(tau) = sum lambda reward + Phi(tau, lambda) at the policy of K.

    The Lagrangian at other policies is below J(tau) (weak duality), and 2 sqrt(C E) is the least of Phi.
    """
    rng = np.random.default_rng(0)
    problem = bounded(3, (3, 4, 3))
    tau = 0.7
    k = problem.k(tau)
    weight = np.exp((k - k.max(-1, keepdims=True)) / tau)
    total = problem.objective(tau)
    probs, occupancy = weight, weight
    for attempt in range(20):
        probs = weight if attempt == 0 else rng.random(k.shape) ** 3 * problem.legal
        probs = probs / probs.sum(-1, keepdims=True)
        occupancy, present = np.empty_like(k), problem.initial
        for h in range(len(k)):
            occupancy[h] = present[:, None] * probs[h]
            present = np.einsum("sa,saz->z", occupancy[h], problem.rows[h])
        lagrangian = (occupancy * problem.reward).sum() + phi(tau, occupancy, problem.numerator)
        if attempt == 0:
            np.testing.assert_allclose(lagrangian, total, rtol=1e-12)
        else:
            assert lagrangian < total
    curve = np.array([phi(t, occupancy, problem.numerator) for t in np.geomspace(1e-2, 1e2, 2001)])
    uncertain = (occupancy * problem.numerator).sum()
    entropy = -(occupancy * np.log(np.where(probs > 0, probs, 1.0))).sum()
    np.testing.assert_allclose(curve.min(), 2 * np.sqrt(uncertain * entropy), rtol=1e-5)
