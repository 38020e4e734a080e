"""Discounted values: policy iteration, and bounds on the answer from its last sweep."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.mdp.typing import RealScalar
from bayes_mdp.planning.linear.systems import solve_chain
from bayes_mdp.planning.max_operator import HardMax, Max
from bayes_mdp.planning.policy_chain import action_values, at_policy, follow
from bayes_mdp.planning.rounding import Rounding, total_probability
from bayes_mdp.planning.small_policy_iteration import TINY, tiny_policy_iteration
from bayes_mdp.planning.solution import Solution, best_action

Iterate = tuple[
    Float[Array, " S"], Float[Array, "S A"], Int[Array, " S"], Float[Array, ""], Int[Array, ""], Int[Array, ""]
]
"""Values, q, policy, residual, iterations, status (1: stop, 2: converged)."""

Sweep = tuple[Float[Array, "S A"], Float[Array, " S"], Float[Array, ""], Bool[Array, ""]]
"""q, values, span of T v - v, whether sweeps still cut it well."""

_CAP = 200
_SWEEPS = 128
_FAST = 0.7


def solve_discounted(
    mdp: MDP | SparseMDP, discount: RealScalar, rounding: Rounding, start: Solution | None
) -> Solution:
    """Optimal discounted values of a stationary MDP.

    Dense with at most 8 states: policy iteration by elimination, from the policy of `start`. Otherwise value iteration
    from the values of `start` while it is fast, then policy iteration, its evaluations by LU or BiCGSTAB, and by sweeps
    where both fail.
    """
    discount = jnp.asarray(discount, mdp.reward.dtype)
    if isinstance(mdp, MDP) and mdp.n_states <= TINY:
        policy = initial_policy(mdp) if start is None else legal_or(start.policy, mdp)
        values, _, count, done = tiny_policy_iteration(mdp.transition_probs, mdp.reward, mdp.legal, discount, policy)
    else:
        values = jnp.zeros(mdp.n_states, mdp.reward.dtype) if start is None else start.v
        values, count, done = _policy_iteration(mdp, discount, jnp.where(jnp.isfinite(values), values, 0.0))
    # Whatever produced the values: the answer and its bounds come from one sweep over them.
    q, gap = bounded(mdp, discount, rounding, values)
    gain = jnp.full((), jnp.nan, q.dtype)
    return Solution(q, jnp.max(q, -1), best_action(q), gain, done & jnp.isfinite(gap), count, gap)


def bounded(
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
    q = action_values(mdp, values, discount)
    error = rounding.of_sweep(values) + maximum.uncertainty(mdp.n_actions)
    change = maximum.value(q) - values
    # The sweep's own rounding widens the interval, so that the bounds hold in exact arithmetic.
    low, high = jnp.min(change) - error, jnp.max(change) + error
    k_min, k_max = (discount * k for k in total_probability(mdp, rounding))
    # sum_t k^t = k / (1 - k): the k that makes each bound weakest.
    above = high * _later(jnp.where(high > 0, k_max, k_min), rounding)
    below = low * _later(jnp.where(low < 0, k_max, k_min), rounding)
    shift, width = (above + below) / 2, (above - below) / 2
    known = jnp.isfinite(width)
    q = q + jnp.where(known, shift, 0.0)
    # Two roundings of the shift, and the sweep's own error, which moves q even where the change is zero.
    gap = (width + error) * (1 + rounding.factor) + rounding.factor * jnp.abs(shift)
    return q, jnp.where(known, gap, jnp.inf)


def _later(k: Float[Array, ""], rounding: Rounding) -> Float[Array, ""]:
    """k / (1 - k) rounded up, infinite from k = 1 on."""
    k = k * (1 + rounding.factor)
    return jnp.where(k < 1, k / jnp.where(k < 1, 1 - k, 1.0), jnp.inf)


def _policy_iteration(
    mdp: MDP | SparseMDP, discount: RealScalar, values: Float[Array, " S"]
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Values, iterations, and whether the policy is stable with a residual near rounding.

    The residual of T v - v, not the policy alone, decides: evaluations may be inexact.
    """
    eps = float(jnp.finfo(mdp.reward.dtype).eps)
    q, values = _sweep_while_fast(mdp, discount, values)

    def body(carry: Iterate) -> Iterate:
        values, q, policy, residual, count, _ = carry
        chain = follow(mdp, policy)
        # Howard 1960: evaluate the policy, improve it; the last values are the guess of an iterative solver.
        values = evaluate_chain(chain, discount, at_policy(q, policy), residual)
        q = action_values(mdp, values, discount)
        best = jnp.max(q, -1)
        scale = jnp.max(jnp.abs(best)) + jnp.max(jnp.abs(chain.reward))
        # An action that is worse by rounding alone is kept: otherwise equal actions alternate for ever.
        keep = best - at_policy(q, policy) <= 4 * eps * scale
        error = jnp.max(jnp.abs(best - values))
        settled = jnp.all(keep) & ((error <= 8 * eps * scale) | (error > 0.95 * residual))
        close = settled & (error <= 64 * eps * scale)
        status = jnp.where(close, 2, jnp.where(settled | ~jnp.isfinite(error), 1, 0)).astype(jnp.int32)
        return values, q, jnp.where(keep, policy, best_action(q)), error, count + 1, status

    first = (values, q, best_action(q), jnp.full((), jnp.inf, q.dtype), jnp.int32(0), jnp.int32(0))
    going = lambda carry: (carry[-1] == 0) & (carry[-2] < _CAP)  # noqa: E731
    values, _, _, _, count, status = jax.lax.while_loop(going, body, first)
    return values, count, status == 2


