"""`FoldedLog`: what a log of any length says of a tabular MDP, in memory that does not grow with its rows.

Its table are the (step, state, action, outcome) cells, with exact statistics of their rewards (`CellTable`). The
outcomes that a log has of every pair, listed for a space, are `observed_successors`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.mdp.by_label import natural_order, warn_of_similar
from bayes_mdp.mdp.data.transitions import Counts, Log, check_log_labels
from bayes_mdp.numerics.moments import ExactSums, concatenate_sums, exact_moments, sum_and_squares
from bayes_mdp.renamed import old_attribute
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import count_of, first_names, see
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import check_bool, check_index, check_labels, check_name, check_type

if TYPE_CHECKING:
    from bayes_mdp.mdp.space import StateActionSpace


Column = Int[np.ndarray, " M"]
_MOST_KEYS = 2**62
_DENSE = 4
_ROWS = 2**40
UNKNOWN, END, FIRST_STATE = 0, 1, 2
"""Outcomes of cells: not observed, the end of the episode, the first state (then all others)."""
_BLOCK = 2**20
Cells = Float[np.ndarray, "..."]


class Where(NamedTuple):
    """The coordinates of cells or of rows; `outcome` is `UNKNOWN`, `END`, or `FIRST_STATE` + the next state.

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
        # Integers: sums of counts are exact.
        count, rewards = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(count, group, self.count)
        np.add.at(rewards, group, self.reward_count)
        # The earliest place of each group.
        seen = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(seen, group, self.seen)
        member = np.empty(size, np.intp)
        member[group] = np.arange(len(group))
        index = Where(*(x[member] for x in self.where))
        return CellTable(
            index, count, rewards, self.total.grouped(group, size), self.squares.grouped(group, size), seen
        )

    def compact(self) -> "CellTable":
        """Each cell once, sorted by step, state, action, outcome."""
        group, size = group_rows(self.where)
        return self.grouped(group, size)

    def renumber(self, states: Int[np.ndarray, " _"], actions: Int[np.ndarray, " _"]) -> "CellTable":
        """The cells under other numbers, the new number of each state and action; cells that coincide are pooled."""
        step, state, action, outcome = self.where
        # Marks of outcomes keep their numbers; states get new ones.
        reached = np.maximum(outcome - FIRST_STATE, 0)
        outcome = np.where(outcome < FIRST_STATE, outcome, FIRST_STATE + states[reached]).astype(np.int32)
        index = Where(step, states[state].astype(np.int32), actions[action].astype(np.int32), outcome)
        return replace(self, where=index).compact()

    def take(self, cells: Int[np.ndarray, " m"]) -> "CellTable":
        """Some of the cells, by their numbers; they keep their order."""
        if len(cells) == len(self):
            return self
        columns = (self.count, self.reward_count, self.seen)
        count, rewards, seen = (column[cells] for column in columns)
        index = Where(*(x[cells] for x in self.where))
        return CellTable(index, count, rewards, self.total.take(cells), self.squares.take(cells), seen)


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
    # Backwards, so that the first row of each group is written last.
    first = np.empty(size, np.intp)
    first[group[::-1]] = np.arange(len(group))[::-1]
    count = np.bincount(group, minlength=size)
    rewards, none = np.zeros(size, np.int64), ExactSums.zero(size)
    total, squares = none, none
    if reward is not None:
        # Rows without a reward count, but add none.
        observed = ~np.isnan(reward)
        observed_group, values = (group, reward) if observed.all() else (group[observed], reward[observed])
        rewards = count if len(observed_group) == len(group) else np.bincount(observed_group, minlength=size)
        total, squares = sum_and_squares(values, observed_group, size)
    places = Where(*(x[first].astype(np.int32) for x in where))
    return CellTable(places, count, rewards, total, squares, row[first] + source * _ROWS)


def joined(tables: Sequence[CellTable]) -> CellTable:
    """All tables in one, each cell once."""
    # Sums without rounding: the order of the tables does not matter.
    if len(tables) == 1:
        return tables[0]
    columns = ([getattr(table, name) for table in tables] for name in ("count", "reward_count", "seen"))
    count, rewards, seen = (np.concatenate(parts) for parts in columns)
    index = Where(*(np.concatenate(parts) for parts in zip(*(table.where for table in tables), strict=True)))
    total = concatenate_sums([table.total for table in tables])
    squares = concatenate_sums([table.squares for table in tables])
    return CellTable(index, count, rewards, total, squares, seen).compact()


