"""Large count tables for the collapsed model: equal counts under equal parameters are weighed once.

The log evidence of Dirichlet rows is a sum over the entries that were seen. A million transitions of a prior with a few
distinct concentrations hold a few hundred different (concentration, count) pairs.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.inference.compact import SMALL, Classes
from bayes_mdp.inference.moments import log_rising
from bayes_mdp.inference.posterior import ConjugatePosterior
from bayes_mdp.inference.rewards import RewardCells

LARGE = SMALL
"""Concentrations from which on counts are grouped."""


class Grouped(eqx.Module):
    """What was seen, with the counts of the rows in groups.

    Args:
        seen: the statistics of all data.
        entry: [U], a concentration (flat) of each group.
        count: [U], the count of each group; 0: padding.
        times: [U], how many entries it has.
    """

    seen: ConjugatePosterior
    entry: Int[Array, " U"]
    count: Float[Array, " U"]
    times: Float[Array, " U"]

    def log_evidence(self, posterior: ConjugatePosterior) -> Float[Array, ""]:
        """The log evidence of `posterior`, which has seen the same under prior parameters of its own. Traceable."""
        rows, rewards = posterior.transition_probs, posterior.reward_cells
        prior = jnp.asarray(rows.prior)
        seen = jnp.sum(self.times * log_rising(prior.ravel()[self.entry], self.count))
        total = seen - log_rising(prior.sum(-1), jnp.asarray(rows.counts).sum(-1)).sum() + posterior.constant
        return total + rewards.log_evidence() if isinstance(rewards, RewardCells) else total


def grouped(seen: ConjugatePosterior, classes: Classes) -> ConjugatePosterior | Grouped:
    """`seen` with its counts in groups where it is large; the arrays are padded to a power of two. Host side."""
    counts = np.asarray(seen.transition_probs.counts).ravel()
    if counts.size <= LARGE:
        return seen
    place = np.flatnonzero(counts)
    pairs = np.stack([np.asarray(classes.index[0]).ravel()[place].astype(float), counts[place]])
    _, first, times = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    padding = (1 << max(len(first) - 1, 63).bit_length()) - len(first)
    entry = np.append(place[first], np.full(padding, place[0] if len(place) else 0)).astype(np.int32)
    count, times = (np.append(x, np.zeros(padding)) for x in (counts[place[first]], times.astype(float)))
    return Grouped(seen, entry, count, times)  # type: ignore[arg-type]
