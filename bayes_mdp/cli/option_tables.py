"""Tables that are options: CSV files with named columns."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_table(option: str, path: str, columns: list[str]) -> "pd.DataFrame":
    """A CSV file that has these columns.

    Args:
        option: in messages.
        path: of the file.
        columns: that it needs.

    Raises:
        ValueError: it is no CSV file; a column is missing. FileNotFoundError: there is no such file.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{option} is {path!r}, expected a CSV file: {error}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(f"{option}: {path!r} has no column {missing[0]!r}, expected {', '.join(map(repr, columns))}")
    return table
