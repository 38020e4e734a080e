"""Tables of frozen records, kept as CSV files of this folder."""

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

Record = TypeVar("Record")


def stored_records(kind: type[Record], file: str) -> list[Record]:
    """The records of `file`, a CSV file of this folder with a column for each field of the dataclass `kind`."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    return [kind(**{k: types[k](v) for k, v in row.items()}) for row in csv.DictReader(io.StringIO(text))]


def records_csv(kind: type[Record], records: Iterable[Record]) -> str:
    """As the text of such a file; numbers to four digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(kind)])  # type: ignore[arg-type]
    for record in records:
        writer.writerow([f"{x:.4g}" if isinstance(x, float) else x for x in astuple(record)])  # type: ignore[arg-type]
    return out.getvalue()
