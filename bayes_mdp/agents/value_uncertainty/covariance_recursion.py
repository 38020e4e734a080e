"""The covariance recursion of values under independent rows: by layers, over an acyclic chain, to a fixed point.

With p = P(.|s, a) of mean pbar, V the values of the next states, C their covariance and V independent of (p, r):

* Var Q(s, a) = Var(sum p (r + g E V)) + g^2 E[p' C p], and for a Dirichlet row of total concentration c0
  E[p' C p] = (1 - k) pbar' C pbar + k pbar . diag C, k = 1 / (c0 + 1), 0 for a known row;
* Cov(Q(s, a), X) = g pbar . Cov(V, X) for every X that is independent of (p, r) given V.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_CAP = 100_000
_DOUBLINGS = 64


class Rows(NamedTuple):
    """What the recursion is told: pbar [*H S A S], k [*H S A], Var(sum p (r + g E V)) [*H S A], policy [*H S A]."""

    probs: Float[Array, "*H S A S"]
    spread: Float[Array, "*H S A"]
    local: Float[Array, "*H S A"]
    policy: Float[Array, "*H S A"]


class Structure(eqx.Module):
    """What the host knows of an acyclic chain.

    `order`: the states, the last ones first; `inside`: whether two states can lead back to each other by the policy (by
    known pairs); `once`: the unknown pairs that the policy takes; `loops`: whether any state can be met again.
    """

    order: Int[Array, " S"]
    inside: Bool[Array, "S S"]
    once: Bool[Array, "S A"]
    loops: bool = eqx.field(static=True)


class Covariances(NamedTuple):
    """q [*H S A A], between the actions of a state; v [*H S S], between states; how the recursion ended."""

    q: Float[Array, "*H S A A"]
    v: Float[Array, "*H S S"]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    change: Float[Array, ""]


def of_pairs(
    probs: Float[Array, "*B A S"],
    spread: Float[Array, "*B A"],
    local: Float[Array, "*B A"],
    c: Float[Array, "S S"],
    discount: Any,
) -> tuple[Float[Array, "*B A A"], Float[Array, "*B A S"]]:
    """Covariance of Q between the actions of a state, of rows independent of V; and that of Q with V."""
    with_v = discount * (probs @ c)
    q = discount * jnp.einsum("...az,...bz->...ab", with_v, probs)
    square = jnp.diagonal(q, axis1=-2, axis2=-1)
    diagonal = local + (1.0 - spread) * square + spread * discount**2 * (probs @ jnp.diagonal(c))
    return with_diagonal(q, diagonal), with_v


def with_diagonal(matrix: Float[Array, "*B N N"], diagonal: Float[Array, "*B N"]) -> Float[Array, "*B N N"]:
    """`matrix` with another diagonal."""
    return jnp.where(jnp.eye(matrix.shape[-1], dtype=bool), diagonal[..., None], matrix)


def backup(rows: Rows, c: Float[Array, "S S"], discount: Any) -> tuple[Float[Array, "S A A"], Float[Array, "S S"]]:
    """One layer: covariances of Q and V from that of the values which all its rows lead to."""
    q = of_pairs(rows.probs, rows.spread, rows.local, c, discount)[0]
    chain = discount * jnp.einsum("sa,saz->sz", rows.policy, rows.probs)
    variance = jnp.einsum("sa,sab,sb->s", rows.policy, q, rows.policy)
    return q, with_diagonal(chain @ c @ chain.T, variance)


def layered(rows: Rows, discount: Any) -> Covariances:
    """Rows of their own at every step: exact, from the last step to the first."""
    horizon, n = rows.policy.shape[:2]

    def step(c: Float[Array, "S S"], row: Rows) -> Any:
        q, c = backup(row, c, discount)
        return c, (q, c)

    q, v = lax.scan(step, jnp.zeros((n, n), rows.probs.dtype), rows, reverse=True)[1]
    return Covariances(q, v, jnp.array(True), jnp.int32(horizon), jnp.zeros((), v.dtype))


def unrolled(rows: Rows, discount: Any) -> Covariances:
    """The fixed point of `backup`: the infinite unrolling with an independent copy of every row at every step.

    Every sweep shrinks errors by discount^2. `change` is that of the last sweep.
    """
    n = rows.policy.shape[0]
    eps = float(jnp.finfo(rows.probs.dtype).eps)

    def body(state: Any) -> Any:
        c, _, sweep = state
        new = backup(rows, c, discount)[1]
        return new, jnp.max(jnp.abs(new - c)), sweep + 1

    def going(state: Any) -> Any:
        c, change, sweep = state
        return (change > 4 * eps * jnp.max(jnp.abs(c))) & (sweep < _CAP)

    dtype = rows.probs.dtype
    start = (jnp.zeros((n, n), dtype), jnp.full((), jnp.inf, dtype), jnp.int32(0))
    c, change, sweep = lax.while_loop(going, body, body(start))
    return Covariances(backup(rows, c, discount)[0], c, jnp.isfinite(change) & (sweep < _CAP), sweep, change)


def acyclic(rows: Rows, structure: Structure, discount: Any) -> Covariances:
    """No unknown row is met twice: exact, state by state from the last ones back.

    The rule Cov(V(s), V(j)) = g pbar(s) . Cov(V, V(j)) is applied to every j that comes before s, one-sided: j may be a
    successor of s. Known pairs may lead back: with F = (I - g P_inside)^-1, V = F Y, and the exit values Y(t) = E r +
    g P_outside(t) V take the part of V.

    `d` holds Cov(V(j), Q(s, a)) for the pairs that V can depend on (`once`): an action that the policy does not take,
    or a known one, may lead to states that lead back to s.
    """
    n, n_actions = rows.policy.shape
    exits = jnp.where(structure.inside[:, None, :] & (rows.policy > 0)[..., None], 0.0, rows.probs)
    within = jnp.einsum("sa,saz->sz", rows.policy, jnp.where(structure.inside[:, None, :], rows.probs, 0.0))
    eye = jnp.eye(n, dtype=rows.probs.dtype)
    factor = geometric_sum(discount * within) if structure.loops else eye

    def step(state: Any, t: Any) -> Any:
        c, d = state
        own, policy, f = exits[t], rows.policy[t], factor[:, t]
        q, with_v = of_pairs(own, rows.spread[t], rows.local[t], c, discount)
        y_with_v, y_with_q = policy @ with_v, jnp.tensordot(discount * policy @ own, d, axes=1)
        d = d.at[:, t].set(with_v.T) + f[:, None, None] * y_with_q.at[t].set(policy @ q)
        cross = f[:, None] * y_with_v
        return (c + cross + cross.T + (policy @ q @ policy) * f[:, None] * f, d), None

    start = (jnp.zeros_like(eye), jnp.zeros((n, n, n_actions), eye.dtype))
    (c, d), _ = lax.scan(step, start, structure.order)
    q = of_pairs(rows.probs, rows.spread, rows.local, c, discount)[0]
    again = discount * jnp.einsum("saz,zsb->sab", rows.probs, d)
    once = structure.once
    both = jnp.where(once[:, None, :], again, jnp.where(once[:, :, None], again.swapaxes(-1, -2), q))
    q = with_diagonal(both, jnp.diagonal(q, axis1=-2, axis2=-1))
    return Covariances(q, c, jnp.array(True), jnp.int32(n), jnp.zeros((), c.dtype))


def geometric_sum(matrix: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """I + M + M^2 + ... for a non-negative M of spectral radius below one, by doubling: no cancellation, no LAPACK."""
    tiny = float(jnp.finfo(matrix.dtype).tiny) ** 0.5

    def body(state: Any) -> Any:
        total, power, count = state
        return total + power @ total, power @ power, count + 1

    def going(state: Any) -> Any:
        return (jnp.max(state[1]) > tiny) & (state[2] < _DOUBLINGS)

    return lax.while_loop(going, body, (jnp.eye(len(matrix), dtype=matrix.dtype), matrix, jnp.int32(0)))[0]


def mix(
    weights: Float[Array, " K"], means: Float[Array, "K *H N"], covariances: Float[Array, "K *H N N"]
) -> Float[Array, "*H N N"]:
    """Covariance of a mixture: that within its components and that of their means; -inf (illegal) means count as 0."""
    means = jnp.where(jnp.isfinite(means), means, 0.0)
    off = means - jnp.tensordot(weights, means, axes=1)
    return jnp.tensordot(weights, covariances + off[..., :, None] * off[..., None, :], axes=1)
