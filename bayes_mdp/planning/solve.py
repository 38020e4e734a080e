# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`solve` and `evaluate`: the entry points of the planners, one planner per objective.

The theory of all four is in [PUTERMAN94], that of first exit in [SSP91] too; policy iteration is due to [HOWARD60].
`propagate` solves the equation that every variance of values shares, u = local + discount^2 sum pbar pi u: the value of
the policy for other rewards than those of the MDP (`evaluate_reward`).
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, Objective, PolicyLike, SparseMDP
from bayes_mdp.mdp.hypothesis import check_mdp
from bayes_mdp.mdp.objectives import check_fit, require_objective
from bayes_mdp.planning.average import solve_average
from bayes_mdp.planning.bellman import HardMax, Rounding
from bayes_mdp.planning.derivatives import near_enough, poison_unless, with_derivatives, with_gain_derivatives
from bayes_mdp.planning.discounted import solve_discounted
from bayes_mdp.planning.episodic import induce
from bayes_mdp.planning.first_exit import exit_policy, solve_first_exit
from bayes_mdp.planning.policy_arrays import action_values, follow, mix, policy_probs, read_policy
from bayes_mdp.planning.solution import PolicyEvaluation, SoftSolution, Solution, best_action
from bayes_mdp.utils.typing import RealScalar
from bayes_mdp.utils.validation import check_not_negative, check_shape, check_type, first_index, is_concrete, require


def solve(
    mdp: MDP | SparseMDP, objective: Objective, *, start: Solution | None = None, tolerance: RealScalar | None = None
) -> Solution:
    """Plan optimally in a known MDP. Pure and traceable, one element: `vmap` it over a batch.

    The theory of the four objectives is in [PUTERMAN94], that of `FirstExit` in [SSP91] too. Episodes are planned by
    backward induction, the others by policy iteration [HOWARD60].

    `q`, `v` and `gain` have derivatives by rewards, rows, end probabilities and the discount of `Discounted`: forward
    and reverse mode, any order, by one linear system each, whatever the number of iterations. They are those of the
    policy that is returned: where actions tie (`Solution.gap_to_second`) the optimal values have a kink, and this is
    one of their one-sided derivatives. `policy`, `converged`, `iterations` and `gap` have none. Where the planner did
    not converge, and `gap` is more than a thousandth of the values, derivatives are NaN.

    Args:
        mdp: dense or sparse; a step axis H needs `Episodic(H)`.
        objective: `Discounted`, `Episodic`, `AverageReward` or `FirstExit`.
        start: a plan for a similar MDP to start from. It changes the effort, not the answer.
        tolerance: `Discounted` stops as soon as no value is off by more than this (in units of the value; `gap` has the
            proven bound, which adds rounding). None: at rounding, as the other objectives do anyway.

    Raises:
        ValueError: sizes that do not fit; a negative tolerance; a discount outside [0, 1); ends with `AverageReward`;
            for `FirstExit`, a state that cannot reach the end, or a cycle without end and with positive reward. Under
            tracing the values cannot be looked into: `converged` is then false and `gap` infinite.
        TypeError: no MDP, no objective, no plan.

    Example:
        >>> mdp = bm.MDP(np.full((2, 2, 2), 0.5), [[0.0, 1.0], [2.0, 3.0]])
        >>> solution = bm.solve(mdp, bm.Discounted(0.5))
        >>> print(solution.policy, np.asarray(solution.v).round(3))
        [1 1] [3. 5.]
    """
    check_problem(mdp, objective)
    if start is not None:
        check_start(mdp, objective, start)
    if tolerance is not None and is_concrete(tolerance):
        check_not_negative("tolerance", tolerance)
    if tolerance is None or not isinstance(objective, Discounted):
        tolerance = 0.0
    problem = mdp, objective, start, float(tolerance) if is_concrete(tolerance) else tolerance
    # Traced numbers belong to the caller's program; numbers at hand go to one that JAX keeps.
    solution = (_compiled_plan if is_concrete(problem) else _plan)(*problem)
    if isinstance(objective, FirstExit) and is_concrete(mdp, solution):
        refuse_improper(mdp, solution)
    return solution


