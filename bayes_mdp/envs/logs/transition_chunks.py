"""The transitions of one log, chunk by chunk: together exactly those that reading it as a whole gives.

`LabelBook` numbers labels in the order in which they are met, `transition_chunks` reads the rows, `log_chunks` makes a
log of each chunk.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog, open_log
from bayes_mdp.envs.logs.columns import (
    EXPECTED_REWARD,
    NO_ACTION,
    as_numbers,
    category_order,
    expected_label,
    factorised,
    number_of,
    read_flags,
    read_steps,
    refuse_vague,
    require_cells,
    reward_cells,
    reward_role,
    warn_of_time,
)
from bayes_mdp.envs.logs.episodes import Columns, OpenEpisodes, Settled, episode_order, follow
from bayes_mdp.envs.logs.tables import Dialect, Table, plain
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.mdp.by_label import natural_order, warn_of_similar
from bayes_mdp.numerics.moments import LARGEST
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import as_names, check_count, check_names, label_list

if TYPE_CHECKING:
    import pandas as pd


_TABULATED = 2**24
"""Whole labels below are looked up in an array, others one by one."""


class LabelBook:
    """The numbers of the states, or of the actions, of logs that are read in chunks.

    Args:
        role: "state" or "action".
        given: all labels in order: their numbers are known, and others are refused; None: labels are found on the way.
    """

    def __init__(self, role: str, given: Sequence[Hashable] | None) -> None:
        self.role = role
        self.given = None if given is None else as_names(given)
        if self.given is not None:
            check_names(f"{role}s", self.given)
        self.numbers: dict[Hashable, int] = {}
        if self.given is not None:
            self.numbers = {label: i for i, label in enumerate(self.given)}
        self._by_text = self.given is not None and all(isinstance(label, str) for label in self.given)
        # Of labels that are whole numbers, and of those that are the text of one.
        self._tables = {False: np.full(0, -1, np.int32), True: np.full(0, -1, np.int32)}
        self._names: dict[str, None] = {}  # of the logs
        self._column = ""
        self._orders: list[Any] = []  # of the categories of columns
        self._rows: dict[str, Int[np.ndarray, " L"]] = {}  # of each column of these labels: rows of each number

    def number(
        self, table: Table, role: str, ignored: Bool[np.ndarray, " N"] | None = None, *, holes: bool = False
    ) -> Int[np.ndarray, " N"]:
        """The number of the label of each row.

        Args:
            table: a chunk.
            role: of the column.
            ignored: rows that are not looked at; their number is -1.
            holes: whether cells may be empty; their number is -1.

        Raises:
            ValueError: an empty cell, a label that is not one of those given; names the row.
        """
        self._names[table.name] = None
        self._column = self._column or f"{role} {table.columns[role]!r}"
        codes, uniques = factorised(table, role)
        order = category_order(table, (role,))
        if order not in self._orders:
            self._orders.append(order)
        needed = np.ones(len(codes), bool) if ignored is None else ~ignored
        if not holes:
            require_cells(table, needed & (codes < 0), role, expected_label(role))
        looked = needed & (codes >= 0)
        # A label that stands in ignored rows alone is none.
        used = np.zeros(len(uniques), bool)
        used[codes[looked]] = True
        number = np.full(len(uniques) + 1, -1, np.int32)  # the last: of the code -1
        what = f"{table.name}: {role} {table.columns[role]!r}"
        number[:-1][used] = self._look_up(what, uniques, np.flatnonzero(used), table.text is not None)
        result = np.where(looked, number[codes], -1).astype(np.int32)
        if self.given is not None:
            names = label_list(self.given)
            require_cells(table, looked & (result < 0), role, f"one of the labels given ({names})")
        else:
            self._rows[role] = self._counted(role) + np.bincount(result[looked], minlength=len(self.numbers))
        return result

    def _counted(self, role: str) -> Int[np.ndarray, " L"]:
        """How many rows of a column each number had so far."""
        before = self._rows.get(role, np.zeros(0, np.int64))
        return np.append(before, np.zeros(len(self.numbers) - len(before), np.int64))

    def _look_up(
        self, what: str, uniques: "pd.Index | range", used: Int[np.ndarray, " U"], is_text: bool
    ) -> np.ndarray:
        """The numbers of the labels `uniques[used]`; whole ones are text in truth where the source `is_text`."""
        if isinstance(uniques, range):
            whole = used + uniques.start
        elif uniques.dtype.kind in "iu":
            whole = np.asarray(uniques)[used]
        else:
            labels = [plain(uniques[i]) for i in used]
            refuse_vague(what, labels)
            return np.array([self._number(label) for label in labels], np.int32)
        if not whole.size or whole.min() < 0 or whole.max() >= _TABULATED:
            return np.array([self._number(str(n) if is_text else n) for n in whole.tolist()], np.int32)
        table = self._tables[is_text]
        if whole.max() >= len(table):
            more = max(int(whole.max()) + 1 - len(table), len(table))
            table = self._tables[is_text] = np.append(table, np.full(more, -1, np.int32))
        new = whole[table[whole] < 0]
        table[new] = [self._number(str(n) if is_text else n) for n in new.tolist()]
        return table[whole]

    def _number(self, label: Hashable) -> int:
        if self.given is None:
            return self.numbers.setdefault(label, len(self.numbers))
        found = self.numbers.get(label, -1)
        if found < 0 and isinstance(label, str) and not self._by_text:
            return self.numbers.get(number_of(label), -1)
        return found

    def finish(self) -> tuple[Names, Int[np.ndarray, " L"]]:
        """The labels in order, and the place there of each number that was given out.

        Labels that were found and may be two spellings of one are named in a warning.
        """
        if self.given is not None:
            return self.given, np.arange(len(self.given), dtype=np.int32)
        first = next(iter(self._names), "")
        what = f"{first if len(self._names) < 2 else f'{len(self._names)} logs, {first} first'}: {self._column}"
        found = as_numbers(what, list(self.numbers), None)
        if self._rows:
            warn_of_similar(what, self.role, found, [self._counted(role) for role in self._rows])
        names = natural_order(set(found))
        if len(self._orders) == 1 and self._orders[0] is not None:
            number = self.numbers
            names = tuple(found[number[label]] for label in self._orders[0] if label in number)
        place = {label: i for i, label in enumerate(names)}
        return names, np.array([place[label] for label in found], np.int32)


class Rows(NamedTuple):
    """N transitions.

    Args:
        state, action: numbers of their labels.
        reward: minus the cost where the log has costs; nan where it was not observed; None: there is no such column.
        next_state: number of its label; any where terminated, or where it is not known what followed.
        terminated: whether the transition ended the episode; None: not known.
        truncated: whether the episode was cut here; None: not known, or not asked for.
        step: of the episode; None: not known, or not asked for.
        row: of the log.
        next_observed: whether it is known what followed.
    """

    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    reward: Float[np.ndarray, " N"] | None
    next_state: Int[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"] | None
    truncated: Bool[np.ndarray, " N"] | None
    step: Int[np.ndarray, " N"] | None
    row: Int[np.ndarray, " N"]
    next_observed: Bool[np.ndarray, " N"]


@dataclass(frozen=True)
class Missing:
    """What may be missing.

    Args:
        rewards: whether a reward may be.
        states: whether a state may be: a gap.
        steps: whether a step may be left out: likewise.
    """

    rewards: bool
    states: bool
    steps: bool


@dataclass(frozen=True)
class Wanted:
    """What is read of a log beside states, actions, rewards and terminations.

    Args:
        steps: whether the steps of episodes are.
        truncated: whether truncations are.
        missing: what may be missing.
    """

    steps: bool
    truncated: bool
    missing: Missing


def transition_chunks(log: ChunkedLog, states: LabelBook, actions: LabelBook, wanted: Wanted) -> Iterator[Rows]:
    """The transitions of a log, those of an episode in order; none of the chunks is empty.

    Raises:
        ValueError: a cell that cannot be read, a step that does not follow the one before (names the row), no
            transition.
    """
    shifts, place = "next_state" not in log.columns, wanted.steps and "step" not in log.columns
    cuts = wanted.truncated and "episode" in log.columns
    joins = shifts or ("episode" in log.columns and (place or cuts))
    checks = shifts and "step" in log.columns
    episodes = OpenEpisodes(shifts or cuts, place, checks, wanted.missing.steps)
    number, table = 0, None
    for table in log:
        columns = _cells(table, states, actions, wanted)
        if not table.first and "episode" in table.columns:
            codes, _ = factorised(table, "episode")
            warn_of_time(table, codes, episode_order(codes), columns["action"], list(actions.numbers))
        settled = _advance(table, episodes, columns) if joins else columns
        rows = _rows(table, settled, wanted)
        number += int(rows.next_observed.sum())
        if len(rows.state):
            yield rows
    rest = episodes.finish()
    if rest is not None and table is not None:
        rows = _rows(table, rest, wanted)
        number += int(rows.next_observed.sum())
        if len(rows.state):
            yield rows
    if not number:
        raise ValueError(
            f"{log.name} has no episode of two rows, expected at least one transition {see('how-to/read-a-log')}"
        )


def _cells(table: Table, states: LabelBook, actions: LabelBook, wanted: Wanted) -> Columns:
    """The columns of a chunk as numbers. Actions and rewards may be empty: -1 and nan."""
    ends, cut = read_flags(table, "terminated"), read_flags(table, "truncated")
    columns = {
        "state": states.number(table, "state", holes=wanted.missing.states),
        "action": _actions(table, actions),
        "row": np.arange(table.first, table.first + len(table.frame)),
    }
    if "next_state" in table.columns:
        columns["next_state"] = states.number(table, "next_state", ends, holes=wanted.missing.states)
    rewards = reward_cells(table)
    if rewards is not None:
        too_large = np.abs(rewards) > LARGEST
        require_cells(table, too_large, reward_role(table), f"a number of at most {LARGEST:.1g}")
    steps = read_steps(table)
    columns |= {k: v for k, v in (("reward", rewards), ("truncated", cut), ("step", steps)) if v is not None}
    return columns | {"terminated": np.zeros(len(table.frame), bool) if ends is None else ends}


def _actions(table: Table, actions: LabelBook) -> Int[np.ndarray, " N"]:
    """The number of the action of each row, -1 where it is empty; of a chain, of its only action."""
    if "action" in table.columns:
        return actions.number(table, "action", holes=True)
    if actions.given is None:
        actions.numbers.setdefault(NO_ACTION, 0)
    return np.zeros(len(table.frame), np.int32)


def _episodes(table: Table) -> "tuple[np.ndarray, pd.Index | range]":
    """As `factorised`; one episode where the log names none."""
    return factorised(table, "episode") if "episode" in table.columns else (np.zeros(len(table.frame), int), range(1))


def _advance(table: Table, episodes: OpenEpisodes, columns: Columns) -> Settled:
    codes, labels = _episodes(table)
    require_cells(table, codes < 0, "episode", "the label of an episode")
    settled = episodes.advance(codes, labels, columns)
    if settled.gap is not None:
        settled.gap.refuse(table)
    return settled


def _rows(table: Table, settled: Settled | Columns, wanted: Wanted) -> Rows:
    """Settled rows of the log as transitions, whose actions and rewards are there."""
    if isinstance(settled, Settled):
        columns, followed, place = settled.columns, settled.followed, settled.place
    else:
        columns, followed, place = settled, follow(None, settled, checks_steps=False), None
    kept = np.flatnonzero(followed.keep)
    columns = {name: column[kept] for name, column in columns.items()}
    next_state, led, cut, _ = (None if x is None else x[kept] for x in followed)
    assert next_state is not None and led is not None
    step = columns.get("step")
    step = place[kept] if step is None and place is not None else step
    reward, row = columns.get("reward"), columns["row"]
    _require_there(table, columns["action"] < 0, row, "action", expected_label("action"))
    if reward is not None and not wanted.missing.rewards:
        _require_there(table, np.isnan(reward) & led, row, reward_role(table), EXPECTED_REWARD)
    ends = columns["terminated"] if "terminated" in table.columns else None
    steps = step if wanted.steps else None
    return Rows(columns["state"], columns["action"], reward, next_state, ends, cut, steps, row, led)


def _require_there(
    table: Table, empty: Bool[np.ndarray, " N"], row: Int[np.ndarray, " N"], role: str, expected: str
) -> None:
    if empty.any():
        table.refuse(int(row[empty].min()), role, "empty", expected)


def log_chunks(
    source: object,
    roles: dict[str, Any],
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    chunksize: int,
    missing: Missing,
    dialect: Dialect = Dialect(),
) -> Iterator[Log]:
    """The chunks of a log; arguments and errors as for `read_log`, which checks them.

    Raises:
        ValueError: states or actions are None: labels that are found on the way have no numbers before the end.
    """
    check_count("chunksize", chunksize)
    for name, labels in (("states", states), ("actions", actions)):
        if labels is None:
            raise ValueError(
                f"{name} is None, expected all labels in order, where chunksize is given: labels are numbered in "
                "natural order, which is known at the end of a log (fold_log finds them)"
            )
    books = LabelBook("state", states), LabelBook("action", actions)
    log = open_log(source, roles, chunksize, {"state": states, "action": actions}, dialect)
    steps = roles.get("step") is not None or roles.get("episode") is not None
    rows = transition_chunks(log, *books, Wanted(steps, True, missing))
    return (_log(some, books, log) for some in rows)


def _log(rows: Rows, books: tuple[LabelBook, LabelBook], source: ChunkedLog) -> Log:
    reward, observed = rows.reward, None
    if reward is not None and np.isnan(reward).any():
        reward, observed = np.where(np.isnan(reward), 0.0, reward), ~np.isnan(reward)
    # The next state of a transition that ended, or of which it is not known what followed, is not looked at.
    led, ended = rows.next_observed, False if rows.terminated is None else rows.terminated
    reached = np.where(led & ~np.asarray(ended), rows.next_state, 0)
    step = None if rows.step is None else rows.step.astype(np.int32)
    columns = (rows.state, rows.action, reward, reached, rows.terminated, rows.truncated, step)
    states, actions = (book.finish()[0] for book in books)
    transitions = Transitions(*columns, reward_observed=observed, next_observed=None if led.all() else led)
    return Log(transitions, states, actions, source.name, columns=source.columns)
