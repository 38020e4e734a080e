"""When an agent plans again: every k steps, every episode, when a count has doubled, at geometric times, or as told.

A rule answers `due(moment)`. Where its period is known beforehand (`period`), a run is compiled as nested loops without
any branch.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from bayes_mdp.mdp import Episodic, Objective, ReplanContext
from bayes_mdp.mdp.validation import check_count, check_name, check_that, described

DEFAULT_PERIOD = 20
_LAST_TIME = 2**31 - 1


@runtime_checkable
class ReplanRule(Protocol):
    """A replanning rule. The first plan of a run is made in any case."""

    @property
    def period(self) -> int | None:
        """Steps between two plans where they are known before the run, else None."""
        ...

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Whether to plan before the next action."""
        ...


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

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Whether the time is a multiple of k."""
        return moment.time % self.num_steps == 0


class EveryEpisode(_NoPeriod):
    """Plan where an episode begins (Osband, Russo and Van Roy 2013); under `Episodic(H)` that is every H steps."""

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Whether an episode just began."""
        return moment.starts


class EveryLearnedEpisode(EveryEpisode):
    """Plan after every trial, whether its episode ended or it was cut: for agents that learn from whole trials.

    A plan of theirs costs nothing, so that the rule is always due; under `Episodic` trials are episodes.
    """

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Always."""
        return jnp.ones_like(moment.starts, dtype=bool)


class Doubling(_NoPeriod):
    """Plan when the visits of some pair since the last plan reach max(1, those before it) (Jaksch et al. 2010)."""

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Whether the visits of some pair have doubled."""
        return jnp.any(self.reached(moment.visits, moment.planned_visits))

    def reached(self, visits: Any, planned_visits: Any) -> Any:
        """The criterion for a pair: numbers or arrays."""
        fresh = visits - planned_visits
        return (fresh >= planned_visits) & (fresh >= 1)


class Geometric(_NoPeriod):
    """Plan at times 0, 1 and ceil(factor^j), j = 1, 2, ...: about log(T) / log(factor) plans in T steps.

    Raises:
        ValueError: `factor` is not a finite number of at least 1.001.
    """

    factor: float = eqx.field(static=True)

    def __check_init__(self) -> None:
        expected = "a finite number of at least 1.001"
        check_that("factor", self.factor, lambda x: np.isfinite(x) & (x >= 1.001), expected)

    def times(self) -> np.ndarray:
        """The geometric times up to 2^31."""
        powers = np.ceil(self.factor ** np.arange(math.log(_LAST_TIME) / math.log(self.factor)))
        return np.unique(np.minimum(np.concatenate([[0.0], powers]), _LAST_TIME)).astype(np.int32)

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """Whether the time is one of the geometric times (exact: they are tabulated)."""
        return jnp.any(moment.time == self.times())


class When(_NoPeriod):
    """Plan when a function of the `ReplanContext` says so."""

    function: Callable[[ReplanContext], Any] = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function is {described(self.function)}, expected a function of the ReplanContext")

    def due(self, moment: ReplanContext) -> Bool[Array, ""]:
        """What the function says."""
        return jnp.asarray(self.function(moment), dtype=bool)


def as_rule(replan: Any) -> ReplanRule | None:
    """A rule from what a person writes: a rule, a number of steps, "episode", "doubling", a function, None (default).

    Raises:
        ValueError: another word. TypeError: another type.
    """
    words = {"episode": EveryEpisode, "doubling": Doubling}
    if replan is None or isinstance(replan, ReplanRule):
        return replan
    if isinstance(replan, str):
        check_name("replan", replan, words, ", or a number of steps")
        return words[replan]()
    if isinstance(replan, (int, np.integer)) and not isinstance(replan, bool):
        check_count("replan", replan)
        return EverySteps(int(replan))
    if callable(replan):
        return When(replan)
    expected = "a rule, a number of steps, 'episode', 'doubling' or a function"
    raise TypeError(f"replan is {described(replan)}, expected {expected}")


def rule_for(replan: ReplanRule | None, objective: Objective) -> ReplanRule:
    """The rule, or the default of the objective: every episode under `Episodic`, else every 20 steps."""
    if replan is not None:
        return replan
    return EveryEpisode() if isinstance(objective, Episodic) else EverySteps(DEFAULT_PERIOD)


def period_of(rule: ReplanRule, objective: Objective) -> int | None:
    """Steps between two plans where they are known before the run: an episode of `Episodic(H)` takes H steps."""
    if isinstance(rule, EveryEpisode) and isinstance(objective, Episodic):
        return objective.horizon
    return rule.period
