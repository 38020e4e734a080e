"""Pictures that several environments share."""

from bayes_mdp.mdp import Picture


def in_a_line(n_states: int) -> Picture:
    """The states side by side, from left to right."""
    return Picture(tuple((float(x), 0.0) for x in range(n_states)))


def in_rows(n_states: int, columns: int = 10) -> Picture:
    """The states one after the other, to the right and back again in the row beneath."""
    rows = (divmod(state, columns) for state in range(n_states))
    return Picture(tuple((float(x if y % 2 == 0 else columns - 1 - x), float(y)) for y, x in rows))
