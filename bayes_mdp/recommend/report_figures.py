"""The pictures of a report, as SVG in the page: gains over a baseline, and the value of each policy."""

import io
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.utils.axis_labels import shorten
from bayes_mdp.utils.figures import number_x

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches; small, so that letters can be read on a telephone
WORSE, NO_WORSE, OPEN = "#bb5500", "#17663a", "#555555"
Gains: TypeAlias = Mapping[str, tuple[float, tuple[float, float]]]
"""Name of a policy -> mean gain over a baseline, and its interval."""


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


def gains_of(comparison: PolicyComparison, baseline: str) -> Gains:
    """The gains of all policies over one of them, in common draws.

    Args:
        comparison: with the draws.
        baseline: name of the policy that the others are compared with.
    """
    differences = {name: comparison.difference(name, baseline) for name in comparison.values if name != baseline}
    return {name: (each.mean, each.interval) for name, each in differences.items()}


def gains_figure(gains: Gains, label: str) -> str:
    """The forest of gains: see `draw_gains`.

    Args:
        gains, label: as of `draw_gains`.
    """
    figure = _figure(forest_height(len(gains)))
    order = draw_gains(figure.subplots(), gains, label)
    shown = "; ".join(f"{name} {gains[name][1][0]:.4g} to {gains[name][1][1]:.4g}" for name in order)
    return _svg(figure, f"95 % intervals of the gains over the baseline: {shown}")


def forest_height(number: int) -> float:
    """Inches of a forest.

    Args:
        number: of gains.
    """
    return max(1.3, 0.8 + 0.3 * number)


def draw_gains(axis: "Axes", gains: Gains, label: str) -> list[str]:
    """Mean and 95 % interval of each policy's gain over a baseline, the largest mean first, and zero.

    An interval above zero is green, one below zero orange, one that holds zero grey.

    Args:
        axis: to draw in.
        gains: name -> mean and interval.
        label: of the axis of gains.

    Returns:
        The names, from top to bottom.
    """
    names = sorted(gains, key=lambda name: -gains[name][0])
    axis.axvline(0.0, color="black", linewidth=1.2)
    for height, name in enumerate(reversed(names)):
        mean, (low, high) = gains[name]
        color = NO_WORSE if low > 0 else WORSE if high < 0 else OPEN
        axis.plot([low, high], [height, height], color=color, linewidth=3, solid_capstyle="butt")
        axis.plot([mean], [height], "o", color=color)
    axis.set_yticks(range(len(names)), [shorten(name) for name in reversed(names)])
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.set_xlabel(label)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params("y", length=0)
    number_x(axis)
    return names


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
