"""Discounted values: policy iteration, and bounds on the answer from its last sweep.

Three parts make it fast, each in a class or function of its own:

* For a handful of states (`tiny_policy_iteration`) a batch of problems fills the vector registers. XLA on CPU
  vectorises over the last axis; under `vmap` the batch axis comes first, and a 6 x 6 elimination becomes strided scalar
  code. `custom_vmap` puts the batch last instead (2-3 times faster for 100 problems).
* Bellman sweeps in the order of the states (`OrderedSweeps`): a sweep that updates all states at once moves news by one
  transition, and so does an improvement of a policy. In Gauss-Seidel order (Puterman 1994, section 6.3.3), once up and
  once down, it moves on as long as transitions lead to states that come next in the order. States are cut into 128
  segments that are swept side by side: vectors instead of scalars, and within a sweep news ends at the end of its
  segment.
* Many sweeps of one policy over listed successors (`PolicySweeps`): XLA on CPU reduces a short last axis by a scalar
  loop. With the successor axis first a sweep is K gathers and products of whole vectors: 3 times as fast at 10^5
  states, as fast at 10^6, where memory decides.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.fusion import on_demand
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning.bellman import HardMax, Max, Rounding, total_probability
from bayes_mdp.planning.linear_systems import RESTARTS, solve_chain
from bayes_mdp.planning.policy_arrays import UNROLLED, action_values_by_column, at_policy, follow
from bayes_mdp.planning.solution import Solution, best_action, where_legal
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar

Iterate = tuple[
    Float[Array, " S"], Float[Array, "S A"], Int[Array, " S"], Float[Array, ""], Int[Array, ""], Int[Array, ""]
]
"""Values, q, policy, residual, iterations, status (1: stop, 2: converged)."""

Sweep = tuple[Float[Array, "S A"], Float[Array, " S"], Float[Array, ""], Int[Array, ""], Int[Array, ""]]
"""q, values, span of T v - v, iterations, status (1: it is no longer cut well, 2: converged)."""

Evaluation = tuple[Float[Array, " S"], Float[Array, ""], Int[Array, ""]]
"""Values, span of the last change, sweeps."""

Ahead = tuple[Float[Array, " S"], Float[Array, "S A"], Bool[Array, ""]]
"""Values, q, whether to sweep."""

_CAP = 500
_SWEEPS = 128
_FAST = 0.7
_WORTH = 0.01
_POLICY_SWEEPS = 32
_NEARER = 1e-2
_IN_ORDER = 2
_DENSE_PATIENCE = 8  # policy iterations


def solve_discounted(
    mdp: MDP | SparseMDP,
    discount: RealScalar,
    rounding: Rounding,
    start: Solution | None,
    tolerance: RealScalar = 0.0,
) -> Solution:
    """Optimal discounted values of a stationary MDP.

    Dense with at most 8 states: policy iteration by elimination, from the policy of `start`. Otherwise modified policy
    iteration from the values of `start` while it is fast, then policy iteration with sweeps in the order of the states
    between improvements, its evaluations by elimination or preconditioned BiCGSTAB, and by sweeps where both fail. It
    stops as soon as no value is off by more than `tolerance`, but for rounding; 0: at rounding.
    """
    # A tiny problem by an unrolled elimination, fast under `vmap`; others by sweeps, then policy iteration.
    discount = jnp.asarray(discount, mdp.reward.dtype)
    if isinstance(mdp, MDP) and mdp.n_states <= TINY:
        # Greedy with respect to immediate rewards, or that of `start`.
        policy = best_action(where_legal(mdp.reward, mdp.legal))
        if start is not None:
            legal = True if mdp.legal is None else at_policy(mdp.legal, start.policy)
            policy = jnp.where(legal, start.policy, policy)
        values, _, count, done = tiny_policy_iteration(mdp.transition_probs, mdp.reward, mdp.legal, discount, policy)
    else:
        values = jnp.zeros(mdp.n_states, mdp.reward.dtype) if start is None else start.v
        values = jnp.where(jnp.isfinite(values), values, 0.0)
        # T v - v of this size (its span: twice this, where no episode ends) keeps T v within `tolerance` of v*.
        allowed = tolerance * (1 - discount) / jnp.maximum(discount, float(jnp.finfo(discount.dtype).tiny))
        values, count, done = _values(mdp, discount, values, allowed)
    # Whatever produced the values: the answer and its bounds come from one sweep over them.
    q, gap = sweep_with_bounds(mdp, discount, rounding, values)
    gain = jnp.full((), jnp.nan, q.dtype)
    return Solution(q, jnp.max(q, -1), best_action(q), gain, done & jnp.isfinite(gap), count, gap)


def sweep_with_bounds(
    mdp: MDP | SparseMDP,
    discount: RealScalar,
    rounding: Rounding,
    values: Float[Array, " S"],
    maximum: Max = HardMax(),
) -> tuple[Float[Array, "S A"], Float[Array, ""]]:
    """One sweep over `values`, moved to the middle of proven bounds on q*, and the half-width of these bounds.

    With T v - v in [low, high] and k the discounted probability of going on, v* lies in T v + k / (1 - k) [low, high]
    (MacQueen 1966; Puterman 1994, theorem 6.6.3); where pairs can end, k is the least or the largest, by sign.

    A soft maximum has the same bounds: it is monotone and M(q + c) = M(q) + c, so with c >= 0 q(v + c) lies between
    q(v) + k_min c and q(v) + k_max c, and T (v + c) between T v + k_min c and T v + k_max c. From T v <= v + high
    follows T^(n+1) v <= T^n v + k^n high, and the sum over n is the upper bound; the lower one likewise.
    """
    q = action_values_by_column(mdp, values, discount)
    error = rounding.of_sweep(values) + maximum.uncertainty(mdp.n_actions)
    change = maximum.value(q) - values
    # The sweep's own rounding widens the interval, so that the bounds hold in exact arithmetic.
    low, high = jnp.min(change) - error, jnp.max(change) + error
    k_min, k_max = (discount * k for k in total_probability(mdp, rounding))
    # sum_t k^t = k / (1 - k): the k that makes each bound weakest.
    upper = high * _later(jnp.where(high > 0, k_max, k_min), rounding)
    lower = low * _later(jnp.where(low < 0, k_max, k_min), rounding)
    shift, width = (upper + lower) / 2, (upper - lower) / 2
    known = jnp.isfinite(width)
    q = q + jnp.where(known, shift, 0.0)
    # Two roundings of the shift, and the sweep's own error, which moves q even where the change is zero.
    gap = (width + error) * (1 + rounding.factor) + rounding.factor * jnp.abs(shift)
    return q, jnp.where(known, gap, jnp.inf)


def _later(k: Float[Array, ""], rounding: Rounding) -> Float[Array, ""]:
    """k / (1 - k) rounded up, infinite from k = 1 on."""
    k = k * (1 + rounding.factor)
    return jnp.where(k < 1, k / jnp.where(k < 1, 1 - k, 1.0), jnp.inf)


def _values(
    mdp: MDP | SparseMDP, discount: RealScalar, values: Float[Array, " S"], allowed: RealScalar
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Values, iterations, and whether the policy is stable with a residual that is allowed or near rounding."""
    q, values, count, done = _sweep_while_fast(mdp, discount, values, allowed)
    # What fast sweeps solve is never laid out for anything else.
    iterate = lambda: _policy_iteration(mdp, discount, values, q, count, allowed)  # noqa: E731
    return jax.lax.cond(done, lambda: (values, count, done), iterate)


