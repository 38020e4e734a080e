"""Answers of the planners: `Solution` (an optimal plan), `SoftSolution`, `PolicyEvaluation` (of a given policy).

`value_at_start` is the value of a plan from where it starts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Shaped

from bayes_mdp.mdp import AverageReward, Episodic, Objective, Problem
from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import AnyArray, RealScalar


class Solution(eqx.Module):
    """An optimal plan, how far it may be off, and why the planner stopped.

    What `gap` bounds, rounding of the arithmetic and of the inputs to their dtype included:

    * `Discounted`, `Episodic`, `FirstExit`: sup |v - v*|, and sup |q - q*| over legal pairs.
    * `AverageReward`: |gain - optimal gain|, and the residual sup |max_a q - v| of the optimality equation. No bound on
      the relative values themselves can be proven without a bound on mixing times.

    `gap` is infinite where nothing can be proven (no proper policy, a gain that depends on the start, values that are
    not finite). It is the truth whether or not `converged`; for `AverageReward` it is finite only where that is true,
    because then, and only then, one gain for all starts is known to exist (to within `gap`).

    Args:
        q: values of pairs, -inf where an action is illegal. Average reward: reward - gain + E v(next).
        v: values of states, max_a q. Average reward: relative values, zero at state 0.
        policy: an action that attains the maximum of q.
        gain: optimal reward per step for `AverageReward`, else NaN.
        converged: the stopping rule was met (not the cap on iterations).
        iterations: policy iterations, sweeps or steps of the recursion.
        gap: see above.
    """

    q: Float[Array, "*H S A"]
    v: Float[Array, "*H S"]
    policy: Int[Array, "*H S"]
    gain: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]

    @classmethod
    def blank(
        cls, shape: tuple[int, ...], *, legal: Bool[AnyArray, "S A"] | None = None, dtype: DTypeLike = float
    ) -> "Solution":
        """No plan yet (zero values, infinite gap), to start a compiled loop with: `shape` [*H S A], `legal` [S A].

        Args:
            dtype: of the values.
        """
        q = where_legal(jnp.zeros(shape, dtype), legal)
        nothing, infinite = jnp.full((), jnp.nan, q.dtype), jnp.full((), jnp.inf, q.dtype)
        return cls(q, jnp.max(q, -1), best_action(q), nothing, jnp.array(False), jnp.zeros((), jnp.int32), infinite)

    @property
    def gap_to_second(self) -> Float[Array, ""]:
        """By how much the best action leads where the lead is least: over states (and steps), of legal actions.

        Zero, or of the size of `gap`: actions tie, and derivatives of the values are those of `policy` alone. Infinite
        where no state has two legal actions.
        """
        chosen = best_action(self.q)[..., None] == jnp.arange(self.q.shape[-1])
        # Illegal actions have -inf as well: they never come second to a finite value.
        second = jnp.max(jnp.where(chosen, -jnp.inf, self.q), -1)
        return jnp.min(jnp.max(self.q, -1) - second)


class SoftSolution(eqx.Module):
    """A plan under a soft maximum: the fields of `Solution`, with a policy of probabilities.

    Args:
        q: values of pairs, -inf where an action is illegal. Average reward: reward - gain + E v(next).
        v: values of states, temperature log sum_a exp(q / temperature), entropy included. Average reward: relative
            values, zero at state 0.
        policy: probabilities softmax(q / temperature); zero where illegal, and where smaller than the least float.
        log_policy: their logarithms, finite for every legal action; -inf where illegal.
        gain: soft-optimal reward per step, entropy included, for `AverageReward`, else NaN.
        converged, iterations: as in `Solution`.
        gap: as in `Solution`, against the exact solution of the soft equation. Logarithms of probabilities are off by
            at most 2 gap / temperature (not for `AverageReward`).

    Example:
        >>> mdp = bm.MDP([[[1.0], [1.0]]], [[0.0, 1.0]])
        >>> policy = bm.planning.solve_soft(mdp, bm.Discounted(0.9), 1.0).policy
        >>> print(np.asarray(policy).round(3))  # odds of e
        [[0.269 0.731]]
    """

    q: Float[Array, "*H S A"]
    v: Float[Array, "*H S"]
    policy: Float[Array, "*H S A"]
    log_policy: Float[Array, "*H S A"]
    gain: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]


class PolicyEvaluation(eqx.Module):
    """The values of one policy; the fields are those of `Solution`, with v_pi and q_pi in place of v* and q*.

    Args:
        q: value of taking an action once and following the policy afterwards.
        v: value of following the policy.
        gain, converged, iterations, gap: as in `Solution`.
    """

    q: Float[Array, "*H S A"]
    v: Float[Array, "*H S"]
    gain: Float[Array, ""]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]


def where_legal(
    table: Shaped[Array, "*H S A"], legal: Bool[AnyArray, "*G S A"] | None, otherwise: RealScalar = -jnp.inf
) -> Shaped[Array, "*H S A"]:
    """`table`, with `otherwise` in place of what is illegal.

    Args:
        table: of pairs, in any unit.
        legal: which pairs are; None: all.
        otherwise: in the same unit; -inf: no maximum sees it.
    """
    return table if legal is None else jnp.where(legal, table, otherwise)


def no_plan(problem: Problem) -> Solution | None:
    """The state before any plan: None for episodes, which need no warm start.

    Args:
        problem: sizes, legal actions and objective.
    """
    if isinstance(problem.objective, Episodic):
        return None
    return Solution.blank(problem.space.shape, legal=problem.space.legal)


def best_action(q: Float[AnyArray, "*batch A"]) -> Int[Array, "*batch"]:
    """The first action of largest value.

    Comparisons, not `argmax`: XLA's argmax over a short last axis is a scalar loop on CPU.
    """
    # Few actions: a chain of selections fuses with what produced q, an argmax does not.
    if q.shape[-1] > 16:
        return jnp.argmax(q, -1).astype(jnp.int32)
    best, action = q[..., 0], jnp.zeros(q.shape[:-1], jnp.int32)
    for a in range(1, q.shape[-1]):
        action = jnp.where(q[..., a] > best, jnp.int32(a), action)
        best = jnp.maximum(best, q[..., a])
    return action


@jax.custom_jvp
def best_value(q: Float[Array, "*batch A"]) -> Float[Array, "*batch"]:
    """The largest value; its derivative is that of `best_action`, where actions tie too."""
    return jnp.max(q, -1)


@best_value.defjvp
def _best_value_rule(
    primals: tuple[Float[Array, "*batch A"]], tangents: tuple[Float[Array, "*batch A"]]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    (q,), (dq,) = primals, tangents
    chosen = best_action(q)[..., None]
    # A selection, not a product: what an illegal action has for a derivative is not looked at.
    return best_value(q), jnp.take_along_axis(dq, chosen, -1)[..., 0]


def value_at_start(
    answer: Solution | PolicyEvaluation, objective: Objective, start: Float[AnyArray, " S"]
) -> Float[Array, "*B"]:
    """The value of one plan, or of each of a batch, from the given start; `AverageReward`: per step. Traceable.

    Args:
        answer: the solution, or a batch of them, v [*B *H S].
        objective: which it solves.
        start: probabilities of the first state.
    """
    if isinstance(objective, AverageReward):
        return answer.gain
    # An episode starts at step 0.
    first = answer.v[..., 0, :] if isinstance(objective, Episodic) else answer.v
    return matmul(first, jnp.asarray(start))
