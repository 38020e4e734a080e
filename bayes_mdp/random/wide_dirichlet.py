"""Dirichlet rows over many outcomes of which few are likely, by NumPy: a draw costs what is likely, not the width.

Gamma variables of many outcomes are the increments of a gamma process, which is a sum of jumps W e^-T (Bondesson 1982,
*On simulation from infinitely divisible distributions*): W ~ Exponential(1), each at an outcome drawn from the
concentrations, and T the times of a Poisson process whose rate is their sum. Gamma(a + n) = Gamma(a) + Gamma(n) adds
the data. Of a row of 500 outcomes of concentration .001 about 20 are drawn; the others are zero in double precision.
"""

import itertools
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.random.host_generator import ElementStreams

WIDE = 128
"""Outcomes from which on a row may be drawn so."""
AT_ONCE = 64
"""Rows that are drawn at once."""
LATEST = 24.0
"""Time after which jumps are left out: they add up to e^-24, 4e-11, of the concentrations; one is at time zero."""


def suits_jumps(
    width: Int[np.ndarray, " N"], total: Float[np.ndarray, " N"], counts: Float[np.ndarray, "N K"]
) -> Bool[np.ndarray, " N"]:
    """Rows that have fewer jumps than outcomes.

    Args:
        width: number of outcomes of each row.
        total: sum of the concentrations before data.
        counts: data. Something of size one has to be beside the jumps, a count or the first of them.
    """
    most = counts.max(-1, initial=0.0)
    return (width >= WIDE) & (LATEST * total <= width) & ((most == 0) | (most >= 1))


class _Prior(NamedTuple):
    """Concentrations before data.

    Args:
        outcomes: of all outcomes, one row's after the other.
        total: of each row.
        is_even: whether those of a row are all the same.
        before: their sum up to each outcome; empty where all rows are even.
    """

    outcomes: Float[np.ndarray, " E"]
    total: Float[np.ndarray, " N"]
    is_even: Bool[np.ndarray, " N"]
    before: Float[np.ndarray, "_"]


class WideRows:
    """Streams of such rows, each from generators of its own (see `ElementStreams`).

    Args:
        key: of all rows.
        purpose: the first of four numbers that are of no other purpose.
        elements: the numbers of the rows.
        first: [N + 1], where the outcomes of each row begin, and E.
        counts: data of all outcomes; rows as of `suits_jumps`.
        prior: component -> concentrations of all outcomes before data. Where these would make more jumps than the row
            has outcomes, it is drawn outcome by outcome.
    """

    def __init__(
        self,
        key: PRNGKeyArray,
        purpose: int,
        elements: Int[np.ndarray, " N"],
        first: Int[np.ndarray, " N1"],
        counts: Float[np.ndarray, " E"],
        prior: Callable[[int], Float[np.ndarray, " E"]],
    ) -> None:
        self._size, whole = len(counts), lru_cache(maxsize=4)(prior)
        self._blocks: list[tuple[slice, _Block]] = []
        for start in range(0, len(elements), AT_ONCE):
            ends = first[start : start + AT_ONCE + 1]
            columns = slice(int(ends[0]), int(ends[-1]))
            of_block = partial(lambda columns, k: whole(k)[columns], columns)
            rows = elements[start : start + AT_ONCE]
            self._blocks.append((columns, _Block(key, purpose, rows, ends - ends[0], counts[columns], of_block)))

    def draw(self, component: Int[np.ndarray, " num"]) -> Float[np.ndarray, "num E"]:
        """The next rows, one for each of some components; any split of these into blocks gives the same ones.

        Args:
            component: of each draw.
        """
        table = np.empty((len(component), self._size))
        for columns, block in self._blocks:
            table[:, columns] = block.draw(component)
        return table


