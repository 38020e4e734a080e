"""Writes the API reference: one page for each package that has an `__all__`, each public name documented once.

A name that `bayes_mdp` itself exports is documented on the page of `bayes_mdp`; the package it comes from links there.
Packages of agents also list the public functions and classes of their modules: the mathematics of a paper is a function
beside the agent. `tools/public_names.py` says which names these are.
"""

import inspect
import re
from pathlib import Path

from tools.bibliography import keys
from tools.public_names import ROOT, Page, find, pages


def write_api_pages(folder: Path) -> None:
    """Write `index.md` and a page for each package into `folder`; a page that has not changed is left as it is.

    Args:
        folder: of the pages; files there that belong to no package are removed.
    """
    texts = {page.package: text for page in pages() if (text := _text(page))}
    texts["index"] = "# API reference\n\n```{toctree}\n" + "\n".join(texts) + "\n```\n"
    for stale in {path.stem for path in folder.glob("*.md")} - set(texts):
        (folder / f"{stale}.md").unlink()
    for name, text in texts.items():
        write_page(folder / f"{name}.md", text)


def write_page(path: Path, text: str) -> None:
    """Write a page; one that has not changed is left as it is, so that a build does not read it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _text(page: Page) -> str | None:
    """The page of a package; None where it has no names of its own."""
    sections = [_section(page.own)] if page.own else []
    for module, names in page.modules:
        about = _fence("eval-rst", [f".. automodule:: {module}", "   :no-index:"])
        sections.append(f"## `{module.rpartition('.')[2]}`\n\n{about}\n\n{_section(names)}")
    if not sections:
        return None
    head = [f"# `{page.package}`", _fence("eval-rst", [f".. automodule:: {page.package}"])]
    if page.elsewhere:
        links = ", ".join(f":py:obj:`{full.removeprefix(ROOT + '.')} <{full}>`" for full in page.elsewhere)
        head.append(_fence("eval-rst", [f"Documented on another page: {links}."]))
    return "\n\n".join([*head, *sections]) + "\n"


def _section(names: list[str]) -> str:
    """Links to the names, then their documentation."""
    links = ", ".join(f":py:obj:`{name.rpartition('.')[2]} <{name}>`" for name in names)
    entries = []
    for name in names:
        if inspect.isclass(find(name)):
            entries += ["", f".. autoclass:: {name}", "   :members:"]
        else:
            entries += ["", f".. autofunction:: {name}"]
    return _fence("eval-rst", [links, *entries] if len(names) > 1 else entries)


def _fence(directive: str, lines: list[str]) -> str:
    return "\n".join([f"```{{{directive}}}", *lines, "```"])


def cite_keys(app, docname: str, source: list[str]) -> None:
    """Make [KEY] in the text of a Markdown page a citation; code blocks stay as they are."""
    del app
    if docname.startswith("reference/api/"):
        return
    source[0] = cited(source[0])


def cited(text: str) -> str:
    """Markdown in which [KEY] is a citation, if the bibliography has that key; code blocks stay as they are."""
    parts = re.split(r"(^```.*?^```)", text, flags=re.S | re.M)
    return "".join(
        part
        if place % 2
        else re.sub(r"\[(\w+)\](?!\()", lambda m: f"{{cite}}`{m[1]}`" if m[1] in keys() else m[0], part)
        for place, part in enumerate(parts)
    )


def as_rst(app, what, name, thing, options, lines: list[str]) -> None:
    """Edit a docstring in place: what reStructuredText would read as markup is escaped, [KEY] is made a link.

    Text between backticks, indented blocks after `::`, and examples (`>>>`, up to an empty line) are code and stay as
    they are.
    """
    del app, what, name, thing, options
    literal = example = False
    for number, line in enumerate(lines):
        indented = line.startswith(" ") or not line.strip()
        literal = literal and indented
        example = line.strip() != "" and (example or line.lstrip().startswith(">>> "))
        if not (literal or example):
            pieces = re.split(r"(``.*?``|`[^`]*`)", line)
            lines[number] = "".join(piece if place % 2 else _escape(piece) for place, piece in enumerate(pieces))
        literal = literal or line.rstrip().endswith("::")


def _escape(text: str) -> str:
    text = re.sub(r"(?<!\\)\|", r"\\|", text)  # absolute values, conditional laws: no substitutions
    text = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", text)  # a trailing underscore is no link
    text = re.sub(r"(?<=\S )\*(?= )", r"\\*", text)  # a product is no emphasis
    text = re.sub(r"\[[^\]]*\]|\(\*\w[^)]*\)", lambda shape: shape[0].replace("*", r"\*"), text)  # nor is [*batch S]
    return re.sub(r"\[(\w+)\]", lambda m: f":cite:`{m[1]}`" if m[1] in keys() else m[0], text)
