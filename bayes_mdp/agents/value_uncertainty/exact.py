"""The exact posterior covariance of the values of a policy by a recursion, and the agent `CovarianceThompson`.

The recursion needs independent rows: by layers, over an acyclic chain, or to a fixed point. With p = P(.|s, a) of mean
pbar, V the values of the next states, C their covariance and V independent of (p, r):

* Var Q(s, a) = Var(sum p (r + g E V)) + g^2 E[p' C p], and for a Dirichlet row of total concentration c0
  E[p' C p] = (1 - k) pbar' C pbar + k pbar . diag C, k = 1 / (c0 + 1), 0 for a known row;
* Cov(Q(s, a), X) = g pbar . Cov(V, X) for every X that is independent of (p, r) given V.

Also here: the same variance over sampled MDPs (`by_draws`) and by the uncertainty Bellman equation whose solution it is
(`exact_ube`, [EUBE23]).
"""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.variance_equation import (
    RowPosterior,
    ValueUncertainty,
    compile_solver,
    cycle_reason,
    discount_of,
    next_values,
    only_legal,
    over_components,
    problem_of,
    unknown_pairs,
)
from bayes_mdp.agents.value_uncertainty.exact_ube import exact_ube
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import (
    UsesRows,
    check_noise,
    policy_with_covariance,
    semidefinite_factor,
)
from bayes_mdp.agents.value_uncertainty.monte_carlo import by_draws
from bayes_mdp.mdp import (
    MDP,
    CanMean,
    Discounted,
    Episodic,
    Objective,
    PolicyOrLabels,
    Problem,
    SparseMDP,
)
from bayes_mdp.mdp.abilities import can_split
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.numerics.products import einsum, matmul, tensordot
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.occupancy import condensation
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.solution import PolicyEvaluation, Solution, where_legal
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray, IntScalar
from bayes_mdp.utils.validation import check_bool

__all__ = ["CovarianceThompson", "by_draws", "exact_ube", "value_covariance"]
_WHO = "exact.value_covariance"


Sweep: TypeAlias = tuple[Float[Array, "S S"], Float[Array, ""], Int[Array, ""]]
"""Covariance of the values, largest change of the last sweep, number of sweeps."""


PairCarry: TypeAlias = tuple[Float[Array, "S S"], Float[Array, "S S A"]]
"""Cov(V, V) and Cov(V, Q) of the states done so far; zero elsewhere."""


Powers: TypeAlias = tuple[Float[Array, "N N"], Float[Array, "N N"], Int[Array, ""]]
"""I + M + ... + M^(n-1), M^n, number of doublings (n is 2 to their power)."""


class Rows(NamedTuple):
    """The input of the recursion.

    Args:
        probs: pbar, mean probabilities of the next states.
        factor: k, of the covariance of a row.
        local: Var(sum p (r + g E V)), squared units of the value.
        policy: probabilities of the actions.
    """

    probs: Float[Array, "*H S A S"]
    factor: Float[Array, "*H S A"]
    local: Float[Array, "*H S A"]
    policy: Float[Array, "*H S A"]


class Structure(eqx.Module):
    """The order and the known cycles of a chain, found on the host.

    `order`: the states, the last ones first; `inside`: whether two states can lead back to each other by the policy (by
    known pairs); `unknown_taken`: the unknown pairs that the policy takes; `loops`: whether any state can be
    visited again.
    """

    order: Int[Array, " S"]
    inside: Bool[Array, "S S"]
    unknown_taken: Bool[Array, "S A"]
    loops: bool = eqx.field(static=True)


class Covariances(NamedTuple):
    """The output of the recursion, in squared units of the value.

    Args:
        q: between the actions of a state.
        v: between states.
        converged: whether the recursion ended by itself.
        iterations: sweeps, steps of an episode, or states.
        change: the largest change of a covariance in the last sweep.
    """

    q: Float[Array, "*H S A A"]
    v: Float[Array, "*H S S"]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    change: Float[Array, ""]


