"""`Module`: `equinox.Module`, whose methods cost a microsecond to look up and not ninety.

Equinox makes a method that is looked up on an object a pytree, `BoundMethod`, so that it may be an argument of
`jax.jit` and kin. It builds each with the whole care of a new module, which takes longer than arithmetic with small
arrays. Two of them differ in the object alone: all else is made once for each function, by Equinox itself, and copied
from then on. The result is the same object in every respect.

For classes whose methods are called thousands of times in an answer; others are `equinox.Module` as they are.
"""

from types import MethodType
from typing import TYPE_CHECKING, Any

import equinox as eqx


class Module(eqx.Module):
    """A pytree with fields and methods, as `equinox.Module`."""

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str, /) -> Any:
            attribute = object.__getattribute__(self, name)
            if type(attribute) is not MethodType or attribute.__self__ is not self or name[:2] == "__":
                return attribute
            function = attribute.__func__
            made = _PARTS.get(function)
            if made is None:
                made = _PARTS[function] = _parts(eqx.Module.__getattribute__(self, name))
            kind, parts = made
            bound = object.__new__(kind)
            fields = object.__getattribute__(bound, "__dict__")
            fields.update(parts)
            fields["__self__"] = self
            return bound


def _parts(bound: object) -> tuple[type, dict[str, Any]]:
    """The class of a method that Equinox has bound, and all of it but the object."""
    return type(bound), {name: part for name, part in vars(bound).items() if name != "__self__"}


_PARTS: dict[Any, tuple[type, dict[str, Any]]] = {}
"""Function of a class -> what its bound methods have in common."""
