"""Transition probabilities and mean rewards as functions of the draws of chains, for their diagnostics. Host side.

Of a sampled posterior they are the tables of each draw; of a collapsed one, what the conjugate sites are expected to be
given the hyperparameters. Elements that are the same function of the draws (rows without data under one prior, say) are
there once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import first_index

NUMBERS_AT_ONCE = 2**22
CONSTANT = 1e-5  # relative range below which an element is a constant but for rounding


class Scalars(NamedTuple):
    """Some of the elements of one table, a few at a time.

    Args:
        places: [E], place of each different element.
        block: places [e] -> Float64[C N e], their values in the draws of the chains.
        element: place -> index in the table over (step,) state, action (, outcome).
    """

    places: Int[np.ndarray, " E"]
    block: Callable[[Int[np.ndarray, " e"]], Float[np.ndarray, "C N e"]]
    element: Callable[[int], tuple[int, ...]]

    def measure(
        self, statistic: Callable[[Float[np.ndarray, "C N e"]], Float[np.ndarray, " e"]], num_draws: int
    ) -> Float[np.ndarray, " E"]:
        """A statistic [C N e] -> [e] of every element; nan for those that are constant."""
        size = max(1, NUMBERS_AT_ONCE // num_draws)
        parts = [statistic(self.steady(self.places[i : i + size])) for i in range(0, len(self.places), size)]
        return np.concatenate([np.zeros(0), *parts])

    def steady(self, places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        """The values at flat places; what moves by rounding alone, or is no number in some draw, is made constant."""
        values = np.array(self.block(places), np.float64)
        finite = np.isfinite(values).all((0, 1))
        size = np.abs(values).max((0, 1), initial=0.0)
        with np.errstate(invalid="ignore"):
            extent = values.max((0, 1)) - values.min((0, 1))
            constant = ~finite | ~(extent > CONSTANT * size)
        values[..., constant] = 0.0
        return values


def of_array(values: Float[np.ndarray, "M ..."], split: tuple[int, int]) -> Scalars:
    """Of draws [C * N ...], one chain after the other."""
    flat = values.reshape(*split, -1)
    return Scalars(
        np.arange(flat.shape[-1]),
        lambda places: flat[..., places],
        lambda place: tuple(int(i) for i in np.unravel_index(place, values.shape[1:])),
    )


def of_conjugate_sites(
    data_statistics: ConjugatePosterior, prior: Sequence[tuple[AnyArray, AnyArray]], split: tuple[int, int]
) -> Iterator[tuple[str, Scalars]]:
    """Conjugate rows [M K] and rewards [L] integrated out of a model: their means given each draw of the rest.

    Args:
        data_statistics: the statistics of all data.
        prior: for each prior parameter array, its values [C * N G] and the index into G of each entry.
        split: (C, N), chains and draws of each.
    """
    rows, rewards = data_statistics.transition_probs, data_statistics.reward_cells
    values, index = [np.asarray(v, np.float64) for v, _ in prior], [np.asarray(i) for _, i in prior]
    counts = np.asarray(rows.dense_counts, np.float64)
    columns = counts.shape[-1]

    def probs(places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        row, column = np.divmod(places, columns)
        # Concentrations are normalised once for each different row.
        different, which = np.unique(row, return_inverse=True)
        concentration = values[0][:, index[0][different]] + counts[different]
        mean = concentration / concentration.sum(-1, keepdims=True)
        return mean[:, which, column].reshape(*split, -1)

    # Rows of the same prior parameters and the same counts are one function of the draws: they are kept once.
    classes = np.concatenate([index[0].reshape(counts.shape), counts], axis=-1)
    first = np.sort(np.unique(classes, axis=0, return_index=True)[1])
    places = (first[:, None] * columns + np.arange(columns)).ravel()
    row_table = np.arange(len(counts)).reshape(rows.shape[:-1]) if rows.row is None else np.asarray(rows.row)

    def outcome(place: int) -> tuple[int, ...]:
        pair = _first(row_table, place // columns)
        column = np.arange(columns) if rows.column is None else np.broadcast_to(rows.column, rows.shape)[pair]
        return (*pair, *_first(column, place % columns))

    yield "transition_probs", Scalars(places, probs, outcome)
    if not isinstance(rewards, RewardCells):
        return
    data = np.asarray(rewards.data, np.float64)

    def means(places: Int[np.ndarray, " e"]) -> Float[np.ndarray, "C N e"]:
        leaves = [v[:, i[places]] for v, i in zip(values[1:], index[1:], strict=True)]
        belief = jax.tree.unflatten(jax.tree.structure(rewards.prior), leaves)
        with jax.enable_x64(True):
            return np.asarray(belief.after(data[places]).mean()).reshape(*split, -1)

    classes = np.concatenate([*(i.reshape(len(data), -1) for i in index[1:]), data], axis=-1)
    cells = np.arange(len(data)).reshape(rewards.shape) if rewards.cell is None else np.asarray(rewards.cell)
    places = np.sort(np.unique(classes, axis=0, return_index=True)[1])
    yield "reward_mean", Scalars(places, means, lambda place: _first(cells, place))


def _first(table: Int[np.ndarray, "*cells"], element: int | np.integer) -> tuple[int, ...]:
    """Where an element is used first."""
    index = first_index(table == element)
    return () if index is None else index
