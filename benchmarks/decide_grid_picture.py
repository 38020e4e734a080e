"""The picture of the table of `decide` in docs/measured/decisions.md, from the numbers that stand there.

    python -m benchmarks.decide_grid_picture

Write the lines that `benchmarks.decide_grid` prints into the table, and run this again: it makes
docs/images/decide_grid.png.
"""

import sys
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[1] / "docs"
HEADING = "## The default of `decide`"
PANELS = {
    "of the better": ("recommended\nof the better", (0.9, 1.0)),
    "harm": ("harm", (0.0, 0.03)),
    "coverage": ("90 % interval\nholds the truth", (0.86, 0.94)),
    "realised": ("realised of\nwhat is possible", None),
    "alarm": ("a check\nfailed", (0.0, 0.1)),
}
"""Column of the table (how its name begins) -> title of the panel, and where its numbers are to lie."""
OURS, POSTERIOR, WANTED = "#1f5f8b", "#d1772e", "#dfe8d8"


def read_table(page: str) -> tuple[list[str], dict[str, list[list[float]]]]:
    """The first table below `HEADING`: the names of its rows, and the numbers of each column (one or more in a cell).

    Args:
        page: text of the page.

    Raises:
        ValueError: there is no such table, or a column is missing.
    """
    lines = page.partition(HEADING)[2].splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines[start:end]]
    if len(cells) < 3:
        raise ValueError(f"the page has no table below {HEADING!r}, expected one")
    head, _, *rows = cells
    columns: dict[str, list[list[float]]] = {}
    for name in PANELS:
        place = next((i for i, title in enumerate(head) if title.lower().startswith(name)), None)
        if place is None:
            raise ValueError(f"the table has no column {name!r}, expected one (it has {', '.join(head)})")
        columns[name] = [[float(x.strip(" *")) for x in row[place].split(",")] for row in rows]
    return [row[0] for row in rows], columns


def draw(page: Path, path: Path) -> None:
    """Make the picture.

    Args:
        page: with the table.
        path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names, columns = read_table(page.read_text(encoding="utf-8"))
    place = np.arange(len(names))
    figure, panels = plt.subplots(1, len(columns), sharey=True, figsize=(10, 0.8 + 0.27 * len(names)), dpi=110)
    for axis, (name, cells) in zip(panels, columns.items(), strict=True):
        title, wanted = PANELS[name]
        if wanted is not None:
            axis.axvspan(*wanted, color=WANTED, zorder=0)
        values = [cell[-1] for cell in cells]
        if name == "coverage":  # the posterior's own interval, then the one that `decide` states
            axis.scatter([cell[0] for cell in cells], place, s=22, facecolors="none", edgecolors=POSTERIOR, zorder=2)
        axis.scatter(values, place, s=22, color=OURS, zorder=3)
        axis.set_title(title, fontsize=9)
        low = 0.0 if min(map(min, cells)) < 0.4 else 0.4
        high = 1.03 if max(map(max, cells)) > 0.5 else 1.15 * max(0.1, *map(max, cells))
        axis.set_xlim(low - 0.03 * (high - low), high)
        axis.tick_params(labelsize=8)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="y", color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
    panels[0].set_yticks(place, names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    figure.tight_layout(w_pad=0.6)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(DOCS / "measured" / "decisions.md", DOCS / "images" / "decide_grid.png")
    sys.stdout.write("docs/images/decide_grid.png\n")
