"""Gaussian Thompson sampling with the covariance of the values of the plan in closed form."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from bayes_mdp.agents.exact import value_covariance
from bayes_mdp.agents.factor import correlated_policy
from bayes_mdp.agents.policies import GaussianThompson
from bayes_mdp.agents.replan import ReplanRule, as_rule
from bayes_mdp.agents.thompson import UsesRows, check_thompson, plan_for_mean
from bayes_mdp.mdp import Problem
from bayes_mdp.mdp.validation import check_bool
from bayes_mdp.planning.solution import Solution


class CovarianceThompson(UsesRows):
    """Draw the values of the actions of a state from a Gaussian with mean and covariance of `exact.value_covariance`.

    The plan is optimal in the mean MDP. The covariance of its values is exact for a belief with rows of its own at
    every step, and where the policy is acyclic; on cycles it is that of independent copies (`allow_cycles`), too small.
    Actions that lead to the same states have correlated values: the `joint` draw does not count the uncertainty that
    they share as a reason to prefer one of them, a factored one does.

    Args:
        joint: with the covariances between the actions of a state, else with their variances alone.
        scale: zeta, of the noise (a leaf, so that sweeps vmap over it).
        noise: "held" for the length of a plan, or "fresh" at every step (see `thompson.gaussian_policy`).
        replan: as in `PSRL`.

    Raises:
        ValueError: `scale` is negative or not finite; another noise.
    """

    joint: bool = eqx.field(default=True, static=True)
    scale: float | Array = 1.0
    noise: str = eqx.field(default="held", static=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        check_bool("joint", self.joint)
        check_thompson(self.scale, self.noise)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: Any
    ) -> tuple[GaussianThompson, Solution | None]:
        """The policy, and the plan of the mean MDP.

        Raises:
            ValueError, TypeError: as `value_covariance`.
        """
        self.check_belief(belief)
        _, solution = plan_for_mean(problem, state, belief)
        answer = value_covariance(belief, solution.policy, problem.objective, allow_cycles=True)
        policy = correlated_policy(key, answer.q_mean, answer.q_covariance, problem, self)
        return policy, None if state is None else solution
