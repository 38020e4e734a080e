"""Prior parameters of many mixture components, kept once for each class of entries that are always equal.

A hierarchical prior has few distinct numbers (a sticky prior two: beside and on the diagonal), however many entries its
rows have. Which entries are always equal is read off their values at random parents.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from bayes_mdp.inference.hierarchy import Hierarchy, with_parameters
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import RewardCells

SMALL = 4096
"""Arrays of up to so many entries are kept as they are: every entry its own class."""
NUM_PROBES = 8
NUM_DISCRETE_PROBES = 96
"""Two entries under different discrete parents are equal at half of the draws or less."""


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


def find_classes(hierarchy: Hierarchy, values: dict[str, Any], known: Classes | None = None) -> Classes:
    """The classes of entries that are equal at all of `values` {parent: [N ...]} (and in `known`). Host side."""
    evaluate = jax.jit(lambda one: jax.tree.leaves(hierarchy.parameters(one)))
    shapes = jax.eval_shape(evaluate, {name: x[0] for name, x in values.items()})
    index: list[np.ndarray] = [np.arange(x.size, dtype=np.int32) for x in shapes]
    if any(x.size > SMALL for x in shapes):
        merged = [np.zeros(x.size, np.int32) for x in shapes] if known is None else [i.ravel() for i in known.index]
        index = [i if i.size <= SMALL else m for i, m in zip(index, merged, strict=True)]
        for n in range(len(next(iter(values.values())))):
            arrays = evaluate({name: jnp.asarray(x[n]) for name, x in values.items()})
            index = [_split(old, np.asarray(x).ravel()) for old, x in zip(index, arrays, strict=True)]
    first = tuple(np.unique(i, return_index=True)[1].astype(np.int32) for i in index)
    return Classes(tuple(i.reshape(x.shape) for i, x in zip(index, shapes, strict=True)), first)


def checked_classes(hierarchy: Hierarchy, classes: Classes, values: dict[str, np.ndarray]) -> Classes:
    """`classes`, made finer where entries of one class differ at some of `values` {parent: [N ...]}. Host side."""
    if all(index.size <= SMALL for index in classes.index):
        return classes

    differs, number = _differs(hierarchy), len(next(iter(values.values())))
    wrong = [n for n in range(number) if differs({k: x[n] for k, x in values.items()}, classes)]
    if not wrong:
        return classes
    return find_classes(hierarchy, {name: x[wrong] for name, x in values.items()}, classes)


@lru_cache(maxsize=64)
def _differs(hierarchy: Hierarchy) -> Callable[[dict[str, Any], Classes], Array]:
    """Whether entries of one class differ at a value, compiled once for a hierarchy."""

    def differs(value: dict[str, Array], classes: Classes) -> Array:
        leaves = jax.tree.leaves(hierarchy.parameters(value))
        same = [x.ravel()[f][i] == x for x, i, f in zip(leaves, classes.index, classes.first, strict=True)]
        return ~jnp.all(jnp.stack([jnp.all(each) for each in same]))

    return jax.jit(differs)


def _split(index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Classes of equal (old class, value)."""
    if index.size <= SMALL and len(np.unique(index)) == index.size:
        return index
    number = np.unique(values, return_inverse=True)[1].astype(np.int64)
    joint = index.astype(np.int64) * (number.max() + 1) + number
    return np.unique(joint, return_inverse=True)[1].astype(np.int32)


def compress(hierarchy: Hierarchy, classes: Classes, values: dict[str, Array]) -> tuple[Float[Array, "N G"], ...]:
    """The parameters of each class at `values` {parent: [N ...]}. Traceable."""

    def one(value: dict[str, Array]) -> tuple[Array, ...]:
        leaves = jax.tree.leaves(hierarchy.parameters(value))
        return tuple(leaf.ravel()[first] for leaf, first in zip(leaves, classes.first, strict=True))

    large = sum(i.size for i in classes.index) > SMALL
    return lax.map(one, values) if large else jax.vmap(one)(values)
