"""Contexts: the distinct patterns of covariates in a log, the space of an MDP in each of them, and all side by side.

A covariate is what a row of the log says of the subject beside the state: age, site, load. A *context* is one distinct
pattern of all covariates. Rows of probabilities are [C S A O] then, one MDP in every context, and how often the log has
(context, state, action, outcome) is all that a law of rows needs to know which sees covariates alone.

`ContextSpace` is a `StateActionSpace` with a table of contexts. Its `side_by_side` is an ordinary space whose states
are (context, state): every route of `infer` serves it, and nothing leads from one context into another.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.mdp.by_label import ProductLabel, similar_in_words
from bayes_mdp.mdp.data.transitions import Transitions
from bayes_mdp.mdp.design import BY, Covariate, Design, Formula, Layout, Scale, design_of, read_formula, scale_of
from bayes_mdp.mdp.space import StateActionSpace
from bayes_mdp.utils.messages import count_of, did_you_mean, see, warn_user
from bayes_mdp.utils.validation import as_real, check_type, described, first_index, label_list

if TYPE_CHECKING:
    import pandas as pd

PROCESSES = ("known", "exogenous", "state")
FIXED, VARYING, GROUP = "fixed", "varying", "group"
PAGE = "how-to/covariates"


class Column(NamedTuple):
    """A column of covariates.

    Args:
        name: of the column.
        values: [C], numbers; of labels their places in `levels`.
        levels: all labels of the log, in order; None: numbers.
        kind: "fixed" for a subject, "varying" from row to row, or "group": labels whose effects are partly pooled.
    """

    name: str
    values: np.ndarray
    levels: tuple[Hashable, ...] | None
    kind: str = FIXED

    @property
    def labels(self) -> np.ndarray:
        """[C], as they stood in the log."""
        return self.values if self.levels is None else np.array(self.levels, object)[self.values]


class Contexts:
    """A table of contexts: one row for each distinct pattern of covariates.

    Args:
        columns: the covariates, of C rows.
        transitions: Float64[C], how many of the log are in each context.
        subjects: Float64[C], how many subjects begin in each; None: the log has no column of subjects.
        process: what moves the covariates that vary: "known" or "exogenous"; None: none varies.
        origin: the contexts of the log, where these are others: of its levels, and by which columns are standardised.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        transitions: Float[np.ndarray, " C"],
        subjects: Float[np.ndarray, " C"] | None = None,
        process: str | None = None,
        origin: "Contexts | None" = None,
    ) -> None:
        self.columns, self.transitions, self.subjects = tuple(columns), transitions, subjects
        self.process, self._origin = process, origin
        # Kept at the contexts of the log: other contexts are standardised alike.
        self._scales: dict[tuple[Formula, Layout], Scale] = {}

    @property
    def origin(self) -> "Contexts":
        """The contexts of the log."""
        return self if self._origin is None else self._origin

    @property
    def names(self) -> tuple[str, ...]:
        """Of the covariates."""
        return tuple(column.name for column in self.columns)

    @property
    def group(self) -> Column | None:
        """The column of groups; None: there is none."""
        return next((column for column in self.columns if column.kind == GROUP), None)

    def __len__(self) -> int:
        """C."""
        return len(self.transitions)

    def column(self, name: str) -> Column:
        """A covariate by its name.

        Raises:
            ValueError: there is none of this name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise ValueError(
            f"{name!r} is no covariate, expected one of {', '.join(map(repr, self.names))}"
            + did_you_mean(name, self.names)
        )

    def __getitem__(self, name: str) -> np.ndarray:
        """[C], the values of a covariate: numbers or labels."""
        return self.column(name).labels

    def label(self, context: int | np.integer) -> ProductLabel:
        """The pattern of one context, printed as "age=3, frail=1"."""
        return ProductLabel((plain(column.labels[context]) for column in self.columns), self.names)

    @property
    def labels(self) -> tuple[ProductLabel, ...]:
        """The pattern of every context."""
        columns = [column.labels for column in self.columns]
        rows = zip(*columns, strict=True) if columns else [()] * len(self)
        return tuple(ProductLabel(map(plain, row), self.names) for row in rows)

    def table(self) -> "pd.DataFrame":
        """A row for each context: its covariates, `transitions` and, where they are known, `subjects`."""
        import pandas as pd

        frame = pd.DataFrame({column.name: column.labels for column in self.columns})
        frame["transitions"] = self.transitions
        return frame if self.subjects is None else frame.assign(subjects=self.subjects)

    def __str__(self) -> str:
        """Their number and their covariates."""
        parts = [
            f"{c.name} ({c.kind}, {'numbers' if c.levels is None else label_list(c.levels)})" for c in self.columns
        ]
        return f"{count_of(len(self), 'context')} of {', '.join(parts)}"

    def where(self, pattern: Mapping[str, Hashable]) -> Int[np.ndarray, " n"]:
        """The contexts in which some covariates have given values.

        Args:
            pattern: name -> value.

        Raises:
            ValueError: no such covariate, or no context with that value.
        """
        # Contexts that have every value asked for.
        fits = np.ones(len(self), bool)
        for name, value in pattern.items():
            matches = np.array([plain(x) == value for x in self.column(name).labels], bool)
            if not matches.any():
                raise ValueError(f"{name} is {value!r}, expected one of {label_list(distinct(self[name]))}")
            fits &= matches
        return np.flatnonzero(fits)

    def place(self, other: "Contexts") -> int | None:
        """The context with the pattern of the first of others; None: it is new.

        Args:
            other: of the same covariates and levels.
        """
        # The patterns of a table are distinct: at most one fits.
        same = np.ones(len(self), bool)
        for column, new in zip(self.columns, other.columns, strict=True):
            same &= column.values == new.values[0]
        return int(same.argmax()) if same.any() else None

    def read(self, table: "pd.DataFrame | Mapping[str, Any]") -> "Contexts":
        """Other contexts, with the levels of these: a table with a column for each covariate.

        Args:
            table: a DataFrame, or one pattern as a mapping; of the group too.

        Raises:
            ValueError: a column that is missing, an empty cell, a label that the log does not have.
            TypeError: no table; words where the log has numbers.
        """
        import pandas as pd

        if isinstance(table, Mapping):
            table = pd.DataFrame({name: [value] for name, value in table.items()})
        check_type("table", table, pd.DataFrame, "a DataFrame, or a mapping of one pattern")
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            raise ValueError(
                f"the table has no column {missing[0]!r}, expected one for each of {', '.join(self.names)}"
            )
        if not len(table):
            raise ValueError("the table has no rows, expected at least one context")
        columns = [
            _column(column.name, column.kind, table[column.name], "the table", column) for column in self.columns
        ]
        return Contexts(columns, np.zeros(len(table)), None, self.process, self.origin)

    def take(self, places: Int[np.ndarray, " n"]) -> "Contexts":
        """Some of them.

        Args:
            places: which.
        """
        columns = [column._replace(values=column.values[places]) for column in self.columns]
        subjects = None if self.subjects is None else self.subjects[places]
        return Contexts(columns, self.transitions[places], subjects, self.process, self.origin)

    def scale(self, formula: Formula, layout: Layout) -> Scale:
        """By what the columns of a formula are standardised: means and spreads in the log.

        Raises:
            ValueError: a column of the formula that is constant in the log, or a sum of others.
        """
        # The log decides by what columns are standardised.
        cache = self.origin._scales
        if (formula, layout) not in cache:
            cache[formula, layout] = scale_of(formula, self.origin.covariates, layout, self.origin.transitions)
        return cache[formula, layout]

    @property
    def covariates(self) -> dict[str, Covariate]:
        """Name -> values and levels."""
        return {column.name: Covariate(column.values, column.levels) for column in self.columns}


class ContextSpace(StateActionSpace):
    """The space of a log with covariates: that of the MDP in each context, and the contexts.

    Its sizes, names and masks are those of one context.

    Args:
        contexts: the distinct patterns of covariates.
    """

    contexts: Contexts = eqx.field(static=True, kw_only=True)

    @property
    def n_contexts(self) -> int:
        """C."""
        return len(self.contexts)

    @property
    def layout(self) -> Layout:
        """The labels of states and actions."""
        return Layout(self.state_names, self.action_names)

    @property
    def alone(self) -> StateActionSpace:
        """The space of the MDP in one context."""
        return StateActionSpace(self.n_states, self.n_actions, **{name: getattr(self, name) for name in _FIELDS})

    @property
    def side_by_side(self) -> StateActionSpace:
        """An ordinary space of C * S states (context, state), whose rows list S outcomes, and the end.

        Of one context it is the space itself, without contexts.
        """
        if self.n_contexts == 1:
            return self.alone
        size, number = self.n_states, self.n_contexts
        listed = self.successors
        if listed is None:
            # Without lists every state, and the end, is a successor.
            listed = np.broadcast_to(np.arange(self.n_outcomes), (*self.shape, self.n_outcomes))
            listed = listed if self.support is None else np.where(self.support, listed, -1)
        # States of context c begin at c S; the end comes after all of them.
        first = size * np.arange(number)[:, None, None, None]
        moved = np.where((listed >= 0) & (listed < size), listed + first, np.where(listed < 0, -1, size * number))
        # Every context has the actions of the one.
        legal = None if self.legal is None else np.tile(self.legal, (number, 1))
        counted = None if self.multiplicity is None else np.tile(self.multiplicity, (number, 1, 1))
        names = (*self.contexts.names, "state")
        labels = [ProductLabel((*label, state), names) for label in self.contexts.labels for state in self.state_names]
        return StateActionSpace(
            size * number,
            self.n_actions,
            ends=self.ends,
            states=labels,
            actions=self.actions,
            legal=legal,
            successors=moved.reshape(size * number, *moved.shape[2:]),
            multiplicity=counted,
        )

    @classmethod
    def over(cls, space: StateActionSpace, contexts: Contexts) -> "ContextSpace":
        """The space of an MDP in each of some contexts; of `alone` it is the way back.

        Args:
            space: of the MDP, or with other contexts.
            contexts: the distinct patterns of covariates.
        """
        return cls(space.n_states, space.n_actions, contexts=contexts, **{x: getattr(space, x) for x in _FIELDS})

    def design(self, terms: str, by: str | Sequence[str] | None = None) -> Design:
        """Columns of numbers for every (context, state, action), by a formula (see `bayes_mdp.mdp.design`).

        Args:
            terms: "age + frail + action", "age:action"; covariates, "state" and "action".
            by: "state", "action" or both: these have columns of their own.

        Returns:
            The design: Float64[C S A p], and the names of its columns.

        Raises:
            ValueError: a factor that does not exist, a column that is constant in the log or a sum of the others: its
                name. TypeError: no text.

        Example:
            >>> import pandas as pd
            >>> rows = {"s": ["a", "b", "a"], "a": ["x", "y", "y"], "t": ["b", "a", "a"], "age": [1, 2, 4]}
            >>> log = bm.read_log(pd.DataFrame(rows), state="s", action="a", next_state="t", covariates=["age"])
            >>> bm.StateActionSpace.from_log(log).design("age + age:action").names
            ('constant', 'age', 'age:action=y')
        """
        formula = self.formula(terms, by)
        scale = self.contexts.scale(formula, self.layout)
        return design_of(formula, self.contexts.covariates, self.layout, scale, self.n_contexts)

    def formula(self, terms: str, by: str | Sequence[str] | None = None) -> Formula:
        """A formula in words as its parts.

        Args:
            terms, by: as of `design`.

        Raises:
            ValueError, TypeError: as `design`.
        """
        return read_formula(terms, by, self.contexts.names)


def refuse_contexts(space: StateActionSpace, who: str) -> None:
    """Refuse a space with contexts.

    Args:
        space: any.
        who: what knows of no contexts.

    Raises:
        ValueError: it has contexts.
    """
    if isinstance(space, ContextSpace):
        raise ValueError(
            f"space has contexts of {', '.join(space.contexts.names)}, expected one without, of a log that was read "
            f"without covariates: {who} is not made for contexts {see(PAGE)}"
        )


_FIELDS = ("ends", "states", "actions", "legal", "support", "successors", "multiplicity", "unseen")


@dataclass(frozen=True, eq=False)
class LoggedContexts:
    """The contexts of a log, row by row.

    Args:
        contexts: the distinct patterns.
        index: Int[N], the context of each transition.
        subject: Int[N], the subject of each; None: the log has no column of subjects.
    """

    contexts: Contexts
    index: Int[np.ndarray, " N"]
    subject: Int[np.ndarray, " N"] | None

    def part(self, rows: np.ndarray) -> "LoggedContexts":
        """Of some transitions: with all contexts of the log, which these may not have.

        Args:
            rows: Bool[N], which.
        """
        index, subject = self.index[rows], None if self.subject is None else self.subject[rows]
        # The columns stay, and their numbers of transitions are counted anew.
        old = self.contexts
        contexts = Contexts(old.columns, *_numbers(index, subject, len(old)), old.process, old.origin)
        return LoggedContexts(contexts, index, subject)

    def space(self, space: StateActionSpace) -> ContextSpace:
        """A space with these contexts.

        Args:
            space: of the MDP in each of them.

        Raises:
            ValueError: its rows depend on the step.
        """
        if space.horizon is not None:
            raise ValueError(
                f"horizon is {space.horizon} in a log with covariates, expected None: a step that rows depend on is a "
                "varying covariate (process='known')"
            )
        return ContextSpace.over(space, self.contexts)

    def moved(self, transitions: Transitions, n_states: int) -> Transitions:
        """The transitions of the space of all contexts side by side.

        Args:
            transitions: of the log.
            n_states: of one context.
        """
        # The state of context c: c S + s.
        first = n_states * self.index if len(self.contexts) > 1 else 0
        state, reached = np.asarray(transitions.state), np.asarray(transitions.next_state)
        return Transitions(
            (state + first).astype(np.int32),
            transitions.action,
            transitions.reward,
            (reached + first).astype(np.int32),
            transitions.terminated,
            transitions.truncated,
            transitions.step,
            reward_observed=transitions.reward_observed,
            next_observed=transitions.next_observed,
        )


class Roles(NamedTuple):
    """Which columns of a table say what of a subject.

    Args:
        subject: the column of subjects; None: there is none.
        covariates: columns that are fixed for a subject.
        varying: columns that may differ from row to row.
        group: the column of groups; None: there is none.
        process: what moves those that vary.
    """

    subject: str | None
    covariates: tuple[str, ...]
    varying: tuple[str, ...]
    group: str | None
    process: str | None

    @classmethod
    def of(
        cls,
        subject: str | None,
        covariates: Sequence[str] | None,
        varying: Sequence[str] | None,
        group: str | None,
        process: str | None,
    ) -> "Roles | None":
        """The roles as given to `read_log`; None: there are none.

        Raises:
            ValueError: a varying covariate without `process`, or one that is part of the state; a column twice.
            TypeError: a text where a list of columns is expected.
        """
        for name, columns in (("covariates", covariates), ("varying", varying)):
            if isinstance(columns, str):
                raise TypeError(f"{name} is {columns!r}, expected a list of columns: [{columns!r}]")
        # Fixed for a subject, or varying from row to row.
        fixed, moving = tuple(covariates or ()), tuple(varying or ())
        if moving and process is None:
            raise ValueError(
                f"varying is {list(moving)} and process is None, expected what moves them: 'known' (a path known "
                "beforehand, such as age), 'exogenous' (by themselves, whatever is done), or 'state' (by the actions) "
                + see(PAGE)
            )
        if process is not None:
            if process not in PROCESSES:
                raise ValueError(f"process is {process!r}, expected one of {', '.join(map(repr, PROCESSES))}")
            if not moving:
                raise ValueError(f"process is {process!r} and varying is None, expected the columns that vary")
        if process == "state":
            raise ValueError(
                f"process is 'state': what actions move is part of the state, expected state=[..., {moving[0]!r}] and "
                f"next_state=[...] in place of varying={list(moving)} {see(PAGE)}"
            )
        columns = [*fixed, *moving, *([] if group is None else [group])]
        twice = [name for i, name in enumerate(columns) if name in columns[:i]]
        if twice:
            raise ValueError(f"column {twice[0]!r} is given twice as a covariate, expected it once")
        for name in columns:
            if name in BY:
                raise ValueError(
                    f"a covariate is column {name!r}, the word of a formula for something else, expected another name"
                )
        return cls(subject, fixed, moving, group, process) if columns else None

    def columns(self) -> dict[str, str]:
        """Column -> kind."""
        kinds = dict.fromkeys(self.covariates, FIXED) | dict.fromkeys(self.varying, VARYING)
        return kinds if self.group is None else {**kinds, self.group: GROUP}

    def read(self, frame: "pd.DataFrame", kept: Int[np.ndarray, " N"], name: str) -> LoggedContexts:
        """The contexts of the rows that are transitions.

        Args:
            frame: all columns of the log.
            kept: the row of each transition.
            name: of the log, for messages.

        Raises:
            ValueError: a column that is missing, an empty cell, a fixed covariate that changes within a subject: the
                row and the column.
        """
        kinds = self.columns()
        # Every column that was named must be there.
        for column in (*kinds, *([] if self.subject is None else [self.subject])):
            if column not in frame.columns:
                present = [str(x) for x in frame.columns]
                raise ValueError(
                    f"{name} has no column {column!r}, expected one of {', '.join(map(repr, present))}"
                    + did_you_mean(column, present)
                )
        # Columns of the rows that became transitions.
        columns = [_column(column, kind, frame[column].iloc[kept], name, rows=kept) for column, kind in kinds.items()]
        subject = None if self.subject is None else _subjects(frame[self.subject].iloc[kept], name, self.subject, kept)
        if subject is not None:
            for column in columns:
                if column.kind == FIXED:
                    _refuse_change(column, subject, kept, name)
        # Distinct patterns of all columns together.
        index, first = _patterns([column.values for column in columns])
        columns = [column._replace(values=column.values[first]) for column in columns]
        contexts = Contexts(columns, *_numbers(index, subject, len(first)), self.process)
        return LoggedContexts(contexts, index.astype(np.int32), subject)


def _patterns(columns: Sequence[np.ndarray]) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " C"]]:
    """The number of the pattern of each row, in the order of the columns' values, and the first row of each pattern."""
    index, size = np.zeros(len(columns[0]), np.int64), 1
    for values in columns:
        if size == len(index):  # all rows differ already: what follows changes no order
            break
        levels, place = np.unique(values, return_inverse=True)
        # One number for each pair (pattern so far, value), small again at once.
        patterns, index = np.unique(index * len(levels) + place, return_inverse=True)
        size = len(patterns)
    first = np.full(size, len(index))
    np.minimum.at(first, index, np.arange(len(index)))
    return index, first


