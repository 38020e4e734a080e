"""Summaries in a notebook: the whole text, escaped, in balanced tags."""

from html.parser import HTMLParser

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.utils.messages import as_html


class Reader(HTMLParser):
    """The text of a page and its tags, which must be balanced."""

    def __init__(self):
        super().__init__()
        self.text, self.open, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open and not set(reader.seen) - {"div", "details", "summary", "pre"}
    return reader


WORDS = ["a < b & c", "<script>alert(1)</script>", "  indented", "    more", "", "'quoted' \"twice\"", "</pre>", "± .5"]


@pytest.mark.parametrize("seed", range(50))
def test_the_whole_text_is_there(seed):
    """Lines drawn from hostile ones, in any order: the text between the tags is the lines, nothing is lost or run."""
    rng = np.random.default_rng(seed)
    lines = [WORDS[i] for i in rng.integers(len(WORDS), size=rng.integers(1, 12))]
    found = read(as_html("\n".join(lines)))
    words = [word for part in found.text for word in part.split("\n")]
    assert [word for word in words if word] == [line for line in lines if line]


def test_sections():
    found = read(as_html("Head\n  one\n  two\nAlone\nNext\n  three"))
    assert found.seen.count("details") == 2 and found.text == ["Head", "  one\n  two", "Alone", "Next", "  three"]


def test_summaries_of_the_package():
    space = bm.StateActionSpace(2, 2, states=("<here>", "there"))
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
    value = bm.policy_value(jax.random.key(1), posterior, np.zeros(2, int), bm.Discounted(0.5), num_draws=20)
    for shown in (posterior, value, bm.explain(bm.models.dirichlet_bernoulli(), space)):
        text = "".join(read(shown._repr_html_()).text)
        assert text.replace("\n", "") == str(shown).replace("\n", "")
