"""What XLA must not fuse or move: draws that stay in memory, and a computation that runs only where it is needed."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Tree = TypeVar("Tree")


def materialise(draw: Tree) -> Tree:
    """`draw`, in memory. XLA would fuse the generation of random numbers into each of the planner's uses of them.

    A barrier does not stop it (it is removed before fusion), a loop whose start XLA cannot know does; this one always
    runs once. Measured with jaxlib 0.10.
    """
    # 0 or 1, by a draw: XLA cannot fold the start of the loop, and so cannot inline its body.
    first = jnp.ravel(jax.tree.leaves(draw)[0])[0]
    start = jnp.where(jnp.isnan(first), 1, 0)
    nothing = jax.tree.map(jnp.zeros_like, draw)
    return jax.lax.while_loop(lambda loop: loop[0] < 2, lambda loop: (loop[0] + 2, draw), (start, nothing))[1]


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
