"""The pictures of a report, as SVG in the page: the gains over the baseline, and the value of each policy."""

import io
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.recommend.candidate import Candidate
from bayes_mdp.utils.number_axis import number_x

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches; small, so that letters can be read on a telephone
WORSE, NO_WORSE = "#bb5500", "#17663a"


def gains_figure(candidates: Mapping[str, Candidate], unit: str) -> str:
    """Mean gain and 95 % interval of each candidate over the baseline, with the zero.

    Args:
        candidates: name -> candidate.
        unit: of the axis.
    """
    order = sorted(candidates, key=lambda name: candidates[name].mean)
    figure = _figure(max(1.5, 0.9 + 0.3 * len(order)))
    axis = figure.subplots()
    axis.axvline(0.0, color="black", linewidth=1.2)
    for height, name in enumerate(order):
        each = candidates[name]
        color = NO_WORSE if not each.reasons else WORSE
        axis.plot(each.interval, [height, height], color=color, linewidth=3, solid_capstyle="butt")
        axis.plot([each.mean], [height], "o", color=color)
    axis.set_yticks(range(len(order)), order)
    axis.set_ylim(-0.5, len(order) - 0.5)
    axis.set_xlabel(f"gain over the baseline, {unit}\n(left of the line: worse than today)")
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    number_x(axis)
    shown = "; ".join(
        f"{name} {candidates[name].interval[0]:.4g} to {candidates[name].interval[1]:.4g}" for name in reversed(order)
    )
    return _svg(figure, f"95 % intervals of the gains over the baseline: {shown}")


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
