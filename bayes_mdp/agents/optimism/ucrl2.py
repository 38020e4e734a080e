"""Optimism over confidence sets of rows and rewards: UCRL2, and UCFH for episodes of a fixed length.

UCRL2: Jaksch, Ortner and Auer, *Near-optimal Regret Bounds for Reinforcement Learning*, JMLR 11, 2010 [UCRL10]; for
episodes with the constants of TabulaRL (Osband, public code). UCFH, with intervals for each component of a row: Dann
and Brunskill, *Sample Complexity of Episodic Fixed-Horizon Reinforcement Learning*, NeurIPS 2015 [UCFH15].
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.agents.common.mean_model import CountedBelief
from bayes_mdp.agents.common.replan import ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import Greedy
from bayes_mdp.mdp import (
    AverageReward,
    CanCount,
    CanMean,
    Discounted,
    Episodic,
    HasVariances,
    Objective,
    Problem,
)
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.objectives import require_objective
from bayes_mdp.planning.extended_mdp import Box, ExtendedMDP, L1Ball, outcome_probs, solve_extended
from bayes_mdp.planning.solution import Solution, no_plan
from bayes_mdp.utils.typing import AnyArray, Scalar
from bayes_mdp.utils.validation import check_finite, check_inside, check_name, check_not_negative, check_that

CONSTANTS = ("paper", "tabularl")
Pairs = Float[AnyArray, "*H S A"]
Known = Bool[Array, "*H S A"] | Bool[Array, ""]
"""What is known, pair by pair, or of all pairs."""

Rows = Float[Array, "*H S A O"]


def reward_radius(visits: Pairs, time: Scalar, delta: Scalar = 0.05, *, constants: str = "paper") -> Pairs:
    """Half-width of the confidence interval of a mean reward in [0, 1] (equation 3 of the paper). Traceable.

    "paper": sqrt(7 log(2 S A t / delta) / (2 max(1, N))); "tabularl": sqrt(4 log(2 S A (t + 1) / delta) / max(1, N)).

    Args:
        visits: N, [*H S A]; S and A are those of one step.
        time: t, at least 1: steps begun so far; "tabularl": episodes begun so far.
        delta: probability of failure, in (0, 1).
        constants: see above.

    Raises:
        ValueError: other constants, a delta outside (0, 1).
        TypeError: no number.
    """
    n_states, n_actions = _check(visits, delta, constants)
    if constants == "paper":
        # Equation 3: sqrt(7 log(2 S A t / delta) / (2 n)).
        variance = 3.5 * jnp.log(2 * n_states * n_actions * time / delta)
    else:
        variance = 4.0 * jnp.log(2 * n_states * n_actions * (time + 1) / delta)
    return jnp.sqrt(variance / jnp.maximum(visits, 1.0))


def transition_radius(
    visits: Pairs,
    time: Scalar,
    delta: Scalar = 0.05,
    *,
    n_outcomes: int | None = None,
    constants: str = "paper",
) -> Pairs:
    """L1 radius of the confidence set of a row (equation 4 of the paper). Traceable.

    "paper": sqrt(14 S log(2 A t / delta) / max(1, N)); "tabularl": sqrt(4 S log(2 S A (t + 1) / delta) / max(1, N)).

    Args:
        visits, time, delta, constants: as in `reward_radius`.
        n_outcomes: number of outcomes of a row in place of the factor S: one more where episodes can end.

    Raises:
        ValueError: as `reward_radius`.
        TypeError: no number.
    """
    n_states, n_actions = _check(visits, delta, constants)
    size = n_states if n_outcomes is None else n_outcomes
    if constants == "paper":
        # Equation 4: sqrt(14 S log(2 A t / delta) / n).
        variance = 14.0 * size * jnp.log(2 * n_actions * time / delta)
    else:
        variance = 4.0 * size * jnp.log(2 * n_states * n_actions * (time + 1) / delta)
    return jnp.sqrt(variance / jnp.maximum(visits, 1.0))


def _check(visits: Pairs, delta: Scalar, constants: str) -> tuple[int, int]:
    check_inside("delta", delta)
    check_name("constants", constants, CONSTANTS)
    shape = jnp.shape(visits)
    return shape[-2], shape[-1]


def known_pairs(belief: object) -> tuple[Known, Known]:
    """Which rows and which mean rewards are known: their variance is 0. Without `HasVariances`: none.

    Args:
        belief: any.

    Raises:
        ValueError: not inside a trace, a variance of a mean reward that does not exist.
    """
    if not isinstance(belief, HasVariances):
        return jnp.array(False), jnp.array(False)
    rows = belief.variance_factor("ratio") == 0
    rewards = belief.expected_reward_variance() == 0
    # A reward of (s, a, s') has a known mean only if the row that averages it is known too.
    return rows, rewards & rows if belief.rewards_by_outcome else rewards


def optimistic_reward(reward: Pairs, radius: Pairs, known: Known, max_reward: Scalar) -> Pairs:
    """The largest plausible mean reward, at most `max_reward`; where it is known, itself.

    Args:
        reward: mean reward.
        radius: of its interval.
        known: where the mean reward is known.
    """
    return jnp.where(known, reward, jnp.minimum(reward + radius, max_reward)).astype(reward.dtype)


def episode_number(visits: Pairs, horizon: int) -> Array:
    """Number of the current episode, a scalar, from 1 on; of a stationary belief exact if no episode has ended early.

    Args:
        visits: of every pair.
        horizon: H, steps of an episode.
    """
    # By step: the visits of the first step; else all visits over the steps of an episode.
    return 1.0 + (jnp.sum(visits[0]) if visits.ndim == 3 else jnp.floor(jnp.sum(visits) / horizon))


def confidence_set(
    belief: CountedBelief, objective: Objective, *, delta: Scalar, scale: Scalar, max_reward: Scalar
) -> ExtendedMDP:
    """The set over which `UCRL2` plans.

    phat, rhat and N are the posterior means and the visit counts of `belief`, as in TabulaRL: a Dirichlet prior whose
    concentration goes to 0 gives the paper's empirical estimates. Outcomes of mean probability 0 are impossible under
    the prior and stay so; known rows and rewards have radius 0.

    Args:
        objective: of the run.
        delta, scale, max_reward: as of `UCRL2`.

    Raises:
        TypeError: `belief` has no mean or no counts. ValueError: as `known_pairs`.
    """
    require_ability(belief, CanMean, "UCRL2")
    require_ability(belief, CanCount, "UCRL2")
    mean, visits = belief.mean_mdp(), belief.visit_counts()
    episodic = isinstance(objective, Episodic)
    time = episode_number(visits, objective.horizon) if isinstance(objective, Episodic) else 1.0 + jnp.sum(visits)
    constants = "tabularl" if episodic else "paper"
    # The optimistic MDP has the largest plausible rewards; rows are chosen from L1 balls inside the planner.
    probs = outcome_probs(mean)
    known_rows, known_rewards = known_pairs(belief)
    slack = scale * reward_radius(visits, time, delta, constants=constants)
    radius = scale * transition_radius(visits, time, delta, n_outcomes=probs.shape[-1], constants=constants)
    # Outcomes without mass in the mean row are impossible; known rows are balls of radius 0.
    rows = L1Ball(probs, jnp.where(known_rows, 0.0, radius).astype(probs.dtype), probs > 0)
    return ExtendedMDP(rows, optimistic_reward(mean.reward, slack, known_rewards, max_reward), mean.legal)


class UCRL2(eqx.Module):
    """Greedy for the plan that is best in the best MDP of a confidence set ([UCRL10] figure 1).

    `AverageReward` is the paper's objective. It and `Discounted` use the paper's radii with t the number of steps;
    `Episodic` those of TabulaRL with t the number of episodes, at every step of its own where the belief has a step
    axis. Extended value iteration stops where its bounds, on the gain or on the values, are less than 1 / sqrt(t)
    apart. The radii are wide (S = 6, A = 2, t = 10^4: up to 285 visits a set holds every row), and `scale`, which
    TabulaRL has too, makes them bind in small experiments, at the price of the guarantee.

    Args:
        delta: probability that a confidence set misses the truth, in (0, 1).
        scale: multiplies both radii (a leaf of the pytree: parameter sweeps can vmap over it).
        max_reward: upper bound on mean rewards; optimistic rewards are clipped there. The radii are those of rewards
            in [0, 1]: scale the rewards of other problems.
        replan: as in `PSRL`; "doubling" is the paper's. None: by the objective.

    Raises:
        ValueError: `delta` outside (0, 1), `scale` negative or not finite, `max_reward` not finite.
        TypeError: no number, no rule of replanning.
    """

    delta: float | Array = 0.05
    scale: float | Array = eqx.field(default=1.0, kw_only=True)
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default="doubling", converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_inside("delta", self.delta)
        check_not_negative("scale", self.scale)
        check_finite("max_reward", self.max_reward)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Solution | None:
        """No plan yet; the state is the last plan, for a warm start (none is needed for episodes).

        Raises:
            ValueError: `FirstExit`, or ends under `AverageReward`.
        """
        del key
        require_objective(problem.objective, "UCRL2", AverageReward, Discounted, Episodic)
        if isinstance(problem.objective, AverageReward) and problem.space.ends:
            raise ValueError("space.ends is True, expected False for UCRL2 under AverageReward")
        return no_plan(problem)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Solution | None, belief: CountedBelief
    ) -> tuple[Greedy, Solution | None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            TypeError, ValueError: as `confidence_set`.
        """
        del key
        objective = problem.objective
        plausible = confidence_set(belief, objective, delta=self.delta, scale=self.scale, max_reward=self.max_reward)
        # The paper's accuracy of the plan: 1 / sqrt(t).
        tolerance = 1.0 / jnp.sqrt(1.0 + jnp.sum(belief.visit_counts()))
        solution = solve_extended(plausible, objective, tolerance=tolerance, start=state)
        policy = Greedy(solution.q, problem.space.legal, best=solution.policy)
        return policy, None if state is None else solution


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
    # U_max, the number of updates of the set (section 3.1), and a union bound over components.
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
    # The standard deviation of one Bernoulli component, by its estimate.
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