class _Block:
    """So many of these rows that what is computed of them stays in the cache (arguments: see `WideRows`)."""

    def __init__(
        self,
        key: PRNGKeyArray,
        purpose: int,
        elements: Int[np.ndarray, " N"],
        first: Int[np.ndarray, " N1"],
        counts: Float[np.ndarray, " E"],
        prior: Callable[[int], Float[np.ndarray, " E"]],
    ) -> None:
        self._streams = [ElementStreams(key, purpose + i, elements) for i in range(4)]
        self._first, self._width, self._counts = first, np.diff(first), counts
        # Outcomes with data, and where those of each row begin among them.
        self._seen = np.flatnonzero(counts)
        self._first_seen = np.searchsorted(self._seen, first)
        self._row_of_seen = np.repeat(np.arange(len(elements)), np.diff(self._first_seen))
        self._prior = lru_cache(maxsize=4)(lambda k: self._read(prior(k)))

    def _read(self, outcomes: Float[np.ndarray, " E"]) -> _Prior:
        starts = self._first[:-1]
        even = np.maximum.reduceat(outcomes, starts) == np.minimum.reduceat(outcomes, starts)
        before = np.zeros(0) if even.all() else np.append(0.0, np.cumsum(outcomes))
        return _Prior(outcomes, np.add.reduceat(outcomes, starts), even, before)

    @cached_property
    def _alone(self) -> Bool[np.ndarray, " N"]:
        """Rows without data."""
        return np.diff(self._first_seen) == 0

    def draw(self, component: Int[np.ndarray, " num"]) -> Float[np.ndarray, "num E"]:
        """The next rows, one for each of some components."""
        kinds, kind = np.unique(component, return_inverse=True)
        priors = [self._prior(int(k)) for k in kinds]
        total = np.stack([prior.total for prior in priors])[kind]
        few = LATEST * total <= self._width
        place, entry, jump = self._jumps(np.where(few, total, 0.0), kind, priors)
        data = self._gammas_of_data(len(kind))
        # Divided by their sum before they are put into the table, most of which is zero.
        sums = _add_up(place, jump, few.size).reshape(-1, len(kind)).T
        seen = ~self._alone
        if seen.any():
            sums[:, seen] += np.add.reduceat(data, self._first_seen[:-1][seen], axis=-1)
        table = self._in_draws(_add_up(entry, jump / sums.T.ravel()[place], len(kind) * len(self._counts)), len(kind))
        table[:, self._seen] += data / sums[:, self._row_of_seen]
        for n in np.flatnonzero(~few.all(0)):
            columns, draws = slice(self._first[n], self._first[n + 1]), np.flatnonzero(~few[:, n])
            alpha = np.stack([prior.outcomes[columns] for prior in priors])[kind[draws]] + self._counts[columns]
            whole = self._streams[3].generators[n].standard_gamma(alpha)
            table[draws, columns] = whole / whole.sum(-1, keepdims=True)
        return table

    def _jumps(
        self, total: Float[np.ndarray, "num N"], kind: Int[np.ndarray, " num"], priors: list[_Prior]
    ) -> tuple[Int[np.ndarray, " J"], Int[np.ndarray, " J"], Float[np.ndarray, " J"]]:
        """Of each jump its place in a table [N num], that in one of all draws of a row after those of the row before,
        and its size; rows of total zero have none."""
        # The clock of a row without data starts at its first jump: how much later that is does not change the others.
        rate = np.ascontiguousarray(LATEST * total.T)
        number = np.stack([s.poisson(x) for s, x in zip(self._streams[1].generators, rate, strict=True)])
        number += self._alone[:, None] & (rate > 0)
        made = [s.random((n, 3)) for s, n in zip(self._streams[0].generators, number.sum(-1).tolist(), strict=True)]
        time, weight, where = np.ascontiguousarray(np.concatenate(made).T)
        # Row by row, and in each draw by draw: what is added to lies in the cache.
        number_of_jumps = number.ravel()
        place = np.repeat(np.arange(number.size), number_of_jumps)
        start = self._first[:-1, None] * len(kind) + self._width[:, None] * np.arange(len(kind))
        entry = self._outcomes(number, kind, where, priors)
        entry += np.repeat(start.ravel(), number_of_jumps)
        time *= -LATEST
        time[(np.cumsum(number) - number_of_jumps)[((number > 0) & self._alone[:, None]).ravel()]] = 0.0
        jump = np.log1p(np.negative(weight, out=weight), out=weight)
        jump *= np.negative(np.exp(time, out=time), out=time)
        return place, entry, jump

    def _outcomes(
        self,
        number: Int[np.ndarray, "N num"],
        kind: Int[np.ndarray, " num"],
        where: Float[np.ndarray, " J"],
        priors: list[_Prior],
    ) -> Int[np.ndarray, " J"]:
        """An outcome of the row of each jump, from zero, drawn from the concentrations by a uniform number."""
        of_rows = number.sum(-1)
        outcome = (where * np.repeat(self._width, of_rows)).astype(np.int64)
        for k, prior in enumerate(priors):
            uneven = (kind == k) & ~prior.is_even[:, None]
            if not uneven.any():
                continue
            chosen = np.flatnonzero(np.repeat(uneven.ravel(), number.ravel()))
            rows = np.repeat(np.arange(len(self._width)), of_rows)[chosen]
            before = prior.before
            target = before[self._first[rows]] + where[chosen] * prior.total[rows]
            drawn = np.searchsorted(before, target, side="right") - 1
            # Rounding may end beyond the last outcome that is possible.
            last = np.searchsorted(before, before[self._first[rows + 1]], side="left") - 1
            outcome[chosen] = np.minimum(drawn, last) - self._first[rows]
        return outcome

    def _in_draws(self, flat: Float[np.ndarray, " F"], num: int) -> Float[np.ndarray, "num E"]:
        """One draw after the other, of a table of all draws of a row after those of the row before."""
        table = np.empty((num, len(self._counts)))
        for first, last in itertools.pairwise(self._first.tolist()):
            table[:, first:last] = flat[first * num : last * num].reshape(num, -1)
        return table

    def _gammas_of_data(self, num: int) -> Float[np.ndarray, "num C"]:
        gammas = np.empty((num, len(self._seen)))
        for n in np.flatnonzero(~self._alone):
            columns = slice(self._first_seen[n], self._first_seen[n + 1])
            counts = self._counts[self._seen[columns]]
            gammas[:, columns] = self._streams[2].generators[n].standard_gamma(counts, (num, len(counts)))
        return gammas


def _add_up(place: Int[np.ndarray, " J"], values: Float[np.ndarray, " J"], size: int) -> Float[np.ndarray, " size"]:
    """The sum of the values at each place."""
    return np.bincount(place, values, size).astype(np.float64, copy=False)  # of nothing NumPy counts whole numbers
