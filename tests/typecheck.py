"""The annotations of the package, checked while the tests run: jaxtyping's import hook with beartype.

A call is checked when it returns, arguments and result together. What a function refuses by itself, with an error of
its own, is thereby left to it: the tests of wrong arguments go on reading the package's sentences, and an annotation
need not admit what is refused.

The environment variable BAYES_MDP_TYPES says what is checked: "off" (the default: a fifth of the time of a run), "on"
(`CHECKED`), or sub-packages with commas between them ("bayes_mdp.agents,bayes_mdp.calibration"). CI checks in a run of
its own.
"""

import dataclasses
import inspect
import random
from collections.abc import Callable
from functools import cache
from typing import Any, Self, get_args, get_type_hints

import equinox as eqx
from jaxtyping import config, install_import_hook, jaxtyped

# Of a long list beartype looks at one entry, drawn at random: with a generator of its own, the same in every run, and
# the state of Python's is left to the tests.
_getrandbits = random.getrandbits
random.getrandbits = random.Random(0).getrandbits
from beartype import BeartypeConf, beartype  # noqa: E402

random.getrandbits = _getrandbits

CHECKED = ("bayes_mdp",)
"""What is checked."""

# As static checkers read it, an int is a float.
_checker: Callable[..., Any] = beartype(conf=BeartypeConf(is_pep484_tower=True))


def install(choice: str) -> tuple[str, ...]:
    """Install the hook, before the package is imported; which sub-packages it checks, once they `begin`."""
    packages = {"on": CHECKED, "off": ()}.get(choice, tuple(choice.split(",")))
    config.update("jaxtyping_disable", True)
    if packages:
        install_import_hook(packages, f"{__name__}.{on_return.__name__}")
        _check_modules(packages)
    return packages


def begin() -> None:
    """Check from here on."""
    config.update("jaxtyping_disable", False)


def on_return(stub: Callable[..., Any]) -> Callable[..., Any]:
    """The checker that jaxtyping applies to its stand-ins of a function.

    It has two: one with the parameters of the function, called before it, and one with the result as a further keyword,
    called after it, which checks the parameters once more. The first is left alone.
    """
    if not _takes_result(stub):
        return stub
    # A stand-in is in no class: beartype refuses `Self` there. (Code that names the attribute itself has no identity.)
    hints = inspect.get_annotations(stub)
    setattr(stub, _ANNOTATIONS, {name: Any if _names_self(hint) else hint for name, hint in hints.items()})
    checked = _checker(stub)
    return _unless_module(checked) if stub.__name__ == "__init__" else checked


_ANNOTATIONS = "__annotations__"


def _takes_result(stub: Callable[..., Any]) -> bool:
    last = list(inspect.signature(stub).parameters.values())[-1:]
    return any(x.kind is x.KEYWORD_ONLY and x.name.startswith("ret") and x.name[3:].isdigit() for x in last)


def _names_self(hint: object) -> bool:
    return hint is Self or any(map(_names_self, get_args(hint)))


def _unless_module(checked: Callable[..., Any]) -> Callable[..., Any]:
    """An equinox module is checked once it is whole (see `_check_modules`): its `__check_init__` comes after."""

    def check(self: object, *args: object, **kwargs: object) -> None:
        if not isinstance(self, eqx.Module):
            checked(self, *args, **kwargs)

    return check


def _check_modules(packages: tuple[str, ...]) -> None:
    """Check the fields of an equinox module against their annotations after its converters and `__check_init__`."""
    metaclass: Any = type(eqx.Module)
    make = metaclass.__call__
    inside = tuple(f"{package}." for package in packages)

    def made(cls: type, *args: object, **kwargs: object) -> object:
        module = make(cls, *args, **kwargs)
        if f"{cls.__module__}.".startswith(inside):
            _fields_of(cls)(**{field.name: getattr(module, field.name) for field in dataclasses.fields(module)})
        return module

    metaclass.__call__ = made


@cache
def _fields_of(cls: type) -> Callable[..., None]:
    """A function of the fields of a class, which checks them together: one axis name means one size."""
    hints = get_type_hints(cls, include_extras=True)

    def fields(**values: object) -> None:
        del values

    names = [field.name for field in dataclasses.fields(cls)]
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(name, Any)) for name in names]
    )
    fields.__name__, fields.__qualname__, fields.__module__ = "fields", f"{cls.__qualname__}.fields", cls.__module__
    vars(fields)["__signature__"] = signature
    return jaxtyped(fields, typechecker=_checker)
