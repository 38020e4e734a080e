"""Columns of a table, each cell checked: what `read_log` is made of. Every error names the row of the source."""

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.envs.logs.tables import Table, is_missing, plain
from bayes_mdp.mdp.data.similar_labels import warn_of_similar
from bayes_mdp.utils.label_list import label_list
from bayes_mdp.utils.natural_order import natural_order
from bayes_mdp.utils.validation import as_names, check_names, first_index

if TYPE_CHECKING:
    import pandas as pd

FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
NUMBER = re.compile(rf"{WHOLE.pattern}(\.\d+)?([eE][+-]?\d+)?")
LARGEST_STEP = 2**31 - 1
EXPECTED_REWARD = "a number (missing_reward='ignore' accepts rows without one; in the shell --missing-reward ignore)"


def read_labels(
    table: Table, roles: Sequence[str], given: Sequence[Hashable] | None, ignored: np.ndarray | None = None
) -> tuple[list[np.ndarray], tuple[Hashable, ...]]:
    """Number the labels of several columns together: Int32[N] each, and the labels in order.

    Labels of states and actions that are found and may be two spellings of one are named in a warning.

    Args:
        roles: the columns that share labels.
        given: all labels in order, or None: those of the columns in natural order.
        ignored: Bool[N], rows in which the last of `roles` is not looked at (its index is then 0).
    """
    import pandas as pd

    given = None if given is None else _distinct(roles[0], given)
    parts = [table.frame[table.columns[role]].to_numpy() for role in roles]
    needed = np.ones((len(parts), len(parts[0])), bool)
    if ignored is not None:
        needed[-1] = ~ignored
    for part, role, mask in zip(parts, roles, needed, strict=True):
        require_cells(table, mask & is_missing(part), role, expected_label(role))
    try:
        codes, uniques = pd.factorize(np.concatenate(parts)[needed.ravel()])
    except TypeError as error:
        raise TypeError(
            f"{table.name}: {roles[0]} {table.columns[roles[0]]!r} has a label that is not hashable"
        ) from error
    what = f"{table.name}: {roles[0]} {table.columns[roles[0]]!r}"
    found = as_numbers(what, list(map(plain, uniques)), given)
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


def read_rewards(table: Table, ignore_missing: bool, keep: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Float64[N] (zero where missing), and Bool[N] which were observed (None: all of the rows to `keep`)."""
    numbers = reward_cells(table)
    if numbers is None:
        return None, None
    missing = np.isnan(numbers)
    needed = missing & keep
    if not ignore_missing:
        require_cells(table, needed, reward_role(table), EXPECTED_REWARD)
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
    import pandas as pd

    return np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"), np.float64)


def as_numbers(what: str, labels: list[Hashable], given: Sequence[Hashable] | None) -> list[Hashable]:
    """The labels as numbers, where all of them are, whole ones as integers; text such as "007" stays text."""
    if given is not None and all(isinstance(label, str) for label in given):
        return labels
    known = set() if given is None else set(given)
    numbers = [number_of(x) if isinstance(x, str) and x not in known else x for x in labels]
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in numbers):
        return labels
    whole = [int(x) if isinstance(x, float) and x.is_integer() else x for x in numbers]
    if any(isinstance(x, str) for x in labels) and not all(isinstance(x, str) for x in labels):
        text = {number: label for number, label in zip(whole, labels, strict=True) if isinstance(label, str)}
        for number, label in zip(whole, labels, strict=True):
            if number in text and not isinstance(label, str):
                raise ValueError(
                    f"{what} has the labels {label!r} and {text[number]!r}, expected numbers or text, not both"
                )
    return whole


def number_of(text: str) -> int | float | str:
    """The number that `text` writes (a whole one exactly, of any length; 2.0 is whole), or `text`."""
    if WHOLE.fullmatch(text):
        return int(text)
    number = float(text) if NUMBER.fullmatch(text) else text
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _distinct(role: str, given: Sequence[Hashable]) -> tuple[Hashable, ...]:
    names = as_names(given)
    check_names(f"{role}s", names)
    return names


def expected_label(role: str) -> str:
    """What a cell of labels must hold, in words."""
    return f"the label of { {'action': 'an action', 'subject': 'a subject'}.get(role, 'a state') }"
