"""Numbers along an axis of a figure, so that none overlaps another."""

from itertools import pairwise
from typing import TYPE_CHECKING

from bayes_mdp.utils.notebook_figure import whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 6
"""Intervals between the numbers, at most."""


def number_x(axes: "Axes") -> None:
    """Round numbers along x, with thousands apart ("-60,000"), as many as there is room for.

    The figure is laid out to see how much room there is: to be called when all else is drawn.

    Args:
        axes: of a figure.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    axis, figure = axes.xaxis, whole_figure(axes)
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.12g}".replace("-", "\N{MINUS SIGN}")))
    low, high = sorted(axes.get_xlim())
    ticks = [(low + high) / 2]
    for most in range(MOST, 0, -1):
        ticks = [x for x in MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= x <= high]
        axis.set_major_locator(FixedLocator(ticks))
        figure.draw_without_rendering()
        labels = axis.get_ticklabels()
        boxes = [label.get_window_extent() for label in labels]
        # Half a letter between one number and the next.
        space = max((0.5 * float(label.get_fontsize()) * figure.dpi / 72 for label in labels), default=0.0)
        if all(one.x1 + space <= other.x0 for one, other in pairwise(boxes)):
            return
    # No room for two: the one nearest to the middle.
    axis.set_major_locator(FixedLocator([min(ticks, key=lambda x: abs(x - (low + high) / 2))]))
