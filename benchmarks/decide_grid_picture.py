"""The picture of the table of `decide` in docs/measured/decisions.md, from docs/measured/decide_grid.json.

    python -m benchmarks.decide_grid_picture

It makes docs/images/decide_grid.png.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

DOCS = Path(__file__).parents[1] / "docs"
PANELS = {
    "recommended": ("recommended\nof the better", (0.9, 1.0)),
    "harm": ("harm", (0.0, 0.03)),
    "coverage_decide": ("90 % interval\nholds the truth", (0.86, 0.94)),
    "realised": ("realised of\nwhat is possible", None),
}
"""Number of a row -> title of its panel, and where it is to lie."""
OURS, POSTERIOR, WANTED = "#1f5f8b", "#d1772e", "#dfe8d8"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of the table, a dictionary each.

    Args:
        path: of the JSON file.

    Raises:
        ValueError: a number of `PANELS` is missing in a row.
    """
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        missing = [name for name in (*PANELS, "coverage", "family", "episodes") if name not in row]
        if missing:
            raise ValueError(f"{path.name} has a row without {missing[0]!r}: {row}")
    return rows


def draw(table: Path, path: Path) -> None:
    """Make the picture.

    Args:
        table: JSON file of the rows.
        path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = read_rows(table)
    names = [f"{row['family'].replace('_', ' ')}, {row['episodes']}" for row in rows]
    place = np.arange(len(names))
    figure, panels = plt.subplots(1, len(PANELS), sharey=True, figsize=(10, 0.8 + 0.27 * len(names)), dpi=110)
    for axis, (name, (title, wanted)) in zip(panels, PANELS.items(), strict=True):
        values = [row[name] for row in rows]
        if wanted is not None:
            axis.axvspan(*wanted, color=WANTED, zorder=0)
        if name == "coverage_decide":  # beside it the posterior's own interval
            axis.scatter(
                [row["coverage"] for row in rows], place, s=22, facecolors="none", edgecolors=POSTERIOR, zorder=2
            )
        axis.scatter(values, place, s=22, color=OURS, zorder=3)
        axis.set_title(title, fontsize=9)
        low = 0.0 if min(values) < 0.4 else 0.4
        high = 1.03 if max(values) > 0.5 else 1.15 * max(0.1, *values)
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
    draw(DOCS / "measured" / "decide_grid.json", DOCS / "images" / "decide_grid.png")
    sys.stdout.write("docs/images/decide_grid.png\n")
