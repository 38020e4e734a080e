"""Thompson sampling from a Gaussian belief about Q: the base of the agents that plan in the mean MDP of their belief.

Every such agent computes the optimal plan of the mean MDP, and mean and variance (or covariance) of the values of that
plan by its own method, and acts greedily for a Gaussian draw of them: factored over actions, or joint.
"""

import abc
from typing import TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import blank_plan
from bayes_mdp.agents.common.table_policies import GaussianThompson
from bayes_mdp.agents.common.variance_equation import require_rows, require_variances
from bayes_mdp.mdp import MDP, CanMean, CanSample, Problem, SparseMDP
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning import solve
from bayes_mdp.planning.solution import Solution
from bayes_mdp.utils.typing import IntScalar, Scalar
from bayes_mdp.utils.validation import check_name, check_not_negative

NOISES = ("per_plan", "per_step")

Carry: TypeAlias = tuple[Float[Array, "*B A A"], Float[Array, "*B A A"]]
"""What is left of the covariance, and the columns of its factor so far."""


class ThompsonAgent(eqx.Module):
    """An agent that plans in the mean MDP of its belief and samples the values of that plan.

    Args:
        scale: zeta, a factor of the noise, zero or greater (an array leaf, so that sweeps vmap over it).

    Raises:
        ValueError: `scale` is negative or not finite. TypeError: no number.
    """

    scale: eqx.AbstractVar[float | Array]

    def __check_init__(self) -> None:
        check_not_negative("scale", self.scale)

    @abc.abstractmethod
    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use."""

    @abc.abstractmethod
    def policy(
        self, key: PRNGKeyArray, problem: Problem, belief: CanMean, mean: MDP | SparseMDP, plan: Solution
    ) -> GaussianThompson:
        """The Gaussian policy for the values of `plan`, which is optimal in the `mean` MDP of `belief`.

        Args:
            key: of the draws and of the noise.
            problem: what is known of the MDP before any data.
        """

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Args:
            key: not used.
            problem: what is known of the MDP before any data.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        return blank_plan(problem, "an agent with variances of values")

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CanMean
    ) -> tuple[GaussianThompson, Solution | None]:
        """The policy, and the plan of the mean MDP.

        Args:
            key: of the draws and of the noise.
            problem: what is known of the MDP before any data.
            state: the last plan.
            belief: as `check_belief` accepts it.

        Raises:
            ValueError, TypeError: as `check_belief`.
        """
        self.check_belief(belief)
        mean = belief.mean_mdp()
        # Mean values by planning in the mean MDP, from the last plan on; their spread is the method's own (`policy`).
        solution = solve(mean, problem.objective, start=state)
        policy = self.policy(key, problem, belief, mean, solution)
        return policy, None if state is None else solution


def check_noise(noise: str, words: tuple[str, ...] = NOISES) -> None:
    """Refuse another word than "per_plan", one draw for the length of a plan, and "per_step" (`gaussian_policy`).

    Args:
        noise: the word.
        words: those that an agent has.

    Raises:
        ValueError: another word.
    """
    check_name("noise", noise, words)


class UsesRows(ThompsonAgent):
    """Base of agents whose variances have a closed form: for independent rows, and mixtures of such."""

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without the variances that a plan needs (inside a trace: by its structure alone).

        Raises:
            ValueError: rows that share parameters; a variance of a mean reward that does not exist. TypeError: an
                ability is missing.
        """
        require_rows(belief, type(self).__name__)
        require_variances(belief)


class UsesDraws(ThompsonAgent):
    """Base of agents whose variances are those over sampled MDPs: for any belief."""

    def check_belief(self, belief: object) -> None:
        """Refuse a belief that a plan cannot use (inside a trace: by its abilities alone).

        Raises:
            ValueError: a variance of a mean reward does not exist. TypeError: the belief cannot sample, or has no mean.
        """
        require_ability(belief, CanSample, type(self).__name__)
        require_ability(belief, CanMean, type(self).__name__)
        require_variances(belief)


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

    Args:
        key: of the noise of the plan ("per_plan").
        mean: expected q.
        sd: standard deviation of q; None: `factor` is given.
        problem: whose illegal actions are masked.
        noise: "per_plan": one draw for the length of the plan; "per_step": a draw at every step ([UBE18] and [BMRL19]
            as printed, which explores far worse where many steps in a row must agree).
        factor: L with L L' the covariance of the actions of a state.
    """
    policy = GaussianThompson(mean, sd, factor=factor, legal=problem.space.legal)
    return policy.hold(key) if noise == "per_plan" else policy


def semidefinite_factor(covariance: Float[Array, "*B A A"]) -> Float[Array, "*B A A"]:
    """Lower triangular L with L L' = `covariance`, which is symmetric and positive semidefinite up to rounding.

    Cholesky's recursion in which a pivot that is zero to within rounding gives a column of zeros: the exact factor of a
    singular covariance, where `jnp.linalg.cholesky` returns nan. No jitter: variances of zero stay zero.
    """
    size = covariance.shape[-1]
    rows = jnp.arange(size)
    scale = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    # A pivot below this is rounding: the direction has no variance left.
    floor = 8 * size * float(jnp.finfo(covariance.dtype).eps) * scale

    def body(k: IntScalar, state: Carry) -> Carry:
        # Column k: that of the rest divided by the root of its pivot; then subtract its outer product from the rest.
        rest, factor = state
        column = jnp.where(rows >= k, rest[..., k], 0.0)
        pivot = column[..., k]
        positive = pivot > floor[..., k]
        column = column / jnp.sqrt(jnp.where(positive, pivot, 1.0))[..., None]
        # No entry of a column exceeds the standard deviation of its row, whatever rounding did to the pivot.
        bound = jnp.sqrt(jnp.maximum(scale, 0.0))
        column = jnp.where(positive[..., None], jnp.clip(column, -bound, bound), 0.0)
        rest = rest - column[..., :, None] * column[..., None, :]
        return rest, factor.at[..., k].set(column)

    return lax.fori_loop(0, size, body, (covariance, jnp.zeros_like(covariance)))[1]


def policy_with_covariance(
    key: PRNGKeyArray,
    mean: Float[Array, "*H S A"],
    covariance: Float[Array, "*H S A A"],
    problem: Problem,
    noise: str,
    *,
    joint: bool,
    scale: Scalar,
) -> GaussianThompson:
    """Gaussian Thompson sampling with the covariances between the actions of a state (`joint`), or without.

    Args:
        key: of the noise.
        mean: expected q.
        covariance: of values between the actions of a state.
        problem: whose illegal actions are masked.
        noise: "per_plan" or "per_step", as of `gaussian_policy`.
        joint: whether the actions of a state are drawn together, with their covariances.
        scale: of the standard deviation.
    """
    if joint:
        # Cholesky's factor of a matrix that may be singular: actions that differ by nothing unknown share their noise.
        factor = scale * semidefinite_factor(covariance)
        return gaussian_policy(key, mean, None, problem, noise, factor=factor)
    sd = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    return gaussian_policy(key, mean, scale * sd, problem, noise)
