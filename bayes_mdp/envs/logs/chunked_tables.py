"""Logs read piece by piece: one source (a file, a DataFrame, a Dask dataframe) as tables of at most so many rows."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from bayes_mdp.envs.logs.chunked_csv import csv_frames
from bayes_mdp.envs.logs.tables import Table, check_parquet, check_roles, file_digest, require_columns
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
        rows: how many were read so far.
    """

    content: "Path | pd.DataFrame | Partitioned"
    name: str
    columns: dict[str, str]
    chunksize: int
    rows: int = 0
    _sha: Any = field(default_factory=hashlib.sha256)

    def __iter__(self) -> Iterator[Table]:
        for frame in self._frames():
            for start in range(0, len(frame), self.chunksize):
                piece = frame.iloc[start : start + self.chunksize] if len(frame) > self.chunksize else frame
                text = self.content if isinstance(self.content, Path) and not _is_parquet(self.content) else None
                first, self.rows = self.rows, self.rows + len(piece)
                yield Table(piece, self.name, self.columns, text, first)
        if not self.rows:
            raise ValueError(f"{self.name} has no rows, expected at least one transition")

    def known_digest(self) -> str | None:
        """SHA-256 of a file; None: it is known after all chunks were read (see `digest`)."""
        return file_digest(self.content)

    def digest(self) -> str:
        """SHA-256 of the content: of a file of its bytes, of a DataFrame of the columns that are used, row by row."""
        return self.known_digest() or self._sha.hexdigest()

    def _frames(self) -> Iterator["pd.DataFrame"]:
        if isinstance(self.content, Path):
            parts = _parquet_frames if _is_parquet(self.content) else csv_frames
            yield from parts(self.content, self.columns, self.chunksize)
            return
        yield from map(self._hashed, _partitions(self.content, self.chunksize))

    def _hashed(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """The frame, taken into the digest: the same whatever the partitions."""
        from pandas import util

        hash_rows: Any = util.hash_pandas_object
        require_columns(self.name, self.columns, list(frame.columns))
        used = frame[sorted(set(self.columns.values()), key=str)]
        if not self.rows:
            self._sha.update(repr(list(used.columns)).encode())
        try:
            self._sha.update(hash_rows(used, index=False).to_numpy().astype("<u8").tobytes())
        except TypeError as error:
            raise TypeError(
                f"{self.name} has a cell that is not hashable, expected labels, numbers and flags"
            ) from error
        return frame


def open_log(source: object, roles: dict[str, Any], chunksize: int, name: str = "the DataFrame") -> ChunkedLog:
    """A log to be read in chunks.

    Args:
        source: a path, a DataFrame or a dataframe in partitions.
        roles: role -> name of a column or None.
        chunksize: most rows of a chunk.
        name: of a source that is no file.

    Raises:
        FileNotFoundError, TypeError: there is no such file; it is something else.
    """
    import pandas as pd

    columns = check_roles(roles)
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not path.is_file():
            raise FileNotFoundError(f"source is {str(path)!r}, expected a file that exists")
        return ChunkedLog(path, path.name, columns, chunksize)
    if isinstance(source, (pd.DataFrame, Partitioned)):
        return ChunkedLog(source, name, columns, chunksize)
    raise TypeError(f"source is {described(source)}, expected a path, a DataFrame or a Dask dataframe")


def each_log(sources: object, roles: dict[str, Any], chunksize: int) -> Iterator[ChunkedLog]:
    """One log, or those of an iterable.

    Raises:
        ValueError: the iterable is empty. Others: see `open_log`.
    """
    import pandas as pd

    if isinstance(sources, (str, os.PathLike, pd.DataFrame, Partitioned)) or not isinstance(sources, Iterable):
        yield open_log(sources, roles, chunksize)
        return
    i = -1
    for i, source in enumerate(sources):
        yield open_log(source, roles, chunksize, f"DataFrame {i}")
    if i < 0:
        raise ValueError("paths is empty, expected at least one log")


def _is_parquet(path: Path) -> bool:
    return path.suffix in (".parquet", ".pq")


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
