"""The transitions of one log, chunk by chunk: together exactly those that reading it as a whole gives.

`LabelBook` numbers labels in the order in which they are met, `transition_chunks` reads the rows, `log_chunks` makes a
log of each chunk.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog, open_log
from bayes_mdp.envs.logs.columns import (
    EXPECTED_REWARD,
    NO_ACTION,
    Columns,
    as_numbers,
    category_order,
    expect_actions,
    expected_label,
    factorised,
    is_empty,
    next_states_given,
    number_of,
    outcome_roles,
    read_flags,
    read_steps,
    refuse_vague,
    require_all,
    require_cells,
    reward_cells,
    reward_role,
)
from bayes_mdp.envs.logs.episodes import REPEATED, OpenEpisodes, Settled, episode_order, warn_of_time
from bayes_mdp.envs.logs.tables import MOST_TOLD, BadCells, Dialect, Faults, Missing, Table, plain
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.mdp.by_label import natural_order, warn_of_similar
from bayes_mdp.numerics.moments import LARGEST
from bayes_mdp.utils.messages import ends_with_page, see, warn_user
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
        empty = (needed & (codes < 0) & (not holes), role, expected_label(role))
        if self.given is None:
            require_all(table, [empty])
        looked = needed & (codes >= 0)
        # A label that stands in ignored rows alone is none.
        used = np.zeros(len(uniques), bool)
        used[codes[looked]] = True
        number = np.full(len(uniques) + 1, -1, np.int32)  # the last: of the code -1
        column_name = f"{table.name}: {role} {table.columns[role]!r}"
        number[:-1][used] = self._look_up(column_name, uniques, np.flatnonzero(used), table.text is not None)
        result = np.where(looked, number[codes], -1).astype(np.int32)
        if self.given is not None:
            listed = f"one of the labels given ({label_list(self.given)})"
            require_all(table, [empty, (looked & (result < 0), role, listed)])
        else:
            self._rows[role] = self._row_counts(role) + np.bincount(result[looked], minlength=len(self.numbers))
        return result

    def _row_counts(self, role: str) -> Int[np.ndarray, " L"]:
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
            growth = max(int(whole.max()) + 1 - len(table), len(table))
            table = self._tables[is_text] = np.append(table, np.full(growth, -1, np.int32))
        new = whole[table[whole] < 0]
        table[new] = [self._number(str(n) if is_text else n) for n in new.tolist()]
        return table[whole]

    def _number(self, label: Hashable) -> int:
        if self.given is None:
            return self.numbers.setdefault(label, len(self.numbers))
        code = self.numbers.get(label, -1)
        if code < 0 and isinstance(label, str) and not self._by_text:
            return self.numbers.get(number_of(label), -1)
        return code

    def finish(self) -> tuple[Names, Int[np.ndarray, " L"]]:
        """The labels in order, and the place there of each number that was given out.

        Labels that were found and may be two spellings of one are named in a warning.
        """
        if self.given is not None:
            return self.given, np.arange(len(self.given), dtype=np.int32)
        first = next(iter(self._names), "")
        source = f"{first if len(self._names) < 2 else f'{len(self._names)} logs, {first} first'}: {self._column}"
        labels = as_numbers(source, list(self.numbers), None)
        if self._rows:
            warn_of_similar(source, self.role, labels, [self._row_counts(role) for role in self._rows])
        names = natural_order(set(labels))
        if len(self._orders) == 1 and self._orders[0] is not None:
            number = self.numbers
            names = tuple(labels[number[label]] for label in self._orders[0] if label in number)
        place = {label: i for i, label in enumerate(names)}
        return names, np.array([place[label] for label in labels], np.int32)


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
        outcomes: name -> numbers beside the reward; nan where one was not observed.
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
    outcomes: Mapping[str, Float[np.ndarray, " N"]] = MappingProxyType({})


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


class LeftOpen:
    """Episodes of earlier logs that may go on in a later one, which is not looked at: a warning says so, once."""

    def __init__(self) -> None:
        self._last_steps: pd.Series | None = None  # by episode
        self._warned = False

    def keep(self, episodes: OpenEpisodes) -> None:
        """Take note of those of a log that was read to its end."""
        import pandas as pd

        open_ones = episodes.left_open()
        if open_ones is not None:
            last_steps = pd.Series(open_ones[1], index=open_ones[0])
            if self._last_steps is not None:
                last_steps = pd.concat([self._last_steps, last_steps])
                last_steps = last_steps.loc[~last_steps.index.duplicated(keep="last")]
            self._last_steps = last_steps

    def warn(self, table: Table, steps: Int[np.ndarray, " N"] | None) -> None:
        """Warn of an episode that has the label of one that is open, and begins at a later step, as far as is told.

        Args:
            table: a chunk of a later log.
            steps: of its rows.
        """
        import pandas as pd

        if self._last_steps is None or self._warned:
            return
        codes, uniques = factorised(table, "episode")
        present, first = np.unique(codes, return_index=True)  # rows without an episode are refused by now
        labels = pd.Index(uniques)[present]
        place = self._last_steps.index.get_indexer(labels)
        met = np.flatnonzero(place >= 0)
        if steps is not None:
            met = met[steps[first[met]] > self._last_steps.to_numpy()[place[met]]]
        if len(met):
            self._warned = True
            where = f"{table.name}, row {table.first + first[met[0]] + 1}: episode {plain(labels[met[0]])!r}"
            warn_user(
                f"{where} neither terminated nor was truncated in an earlier log, and counts as another one here: what "
                "followed its last row there is taken as not known. If it goes on, put its rows into one log; if not, "
                f"terminated= or truncated= says so {see('how-to/large-logs')}"
            )
        # In the chunks that follow it is an episode of this log.
        self._last_steps = self._last_steps.drop(self._last_steps.index[place[place >= 0]])


def transition_chunks(
    log: ChunkedLog, states: LabelBook, actions: LabelBook, wanted: Wanted, left_open: LeftOpen | None = None
) -> Iterator[Rows]:
    """The transitions of a log, those of an episode in order; none of the chunks is empty.

    Where a cell cannot be read, the log is read to its end, so that all such cells are told at once.

    Args:
        log, states, actions, wanted: what is read.
        left_open: episodes of the logs before this one; None: there is no other log.

    Raises:
        ValueError: a cell that cannot be read, a step that does not follow the one before (names the row); no
            transition, where there is no other log.
    """
    shifts, place = "next_state" not in log.columns, wanted.steps and "step" not in log.columns
    cuts = wanted.truncated and "episode" in log.columns
    joins = shifts or ("episode" in log.columns and (place or cuts))
    checks = shifts and "step" in log.columns
    episodes = OpenEpisodes(shifts or cuts, place, checks, wanted.missing.steps)
    number, table, faults, seen = 0, None, _LogFaults(), _StepsSeen()
    repeats = not shifts and {"step", "episode"} <= log.columns.keys()
    for table in log:
        columns = _cells(table, states, actions, wanted, faults)
        if repeats and not faults.errors:
            row = seen.repeated(table, columns["step"])
            if row is not None:
                faults.keep_first_gap(partial(_refuse_repetition, table, log, row, columns["step"]))
        if not table.first and "episode" in table.columns and not faults.errors:
            codes, _ = factorised(table, "episode")
            warn_of_time(table, codes, episode_order(codes), columns["action"], list(actions.numbers))
        if joins and left_open is not None and "episode" in table.columns and not faults.errors:
            left_open.warn(table, columns.get("step"))
        settled = _advance(table, episodes, columns, faults) if joins else columns
        rows = _rows(table, settled, wanted, faults)
        number += int(rows.next_observed.sum())
        if len(rows.state) and not faults.errors:
            yield rows
    if left_open is not None:
        left_open.keep(episodes)
    rest = episodes.finish()
    if rest is not None and table is not None:
        rows = _rows(table, rest, wanted, faults)
        number += int(rows.next_observed.sum())
        if len(rows.state) and not faults.errors:
            yield rows
    if table is not None:
        faults.without_what_follows().refuse(table)
    if not number and left_open is None:
        raise ValueError(f"{log.what_it_lacks()}, expected at least one transition")


def _refuse_repetition(table: Table, log: ChunkedLog, row: int, steps: Int[np.ndarray, " N"]) -> NoReturn:
    """Refuse a row whose step its episode had before; the log is read once more for that row."""
    episode = table.frame[table.columns["episode"]].iloc[row]
    for before in log.again():
        repeated = (read_steps(before) == steps[row]) & (before.frame[before.columns["episode"]] == episode).to_numpy()
        if repeated.any():
            expected = REPEATED.format(before.first + int(np.argmax(repeated)) + 1)
            table.refuse(table.first + row, "step", repr(int(steps[row])), expected)
    raise AssertionError  # the row itself is one of them


class _StepsSeen:
    """The steps that each episode of a log had so far: no step may be there twice. Memory: one number for each run of
    steps without a gap.
    """

    def __init__(self) -> None:
        self._begin = self._end = np.zeros(0, np.int64)  # of the runs, in order; steps of other episodes are far apart
        self._labels: pd.Index | None = None

    def repeated(self, table: Table, steps: Int[np.ndarray, " N"]) -> int | None:
        """The first row of a chunk whose step its episode had before; None: there is none."""
        import pandas as pd

        codes, uniques = factorised(table, "episode")
        labels = pd.Index(uniques)
        self._labels = (
            labels if self._labels is None else self._labels.append(labels.difference(self._labels, sort=False))
        )
        key = self._labels.get_indexer(labels)[codes].astype(np.int64) * 2**32 + steps
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        duplicated = np.zeros(len(key), bool)
        duplicated[order[1:]] = ordered[1:] == ordered[:-1]
        if len(self._begin):
            run = np.searchsorted(self._begin, key, side="right") - 1
            duplicated |= (run >= 0) & (key <= self._end[run])
        if duplicated.any():
            return int(np.argmax(duplicated))
        begin, end = np.append(self._begin, ordered), np.append(self._end, ordered)
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
        first = np.append(True, begin[1:] != end[:-1] + 1)
        self._begin, self._end = begin[first], end[np.append(first[1:], True)]
        return None


class _LogFaults(Faults):
    """Cells of a log that cannot be read, of all its chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._gap: BadCells | None = None  # a step that does not follow the one before

    def keep_first_gap(self, refuse: Callable[[], object]) -> None:
        """Take note of a step that does not follow, or is there twice; later ones may follow from it."""
        if self._gap is None:
            before = len(self.errors)
            self.read(refuse, lambda: None)
            self._gap = self.errors[-1] if len(self.errors) > before else None

    def without_what_follows(self) -> Faults:
        """Those that do not follow from others."""
        roles = {error.cells[0][1] for error in self.errors if error is not self._gap}
        paid = {"action", *_REWARDS}
        unclear = bool({"truncated", "episode", "step"} & roles)  # which cells may be empty
        remaining = Faults()
        for error in self.errors:
            follows = not roles <= paid if error is self._gap else unclear and error.cells[0][1] in paid
            remaining.errors += [] if follows else [error]
        return remaining


