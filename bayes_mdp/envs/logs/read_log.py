# pyright: strict, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeStubs=false
"""`read_log`: transitions from a CSV or Parquet file or a pandas DataFrame with named columns."""

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, overload

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.logs.columns import (
    NO_ACTION,
    Columns,
    FollowedRows,
    is_empty,
    labels_of_user,
    next_states_given,
    outcome_roles,
    read_episodes,
    read_flags,
    read_labels,
    read_rewards,
    read_steps,
    refuse_points,
    with_joined_labels,
    with_outcomes,
)
from bayes_mdp.envs.logs.episodes import (
    EpisodeOrder,
    episode_order,
    first_gap,
    follow,
    next_in_time,
    read_moved_rewards,
    refuse_repeated_steps,
    warn_of_first_steps,
    warn_of_time,
    with_counted_steps,
)
from bayes_mdp.envs.logs.fold_log import Folding, LogSource, Progress, fold
from bayes_mdp.envs.logs.tables import BadCells, Dialect, Missing, Several, Table, file_digest, open_table
from bayes_mdp.envs.logs.transition_chunks import log_chunks
from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.by_label import ProductLabel
from bayes_mdp.mdp.contexts import GROUP, LoggedContexts, Roles
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import ends_with_page, see, warn_user
from bayes_mdp.utils.validation import check_name, described

if TYPE_CHECKING:
    import os

    import pandas as pd


class LogColumns(TypedDict, total=False):
    """What `read_log` is told of a log, by the names of its arguments, for type checkers."""

    state: Required[str | list[str]]
    action: Required[str | None]
    reward: str | None
    cost: str | None
    outcomes: Sequence[str] | None
    next_state: str | list[str] | None
    terminated: str | None
    truncated: str | None
    episode: str | None
    step: str | None
    space: StateActionSpace | None
    states: Sequence[Hashable] | None
    actions: Sequence[Hashable] | None
    missing_reward: Literal["error", "ignore"]
    missing_state: Literal["error", "gap"]
    gaps: Literal["error", "cut"]
    reward_at: Literal["step", "next", "episode"]
    every: str | None
    count: str | None
    sep: str | None
    encoding: str | None
    decimal: str
    subject: str | None
    covariates: Sequence[str] | None
    varying: Sequence[str] | None
    group: str | None
    process: Literal["known", "exogenous", "state"] | None
    by_step: bool | None
    allow_duplicates: bool
    progress: Progress | None