def _policy_iteration(
    mdp: MDP | SparseMDP,
    discount: RealScalar,
    values: Float[Array, " S"],
    q: Float[Array, "S A"],
    count: Int[Array, ""],
    allowed: RealScalar,
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Howard 1960, with sweeps in the order of the states between improvements.

    An improvement moves news of a reward by as many states as one transition: in a long chain sweeps carry it on.
    The residual of T v - v, not the policy alone, decides: evaluations may be inexact.
    """
    eps = float(jnp.finfo(mdp.reward.dtype).eps)
    # Evaluating a policy needs no order; a dense problem of ordinary size is solved before sweeps would pay.
    patience = _CAP if mdp.n_actions == 1 else 0 if isinstance(mdp, SparseMDP) else _DENSE_PATIENCE
    ordered = OrderedSweeps.of(mdp, jnp.asarray(discount, q.dtype)) if patience < _CAP else None

    def look_ahead(
        values: Float[Array, " S"], q: Float[Array, "S A"], count: Int[Array, ""]
    ) -> tuple[Float[Array, " S"], Float[Array, "S A"]]:
        """After sweeps in order, and one more for the policy; a loop of no or one turn."""
        if ordered is None:
            return values, q

        def turn(loop: Ahead) -> Ahead:
            assert ordered is not None
            swept = ordered(loop[0], _IN_ORDER)
            return swept, action_values_by_column(mdp, swept, discount), jnp.array(False)

        return jax.lax.while_loop(lambda loop: loop[-1], turn, (values, q, count >= patience))[:2]

    def body(carry: Iterate) -> Iterate:
        values, q, policy, residual, count, _ = carry
        swept, ahead = look_ahead(values, q, count)
        # An action that is worse by rounding alone is kept: otherwise equal actions alternate for ever. Not after
        # sweeps in order: the news of a far reward comes as values below the rounding of others.
        unit = eps * jnp.max(jnp.abs(swept)) * (count < patience)
        policy = jnp.where(jnp.max(ahead, -1) - at_policy(ahead, policy) <= 4 * unit, policy, best_action(ahead))
        # Howard's step: the values of this policy, then its greedy policy again.
        chain = follow(mdp, policy)
        # The last values are the guess of an iterative solver; evaluations need be no better than the policy is.
        values = evaluate_chain(chain, discount, at_policy(ahead, policy), residual, rounds=1)
        q = action_values_by_column(mdp, values, discount)
        best = jnp.max(q, -1)
        scale = jnp.max(jnp.abs(best)) + jnp.max(jnp.abs(chain.reward))
        keep = best - at_policy(q, policy) <= 4 * eps * scale
        error = jnp.max(jnp.abs(best - values))
        # A residual at rounding is the end, whatever equal actions do; near it, or with a stable policy, no progress.
        at_rounding = error <= 64 * eps * scale
        settled = (error <= 8 * eps * scale) | ((at_rounding | jnp.all(keep)) & (error > 0.95 * residual))
        close = (settled & at_rounding) | (error <= allowed)
        status = jnp.where(close, 2, jnp.where(settled | ~jnp.isfinite(error), 1, 0)).astype(jnp.int32)
        return values, q, policy, error, count + 1, status

    first = (values, q, best_action(q), jnp.full((), jnp.inf, q.dtype), count, jnp.int32(0))
    going = lambda carry: (carry[-1] == 0) & (carry[-2] < _CAP)  # noqa: E731
    values, _, _, _, count, status = jax.lax.while_loop(going, body, first)
    return values, count, status == 2


def _sweep_while_fast(
    mdp: MDP | SparseMDP, discount: RealScalar, values: Float[Array, " S"], allowed: RealScalar
) -> tuple[Float[Array, "S A"], Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """q, values, iterations and whether they are the solution, after modified policy iteration while it is fast.

    Where states mix fast a few sweeps are the whole solution (Puterman 1994, section 6.5: some sweeps of the policy
    between improvements, each with a midpoint correction); elsewhere this costs two iterations.
    """
    eps = float(jnp.finfo(values.dtype).eps)

    def shift_to_middle(
        best: Float[Array, " S"], values: Float[Array, " S"]
    ) -> tuple[Float[Array, " S"], Float[Array, ""]]:
        """`best`, moved to the middle of the bounds on v*, and the span of the change."""
        change = best - values
        low, high = jnp.min(change), jnp.max(change)
        # Constants, the slowest error mode, are gone at once.
        middle = (high + low) / 2 * discount / (1 - discount)
        return best + middle.astype(best.dtype), high - low

    def follow_best(q: Float[Array, "S A"], values: Float[Array, " S"]) -> Float[Array, " S"]:
        best = jnp.max(q, -1)
        first, width = shift_to_middle(best, values)
        # Modified policy iteration (Puterman and Shin 1978): some sweeps of the greedy policy in place of its exact
        # values.
        sweeps = PolicySweeps.of(mdp, best_action(q), discount)
        # The change of the values in place of the values, from the sweep that there is; in units of its size, which
        # single precision may not hold.
        unit = jnp.max(jnp.abs(best - values))
        unit = jnp.where(unit > jnp.finfo(unit.dtype).tiny, unit, 1.0)  # a subnormal one has no finite reciprocal
        changes = sweeps.for_changes((best - values) / unit)
        # No nearer to the policy's values than the policy may be to the best one.
        enough = jnp.maximum(jnp.maximum(_NEARER * width, eps * jnp.max(jnp.abs(first))), allowed)
        if changes is None:
            return _swept(sweeps, shift_to_middle, first, enough)
        start = ((first - values) / unit).astype(jnp.float32)
        least = 4 * float(jnp.finfo(jnp.float32).eps) * jnp.max(jnp.abs(start))
        return values + unit * _swept(
            changes, shift_to_middle, start, jnp.maximum((enough / unit).astype(jnp.float32), least)
        )

    def body(carry: Sweep) -> Sweep:
        q, values, width, count, _ = carry
        values = follow_best(q, values) if mdp.n_actions > 1 else shift_to_middle(jnp.max(q, -1), values)[0]
        q = action_values_by_column(mdp, values, discount)
        change = jnp.max(q, -1) - values
        new = jnp.max(change) - jnp.min(change)
        size = jnp.max(jnp.abs(change))
        solved = size <= 8 * eps * (jnp.max(jnp.abs(values)) + size)
        # Where no episode ends the middle of the bounds is the answer: half of the span counts.
        solved |= (new / 2 if mdp.end_probs is None else size) <= allowed
        # Sweeps that overflowed leave the problem to policy iteration. XLA's maximum may pass over nan, not over inf.
        solved &= (jnp.abs(values) < jnp.inf).all()
        status = jnp.where(solved, 2, jnp.where(new < _FAST * width, 0, 1)).astype(jnp.int32)
        return q, values, new, count + 1, status

    q = action_values_by_column(mdp, values, discount)
    before = jnp.max(q, -1) - values
    first = (q, values, jnp.full((), jnp.inf, values.dtype), jnp.int32(0), jnp.int32(0))
    q, swept, width, count, status = jax.lax.while_loop(lambda carry: carry[-1] == 0, body, first)
    # Little came of it: the moves would only be in the way of what follows.
    back = (status != 2) & ~(width <= _WORTH * (jnp.max(before) - jnp.min(before)))
    values = jnp.where(back, values, swept)
    return jnp.where(back, action_values_by_column(mdp, values, discount), q), values, count, status == 2


def _swept(
    sweeps: "PolicySweeps",
    shift_to_middle: Callable[[Float[Array, " S"], Float[Array, " S"]], tuple[Float[Array, " S"], Float[Array, ""]]],
    values: Float[Array, " S"],
    enough: Float[Array, ""],
) -> Float[Array, " S"]:
    """Sweeps until they change as much everywhere, to within `enough`, or too often."""

    def sweep(loop: Evaluation) -> Evaluation:
        values, width = shift_to_middle(sweeps(loop[0]), loop[0])
        return values, width, loop[2] + 1

    rough = lambda loop: (loop[2] < _POLICY_SWEEPS) & (loop[1] > enough)  # noqa: E731
    return jax.lax.while_loop(rough, sweep, (values, jnp.full_like(enough, jnp.inf), jnp.int32(0)))[0]


def evaluate_chain(
    chain: MDP | SparseMDP,
    discount: RealScalar,
    guess: Float[Array, " S"],
    residual: Float[Array, ""],
    *,
    rounds: int = RESTARTS,
) -> Float[Array, " S"]:
    """Values of a chain; where the solver did not come closer than `residual / 2`, by sweeps (a contraction).

    Args:
        rounds: as in `solve_chain`.
    """
    reward = chain.reward[:, 0]
    sweep = lambda chain, v: chain.reward[:, 0] + discount * chain.expected_next(v)[:, 0]  # noqa: E731
    values = solve_chain(chain, discount, reward, guess, rounds=rounds)
    # The residual decides, not the solver's own report.
    scale = jnp.max(jnp.abs(values)) + jnp.max(jnp.abs(reward))
    enough = jnp.maximum(residual / 2, 8 * float(jnp.finfo(guess.dtype).eps) * scale)
    failed = ~(jnp.max(jnp.abs(sweep(chain, values) - values)) <= enough)

    return on_demand(
        failed,
        values,
        lambda start: jax.lax.fori_loop(0, _SWEEPS, lambda _, v: sweep(start[0], v), start[1]),
        (chain, guess),
    )


Answer = tuple[Float[Array, "S *B"], Int[Array, "S *B"], Int[Array, "*B"], Bool[Array, "*B"]]
"""Values, policy, iterations, whether the policy stopped changing; the batch is the last axis."""

TINY = 8  # states; the unrolled elimination takes S^3 / 3 operations to compile
_TINY_CAP = 64


def tiny_policy_iteration(
    rows: Float[Array, "S A S"],
    reward: Float[Array, "S A"],
    legal: Bool[Array, "S A"] | None,
    discount: RealScalar,
    policy: Int[Array, " S"],
) -> tuple[Float[Array, " S"], Int[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Values, policy, number of iterations, whether the policy stopped changing (Howard 1960).

    A policy keeps its action where nothing is better by more than rounding, so ties do not cycle.
    """
    if legal is not None:
        reward = jnp.where(legal, reward, -jnp.inf)
    discount = jnp.asarray(discount, reward.dtype)
    return _solve(rows.transpose(1, 0, 2), reward.T, discount, policy.astype(jnp.int32))


def _batch_last(
    rows: Float[Array, "A S S *B"],
    reward: Float[Array, "A S *B"],
    discount: Float[Array, "*B"],
    policy: Int[Array, "S *B"],
) -> Answer:
    """Policy iteration for all problems of the batch, until the last of them is done."""
    # The batch is the last axis: every operation below is a vector over the problems.
    n_actions, n = reward.shape[:2]
    batch = reward.shape[2:]
    eye = jnp.eye(n, dtype=reward.dtype).reshape(n, n, *(1,) * len(batch))
    tie = 4 * float(jnp.finfo(reward.dtype).eps)

    def body(
        carry: tuple[Int[Array, "S *B"], Float[Array, "S *B"], Int[Array, "*B"], Bool[Array, "*B"]],
    ) -> tuple[Int[Array, "S *B"], Float[Array, "S *B"], Int[Array, "*B"], Bool[Array, "*B"]]:
        policy, _, count, done = carry
        # The chain of the policy by selection, not by a gather: selections vectorise over the batch.
        chain, gain = rows[0], reward[0]
        for a in range(1, n_actions):
            chain = jnp.where((policy == a)[:, None], rows[a], chain)
            gain = jnp.where(policy == a, reward[a], gain)
        # Two barriers keep XLA from recomputing the inputs inside every fragment of the elimination.
        system = jax.lax.optimization_barrier(jnp.concatenate([eye - discount * chain, gain[:, None]], 1))
        values = jax.lax.optimization_barrier(_eliminate(system, n))
        best, action, current = _improve(rows, reward, discount, values, policy)
        # A problem that is done goes on without change until the last of the batch is done.
        keep = best - current <= tie * jnp.max(jnp.abs(best), axis=0)
        policy = jnp.where(keep, policy, action)
        return policy, values, count + (~done).astype(jnp.int32), done | jnp.all(keep, axis=0)

    none = (policy, jnp.zeros((n, *batch), reward.dtype), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, bool))
    going = lambda carry: jnp.any(~carry[3] & (carry[2] < _TINY_CAP))  # noqa: E731
    policy, values, count, done = jax.lax.while_loop(going, body, none)
    return values, policy, count, done