def _plan(mdp: MDP | SparseMDP, objective: Objective, start: Solution | None, tolerance: RealScalar) -> Solution:
    """`solve` of what was checked."""
    mdp = in_one_dtype(mdp)
    if isinstance(objective, Episodic):
        q, v, gap = induce(mdp, objective.horizon, Rounding.of(mdp), discount=objective.discount)
        gain = jnp.full((), jnp.nan, q.dtype)
        return Solution(q, v, best_action(q), gain, jnp.isfinite(gap), jnp.int32(objective.horizon), gap)
    return _solve_stationary(mdp, objective, Rounding.of(mdp), start, tolerance)


def evaluate(mdp: MDP | SparseMDP, policy: PolicyLike, objective: Objective) -> PolicyEvaluation:
    """Values of a policy in a known MDP. Pure and traceable, one element: `vmap` it over batches.

    The theory is in [PUTERMAN94].
    `q`, `v` and `gain` have derivatives by probabilities of the policy, rewards, rows, end probabilities and the
    discount of `Discounted`.

    Args:
        mdp, objective: as in `solve`.
        policy: Int[*H S], Float[*H S A] or a `Policy` object (see `policy_probs`); H only with `Episodic`.

    Raises:
        ValueError, TypeError: as `solve` and `policy_probs`; for `FirstExit`, a policy that does not end.

    Example:
        >>> mdp = bm.MDP(np.full((2, 2, 2), 0.5), [[0.0, 1.0], [2.0, 3.0]])
        >>> values = bm.evaluate(mdp, [0, 1], bm.Discounted(0.5)).v
        >>> print(np.asarray(values).round(3))
        [1.5 4.5]
    """
    check_problem(mdp, objective)
    mdp = in_one_dtype(mdp)
    if isinstance(objective, Episodic):
        # Probabilities: backward induction averages over actions at every step.
        read = policy_probs(policy, mdp, horizon=objective.horizon)
    else:
        read = read_policy(policy, mdp)
    if isinstance(objective, FirstExit) and is_concrete(mdp, read):
        require_exit(_follow(mdp, read), "the policy")
    return (_compiled_evaluate if is_concrete(mdp, read, objective) else _evaluate)(mdp, read, objective)


def _evaluate(mdp: MDP | SparseMDP, policy: Array, objective: Objective) -> PolicyEvaluation:
    """`evaluate` of what was checked, in one dtype."""
    if isinstance(objective, Episodic):
        rounding = Rounding.of(mdp, mixed=mdp)
        q, v, gap = induce(mdp, objective.horizon, rounding, policy, discount=objective.discount)
        gain = jnp.full((), jnp.nan, q.dtype)
        return PolicyEvaluation(q, v, gain, jnp.isfinite(gap), jnp.int32(objective.horizon), gap)
    # A policy makes the MDP a chain: planning in an MDP with one action is evaluation.
    chain = _follow(mdp, policy)
    rounding = Rounding.of(chain, mixed=mdp)
    solution = _solve_stationary(chain, objective, rounding, None)
    discount = objective.discount
    # q of all actions from one more sweep of the full MDP, whose rounding error is added to the bound.
    q = action_values(mdp, solution.v, jnp.asarray(discount, mdp.reward.dtype))
    if isinstance(objective, AverageReward):
        return PolicyEvaluation(q - solution.gain, solution.v, *_verdict(solution, 0.0))
    return PolicyEvaluation(q, solution.v, *_verdict(solution, jax.lax.stop_gradient(rounding.of_sweep(solution.v))))


# If no array is traced, one jitted program is called, which JAX keeps: an eager loop would be compiled at every call.
_compiled_plan, _compiled_evaluate = jax.jit(_plan), jax.jit(_evaluate)


def in_one_dtype(mdp: MDP | SparseMDP) -> MDP | SparseMDP:
    """The MDP with all its numbers in the widest of their dtypes: rewards in float32 may stand beside float64 rows."""
    is_number = lambda x: jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)  # noqa: E731
    widest = jnp.result_type(*filter(is_number, jax.tree.leaves(mdp)))
    return jax.tree.map(lambda x: jnp.asarray(x, widest) if is_number(x) else x, mdp)


