"""Tables that are options: CSV files with named columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_table(option: str, path: str, columns: list[str], more_labels: Sequence[str] = ()) -> "pd.DataFrame":
    """A CSV file that has these columns, which hold labels: they are read as text ("007" is not 7, "NA" is a label).

    Args:
        option: in messages.
        path: of the file.
        columns: of labels, that it needs.
        more_labels: columns of labels that it may have.

    Raises:
        ValueError: it is no CSV file; a column is missing. FileNotFoundError: there is no such file.
    """
    import pandas as pd

    from bayes_mdp.envs.logs.tables import MISSING_NUMBER, separator

    labels, between = {*columns, *more_labels}, separator(Path(path))
    try:
        others = set(pd.read_csv(path, sep=between, nrows=0).columns) - labels
        table = pd.read_csv(
            path,
            sep=between,
            dtype=dict.fromkeys(labels, str),
            keep_default_na=False,
            na_values={name: list(MISSING_NUMBER) for name in others},
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{option} is {path!r}, expected a CSV file: {error}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(f"{option}: {path!r} has no column {missing[0]!r}, expected {', '.join(map(repr, columns))}")
    return table
