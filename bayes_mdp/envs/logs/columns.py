"""Columns of a table, each cell checked: what `read_log` is made of. Every error names the row of the source.

Nothing here depends on other rows; what does is in `episodes`.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from bayes_mdp.envs.logs.tables import MISSING, MOST_TOLD, BadCells, Several, Table, is_missing, plain
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.by_label import ProductLabel, natural_order, warn_of_similar
from bayes_mdp.mdp.space import check_space
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import as_names, check_names, described, label_list

if TYPE_CHECKING:
    import pandas as pd

FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
NUMBER = re.compile(rf"{WHOLE.pattern}(\.\d+)?([eE][+-]?\d+)?")
NO_ACTION = "none"
"""The action of a log without actions."""
COMMA = re.compile(r"-?\d+,\d+")
_POINT = re.compile(r"-?\d+(\.\d+)+(,\d+)?")
_COMMA_HINT = (
    " (a decimal comma: decimal=',', in the shell --decimal ,; a separator of thousands: take it out of the file)"
)
_POINT_HINT = " (decimal=',' was given, so that a point is no part of a number: take it out, or write a comma)"
LARGEST_STEP = 2**31 - 1
LONGEST_NUMBER = 1000
VAGUE = 2**53
"""From here on floats are not all whole numbers."""
_DATES = " (dates: say how long a step is, every='1D'; in the shell --every)"
EXPECTED_REWARD = "a number (missing_reward='ignore' accepts rows without one; in the shell --missing-reward ignore)"


def labels_of_user(
    space: StateActionSpace | None, states: Sequence[Hashable] | None, actions: Sequence[Hashable] | None
) -> tuple[Sequence[Hashable] | None, Sequence[Hashable] | None]:
    """All states and all actions, from a space or as they are given; None: those of the log.

    Raises:
        ValueError: both are given; labels that are there twice.
    """
    for name, labels in (("states", states), ("actions", actions)):
        if labels is None:
            continue
        check_names(name, as_names(labels))
        if space is not None:
            raise ValueError(f"space and {name} are both given, expected one of them {see('how-to/large-logs')}")
    if space is None:
        return states, actions
    check_space(space)
    return space.logged_states, space.action_names


def read_labels(
    table: Table,
    roles: Sequence[str],
    given: Sequence[Hashable] | None,
    ignored: Mapping[str, Bool[np.ndarray, " N"]] | None = None,
) -> tuple[list[np.ndarray], tuple[Hashable, ...]]:
    """Number the labels of several columns together: Int32[N] each, and the labels in order.

    Labels of states and actions that are found and may be two spellings of one are named in a warning.

    Args:
        roles: the columns that share labels.
        given: all labels in order, or None: those of the columns in natural order.
        ignored: rows in which a role is not looked at (its index is then 0).
    """
    import pandas as pd

    given = None if given is None else _distinct(roles[0], given)
    parts = [label_cells(table, role) for role in roles]
    skipped = ignored or {}
    needed = np.stack([~skipped.get(role, np.zeros(len(parts[0]), bool)) for role in roles])
    joined = np.concatenate(_of_one_kind(parts))
    try:
        codes, uniques = pd.factorize(joined if needed.all() else joined[needed.ravel()])  # -1: empty
    except TypeError as error:
        raise TypeError(
            f"{table.name}: {roles[0]} {table.columns[roles[0]]!r} has a label that is not hashable "
        ) from error
    empty = np.zeros(needed.shape, bool)
    empty[needed] = codes < 0
    bad = [(missing, role, expected_label(role)) for role, missing in zip(roles, empty, strict=True)]
    if roles[0] == "action" and "next_state" not in table.columns:
        bad = expect_actions(empty[0], read_flags(table, "terminated"))
    if given is None or not len(uniques):
        require_all(table, bad)
    for part, role, mask in zip(parts, roles, needed, strict=True):
        if part.dtype.kind == "f":
            refuse_vague(f"{table.name}: {role} {table.columns[role]!r}", part[mask & (np.abs(part) >= VAGUE)].tolist())
    column_name = f"{table.name}: {roles[0]} {table.columns[roles[0]]!r}"
    labels = list(map(plain, uniques))
    refuse_vague(column_name, labels)
    converted = as_numbers(column_name, labels, given)
    if given is None:
        order = category_order(table, roles)
        names = natural_order(set(converted))
        if order is not None:
            names = tuple(converted[labels.index(label)] for label in order if label in labels)
    else:
        names = given
    number = {label: i for i, label in enumerate(names)}
    index = np.zeros(needed.size, np.int32)
    index[needed.ravel()] = np.array([number.get(label, -1) for label in converted], np.int32)[codes]
    split = list(index.reshape(needed.shape))
    if given is not None:
        listed = f"one of the labels given ({label_list(names)})"
        unlisted = [((part < 0) & ~empty[i], roles[i], listed) for i, part in enumerate(split)]
        require_all(table, [*bad, *unlisted])
    elif roles[0] != "subject":
        rows = [np.bincount(part[mask], minlength=len(names)) for part, mask in zip(split, needed, strict=True)]
        warn_of_similar(column_name, roles[0], names, rows)
    return split, names


def label_cells(table: Table, role: str) -> np.ndarray:
    """The cells of a column of labels, as objects where numpy would make other things of them: integers of dates and
    durations, floats of integers with holes and of the bounds of classes with holes.
    """
    import pandas as pd

    column = table.frame[table.columns[role]]
    if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(column.cat.categories, pd.IntervalIndex):
        return np.array([*column.cat.categories, None], object)[column.cat.codes]  # -1: a hole
    holes = column.dtype.kind in "iu" and column.hasnans
    return column.astype(object).to_numpy() if holes or column.dtype.kind in "mM" else column.to_numpy()


def _of_one_kind(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Columns to be joined, as objects where numpy would make floats of large integers."""
    whole = [part for part in parts if part.dtype.kind in "iu" and part.size]
    large = any(max(int(part.max()), -int(part.min())) >= VAGUE for part in whole)
    return [part.astype(object) for part in parts] if large and len({part.dtype for part in parts}) > 1 else parts


