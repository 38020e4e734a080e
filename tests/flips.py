"""Damage to files: single bits, anywhere; each must be refused in one sentence, or change nothing that is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NUMBER = 150


def refused_flips(path: Path, load: Callable[[], Any], same: Callable[[Any], bool], number: int = NUMBER) -> int:
    """Flip `number` single bits of the file, one after the other; how many of them `load` refused.

    Every other one must leave what is read as it was: `same` says so.
    """
    content, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for place in rng.integers(8 * len(content), size=number):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << (place % 8)
        path.write_bytes(bytes(damaged))
        try:
            found = load()
        except ValueError as error:
            assert type(error) is ValueError and "\n" not in str(error), repr(error)
            refused += 1
        else:
            assert same(found), f"bit {place} changed what was read"
    path.write_bytes(content)
    assert same(load())
    return refused
