"""`Picture`: how an environment is drawn: where its states stand, and the map beneath them."""

from dataclasses import dataclass

from bayes_mdp.utils.validation import as_real, check_finite, check_type


@dataclass(frozen=True)
class Picture:
    """Where the states of an environment stand on paper. Hashable: it rides on an environment as a static field.

    Args:
        positions: (x, y) of every state, y downwards; several states may stand on one spot (a car at two speeds).
        cells: the lines of a text map beneath them, the character in column x of line y; None: there is none.

    Raises:
        TypeError, ValueError: positions that are no pairs of finite numbers, lines that are no text.
    """

    positions: tuple[tuple[float, float], ...]
    cells: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_type("positions", self.positions, tuple, "a tuple of (x, y)")
        spots = as_real("positions", self.positions, "(x, y) of every state")
        if spots.shape != (0,) and (spots.ndim != 2 or spots.shape[1] != 2):  # a map alone has none
            raise ValueError(f"positions has shape {spots.shape}, expected (x, y) of every state")
        check_finite("positions", spots)
        if self.cells is not None:
            check_type("cells", self.cells, tuple, "a tuple of the lines of a map")
            for i, line in enumerate(self.cells):
                check_type(f"cells[{i}]", line, str, "a line of a map")
