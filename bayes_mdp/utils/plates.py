"""`open_plates`: NumPyro plates, those that are open already included."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple


class Plate(NamedTuple):
    """One plate: its size, and its axis from the right (negative)."""

    size: int
    dim: int


@contextmanager
def open_plates(wanted: Mapping[str, Plate]) -> Iterator[None]:
    """Open these plates; one that is open already, of the same name, size and axis, is used as it is.

    Args:
        wanted: name -> plate.

    Returns:
        A context, in which sites get these plates.

    Raises:
        ValueError: another plate is open on the same axis, or one of the same name that differs.
    """
    import numpyro
    from numpyro.primitives import _PYRO_STACK  # NumPyro has no public list of the handlers in force

    around = [handler for handler in _PYRO_STACK if isinstance(handler, numpyro.plate)]
    there = {handler.name: Plate(handler.size, handler.dim) for handler in around}
    for name, plate in wanted.items():
        for other, found in there.items():
            if (other == name) != (found.dim == plate.dim) or (other == name and found.size != plate.size):
                raise ValueError(
                    f"plate {other!r} (size {found.size}, dim {found.dim}) is open where space.plates() opens plate "
                    f"{name!r} (size {plate.size}, dim {plate.dim}), expected no other plate there: open it inside "
                    "space.plates(), or leave it before"
                )
    with ExitStack() as stack:
        for name, plate in wanted.items():
            if name not in there:
                stack.enter_context(numpyro.plate(name, plate.size, dim=plate.dim))
        yield
