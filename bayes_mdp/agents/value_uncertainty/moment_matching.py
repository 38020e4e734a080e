"""Moment matching: the epistemic variance of Q by matching the first two moments of the Bellman equation.

[BMRL19] Markou and Rasmussen, *Bayesian methods for efficient reinforcement learning in tabular problems*, 2019,
here in closed form.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.assumptions import RowPosterior, validity
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
    over_components,
    problem_of,
    why_met_again,
)
from bayes_mdp.agents.value_uncertainty.gaussian_thompson import UsesRows, check_noise, gaussian_policy
from bayes_mdp.mdp import MDP, CanMean, Objective, PolicyLike, Problem, SparseMDP
from bayes_mdp.planning.solution import PolicyEvaluation, Solution

_BOUND = "independent rows, no unknown pair is visited again; E[p] in place of E[p^2] can only add"


def value_variance(posterior: CanMean, policy: PolicyLike, objective: Objective) -> ValueUncertainty:
    """Variance of the values of a policy by moment matching ([BMRL19]).

    b(s, a) = Var_pbar[m + discount Vbar] / (c0 + 1) + pbar . v (m only where rewards depend on the outcome), and
    s2 = b + discount^2 sum pbar pi s2. An upper bound of the posterior variance where rows are independent and no
    unknown pair can be visited twice (E[p_i] >= E[p_i^2], and the variance of a mean over actions is at most the mean
    of the variances), much tighter than the uncertainty Bellman equation; on cycles it is too small, often by far.

    Pure and traceable (under a trace nothing can be proven of cycles). A mixture is taken component by component, then
    by total variance.

    Args:
        posterior: with independent rows, or a mixture of such.
        policy: Int[*H S], Float[*H S A] or a `Policy`, as in `planning.evaluate`. A stochastic one by the equation
            for pairs, above.
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
        unknown_rows = posterior.transition_variance(next_values(value.v, objective), discount_of(objective))
        return unknown_rows + posterior.expected_reward_variance()

    return local


def _back_up(posterior: CanMean, policy: PolicyLike, objective: Objective) -> Backup:
    return over_components(lambda belief: back_up(belief, _local(objective), policy, objective), posterior)


_parts = compiled(_back_up)


class MomentMatching(UsesRows):
    """Greedy for mean + scale * sd * noise: the mean of the posterior-mean MDP, the variance of `value_variance`.

    Args:
        scale, noise, replan: as in `ThompsonAgent`.

    Raises:
        ValueError: `scale` is negative or not finite; another noise.
    """

    scale: float | Array = 1.0
    noise: str = eqx.field(default="per_plan", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_noise(self.noise)

    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """Thompson sampling with variance s2 of moment matching."""
        q, s2 = moments_of_plan(belief, _local(problem.objective), mean, plan, problem.objective)
        return gaussian_policy(key, q, self.scale * jnp.sqrt(s2), problem, self.noise)
