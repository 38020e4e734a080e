"""What a tree search needs and how large it may be, checked before anything is made; a tree kept between decisions.

`KeptTree` is a tree as arrays of fixed sizes, which a compiled run carries from one decision to the next. Nothing here
needs numba.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.lazy_belief import LazyBelief, lazy_bytes
from bayes_mdp.mdp.protocols import CanSampleLazily
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import install
from bayes_mdp.utils.typing import AnyArray, IntScalar, RealScalar

MAX_DEPTH = 100  # that of the authors' program
NEGLIGIBLE = 1e-6  # weight of a reward that is not simulated any more
SLOTS_PER_NODE = 2
NODE_BYTES = 24 + 8 * 2 * SLOTS_PER_NODE
ACTION_BYTES = 24
COPIES = 3  # of the arrays of a belief, at the peak


def require_numba(who: str) -> None:
    """Refuse to search where numba is missing.

    Args:
        who: the caller, for the message: "BAMCP".

    Raises:
        ImportError: one sentence, with what to install.
    """
    try:
        import numba
    except ImportError as error:  # not there, or not with this version of NumPy
        raise ImportError(f"{who} needs numba, which is missing: {install('fast')}") from error
    del numba


def search_depth(horizon: int | None, step: int, max_depth: int | None, discount: float, episodes: int | None) -> int:
    """Steps of a simulation at most: `max_depth`, or 100, while they weigh and episodes are left.

    With a horizon at least to the end of the episode, where `max_depth` is None.
    """
    # What the caller says, or what is usual.
    depth = MAX_DEPTH if max_depth is None else max_depth
    if horizon is not None:
        # Nothing is paid beyond the last step of the last episode.
        left = max(horizon - step, 1)
        depth = max(depth, left) if max_depth is None else depth
        if episodes is not None:
            depth = min(depth, left + (episodes - 1) * horizon)
    if discount >= 1.0:
        return depth
    # Up to the step n with discount^n = NEGLIGIBLE.
    return min(depth, max(1, math.ceil(math.log(NEGLIGIBLE) / math.log(discount)))) if discount > 0 else 1


def check_tree(num_nodes: int, n_actions: int) -> None:
    """Refuse a tree that would take more than half of the memory that is free.

    Raises:
        ValueError: it would.
    """
    needed = float(num_nodes * (NODE_BYTES + ACTION_BYTES * n_actions))
    check_memory(f"a tree has {num_nodes} nodes", needed, "fewer simulations, or max_nodes, take less")


def require_lazy(belief: object, who: str) -> None:
    """Refuse a belief that is not sampled lazily.

    Raises:
        TypeError: one sentence, with what to do.
    """
    instead = "its draws as a posterior, inference.posterior_samples(belief.sample(key, (1000,)))"
    require_ability(belief, CanSampleLazily, who, instead=instead)


def check_lazy(belief: LazyBelief) -> None:
    """Refuse the arrays of a belief (shapes are enough) that would take more than half of the memory that is free.

    Raises:
        ValueError: they would.
    """
    needed = COPIES * float(lazy_bytes(belief))
    check_memory("the belief has all its components as arrays", needed, "thin it: fewer draws take less")


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
    # The arrays of a full tree: a compiled run cannot let it grow.
    table, line = jnp.zeros((max_nodes, n_actions)), jnp.zeros(max_nodes, INDEX)
    counts = jnp.zeros((max_nodes, n_actions), INDEX)
    return KeptTree(counts, table, table, line, line, number, number, number, number, number, jnp.zeros(()))