@overload
def read_log(
    source: "LogSource | Iterable[LogSource]", *, chunksize: None = None, **columns: Unpack[LogColumns]
) -> Log: ...
@overload
def read_log(
    source: "LogSource | Iterable[LogSource]", *, chunksize: int, **columns: Unpack[LogColumns]
) -> FoldedLog: ...
@ends_with_page("how-to/read-a-log")
def read_log(  # noqa: PLR0913 - the columns of a file are named one by one, as a person would guess them
    source: "LogSource | Iterable[LogSource]",
    *,
    state: str | list[str],
    action: str | None,
    reward: str | None = None,
    cost: str | None = None,
    outcomes: Sequence[str] | None = None,
    next_state: str | list[str] | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    episode: str | None = None,
    step: str | None = None,
    space: StateActionSpace | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing_reward: Literal["error", "ignore"] = "error",
    missing_state: Literal["error", "gap"] = "error",
    gaps: Literal["error", "cut"] = "error",
    reward_at: Literal["step", "next", "episode"] = "step",
    every: str | None = None,
    count: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    subject: str | None = None,
    covariates: Sequence[str] | None = None,
    varying: Sequence[str] | None = None,
    group: str | None = None,
    process: Literal["known", "exogenous", "state"] | None = None,
    chunksize: int | None = None,
    by_step: bool | None = None,
    allow_duplicates: bool = False,
    progress: Progress | None = None,
) -> Log | FoldedLog:
    """Read a table of transitions or visits, one per row (CSV, Parquet, DataFrame); larger than memory: `chunksize`.

    State and action labels are any hashable values; they are numbered in natural order (2 before 10, "s2" before
    "s10"), or in the order of `states` and `actions` where these are given. Labels of integer columns stay
    integers.

    Args:
        source: a path (`.parquet`, `.pq`: Parquet; `.tsv`: tab-separated; else CSV with a header line), or a
            DataFrame. With `chunksize` also a Dask dataframe (read partition by partition), or several of these, of
            which some may have no transition; an episode lies in one of them.
        state: the column, or several: with ["grade", "load"] labels are tuples (and `next_state` has as many).
        action: None: there are none, and the log is a chain of states, whose only action is called "none" (or as
            `actions` names it).
        reward: larger is better. None, and `cost` None: the log has no rewards (they are known to the user).
        cost: in place of `reward`, smaller is better: the rewards of the log are minus this column.
        outcomes: columns of other numbers that stand where the rewards stand, such as ["cost", "bed days"] beside an
            effect: `infer` learns them from the same rows of the log, and a policy can be given a `Budget` of them.
            Their signs are as they are; what an empty cell is, `missing_reward` says.
        next_state: None: the state of the episode's next row (`episode` is then needed, rows in order of time). Of an
            episode's last row that did not terminate, and of a truncated one, it is not known what followed: the action
            and the reward count, as transitions that are not `next_observed`. A last row without an action says which
            state came last, and is left out.
        terminated, truncated: true / false or 1 / 0. With `episode`, the last row of an episode that did not terminate
            counts as truncated. What follows a truncated row is not its next state, unless `next_state` says so.
        episode: label of the episode of each row; rows of one episode are in order of time, those of others may stand
            between them. Without `step`, the step is the row's place in its episode. A `UserWarning` says where the
            next state is not the state of the episode's next row.
        step: step of the episode, 0 at its first; without `episode` and `next_state` all rows are one episode. Where
            next states are those of the next rows, steps have to go up by one from row to row: a gap, or rows in
            another order, would join states that do not follow each other.
        space: whose labels the log has, in place of `states` and `actions`; others are refused.
        states, actions: all labels, in order, others are refused; None: those of the log (of ordered categories in
            their order). A `UserWarning` then names labels that may be two spellings of one: text that differs in case,
            blanks, hyphens or underscores alone, and a word of letters in one row that is one edit from one in 20 rows.
            Empty cells, words such as NA, null or ".", and -999 where no other label is a negative number are missing
            labels, unless they are listed here.
        missing_reward: what an empty reward or cost is: an error, or a transition whose reward was not observed.
        missing_state: what a row without a state is: an error, or a gap, which ends one run of transitions and begins
            another. Such a row is left out; of the row before, action and reward count. Where whether a state is
            missing depends on which it is, what is left of the log is no fair sample.
        gaps: what a `step` is that is more than one above the step of the row before: an error, or a gap as above.
        reward_at: "step": a reward stands in the row of its action. "next": in the next row of the episode, as the
            reward of the row before; those of its last row, and of a row before a left-out step or a truncation, are
            not observed. "episode": the last row of an episode has its total, the others are empty or zero; it becomes
            the reward of its last transition.
        every: the length of a step where `step` is a column of dates or times: "1D", "12h", "1W", "1M" (of the
            calendar).
        count: how many transitions a row stands for, where rows are (state, action, next state, number).
        sep, encoding, decimal: of a text file: what is between cells (";"), its characters ("latin-1"; None: UTF-8),
            and the sign of decimals (",").
        subject: label of the subject (patient, machine) of each row; it is needed where subjects are counted.
        covariates: columns that are fixed for a subject, such as age at the start, of numbers or labels. Each distinct
            pattern of covariates is a context (see `bayes_mdp.mdp.contexts`), with rows of its own.
        varying: columns that may change from row to row; `process` says what moves them.
        group: a column of labels, such as sites, whose effects a law of rows may pool in part.
        process: of what varies: "known", a path that is known beforehand (age); "exogenous": it moves by itself,
            whatever is done; "state": actions move it, so that it is part of the state, and refused here.
        chunksize: None, or rows to be read at once of a log that is larger than memory, or of several. What is kept is
            how often each transition occurred, and the moments of its rewards (a `FoldedLog`).
        by_step: with `chunksize`: whether the steps of episodes are kept, for spaces with a horizon. None: if `space`
            has one; without `space`, if `step` is given.
        allow_duplicates: with `chunksize`: whether logs of the same content are counted each time.
        progress: with `chunksize`: called as progress(name of the log, rows read of it) after each chunk.

    A `UserWarning` says where a column without a role (or `step`) looks like time that passes unequally from row to
    row, and where rows are equal in all columns to others, although such a column tells all others apart.

    Rewards of a log in chunks are summed without rounding: neither the order of rows, nor the size of chunks, nor how
    logs are divided among calls whose results are merged (`FoldedLog.merge`) changes a bit. Memory: one chunk, and
    100 to 200 bytes for each different transition. Where next states or steps come from the rows of an episode, a row
    is kept of each episode that may go on; where steps are counted, of all episodes. Columns without a role are looked
    at in the first chunk.

    Returns:
        A `Log` of numpy arrays (int32, float64), with the labels behind the indices. With `chunksize` a `FoldedLog`,
        which `infer`, the `update` of a posterior and `StateActionSpace.from_log` take in place of a `Log`; what needs
        the rows themselves, such as `criticise`, takes a `Log` alone.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: `reward` and `cost` are both given; no rows, a column that is missing, cells that cannot be read
            (the first ten are named), a step that does not follow the one before, or twice in an episode: which row,
            column, what was there; two logs of the same content (both are named).
        ImportError: Parquet without pyarrow.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "r": [0.0, 1.0], "t": ["b", "a"]})
        >>> log = bm.read_log(table, state="s", action="a", reward="r", next_state="t")
        >>> log.states, log.transitions.next_state.tolist()
        (('a', 'b'), [1, 0])
        >>> print(bm.read_log([table], state="s", action="a", reward="r", next_state="t", chunksize=1_000_000))
        2 transitions of 2 rows in DataFrame 0: 2 states, 1 action, 2 cells
    """
    check_name("reward_at", reward_at, ("step", "next", "episode"))
    dialect = Dialect(sep, encoding, decimal)
    dialect.check()
    roles: dict[str, Any] = {"state": state, "action": action, "reward": reward, "cost": cost, "next_state": next_state}
    roles |= {"terminated": terminated, "truncated": truncated, "episode": episode, "step": step}
    roles = with_outcomes(roles, outcomes)
    has_covariates = any(x is not None for x in (covariates, varying, group, process))
    about = Roles.of(subject, covariates, varying, group, process) if has_covariates else None
    missing = Missing.of_words(roles, missing_reward, missing_state, gaps)
    if action is None and actions is not None and len(actions) != 1:
        raise ValueError(f"action is None with {len(actions)} actions, expected the name of the only one, or None")
    if chunksize is not None:
        _refuse_whole(every=every, count=count, reward_at=reward_at)
        _refuse_whole(subject=subject, covariates=covariates, varying=varying, group=group)
        folding = Folding(chunksize, space, by_step, allow_duplicates, progress)
        return fold(source, roles, states, actions, missing, dialect, folding)
    in_chunks = {"by_step": by_step, "allow_duplicates": allow_duplicates or None, "progress": progress}
    for name, value in in_chunks.items():
        if value is not None:
            raise ValueError(f"{name} is {described(value)} without chunksize, expected chunksize too")
    states, actions = labels_of_user(space, states, actions)
    if count is not None and (episode is not None or step is not None or next_state is None):
        raise ValueError(f"count is column {count!r}, expected next_state, and neither episode nor step")
    if reward_at != "step" and episode is None and (next_state is not None or step is None):
        raise ValueError(f"reward_at is {reward_at!r}, expected episode, whose rows are in order of time")
    required = ("state",) if action is None else ("state", "action")
    declared = {"state": states, "action": actions}
    table = open_table(source, roles | {"count": count}, required, declared, dialect)
    if isinstance(state, list) or isinstance(next_state, list):
        table = with_joined_labels(table, states)
        if states is not None:
            states = [ProductLabel(x, state) if isinstance(x, tuple) and len(x) == len(state) else x for x in states]
    try:
        return _read(table, states, actions, missing, reward_at, every, file_digest(source), about)
    except BadCells as first:
        raise _all_bad(first, table, states, actions, missing, every, reward_at == "step") from None


