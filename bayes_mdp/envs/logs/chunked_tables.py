"""Logs read piece by piece: one source (a file, a DataFrame, a Dask dataframe) as tables of at most so many rows.

CSV files are fast where labels are whole numbers: those are parsed as numbers, as long as nothing is lost. Text such as
"007" is a label of its own, no number. A file in which no cell is such a spelling of a whole number can be parsed as
numbers: their text is known again from them.
"""

import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from bayes_mdp.envs.logs.columns import WHOLE
from bayes_mdp.envs.logs.tables import (
    MISSING,
    Blanks,
    Dialect,
    Several,
    Table,
    check_kind,
    check_parquet,
    check_roles,
    file_digest,
    header,
    is_parquet,
    parsing,
    require_columns,
)
from bayes_mdp.utils.messages import see
from bayes_mdp.utils.validation import described

if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class Partitioned(Protocol):
    """A dataframe in partitions that are computed one by one, as Dask's."""

    npartitions: int

    def get_partition(self, n: int) -> Any:
        """Partition n, whose `compute()` is a DataFrame."""
        ...


@dataclass(eq=False)
class ChunkedLog:
    """One log, as chunks; used once.

    Args:
        content: a path, a DataFrame or a dataframe in partitions.
        name: for messages.
        columns: role -> name of the column.
        chunksize: most rows of a chunk.
        given: role -> all labels, or None; see `Blanks`.
        dialect: of a file.
        rows: how many were read so far.
    """

    content: "Path | pd.DataFrame | Partitioned"
    name: str
    columns: dict[str, str]
    chunksize: int
    given: Mapping[str, Sequence[Hashable] | None] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=Dialect)
    rows: int = 0
    _sha: Any = field(default_factory=hashlib.sha256)

    def __iter__(self) -> Iterator[Table]:
        blanks = Blanks(self.columns, self.given)
        for frame in self._frames():
            for start in range(0, len(frame), self.chunksize):
                piece = frame.iloc[start : start + self.chunksize] if len(frame) > self.chunksize else frame
                text = self.content if isinstance(self.content, Path) and not is_parquet(self.content) else None
                first, self.rows = self.rows, self.rows + len(piece)
                yield blanks.clear_missing(Table(piece, self.name, self.columns, text, first, self.dialect))

    def what_it_lacks(self) -> str:
        """Why it has no transition, in words, where it was read to its end and has none."""
        return f"{self.name} has no {'episode of two rows' if self.rows else 'rows'}"

    def again(self) -> Iterator[Table]:
        """The chunks from the first one on."""
        return iter(replace(self, rows=0, _sha=hashlib.sha256()))

    def digest(self) -> str:
        """SHA-256 of the content: of a file of its bytes, of a DataFrame of the columns that are used, row by row."""
        return file_digest(self.content) or self._sha.hexdigest()

    def _frames(self) -> Iterator["pd.DataFrame"]:
        if isinstance(self.content, Path):
            if is_parquet(self.content):
                yield from _parquet_frames(self.content, self.columns, self.chunksize)
            else:
                yield from csv_frames(self.content, self.columns, self.chunksize, self.dialect)
            return
        yield from map(self._hash, _partitions(self.content, self.chunksize))

    def _hash(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """The frame, taken into the digest: the same whatever the partitions."""
        from pandas import util

        hash_rows: Any = util.hash_pandas_object
        require_columns(self.name, self.columns, list(frame.columns))
        used = frame[sorted(set(self.columns.values()), key=str)]
        if len(frame) and not self.rows:
            self._sha.update(repr(list(used.columns)).encode())
        try:
            self._sha.update(hash_rows(used, index=False).to_numpy().astype("<u8").tobytes())
        except TypeError as error:
            raise TypeError(
                f"{self.name} has a cell that is not hashable, expected labels, numbers and flags"
            ) from error
        return frame


def open_log(
    source: object,
    roles: dict[str, Any],
    chunksize: int,
    given: Mapping[str, Sequence[Hashable] | None] = MappingProxyType({}),
    dialect: Dialect = Dialect(),
    name: str = "the DataFrame",
) -> ChunkedLog:
    """A log to be read in chunks.

    Args:
        source: a path, a DataFrame or a dataframe in partitions.
        roles: role -> name of a column or None.
        chunksize: most rows of a chunk.
        given: role -> all labels, or None.
        dialect: of a file.
        name: of a source that is no file.

    Raises:
        FileNotFoundError, TypeError: there is no such file; it is something else.
    """
    import pandas as pd

    columns = check_roles(roles, ("state",))
    several = next((role for role, column in columns.items() if isinstance(column, Several)), None)
    if several is not None:
        raise ValueError(
            f"{several} is {list(columns[several])}, expected one column of a log that is read in chunks: join them in "
            "the file, or read it as a whole (read_log without chunksize)"
        )
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        check_kind(path)
        return ChunkedLog(path, path.name, columns, chunksize, given, dialect)
    if isinstance(source, (pd.DataFrame, Partitioned)):
        return ChunkedLog(source, name, columns, chunksize, given)
    raise TypeError(f"source is {described(source)}, expected a path, a DataFrame or a Dask dataframe")


def each_log(
    sources: object,
    roles: dict[str, Any],
    chunksize: int,
    given: Mapping[str, Sequence[Hashable] | None] = MappingProxyType({}),
    dialect: Dialect = Dialect(),
) -> Iterator[ChunkedLog]:
    """One log, or those of an iterable; arguments as for `open_log`.

    Raises:
        ValueError: the iterable is empty. Others: see `open_log`.
    """
    import pandas as pd

    if isinstance(sources, (str, os.PathLike, pd.DataFrame, Partitioned)) or not isinstance(sources, Iterable):
        yield open_log(sources, roles, chunksize, given, dialect)
        return
    i = -1
    for i, source in enumerate(sources):
        yield open_log(source, roles, chunksize, given, dialect, f"DataFrame {i}")
    if i < 0:
        raise ValueError(f"source is empty, expected at least one log {see('how-to/large-logs')}")


def _partitions(content: "pd.DataFrame | Partitioned", chunksize: int) -> Iterator["pd.DataFrame"]:
    if isinstance(content, Partitioned):
        for n in range(content.npartitions):
            yield content.get_partition(n).compute()
        return
    for start in range(0, len(content), chunksize):
        yield content.iloc[start : start + chunksize]


def _parquet_frames(path: Path, columns: dict[str, str], chunksize: int) -> Iterator["pd.DataFrame"]:
    """Text as categories; whole numbers stay whole where some are missing."""
    pyarrow = check_parquet(path)
    import pandas as pd

    kinds = pyarrow.types
    used = sorted(set(columns.values()))
    whole = {getattr(pyarrow, name.lower())(): getattr(pd, f"{name}Dtype")() for name in _WHOLE}
    try:
        schema = pyarrow.parquet.read_schema(path)
        require_columns(path.name, columns, schema.names)
        text = [name for name in used if kinds.is_string(schema.field(name).type)]
        # Read as it goes: what pyarrow buffers beforehand it keeps to the end of the file.
        streamed = {"pre_buffer": False, "buffer_size": _BUFFER}
        with pyarrow.parquet.ParquetFile(path, read_dictionary=text, **streamed) as file:
            for batch in file.iter_batches(chunksize, columns=used):
                holes = any(kinds.is_integer(column.type) and column.null_count for column in batch.columns)
                yield batch.to_pandas(types_mapper=whole.get if holes else None)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path.name} cannot be read as a Parquet file: {error}") from error


