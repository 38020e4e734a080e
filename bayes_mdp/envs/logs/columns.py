"""Columns of a table, each cell checked: what `read_log` is made of. Every error names the row of the source."""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from bayes_mdp.envs.logs.tables import Table, is_missing, plain
from bayes_mdp.mdp.data.log_labels import natural_order, warn_of_similar
from bayes_mdp.utils.validation import as_names, check_names, first_index, label_list

if TYPE_CHECKING:
    import pandas as pd

FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
NUMBER = re.compile(rf"{WHOLE.pattern}(\.\d+)?([eE][+-]?\d+)?")
LARGEST_STEP = 2**31 - 1
LONGEST_NUMBER = 1000
VAGUE = 2**53
"""From here on floats are not all whole numbers."""
EXPECTED_REWARD = "a number (missing_reward='ignore' accepts rows without one; in the shell --missing-reward ignore)"


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
            f"{table.name}: {roles[0]} {table.columns[roles[0]]!r} has a label that is not hashable"
        ) from error
    empty = np.zeros(needed.shape, bool)
    empty[needed] = codes < 0
    for part, role, mask, missing in zip(parts, roles, needed, empty, strict=True):
        require_cells(table, missing, role, expected_label(role))
        if part.dtype.kind == "f":
            refuse_vague(f"{table.name}: {role} {table.columns[role]!r}", part[mask & (np.abs(part) >= VAGUE)].tolist())
    what = f"{table.name}: {roles[0]} {table.columns[roles[0]]!r}"
    labels = list(map(plain, uniques))
    refuse_vague(what, labels)
    found = as_numbers(what, labels, given)
    names = natural_order(set(found)) if given is None else given
    number = {label: i for i, label in enumerate(names)}
    index = np.zeros(needed.size, np.int32)
    index[needed.ravel()] = np.array([number.get(label, -1) for label in found], np.int32)[codes]
    split = list(index.reshape(needed.shape))
    for part, role in zip(split, roles, strict=True):
        shown = label_list(names)
        require_cells(table, part < 0, role, f"one of the labels given ({shown})")
    if given is None and roles[0] != "subject":
        rows = [np.bincount(part[mask], minlength=len(names)) for part, mask in zip(split, needed, strict=True)]
        warn_of_similar(what, roles[0], names, rows)
    return split, names


def label_cells(table: Table, role: str) -> np.ndarray:
    """The cells of a column of labels, as objects where numpy would make other things of them: integers of dates and
    durations, floats of integers with holes.
    """
    column = table.frame[table.columns[role]]
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
                "expected an integer (dtype 'Int64' has empty cells too) or text"
            )


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
        least, most = int(values.min()), int(values.max())
        if most - least < 4 * len(values) + 2**16:
            return (values - least).astype(np.intp), range(least, most + 1)
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


def reward_cells(table: Table) -> np.ndarray | None:
    """Float64[N], finite, minus the costs where these are given, nan where a cell is empty; None: there are neither."""
    role = reward_role(table)
    values = table.values(role)
    if values is None:
        return None
    numbers, missing = _numbers(values), is_missing(values)
    require_cells(table, ~missing & ~np.isfinite(numbers), role, "a finite number")
    # 0.0 - x, not -x: a cost of zero is a reward of zero, not of -0.0.
    return np.where(missing, np.nan, 0.0 - numbers if role == "cost" else numbers)


def read_rewards(
    table: Table, ignore_missing: bool, keep: Bool[np.ndarray, " N"], led: Bool[np.ndarray, " N"]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Float64[N] (zero where missing), and Bool[N] which were observed (None: all of the rows to `keep`).

    Args:
        ignore_missing: whether a reward may be missing.
        led: of which rows it is known what followed; of the others a reward may always be missing.
    """
    numbers = reward_cells(table)
    if numbers is None:
        return None, None
    missing = np.isnan(numbers)
    needed = missing & keep
    if not ignore_missing:
        require_cells(table, needed & led, reward_role(table), EXPECTED_REWARD)
    return np.where(missing, 0.0, numbers), ~missing if needed.any() else None


def read_steps(table: Table, role: str = "step") -> np.ndarray | None:
    """Int32[N] steps of the episode (or other whole numbers); None where the role is not given."""
    values = table.values(role)
    if values is None:
        return None
    numbers = _numbers(values)
    with np.errstate(invalid="ignore"):
        whole = (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers <= LARGEST_STEP)
        require_cells(table, ~whole, role, f"a whole number from 0 to {LARGEST_STEP}")
    return numbers.astype(np.int32)


def read_episodes(table: Table) -> np.ndarray | None:
    """Int[N], a number for the episode of each row; None where the role is not given."""
    import pandas as pd

    values = table.values("episode")
    if values is None:
        return None
    require_cells(table, is_missing(values), "episode", "the label of an episode")
    return pd.factorize(values)[0]


def require_cells(table: Table, bad: np.ndarray, role: str, expected: str) -> None:
    """Refuse the first cell of a role that is bad."""
    index = first_index(bad)
    if index is not None:
        table.fail(index[0], role, expected)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Float64[N], nan for what is no real number: dates and durations are none, whose number goes by their unit."""
    import pandas as pd

    if values.dtype.kind in "mMc":
        return np.full(len(values), np.nan)
    numbers = np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"))
    return np.full(len(values), np.nan) if numbers.dtype.kind in "mMc" else np.asarray(numbers, np.float64)


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
    if _is_written_twice(labels, whole):
        return labels
    if any(isinstance(x, str) for x in labels) and not all(isinstance(x, str) for x in labels):
        text = {number: label for number, label in zip(whole, labels, strict=True) if isinstance(label, str)}
        for number, label in zip(whole, labels, strict=True):
            if number in text and not isinstance(label, str):
                raise ValueError(
                    f"{what} has the labels {label!r} and {text[number]!r}, expected numbers or text, not both"
                )
    return whole


def _is_written_twice(labels: Sequence[Hashable], numbers: Sequence[Hashable]) -> bool:
    """Whether two texts write one number, other than zero (-0.0), and a whole one with and without ".0"."""
    written: dict[Hashable, str] = {}
    for label, number in zip(labels, numbers, strict=True):
        if isinstance(label, str):
            text = label.removesuffix(".0") if number else "0"
            if written.setdefault(number, text) != text:
                return True
    return False


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


def expected_label(role: str) -> str:
    """What a cell of labels must hold, in words."""
    return f"the label of { {'action': 'an action', 'subject': 'a subject'}.get(role, 'a state') }"