@ends_with_page("how-to/read-a-log")
def read_chunks(
    source: "str | os.PathLike[str] | pd.DataFrame", *, chunksize: int, **columns: Unpack[LogColumns]
) -> Iterator[Log]:
    """Read the transitions of a log that is larger than memory, for reward laws that need every reward.

    Together the logs have exactly the transitions of `read_log`, those of an episode in order. A row whose next state,
    or whose truncation, depends on rows that follow it comes with the chunk of these.

    Args:
        source: as of `read_log`, one.
        chunksize: rows that are read at once.
        columns: as of `read_log`; all labels are needed, `states` and `actions` or `space`.

    Returns:
        An iterator of logs, each with all labels.

    Raises:
        ValueError, TypeError: as `read_log`; labels that are not given; what needs the log as a whole.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "t": ["b", "a"]})
        >>> chunks = bm.envs.read_chunks(
        ...     table, chunksize=1, state="s", action="a", next_state="t", states=["a", "b"], actions=["go"]
        ... )
        >>> [log.n_transitions for log in chunks]
        [1, 1]
    """
    unknown = sorted(set(columns) - LogColumns.__annotations__.keys())
    if unknown:
        raise TypeError(f"read_chunks has no argument {unknown[0]!r}, expected those of read_log")
    whole = ("every", "count", "reward_at", "subject", "covariates", "varying", "group")
    _refuse_whole(**{name: columns.get(name) for name in whole})
    for name in ("by_step", "allow_duplicates", "progress"):
        if value := columns.get(name):
            raise ValueError(
                f"{name} is {described(value)}, expected read_log(..., chunksize={chunksize}, {name}=...), "
                "which counts the chunks: read_chunks leaves that to the caller"
            )
    roles = with_outcomes({role: columns.get(role) for role in ROLES}, columns.get("outcomes"))
    words = (columns.get(name, "error") for name in ("missing_reward", "missing_state", "gaps"))
    missing = Missing.of_words(roles, *words)
    dialect = Dialect(columns.get("sep"), columns.get("encoding"), columns.get("decimal", "."))
    dialect.check()
    states, actions = labels_of_user(columns.get("space"), columns.get("states"), columns.get("actions"))
    return log_chunks(source, roles, states, actions, chunksize, missing, dialect)


