"""Q-learning with a table of values (Watkins 1989), and its variants: one update with three variable parts.

    q(s, a) <- q(s, a) + alpha (r + b + discount v(s') - q(s, a)),   q = `initial value` at first

alpha is the learning rate, b a bonus (0 but in IEQL+ and the bonus methods), v(s') the value of the next state (the
largest q; in soft Q-learning a log-sum-exp). Nothing follows an end. Under `Episodic(H)` the table has a step axis, the
target of step h is taken from step h + 1, and nothing follows step H.

[OIM08] Szita and Lorincz, *The Many Faces of Optimism*, ICML 2008, compares most of them. The exact forms of IEQL+
(Meuleau and Bourgine 1999) and of the variance- and error-bonus methods were not available: they are reconstructed, and
results may differ from the originals.
"""

import abc
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.common.learner import Place, first_table, move_towards, place_of, table_shape
from bayes_mdp.agents.common.mean_model import effective_horizon, warn_of_lost_optimism
from bayes_mdp.agents.common.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.agents.common.table_policies import EpsilonGreedy, Greedy, TablePolicy
from bayes_mdp.mdp import Objective, Problem, Transitions
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.typing import BoolScalar, Index, Numbers, RealScalar, Scalar
from bayes_mdp.utils.validation import (
    check_finite,
    check_fraction,
    check_inside,
    check_not_negative,
    check_positive,
    check_that,
    is_concrete,
    require,
)

Table = Float[Array, "*H S A"]


def bellman_target(
    place: Place, q: Table, reward: Scalar, value: Callable[[Float[Array, " A"]], Float[Array, ""]] = jnp.max
) -> Float[Array, ""]:
    """reward + discount v(s'), 0 in place of v(s') where nothing follows; `value` makes v(s') of the row q(s', .).

    Args:
        place: of the transition.
        q: the table.
        reward: of the transition.
    """
    # Nothing follows an end: the value beyond it is zero.
    return reward + place.discount * jnp.where(place.ended, 0.0, value(q[place.next_row]))


def check_half_life(value: object, what: str) -> None:
    """Refuse a half-life that is not greater than zero.

    Args:
        value: in steps; infinity: `what` stays.

    Raises:
        ValueError: it is not.
        TypeError: no number.
    """
    check_that("half_life", value, lambda x: x > 0, f"a number greater than zero (infinity: {what} stays)")


