"""The convex programs of K-learning and VAPOR by a cone solver: oracles for small problems, through cvxpy.

Source: [KL21] O'Donoghue, *Variational Bayesian Reinforcement Learning with Regret Bounds*, NeurIPS 2021: (11) as an
exponential cone program, and its dual (27). `agents.k_learning.optimal_temperature` solves the same problem in
milliseconds and for more steps; this checks it. With lambda >= 0 for K >= B(tau, K) and (8) for every softmax, the
terms of the Lagrangian in K vanish where lambda is an occupancy of the mean MDP. What is left is, with
lambda(s) = sum_a lambda(s, a),

    sum lambda mu + Phi(tau, lambda),  Phi = C / tau + tau E,
    C = sum lambda numerator,  E = -sum lambda(s, a) log(lambda(s, a) / lambda(s)),

and min over tau of Phi is 2 sqrt(C E), at tau = sqrt(C / E). VAPOR's program checks `agents.optimism.vapor`.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.agents.optimism.vapor import VaporProblem

if TYPE_CHECKING:
    import cvxpy as cp  # a second to load: where it is needed

Pairs = Float[np.ndarray, "H S A"]


class KProgram(NamedTuple):
    """A solution with its certificate.

    Args:
        tau: the optimal temperature.
        k: [H S A], the smallest feasible K at `tau` (the recursion); -inf where illegal.
        occupancy: [H S A], lambda, feasible in the dual: the occupancy of a policy in the mean MDP.
        objective: of (11) at `tau` and `k`, an upper bound of the optimum.
        dual_objective: of (27) at `occupancy`, a lower bound.
        status: of the solver.
    """

    tau: float
    k: Pairs
    occupancy: Pairs
    objective: float
    dual_objective: float
    status: str

    @property
    def gap(self) -> float:
        """Duality gap: neither bound is further from the optimum (rounding apart)."""
        return self.objective - self.dual_objective


class _Arrays(NamedTuple):
    reward: Pairs
    numerator: Pairs
    rows: Float[np.ndarray, "H S A S"]
    initial: Float[np.ndarray, " S"]
    legal: Bool[np.ndarray, "S A"]


def solve_k_program(
    reward: Pairs,
    numerator: Pairs,
    rows: Float[np.ndarray, "H S A S"],
    initial: Float[np.ndarray, " S"],
    *,
    legal: Bool[np.ndarray, "S A"],
) -> KProgram:
    """Solve (11): minimise E_rho tau logsumexp(K_1 / tau) over tau and K >= reward + numerator / tau + E softmax(next).

    Args:
        reward: [H S A], mean rewards.
        numerator: [H S A], tau times the bonus, zero or greater and not all zero.
        rows: [H S A S'], mean rows (what is missing to one is an end).
        initial: [S], distribution of the first state.
        legal: of all steps.

    Returns:
        tau of the solver; K by the recursion at that tau; lambda from the dual variables of the solver, made feasible.

    Raises:
        RuntimeError: the solver finds no optimum.
    """
    import cvxpy as cp
    from cvxpy.constraints.exponential import ExpCone

    arrays = _Arrays(reward, numerator, rows, initial, legal)
    n_steps, n_states, n_actions = arrays.reward.shape
    tau: Any = cp.Variable(nonneg=True)
    inverse = cp.Variable(nonneg=True)
    # V of every step as an upper bound of the soft maximum: tight where it is minimised.
    values = [cp.Variable(n_states) for _ in range(n_steps)]
    constraints: list[Any] = [inverse >= cp.inv_pos(tau)]
    bellman = []
    for h in range(n_steps):
        k, share = cp.Variable((n_states, n_actions)), cp.Variable((n_states, n_actions))
        # K >= r + numerator / tau + E V_next, with 1 / tau as a variable of its own (convex: inverse >= 1 / tau).
        later = values[h + 1] if h + 1 < n_steps else np.zeros(n_states)
        after = cp.vstack([arrays.rows[h, s] @ later for s in range(n_states)])
        bellman.append(k >= arrays.reward[h] + arrays.numerator[h] * inverse + after)
        # V >= tau logsumexp(K / tau), as tau sum_a exp((k_a - v) / tau) <= tau: one exponential cone a pair.
        exponent = k - cp.outer(values[h], np.ones(n_actions))
        units = np.ones((n_states, n_actions))
        constraints.append(ExpCone(exponent, tau * units, share))
        constraints.append(cp.sum(cp.multiply(share, arrays.legal.astype(float)), axis=1) <= tau)
    # (11): the value of the start, minimised over tau and all feasible K together.
    problem = cp.Problem(cp.Minimize(arrays.initial @ values[0]), [*constraints, *bellman])
    status = _run(problem)
    return _certify(arrays, float(tau.value), np.stack([np.asarray(c.dual_value) for c in bellman]), status)


def solve_k_dual(
    reward: Pairs,
    numerator: Pairs,
    rows: Float[np.ndarray, "H S A S"],
    initial: Float[np.ndarray, " S"],
    *,
    legal: Bool[np.ndarray, "S A"],
) -> KProgram:
    """Solve (27): maximise sum lambda reward + 2 sqrt(C E) over occupancies lambda of the mean MDP.

    Arguments, errors: as `solve_k_program`. Returns: tau = sqrt(C / E) of the occupancy found.
    """
    import cvxpy as cp

    arrays = _Arrays(reward, numerator, rows, initial, legal)
    n_steps, n_states, n_actions = arrays.reward.shape
    occupancy: list[Any] = [cp.Variable((n_states, n_actions), nonneg=True) for _ in range(n_steps)]
    constraints: list[Any] = [cp.sum(occupancy[0], axis=1) == arrays.initial]
    paid: Any = 0.0
    uncertain: Any = 0.0
    entropy: Any = 0.0
    # Flow constraints, and the three sums: rewards, C, and E as minus a relative entropy, which is concave.
    for h, present in enumerate(occupancy):
        constraints.append(cp.multiply(present, (~arrays.legal).astype(float)) == 0)
        if h + 1 < n_steps:
            flat = arrays.rows[h].reshape(-1, n_states)
            constraints.append(cp.sum(occupancy[h + 1], axis=1) == flat.T @ cp.vec(present, order="C"))
        paid += cp.sum(cp.multiply(arrays.reward[h], present))
        uncertain += cp.sum(cp.multiply(arrays.numerator[h], present))
        total = cp.outer(cp.sum(present, axis=1), np.ones(n_actions))
        entropy -= cp.sum(cp.rel_entr(present, total))
    # 2 sqrt(C E) as a geometric mean of variables below C and E.
    root = cp.Variable(2, nonneg=True)
    constraints += [root[0] <= uncertain, root[1] <= entropy]
    problem = cp.Problem(cp.Maximize(paid + 2 * cp.geo_mean(root)), constraints)
    status = _run(problem)
    weights = np.stack([x.value for x in occupancy])
    # The certificate takes the policy of the solver's occupancy, not its numbers, which may violate a constraint.
    uncertain, entropy = _costs(_feasible(arrays, weights), arrays.numerator)
    return _certify(arrays, float(np.sqrt(uncertain / entropy)), weights, status)


def phi(tau: float, occupancy: Pairs, numerator: Pairs) -> float:
    """Phi(tau, lambda) = C / tau + tau E: what K-learning pays for what it does not know (see above)."""
    uncertain, entropy = _costs(occupancy, numerator)
    return float(uncertain / tau + tau * entropy)


def _run(problem: "cp.Problem") -> str:
    problem.solve()
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise RuntimeError(f"the solver ended with status {problem.status!r}, expected 'optimal': take fewer steps")
    return problem.status


def _certify(arrays: _Arrays, tau: float, weights: Pairs, status: str) -> KProgram:
    """Both bounds, from a temperature and the weights of a policy."""
    k = np.empty_like(arrays.reward)
    values = np.zeros(len(arrays.initial))
    for h in reversed(range(len(k))):
        # The recursion at this tau gives the least feasible K, so that the bound holds whatever the solver returned.
        full = arrays.reward[h] + arrays.numerator[h] / tau + arrays.rows[h] @ values
        k[h] = np.where(arrays.legal, full, -np.inf)
        best = k[h].max(-1)
        values = best + tau * np.log(np.exp((k[h] - best[:, None]) / tau).sum(-1))
    occupancy = _feasible(arrays, weights)
    uncertain, entropy = _costs(occupancy, arrays.numerator)
    # (27) at a feasible occupancy, which any policy gives: a lower bound whatever the solver returned.
    dual = float((occupancy * arrays.reward).sum() + 2.0 * np.sqrt(uncertain * entropy))
    return KProgram(tau, k, occupancy, float(arrays.initial @ values), dual, status)


def _feasible(arrays: _Arrays, weights: Pairs) -> Pairs:
    """The occupancy of the policy proportional to `weights` (uniform where they are zero)."""
    weights = np.where(arrays.legal, np.maximum(weights, 0.0), 0.0)
    total = weights.sum(-1, keepdims=True)
    uniform = arrays.legal / arrays.legal.sum(-1, keepdims=True)
    policy = np.where(total > 0, weights / np.where(total > 0, total, 1.0), uniform)
    # The occupancy that this policy really has, step by step: exactly feasible.
    present, occupancy = arrays.initial, np.empty_like(weights)
    for h in range(len(weights)):
        occupancy[h] = present[:, None] * policy[h]
        present = np.einsum("sa,saz->z", occupancy[h], arrays.rows[h])
    return occupancy


def _costs(occupancy: Pairs, numerator: Pairs) -> tuple[float, float]:
    """C and E."""
    share = occupancy / np.maximum(occupancy.sum(-1, keepdims=True), np.finfo(float).tiny)
    logs = np.log(np.where(share > 0, share, 1.0))
    return float((occupancy * numerator).sum()), float(-(occupancy * logs).sum())


class VaporProgram(NamedTuple):
    """The solver's answer.

    Args:
        occupancy: [H S A], as feasible as the solver left it.
        value: the objective at the optimum, as the solver states it.
        bound: the dual function at the solver's multipliers, computed anew: an upper bound of the optimum.
        values: [H S], the multipliers: marginal values of being in a state.
        status: the solver's word.
    """

    occupancy: Pairs
    value: float
    bound: float
    values: Float[np.ndarray, "H S"]
    status: str


def solve_vapor_program(problem: VaporProblem, transition_probs: np.ndarray) -> VaporProgram:
    """Solve VAPOR's program ([VAPOR23]) with cvxpy: an exponential and a quadratic cone a pair.

    d sqrt(-2 log d) is sqrt(2) times the geometric mean of d and its entropy -d log d, so it is concave.

    Args:
        problem: rewards, scales, initial distribution, legal actions.
        transition_probs: [H S A S'] or [S A S'] (the same at all steps); what is missing to one is the end.

    Raises:
        RuntimeError: the solver finds no optimum.
    """
    import cvxpy as cp

    reward, sigma, initial = (np.asarray(x, float) for x in (problem.reward, problem.sigma, problem.initial))
    horizon, n_states, n_actions = reward.shape
    # Stationary rows serve all steps.
    rows = np.broadcast_to(transition_probs, (*reward.shape, n_states))
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
    values = np.array([constraint.dual_value for constraint in flow])
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


def _dual(problem: VaporProblem, rows: Float[np.ndarray, "H S A S"], values: Float[np.ndarray, "H S"]) -> float:
    """D of `agents.optimism.vapor` at `values`."""
    next_values = np.concatenate([values[1:], np.zeros_like(values[:1])])
    # x = r + P V' - V; t solves sigma (t - 1 / t) = -x, in the form without cancellation for each sign.
    x = np.asarray(problem.reward, float) + np.einsum("hsaz,hz->hsa", rows, next_values) - values[..., None]
    sigma = np.asarray(problem.sigma, float)
    y = x / np.where(sigma > 0, sigma, 1.0)
    root = np.hypot(y, 2.0)
    t = np.where(y < 0, 0.5 * (root - y), 2.0 / (root + np.maximum(y, 0.0)))
    # g(x), the concave conjugate of sigma d sqrt(-2 log d); without sigma the positive part.
    conjugate = np.where(sigma > 0, sigma * np.exp(-0.5 * t**2) / t, np.maximum(x, 0.0))
    conjugate = conjugate if problem.legal is None else np.where(np.asarray(problem.legal), conjugate, 0.0)
    return float(np.asarray(problem.initial) @ values[0] + conjugate.sum())
