"""Moment matching: the epistemic variance of Q by matching the first two moments of the Bellman equation.

[BMRL19] Markou and Rasmussen, *Bayesian methods for efficient reinforcement learning in tabular problems*, 2019,
here in closed form. [XIONG22] Xiong, Shen, Cui, Fazel and Du, *Near-Optimal Randomized Exploration for Tabular Markov
Decision Processes*, NeurIPS 2022: one random number for all pairs of a plan.
"""

from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.assumptions import RowPosterior, total_variance, validity
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.value_summary import ValueUncertainty
from bayes_mdp.agents.common.variance_equation import (
    Backup,
    Local,
    back_up,
    combined,
    compiled,
    discount_of,
    moments_of_plan,
    next_values,
    only_legal,
    over_components,
    problem_of,
    why_met_again,
)
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import NOISES, UsesRows, check_noise, gaussian_policy
from bayes_mdp.mdp import MDP, CanMean, Episodic, Objective, PolicyLike, PolicyOrLabels, Problem, SparseMDP
from bayes_mdp.mdp.abilities import can_split
from bayes_mdp.mdp.objectives import discounted_steps
from bayes_mdp.planning.policy_chain import action_values
from bayes_mdp.planning.solution import PolicyEvaluation, Solution
from bayes_mdp.utils.typing import RealScalar

SINGLE = "single"
_SWEEPS = 500  # of a draw with one random number; information travels one step in each
_SETTLED = 1e-5  # of the largest value that a draw may have: smaller changes end its sweeps

Sweep: TypeAlias = tuple[Int[Array, ""], Float[Array, "*H S"], Bool[Array, ""]]
"""Sweeps done, the values, whether they still change."""

_BOUND = "independent rows, no unknown pair is visited again; E[p] in place of E[p^2] can only add"


def value_variance(posterior: CanMean, policy: PolicyOrLabels, objective: Objective) -> ValueUncertainty:
    """Variance of the values of a policy by moment matching ([BMRL19]).

    b(s, a) = Var_pbar[m + discount Vbar] / (c0 + 1) + pbar . v (m only where rewards depend on the outcome), and
    s2 = b + discount^2 sum pbar pi s2. An upper bound of the posterior variance where rows are independent and no
    unknown pair can be visited twice (E[p_i] >= E[p_i^2], and the variance of a mean over actions is at most the mean
    of the variances), much tighter than the uncertainty Bellman equation; on cycles it is too small, often by far.

    Pure and traceable (under a trace nothing can be proven of cycles). A mixture is taken component by component, then
    by total variance.

    Args:
        posterior: with independent rows, or a mixture of such.
        policy: Int[*H S], Float[*H S A], a `Policy`, or by the posterior's labels. A stochastic one by the
            equation for pairs, above.
        objective: `Discounted`, `Episodic` or `FirstExit`.

    Raises:
        ValueError: rows that share parameters other than in a mixture, a variance that does not exist, `AverageReward`;
            as `planning.evaluate`. TypeError: an ability is missing.
    """
    mean, policy = problem_of(posterior, policy, objective, "moment_matching.value_variance")
    parts = _parts(posterior, policy, objective)
    again = why_met_again(posterior, mean, policy, objective)
    return combined(posterior, parts, validity("upper bound", _BOUND, again))


def _local(objective: Objective) -> Local:
    """b(s, a) of `value_variance`."""

    def local(posterior: RowPosterior, value: PolicyEvaluation | Solution) -> Float[Array, "*H S A"]:
        return _local_variance(posterior, value.v, objective)

    return local


def _local_variance(posterior: RowPosterior, v: Float[Array, "*H S"], objective: Objective) -> Float[Array, "*H S A"]:
    unknown_rows = jnp.asarray(posterior.transition_variance(next_values(v, objective), discount_of(objective)))
    return unknown_rows + posterior.expected_reward_variance()


def _back_up(posterior: CanMean, policy: PolicyLike, objective: Objective) -> Backup:
    return over_components(lambda belief: back_up(belief, _local(objective), policy, objective), posterior)


_parts = compiled(_back_up)


