"""Dirichlet rows, and the expectation of values under rows that are never written down.

A Dirichlet row is a row of independent gamma draws divided by its sum, and `Gamma(a + n) = Gamma(a) + Gamma(n)` for
independent terms. With a prior of ones the first term is an exponential, and the second is needed only for the few
successors that were counted: no rejection over the whole row.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from bayes_mdp.random.gamma_draws import EXPONENTIAL_STREAM, exponential, gamma, loggamma
from bayes_mdp.random.threefry import exponentials, key_words, threefry_blocks

_BLOCKS_PER_STEP = 5  # written out in one fusion: fewer leave the pipeline idle, more make code that compiles slowly
_VECTOR = 8  # rows are padded to whole vectors: the scalar remainder of a loop costs as much as eight rows
_FEW_SUCCESSORS = 8  # beyond, a scatter is cheaper


def dirichlet(key: Key[Array, ""], concentration: Float[Array, "*batch outcomes"]) -> Float[Array, "*batch outcomes"]:
    """Draw probability rows; a concentration of 0 is an outcome that cannot happen.

    Rows sum to one, also where every gamma draw would underflow. A row of zeros stays a row of zeros; an invalid
    concentration (negative, nan) gives a row with nan.

    Args:
        concentration: of each outcome, at least 0; a row has at least one positive entry.

    Returns:
        Rows that sum to one.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    # Gamma draws on the log scale, and softmax: of a row of small concentrations all draws may underflow.
    log_weights = loggamma(key, concentration)
    peak = log_weights.max(-1, keepdims=True)
    return _normalise(jnp.exp(log_weights - jnp.where(jnp.isneginf(peak), 0, peak)))


