"""UCFH: optimism over component-wise confidence intervals of rows, for episodes of a fixed length.

Dann and Brunskill 2015, *Sample Complexity of Episodic Fixed-Horizon Reinforcement Learning*, NeurIPS [UCFH15].
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.optimism_terms import check_inside, check_value
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.agents.optimism.counted_belief import CountedBelief
from bayes_mdp.agents.optimism.ucrl2 import (
    episode_number,
    known_pairs,
    optimistic_reward,
    reward_radius,
)
from bayes_mdp.mdp import CanCount, CanMean, Episodic, Objective, Problem
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.planning.optimistic.extended import ExtendedMDP, solve_extended
from bayes_mdp.planning.optimistic.transition_sets import Box, outcome_probs
from bayes_mdp.utils.typing import Scalar
from bayes_mdp.utils.validation import check_not_negative, check_that

Pairs = Float[Array, "*H S A"]
Rows = Float[Array, "*H S A O"]


def component_delta(
    shape: tuple[int, ...], horizon: int, delta: Scalar = 0.05, epsilon: Scalar = 0.1
) -> Float[Array, ""]:
    """delta_1, the probability that one component leaves its interval at one update (section 3.1 of the paper).

    w_min = epsilon / (4 S H), U = S A log2(S H / w_min), delta_1 = delta / (2 U O).

    Args:
        shape: (*H, S, A, O), that of the rows; a step axis multiplies U by H, for every step has pairs of its own.
        horizon: H.
        delta: chance of failure, in (0, 1).
        epsilon: target accuracy, in (0, 1] (theorem 1).

    Raises:
        ValueError: `delta` or `epsilon` outside its range.
        TypeError: no number.
    """
    check_inside("delta", delta)
    _check_epsilon(epsilon)
    n_states = shape[-3]
    least_weight = epsilon / (4 * n_states * horizon)
    updates = math.prod(shape[:-1]) * jnp.log2(n_states * horizon / least_weight)
    return delta / (2 * updates * shape[-1])


def component_interval(
    probs: Rows, visits: Pairs, component_delta: Scalar, *, scale: Scalar = 1.0
) -> tuple[Rows, Rows]:
    """Lower and upper limits of every component of a row (algorithm 2 of the paper, ConfidenceSet). Traceable.

    With L = log(6 / delta_1): p must satisfy |p - phat| <= sqrt(2 phat (1 - phat) L / (n - 1)) + 7 L / (3 (n - 1)) and
    |sd(p) - sd(phat)| <= sqrt(2 L / (n - 1)), sd(p) = sqrt(p (1 - p)). The second excludes a middle piece of [0, 1]
    where sd(phat) is small, and two end pieces where it is large. Returned is the smallest interval that holds the
    intersection of all (TabulaRL uses the end pieces alone); phat lies in it. Where n <= 1, all of [0, 1].

    Args:
        probs: phat, [*H S A O].
        visits: n, [*H S A].
        component_delta: delta_1, as `component_delta` gives it.
        scale: of both widths.
    """
    # L / (n - 1), which both inequalities use.
    n = visits[..., None] - 1.0
    rate = jnp.log(6.0 / component_delta) / jnp.where(n > 0, n, 1.0)
    sd = jnp.sqrt(probs * (1.0 - probs))
    width = scale * jnp.sqrt(2.0 * rate)
    # First inequality, empirical Bernstein.
    bernstein = sd * width + scale * 7.0 / 3.0 * rate
    lower, upper = probs - bernstein, probs + bernstein
    # Second inequality, on sd(p): p stays `outer` away from 0 and 1, and outside the middle piece.
    outer, inner = _root(jnp.maximum(sd - width, 0.0)), _root(jnp.minimum(sd + width, 0.5))
    lower, upper = jnp.maximum(lower, outer), jnp.minimum(upper, 1.0 - outer)
    # [inner, 1 - inner] is excluded: a limit inside it moves to its far edge.
    lower, upper = (
        jnp.where(lower > inner, jnp.maximum(lower, 1.0 - inner), lower),
        jnp.where(upper < 1.0 - inner, jnp.minimum(upper, inner), upper),
    )
    # Rounding alone could push phat itself out.
    lower, upper = jnp.clip(lower, 0.0, probs), jnp.clip(upper, probs, 1.0)
    return jnp.where(n > 0, lower, 0.0), jnp.where(n > 0, upper, 1.0)


def _root(sd: Rows) -> Rows:
    """The p <= 1/2 with sqrt(p (1 - p)) = sd, without cancellation."""
    return 2.0 * sd**2 / (1.0 + jnp.sqrt(jnp.maximum(1.0 - 4.0 * sd**2, 0.0)))


def _check_epsilon(epsilon: Scalar) -> None:
    check_that("epsilon", epsilon, lambda x: (x > 0) & (x <= 1), "a number greater than 0 and at most 1")


def confidence_set(
    belief: CountedBelief,
    objective: Episodic,
    *,
    delta: Scalar,
    epsilon: Scalar,
    scale: Scalar,
    max_reward: Scalar,
) -> ExtendedMDP:
    """The set over which `UCFH` plans; estimates, counts and known pairs as in `ucrl2`.

    Args:
        belief: with mean and counts.
        objective: `Episodic`.
        delta, epsilon, scale, max_reward: as of `UCFH`.

    Raises:
        TypeError: `belief` has no mean or no counts. ValueError: as `ucrl2.known_pairs`.
    """
    require_ability(belief, CanMean, "UCFH")
    require_ability(belief, CanCount, "UCFH")
    mean, visits = belief.mean_mdp(), jnp.asarray(belief.visit_counts())
    probs = outcome_probs(mean)
    known_rows, known_rewards = known_pairs(belief)
    each = component_delta(probs.shape, objective.horizon, delta, epsilon)
    lower, upper = component_interval(probs, visits, each, scale=scale)
    # Known rows, and outcomes that are impossible under the prior, have intervals of width 0.
    fixed = known_rows[..., None] | (probs <= 0)
    rows = Box(jnp.where(fixed, probs, lower).astype(probs.dtype), jnp.where(fixed, probs, upper).astype(probs.dtype))
    time = episode_number(visits, objective.horizon)
    slack = scale * reward_radius(visits, time, delta, constants="tabularl")
    return ExtendedMDP(rows, optimistic_reward(mean.reward, slack, known_rewards, max_reward), mean.legal)


class UCFH(eqx.Module):
    """Greedy for the plan that is best over component-wise confidence sets ([UCFH15] algorithm 1).

    Two departures. Rewards are known in the paper; unknown ones get the interval of UCRL2 with TabulaRL's constants, as
    there. The paper plans with counts that it updates when they have doubled, and no more after a number m of visits;
    here every plan uses all visits, at times set by `replan` ("doubling" is nearest to the paper).

    Args:
        delta: chance of failure, in (0, 1).
        epsilon: target accuracy, in (0, 1]; it enters delta_1 alone.
        scale: multiplies all widths, as in `UCRL2` (a leaf of the pytree).
        max_reward: as in `UCRL2`.
        replan: as in `PSRL`.

    Raises:
        ValueError: `delta`, `epsilon` outside their ranges, `scale` negative or not finite, `max_reward` not finite.
        TypeError: no number, no rule of replanning.
    """

    delta: float | Array = 0.05
    epsilon: float | Array = 0.1
    scale: float | Array = eqx.field(default=1.0, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=None, converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_inside("delta", self.delta)
        _check_epsilon(self.epsilon)
        check_not_negative("scale", self.scale)
        check_value("max_reward", self.max_reward)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """Nothing is carried from plan to plan.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        _episodic(problem.objective)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: CountedBelief) -> tuple[Greedy, None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            TypeError, ValueError: as `confidence_set`.
        """
        del key, state
        objective = _episodic(problem.objective)
        plausible = confidence_set(
            belief,
            objective,
            delta=self.delta,
            epsilon=self.epsilon,
            scale=self.scale,
            max_reward=self.max_reward,
        )
        return Greedy(solve_extended(plausible, objective).q, problem.space.legal), None


def _episodic(objective: Objective) -> Episodic:
    if not isinstance(objective, Episodic):
        raise ValueError(f"objective is {type(objective).__name__}, expected Episodic for UCFH")
    return objective
