"""Words that people search for lead to pages that exist, each to one."""

import sys
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def words():
    """`docs/search_words.py`."""
    sys.path.insert(0, str(DOCS))
    try:
        import search_words  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(DOCS))
    return search_words


def test_each_word_leads_to_one_page_that_exists(words):
    for page, line in words.SEARCH_WORDS.items():
        assert (DOCS / f"{page}.md").is_file() and line == line.strip(" ,")
    entries = Counter(word.lower() for line in words.SEARCH_WORDS.values() for word in line.split(", "))
    assert max(entries.values()) == 1


def test_words_stand_below_the_title(words):
    source = ["---\nhead: 1\n---\n# Legal actions\n\ntext\n\n# not a title\n"]
    words.with_search_words(None, "how-to/legal-actions", source)
    first = "```{index} ! illegal actions, ! forbidden actions, ! action mask\n```"
    assert source == [f"---\nhead: 1\n---\n# Legal actions\n\n{first}\n\ntext\n\n# not a title\n"]
    untouched = ["# A page\n"]
    words.with_search_words(None, "how-to/no-such-page", untouched)
    assert untouched == ["# A page\n"]
