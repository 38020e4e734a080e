"""Moments of samples (count, mean and sum of squared deviations) from exact sums, rounded correctly once.

Sums of floats (`ExactSums`) are made without any rounding, so that no order, grouping or sharding of the terms changes
a bit. A float is a whole number times a power of two. Every sum here is one too: a fixed-point number whose digits have
32 bits, at places that are the same for all data. Whole numbers add exactly; rounding happens in `exact_moments`.

Sources: Demmel and Nguyen (2015), *Parallel reproducible summation*, for fixed bins; Dekker (1971), *A floating-point
technique for extending the available precision*, for the error of a product.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

BITS = 32
LARGEST = 2.0**510
"""Larger values have squares that float64 cannot hold."""
_DIGIT = 2.0**BITS
MASK = 2**BITS - 1
_TINY = 2.0**-400
_TINY_SHIFT = 20
"""Digits by which tiny values are shifted up, since the errors of their squares would underflow."""
BLOCK = 2**20
"""Terms that are added in float64 at once: 2^20 digits of 32 bits stay below 2^53, up to which integers are exact."""
SPLITTER = 2.0**27 + 1
_FOLDED = 2**28
_NORMAL = (2.0**-1000, 2.0**1000)
"""Between these sizes a number and its quotient by a power of two have the same digits."""


@dataclass(frozen=True, eq=False)
class ExactSums:
    """M sums; sum m is sum_k digits[m, k] 2^(32 (lowest + k)), exactly.

    Equal sums have equal digits, however they came about: all but the last digit lie in 0 .. 2^32 - 1, there are as few
    digits as hold the largest sum, and the first is not zero everywhere.

    Args:
        lowest: the place of the first digit.
        digits: Int64[M B], the last one signed.
    """

    lowest: int
    digits: Int[np.ndarray, "M B"]

    @classmethod
    def zero(cls, size: int) -> "ExactSums":
        """So many sums of nothing."""
        return cls(0, np.zeros((size, 1), np.int64))

    def __len__(self) -> int:
        return len(self.digits)

    def take(self, sums: Int[np.ndarray, " m"]) -> "ExactSums":
        """Some of the sums, by their numbers; equal ones have equal digits again once they are `grouped`."""
        return ExactSums(self.lowest, self.digits[sums])

    def grouped(self, group: Int[np.ndarray, " M"], size: int) -> "ExactSums":
        """[size]: the sums of each group, `group` in 0 .. size - 1; at most 2^30 sums."""
        *lower, top = self.digits.T
        columns = []
        for column in (*lower, top & MASK, top >> BITS):
            total = np.zeros(size, np.int64)
            np.add.at(total, group, column)
            columns.append(total)
        return _normal(self.lowest, columns)

    def to_floats(self) -> Float[np.ndarray, " M"]:
        """[M] float64; each is the sum itself where a float64 can hold it."""
        # From the highest digit down: so far this is the sum rounded down to a digit, which float64 holds if it holds
        # the sum.
        total = np.zeros(len(self))
        for place, digit in reversed(list(enumerate(self.digits.T, self.lowest))):
            total += np.ldexp(digit.astype(np.float64), BITS * place)
        return total

    def to_integers(self) -> np.ndarray:
        """[M] Python integers, in units of 2^(32 lowest)."""
        *lower, top = self.digits.T
        total = top.astype(object)
        # Two digits at a time: a step of Python's integers costs the same for 64 bits as for 32.
        while len(lower) >= 2:
            low, high = lower[-2:]
            del lower[-2:]
            total = total * 4**BITS + (high.astype(np.uint64) << BITS | low.astype(np.uint64)).astype(object)
        return total * 2**BITS + lower[0].astype(object) if lower else total


def concatenate_sums(parts: list[ExactSums]) -> ExactSums:
    """All sums of the parts, one after the other."""
    lowest = min(part.lowest for part in parts)
    # Digits at common places, so that sums of parts with other exponents line up.
    width = max(part.lowest + part.digits.shape[1] for part in parts) - lowest
    digits = np.zeros((width, sum(map(len, parts))), np.int64)
    start = 0
    for part in parts:
        place = part.lowest - lowest
        digits[place : place + part.digits.shape[1], start : start + len(part)] = part.digits.T
        start += len(part)
    return _normal(lowest, list(digits))


def sum_and_squares(
    values: Float[np.ndarray, " N"], group: Int[np.ndarray, " N"], size: int
) -> tuple[ExactSums, ExactSums]:
    """The sums of the values of each group and of their squares, [size] each.

    Args:
        values: finite, at most `LARGEST` in size.
        group: of each value, in 0 .. size - 1.
        size: number of groups.
    """

    def add(digit: Float[np.ndarray, " N"]) -> Int[np.ndarray, " M"]:
        total = np.zeros(size, np.int64)
        for start in range(0, len(digit), BLOCK):
            block = slice(start, start + BLOCK)
            total += np.bincount(group[block], digit[block], minlength=size).astype(np.int64)
        return total

    return _both(values, add, size)


Add = Callable[[Float[np.ndarray, " N"]], Int[np.ndarray, " M"]]


def _both(values: Float[np.ndarray, " N"], add: Add, size: int) -> tuple[ExactSums, ExactSums]:
    tiny = np.abs(values) < _TINY
    large, small = np.where(tiny, 0.0, values), np.where(tiny, values, 0.0) * _DIGIT**_TINY_SHIFT
    sums, squares = {}, {}
    for part, shift in ((large, 0), (small, -_TINY_SHIFT)):
        if not part.any():
            continue
        _collect(sums, part, add, shift)
        for term in _square(part):
            _collect(squares, term, add, 2 * shift)
    return _of_columns(sums, size), _of_columns(squares, size)


def _square(values: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Two floats whose sum is the square, exactly, for sizes of zero or from `_TINY` to `LARGEST` (Dekker)."""
    square = values * values
    large = SPLITTER * values
    high = large - (large - values)
    low = values - high
    return square, ((high * high - square) + 2 * high * low) + low * low


