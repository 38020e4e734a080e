"""`on_demand`: a costly computation inside a compiled program that runs only where it is needed, under `vmap` too."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Value = TypeVar("Value", bound=PyTree[Array])
Inputs = TypeVar("Inputs", bound=PyTree[Array])


def on_demand(needed: Bool[Array, ""], cheap: Value, compute: Callable[[Inputs], Value], inputs: Inputs) -> Value:
    """`compute(inputs)` where it is needed, else `cheap`. Traceable.

    A loop of no or one turn: `lax.cond` computes both sides for every element of a batch.

    Args:
        needed: whether to compute.
        cheap: what there is already, of the shapes and dtypes of the answer.
        compute: of arrays; all that it does at length starts from `inputs`.
        inputs: its arrays.
    """

    def turn(carry: tuple[Value, Bool[Array, ""]]) -> tuple[Value, Bool[Array, ""]]:
        # Under vmap, what does not depend on the carry is moved out of the loop, where it would run every time: the
        # barrier makes the inputs depend on it.
        _, tied = jax.lax.optimization_barrier((carry[0], inputs))
        return compute(tied), jnp.array(False)

    return jax.lax.while_loop(lambda carry: carry[1], turn, (cheap, needed))[0]