def policy_chain(mdp: MDP | SparseMDP, policy: PolicyLike) -> MDP | SparseMDP:
    """The Markov chain of a policy of a stationary MDP, as an MDP with one action ([PUTERMAN94]).

    Args:
        mdp: dense or sparse, without a step axis.
        policy: Int[S], Float[S A] or a `Policy` object.

    Raises:
        ValueError, TypeError: as `policy_probs`.
    """
    check_mdp(mdp)
    return _follow(mdp, read_policy(policy, mdp))


def _follow(mdp: MDP | SparseMDP, policy: Array) -> MDP | SparseMDP:
    return follow(mdp, policy) if jnp.issubdtype(policy.dtype, jnp.integer) else mix(mdp, policy)


def _verdict(
    solution: Solution, sweep: RealScalar
) -> tuple[Float[Array, ""], Bool[Array, ""], Int[Array, ""], Float[Array, ""]]:
    gap = solution.gap + sweep
    return solution.gain, solution.converged, solution.iterations, jnp.where(jnp.isfinite(gap), gap, jnp.inf)


def _solve_stationary(
    mdp: MDP | SparseMDP,
    objective: Discounted | AverageReward | FirstExit,
    rounding: Rounding,
    start: Solution | None,
    tolerance: RealScalar = 0.0,
) -> Solution:
    # The planners iterate on constants; the derivatives of their answer are attached to it.
    fixed, rounding, start, tolerance = jax.lax.stop_gradient((mdp, rounding, start, tolerance))
    if isinstance(objective, AverageReward):
        plan = solve_average(fixed, rounding, start)
        solved = near_enough(plan.v, plan.converged, plan.gap)
        relative = with_gain_derivatives((plan.q, plan.v, plan.gain), mdp, HardMax(plan.policy))
        q, v, gain = poison_unless(relative, solved)
        return eqx.tree_at(lambda s: (s.q, s.v, s.gain), plan, (q, v, gain))
    if isinstance(objective, Discounted):
        discount = jnp.asarray(objective.discount, mdp.reward.dtype)
        plan = solve_discounted(fixed, jax.lax.stop_gradient(discount), rounding, start, tolerance)
    else:
        discount = jnp.ones((), mdp.reward.dtype)
        plan = solve_first_exit(fixed, rounding, start)
    solved = near_enough(plan.v, plan.converged, plan.gap)
    values = with_derivatives((plan.q, plan.v), mdp, discount, HardMax(plan.policy))
    return eqx.tree_at(lambda s: (s.q, s.v), plan, poison_unless(values, solved))


def check_problem(mdp: MDP | SparseMDP, objective: Objective) -> None:
    """Refuse an objective that does not fit the MDP; what is traced is not looked into.

    Raises:
        ValueError, TypeError: as `solve`, but for what only the solution shows.
    """
    check_mdp(mdp)
    check_fit(objective, mdp.reward.shape, mdp.reward.dtype.itemsize)
    if isinstance(objective, AverageReward) and mdp.end_probs is not None and is_concrete(mdp.end_probs):
        ends = np.asarray(mdp.end_probs)
        expected = "0: the average reward needs an MDP that never ends (see restart_at_ends)"
        require((ends > 0) if mdp.legal is None else (ends > 0) & np.asarray(mdp.legal), "end_probs", ends, expected)


def check_start(
    mdp: MDP | SparseMDP,
    objective: Objective,
    start: object,
    kinds: tuple[type[Solution] | type[SoftSolution], ...] = (Solution,),
) -> None:
    """Refuse a start that is no plan of one of the `kinds`, or is one of another size.

    Raises:
        TypeError, ValueError: one sentence.
    """
    check_type("start", start, kinds, f"a {' or a '.join(kind.__name__ for kind in kinds)}")
    # Warm starts are values of the same pairs; of episodes also for every step.
    size = mdp.reward.shape
    if isinstance(objective, Episodic):
        size = (objective.horizon, *size[-2:])
    assert isinstance(start, (Solution, SoftSolution))
    if tuple(start.q.shape) != tuple(size):
        raise ValueError(f"start has values of shape {tuple(start.q.shape)}, expected {tuple(size)}")


