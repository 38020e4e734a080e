"""Confidence intervals of means over seeds."""

import numpy as np
from jaxtyping import Float, Shaped

from bayes_mdp.utils.typing import AnyArray

NORMAL_QUANTILE = {0.9: 1.6448536, 0.95: 1.959964, 0.99: 2.5758293}


def half_width(samples: Shaped[AnyArray, "N *shape"], level: float = 0.95) -> Float[np.ndarray, "*shape"]:
    """Half the width of the normal interval of the mean over the first axis, of at least two samples.

    Args:
        samples: [N ...], numbers or booleans.
        level: a key of `NORMAL_QUANTILE`.
    """
    return np.asarray(NORMAL_QUANTILE[level] * np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples)))