_solve = custom_vmap(_batch_last)


@_solve.def_vmap
def _solve_batch(axis_size: int, batched: list[bool], *args: AnyArray) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
    last = [
        jnp.moveaxis(x, 0, -1) if is_batched else jnp.broadcast_to(x[..., None], (*jnp.shape(x), axis_size))
        for x, is_batched in zip(args, batched, strict=True)
    ]
    out = _batch_last(*last)
    return tuple(jnp.moveaxis(x, -1, 0) for x in out), (True,) * len(out)


def _improve(
    rows: Float[Array, "A S S *B"],
    reward: Float[Array, "A S *B"],
    discount: Float[Array, "*B"],
    values: Float[Array, "S *B"],
    policy: Int[Array, "S *B"],
) -> tuple[Float[Array, "S *B"], Int[Array, "S *B"], Float[Array, "S *B"]]:
    """Best value, its action, and the value of the present action, after one sweep."""
    # All actions side by side: no gather, no axis of actions that a batch would have to move.
    best = action = current = jnp.zeros(())
    for a in range(reward.shape[0]):
        q = reward[a] + discount * sum(rows[a][:, z] * values[z] for z in range(reward.shape[1]))
        if a == 0:
            best, action, current = q, jnp.zeros_like(policy), q
        else:
            action = jnp.where(q > best, jnp.int32(a), action)
            best, current = jnp.maximum(best, q), jnp.where(policy == a, q, current)
    return best, action, current


