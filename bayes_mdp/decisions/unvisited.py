"""`Unvisited`: which pairs a policy uses without any data behind them. Host-side, numpy."""

from collections.abc import Hashable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

SHOWN = 5


class Unvisited(eqx.Module):
    """What a policy rests on without data.

    Args:
        pairs: names of the pairs, (state, action) or (step, state, action), that the policy uses and the data never
            tried, most used first.
        share: Float64[number of pairs], the part of the policy's time spent in each (discounted, as in the objective).
        states: names of all states that the data never left, most used first.
        state_share: Float64[number of states], the part of the policy's time spent in each (zero where not reached).
    """

    pairs: tuple[tuple[Hashable, ...], ...] = eqx.field(static=True)
    share: Float[np.ndarray, " pairs"]
    states: tuple[Hashable, ...] = eqx.field(static=True)
    state_share: Float[np.ndarray, " states"]

    @classmethod
    def of(
        cls,
        visits: Float[np.ndarray, "*H S A"],
        time: Float[np.ndarray, "*steps S A"],
        names: Sequence[Sequence[Hashable]],
        unknown: Bool[np.ndarray, "*H S A"] | None = None,
    ) -> "Unvisited":
        """The pairs of `time` without data.

        Args:
            visits: number of observed transitions from every pair.
            time: occupancy of the policy (any scale); its steps are added where `visits` has none.
            names: along each axis of `visits`.
            unknown: pairs about which something is unknown; the others need no data. None: all.
        """
        time = np.maximum(time, 0.0) / np.maximum(time, 0.0).sum()
        time = time.sum(0) if time.ndim > visits.ndim else time
        unknown = np.ones(visits.shape, bool) if unknown is None else unknown
        missing = np.argwhere((visits <= 0) & (time > 0) & unknown)
        missing = missing[np.argsort(-time[tuple(missing.T)], kind="stable")]
        pairs = tuple(tuple(axis[i] for axis, i in zip(names, index, strict=True)) for index in missing)
        other = (*range(visits.ndim - 2), -1)
        states = np.flatnonzero((visits.sum(other) <= 0) & unknown.any(other))
        state_time = time.sum(other)
        states = states[np.argsort(-state_time[states], kind="stable")]
        return cls(pairs, time[tuple(missing.T)], tuple(names[-2][s] for s in states), state_time[states])

    @property
    def total(self) -> float:
        """The part of the policy's time spent in pairs that were never tried."""
        return float(self.share.sum())

    def __str__(self) -> str:
        """One line."""
        text = "every pair that the policy uses was tried"
        if self.pairs:
            pairs = [" ".join(map(str, pair)) for pair in self.pairs]
            text = f"{self.total:.2g} of its time in pairs never tried: {describe_pairs(pairs, self.share)}"
        if self.states:
            text += f"; states never visited: {describe_pairs([str(s) for s in self.states], self.state_share)}"
        return text


def describe_pairs(names: Sequence[str], share: Sequence[float] | Float[np.ndarray, " names"]) -> str:
    """The first names, each with its part."""
    shown = [
        f"{name} ({x:.2g})" if x > 0 else f"{name} (not reached)" for name, x in zip(names[:SHOWN], share, strict=False)
    ]
    return ", ".join(shown) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
