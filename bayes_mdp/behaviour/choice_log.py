"""`ChoiceLog`: the choices of several persons, padded to one length; `read_choices` reads them from a table."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.logs.columns import (
    is_empty,
    read_flags,
    read_labels,
    read_rewards,
    read_steps,
    with_joined_labels,
)
from bayes_mdp.envs.logs.tables import Dialect, Faults, Table, open_table
from bayes_mdp.utils.messages import count_of, ends_with_page, see, warn_user
from bayes_mdp.utils.typing import AnyArray, ArrayLike
from bayes_mdp.utils.validation import (
    as_indices,
    as_mask,
    as_names,
    as_real,
    check_index,
    check_name,
    check_names,
    check_shape,
    first_index,
    is_concrete,
    label_list,
)

if TYPE_CHECKING:
    import os

    import pandas as pd


class ChoiceLog(eqx.Module):
    """Choices of P persons in the order of time, padded to the length T of the longest history.

    A record is one choice: what the person saw, chose and got. Where `observed` is false there is none (padding, or a
    choice that was missed): it has no likelihood, nothing is learnt from it, and its entries are not looked at.

    Args:
        state, action: Int[P T], indices. One state alone (0) where choices have no context.
        reward: Float[P T]; of a choice without a reward (the first stage of the two-step task) zero.
        next_state: Int[P T]; not looked at where `terminated`. None: the state of the person's next record.
        terminated: Bool[P T], the record ended an episode: no value beyond. None: never.
        observed: Bool[P T]; None: all were.
        subjects: labels of the persons; None: 0, 1, ...
        states, actions: labels behind the indices; None: 0, 1, ... up to the largest index.

    Raises:
        ValueError: columns of other shapes, an index without label, a reward that is not finite, a person without any
            choice, a label twice. TypeError: indices that are no integers, rewards that are no numbers.
    """

    state: Int[AnyArray, "P T"]
    action: Int[AnyArray, "P T"]
    reward: Float[AnyArray, "P T"]
    next_state: Int[AnyArray, "P T"]
    terminated: Bool[AnyArray, "P T"] | None
    observed: Bool[AnyArray, "P T"]
    subjects: tuple[Hashable, ...] = eqx.field(static=True)
    states: tuple[Hashable, ...] = eqx.field(static=True)
    actions: tuple[Hashable, ...] = eqx.field(static=True)

    def __init__(
        self,
        state: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_state: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        observed: ArrayLike | None = None,
        *,
        subjects: Sequence[Hashable] | None = None,
        states: Sequence[Hashable] | None = None,
        actions: Sequence[Hashable] | None = None,
    ) -> None:
        self.state = as_indices("state", state, "state")
        self.action = as_indices("action", action, "action")
        shape = np.shape(self.state)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"state has shape {shape}, expected [person, choice] with at least one of each")
        self.observed = np.ones(shape, bool) if observed is None else as_mask("observed", observed)
        self.reward = _rewards(reward)
        # Where nothing else is said, what a person saw next is what the choice led to.
        following = _following(self.state, self.observed) if next_state is None else next_state
        self.next_state = as_indices("next_state", following, "state")
        self.terminated = None if terminated is None else as_mask("terminated", terminated)
        for name in ("action", "reward", "next_state", "terminated", "observed"):
            if getattr(self, name) is not None:
                check_shape(name, getattr(self, name), shape, "as state")
        self.subjects = as_names(range(shape[0]) if subjects is None else subjects)
        self.states = _labels(states, self.observed, self.state, self.next_state)
        self.actions = _labels(actions, self.observed, self.action)
        for name in ("subjects", "states", "actions"):
            check_names(name, getattr(self, name))
        if len(self.subjects) != shape[0]:
            raise ValueError(f"subjects has {len(self.subjects)} labels, expected one for each of {shape[0]} persons")
        # A log that is traced was checked before.
        if is_concrete(self.state, self.action, self.reward, self.next_state, self.terminated, self.observed):
            self._check_records()

    def _check_records(self) -> None:
        seen = np.asarray(self.observed)
        nobody = first_index(~seen.any(axis=1))
        if nobody is not None:
            raise ValueError(f"subject {self.subjects[nobody[0]]!r} has no choice, expected at least one")
        ends = np.zeros_like(seen) if self.terminated is None else np.asarray(self.terminated)
        # Entries that are not looked at may hold anything.
        check_index("state", np.where(seen, self.state, 0), len(self.states), "state")
        check_index("action", np.where(seen, self.action, 0), len(self.actions), "action")
        check_index("next_state", np.where(seen & ~ends, self.next_state, 0), len(self.states), "state")
        # Rewards too may be anything where nothing was observed.
        bad = first_index(seen & ~np.isfinite(np.asarray(self.reward)))
        if bad is not None:
            value = np.asarray(self.reward)[bad]
            raise ValueError(f"reward is {value} at {self.place(*bad)}, expected a finite number")

    def place(self, person: int, record: int) -> str:
        """A record in words: the subject, and which of its choices (from 1).

        Args:
            person: index of the subject.
            record: index of the record, among all of the person.
        """
        number = int(np.asarray(self.observed)[person, : record + 1].sum())
        return f"subject {self.subjects[person]!r}, choice {number}"

    @property
    def num_subjects(self) -> int:
        """P."""
        return self.state.shape[0]

    @property
    def num_choices(self) -> int:
        """How many choices were observed, of all persons."""
        return int(np.asarray(self.observed).sum())

    def __str__(self) -> str:
        """Its size and its labels."""
        named = (("person", self.subjects), ("state", self.states), ("action", self.actions))
        sizes = [f"{count_of(len(x), noun)} ({label_list(x)})" for noun, x in named]
        return f"{count_of(self.num_choices, 'choice', ',')}: {', '.join(sizes)}"

    def of_subjects(self, subjects: Sequence[Hashable]) -> "ChoiceLog":
        """The log of some of the persons, by label.

        Args:
            subjects: labels of those that are kept, in this order.

        Raises:
            ValueError: a label that is none of the subjects.
        """
        # Numbers of the subjects, by label.
        number = {label: i for i, label in enumerate(self.subjects)}
        for label in subjects:
            if label not in number:
                raise ValueError(f"subject {label!r} is not in the log, expected one of its {len(number)} subjects")
        rows = np.array([number[label] for label in subjects], int)
        columns: list[Any] = [None if x is None else x[rows] for x in self._columns()]
        return ChoiceLog(*columns, subjects=tuple(subjects), states=self.states, actions=self.actions)

    def _columns(self) -> list[Any]:
        return [self.state, self.action, self.reward, self.next_state, self.terminated, self.observed]

    def fill_missing(self) -> "ChoiceLog":
        """The same log with a record of the same person in place of each that was not observed. Traceable.

        What is computed from it and thrown away is then a number, and so is its derivative.
        """
        columns = self._columns()
        # On the host where it can be: a compiled program would fold these constants slowly.
        np_: Any = np if is_concrete(*columns) else jnp
        observed = np_.asarray(self.observed)
        time = np_.arange(self.state.shape[1])
        # The last observed record before each; at the beginning the first observed one.
        marked = np_.where(observed, time, -1)
        last = np.maximum.accumulate(marked, axis=1) if np_ is np else jax.lax.cummax(marked, axis=1)
        source = np_.where(last < 0, np_.argmax(observed, axis=1)[:, None], last)
        take = lambda x: None if x is None else np_.take_along_axis(np_.asarray(x), source, axis=1)  # noqa: E731
        columns = [take(x) for x in columns[:5]]
        return ChoiceLog(*columns, observed, subjects=self.subjects, states=self.states, actions=self.actions)

    def frame(self) -> "pd.DataFrame":
        """One row for each observed choice: subject, trial (from 0), state, action, reward, next_state, terminated."""
        import pandas as pd

        # Records that were missed are no rows.
        person, time = np.nonzero(np.asarray(self.observed))
        column = lambda x: np.asarray(x)[person, time]  # noqa: E731
        named = lambda labels, x: [labels[i] for i in column(x)]  # noqa: E731
        ends = np.zeros(np.shape(self.state), bool) if self.terminated is None else self.terminated
        return pd.DataFrame(
            {
                "subject": [self.subjects[i] for i in person],
                "trial": time,
                "state": named(self.states, self.state),
                "action": named(self.actions, self.action),
                "reward": column(self.reward),
                "next_state": named(self.states, np.where(ends, self.state, self.next_state)),
                "terminated": column(ends),
            }
        )


def _rewards(values: object) -> Any:
    if not is_concrete(values):
        return values
    if isinstance(values, jax.Array) and jnp.issubdtype(values.dtype, jnp.floating):
        return values
    array = np.asarray(values)
    if array.dtype.kind in "fiub":  # not finite where a choice was missed, perhaps
        return array.astype(np.float64)
    return as_real("reward", values)


def _following(state: Any, observed: Any) -> Any:
    """The state of the next observed record of a person; at the last one its own."""
    if not is_concrete(state, observed):
        raise ValueError("next_state is None for a traced log, expected the next states")
    # Placeholders between two records are skipped.
    state, seen = np.asarray(state), np.asarray(observed)
    after = np.array(state)
    for person in range(len(state)):
        times = np.flatnonzero(seen[person])
        after[person, times[:-1]] = state[person, times[1:]]
    return after


def _labels(given: object, observed: Any, *indices: Any) -> Any:
    if given is not None:
        return as_names(given)
    if not is_concrete(observed, *indices):
        raise ValueError("states and actions are None for a traced log, expected their labels")
    # 0, 1, ... up to the largest index that was observed.
    return tuple(range(1 + max(int(np.where(observed, x, 0).max()) for x in indices)))


@ends_with_page("how-to/fit-learners-to-people")
def read_choices(  # noqa: PLR0913 - the columns of a file are named one by one, as a person would guess them
    source: "str | os.PathLike[str] | pd.DataFrame",
    *,
    subject: str,
    action: str,
    reward: str | None = None,
    cost: str | None = None,
    state: str | list[str] | None = None,
    next_state: str | list[str] | None = None,
    terminated: str | None = None,
    trial: str | None = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    missing: Literal["error", "ignore"] = "error",
    sep: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
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
        state: what was seen, in a column or in several, as in `read_log`; None: there is one state (a bandit).
        next_state: None: the state of the subject's next row that was not missed.
        terminated: true / false or 1 / 0, the row ended an episode.
        trial: a whole number that orders the rows of a subject; None: they are in order.
        states, actions: all labels, in order; None: those of the log, with a warning as in `read_log`.
        missing: what a row with an empty action, reward, cost or state is: an error, or a choice that was missed: it
            has no likelihood, and nothing is learnt from it.
        sep, encoding, decimal: of a text file, as in `read_log`.

    Returns:
        A `ChoiceLog` of numpy arrays, persons in natural order of their labels.

    Raises:
        FileNotFoundError: there is no such file. TypeError: a column whose name is None, neither reward nor cost.
        ValueError: `reward` and `cost` are both given; no rows, a column that is missing, a cell that cannot be read, a
            trial of a subject twice, a subject without any choice: which row, column, what was there. Of cells that
            cannot be read the first ten are named.
        ImportError: Parquet without pyarrow.
    """
    check_name("missing", missing, ("error", "ignore"))
    dialect = Dialect(sep, encoding, decimal)
    dialect.check()
    if reward is None and cost is None:
        raise TypeError("reward and cost are both None, expected the name of one column")
    roles = {"subject": subject, "action": action, "reward": reward, "cost": cost, "state": state}
    roles |= {"next_state": next_state, "terminated": terminated, "trial": trial}
    table = open_table(source, roles, ("subject", "action"), {"state": states, "action": actions}, dialect)
    table, faults = with_joined_labels(table, states), Faults()
    # Labels and numbers of every row, in the order of the file.
    size, ignored = len(table.frame), missing == "ignore"
    missed = is_empty(table, "action") if ignored else np.zeros(size, bool)
    unseen = is_empty(table, "state") if ignored and "state" in table.columns else np.zeros(size, bool)
    nothing, all_observed = ([np.zeros(size, np.int32)], ()), np.ones(size, bool)
    (person,), subjects = faults.read(lambda: read_labels(table, ("subject",), None), lambda: nothing)
    (choice,), action_names = faults.read(
        lambda: read_labels(table, ("action",), actions, {"action": missed}), lambda: nothing
    )
    rewards, paid = faults.read(lambda: read_rewards(table, ignored, all_observed, all_observed), lambda: (None, None))
    ends = faults.read(lambda: read_flags(table, "terminated"), lambda: None)
    seen, following, state_names = faults.read(lambda: _states(table, states, ends, unseen), lambda: (choice, None, ()))
    trial_numbers = faults.read(lambda: read_steps(table, "trial"), lambda: None)
    faults.refuse(table)
    missed |= unseen
    # Faults of all columns are named together, before anything is built.
    # Rows become [person, place in the person's history].
    person, place = person.astype(int), _places(table, person, trial_numbers)
    shape = (len(subjects), int(place.max()) + 1)

    def pad(column: np.ndarray | None) -> np.ndarray | None:
        if column is None:
            return None
        made = np.zeros(shape, column.dtype)
        made[person, place] = column
        return made

    assert rewards is not None  # there is a column
    observed = pad(~missed if paid is None else ~missed & paid)
    columns = [pad(x) for x in (seen, choice, rewards, following, ends)]
    return ChoiceLog(*columns, observed, subjects=subjects, states=state_names, actions=action_names)  # type: ignore[arg-type]


