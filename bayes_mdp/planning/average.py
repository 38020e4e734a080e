"""Average reward: relative value iteration, accelerated by Howard's policy evaluations."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.numerics.fusion import on_demand
from bayes_mdp.planning.bellman import HardMax, Max, Rounding, largest_reward
from bayes_mdp.planning.discounted import solve_discounted
from bayes_mdp.planning.linear_systems import solve_chain
from bayes_mdp.planning.policy_arrays import action_values
from bayes_mdp.planning.solution import Solution, best_action, where_legal
from bayes_mdp.utils.typing import IntScalar

_CAP = 2000
_SWEEPS = 16
_PATIENCE = 20
Carry = tuple[Float[Array, " S"], Float[Array, ""], Int[Array, ""], Int[Array, ""], Int[Array, ""]]
"""Values, span of T v - v, iterations, iterations without progress, status (1: stop, 2: converged)."""

_LONG = 32
"""States from which on a chain may be longer than the sweeps that see no progress reach."""
_HORIZON = 10.0
"""Steps of the discounted plan to start again from, for each state."""

_LAZINESS = 0.5  # chance to stay, Puterman 1994, section 8.5.4: it makes every chain aperiodic and keeps the gain order


def solve_average(mdp: MDP | SparseMDP, rounding: Rounding, start: Solution | None) -> Solution:
    """Optimal gain and relative values of an MDP that never ends and whose optimal gain does not depend on the start.

    Each iteration makes 16 lazy sweeps, then evaluates the greedy policy exactly, and keeps the evaluation where the
    span of T v - v is smaller. The span never grows: the iteration converges where value iteration does. Where it does
    not, the span bounds the gain of every start, but no single gain need exist: `gap` is then infinite.
    """
    # Relative value iteration; a discounted plan is made only where this finds no bound.
    answer = best_gain(mdp, rounding, None if start is None else start.v, HardMax())
    if mdp.n_states > _LONG and mdp.n_actions > 1:
        # On a long chain what pays lies further away than the sweeps without progress reach, and policies in between
        # have several recurrent classes, so that no Howard step helps. A discounted plan with a horizon beyond the
        # length of the chain has one class there, and values that differ from the relative ones by little
        # (vanishing discount, Puterman 1994, section 8.2): the iteration starts again from it. Its bound is its own.
        answer = on_demand(~jnp.isfinite(answer[-1]), answer, _restart_from_discounted_plan, (mdp, rounding))
    q, gain, count, gap = answer
    return Solution(q, jnp.max(q, -1), best_action(q), gain, jnp.isfinite(gap), count, gap)


def _restart_from_discounted_plan(
    problem: tuple[MDP | SparseMDP, Rounding],
) -> tuple[Float[Array, "S A"], Float[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """The answer of `best_gain` from a discounted plan on."""
    mdp, rounding = problem
    # The horizon is ten times the number of states, and the discount never rounds to 1.
    eps = float(jnp.finfo(mdp.reward.dtype).eps)
    discount = 1 - max(1 / (_HORIZON * mdp.n_states), 16 * eps)
    plan = solve_discounted(mdp, discount, rounding, None)
    return best_gain(mdp, rounding, plan.v, HardMax())


def best_gain(
    mdp: MDP | SparseMDP, rounding: Rounding, start: Float[Array, " S"] | None, maximum: Max
) -> tuple[Float[Array, "S A"], Float[Array, ""], Int[Array, ""], Float[Array, ""]]:
    """q, gain, iterations and gap under a hard or a soft maximum.

    Of the maximum, sweeps and bounds use only that T is monotone and that T (v + c) = T v + c.
    """
    zero = jnp.zeros(mdp.n_states, mdp.reward.dtype)
    # A start without a finite value, as of an untried plan, counts as zero.
    guess = zero if start is None else jnp.where(jnp.isfinite(start), start, 0.0)
    values, count, done = _iterate(mdp, guess - guess[0], maximum)
    # The bounds are those of one plain sweep, whatever produced the values: min (T v - v) <= g* <= max (T v - v).
    q = action_values(mdp, values)
    change = maximum.value(q) - values
    gain = (jnp.min(change) + jnp.max(change)) / 2
    error = _uncertainty(mdp, rounding, values) + 2 * maximum.uncertainty(mdp.n_actions)
    gap = (jnp.max(change) - jnp.min(change)) / 2 + error
    # q of the greedy action is v + g; a constant added to q and v leaves the equation true, so v(0) is made 0.
    q = q - gain
    offset = maximum.value(q)[0]
    q = q - offset
    # Where the gain depends on the start, values may be huge (singular systems), and any span is rounding to them.
    scale = rounding.reward + maximum.excess(mdp.n_actions)
    known = done & ((gap <= 2 * scale) | (scale == 0))
    return q, gain, count, jnp.where(known & jnp.isfinite(gap), gap, jnp.inf)


def _uncertainty(mdp: MDP | SparseMDP, rounding: Rounding, values: Float[Array, " S"]) -> Float[Array, ""]:
    """What rounding, and rows that sum to one only nearly, may add; infinite where pairs can end.

    min (T v - v) <= optimal gain <= max (T v - v) for every v (Puterman 1994, theorem 8.5.5), for rows that sum to one.
    """
    # Rows that sum to 1 + d shift T v by d max |v|.
    deviation = where_legal(jnp.abs(jnp.sum(mdp.row_probs, -1) - 1), mdp.legal, 0.0)
    excess = (jnp.max(deviation) + rounding.factor) * jnp.max(jnp.abs(values))
    allowance = 2 * rounding.of_sweep(values) + excess
    if mdp.end_probs is None:
        return allowance
    # An episode that can end has no average reward: no bound holds.
    ends = where_legal(mdp.end_probs, mdp.legal, 0.0)
    return jnp.where(jnp.any(ends > 0), jnp.inf, allowance)


def _iterate(
    mdp: MDP | SparseMDP, values: Float[Array, " S"], maximum: Max
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Relative values, iterations, and whether the span of T v - v came down to rounding."""
    eps = float(jnp.finfo(mdp.reward.dtype).eps)
    reward = largest_reward(mdp) + maximum.excess(mdp.n_actions)

    def lazy(_: IntScalar, v: Float[Array, " S"]) -> Float[Array, " S"]:
        # The lazy chain has the same policies and half the gain; its sweeps do not oscillate on periodic chains.
        v = v + _LAZINESS * (maximum.value(action_values(mdp, v)) - v)
        return v - v[0]

    def body(carry: Carry) -> Carry:
        v, width, count, stalls, _ = carry
        # Sweeps never widen the span; the Howard step (exact relative values of the greedy policy) may cut it to zero.
        swept = jax.lax.fori_loop(0, _SWEEPS, lazy, v)
        q = action_values(mdp, swept)
        howard = relative_values(maximum.chain(mdp, q), swept)
        spans = jnp.ptp(maximum.value(q) - swept), jnp.ptp(maximum.value(action_values(mdp, howard)) - howard)
        better = spans[1] < spans[0]  # false for NaN
        v, new = jnp.where(better, howard, swept), jnp.where(better, spans[1], spans[0])
        # Stop at rounding, near rounding without progress, or after 20 iterations without progress.
        scale = reward + jnp.max(jnp.abs(v))
        stalls = jnp.where(new > 0.99 * width, stalls + 1, jnp.int32(0))
        at_rounding = new <= 64 * eps * scale
        stop = (new <= 4 * eps * scale) | (at_rounding & (stalls > 0)) | (stalls >= _PATIENCE)
        status = jnp.where(stop, jnp.where(at_rounding, 2, 1), 0).astype(jnp.int32)
        return v, new, count + 1, stalls, status

    first = (values, jnp.full((), jnp.inf, values.dtype), jnp.int32(0), jnp.int32(0), jnp.int32(0))
    going = lambda carry: (carry[-1] == 0) & (carry[2] < _CAP)  # noqa: E731
    values, _, count, _, status = jax.lax.while_loop(going, body, first)
    return values, count, status == 2


def relative_values(chain: MDP | SparseMDP, guess: Float[Array, " S"]) -> Float[Array, " S"]:
    """h with h + g = r + P h, h[0] = 0, for a chain with one recurrent class; not finite, or no solution, otherwise.

    x = h + g solves x - P x + x[0] = r: one equation for both unknowns.
    """
    # One system for h and g: x = h + g solves x + x[0] - P x = r, since h[0] = 0.
    x = solve_chain(chain, 1.0, chain.reward[:, 0], guess, anchored=True)
    return x - x[0]
