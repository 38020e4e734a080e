"""`compact`: an array that repeats its entries along whole axes, without the repetitions."""

from collections.abc import Iterable

import numpy as np


def compact(array: np.ndarray) -> np.ndarray:
    """Axes along which a broadcast array repeats one entry, shortened to one."""
    places = [slice(0, 1) if stride == 0 and size > 1 else slice(None) for stride, size in _axes(array)]
    return array[(*places, ...)]  # the ellipsis: an array without axes stays an array


def _axes(array: np.ndarray) -> Iterable[tuple[int, int]]:
    return zip(array.strides, array.shape, strict=True)
