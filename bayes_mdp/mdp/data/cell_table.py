"""`CellTable`: the (step, state, action, outcome) cells of a log, with exact statistics of their rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.numerics.moments import ExactSums, concatenated, exact_moments, sum_and_squares

Column = Int[np.ndarray, " M"]
_MOST_KEYS = 2**62
_DENSE = 4
_ROWS = 2**40


class Where(NamedTuple):
    """The coordinates of cells or of rows; `outcome` is 1 + the next state, 0 for the end of an episode.

    That way the numbers stay what they are when more states are found.
    """

    step: Column
    state: Column
    action: Column
    outcome: Column


@dataclass(frozen=True, eq=False)
class CellTable:
    """M observed cells. Tables are merged exactly: in any order, the same numbers.

    Args:
        where: the coordinates of each.
        count: Int64[M], how often it was observed.
        reward_count: Int64[M], how many of its rewards were observed.
        total, squares: of these rewards and of their squares.
        seen: Int64[M], where it was seen first: 2^40 times the index of the source, and the row there (from 0).
    """

    where: Where
    count: Column
    reward_count: Column
    total: ExactSums
    squares: ExactSums
    seen: Column

    def __len__(self) -> int:
        return len(self.count)

    def reward_moments(self) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
        """Mean and sum of squared deviations of the rewards of each cell, correctly rounded."""
        return exact_moments(self.reward_count, self.total, self.squares)

    def grouped(self, group: Int[np.ndarray, " M"], size: int) -> "CellTable":
        """Cells pooled by `group` in 0 .. size - 1, none of which is empty; they have the place of the first seen."""
        count, rewards = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(count, group, self.count)
        np.add.at(rewards, group, self.reward_count)
        seen = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(seen, group, self.seen)
        member = np.empty(size, np.intp)
        member[group] = np.arange(len(group))
        where = Where(*(x[member] for x in self.where))
        return CellTable(
            where, count, rewards, self.total.grouped(group, size), self.squares.grouped(group, size), seen
        )

    def source_and_row(self, cell: int) -> tuple[int, int]:
        """Where a cell was seen first."""
        return divmod(int(self.seen[cell]), _ROWS)

    def compact(self) -> "CellTable":
        """Each cell once, sorted by step, state, action, outcome."""
        group, size = group_rows(self.where)
        return self.grouped(group, size)

    def renumbered(self, states: Int[np.ndarray, " _"], actions: Int[np.ndarray, " _"]) -> "CellTable":
        """The cells under other numbers, the new number of each state and action; cells that coincide are pooled."""
        step, state, action, outcome = self.where
        outcome = np.where(outcome == 0, 0, 1 + states[outcome - 1]).astype(np.int32)
        where = Where(step, states[state].astype(np.int32), actions[action].astype(np.int32), outcome)
        return replace(self, where=where).compact()

    def of_source(self, first: int) -> "CellTable":
        """The same with the indices of sources raised by `first`."""
        return replace(self, seen=self.seen + first * _ROWS)


def table_of_rows(
    where: Where, reward: Float[np.ndarray, " N"] | None, source: int, row: Int[np.ndarray, " N"]
) -> CellTable:
    """The cells of N rows of one source.

    Args:
        where: of each row.
        reward: nan where it was not observed; None: none was.
        source: its index.
        row: number of each row in it.
    """
    group, size = group_rows(where)
    first = np.empty(size, np.intp)
    first[group[::-1]] = np.arange(len(group))[::-1]
    count = np.bincount(group, minlength=size)
    rewards, none = np.zeros(size, np.int64), ExactSums.zero(size)
    total, squares = none, none
    if reward is not None:
        observed = ~np.isnan(reward)
        by, values = (group, reward) if observed.all() else (group[observed], reward[observed])
        rewards = count if len(by) == len(group) else np.bincount(by, minlength=size)
        total, squares = sum_and_squares(values, by, size)
    places = Where(*(x[first].astype(np.int32) for x in where))
    return CellTable(places, count, rewards, total, squares, row[first] + source * _ROWS)


def joined(tables: Sequence[CellTable]) -> CellTable:
    """All tables in one, each cell once."""
    if len(tables) == 1:
        return tables[0]
    columns = ([getattr(table, name) for table in tables] for name in ("count", "reward_count", "seen"))
    count, rewards, seen = (np.concatenate(parts) for parts in columns)
    where = Where(*(np.concatenate(parts) for parts in zip(*(table.where for table in tables), strict=True)))
    total = concatenated([table.total for table in tables])
    squares = concatenated([table.squares for table in tables])
    return CellTable(where, count, rewards, total, squares, seen).compact()


def group_rows(columns: Sequence[Column]) -> tuple[Int[np.ndarray, " N"], int]:
    """(group of each row, number of groups): rows are of one group where all columns agree, in order of the columns."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if size * width > _MOST_KEYS:
            key, size = _numbered(key, size)
        key = key * width + column if size > 1 else column.astype(np.int64)
        size *= width
    return _numbered(key, size)


def _numbered(key: Int[np.ndarray, " N"], size: int) -> tuple[Int[np.ndarray, " N"], int]:
    """Keys below `size` as 0, 1, ... without gaps, in their order."""
    if size <= _DENSE * len(key) + 2**16:
        used = np.zeros(size, bool)
        used[key] = True
        number = np.cumsum(used) - 1
        return number[key], int(number[-1]) + 1
    distinct, group = np.unique(key, return_inverse=True)
    return group, len(distinct)
