"""`Unvisited`: which pairs a policy uses without any data behind them. Host-side, numpy."""

from collections.abc import Hashable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.mdp import PriorWeight
from bayes_mdp.mdp.protocols import describe_weight

SHOWN = 5

Pair = tuple[Hashable, ...]


class Unvisited(eqx.Module):
    """What a policy rests on without data.

    A pair without data was never tried where its prior is empty: where that weighs at most about one observation for
    each possible outcome, as flat priors do (`PriorWeight.is_empty`), or its weight is not known. A prior that weighs
    more, such as counts from the literature, is knowledge: such pairs are known by the prior alone.

    Args:
        pairs: names of the pairs, (state, action) or (step, state, action), that the policy uses and that were never
            tried, most used first.
        share: Float64[number of pairs], the part of the policy's time spent in each (discounted, as in the objective).
        states: names of all states that the data never left and in which something was never tried, most used first.
        state_share: Float64[number of states], the part of the policy's time spent in each (zero where not reached).
        weight: Float64[number of pairs], what the prior of each pair weighs, in transitions; nan: not known.
        by_prior: names of the pairs that the policy uses and that are known by the prior alone, most used first.
        by_prior_share, by_prior_weight: of these pairs, as `share` and `weight`.
    """

    pairs: tuple[Pair, ...] = eqx.field(static=True)
    share: Float[np.ndarray, " pairs"]
    states: tuple[Hashable, ...] = eqx.field(static=True)
    state_share: Float[np.ndarray, " states"]
    weight: Float[np.ndarray, " pairs"] = eqx.field(default_factory=lambda: np.zeros(0))
    by_prior: tuple[Pair, ...] = eqx.field(static=True, default=())
    by_prior_share: Float[np.ndarray, " by_prior"] = eqx.field(default_factory=lambda: np.zeros(0))
    by_prior_weight: Float[np.ndarray, " by_prior"] = eqx.field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(
        cls,
        visits: Float[np.ndarray, "*H S A"],
        time: Float[np.ndarray, "*steps S A"],
        names: Sequence[Sequence[Hashable]],
        unknown: Bool[np.ndarray, "*H S A"] | None = None,
        prior: PriorWeight | None = None,
    ) -> "Unvisited":
        """The pairs of `time` without data.

        Args:
            visits: number of observed transitions from every pair.
            time: occupancy of the policy (any scale); its steps are added where `visits` has none.
            names: along each axis of `visits`.
            unknown: pairs about which something is unknown; the others need no data. None: all.
            prior: what the prior of every pair weighs. None: not known.
        """
        time = np.maximum(time, 0.0) / np.maximum(time, 0.0).sum()
        time = time.sum(0) if time.ndim > visits.ndim else time
        unknown = np.ones(visits.shape, bool) if unknown is None else unknown
        empty = np.ones(visits.shape, bool) if prior is None else np.asarray(prior.is_empty)
        weight = np.full(visits.shape, np.nan) if prior is None else np.asarray(prior.transitions, np.float64)
        missing = (visits <= 0) & unknown

        def used(chosen: Bool[np.ndarray, "*H S A"]) -> tuple[tuple[Pair, ...], np.ndarray, np.ndarray]:
            """Names, time and prior weight of pairs, most used first."""
            index = np.argwhere(chosen & (time > 0))
            index = index[np.argsort(-time[tuple(index.T)], kind="stable")]
            where = tuple(index.T)
            return (
                tuple(tuple(axis[i] for axis, i in zip(names, x, strict=True)) for x in index),
                time[where],
                weight[where],
            )

        pairs, share, pair_weight = used(missing & empty)
        other = (*range(visits.ndim - 2), -1)
        states = np.flatnonzero((visits.sum(other) <= 0) & (unknown & empty).any(other))
        state_time = time.sum(other)
        states = states[np.argsort(-state_time[states], kind="stable")]
        names_of_states = tuple(names[-2][s] for s in states)
        return cls(pairs, share, names_of_states, state_time[states], pair_weight, *used(missing & ~empty))

    @property
    def total(self) -> float:
        """The part of the policy's time spent in pairs that were never tried."""
        return float(self.share.sum())

    def __str__(self) -> str:
        """One line."""
        parts = []
        if self.pairs:
            weight = describe_weight(self.weight)
            under = f", under a prior that weighs {weight} each" if weight else ""
            parts.append(
                f"{self.total:.2g} of its time in pairs never tried{under}: {_described(self.pairs, self.share)}"
            )
        if self.by_prior:
            share, weight = float(self.by_prior_share.sum()), describe_weight(self.by_prior_weight)
            of = f" (weight of {weight})" if weight else ""
            pairs = _described(self.by_prior, self.by_prior_share)
            parts.append(f"{share:.2g} of its time in pairs known by the prior alone{of}: {pairs}")
        if self.states:
            states = describe_pairs([str(s) for s in self.states], self.state_share)
            parts.append(f"states never visited: {states}")
        if not (self.pairs or self.by_prior):
            parts.insert(0, "every pair that the policy uses was tried")
        return "; ".join(parts)


def _described(pairs: Sequence[Pair], share: Float[np.ndarray, " pairs"]) -> str:
    return describe_pairs([" ".join(map(str, pair)) for pair in pairs], share)


def describe_parts(parts: Sequence[tuple[Pair, float]]) -> str:
    """The first pairs, each with its part, in size."""
    return describe_pairs([" ".join(map(str, pair)) for pair, _ in parts], [abs(part) for _, part in parts])


def describe_pairs(names: Sequence[str], share: Sequence[float] | Float[np.ndarray, " names"]) -> str:
    """The first names, each with its part."""
    shown = [
        f"{name} ({x:.2g})" if x > 0 else f"{name} (not reached)" for name, x in zip(names[:SHOWN], share, strict=False)
    ]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
