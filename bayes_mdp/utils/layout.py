"""What a result says, laid out once: `Section.text` is its `str`, `Section.html` what a notebook shows.

A result builds a `Section` (a title and parts: sentences, `Facts`, `Bullets`, `Table`, further sections) in its method
`layout`, and its class takes `__str__ = as_text` and `_repr_html_ = as_html`. Sentences are wrapped, tables never are.
Neither pandas nor JAX is loaded.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol, TypeAlias, runtime_checkable

WIDTH = 88
"""Of a terminal, for sentences."""
INDENT = "  "


@dataclass(frozen=True)
class Facts:
    """Names, and what is known under each.

    Args:
        entries: {name: text}.
    """

    entries: Mapping[str, str]

    def lines(self, indent: str) -> list[str]:
        """The names in one column, the texts in another."""
        width = max(map(len, self.entries), default=0)
        return [
            line
            for name, text in self.entries.items()
            for line in wrapped(f"{indent}{name:<{width}}  {text}", " " * (len(indent) + width + 2))
        ]

    def html(self) -> str:
        """A table of two columns without a head."""
        rows = "".join(
            f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self.entries.items()
        )
        return f'<table class="dataframe"><tbody>{rows}</tbody></table>'


@dataclass(frozen=True)
class Bullets:
    """Sentences, each with a dash or a point before it.

    Args:
        sentences: one each.
    """

    sentences: Sequence[str]

    def lines(self, indent: str) -> list[str]:
        """One paragraph for each."""
        return [line for text in self.sentences for line in wrapped(f"{indent}- {text}", indent + "    ")]

    def html(self) -> str:
        """A list."""
        return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in self.sentences) + "</ul>"


@dataclass(frozen=True)
class Table:
    """Cells in columns; numbers end at the right edge of theirs.

    Args:
        head: name of each column.
        rows: [R][C], cells as text.
        words: positions of the columns that hold words and begin at the left.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)

    def lines(self, indent: str) -> list[str]:
        """The head and a line for each row."""
        table = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return [
            (
                indent
                + "  ".join(
                    cell.ljust(width) if i in self.words else cell.rjust(width)
                    for i, (cell, width) in enumerate(zip(row, widths, strict=True))
                )
            ).rstrip()
            for row in table
        ]

    def html(self) -> str:
        """As a DataFrame is shown, so that the style of the page is its style."""
        side = ["left" if i in self.words else "right" for i in range(len(self.head))]

        def row(cells: Sequence[str], tag: str) -> str:
            return "".join(
                f'<{tag} style="text-align:{alignment}">{escape(cell)}</{tag}>'
                for cell, alignment in zip(cells, side, strict=True)
            )

        head = f"<thead><tr>{row(self.head, 'th')}</tr></thead>"
        body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in self.rows)
        # A bar to scroll where the window is narrow.
        return f'<div style="overflow-x:auto"><table class="dataframe">{head}<tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class Section:
    """A title and what stands below it.

    Args:
        title: one sentence.
        parts: in their order.
    """

    title: str
    parts: Sequence["Part"] = ()

    def text(self) -> str:
        """For a terminal: parts are indented, sentences wrapped at `WIDTH`."""
        return "\n".join(self.lines(""))

    def lines(self, indent: str) -> list[str]:
        """The lines of `text`, all behind `indent`."""
        lines = wrapped(indent + self.title, indent + 2 * INDENT)
        for part in self.parts:
            inner = indent + INDENT
            lines += wrapped(inner + part, inner + INDENT) if isinstance(part, str) else part.lines(inner)
        return lines

    def html(self) -> str:
        """For a notebook: sections inside this one can be closed."""
        return f"<div><strong>{escape(self.title)}</strong>{self._inner_html()}</div>"

    def _inner_html(self) -> str:
        return "".join(
            f"<div>{escape(part)}</div>"
            if isinstance(part, str)
            else f"<details open><summary>{escape(part.title)}</summary>{part._inner_html()}</details>"
            if isinstance(part, Section)
            else part.html()
            for part in self.parts
        )


Part: TypeAlias = "str | Facts | Bullets | Table | Section"


@runtime_checkable
class HasLayout(Protocol):
    """A result that says itself as a section."""

    def layout(self) -> Section:
        """Title and parts."""
        ...


def as_text(self: HasLayout) -> str:
    """What `print` shows of a result; a class takes it as its method `__str__`.

    Args:
        self: a result with a `layout`.
    """
    return self.layout().text()


def as_html(self: HasLayout) -> str:
    """What a notebook shows of a result; a class takes it as its method `_repr_html_`.

    Args:
        self: a result with a `layout`.
    """
    return self.layout().html()


def wrapped(line: str, hanging: str = "    ") -> list[str]:
    """A long line as several.

    Args:
        line: with its own indent.
        hanging: indent of the lines after the first.
    """
    if "\n" in line:
        return line.split("\n")  # a `repr` has lines of its own
    # "95 %" stays together.
    unbreakable = line.replace(" %", "\N{NO-BREAK SPACE}%")
    parts = textwrap.wrap(unbreakable, WIDTH, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts]