def group_rows(columns: Sequence[Column]) -> tuple[Int[np.ndarray, " N"], int]:
    """(group of each row, number of groups): rows are of one group where all columns agree, in order of the columns."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        # One number for each combination of columns, as long as it fits into 64 bits.
        width = int(column.max(initial=0)) + 1
        if size * width > _MOST_KEYS:
            key, size = _renumber(key, size)
        key = key * width + column if size > 1 else column.astype(np.int64)
        # Each column multiplies the number of keys.
        size *= width
    return _renumber(key, size)


def _renumber(key: Int[np.ndarray, " N"], size: int) -> tuple[Int[np.ndarray, " N"], int]:
    """Keys below `size` as 0, 1, ... without gaps, in their order."""
    # Dense keys are counted in a table; sparse ones are sorted.
    if size <= _DENSE * len(key) + 2**16:
        used = np.zeros(size, bool)
        used[key] = True
        number = np.cumsum(used) - 1
        return number[key], int(number[-1]) + 1
    # Each key with its place behind it, in one integer: sorting these takes half as long as finding the order of keys.
    bits = len(key).bit_length()
    if size.bit_length() + bits > 62:
        distinct, group = np.unique(key, return_inverse=True)
        return group, len(distinct)
    ordered = np.sort(key << bits | np.arange(len(key)))
    place, ordered_key = ordered & (2**bits - 1), ordered >> bits
    number = np.cumsum(np.append(False, ordered_key[1:] != ordered_key[:-1]))
    group = np.empty(len(key), np.int64)
    group[place] = number
    return group, int(number[-1]) + 1


@dataclass(frozen=True)
class Source:
    """One log that was read.

    Args:
        name: of the file, or what else it was.
        digest: SHA-256 of its content, as hexadecimal digits.
        rows: how many it has.
        cost: the column of costs that the rewards are minus; None: rewards are as logged.
    """

    name: str
    digest: str
    rows: int
    cost: Hashable | None = None


@dataclass(frozen=True, eq=False)
class FoldedLog:
    """The sufficient statistics of logs, as `read_log` returns them with `chunksize`.

    Rewards are summed without rounding: logs folded apart and merged give bit for bit what one pass over all of them
    gives, whatever the order of the rows and the size of the chunks.

    Args:
        states, actions: the labels behind the indices.
        cells: each observed (step, state, action, outcome) once, in that order.
        sources: the logs.
        by_step: whether the steps of episodes were kept, as spaces with a horizon need; else all are 0.
        has_rewards: whether the logs have rewards.
        given_labels: whether the states, and whether the actions, were given rather than found in the logs.
        outcomes: name -> the same logs with another column in place of the reward (`of_outcome`).

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "r": [0.0, 1.0], "t": ["b", "a"]})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t", chunksize=1000)
        >>> print(log.counts(bm.StateActionSpace.from_log(log)).reward_mean)
        [[0.]
         [1.]]
    """

    states: Names
    actions: Names
    cells: CellTable
    sources: tuple[Source, ...]
    by_step: bool
    has_rewards: bool
    given_labels: tuple[bool, bool] = (False, False)
    outcomes: "Mapping[str, FoldedLog]" = field(default_factory=dict)

    def of_outcome(self, name: str) -> "FoldedLog":
        """The same logs with an outcome in place of the reward, and no others.

        Args:
            name: of the outcome.

        Raises:
            ValueError: they have no such outcome.
        """
        check_name("name", name, self.outcomes)
        return self.outcomes[name]

    def __str__(self) -> str:
        numbers = {"state": len(self.states), "action": len(self.actions), "cell": len(self.cells)}
        sizes = ", ".join(count_of(number, noun) for noun, number in numbers.items())
        names = first_names([source.name for source in self.sources])
        notes = "".join(f"; {note}" for note in self.notes)
        read = f"{count_of(self.n_transitions, 'transition')} of {count_of(self.n_rows, 'row')} in {names}"
        return f"{read}: {sizes}{self._cost_words()}{notes}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the logs is no transition, in words."""
        unknown = int(self.cells.count.sum()) - self.n_transitions
        unfollowed = f"rows that do not say what followed, which count by action and reward alone: {unknown}"
        lost = self.n_rows - unknown - self.n_transitions
        left = f"rows without a state, and last rows without an action, left out: {lost}"
        return (*([left] if lost else []), *([unfollowed] if unknown else []))

    def _cost_words(self) -> str:
        """That rewards are minus costs, and of how many logs where not of all."""
        costs = [source.cost for source in self.sources if source.cost is not None]
        if not costs:
            return ""
        share = f" in {len(costs)} of {len(self.sources)} logs" if len(costs) < len(self.sources) else ""
        return f"; rewards are minus column {', '.join(map(repr, dict.fromkeys(costs)))}{share}"

    @property
    def n_rows(self) -> int:
        """Number of rows that were read (the last row of an episode is no transition where it has no next state)."""
        return sum(source.rows for source in self.sources)

    @property
    def n_transitions(self) -> int:
        """Number of transitions, those apart of which it is not known what followed."""
        return int(self.cells.count[self.cells.where.outcome != UNKNOWN].sum())

    @property
    def ends(self) -> bool:
        """Whether a transition terminated."""
        return bool((self.cells.where.outcome == END).any())

    n_steps = old_attribute(
        "log.n_steps is one more than the largest of log.cells.where.step",
        lambda self: int(self.cells.where.step.max()) + 1,
    )

    def counts(self, space: "StateActionSpace", *, by_outcome: bool = False) -> Counts:
        """The statistics in the arrays of `space`, [*H S A O] (places of the list where it lists successors).

        Counts are exact up to 2^53, means and squared deviations correctly rounded (float64).

        Args:
            space: with the labels of the log.
            by_outcome: whether statistics of rewards are kept for every outcome.

        Raises:
            ValueError: a cell that the space has not (an illegal action, an impossible outcome, a step beyond the
                horizon, an end where none is), with its labels and the file and row where it was first seen; labels
                that are not those of the space; a horizon where steps were not kept.
            TypeError: `by_outcome` is no bool.
        """
        check_bool("by_outcome", by_outcome)
        index = self._index(space)
        known = self.cells.where.outcome != UNKNOWN
        # Every cell adds to its place.
        n = np.zeros((*space.shape, space.n_outcomes))
        reached = tuple(i[known] for i in index)
        np.add.at(n, reached, self.cells.count[known])  # cells that differ in their steps alone fall together
        if by_outcome:  # a reward says nothing there without its outcome
            return Counts(n, *self._rewards(reached, n.shape, np.flatnonzero(known)))
        return Counts(n, *self._rewards(index[:-1], n.shape[:-1], np.arange(len(known))))

    def check(self, space: "StateActionSpace") -> None:
        """Refuse a space that cannot hold the log; errors as of `counts`, which makes the arrays.

        Args:
            space: as of `counts`.
        """
        self._index(space)

    def _check_labels(self, space: "StateActionSpace") -> None:
        if not hasattr(space, "n_outcomes"):  # a StateActionSpace, which this module cannot import
            raise TypeError(f"space is a {type(space).__name__}, expected a StateActionSpace")
        check_log_labels("folded", self, space)
        if space.horizon is not None and not self.by_step:
            raise ValueError(
                "folded has no steps, expected a log folded with by_step=True (the space has a horizon) "
                + see("how-to/large-logs")
            )

    def _rewards(
        self, index: tuple[np.ndarray, ...], shape: tuple[int, ...], cells: Int[np.ndarray, " m"]
    ) -> Iterator[Cells]:
        """Number, mean and squared deviations of the rewards of some cells, in arrays of this shape.

        Args:
            index: of each of these cells there.
            shape: of the arrays.
            cells: their numbers.
        """
        # Cells of one place are pooled exactly before their moments are rounded.
        flat = np.ravel_multi_index(index, shape)
        group, size = group_rows((flat,))
        pooled = self.cells.take(cells).grouped(group, size)
        place = np.empty(size, np.intp)
        place[group] = flat
        for values in (pooled.reward_count, *pooled.reward_moments()):
            full = np.zeros(shape)
            full.reshape(-1)[place] = values
            yield full

    def _index(self, space: "StateActionSpace") -> tuple[np.ndarray, ...]:
        """Index of every cell in an array [*H S A O] of the space; errors as of `counts`."""
        self._check_labels(space)
        index = self.cells.where
        # Marks for what is not known and for the end come before the states.
        known, reached = index.outcome != UNKNOWN, np.maximum(index.outcome - FIRST_STATE, 0)
        reached = np.where(index.outcome == END, space.n_states, reached)
        pair = (index.state, index.action)
        cell = pair if space.horizon is None else (index.step, *pair)
        if space.horizon is not None:
            self._refuse(index.step >= space.horizon, f"a step below the horizon {space.horizon}")
        if not space.ends:
            self._refuse(index.outcome == END, "a space with ends=True")
        if space.legal is not None:
            self._refuse(~space.legal[pair], "a legal action of the state")
        if space.successors is not None:
            blocks = range(0, len(reached), _BLOCK)  # K places are compared for every cell
            parts = [
                np.asarray(space.place(tuple(x[i : i + _BLOCK] for x in cell), reached[i : i + _BLOCK])) for i in blocks
            ]
            reached = np.concatenate(parts)
            self._refuse(known & (reached == space.n_outcomes), "a listed successor")
        elif space.support is not None:
            axes = cell if space.support.ndim == 4 else pair
            self._refuse(known & ~space.support[(*axes, reached)], "an outcome in the known support")
        return (*cell, reached)

    def _refuse(self, bad: np.ndarray, expected: str) -> None:
        """Refuse the bad cell that was seen first, if there is one."""
        if not bad.any():
            return
        # The earliest of the bad cells, so that the message does not depend on the order.
        place = int(np.flatnonzero(bad)[np.argmin(self.cells.seen[bad])])
        step, state, action, outcome = (int(x[place]) for x in self.cells.where)
        number, row = divmod(int(self.cells.seen[place]), _ROWS)
        source = self.sources[number]
        unknown = {UNKNOWN: "an unknown state", END: "the end of the episode"}
        target = unknown.get(outcome) or f"next state {self.states[outcome - FIRST_STATE]!r}"
        step_words = f", at step {step}" if self.by_step else ""
        raise ValueError(
            f"{source.name}, row {row + 1}: action {self.actions[action]!r} in state "
            f"{self.states[state]!r}{step_words} leads to {target}, expected {expected}"
        )

    def merge(self, other: "FoldedLog", *, allow_duplicates: bool = False) -> "FoldedLog":
        """Both logs together; exactly what one fold of the sources of both gives.

        Labels that were found are put in natural order again, with a warning of those that may be two spellings of one;
        labels that were given must be the same.

        Args:
            other: folded by the same columns.
            allow_duplicates: whether a source may be in both.

        Raises:
            TypeError: `other` is no folded log.
            ValueError: a source that is in both, other labels, steps or rewards that only one of them has.
        """
        check_type("other", other, FoldedLog, "a FoldedLog")
        if not allow_duplicates:
            check_new_sources(self.sources, other.sources)
        # Logs with steps, or rewards, do not mix with logs without.
        for property_name, first, second in (
            ("steps", self.by_step, other.by_step),
            ("rewards", self.has_rewards, other.has_rewards),
        ):
            if first != second:
                has, lacks = (self, other) if first else (other, self)
                raise ValueError(
                    f"{lacks.sources[0].name} was folded without {property_name} and {has.sources[0].name} with, "
                    "expected both alike"
                )
        states = _common("states", self, other, 0)
        actions = _common("actions", self, other, 1)
        if set(self.outcomes) != set(other.outcomes):
            odd = sorted(set(self.outcomes) ^ set(other.outcomes))[0]
            raise ValueError(
                f"outcome {odd!r} is in one of the folded logs alone, expected both folded with the same outcomes"
            )
        # Both under common labels, and then each cell once.
        cells = _join_cells(self, other, states, actions, len(self.sources))
        merged = replace(self, states=states, actions=actions, cells=cells, sources=self.sources + other.sources)
        outcomes = {
            name: replace(
                merged,
                has_rewards=True,
                outcomes={},
                sources=self.outcomes[name].sources + other.outcomes[name].sources,
                cells=_join_cells(self.outcomes[name], other.outcomes[name], states, actions, len(self.sources)),
            )
            for name in self.outcomes
        }
        merged = replace(merged, outcomes=outcomes)
        merged._warn_of_similar((states != self.states, actions != self.actions))
        return merged

    def _warn_of_similar(self, found: tuple[bool, bool]) -> None:
        """A warning of labels that may be two spellings of one; `found`: whether there are new states, new actions."""
        index, count = self.cells.where, self.cells.count
        source = f"{len(self.sources)} logs, {self.sources[0].name} first"
        if found[0]:
            # States that were left, and states that were reached.
            went_on = index.outcome >= FIRST_STATE
            reached = np.bincount(index.outcome[went_on] - FIRST_STATE, count[went_on], len(self.states))
            left = np.bincount(index.state, count, len(self.states))
            warn_of_similar(f"{source}: state", "state", self.states, [left, reached])
        if found[1]:
            warn_of_similar(
                f"{source}: action", "action", self.actions, [np.bincount(index.action, count, len(self.actions))]
            )


