"""The tables and the picture of `decide` in docs/measured/decisions.md, from docs/measured/decide_logs.csv.

    python -m benchmarks.decide_grid_picture

It writes the three tables into the page, and makes docs/images/decide_grid.png. What is told between them is not made.
"""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.decide_grid import CELL, DEFAULT, FAMILIES, LOGS, PLANTED, PRIORS, read_logs, table

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "measured" / "decisions.md"
NAMES = {
    "triage": "ward (0 or 1 at the end)",
    "frozen_lake": "FrozenLake",
    "taxi": "Taxi",
    "icu_sepsis": "ICU-Sepsis",
    "confounded": "staff see a severity that the log has not",
    "by_step": "staff act otherwise in the second half of an episode",
    "rewards_missing": "low rewards are lost more often",
    "changing_rows": "rows change after half of the log",
}
PROMISES = [each.__name__ for each in PLANTED]
ORDINARY_HEAD = "| worlds, episodes | of the clearly better | "
PRIORS_HEAD = "| worlds, episodes, logs | "
PLANTED_HEAD = "| world | recommended | harm | "
PANELS = {
    "recommended_clearly": ("recommended of\nthe clearly better", (0.9, 1.0)),
    "harm": ("harm", (0.0, 0.03)),
    "coverage_decide": ("90 % interval\nholds the truth", (0.86, 0.94)),
    "realised": ("realised of\nwhat is possible", None),
}
"""Number of a row -> title of its panel, and where it is to lie."""
OURS, POSTERIOR, WANTED = "#1f5f8b", "#d1772e", "#dfe8d8"


def name_of(family: str) -> str:
    """Of a family of worlds, for a reader."""
    return NAMES.get(family, family.replace("_", " "))


def ordinary_lines(logs: pd.DataFrame) -> list[str]:
    """The table of worlds in which `decide` is to keep its promises, a line a cell."""
    logs = logs[logs["prior"] == DEFAULT]
    return [
        f"| {name_of(row.family)}, {row.episodes} "
        f"| {f'{row.recommended_clearly:.2f} of {row.clearly}' if row.clearly else 'none is'} "
        f"| {row.recommended:.2f} of {row.better} | {row.unbiased_test:.2f} "
        f"| {row.harm * row.logs:.0f} of {row.logs} | {row.alarm} of {row.asked}, {row.stopped * row.logs:.0f} "
        f"| {row.coverage:.2f}, {row.coverage_decide:.2f} | {row.realised:.2f} |"
        for row in table(logs[~logs["family"].isin(PROMISES)]).itertuples()
    ]


def planted_lines(logs: pd.DataFrame) -> list[str]:
    """The table of worlds that break a promise, a line a cell."""
    lines = []
    broken = logs[logs["family"].isin(PROMISES) & (logs["prior"] == DEFAULT)]
    for (family, _), rows in sorted(broken.groupby(CELL), key=lambda cell: PROMISES.index(cell[0][0])):
        again = rows["followed"].str.split("; ").explode()
        followed = [f"{name} {number}" for name, number in again[again != ""].value_counts().items()]
        asked, ratio = rows["alarms"].dropna(), (rows["mean"] / rows["true"]).median()
        lines.append(
            f"| {name_of(family)} | {rows['recommended'].sum()} of {len(rows)} | {rows['harm'].sum()} "
            f"| {rows['coverage'].mean():.2f}, {rows['coverage_decide'].mean():.2f} | {ratio:.2f} "
            f"| {(asked != 'none').sum()} of {len(asked)} "
            f"| {', '.join(followed)} |"
        )
    return lines


def priors_lines(logs: pd.DataFrame) -> list[str]:
    """The table of priors: what checks and verdict say of logs that were judged under all of them, a line a cell."""
    lines = []
    for (family, episodes), rows in sorted(logs.groupby(CELL), key=lambda cell: [*FAMILIES].index(cell[0][0])):
        seen = rows.groupby("seed")["prior"].nunique()
        common = rows[rows["seed"].isin(seen.index[seen == len(PRIORS)])]
        if common.empty:
            continue
        said = []
        for prior in PRIORS:
            each = common[common["prior"] == prior]
            failed = (each["alarms"] != "none").sum()
            said.append(f"{failed}, {each['stopped'].sum()}, {each['recommended'].sum()}, {each['harm'].sum()}")
        lines.append(f"| {name_of(family)}, {episodes}, {common['seed'].nunique()} | {' | '.join(said)} |")
    return lines


def with_table(page: str, head: str, lines: list[str]) -> str:
    """The page with other lines in the table whose first line begins so.

    Raises:
        ValueError: the page has no such table.
    """
    pattern = re.compile(rf"(^{re.escape(head)}.*\n\|[-|]+\|\n)(?:\|.*\n)*", re.MULTILINE)
    if not pattern.search(page):
        raise ValueError(f"page has no table that begins with {head!r}")
    return pattern.sub(lambda kept: kept[1] + "".join(f"{line}\n" for line in lines), page, count=1)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Make the picture.

    Args:
        rows: of the table of ordinary worlds.
        path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

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
        low = 0.0 if np.nanmin(values) < 0.4 else 0.4
        high = 1.03 if np.nanmax(values) > 0.5 else 1.15 * max(0.1, *values)
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
    every = read_logs(LOGS)
    text = PAGE.read_text(encoding="utf-8")
    made = {ORDINARY_HEAD: ordinary_lines, PRIORS_HEAD: priors_lines, PLANTED_HEAD: planted_lines}
    for head, lines in made.items():
        text = with_table(text, head, lines(every))
    PAGE.write_text(text, encoding="utf-8")
    ordinary = table(every[~every["family"].isin(PROMISES) & (every["prior"] == DEFAULT)])
    draw(ordinary.to_dict("records"), DOCS / "images" / "decide_grid.png")
    sys.stdout.write("docs/measured/decisions.md, docs/images/decide_grid.png\n")
