"""Moments of samples: count, mean and sum of squared deviations. A sum of squares would cancel in float32.

Source: Chan, Golub and LeVeque (1983), *Algorithms for computing the sample variance*.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from bayes_mdp.numerics.numpy_or_jax import xp
from bayes_mdp.utils.typing import AnyArray

Cells = Float[AnyArray, "*cells"]
Moments = tuple[Cells, Cells, Cells]
Groups = Float[AnyArray, "*groups"]


def merge_moments(one: Moments, other: Moments) -> tuple[Cells | np.floating, Cells | np.floating, Cells | np.floating]:
    """The moments of both samples together, cell by cell; a mean without count must be finite."""
    (count, mean, ss), (more, their_mean, their_ss) = one, other
    # n = n1 + n2, mean = mean1 + shift n2 / n, ss = ss1 + ss2 + shift^2 n1 n2 / n.
    total = count + more
    share = more / xp.where(total > 0, total, 1.0)
    shift = their_mean - mean
    return total, mean + shift * share, ss + their_ss + shift**2 * count * share


def pool_moments(
    moments: Moments, add: Callable[[AnyArray], AnyArray], expand: Callable[[AnyArray], AnyArray]
) -> tuple[Groups, Groups, Groups]:
    """The moments of groups of samples.

    Args:
        moments: of the samples; a single number x is (1, x, 0).
        add: sums over the samples of each group.
        expand: gives the value of each group to its samples.
    """
    count, mean, ss = moments
    total = add(count)
    # Two passes: the mean of the group, then squares around it.
    centre = add(count * mean) / xp.where(total > 0, total, 1.0)
    return total, centre, add(ss + count * (mean - expand(centre)) ** 2)
