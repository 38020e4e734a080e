"""Which notebooks a build runs: all of them, or one part of several (continuous integration runs them in turn)."""

import re
from pathlib import Path

HEAD = re.compile(r"\A---\n.*?^kernelspec:.*?^---$", flags=re.S | re.M)
"""A page that is a notebook says so in its first lines."""


def notebooks(docs: Path) -> list[str]:
    """The pages under `docs` that are notebooks, as paths from there, sorted."""
    pages = (page for page in docs.rglob("*.md") if "_build" not in page.parts)
    return sorted(page.relative_to(docs).as_posix() for page in pages if HEAD.match(page.read_text(encoding="utf-8")))


def notebooks_to_leave(docs: Path, part: str) -> list[str]:
    """The notebooks that a build does not run.

    Args:
        docs: folder of the pages.
        part: "K/N": of the notebooks in order, the K-th of every N is run; "0/1" all, "0/0" none.

    Raises:
        ValueError: `part` is no such text.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    number, parts = (int(match[1]), int(match[2])) if match else (1, 0)
    if match is None or (number >= parts and (number, parts) != (0, 0)):
        raise ValueError(f"BAYES_MDP_DOCS_RUN is {part!r}, expected K/N with K < N, or 0/0")
    return [page for i, page in enumerate(notebooks(docs)) if not parts or i % parts != number]
