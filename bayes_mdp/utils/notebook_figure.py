"""The figures that `plot_*` return: matplotlib's, shown by notebooks without pyplot. Import it where one is drawn."""

from io import BytesIO

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
