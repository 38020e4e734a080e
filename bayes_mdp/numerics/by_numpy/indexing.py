"""JAX's gather and scatter as NumPy's indexing: what `x[index]` and `x.at[index].add(...)` become when they are traced.

A table of places is made for every axis of the operand, over the axes of the indices and those of the window.
"""

from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from bayes_mdp.numerics.by_numpy.arrays import Array


def gather(
    operand: Array,
    indices: Array,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    mode: GatherScatterMode,
    fill_value: Any,
    **_: Any,
) -> Array:
    """`jax.lax.gather`."""
    numbers = dimension_numbers
    outside = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [axis for axis in range(operand.ndim) if axis not in outside]
    start, inside = _starts(
        indices,
        operand.shape,
        slice_sizes,
        (numbers.start_index_map, numbers.operand_batching_dims, numbers.start_indices_batching_dims),
    )
    # Axes that are taken whole come last, and need no places.
    whole = [axis for axis in window if start[axis] is None]
    part = [axis for axis in range(operand.ndim) if axis not in whole]
    if not part:
        whole, part = [], whole
    taken = [axis for axis in window if axis in part]
    places = _places(start, taken, slice_sizes, indices.ndim - 1)
    ordered = operand[tuple(slice(n) if axis in whole else slice(None) for axis, n in enumerate(slice_sizes))]
    found = np.asarray(ordered.transpose(*part, *whole)[tuple(places[axis] for axis in part)])
    batch, order = found.ndim - len(window), [*taken, *whole]
    found = found.transpose(*range(batch), *(batch + order.index(axis) for axis in window))
    if mode == GatherScatterMode.FILL_OR_DROP and not inside.all():
        filled = _fill(operand.dtype) if fill_value is None else fill_value
        found = np.where(inside.reshape(inside.shape + (1,) * len(window)), found, np.asarray(filled, operand.dtype))
    # Axes of the indices come first here; the result has those of the window at `offset_dims`.
    return np.moveaxis(found, range(batch, found.ndim), [int(axis) for axis in numbers.offset_dims])


def scatter(
    combine: np.ufunc | None,
    operand: Array,
    indices: Array,
    updates: Array,
    *,
    dimension_numbers: Any,
    mode: GatherScatterMode,
    **_: Any,
) -> Array:
    """`jax.lax.scatter` and its kin; `combine` is None for the one that overwrites."""
    numbers = dimension_numbers
    outside = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = [axis for axis in range(operand.ndim) if axis not in outside]
    # Axes of the indices first, those of the window last.
    given = [int(axis) for axis in numbers.update_window_dims]
    batch = updates.ndim - len(given)
    updates = np.moveaxis(updates, given, range(batch, updates.ndim))
    sizes = [1] * operand.ndim
    for axis, size in zip(window, updates.shape[batch:], strict=True):
        sizes[axis] = size
    start, inside = _starts(
        indices,
        operand.shape,
        tuple(sizes),
        (numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims, numbers.scatter_indices_batching_dims),
    )
    places = _places(start, window, tuple(sizes), batch)
    shape = np.broadcast_shapes(updates.shape, *(place.shape for place in places))
    places = tuple(np.broadcast_to(place, shape) for place in places)
    updates = np.broadcast_to(updates, shape)
    if mode != GatherScatterMode.CLIP and not inside.all():
        # An update that does not fit is dropped as a whole.
        kept = np.broadcast_to(inside.reshape(inside.shape + (1,) * len(window)), shape)
        places, updates = tuple(place[kept] for place in places), updates[kept]
    result = operand.copy()
    if combine is None:
        result[places] = updates
    else:
        combine.at(result, places, updates)
    return result


def _starts(indices: Array, shape: Any, sizes: Any, maps: tuple[Any, Any, Any]) -> tuple[list[Array | None], Array]:
    """Where each window starts along each axis of the operand (None: at 0), and whether it fits, over the indices."""
    mapped, batching, along = maps
    lead = indices.shape[:-1]
    start: list[Array | None] = [None] * len(shape)
    inside = np.ones(lead, bool)
    for column, axis in enumerate(int(axis) for axis in mapped):
        wanted, last = indices[..., column].astype(np.int64), shape[axis] - sizes[axis]
        inside = inside & np.asarray((wanted >= 0) & (wanted <= last))
        start[axis] = np.asarray(np.clip(wanted, 0, max(last, 0)))
    for axis, lane in zip(batching, along, strict=True):
        # The axis runs along with an axis of the indices.
        numbered = np.arange(lead[lane]).reshape([-1 if i == lane else 1 for i in range(len(lead))])
        start[int(axis)] = np.broadcast_to(numbered, lead)
    return start, np.asarray(inside)


def _places(start: list[Array | None], window: list[int], sizes: Any, batch: int) -> tuple[Array, ...]:
    """Places along every axis of the operand, over [*indices *window]."""
    places = []
    for axis, first in enumerate(start):
        place = np.zeros((1,) * batch, np.int64) if first is None else first
        place = place.reshape(place.shape + (1,) * len(window))
        if axis in window:
            run = np.arange(sizes[axis]).reshape([-1 if other == axis else 1 for other in window])
            place = place + run
        places.append(place)
    lead = np.broadcast_shapes(*(place.shape for place in places)) if places else ()
    return tuple(np.broadcast_to(place, lead) for place in places)


def _fill(dtype: np.dtype) -> Any:
    """What JAX gives for an index that does not exist."""
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.unsignedinteger) else np.iinfo(dtype).min