_REWARDS = ("reward", "cost")


def _cells(table: Table, states: LabelBook, actions: LabelBook, wanted: Wanted, faults: Faults) -> Columns:
    """The columns of a chunk as numbers. Actions and rewards may be empty: -1 and nan."""
    size, holes = len(table.frame), wanted.missing.states
    never = lambda: np.zeros(size, bool)  # noqa: E731
    empty = lambda role, where: -(is_empty(table, role) & where).astype(int)  # noqa: E731
    ends = faults.read(lambda: read_flags(table, "terminated"), never)
    cut = faults.read(lambda: read_flags(table, "truncated"), never)
    columns = {
        "state": faults.read(lambda: states.number(table, "state", holes=holes), lambda: empty("state", holes)),
        "action": faults.read(lambda: _actions(table, actions), lambda: empty("action", True)),
        "row": np.arange(table.first, table.first + size),
    }
    if "next_state" in table.columns:
        columns["next_state"] = faults.read(
            lambda: states.number(table, "next_state", ends, holes=holes), lambda: empty("next_state", holes)
        )
    if "episode" in table.columns:
        nowhere = is_empty(table, "episode")
        faults.read(lambda: require_cells(table, nowhere, "episode", "the label of an episode"), lambda: None)
    rewards = faults.read(lambda: _finite_rewards(table), lambda: _empty_as_nan(table, reward_role(table)))
    # Under their roles, which wait with the rows of an open episode as the rewards do.
    for role in outcome_roles(table.columns).values():
        numbers = faults.read(partial(_finite_rewards, table, role), partial(_empty_as_nan, table, role))
        assert numbers is not None
        columns[role] = numbers
    steps = faults.read(lambda: read_steps(table), lambda: np.zeros(size, np.int32))
    columns |= {k: v for k, v in (("reward", rewards), ("truncated", cut), ("step", steps)) if v is not None}
    return columns | {"terminated": np.zeros(len(table.frame), bool) if ends is None else ends}


