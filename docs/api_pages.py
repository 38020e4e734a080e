"""Writes the API reference: one page for each package that has an `__all__`, each public name documented once.

A name that `bayes_mdp` itself exports is documented on the page of `bayes_mdp`; the package it comes from links there.
Packages of agents also list the public functions and classes of their modules: the mathematics of a paper is a function
beside the agent.
"""

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = "bayes_mdp"
WITH_MODULES = f"{ROOT}.agents"
_KEYS: set[str] = set()


def write_api_pages(folder: Path, *, bibliography: Path) -> None:
    """Write `index.md` and a page for each package into `folder`; a page that has not changed is left as it is.

    Args:
        folder: of the pages; files there that belong to no package are removed.
        bibliography: BibTeX file, whose keys are made links where a docstring cites them.
    """
    _KEYS.update(re.findall(r"^@\w+\{([^,]+),", bibliography.read_text(), flags=re.M))
    packages = [import_module(name) for name in [ROOT, *_package_names()]]
    homes: dict[int, str] = {}
    pages = {package.__name__: _page(package, homes) for package in packages}
    pages = {name: page for name, page in pages.items() if page}
    pages["index"] = "# API reference\n\n```{toctree}\n" + "\n".join(pages) + "\n```\n"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.stem for path in folder.glob("*.md")} - set(pages):
        (folder / f"{stale}.md").unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def _package_names() -> list[str]:
    """Sub-packages of `ROOT`, those without a leading underscore."""
    path = import_module(ROOT).__path__
    found = pkgutil.walk_packages(path, f"{ROOT}.", onerror=lambda name: None)
    return sorted(module.name for module in found if module.ispkg and "._" not in module.name)


def _page(package: ModuleType, homes: dict[int, str]) -> str | None:
    """The page of a package; `homes` maps the identity of a documented object to its full name, and grows."""
    own, elsewhere = [], []
    for name in sorted(getattr(package, "__all__", ()), key=str.lower):
        thing, full = getattr(package, name), f"{package.__name__}.{name}"
        if inspect.ismodule(thing):
            continue
        if _identity(thing) in homes:
            elsewhere.append(homes[_identity(thing)])
            continue
        if inspect.isclass(thing) or inspect.isroutine(thing):
            homes[_identity(thing)] = full
            own.append(full)
    sections = [_section(own)] if own else []
    if package.__name__.startswith(WITH_MODULES):
        sections += _modules(package, homes)
    if not sections:
        return None
    head = [f"# `{package.__name__}`", _fence("eval-rst", [f".. automodule:: {package.__name__}"])]
    if elsewhere:
        links = ", ".join(f":py:obj:`{full.removeprefix(ROOT + '.')} <{full}>`" for full in elsewhere)
        head.append(_fence("eval-rst", [f"Documented on another page: {links}."]))
    return "\n\n".join([*head, *sections]) + "\n"


def _modules(package: ModuleType, homes: dict[int, str]) -> list[str]:
    """A section for each module of a package that defines public names which are documented nowhere yet."""
    sections = []
    for found in pkgutil.iter_modules(package.__path__):
        if found.ispkg or found.name.startswith("_"):
            continue
        module = import_module(f"{package.__name__}.{found.name}")
        own = []
        for name, thing in vars(module).items():
            defined = getattr(thing, "__module__", None) == module.__name__ and not name.startswith("_")
            if defined and (inspect.isclass(thing) or inspect.isroutine(thing)) and _identity(thing) not in homes:
                homes[_identity(thing)] = f"{module.__name__}.{name}"
                own.append(homes[_identity(thing)])
        if own:
            about = _fence("eval-rst", [f".. automodule:: {module.__name__}", "   :no-index:"])
            sections.append(f"## `{found.name}`\n\n{about}\n\n{_section(own)}")
    return sections


def _section(names: list[str]) -> str:
    """Links to the names, then their documentation."""
    links = ", ".join(f":py:obj:`{name.rpartition('.')[2]} <{name}>`" for name in names)
    entries = []
    for name in names:
        module, _, attribute = name.rpartition(".")
        if inspect.isclass(getattr(import_module(module), attribute)):
            entries += ["", f".. autoclass:: {name}", "   :members:"]
        else:
            entries += ["", f".. autofunction:: {name}"]
    return _fence("eval-rst", [links, *entries] if len(names) > 1 else entries)


def _fence(directive: str, lines: list[str]) -> str:
    return "\n".join([f"```{{{directive}}}", *lines, "```"])


def _identity(thing: object) -> int:
    return id(inspect.unwrap(thing)) if callable(thing) else id(thing)


def cite_keys(app, docname: str, source: list[str]) -> None:
    """Make [KEY] in the text of a Markdown page a citation; code blocks stay as they are."""
    del app
    if docname.startswith("reference/api/"):
        return
    parts = re.split(r"(^```.*?^```)", source[0], flags=re.S | re.M)
    source[0] = "".join(
        part
        if place % 2
        else re.sub(r"\[(\w+)\](?!\()", lambda m: f"{{cite}}`{m[1]}`" if m[1] in _KEYS else m[0], part)
        for place, part in enumerate(parts)
    )


def as_rst(app, what, name, thing, options, lines: list[str]) -> None:
    """Edit a docstring in place: what reStructuredText would read as markup is escaped, [KEY] is made a link.

    Text between backticks and indented blocks after `::` are code and stay as they are.
    """
    del app, what, name, thing, options
    literal = False
    for number, line in enumerate(lines):
        indented = line.startswith(" ") or not line.strip()
        literal = literal and indented
        if not literal:
            pieces = re.split(r"(``.*?``|`[^`]*`)", line)
            lines[number] = "".join(piece if place % 2 else _escape(piece) for place, piece in enumerate(pieces))
        literal = literal or line.rstrip().endswith("::")


def _escape(text: str) -> str:
    text = re.sub(r"(?<!\\)\|", r"\\|", text)  # absolute values, conditional laws: no substitutions
    text = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", text)  # a trailing underscore is no link
    text = re.sub(r"(?<=\S )\*(?= )", r"\\*", text)  # a product is no emphasis
    text = re.sub(r"\[[^\]]*\]|\(\*\w[^)]*\)", lambda shape: shape[0].replace("*", r"\*"), text)  # nor is [*batch S]
    return re.sub(r"\[(\w+)\]", lambda m: f":cite:`{m[1]}`" if m[1] in _KEYS else m[0], text)
