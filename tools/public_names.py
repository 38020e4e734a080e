"""Which names are public: those of every package's `__all__`, and for agents those of their modules' `__all__` too.

The reference (`docs/api_pages.py`) has an entry for each, `tools/docstrings.py` checks the docstring of each.
"""

import inspect
import pkgutil
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

ROOT = "bayes_mdp"
WITH_MODULES = f"{ROOT}.agents"


class Page(NamedTuple):
    """The names of one package, every name once: on the page of the first package that has it.

    Args:
        package: name of the package.
        own: full names that are documented here.
        elsewhere: full names of what the package exports too, as they are documented on a page before.
        modules: (name of a module, its full names), for packages of agents.
    """

    package: str
    own: list[str]
    elsewhere: list[str]
    modules: list[tuple[str, list[str]]]


def pages() -> list[Page]:
    """The packages in the order of the reference: `ROOT` first. What `ROOT` itself exports is documented there."""
    homes: dict[int, str] = {}
    packages = [import_module(name) for name in [ROOT, *_package_names()]]
    return [_page(package, homes) for package in packages]


def public_names() -> list[str]:
    """Full names of all functions and classes of the reference."""
    return [name for page in pages() for name in [*page.own, *(x for _, names in page.modules for x in names)]]


def find(name: str) -> object:
    """The function or class of a full name."""
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _package_names() -> list[str]:
    """Sub-packages of `ROOT`, those without a leading underscore, and the modules that its front page lists."""
    path = import_module(ROOT).__path__
    found = pkgutil.walk_packages(path, f"{ROOT}.", onerror=lambda name: None)
    listed = {f"{ROOT}.{name}" for name in import_module(ROOT).__all__}
    return sorted(one.name for one in found if (one.ispkg and "._" not in one.name) or one.name in listed)


def _page(package: ModuleType, homes: dict[int, str]) -> Page:
    """The page of a package; `homes` maps the identity of a documented object to its full name, and grows."""
    page = Page(package.__name__, [], [], [])
    for name in sorted(getattr(package, "__all__", ()), key=str.lower):
        thing, full = getattr(package, name), f"{package.__name__}.{name}"
        if inspect.ismodule(thing):
            continue
        if identity(thing) in homes:
            page.elsewhere.append(homes[identity(thing)])
        elif inspect.isclass(thing) or inspect.isroutine(thing):
            homes[identity(thing)] = full
            page.own.append(full)
    if package.__name__.startswith(WITH_MODULES):
        page.modules.extend(_modules(package, homes))
    return page


def _modules(package: ModuleType, homes: dict[int, str]) -> list[tuple[str, list[str]]]:
    """The modules of a package that list names of their own (`__all__`) which are documented nowhere yet."""
    modules = []
    for one in pkgutil.iter_modules(package.__path__):
        if one.ispkg:
            continue
        module = import_module(f"{package.__name__}.{one.name}")
        names = []
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if identity(thing) not in homes:
                homes[identity(thing)] = f"{module.__name__}.{name}"
                names.append(homes[identity(thing)])
        if names:
            modules.append((module.__name__, names))
    return modules


def identity(thing: object) -> int:
    """The same for what a decorator has wrapped."""
    return id(inspect.unwrap(thing)) if callable(thing) else id(thing)
