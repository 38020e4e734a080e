"""Columns of a table, each cell checked: what `read_log` is made of. Every error names the row of the source."""

import csv
import os
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from tarfile import TarError
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from zipfile import BadZipFile
from zlib import error as zlib_error

import numpy as np

from bayes_mdp.mdp.validation import as_names, check_names, described, first_index

if TYPE_CHECKING:
    import pandas as pd

FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
MISSING_NUMBER = ("", "NA", "N/A", "NaN", "nan", "null", "None")
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
NUMBER = re.compile(rf"{WHOLE.pattern}(\.\d+)?([eE][+-]?\d+)?")
SHOWN_LABELS = 8
LARGEST_STEP = 2**31 - 1


class Table(NamedTuple):
    """A source that was opened.

    Args:
        frame: the columns that are used, by name.
        name: the source, for messages.
        columns: role ("state", "reward", ...) -> name of the column, for the roles that are given.
        text: the file, where it is one whose rows are lines of text; else None.
    """

    frame: "pd.DataFrame"
    name: str
    columns: dict[str, str]
    text: Path | None

    def values(self, role: str) -> np.ndarray | None:
        """The column of a role as an array, None where the role is not given."""
        return self.frame[self.columns[role]].to_numpy() if role in self.columns else None

    def fail(self, row: int, role: str, expected: str) -> NoReturn:
        """Refuse the cell of a role in a row (0-based here, 1-based in the message)."""
        number = None if self.text is None else _line(self.text, row)
        line = "" if number is None else f" (line {number})"
        there = self.frame[self.columns[role]].iloc[row]
        shown = "empty" if _is_missing(np.array([there], object))[0] else repr(_plain(there))
        raise ValueError(
            f"{self.name}, row {row + 1}{line}: {role} {self.columns[role]!r} is {shown}, expected {expected}"
        )


def open_table(
    source: "str | os.PathLike[str] | pd.DataFrame",
    roles: dict[str, str | None],
    required: Sequence[str] = ("state", "action"),
) -> Table:
    """Open a path or a DataFrame and keep the columns of `roles` (role -> column name or None), some `required`.

    Raises:
        FileNotFoundError, ImportError, TypeError, ValueError: see `read_log`.
    """
    import pandas as pd

    columns = {role: column for role, column in roles.items() if column is not None}
    for role in required:
        if role not in columns:
            raise TypeError(f"{role} is None, expected the name of a column")
    for role, column in columns.items():
        if not isinstance(column, Hashable):
            raise TypeError(f"{role} is {described(column)}, expected the name of a column")
    if isinstance(source, pd.DataFrame):
        _require_columns("the DataFrame", columns, list(source.columns))
        table = Table(source, "the DataFrame", columns, None)
    elif isinstance(source, (str, os.PathLike)):
        table = _open_file(Path(source), columns)
    else:
        raise TypeError(f"source is of type {type(source).__name__}, expected a path or a pandas DataFrame")
    if len(table.frame) == 0:
        raise ValueError(f"{table.name} has no rows, expected at least one transition")
    return table


def _open_file(path: Path, columns: dict[str, str]) -> Table:
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"source is {str(path)!r}, expected a file that exists")
    try:
        if path.suffix in (".parquet", ".pq"):
            return Table(_read_parquet(path, columns), path.name, columns, None)
        return Table(_read_csv(path, columns), path.name, columns, path)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path.name} is empty, expected a header line and at least one transition") from None