def of_pairs(
    probs: Float[Array, "*B A S"],
    factor: Float[Array, "*B A"],
    local: Float[Array, "*B A"],
    c: Float[Array, "S S"],
    discount: float | Float[Array, ""],
) -> tuple[Float[Array, "*B A A"], Float[Array, "*B A S"]]:
    """Covariance of Q between the actions of a state, of rows independent of V; and that of Q with V.

    Args:
        probs: mean rows pbar, [*B A S].
        factor: k = 1 / (c0 + 1) of the rows, no unit, 0 for known ones.
        local: Var(sum p (r + g E V)), squared units of the value.
        c: Cov(V, V), covariances of the values.
        discount: g.
    """
    # Cov(Q(a), V) = g pbar_a' C; between different actions the rows are independent: Cov(Q(a), Q(b)) = g^2 pbar_a' C
    # pbar_b.
    with_v = discount * matmul(probs, c)
    q = discount * einsum("...az,...bz->...ab", with_v, probs)
    # On the diagonal the row is the same: E[p' C p] = (1 - k) pbar' C pbar + k pbar . diag C, plus the local variance.
    square = jnp.diagonal(q, axis1=-2, axis2=-1)
    diagonal = local + (1.0 - factor) * square + factor * discount**2 * matmul(probs, jnp.diagonal(c))
    return with_diagonal(q, diagonal), with_v


def with_diagonal(matrix: Float[Array, "*B N N"], diagonal: Float[Array, "*B N"]) -> Float[Array, "*B N N"]:
    """`matrix` with `diagonal` in place of its own, both in one unit."""
    return jnp.where(jnp.eye(matrix.shape[-1], dtype=bool), diagonal[..., None], matrix)


def backup(
    rows: Rows, c: Float[Array, "S S"], discount: float | Float[Array, ""]
) -> tuple[Float[Array, "S A A"], Float[Array, "S S"]]:
    """One layer: covariances of Q and V from that of the values which all its rows lead to.

    Args:
        rows: of one layer.
        c: covariance of the values of the next states.
        discount: g.
    """
    q = of_pairs(rows.probs, rows.factor, rows.local, c, discount)[0]
    # Cov(V(s), V(t)) = g^2 P_pi C P_pi' for different states; the variance of a state comes from that of its actions.
    chain = discount * einsum("sa,saz->sz", rows.policy, rows.probs)
    variance = einsum("sa,sab,sb->s", rows.policy, q, rows.policy)
    return q, with_diagonal(matmul(matmul(chain, c), chain.T), variance)


def covariance_by_layer(rows: Rows, discount: float | Float[Array, ""]) -> Covariances:
    """Rows of their own at every step: exact, from the last step to the first.

    Args:
        rows: of all steps.
        discount: g.
    """
    horizon, n = rows.policy.shape[:2]

    def step(
        c: Float[Array, "S S"], row: Rows
    ) -> tuple[Float[Array, "S S"], tuple[Float[Array, "S A A"], Float[Array, "S S"]]]:
        q, c = backup(row, c, discount)
        return c, (q, c)

    # From the last step, whose next values are zero, to the first.
    q, v = lax.scan(step, jnp.zeros((n, n), rows.probs.dtype), rows, reverse=True)[1]
    return Covariances(q, v, jnp.array(True), jnp.int32(horizon), jnp.zeros((), v.dtype))


def unroll_covariance(rows: Rows, discount: float | Float[Array, ""]) -> Covariances:
    """The fixed point of `backup`: the infinite unrolling with an independent copy of every row at every step.

    Every sweep shrinks errors by discount^2. `change` is that of the last sweep.

    Args:
        rows: without a step axis.
        discount: g, below 1.
    """
    n = rows.policy.shape[0]
    eps = float(jnp.finfo(rows.probs.dtype).eps)

    def body(state: Sweep) -> Sweep:
        c, _, sweep = state
        # A sweep is one more step of the unrolled chain.
        new = backup(rows, c, discount)[1]
        return new, jnp.max(jnp.abs(new - c)), sweep + 1

    def going(state: Sweep) -> Bool[Array, ""]:
        c, change, sweep = state
        # Four roundings of the largest covariance: sweeps then repeat themselves.
        return (change > 4 * eps * jnp.max(jnp.abs(c))) & (sweep < _CAP)

    dtype = rows.probs.dtype
    # From zero the covariances grow monotonically: every sweep unrolls one more step.
    start = (jnp.zeros((n, n), dtype), jnp.full((), jnp.inf, dtype), jnp.int32(0))
    c, change, sweep = lax.while_loop(going, body, body(start))
    return Covariances(backup(rows, c, discount)[0], c, jnp.isfinite(change) & (sweep < _CAP), sweep, change)