def dirichlet_split(
    key: Key[Array, ""],
    prior_concentration: Float[Array, "*batch outcomes"],
    counts: Float[Array, "*batch listed"],
    successor: Int[Array, "*batch listed"],
    *,
    unit_prior: bool = False,
) -> Float[Array, "*batch outcomes"]:
    """Draw rows from Dirichlet(prior + counts), where the counts belong to a few listed outcomes.

    Args:
        key: typed threefry key.
        prior_concentration: as for `dirichlet`.
        counts: how often each listed outcome was observed, at least 0 (0: the slot is not in use).
        successor: the outcome of each count; one that is listed twice gets both counts.
        unit_prior: the prior is all ones (static; `prior_concentration` then gives shape and dtype alone): exponentials
            for the prior part, gamma draws for the listed outcomes alone.

    Returns:
        Rows that sum to one.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    prior_concentration = jnp.asarray(prior_concentration)
    if not unit_prior:
        return dirichlet(key, prior_concentration + scatter_amounts(counts, successor, prior_concentration.shape[-1]))
    shape, dtype = prior_concentration.shape, prior_concentration.dtype
    # Gamma(1 + n) = Exponential + Gamma(n): gamma draws for the few counted outcomes only.
    counted = gamma(key, counts.astype(dtype))
    return _normalise(exponential(key, shape, dtype) + scatter_amounts(counted, successor, shape[-1]))


def dirichlet_expectation(
    key: Key[Array, ""],
    prior_concentration: Float[Array, "*batch outcomes"],
    counts: Float[Array, "*batch listed"],
    successor: Int[Array, "*batch listed"],
    values: Float[Array, "outcomes"] | Float[Array, "*batch outcomes"],
    *,
    unit_prior: bool = False,
) -> Float[Array, "*batch"]:
    """The expectation of `values` under a fresh draw of every row, Dirichlet(prior + counts).

    With `unit_prior` the rows are never in memory: the weights are summed as they are drawn. The variance of the answer
    over draws is `Var_mean_row(values) / (sum(prior + counts) + 1)`.

    Args:
        key, prior_concentration, counts, successor, unit_prior: as in `dirichlet_split`.
        values: of the outcomes; shared by all rows, or one row of values each.

    Raises:
        TypeError: if `key` is no typed threefry key.
    """
    prior_concentration, values = jnp.asarray(prior_concentration), jnp.asarray(values)
    if not unit_prior:
        return (dirichlet_split(key, prior_concentration, counts, successor) * values).sum(-1)
    *batch, num_outcomes = prior_concentration.shape
    dtype = prior_concentration.dtype
    # The same draw as `dirichlet_split`, as numerator and denominator: sum w_k v_k / sum w_k.
    counted = gamma(key, counts.astype(dtype))
    reached = values[successor] if values.ndim == 1 else jnp.take_along_axis(values, successor, axis=-1)
    columns = jnp.moveaxis(values, -1, 0).reshape(num_outcomes, -1)  # one value, or one for each row
    weighted, total = _exponential_sums(key, columns.astype(dtype), math.prod(batch))
    numerator = weighted.reshape(batch) + (counted * reached).sum(-1)
    return numerator / (total.reshape(batch) + counted.sum(-1))


def _exponential_sums(key: Key[Array, ""], columns: Float[Array, "outcomes #rows"], rows: int) -> tuple[Array, Array]:
    """Return `sum_k E_k values_k` and `sum_k E_k` per row, E standard exponentials, `columns` the values.

    Three things make this run at about one nanosecond an entry: both words of a block are used; the elements of a
    vector are rows, so nothing is reduced within a vector; the two sums travel as one complex number, because XLA:CPU
    would compute a second output a second time, random words included. The loop also keeps the consumer, often a
    maximum over actions, from being fused with the draws, which would make scalar code of them.
    """
    words, row = key_words(key), lax.iota(jnp.uint32, -(-rows // _VECTOR) * _VECTOR)
    if columns.shape[1] > 1:
        columns = jnp.pad(columns, ((0, 0), (0, len(row) - rows)))
    width = 1 if columns.dtype == jnp.float64 else 2  # entries that a block draws
    # `steps` turns of `blocks` blocks each; the outcomes that do not fill a turn are added first.
    steps, blocks = _schedule(len(columns) // width)
    looped = steps * blocks * width

    def add(sums: Array, first_block: Array | int, chunk: Array) -> Array:
        first = EXPONENTIAL_STREAM + jnp.asarray(first_block, jnp.uint32)
        indices = [first + np.uint32(index) for index in range(-(-len(chunk) // width))]
        counters = [(jnp.broadcast_to(index, row.shape), row) for index in indices]
        draws = [draw for block in threefry_blocks(words, counters) for draw in exponentials(block, columns.dtype)]
        # Real part: sum E_k v_k. Imaginary part: sum E_k.
        weighted, total = sums.real, sums.imag
        for draw, value in zip(draws, chunk, strict=False):
            weighted, total = weighted + draw * value, total + draw
        return lax.complex(weighted, total)

    zeros = jnp.zeros(len(row), columns.dtype)
    sums = add(lax.complex(zeros, zeros), steps * blocks, columns[looped:])
    if steps:
        chunks = columns[:looped].reshape(steps, blocks * width, -1)
        firsts = jnp.arange(steps, dtype=jnp.uint32) * np.uint32(blocks)
        sums, _ = lax.scan(lambda sums, step: (add(sums, *step), None), sums, (firsts, chunks))
    return sums.real[:rows], sums.imag[:rows]


def _schedule(blocks: int) -> tuple[int, int]:
    """Share blocks out into a loop `(steps, blocks per step)` of two steps or more; what is left runs before it."""
    if blocks < 2:
        return 0, 0
    steps = max(2, round(blocks / _BLOCKS_PER_STEP))
    return steps, blocks // steps


def scatter_amounts(
    amounts: Float[Array, "*batch listed"], successor: Int[Array, "*batch listed"], num_outcomes: int
) -> Float[Array, "*batch outcomes"]:
    """Add each listed amount at its outcome: a few slots by comparison with every outcome, which fuses."""
    num_listed = amounts.shape[-1]
    if num_listed <= _FEW_SUCCESSORS:
        outcome = jnp.arange(num_outcomes)
        dense = jnp.zeros((*amounts.shape[:-1], num_outcomes), amounts.dtype)
        for slot in range(num_listed):
            dense += jnp.where(successor[..., slot, None] == outcome, amounts[..., slot, None], 0)
        return dense
    flat = amounts.reshape(-1, num_listed)
    rows = jnp.arange(len(flat))[:, None]
    dense = jnp.zeros((len(flat), num_outcomes), amounts.dtype).at[rows, successor.reshape(-1, num_listed)].add(flat)
    return dense.reshape(*amounts.shape[:-1], num_outcomes)


def _normalise(weights: Float[Array, "*batch outcomes"]) -> Float[Array, "*batch outcomes"]:
    total = weights.sum(-1, keepdims=True)
    return weights / jnp.where(total == 0, 1, total)
