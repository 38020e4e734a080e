"""`fold`: keywords of a test, of which those that are fields of an options record are put into one."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def fold(record: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a call: `options`, the record with its fields among `given`, and the others as they are.

    What `given` has as `options` is the record whose fields are replaced, or something that is none, which stays.
    """
    names = {field.name for field in dataclasses.fields(record)} & given.keys()
    fields, others = ({name: given[name] for name in given.keys() & part} for part in (names, given.keys() - names))
    base = others.pop("options", None)
    if base is not None and not dataclasses.is_dataclass(base):
        return {**others, "options": base}
    known = {} if base is None else {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    return {**others, "options": record(**{**known, **fields})}
