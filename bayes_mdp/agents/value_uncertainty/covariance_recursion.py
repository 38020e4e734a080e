"""The covariance recursion of values under independent rows: by layers, over an acyclic chain, to a fixed point.

With p = P(.|s, a) of mean pbar, V the values of the next states, C their covariance and V independent of (p, r):

* Var Q(s, a) = Var(sum p (r + g E V)) + g^2 E[p' C p], and for a Dirichlet row of total concentration c0
  E[p' C p] = (1 - k) pbar' C pbar + k pbar . diag C, k = 1 / (c0 + 1), 0 for a known row;
* Cov(Q(s, a), X) = g pbar . Cov(V, X) for every X that is independent of (p, r) given V.
"""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.numerics.products import einsum, matmul, tensordot
from bayes_mdp.utils.typing import AnyArray, IntScalar

_CAP = 100_000
_DOUBLINGS = 64

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
    known pairs); `once`: the unknown pairs that the policy takes; `loops`: whether any state can be visited again.
    """

    order: Int[Array, " S"]
    inside: Bool[Array, "S S"]
    once: Bool[Array, "S A"]
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


def layered(rows: Rows, discount: float | Float[Array, ""]) -> Covariances:
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

    q, v = lax.scan(step, jnp.zeros((n, n), rows.probs.dtype), rows, reverse=True)[1]
    return Covariances(q, v, jnp.array(True), jnp.int32(horizon), jnp.zeros((), v.dtype))


def unrolled(rows: Rows, discount: float | Float[Array, ""]) -> Covariances:
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
        new = backup(rows, c, discount)[1]
        return new, jnp.max(jnp.abs(new - c)), sweep + 1

    def going(state: Sweep) -> Bool[Array, ""]:
        c, change, sweep = state
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

    `d` holds Cov(V(j), Q(s, a)) for the pairs that V can depend on (`once`): an action that the policy does not take,
    or a known one, may lead to states that lead back to s.

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
        own, policy, f = exits[t], rows.policy[t], factor[:, t]
        q, with_v = of_pairs(own, rows.factor[t], rows.local[t], c, discount)
        y_with_v, y_with_q = matmul(policy, with_v), tensordot(matmul(discount * policy, own), d, axes=1)
        d = d.at[:, t].set(with_v.T) + f[:, None, None] * y_with_q.at[t].set(matmul(policy, q))
        cross = f[:, None] * y_with_v
        return (c + cross + cross.T + matmul(matmul(policy, q), policy) * f[:, None] * f, d), None

    start = (jnp.zeros_like(eye), jnp.zeros((n, n, n_actions), eye.dtype))
    (c, d), _ = lax.scan(step, start, structure.order)
    # Between the actions of one state: where a can lead back to s, and the policy takes the unknown pair (s, b) there,
    # Cov(Q(s, a), Q(s, b)) = g pbar_a . Cov(V, Q(s, b)).
    q = of_pairs(rows.probs, rows.factor, rows.local, c, discount)[0]
    again = discount * einsum("saz,zsb->sab", rows.probs, d)
    once = structure.once
    both = jnp.where(once[:, None, :], again, jnp.where(once[:, :, None], again.swapaxes(-1, -2), q))
    q = with_diagonal(both, jnp.diagonal(q, axis1=-2, axis2=-1))
    return Covariances(q, c, jnp.array(True), jnp.int32(n), jnp.zeros((), c.dtype))


def geometric_sum(matrix: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """I + M + M^2 + ... (no unit) by doubling: no cancellation, no LAPACK.

    Args:
        matrix: M, no unit, not negative, of spectral radius below one.
    """
    tiny = float(jnp.finfo(matrix.dtype).tiny) ** 0.5

    def body(state: Powers) -> Powers:
        total, power, count = state
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
    means = jnp.where(jnp.isfinite(means), means, 0.0)
    off = means - tensordot(weights, means, axes=1)
    return tensordot(weights, covariances + off[..., :, None] * off[..., None, :], axes=1)