def _read_csv(path: Path, columns: dict[str, str]) -> "pd.DataFrame":
    """Labels and flags as text; rewards and steps as numbers, or as text where some cell is no number."""
    import pandas as pd

    _require_columns(path.name, columns, _header(path))
    numbers = {columns[role] for role in ("reward", "step", "trial") if role in columns}
    used = set(columns.values())
    with _parsing(path):
        frame = pd.read_csv(  # all columns: with `usecols` pandas drops surplus cells in silence
            path,
            sep=_separator(path),
            dtype=dict.fromkeys(used - numbers, object),
            keep_default_na=False,
            na_values={column: list(MISSING_NUMBER) if column in numbers else [""] for column in used},
            low_memory=False,
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(f"{path.name} has rows with more cells than the header line has names, expected as many")
    return frame


def _header(path: Path) -> list[Hashable]:
    """The names of the header line unchanged (pandas would number repeated ones); the rest as pandas does."""
    import pandas as pd

    with _parsing(path):
        named = list(pd.read_csv(path, sep=_separator(path), nrows=0).columns)
        lines = pd.read_csv(path, sep=_separator(path), nrows=1, header=None, dtype=str, keep_default_na=False)
    given = [] if lines.empty else lines.iloc[0].tolist()
    return [text or name for text, name in zip(given, named, strict=True)] if len(given) == len(named) else named


@contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """What pandas says of a text that it cannot read, in a sentence that names the file.

    Raises:
        pandas.errors.EmptyDataError: there is nothing. ValueError: it is no table, or compressed otherwise than its
            ending says.
    """
    import pandas as pd

    try:
        yield
    except pd.errors.EmptyDataError:
        raise
    except (ValueError, EOFError, OSError, BadZipFile, TarError, LZMAError, zlib_error) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of the content
            raise
        why = " ".join(str(error).split())
        raise ValueError(f"{path.name} cannot be read as a table: {why}") from error


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


def _line(path: Path, row: int) -> int | None:
    """Line on which a row (0-based) begins: blank lines are no rows, quoted cells span lines. None: unknown."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, delimiter=_separator(path))
            begin, header_and_rows = 1, 0
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    if header_and_rows == row + 1:
                        return begin
                    header_and_rows += 1
                begin = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError):  # compressed, say
        pass
    return None


def _read_parquet(path: Path, columns: dict[str, str]) -> "pd.DataFrame":
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path.name} is a Parquet file, expected pyarrow to be installed (pip install pyarrow)"
        ) from None
    try:
        _require_columns(path.name, columns, pyarrow.parquet.read_schema(path).names)
        return pyarrow.parquet.read_table(path, columns=sorted(set(columns.values()))).to_pandas()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path.name} cannot be read as a Parquet file: {error}") from error


def _require_columns(name: str, columns: dict[str, str], present: list[Hashable]) -> None:
    for role, column in columns.items():
        if present.count(column) > 1:
            raise ValueError(
                f"{role} is column {column!r}, which {name} has {present.count(column)} times, expected one"
            )
        if column not in present:
            raise ValueError(
                f"{role} is column {column!r}, which {name} has not, expected one of {', '.join(map(repr, present))}"
            )


def read_labels(
    table: Table, roles: Sequence[str], given: Sequence[Hashable] | None, ignored: np.ndarray | None = None
) -> tuple[list[np.ndarray], tuple[Hashable, ...]]:
    """Number the labels of several columns together: Int32[N] each, and the labels in order.

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
        _require(table, mask & _is_missing(part), role, f"the label of {_article(role)}")
    try:
        codes, uniques = pd.factorize(np.concatenate(parts)[needed.ravel()])
    except TypeError as error:
        raise TypeError(
            f"{table.name}: {roles[0]} {table.columns[roles[0]]!r} has a label that is not hashable"
        ) from error
    found = _as_numbers(f"{table.name}: {roles[0]} {table.columns[roles[0]]!r}", list(map(_plain, uniques)), given)
    names = tuple(sorted(set(found), key=_natural)) if given is None else given
    number = {label: i for i, label in enumerate(names)}
    index = np.zeros(needed.size, np.int32)
    index[needed.ravel()] = np.array([number.get(label, -1) for label in found], np.int32)[codes]
    split = list(index.reshape(needed.shape))
    for part, role in zip(split, roles, strict=True):
        shown = ", ".join(map(repr, names[:SHOWN_LABELS])) + (", ..." if len(names) > SHOWN_LABELS else "")
        _require(table, part < 0, role, f"one of the {len(names)} labels given ({shown})")
    return split, names


def is_empty(table: Table, role: str) -> np.ndarray:
    """Bool[N], the cells of a role that hold nothing."""
    return _is_missing(table.frame[table.columns[role]].to_numpy())


def read_flags(table: Table, role: str) -> np.ndarray | None:
    """Bool[N] from true / false or 1 / 0 in any case; None where the role is not given."""
    import pandas as pd

    values = table.values(role)
    if values is None or values.dtype == bool:
        return values
    codes, uniques = pd.factorize(values)
    meaning = np.array([*(FLAGS.get(str(u).strip().lower(), -1) for u in uniques), -1], int)[codes]
    _require(table, meaning < 0, role, "true or false, or 1 or 0")
    return meaning.astype(bool)


def read_rewards(table: Table, ignore_missing: bool, keep: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Float64[N] (zero where missing), and Bool[N] which were observed (None: all of the rows to `keep`)."""
    values = table.values("reward")
    if values is None:
        return None, None
    numbers, missing = _numbers(values), _is_missing(values)
    _require(table, ~missing & ~np.isfinite(numbers), "reward", "a finite number")
    needed = missing & keep
    if not ignore_missing:
        _require(table, needed, "reward", "a number (missing_reward='ignore' accepts rows without one)")
    return np.where(missing, 0.0, numbers), ~missing if needed.any() else None


def read_steps(table: Table, role: str = "step") -> np.ndarray | None:
    """Int32[N] steps of the episode (or other whole numbers); None where the role is not given."""
    values = table.values(role)
    if values is None:
        return None
    numbers = _numbers(values)
    with np.errstate(invalid="ignore"):
        whole = (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers <= LARGEST_STEP)
        _require(table, ~whole, role, f"a whole number from 0 to {LARGEST_STEP}")
    return numbers.astype(np.int32)


def read_episodes(table: Table) -> np.ndarray | None:
    """Int[N], a number for the episode of each row; None where the role is not given."""
    import pandas as pd

    values = table.values("episode")
    if values is None:
        return None
    _require(table, _is_missing(values), "episode", "the label of an episode")
    return pd.factorize(values)[0]


def _require(table: Table, bad: np.ndarray, role: str, expected: str) -> None:
    index = first_index(bad)
    if index is not None:
        table.fail(index[0], role, expected)


def _is_missing(values: np.ndarray) -> np.ndarray:
    import pandas as pd

    return np.asarray(pd.isna(values), bool)


def _numbers(values: np.ndarray) -> np.ndarray:
    import pandas as pd

    return np.asarray(pd.to_numeric(pd.Series(values), errors="coerce"), np.float64)


def _plain(label: Hashable) -> Hashable:
    """A numpy scalar as a Python value."""
    return label.item() if isinstance(label, np.generic) else label


def _as_numbers(what: str, labels: list[Hashable], given: Sequence[Hashable] | None) -> list[Hashable]:
    """The labels as numbers, where all of them are, whole ones as integers; text such as "007" stays text."""
    if given is not None and all(isinstance(label, str) for label in given):
        return labels
    known = set() if given is None else set(given)
    numbers = [_number(x) if isinstance(x, str) and x not in known else x for x in labels]
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


def _number(text: str) -> int | float | str:
    """The number that `text` writes (a whole one exactly, of any length), or `text`."""
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def _distinct(role: str, given: Sequence[Hashable]) -> tuple[Hashable, ...]:
    names = as_names(given)
    check_names(f"{role}s", names)
    return names


def _natural(label: Hashable) -> tuple[Any, ...]:
    """Sorting key: numbers by size, text with its digits as numbers, tuples entry by entry, the rest by its text."""
    if isinstance(label, (bool, int, float)):
        return (0, label)
    if isinstance(label, tuple):
        return (2, *(_natural(entry) for entry in label))
    text = label if isinstance(label, str) else repr(label)
    return (1, *((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)), text)


def _article(role: str) -> str:
    return {"action": "an action", "subject": "a subject"}.get(role, "a state")