def _numbers(
    index: Int[np.ndarray, " N"], subject: Int[np.ndarray, " N"] | None, size: int
) -> tuple[Float[np.ndarray, " C"], Float[np.ndarray, " C"] | None]:
    """How many transitions, and how many subjects at their first row, are in each context."""
    transitions = np.bincount(index, minlength=size).astype(np.float64)
    if subject is None:
        return transitions, None
    # A subject is counted where it begins.
    _, first = np.unique(subject, return_index=True)
    return transitions, np.bincount(index[first], minlength=size).astype(np.float64)


def _subjects(cells: Any, name: str, column: str, rows: np.ndarray) -> Int[np.ndarray, " N"]:
    import pandas as pd

    row = first_index(np.asarray(pd.isna(cells)))
    if row is not None:
        raise ValueError(f"{name}, row {rows[row[0]] + 1}: subject {column!r} is empty, expected whose row it is")
    return pd.factorize(cells)[0].astype(np.int32)


def _refuse_change(column: Column, subject: Int[np.ndarray, " N"], rows: np.ndarray, name: str) -> None:
    """Refuse a covariate that is not fixed for a subject."""
    _, first, inverse = np.unique(subject, return_index=True, return_inverse=True)
    # Each row against the first of its subject.
    before = first[inverse.ravel()]
    changed = first_index(column.values != column.values[before])
    if changed is not None:
        row = changed[0]
        was, now = (plain(column.labels[i]) for i in (before[row], row))
        raise ValueError(
            f"{name}, row {rows[row] + 1}: covariate {column.name!r} is {now!r}, and {was!r} in row "
            f"{rows[before[row]] + 1} of the same subject, expected a fixed one; name it in varying=[{column.name!r}] "
            f"with process= {see(PAGE)}"
        )