def _finite_rewards(table: Table, role: str | None = None) -> Float[np.ndarray, " N"] | None:
    """Rewards (or an outcome) of which exact sums can be made."""
    role = reward_role(table) if role is None else role
    rewards = reward_cells(table, role)
    if rewards is not None:
        too_large = np.abs(rewards) > LARGEST
        require_cells(table, too_large, role, f"a number of at most {LARGEST:.1g}")
    return rewards


def _empty_as_nan(table: Table, role: str) -> Float[np.ndarray, " N"]:
    return np.where(is_empty(table, role), np.nan, 0.0)


def _actions(table: Table, actions: LabelBook) -> Int[np.ndarray, " N"]:
    """The number of the action of each row, -1 where it is empty; of a chain, of its only action."""
    if "action" in table.columns:
        return actions.number(table, "action", holes=True)
    if actions.given is None:
        actions.numbers.setdefault(NO_ACTION, 0)
    return np.zeros(len(table.frame), np.int32)


def _advance(table: Table, episodes: OpenEpisodes, columns: Columns, faults: _LogFaults) -> Settled:
    # One episode where the log names none.
    one = np.zeros(len(table.frame), int), range(1)
    codes, labels = factorised(table, "episode") if "episode" in table.columns else one
    # Rows without an episode are refused at the end.
    settled = episodes.advance(np.maximum(codes, 0), labels if len(labels) else range(1), columns)
    gap = settled.gap
    if gap is not None:
        faults.keep_first_gap(lambda: gap.refuse(table))
    return settled