def component_confidence_set(
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
    delta_of_component = component_delta(probs.shape, objective.horizon, delta, epsilon)
    lower, upper = component_interval(probs, visits, delta_of_component, scale=scale)
    # Known rows, and outcomes that are impossible under the prior, have intervals of width 0.
    fixed = known_rows[..., None] | (probs <= 0)
    # Intervals of components need no L1 ball: each limit is used as it is.
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
        check_finite("max_reward", self.max_reward)

    def init(self, key: PRNGKeyArray, problem: Problem) -> None:
        """Nothing is carried from plan to plan.

        Raises:
            ValueError: an objective other than `Episodic`.
        """
        del key
        require_objective(problem.objective, "UCFH", Episodic)

    def plan(self, key: PRNGKeyArray, problem: Problem, state: None, belief: CountedBelief) -> tuple[Greedy, None]:
        """Greedy for the optimistic plan; its q is the optimistic value. No random number is used.

        Raises:
            TypeError, ValueError: as `component_confidence_set`.
        """
        del key, state
        objective = require_objective(problem.objective, "UCFH", Episodic)
        plausible = component_confidence_set(
            belief,
            objective,
            delta=self.delta,
            epsilon=self.epsilon,
            scale=self.scale,
            max_reward=self.max_reward,
        )
        # No warm start: an episode is planned backwards once.
        return Greedy(solve_extended(plausible, objective).q, problem.space.legal), None
