"""`KeptTree`: a tree as arrays of fixed sizes, which a compiled run carries from one decision to the next."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar

INDEX = np.int32


class KeptTree(NamedTuple):
    """A tree between two decisions of a run, and the transition that followed; arrays of fixed sizes.

    Args:
        visits: Int32[N A]; q, squares: Float[N A]; parent, edge: Int32[N]: as in `Tree`.
        used: Int32[], number of nodes; 0: there is no tree.
        state, step, action, outcome: Int32[], the transition; action -1: none followed yet; outcome S is the end.
        reward: Float[].
    """

    visits: Int[AnyArray, "N A"]
    q: Float[AnyArray, "N A"]
    squares: Float[AnyArray, "N A"]
    parent: Int[AnyArray, " N"]
    edge: Int[AnyArray, " N"]
    used: IntScalar
    state: IntScalar
    step: IntScalar
    action: IntScalar
    outcome: IntScalar
    reward: RealScalar


def empty_tree(max_nodes: int, n_actions: int) -> KeptTree:
    """No tree."""
    number = jnp.zeros((), INDEX)
    table, line = jnp.zeros((max_nodes, n_actions)), jnp.zeros(max_nodes, INDEX)
    counts = jnp.zeros((max_nodes, n_actions), INDEX)
    return KeptTree(counts, table, table, line, line, number, number, number, number, number, jnp.zeros(()))
