"""Mean and sum of squared deviations from exact sums: correctly rounded, one rounding from exact numbers to the result.

Source of the arithmetic of pairs of floats: Dekker (1971), *A floating-point technique for extending the available
precision*; of rounding only where it is sure: Ziv (1991), *Fast evaluation of elementary mathematical functions with
correctly rounded last bit*.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.numerics.exact_sums import BITS, BLOCK, MASK, SPLITTER, ExactSums

_PAIR_ERROR = 2.0**-92
_SAFE = (2.0**-400, 2.0**480)
Pair = tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]
"""A number as the sum of two floats that do not overlap: twice the digits."""


def exact_moments(
    count: Int[np.ndarray, " M"], sums: ExactSums, squares: ExactSums
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Mean and sum of squared deviations of each group, correctly rounded from exact numbers; zero where it is empty.

    Args:
        count: values in each group.
        sums, squares: of the values, and of their squares.
    """
    mean, ss = np.zeros(len(count)), np.zeros(len(count))
    # By machine numbers where one rounding is all that happens, or where their errors surely do not change how the
    # result is rounded; the rest by Python's integers.
    slow = count > 0
    for start in range(0, len(count), BLOCK):
        block = slice(start, start + BLOCK)
        part = (count[block], *(ExactSums(x.lowest, x.digits[block]) for x in (sums, squares)))
        plain = _plain_moments(*part)
        for sure, quick_mean, quick_ss in (_by_pairs(*part), *(() if plain is None else (plain,))):
            mean[block][sure], ss[block][sure] = quick_mean[sure], quick_ss[sure]
            slow[block] &= ~sure
    place = np.flatnonzero(slow)
    if not place.size:
        return mean, ss
    n = count[place].astype(object)
    total, square = (ExactSums(x.lowest, x.digits[place]).to_integers() for x in (sums, squares))
    one, two = BITS * sums.lowest, BITS * squares.lowest
    unit = min(two, 2 * one)
    # n ss = n sum x^2 - (sum x)^2, in whole numbers of 2^unit.
    spread = n * square * 2 ** (two - unit) - total * total * 2 ** (2 * one - unit)
    mean[place], ss[place] = _quotients(total, n, one), _quotients(spread, n, unit)
    return mean, ss