def _rows(table: Table, settled: Settled | Columns, wanted: Wanted, faults: Faults) -> Rows:
    """Settled rows of the log as transitions, whose actions and rewards are there."""
    if isinstance(settled, Settled):
        columns, followed, place = settled.columns, settled.followed, settled.place
    else:
        columns, followed, place = settled, next_states_given(settled), None
    followed_rows = np.flatnonzero(followed.keep)
    columns = {name: column[followed_rows] for name, column in columns.items()}
    next_state, led, cut, _ = (None if x is None else x[followed_rows] for x in followed)
    assert next_state is not None and led is not None
    step = columns.get("step")
    step = place[followed_rows] if step is None and place is not None else step
    reward, row = columns.get("reward"), columns["row"]
    ended = columns["terminated"] if "next_state" not in table.columns else None
    checks = expect_actions(columns["action"] < 0, ended)
    named = outcome_roles(table.columns)
    if not wanted.missing.rewards:
        paid = {reward_role(table): reward} if reward is not None else {}
        paid |= {role: columns[role] for role in named.values()}
        checks += [(np.isnan(x) & led, role, EXPECTED_REWARD) for role, x in paid.items()]
    for empty, role, expected in checks:
        if empty.any():
            first = np.sort(row[empty])[:MOST_TOLD].tolist()
            cells = [(row_number, role, "empty", expected) for row_number in first]
            faults.errors.append(BadCells(table, cells, int(empty.sum())))
    ends = columns["terminated"] if "terminated" in table.columns else None
    steps = step if wanted.steps else None
    outcomes = {name: columns[role] for name, role in named.items()}
    return Rows(columns["state"], columns["action"], reward, next_state, ends, cut, steps, row, led, outcomes)


def log_chunks(
    source: object,
    roles: dict[str, Any],
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    chunksize: int,
    missing: Missing,
    dialect: Dialect = Dialect(),
) -> Iterator[Log]:
    """The chunks of a log; arguments and errors as for `read_chunks`, which checks them.

    Raises:
        ValueError: states or actions are None: labels that are found on the way have no numbers before the end.
    """
    check_count("chunksize", chunksize)
    for name, labels in (("states", states), ("actions", actions)):
        if labels is None:
            raise ValueError(
                f"{name} is None, expected all labels in order, where chunksize is given: labels are numbered in "
                "natural order, which is known at the end of a log (read_log finds them)"
            )
    books = LabelBook("state", states), LabelBook("action", actions)
    log = open_log(source, roles, chunksize, {"state": states, "action": actions}, dialect)
    steps = roles.get("step") is not None or roles.get("episode") is not None
    return _logs(log, books, Wanted(steps, True, missing))


@ends_with_page("how-to/read-a-log")
def _first(rows: Iterator[Rows]) -> Rows | None:
    """The next rows; None: there are no more."""
    return next(rows, None)


def _logs(log: ChunkedLog, books: tuple[LabelBook, LabelBook], wanted: Wanted) -> Iterator[Log]:
    rows = transition_chunks(log, *books, wanted)
    while (batch := _first(rows)) is not None:
        yield _log(batch, books, log)


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
    roles = set(outcome_roles(source.columns).values())
    named = {role: name for role, name in source.columns.items() if role not in roles}
    outcomes = dict(rows.outcomes)
    return Log(transitions, states, actions, source.name, columns=named, outcomes=outcomes)