class MomentMatching(UsesRows):
    """Greedy for mean + scale * sd * noise: the mean of the posterior-mean MDP, the variance of `value_variance`.

    Args:
        scale, replan: as in `ThompsonAgent`.
        noise: "per_plan", "per_step": as in `ThompsonAgent`. "single": one standard normal number z for all pairs of a
            plan, inside the Bellman equation ([XIONG22]; `single_draw`). Independent numbers cancel along a way of
            many steps, and the variance is that of the plan that is best in the mean MDP: where that plan does not
            feel a distant reward, no scale makes the agent look for it. With one number uncertainty adds up along the
            way. It costs up to 500 sweeps a plan.

    Raises:
        ValueError: `scale` is negative or not finite; another noise.
    """

    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise, (*NOISES, SINGLE))

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with variance s2 of moment matching."""
        if self.noise == SINGLE:
            return self._single(key, problem, belief, plan)
        q, s2 = moments_of_plan(belief, _local(problem.objective), mean, plan, problem.objective)
        return gaussian_policy(key, q, self.scale * jnp.sqrt(s2), problem, self.noise)

    def _single(self, key: PRNGKeyArray, problem: Problem, belief: CanMean, plan: Solution) -> GaussianThompson:
        z = jax.random.normal(key, (), plan.v.dtype)
        mean, variance = single_draw(belief, self.scale * z, problem.objective, plan.v)
        legal = None if problem.space.legal is None else jnp.asarray(problem.space.legal)
        noise = jnp.full(mean.shape, z)
        return GaussianThompson(mean, self.scale * jnp.sqrt(variance), noise=noise, legal=legal)


def single_draw(
    belief: CanMean, z: RealScalar, objective: Objective, start: Float[Array, "*H S"]
) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
    """Mean and local variance of q one step ahead of the values of a draw with one random number. Traceable.

    The draw solves v(s) = max_a q(s, a), q = m + discount pbar . v + z sqrt(b(v)), with b of `value_variance` at the
    drawn v: every error of a row or a reward has the same sign and size in standard deviations, so that they add up
    along a way. As in [XIONG22] values are clipped: to those of mean rewards that are all |z| standard deviations away.
    The equation is no contraction: it is swept until the values settle, 500 times at most, from `start` on; exact for
    episodes, by H sweeps.

    Args:
        belief: with independent rows, or a mixture of such (mean and total variance over its components, one step).
        z: the number, times the scale of the noise.
        objective: `Discounted` or `Episodic`.
        start: values to begin with.
    """

    def one_step(v: Float[Array, "*H S"]) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
        parts = over_components(lambda each: _one_step(each, v, objective), belief)
        return total_variance(belief.weights, *parts) if can_split(belief) else parts

    # No reward of the draw is larger than this, so no value should be.
    size = jnp.max(over_components(lambda each: _largest_reward(each, z), belief))
    episodic = isinstance(objective, Episodic)
    top = size * discounted_steps(objective) if episodic else size / (1 - discount_of(objective))

    def body(loop: Sweep) -> Sweep:
        number, v, _ = loop
        q, variance = one_step(v)
        new = jnp.clip(jnp.max(q + z * jnp.sqrt(variance), axis=-1), -top, top).astype(v.dtype)
        return number + 1, new, jnp.max(jnp.abs(new - v)) > _SETTLED * top

    limit = objective.horizon if episodic else _SWEEPS  # after sweep k the last k steps of an episode are right
    begin = jnp.int32(0), start, jnp.asarray(True)
    _, v, _ = jax.lax.while_loop(lambda loop: (loop[0] < limit) & loop[2], body, begin)
    return one_step(v)


def _one_step(
    belief: RowPosterior, v: Float[Array, "*H S"], objective: Objective
) -> tuple[Float[Array, "*H S A"], Float[Array, "*H S A"]]:
    """Mean and variance of q of one component, for given values."""
    mean = belief.mean_mdp()
    variance = only_legal(_local_variance(belief, v, objective), mean)
    if not isinstance(objective, Episodic):
        return action_values(mean, v, discount_of(objective)), variance
    steps = jnp.arange(objective.horizon)
    discount = discount_of(objective)
    one = jax.vmap(lambda h, after: action_values(mean.at(h), after, discount))
    return one(steps, next_values(v, objective)), variance


def _largest_reward(belief: RowPosterior, z: RealScalar) -> Float[Array, ""]:
    mean = belief.mean_mdp()
    zero = jnp.zeros(mean.reward.shape[:-1], mean.reward.dtype)
    # |reward| of every possible outcome, by `row_bound` at values and a discount of zero.
    size = belief.row_bound(zero, 0.0) if belief.rewards_by_outcome else jnp.abs(mean.reward)
    return jnp.max(only_legal(size + jnp.abs(z) * jnp.sqrt(belief.expected_reward_variance()), mean))