def acyclic(rows: Rows, structure: Structure, discount: float | Float[Array, ""]) -> Covariances:
    """No unknown row is visited twice: exact, state by state from the last ones back.

    The rule Cov(V(s), V(j)) = g pbar(s) . Cov(V, V(j)) is applied to every j that comes before s, one-sided: j may be a
    successor of s. Known pairs may lead back: with F = (I - g P_inside)^-1, V = F Y, and the exit values Y(t) = E r +
    g P_outside(t) V take the part of V.

    `d` holds Cov(V(j), Q(s, a)) for the pairs that V can depend on (`unknown_taken`): an action that the policy does
    not take, or a known one, may lead to states that lead back to s.

    Args:
        rows: without a step axis.
        structure: of the states that the policy reaches.
        discount: g.
    """
    n, n_actions = rows.policy.shape
    # Split the rows: transitions to states of the same component (known pairs), and those that leave it.
    exits = jnp.where(structure.inside[:, None, :] & (rows.policy > 0)[..., None], 0.0, rows.probs)
    within = einsum("sa,saz->sz", rows.policy, jnp.where(structure.inside[:, None, :], rows.probs, 0.0))
    eye = jnp.eye(n, dtype=rows.probs.dtype)
    # F = I + g P_inside + (g P_inside)^2 + ...: V(s) = sum_t F(s, t) Y(t).
    factor = geometric_sum(discount * within) if structure.loops else eye

    def step(state: PairCarry, t: IntScalar) -> tuple[PairCarry, None]:
        # Add the exit value Y(t): its covariance with the values so far, then its own variance, both times F.
        c, d = state
        exit_rows, policy, f = exits[t], rows.policy[t], factor[:, t]
        q, with_v = of_pairs(exit_rows, rows.factor[t], rows.local[t], c, discount)
        # Cov(Y(t), .) first with all values so far, then with the pairs whose values they depend on.
        y_with_v, y_with_q = matmul(policy, with_v), tensordot(matmul(discount * policy, exit_rows), d, axes=1)
        d = d.at[:, t].set(with_v.T) + f[:, None, None] * y_with_q.at[t].set(matmul(policy, q))
        cross = f[:, None] * y_with_v
        return (c + cross + cross.T + matmul(matmul(policy, q), policy) * f[:, None] * f, d), None

    start = (jnp.zeros_like(eye), jnp.zeros((n, n, n_actions), eye.dtype))
    (c, d), _ = lax.scan(step, start, structure.order)
    # Between the actions of one state: where a can lead back to s, and the policy takes the unknown pair (s, b) there,
    # Cov(Q(s, a), Q(s, b)) = g pbar_a . Cov(V, Q(s, b)).
    q = of_pairs(rows.probs, rows.factor, rows.local, c, discount)[0]
    returning = discount * einsum("saz,zsb->sab", rows.probs, d)
    unknown_taken = structure.unknown_taken
    between_actions = jnp.where(
        unknown_taken[:, None, :], returning, jnp.where(unknown_taken[:, :, None], returning.swapaxes(-1, -2), q)
    )
    q = with_diagonal(between_actions, jnp.diagonal(q, axis1=-2, axis2=-1))
    return Covariances(q, c, jnp.array(True), jnp.int32(n), jnp.zeros((), c.dtype))


