"""Q-learning with an exploration table of its own for a bonus: of variance, or of error ([OIM08]'s rivals).

SPEC 2.18 of the project, low confidence: the exact forms were not found; what is ours is said so.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.learner import Place, first_table, moved_towards, place_of, table_shape
from bayes_mdp.agents.policies import Greedy
from bayes_mdp.agents.replan import EverySteps, ReplanRule, as_rule
from bayes_mdp.mdp import Problem, Transitions
from bayes_mdp.mdp.validation import check_finite, check_fraction, check_not_negative, check_that, is_concrete


class BonusTables(eqx.Module):
    """The state of a bonus method, arrays over [*H S A].

    Args:
        q: Q_r, of the rewards; -inf where an action is illegal.
        bonus_q: Q_e, of the bonuses; zero where an action is illegal.
        visits: n.
        mean, squares: of the targets seen, mean and sum of squared deviations; None where no bonus needs them.
        time: steps seen.
    """

    q: Float[Array, "*H S A"]
    bonus_q: Float[Array, "*H S A"]
    visits: Float[Array, "*H S A"]
    mean: Float[Array, "*H S A"] | None
    squares: Float[Array, "*H S A"] | None
    time: Float[Array, ""]


class _BonusQ(eqx.Module):
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
        expected = "a number greater than zero (infinity: kappa stays)"
        check_that("half_life", self.half_life, lambda x: x > 0, expected)
        if is_concrete(self.initial_q):
            check_finite("initial_q", self.initial_q)

    @abc.abstractmethod
    def bonus(self, state: BonusTables, here: tuple[Any, ...], new_q: Any) -> Float[Array, ""]:
        """The bonus of a pair; `state` has counted the visit, and holds q as it was before `new_q`."""

    def kappa(self, time: Any) -> Any:
        """scale 2^(-time / half_life)."""
        return self.scale * 2.0 ** (-time / self.half_life)

    def _first(self, problem: Problem, *, moments: bool) -> BonusTables:
        who = type(self).__name__
        nothing, legal = jnp.zeros(table_shape(problem, who)), problem.space.legal
        bonus_q = nothing + self.initial_bonus
        bonus_q = bonus_q if legal is None else jnp.where(legal, bonus_q, 0.0)
        pair = (nothing, nothing) if moments else (None, None)
        return BonusTables(first_table(problem, self.initial_q, who), bonus_q, nothing, *pair, jnp.zeros(()))

    def plan(
        self, key: PRNGKeyArray, problem: Problem, state: BonusTables, belief: Any = None
    ) -> tuple[Greedy, BonusTables]:
        """Greedy for Q_r + kappa Q_e."""
        del key, problem, belief
        return Greedy(state.q + self.kappa(state.time) * state.bonus_q), state

    def greedy(self, problem: Problem, state: BonusTables) -> Greedy:
        """The policy with exploration switched off: greedy for Q_r alone."""
        del problem
        return Greedy(state.q)

    def observe(self, problem: Problem, state: BonusTables, transition: Transitions, weight: Any = 1.0) -> BonusTables:
        """The tables after one transition; unchanged where `weight` is 0 (another weight counts as one)."""
        place, seen = place_of(problem, transition), jnp.asarray(weight) != 0
        following = jnp.where(place.over, 0.0, jnp.max(state.q[place.there]))
        target = jnp.asarray(transition.reward) + place.discount * following
        q = moved_towards(state.q, place.here, target, self.learning_rate, seen)
        counted = _counted(state, place, target, seen)
        bonus = self.bonus(counted, place.here, q[place.here])
        ahead = jnp.where(place.over, 0.0, jnp.max(state.bonus_q[place.there]))
        bonus_q = moved_towards(state.bonus_q, place.here, bonus + place.discount * ahead, self.learning_rate, seen)
        return eqx.tree_at(lambda x: (x.q, x.bonus_q), counted, (q, bonus_q))


def _counted(state: BonusTables, place: Place, target: Any, seen: Any) -> BonusTables:
    """Visits, time and moments of the targets (Welford) with one more target, where it was seen."""
    visits = state.visits.at[place.here].add(seen)
    mean, squares = state.mean, state.squares
    if mean is not None and squares is not None:
        step = jnp.where(seen, target - mean[place.here], 0.0)
        mean = mean.at[place.here].add(step / jnp.maximum(visits[place.here], 1.0))
        after = jnp.where(seen, target - mean[place.here], 0.0)
        squares = squares.at[place.here].add(step * after)
    return BonusTables(state.q, state.bonus_q, visits, mean, squares, state.time + seen)


class VarianceBonusQ(_BonusQ):
    """Q-learning with a bonus for pairs whose targets vary: b = sqrt((prior_sd^2 + M2) / n^2).

    M2 is the sum of squared deviations of the n targets of the pair, so that b^2 is about the variance of their mean.
    Two tables are learnt by Q-learning, Q_r of the rewards and Q_e of the bonuses, with one discount and one learning
    rate; actions are greedy for Q_r + kappa Q_e, kappa = scale 2^(-t / half_life) after t steps. The form of the bonus,
    the schedule and the first values are ours; no fidelity to [OIM08] is claimed.

    Args:
        scale: kappa at first.
        prior_sd: standard deviation of a target before any was seen; without it a pair whose first targets are equal
            is never tried again.
        half_life: steps in which kappa halves; infinity: it stays.
        initial_bonus: Q_e at first.
        learning_rate: of both tables, in [0, 1].
        initial_q: Q_r at first.
        replan: when the policy takes up what was learnt; every step by default.

    Raises:
        ValueError: a number outside its range.
    """

    prior_sd: float | Array = eqx.field(default=1.0, kw_only=True)

    def __check_init__(self) -> None:
        check_not_negative("prior_sd", self.prior_sd)

    def init(self, key: PRNGKeyArray, problem: Problem) -> BonusTables:
        """The tables at first.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        del key
        return self._first(problem, moments=True)

    def bonus(self, state: BonusTables, here: tuple[Any, ...], new_q: Any) -> Float[Array, ""]:
        """sqrt(prior_sd^2 + M2) / n."""
        del new_q
        assert state.squares is not None
        return jnp.sqrt(self.prior_sd**2 + state.squares[here]) / jnp.maximum(state.visits[here], 1.0)


class ErrorBonusQ(_BonusQ):
    """Q-learning with a bonus for pairs whose value still moves: b = |Q_r after - Q_r before| of the pair.

    The rest is as in `VarianceBonusQ`: two tables, greedy for Q_r + kappa Q_e, kappa = scale 2^(-t / half_life).

    Args:
        scale, half_life, initial_bonus, learning_rate, initial_q, replan: as in `VarianceBonusQ`.

    Raises:
        ValueError: a number outside its range.
    """

    def init(self, key: PRNGKeyArray, problem: Problem) -> BonusTables:
        """The tables at first.

        Raises:
            ValueError: the objective is the average reward, for which this rule is not defined.
        """
        del key
        return self._first(problem, moments=False)

    def bonus(self, state: BonusTables, here: tuple[Any, ...], new_q: Any) -> Float[Array, ""]:
        """The size of the last change of Q_r."""
        return jnp.abs(new_q - state.q[here])
