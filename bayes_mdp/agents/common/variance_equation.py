"""What the variance equations share: a local variance of every pair, propagated through the mean MDP.

u(s, a) = local(s, a) + discount^2 sum_s' pbar(s' | s, a) sum_a' pi(a' | s') u(s', a'), component by component where the
belief is a mixture.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayes_mdp.agents.common.assumptions import met_again, require_rows, total_variance, unknown_pairs
from bayes_mdp.agents.common.value_summary import ValueUncertainty
from bayes_mdp.mdp import (
    MDP,
    AverageReward,
    Discounted,
    Episodic,
    FirstExit,
    HasVariances,
    Objective,
    SparseMDP,
    Validity,
)
from bayes_mdp.mdp.abilities import can_split
from bayes_mdp.mdp.validation import first_index, is_concrete
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.policy_arrays import policy_probs, read_policy
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.planning.solve import check_problem
from bayes_mdp.planning.variance_backup import propagate

Pairs = Float[Array, "*H S A"]
# (a posterior with independent rows, the values of its mean MDP) -> what each pair adds
Local = Callable[[Any, PolicyEvaluation | Solution], Pairs]


class Backup(eqx.Module):
    """A variance equation of one posterior with independent rows: mean values, local variance, its solution."""

    value: PolicyEvaluation
    local: Pairs
    variance: PolicyEvaluation


def compiled(core: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """`core(posterior, policy, objective, ...)`, compiled: the same answer, in a fraction of the time.

    A conscious exception: elsewhere the caller jits. The equations here are called eagerly, because only then can they
    look at the structure of a chain, and eagerly every operation would be compiled on its own, which takes seconds. A
    posterior that is no pytree of arrays stays as it is; so does `FirstExit`, where `evaluate` looks at the policy.
    """
    program = jax.jit(core, static_argnames=static)

    @wraps(core)
    def door(posterior: Any, policy: Any, objective: Objective, *rest: Any, **options: Any) -> Any:
        numbers = all(isinstance(leaf, (jax.Array, np.ndarray, np.number)) for leaf in jax.tree.leaves(posterior))
        run = program if numbers and not isinstance(objective, FirstExit) else core
        return run(posterior, policy, objective, *rest, **options)

    return door


def discount_of(objective: Objective) -> Any:
    """The factor of the next value.

    Raises:
        ValueError: `AverageReward`, for which the variance of a value does not exist. TypeError: no objective.
    """
    if not isinstance(objective, Objective):
        raise TypeError(f"objective is {objective!r}, expected Discounted, Episodic or FirstExit")
    if isinstance(objective, AverageReward):
        raise ValueError("objective is AverageReward, expected Discounted, Episodic or FirstExit for a variance")
    return objective.discount if isinstance(objective, Discounted) else 1.0


def next_values(v: Float[Array, "*H S"], objective: Objective) -> Float[Array, "*H S"]:
    """Values of the states that a step leads to: those of the step after it, zero after the last."""
    if not isinstance(objective, Episodic):
        return v
    return jnp.concatenate([v[1:], jnp.zeros_like(v[:1])])


def only_legal(x: Pairs, mdp: MDP | SparseMDP) -> Pairs:
    """`x`, zero where the action is illegal."""
    return x if mdp.legal is None else jnp.where(mdp.legal, x, 0.0)


def over_components(function: Callable[..., Any], posterior: Any, *stacked: Any) -> Any:
    """`function(posterior, *stacked)`; of a mixture that of every component, stacked (as `stacked` then is)."""
    if can_split(posterior):
        return jax.vmap(function)(posterior.components, *stacked)
    return function(posterior, *stacked)


def problem_of(posterior: Any, policy: Any, objective: Objective, who: str) -> tuple[MDP | SparseMDP, Any]:
    """The mean MDP, and the policy as an array; everything that can be refused is.

    Raises:
        ValueError, TypeError: tied rows, an ability that is missing, a variance of a mean reward that does not exist,
            an objective or a policy that does not fit.
    """
    require_rows(posterior, who)
    discount_of(objective)
    mean = posterior.mean_mdp()
    check_problem(mean, objective)
    policy = read_policy(policy, mean, horizon=horizon_of(objective))
    require_variances(posterior)
    return mean, policy


def require_variances(posterior: Any) -> None:
    """Let the posterior itself refuse a variance of a mean reward that does not exist (not inside a trace).

    A belief that has no such variances to ask for, draws say, passes.
    """
    if not isinstance(posterior.components if can_split(posterior) else posterior, HasVariances):
        return
    variance = over_components(lambda belief: belief.expected_reward_variance(), posterior)
    if can_split(posterior) and is_concrete(variance):
        index = first_index(np.isinf(np.asarray(variance)))
        if index is not None:
            jax.tree.map(lambda leaf: leaf[index[0]], posterior.components).expected_reward_variance()


def horizon_of(objective: Objective) -> int | None:
    """Steps of an episode, where they are fixed."""
    return objective.horizon if isinstance(objective, Episodic) else None


def why_met_again(posterior: Any, mean: MDP | SparseMDP, policy: Any, objective: Objective) -> str | None:
    """As `premise.met_again`, of any component."""
    unknown = over_components(unknown_pairs, posterior)
    unknown = unknown.any(0) if can_split(posterior) else unknown
    return met_again(mean, policy_probs(policy, mean, horizon=horizon_of(objective)), unknown)


def back_up(posterior: Any, local: Local, policy: Any, objective: Objective) -> Backup:
    """Solve the equation for a posterior with independent rows. Traceable."""
    mean = posterior.mean_mdp()
    value = evaluate(mean, policy, objective)
    added = only_legal(local(posterior, value), mean)
    return Backup(value, added, propagated(mean, added, policy, objective))


def propagated(mean: MDP | SparseMDP, local: Pairs, policy: Any, objective: Objective) -> PolicyEvaluation:
    """`propagate`, zero for illegal pairs."""
    answer = propagate(mean, local, policy, objective)
    q = jnp.maximum(only_legal(answer.q, mean), 0.0)
    return eqx.tree_at(lambda e: (e.q, e.v), answer, (q, jnp.maximum(answer.v, 0.0)))


def combined(posterior: Any, parts: Backup, validity: Validity, q_max: Any = None) -> ValueUncertainty:
    """The answer from the `Backup` of a posterior, or from those of the components of a mixture.

    A mixture by total variance: Var = E_k[Var_k] + Var_k[mean_k].
    """
    value, variance = parts.value, parts.variance
    if not can_split(posterior):
        status = variance.converged & value.converged, variance.iterations, variance.gap
        return ValueUncertainty(value.q, value.v, variance.q, variance.v, parts.local, q_max, *status, validity)
    q_mean, q_variance = total_variance(posterior.weights, value.q, variance.q)
    v_mean, v_variance = total_variance(posterior.weights, value.v, variance.v)
    status = (variance.converged & value.converged).all(), variance.iterations.max(), variance.gap.max()
    return ValueUncertainty(q_mean, v_mean, q_variance, v_variance, None, q_max, *status, validity)


def moments_of_plan(
    belief: Any, local: Local, mean: MDP | SparseMDP, plan: Solution, objective: Objective
) -> tuple[Pairs, Pairs]:
    """Mean and variance of q under the policy of `plan`, optimal in the `mean` MDP of the belief. Traceable."""
    if can_split(belief):
        parts = over_components(lambda each: back_up(each, local, plan.policy, objective), belief)
        answer = combined(belief, parts, Validity("heuristic", "not judged"))
        return answer.q_mean, answer.q_variance
    added = only_legal(local(belief, plan), mean)
    return plan.q, propagated(mean, added, plan.policy, objective).q