class TabularQ(eqx.Module):
    """Base of the methods whose state is the table alone; subclasses set learning rate, initial value and policy.

    Args:
        learning_rate: in [0, 1].
    """

    learning_rate: eqx.AbstractVar[float | Array]

    @property
    @abc.abstractmethod
    def first_value(self) -> Scalar:
        """Initial value of every entry."""

    @abc.abstractmethod
    def policy(self, q: Table) -> TablePolicy:
        """The policy for a table `q`."""

    def state_value(self, q: Float[Array, " A"]) -> Float[Array, ""]:
        """v(s') of the target, from the row `q` of the table: its maximum."""
        return jnp.max(q)

    def init(self, key: PRNGKeyArray, problem: Problem) -> Table:
        """The initial table, -inf where an action is illegal.

        Args:
            key: not used.
            problem: sizes, legal actions and objective.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        del key
        return first_table(problem, self.first_value, type(self).__name__)

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: Table, belief: object = None
    ) -> tuple[TablePolicy, Table]:
        """The policy of the table, which is unchanged.

        Args:
            key, problem, belief: not used.
            state: the table.
        """
        del key, problem, belief
        return self.policy(state), state

    def observe(self, problem: Problem, state: Table, transition: Transitions, weight: Scalar = 1.0) -> Table:
        """The table after one transition; unchanged where `weight` is 0.

        Args:
            problem: sizes and objective.
            state: the table.
            transition: one.
        """
        # [Q89]: Q(s, a) += alpha (r + discount v(s') - Q(s, a)); v(s') is zero after an end.
        place = place_of(problem, transition)
        # The maximum of the next row (Q-learning), or what a subclass takes for it.
        target = bellman_target(place, state, jnp.asarray(transition.reward), self.state_value)
        return move_towards(state, place.pair, target, self.learning_rate, weight)


class EpsilonGreedyQ(TabularQ):
    """Q-learning [Q89] with a constant learning rate; actions are epsilon-greedy.

    Args:
        learning_rate: in [0, 1].
        epsilon: in [0, 1].
        initial_q: initial value of every entry; optimistic where it is large.
        replan: when the policy is updated; every step by default.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.

    Example:
        >>> result = bm.run(
        ...     bm.agents.EpsilonGreedyQ(learning_rate=0.2, epsilon=0.1),
        ...     bm.envs.chain(),
        ...     objective=bm.Discounted(0.9),
        ...     num_steps=50,
        ...     key=jax.random.key(0),
        ...     options=bm.experiments.RunOptions(progress=False),
        ... )
        >>> float(result.visits.sum())
        50.0
    """

    learning_rate: float | Array = 0.1
    epsilon: float | Array = 0.1
    initial_q: float | Array = 0.0
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_fraction("epsilon", self.epsilon)
        check_finite("initial_q", self.initial_q)

    @property
    def first_value(self) -> Scalar:
        """`initial_q`."""
        return self.initial_q

    def policy(self, q: Table) -> EpsilonGreedy:
        """Epsilon-greedy for the table."""
        return EpsilonGreedy(q, self.epsilon)


class TimedTable(eqx.Module):
    """The state of `AnnealedQ`.

    Args:
        q: [*H S A], -inf where an action is illegal.
        time: steps so far.
    """

    q: Table
    time: Float[Array, ""]


class AnnealedQ(eqx.Module):
    """`EpsilonGreedyQ` whose epsilon is epsilon 2^(-t / half_life) after t steps; the schedule is ours ([OIM08]).

    Args:
        learning_rate, initial_q, replan: as in `EpsilonGreedyQ`.
        epsilon: initial value, in [0, 1].
        half_life: steps in which epsilon halves; infinity: it stays.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.
    """

    learning_rate: float | Array = 0.1
    epsilon: float | Array = 1.0
    half_life: float | Array = 1000.0
    initial_q: float | Array = eqx.field(default=0.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        _ = self._table
        check_half_life(self.half_life, "epsilon")

    @property
    def _table(self) -> EpsilonGreedyQ:
        return EpsilonGreedyQ(self.learning_rate, self.epsilon, self.initial_q)

    def init(self, key: PRNGKeyArray, problem: Problem) -> TimedTable:
        """The first values. Raises as `EpsilonGreedyQ.init`."""
        return TimedTable(self._table.init(key, problem), jnp.zeros(()))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: TimedTable, belief: object = None
    ) -> tuple[EpsilonGreedy, TimedTable]:
        """Epsilon-greedy for the table."""
        del key, problem, belief
        # Half as large after every `half_life` steps.
        return EpsilonGreedy(state.q, self.epsilon * 2.0 ** (-state.time / self.half_life)), state

    def observe(self, problem: Problem, state: TimedTable, transition: Transitions, weight: Scalar = 1.0) -> TimedTable:
        """The table after one step of Q-learning; unchanged where `weight` is 0."""
        q = self._table.observe(problem, state.q, transition, weight)
        # Time counts real steps only: masked ones pass without cooling.
        return TimedTable(q, state.time + (jnp.asarray(weight) != 0))


class OptimisticQ(TabularQ):
    """Greedy Q-learning from optimistic initial values (OIV, [OIM08]): the table starts at V_max.

    Args:
        v_max: the first value of every entry, units of the return: R_max / (1 - discount), or R_max H under
            `Episodic(H)`, is exceeded by no return.
        learning_rate: in [0, 1].
        replan: when the policy is updated; every step by default.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.
    """

    v_max: float | Array = 100.0
    learning_rate: float | Array = 0.1
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule)

    def __check_init__(self) -> None:
        check_fraction("learning_rate", self.learning_rate)
        check_finite("v_max", self.v_max)

    @property
    def first_value(self) -> Scalar:
        """`v_max`."""
        return self.v_max

    def policy(self, q: Table) -> Greedy:
        """Greedy for the table."""
        return Greedy(q)

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `v_max` below the largest reward of one step."""
        warn_of_lost_optimism("v_max", self.v_max, max_reward)


