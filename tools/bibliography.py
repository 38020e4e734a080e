"""The keys of the papers that docstrings and pages cite: those of `docs/references.bib`."""

import re
from functools import cache
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "docs" / "references.bib"


@cache
def keys() -> frozenset[str]:
    """The keys of the bibliography."""
    return frozenset(re.findall(r"^@\w+\{([^,]+),", FILE.read_text(encoding="utf-8"), flags=re.M))
