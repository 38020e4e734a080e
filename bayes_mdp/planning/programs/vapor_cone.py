"""VAPOR's program by a cone solver: an oracle for `planning.programs.vapor_occupancy`. Host-side, small problems."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from bayes_mdp.planning.programs.vapor_occupancy import VaporProblem
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_probabilities, check_shape, require

if TYPE_CHECKING:
    import cvxpy as cp

Table = Float[np.ndarray, "H S A"]


class VaporProgram(NamedTuple):
    """The solver's answer.

    Args:
        occupancy: [H S A], as feasible as the solver left it.
        value: the objective at the optimum, as the solver states it.
        bound: the dual function at the solver's multipliers, computed anew: an upper bound of the optimum.
        values: [H S], the multipliers: marginal values of being in a state.
        status: the solver's word.
    """

    occupancy: Table
    value: float
    bound: float
    values: Float[np.ndarray, "H S"]
    status: str


def solve_vapor_program(problem: VaporProblem, transition_probs: ArrayLike) -> VaporProgram:
    """Solve VAPOR's program ([VAPOR23], see `vapor_occupancy`) with cvxpy: an exponential and a quadratic cone a pair.

    d sqrt(-2 log d) is sqrt(2) times the geometric mean of d and its entropy -d log d, so it is concave.

    Args:
        problem: rewards, scales, initial distribution, legal actions.
        transition_probs: [H S A S'] or [S A S'] (the same at all steps); what is missing to one is the end.

    Raises:
        ValueError: the shape does not fit, a row is no distribution. RuntimeError: the solver finds no optimum.
    """
    import cvxpy as cp

    reward, sigma, initial = (np.asarray(x, float) for x in (problem.reward, problem.sigma, problem.initial))
    rows = _rows(transition_probs, reward.shape)
    horizon, n_states, n_actions = reward.shape
    legal = np.ones((n_states, n_actions), bool) if problem.legal is None else np.asarray(problem.legal)
    d = [cp.Variable((n_states, n_actions), nonneg=True) for _ in range(horizon)]
    inflow: list[Any] = [initial]
    for h in range(horizon - 1):
        inflow.append(rows[h].reshape(-1, n_states).T @ cp.reshape(d[h], (n_states * n_actions,), order="C"))
    # Flow: what leaves a state at step h is what came into it; its dual variables are the values V.
    flow = [cp.sum(d[h], axis=1) - inflow[h] == 0 for h in range(horizon)]
    closed = [d[h][~legal] == 0 for h in range(horizon)] if not legal.all() else []
    # Only unknown pairs have cones: reward alone counts for the others.
    flat: Any = cp.hstack([cp.reshape(x, (n_states * n_actions,), order="C") for x in d])
    unknown = np.flatnonzero((sigma > 0) & legal)
    gain, cones = _uncertain(flat[unknown]) if unknown.size else (0.0, [])
    objective = flat @ np.where(legal, reward, 0.0).ravel() + (sigma.ravel()[unknown] @ gain if unknown.size else 0.0)
    program = cp.Problem(cp.Maximize(objective), [*flow, *closed, *cones])
    program.solve(solver=cp.CLARABEL)
    if program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise RuntimeError(f"the solver stopped with status {program.status!r}, expected an optimum")
    values = np.array([each.dual_value for each in flow])
    occupancy = np.array([x.value for x in d])
    best: Any = objective.value
    return VaporProgram(occupancy, float(best), _dual(problem, rows, values), values, program.status)


def _uncertain(d: "cp.Expression") -> tuple["cp.Expression", list["cp.Constraint"]]:
    """d sqrt(-2 log d) of every pair as variables under it: w^2 <= d e, e <= -d log d, answer sqrt(2) w."""
    import cvxpy as cp

    entropy, root = cp.Variable(d.shape), cp.Variable(d.shape)
    # w^2 <= d e as a second-order cone: |(2 w, d - e)| <= d + e.
    cone = cp.SOC(d + entropy, cp.vstack([2.0 * root, d - entropy]))
    return np.sqrt(2.0) * root, [entropy <= cp.entr(d), cone]


def _rows(transition_probs: ArrayLike, size: tuple[int, ...]) -> Float[np.ndarray, "H S A S"]:
    rows = np.asarray(transition_probs, float)
    rows = np.broadcast_to(rows, (size[0], *rows.shape)) if rows.ndim == 3 else rows
    check_shape("transition_probs", rows, (*size, size[1]), "as reward, then next state")
    check_probabilities("transition_probs", rows)
    total = rows.sum(-1)
    require(total > 1 + 1e-5, "transition_probs", total, "a row that sums to at most 1")
    return rows


def _dual(problem: VaporProblem, rows: Float[np.ndarray, "H S A S"], values: Float[np.ndarray, "H S"]) -> float:
    """D of `planning.programs.vapor_occupancy` at `values`."""
    next_values = np.concatenate([values[1:], np.zeros_like(values[:1])])
    x = np.asarray(problem.reward, float) + np.einsum("hsaz,hz->hsa", rows, next_values) - values[..., None]
    sigma = np.asarray(problem.sigma, float)
    y = x / np.where(sigma > 0, sigma, 1.0)
    root = np.hypot(y, 2.0)
    t = np.where(y < 0, 0.5 * (root - y), 2.0 / (root + np.maximum(y, 0.0)))
    conjugate = np.where(sigma > 0, sigma * np.exp(-0.5 * t**2) / t, np.maximum(x, 0.0))
    conjugate = conjugate if problem.legal is None else np.where(np.asarray(problem.legal), conjugate, 0.0)
    return float(np.asarray(problem.initial) @ values[0] + conjugate.sum())