ROLES = ("state", "action", "reward", "cost", "next_state", "terminated", "truncated", "episode", "step")


def _refuse_whole(**arguments: Any) -> None:
    """Refuse what needs all rows of a log at once."""
    for name, value in arguments.items():
        if value is not None and (name, value) != ("reward_at", "step"):
            raise ValueError(f"{name} is {value!r} with chunksize, expected a log that is read as a whole")


def fold_log(paths: "LogSource | Iterable[LogSource]", *, chunksize: int = 10**6, **columns: Any) -> FoldedLog:
    """`read_log(paths, ..., chunksize=1_000_000)`: the old name, which goes in 0.4.

    Args:
        paths, chunksize, columns: as of `read_log`.

    Raises:
        ValueError, TypeError: as `read_log`.

    Example:
        >>> from bayes_mdp.envs.logs.read_log import fold_log
        >>> import pandas as pd, warnings
        >>> table = pd.DataFrame({"s": ["a", "b"], "a": ["go", "go"], "t": ["b", "a"]})
        >>> with warnings.catch_warnings(action="ignore"):
        ...     log = fold_log(table, state="s", action="a", next_state="t")
        >>> log.n_transitions
        2
    """
    warnings.warn(
        "fold_log(...) is read_log(..., chunksize=1_000_000) since 0.3; the old name goes in 0.4",
        FutureWarning,
        stacklevel=2,
    )
    return read_log(paths, chunksize=chunksize, **columns)


