"""Replanning rules on the host: the decisions of the compiled `due`, without a compiled call at every step.

The definition of a rule is not repeated here: its times are its own (`period`, `times()`), and so is the criterion of
`Doubling` (`reached`, evaluated for the one pair that was visited). On the host time can jump: the time of parallel
environments is their sum, and an episode of `Episodic(H)` that ends early takes H steps. A plan is due if one was due
at any time since the last one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bayes_mdp.agents.common.replan import Doubling, EveryEpisode, Geometric, ReplanRule
from bayes_mdp.mdp import ReplanContext
from bayes_mdp.utils.typing import AnyArray, IntScalar


class ReplanStats:
    """The statistics that rules depend on.

    Args:
        shape: of the visits, (*H, S, A).

    Attributes:
        time: steps so far; under `Episodic(H)` an episode takes H, whether or not it ends early.
        step: steps since an episode began (the least of all environments).
        starts: episodes that began (in all environments).
        visits: of every pair, a flat list.
        planned_visits: the visits when the plan in force was made.
        planned_time, previous_time: the time of that plan, and of the one before.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.time, self.step, self.starts = 0, 0, 0
        self.visits = [0] * int(np.prod(shape))
        self.planned_visits = list(self.visits)
        self.planned_time, self.previous_time = 0, 0

    def arrays(self) -> tuple[Float[np.ndarray, "*H S A"], Float[np.ndarray, "*H S A"]]:
        """Visits and planned visits as arrays."""
        visits, planned = (np.array(x, np.float32).reshape(self.shape) for x in (self.visits, self.planned_visits))
        return visits, planned

    def planned(self, time: int) -> None:
        """A plan was made, for this time."""
        self.planned_visits = list(self.visits)
        self.planned_time, self.previous_time = time, self.planned_time


class HostRule:
    """A rule that is due when a count has risen: the last scheduled time, or the number of episodes that began.

    Args:
        count: of the statistics.
        scheduled: whether the count is the time of the plan; otherwise the plan is made for the present.
    """

    def __init__(self, count: Callable[[ReplanStats], int], *, scheduled: bool) -> None:
        self._count, self._scheduled, self._planned = count, scheduled, -1

    def due(self, stats: ReplanStats) -> int | None:
        """The time of the plan that is due, if one is; it may lie before the present (idle steps of an episode)."""
        count = self._count(stats)
        if count <= self._planned:
            return None
        return count if self._scheduled else stats.time

    def planned(self, stats: ReplanStats) -> None:
        """A plan was made."""
        self._planned = self._count(stats)

    def observed(self, stats: ReplanStats, cell: int) -> None:
        """A transition from `cell` was observed (and counted)."""

    def idle(self, stats: ReplanStats, step: int, count: int) -> Iterator[int]:
        """No transitions for `count` steps from now on: the times at which to plan all the same."""
        return iter(())  # what becomes due meanwhile is still due afterwards


class DoublingOnHost(HostRule):
    """`Doubling`, evaluated for the pair that was just visited: no other can have changed."""

    def __init__(self, rule: Doubling) -> None:
        self._rule, self._due = rule, None

    def due(self, stats: ReplanStats) -> int | None:
        """The time at which the visits of a pair had doubled."""
        return self._due

    def planned(self, stats: ReplanStats) -> None:
        """Begin to count anew."""
        self._due = None

    def observed(self, stats: ReplanStats, cell: int) -> None:
        """Record the time at which the visits of the first pair have doubled."""
        if self._due is None and self._rule.reached(stats.visits[cell], stats.planned_visits[cell]):
            self._due: int | None = stats.time


class AnyRuleOnHost(HostRule):
    """Any other rule: one compiled call a step (about 50 us)."""

    def __init__(self, rule: ReplanRule) -> None:
        self._rule = rule

    def due(self, stats: ReplanStats) -> int | None:
        """The present time, if the rule is due."""
        return stats.time if self._evaluate(stats, stats.time, stats.step) else None

    def planned(self, stats: ReplanStats) -> None:
        """Nothing to record."""

    def idle(self, stats: ReplanStats, step: int, count: int) -> Iterator[int]:
        """The rule is evaluated at every step, as in a compiled run."""
        return (stats.time + i for i in range(count) if self._evaluate(stats, stats.time + i, step + i))

    def _evaluate(self, stats: ReplanStats, time: int, step: int) -> bool:
        return bool(_due(self._rule, time, step, *stats.arrays(), stats.planned_time, stats.previous_time))


def host_rule(rule: ReplanRule) -> HostRule:
    """A rule in the form for the host."""
    # By what the rule depends on: the number of episodes, the time, the counts, or anything.
    if isinstance(rule, EveryEpisode):
        return HostRule(lambda stats: stats.starts, scheduled=False)
    period = rule.period
    if period is not None:
        return HostRule(lambda stats: stats.time // period * period, scheduled=True)
    if isinstance(rule, Geometric):
        times = rule.times().tolist()
        return HostRule(lambda stats: times[bisect_right(times, stats.time) - 1], scheduled=True)
    return DoublingOnHost(rule) if isinstance(rule, Doubling) else AnyRuleOnHost(rule)


@jax.jit
def _due(
    rule: ReplanRule,
    time: IntScalar,
    step: IntScalar,
    visits: Float[AnyArray, "*H S A"],
    planned_visits: Float[AnyArray, "*H S A"],
    planned_time: IntScalar,
    previous_time: IntScalar,
) -> Bool[Array, ""]:
    counts, plans = (visits, planned_visits), (planned_time, previous_time)
    context = ReplanContext(
        jnp.int32(time), jnp.int32(step), jnp.asarray(step) == 0, *map(jnp.asarray, counts), *map(jnp.int32, plans)
    )
    return rule.due(context)
