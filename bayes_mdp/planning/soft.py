"""`solve_soft`: planning with a soft maximum, v = temperature log sum_a exp(q / temperature).

Dynamic discrete choice [BUS87], learning with entropy as a reward [SOFTQ17].
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, Objective, SparseMDP
from bayes_mdp.planning.average import best_gain
from bayes_mdp.planning.bellman import Rounding, SoftMax
from bayes_mdp.planning.derivatives import near_enough, poison_unless, with_derivatives, with_gain_derivatives
from bayes_mdp.planning.discounted import evaluate_chain, sweep_with_bounds
from bayes_mdp.planning.episodic import induce
from bayes_mdp.planning.first_exit import exit_policy, solve_first_exit
from bayes_mdp.planning.linear_systems import solve_chain
from bayes_mdp.planning.policy_arrays import action_values
from bayes_mdp.planning.solution import SoftSolution, Solution
from bayes_mdp.planning.solve import check_problem, check_start, in_one_dtype, require_exit
from bayes_mdp.utils.typing import RealScalar
from bayes_mdp.utils.validation import check_number, is_concrete

_CAP = 1000

Evaluate = Callable[[MDP | SparseMDP, Float[Array, " S"], Float[Array, ""]], Float[Array, " S"]]
"""(chain of a policy, guess, residual so far) -> its values."""

SoftPlan = tuple[Float[Array, "S A"], Bool[Array, ""], Int[Array, ""], Float[Array, ""]]
"""q, whether the stopping rule was met, iterations, gap."""

Iterate = tuple[Float[Array, " S"], Float[Array, "S A"], Float[Array, ""], Int[Array, ""], Int[Array, ""]]
"""Values, q, residual, iterations, status (1: stop, 2: converged)."""


def solve_soft(
    mdp: MDP | SparseMDP,
    objective: Objective,
    temperature: RealScalar,
    *,
    start: SoftSolution | Solution | None = None,
) -> SoftSolution:
    """Plan with the soft maximum v = temperature log sum_a exp(q / temperature), policy softmax(q / temperature).

    The same equation is dynamic discrete choice with logit shocks (centred Gumbel of scale `temperature`; [BUS87])
    and reinforcement learning with entropy as a reward, `temperature` a nat (Ziebart 2010). `v` includes what the
    shocks, or the entropy, are worth: `evaluate(mdp, soft.policy, objective)` leaves it out. As the temperature goes to
    zero the values come down to those of `solve`; a step adds at most temperature log A.

    Newton's method on the equation, which is policy iteration with entropy (convex and monotone: it converges from
    everywhere). Pure and traceable, one element: `vmap` it over a batch, `jit` it to use it again. Derivatives of `q`,
    `v`, `gain`, `policy` and `log_policy` by rewards, rows, end probabilities, discount and temperature: both modes,
    any order (see `solve`).

    Args:
        mdp, objective: as in `solve`.
        temperature: greater than zero, in units of the reward.
        start: a plan for a similar problem to start from. It changes the effort, not the answer.

    Returns:
        The plan: soft values, probabilities of the actions, and a bound on the error.

    Raises:
        ValueError: as `solve`; a temperature that is not a finite number greater than zero; for `FirstExit`, a
            temperature at which no finite values are found (the entropy of going round outweighs its costs). Under
            tracing the values cannot be looked into: `converged` is then false and `gap` infinite.
        TypeError: as `solve`.

    Example:
        >>> mdp = bm.MDP([[[1.0], [1.0]]], [[0.0, 0.0]])
        >>> round(float(bm.planning.solve_soft(mdp, bm.Episodic(1), 1.0).v[0, 0]), 3)  # log 2: the entropy
        0.693
    """
    check_problem(mdp, objective)
    if is_concrete(temperature):
        expected = "a finite number greater than zero"
        check_number("temperature", temperature, lambda x: np.isfinite(x) & (x > 0), expected)
    if np.ndim(temperature):
        raise ValueError(f"temperature has shape {np.shape(temperature)}, expected one number (vmap over a batch)")
    mdp = in_one_dtype(mdp)
    maximum = SoftMax(jnp.asarray(temperature, mdp.reward.dtype))
    if start is not None:
        check_start(mdp, objective, start, (SoftSolution, Solution))
    gain = jnp.full((), jnp.nan, mdp.reward.dtype)
    if isinstance(objective, Episodic):
        q, v, gap = induce(mdp, objective.horizon, Rounding.of(mdp), maximum, discount=objective.discount)
        done, count = jnp.isfinite(gap), jnp.int32(objective.horizon)
        return SoftSolution(q, v, *_policy(maximum, q), gain, done, count, gap)
    # The planners iterate on constants; the derivatives of their answer are attached to it.
    fixed, rounding, soft = jax.lax.stop_gradient((mdp, Rounding.of(mdp), maximum))
    first = None if start is None else jax.lax.stop_gradient(start.v)
    if isinstance(objective, AverageReward):
        q, gain, count, gap = best_gain(fixed, rounding, first, soft)
        done = jnp.isfinite(gap)
        q, v, gain = with_gain_derivatives((q, soft.value(q), gain), mdp, maximum)
    elif isinstance(objective, Discounted):
        discount = jnp.asarray(objective.discount, mdp.reward.dtype)
        q, done, count, gap = _solve_with_discount(fixed, jax.lax.stop_gradient(discount), rounding, first, soft)
        q, v = with_derivatives((q, soft.value(q)), mdp, discount, maximum)
    else:
        if is_concrete(mdp):
            require_exit(mdp, "every policy")
        q, done, count, gap = _first_exit(fixed, rounding, jax.lax.stop_gradient(start), soft)
        if is_concrete(done, temperature) and not done:
            raise ValueError(
                f"temperature is {float(maximum.temperature):.6g}, expected a lower one: no finite soft values were "
                "found, since the entropy of going round without end outweighs its costs (FirstExit)"
            )
        q, v = with_derivatives((q, soft.value(q)), mdp, jnp.ones((), q.dtype), maximum)
    q, v, gain = poison_unless((q, v, gain), jax.lax.stop_gradient(near_enough(v, done, gap)))
    return SoftSolution(q, v, *_policy(maximum, q), gain, done, count, gap)


def _policy(maximum: SoftMax, q: Float[Array, "*H S A"]) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
    log_policy = maximum.log_policy(q)
    return jnp.exp(log_policy), log_policy


def _solve_with_discount(
    mdp: MDP | SparseMDP,
    discount: Float[Array, ""],
    rounding: Rounding,
    start: Float[Array, " S"] | None,
    maximum: SoftMax,
) -> SoftPlan:
    zero = jnp.zeros(mdp.n_states, mdp.reward.dtype)
    first = zero if start is None else jnp.where(jnp.isfinite(start), start, 0.0)
    evaluate = lambda chain, guess, residual: evaluate_chain(chain, discount, guess, residual)  # noqa: E731
    values, count, done = _newton(mdp, discount, first, maximum, evaluate)
    q, gap = sweep_with_bounds(mdp, discount, rounding, values, maximum)
    return q, done & jnp.isfinite(gap), count, gap


def _first_exit(
    mdp: MDP | SparseMDP, rounding: Rounding, start: SoftSolution | Solution | None, maximum: SoftMax
) -> SoftPlan:
    """From the values of `solve`, below the soft ones: soft policies of arbitrary values may in effect never end."""
    first = solve_first_exit(mdp, rounding, None).v
    if start is not None:
        first = jnp.where(jnp.isfinite(start.gap), start.v, first)
    evaluate = lambda chain, guess, _: solve_chain(chain, 1.0, chain.reward[:, 0], guess)  # noqa: E731
    values, count, done = _newton(mdp, jnp.ones((), first.dtype), first, maximum, evaluate)
    q = action_values(mdp, values)
    gap = jnp.where(done & jnp.all(exit_policy(mdp)[0]), _exit_gap(mdp, rounding, values, q, maximum), jnp.inf)
    # Values that grow for ever can look settled beside their size: what is not proven to be finite has not converged.
    return q, done & jnp.isfinite(gap), count, gap


def _newton(
    mdp: MDP | SparseMDP,
    discount: Float[Array, ""],
    values: Float[Array, " S"],
    maximum: SoftMax,
    evaluate: Evaluate,
) -> tuple[Float[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """Values, iterations, and whether the residual of T v - v came down to rounding.

    T is convex with gradient discount P_policy, so a Newton step is the evaluation of the soft policy, entropy
    included. After the first step values only grow, at least as fast as by sweeps (Puterman and Brumelle 1979).
    """
    eps = float(jnp.finfo(mdp.reward.dtype).eps)

    def body(carry: Iterate) -> Iterate:
        values, q, residual, count, _ = carry
        # Newton's step on v = M(v): the derivative of the soft maximum is its policy, so evaluate that policy's chain.
        chain = maximum.chain(mdp, q)
        new = evaluate(chain, maximum.value(q), residual)
        q = action_values(mdp, new, discount)
        error = jnp.max(jnp.abs(maximum.value(q) - new))
        scale = jnp.max(jnp.abs(new)) + jnp.max(jnp.abs(chain.reward)) + maximum.excess(mdp.n_actions)
        # Stop at rounding, near rounding without progress, or where nothing moves.
        at_rounding = error <= 64 * eps * scale
        still = jnp.max(jnp.abs(new - values)) <= 4 * eps * scale
        stop = (error <= 4 * eps * scale) | (at_rounding & (error > residual / 2)) | still | ~jnp.isfinite(error)
        status = jnp.where(stop, jnp.where(at_rounding, 2, 1), 0).astype(jnp.int32)
        return new, q, error, count + 1, status

    q = action_values(mdp, values, discount)
    first = (values, q, jnp.full((), jnp.inf, q.dtype), jnp.int32(0), jnp.int32(0))
    going = lambda carry: (carry[-1] == 0) & (carry[-2] < _CAP)  # noqa: E731
    values, _, _, count, status = jax.lax.while_loop(going, body, first)
    return values, count, status == 2


def _exit_gap(
    mdp: MDP | SparseMDP, rounding: Rounding, values: Float[Array, " S"], q: Float[Array, "S A"], maximum: SoftMax
) -> Float[Array, ""]:
    """Bound on sup |v - v*| and sup |q - q*|, from two functions that one sweep each shows to lie above and below.

    If T w <= w, then T_policy^n w <= w for every policy, and the values of every policy that ends lie below w: so does
    v*. If T w >= w, then the soft policy of w, which ends because every action has a chance, is worth at least w. Tried
    are w = values +- c n, n the expected steps to the end: n - P n = 1 for the policy, so that c has to outweigh the
    residual, the rounding, and the curvature of the soft maximum.
    """
    unit_rewards = jnp.ones_like(values)
    steps = solve_chain(maximum.chain(mdp, q), 1.0, unit_rewards, unit_rewards)
    uncertainty = maximum.uncertainty(mdp.n_actions)
    moved = jnp.max(jnp.abs(maximum.value(q) - values)) + rounding.of_sweep(values) + uncertainty
    # Candidates v + c n and v - c n, n the expected steps: c is large enough if one sweep lowers (raises) them.
    c = 4 * moved

    def margin(w: Float[Array, " S"], sign: int) -> Float[Array, ""]:
        """Least of sign (w - T w), less what rounding may have added."""
        change = w - maximum.value(action_values(mdp, w))
        return jnp.min(sign * change) - rounding.of_sweep(w) - uncertainty

    upper, lower = values + c * steps, values - c * steps
    proven = (margin(upper, 1) >= 0) & (margin(lower, -1) >= 0)
    width = jnp.maximum(jnp.max(jnp.abs(upper - values)), jnp.max(jnp.abs(lower - values)))
    # The answer is one sweep over `values`.
    gap = (width + moved) * (1 + rounding.factor)
    return jnp.where(proven & jnp.isfinite(gap), gap, jnp.inf)