def _read(
    table: Table,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    missing: Missing,
    reward_at: str,
    every: str | None,
    digest: str | None,
    about: Roles | None,
) -> Log:
    """The log of a table; arguments as of `read_log`."""
    order, episodes = _episodes(table)
    if every is not None:
        table = with_counted_steps(table, every, order)
    columns = _what_is_there(table, missing)
    ends, ended, steps = read_flags(table, "terminated"), columns["terminated"], columns.get("step")
    roles_of_states = [role for role in ("state", "next_state") if role in table.columns]
    skipped = {"state": columns["state"] < 0}
    if "next_state" in columns:
        skipped["next_state"] = (columns["next_state"] < 0) | ended
    numbers, state_names = read_labels(table, roles_of_states, states, skipped)
    columns |= {role: np.where(skipped[role], -1, x) for role, x in zip(roles_of_states, numbers, strict=True)}
    if order is not None and episodes is not None:
        _check_order(table, order, episodes, columns, missing.steps)
    followed = next_states_given(columns) if order is None else follow(order, columns, "step" in columns)
    keep, led = followed.keep, followed.next_observed
    untold = ~keep & (columns["action"] < 0)
    if "action" in table.columns:
        (action_index,), action_names = read_labels(table, ("action",), actions, {"action": untold})
    else:
        action_index, action_names = np.zeros(len(keep), np.int32), (NO_ACTION,) if actions is None else tuple(actions)

    if reward_at == "step":
        paid = partial(read_rewards, table, missing.rewards, keep, led)
    else:
        assert order is not None  # `read_log` has looked
        paid = partial(read_moved_rewards, table, reward_at, order, missing.rewards, keep, next_in_time(order, columns))
    rewards, observed = paid(None)
    outcomes = {name: _nan_where_unseen(*paid(role)) for name, role in outcome_roles(table.columns).items()}
    if order is not None and episodes is not None:
        warn_of_time(table, episodes, order, np.where(untold, -1, action_index), action_names)
        steps = order.place if steps is None else steps
    reached = np.where(led & ~ended, followed.next_state, 0)
    # Episodes one after the other, also where the rows of the source are by time: what is by episode (splits, returns,
    # where episodes start) goes by neighbouring rows.
    rows_in_order = np.flatnonzero(keep) if order is None else order.order[keep[order.order]]
    times = read_steps(table, "count")
    if times is not None:
        check_memory(f"{table.name} has {int(times.sum(dtype=np.int64))} transitions", 100.0 * times.sum(dtype=float))
        if not times.any():
            raise ValueError(f"{table.name}: count {table.columns['count']!r} is 0 in all rows, expected a transition")
        rows_in_order = np.repeat(rows_in_order, times[rows_in_order])
    rows = (numbers[0], action_index, rewards, reached, ends, followed.truncated, steps, observed)
    *rows, observed = (None if x is None else x[rows_in_order] for x in rows)
    led = led[rows_in_order]
    if not led.any():
        raise ValueError(f"{table.name} has no episode of two rows, expected at least one transition")
    transitions = Transitions(*rows, reward_observed=observed, next_observed=None if led.all() else led)
    notes = _notes(columns["state"] < 0, untold, keep & ~followed.next_observed, rewards)
    roles = set(table.columns) - set(outcome_roles(table.columns).values())
    named = {role: tuple(x) if isinstance(x, Several) else x for role, x in table.columns.items() if role in roles}
    return Log(
        transitions,
        state_names,
        action_names,
        table.name,
        digest,
        columns=named,
        notes=notes,
        outcomes={name: x[rows_in_order] for name, x in outcomes.items()},
        covariates=_covariates(table, about, rows_in_order),
    )


def _covariates(table: Table, about: Roles | None, rows: Int[np.ndarray, " N"]) -> LoggedContexts | None:
    if about is None:
        return None
    refuse_points(table, (column for column, kind in about.columns().items() if kind != GROUP))
    return about.read(table.frame, rows, table.name)


def _nan_where_unseen(
    numbers: Float[np.ndarray, " N"] | None, seen: Bool[np.ndarray, " N"] | None
) -> Float[np.ndarray, " N"]:
    """The numbers of an outcome; which were observed (None: all) is said by nan."""
    assert numbers is not None  # an outcome has a column
    return numbers if seen is None else np.where(seen, numbers, np.nan)


def _episodes(table: Table) -> tuple[EpisodeOrder | None, np.ndarray | None]:
    """The order of rows by episode, and the number of the episode of each; None where next states alone are given."""
    episodes = read_episodes(table)
    if episodes is None and "next_state" not in table.columns:
        episodes = np.zeros(len(table.frame), np.intp)
    return None if episodes is None else episode_order(episodes), episodes


def _what_is_there(table: Table, missing: Missing) -> Columns:
    """Flags and steps, and for states, actions and next states 0 where there is one, and -1 where it is missing."""
    size = len(table.frame)
    ends, cut, steps = read_flags(table, "terminated"), read_flags(table, "truncated"), read_steps(table)
    ended = np.zeros(size, bool) if ends is None else ends
    columns: Columns = {"state": np.zeros(size, int), "action": np.zeros(size, int), "terminated": ended}
    if "action" in table.columns:
        columns["action"] = np.where(is_empty(table, "action"), -1, 0)
    if "next_state" in table.columns:
        columns["next_state"] = np.where(ended, -1, 0)
    if missing.states:
        columns |= {role: np.where(is_empty(table, role), -1, columns[role]) for role in _STATES if role in columns}
    return columns | {k: v for k, v in (("truncated", cut), ("step", steps)) if v is not None}


_STATES = ("state", "next_state")


