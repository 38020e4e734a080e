"""The pictures: every draw in its bin, on its side of "no worse", zero in sight, and words for who cannot see it."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bayes_mdp.decisions.choosing.safe_improvement import Improvement
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.mdp import Discounted
from bayes_mdp.recommend import report_figures
from bayes_mdp.recommend.report_figures import NO_WORSE, WORSE, gain_figure, gain_histogram, values_figure
from tests.experiments.plots.test_axis_labels import overlaps

CASES = {
    "around zero": (np.random.default_rng(0).normal(size=400), 0.0),
    "with slack": (np.random.default_rng(1).normal(-0.5, 1, size=400), -0.7),
    "far above": (np.random.default_rng(2).normal(100, 1, size=400), 0.0),
    "far below": (np.random.default_rng(3).normal(-100, 1, size=400), 0.0),
    "on the threshold": (np.array([0.0, 0.0, -1.0, 1.0, 0.0]), 0.0),
    "just below": (np.array([-1e-12, 0.0, 1.0]), 0.0),
    "all the same": (np.full(7, 0.25), 0.0),
    "all zero": (np.zeros(7), 0.0),
    "the same up to rounding": (1e6 + 1e-8 * np.arange(4), 0.0),
    "one of each": (np.array([-3.0, 5.0]), 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_every_draw_is_in_its_bin(name):
    """By a loop over draws: its bin is where it is, and on the side that its gain is on."""
    gain, least = CASES[name]
    edges, counts = gain_histogram(gain, least)
    assert counts.sum() == len(gain) and len(counts) <= 32 and len(edges) == len(counts) + 1
    widths = np.diff(edges)
    assert (widths > 0).all() and np.ptp(widths) <= 1e-9 * max(1.0, np.abs(edges).max())
    slack = 1e-9 * max(1.0, np.abs(gain).max())
    left = sum(int(count) for low, count in zip(edges[:-1], counts, strict=True) if low < least - slack)
    assert left == sum(1 for x in gain if x < least)
    near = sum(any(low - slack <= x <= high + slack for low, high in pairwise(edges)) for x in gain)
    assert near == len(gain)


def shares(drawing: str) -> list[str]:
    """The percentages that are said."""
    return re.findall(r"worse: ([0-9.]+%)", drawing.split(">", 1)[0])


def bars(drawing: str, color: str) -> int:
    """How many bars of this colour are drawn."""
    return len(re.findall(rf"fill: {color}", drawing))


def test_the_picture_says_what_the_draws_say():
    gain = np.concatenate([np.linspace(-1, -0.01, 10), np.linspace(0.01, 9, 90)])
    drawing = gain_figure(Improvement(gain, 0.0, 0.95))
    assert drawing.startswith(
        '<svg role="img" aria-label="Histogram of the gain over the baseline in 100 draws; worse: 10.0%'
    )
    assert shares(drawing) == ["10.0%", "90.0%"]
    counted = gain_histogram(gain, 0.0)
    below = sum(int(n > 0) for low, n in zip(counted[0][:-1], counted[1], strict=True) if low < -1e-9)
    assert bars(drawing, WORSE) >= below > 0 and bars(drawing, NO_WORSE) > bars(drawing, WORSE)
    # With slack the ten are no worse.
    kind = gain_figure(Improvement(gain, 2.0, 0.95))
    assert shares(kind) == ["0.0%", "100.0%"] and bars(kind, WORSE) == 1  # the word alone


@pytest.mark.parametrize("name", CASES)
def test_every_picture_is_drawn_once_and_again(name):
    gain, least = CASES[name]
    improvement = Improvement(gain, -least, 0.95)
    drawing = gain_figure(improvement)
    assert drawing.endswith("</svg>\n") and shares(drawing)[1] == f"{improvement.prob:.1%}"


RANGES = [
    (-63_000.0, -12_000.0),
    (-60_000.0, -30_000.0),
    (-1.23e9, 1e9),
    (0.001, 0.002),
    (1e6 + 0.1, 1e6 + 0.3),
    (5.0, 5.0),
    (-1e-7, 2e-7),
]


def drawn(monkeypatch, low, high, count=2) -> Any:
    """The figure of candidates whose intervals are all the same."""
    made = figures_made(monkeypatch)
    draws = np.array([low, high])
    value = PolicyValue(draws, draws.mean().item(), 1.0, (low, high), 0.0, np.ones(2) / 2, False, None, Discounted(0.9))
    values_figure({f"candidate {i}": value for i in range(count)}, "value: mean and 95 % interval")
    return made[-1]


def figures_made(monkeypatch) -> list[Any]:
    """The figures that are made from now on."""
    made, make = [], report_figures._figure
    monkeypatch.setattr(report_figures, "_figure", lambda height: made.append(make(height)) or made[-1])
    return made


@pytest.mark.parametrize("width", [2.4, report_figures.WIDTH, 8.0])
@pytest.mark.parametrize("place", RANGES)
def test_numbers_under_the_candidates_do_not_overlap(width, place, monkeypatch):
    monkeypatch.setattr(report_figures, "WIDTH", width)
    figure = drawn(monkeypatch, *place)
    assert overlaps(figure) == 0
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels and len(set(labels)) == len(labels)
    low, high = figure.axes[0].get_xlim()
    assert all(low <= float(x.replace(",", "").replace("\N{MINUS SIGN}", "-")) <= high for x in labels)


def test_thousands_are_apart_and_many_candidates_have_room(monkeypatch):
    labels = [text.get_text() for text in drawn(monkeypatch, -63_000.0, -12_000.0).axes[0].get_xticklabels()]
    assert labels[0] == "\N{MINUS SIGN}60,000" and len(labels) >= 3
    assert overlaps(drawn(monkeypatch, 0.0, 1.0, count=9)) == 0


def test_numbers_as_matplotlib_places_them_do_overlap(monkeypatch):
    """What the check must catch."""
    monkeypatch.setattr(report_figures, "number_x", lambda axes: None)
    assert overlaps(drawn(monkeypatch, -60_000.0, -30_000.0)) > 0


def test_numbers_under_the_gain_do_not_overlap(monkeypatch):
    made = figures_made(monkeypatch)
    gain_figure(Improvement(np.random.default_rng(0).normal(5e5, 1e6, size=100), 0.0, 0.95))
    assert overlaps(made[-1]) == 0 and made[-1].axes[0].get_xticklabels()[-1].get_text().endswith(",000")