def _eliminate(system: Float[Array, "S T *B"], n: int) -> Float[Array, "S *B"]:
    """Solve [M | b] without pivoting: I - discount P is strictly diagonally dominant by rows."""
    # Unrolled, every entry a vector over the batch: forward elimination, then back substitution.
    r = [[system[i, j] for j in range(n + 1)] for i in range(n)]
    for k in range(n):
        inverse = 1 / r[k][k]
        for j in range(k + 1, n + 1):
            r[k][j] = r[k][j] * inverse
        for i in range(k + 1, n):
            for j in range(k + 1, n + 1):
                r[i][j] = r[i][j] - r[i][k] * r[k][j]
    x = [r[i][n] for i in range(n)]
    for k in reversed(range(n)):
        for i in range(k):
            x[i] = x[i] - r[i][k] * x[k]
    return jnp.stack(x)


_LANES = 128  # segments


class OrderedSweeps(eqx.Module):
    """An MDP laid out for sweeps in order, with L states a segment in N segments.

    State s is place s % L of segment s // L, and is stored at L-major position place * N + segment. The chance to stay
    is solved for: v = max_a (r + discount sum_{s' != s} p v) / (1 - discount p_stay), which has the same solution.

    Args:
        successor: [L, K A, N], positions, successors before actions. None for dense rows: their positions are the
            states, N = 1.
        weight: [L, K A, N], or [S, A, S]: discount * probability / (1 - discount * probability to stay), zero for
            staying.
        reward: reward / (1 - discount * probability to stay); -inf where illegal.
        n_states: S.
    """

    successor: Int[Array, "L KA N"] | None
    weight: Float[Array, "L I J"]
    reward: Float[Array, "L A N"]
    n_states: int = eqx.field(static=True)

    @classmethod
    def of(cls, mdp: MDP | SparseMDP, discount: Float[Array, ""]) -> "OrderedSweeps":
        """The layout: one copy of the rows."""
        states = jnp.arange(mdp.n_states)
        rows = mdp.row_probs
        next_state = mdp.successor if isinstance(mdp, SparseMDP) else states
        stays = next_state == states[:, None, None]
        # Gauss-Seidel with the self-loop solved for: v = (r + discount sum_{s' != s} P v) / (1 - discount P(s | s)).
        leave = 1 - discount * jnp.sum(jnp.where(stays, rows, 0.0), -1)
        # Positive but for rounding of rows and discount.
        leave = jnp.maximum(leave, float(jnp.finfo(leave.dtype).eps))
        weight = jnp.where(stays, 0.0, rows) * (discount / leave)[..., None]
        reward = where_legal(mdp.reward / leave, mdp.legal)
        n = mdp.n_states
        if isinstance(mdp, MDP):
            return cls(None, weight, reward[..., None], n)
        # Segments of L consecutive states, of which N are swept side by side, one state of each at a time.
        length = -(-n // min(_LANES, n))
        lanes = -(-n // length)
        position = mdp.successor % length * lanes + mdp.successor // length

        def cut(x: Array) -> Array:
            """[S A *K] -> [L *K A N]; states that fill the last segment earn nothing."""
            x = jnp.pad(x, [(0, length * lanes - n)] + [(0, 0)] * (x.ndim - 1))
            x = jnp.moveaxis(x.reshape(lanes, length, *x.shape[1:]), 0, -1)
            return x if x.ndim == 3 else jnp.swapaxes(x, 1, 2).reshape(length, -1, lanes)

        return cls(cut(position), cut(weight), cut(reward), n)

    def __call__(self, values: Float[Array, " S"], times: IntScalar) -> Float[Array, " S"]:
        """`values` after `times` sweeps from the last state to the first and back."""
        length, _, lanes = self.reward.shape
        spare = length * lanes - self.n_states
        # State n L + l stands in lane n at place l.
        x = jnp.pad(values, (0, spare)).reshape(lanes, length).T.reshape(-1)
        x = lax.fori_loop(0, times, lambda _, x: self._sweep(self._sweep(x, True), False), x)
        return x.reshape(length, lanes).T.reshape(-1)[: self.n_states]

    def _sweep(self, x: Float[Array, " LN"], down: bool) -> Float[Array, " LN"]:
        length, n_actions, lanes = self.reward.shape

        def step(
            x: Float[Array, " LN"], row: tuple[Int[Array, ""], Array | None, Array, Array]
        ) -> tuple[Float[Array, " LN"], None]:
            place, successor, weight, reward = row
            if successor is None:
                q = reward + matmul(weight, x)[:, None]
            else:
                # One gather of all, then products: vectors over the segments.
                terms = weight * x[successor]
                q = reward + jnp.sum(terms.reshape(-1, n_actions, lanes), 0)
            return lax.dynamic_update_slice(x, jnp.max(q, 0), (place * lanes,)), None

        rows = (jnp.arange(length), self.successor, self.weight, self.reward)
        return lax.scan(step, x, rows, reverse=down)[0]


class PolicySweeps(eqx.Module):
    """The sweeps v -> reward + discount * P v of a deterministic policy.

    Args:
        chain: of the policy; None where `successor` and `weight` hold it.
        successor: [K S].
        weight: [K S], discount * probability.
        reward: [S].
        discount: of `chain`.
    """

    chain: MDP | SparseMDP | None
    successor: Int[Array, "K S"] | None
    weight: Float[Array, "K S"] | None
    reward: Float[Array, " S"]
    discount: Float[Array, ""]

    @classmethod
    def of(cls, mdp: MDP | SparseMDP, policy: Int[Array, " S"], discount: RealScalar) -> "PolicySweeps":
        """The rows of the policy."""
        discount = jnp.asarray(discount, mdp.reward.dtype)
        if isinstance(mdp, MDP) or mdp.successor.shape[-1] > UNROLLED:
            chain = follow(mdp, policy)
            return cls(chain, None, None, chain.reward[:, 0], discount)
        # Rows of the policy as columns [K S]: each sweep is K gathers and no reduction.
        pair = jnp.arange(mdp.n_states) * mdp.n_actions + policy
        pick = lambda x: x.reshape(-1, x.shape[-1])[pair].T  # noqa: E731
        successor, weight = pick(mdp.successor), discount * pick(mdp.probability)
        return cls(None, successor, weight, mdp.reward.reshape(-1)[pair], discount)

    def for_changes(self, residual: Float[Array, " S"]) -> "PolicySweeps | None":
        """The sweeps d -> residual + discount * P d of what is added to values, in single precision; None: of no use.

        As in iterative refinement: the residual, T v - v, is of the values' own precision, a correction needs few
        digits, and half of the memory is read. None for dense rows, and where single precision is what there is.
        """
        if self.successor is None or self.weight is None or self.weight.dtype == jnp.float32:
            return None
        return PolicySweeps(
            None, self.successor, self.weight.astype(jnp.float32), residual.astype(jnp.float32), self.discount
        )

    def __call__(self, values: Float[Array, " S"]) -> Float[Array, " S"]:
        """One sweep."""
        if self.chain is not None:
            return self.reward + self.discount * self.chain.expected_next(values)[:, 0]
        assert self.successor is not None and self.weight is not None
        terms = (w * values[s] for s, w in zip(self.successor, self.weight, strict=True))
        return sum(terms, self.reward)
