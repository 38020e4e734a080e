"""The nearest valid word, for messages. Not in `validation`, which loads JAX: a mistyped command needs none."""

from collections.abc import Hashable, Iterable
from difflib import get_close_matches


def did_you_mean(value: object, known: Iterable[Hashable]) -> str:
    """A question that names the nearest known name, in any case of letters; empty where none is near."""
    folded = {str(name).lower(): name for name in known}
    near = get_close_matches(str(value).lower(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""