def geometric_sum(matrix: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """I + M + M^2 + ... (no unit) by doubling: no cancellation, no LAPACK.

    Args:
        matrix: M, no unit, not negative, of spectral radius below one.
    """
    tiny = float(jnp.finfo(matrix.dtype).tiny) ** 0.5

    def body(state: Powers) -> Powers:
        total, power, count = state
        # With S_n = I + ... + M^(n-1): S_2n = S_n + M^n S_n.
        return total + matmul(power, total), matmul(power, power), count + 1

    def going(state: Powers) -> Bool[Array, ""]:
        return (jnp.max(state[1]) > tiny) & (state[2] < _DOUBLINGS)

    return lax.while_loop(going, body, (jnp.eye(len(matrix), dtype=matrix.dtype), matrix, jnp.int32(0)))[0]


def mix(
    weights: Float[AnyArray, " K"], means: Float[Array, "K *H N"], covariances: Float[Array, "K *H N N"]
) -> Float[Array, "*H N N"]:
    """Covariance of a mixture: that within its components and that of their means; -inf (illegal) means count as 0.

    Args:
        weights: probabilities of the components.
        means: of N values in each component.
        covariances: covariances of these.
    """
    # Illegal actions have no deviation in any component.
    means = jnp.where(jnp.isfinite(means), means, 0.0)
    deviations = means - tensordot(weights, means, axes=1)
    return tensordot(weights, covariances + deviations[..., :, None] * deviations[..., None, :], axes=1)


class ValueCovariance(ValueUncertainty):
    """Means and covariances of the values of a policy.

    Args:
        q_covariance: [*H S A A], between the values of the actions of one state, in squared units of the value; zero
            where illegal. `q_variance` is its diagonal.
        v_covariance: [*H S S], between the values of the states (of one step).

    The rest as of `ValueUncertainty`; `gap` bounds the numerical error of an entry, to first order in the rounding
    error. `local` and `q_max` are None.
    """

    q_covariance: Float[Array, "*H S A A"]
    v_covariance: Float[Array, "*H S S"]

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*H S A"]:
        """A Gaussian draw of q, joint over the actions of a state, states independent."""
        noise = jax.random.normal(key, self.q_mean.shape, self.q_mean.dtype)
        # Joint over the actions of a state: q_mean + L z.
        return self.q_mean + einsum("...ab,...b->...a", semidefinite_factor(self.q_covariance), noise)

    def __str__(self) -> str:
        sd = np.asarray(self.v_sd)
        return f"Covariance of the values of a policy: sd of V from {sd.min():.3g} to {sd.max():.3g}\n  {self.validity}"


def value_covariance(
    posterior: CanMean, policy: PolicyOrLabels, objective: Objective, *, allow_cycles: bool = False
) -> ValueCovariance:
    """Exact posterior mean and covariance of the values of a policy, in closed form.

    One backward recursion over independent rows,

        Var Q(s, a) = Var(sum p (r + g E V)) + g^2 E[p' Cov(V) p],   Cov(Q(s, a), X) = g pbar . Cov(V, X),

    E[p' C p] = (1 - k) pbar' C pbar + k pbar . diag C for a Dirichlet row, k = `variance_factor("dirichlet")`.
    Exact where no unknown pair can be visited twice: by steps where the belief has rows of its own for every step of
    `Episodic(H)`; state by state where the policy is acyclic in a stationary belief (`Discounted`, `FirstExit`; pairs
    whose row and reward are known may form cycles, absorbing states for instance). A mixture is taken component by
    component, then by total covariance.

    On cycles the exact covariance has no closed form. `allow_cycles` then gives that of the infinite unrolling with an
    independent copy of every row at every visit: a heuristic, far too small where a few rows are visited many times.

    Traceable (in the dtype of its inputs; prefer float64 for long horizons) for layered beliefs, or with
    `allow_cycles`: inside a trace the structure cannot be inspected.

    Args:
        posterior: with independent Dirichlet rows, or a mixture of such.
        policy: Int[*H S], Float[*H S A], a `Policy`, as in `planning.evaluate`, or by the posterior's labels.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        allow_cycles: see above.

    Raises:
        ValueError: rows that share parameters other than in a mixture; cycles (names one); `Episodic` with one row for
            all steps; a variance that does not exist; `AverageReward`; covariances that would not fit in memory; as
            `planning.evaluate`. TypeError: an ability is missing.
    """
    mean, policy = problem_of(posterior, policy, objective, _WHO)
    probs = policy_probs(policy, mean, horizon=objective.horizon)
    _check_memory(posterior, mean, objective)
    structure, validity = _prepare(posterior, mean, probs, objective, allow_cycles)
    value, answer, gap = _parts(posterior, probs, objective, structure)
    # All components must have converged, and the chain of the mean too.
    converged = answer.converged & value.converged
    if not can_split(posterior):
        status = (converged, answer.iterations, gap)
        return _with_variances(value.q, value.v, answer.q, answer.v, status, validity)
    # Total mean and covariance over the components. An illegal action has q = -inf, and 0 x inf is nan: the average is
    # taken without it, and -inf put back.
    weights = posterior.weights
    q = tensordot(weights, only_legal(value.q, mean), axes=1)
    q = where_legal(q, mean.legal)
    # Total covariance: within the components, and between their means.
    v = tensordot(weights, value.v, axes=1)
    q_covariance, v_covariance = mix(weights, value.q, answer.q), mix(weights, value.v, answer.v)
    status = converged.all(), answer.iterations.max(), gap.max()
    return _with_variances(q, v, q_covariance, v_covariance, status, validity)


def _with_variances(
    q: Float[Array, "*H S A"],
    v: Float[Array, "*H S"],
    q_covariance: Float[Array, "*H S A A"],
    v_covariance: Float[Array, "*H S S"],
    status: tuple[Bool[Array, ""], Int[Array, ""], Float[Array, ""]],
    validity: Validity,
) -> ValueCovariance:
    """The answer; the variances are the diagonals of the covariances, of which rounding may make an entry negative."""
    q_variance, v_variance = (
        jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0.0) for covariance in (q_covariance, v_covariance)
    )
    return ValueCovariance(q, v, q_variance, v_variance, None, None, *status, validity, q_covariance, v_covariance)


