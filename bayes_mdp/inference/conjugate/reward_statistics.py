"""Statistics of observed rewards, stacked in one array [..., 3]: count, mean, sum of squared deviations.

One array, because a step inside a compiled loop then costs one gather and one scatter; deviations, because a sum of
squares cancels in float32.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.numerics.moments import merge_moments, pool_moments
from bayes_mdp.numerics.numpy_or_jax import add_at, has_jax_array, pick, xp
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealLike

Statistics = Float[AnyArray, "*cells 3"]


def statistics(count: RealLike, mean: RealLike, ss: RealLike) -> Float[AnyArray, "*cells 3"]:
    """Stack count, mean and sum of squared deviations, which broadcast."""
    return xp.stack(xp.broadcast_arrays(count, mean, ss), axis=-1)


def split(data: Statistics) -> tuple[Float[AnyArray, "*cells"], Float[AnyArray, "*cells"], Float[AnyArray, "*cells"]]:
    """Count, mean, sum of squared deviations."""
    return data[..., 0], data[..., 1], data[..., 2]


def merge_statistics(one: Statistics, other: Statistics) -> Float[AnyArray, "*cells 3"]:
    """The statistics of both samples together."""
    return statistics(*merge_moments(split(one), split(other)))


def pool(index: Int[AnyArray, "*N"], data: Float[AnyArray, "*N 3"], size: int) -> Float[AnyArray, "_ 3"]:
    """[size 3]: `data` [*N 3] merged by `index` in 0 .. size - 1; those of the index `size` are dropped."""
    zero, inside = np.zeros(size, data.dtype), xp.minimum(index, size - 1)
    return statistics(*pool_moments(split(data), lambda x: add_at(zero, index, x), lambda x: pick(x, inside)))


def absorb(
    table: Float[AnyArray, "M 3"], index: IntScalar | Int[AnyArray, "..."], data: Float[AnyArray, "*N 3"]
) -> Float[AnyArray, "M 3"]:
    """`table` [M 3] with `data` merged in at `index`: one cell in place for a scalar index, pooled for a block."""
    on_host = not has_jax_array(table, index, data)
    if on_host or np.ndim(index):
        table = table if on_host else jnp.asarray(table)
        return merge_statistics(table, pool(xp.ravel(index), data.reshape(-1, 3).astype(table.dtype), table.shape[0]))
    cells = jnp.asarray(table)
    merged = merge_statistics(cells.at[index].get(mode="clip"), data.astype(cells.dtype))
    return cells.at[index].set(merged, mode="drop")


_STIRLING = tuple(b / d for b, d in ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156)))


def log_rising(a: RealLike, n: RealLike) -> Float[AnyArray, "..."] | np.floating:
    """log Gamma(a + n) - log Gamma(a) for a > 0, n >= 0, without the cancellation of the literal difference.

    From a = 16 on the difference of two Stirling series (rounding error only); below, the literal one, where nothing
    cancels. (`jax.scipy.special.betaln` is off by 1e-6 in float64.)
    """
    # Both branches of a `where` are evaluated (and differentiated): each gets arguments that are safe for it.
    large = xp.asarray(a) >= 16.0
    wide = xp.where(large, a, 16.0)
    stirling = (wide - 0.5) * xp.log1p(n / wide) + n * xp.log(wide + n) - n + _series(wide + n) - _series(wide)
    narrow = xp.where(large, 1.0, a)
    return xp.where(large, stirling, xp.gammaln(narrow + n) - xp.gammaln(narrow))


def _series(z: Float[AnyArray, "..."] | np.floating) -> Float[AnyArray, "..."] | np.floating:
    """log Gamma(z) less its leading terms, for z >= 16."""
    # Horner's rule in 1 / z^2 over the Stirling coefficients.
    square = z**-2.0
    total = xp.zeros_like(z)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total / z
