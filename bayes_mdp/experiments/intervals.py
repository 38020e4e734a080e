"""How sure a mean over seeds is."""

from typing import Any

import numpy as np

NORMAL_QUANTILE = {0.9: 1.6448536, 0.95: 1.959964, 0.99: 2.5758293}


def half_width(samples: Any, level: float = 0.95) -> Any:
    """Half the width of the normal interval of the mean over the first axis, of at least two samples.

    Args:
        samples: Float[N ...].
        level: a key of `NORMAL_QUANTILE`.
    """
    return NORMAL_QUANTILE[level] * np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
