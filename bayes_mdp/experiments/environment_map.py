"""The text map of an environment on axes."""

from typing import TYPE_CHECKING

import numpy as np

from bayes_mdp.experiments.environment_drawing import place_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEGEND = {
    "#": ("wall", "#3b3f46"),
    "x": ("gray (penalty)", "#c4b8b0"),
    ".": ("free", "#fbfaf5"),
    "S": ("start", "#a8d5a2"),
    "F": ("finish", "#f2c14e"),
    "G": ("goal", "#f2c14e"),
    "g": ("lesser goal", "#f7e3a1"),
    "f": ("flag", "#f4a582"),
    "P": ("pickup", "#9ecae1"),
    "D": ("delivery", "#c5b0d5"),
}
_PLAIN = "#.x "
_OTHERS = ("#f4a582", "#b2dfdb", "#e7cb94", "#dadaeb")


def draw_map(axes: "Axes", cells: tuple[str, ...]) -> None:
    """The lines of a text map as coloured cells: column x of line y around the point (x, y), y downwards."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    width = max(map(len, cells))
    grid = np.array([list(line.ljust(width)) for line in cells])
    kinds = [kind for kind in dict.fromkeys([*LEGEND, *sorted(set(grid.ravel()))]) if (grid == kind).any()]
    others = [kind for kind in kinds if kind not in LEGEND and kind != " "]
    shades = {kind: LEGEND[kind][1] for kind in LEGEND} | {" ": "white"}
    shades |= {kind: _OTHERS[i % len(_OTHERS)] for i, kind in enumerate(others)}
    codes = np.argmax(grid[..., None] == np.array(kinds), -1)
    look = ListedColormap([shades[kind] for kind in kinds])
    axes.imshow(codes, cmap=look, vmin=-0.5, vmax=len(kinds) - 0.5, interpolation="none")
    axes.set_xticks(np.arange(width + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(cells) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="black", alpha=0.12, linewidth=0.6)
    axes.tick_params(which="both", length=0, labelsize=7)
    for y, x in np.argwhere(~np.isin(grid, list(_PLAIN))):
        axes.text(x, y, str(grid[y, x]), ha="center", va="center", fontsize=9, color="#3b3f46", fontweight="bold")
    named = [(kind, LEGEND[kind][0] if kind in LEGEND else kind) for kind in kinds if kind != " "]
    handles = [Patch(facecolor=shades[kind], edgecolor="0.6", label=name) for kind, name in named]
    place_legend(axes, handles, 0.3)


def map_size(cells: tuple[str, ...]) -> tuple[float, float]:
    """Inches for a figure of its own."""
    width, height = max(map(len, cells)), len(cells)
    unit = min(0.42, 12.0 / width, 8.0 / height)
    return max(4.2, unit * width + 1.4), max(2.6, unit * height + 1.1)