def refuse_vague(what: str, labels: Sequence[Hashable]) -> None:
    """Refuse a label that is a float so large that it stands for several whole numbers.

    Args:
        what: the source, the role and its column, for the message.
        labels: as they were found.
    """
    for label in labels:
        if isinstance(label, float) and VAGUE <= abs(label) < math.inf:
            raise ValueError(
                f"{what} has the label {label!r}, a float so large that several whole numbers are rounded to it, "
                f"expected an integer (dtype 'Int64' has empty cells too) or text"
            )


def category_order(table: Table, roles: Sequence[str]) -> list[Hashable] | None:
    """The labels in the order of the categories of the columns, where these are ordered alike; else None."""
    import pandas as pd

    kinds = [table.frame[table.columns[role]].dtype for role in roles if role in table.columns]
    first = kinds[0]
    if not isinstance(first, pd.CategoricalDtype) or not first.ordered:
        return None
    orders = [list(map(plain, kind.categories)) for kind in kinds if isinstance(kind, pd.CategoricalDtype)]
    alike = len(orders) == len(kinds) and all(order == orders[0] for order in orders)
    return orders[0] if alike else None


def with_joined_labels(table: Table, given: Sequence[Hashable] | None) -> Table:
    """The table with one column of `ProductLabel` for each state of several columns; empty where one of them is.

    Each part of a label is a number where a single column of labels would hold numbers.

    Args:
        given: all states, as tuples, or None.
    """
    import pandas as pd

    several = {role: column for role, column in table.columns.items() if isinstance(column, Several)}
    if not several:
        return table
    if len({len(column) for column in several.values()}) > 1 or ("next_state" in table.columns and len(several) < 2):
        state, reached = (
            list(x) if isinstance(x, Several) else x for x in (table.columns[role] for role in ("state", "next_state"))
        )
        raise ValueError(f"state is {state!r} and next_state {reached!r}, expected as many columns of each")
    codes = {role: np.zeros((0, len(table.frame)), np.intp) for role in several}
    parts = []
    for i, columns in enumerate(zip(*several.values(), strict=True)):
        cells = [label_cells(table._replace(columns={"state": name}), "state") for name in columns]
        number, uniques = pd.factorize(np.concatenate(_of_one_kind(cells)))
        known = (
            None if given is None else [x[i] for x in given if isinstance(x, tuple) and len(x) == len(several["state"])]
        )
        column_name = f"{table.name}: column {columns[0]!r}"
        parts.append(as_numbers(column_name, list(map(plain, uniques)), known))
        for role, column in zip(several, number.reshape(len(columns), -1), strict=True):
            codes[role] = np.concatenate([codes[role], column[None]])
    changed = {}
    names = several["state"]
    for role, column in several.items():
        distinct, inverse = np.unique(codes[role], axis=1, return_inverse=True)
        labels = np.empty(distinct.shape[1], object)
        for j, of_parts in enumerate(distinct.T.tolist()):
            known = (part[k] for part, k in zip(parts, of_parts, strict=True))
            labels[j] = ProductLabel(known, names) if min(of_parts) >= 0 else None
        changed[column] = labels[inverse.ravel()]
    return table.with_columns(changed)