def _check_memory(posterior: CanMean, mean: MDP | SparseMDP, objective: Objective) -> None:
    """Refuse covariances that would not fit: of the values of all states at every step, and with those of all pairs."""
    n, steps = mean.n_states, objective.horizon or 1
    # Each component of a mixture has covariances of its own.
    components = posterior.weights.shape[0] if can_split(posterior) else 1
    # Six arrays [S A S] at the peak, and the answers of all steps.
    numbers = 6.0 * n * n * mean.n_actions + steps * n * (n * (mean.n_actions + 1) + mean.n_actions**2)
    subject = f"posterior has {n} states, {mean.n_actions} actions" + (f", {components} components" * (components > 1))
    check_memory(subject, mean.reward.dtype.itemsize * components * numbers, "sampled MDPs need less (exact.by_draws)")


def _prepare(
    posterior: CanMean, mean: MDP | SparseMDP, probs: Float[Array, "*H S A"], objective: Objective, allow_cycles: bool
) -> tuple[Structure | None, Validity]:
    """The structure of the chain (None: layers, or copies), and the validity. Refuses cycles unless allowed.

    Args:
        posterior: with independent rows, or a mixture of such.
        mean: its mean MDP.
        probs: action probabilities of the policy.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        allow_cycles: answer by independent copies where the recursion is not exact.
    """
    assumption = "every component has independent rows" if can_split(posterior) else "independent rows"
    # 1. Rows of their own at every step: by layers, exact.
    if mean.horizon is not None:
        return None, Validity("exact", f"{assumption}, of their own at every step")
    # 2. One row for all steps of an episode: every pair is visited again. Without steps: exact if acyclic.
    if isinstance(objective, Episodic):
        reason = f"stationary: all {objective.horizon} steps share their rows"
    else:
        unknown = over_components(unknown_pairs, posterior)
        # Unknown in any component counts as unknown.
        unknown = unknown.any(0) if can_split(posterior) else unknown
        reason = cycle_reason(mean, probs, unknown)
        if reason is None:
            return _structure(mean, probs, unknown), Validity(
                "exact", f"{assumption}, no unknown pair can be visited twice"
            )
    # 3. Otherwise no closed form is exact.
    if not allow_cycles:
        raise ValueError(
            f"posterior is not known to be acyclic under the policy ({reason}), expected no unknown pair that is "
            f"visited twice for {_WHO}: give the space a horizon (rows of their own at every step), use sampled MDPs "
            "(exact.by_draws), or allow_cycles=True for a heuristic"
        )
    if not isinstance(objective, (Discounted, Episodic)):
        raise ValueError(f"objective is {type(objective).__name__}, expected Discounted or Episodic with cycles")
    return None, Validity("heuristic", f"{reason}; every visit counts as an independent copy")


def _structure(mean: MDP | SparseMDP, probs: Float[Array, "S A"], unknown: Bool[Array, "S A"]) -> Structure:
    """Strongly connected components of the chain under the policy, in topological order, the last ones first."""
    # Only actions that the policy takes make the chain.
    used = np.asarray(probs) > 0
    # States that lead back to each other are adjacent, and come after all that they can leave for.
    order, component = condensation(mean, used)
    inside = component[:, None] == component[None, :]
    rows = np.asarray(mean.transition_probs)
    # Without loops F is the identity, and need not be summed.
    loops = bool(np.any(used[..., None] & inside[:, None, :] & (rows > 0)))
    # Known pairs may be revisited; unknown ones are what the proof is about.
    unknown_taken = used & np.asarray(unknown)
    return Structure(jnp.asarray(order), jnp.asarray(inside), jnp.asarray(unknown_taken), loops)


def _solve(
    posterior: RowPosterior, probs: Float[Array, "*H S A"], objective: Objective, structure: Structure | None
) -> tuple[PolicyEvaluation, Covariances, Float[Array, ""]]:
    """Values, covariances and the numerical error of a posterior with independent rows."""
    mean = posterior.mean_mdp().to_dense()
    # Means first: the local variance needs the values of the next states.
    value = evaluate(mean, probs, objective)
    discount = jnp.asarray(discount_of(objective), mean.reward.dtype)
    rows = _rows(posterior, mean, probs, value, objective)
    if structure is not None:
        answer = acyclic(rows, structure, discount)
    else:
        answer = (
            covariance_by_layer(rows, discount)
            if isinstance(objective, Episodic)
            else unroll_covariance(rows, discount)
        )
    return value, answer, _gap(rows, value, answer, discount, objective, structure)


