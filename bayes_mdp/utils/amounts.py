"""`amount`: a value as people write it: 15,430 and not 1.543e+04."""

from bayes_mdp.utils.typing import RealLike

MANY = 1e7  # from here on numbers are written with their power of ten


def amount(number: RealLike, digits: int = 4) -> str:
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


def amounts(low: RealLike, high: RealLike, digits: int = 4) -> str:
    """An interval: "[8,908, 21,400]".

    Args:
        low, high: its ends.
        digits: as of `amount`.
    """
    return f"[{amount(low, digits)}, {amount(high, digits)}]"
