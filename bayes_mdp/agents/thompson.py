"""What the agents with a Gaussian belief about Q share: the plan of the mean MDP, and noise that is held or fresh."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.policies import GaussianThompson
from bayes_mdp.mdp import MDP, CanMean, Discounted, Episodic, Problem, SparseMDP
from bayes_mdp.mdp.validation import is_concrete
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution

NOISES = ("held", "fresh")


def check_thompson(scale: Any, noise: str) -> None:
    """Refuse options of a Gaussian Thompson agent.

    Raises:
        ValueError: `scale` is negative or not finite, `noise` is no word of `NOISES`.
    """
    if is_concrete(scale) and not (np.isfinite(scale) and np.all(np.asarray(scale) >= 0)):
        raise ValueError(f"scale is {scale}, expected a finite number, zero or greater")
    if noise not in NOISES:
        raise ValueError(f"noise is {noise!r}, expected one of {', '.join(NOISES)}")


def no_plan(problem: Problem) -> Solution | None:
    """The state before any plan: None for episodes, which need no warm start.

    Raises:
        ValueError: an objective for which the variance of a value is not defined.
    """
    objective = problem.objective
    if isinstance(objective, Episodic):
        return None
    if not isinstance(objective, Discounted):
        kind = type(objective).__name__
        raise ValueError(f"objective is {kind}, expected Discounted or Episodic for an agent with variances of values")
    return Solution.blank(problem.space.shape, legal=problem.space.legal)


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
