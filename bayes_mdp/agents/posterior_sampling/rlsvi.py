"""RLSVI: randomized least-squares value iteration, tabular ([RLSVI16], [RLSVI19])."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.learner import episode_length
from bayes_mdp.agents.common.optimism_terms import check_above_zero
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.numerics.products import matmul
from bayes_mdp.planning import backward_induction
from bayes_mdp.utils.typing import AnyArray, IntScalar, Scalar


class RegressionData(eqx.Module):
    """Data statistics of every pair; with axis H where the space has a horizon, else all steps share their data.

    Args:
        successors: Float[*H S A S], count of each next state (ends excluded).
        visits: Float[*H S A].
        reward: Float[*H S A], the sum of the rewards.
    """

    successors: Float[Array, "*H S A S"]
    visits: Float[Array, "*H S A"]
    reward: Float[Array, "*H S A"]

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "RegressionData":
        """No data yet; `shape` is [*H S A]."""
        return cls(jnp.zeros((*shape, shape[-2])), jnp.zeros(shape), jnp.zeros(shape))

    def observed(self, problem: Problem, transition: Transitions, weight: Scalar = 1.0) -> "RegressionData":
        """The data with one transition more; unchanged where `weight` is 0.

        Args:
            problem: whose space is looked at.
            transition: one.
        """
        cell, counted = transition.cell(problem.space), jnp.asarray(weight) != 0
        continues = weight if transition.terminated is None else jnp.where(transition.terminated, 0.0, weight)
        return RegressionData(
            self.successors.at[(*cell, transition.next_state)].add(continues),
            self.visits.at[cell].add(weight),
            self.reward.at[cell].add(jnp.where(counted, weight * jnp.asarray(transition.reward), 0.0)),
        )


def randomized_values(
    key: PRNGKeyArray,
    data: RegressionData,
    horizon: int,
    *,
    noise: Scalar = 1.0,
    regularization: Scalar = 1.0,
    legal: Bool[AnyArray, "S A"] | None = None,
) -> Float[Array, "H S A"]:
    """One draw of the values of RLSVI, from the last step of an episode to the first. Traceable.

    Q_h(s, a) ~ N((sum_i y_i / noise^2) / (n / noise^2 + regularization), 1 / (n / noise^2 + regularization)), with
    y_i = r_i + max_a' Q_{h+1}(s'_i, a') over the n transitions from (s, a): Bayesian linear regression with one feature
    per pair. Nothing follows an end or the last step.

    Args:
        key: of the draw.
        data: its statistics.
        horizon: H.
        noise: standard deviation that the regression assumes of y given its mean, in units of the reward.
        regularization: precision of the prior N(0, 1 / regularization) of every value.
        legal: Bool[S A], or None; the others get -inf.
    """
    layered, mask = data.visits.ndim == 3, None if legal is None else jnp.asarray(legal)

    # One feature per pair: the regression is diagonal, so the posterior of each Q(s, a) is a scalar normal law.
    def backup(values: Float[Array, " S"], layer: IntScalar) -> Float[Array, "S A"]:
        now = jax.tree.map(lambda x: x[layer], data) if layered else data
        # sum_i y_i, from sufficient statistics: sum of rewards + sum_s' count(s') V(s').
        total = now.reward + matmul(now.successors, values)
        # Mean and variance, both multiplied by noise^2 / noise^2: weight = n + regularization noise^2.
        weight = now.visits + regularization * noise**2
        z = jax.random.normal(jax.random.fold_in(key, layer), total.shape, total.dtype)
        return total / weight + noise / jnp.sqrt(weight) * z

    return backward_induction(backup, horizon, data.visits.shape[-2], legal=mask)


class RLSVI(eqx.Module):
    """Greedy for one draw of `randomized_values`, drawn anew for every plan. The agent keeps its own data statistics.

    From [RLSVI16].

    Args:
        noise, regularization: as in `randomized_values`. The prior is N(0, 1 / regularization): it makes an unseen pair
            attractive only where 1 / sqrt(regularization) is not small beside the returns.
        replan: as in `PSRL`.

    Raises:
        ValueError: `noise` or `regularization` is not greater than zero.
        TypeError: no number, no rule of replanning.
    """

    noise: float | Array = 1.0
    regularization: float | Array = 1.0
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule)

    def __check_init__(self) -> None:
        for name in ("noise", "regularization"):
            check_above_zero(name, getattr(self, name))

    def init(self, key: PRNGKeyArray, problem: Problem) -> RegressionData:
        """No data.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        episode_length(problem, "RLSVI")
        return RegressionData.empty(problem.space.shape)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: RegressionData, belief: object = None
    ) -> tuple[Greedy, RegressionData]:
        """Greedy for a new draw; the data are unchanged."""
        del belief
        q = randomized_values(
            key,
            state,
            episode_length(problem, "RLSVI"),
            noise=self.noise,
            regularization=self.regularization,
            legal=problem.space.legal,
        )
        return Greedy(q), state

    def observe(
        self, problem: Problem, state: RegressionData, transition: Transitions, weight: Scalar = 1.0
    ) -> RegressionData:
        """The data with one transition more; unchanged where `weight` is 0."""
        return state.observed(problem, transition, weight)
