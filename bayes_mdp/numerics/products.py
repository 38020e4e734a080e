"""Products of arrays in the full precision of their dtype, on every device.

By default JAX multiplies float32 matrices on recent NVIDIA GPUs in TF32, whose significand has 11 bits: on an H100
products were off by 3e-4 where float32 gives 3e-7, and only where neither operand is a vector, so that one problem and
a batch of them differ. Planners, posteriors and bounds on errors are promised to the precision of their dtype: they
multiply by the functions here, not by `@` or `jnp.einsum`. The layers of networks, which need a few digits only, keep
the default.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

FULL = jax.lax.Precision.HIGHEST
"""Of a product: float32 in float32."""


def matmul(a: Any, b: Any) -> Any:
    """`a @ b`; of two NumPy arrays by NumPy, as `@` does it.

    `Any`: as of `@`, whether the product is an array of NumPy or of JAX depends on the operands.

    Args:
        a, b: Shaped[..., n, k] and Shaped[..., k, m], or vectors [k].
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a @ b
    return jnp.matmul(a, b, precision=FULL)


def einsum(subscripts: str, *operands: Any) -> Shaped[Array, "..."]:
    """`jnp.einsum`.

    Args:
        subscripts: which axes are multiplied and summed.
        operands: arrays of any dtype (`Any`: of NumPy or of JAX).
    """
    return jnp.einsum(subscripts, *operands, precision=FULL)


def tensordot(a: Any, b: Any, axes: int) -> Shaped[Array, "..."]:
    """`jnp.tensordot`.

    Args:
        a, b: arrays of any dtype (`Any`: of NumPy or of JAX).
        axes: how many, the last ones of `a` and the first ones of `b`.
    """
    return jnp.tensordot(a, b, axes=axes, precision=FULL)
