"""What reports have in common: an HTML page that loads nothing, its tables, policies by label, pictures as SVG."""

import io
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np

import bayes_mdp
from bayes_mdp.decisions.policy_comparison import PolicyComparison
from bayes_mdp.decisions.policy_evaluation import PolicyValue
from bayes_mdp.mdp import Policy, PolicyLike, StateActionSpace
from bayes_mdp.recommend.in_words import with_text_labels
from bayes_mdp.utils.axis_labels import shorten
from bayes_mdp.utils.figures import number_x
from bayes_mdp.utils.messages import amount

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ROWS = 200  # of a table, at most
OPEN_ROWS = 20  # of a table that is shown without a click

# Tables and printed text scroll by themselves where they are wider than the screen, the page never does.
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, h2, p, li, summary { overflow-wrap: anywhere; }
.answer { border-left: .4rem solid #b50; padding: .6rem 1rem; background: #fdf6ef; }
.answer.change { border-color: #17663a; background: #eef8f1; }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; }
td { white-space: nowrap; } th.words { text-align: left; }
th:first-child, td:first-child, td.words { text-align: left; white-space: normal; }
td:first-child { min-width: 5rem; } td.words { overflow-wrap: anywhere; }
tr { border-bottom: 1px solid #ddd; } td { vertical-align: top; } td.failed { color: #b50; font-weight: bold; }
pre { overflow-x: auto; font-size: .8rem; background: #f6f6f6; padding: .6rem; }
details { margin: 1rem 0; } summary { cursor: pointer; }
svg { width: 100%; max-width: 38rem; height: auto; }
@media (max-width: 40rem) { body { margin: .8rem auto; padding: 0 .7rem; } h1 { font-size: 1.25rem; }
  .answer { padding: .5rem .7rem; } th, td { padding-right: .5rem; } td.words { min-width: 9rem; } }
@media print { body { font-size: 11pt; margin: 0; max-width: none; } h2 { break-after: avoid; }
  tr, svg, .answer { break-inside: avoid; } details:not([open]) { display: none; } pre { background: none; } }
"""


def html_page(title: str, parts: list[str]) -> str:
    """The page.

    Args:
        title: as text.
        parts: of the body, as HTML; empty ones are left out.
    """
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
    )
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def html_table(frame: "pd.DataFrame | None", nothing: str) -> str:
    """A table of at most `ROWS` rows, and how many more there are.

    Args:
        frame: the table.
        nothing: what is said where there is none, or no row.
    """
    if frame is None or not len(frame):
        return f"<p>{nothing}</p>"
    # Long tables are cut, and say so.
    shown, hidden = frame.head(ROWS), len(frame) - ROWS
    table = with_text_labels(shown).to_html(
        index=False, border=0, float_format=lambda x: amount(x, 3), na_rep="-", escape=True
    )
    return table + (f"<p>and {hidden} more.</p>" if hidden > 0 else "")


def folded(title: str, content: str, *, is_open: bool = False) -> str:
    """What is shown after a click.

    Args:
        title: as text.
        content: as HTML.
        is_open: whether it is shown at once.
    """
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{content}</details>"


def versions() -> str:
    """Of this package and of those that its numbers depend on."""
    return f"bayes-mdp {bayes_mdp.__version__}, jax {jax.__version__}, numpy {np.__version__}"


def pairs_table(pairs: Mapping[str, str]) -> str:
    """Two columns of words.

    Args:
        pairs: what -> its text; empty texts are left out.
    """
    return cells_table((), [pair for pair in pairs.items() if pair[1]], words=(1,))


def cells_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: Collection[int] = (), marks: Collection[str] = ()
) -> str:
    """A table of cells that are text; the first column begins at the left.

    Args:
        head: name of each column; empty: there is no head.
        rows: the cells of each row.
        words: positions of other columns that hold words: they begin at the left and wrap.
        marks: texts of cells that the style has a class of.
    """

    def row(cells: Sequence[str], tag: str) -> str:
        classes = ("words" if i in words else cell if cell in marks else "" for i, cell in enumerate(cells))
        each = (
            f'<{tag} class="{name}">{escape(cell)}</{tag}>' if name else f"<{tag}>{escape(cell)}</{tag}>"
            for name, cell in zip(classes, cells, strict=True)
        )
        return "<tr>" + "\n".join(each) + "</tr>"

    return (
        "<table>"
        + "\n".join([*([row(head, "th")] if head else []), *(row(cells, "td") for cells in rows)])
        + "</table>"
    )


# Pictures: drawn by Matplotlib as SVG, with words for who cannot see them.

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
    # From the bottom up.
    for height, name in enumerate(reversed(names)):
        value = values[name]
        axis.plot(value.interval, [height, height], color="C0", linewidth=3, solid_capstyle="butt")
        axis.plot([value.mean], [height], "o", color="C0")
    axis.set_yticks(range(len(names)), list(reversed(names)))
    axis.set_ylim(-0.5, len(names) - 0.5)
    _label_x(axis, label)
    shown = "; ".join(f"{name} {v.interval[0]:.4g} to {v.interval[1]:.4g}" for name, v in values.items())
    return _svg(figure, f"95 % intervals of the values: {shown}")


def gains_of(comparison: PolicyComparison, baseline: str) -> Gains:
    """The gains of all policies over one of them, in common draws.

    Args:
        comparison: with the draws.
        baseline: name of the policy that the others are compared with.
    """
    differences = {name: comparison.difference(name, baseline) for name in comparison.values if name != baseline}
    return {name: (gain.mean, gain.interval) for name, gain in differences.items()}


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
    # The largest mean on top.
    names = sorted(gains, key=lambda name: -gains[name][0])
    axis.axvline(0.0, color="black", linewidth=1.2)
    for height, name in enumerate(reversed(names)):
        mean, (low, high) = gains[name]
        color = NO_WORSE if low > 0 else WORSE if high < 0 else OPEN
        axis.plot([low, high], [height, height], color=color, linewidth=3, solid_capstyle="butt")
        axis.plot([mean], [height], "o", color=color)
    axis.set_yticks(range(len(names)), [shorten(name) for name in reversed(names)])
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.tick_params("y", length=0)
    _label_x(axis, label)
    return names


def _label_x(axis: "Axes", label: str) -> None:
    """The axis of values alone, with its label."""
    axis.set_xlabel(label)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    number_x(axis)


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
    # The words go into the opening tag.
    return f'<svg role="img" aria-label="{escape(words)}"' + drawing[drawing.index("<svg") + len("<svg") :]


# Policies by label: both policies of a decision, state by state.


def policy_table(space: StateActionSpace, policies: Mapping[str, PolicyLike], state: str) -> "pd.DataFrame":
    """A row for each state and, where an array depends on the step, for each step; a column for each policy.

    A `Policy` object, which has no array, is left out.

    Args:
        space: with the labels.
        policies: name -> policy.
        state: name of the column of states.
    """
    import pandas as pd

    described = {
        name: space.describe_policy(policy) for name, policy in policies.items() if not isinstance(policy, Policy)
    }
    stepped = {name: _steps(by_step) for name, by_step in described.items()}
    # As many rows a state as the longest policy has steps.
    horizon = max(map(len, stepped.values()), default=1)
    columns: dict[str, list[Any]] = {} if horizon == 1 else {"step": []}
    columns |= {state: [], **{name: [] for name in stepped}}
    for step in range(horizon):
        for s in space.state_names:
            if horizon > 1:
                columns["step"].append(step)
            columns[state].append(s)
            for name, by_step in stepped.items():
                columns[name].append(_action(by_step[min(step, len(by_step) - 1)][s]))
    return pd.DataFrame(columns)


def _steps(policy: Any) -> list[dict[Hashable, Any]]:
    """One mapping for each step; one alone where all are the same."""
    steps = policy if isinstance(policy, list) else [policy]
    # Steps that are all alike are one.
    return steps[:1] if all(step == steps[0] for step in steps) else steps


def _action(given: Any) -> str:
    """ "run", or "run 0.9, service 0.1", the likeliest first."""
    if not isinstance(given, dict):
        return str(given)
    order = sorted(given.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{action} {chance:.2g}" for action, chance in order)
