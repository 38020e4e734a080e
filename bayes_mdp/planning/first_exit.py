"""First exit: undiscounted rewards until the end, over proper policies (those that end with probability one)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.planning.bellman import Rounding
from bayes_mdp.planning.linear_systems import solve_chain
from bayes_mdp.planning.policy_arrays import action_values, at_policy, follow
from bayes_mdp.planning.solution import Solution, best_action, where_legal

Carry = tuple[Float[Array, " S"], Int[Array, " S"], Int[Array, ""], Bool[Array, ""], Bool[Array, ""]]
"""Values, policy, iterations, whether nothing improves, whether the policy is proper."""

_CAP = 200


def solve_first_exit(mdp: MDP | SparseMDP, rounding: Rounding, start: Solution | None) -> Solution:
    """Best values among proper policies: policy iteration from a proper policy (Bertsekas and Tsitsiklis 1991).

    A policy that improves strictly on a proper one is proper, unless a cycle without end has a positive mean reward:
    then values are unbounded, and that policy is the answer's. Cycles of reward zero are never entered. `gap` is
    infinite where no policy is proper, where values are unbounded, and where the reward of a cycle is zero to within
    rounding: no finite bound can be proven there (the smallest change of a reward could make the values unbounded).
    """
    if mdp.n_actions == 1:
        return evaluate_exit_chain(mdp, rounding, start)
    # Policy iteration needs a proper first policy: the one of `start`, if it is one, else the shortest way out.
    reach, policy = exit_policy(mdp)
    if start is not None:
        legal = True if mdp.legal is None else jnp.all(at_policy(mdp.legal, start.policy))
        policy = jnp.where(is_proper(mdp, start.policy) & legal, start.policy.astype(policy.dtype), policy)
    values, policy, count, done = _policy_iteration(mdp, policy)
    q = action_values(mdp, values)
    error = rounding.of_sweep(values)
    # The bound weighs states by the most steps that a policy as good as this one may take.
    steps = _longest(mdp, values[:, None] - q - error, error, policy)
    gap = jnp.where(done & jnp.all(reach), _gap(mdp, rounding, values, q, policy, steps), jnp.inf)
    gain = jnp.full((), jnp.nan, q.dtype)
    converged = done & jnp.all(reach) & jnp.all(jnp.isfinite(values))
    return Solution(q, jnp.max(q, -1), policy, gain, converged, count, gap)


def evaluate_exit_chain(chain: MDP | SparseMDP, rounding: Rounding, start: Solution | None) -> Solution:
    """`solve_first_exit` where there is one action: two linear systems, for the values and for the expected steps.

    Args:
        chain, rounding, start: as there.
    """
    reach, policy = exit_policy(chain)
    unit_rewards = jnp.ones(chain.n_states, chain.reward.dtype)
    # Expected steps solve the same system with reward 1.
    guess = jnp.zeros_like(unit_rewards) if start is None else start.v
    sides, guesses = jnp.stack([chain.reward[:, 0], unit_rewards]), jnp.stack([guess, unit_rewards])
    # Both right-hand sides at once: the system is prepared once.
    values, steps = jax.vmap(lambda side, guess: solve_chain(chain, 1.0, side, guess))(sides, guesses)
    q = action_values(chain, values)
    gap = jnp.where(jnp.all(reach), _gap(chain, rounding, values, q, policy, steps), jnp.inf)
    converged = jnp.all(reach) & jnp.all(jnp.isfinite(values))
    return Solution(q, q[:, 0], policy, jnp.full((), jnp.nan, q.dtype), converged, jnp.int32(1), gap)


def is_proper(mdp: MDP | SparseMDP, policy: Int[Array, " S"]) -> Bool[Array, ""]:
    """Whether the policy ends with probability one from every state."""
    return jnp.all(exit_policy(follow(mdp, policy))[0])


def exit_policy(mdp: MDP | SparseMDP) -> tuple[Bool[Array, " S"], Int[Array, " S"]]:
    """Which states can reach the end, and a policy that is proper where all can.

    States are marked by their distance to the end; each takes the action most likely to bring it nearer.
    """
    ends = jnp.zeros_like(mdp.reward) if mdp.end_probs is None else mdp.end_probs

    def nearer(reach: Bool[Array, " S"]) -> Float[Array, "S A"]:
        # The probability to end or to reach a state from which the end is known to be possible.
        chance = ends + mdp.expected_next(reach.astype(mdp.reward.dtype))
        return where_legal(chance, mdp.legal, 0.0)

    def body(
        carry: tuple[Bool[Array, " S"], Int[Array, " S"], Bool[Array, ""]],
    ) -> tuple[Bool[Array, " S"], Int[Array, " S"], Bool[Array, ""]]:
        # One more step from the end: states of which some action may lead to those found so far.
        reach, policy, _ = carry
        chance = nearer(reach)
        new = ~reach & (jnp.max(chance, -1) > 0)
        return reach | new, jnp.where(new, best_action(chance), policy), jnp.any(new)

    blank = jnp.zeros(mdp.n_states, bool)
    first = (blank, best_action(nearer(blank)), jnp.array(True))
    reach, policy, _ = jax.lax.while_loop(lambda carry: carry[-1], body, first)
    return reach, policy


def _policy_iteration(
    mdp: MDP | SparseMDP, policy: Int[Array, " S"]
) -> tuple[Float[Array, " S"], Int[Array, " S"], Int[Array, ""], Bool[Array, ""]]:
    """From a proper policy: values of the last proper one, the last one, iterations, whether nothing improves on it."""

    def body(carry: Carry) -> Carry:
        values, policy, count, _, _ = carry
        chain = follow(mdp, policy)
        values = solve_chain(chain, 1.0, chain.reward[:, 0], values)
        q = action_values(mdp, values)
        # A strict improvement of a proper policy is proper unless rewards are unbounded, so properness is checked each
        # time and ends the loop. Equal actions are not exchanged: that could close a cycle of reward zero.
        # An action must be better by more than the error of the evaluation to replace another.
        best = jnp.max(q, -1)
        tie = 64 * float(jnp.finfo(q.dtype).eps) * (jnp.max(jnp.abs(values)) + jnp.max(jnp.abs(best)))
        keep = ~(best - at_policy(q, policy) > tie)
        policy = jnp.where(keep, policy, best_action(q))
        return values, policy, count + 1, jnp.all(keep), is_proper(mdp, policy)

    zero = jnp.zeros(mdp.n_states, mdp.reward.dtype)
    first = (zero, policy, jnp.int32(0), jnp.array(False), jnp.array(True))
    going = lambda carry: ~carry[3] & carry[4] & (carry[2] < _CAP)  # noqa: E731
    values, policy, count, done, proper = jax.lax.while_loop(going, body, first)
    return values, policy, count, done & proper


def _gap(
    mdp: MDP | SparseMDP,
    rounding: Rounding,
    values: Float[Array, " S"],
    q: Float[Array, "S A"],
    policy: Int[Array, " S"],
    steps: Float[Array, " S"],
) -> Float[Array, ""]:
    """Bound on sup |v - v*| from weights n = `steps`, the most expected steps that a policy without loss can take.

    Where n - P n > noise for the actions of `policy`, and n >= 0, it is proper and v* >= v_policy >= v - c n, with c
    its largest residual over the least n - P n. Above, v + c n is superharmonic for the least c such that
    q + c P n <= v + c n for every pair, and a superharmonic function lies above the values of every proper policy.
    """
    error = rounding.of_sweep(values)
    slack = values[:, None] - q - error  # infinite where illegal
    # n - P n of every pair, less what rounding may have added.
    noise = rounding.factor * 2 * jnp.max(jnp.abs(steps)) + rounding.floor
    descent = steps[:, None] - mdp.expected_next(steps) - noise
    progress = jnp.min(at_policy(descent, policy))
    # Below: v* >= v - lower n.
    lower = jnp.max(jnp.abs(at_policy(q, policy) - values) + error) / progress
    # Above: the least c with slack + c (n - P n) >= 0 for every pair; infinite where no c can help.
    needed = jnp.where(slack < 0, jnp.where(descent > 0, -slack / jnp.where(descent > 0, descent, 1.0), jnp.inf), 0.0)
    c = jnp.max(needed) * (1 + rounding.factor)
    # The inequality is checked again with the c that was computed: c itself is rounded.
    spare = 2 * float(jnp.finfo(q.dtype).eps) * (jnp.abs(slack) + c * jnp.abs(descent))
    fits = jnp.all((slack + c * descent >= spare) | jnp.isposinf(slack))
    proven = (jnp.min(steps) >= 0) & (progress > 0) & fits
    moved = jnp.max(jnp.abs(jnp.max(q, -1) - values)) + error
    gap = (jnp.maximum(c, lower) * jnp.max(steps) + moved) * (1 + rounding.factor)
    return jnp.where(proven & jnp.isfinite(gap), gap, jnp.inf)


def _longest(
    mdp: MDP | SparseMDP, slack: Float[Array, "S A"], error: Float[Array, ""], policy: Int[Array, " S"]
) -> Float[Array, " S"]:
    """Most expected steps among the policies whose actions are as good as the best to within rounding."""
    chain, unit_rewards = follow(mdp, policy), jnp.ones_like(slack[:, 0])
    # Expected steps to the end: (I - P) n = 1.
    steps = solve_chain(chain, 1.0, unit_rewards, unit_rewards)
    near_best = slack <= 4 * error * (1 + jnp.max(jnp.abs(steps)))
    # The policy itself stays allowed, whatever rounding says of its actions.
    near_best = near_best | (policy[:, None] == jnp.arange(mdp.n_actions))
    # The same MDP with reward 1 a step and the near-best actions only: its optimal value is the longest expected time.
    counting = eqx.tree_at(lambda m: m.reward, mdp, jnp.ones_like(mdp.reward))
    counting = eqx.tree_at(lambda m: m.legal, counting, near_best, is_leaf=lambda x: x is None)
    return _policy_iteration(counting, policy)[0]