def _collect(columns: dict[int, Int[np.ndarray, " M"]], values: Float[np.ndarray, " N"], add: Add, shift: int) -> None:
    """Add the digits of the values, `shift` places up, to the columns by place."""
    for place, digit in _digits(values):
        column = add(digit)
        columns[place + shift] = columns.get(place + shift, 0) + column


def _digits(values: Float[np.ndarray, " N"]) -> Iterator[tuple[int, Float[np.ndarray, " N"]]]:
    """(place, digit of every value), from the highest place down, until nothing is left. Every step is exact."""
    left = values
    while True:
        largest = max(left.max(initial=0.0), -left.min(initial=0.0))
        if largest == 0.0:
            return
        # The largest value is below 2^exponent: its digit at this place is below 2^32.
        place = -(-int(np.frexp(largest)[1]) // BITS) - 1
        digit = np.trunc(left * _DIGIT**-place)
        yield place, digit
        left = left - digit * _DIGIT**place


def _of_columns(columns: dict[int, Int[np.ndarray, " M"]], size: int) -> ExactSums:
    if not columns:
        return ExactSums.zero(size)
    lowest, highest = min(columns), max(columns)
    zero = np.zeros(size, np.int64)
    return _normal(lowest, [columns.get(place, zero) for place in range(lowest, highest + 1)])


def _normal(lowest: int, columns: list[Int[np.ndarray, " M"]]) -> ExactSums:
    """The one form of the sums with these digits at `lowest`, `lowest` + 1, ...; none is larger than 2^62."""
    columns = list(columns)
    # Carry upwards; open new places until the last digit is the sign alone.
    k = 0
    while k < len(columns) - 1 or (columns[k].size and (columns[k].max() > 0 or columns[k].min() < -1)):
        if k == len(columns) - 1:
            columns.append(np.zeros_like(columns[k]))
        columns[k + 1] = columns[k + 1] + (columns[k] >> BITS)
        columns[k] = columns[k] & MASK
        k += 1
    # Fold the last digits together while they surely fit in 64 bits: as few as hold the largest.
    while len(columns) > 1 and columns[-1].max(initial=0) < _FOLDED and columns[-1].min(initial=0) >= -_FOLDED:
        top = columns.pop()
        columns[-1] = columns[-1] + (top << BITS)
    while len(columns) > 1 and not columns[0].any():
        del columns[0]
        lowest += 1
    if len(columns) == 1 and not columns[0].any():
        lowest = 0
    return ExactSums(lowest, np.stack(columns).T)  # each column in one piece


# From exact sums to a mean and a sum of squared deviations, by one rounding each.


def exact_moments(
    count: Int[np.ndarray, " M"], sums: ExactSums, squares: ExactSums
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """Mean and sum of squared deviations of each group, correctly rounded from exact numbers; zero where it is empty.

    Args:
        count: values in each group.
        sums, squares: of the values, and of their squares.
    """
    # One value is its own mean, and its sum is the value itself: adding its digits up rounds nothing.
    mean, ss = np.where(count == 1, sums.to_floats(), 0.0), np.zeros(len(count))
    place = np.flatnonzero(count > 1)
    # Python's integers: every step is exact, and its division of them rounds correctly (about 1 us a group).
    n = count[place].astype(object)
    total, square = (ExactSums(x.lowest, x.digits[place]).to_integers() for x in (sums, squares))
    sum_exponent, square_exponent = BITS * sums.lowest, BITS * squares.lowest
    unit = min(square_exponent, 2 * sum_exponent)
    # n ss = n sum x^2 - (sum x)^2, in whole numbers of 2^unit.
    spread = _shifted(n * square, square_exponent - unit) - _shifted(total * total, 2 * sum_exponent - unit)
    mean[place], ss[place] = _quotients(total, n, sum_exponent), _quotients(spread, n, unit)
    return mean, ss


def _shifted(integers: np.ndarray, places: int) -> np.ndarray:
    """integers 2^places, of Python integers; places >= 0."""
    return integers * 2**places if places else integers


def _quotients(numerator: np.ndarray, denominator: np.ndarray, exponent: int) -> Float[np.ndarray, " M"]:
    """numerator 2^exponent / denominator of Python integers, whose division rounds correctly; inf beyond float64."""
    # A power of two changes no rounding while the result is a normal number: it is applied to the rounded quotient.
    try:
        quotient = np.ldexp((numerator / denominator).astype(np.float64), exponent)
    except OverflowError:  # one of them at least
        quotient = np.full(len(numerator), np.inf)
    size = np.abs(quotient)
    if ((size > _NORMAL[0]) & (size < _NORMAL[1]) | (numerator == 0)).all():
        return quotient
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
