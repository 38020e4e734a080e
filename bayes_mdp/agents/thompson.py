"""What the agents with a Gaussian belief about Q share: the plan of the mean MDP, and noise that is held or fresh."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.optimism import blank_plan
from bayes_mdp.agents.policies import GaussianThompson
from bayes_mdp.agents.premise import require_rows
from bayes_mdp.agents.propagated import require_variances
from bayes_mdp.mdp import MDP, CanMean, CanSample, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.validation import check_name, check_not_negative
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution

NOISES = ("held", "fresh")


def check_thompson(scale: Any, noise: str) -> None:
    """Refuse options of a Gaussian Thompson agent.

    Raises:
        ValueError: `scale` is negative or not finite, `noise` is no word of `NOISES`.
    """
    check_not_negative("scale", scale)
    check_name("noise", noise, NOISES)


class PlansForMean(eqx.Module):
    """An agent that plans in the mean MDP of its belief."""

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, "an agent with variances of values")


class UsesRows(PlansForMean):
    """An agent whose variances have a closed form for independent rows, and mixtures of such."""

    def check_belief(self, belief: Any) -> None:
        """Refuse a belief without the variances that a plan needs (inside a trace: by its structure alone).

        Raises:
            ValueError: tied rows; a variance of a mean reward that does not exist. TypeError: an ability is missing.
        """
        require_rows(belief, type(self).__name__)
        require_variances(belief)


class UsesDraws(PlansForMean):
    """An agent whose variances are those of draws."""

    def check_belief(self, belief: Any) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its abilities alone).

        Raises:
            ValueError: a variance of a mean reward does not exist. TypeError: the belief cannot sample, or has no mean.
        """
        require_ability(belief, CanSample, type(self).__name__)
        require_ability(belief, CanMean, type(self).__name__)
        require_variances(belief)


def plan_for_mean(problem: Problem, state: Solution | None, belief: CanMean) -> tuple[MDP | SparseMDP, Solution]:
    """The mean MDP of the belief, and its optimal plan (warm-started from the last one)."""
    mean = belief.mean_mdp()
    return mean, solve(mean, problem.objective, start=state)


def gaussian_policy(
    key: PRNGKeyArray,
    mean: Float[Array, "*H S A"],
    sd: Float[Array, "*H S A"] | None,
    problem: Problem,
    noise: str,
    *,
    factor: Float[Array, "*H S A A"] | None = None,
) -> GaussianThompson:
    """Thompson sampling from Gaussian values: factored (`sd`) or joint over the actions of a state (`factor`).

    "held": one draw for the length of the plan; "fresh": a draw at every step ([UBE18] and [BMRL19] as printed, which
    explores far worse where many steps in a row must agree: SPEC Part 7 (6) of the project).
    """
    legal = None if problem.space.legal is None else jnp.asarray(problem.space.legal)
    policy = GaussianThompson(mean, sd, factor=factor, legal=legal)
    return policy.hold(key) if noise == "held" else policy
