"""What messages are made of: the nearest valid word, amounts, pages of the documentation, what to install, warnings.

Nothing here loads JAX: a mistyped command needs none.
"""

import re
import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from typing import SupportsFloat


def did_you_mean(value: object, known: Iterable[Hashable]) -> str:
    """A question that names the nearest known name, in any case of letters; empty where none is near."""
    folded = {str(name).lower(): name for name in known}
    nearest = get_close_matches(str(value).lower(), folded, n=1)
    return f"; did you mean {folded[nearest[0]]!r}?" if nearest else ""


MANY = 1e7  # from here on numbers are written with their power of ten


def amount(number: SupportsFloat, digits: int = 4) -> str:
    """A number of so many digits; from 1,000 to ten million a whole one, with separators of thousands.

    Args:
        number: to be written.
        digits: significant ones, where it is less than 1,000 or at least ten million.
    """
    value = float(number)
    text = f"{value:.{digits}g}"
    size = abs(float(text))
    if 1000 <= size < MANY:
        return f"{value:,.0f}"
    # Two digits of 150 would be 1.5e+02.
    return f"{value:.0f}" if 10**digits <= size < 1000 else text


def amounts(low: SupportsFloat, high: SupportsFloat, digits: int = 4) -> str:
    """An interval: "[8,908, 21,400]".

    Args:
        low, high: its ends.
        digits: as of `amount`.
    """
    return f"[{amount(low, digits)}, {amount(high, digits)}]"


def count_of(number: SupportsFloat | str, noun: str, form: str = "") -> str:
    """A number with its noun: "1 state", "2 states", "3 policies".

    Args:
        number: of things; as text, such as `amount` writes it, as it stands.
        noun: one of them.
        form: of the number, as `format` takes it; "," separates thousands.
    """
    text = number if isinstance(number, str) else f"{number:{form}}"
    return f"{text} {noun if text == '1' else f'{noun[:-1]}ies' if noun.endswith('y') else f'{noun}s'}"


NAMED = 5  # names at most that a message shows


def first_names(names: Sequence[object]) -> str:
    """The first names, and how many more there are: "a, b, c, d, e and 7 more".

    Args:
        names: all of them, written as `str` does.
    """
    shown = ", ".join(map(str, names[:NAMED]))
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown


def see(page: str) -> str:
    """What a message ends with: "(see how-to/read-a-log in the documentation)", or the address of the page.

    Args:
        page: its path in the documentation, without an ending.
    """
    site = _site()
    return f"(see {page} in the documentation)" if site is None else f"(see {site}{page}.html)"


@cache
def _site() -> str | None:
    """Where the documentation of the installed package is, with a slash at its end; None: it names no address."""
    try:
        urls = metadata.metadata("bayes-mdp").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:
        return None
    sites = [address for name, _, address in (url.partition(", ") for url in urls) if name == "Documentation"]
    return f"{sites[0].rstrip('/')}/" if sites else None


@contextmanager
def ends_with_page(page: str) -> Iterator[None]:
    """Errors that arise inside, and name no page, end with this one; of a function, as its decorator.

    Args:
        page: as of `see`.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, FileNotFoundError) as error:
        if error.args and isinstance(error.args[0], str) and "(see " not in error.args[0]:
            error.args = (f"{error.args[0]} {see(page)}", *error.args[1:])
            if isinstance(error, ImportError):  # which prints this
                error.msg = error.args[0]
        raise


def install(extra: str) -> str:
    """A command that installs what an extra consists of: "pip install 'optax>=0.2.3' (the extra 'deep')".

    It names the packages and not the extra of this one, so that it works wherever this one was installed from.

    Args:
        extra: one of `[project.optional-dependencies]`.
    """
    try:
        lines = metadata.requires("bayes-mdp") or []
    except metadata.PackageNotFoundError:
        lines = []
    parts = [line.partition(";") for line in lines]
    needed = [name.strip() for name, _, condition in parts if re.search(rf"""extra == ['"]{extra}['"]""", condition)]
    if not needed:  # run from a checkout that was not installed, or not since the extra was added
        return f"install what pyproject.toml lists for the extra {extra!r}"
    return f"pip install {' '.join(map(repr, needed))} (the extra {extra!r})"


def version_of(package: str) -> str:
    """Its version, or "not installed".

    Args:
        package: as on PyPI.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


_INSIDE = (__name__.partition(".")[0], "jaxtyping", "beartype", "contextlib")
"""Packages whose frames are passed over: those where types are checked, and decorators."""


def warn_user(message: str) -> None:
    """A `UserWarning` at the first caller that is not of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