def is_empty(table: Table, role: str) -> np.ndarray:
    """Bool[N], the cells of a role that hold nothing."""
    return is_missing(table.frame[table.columns[role]].to_numpy())


def factorised(table: Table, role: str) -> "tuple[np.ndarray, pd.Index | range]":
    """Int[N] and the values: each cell as an index into distinct values (of which some may not occur); -1: empty.

    Raises:
        TypeError: a cell that cannot be hashed.
    """
    import pandas as pd

    column = table.frame[table.columns[role]]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu" and len(column):
        values = column.to_numpy()
        least, greatest = int(values.min()), int(values.max())
        if greatest - least < 4 * len(values) + 2**16:
            return (values - least).astype(np.intp), range(least, greatest + 1)
    try:
        codes, uniques = pd.factorize(column)
    except TypeError as error:
        raise TypeError(f"{table.name}: {role} {table.columns[role]!r} has a label that is not hashable") from error
    return codes, pd.Index(uniques)


def read_flags(table: Table, role: str) -> np.ndarray | None:
    """Bool[N] from true / false or 1 / 0 in any case; None where the role is not given."""
    values = table.values(role)
    if values is None or values.dtype == bool:
        return values
    codes, uniques = factorised(table, role)
    meaning = np.array([*(FLAGS.get(str(u).strip().lower(), -1) for u in uniques), -1], int)[codes]
    require_cells(table, meaning < 0, role, "true or false, or 1 or 0")
    return meaning.astype(bool)


def reward_role(table: Table) -> str:
    """The role of the column that rewards come from: "cost" where that is given, else "reward"."""
    return "cost" if "cost" in table.columns else "reward"


_OUTCOME = "outcomes["


def with_outcomes(roles: dict[str, Any], outcomes: Sequence[str] | None) -> dict[str, Any]:
    """The roles of columns, and those of outcomes beside the reward: "outcomes[0]", "outcomes[1]", ...

    Args:
        roles: role -> name of a column, or None.
        outcomes: names of columns, or None.

    Raises:
        TypeError: no list of names. ValueError: a column twice, or that of the reward.
    """
    if outcomes is None:
        return roles
    if isinstance(outcomes, str) or not isinstance(outcomes, Sequence) or not all(isinstance(x, str) for x in outcomes):
        raise TypeError(f"outcomes is {described(outcomes)}, expected a list of names of columns")
    for i, name in enumerate(outcomes):
        paid = next((role for role in ("reward", "cost") if roles[role] == name), None)
        if name in outcomes[:i] or paid is not None:
            fault = f"is that of {paid} too" if paid is not None else "is there twice"
            raise ValueError(f"outcomes[{i}] is column {name!r}, which {fault}, expected each column once")
    return roles | {f"{_OUTCOME}{i}]": name for i, name in enumerate(outcomes)}


def outcome_roles(columns: Mapping[str, Any]) -> dict[str, str]:
    """Name of an outcome -> its role, among the roles of a log.

    Args:
        columns: role -> name of the column.
    """
    return {str(name): role for role, name in columns.items() if role.startswith(_OUTCOME)}


def reward_cells(table: Table, role: str | None = None) -> np.ndarray | None:
    """Float64[N], finite, minus the costs where these are given, nan where a cell is empty; None: there are neither.

    Args:
        table: the source.
        role: of an outcome, in place of the reward.
    """
    numbers, bad = _rewards(table, role)
    require_all(table, bad)
    return numbers


