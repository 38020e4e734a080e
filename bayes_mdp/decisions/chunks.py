"""Draws of whole MDPs in JAX, chunk by chunk, for what NumPy does not do."""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.mdp.abilities import Sizes
from bayes_mdp.planning.linear_systems import LISTED_DIRECT
from bayes_mdp.planning.solution import where_legal
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray

NUMBERS_AT_ONCE = 2**23  # float64 numbers of hypotheses, and of their chains, that are held at once: 64 MiB
MOST_AT_ONCE = 256  # draws in a chunk: any larger number of draws is evaluated by one compiled program
COPIES = 8  # of the numbers of a draw that its drawing and planning hold at once

Keys: TypeAlias = Key[Array, "..."] | UInt32[Array, "... _"]
"""Random keys of many draws, typed or raw."""


def in_chunks(keys: Keys, draw: PyTree) -> Keys:
    """`keys` as [number of chunks, keys in a chunk]; the last chunk is filled up with keys of the first.

    A chunk holds a power of two of keys, at most 256 and as many as memory allows: a program that is compiled for a
    chunk serves any number of them.

    Args:
        keys: of the draws.
        draw: the shapes of one.

    Raises:
        ValueError: one draw would not fit in memory.
    """
    leaves = jax.tree.leaves(draw)
    n_states, n_actions = max(leaves, key=lambda leaf: len(leaf.shape)).shape[-3:-1]
    # A chain is solved directly where it is dense, or small.
    listed = isinstance(draw, SparseMDP) and n_states > LISTED_DIRECT
    numbers = sum(math.prod(leaf.shape) for leaf in leaves) + (0 if listed else n_states**2)
    return chunks_of(keys, numbers, Sizes((n_states, n_actions), False).in_words, NUMBERS_AT_ONCE)


def chunks_of(keys: Keys, numbers: int, what: str, at_once: int) -> Keys:
    """`in_chunks` for draws of so many numbers each, `at_once` held at most; `what` names them in the error."""
    check_memory(what, 8.0 * COPIES * numbers, "sparse draws, or fewer policies at once, take less")
    limit = min(MOST_AT_ONCE, max(1, at_once // numbers), len(keys))
    # Rounded up to a power of two; halved below where that is too many.
    chunk = 1 << (limit - 1).bit_length()
    chunk = chunk if chunk * numbers <= at_once and chunk <= MOST_AT_ONCE else max(1, chunk // 2)
    # Keys are repeated to fill the last chunk.
    rounds = -(-len(keys) // chunk)
    chunks: Any = keys[(np.arange(rounds * chunk) % len(keys)).reshape(rounds, chunk)]
    return chunks


def over_chunks(function: Callable[..., tuple[Array, ...]], *chunks: AnyArray) -> tuple[np.ndarray, ...]:
    """`function` of the chunks, one after the other, its answers stacked as numpy arrays. Host side."""
    answers = [jax.tree.map(np.asarray, function(*(chunk[i] for chunk in chunks))) for i in range(len(chunks[0]))]
    return jax.tree.map(lambda *parts: np.stack(parts), *answers)


def row_faults(mdp: MDP | SparseMDP) -> tuple[Float[Array, " 1"], Float[Array, " 1"]]:
    """How far the rows are from summing to one, and the largest probability of an end."""
    rows = mdp.row_probs
    ends = jnp.zeros_like(mdp.reward) if mdp.end_probs is None else mdp.end_probs
    # Ends of illegal pairs say nothing.
    possible = where_legal(ends, mdp.legal, 0.0)
    return jnp.max(jnp.abs(rows.sum(-1) + ends - 1.0))[None], jnp.max(possible)[None]
