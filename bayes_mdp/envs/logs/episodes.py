"""Rows of episodes: which one follows which, whether steps go up by one, which episodes go on in the next chunk.

Rows of an episode may stand anywhere in a log (`episode_order`). `follow` says what each row leads to. Where next
states are those of the next rows, steps go up by one from row to row (`first_gap`). `OpenEpisodes` carries the last
rows of episodes over the boundary of a chunk. What goes by the order of rows stands behind: rewards in another row than
that of their action, steps counted from dates, and warnings of columns that tell of unequal times.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.envs.logs.columns import (
    EXPECTED_REWARD,
    Columns,
    FollowedRows,
    read_steps,
    require_cells,
    reward_cells,
    reward_role,
)
from bayes_mdp.envs.logs.tables import Table, names_of
from bayes_mdp.utils.messages import amount, count_of, see, warn_user

if TYPE_CHECKING:
    import pandas as pd


class EpisodeOrder(NamedTuple):
    """The rows of episodes, which may be interleaved.

    Args:
        order: the rows, those of an episode together, else as they are.
        next_row: of each row the next one of its episode (itself at the last).
        place: of each row in its episode.
        last: whether a row is the last of its episode.
    """

    order: Int[np.ndarray, " N"]
    next_row: Int[np.ndarray, " N"]
    place: Int[np.ndarray, " N"]
    last: Bool[np.ndarray, " N"]


def episode_order(episodes: Int[np.ndarray, " N"]) -> EpisodeOrder:
    """The order of rows by the number of their episode, in which episodes are numbered as they appear."""
    order = np.argsort(episodes, kind="stable")
    is_last = np.append(np.diff(episodes[order]) != 0, True)
    start = np.flatnonzero(np.append(True, is_last[:-1]))
    next_row, place, last = (np.empty(len(order), dtype) for dtype in (np.intp, np.int32, bool))
    next_row[order] = np.where(is_last, order, np.roll(order, -1))
    place[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.append(start, len(order))))
    last[order] = is_last
    return EpisodeOrder(order, next_row, place, last)


REPEATED = "each step of an episode once: row {} has it too"


class StepGap(NamedTuple):
    """A row whose step is not the one after that of the row before it in its episode.

    Args:
        row: of the source, 0-based.
        before: the row before it in its episode, likewise.
        found, expected: the step of the row, and the one that follows the step before.
    """

    row: int
    before: int
    found: int
    expected: int

    def refuse(self, table: Table) -> None:
        """Refuse the row of the source of `table`.

        Raises:
            ValueError: names both rows.
        """
        expected = f"{self.expected}, the step after that of row {self.before + 1} of its episode"
        if self.found == self.expected - 1:
            expected = REPEATED.format(self.before + 1)
        cut = " (gaps='cut' ends a run there; in the shell --gaps cut)" if self.found > self.expected else ""
        if self.found < self.expected - 1:
            cut = " (rows of an episode are in order of step: sort them)"
        step_words = repr(self.found)
        if table.raw is not None and not table.first:
            cell = table.raw[table.columns["step"]].iloc[self.row]
            step_words = step_words if str(cell) == step_words else f"{str(cell)!r} (step {step_words})"  # a date
        table.refuse(self.row, "step", step_words, f"{expected}{cut}")


def first_gap(
    step: Int[np.ndarray, " N"],
    next_row: Int[np.ndarray, " N"],
    last: Bool[np.ndarray, " N"],
    row: Int[np.ndarray, " N"],
    *,
    may_jump: bool = False,
) -> StepGap | None:
    """The gap that comes first in the source; None: there is none.

    Args:
        step: of each row.
        next_row: the next row of its episode, as an index of these arrays.
        last: whether there is none.
        row: of the source, 0-based.
        may_jump: whether steps may be left out; they still go up.
    """
    after = np.asarray(step, np.int64) + 1  # 2^31 is the step after the largest one
    wrong = step[next_row] < after if may_jump else step[next_row] != after
    wrong = np.flatnonzero(~last & wrong)
    if not wrong.size:
        return None
    before = int(wrong[row[next_row[wrong]].argmin()])
    position = int(next_row[before])
    return StepGap(int(row[position]), int(row[before]), int(step[position]), int(after[before]))


def next_in_time(along: EpisodeOrder, rows: Columns) -> Bool[np.ndarray, " N"]:
    """Whether the next row of its episode is one step after a row, as far as the log tells.

    Args:
        along: the rows of episodes.
        rows: "truncated" and, where next states are those of the next rows, "step", as far as they are given.
    """
    follows = ~along.last & ~rows.get("truncated", np.zeros(len(along.last), bool))
    if "step" in rows and "next_state" not in rows:  # beside next states, steps may be of any unit
        follows &= rows["step"][along.next_row] == np.asarray(rows["step"], np.int64) + 1
    return follows


def follow_rows(
    along: EpisodeOrder,
    state: Int[np.ndarray, " N"],
    *,
    known: Bool[np.ndarray, " N"],
    without_action: Bool[np.ndarray, " N"],
    ended: Bool[np.ndarray, " N"],
    cut: Bool[np.ndarray, " N"] | None,
    step: Int[np.ndarray, " N"] | None,
) -> FollowedRows:
    """Rows whose next state is the state of the next row of their episode.

    Args:
        along: the rows of episodes.
        state: of each row.
        known: whether it is known.
        without_action: whether the action is missing.
        ended, cut: whether the episode terminated, or was truncated there; None: not told.
        step: as given; None: it was not, and rows follow each other.
    """
    _, next_row, _, last = along
    flagged = np.zeros(len(state), bool) if cut is None else cut
    joined = ~last & ~flagged & known[next_row]
    if step is not None:
        joined &= step[next_row] == np.asarray(step, np.int64) + 1
    observed = joined | ended
    keep = known & (observed | ~without_action)
    # Where the next row is left out, the episode is cut although it is known what followed.
    stops = ~ended & (~observed | ~keep[next_row])
    return FollowedRows(state[next_row], observed, flagged | stops, keep)


def follow_next_states(
    along: EpisodeOrder,
    *,
    known: Bool[np.ndarray, " N"],
    led: Bool[np.ndarray, " N"],
    ended: Bool[np.ndarray, " N"],
    cut: Bool[np.ndarray, " N"] | None,
    next_state: Int[np.ndarray, " N"],
) -> FollowedRows:
    """Rows whose next state is given: an episode that goes on in a row without a state is cut before it.

    Args:
        along: the rows of episodes.
        known, led: whether state and next state of each row are known.
        ended, cut: as of `follow_rows`.
        next_state: of each row.
    """
    stops = (along.last | ~known[along.next_row] | ~(led | ended)) & ~ended
    return FollowedRows(next_state, led | ended, stops if cut is None else cut | stops, known)


@dataclass(frozen=True)
class Settled:
    """Rows whose transition is known.

    Args:
        columns: of these rows.
        place: place of the row in its episode.
        followed: what they lead to.
        gap: steps that do not follow each other, if they are checked and some do not.
    """

    columns: Columns
    place: Int[np.ndarray, " N"]
    followed: FollowedRows
    gap: StepGap | None = None


@dataclass
class OpenEpisodes:
    """Rows that wait for what follows. Memory: one or two rows for each episode that may go on.

    Args:
        looks_ahead: whether rows wait for the next one of their episode: the next state is its state, or it says
            whether the episode was cut.
        counts_places: whether `place` must be known: a row of every episode is kept to the end.
        checks_steps: whether steps must follow each other (columns "step" and "row"): likewise.
        may_jump: whether steps may be left out: a gap.
    """

    looks_ahead: bool
    counts_places: bool
    checks_steps: bool = False
    may_jump: bool = False

    def __post_init__(self) -> None:
        self._held: Columns | None = None
        self._labels: pd.Index | None = None

    def advance(self, codes: Int[np.ndarray, " N"], labels: "pd.Index | range", columns: Columns) -> Settled:
        """The rows that are settled by one more chunk, earlier ones first.

        Args:
            codes: the episode of each row, an index into `labels`.
            labels: of the episodes.
            columns: state, action, next_state (Int[N], -1: missing; next_state only where it is given), terminated
                (Bool[N]), and others that are carried along.
        """
        import pandas as pd

        labels = pd.Index(labels)
        codes = np.asarray(codes, np.intp)
        rows = {**columns, "place": np.zeros(len(codes), np.int64), "given_out": np.zeros(len(codes), bool)}
        if self._held is not None and self._labels is not None:
            # Episodes that are met again keep their rows in front; the others are numbered behind the chunk's own.
            known = labels.get_indexer(self._labels)
            new_codes, distinct = pd.factorize(self._labels[known < 0])
            known[known < 0] = len(labels) + new_codes
            codes = np.concatenate([known, codes])
            rows = {name: np.concatenate([self._held[name], rows[name]]) for name in rows}
            labels = labels.append(pd.Index(distinct)) if len(distinct) else labels
        return self._settle(codes, labels, rows, final=False)

    def finish(self) -> Settled | None:
        """The rows that were still waiting, at the end of the log; None: there are none."""
        if self._held is None or self._labels is None:
            return None
        import pandas as pd

        codes, labels = pd.factorize(self._labels)
        return self._settle(codes, pd.Index(labels), self._held, final=True)

    def left_open(self) -> "tuple[pd.Index, Int[np.ndarray, ' E']] | None":
        """The labels of episodes whose last row neither terminated nor was truncated, and the steps of these rows."""
        if self._held is None or self._labels is None:
            return None
        waits = ~self._held["terminated"] & ~self._held.get("truncated", np.zeros(len(self._labels), bool))
        return self._labels[waits], self._held.get("step", self._held["place"])[waits]

    def _settle(self, codes: Int[np.ndarray, " N"], labels: "pd.Index", rows: Columns, *, final: bool) -> Settled:
        order = episode_order(codes)
        _, next_row, place, last = order
        # The first row of an episode here is the one that was held, if any: it knows its place.
        base = np.zeros(len(labels), np.int64)
        base[codes[::-1]] = rows["place"][::-1]
        rows = {**rows, "place": base[codes] + place}
        followed = follow(order, rows, self.checks_steps)
        settled = ~last | rows["terminated"] if self.looks_ahead and not final else np.ones(len(codes), bool)
        now = settled & ~rows["given_out"]
        # A row that was held is the one before the first of its episode here: no pair of rows is left out.
        gap = None
        if self.checks_steps:
            gap = first_gap(rows["step"], next_row, last, rows["row"], may_jump=self.may_jump)
        next_state, led, cut, keep = followed
        result = Settled(
            {name: column[now] for name, column in rows.items() if name not in ("place", "given_out")},
            rows["place"][now].astype(np.int32),
            FollowedRows(next_state[now], led[now], None if cut is None else cut[now], keep[now]),
            gap,
        )
        rows["given_out"] = rows["given_out"] | now
        keeps_last = self.counts_places or self.checks_steps
        stays = ~rows["given_out"] | last if keeps_last else ~rows["given_out"]
        self._held = {name: column[stays] for name, column in rows.items()}
        self._labels = labels[codes[stays]]
        return result


def follow(along: EpisodeOrder, rows: Columns, checks_steps: bool) -> FollowedRows:
    """What rows lead to, by their next rows or by their next states, where these are given.

    Args:
        along: the rows of episodes.
        rows: their columns, as of `OpenEpisodes.advance`.
        checks_steps: whether steps say which rows follow each other.
    """
    known, ended, cut = rows["state"] >= 0, rows["terminated"], rows.get("truncated")
    if "next_state" in rows:
        led = rows["next_state"] >= 0
        return follow_next_states(along, known=known, led=led, ended=ended, cut=cut, next_state=rows["next_state"])
    step = rows["step"] if checks_steps else None
    without_action = rows["action"] < 0
    return follow_rows(
        along, rows["state"], known=known, without_action=without_action, ended=ended, cut=cut, step=step
    )


def read_moved_rewards(
    table: Table,
    reward_at: str,
    along: EpisodeOrder,
    ignore_missing: bool,
    keep: np.ndarray,
    next_in_time: Bool[np.ndarray, " N"],
    role: str | None = None,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """As `read_rewards`, of rewards that stand in another row than that of their action.

    Args:
        reward_at: "next": in the next row of the episode; "episode": the total of an episode in its last row.
        along: the rows of episodes.
        next_in_time: whether the next row of its episode is one step later: no row was left out between them.
        ignore_missing, keep, role: as for `read_rewards`.
    """
    cells = reward_cells(table, role)
    if cells is None:
        raise ValueError(f"reward_at is {reward_at!r}, expected the column of the reward or cost too")
    role = reward_role(table) if role is None else role
    missing, last = np.isnan(cells), along.last
    if reward_at == "next":
        # After a gap a row has the reward of a step that was left out, as the first row of an episode.
        if not ignore_missing:
            used = np.zeros(len(cells), bool)
            used[along.next_row[next_in_time]] = True
            require_cells(table, missing & used, role, EXPECTED_REWARD)
        moved = np.where(next_in_time, cells[along.next_row], np.nan)
    else:
        require_cells(
            table,
            ~last & ~missing & (cells != 0),
            role,
            "empty or 0: reward_at='episode' takes the total of an episode",
        )
        if not ignore_missing:
            require_cells(table, missing & last, role, EXPECTED_REWARD)
        # The last row that is kept of each episode has the total, wherever rows behind it are left out.
        order, _, place, _ = along
        starts = np.flatnonzero(place[order] == 0)
        last_kept = np.maximum.reduceat(np.where(keep[order], np.arange(len(order)), -1), starts)
        totals = cells[order[np.append(starts[1:], len(order)) - 1]]
        moved = np.zeros(len(cells))
        moved[order[last_kept[last_kept >= 0]]] = totals[last_kept >= 0]
    unknown = np.isnan(moved)
    return np.where(unknown, 0.0, moved), ~unknown if (unknown & keep).any() else None


_PERIODS = {"D": "D", "h": "h", "H": "h", "min": "min", "s": "s", "W": "W"}
_PERIODS |= {x: x[0] for x in ("M", "ME", "MS", "Q", "QE", "QS", "Y", "YE", "YS")}


def with_counted_steps(table: Table, every: str, along: EpisodeOrder | None) -> Table:
    """The table with steps in place of the dates of its column of steps, from 0 at the first row of each episode.

    A step is one day (hour, ... of the calendar); of several, as "7D", the nearest number of them since the first row.

    Args:
        every: the length of a step as pandas writes it.
        along: the rows of episodes; None: there are none.

    Raises:
        ValueError: no length of time; no column of steps or of episodes; a cell that is no date, or before that of the
            first row of its episode.
    """
    import pandas as pd

    match = re.fullmatch(r"(\d*)([A-Za-z]+)", every) if isinstance(every, str) else None
    number, unit = (1, None) if match is None else (int(match[1] or 1), _PERIODS.get(match[2]))
    if unit is None or number < 1:
        raise ValueError(f"every is {every!r}, expected the length of a step, such as '1D', '12h', '1W' or '1M'")
    if "step" not in table.columns or along is None:
        raise ValueError(f"every is {every!r}, expected step, a column of dates, and episode too")
    column = table.frame[table.columns["step"]]
    dates = _dates(column, ("ISO8601",))
    zones = set(column.astype(str).str.extract(_ZONE, expand=False)) if column.dtype.kind == "O" else set()
    if len(zones) > 1:
        told = ", ".join(sorted(zone if isinstance(zone, str) else "none" for zone in zones))
        raise ValueError(
            f"{table.name}: step {table.columns['step']!r} has dates of several time zones ({told}), "
            "expected one: convert them with pandas.to_datetime(..., utc=True)"
        )
    none = np.ones(len(column), bool) if dates is None else np.asarray(dates.isna())
    require_cells(table, none, "step", "a date such as 2026-01-31 or 2026-01-31 08:00")
    assert dates is not None
    local = dates.dt.tz_localize(None) if isinstance(dates.dtype, pd.DatetimeTZDtype) else dates
    count = pd.PeriodIndex(local, freq=unit).asi8
    order, _, place, _ = along
    start = np.flatnonzero(place[order] == 0)
    first = np.empty(len(count), np.int64)
    first[order] = np.repeat(count[order[start]], np.diff(np.append(start, len(order))))
    passed = count - first
    require_cells(table, passed < 0, "step", "a date not before that of the first row of its episode")
    return table.with_columns({table.columns["step"]: np.floor(passed / number + 0.5).astype(np.int64)})


_ZONE = r"[T ]\d{2}:?\d{2}.*?(Z|[+-]\d{2}:?\d{2})$"


def _dates(column: Any, formats: Sequence[str]) -> Any:
    """A column as dates, NaT where a cell is none; None: it holds none, in any of the formats."""
    import pandas as pd

    if column.dtype.kind == "M":
        return column
    if isinstance(column.dtype, pd.ArrowDtype):  # its days are dates of Python, its text is text
        column = column.astype(object)
    if column.dtype.kind != "O" or pd.api.types.infer_dtype(column, skipna=True) not in _KINDS_OF_DATES:
        return None
    for form in formats:
        try:
            dates = pd.to_datetime(column, format=form, errors="coerce")
        except ValueError:  # dates of several time zones
            return pd.to_datetime(column, format=form, errors="coerce", utc=True)
        if dates.notna().any():
            return dates
    return None


_KINDS_OF_DATES = ("string", "datetime", "datetime64", "date")


def warn_of_first_steps(table: Table, first: Int[np.ndarray, " E"]) -> None:
    """Warn where steps are years, or the like, and not counted from where each episode begins.

    Args:
        table: with steps.
        first: the step of the first row of each episode.
    """
    begin = first.min()
    if begin > 1 and (first > begin).any():
        column = table.columns["step"]
        warn_user(
            f"{table.name}: step {column!r} begins at {begin}, and in {int((first > begin).sum())} of {len(first)} "
            "episodes later, which are taken to have begun before their first row, at a state that is not known: count "
            f"steps from the first row of each episode, if they begin there {see('how-to/read-a-log')}"
        )


def refuse_repeated_steps(table: Table, episodes: np.ndarray, along: EpisodeOrder) -> None:
    """Refuse two rows of one episode that have the same step.

    Raises:
        ValueError: names both.
    """
    steps = read_steps(table)
    assert steps is not None
    if (along.last | (steps[along.next_row] > steps)).all():
        return
    order = np.lexsort((steps, episodes))
    repeated = np.append(False, (np.diff(steps[order]) == 0) & (np.diff(episodes[order]) == 0))
    if repeated.any():
        row = int(order[repeated].min())
        before = int(np.flatnonzero((steps == steps[row]) & (episodes == episodes[row]))[0])
        table.fail(row, "step", REPEATED.format(before + 1))


# Columns without a role that tell the time.

_SAMPLED = 10_000
_FEWEST = 8
"""Pairs of rows from which on numbers that always rise are no chance."""
_UNEQUAL = 1.5
_FORMATS = ("ISO8601", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d")
_TOLD_ACTIONS = 4


def warn_of_time(
    table: Table, episodes: np.ndarray, along: EpisodeOrder, action: np.ndarray, actions: Sequence[Hashable]
) -> None:
    """Warn where rows are not equally far apart, and where rows are there twice, as columns without a role tell.

    A column of numbers or dates that rises from row to row within every episode tells the time; largest and smallest
    increment then differ by a factor of at most 1.5. Rows that are equal in all columns are there twice where such a
    column rises without them.

    Args:
        episodes: number of the episode of each row.
        along: their order.
        action: of each row, an index of `actions`; negative: none.
    """
    has_step = "step" in table.columns
    if "next_state" in table.columns and has_step:
        steps = read_steps(table)
        assert steps is not None
        _warn_of_increments(table, table.columns["step"], steps.astype(float), along, action, actions, "")
    used = set(names_of(table.columns)) | set(table.columns.values())
    sample = along.order[:_SAMPLED]
    sample_frame = table.frame.iloc[sample]
    duplicated: np.ndarray | None = None
    for column in table.frame.columns:
        if column in used:
            continue
        sampled = _times(sample_frame[column])
        if sampled is None:
            continue
        if duplicated is None:
            duplicated = _equal_to_one_before(sample_frame)
        if not _rises(sampled[0][~duplicated], episodes[sample][~duplicated]):
            continue
        read = _times(table.frame[column])
        if read is None:
            continue
        times, unit = read
        if _rises(times[along.order], episodes[along.order]):
            _warn_of_increments(table, column, times, along, action, actions, unit)
        elif not has_step:
            has_step = _warn_of_repetition(table, times, episodes)


def _rises(times: np.ndarray, episodes: np.ndarray) -> bool:
    """Whether times never fall or stay between neighbours of one episode, of which there are some."""
    within = np.diff(episodes) == 0
    return bool(within.any() and not (np.diff(times)[within] <= 0).any())  # nan: not known


def _equal_to_one_before(frame: "pd.DataFrame") -> np.ndarray:
    """Bool[N], which rows are equal in all columns to one before them."""
    try:
        return frame.duplicated().to_numpy()
    except TypeError:  # cells that cannot be hashed
        return np.zeros(len(frame), bool)


def _times(column: Any) -> tuple[np.ndarray, str] | None:
    """Float64[N], and " days" for dates: a column as times; None: it tells none."""
    if column.dtype.kind in "iuf":
        return column.to_numpy(np.float64, na_value=np.nan), ""
    cells = column.dropna()
    if column.dtype.kind == "O" and (cells.empty or not _DATE.match(str(cells.iloc[0]))):
        return None
    dates = _dates(column, _FORMATS)
    if dates is None:
        return None
    since = (dates - dates.min()).dt.total_seconds().to_numpy(np.float64)
    return since / 86400.0, " days"


def _warn_of_increments(
    table: Table,
    column: Hashable,
    times: np.ndarray,
    along: EpisodeOrder,
    action: np.ndarray,
    actions: Sequence[Hashable],
    unit: str,
) -> None:
    unnamed = str(column).strip() == "" or str(column).startswith("Unnamed:")
    if unnamed or (len(times) > 1 and (np.diff(times) == 1).all()):  # the number of the row
        return
    change = (times[along.next_row] - times)[~along.last]
    known = ~np.isnan(change)
    change = change[known]
    if len(change) < (1 if unit else _FEWEST) or (change <= 0).any() or change.max() <= _UNEQUAL * change.min():
        return
    taken = action[~along.last][known]
    means = {actions[a]: float(change[taken == a].mean()) for a in np.unique(taken[taken >= 0])[: _TOLD_ACTIONS + 1]}
    truncated = len(means) > _TOLD_ACTIONS
    if len(means) > 1 and max(means.values()) > 1.1 * min(means.values()):
        listed = list(means.items())[:_TOLD_ACTIONS]
        differences = ", ".join(
            f"{amount(mean)}{unit} {'apart ' if i == 0 else ''}under {label!r}"
            for i, (label, mean) in enumerate(listed)
        )
        differences = f"on average {differences}{', ...' if truncated else ''}"
    else:
        differences = f"{amount(change.min())} to {amount(change.max())}{unit} apart"
    finding = f"step {column!r} jumps" if column == table.columns.get("step") else f"column {column!r} looks like time"
    warn_user(
        f"{table.name}: {finding}: rows are {differences}, and each counts as one step, as if all were equally long: "
        f"bring the rows to equal times before policies are compared {see('how-to/read-a-log')}"
    )


def _warn_of_repetition(table: Table, times: np.ndarray, episodes: np.ndarray) -> bool:
    """Warn of rows that are equal, in all columns, to one before, if time rises without them; whether there are any."""
    duplicated = _equal_to_one_before(table.frame)
    order = np.argsort(episodes, kind="stable")
    order = order[~duplicated[order]]
    pairs = int((np.diff(episodes[order]) == 0).sum())
    if not duplicated.any() or pairs < _FEWEST or not _rises(times[order], episodes[order]):
        return False
    row, frame = int(np.argmax(duplicated)), table.frame
    cells = frame.iloc[row]
    before = int(np.argmax(((frame == cells) | (frame.isna() & cells.isna())).all(axis=1).to_numpy()))
    number = int(duplicated.sum())
    subject = f"{count_of(number, 'row')} {'is' if number == 1 else 'are'}"
    warn_user(
        f"{table.name}: {subject} equal in all columns to a row before, such as row {table.first + row + 1} to row "
        f"{table.first + before + 1}, and each counts as a transition: remove what was written twice "
        + see("how-to/read-a-log")
    )
    return True
