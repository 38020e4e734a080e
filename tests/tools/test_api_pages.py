"""The reference: every public name on one page, and an index by task that names what exists."""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from tools.public_names import answers, find, identity, pages, public_names

ROOT = Path(__file__).resolve().parents[2]
SHORT = {name.removeprefix("bayes_mdp.") for name in public_names()}


@pytest.fixture(scope="module")
def api():
    """`docs/api_pages.py` and `docs/api_tasks.py`."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import api_pages  # pyright: ignore[reportMissingImports]
        import api_tasks  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return api_pages, api_tasks


def test_the_tasks_name_what_exists_once(api):
    for task in api[1].TASKS:
        assert set(task.names) <= SHORT, task.title
        assert len(set(task.names)) == len(task.names) and 5 < len(task.names) < 22
    named = {name for task in api[1].TASKS for name in task.names}
    assert {name for name in SHORT if name.startswith("plots.")} <= named
    listed = [name for name in SHORT if "." not in name]
    assert set(listed) - named == {"Counts"}  # of the face, all but what only writers of agents need


def test_every_name_is_documented_once_and_every_link_has_a_file(api, tmp_path):
    (tmp_path / "gone.md").write_text("a page of a name that was deleted")
    api[0].write_api_pages(tmp_path)
    pages = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    entries = re.findall(r"^\.\. auto(?:class|function):: bayes_mdp\.(\S+)$", "\n".join(pages.values()), re.M)
    returned = [name.removeprefix("bayes_mdp.") for names in answers().values() for name in names]
    assert sorted(entries) == sorted([*SHORT, *returned]) and "gone.md" not in pages
    for function, names in answers().items():  # what a function returns stands on its page
        text = next(text for text in pages.values() if f"autofunction:: {function}\n" in text)
        assert all(f"autoclass:: {name}\n" in text for name in names)
    assert all(f"{api[0]._file(f'bayes_mdp.{name}')}.md" in pages for name in api[0].NAMED)
    assert len({name.lower() for name in pages}) == len(pages)  # as many on any file system
    for name, text in pages.items():
        targets = [link for link in re.findall(r"\]\(([^)#\s]+\.md)\)", text) if "/" not in link]
        assert [link for link in targets if link not in pages] == [], name
    index = pages["index.md"]
    row = r"\| \[`policy_value`\]\(policy_value\.md\) \| .*\w.* \|"
    assert re.search(row, index) and index.count("## ") == len(api[1].TASKS) + 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")}
    api[0].write_api_pages(tmp_path)  # nothing is written again
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")} == before


def test_a_sentence_fits_a_cell(api):
    summary = api[0]._summary("bayes_mdp.evidence")
    assert "\\|" in summary and "\n" not in summary and not re.search(r"(?<!\\)\|", summary)


def test_whatever_a_function_returns_is_documented():
    """A class of the package in the annotation of a public function is a public name, or stands below a function."""
    below = [name for names in answers().values() for name in names]
    assert "bayes_mdp.decisions.policy_evaluation.PolicyValue" in answers()["bayes_mdp.policy_value"]
    assert len(set(below)) == len(below) and not {name.rpartition(".")[2] for name in below} & SHORT
    known = {identity(find(name)) for name in [*public_names(), *below]}
    for name in public_names():
        returned = getattr(find(name), "__annotations__", {}).get("return")
        for part in [returned, *get_args(returned)]:
            ours = isinstance(part, type) and part.__module__.startswith("bayes_mdp.")
            protocol = getattr(part, "_is_protocol", False)
            assert not ours or protocol or part.__name__.startswith("_") or identity(part) in known, (name, part)


def test_a_package_says_where_to_start_and_names_what_it_has():
    """The first screen of each page of the reference; the front page has its own."""
    public = {name.rpartition(".")[2] for name in SHORT}
    for page in pages():
        listed = {name.rpartition(".")[2] for name in [*page.own, *page.elsewhere]}
        if page.own and page.package != "bayes_mdp":
            start = re.search(r"Start with ([^.;]+)", import_module(page.package).__doc__ or "")
            assert start, page.package
            named = re.findall(r"`(\w+)`", start[1])
            assert set(named[:1]) <= listed and set(named) <= public, page.package
            assert named or page.package == "bayes_mdp.mdp"  # where one file is to be read first