def _join_cells(one: FoldedLog, two: FoldedLog, states: Names, actions: Names, sources: int) -> CellTable:
    """The cells of both under common labels; the sources of the second follow those of the first."""
    first, second = (
        log.cells.renumber(_numbers(log.states, states), _numbers(log.actions, actions)) for log in (one, two)
    )
    return joined([first, replace(second, seen=second.seen + sources * _ROWS)])


def check_new_sources(known: tuple[Source, ...], new: tuple[Source, ...]) -> None:
    """Refuse a new source whose content is that of a known one.

    Raises:
        ValueError: names both.
    """
    names = {source.digest: source.name for source in known}
    for source in new:
        if source.digest in names:
            raise ValueError(
                f"{source.name} has the content of {names[source.digest]}, which is in already, expected every log "
                "once (allow_duplicates=True counts it again; in the shell --allow-duplicates) "
                + see("how-to/large-logs")
            )


def _common(what: str, one: FoldedLog, two: FoldedLog, which: int) -> Names:
    """The labels of both, as one fold would number them."""
    mine, theirs = (getattr(log, what) for log in (one, two))
    declared = [log.given_labels[which] for log in (one, two)]
    if any(declared):
        check_labels(f"{what} of {two.sources[0].name}", theirs, mine)
        return mine
    # Given labels have to agree; found ones are put together.
    # Text that writes numbers became numbers where all labels did: one fold of both might have kept it as text.
    numbers = [all(isinstance(label, (int, float)) for label in labels) for labels in (mine, theirs)]
    if numbers[0] != numbers[1]:
        names = [one.sources[0].name, two.sources[0].name]
        raise ValueError(
            f"the {what} of {names[numbers.index(True)]} are numbers and those of {names[numbers.index(False)]} are "
            f"not, expected one kind ({what}=[...] gives all labels) {see('how-to/large-logs')}"
        )
    return mine if mine == theirs else natural_order({*mine, *theirs})


