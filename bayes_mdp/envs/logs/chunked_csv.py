"""CSV files in chunks, fast where labels are whole numbers: those are parsed as numbers, as long as nothing is lost.

Text such as "007" is a label of its own, no number. A file in which no cell is such a spelling of a whole number can be
parsed as numbers: their text is known again from them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayes_mdp.envs.logs.columns import WHOLE
from bayes_mdp.envs.logs.tables import MISSING_NUMBER, header, parsing, require_columns, separator

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("reward", "cost", "step")
_LABELS = ("state", "next_state", "action", "episode")
_PLAIN = (".csv", ".tsv", ".txt")
_BLOCK = 2**18
_MARGIN = 3


def csv_frames(path: Path, columns: dict[str, str], chunksize: int) -> Iterator["pd.DataFrame"]:
    """Labels as whole numbers or text, flags as they are, rewards, costs and steps as numbers (text where one is not).

    Args:
        path: the file.
        columns: role -> name of the column.
        chunksize: most rows of a frame.

    Raises:
        ValueError: it cannot be read as a table, a column that is missing.
    """
    import pandas as pd

    try:
        require_columns(path.name, columns, header(path))
        numbers = {columns[role] for role in _NUMBERS if role in columns}
        labels = {columns[role] for role in _LABELS if role in columns} - numbers
        kinds: dict[str, Any] = dict.fromkeys(numbers, "float64")
        if _has_odd_numbers(path):
            kinds |= dict.fromkeys(labels, object)
        done = 0
        doubtful: set[str] = set()  # numbers with holes, or with decimals: the text of the chunk says which
        # Read on until a column turns out to be of another kind; then once more, from the same chunk on.
        while True:
            changed = {}
            try:
                for i, frame in enumerate(_parsed(path, columns, numbers, chunksize, kinds)):
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


def _parsed(
    path: Path, columns: dict[str, str], numbers: set[str], chunksize: int, kinds: dict[str, Any]
) -> Iterator["pd.DataFrame"]:
    import pandas as pd

    with parsing(path):
        reader = pd.read_csv(  # all columns: with `usecols` pandas drops surplus cells in silence
            path,
            sep=separator(path),
            dtype={column: kind for column, kind in kinds.items() if kind is not None},
            keep_default_na=False,
            na_values={c: list(MISSING_NUMBER) if c in numbers else [""] for c in columns.values()},
            low_memory=False,
            chunksize=chunksize,
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
