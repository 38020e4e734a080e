"""Uniform numbers of one NumPy generator, made for many problems at once, and the same as one after the other.

PCG64 (O'Neill 2014) is state <- state * MULTIPLIER + increment modulo 2^128; k of its steps are one such step with
another factor and another summand. So each lane begins where its problem would have begun, and makes its numbers
beside the rest: loops over lanes become vector instructions, where the calls of a generator are most of the work.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt64

from bayes_mdp.numerics.numba_function import compile_loop

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""Of NumPy's PCG64."""
MODULUS, LOW = 1 << 128, (1 << 64) - 1
HALF, LOW_HALF, ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)
TURN, WORD, DROPPED = np.uint64(58), np.uint64(63), np.uint64(11)
"""Of the output function: where its turn is, a word less one bit, bits that a float64 has no room for."""
UNIT = 2.0**-53

Words = tuple[np.uint64, np.uint64, np.uint64, np.uint64]


class Lanes(NamedTuple):
    """Where each lane is.

    Args:
        high, low: words of the state of each.
        step: factor and summand of one number, each as high and low word.
        leap: the same, from the last number of a problem to the first of the next one in the same lane.
    """

    high: UInt64[np.ndarray, " N"]
    low: UInt64[np.ndarray, " N"]
    step: Words
    leap: Words


def lanes_of(rng: np.random.Generator, number: int, length: int) -> Lanes:
    """Lanes from where the generator stands; it is not moved.

    Args:
        rng: of PCG64, NumPy's default.
        number: of lanes: problem i is made in lane i modulo this number.
        length: how many numbers a problem takes.
    """
    where = rng.bit_generator.state["state"]
    state, increment = where["state"], where["inc"]
    factor, summand = _power(increment, length)
    states = [state]
    for _ in range(number - 1):
        states.append((states[-1] * factor + summand) % MODULUS)
    words = np.array([(x >> 64, x & LOW) for x in states], np.uint64)
    return Lanes(
        words[:, 0].copy(),
        words[:, 1].copy(),
        _words(MULTIPLIER, increment),
        _words(*_power(increment, length * (number - 1))),
    )


def _power(increment: int, steps: int) -> tuple[int, int]:
    """Factor and summand of many steps, by squaring."""
    factor, summand = 1, 0
    base, added = MULTIPLIER, increment
    while steps:
        if steps & 1:
            factor, summand = factor * base % MODULUS, (summand * base + added) % MODULUS
        base, added = base * base % MODULUS, (added * base + added) % MODULUS
        steps >>= 1
    return factor, summand


def _words(factor: int, summand: int) -> Words:
    return tuple(np.uint64(x) for x in (factor >> 64, factor & LOW, summand >> 64, summand & LOW))  # pyright: ignore[reportReturnType] - of four


@compile_loop
def _moved(
    high: np.uint64,
    low: np.uint64,
    factor_high: np.uint64,
    factor_low: np.uint64,
    summand_high: np.uint64,
    summand_low: np.uint64,
) -> tuple[np.uint64, np.uint64]:
    """state * factor + summand modulo 2^128, in words."""
    # The high word of low * factor_low, from products of halves that fit into a word.
    first, second, third, fourth = low & LOW_HALF, low >> HALF, factor_low & LOW_HALF, factor_low >> HALF
    cross, other_cross = first * fourth, second * third
    carried = ((first * third) >> HALF) + (cross & LOW_HALF) + (other_cross & LOW_HALF)
    above = second * fourth + (cross >> HALF) + (other_cross >> HALF) + (carried >> HALF)
    new_low = low * factor_low + summand_low
    # An addition that wraps carries one.
    carry = np.uint64(new_low < summand_low)
    return above + high * factor_low + low * factor_high + summand_high + carry, new_low


@compile_loop
def multiply_uniform(lanes: Lanes, counts: Int[np.ndarray, "*K"], products: Float[np.ndarray, "*K N"]) -> None:
    """Products of uniform numbers in (0, 1], so many for each entry of a problem; the next problem of every lane.

    Args:
        lanes: are moved.
        counts: numbers in each product; their sum is the length of a problem.
        products: are overwritten.
    """
    high, low = lanes.high, lanes.low
    # Words by themselves: the compiler would look them up anew for every lane.
    (a, b, c, d), (e, f, g, h) = lanes.step, lanes.leap
    by_entry = products.reshape(-1, len(high))
    for k, count in enumerate(counts.ravel()):
        product = by_entry[k]
        product[:] = 1.0
        for _ in range(count):
            for n in range(len(high)):
                above, below = _moved(high[n], low[n], a, b, c, d)
                high[n], low[n] = above, below
                # Output: the exclusive or of both words, turned right by the six highest bits.
                mixed, turn = above ^ below, above >> TURN
                turned = (mixed >> turn) | (mixed << ((WORD + ONE - turn) & WORD))
                product[n] *= 1.0 - np.float64(np.int64(turned >> DROPPED)) * UNIT
    for n in range(len(high)):
        high[n], low[n] = _moved(high[n], low[n], e, f, g, h)
