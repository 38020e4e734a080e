"""Names on axes: none overlaps another, whatever their number and length."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import bayes_mdp as bm
from bayes_mdp.utils.axis_labels import LONGEST, label_axis, shorten

WARDS = ["severe sepsis with organ failure", "mild", "septic shock, ventilated", "discharged alive", "on the ward"]
CARE = ["antibiotics and fluids", "wait and see", "transfer to intensive care"]


class Seen:
    """What `plot_posterior` needs, of any size."""

    def __init__(self, states, actions):
        self.space = bm.StateActionSpace(len(states), len(actions), states=states, actions=actions)

    def mean_mdp(self):
        """Uniform rows."""
        s, a = self.space.shape
        return bm.MDP(np.full((s, a, s), 1.0 / s), np.arange(s * a, dtype=float).reshape(s, a))

    def visit_counts(self):
        """One each."""
        return np.ones(self.space.shape)


def overlaps(figure):
    """How many pairs of texts of the figure (titles, labels, names) lie on each other."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts: list[Any] = [] if figure._suptitle is None else [figure._suptitle]
    for axes in figure.axes:
        texts += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts if text.get_text() and text.get_visible()]
    boxes = [box.padded(-1.0) for box in boxes]  # neighbours may touch
    return sum(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize(
    ("states", "actions"),
    [
        (["new", "worn", "broken"], ["run", "service"]),
        (WARDS, CARE),
        ([f"inventory level {i}" for i in range(40)], [f"order {i} pallets" for i in range(6)]),
        (list(range(100)), list(range(3))),
        (list(range(2)), [f"dose {i}" for i in range(25)]),
        ([f"s{i}" for i in range(13)], ["a", "b"]),
    ],
)
def test_nothing_overlaps_in_the_figure_of_a_posterior(states, actions):
    figure = bm.plots.plot_posterior(Seen(states, actions))  # pyright: ignore[reportArgumentType]
    assert overlaps(figure) == 0
    shown = [axes for axes in figure.axes if axes.get_xlabel()]
    assert len(shown) == min(len(actions), 22) + 2
    assert [axes.get_title() for axes in shown[-2:]] == ["mean reward", "visits"]
    for axes in shown:
        names = actions if axes.get_xlabel() == "action" else states
        ticks = [
            (round(place), text.get_text())
            for place, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        ]
        assert ticks and all(text == shorten(names[place]) for place, text in ticks)


def test_names_that_are_written_out_do_overlap():
    """What the check must catch: the same names, all of them, side by side."""
    figure = Figure((3.2, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.set_xticks(range(len(WARDS)), WARDS)
    assert overlaps(figure) > 3


def test_values_of_many_states():
    figure = bm.plots.plot_values(
        np.random.default_rng(0).normal(size=(20, 50)), names=[f"state {i}" for i in range(50)]
    )
    assert overlaps(figure) == 0


def test_long_names_keep_their_ends():
    assert shorten("x" * LONGEST) == "x" * LONGEST and shorten("two\nlines") == "two lines"
    found = shorten("warehouse in the north, level 17")
    assert len(found) == LONGEST and found.startswith("warehouse") and found.endswith("level 17"[-7:])


@pytest.mark.parametrize(
    ("number", "inches", "every"), [(3, 3.0, 1), (16, 3.0, 1), (17, 3.0, 2), (60, 3.0, 5), (900, 3.0, 100)]
)
def test_names_are_thinned_in_round_steps(number, inches, every):
    axis: Any = Figure().subplots().yaxis
    label_axis(axis, range(number), inches)
    assert np.diff(axis.get_ticklocs()).tolist() == [every] * (-(-number // every) - 1)
