"""Writes the API reference: an index by task, a page for each name that the index has, and one for each package.

A package's page documents its other names. A name that `bayes_mdp` itself exports is documented as `bm.NAME`; the
package it comes from links there. Packages of agents also list the public functions and classes of their modules: the
mathematics of a paper is a function beside the agent. What a function returns and nobody has to name stands below the
function. `tools/public_names.py` says which names there are, `api_tasks.py` which of them the index has.
"""

import inspect
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from api_tasks import TASKS

from tools.bibliography import keys
from tools.public_names import ROOT, Page, answers, find, pages, public_names

NAMED = {name for task in TASKS for name in task.names}
"""Names with a page of their own."""
ORPHAN = "---\norphan: true\n---\n"
"""The head of a page that is reached by links: the sidebar has packages alone."""


TYPES = """Signatures have short names for what many functions take:

| name | what it is |
|---|---|
| `Key` | a key of JAX: `jax.random.key(0)` |
| `Prior` | a NumPyro program, from a space to an `MDPSpec`; those of `bm.models` are such programs |
| `Objective` | `bm.Discounted`, `bm.Episodic`, `bm.AverageReward` or `bm.FirstExit` |
| `PolicyLike` | an action for each state, or probabilities, as an array `[S]`, `[S, A]`, `[H, S, A]`; or a `Policy` |
| `PolicyLabels` | the same by labels: `{"worn": "service"}`, or `{"worn": {"service": 0.9, "run": 0.1}}` |
| `InitialLike` | where episodes start: probabilities `[S]`, the label of a state, `{label: probability}`, or a log |
| `ArrayLike` | whatever `np.asarray` reads: an array, a number, nested sequences of numbers |
| `RealLike`, `RealScalar`, `Scalar` | a number, of Python, NumPy or JAX; `RealLike` may be an array that broadcasts |
| `IntScalar`, `BoolScalar` | an integer; True or False |
| `ReplanLike` | when an agent plans: `"episode"`, `"doubling"`, a number of steps, or a function |
| `Float[Array, 'S A']` | a floating-point array with these axes; `*H` is no axis, or one for the step |
"""
"""Of `signatures.NAMES` those that a reader meets."""


def write_api_pages(folder: Path) -> None:
    """Write `index.md`, pages of packages and of names; a page that has not changed is left as it is.

    Args:
        folder: of the pages; files there that belong to no page are removed.
    """
    packages = [page for page in pages() if page.own or page.modules]
    texts = {page.package: _package(page) for page in packages}
    for page in packages:
        texts |= {_file(name): _name(name, page.package) for name in page.own if _short(name) in NAMED}
    texts["index"] = _index([page.package for page in packages])
    for stale in {path.name for path in folder.glob("*.md")} - {f"{name}.md" for name in texts}:
        (folder / stale).unlink()
    for name, text in texts.items():
        write_page(folder / f"{name}.md", text)


def write_page(path: Path, text: str) -> None:
    """Write a page; one that has not changed is left as it is, so that a build does not read it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _index(packages: list[str]) -> str:
    """Names by task, one line each, and the list of packages."""
    parts = [
        "# Reference by task",
        "`import bayes_mdp as bm`; names are written as after `bm.`, and each leads to its page. Everything else is "
        "listed by package, in the sidebar and at the end.",
    ]
    for task in TASKS:
        parts += [f"## {task.title}", task.about, _lines([f"{ROOT}.{name}" for name in task.names])]
    parts += ["## Types in signatures", TYPES]
    parts += ["## All packages", "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(packages) + "\n```"]
    return "\n\n".join(parts) + "\n"


def _package(page: Page) -> str:
    """What the package is for, links to the pages of names, and the documentation of its other names."""
    parts = [f"# `{page.package}`", _fence("eval-rst", [f".. automodule:: {page.package}"])]
    alone = [name for name in page.own if _short(name) in NAMED]
    rest = [name for name in page.own if _short(name) not in NAMED]
    if alone:
        parts.append(_lines(alone))
    if page.elsewhere:
        links = ", ".join(_link(name) for name in page.elsewhere)
        parts.append(_fence("eval-rst", [f"Documented on another page: {links}."]))
    if rest:
        parts.append(_section(rest))
    for module, names in page.modules:
        about = _fence("eval-rst", [f".. automodule:: {module}", "   :no-index:"])
        parts += [f"## `{module.rpartition('.')[2]}`", about, _section(names)]
    return "\n\n".join(parts) + "\n"


def _section(names: list[str]) -> str:
    """Links to the names, then their documentation."""
    entries = [line for name in names for line in ("", *_entry(name))]
    return _fence("eval-rst", [", ".join(map(_link, names)), *entries] if len(names) > 1 else entries[1:])


def _link(name: str) -> str:
    return f":py:obj:`{_short(name)} <{name}>`"


def _entry(name: str) -> list[str]:
    """The directives that document one name: of a function also the classes that it returns."""
    if inspect.isclass(find(name)):
        return [f".. autoclass:: {name}", "   :members:"]
    returned = [line for one in answers().get(name, []) for line in ("", f".. autoclass:: {one}", "   :members:")]
    return [f".. autofunction:: {name}", *returned]


def _name(name: str, package: str) -> str:
    """The page of one function or class."""
    back = f"[By task](index.md) · [`{package}`]({package}.md)"
    return f"{ORPHAN}# `bm.{_short(name)}`\n\n{_fence('eval-rst', _entry(name))}\n\n{back}\n"


def _lines(names: Sequence[str]) -> str:
    """A table: each name with the first sentence of its docstring."""
    rows = [f"| [`{_short(name)}`]({_file(name)}.md) | {_summary(name)} |" for name in names]
    return "\n".join(["| | |", "|---|---|", *rows])


def _summary(name: str) -> str:
    """The first sentence of a docstring, fit for a cell of a table."""
    sentence = (inspect.getdoc(find(name)) or "").split("\n\n")[0].replace("\n", " ")
    parts = re.split(r"(`[^`]*`)", sentence)
    plain = (part if place % 2 else re.sub(r"([*$<_])", r"\\\1", part) for place, part in enumerate(parts))
    return cited("".join(plain).replace("|", "\\|"))


def _file(name: str) -> str:
    """Of the page of a name, without ending: a class that differs from a function by its capitals alone says so.

    Some file systems do not tell `SBC.md` from `sbc.md`.
    """
    return f"{_short(name)}-class" if _spellings()[name.lower()] > 1 and inspect.isclass(find(name)) else _short(name)


@cache
def _spellings() -> Counter[str]:
    return Counter(name.lower() for name in public_names())


def _short(name: str) -> str:
    """A full name as it is written after `bm.`."""
    return name.removeprefix(f"{ROOT}.")


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