_BUFFER = 2**20
_WHOLE = tuple(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))


_NUMBERS = ("reward", "cost", "step")
_LABELS = ("state", "next_state", "action", "episode")
_PLAIN = (".csv", ".tsv", ".txt")
_BLOCK = 2**18
_MARGIN = 3


def csv_frames(
    path: Path, columns: dict[str, str], chunksize: int, dialect: Dialect = Dialect()
) -> Iterator["pd.DataFrame"]:
    """Labels as whole numbers or text, flags as they are, rewards, costs and steps as numbers (text where one is not).

    Args:
        path: the file.
        columns: role -> name of the column.
        chunksize: most rows of a frame.
        dialect: of the file.

    Raises:
        ValueError: it cannot be read as a table, a column that is missing.
    """
    import pandas as pd

    try:
        require_columns(path.name, columns, header(path, dialect))
        numbers = {name for role, name in columns.items() if role in _NUMBERS or role.startswith("outcomes[")}
        labels = {columns[role] for role in _LABELS if role in columns} - numbers
        kinds: dict[str, Any] = dict.fromkeys(numbers, "float64")
        if dialect != Dialect() or _has_odd_numbers(path):
            kinds |= dict.fromkeys(labels, object)
        done = 0
        doubtful: set[str] = set()  # numbers with holes, or with decimals: the text of the chunk says which
        # Read on until a column turns out to be of another kind; then once more, from the same chunk on.
        while True:
            changed = {}
            try:
                for i, frame in enumerate(_parse(path, columns, numbers, chunksize, kinds, dialect)):
                    if i >= done:
                        changed = {c: "Int64" for c in doubtful if _all_whole(frame[c])}
                        doubtful.clear()
                    changed |= {c: object for c in labels if _needs_text(frame[c], kinds.get(c))}
                    if changed:
                        doubtful |= {c for c in changed if frame[c].dtype.kind == "f"}
                        break
                    if i >= done:
                        done += 1
                        yield frame
            except _CannotConvert:
                changed = {c: object if c in labels else None for c, kind in kinds.items() if kind is not None}
            if not changed:
                return
            kinds |= changed
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path.name} is empty, expected a header line and at least one transition") from None


