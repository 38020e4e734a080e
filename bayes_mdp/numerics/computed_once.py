"""What must stay in memory while it is planned with."""

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


def computed_once(draw: Tree) -> Tree:
    """`draw`, in memory. XLA would fuse the generation of random numbers into each of the planner's uses of them.

    A barrier does not stop it (it is removed before fusion), a loop whose start XLA cannot know does; this one always
    runs once. Measured with jaxlib 0.10.
    """
    # 0 or 1, by a draw: XLA cannot fold the start of the loop, and so cannot inline its body.
    first = jnp.ravel(jax.tree.leaves(draw)[0])[0]
    start = jnp.where(jnp.isnan(first), 1, 0)
    nothing = jax.tree.map(jnp.zeros_like, draw)
    return jax.lax.while_loop(lambda loop: loop[0] < 2, lambda loop: (loop[0] + 2, draw), (start, nothing))[1]
