"""What all reports have in common: an HTML page that loads nothing, for screens, telephones, paper; its parts."""

from html import escape
from typing import TYPE_CHECKING

import jax
import numpy as np

import bayes_mdp
from bayes_mdp.utils.messages import amount

if TYPE_CHECKING:
    import pandas as pd

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
td { white-space: nowrap; } th:first-child, td:first-child, td.words { text-align: left; white-space: normal; }
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
    shown, more = frame.head(ROWS), len(frame) - ROWS
    table = shown.to_html(index=False, border=0, float_format=lambda x: amount(x, 3), na_rep="-", escape=True)
    return table + (f"<p>and {more} more.</p>" if more > 0 else "")


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


def pairs_table(pairs: "dict[str, str]") -> str:
    """Two columns of words.

    Args:
        pairs: what -> its text; empty texts are left out.
    """
    rows = "".join(
        f'<tr><td>{escape(what)}</td>\n<td class="words">{escape(text)}</td></tr>\n'
        for what, text in pairs.items()
        if text
    )
    return f"<table>{rows}</table>"