def _states(
    table: Table, states: Sequence[Hashable] | None, ends: np.ndarray | None, unseen: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, tuple[Hashable, ...]]:
    """State and next state (None: not given) of every row, and the labels."""
    if "state" not in table.columns:
        zero = np.zeros(len(table.frame), np.int32)
        return zero, zero, (0,) if states is None else tuple(states)
    if "next_state" not in table.columns:
        (seen,), names = read_labels(table, ("state",), states, {"state": unseen})
        return seen, None, names
    skipped = {"state": unseen, "next_state": unseen if ends is None else unseen | ends}
    (seen, following), names = read_labels(table, ("state", "next_state"), states, skipped)
    return seen, following, names


def _warn_of_gaps(table: Table, order: np.ndarray, later: np.ndarray) -> None:
    """One warning where trials are missing between two rows of a person: what was learnt from them is not known.

    Args:
        table: with trials.
        order: its rows by person, then by trial.
        later: by how much the trial of each of them is after the one before; 0: a person's first.
    """
    steps = later[later > 0]
    gaps = np.flatnonzero(later > steps.min()) if len(steps) else steps
    if not len(gaps):
        return
    trials, subject = table.values("trial"), table.values("subject")
    assert trials is not None and subject is not None  # they have columns
    before, after = order[gaps[0] - 1], order[gaps[0]]
    example = f"subject {subject[after]!r} has no trial between {trials[before]} and {trials[after]}"
    remaining = len(gaps) - 1
    example += f", and {count_of(remaining, 'more such gap')}" if remaining else ""
    warn_user(
        f"{table.name}: {example}: it is taken that nothing was learnt in between. Keep the rows of trials whose "
        'outcome was seen (a choice that was missed: an empty action, and missing="ignore") '
        + see("how-to/fit-learners-to-people")
    )


def _places(table: Table, person: np.ndarray, trial: np.ndarray | None) -> np.ndarray:
    """The place of every row in the history of its person."""
    number = np.arange(len(person)) if trial is None else trial
    # By person, then by trial; rows of equal numbers stay in the order of the file.
    order = np.lexsort((np.arange(len(person)), number, person))
    first = np.append(True, np.diff(person[order]) != 0)
    if trial is not None:
        later = np.where(first, 0, np.diff(number[order], prepend=0))  # than the row before, of one person
        repeated = first_index(~first & (later == 0))
        if repeated is not None:
            table.fail(int(order[repeated[0]]), "trial", "each trial of a subject once")
        _warn_of_gaps(table, order, later)
    # Place = rank in the sorted order minus the rank of the person's first row.
    start = np.flatnonzero(first)
    place = np.empty(len(person), int)
    place[order] = np.arange(len(person)) - np.repeat(start, np.diff(np.append(start, len(person))))
    return place