def _rewards(table: Table, role: str | None = None) -> "tuple[np.ndarray | None, list[Check]]":
    """As `reward_cells`, with the check of its cells."""
    role = reward_role(table) if role is None else role
    values = table.values(role)
    if values is None:
        return None, []
    numbers, missing = _numbers(table, values), is_missing(values)
    if values.dtype == object:  # text, where a cell is no number: the same words as in a file that was parsed
        missing |= np.array([isinstance(x, str) and x.strip() in MISSING for x in values], bool)
    wrong = ~missing & ~np.isfinite(numbers)
    shown = [x for x in values[wrong][:MOST_TOLD] if isinstance(x, str)]
    if table.dialect.decimal == ",":
        hint = _POINT_HINT if any("." in x for x in shown) else ""
    else:
        hint = _COMMA_HINT if any(COMMA.fullmatch(x.strip()) for x in shown) else ""
    bad = [(wrong, role, f"a finite number{hint}")]
    # 0.0 - x, not -x: a cost of zero is a reward of zero, not of -0.0.
    return np.where(missing, np.nan, 0.0 - numbers if role == "cost" else numbers), bad


def read_rewards(
    table: Table,
    ignore_missing: bool,
    keep: Bool[np.ndarray, " N"],
    led: Bool[np.ndarray, " N"],
    role: str | None = None,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Float64[N] (zero where missing), and Bool[N] which were observed (None: all of the rows to `keep`).

    Args:
        ignore_missing: whether a reward may be missing.
        led: of which rows it is known what followed; of the others a reward may always be missing.
        role: of an outcome, in place of the reward.
    """
    role = reward_role(table) if role is None else role
    numbers, bad = _rewards(table, role)
    if numbers is None:
        return None, None
    missing = np.isnan(numbers) & ~bad[0][0]
    needed = missing & keep
    if not ignore_missing:
        bad.append((needed & led, role, EXPECTED_REWARD))
    require_all(table, bad)
    return np.where(missing, 0.0, numbers), ~missing if needed.any() else None


def read_steps(table: Table, role: str = "step") -> np.ndarray | None:
    """Int32[N] steps of the episode (or other whole numbers); None where the role is not given."""
    values = table.values(role)
    if values is None:
        return None
    numbers = _numbers(table, values)
    with np.errstate(invalid="ignore"):
        whole = (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers <= LARGEST_STEP)
        require_cells(table, ~whole, role, f"a whole number from 0 to {LARGEST_STEP}{_DATES if role == 'step' else ''}")
    return numbers.astype(np.int32)


Columns = dict[str, Shaped[np.ndarray, " N"]]


class FollowedRows(NamedTuple):
    """What each row leads to.

    Args:
        next_state: where that was observed; else any.
        next_observed: whether it was, or the episode ended.
        truncated: whether the episode was cut after the row; None: not told.
        keep: whether the row is part of the log: it has a state, and an action or, where it is not known what followed,
            none that is missing.
    """

    next_state: Int[np.ndarray, " N"]
    next_observed: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"] | None
    keep: Bool[np.ndarray, " N"]


def next_states_given(rows: Columns) -> FollowedRows:
    """What rows that stand alone lead to, each by its own next state.

    Args:
        rows: "state" and "next_state", negative where there is none, "terminated", perhaps "truncated".
    """
    reached = rows["next_state"]
    return FollowedRows(reached, (reached >= 0) | rows["terminated"], rows.get("truncated"), rows["state"] >= 0)


def read_episodes(table: Table) -> np.ndarray | None:
    """Int[N], a number for the episode of each row; None where the role is not given."""
    import pandas as pd

    values = table.values("episode")
    if values is None:
        return None
    require_cells(table, is_missing(values), "episode", "the label of an episode")
    return pd.factorize(values)[0]


Check = tuple[np.ndarray, str, str]
"""Which cells of a role are bad (Bool[N]), the role, and what was expected."""


def require_cells(table: Table, bad: np.ndarray, role: str, expected: str) -> None:
    """Refuse the cells of a role that are bad; the first of them are named."""
    require_all(table, [(bad, role, expected)])


def require_all(table: Table, checks: Sequence[Check]) -> None:
    """Refuse the cells that are bad by one of the checks; the first of all are named."""
    number = sum(int(np.count_nonzero(bad)) for bad, *_ in checks)
    if number:
        first = [(int(row), *why) for bad, *why in checks for row in np.flatnonzero(bad)[:MOST_TOLD]]
        cells = [(table.first + row, role, table.shown(row, role), expected) for row, role, expected in first]
        raise BadCells(table, cells, number)


def _numbers(table: Table, values: np.ndarray) -> np.ndarray:
    """Float64[N], nan for what is no real number: dates and durations are none, whose number goes by their unit."""
    import pandas as pd

    if table.dialect.decimal == "," and values.dtype == object:
        # One cell that is no number leaves the column as text, with the commas of the others. A point would stand
        # between thousands: 1.200 is not 1.2 here.
        values = np.array([_with_point(x) if isinstance(x, str) else x for x in values], object)
    if values.dtype.kind in "mMc":
        return np.full(len(values), np.nan)
    numbers = np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"))
    return np.full(len(values), np.nan) if numbers.dtype.kind in "mMc" else np.asarray(numbers, np.float64)


def _with_point(text: str) -> str:
    """A number with a decimal comma as Python reads it; no number where it has a point."""
    return "" if "." in text else text.replace(",", ".") if COMMA.fullmatch(text) else text


def refuse_points(table: Table, columns: Iterable[str]) -> None:
    """Refuse numbers with a point in columns of covariates, where decimals have a comma: 1.200 may be 1200.

    Raises:
        ValueError: the first such cell.
    """
    if table.dialect.decimal != ",":
        return
    for column in columns:
        for row, cell in enumerate(table.frame[column].to_numpy() if column in table.frame else ()):
            if isinstance(cell, str) and _POINT.fullmatch(cell.strip()):
                raise ValueError(
                    f"{table.name}, row {table.first + row + 1}: covariate {column!r} is {cell!r}, expected a number "
                    f"without a point{_POINT_HINT}"
                )


def as_numbers(what: str, labels: list[Hashable], given: Sequence[Hashable] | None) -> list[Hashable]:
    """The labels as numbers, where all of them are, whole ones as integers.

    All stay text where one is text such as "007", or where two texts write one number ("1.1", "1.10", which may be
    codes), other than zero, and a whole one with and without ".0".
    """
    if given is not None and all(isinstance(label, str) for label in given):
        return labels
    known = set() if given is None else set(given)
    numbers = [number_of(x) if isinstance(x, str) and x not in known else x for x in labels]
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in numbers):
        return labels
    whole = [int(x) if isinstance(x, float) and x.is_integer() else x for x in numbers]
    # Two texts write one number where there are more different ways of writing than numbers; -0.0 is zero.
    pairs = [(n, x.removesuffix(".0") if n else "0") for x, n in zip(labels, whole, strict=True) if isinstance(x, str)]
    if len(set(pairs)) > len({number for number, _ in pairs}):
        return labels
    if any(isinstance(x, str) for x in labels) and not all(isinstance(x, str) for x in labels):
        text = {number: label for number, label in zip(whole, labels, strict=True) if isinstance(label, str)}
        for number, label in zip(whole, labels, strict=True):
            if number in text and not isinstance(label, str):
                raise ValueError(
                    f"{what} has the labels {label!r} and {text[number]!r}, expected numbers or text, not both "
                )
    return whole


def number_of(text: str) -> int | float | str:
    """The number that `text` writes (2.0 is whole), or `text`, also where a float would round a whole number."""
    if len(text) > LONGEST_NUMBER:
        return text
    if WHOLE.fullmatch(text):
        return int(text)
    if not NUMBER.fullmatch(text):
        return text
    number = float(text)
    if abs(number) >= VAGUE:
        return text
    return int(number) if number.is_integer() else number


def _distinct(role: str, given: Sequence[Hashable]) -> tuple[Hashable, ...]:
    names = as_names(given)
    check_names(f"{role}s", names)
    return names


def expect_actions(empty: np.ndarray, ended: np.ndarray | None) -> list[Check]:
    """The checks of actions in a log whose next states are those of the next rows.

    Args:
        empty: Bool[N], rows without an action that need one.
        ended: Bool[N], rows that terminate; None: not told.
    """
    if ended is None:
        return [(empty, "action", expected_label("action"))]
    return [(empty & ~ended, "action", expected_label("action")), (empty & ended, "action", _ACTION_OF_END)]


_ACTION_OF_END = (
    "the label of an action, or terminated false (true belongs in the row of the last action; the row of the state "
    "that it led to is then left out)"
)


def expected_label(role: str) -> str:
    """What a cell of labels must hold, in words."""
    return f"the label of { {'action': 'an action', 'subject': 'a subject'}.get(role, 'a state') }"
