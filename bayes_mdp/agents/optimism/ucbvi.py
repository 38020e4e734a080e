"""UCBVI: optimism by a bonus on the empirical model, values clipped by those of the plan before.

Azar, Osband and Munos, *Minimax Regret Bounds for Reinforcement Learning*, ICML 2017 [UCBVI17] (algorithms 1 to 4); the
"simplified" bonus is that of Osband's TabulaRL.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import (
    CountedBelief,
    MeanModel,
    mean_model,
    mean_reward_variance,
    reward_moments,
    row_variance_factor,
)
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.common.variance_equation import require_variances
from bayes_mdp.mdp import CanCount, CanMean, Episodic, HasVariances, Problem
from bayes_mdp.mdp.abilities import can_split, require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.utils.typing import IntScalar, RealScalar, Scalar
from bayes_mdp.utils.validation import (
    check_inside,
    check_name,
    check_not_negative,
    check_positive,
    check_that,
    check_whole,
    is_concrete,
    require,
)

BONUSES = ("bernstein", "hoeffding", "simplified")

Pairs = Float[Array, "*H S A"]
Bonus = Callable[[IntScalar, Float[Array, " S"]], Float[Array, "S A"]]


def log_factor(num_pairs: RealScalar, num_steps: RealScalar, delta: RealScalar) -> Float[Array, ""]:
    """L = ln(5 S A T / delta), T = K H the steps of all episodes.

    Args:
        num_pairs: S A.
        num_steps: T.
        delta: between 0 and 1.
    """
    return jnp.log(5.0 * num_pairs * num_steps / delta)


def hoeffding_bonus(visits: Pairs, log_term: Scalar, span: Scalar) -> Pairs:
    """b = 7 H L sqrt(1 / N) (algorithm 3, UCBVI-CH).

    Args:
        visits: N; where it is zero, that of one visit.
        log_term: L.
        span: H for rewards in [0, 1]: the length of the interval of returns.
    """
    return 7.0 * span * log_term / jnp.sqrt(jnp.maximum(visits, 1.0))


def bernstein_bonus(
    model: MeanModel,
    visits: Pairs,
    values: Float[Array, " S"],
    layer: IntScalar,
    *,
    log_term: Scalar,
    span: Scalar,
) -> Float[Array, "S A"]:
    """The bonus of UCBVI-BF at one step (algorithm 4), with V the values of the next step and p the mean rows.

    It is

        sqrt(8 L Var_p(V) / N) + 14 H L / (3 N) + sqrt(8 / N sum_y p(y) min(100^2 H^3 S^2 A L^2 / N'(y), H^2)).

    N'(y) are the visits of y at the next step, and the minimum is H^2 where there are none. Counts that all steps share
    are divided by H instead. The last step has no third term.

    Args:
        model: the mean model.
        visits: N, [*H S A].
        values: V.
        layer: the step, from 0 on.
        log_term: L.
        span: H times the length of the interval of rewards; the third term scales with it.
    """
    horizon, (num_states, num_actions) = model.horizon, visits.shape[-2:]
    n = jnp.maximum(model.at(visits, layer), 1.0)
    # Var_p(V) = E V^2 - (E V)^2, not negative up to rounding.
    mean = model.expected_next(values, layer)
    variance = jnp.maximum(model.expected_next(values**2, layer) - mean**2, 0.0)
    # N' of a state: its visits at the next step, by all actions.
    reached = visits.sum(-1)
    reached = reached / horizon if visits.ndim == 2 else reached[jnp.minimum(layer + 1, horizon - 1)]
    # 100^2 H^3 S^2 A L^2 = H^2 constant: min(H^2 constant / N', H^2), scaled by the range of rewards.
    constant = 100.0**2 * horizon * num_states**2 * num_actions * log_term**2
    error = span**2 * jnp.minimum(constant / jnp.maximum(reached, 1e-30), 1.0)
    # b' of algorithm 4: what the error of the next values adds to the variance; nothing after the last step.
    third = jnp.where(layer + 1 < horizon, model.expected_next(error, layer), 0.0)
    return jnp.sqrt(8.0 * log_term * variance / n) + 14.0 * span * log_term / (3.0 * n) + jnp.sqrt(8.0 * third / n)


def tabularl_bonus(variance_factor: Pairs, reward_variance: Pairs, number: IntScalar) -> tuple[Pairs, Pairs]:
    """TabulaRL's bonuses in episode k: sqrt(2 log(2 + k) / tau) of a reward, sqrt(2 log(2 + k) / c0) a step to go.

    Args:
        variance_factor: 1 / (c0 + 1); zero where the row is known, which has no bonus.
        reward_variance: 1 / tau, epistemic.
        number: k.
    """
    # 1 / c0 = f / (1 - f), f the variance factor.
    width = 2.0 * jnp.log(2.0 + number)
    return jnp.sqrt(width * reward_variance), jnp.sqrt(
        width * variance_factor / jnp.maximum(1.0 - variance_factor, 1e-6)
    )


def values_with_clipping(
    model: MeanModel, visits: Pairs, bonus: Bonus, ceiling: Scalar, previous: Float[Array, "H S A"]
) -> Float[Array, "H S A"]:
    """q of every step: min(Q_{k-1}, H, r + p . V + b) where N > 0, else H (algorithm 2).

    Args:
        model: the mean model.
        visits: N, [*H S A].
        bonus: (step, values of the next step) -> b.
        ceiling: H, for rewards of at most 1.
        previous: Q_{k-1}, values; H before any plan.
    """

    def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
        q = model.action_values(layer, values) + bonus(layer, values)
        # Values never rise from plan to plan: each plan is a valid upper bound, and so is their minimum.
        q = jnp.minimum(jnp.minimum(q, ceiling), previous[layer])
        return jnp.where(model.at(visits, layer) > 0, q, ceiling).astype(values.dtype)

    return model.backward(backup)


class UCBVIState(eqx.Module):
    """The state of `UCBVI`.

    Args:
        q: of the last plan; H times the largest reward at first.
        num_plans: made so far.
    """

    q: Float[Array, "H S A"]
    num_plans: Int[Array, ""]


class UCBVI(eqx.Module):
    """Greedy for optimistic values of the posterior-mean model [UCBVI17].

    Posterior means of rows and rewards stand for the paper's empirical ones: they are those where the concentrations
    of a Dirichlet prior go to 0. Its constants are for rows that all steps share, with known rewards; with rows of
    their own at every step S is the number of states of one step. With the literal constants values stay at H for far
    longer than small problems need: see `bonus_scale`, or bonus="simplified".

    Args:
        bonus: "bernstein" (UCBVI-BF), "hoeffding" (UCBVI-CH), or "simplified": r + p . V and the bonuses of
            `tabularl_bonus`, without clipping, as in TabulaRL.
        bonus_scale: multiplies the bonus (a leaf of the pytree: parameter sweeps can vmap over it); 1 is the paper's.
        delta: the probability of failure, between 0 and 1.
        num_episodes: K; None: the number of the plan, so that L grows as if every episode were the last.
        min_reward, max_reward: mean rewards lie between them; the paper has 0 and 1. `min_reward` is at most 0.
        replan: as in `PSRL`; every episode by default.

    Raises:
        ValueError: an option out of its range.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.UCBVI(),
        ...     bm.envs.riverswim_episodic(),
        ...     prior=bm.models.dirichlet_normal_gamma(),
        ...     objective=bm.Episodic(20),
        ...     num_episodes=3,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        60.0
    """

    bonus: str = eqx.field(default="bernstein", static=True)
    bonus_scale: float | Array = eqx.field(default=1.0, kw_only=True)
    delta: float | Array = eqx.field(default=0.05, kw_only=True)
    num_episodes: float | Array | None = eqx.field(default=None, kw_only=True)
    min_reward: float | Array = eqx.field(default=0.0, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_name("bonus", self.bonus, BONUSES)
        check_not_negative("bonus_scale", self.bonus_scale)
        check_inside("delta", self.delta)
        if self.num_episodes is not None:
            check_whole("num_episodes", self.num_episodes)
        check_positive("max_reward", self.max_reward)
        check_that("min_reward", self.min_reward, lambda x: np.isfinite(x) & (x <= 0), "a number, zero or less")

    def init(self, key: PRNGKeyArray, problem: Problem) -> UCBVIState:
        """Values H, no plan yet.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        horizon = require_objective(problem.objective, "UCBVI", Episodic).horizon
        shape = (horizon, *problem.space.shape[-2:])
        return UCBVIState(jnp.full(shape, horizon * self.max_reward, float), jnp.zeros((), jnp.int32))

    def check_belief(self, belief: object) -> None:
        """Refuse a belief without mean and counts, and a known reward outside `min_reward` to `max_reward`.

        Raises:
            TypeError: an ability is missing. ValueError: as said.
        """
        require_ability(belief, CanMean, "UCBVI")
        require_ability(belief, CanCount, "UCBVI")
        # TabulaRL's bonus needs concentrations and variances.
        if self.bonus == "simplified":
            row_variance_factor(belief, "UCBVI")
            require_variances(belief)
        if not isinstance(belief.components if can_split(belief) else belief, HasVariances):
            return
        assert isinstance(belief, CanMean)  # required above
        mean, variance, legal = reward_moments(belief)
        if is_concrete(mean, variance, self.min_reward, self.max_reward):
            reward, low, high = np.asarray(mean), np.min(self.min_reward), np.max(self.max_reward)
            # Only rewards known exactly can be checked; estimates may lie outside the range.
            known = (np.asarray(variance) == 0) & (True if legal is None else np.asarray(legal))
            outside = (reward < low - 1e-6) | (reward > high + 1e-6)
            expected = f"a mean reward from {low:g} to {high:g} (min_reward, max_reward)"
            require(outside & known, "reward", reward, expected)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: UCBVIState, belief: CountedBelief
    ) -> tuple[Greedy, UCBVIState]:
        """Greedy for the optimistic values, which are its q. No random number is used.

        Raises:
            TypeError: `belief` has no mean or no counts. ValueError: another objective.
        """
        del key
        require_ability(belief, CanCount, "UCBVI")
        model, number = mean_model(belief, problem.objective, "UCBVI"), state.num_plans + 1
        simplified = self.bonus == "simplified"
        q = (
            self._values_without_clipping(model, belief, number)
            if simplified
            else self._values_with_clipping(model, belief, number, state.q)
        )
        return Greedy(q, problem.space.legal), UCBVIState(q.astype(state.q.dtype), number)

    def _values_with_clipping(
        self, model: MeanModel, belief: CanCount, number: IntScalar, previous: Float[Array, "H S A"]
    ) -> Float[Array, "H S A"]:
        visits = jnp.asarray(belief.visit_counts(), model.reward.dtype)
        horizon, (num_states, num_actions) = model.horizon, visits.shape[-2:]
        # T = K H with the number of episodes so far, where it is not given.
        episodes = number if self.num_episodes is None else self.num_episodes
        log_term = log_factor(num_states * num_actions, horizon * episodes, self.delta)
        span = horizon * (self.max_reward - self.min_reward)

        def bonus(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
            # Hoeffding: a bonus by visits alone; Bernstein by the variance of the next values too.
            if self.bonus == "hoeffding":
                return self.bonus_scale * hoeffding_bonus(model.at(visits, layer), log_term, span)
            return self.bonus_scale * bernstein_bonus(model, visits, values, layer, log_term=log_term, span=span)

        return values_with_clipping(model, visits, bonus, horizon * self.max_reward, previous)

    def _values_without_clipping(
        self, model: MeanModel, belief: CountedBelief, number: IntScalar
    ) -> Float[Array, "H S A"]:
        factor, variance = row_variance_factor(belief, "UCBVI"), mean_reward_variance(belief)
        # Bonuses of rewards and of rows, scaled alike.
        of_reward, of_row = (self.bonus_scale * x for x in tabularl_bonus(factor, variance, number))

        def backup(layer: IntScalar, values: Float[Array, " S"]) -> Float[Array, "S A"]:
            reward = model.at(model.reward + of_reward, layer)
            to_go = model.horizon - 1.0 - layer
            # No clipping: an unvisited pair keeps its large bonus.
            q = reward + model.expected_next(values, layer) + to_go * model.at(of_row, layer)
            return q.astype(values.dtype)

        return model.backward(backup)