def _column(
    name: str, kind: str, cells: Any, source: str, like: Column | None = None, rows: np.ndarray | None = None
) -> Column:
    """A column as numbers or labels; of a group, and where the log has labels, as labels.

    Args:
        like: the column of the log, whose labels these have to be; None: it is that of the log.
        rows: of the source; None: 0, 1, ...
    """
    import pandas as pd

    place = np.arange(len(cells)) if rows is None else rows
    row = first_index(np.asarray(pd.isna(cells)))
    if row is not None:
        raise ValueError(
            f"{source}, row {place[row[0]] + 1}: covariate {name!r} is empty, expected a value: fill it in "
            "(and say how), or leave the row out"
        )
    # Groups are labels, whatever their cells are.
    labelled = kind == GROUP if like is None else like.levels is not None
    categories = isinstance(cells.dtype, pd.CategoricalDtype)
    numeric = not categories and cells.dtype.kind in "iufb"
    if not numeric and not categories and not labelled:
        converted: Any = pd.to_numeric(cells, errors="coerce")
        # Not `notna`: in columns of pyarrow nan is a number.
        numeric = not np.isnan(converted.to_numpy(np.float64, na_value=np.nan)).any() or cells.dtype.kind == "b"
        cells = converted if numeric else cells
    if not labelled and numeric:
        values = as_real(f"{source}: column {name!r}", cells.to_numpy()).astype(np.float64)
        row = first_index(~np.isfinite(values))
        if row is not None:
            raise ValueError(
                f"{source}, row {place[row[0]] + 1}: covariate {name!r} is {values[row]}, expected a finite number"
            )
        return Column(name, values, None, kind)
    if like is not None and like.levels is None:
        raise TypeError(f"{source}: covariate {name!r} has {described(cells.iloc[0])}, expected numbers, as in the log")
    # The levels of the log: what it did not have is refused.
    labels = [plain(x) for x in cells]
    if like is not None:
        levels = like.levels
        assert levels is not None
        number = {level: i for i, level in enumerate(levels)}
        unknown = next((i for i, label in enumerate(labels) if label not in number), None)
        if unknown is not None:
            raise ValueError(
                f"{source}, row {place[unknown] + 1}: covariate {name!r} is {labels[unknown]!r}, expected a level of "
                f"the log: {label_list(levels)}{did_you_mean(labels[unknown], levels)}"
            )
    else:
        distinct = set(labels)
        listed = map(plain, cells.cat.categories) if categories else sorted(distinct, key=_order)
        levels = tuple(level for level in listed if level in distinct)
        number = {level: i for i, level in enumerate(levels)}
        if not categories:
            _warn_of_levels(source, name, labels, kind)
    return Column(name, np.array([number[label] for label in labels], np.int64), levels, kind)


