"""The page of subgroups: who should get what, tipping points, and labels that would break a page."""

from collections.abc import Hashable
from types import MappingProxyType

import numpy as np

import bayes_mdp as bm
from bayes_mdp.decisions.choosing.criteria import Improvement
from bayes_mdp.inference.context_posterior import ContextPosterior, Tables
from bayes_mdp.mdp.by_label import ProductLabel
from bayes_mdp.mdp.contexts import Column, Contexts, ContextSpace
from bayes_mdp.recommend import write_report
from bayes_mdp.recommend.subgroups import EVERYBODY, SubgroupDecision, SubgroupVerdict
from tests.recommend.shops import BAD
from tests.recommend.test_report import Page

LOW, HIGH = np.linspace(-0.5, 1.0, 200), np.linspace(0.1, 1.0, 200)


def verdict(pattern, share, tipping, **gains) -> SubgroupVerdict:
    improvements = {name: Improvement(gain, 0.0, 0.95) for name, gain in gains.items()}
    return SubgroupVerdict(pattern, share, improvements, tipping)


def decision(bad: str = "frail") -> SubgroupDecision:
    contexts = Contexts([Column(bad, np.array([0, 1]), ("no", "yes"))], np.ones(2), np.array([3.0, 1.0]))
    rows = np.ones((2, 2, 1, 2, 1))
    posterior = ContextPosterior(
        ContextSpace(1, 2, contexts=contexts), None, "exact", together=Tables(rows, np.zeros((2, 2, 1, 2)))
    )
    names = {ProductLabel((x,), (bad,)): x for x in ("no", "yes")}
    verdicts: dict[tuple[Hashable, ...], SubgroupVerdict] = {
        key: verdict(
            key, 0.75 if x == "no" else 0.25, {"drug": 1.176} if x == "no" else {}, drug=HIGH if x == "no" else LOW
        )
        for key, x in names.items()
    }
    whole = verdict(EVERYBODY, 1.0, {"drug": float("inf")}, drug=HIGH)
    return SubgroupDecision(
        (bad,),
        whole,
        MappingProxyType(verdicts),
        posterior,
        np.full((2, 1, 2), 0.5),
        "subgroups differ by the model",
        "clinic.csv",
        {"reward": "effect"},
        "abc",
        1234,
        bm.Discounted(0.95),
        False,
    )


def read(tmp_path, result) -> tuple[str, Page]:
    path = tmp_path / "page.html"
    write_report(result, path, command="bayes-mdp decide clinic.csv")
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    return text, page


def test_the_page_says_who_and_what_would_undo_it(tmp_path):
    text, page = read(tmp_path, decision())
    assert not page.faults and not page.open and not page.loaded
    assert "A policy is recommended for 1 of 2 subgroups. drug for frail=no." in text
    assert "Not shown to be no worse than what the log did: frail=yes." in text
    rows = [row for row in text.split("<tr>") if 'class="words">frail' in row or 'class="words">everybody' in row]
    assert [("recommended" in row, "abstain" in row) for row in rows] == [(True, False), (True, False), (False, True)]
    assert ">none<" in rows[0] and ">1.18<" in rows[1] and ">-<" in rows[2]
    assert "tipping point" in text and "1,234 transitions" in text and "discounted sum of &#x27;effect&#x27;" in text


def test_labels_that_hold_tags_are_shown_as_they_are(tmp_path):
    text, page = read(tmp_path, decision(BAD))
    assert not page.faults and not page.open and not page.loaded
    assert "<script" not in text
