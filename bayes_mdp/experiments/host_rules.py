"""Replanning rules on the host: the same answers as the compiled `due`, without a compiled call a step.

A host rule is told of every transition (`saw`), of stretches of time without one (`idle`: an episode that ended early)
and of every plan (`planned`), and says when the next one is `due`.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.agents.replan import Doubling, EveryEpisode, Geometric, ReplanRule
from bayes_mdp.mdp import Moment


class Ledger:
    """What rules look at.

    Args:
        shape: of the visits, (*H, S, A).

    Attributes:
        time: steps so far; under `Episodic(H)` an episode takes H, whether or not it ends early.
        step: steps since an episode began (the least of all lanes).
        starts: episodes that began (of all lanes).
        visits: of every pair, a flat list.
        planned_visits: the visits when the plan in force was made.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.time, self.step, self.starts = 0, 0, 0
        self.visits = [0] * int(np.prod(shape))
        self.planned_visits = list(self.visits)

    def arrays(self) -> tuple[Any, Any]:
        """Visits and planned visits as arrays."""
        visits, planned = (np.array(x, np.float32).reshape(self.shape) for x in (self.visits, self.planned_visits))
        return visits, planned


class HostRule(Protocol):
    """A replanning rule that is asked before every action."""

    def due(self, ledger: Ledger) -> int | None:
        """The time of the plan that is due, if one is (it lies back where nothing happened since)."""
        ...

    def planned(self, ledger: Ledger) -> None:
        """A plan was made."""
        ...

    def saw(self, ledger: Ledger, cell: int) -> None:
        """A transition from `cell` was seen (and counted)."""
        ...

    def idle(self, ledger: Ledger, step: int, count: int) -> Iterator[int]:
        """Nothing happens for `count` moments from now on: those at which to plan all the same."""
        ...


class _Quiet:
    """Rules that need no telling."""

    def planned(self, ledger: Ledger) -> None:
        """Nothing to note."""

    def saw(self, ledger: Ledger, cell: int) -> None:
        """Nothing to note."""

    def idle(self, ledger: Ledger, step: int, count: int) -> Iterator[int]:
        """None: what is due then is due afterwards."""
        return iter(())


class Periodic(_Quiet):
    """At multiples of k."""

    def __init__(self, period: int) -> None:
        self._period, self._next = period, 0

    def due(self, ledger: Ledger) -> int | None:
        """The last multiple, if it was reached since the last plan."""
        return ledger.time // self._period * self._period if ledger.time >= self._next else None

    def planned(self, ledger: Ledger) -> None:
        """The next multiple."""
        self._next = (ledger.time // self._period + 1) * self._period


class Timed(_Quiet):
    """At the times of a list."""

    def __init__(self, times: list[int]) -> None:
        self._times, self._next = times, 0

    def due(self, ledger: Ledger) -> int | None:
        """The last time of the list, if it was reached since the last plan."""
        return self._times[bisect_right(self._times, ledger.time) - 1] if ledger.time >= self._next else None

    def planned(self, ledger: Ledger) -> None:
        """The next time."""
        position = bisect_right(self._times, ledger.time)
        self._next = self._times[position] if position < len(self._times) else 2**63


class AtStarts(_Quiet):
    """Where an episode begins, in any lane."""

    def __init__(self) -> None:
        self._seen = 0

    def due(self, ledger: Ledger) -> int | None:
        """Now, if one began since the last plan."""
        return ledger.time if ledger.starts > self._seen else None

    def planned(self, ledger: Ledger) -> None:
        """These are known."""
        self._seen = ledger.starts


class Doubled(_Quiet):
    """When the visits of a pair since the last plan reach max(1, those before it)."""

    def __init__(self) -> None:
        self._due: int | None = None

    def due(self, ledger: Ledger) -> int | None:
        """When some did."""
        return self._due

    def saw(self, ledger: Ledger, cell: int) -> None:
        """Only this pair can have changed."""
        before = ledger.planned_visits[cell]
        if self._due is None and ledger.visits[cell] - before >= max(before, 1):
            self._due = ledger.time

    def planned(self, ledger: Ledger) -> None:
        """Count afresh."""
        self._due = None


class Asked(_Quiet):
    """Any other rule: one compiled call a moment (about 50 us)."""

    def __init__(self, rule: ReplanRule) -> None:
        self._rule = rule

    def due(self, ledger: Ledger) -> int | None:
        """Now, if the rule says so."""
        return ledger.time if self._ask(ledger, ledger.time, ledger.step) else None

    def idle(self, ledger: Ledger, step: int, count: int) -> Iterator[int]:
        """The rule is asked there too, as in a compiled run."""
        return (ledger.time + i for i in range(count) if self._ask(ledger, ledger.time + i, step + i))

    def _ask(self, ledger: Ledger, time: int, step: int) -> bool:
        return bool(_due(self._rule, time, step, *ledger.arrays()))


def host_rule(rule: ReplanRule) -> HostRule:
    """The host's form of a rule."""
    if isinstance(rule, EveryEpisode):
        return AtStarts()
    if rule.period is not None:
        return Periodic(rule.period)
    if isinstance(rule, Geometric):
        return Timed(rule.times().tolist())
    return Doubled() if isinstance(rule, Doubling) else Asked(rule)


@jax.jit
def _due(rule: Any, time: Any, step: Any, visits: Any, planned_visits: Any) -> Any:
    return rule.due(Moment(jnp.int32(time), jnp.int32(step), step == 0, visits, planned_visits))
