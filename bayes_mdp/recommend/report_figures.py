"""The pictures of a report, as SVG in the page: the gain over the baseline, and the value of each policy."""

import io
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.decisions.choosing.safe_improvement import Improvement
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.utils.number_axis import number_x

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches; small, so that letters can be read on a telephone
BINS = 30
WORSE, NO_WORSE = "#bb5500", "#17663a"


def gain_figure(improvement: Improvement) -> str:
    """The gain of the chosen policy over the baseline in the draws: a histogram, split where "no worse" begins.

    Args:
        improvement: with the draws.
    """
    figure, gain, least = _figure(2.3), np.asarray(improvement.gain), -improvement.slack
    edges, counts = gain_histogram(gain, least)
    share, axis = counts / len(gain), figure.subplots()
    middle = (edges[:-1] + edges[1:]) / 2
    colors = [NO_WORSE if x >= least else WORSE for x in middle]
    axis.bar(edges[:-1], share, np.diff(edges), align="edge", color=colors, edgecolor="white", linewidth=0.4)
    axis.axvline(0.0, color="black", linewidth=1.2)
    if improvement.slack:
        axis.axvline(least, color="black", linewidth=1.0, linestyle="--")
    # Zero is in the picture, whatever the gain.
    low, high = min(edges[0], least, 0.0), max(edges[-1], 0.0)
    margin = 0.04 * (high - low)
    axis.set_xlim(low - margin, high + margin)
    words = (f"worse: {1 - improvement.prob:.1%}", f"no worse: {improvement.prob:.1%}")
    axis.set_title(words[0], loc="left", color=WORSE, fontsize="medium", fontweight="bold")
    axis.set_title(words[1], loc="right", color=NO_WORSE, fontsize="medium", fontweight="bold")
    axis.set_xlabel(
        "value of the chosen policy minus that of the baseline"
        + ("" if not improvement.slack else f"\n(dashed: -{improvement.slack:g}, still no worse)")
    )
    axis.set_yticks([])
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    number_x(axis)
    return _svg(figure, f"Histogram of the gain over the baseline in {len(gain)} draws; {', '.join(words)}")


def gain_histogram(
    gain: Float[np.ndarray, " W"], least: float
) -> tuple[Float[np.ndarray, " B1"], Int[np.ndarray, " B"]]:
    """Edges and counts of at most 32 bins of one width, none of which has gains on both sides of `least`.

    Args:
        gain: draws.
        least: the smallest gain that is no worse; it counts on the right.
    """
    low, high = float(gain.min()), float(gain.max())
    width = (high - low) / BINS
    if width <= 1e-9 * max(abs(low), abs(high), abs(least)):  # all the same, up to rounding
        width = max(abs(low - least), abs(low), 1.0) / BINS
    # Bins are counted from `least`. The sign of a difference is exact: no bin is on both sides of it.
    place = np.floor((gain - least) / width).astype(int)
    first = int(place.min())
    counts = np.bincount(place - first)
    return least + width * np.arange(first, first + len(counts) + 1), counts


def values_figure(values: Mapping[str, PolicyValue], label: str) -> str:
    """Mean and 95 % interval of each policy.

    Args:
        values: name -> value.
        label: of the axis.
    """
    names = list(values)
    figure = _figure(max(1.3, 0.7 + 0.25 * len(names)))
    axis = figure.subplots()
    for height, name in enumerate(reversed(names)):
        value = values[name]
        axis.plot(value.interval, [height, height], color="C0", linewidth=3, solid_capstyle="butt")
        axis.plot([value.mean], [height], "o", color="C0")
    axis.set_yticks(range(len(names)), list(reversed(names)))
    axis.set_ylim(-0.5, len(names) - 0.5)
    axis.set_xlabel(label)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    number_x(axis)
    shown = "; ".join(f"{name} {v.interval[0]:.4g} to {v.interval[1]:.4g}" for name, v in values.items())
    return _svg(figure, f"95 % intervals of the values: {shown}")


def _figure(height: float) -> "Figure":
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def _svg(figure: "Figure", words: str) -> str:
    """The drawing, with words for who cannot see it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    drawing = text.getvalue()
    return f'<svg role="img" aria-label="{escape(words)}"' + drawing[drawing.index("<svg") + len("<svg") :]
