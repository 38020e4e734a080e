"""The figures that `plot_*` return: matplotlib's, shown by notebooks without pyplot, and round numbers along an axis.

Import it where a figure is drawn.
"""

from io import BytesIO
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure outside pyplot's global state.

    Notebooks show a plain `Figure` as text until pyplot has been imported; this one brings its picture.
    `.savefig(path)` writes it, and arguments are those of `Figure`.
    """

    def _repr_png_(self) -> bytes:
        """The picture, as notebooks ask for it."""
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()


def whole_figure(axes: Axes) -> Figure:
    """The figure that axes are in, also where they are in a part of it."""
    return axes.figure.figure  # pyright: ignore[reportReturnType] - that of a figure is itself


def place(axes: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """The figure and axes to draw in; where no axes are given, of a new figure of this size in inches."""
    if axes is not None:
        return axes.figure, axes  # pyright: ignore[reportReturnType] - a figure, or a part of one that draws alike
    figure = NotebookFigure(figsize=size, layout="constrained")
    return figure, figure.subplots()


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
    for max_ticks in range(MOST, 0, -1):
        ticks = [x for x in MaxNLocator(max_ticks, steps=[1, 2, 5, 10]).tick_values(low, high) if low <= x <= high]
        axis.set_major_locator(FixedLocator(ticks))
        figure.draw_without_rendering()
        labels = axis.get_ticklabels()
        boxes = [label.get_window_extent() for label in labels]
        # Half a letter between one number and the next.
        space = max((0.5 * float(label.get_fontsize()) * figure.dpi / 72 for label in labels), default=0.0)
        if all(left_box.x1 + space <= right_box.x0 for left_box, right_box in pairwise(boxes)):
            return
    # No room for two: the one nearest to the middle.
    axis.set_major_locator(FixedLocator([min(ticks, key=lambda x: abs(x - (low + high) / 2))]))