def require_exit(mdp: MDP | SparseMDP, name: str) -> None:
    """Refuse an MDP in which the end cannot be reached from some state. Host-side.

    Raises:
        ValueError: names the first such state.
    """
    state = _first_trapped_state(mdp)
    if state is not None:
        raise ValueError(f"{name} never ends from state {state}, expected a proper policy (FirstExit)")


def refuse_improper(mdp: MDP | SparseMDP, solution: Solution) -> None:
    """Refuse a first-exit problem without a proper policy, or with unbounded rewards. Host-side.

    Raises:
        ValueError: names the first state from which the episode does not end.
    """
    require_exit(mdp, "every policy")
    # The best policy found may stay for ever where that pays.
    state = _first_trapped_state(follow(mdp, solution.policy))
    if state is not None:
        raise ValueError(
            f"rewards are unbounded: from state {state} a policy that never ends gains a positive reward per step, "
            "expected every endless policy to lose (FirstExit)"
        )


def _first_trapped_state(mdp: MDP | SparseMDP) -> int | None:
    """The first state from which the end cannot be reached."""
    state = first_index(~np.asarray(exit_policy(mdp)[0]))
    return None if state is None else state[0]


def propagate(
    mdp: MDP | SparseMDP, local: Float[Array, "*H S A"], policy: PolicyLike, objective: Objective
) -> PolicyEvaluation:
    """Solve u(s, a) = local(s, a) + discount^2 sum_s' P(s' | s, a) sum_a' pi(a' | s') u(s', a').

    It is policy evaluation with `local` as reward and the square of the discount; what is undiscounted stays so.

    Args:
        mdp: the (mean) transition probabilities; its rewards are not used.
        local: [*H S A], the variance that each pair adds; it may depend on the step where `mdp` does not.
        policy: as in `evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: `AverageReward`: the sum of local variances along a run without end does not exist; as `evaluate`.
    """
    objective = require_objective(objective, "a variance", Discounted, Episodic, FirstExit)
    # Variances scale with the square of the discount.
    if isinstance(objective, Discounted):
        objective = Discounted(objective.discount**2)
    if isinstance(objective, Episodic):
        rate = max(objective.discount**2, sys.float_info.min)  # a square may be too small for a float
        objective = Episodic(objective.horizon, rate)
    return evaluate_reward(mdp, local, policy, objective)


def evaluate_reward(
    mdp: MDP | SparseMDP, reward: Float[Array, "*H S A"], policy: PolicyLike, objective: Objective
) -> PolicyEvaluation:
    """`evaluate` with other rewards, which may depend on the step where the MDP does not. Traceable.

    Args:
        mdp: its rewards are not used.
        reward: [*H S A]; H only with `Episodic`.
        policy, objective: as in `evaluate`.

    Raises:
        ValueError: another shape; as `evaluate`.
    """
    if isinstance(objective, Episodic) and reward.ndim > mdp.reward.ndim:
        return _by_step(mdp, reward, policy, objective)
    return evaluate(eqx.tree_at(lambda m: m.reward, mdp, reward), policy, objective)


def _by_step(
    mdp: MDP | SparseMDP, reward: Float[Array, "H S A"], policy: PolicyLike, objective: Episodic
) -> PolicyEvaluation:
    """One row for all steps, a reward for each: the rows are not repeated."""
    horizon, rate = objective.horizon, objective.discount
    check_shape("reward", reward, (horizon, *mdp.reward.shape), "step, state, action")
    # Rounding is bounded by the largest reward of all steps.
    largest = eqx.tree_at(lambda m: m.reward, mdp, jnp.max(jnp.abs(reward), 0))
    probs = policy_probs(policy, mdp, horizon=horizon)
    q, v, gap = induce(mdp, horizon, Rounding.of(largest, mixed=largest), probs, reward=reward, discount=rate)
    gain = jnp.full((), jnp.nan, q.dtype)
    return PolicyEvaluation(q, v, gain, jnp.isfinite(gap), jnp.int32(horizon), gap)
