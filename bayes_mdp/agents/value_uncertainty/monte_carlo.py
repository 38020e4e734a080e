"""Variances of values over sampled MDPs, and Gaussian Thompson sampling from them: for any belief.

A policy is evaluated in MDPs sampled from the belief, a chunk at a time: moments are merged chunk by chunk, so that
memory does not grow with the number of draws.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.variance_equation import ValueUncertainty, discount_of, require_variances
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import UsesDraws, check_noise, policy_with_covariance
from bayes_mdp.mdp import MDP, CanMean, CanSample, Objective, PolicyOrLabels, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability, sizes_of
from bayes_mdp.mdp.labels import labels_of, policy_of
from bayes_mdp.mdp.validity import Validity
from bayes_mdp.numerics.fusion import materialise
from bayes_mdp.numerics.products import einsum, tensordot
from bayes_mdp.planning import evaluate
from bayes_mdp.planning.episodic import mean_over_actions
from bayes_mdp.planning.policy_arrays import policy_probs
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import IntScalar
from bayes_mdp.utils.validation import check_bool, check_count, check_key, is_concrete

MOST_AT_ONCE = 1000  # draws in a chunk
NUMBERS_AT_ONCE = 2**22  # of all draws in a chunk

Statistics = TypeVar("Statistics")
"""A pytree of arrays that summarises a chunk of sampled MDPs."""


class DrawMoments(NamedTuple):
    """Moments of q over `number` sampled MDPs.

    Args:
        number: how many.
        mean: of q; 0 where illegal.
        products: sum of products of deviations from the mean, in squared units of the reward.
        illegal: where q is -inf.
        converged, iterations, gap: of the evaluations; see `PolicyEvaluation`.
    """

    number: Float[Array, ""]
    mean: Float[Array, "*H S A"]
    products: Float[Array, "*H S A A"]
    illegal: Bool[Array, "*H S A"]
    converged: Bool[Array, ""]
    iterations: Int[Array, ""]
    gap: Float[Array, ""]

    @property
    def covariance(self) -> Float[Array, "*H S A A"]:
        """Between the values of the actions of a state; unbiased."""
        return self.products / (self.number - 1.0)


def check_draws(key: object, posterior: object, num_draws: object, who: str) -> None:
    """Check a key, a posterior to sample from and a number of draws.

    Args:
        key: a typed key.
        posterior: that can sample.
        num_draws: 2 or more.
        who: the caller, for the messages.

    Raises:
        ValueError, TypeError: one of them is not what it should be.
    """
    check_key("key", key)
    require_ability(posterior, CanSample, who)
    check_count("num_draws", num_draws, 2)


def read_probs(posterior: CanSample, policy: PolicyOrLabels, objective: Objective) -> Float[Array, "*H S A"]:
    """The policy as probabilities, checked against the sizes and legal actions of sampled MDPs. Host side.

    Args:
        posterior: any that can sample.
        policy: Int[*H S], Float[*H S A] or a `Policy`.
        objective: whose horizon is looked at.
    """
    sizes = sizes_of(posterior)
    # Labels and `Policy` objects become an array.
    array = policy_of(policy, labels_of(posterior), objective)
    return policy_probs(array, sizes, horizon=objective.horizon)


def chunk_size(posterior: CanSample, num_draws: int) -> int:
    """How many sampled MDPs are evaluated at once.

    Args:
        posterior: any that can sample.
        num_draws: the number in all.
    """
    # By shapes alone: nothing is drawn to find out how large a draw is.
    outline = jax.eval_shape(posterior.sample, jax.random.key(0))
    numbers = sum(math.prod(array.shape) for array in jax.tree.leaves(outline))
    return min(num_draws, MOST_AT_ONCE, max(1, NUMBERS_AT_ONCE // numbers))


def over_draws(
    statistics: Callable[[MDP | SparseMDP, Bool[Array, " B"]], Statistics],
    merge: Callable[[Statistics, Statistics], Statistics],
    key: PRNGKeyArray,
    posterior: CanSample,
    num_draws: IntScalar,
    chunk: int,
) -> Statistics:
    """Statistics of sampled MDPs, chunk by chunk.

    Args:
        statistics: (a chunk of MDPs, with a leading axis B; which of them count: the last chunk is filled up) -> a
            summary.
        merge: the summary of two chunks together; a summary of all zeros must be neutral.
        key: of the draws.
        posterior: to sample from.
        num_draws: in total; it may be traced: one program serves any number.
        chunk: B.
    """

    def one(index: IntScalar) -> Statistics:
        # Keys of a chunk come from its index alone, so the draws do not depend on how many chunks there are.
        keys = jax.random.split(jax.random.fold_in(key, index), chunk)
        # XLA would otherwise fuse the sampler into every use of the draws, and sample more than once.
        draws = materialise(jax.vmap(posterior.sample)(keys))
        return statistics(draws, jnp.asarray(index * chunk + jnp.arange(chunk) < num_draws))

    if is_concrete(num_draws) and num_draws <= chunk:
        return one(0)
    start = jax.tree.map(lambda array: jnp.zeros(array.shape, array.dtype), jax.eval_shape(one, 0))
    return lax.fori_loop(0, -(-num_draws // chunk), lambda index, total: merge(total, one(index)), start)


def draw_moments(
    key: PRNGKeyArray,
    posterior: CanSample,
    probs: Float[Array, "*H S A"],
    objective: Objective,
    num_draws: IntScalar,
    chunk: int,
) -> DrawMoments:
    """Mean and covariance of the values of a policy over sampled MDPs. Traceable.

    Args:
        key: of the draws.
        posterior: to sample from.
        probs: action probabilities of the policy.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        num_draws: in total.
        chunk: draws at once.
    """

    def statistics(draws: MDP | SparseMDP, real: Bool[Array, " B"]) -> DrawMoments:
        # One policy in every draw.
        value = jax.vmap(lambda mdp: evaluate(mdp, probs, objective))(draws)
        # Two passes within a chunk: deviations from its mean, without cancellation.
        illegal = jnp.isneginf(value.q[0])
        weight = real.astype(value.q.dtype)
        count = weight.sum()
        q = jnp.where(illegal, 0.0, value.q)
        mean = tensordot(weight, q, axes=1) / count
        deviations = q - mean
        products = einsum("n,n...a,n...b->...ab", weight, deviations, deviations)
        gap = jnp.max(jnp.where(real, value.gap, 0.0))
        unfinished = jnp.any(real & ~value.converged)
        # `converged` holds its opposite while chunks are merged: zeros, where the loop starts, are neutral.
        return DrawMoments(count, mean, products, illegal, unfinished, jnp.max(value.iterations), gap)

    moments = over_draws(statistics, _merge, key, posterior, num_draws, chunk)
    return moments._replace(converged=~moments.converged)


_draw_moments = jax.jit(draw_moments, static_argnames="chunk")


def _merge(one: DrawMoments, other: DrawMoments) -> DrawMoments:
    """The moments of two chunks together: the update of [CGL83].

    While chunks are merged, `converged` holds its opposite: the zeros of an empty chunk are then neutral.
    """
    # Merging in one pass without cancellation: the shift of the means carries what lies between the chunks.
    count = one.number + other.number
    share, shift = other.number / count, other.mean - one.mean
    products = one.products + other.products + one.number * share * shift[..., :, None] * shift[..., None, :]
    return DrawMoments(
        count,
        one.mean + share * shift,
        products,
        one.illegal | other.illegal,
        one.converged | other.converged,
        jnp.maximum(one.iterations, other.iterations),
        jnp.maximum(one.gap, other.gap),
    )


def by_draws(
    key: PRNGKeyArray, posterior: CanSample, policy: PolicyOrLabels, objective: Objective, *, num_draws: int = 1000
) -> ValueUncertainty:
    """Mean and variance of the values of a policy over sampled MDPs: for any belief, with cycles and shared parameters.

    Exact up to Monte Carlo error: with Gaussian values the relative standard error of a variance is
    sqrt(2 / num_draws), more where their tails are heavy (cycles with a discount near one). Host-side: compiles itself;
    draws are evaluated in chunks, so that memory does not grow with their number.

    Args:
        key: a typed key.
        posterior: any that can sample.
        policy: Int[*H S], Float[*H S A], a `Policy`, as in `planning.evaluate`, or by the posterior's labels.
        objective: `Discounted`, `Episodic` or `FirstExit`.
        num_draws: 2 or more.

    Raises:
        ValueError, TypeError: as `planning.evaluate`; `AverageReward`; a belief that cannot sample; the variance of a
            mean reward does not exist.
    """
    check_draws(key, posterior, num_draws, "exact.by_draws")
    require_variances(posterior)
    # Refuses the average reward, whose values are known but for a constant.
    discount_of(objective)
    probs = read_probs(posterior, policy, objective)
    moments = _draw_moments(key, posterior, probs, objective, num_draws, chunk=chunk_size(posterior, num_draws))
    covariance = moments.covariance
    q_variance = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    # Var V = pi' Cov(Q) pi: the policy mixes actions whose values are correlated.
    v_variance = einsum("...a,...ab,...b->...", probs, covariance, probs)
    # The relative standard error of a variance of n Gaussian numbers.
    error = (2.0 / num_draws) ** 0.5
    validity = Validity("exact", f"up to Monte Carlo error: {num_draws} draws, about {error:.1%} of a variance")
    q_mean = jnp.where(moments.illegal, -jnp.inf, moments.mean)
    v_mean = mean_over_actions(q_mean, probs)
    status = moments.converged, moments.iterations, moments.gap
    return ValueUncertainty(q_mean, v_mean, q_variance, v_variance, None, None, *status, validity)


class MonteCarloThompson(UsesDraws):
    """Gaussian Thompson sampling with mean and covariance of the values of the plan over sampled MDPs.

    The plan is optimal in the mean MDP; it is evaluated in `num_draws` sampled MDPs, and values are drawn from a
    Gaussian of their mean and covariance: joint over the actions of a state, or factored. For any belief that can
    sample and has a mean: shared parameters, mixtures, posterior samples.

    Args:
        num_draws: 2 or more. The covariance has rank num_draws - 1 at most.
        joint: with the covariances between the actions of a state, else with their variances alone.
        scale, noise, replan: as in `ThompsonAgent`.

    Raises:
        ValueError, TypeError: a number of draws below 2; `scale` is negative or not finite; another noise.
    """

    num_draws: int = eqx.field(default=30, static=True)
    joint: bool = eqx.field(default=True, static=True)
    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise)
        check_count("num_draws", self.num_draws, 2)
        check_bool("joint", self.joint)

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with mean and covariance of the values of the plan over sampled MDPs."""
        del mean
        assert isinstance(belief, CanSample)  # as `check_belief` checks
        key_draws, key_noise = jax.random.split(key)
        # One policy, that of the mean MDP, in all sampled MDPs: the covariance is over what is unknown, not over plans.
        probs = jax.nn.one_hot(plan.policy, problem.space.n_actions, dtype=plan.q.dtype)
        chunk = chunk_size(belief, self.num_draws)
        moments = draw_moments(key_draws, belief, probs, problem.objective, self.num_draws, chunk)
        q, covariance = moments.mean, moments.covariance
        return policy_with_covariance(key_noise, q, covariance, problem, self.noise, joint=self.joint, scale=self.scale)
