"""Prior parameters of many mixture components, kept once for each class of entries that are always equal.

A hierarchical prior has few distinct numbers (a sticky prior two: beside and on the diagonal), however many entries its
rows have. Which entries are always equal is read from the data flow of the program: the same operations on the same
parents and constants.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from bayes_mdp.inference.hierarchy import Hierarchy, with_parameters
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import RewardCells

SMALL = 4096
"""Arrays of up to so many entries are kept as they are: every entry its own class."""


class Classes(NamedTuple):
    """For every parameter array: the class of each entry [shape], and one entry (flat) of each class [G]."""

    index: tuple[Any, ...]
    first: tuple[Any, ...]


def prior_leaves(posterior: ConjugatePosterior) -> list[Any]:
    """The prior parameter arrays of a posterior: concentrations, then those of the rewards."""
    rewards = posterior.reward_cells
    belief = rewards.prior if isinstance(rewards, RewardCells) else None
    return jax.tree.leaves((posterior.transition_probs.prior, belief))


def with_prior_leaves(posterior: ConjugatePosterior, leaves: list[Any]) -> ConjugatePosterior:
    """`posterior` with other prior parameters, as `prior_leaves` lists them."""
    rewards = posterior.reward_cells
    belief = None
    if isinstance(rewards, RewardCells):
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves[1:])
    return with_parameters(posterior, leaves[0], belief)


def find_classes(hierarchy: Hierarchy) -> Classes:
    """The classes of entries that are equal whatever the parents are, as the data flow of the program shows. Host side.

    Where no array is large, every entry is a class of its own.
    """
    index = [np.arange(np.size(x), dtype=np.int32).reshape(np.shape(x)) for x in hierarchy.symbols]
    if any(i.size > SMALL for i in index):
        index = [i if i.size <= SMALL else _numbered(x) for i, x in zip(index, hierarchy.symbols, strict=True)]
    first = tuple(np.unique(i, return_index=True)[1].astype(np.int32) for i in index)
    return Classes(tuple(index), first)


def _numbered(symbols: np.ndarray) -> np.ndarray:
    """0, 1, ... for the different symbols."""
    return np.unique(symbols, return_inverse=True)[1].astype(np.int32).reshape(symbols.shape)


def compress(hierarchy: Hierarchy, classes: Classes, values: dict[str, Array]) -> tuple[Float[Array, "N G"], ...]:
    """The parameters of each class at `values` {parent: [N ...]}. Traceable."""

    def one(value: dict[str, Array]) -> tuple[Array, ...]:
        leaves = jax.tree.leaves(hierarchy.parameters(value))
        return tuple(leaf.ravel()[first] for leaf, first in zip(leaves, classes.first, strict=True))

    large = sum(i.size for i in classes.index) > SMALL
    return lax.map(one, values) if large else jax.vmap(one)(values)