def _all_parts(
    posterior: CanMean, probs: Float[Array, "*H S A"], objective: Objective, structure: Structure | None
) -> tuple[PolicyEvaluation, Covariances, Float[Array, "*K"]]:  # of a mixture with a leading axis K
    return over_components(lambda belief: _solve(belief, probs, objective, structure), posterior)


_parts = compile_solver(_all_parts)


def _rows(
    posterior: RowPosterior, mean: MDP, probs: Float[Array, "*H S A"], value: PolicyEvaluation, objective: Objective
) -> Rows:
    """The input of the recursion, with the axes of the values; zero where an action is illegal."""
    # Var[r + g p . Vbar], Vbar the mean values of the next step.
    # An illegal action has no variance.
    local = posterior.bellman_variance(next_values(value.v, objective), discount_of(objective))
    local = jnp.asarray(only_legal(local, mean), mean.reward.dtype)
    row = mean.transition_probs if mean.legal is None else jnp.where(mean.legal[..., None], mean.transition_probs, 0.0)
    factor = jnp.asarray(posterior.variance_factor("dirichlet"), mean.reward.dtype)
    shape = value.q.shape
    return Rows(
        jnp.broadcast_to(row, (*shape, shape[-2])),
        jnp.broadcast_to(factor, shape),
        jnp.broadcast_to(local, shape),
        jnp.broadcast_to(probs, shape),
    )


def _gap(
    rows: Rows,
    value: PolicyEvaluation,
    answer: Covariances,
    discount: Float[Array, ""],
    objective: Objective,
    structure: Structure | None,
) -> Float[Array, ""]:
    """First-order bound on the error of an entry: rounding, that of the mean values, and the last change of a sweep.

    Args:
        rows: the input of the recursion.
        value: mean values; their error enters the local variance.
        answer: the covariances.
        discount: of the objective, in the dtype of `rows`.
        objective, structure: which recursion was used.
    """
    n_states, n_actions = rows.policy.shape[-2:]
    largest = jnp.max(jnp.diagonal(answer.q, axis1=-2, axis2=-1))
    value_error = discount * value.gap
    # An error e of the mean values changes a local variance s^2 by at most 2 s e + e^2.
    # Rounding of sums over states and actions, relative to the largest variance.
    added = 2 * jnp.sqrt(jnp.max(rows.local)) * value_error + value_error**2
    added = added + 4 * (n_states + n_actions + 8) * float(jnp.finfo(largest.dtype).eps) * largest
    # Errors add up over the layers or states of a finite recursion; a fixed point contracts them by discount^2.
    if structure is not None or isinstance(objective, Episodic):
        return added * answer.iterations
    return (added + discount**2 * answer.change) / (1.0 - discount**2)


class CovarianceThompson(UsesRows):
    """Draw the values of the actions of a state from a Gaussian with mean and covariance of `value_covariance`.

    The plan is optimal in the mean MDP. The covariance of its values is exact for a belief with rows of its own at
    every step, and where the policy is acyclic; on cycles it is that of independent copies (`allow_cycles`), too small.
    Actions that lead to the same states have correlated values: in a `joint` draw the uncertainty that they share is no
    reason to prefer one of them, in a factored draw it is.

    Args:
        joint: with the covariances between the actions of a state, else with their variances alone.
        scale, noise, replan: as in `ThompsonAgent`.

    Raises:
        ValueError: `scale` is negative or not finite; another noise.
        TypeError: no number, `joint` is no bool, no rule of replanning.
    """

    joint: bool = eqx.field(default=True, static=True)
    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise)
        check_bool("joint", self.joint)

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with the covariance of `value_covariance`. Raises as that."""
        # A plan on a cyclic chain uses independent copies: a heuristic that is said in `validity`.
        del mean
        answer = value_covariance(belief, plan.policy, problem.objective, allow_cycles=True)
        q, covariance = answer.q_mean, answer.q_covariance
        return policy_with_covariance(key, q, covariance, problem, self.noise, joint=self.joint, scale=self.scale)


_CAP = 100_000
_DOUBLINGS = 64
