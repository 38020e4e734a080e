"""Figures bring their picture to notebooks, without pyplot; numbers along x are round, and never overlap."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayes_mdp.utils.figures import MOST, NotebookFigure, number_x
from tests.utils.test_axis_labels import overlaps

PLOT = """
import sys
import numpy as np
import bayes_mdp as bm
figure = bm.plots.plot_values(np.zeros((3, 2)))
assert figure._repr_png_().startswith(b"\\x89PNG"), "no picture"
assert "matplotlib.pyplot" not in sys.modules, "pyplot was imported"
"""


def test_the_picture_is_a_png():
    figure = NotebookFigure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_what_is_drawn_leaves_pyplot_alone():
    subprocess.run([sys.executable, "-c", PLOT], check=True)


def shown(width, low, high):
    """What stands under axes from `low` to `high` in a figure of this width in inches."""
    figure = Figure((width, 1.5), layout="constrained")
    axes = figure.subplots()
    axes.set_xlim(low, high)
    number_x(axes)
    assert overlaps(figure) == 0
    return [text.get_text() for text in axes.get_xticklabels()]


@pytest.mark.parametrize(
    ("width", "low", "high", "expected"),
    [
        (8.0, 0.0, 6.0, [*"0123456"]),
        (
            8.0,
            -2000.0,
            0.0,
            ["\N{MINUS SIGN}2,000", "\N{MINUS SIGN}1,500", "\N{MINUS SIGN}1,000", "\N{MINUS SIGN}500", "0"],
        ),
        (1.6, 1e6, 1e6 + 0.3, ["1,000,000.2"]),
    ],
)
def test_numbers(width, low, high, expected):
    assert shown(width, low, high) == expected


def test_more_room_never_shows_less():
    counts = [len(shown(width, -63_000.0, -12_000.0)) for width in (1.2, 2.4, 4.8, 9.6)]
    assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] <= MOST + 1 and counts[-1] > counts[0]


def test_axes_in_a_part_of_a_figure():
    figure = Figure((6.0, 2.0), layout="constrained")
    parts: Any = figure.subfigures(1, 2)
    axes = parts[1].subplots()
    axes.plot(np.array([-60_000.0, -30_000.0]), [0.0, 1.0])
    axes.set_yticks([])  # those outside the view count as texts too
    number_x(axes)
    assert overlaps(parts[1].figure) == 0 and axes.get_xticklabels()[-1].get_text().endswith(",000")
