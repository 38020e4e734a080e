"""Numbers along x: as many as there is room for, round, inside the axes."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bayes_mdp.utils.number_axis import MOST, number_x
from tests.utils.test_axis_labels import overlaps


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
