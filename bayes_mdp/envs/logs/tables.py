"""Tables with named columns: a CSV or Parquet file or a DataFrame, opened as a whole. Every error names the row."""

import codecs
import csv
import hashlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path
from tarfile import TarError
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar
from zipfile import BadZipFile
from zlib import error as zlib_error

import numpy as np

from bayes_mdp.utils.validation import check_name, check_type, described

if TYPE_CHECKING:
    import pandas as pd

_DIGESTED = 2**18  # bytes at once
MISSING = ("", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL", "None", ".")
"""What a cell holds that holds nothing, as R, SAS, SQL, spreadsheets and pandas write it."""
ABSENT = -999
"""A code for what is missing: of labels that are no other negative numbers."""
_SAMPLED = 10_000  # rows
MOST_TOLD = 10
"""Bad cells that one message names."""
_LABELS = (("state", "next_state"), ("action",), ("episode",), ("subject",))


class Dialect(NamedTuple):
    """How a file writes a table.

    Args:
        sep: between cells, one character; None: a tab in `.tsv`, else a comma.
        encoding: of its characters; None: UTF-8.
        decimal: the sign of decimals in numbers.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str = "."

    def check(self) -> None:
        """Refuse what is none.

        Raises:
            ValueError, TypeError: one sentence.
        """
        if self.sep is not None:
            check_type("sep", self.sep, str, "one character, such as ';'")
            if len(self.sep) != 1:
                raise ValueError(f"sep is {self.sep!r}, expected one character, such as ';' or '\\t'")
        check_name("decimal", self.decimal, (".", ","))
        if self.encoding is not None:
            check_type("encoding", self.encoding, str, "the name of an encoding, such as 'latin-1'")
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"encoding is {self.encoding!r}, expected one that Python knows, such as 'utf-8', 'latin-1' or "
                    "'cp1252'"
                ) from None

    def of(self, path: Path) -> dict[str, Any]:
        """Arguments of `pandas.read_csv`.

        Args:
            path: of the file.
        """
        return {"sep": self.sep or separator(path), "encoding": self.encoding, "decimal": self.decimal}


class Table(NamedTuple):
    """A source that was opened.

    Args:
        frame: the columns of the source, by name; of labels, what counts as missing is.
        name: the source, for messages.
        columns: role ("state", "reward", "cost", ...) -> name of the column, for the roles that are given.
        text: the file, where it is one whose rows are lines of text; else None.
        first: number of the first row here in the source, where the frame is a chunk of it.
        dialect: of the file.
        raw: the frame as it was found.
    """

    frame: "pd.DataFrame"
    name: str
    columns: dict[str, Any]
    text: Path | None
    first: int = 0
    dialect: Dialect = Dialect()
    raw: "pd.DataFrame | None" = None

    def values(self, role: str) -> np.ndarray | None:
        """The column of a role as an array, None where the role is not given."""
        return self.frame[self.columns[role]].to_numpy() if role in self.columns else None

    def with_columns(self, changed: Mapping[Any, Any]) -> "Table":
        """The table with other cells in some of its columns, or with more columns.

        Args:
            changed: name of a column -> its cells.
        """
        frame = self.frame.copy(deep=False)
        for name, cells in changed.items():
            frame[name] = cells
        return self._replace(frame=frame, raw=self.frame if self.raw is None else self.raw)

    def fail(self, row: int, role: str, expected: str) -> NoReturn:
        """Refuse the cell of a role in a row of the frame (0-based; the message has that of the source, 1-based)."""
        raise BadCells(self, [(self.first + row, role, self.shown(row, role), expected)])

    def refuse(self, row: int, role: str, shown: str, expected: str) -> NoReturn:
        """Refuse the cell of a role in a row of the source (0-based here)."""
        raise BadCells(self, [(row, role, shown, expected)])

    def shown(self, row: int, role: str) -> str:
        """What the cell of a role holds, in words.

        Args:
            row: of the frame.
            role: of its column.
        """
        column = self.columns[role]
        cell = self.frame[column].iloc[row]
        if not is_missing(np.array([cell, None], object))[0]:
            return repr(plain(cell))
        if isinstance(column, Several):
            return "empty in one of them"
        cell = cell if self.raw is None else self.raw[column].iloc[row]
        nothing = is_missing(np.array([cell, None], object))[0] or cell == ""
        return "empty" if nothing else f"{plain(cell)!r}{_COUNTS_AS_EMPTY}"


_COUNTS_AS_EMPTY = ", which counts as empty"


class Several(tuple[Hashable, ...]):
    """The names of columns that one label is made of, as the name of the column of these labels."""

    __slots__ = ()


def names_of(columns: Mapping[str, Any]) -> list[Any]:
    """The columns of the source that are used, in the order of their roles."""
    return [name for column in columns.values() for name in (column if isinstance(column, Several) else (column,))]


def listing(role: str) -> str:
    """The argument that lists the labels of a role."""
    return "actions" if role == "action" else "states"


class BadCells(ValueError):
    """Cells that cannot be read.

    Args:
        table: that they are in.
        cells: (row of the source, from 0; role; what is there; what was expected), of which the first ten are named.
        number: how many there are.
    """

    def __init__(self, table: Table, cells: "list[tuple[int, str, str, str]]", number: int | None = None) -> None:
        self.table, self.number = table, len(cells) if number is None else number
        roles = list(table.columns)
        cells = self.cells = sorted(cells, key=lambda cell: (cell[0], roles.index(cell[1])))[:MOST_TOLD]
        lines = {} if table.text is None else _lines(table.text, {row for row, *_ in cells}, table.dialect)
        places = [f"row {row + 1}{f' (line {lines[row]})' if row in lines else ''}" for row, *_ in cells]
        _, role, shown, expected = cells[0]
        parts, known = [f"{places[0]}: {role} {table.columns[role]!r} is {shown}, expected {expected}"], {expected}
        for place, (_, role, shown, expected) in zip(places[1:], cells[1:], strict=True):
            wish = "" if expected in known else f", expected {expected}"
            parts.append(f"{place}: {role} {table.columns[role]!r} is {shown}{wish}")
            known.add(expected)
        remarks = f"; {self.number} such cells in all" if self.number > 1 else ""
        words = [role for _, role, shown, _ in cells if shown.endswith(_COUNTS_AS_EMPTY)]
        if words:
            named = listing(words[0])
            remarks += f"; a word that is a label is listed in {named}= (in the shell --{named})"
        if any(role in _LABELS[0] and "empty" in shown for _, role, shown, _ in cells):
            remedy = "missing='ignore' leaves such rows out (in the shell --missing ignore)"
            if "subject" not in table.columns:
                remedy = "missing_state='gap' takes rows without a state as gaps (in the shell --missing-state gap)"
            remarks += f"; {remedy}"
        super().__init__(f"{table.name}, {'; '.join(parts)}{remarks}")


_Read = TypeVar("_Read")


@dataclass
class Faults:
    """Bad cells of columns that are read one after the other, so that all are told at once."""

    errors: list[BadCells] = field(default_factory=list, init=False)

    def read(self, read: Callable[[], _Read], instead: Callable[[], _Read]) -> _Read:
        """A column, or what stands in its place.

        Args:
            read: reads it.
            instead: gives the other, where some of its cells are bad.
        """
        try:
            return read()
        except BadCells as error:
            self.errors.append(error)
            return instead()

    def refuse(self, table: Table) -> None:
        """Refuse all of them; the first ones are named.

        Args:
            table: that they are in.

        Raises:
            BadCells: there are some.
        """
        if self.errors:
            cells = [cell for error in self.errors for cell in error.cells]
            raise BadCells(table, cells, sum(error.number for error in self.errors))


def open_table(
    source: object,
    roles: dict[str, Any],
    required: Sequence[str] = ("state", "action"),
    given: Mapping[str, Sequence[Hashable] | None] = MappingProxyType({}),
    dialect: Dialect = Dialect(),
) -> Table:
    """Open a path or a DataFrame, with the columns of `roles` (role -> column name or None), some `required`.

    Args:
        given: role -> all labels; a word for what is missing is a label where it is listed.
        dialect: of a file.

    Raises:
        FileNotFoundError, ImportError, TypeError, ValueError: see `read_log`.
    """
    import pandas as pd

    columns = check_roles(roles, required)
    if isinstance(source, pd.DataFrame):
        require_columns("the DataFrame", columns, list(source.columns))
        table = Table(source, "the DataFrame", columns, None)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        check_kind(path)
        try:
            if is_parquet(path):
                table = Table(_read_parquet(path, columns), path.name, columns, None)
            else:
                table = Table(_read_csv(path, columns, dialect), path.name, columns, path, 0, dialect)
        except pd.errors.EmptyDataError:
            raise ValueError(f"{path.name} is empty, expected a header line and at least one transition") from None
    else:
        raise TypeError(
            f"source is of type {type(source).__name__}, expected a path or a pandas DataFrame (several: chunksize=)"
        )
    if len(table.frame) == 0:
        raise ValueError(f"{table.name} has no rows, expected at least one transition")
    return Blanks(columns, given).clear_missing(table)


_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")


def check_kind(path: Path) -> None:
    """Refuse a path that cannot be a table.

    Args:
        path: of a log.

    Raises:
        FileNotFoundError: there is no such file. ValueError: it is a spreadsheet.
    """
    if not path.is_file():
        raise FileNotFoundError(f"source is {str(path)!r}, expected a file that exists")
    if path.suffix.lower() in _SPREADSHEETS:
        raise ValueError(
            f"{path.name} is a spreadsheet, expected a CSV or Parquet file: save it as CSV, or give the DataFrame of "
            "pandas.read_excel"
        )


@dataclass(frozen=True)
class Missing:
    """What may be missing.

    Args:
        rewards: whether a reward may be.
        states: whether a state may be: a gap.
        steps: whether a step may be left out: likewise.
    """

    rewards: bool
    states: bool
    steps: bool

    @classmethod
    def of_words(cls, roles: Mapping[str, object], missing_reward: str, missing_state: str, gaps: str) -> "Missing":
        """From the arguments of `read_log`.

        Args:
            roles: role -> name of a column, or None.
            missing_reward, missing_state, gaps: as given.

        Raises:
            ValueError: a word that is none of those; roles that do not say what follows a row.
        """
        if all(roles[role] is None for role in ("next_state", "episode", "step")):
            raise ValueError(
                "next_state and episode are both None, expected one: next states, or episodes to shift states in (in "
                "the shell --next-state or --episode); or step, if all rows are one episode "
            )
        check_name("missing_reward", missing_reward, ("error", "ignore"))
        check_name("missing_state", missing_state, ("error", "gap"))
        check_name("gaps", gaps, ("error", "cut"))
        return cls(missing_reward == "ignore", missing_state == "gap", gaps == "cut")


class Blanks:
    """What counts as missing in columns of labels, of one source, which may come in chunks.

    Text of `MISSING`, blanks around it aside; and -999 (as text too) where no other label is a negative number, or all
    labels are given. What is among the labels given is a label.

    Args:
        columns: role -> name of the column.
        given: role -> all labels, or None.
    """

    def __init__(self, columns: dict[str, Any], given: Mapping[str, Sequence[Hashable] | None]) -> None:
        self._groups = [names_of({role: columns[role] for role in roles if role in columns}) for roles in _LABELS]
        labels = [given.get(roles[0]) or () for roles in _LABELS]
        self._kept = [
            {str(x) for label in group for x in (label if isinstance(label, tuple) else (label,))} for group in labels
        ]
        self._listed = [given.get(roles[0]) is not None for roles in _LABELS]
        self._negative: list[bool] = [False] * len(_LABELS)  # whether a negative number is among the labels
        self._absent: list[bool] = [False] * len(_LABELS)  # whether -999 counted as missing

    def clear_missing(self, table: Table) -> Table:
        """The table, empty where a label is missing.

        Raises:
            ValueError: a chunk with negative numbers after one in which -999 counted as missing.
        """
        changed: dict[Any, Any] = {}
        for i, (names, protected) in enumerate(zip(self._groups, self._kept, strict=True)):
            labels = {name: _different(table.frame[name]) for name in names}
            several = [label for of_column in labels.values() for label in of_column]
            self._negative[i] |= not self._listed[i] and any(_is_negative(label) for label in several)
            absent = str(ABSENT) not in protected and any(_is_absent(label) for label in several)
            if absent and not self._negative[i]:
                self._absent[i] = True
            if self._negative[i] and self._absent[i]:
                raise ValueError(
                    f"{table.name}: column {names[0]!r} has {ABSENT}, which counts as empty, and later other negative "
                    f"numbers, expected all labels ({listing(_LABELS[i][0])}=[...])"
                )
            for name, of_column in labels.items():
                words = [
                    x
                    for x in of_column
                    if (isinstance(x, str) and x.strip() in MISSING and not {x, x.strip()} & protected)
                    or (absent and self._absent[i] and _is_absent(x))
                ]
                if words:
                    changed[name] = _without(table.frame[name], words)
        return table.with_columns(changed) if changed else table


def _different(column: Any) -> list[Any]:
    """The labels of a column among which one may stand for nothing, or be a negative number; others may be left out."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return list(column.cat.categories)
    kind = column.dtype.kind
    if kind in "iuf":
        negative = column < 0
        return list(map(plain, column[negative.fillna(False)].unique())) if negative.any() else []
    try:
        return list(column.unique()) if kind in "OUTS" else []
    except TypeError:  # what cannot be hashed is refused elsewhere, which names its row
        return []


def _is_absent(label: object) -> bool:
    if isinstance(label, str):
        return label.strip() in (str(ABSENT), f"{ABSENT}.0")
    return isinstance(label, (int, float, np.number)) and bool(label == ABSENT)


def _is_negative(label: object) -> bool:
    """Whether it is a negative number other than -999."""
    if isinstance(label, str):
        text = label.strip()
        try:
            label = float(text) if text[:1] == "-" and text[1:2].isdigit() else 0.0
        except ValueError:
            return False
    return isinstance(label, (int, float, np.number)) and bool(label < 0) and label != ABSENT


def _without(column: Any, words: list[Any]) -> Any:
    """The column, empty where one of these labels is."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.remove_categories(words)
    matches = column.isin(words)
    return (column.astype("Int64") if column.dtype.kind in "iu" else column).mask(matches)


def check_roles(roles: dict[str, Any], required: Sequence[str] = ("state", "action")) -> dict[str, Any]:
    """The roles that are given, with the names of their columns (of a DataFrame: anything that can be hashed).

    A list of columns is a `Several`.

    Raises:
        TypeError: one that is required is None, or no name. ValueError: a reward and a cost; state and next state of
            one column.
    """
    columns = {role: column for role, column in roles.items() if column is not None}
    for role in ("state", "next_state"):
        if isinstance(columns.get(role), list):
            columns[role] = Several(columns[role])
            if len(columns[role]) < 2:
                raise ValueError(
                    f"{role} is {list(columns[role])}, expected the name of a column, or a list of several"
                )
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


_NUMBERS = ("reward", "cost", "step", "trial", "count")


def _read_csv(path: Path, columns: dict[str, Any], dialect: Dialect) -> "pd.DataFrame":
    """Labels and flags as text; rewards and steps as numbers, or as text where some cell is no number."""
    import pandas as pd

    present = header(path, dialect)
    require_columns(path.name, columns, present)
    numbers = {column for role, column in columns.items() if role in _NUMBERS or role.startswith("outcomes[")}
    used = set(names_of(columns))
    with parsing(path):
        frame = pd.read_csv(  # all columns: with `usecols` pandas drops surplus cells in silence
            path,
            dtype=dict.fromkeys(used - numbers, object),
            keep_default_na=False,
            na_values={x: [""] if x in used - numbers else list(MISSING) for x in present},
            low_memory=False,
            **dialect.of(path),
        )
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(f"{path.name} has rows with more cells than the header line has names, expected as many ")
    return frame


def header(path: Path, dialect: Dialect = Dialect()) -> list[Hashable]:
    """The names of the header line unchanged (pandas would number repeated ones); the rest as pandas does."""
    import pandas as pd

    with parsing(path):
        named = list(pd.read_csv(path, nrows=0, **dialect.of(path)).columns)
        lines = pd.read_csv(path, nrows=1, header=None, dtype=str, keep_default_na=False, **dialect.of(path))
    cells = [] if lines.empty else lines.iloc[0].tolist()
    return [text or name for text, name in zip(cells, named, strict=True)] if len(cells) == len(named) else named


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
        if isinstance(error, UnicodeError):
            why += (
                ", expected the encoding of the file, such as encoding='latin-1' or 'cp1252' (in the shell --encoding)"
            )
        raise ValueError(f"{path.name} cannot be read as a table: {why}") from error


def is_parquet(path: Path) -> bool:
    """Whether a file is one of Parquet, by its ending."""
    return path.suffix in (".parquet", ".pq")


def separator(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


def _lines(path: Path, rows: set[int], dialect: Dialect) -> dict[int, int]:
    """The lines on which rows (0-based) begin: blank lines are no rows, quoted cells span lines. Empty: unknown."""
    places: dict[int, int] = {}
    try:
        with path.open(newline="", encoding=dialect.encoding or "utf-8") as file:
            reader = csv.reader(file, delimiter=dialect.sep or separator(path))
            begin, row, last = 1, -1, max(rows)
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    if row in rows:
                        places[row] = begin
                    if row == last:
                        break
                    row += 1
                begin = reader.line_num + 1
    except (csv.Error, UnicodeError):  # compressed, say
        return {}
    return places


def _read_parquet(path: Path, columns: dict[str, Any]) -> "pd.DataFrame":
    pyarrow = check_parquet(path)
    try:
        require_columns(path.name, columns, pyarrow.parquet.read_schema(path).names)
        return pyarrow.parquet.read_table(
            path, columns=sorted({*names_of(columns), *_rising(path, columns)})
        ).to_pandas(
            integer_object_nulls=True  # floats would round large ones
        )
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path.name} cannot be read as a Parquet file: {error}") from error


def _rising(path: Path, columns: dict[str, Any]) -> list[str]:
    """Columns without a role, of numbers and dates, that never fall within an episode of the first rows."""
    import pyarrow.parquet

    if "episode" not in columns:
        return []
    with pyarrow.parquet.ParquetFile(path) as file:
        first = next(file.iter_batches(_SAMPLED), None)
    frame = None if first is None else first.to_pandas()
    if frame is None:
        return []
    candidates = [x for x in frame.columns if x not in names_of(columns) and frame[x].dtype.kind in "iufM"]
    changes = frame[candidates].groupby(frame[columns["episode"]].to_numpy(), sort=False).diff()
    return [x for x in candidates if not (changes[x] < 0 * changes[x]).any()]


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


def require_columns(name: str, columns: dict[str, Any], present: list[Hashable]) -> None:
    """Refuse columns that are not there, or more than once."""
    pairs = [(role, name) for role, column in columns.items() for name in names_of({role: column})]
    for role, column in pairs:
        if present.count(column) > 1:
            raise ValueError(
                f"{role} is column {column!r}, which {name} has {present.count(column)} times, expected one"
            )
        if column not in present:
            separator = next((sep for sep in (";", "\t", "|") if len(present) == 1 and sep in str(present[0])), None)
            hint = (
                ""
                if separator is None
                else f": cells seem to have {separator!r} between, say sep={separator!r} (in the shell --sep)"
            )
            raise ValueError(
                f"{role} is column {column!r}, which {name} has not, expected one of {', '.join(map(repr, present))}"
                f"{hint}"
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