def _by_pairs(
    count: Int[np.ndarray, " M"], sums: ExactSums, squares: ExactSums
) -> tuple[Bool[np.ndarray, " M"], Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Where arithmetic of pairs of floats surely gives correctly rounded results, and these: mean, squared deviations.

    Each operation on pairs has a relative error of a few 2^-104; `_PAIR_ERROR` is more than all of them together, of
    the largest number that occurs. A result is sure where the error, added or taken away, rounds to the same float.
    """
    with np.errstate(all="ignore"):
        n = np.maximum(count, 1).astype(np.float64)
        total, total_size = _pair(sums)
        square, square_size = _pair(squares)
        centre = _divided(total, n)
        mean, sure = _rounded(centre, _PAIR_ERROR * total_size / n)
        taken = _product(total, centre)
        spread = _sum(square, (-taken[0], -taken[1]))
        error = _PAIR_ERROR * (square_size + total_size * (total_size / n))
        ss, sure_too = _rounded(spread, error)
        # Far from underflow and overflow, where errors are relative. One reward, or zeros alone, have no spread.
        nothing = ~sums.digits.any(axis=1), ~squares.digits.any(axis=1)
        safe = (total_size < _SAFE[1]) & (np.abs(ss) < _SAFE[1] ** 2) & ((square_size > _SAFE[0]) | nothing[1])
        safe &= (total_size > _SAFE[0]) | nothing[0]
        flat = (count == 1) | nothing[1]
        mean, ss = np.where(nothing[0], 0.0, mean), np.where(flat, 0.0, ss)
    return safe & (sure | nothing[0]) & (sure_too | flat) & (count > 0), mean, ss


def _pair(sums: ExactSums) -> tuple[Pair, Float[np.ndarray, " M"]]:
    """The sums as pairs, and the sum of the sizes of their digits."""
    *lower, top = sums.digits.T
    columns = [*lower, top & MASK, top >> BITS]
    zero = np.zeros(len(top))
    total, size = (zero, zero), zero
    for k in reversed(range(len(columns))):
        digit = columns[k].astype(np.float64)  # below 2^53: exact
        scaled = np.ldexp(digit, BITS * (sums.lowest + k))
        total, size = _sum(total, (scaled, zero)), size + np.abs(scaled)
    return total, size


def _two_sum(a: Float[np.ndarray, " M"], b: Float[np.ndarray, " M"]) -> Pair:
    """a + b exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Float[np.ndarray, " M"], b: Float[np.ndarray, " M"]) -> Pair:
    """a b exactly (Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = ((high := SPLITTER * x - (SPLITTER * x - x), x - high) for x in (a, b))
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _sum(one: Pair, two: Pair) -> Pair:
    high, low = _two_sum(one[0], two[0])
    more, rest = _two_sum(one[1], two[1])
    high, low = _two_sum(high, low + more)
    return _two_sum(high, low + rest)


def _product(one: Pair, two: Pair) -> Pair:
    high, low = _two_product(one[0], two[0])
    return _two_sum(high, low + (one[0] * two[1] + one[1] * two[0]))


def _divided(one: Pair, n: Float[np.ndarray, " M"]) -> Pair:
    """A pair over a float: the quotient of the floats, and what is left over the same."""
    quotient = one[0] / n
    back, error = _two_product(quotient, n)
    left = ((one[0] - back) - error) + one[1]
    high, low = _two_sum(quotient, left / n)
    back = _product((high, low), (n, np.zeros_like(n)))
    rest = _sum(one, (-back[0], -back[1]))
    return _two_sum(high, low + rest[0] / n)


def _rounded(value: Pair, error: Float[np.ndarray, " M"]) -> tuple[Float[np.ndarray, " M"], Bool[np.ndarray, " M"]]:
    """The pair as a float, and whether no number within the error of it rounds to another."""
    return value[0] + value[1], value[0] + (value[1] + error) == value[0] + (value[1] - error)


def _plain_moments(
    count: Int[np.ndarray, " M"], sums: ExactSums, squares: ExactSums
) -> tuple[Bool[np.ndarray, " M"], Float[np.ndarray, " M"], Float[np.ndarray, " M"]] | None:
    """Likewise by integers of 64 bits, where they are below 2^53; None: nowhere."""
    if sums.digits.shape[1] > 1 or squares.digits.shape[1] > 1:
        return None
    total, square = sums.digits[:, 0], squares.digits[:, 0]
    zeros = [_trailing_zeros(x) for x in (total, square)]
    total, square = total >> zeros[0], square >> zeros[1]
    one, two = BITS * sums.lowest + zeros[0], BITS * squares.lowest + zeros[1]
    unit = min(two, 2 * one)
    if max(two - unit, 2 * one - unit) > 52 or max(map(abs, (one, two))) > 500:
        return None
    size = count.astype(np.float64) * square * 2.0 ** (two - unit)  # (sum x)^2 <= n sum x^2
    easy = (count > 0) & (size < 2.0**52)
    n, total, square = (np.where(easy, x, 1) for x in (count, total, square))
    spread = n * (square << (two - unit)) - ((total * total) << (2 * one - unit))
    return easy, total / n * 2.0**one, spread / n * 2.0**unit


def _trailing_zeros(numbers: Int[np.ndarray, " M"]) -> int:
    """How often two divides all of them."""
    bits = int(np.bitwise_or.reduce(numbers))
    return (bits & -bits).bit_length() - 1 if bits else 0


def _quotients(numerator: np.ndarray, denominator: np.ndarray, exponent: int) -> Float[np.ndarray, " M"]:
    """numerator 2^exponent / denominator of Python integers, whose division rounds correctly; inf beyond float64."""
    if exponent >= 0:
        numerator = numerator * 2**exponent
    else:
        denominator = denominator * 2**-exponent
    return np.fromiter(map(_quotient, numerator, denominator), np.float64, len(numerator))


def _quotient(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return np.inf if numerator > 0 else -np.inf