class _CannotConvert(Exception):
    """A cell is not of the kind of its column."""


def _needs_text(column: Any, kind: object) -> bool:
    """Whether a column of labels must be read as text: of numbers with decimals and of booleans the text is lost."""
    import pandas as pd

    if kind is not None or column.dtype.kind not in "fbO":
        return False
    return column.dtype.kind != "O" or pd.api.types.infer_dtype(column, skipna=True) != "string"


def _all_whole(column: Any) -> bool:
    """Whether there are cells, all whole numbers as Python writes them: they can be read as nullable integers."""
    cells = column.dropna()
    return len(cells) > 0 and all(map(WHOLE.fullmatch, cells))


def _parse(
    path: Path, columns: dict[str, str], numbers: set[str], chunksize: int, kinds: dict[str, Any], dialect: Dialect
) -> Iterator["pd.DataFrame"]:
    import pandas as pd

    with parsing(path):
        reader: Any = pd.read_csv(  # all columns: with `usecols` pandas drops surplus cells in silence
            path,
            dtype={column: kind for column, kind in kinds.items() if kind is not None},
            keep_default_na=False,
            na_values={c: list(MISSING) if c in numbers else [""] for c in columns.values()},
            low_memory=False,
            chunksize=chunksize,
            **dialect.of(path),
        )
    with reader:
        while True:
            with parsing(path):
                try:
                    frame = next(reader, None)
                except (ValueError, TypeError, OverflowError) as error:
                    if any(kind is not None and kind is not object for kind in kinds.values()):
                        raise _CannotConvert from error
                    raise
            if frame is None:
                return
            if not isinstance(frame.index, pd.RangeIndex):
                raise ValueError(
                    f"{path.name} has rows with more cells than the header line has names, expected as many"
                )
            yield frame


def _has_odd_numbers(path: Path) -> bool:
    """Whether some cell may write a whole number in another way than Python does: "007", "+7", " 7", "7 ", "-0".

    True where that is not known (compressed files).
    """
    if path.suffix not in _PLAIN:
        return True
    before = b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            # The end of the block before, so that no cell is cut; a cell may end where the file does.
            if _odd(np.frombuffer(before + block + b"\n" * _MARGIN, np.uint8)):
                return True
            before = block[-_MARGIN:]
    return False


_SEPARATORS = np.isin(np.arange(256), list(b',\t\n\r"'))
_DIGITS = np.isin(np.arange(256), list(b"0123456789"))


def _odd(text: np.ndarray) -> bool:
    between = np.flatnonzero(_SEPARATORS[text])
    begins = between[between < len(text) - _MARGIN]
    first, second = text[begins + 1], text[begins + 2]
    if (first == ord("+")).any() or (first == ord(" ")).any() or (text[between[1:] - 1] == ord(" ")).any():
        return True
    if ((first == ord("0")) & _DIGITS[second]).any():
        return True
    third = text[begins + 3]
    return bool(((first == ord("-")) & (second == ord("0")) & (third != ord("."))).any())
