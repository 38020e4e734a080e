"""The page: one file that loads nothing, whatever the labels are, and that a browser opens."""

import errno
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bayes_mdp.recommend import write_report
from bayes_mdp.recommend.decision import RarelyTried
from tests.recommend.shops import ACTIONS, BAD

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = {"meta", "br", "hr", "img", "link", "input", "col"}
LOADS = {"src", "href", "xlink:href", "data", "action", "poster", "srcset", "background"}


class Page(HTMLParser):
    """Tags in pairs, every attribute that loads, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.loaded += [f"{tag} {name}={value}" for name, value in attrs if name in LOADS and str(value)[:1] != "#"]
        self.faults += [f"{tag} {name}" for name, _ in attrs if name.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> in {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: Path) -> tuple[str, Page]:
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    page.close()
    return text, page


def check(path: Path) -> Page:
    """It is one page that is closed, and that loads nothing."""
    text, page = read(path)
    assert text.startswith("<!doctype html>") and text.count("<!") == text.count("<!doctype") + text.count("<!--")
    assert not page.faults and not page.open
    assert not page.loaded and not {"script", "link", "iframe", "object", "embed", "img", "base"} & set(page.tags)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    return page


@pytest.fixture(scope="module")
def page(decided, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    write_report(decided(), path)
    return path


def test_it_loads_nothing_and_escapes_labels(page):
    parsed = check(page)
    assert BAD in parsed.text and ACTIONS[1] in parsed.text
    assert "<script" not in page.read_text() and "&lt;script&gt;" in page.read_text()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_prior_of_two_lines_and_no_pair_that_was_hardly_tried(decided, tmp_path):
    decision = replace(decided(), prior="rows: Dirichlet\nrewards: normal", rarely_tried=RarelyTried(5, (), 4))
    write_report(decision, tmp_path / "page.html")
    text = " ".join(read(tmp_path / "page.html")[1].text.split())
    assert "prior rows: Dirichlet; rewards: normal" in text and "Limits" not in text


def test_what_it_says(page, decided):
    text = " ".join(read(page)[1].text.split())
    for part in (
        "Decision from log.csv",
        decided().headline,
        "Today's practice is worth 1",
        "for choice and frequencies",
        "discount 0.5",
        "log log.csv, 600 transitions prior known_rewards (concentration 1.0, reward an array (2, 2)) key jax.random",
        "Checks of the belief",
        "Where chosen differs from the baseline",
        "policy gain 95 % interval P(no worse) what it rests on answer chosen 0.96",
        "verdict: chosen is the best of 2 policies with probability 1.000 in ",
    ):
        assert part in text
    assert 'class="answer change"' in page.read_text()


def test_names_units_and_the_start_are_said(decided, tmp_path):
    """By the columns of the log, where they are known; without them by the words of the field."""
    path = tmp_path / "x.html"
    write_report(replace(decided(), columns={"state": "mood", "action": "deed", "reward": "<pay>"}), path)
    text = " ".join(check(path).text.split())
    for part in (
        "2 states (column 'mood'), 2 actions (column 'deed')",
        "A value is the discounted sum of '<pay>' over all steps to come (discount 0.5); start: the first states of "
        "the log's 60 episodes (idle 0.",
        f"The policies, state by state mood baseline chosen idle {ACTIONS[0]} 0.5",
        f"{ACTIONS[1]} {BAD}",
        "mood deed, baseline its share deed, chosen next lead time transitions gain",
    ):
        assert part in text, part
    # The letters of a picture are shapes, which matplotlib names in a comment.
    assert "<!-- gain over the baseline, in units of '&lt;pay&gt;' -->" in path.read_text()
    write_report(decided(), path)
    text = " ".join(check(path).text.split())
    assert "2 states, 2 actions." in text and "A value is the discounted sum of rewards" in text
    assert "state action, baseline its share action, chosen" in text
    shown = path.read_text()
    assert "95 % intervals of the gains over the baseline: chosen 0." in shown
    assert shown.count("<svg") == 2 and "<details open>" in shown


def test_where_the_numbers_come_from_is_said(decided, tmp_path):
    """The command, and the SHA-256 of the file."""
    path = tmp_path / "x.html"
    write_report(replace(decided(), digest="ba7816bf"), path, command="bayes-mdp decide 'my log.csv'")
    text = " ".join(check(path).text.split())
    assert "its SHA-256 ba7816bf prior known_rewards (concentration 1.0, reward an array (2, 2)) " in text
    assert "key jax.random.key(0) version bayes-mdp " in text
    assert "command bayes-mdp decide 'my log.csv'" in text


def test_costs_are_costs(decided, tmp_path):
    """A gain is what is saved, a value of -1 costs 1."""
    path, decision = tmp_path / "x.html", decided()
    saving = replace(decision, columns={"cost": "bill"})
    write_report(saving, path)
    text = " ".join(check(path).text.split())
    value = decision.comparison.values["baseline"].mean
    assert f"Today's practice costs {-value:.4g} on average" in text and "would save 0.9" in text
    assert "it saves 0.9" in saving.headline and f"the baseline costs {-value:.4g}" in str(saving)
    assert "policy save 95 % interval" in text


def test_a_policy_that_is_not_recommended(decided, tmp_path):
    """With its reasons; without checks; where nothing differs; from a source with an odd name."""
    path = tmp_path / "x.html"
    write_report(decided(checks=False), path)
    parsed = check(path)
    assert "keep the baseline" in parsed.text and "They were left out." in parsed.text
    assert "the checks of the belief were left out (checks=False)" in parsed.text
    assert 'class="answer"' in path.read_text()
    odd = decided(baseline=(1, 1))
    write_report(replace(odd, source=f"{BAD}.csv", split=0.0), path)
    parsed = check(path)
    assert f"Decision from {BAD}.csv" in parsed.text
    assert "keep the baseline: no policy that the log supports is better on average" in parsed.text
    for absent in ("What each policy gains", "differs from the baseline", "P(no worse"):
        assert absent not in parsed.text, absent


def test_long_labels_and_long_tables_are_shown(decided, tmp_path):
    """A label is written as it is; of 300 rows 200 are shown, and the number of the others."""
    label = "a state with a name that is longer than fifty letters, as such names are"
    one: Any = decided().differences.iloc[:1].assign(state=label)
    path = tmp_path / "x.html"
    write_report(replace(decided(), differences=pd.concat([one] * 300)), path)
    parsed = check(path)
    assert parsed.text.count(label) == 200 and "and 100 more." in parsed.text


def test_a_file_is_replaced_as_a_whole(decided, tmp_path, monkeypatch):
    path = tmp_path / "x.html"
    path.write_text("old")

    def full(self, *arguments, **options):
        self.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="no space left on the device for"):
            write_report(decided(), path)
    assert path.read_text() == "old" and [x.name for x in tmp_path.iterdir()] == ["x.html"]
    write_report(decided(), path)
    check(path)
    assert [x.name for x in tmp_path.iterdir()] == ["x.html"]


def test_what_is_no_decision_is_refused(decided, tmp_path):
    bad: Any = 3
    with pytest.raises(TypeError, match="result is 3, expected a Decision"):
        write_report(bad, tmp_path / "x.html")
    with pytest.raises((OSError, ValueError)):
        write_report(decided(), tmp_path / "nowhere" / "x.html")


def test_checks_and_reasons_are_tables(decided, tmp_path):
    """No wall of text: what abstains, what would decide, and each check have a row."""
    doubtful = decided(concentration=100.0)
    path = tmp_path / "x.html"
    write_report(doubtful, path)
    text = " ".join(check(path).text.split())
    for part in (*doubtful.comparison.verdict.reasons, *doubtful.comparison.verdict.would_decide):
        assert part in text
    assert doubtful.criticism is not None and doubtful.criticism.findings
    assert f"A check fails where p is {doubtful.criticism.threshold:.3g} or less." in text
    assert all(finding.text in text for finding in doubtful.criticism.findings.values())
    # What is known of the belief is the one text of many lines, folded.
    assert path.read_text().count("<pre>") == 1


def chromium(folder: Path, page: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """A browser without a window, without a network, with nothing of the user's; skipped where none is installed."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed: the page was not opened in a browser")
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    alone = [
        f"--user-data-dir={folder / 'profile'}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--enable-logging=stderr",
    ]
    command = [browser, *quiet, *alone, *options, page.as_uri()]
    return subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)


def test_a_browser_renders_it(page, tmp_path):
    """Its script-free DOM holds the tables, the labels as text, and the console has no complaint."""
    found = chromium(tmp_path, page, "--dump-dom")
    assert "Decision from log.csv" in found.stdout and found.stdout.count("<table") >= 3 and "<svg" in found.stdout
    assert "&lt;script&gt;" in found.stdout and "<script" not in found.stdout
    assert "CONSOLE" not in found.stderr and "Uncaught" not in found.stderr


def test_a_browser_prints_it(page, tmp_path):
    """A PDF of one to four pages."""
    paper = tmp_path / "page.pdf"
    chromium(tmp_path, page, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", content)) <= 4


def test_a_browser_shows_it(page, tmp_path):
    """Not a blank page: the picture has more than one colour's worth of bytes."""
    shot = tmp_path / "page.png"
    chromium(tmp_path, page, "--window-size=1000,1600", f"--screenshot={shot}")
    assert shot.stat().st_size > 20_000