def _warn_of_levels(source: str, name: str, labels: Sequence[Hashable], kind: str) -> None:
    """One warning where a column of labels may be meant as numbers, one where two labels may be spellings of one."""
    rows = Counter(labels)
    remedy = "correct the log, or make the column a category if these are labels (in pandas astype('category'))"
    words = [label for label in rows if isinstance(label, str) and not _is_number(label)]
    # A comma may be a decimal point, or stand between thousands: not known here.
    numbers = len(rows) - sum(not _is_number(label.replace(",", ".")) for label in words)
    if kind != GROUP and words and 2 * numbers >= len(rows):
        example = f"{words[0]!r} ({count_of(rows[words[0]], 'row')})"
        warn_user(
            f"{source}: covariate {name!r} is read as labels, because {example} is no number, while most of its "
            f"{len(rows)} labels are numbers: {remedy}"
        )
    examples = similar_in_words({label: n for label, n in rows.items() if isinstance(label, str)})
    if examples is not None:
        warn_user(
            f"{source}: covariate {name!r} has the labels {examples}, which may be two spellings of one and are now "
            f"two levels: {remedy}"
        )


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def plain(value: Any) -> Hashable:
    """A label without NumPy's type; a whole number as an integer.

    Args:
        value: of a cell.
    """
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def distinct(values: Iterable[Any]) -> list[Hashable]:
    """The different labels, in order.

    Args:
        values: of a column.
    """
    # Numbers without NumPy's types: 1 and 1.0 are one label.
    return sorted(set(map(plain, values)), key=_order)


def _order(label: Hashable) -> tuple[bool, float, str]:
    """Numbers first, by size; then words."""
    number = isinstance(label, (int, float))
    return not number, float(label) if isinstance(label, (int, float)) else 0.0, str(label)