def local_uncertainty(
    visits: Numbers, *, theta: Scalar, sigma_max: RealScalar, horizon: RealScalar
) -> Float[Array, "..."]:
    """d0 = z sigma_max / (horizon sqrt(n)), z the upper theta / 2 quantile of a standard normal law.

    Args:
        visits: n, from 1 on; one number or an array.
        theta: level of the interval, between 0 and 1.
        sigma_max: bound on the standard deviation of a return.
        horizon: 1 / (1 - discount), so that d0 is in units of the reward.

    Returns:
        d0, in units of the reward, of the shape of `visits`.
    """
    # In units of the value: a deviation of the mean return, shared over the horizon.
    return norm.isf(jnp.asarray(theta, float) / 2.0) * sigma_max / (jnp.sqrt(visits) * horizon)


class UpperTable(eqx.Module):
    """The state of `IEQLPlus`.

    Args:
        q: upper values [*H S A], -inf where an action is illegal.
        visits: [*H S A], of every pair.
    """

    q: Table
    visits: Table


class IEQLPlus(eqx.Module):
    """IEQL+, interval estimation with Q-learning [IEQL99], as far as it can be reconstructed.

    Greedy Q-learning with the bonus d0 = `local_uncertainty` at the n-th visit and alpha = learning_rate /
    n^rate_power. Under `Episodic(H)` H replaces 1 / (1 - discount).

    Args:
        theta: level of the interval; smaller explores more.
        sigma_max: bound on the standard deviation of a return; None: (max_reward - min_reward) / (1 - discount).
        max_reward, min_reward: bounds on the reward of one step.
        learning_rate: of the first visit, in [0, 1].
        rate_power: exponent of 1 / n in the learning rate. 0: it is constant; 1 with a `learning_rate` of
            1: it is 1 / n.
        initial_value: of every entry; None: max_reward / (1 - discount) + z sigma_max, where every d0 is that of n = 1.
        replan: when the policy is updated; every step by default.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number, no rule of replanning.
    """

    theta: float | Array = 0.05
    sigma_max: float | Array | None = None
    max_reward: float | Array = eqx.field(default=1.0, kw_only=True)
    min_reward: float | Array = eqx.field(default=0.0, kw_only=True)
    learning_rate: float | Array = eqx.field(default=0.1, kw_only=True)
    rate_power: float | Array = eqx.field(default=0.0, kw_only=True)
    initial_value: float | Array | None = eqx.field(default=None, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        check_inside("theta", self.theta)
        check_fraction("learning_rate", self.learning_rate)
        check_not_negative("rate_power", self.rate_power)
        check_finite("max_reward", self.max_reward)
        check_finite("min_reward", self.min_reward)
        if self.initial_value is not None:
            check_finite("initial_value", self.initial_value)
        if self.sigma_max is not None:
            check_positive("sigma_max", self.sigma_max)
        # Only where both are numbers: traced bounds cannot be compared.
        if is_concrete(self.max_reward, self.min_reward):
            largest = np.asarray(self.max_reward)
            require(~(largest > self.min_reward), "max_reward", largest, f"more than min_reward, {self.min_reward}")

    def check_optimism(self, max_reward: float) -> None:
        """Warn where optimism is lost: `max_reward` below the largest reward of one step."""
        warn_of_lost_optimism("max_reward", self.max_reward, max_reward)

    def _uncertainty(self, objective: Objective, visits: Numbers) -> Float[Array, "..."]:
        horizon = effective_horizon(objective, "IEQLPlus")
        # sigma_max by default: the width of the interval in which every return lies.
        widest = (self.max_reward - self.min_reward) * horizon
        sigma_max = widest if self.sigma_max is None else self.sigma_max
        return local_uncertainty(visits, theta=self.theta, sigma_max=sigma_max, horizon=horizon)

    def init(self, key: PRNGKeyArray, problem: Problem) -> UpperTable:
        """The first values, no visits.

        Raises:
            ValueError: an objective other than `Discounted` and `Episodic`.
        """
        del key
        objective = problem.objective
        # The value of getting the largest reward and the bonus of a first visit at every step.
        ceiling = effective_horizon(objective, "IEQLPlus") * (self.max_reward + self._uncertainty(objective, 1.0))
        value = ceiling if self.initial_value is None else self.initial_value
        return UpperTable(first_table(problem, value, "IEQLPlus"), jnp.zeros(table_shape(problem, "IEQLPlus")))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: UpperTable, belief: object = None
    ) -> tuple[Greedy, UpperTable]:
        """Greedy for the upper values."""
        del key, problem, belief
        # The upper values are the table: greedy for it is optimism.
        return Greedy(state.q), state

    def observe(self, problem: Problem, state: UpperTable, transition: Transitions, weight: Scalar = 1.0) -> UpperTable:
        """The table after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        place, counted = place_of(problem, transition), jnp.asarray(weight) != 0
        visits = state.visits[place.pair] + 1.0
        # The bonus d0 is part of the reward: uncertainty of later pairs comes back through the target ([IEQL99]).
        upper = jnp.asarray(transition.reward) + self._uncertainty(problem.objective, visits)
        # alpha_n = learning_rate / n^rate_power: constant for the power 0, 1 / n for 1.
        rate = self.learning_rate / visits**self.rate_power
        # Q-learning on the raised reward.
        q = move_towards(state.q, place.pair, bellman_target(place, state.q, upper), rate, counted)
        return UpperTable(q, state.visits.at[place.pair].add(counted))


class BonusTables(eqx.Module):
    """The state of a bonus method, arrays over [*H S A].

    Args:
        q: Q_r, of the rewards; -inf where an action is illegal.
        bonus_q: Q_e, of the bonuses; zero where an action is illegal.
        visits: n.
        mean, squares: of the targets, mean and sum of squared deviations; None where the bonus does not need them.
        time: number of steps.
    """

    q: Table
    bonus_q: Table
    visits: Table
    mean: Table | None
    squares: Table | None
    time: Float[Array, ""]


class BonusQ(eqx.Module):
    """Base of the two bonus methods: Q-learning twice, Q_r of the rewards and Q_e of a bonus of every step.

    Actions are greedy for Q_r + kappa Q_e, kappa = scale 2^(-t / half_life) after t steps; both tables have the same
    discount and learning rate. The form of the bonus, the schedule and the first values are ours.

    Args:
        scale: initial kappa, which multiplies Q_e: a factor.
        half_life: steps in which kappa halves; infinity: it stays.
        initial_bonus: initial Q_e, in units of the reward.
        learning_rate: of both tables, in [0, 1].
        initial_q: initial Q_r.

    Raises:
        ValueError: a number outside its range. TypeError: no number, no rule of replanning.
    """

    scale: float | Array = 1.0
    half_life: float | Array = eqx.field(default=1000.0, kw_only=True)
    initial_bonus: float | Array = eqx.field(default=1.0, kw_only=True)
    learning_rate: float | Array = eqx.field(default=0.1, kw_only=True)
    initial_q: float | Array = eqx.field(default=0.0, kw_only=True)
    replan: ReplanRule | None = eqx.field(default=EverySteps(1), converter=as_rule, kw_only=True)

    def __check_init__(self) -> None:
        for name in ("scale", "initial_bonus"):
            check_not_negative(name, getattr(self, name))
        check_fraction("learning_rate", self.learning_rate)
        check_half_life(self.half_life, "kappa")
        check_finite("initial_q", self.initial_q)

    @abc.abstractmethod
    def bonus(self, state: BonusTables, pair: Index, new_q: Scalar) -> Float[Array, ""]:
        """The bonus of a pair; `state` has counted the visit, and holds q as it was before `new_q`.

        Args:
            pair: its index in the tables.
        """

    def kappa(self, time: Scalar) -> Scalar:
        """scale 2^(-time / half_life).

        Args:
            time: t, steps so far.
        """
        return self.scale * 2.0 ** (-time / self.half_life)

    def init(self, key: PRNGKeyArray, problem: Problem) -> BonusTables:
        """The initial tables; no moments of targets are kept.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        del key
        who = type(self).__name__
        nothing = jnp.zeros(table_shape(problem, who))
        # Q_e starts above every later bonus: what was never tried is worth exploring.
        # Zero, not -inf, where illegal: Q_r is -inf there, and the sum stays so.
        bonus_q = where_legal(nothing + self.initial_bonus, problem.space.legal, 0.0)
        return BonusTables(first_table(problem, self.initial_q, who), bonus_q, nothing, None, None, jnp.zeros(()))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: BonusTables, belief: object = None
    ) -> tuple[Greedy, BonusTables]:
        """Greedy for Q_r + kappa Q_e."""
        del key, problem, belief
        # Two learners, one policy: greedy for the weighted sum.
        return Greedy(state.q + self.kappa(state.time) * state.bonus_q), state

    def greedy(self, problem: Problem, state: BonusTables) -> Greedy:
        """The policy with exploration switched off: greedy for Q_r alone.

        Args:
            problem: not used.
            state: of the agent.
        """
        del problem
        return Greedy(state.q)

    def observe(
        self, problem: Problem, state: BonusTables, transition: Transitions, weight: Scalar = 1.0
    ) -> BonusTables:
        """The tables after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        place, counted = place_of(problem, transition), jnp.asarray(weight) != 0
        # [Q89] on the rewards.
        target = bellman_target(place, state.q, jnp.asarray(transition.reward))
        q = move_towards(state.q, place.pair, target, self.learning_rate, counted)
        # The bonus of this step may depend on the change of Q_r, so Q_e is updated second.
        after = _count_target(state, place, target, counted)
        # The second learner: the same pair and next state, the bonus in place of the reward.
        bonus = self.bonus(after, place.pair, q[place.pair])
        target = bellman_target(place, state.bonus_q, bonus)
        bonus_q = move_towards(state.bonus_q, place.pair, target, self.learning_rate, counted)
        # Only the two tables change; counts and moments are those after the step.
        return eqx.tree_at(lambda x: (x.q, x.bonus_q), after, (q, bonus_q))


def _count_target(state: BonusTables, place: Place, target: Scalar, counted: BoolScalar) -> BonusTables:
    """Visits, time and moments of the targets (Welford) with one more target, where `counted`."""
    visits = state.visits.at[place.pair].add(counted)
    mean, squares = state.mean, state.squares
    if mean is not None and squares is not None:
        # M2 += (x - mean before) (x - mean after): no squares of large numbers are subtracted.
        step = jnp.where(counted, target - mean[place.pair], 0.0)
        mean = mean.at[place.pair].add(step / jnp.maximum(visits[place.pair], 1.0))
        after = jnp.where(counted, target - mean[place.pair], 0.0)
        squares = squares.at[place.pair].add(step * after)
    return BonusTables(state.q, state.bonus_q, visits, mean, squares, state.time + counted)


class VarianceBonusQ(BonusQ):
    """Q-learning with a bonus for pairs whose targets vary: b = sqrt((prior_sd^2 + M2) / n^2) ([OIM08]).

    M2 is the sum of squared deviations of the n targets of the pair, so that b^2 is about the variance of their mean.

    Args:
        scale: initial kappa, which multiplies Q_e: a factor.
        prior_sd: prior standard deviation of a target; without it a pair whose first targets are equal
            is never tried again.
        half_life: steps in which kappa halves; infinity: it stays.
        initial_bonus: initial Q_e, in units of the reward.
        learning_rate: of both tables, in [0, 1].
        initial_q: initial Q_r.
        replan: when the policy is updated; every step by default.

    Raises:
        ValueError: a number outside its range.
        TypeError: no number.
    """

    prior_sd: float | Array = eqx.field(default=1.0, kw_only=True)

    def __check_init__(self) -> None:
        check_not_negative("prior_sd", self.prior_sd)

    def init(self, key: PRNGKeyArray, problem: Problem) -> BonusTables:
        """The initial tables, those of the moments of the targets among them. Raises as `ErrorBonusQ.init`."""
        tables = super().init(key, problem)
        # Zeros of the right shape: no deviations yet.
        return replace(tables, mean=tables.visits, squares=tables.visits)

    def bonus(self, state: BonusTables, pair: Index, new_q: Scalar) -> Float[Array, ""]:
        """sqrt(prior_sd^2 + M2) / n."""
        del new_q
        assert state.squares is not None
        return jnp.sqrt(self.prior_sd**2 + state.squares[pair]) / jnp.maximum(state.visits[pair], 1.0)


class ErrorBonusQ(BonusQ):
    """Q-learning with a bonus for pairs whose value still moves: b = |Q_r after - Q_r before| of the pair.

    From [OIM08].

    Args:
        scale, half_life, initial_bonus, learning_rate, initial_q, replan: as in `VarianceBonusQ`.

    Raises:
        ValueError: a number outside its range.
    """

    def bonus(self, state: BonusTables, pair: Index, new_q: Scalar) -> Float[Array, ""]:
        """The size of the last change of Q_r."""
        # The error that is left: the last change of the entry.
        return jnp.abs(new_q - state.q[pair])