def _all_bad(
    first: BadCells,
    table: Table,
    states: Sequence[Hashable] | None,
    actions: Sequence[Hashable] | None,
    missing: Missing,
    every: str | None,
    by_row: bool,
) -> BadCells:
    """The error, with the bad cells of the other columns.

    Args:
        by_row: whether a reward stands in the row of its action.
    """

    errors: dict[str, BadCells] = {}

    def works(check: Callable[[], object]) -> bool:
        """Whether a column can be read; its bad cells are kept."""
        try:
            check()
        except BadCells as error:
            errors.setdefault(error.cells[0][1], error)
            return False
        except (ValueError, TypeError):  # of no single cell: it is told when the cells are right
            return False
        return True

    def states_of(role: str) -> object:
        skipped = is_empty(table, role) if missing.states else np.zeros(len(table.frame), bool)
        ended = read_flags(table, "terminated") if role == "next_state" else None
        return read_labels(table, (role,), states, {role: skipped if ended is None else skipped | ended})

    def rows_of(table: Table) -> tuple[FollowedRows, np.ndarray]:
        present = _what_is_there(table, missing)
        order = _episodes(table)[0]
        followed = next_states_given(present) if order is None else follow(order, present, "step" in present)
        return followed, (present["action"] < 0) & ~followed.keep

    def count_steps() -> Table:
        return table if every is None else with_counted_steps(table, every, _episodes(table)[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if works(count_steps):
            table = count_steps()
        checks = {role: partial(read_flags, table, role) for role in ("terminated", "truncated")}
        fine = {role: works(check) for role, check in checks.items()}
        fine |= {"episode": works(lambda: read_episodes(table)), "step": works(lambda: read_steps(table))}
        for role in _STATES:
            if role in table.columns and (fine["terminated"] or role == "state"):
                works(partial(states_of, role))
        if fine["truncated"] and fine["episode"] and fine["step"]:  # else it is not known which cells may be empty
            named = {role: column for role, column in table.columns.items() if fine.get(role, True)}
            readable = table._replace(columns=named)
            followed, untold = rows_of(readable)
            if "action" in named:
                works(lambda: read_labels(readable, ("action",), actions, {"action": untold}))
            unneeded = missing.rewards or not by_row
            for role in (None, *outcome_roles(table.columns).values()):
                works(partial(read_rewards, table, unneeded, followed.keep, followed.next_observed, role))
    if first.cells[0][1] not in errors:  # a step that does not follow
        errors[first.cells[0][1]] = first
    cells = [cell for error in errors.values() for cell in error.cells]
    return BadCells(table, cells, sum(error.number for error in errors.values()))


def _notes(
    gaps: Bool[np.ndarray, " N"],
    untold: Bool[np.ndarray, " N"],
    unknown: Bool[np.ndarray, " N"],
    rewards: Float[np.ndarray, " N"] | None,
) -> tuple[str, ...]:
    """What of the source is no transition, in words.

    Args:
        gaps: rows without a state.
        untold: rows that are left out, without an action.
        unknown: rows that are kept, of which it is not known what followed.
        rewards: of all rows; None: there are none.
    """
    last = untold & ~gaps
    paid = 0 if rewards is None else int((rewards[last] != 0).sum())
    lost = f" (with a reward: {paid})" if paid else ""
    said = (
        (gaps, "rows without a state, left out", ""),
        (unknown, "rows that do not say what followed, which count by action and reward alone", ""),
        (last, "last rows without an action, left out", lost),
    )
    return tuple(f"{subject}: {int(rows.sum())}{suffix}" for rows, subject, suffix in said if rows.any())


def _check_order(table: Table, along: EpisodeOrder, episodes: np.ndarray, columns: Columns, may_jump: bool) -> None:
    """Refuse steps that do not follow each other, or warn of next states that are not those of the next rows."""
    _, next_row, place, last = along
    state, next_state = columns["state"], columns.get("next_state")
    if "step" in columns:
        warn_of_first_steps(table, columns["step"][place == 0])
        if next_state is not None:  # else steps have to follow each other anyway
            refuse_repeated_steps(table, episodes, along)
    if next_state is not None:
        ended = last | columns["terminated"] | columns.get("truncated", False)
        known = (next_state >= 0) & (state >= 0) & (state[next_row] >= 0)
        _warn_of_breaks(table, known & ~ended & (next_state != state[next_row]))
    elif "step" in columns:
        gap = first_gap(columns["step"], next_row, last, np.arange(len(state)), may_jump=may_jump)
        if gap is not None:
            gap.refuse(table)


def _warn_of_breaks(table: Table, breaks: Bool[np.ndarray, " N"]) -> None:
    """Warn where an episode goes on from another state than the one that it was led to."""
    number = int(breaks.sum())
    if number:
        first = table.first + int(np.argmax(breaks)) + 1
        warn_user(
            f"{table.name}: in {number} of {len(breaks)} rows, first in row {first}, next_state is not the state of "
            "the episode's next row, and the episode counts as cut there: put the rows of each episode in order of "
            f"time, and see whether some are missing {see('how-to/read-a-log')}"
        )
