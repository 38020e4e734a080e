"""Pages of the documentation that messages name are there."""

import re
from pathlib import Path

from bayes_mdp.utils.pages import see

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"""\bsee\(['"]([^'"]+)['"]\)""")


def test_every_page_that_a_message_names_is_there():
    named = {
        page: path.relative_to(ROOT)
        for path in (ROOT / "bayes_mdp").rglob("*.py")
        for page in CALL.findall(path.read_text())
    }
    assert len(named) >= 6
    missing = {page: path for page, path in named.items() if not (ROOT / "docs" / f"{page}.md").is_file()}
    assert not missing


def test_words():
    assert see("how-to/read-a-log") == "(see docs/how-to/read-a-log.md)"
