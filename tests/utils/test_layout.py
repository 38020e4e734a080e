"""What a result says, as text and as HTML: all of it, wrapped, escaped, in balanced tags."""

from html.parser import HTMLParser

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.utils.layout import WIDTH, Bullets, Facts, Section, Table

TAGS = {"div", "strong", "details", "summary", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
HOSTILE = [
    "a < b & c",
    "<script>alert(1)</script>",
    "'quoted' \"twice\"",
    "</table>",
    "± 95 % of it",
    "word " * 40,
    "x",
]


class Reader(HTMLParser):
    """The text of a page, piece by piece, and its tags, which must be balanced."""

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
    assert not reader.open and not set(reader.seen) - TAGS
    return reader


def words_of(text):
    return text.replace("- ", " ").split()


def draw_section(rng, depth=0):
    """Any parts in any order, their texts from the hostile ones."""
    text = lambda: HOSTILE[rng.integers(len(HOSTILE))]  # noqa: E731
    parts = []
    for kind in rng.integers(5 - (depth > 1), size=rng.integers(5)):
        if kind == 0:
            parts.append(text())
        elif kind == 1:
            parts.append(Facts({f"name {i}": text() for i in range(rng.integers(1, 4))}))
        elif kind == 2:
            parts.append(Bullets([text() for _ in range(rng.integers(1, 4))]))
        elif kind == 3:
            width = rng.integers(1, 4)
            parts.append(Table(["head"] * width, [[text()] * width for _ in range(rng.integers(3))]))
        else:
            parts.append(draw_section(rng, depth + 1))
    return Section(text(), parts)


@pytest.mark.parametrize("seed", range(50))
def test_text_and_html_say_the_same(seed):
    """Hostile texts in any order: the words between the tags are the words of the text, and no others."""
    section = draw_section(np.random.default_rng(seed))
    html = read(section.html())
    assert words_of(" ".join(html.text)) == words_of(section.text())


def test_sentences_are_wrapped_and_tables_are_not():
    sentence = "word " * 60
    section = Section(
        sentence, [sentence, Facts({"name": sentence}), Bullets([sentence]), Section("inner", [sentence])]
    )
    assert max(map(len, section.text().splitlines())) <= WIDTH
    wide = Table(["a" * 100, "b"], [["c", "1.5"]])
    assert Section("title", [wide]).text().splitlines()[1:] == [f"  {'a' * 100}    b", f"  c{' ' * 99}  1.5"]


def test_a_number_and_its_percent_sign_stay_together():
    for length in range(70, 95):
        assert not any(
            line.strip().startswith("%") for line in Section("x" * length + " 95 % of it").text().splitlines()
        )


def test_words_begin_at_the_left_and_numbers_end_at_the_right():
    table = Table(("policy", "gain", "why"), [("greedy", "1.25", "best"), ("b", "10", "-")], (0, 2))
    assert Section("t", [table]).text().splitlines()[1:] == [
        "  policy  gain  why",
        "  greedy  1.25  best",
        "  b         10  -",
    ]


def test_results_of_the_package():
    space = bm.StateActionSpace(2, 2, states=("<here>", "there"))
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), None, space=space)
    value = bm.policy_value(jax.random.key(1), posterior, np.zeros(2, int), bm.Discounted(0.5), num_draws=20)
    for shown in (posterior, value, bm.explain(bm.models.dirichlet_bernoulli(), space)):
        html = read(shown._repr_html_())
        assert words_of(" ".join(html.text)) == words_of(str(shown))
        assert "<here>" not in shown._repr_html_()
