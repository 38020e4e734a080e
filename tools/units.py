"""Which numbers have a unit, and whether a docstring says which: by the table of `docs/reference/units.md`.

The first column of the table has the quantities, the third one the names of parameters that always are such a quantity.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "units.md"
REAL = frozenset({"float", "Float", "Real", "Num", "Inexact", "RealLike", "Numbers"})
"""Types of numbers that are measured: whole numbers count or index, and say so by the rule of parameters."""
NOT_INSIDE = frozenset({"Callable", "Literal", "Int", "Bool", "Key", "UInt", "Shaped", "Integer", "Complex"})
"""Types in whose brackets there is no such number."""
REFERENCE = re.compile(r"\b[Aa]s (?:in|of|for|that of|those of) `|\b[Ss]ee `")
"""The text stands at another name."""
UNIT = re.compile(r"\bunits?\b|[\[(]0, 1[\])]")


class Units(NamedTuple):
    """The table.

    Args:
        quantities: words that name a quantity, as one pattern.
        names: parameters whose name says which quantity they are.
    """

    quantities: re.Pattern[str]
    names: frozenset[str]


@cache
def units() -> Units:
    """The table of the page."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [line.strip("|").split("|") for line in lines[2:]]  # after the heading and the line below it
    plural = "|".join(_plural(word.strip()) for row in cells for word in row[0].split(","))
    names = frozenset(name for row in cells for name in re.findall(r"`(\w+)`", row[2]))
    return Units(re.compile(rf"\b(?:{plural})\b", re.I), names)


def _plural(word: str) -> str:
    """A pattern of a noun in singular and plural; spaces and hyphens are the same."""
    stem = re.sub(r"[ -]", "[ -]", word)
    return rf"{stem[:-1]}(?:y|ies)" if word.endswith("y") else rf"{stem}(?:s|es)?"


def needs_unit(annotation: ast.expr | None) -> bool:
    """Whether an annotation names a real number, or an array of them."""
    if annotation is None:
        return False
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return False  # the axes of an array
    if last_name(annotation) in REAL:
        return True
    if isinstance(annotation, ast.Subscript):
        outer = last_name(annotation.value)
        if outer in REAL or outer in NOT_INSIDE:
            return outer in REAL
    return any(needs_unit(child) for child in ast.iter_child_nodes(annotation) if isinstance(child, ast.expr))


def last_name(node: ast.expr) -> str:
    """The name of a type or a function, without the module before it; empty: it has none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def says_unit(text: str) -> bool:
    """Whether a text names a quantity of the table, a unit, a range from 0 to 1, or where the text stands."""
    return any(pattern.search(text) for pattern in (units().quantities, UNIT, REFERENCE))
