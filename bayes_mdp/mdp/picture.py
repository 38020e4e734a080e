"""`Picture`: how an environment is drawn: where its states stand, and the map beneath them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """Where the states of an environment stand on paper. Hashable: it rides on an environment as a static field.

    Args:
        positions: (x, y) of every state, y downwards; several states may stand on one spot (a car at two speeds).
        cells: the lines of a text map beneath them, the character in column x of line y; None: there is none.
    """

    positions: tuple[tuple[float, float], ...]
    cells: tuple[str, ...] | None = None
