"""`read_choices`: a `ChoiceLog` from a CSV or Parquet file or a pandas DataFrame with named columns."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayes_mdp.behaviour.choice_log import ChoiceLog
from bayes_mdp.envs.logs.columns import is_empty, read_flags, read_labels, read_rewards, read_steps
from bayes_mdp.envs.logs.tables import Table, open_table
from bayes_mdp.utils.validation import check_name, first_index

if TYPE_CHECKING:
    import os

    import pandas as pd


def read_choices(  # noqa: PLR0913 - the columns of a file are named one by one, as a person would guess them
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    subject: str,
    action: str,
    reward: str | None = None,
    cost: str | None = None,
    state: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    trial: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing: Literal["error", "ignore"] = "error",
) -> ChoiceLog:
    """Read one choice per row. `subject`, `action`, ... are names of columns.

    Labels are numbered in natural order (2 before 10, "s2" before "s10"), or in the order of `states` and `actions`
    where these are given; see `bayes_mdp.read_log`. Persons may have different numbers of choices.

    Args:
        source: a path (`.parquet`, `.pq`: Parquet; `.tsv`: tab-separated; else CSV with a header line), or a
            DataFrame.
        subject: who chose.
        action: what was chosen.
        reward: what followed, larger is better.
        cost: in place of `reward`, smaller is better: the rewards of the log are minus this column.
        state: what was seen; None: there is one state (a bandit).
        next_state: None: the state of the subject's next row.
        terminated: true / false or 1 / 0, the row ended an episode.
        trial: a whole number that orders the rows of a subject; None: they are in order.
        states, actions: all labels, in order; None: those of the log, with a warning as in `read_log`.
        missing: what a row with an empty action, reward or cost is: an error, or a choice that was missed: it has no
            likelihood, and nothing is learnt from it.

    Returns:
        A `ChoiceLog` of numpy arrays, persons in natural order of their labels.

    Raises:
        FileNotFoundError: there is no such file. TypeError: a column whose name is None, neither reward nor cost.
        ValueError: `reward` and `cost` are both given; no rows, a column that is missing, a cell that cannot be read, a
            trial of a subject twice, a subject without any choice: which row, column, what was there.
        ImportError: Parquet without pyarrow.
    """
    check_name("missing", missing, ("error", "ignore"))
    if reward is None and cost is None:
        raise TypeError("reward and cost are both None, expected the name of one column")
    roles = {"subject": subject, "action": action, "reward": reward, "cost": cost, "state": state}
    roles |= {"next_state": next_state, "terminated": terminated, "trial": trial}
    table = open_table(source, roles, ("subject", "action"))
    # Labels and numbers of every row, in the order of the file.
    (person,), subjects = read_labels(table, ("subject",), None)
    missed = is_empty(table, "action") if missing == "ignore" else np.zeros(len(person), bool)
    (choice,), action_names = read_labels(table, ("action",), actions, missed)
    rewards, paid = read_rewards(table, missing == "ignore", np.ones(len(person), bool))
    ends = read_flags(table, "terminated")
    seen, following, state_names = _states(table, states, ends)
    # Rows become [person, place in the person's history].
    person, place = person.astype(int), _places(table, person)
    shape = (len(subjects), int(place.max()) + 1)

    def padded(column: np.ndarray | None) -> np.ndarray | None:
        if column is None:
            return None
        made = np.zeros(shape, column.dtype)
        made[person, place] = column
        return made

    assert rewards is not None  # there is a column
    observed = padded(~missed if paid is None else ~missed & paid)
    columns = [padded(x) for x in (seen, choice, rewards, following, ends)]
    return ChoiceLog(*columns, observed, subjects=subjects, states=state_names, actions=action_names)  # type: ignore[arg-type]


def _states(
    table: Table, states: Sequence[Hashable] | None, ends: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, tuple[Hashable, ...]]:
    """State and next state (None: not given) of every row, and the labels."""
    if "state" not in table.columns:
        zero = np.zeros(len(table.frame), np.int32)
        return zero, zero, (0,) if states is None else tuple(states)
    if "next_state" not in table.columns:
        (seen,), names = read_labels(table, ("state",), states)
        return seen, None, names
    (seen, following), names = read_labels(table, ("state", "next_state"), states, ends)
    return seen, following, names


def _places(table: Table, person: np.ndarray) -> np.ndarray:
    """The place of every row in the history of its person."""
    trial = read_steps(table, "trial")
    number = np.arange(len(person)) if trial is None else trial
    order = np.lexsort((np.arange(len(person)), number, person))
    first = np.append(True, np.diff(person[order]) != 0)
    if trial is not None:
        again = first_index(~first & np.append(False, np.diff(number[order]) == 0))
        if again is not None:
            table.fail(int(order[again[0]]), "trial", "each trial of a subject once")
    start = np.flatnonzero(first)
    place = np.empty(len(person), int)
    place[order] = np.arange(len(person)) - np.repeat(start, np.diff(np.append(start, len(person))))
    return place