def _sweep_while_fast(
    mdp: MDP | SparseMDP, discount: RealScalar, values: Float[Array, " S"]
) -> tuple[Float[Array, "S A"], Float[Array, " S"]]:
    """q and values after value iteration with midpoint corrections, while each sweep cuts the span of T v - v well.

    Where states mix fast a few sweeps are the whole solution; elsewhere this costs two.
    """
    eps = float(jnp.finfo(values.dtype).eps)

    def body(carry: Sweep) -> Sweep:
        q, values, width, _ = carry
        best = jnp.max(q, -1)
        change = best - values
        # Add the middle of the bounds on v*: constants, the slowest error mode, are gone at once.
        middle = (jnp.max(change) + jnp.min(change)) / 2
        values = best + middle * discount / (1 - discount)
        q = action_values(mdp, values, discount)
        change = jnp.max(q, -1) - values
        new = jnp.max(change) - jnp.min(change)
        return q, values, new, (new < _FAST * width) & (new > 4 * eps * jnp.max(jnp.abs(values)))

    first = (action_values(mdp, values, discount), values, jnp.full((), jnp.inf, values.dtype), jnp.array(True))
    q, values, _, _ = jax.lax.while_loop(lambda carry: carry[-1], body, first)
    return q, values


def evaluate_chain(
    chain: MDP | SparseMDP, discount: RealScalar, guess: Float[Array, " S"], residual: Float[Array, ""]
) -> Float[Array, " S"]:
    """Values of a chain; where the solver did not come closer than `residual / 2`, by sweeps (a contraction)."""
    reward = chain.reward[:, 0]
    sweep = lambda v: reward + discount * chain.expected_next(v)[:, 0]  # noqa: E731
    values = solve_chain(chain, discount, reward, guess)
    # The residual decides, not the solver's own report; a while loop of zero or one turn, so that sweeps run on demand.
    scale = jnp.max(jnp.abs(values)) + jnp.max(jnp.abs(reward))
    enough = jnp.maximum(residual / 2, 8 * float(jnp.finfo(guess.dtype).eps) * scale)
    failed = ~(jnp.max(jnp.abs(sweep(values) - values)) <= enough)
    iterate = lambda _: (jax.lax.fori_loop(0, _SWEEPS, lambda _, v: sweep(v), guess), jnp.array(False))  # noqa: E731
    return jax.lax.while_loop(lambda c: c[1], iterate, (values, failed))[0]


def initial_policy(mdp: MDP | SparseMDP) -> Int[Array, " S"]:
    """Greedy with respect to immediate rewards."""
    return best_action(mdp.reward if mdp.legal is None else jnp.where(mdp.legal, mdp.reward, -jnp.inf))


def legal_or(policy: Int[Array, " S"], mdp: MDP | SparseMDP) -> Int[Array, " S"]:
    """`policy`, with `initial_policy` where it is illegal."""
    return policy if mdp.legal is None else jnp.where(at_policy(mdp.legal, policy), policy, initial_policy(mdp))
