"""`fold`: keywords of a test, of which those that are fields of an options record are put into one."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def fold(record: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a call: `options`, the record with its fields among `given`, and the others as they are."""
    fields = {field.name for field in dataclasses.fields(record)} & given.keys()
    others = {name: value for name, value in given.items() if name not in fields}
    return {**others, "options": record(**{name: given[name] for name in fields})}
