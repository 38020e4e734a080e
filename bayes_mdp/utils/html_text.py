"""What a notebook shows of a summary: its text, in sections that can be closed. No scripts, no styles of its own."""

from html import escape


def as_html(text: str) -> str:
    """A summary as HTML: every line that is not indented opens a section, which holds the indented lines below it.

    Args:
        text: lines, as `str` of a posterior, a value or a check has them.
    """
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(" ") and sections:
            sections[-1][1].append(line)
        else:
            sections.append((line, []))
    return "<div>" + "".join(_section(head, below) for head, below in sections) + "</div>"


def shown_as_html(summary: object) -> str:
    """What a notebook shows of a result: its `str`. A class takes it as its method `_repr_html_`."""
    return as_html(str(summary))


def _section(head: str, below: list[str]) -> str:
    if not below:
        return f"<div>{escape(head)}</div>"
    # Numbers stand in columns: a fixed width, and a bar to scroll where the window is narrow.
    body = escape("\n".join(below))
    return f'<details open><summary>{escape(head)}</summary><pre style="overflow-x:auto">{body}</pre></details>'
