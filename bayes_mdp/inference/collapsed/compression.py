"""Large conjugate priors and large data in few numbers, for the collapsed model.

Prior parameters: a hierarchical prior has few distinct numbers (a sticky prior two: beside and on the diagonal),
however many entries its rows have. They are kept once for each class of entries that are always equal, which is read
from the data flow of the program: the same operations on the same hyperparameters and constants.

Counts: the log evidence of Dirichlet rows is a sum over the observed entries. A million transitions of a prior
with a few distinct concentrations hold a few hundred different (concentration, count) pairs; each is weighed once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from bayes_mdp.inference.collapsed.hierarchy import Hierarchy, Values, with_parameters
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.families.family import log_rising
from bayes_mdp.utils.typing import AnyArray

SMALL = 4096
"""Entries up to which the chains take every count by itself, and the parameters of all draws are held at once."""


class Classes(NamedTuple):
    """For every parameter array: the class of each entry [shape], and one entry (flat) of each class [G]."""

    number: tuple[Int[AnyArray, "..."], ...]
    first: tuple[Int[AnyArray, " G"], ...]


def prior_arrays(posterior: ConjugatePosterior) -> list[AnyArray]:
    """The prior parameter arrays of a posterior: concentrations, then those of the rewards."""
    rewards = posterior.reward_cells
    belief = rewards.prior if isinstance(rewards, RewardCells) else None
    return jax.tree.leaves((posterior.transition_probs.prior, belief))


def with_prior_arrays(posterior: ConjugatePosterior, leaves: Sequence[AnyArray]) -> ConjugatePosterior:
    """`posterior` with other prior parameters, as `prior_arrays` lists them."""
    rewards = posterior.reward_cells
    belief = None
    if isinstance(rewards, RewardCells):
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves[1:])
    return with_parameters(posterior, leaves[0], belief)


def find_classes(hierarchy: Hierarchy) -> Classes:
    """The classes of entries that are equal whatever the hyperparameters are, by the data flow. Host side."""
    index = [_numbered(x) for x in hierarchy.symbols]
    first = tuple(np.unique(i, return_index=True)[1].astype(np.int32) for i in index)
    return Classes(tuple(index), first)


def _numbered(symbols: np.ndarray) -> np.ndarray:
    """0, 1, ... for the different symbols."""
    return np.unique(symbols, return_inverse=True)[1].astype(np.int32).reshape(symbols.shape)


def compress(hierarchy: Hierarchy, classes: Classes, values: Values) -> tuple[Float[Array, "N _"], ...]:
    """The parameters of each class at `values` {hyperparameter: [N ...]}. Traceable."""

    def one(value: Values) -> tuple[Array, ...]:
        leaves = jax.tree.leaves(hierarchy.parameters(value))
        return tuple(jnp.asarray(leaf).ravel()[first] for leaf, first in zip(leaves, classes.first, strict=True))

    # `lax.map` holds the full arrays of one draw at a time.
    large = sum(i.size for i in classes.number) > SMALL
    return lax.map(one, dict(values)) if large else jax.vmap(one)(dict(values))


class Grouped(eqx.Module):
    """Statistics of the data, with the counts of the rows in groups.

    Args:
        data_statistics: the statistics of all data.
        entry: [U], a concentration (flat) of each group.
        count: [U], the count of each group; 0: padding.
        times: [U], how many entries it has.
    """

    data_statistics: ConjugatePosterior
    entry: Int[AnyArray, " U"]
    count: Float[AnyArray, " U"]
    times: Float[AnyArray, " U"]

    def log_evidence(self, posterior: ConjugatePosterior) -> Float[Array, ""]:
        """The log evidence of `posterior`, which has the same data and its own prior parameters. Traceable."""
        rows, rewards = posterior.transition_probs, posterior.reward_cells
        prior = jnp.asarray(rows.prior)
        # sum over groups of (entries in the group) * log rising(concentration, count); empty entries add zero.
        rising = jnp.sum(self.times * log_rising(prior.ravel()[self.entry], self.count))
        total = rising - log_rising(prior.sum(-1), jnp.asarray(rows.counts).sum(-1)).sum() + posterior.constant
        return total + rewards.log_evidence() if isinstance(rewards, RewardCells) else total


def grouped(data_statistics: ConjugatePosterior, classes: Classes) -> ConjugatePosterior | Grouped:
    """The same with its counts in groups where it is large; the arrays are padded to a power of two. Host side."""
    counts = np.asarray(data_statistics.transition_probs.counts).ravel()
    if counts.size <= SMALL:
        return data_statistics
    place = np.flatnonzero(counts)
    # Group by (class of the concentration, count): both equal means equal terms of the evidence.
    pairs = np.stack([np.asarray(classes.number[0]).ravel()[place].astype(float), counts[place]])
    _, first, times = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    padding = (1 << max(len(first) - 1, 63).bit_length()) - len(first)
    entry = np.append(place[first], np.full(padding, place[0] if len(place) else 0)).astype(np.int32)
    count, times = (np.append(x, np.zeros(padding)) for x in (counts[place[first]], times.astype(float)))
    return Grouped(data_statistics, entry, count, times)
