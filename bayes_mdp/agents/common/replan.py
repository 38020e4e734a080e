"""Replanning rules: every k steps, every episode, when a count has doubled or reached a number, at geometric times, by
the length of the last plan, or a function.

A rule is `due(context)`. Where its period is known before the run (`period`), the run is compiled as nested loops
without a branch.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bayes_mdp.mdp import Episodic, Objective, ReplanContext
from bayes_mdp.mdp.agent import ReplanLike, ReplanRule
from bayes_mdp.utils.messages import did_you_mean
from bayes_mdp.utils.typing import AnyArray, BoolScalar
from bayes_mdp.utils.validation import check_count, check_that, described

DEFAULT_PERIOD = 20
_LAST_TIME = 2**31 - 1


class _NoPeriod(eqx.Module):
    """Base of the rules whose plans depend on the run."""

    @property
    def period(self) -> None:
        """Not known before the run."""
        return None


class EverySteps(eqx.Module):
    """Plan at steps 0, k, 2 k, ... of the run.

    Raises:
        ValueError, TypeError: `num_steps` is no integer of at least 1.
    """

    num_steps: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_count("num_steps", self.num_steps)

    @property
    def period(self) -> int:
        """k."""
        return int(self.num_steps)

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether the time is a multiple of k."""
        return context.time % self.num_steps == 0


class EveryEpisode(_NoPeriod):
    """Plan where an episode begins [PSRL13]; under `Episodic(H)` that is every H steps."""

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether an episode just began."""
        return context.starts


class EveryLearnedEpisode(EveryEpisode):
    """Plan after every episode, whether it ended or was cut off: for agents that learn from whole episodes.

    Their plans cost nothing, so the rule is always due.
    """

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Always."""
        return jnp.ones_like(context.starts, dtype=bool)


class Doubling(_NoPeriod):
    """Plan when the visits of some pair since the last plan reach max(1, those before it) [UCRL10]."""

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether the visits of some pair have doubled."""
        return jnp.any(self.reached(context.visits, context.planned_visits))

    def reached(
        self, visits: Float[AnyArray, "*H S A"] | float, planned_visits: Float[AnyArray, "*H S A"] | float
    ) -> Bool[AnyArray, "*H S A"] | BoolScalar:
        """The criterion for a pair (numbers) or for all (arrays).

        Args:
            visits: so far.
            planned_visits: before the last plan.
        """
        # An episode of [UCRL10] goes on while v(s, a) < max(1, N(s, a)) everywhere.
        since = visits - planned_visits
        return (since >= planned_visits) & (since >= 1)


class Reached(_NoPeriod):
    """Plan when the visits of some pair reach a number: once for every pair [BOSS09].

    Raises:
        ValueError, TypeError: `num_visits` is no integer of at least 1.
    """

    num_visits: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_count("num_visits", self.num_visits)

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether some pair has as many visits, and had not when the plan in force was made."""
        # Not `==`: several visits of a segment may pass the number at once.
        return jnp.any((context.visits >= self.num_visits) & (context.planned_visits < self.num_visits))


