"""Which names are public: those of every package's `__all__`, and for agents those of their modules' `__all__` too.

The reference (`docs/api_pages.py`) has an entry for each, and below a function the classes that it alone returns
(`answers`), which nobody has to name. `tools/docstrings.py` checks the docstring of each name and of each answer.

    python tools/public_names.py    # how many, by page
"""

import inspect
import pkgutil
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROOT = "bayes_mdp"
WITH_MODULES = f"{ROOT}.agents"
PARTS = {
    "bayes_mdp.calibration.sbc_behaviour": ("calibration.simulation_based.behaviour_sbc.DrawnBehaviour",),
    "bayes_mdp.choose": ("decisions.choosing.budgets.ShadowPrice", "decisions.choosing.budgets.Spending"),
    "bayes_mdp.compare_policies": ("decisions.verdict.Verdict",),
    "bayes_mdp.infer": (
        "inference.conjugate.conjugate_posterior.LayeredPosterior",
        "inference.draws.chains.Chains",
    ),
    "bayes_mdp.policy_value": ("decisions.outcomes.OutcomeValue", "mdp.validity.Validity"),
}
"""Full name of a function -> classes below `ROOT` that its answer has in its fields, and that a reader meets there."""


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


@cache
def answers() -> dict[str, list[str]]:
    """Full name of a public function -> full names of the classes that it returns and that are not public themselves.

    Each stands once: below the first function that returns it. What else a reader meets in it is listed in `PARTS`.
    """
    names = public_names()
    known = {identity(find(name)) for name in names}
    below: dict[str, list[str]] = {}
    for name in names:
        thing = find(name)
        parts = [find(f"{ROOT}.{part}") for part in PARTS.get(name, ())]
        for one in [*(() if inspect.isclass(thing) else _returned(thing)), *parts]:
            if identity(one) not in known:
                known.add(identity(one))
                below.setdefault(name, []).append(f"{one.__module__}.{one.__qualname__}")
    return below


def _returned(function: object) -> Iterator[type]:
    """Classes of the package in the annotation of what a function returns; protocols are no answers of a function."""
    plain: Any = inspect.unwrap(function) if callable(function) else function
    annotation = getattr(plain, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(plain, "__globals__", {}))
        except NameError:  # a name that only a type checker imports: another library's
            return
    for one in [annotation, *get_args(annotation)]:
        ours = inspect.isclass(one) and getattr(one, "__module__", "").startswith(f"{ROOT}.")
        if ours and not one.__name__.startswith("_") and not getattr(one, "_is_protocol", False):
            yield one


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


def main() -> None:
    """Print how many names each page has, and how many answers stand below their functions."""
    for page in pages():
        names = [*page.own, *(name for _, listed in page.modules for name in listed)]
        if names:
            print(f"{len(names):5}{sum(len(answers().get(name, [])) for name in names):5}  {page.package}")
    print(f"{len(public_names()):5}{sum(map(len, answers().values())):5}  names, and answers below them")


if __name__ == "__main__":
    main()