def _numbers(labels: Names, among: Names) -> Int[np.ndarray, " L"]:
    """The index of each label among others."""
    number: dict[Hashable, int] = {label: i for i, label in enumerate(among)}
    return np.array([number[label] for label in labels], np.int32)


class ObservedSuccessors(NamedTuple):
    """Lists over S + 1 states, the last of which, U, stands for what was never seen.

    Args:
        successors: [S+1 A K], observed outcomes in order (S + 1 is the end), then U, then -1.
        multiplicity: [S+1 A K], how many outcomes each place stands for.
    """

    successors: Int[np.ndarray, "S+1 A K"]
    multiplicity: Int[np.ndarray, "S+1 A K"]


def observed_successors(log: Log | FoldedLog, *, ends: bool) -> ObservedSuccessors:
    """List what a log of S states and A actions holds. Host side.

    From U itself an episode ends where it can, and else stays in U.

    Args:
        log: as `read_log` returns it.
        ends: whether an episode can end.

    Raises:
        ValueError: a next state without label, lists that do not fit in memory.
    """
    n_states, n_actions = len(log.states), len(log.actions)
    unseen, end = n_states, n_states + 1
    state, action, reached = _transitions_of(log, end)
    check_index("transitions.next_state", np.where(reached == end, 0, reached), n_states, "state")
    # Every (pair, outcome) once, in order: one sort of one number each.
    pair, outcome = np.divmod(np.unique((state * n_actions + action) * (end + 1) + reached), end + 1)
    number = np.bincount(pair, minlength=(n_states + 1) * n_actions)
    width = int(number.max(initial=0)) + 1
    check_memory(
        f"successors of {n_states} states and {n_actions} actions, at most {width - 1} observed of a pair",
        32.0 * (n_states + 1) * n_actions * width,
        "successors that are known may be fewer",
    )
    # -1: no further outcome.
    successors = np.full((len(number), width), -1)
    multiplicity = np.ones((len(number), width), np.int64)
    # The place of an outcome within its pair.
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
    successors[pair, place] = outcome
    # What is left of the S states and the end is one outcome more, where there is something left.
    left = n_states + ends - number
    rows = np.flatnonzero(left > 0)
    successors[rows, number[rows]] = unseen
    multiplicity[rows, number[rows]] = left[rows]
    extra = slice(n_states * n_actions, None)
    # U itself: one outcome for every action.
    successors[extra], multiplicity[extra] = -1, 1
    successors[extra, 0] = end if ends else unseen
    shape = (n_states + 1, n_actions, width)
    return ObservedSuccessors(successors.reshape(shape), multiplicity.reshape(shape))


def _transitions_of(
    log: Log | FoldedLog, end: int
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """State, action and next state (or `end`) of the transitions, each at least once."""
    if isinstance(log, FoldedLog):
        index = Where(*(x[log.cells.where.outcome != UNKNOWN] for x in log.cells.where))
        columns = index.state, index.action, np.where(index.outcome == END, end, index.outcome - FIRST_STATE)
    else:
        complete = log.transitions.with_next_state()
        columns = complete.state, complete.action, complete.outcome(end)
    state, action, reached = (np.asarray(column, np.int64) for column in columns)
    return state, action, reached