class DynamicEpisodes(_NoPeriod):
    """Plan after one step more than the last plan had, or when the visits of a pair have more than doubled [TSDE17].

    t_{k+1} = min {t > t_k: t > t_k + T_{k-1} or N_t(s, a) > 2 N_{t_k}(s, a) for some pair}, with T_k = t_{k+1} - t_k.
    The first plan is in force for one step whatever T_0 is, because any visit is more than twice none.
    """

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether one of the two criteria of the paper holds."""
        # t > t_k + T_{k-1}, with T_{k-1} = t_k - t_{k-1}
        longer = context.time - context.planned_time > context.planned_time - context.previous_time
        return longer | jnp.any(context.visits > 2 * context.planned_visits)


class Geometric(_NoPeriod):
    """Plan at times 0, 1 and ceil(factor^j), j = 1, 2, ...: about log(T) / log(factor) plans in T steps.

    Raises:
        ValueError: `factor` is not a finite number of at least 1.001.
        TypeError: no number.

    Example:
        >>> bm.agents.Geometric(2.0).times()[:5].tolist()
        [0, 1, 2, 4, 8]
    """

    factor: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        expected = "a finite number of at least 1.001"
        check_that("factor", self.factor, lambda x: np.isfinite(x) & (x >= 1.001), expected)

    def times(self) -> np.ndarray:
        """The geometric times up to 2^31, in increasing order: Int[N]."""
        # j up to log(2^31) / log(factor): all times that an int32 can count.
        powers = np.ceil(self.factor ** np.arange(math.log(_LAST_TIME) / math.log(self.factor)))
        return np.unique(np.minimum(np.concatenate([[0.0], powers]), _LAST_TIME)).astype(np.int32)

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """Whether the time is one of the geometric times (tabulated: powers in floating point would be off by one)."""
        return jnp.any(context.time == self.times())


class When(_NoPeriod):
    """Plan where a function of the `ReplanContext` is true.

    Args:
        function: a plain function, which has a hash.

    Raises:
        TypeError: what is given is no function of the context, or an object without a hash.
    """

    function: Callable[[ReplanContext], BoolScalar] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function is {described(self.function)}, expected a function of the ReplanContext")
        try:
            hash(self.function)
        except TypeError as error:
            complaint = f"function is {described(self.function)} that has no hash ({error})"
            raise TypeError(f"{complaint}, expected a plain function of the ReplanContext") from error

    def due(self, context: ReplanContext) -> Bool[Array, ""]:
        """The value of the function."""
        return jnp.asarray(self.function(context), dtype=bool)


WORDS: dict[str, type[EveryEpisode] | type[Doubling]] = {"episode": EveryEpisode, "doubling": Doubling}
"""The rules that have a name."""


def as_rule(replan: ReplanLike | None) -> ReplanRule | None:
    """A rule from what a person writes as `replan`; None: the default of the objective.

    Raises:
        ValueError: another word, a number below 1. TypeError: anything else.
    """
    if isinstance(replan, str) and replan in WORDS:
        return WORDS[replan]()
    # True is no number of steps.
    if isinstance(replan, (int, np.integer)) and not isinstance(replan, bool) and replan >= 1:
        return EverySteps(int(replan))
    # A class has the members of its objects: `Doubling` in place of `Doubling()` is refused below.
    if replan is None or (isinstance(replan, ReplanRule) and not isinstance(replan, type)):
        return replan
    if callable(replan) and not isinstance(replan, type):
        return When(replan)
    wrong = ValueError if isinstance(replan, (str, int, np.integer)) and not isinstance(replan, bool) else TypeError
    raise wrong(
        f"replan is {described(replan)}, expected None (the default of the objective), a number of steps of at least "
        "1, 'episode', 'doubling', a rule of bayes_mdp.agents.common.replan, or a function of the ReplanContext"
        + (did_you_mean(replan, WORDS) if isinstance(replan, str) else "")
    )


def rule_for(replan: ReplanRule | None, objective: Objective) -> ReplanRule:
    """The rule, or the default of the objective: every episode under `Episodic`, else every 20 steps.

    Args:
        replan: a rule; None: the default.
        objective: of the run.
    """
    if replan is not None:
        return replan
    return EveryEpisode() if isinstance(objective, Episodic) else EverySteps(DEFAULT_PERIOD)


def period_of(rule: ReplanRule, objective: Objective) -> int | None:
    """Steps between two plans where they are known before the run: an episode of `Episodic(H)` takes H steps.

    Args:
        rule: of replanning.
        objective: of the run.
    """
    # Known before the run, so that the compiled loop needs no test whether a plan is due.
    if isinstance(rule, EveryEpisode) and isinstance(objective, Episodic):
        return objective.horizon
    return rule.period
