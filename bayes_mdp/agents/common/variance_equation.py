"""Variance equations: a local variance of every pair, propagated through the mean MDP.

u(s, a) = local(s, a) + discount^2 sum_s' pbar(s' | s, a) sum_a' pi(a' | s') u(s', a'), component by component where the
belief is a mixture. The answer is a `ValueUncertainty`, which says whether it is exact: rows must be independent (or a
mixture of such), and no unknown pair may be visited twice.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from bayes_mdp.mdp import (
    MDP,
    CanMean,
    Discounted,
    Episodic,
    FirstExit,
    HasVariances,
    Objective,
    PolicyLike,
    PolicyOrLabels,
    SparseMDP,
    StateActionSpace,
)
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.labels import labels_of, policy_of
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.mdp.protocols import NamesSharedParameters
from bayes_mdp.mdp.validity import Kind, Validity
from bayes_mdp.numerics.products import tensordot
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.occupancy import find_cycle
from bayes_mdp.planning.policy_arrays import policy_probs, read_policy
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.planning.solve import check_problem, propagate
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import AnyArray, RealScalar
from bayes_mdp.utils.validation import first_index, is_concrete

if TYPE_CHECKING:
    import xarray as xr


class ValueUncertainty(eqx.Module):
    """Mean and variance of the values of a policy under a posterior.

    Args:
        q_mean: [*H S A], expected value of a pair (exact where `validity` is, else that of the mean MDP); -inf where
            the action is illegal.
        v_mean: [*H S], the same of the policy.
        q_variance: [*H S A], variance of the value of a pair, in squared units of the value; 0 where illegal.
        v_variance: [*H S], of the policy.
        local: [*H S A], the local variance of each pair (without H where that of all steps is one); None where no
            equation was solved.
        q_max: the bound on |values| that the local variance uses, where it does; else None.
        converged, iterations, gap: of the solver of the variance (see `PolicyEvaluation`); `gap` bounds its numerical
            error; over sampled MDPs it is the largest of their evaluations.
        validity: whether the variance is exact, an upper bound or a heuristic, and why.
    """

    q_mean: Float[Array, "*H S A"]
    v_mean: Float[Array, "*H S"]
    q_variance: Float[Array, "*H S A"]
    v_variance: Float[Array, "*H S"]
    local: Float[Array, "*G S A"] | None
    q_max: Float[Array, ""] | None
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]
    validity: Validity

    @property
    def q_sd(self) -> Float[Array, "*H S A"]:
        """Standard deviation of the value of a pair."""
        # Solvers may leave tiny negative numbers.
        return jnp.sqrt(jnp.maximum(self.q_variance, 0.0))

    @property
    def v_sd(self) -> Float[Array, "*H S"]:
        """Standard deviation of the value of the policy."""
        return jnp.sqrt(jnp.maximum(self.v_variance, 0.0))

    def mean(self) -> Float[Array, "*H S A"]:
        """Expected q."""
        return self.q_mean

    def variance(self) -> Float[Array, "*H S A"]:
        """Variance of q."""
        return self.q_variance

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*H S A"]:
        """A Gaussian draw of q, pairs independent."""
        return self.q_mean + self.q_sd * jax.random.normal(key, self.q_mean.shape, self.q_mean.dtype)

    def __str__(self) -> str:
        sd = np.asarray(self.v_sd)
        used = "" if self.q_max is None else f", q_max {float(np.asarray(self.q_max)):.6g}"
        return (
            f"Uncertainty of the values of a policy: sd of V from {sd.min():.3g} to {sd.max():.3g}{used}\n"
            f"  {self.validity}"
        )

    def to_dataset(self, space: StateActionSpace | None = None) -> "xr.Dataset":
        """As xarray: dims `step` (where there is a horizon), `state`, `action`, labelled by the names of `space`."""
        arrays = {name: getattr(self, name) for name in ("q_mean", "q_variance", "v_mean", "v_variance")}
        # The kind and the reason travel with the numbers.
        attributes: dict[str, str | float] = {"validity": self.validity.kind, "reason": self.validity.reason}
        if self.q_max is not None:
            attributes["q_max"] = float(np.asarray(self.q_max))
        return to_labelled_dataset(arrays, space, attributes)


def to_labelled_dataset(
    arrays: Mapping[str, Float[AnyArray, "..."]], space: StateActionSpace | None, attributes: Mapping[str, str | float]
) -> "xr.Dataset":
    """Arrays of pairs or states as a Dataset with the names of `space`. Host side.

    Args:
        arrays: name -> values or variances [*H S A], the first one such, or [*H S].
        attributes: of the dataset, in any unit.
    """
    import xarray as xr

    from bayes_mdp.mdp.labels import pair_axes

    pairs, coords = pair_axes(next(iter(arrays.values())).shape, space)
    data = {name: (pairs[: x.ndim], np.asarray(x)) for name, x in arrays.items()}
    return xr.Dataset(data, coords, dict(attributes))


@runtime_checkable
class RowPosterior(CanMean, HasVariances, Protocol):
    """A posterior with a mean MDP and closed-form variances: what a variance equation is solved for."""


def require_rows(posterior: object, who: str) -> None:
    """Refuse a belief for which the equations are wrong: dependent rows other than by a mixture, or no variances.

    Args:
        posterior: the belief.
        who: whom the message names.

    Raises:
        ValueError: rows share parameters; the message names which, and what to use instead.
        TypeError: an ability is missing.
    """
    # A mixture is judged by its components: each is solved for on its own.
    rows = posterior.components if can_split(posterior) else posterior
    require_ability(rows, CanMean, who)
    require_ability(rows, HasVariances, who)
    assert isinstance(rows, HasVariances)
    if not rows.independent_rows:
        ties = posterior.shared_parameters if isinstance(posterior, NamesSharedParameters) else None
        raise ValueError(
            f"posterior has rows that are not independent ({ties or 'which ones is not known'}), expected independent "
            f"rows, or a mixture of posteriors with such, for {who}: sampled MDPs work for any belief (exact.by_draws) "
            + see("explanation/validity-of-variances")
        )


def reward_size(posterior: RowPosterior, mean: MDP | SparseMDP) -> Float[Array, "*H S A"]:
    """|mean reward| of every pair, in units of the reward: of its largest outcome where rewards depend on it.

    Args:
        posterior: the belief.
        mean: its mean MDP.
    """
    if not posterior.rewards_by_outcome:
        return jnp.abs(mean.reward)
    # `row_bound` at values and a discount of zero.
    return jnp.asarray(posterior.row_bound(jnp.zeros(mean.reward.shape[:-1], mean.reward.dtype), 0.0))


def unknown_pairs(posterior: HasVariances) -> Bool[Array, "*H S A"]:
    """Which pairs have an unknown row or an unknown mean reward.

    Args:
        posterior: the belief.
    """
    # Row or reward: either makes the values of a pair uncertain.
    return jnp.asarray(posterior.variance_factor("ratio") > 0) | (posterior.expected_reward_variance() > 0)


def cycle_reason(
    mdp: MDP | SparseMDP, probs: Float[AnyArray, "*H S A"], unknown: Bool[AnyArray, "*G S A"]
) -> str | None:
    """Why the policy `probs` may visit an unknown pair twice; None: it is proven that it does not. Host side.

    Args:
        mdp: the mean MDP, whose positive probabilities are what is possible.
        probs: action probabilities, [*H S A].
        unknown: as `unknown_pairs`; its step axis need not be that of `probs`.
    """
    if mdp.horizon is not None:  # rows of their own at every step: a pair of a step is visited at most once
        return None
    if not is_concrete(mdp, probs, unknown):
        return "inside a trace the structure cannot be inspected"
    used = np.asarray(probs)
    # Steps that share rows: one action set for all of them.
    used = used.max(0) if used.ndim == 3 else used  # stationary rows: an action that any step takes
    # A pair is visited twice only on a cycle of the chain: of possible transitions under the actions taken.
    cycle = find_cycle(mdp, used, np.asarray(unknown))
    if cycle is None:
        return None
    path = " -> ".join(map(str, (*cycle, cycle[0])))
    return f"cyclic: the unknown rows of states {path} can be visited again"


def validity(kind: Kind, reason: str, revisits: str | None) -> Validity:
    """`kind` because of `reason` where no unknown pair is visited again, else a heuristic.

    Args:
        kind: what the variance is where no unknown pair is visited again.
        reason: of that.
        revisits: why a pair may be visited again (see `cycle_reason`); None: none is.
    """
    return Validity(kind, reason) if revisits is None else Validity("heuristic", revisits)


def total_variance(
    weights: Float[AnyArray, " K"], means: Float[AnyArray, "K *rest"], variances: Float[AnyArray, "K *rest"]
) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
    """Mean and variance of a mixture from those of its components; where a mean is -inf the variance is zero.

    Var[x] = E_k[Var[x | k]] + Var_k[E[x | k]].

    Args:
        weights: probabilities of the components.
        means, variances: of each component, in any unit and its square.
    """
    # An illegal action has mean -inf in every component: -inf - -inf would be nan.
    finite = jnp.isfinite(means)
    safe = jnp.where(finite, means, 0.0)
    mean = tensordot(weights, safe, axes=1)
    # E[Var] + Var[E], in one sum over the components.
    variance = tensordot(weights, variances + (safe - mean) ** 2, axes=1)
    return jnp.where(finite[0], mean, -jnp.inf), jnp.where(finite[0], variance, 0.0)


Pairs = Float[Array, "*H S A"]
Local = Callable[[RowPosterior, PolicyEvaluation | Solution], Pairs]
"""(a posterior with independent rows, the values of its mean MDP) -> the local variance of each pair"""

Answer = TypeVar("Answer")
"""What a solver of a variance equation returns: arrays, for a mixture with a leading axis K."""


class Backup(eqx.Module):
    """A variance equation of one posterior with independent rows: mean values, local variance, its solution.

    Args:
        value: mean values of the policy.
        local: variance that a step adds, squared units of the value.
        variance: solution of the equation, squared units of the value.
    """

    value: PolicyEvaluation
    local: Pairs
    variance: PolicyEvaluation


def compile_solver(core: Callable[..., Answer], *static: str) -> Callable[..., Answer]:
    """`core(posterior, policy, objective, ...)`, compiled: the same answer, in a fraction of the time.

    An exception: elsewhere the caller jits. The equations here are called eagerly, because the structure of the chain
    can only be inspected then, and eagerly every operation would be compiled on its own, which takes seconds. Not
    compiled: a posterior that is no pytree of arrays, and `FirstExit`, where `evaluate` inspects the policy.

    Args:
        core: the solver.
        static: names of its static keyword arguments.
    """
    program = jax.jit(core, static_argnames=static)

    @wraps(core)
    def call(
        posterior: CanMean, policy: PolicyLike, objective: Objective, *rest: PyTree, **options: str | bool | int
    ) -> Answer:
        # A posterior with Python objects among its leaves cannot be an argument of a compiled program.
        numbers = all(isinstance(leaf, (jax.Array, np.ndarray, np.number)) for leaf in jax.tree.leaves(posterior))
        run = program if numbers and not isinstance(objective, FirstExit) else core
        return run(posterior, policy, objective, *rest, **options)

    return call


def discount_of(objective: Objective) -> RealScalar:
    """The factor of the next value.

    Args:
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: `AverageReward`, for which the variance of a value does not exist. TypeError: no objective.
    """
    return require_objective(objective, "a variance", Discounted, Episodic, FirstExit).discount


def next_values(v: Float[Array, "*H S"], objective: Objective) -> Float[Array, "*H S"]:
    """Values of the next states of every step: those of the step after it, zero after the last.

    Args:
        v: values of the states.
        objective: under `Episodic` they depend on the step.
    """
    # Episodes have values of their own at each step; nothing follows the last.
    if not isinstance(objective, Episodic):
        return v
    return jnp.concatenate([v[1:], jnp.zeros_like(v[:1])])


def only_legal(x: Float[AnyArray, "*H S A"], mdp: MDP | SparseMDP) -> Pairs:
    """`x`, in its unit, zero where the action is illegal in `mdp`."""
    return jnp.asarray(x) if mdp.legal is None else jnp.where(mdp.legal, x, 0.0)


def over_components(function: Callable[..., Answer], posterior: object, *stacked: PyTree) -> Answer:
    """`function(posterior, *stacked)`; for a mixture that of every component, stacked.

    Args:
        function: of a posterior with independent rows (`RowPosterior`), and more arguments.
        posterior: its rows, or a mixture.
        stacked: more arguments; for a mixture with a leading axis K.
    """
    if can_split(posterior):
        return jax.vmap(function)(posterior.components, *stacked)
    return function(posterior, *stacked)


def problem_of(
    posterior: CanMean, policy: PolicyOrLabels, objective: Objective, who: str
) -> tuple[MDP | SparseMDP, Int[Array, "*H S"] | Float[Array, "*H S A"]]:
    """The mean MDP, and the policy as an array, after all checks.

    Args:
        posterior: with independent rows, or a mixture of such.
        policy: as in `planning.evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        who: the caller, for the messages.

    Raises:
        ValueError, TypeError: rows that share parameters, an ability that is missing, a variance of a mean reward that
            does not exist, an objective or a policy that does not fit.
    """
    require_rows(posterior, who)
    discount_of(objective)
    mean = posterior.mean_mdp()
    # Checks in this order: what is wrong with the problem is said before what is wrong with the policy.
    # Objective and MDP fit each other.
    check_problem(mean, objective)
    array = policy_of(policy, labels_of(posterior), objective)
    actions_or_probs = read_policy(array, mean, horizon=objective.horizon)
    require_variances(posterior)
    return mean, actions_or_probs


def require_variances(posterior: object) -> None:
    """Refuse a variance of a mean reward that does not exist, by the posterior's own error (not inside a trace).

    A belief without closed-form variances passes.

    Args:
        posterior: any belief.
    """
    if not isinstance(posterior.components if can_split(posterior) else posterior, HasVariances):
        return
    variance = over_components(lambda belief: belief.expected_reward_variance(), posterior)
    # Under `vmap` the components are traced and refuse nothing: a variance of inf marks the one to call again, eagerly.
    if can_split(posterior) and is_concrete(variance):
        index = first_index(np.isinf(np.asarray(variance)))
        if index is not None:
            # Called eagerly the component names its pair and refuses.
            jax.tree.map(lambda array: array[index[0]], posterior.components).expected_reward_variance()


def revisit_reason(posterior: CanMean, mean: MDP | SparseMDP, policy: PolicyLike, objective: Objective) -> str | None:
    """Why a pair that is unknown in any component may be visited again (see `cycle_reason`); None: none is.

    Args:
        posterior: the belief.
        mean: its mean MDP.
        policy: Int[*H S], Float[*H S A] or a `Policy`.
        objective: of the run.
    """
    # Which pairs are unknown, in any component.
    unknown = over_components(unknown_pairs, posterior)
    unknown = unknown.any(0) if can_split(posterior) else unknown
    return cycle_reason(mean, policy_probs(policy, mean, horizon=objective.horizon), unknown)


def back_up(posterior: RowPosterior, local: Local, policy: PolicyLike, objective: Objective) -> Backup:
    """Solve the equation for a posterior with independent rows. Traceable.

    Args:
        posterior: one component of a mixture.
        local: its local variances.
        policy: as in `planning.evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Returns:
        Mean values, local variances and the variances of the values.
    """
    mean = posterior.mean_mdp()
    # Mean values first: the local variance depends on the values of the next states.
    value = evaluate(mean, policy, objective)
    # Illegal pairs add nothing.
    added = only_legal(local(posterior, value), mean)
    return Backup(value, added, solve_variance(mean, added, policy, objective))


def solve_variance(mean: MDP | SparseMDP, local: Pairs, policy: PolicyLike, objective: Objective) -> PolicyEvaluation:
    """The solution of the variance equation (`propagate`): zero for illegal pairs, nowhere negative.

    Args:
        mean: the mean MDP.
        local: [*H S A], squared units of the value.
        policy: as in `planning.evaluate`.
        objective: `Discounted`, `Episodic` or `FirstExit`.
    """
    # The same chain, with the local variance as reward and discount^2.
    answer = propagate(mean, local, policy, objective)
    # A variance may come out below zero by rounding alone.
    q = jnp.maximum(only_legal(answer.q, mean), 0.0)
    return eqx.tree_at(lambda e: (e.q, e.v), answer, (q, jnp.maximum(answer.v, 0.0)))


def combine(
    posterior: CanMean, parts: Backup, validity: Validity, q_max: Float[Array, ""] | None = None
) -> ValueUncertainty:
    """The answer from the `Backup` of a posterior, or from those of the components of a mixture.

    A mixture by the law of total variance: Var = E_k[Var_k] + Var_k[mean_k].

    Args:
        posterior: of which `parts` were computed.
        parts: as `back_up`; of a mixture stacked over its components.
        validity: whether the variance is exact.
        q_max: the bound on |values| that was used, if any.
    """
    value, variance = parts.value, parts.variance
    # No mixture: the parts are the answer.
    if not can_split(posterior):
        status = variance.converged & value.converged, variance.iterations, variance.gap
        return ValueUncertainty(value.q, value.v, variance.q, variance.v, parts.local, q_max, *status, validity)
    # Total expectation and variance over the components.
    q_mean, q_variance = total_variance(posterior.weights, value.q, variance.q)
    v_mean, v_variance = total_variance(posterior.weights, value.v, variance.v)
    # A mixture has converged where all its components have; its error is that of the worst.
    status = (variance.converged & value.converged).all(), variance.iterations.max(), variance.gap.max()
    return ValueUncertainty(q_mean, v_mean, q_variance, v_variance, None, q_max, *status, validity)


def moments_of_plan(
    belief: CanMean, local: Local, mean: MDP | SparseMDP, plan: Solution, objective: Objective
) -> tuple[Pairs, Pairs]:
    """Mean and variance of q under the policy of `plan`, optimal in the `mean` MDP of the belief. Traceable.

    Args:
        belief: with independent rows, or a mixture of such.
        local: the local variances of a posterior with independent rows.
        mean: the mean MDP of the belief.
        plan: its optimal policy and values.
        objective: `Discounted` or `Episodic`.
    """
    if can_split(belief):
        # Each component is backed up on its own mean MDP.
        parts = over_components(lambda each: back_up(each, local, plan.policy, objective), belief)
        answer = combine(belief, parts, Validity("heuristic", "not examined"))
        return answer.q_mean, answer.q_variance
    # The values of the plan are known: only the variance is left to be solved for.
    added = only_legal(over_components(local, belief, plan), mean)
    return plan.q, solve_variance(mean, added, plan.policy, objective).q
