"""Tables with named columns: a CSV or Parquet file or a DataFrame, opened as a whole. Every error names the row."""

import csv
import hashlib
import os
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from tarfile import TarError
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from zipfile import BadZipFile
from zlib import error as zlib_error

import numpy as np

from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import described

if TYPE_CHECKING:
    import pandas as pd

_DIGESTED = 2**18  # bytes at once
MISSING_NUMBER = ("", "NA", "N/A", "NaN", "nan", "null", "None")


class Table(NamedTuple):
    """A source that was opened.

    Args:
        frame: the columns that are used, by name.
        name: the source, for messages.
        columns: role ("state", "reward", "cost", ...) -> name of the column, for the roles that are given.
        text: the file, where it is one whose rows are lines of text; else None.
        first: number of the first row here in the source, where the frame is a chunk of it.
    """

    frame: "pd.DataFrame"
    name: str
    columns: dict[str, str]
    text: Path | None
    first: int = 0

    def values(self, role: str) -> np.ndarray | None:
        """The column of a role as an array, None where the role is not given."""
        return self.frame[self.columns[role]].to_numpy() if role in self.columns else None

    def fail(self, row: int, role: str, expected: str) -> NoReturn:
        """Refuse the cell of a role in a row of the frame (0-based; the message has that of the source, 1-based)."""
        there = self.frame[self.columns[role]].iloc[row]
        shown = "empty" if is_missing(np.array([there], object))[0] else repr(plain(there))
        self.refuse(self.first + row, role, shown, expected)

    def refuse(self, row: int, role: str, shown: str, expected: str) -> NoReturn:
        """Refuse the cell of a role in a row of the source (0-based here)."""
        number = None if self.text is None else _line(self.text, row)
        line = "" if number is None else f" (line {number})"
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

    columns = check_roles(roles, required)
    if isinstance(source, pd.DataFrame):
        require_columns("the DataFrame", columns, list(source.columns))
        table = Table(source, "the DataFrame", columns, None)
    elif isinstance(source, (str, os.PathLike)):
        table = _open_file(Path(source), columns)
    else:
        raise TypeError(f"source is of type {type(source).__name__}, expected a path or a pandas DataFrame")
    if len(table.frame) == 0:
        raise ValueError(f"{table.name} has no rows, expected at least one transition")
    return table


def check_roles(roles: dict[str, Any], required: Sequence[str] = ("state", "action")) -> dict[str, Any]:
    """The roles that are given, with the names of their columns (of a DataFrame: anything that can be hashed).

    Raises:
        TypeError: one that is required is None, or no name. ValueError: a reward and a cost; state and next state of
            one column.
    """
    columns = {role: column for role, column in roles.items() if column is not None}
    for role in required:
        if role not in columns:
            raise TypeError(f"{role} is None, expected the name of a column")
    for role, column in columns.items():
        if not isinstance(column, Hashable):
            raise TypeError(f"{role} is {described(column)}, expected the name of a column")
    if "reward" in columns and "cost" in columns:
        raise ValueError(
            f"reward is column {columns['reward']!r} and cost is column {columns['cost']!r}, expected one of them: "
            "the reward is minus the cost"
        )
    if "next_state" in columns and columns.get("state") == columns["next_state"]:
        raise ValueError(f"state and next_state are both column {columns['state']!r}, expected two columns")
    return columns


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

    require_columns(path.name, columns, header(path))
    numbers = {columns[role] for role in ("reward", "cost", "step", "trial") if role in columns}
    used = set(columns.values())
    with parsing(path):
        frame = pd.read_csv(  # all columns: with `usecols` pandas drops surplus cells in silence
            path,
            sep=separator(path),
            dtype=dict.fromkeys(used - numbers, object),
            keep_default_na=False,
            na_values={column: list(MISSING_NUMBER) if column in numbers else [""] for column in used},
            low_memory=False,
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(f"{path.name} has rows with more cells than the header line has names, expected as many")
    return frame


def header(path: Path) -> list[Hashable]:
    """The names of the header line unchanged (pandas would number repeated ones); the rest as pandas does."""
    import pandas as pd

    with parsing(path):
        named = list(pd.read_csv(path, sep=separator(path), nrows=0).columns)
        lines = pd.read_csv(path, sep=separator(path), nrows=1, header=None, dtype=str, keep_default_na=False)
    given = [] if lines.empty else lines.iloc[0].tolist()
    return [text or name for text, name in zip(given, named, strict=True)] if len(given) == len(named) else named


@contextmanager
def parsing(path: Path) -> Iterator[None]:
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


def separator(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


def _line(path: Path, row: int) -> int | None:
    """Line on which a row (0-based) begins: blank lines are no rows, quoted cells span lines. None: unknown."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, delimiter=separator(path))
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
    pyarrow = check_parquet(path)
    try:
        require_columns(path.name, columns, pyarrow.parquet.read_schema(path).names)
        return pyarrow.parquet.read_table(path, columns=sorted(set(columns.values()))).to_pandas(
            integer_object_nulls=True  # floats would round large ones
        )
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path.name} cannot be read as a Parquet file: {error}") from error


def check_parquet(path: Path) -> Any:
    """The module that reads Parquet files.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path.name} is a Parquet file, expected pyarrow to be installed (pip install pyarrow)"
        ) from None
    return pyarrow


def require_columns(name: str, columns: dict[str, str], present: list[Hashable]) -> None:
    """Refuse columns that are not there, or more than once."""
    for role, column in columns.items():
        if present.count(column) > 1:
            raise ValueError(
                f"{role} is column {column!r}, which {name} has {present.count(column)} times, expected one"
            )
        if column not in present:
            raise ValueError(
                f"{role} is column {column!r}, which {name} has not, expected one of {', '.join(map(repr, present))} "
                + see("how-to/read-a-log")
            )


def is_missing(values: np.ndarray) -> np.ndarray:
    """Bool[N], which values are none."""
    import pandas as pd

    return np.asarray(pd.isna(values), bool)


def plain(label: Hashable) -> Hashable:
    """A numpy scalar as a Python value."""
    return label.item() if isinstance(label, np.generic) else label


def file_digest(source: object) -> str | None:
    """SHA-256 of a file, by which its content is known again under any name; None where `source` is no path."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    sha = hashlib.sha256()
    with Path(source).open("rb") as file:
        while block := file.read(_DIGESTED):
            sha.update(block)
    return sha.hexdigest()
