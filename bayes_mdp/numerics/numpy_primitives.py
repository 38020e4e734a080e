"""What one equation of a jaxpr does, by NumPy: a table {name of JAX's primitive: function of arrays}.

Each function has the arrays of the equation as arguments and its parameters as keywords, and returns what XLA would but
for rounding: NumPy's logarithms and sums are not XLA's. First the small functions, then gather and scatter, last the
table, and the parameters that its functions were written for (`understood`).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from jax.lax import GatherScatterMode
from scipy import special

from bayes_mdp.numerics.array_forms import compact

Array: TypeAlias = Any
"""An array of NumPy, or a number of it, which it gives in the place of an array without axes."""
Primitive = Callable[..., Any]


def _plain(function: Callable[..., Any]) -> Primitive:
    """A function of arrays that needs no parameters."""
    return lambda *arrays, **_: function(*arrays)


def _along(function: Callable[..., Any]) -> Primitive:
    """A reduction over `axes`."""
    return lambda x, *, axes, **_: function(x, axis=tuple(axes))


def _cumulative(function: Any) -> Primitive:
    def run(x: Array, *, axis: Any, reverse: Any) -> Array:
        return np.flip(function(np.flip(x, axis), axis), axis) if reverse else function(x, axis)

    return run


def _convert(x: Array, *, new_dtype: Any, **_: Any) -> Array:
    if np.issubdtype(x.dtype, np.floating) and np.issubdtype(new_dtype, np.integer):
        # XLA takes the nearest integer that exists, and zero for nan.
        info = np.iinfo(new_dtype)
        inside = np.clip(np.where(np.isnan(x), 0.0, x), float(info.min), float(info.max))
        high = inside >= float(info.max)
        return np.where(high, info.max, np.where(high, 0.0, inside).astype(new_dtype)).astype(new_dtype)
    return x.astype(new_dtype)


def _broadcast(x: Array, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> Array:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape, strict=True):
        sizes[axis] = size
    return np.broadcast_to(_reshape(x, new_sizes=tuple(sizes)), shape)


def _reshape(x: Array, *, new_sizes: Any, **_: Any) -> Array:
    # Without a copy of what repeats one number.
    small = compact(x)
    return np.broadcast_to(small.reshape(()), new_sizes) if small.size == 1 and x.size else x.reshape(new_sizes)


def _divide(x: Array, y: Array, **_: Any) -> Array:
    if np.issubdtype(x.dtype, np.floating):
        return x / y
    # Towards zero.
    quotient = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -quotient, quotient) if np.issubdtype(x.dtype, np.signedinteger) else x // y


def _integer_pow(x: Array, *, y: Any, **_: Any) -> Array:
    # By squarings, as XLA does.
    result, base, left = None, x, abs(y)
    while left:
        if left & 1:
            result = base if result is None else result * base
        left >>= 1
        base = base * base if left else base
    result = np.ones_like(x) if result is None else result
    return 1 / result if y < 0 else result


def _dot(x: Array, y: Array, *, dimension_numbers: Any, preferred_element_type: Any, **_: Any) -> Array:
    (x_sum, y_sum), (x_batch, y_batch) = dimension_numbers
    x_free = [axis for axis in range(x.ndim) if axis not in (*x_sum, *x_batch)]
    y_free = [axis for axis in range(y.ndim) if axis not in (*y_sum, *y_batch)]
    batch = tuple(x.shape[axis] for axis in x_batch)
    size = int(np.prod([x.shape[axis] for axis in x_sum]))
    left = x.transpose(*x_batch, *x_free, *x_sum).reshape((*batch, -1, size))
    right = y.transpose(*y_batch, *y_sum, *y_free).reshape((*batch, size, -1))
    rest = [x.shape[axis] for axis in x_free] + [y.shape[axis] for axis in y_free]
    product = np.matmul(left, right).reshape((*batch, *rest))
    return product if preferred_element_type is None else product.astype(preferred_element_type)


def _slice(x: Array, *, start_indices: Any, limit_indices: Any, strides: Any) -> Array:
    steps = strides or (1,) * x.ndim
    return x[tuple(slice(*part) for part in zip(start_indices, limit_indices, steps, strict=True))]


def _window(x: Array, sizes: Any, starts: Sequence[Array]) -> tuple[slice, ...]:
    first = [min(max(int(position), 0), n - size) for position, n, size in zip(starts, x.shape, sizes, strict=True)]
    return tuple(slice(position, position + size) for position, size in zip(first, sizes, strict=True))


def _dynamic_update_slice(x: Array, update: Array, *starts: Array, **_: Any) -> Array:
    result = x.copy()
    result[_window(x, update.shape, starts)] = update
    return result


def _pad(x: Array, value: Array, *, padding_config: Sequence[Any]) -> Array:
    size = [lo + hi + n + max(n - 1, 0) * gap for n, (lo, hi, gap) in zip(x.shape, padding_config, strict=True)]
    # Room for all of it, then the negative edges cut away.
    room = [size[i] + max(-lo, 0) + max(-hi, 0) for i, (lo, hi, _) in enumerate(padding_config)]
    result = np.full(room, value, x.dtype)
    ends = [max(lo, 0) + n + max(n - 1, 0) * gap for n, (lo, _, gap) in zip(x.shape, padding_config, strict=True)]
    inner = [slice(max(lo, 0), end, gap + 1) for (lo, _, gap), end in zip(padding_config, ends, strict=True)]
    result[tuple(inner)] = x
    visible = [slice(max(-lo, 0), max(-lo, 0) + n) for (lo, *_), n in zip(padding_config, size, strict=True)]
    return result[tuple(visible)]


def _sort(*arrays: Array, dimension: Any, num_keys: int, **_: Any) -> list[Array]:
    # Stable, nan last, minus zero as zero: the order of JAX.
    order = np.lexsort([key for key in arrays[:num_keys][::-1]], axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in arrays]


def _argument(function: Any) -> Primitive:
    return lambda x, *, axes, index_dtype: function(x, axis=axes[0]).astype(index_dtype)


def _shift(function: Any) -> Primitive:
    def run(x: Array, by: Array, **_: Any) -> Array:
        bits = 8 * x.dtype.itemsize
        # One distance for all, as in a hash, is the usual case.
        if not any(by.strides) and by.size and 0 <= int(by.flat[0]) < bits:
            return function(x, by)
        # Too far: nothing is left.
        return np.where((by >= 0) & (by < bits), function(x, np.clip(by, 0, bits - 1).astype(x.dtype)), 0).astype(
            x.dtype
        )

    return run


def _logical_right(x: Array, by: Array) -> Array:
    unsigned = f"uint{8 * x.dtype.itemsize}"
    return (x.view(unsigned) >> by.view(unsigned)).view(x.dtype) if x.dtype.kind == "i" else x >> by


def _round(x: Array, *, rounding_method: Any) -> Array:
    if int(rounding_method) == 1:
        return np.rint(x)
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _in_dtype(function: Any) -> Primitive:
    """A function of SciPy, which may answer in double precision, in the dtype of its first argument."""
    return lambda *x, **_: np.asarray(function(*x), x[0].dtype)


def select(which: Array, *cases: Array, **_: Any) -> Array:
    """Entry by entry, that of the case whose number `which` is there."""
    if which.dtype == bool:
        return np.where(which, cases[1], cases[0])
    result = np.array(cases[0])
    for number, case in enumerate(cases[1:], start=1):
        np.copyto(result, case, where=which == number)
    return result


# JAX's gather and scatter as NumPy's indexing: what `x[index]` and `x.at[index].add(...)` become when they are traced.
# A table of places is made for every axis of the operand, over the axes of the indices and those of the window.


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
    values = np.asarray(ordered.transpose(*part, *whole)[tuple(places[axis] for axis in part)])
    batch, order = values.ndim - len(window), [*taken, *whole]
    values = values.transpose(*range(batch), *(batch + order.index(axis) for axis in window))
    if mode == GatherScatterMode.FILL_OR_DROP and not inside.all():
        filled = _fill(operand.dtype) if fill_value is None else fill_value
        values = np.where(inside.reshape(inside.shape + (1,) * len(window)), values, np.asarray(filled, operand.dtype))
    # Axes of the indices come first here; the result has those of the window at `offset_dims`.
    return np.moveaxis(values, range(batch, values.ndim), [int(axis) for axis in numbers.offset_dims])


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
    window_axes = [int(axis) for axis in numbers.update_window_dims]
    batch = updates.ndim - len(window_axes)
    updates = np.moveaxis(updates, window_axes, range(batch, updates.ndim))
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
        fits = np.broadcast_to(inside.reshape(inside.shape + (1,) * len(window)), shape)
        places, updates = tuple(place[fits] for place in places), updates[fits]
    result = operand.copy()
    if combine is None:
        result[places] = updates
    else:
        combine.at(result, places, updates)
    return result


def _starts(indices: Array, shape: Any, sizes: Any, maps: tuple[Any, Any, Any]) -> tuple[list[Array | None], Array]:
    """Where each window starts along each axis of the operand (None: at 0), and whether it fits, over the indices."""
    mapped, batching, index_axes = maps
    lead = indices.shape[:-1]
    start: list[Array | None] = [None] * len(shape)
    inside = np.ones(lead, bool)
    for column, axis in enumerate(int(axis) for axis in mapped):
        requested, last = indices[..., column].astype(np.int64), shape[axis] - sizes[axis]
        inside = inside & np.asarray((requested >= 0) & (requested <= last))
        start[axis] = np.asarray(np.clip(requested, 0, max(last, 0)))
    for axis, lane in zip(batching, index_axes, strict=True):
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
            run = np.arange(sizes[axis]).reshape([-1 if window_axis == axis else 1 for window_axis in window])
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


_UNARY: dict[str, Any] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "not": np.invert,
    "is_finite": np.isfinite, "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "expm1": np.expm1,
    "sqrt": np.sqrt, "cbrt": np.cbrt, "square": np.square, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "copy": np.asarray, "stop_gradient": np.asarray, "copy_p": np.asarray,
}  # fmt: skip
_BINARY: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "pow": np.power,
    "rem": np.fmod, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "atan2": np.arctan2, "nextafter": np.nextafter, "add_any": np.add, "add_jaxvals": np.add,
}  # fmt: skip
_SPECIAL: dict[str, Any] = {
    "lgamma": special.gammaln, "digamma": special.digamma, "erf": special.erf, "erfc": special.erfc,
    "erf_inv": special.erfinv, "logistic": special.expit, "igamma": special.gammainc, "igammac": special.gammaincc,
}  # fmt: skip

PRIMITIVES: dict[str, Primitive] = {
    **{name: _plain(function) for name, function in (*_UNARY.items(), *_BINARY.items())},
    **{name: _in_dtype(function) for name, function in _SPECIAL.items()},
    "rsqrt": lambda x, **_: np.asarray(1 / np.sqrt(x), x.dtype),
    "div": _divide,
    "integer_pow": _integer_pow,
    "one_minus_square": lambda x, **_: 1 - x * x,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "round": _round,
    "shift_left": _shift(operator.lshift),
    "shift_right_logical": _shift(_logical_right),
    "shift_right_arithmetic": lambda x, by: x >> np.clip(by, 0, 8 * x.dtype.itemsize - 1).astype(x.dtype),
    "convert_element_type": _convert,
    "bitcast_convert_type": lambda x, *, new_dtype: np.ascontiguousarray(x).view(new_dtype).reshape(x.shape),
    "select_n": select,
    "iota": lambda *, dtype, shape, dimension, **_: _broadcast(
        np.arange(shape[dimension], dtype=dtype), shape=shape, broadcast_dimensions=(dimension,)
    ),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "stack": lambda *x, axis: np.stack(x, axis),
    "tile": lambda x, *, reps: np.tile(x, reps),
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "slice": _slice,
    "dynamic_slice": lambda x, *starts, slice_sizes, **_: x[_window(x, slice_sizes, starts)],
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "gather": gather,
    "scatter": partial(scatter, None),
    "scatter-add": partial(scatter, np.add),
    "scatter-mul": partial(scatter, np.multiply),
    "scatter-min": partial(scatter, np.minimum),
    "scatter-max": partial(scatter, np.maximum),
    "dot_general": _dot,
    "reduce_sum": lambda x, *, axes, **_: x.sum(tuple(axes), dtype=x.dtype),
    "reduce_prod": lambda x, *, axes, **_: x.prod(tuple(axes), dtype=x.dtype),
    "reduce_max": _along(np.max),
    "reduce_min": _along(np.min),
    "reduce_and": _along(np.all),
    "reduce_or": _along(np.any),
    "argmax": _argument(np.argmax),
    "argmin": _argument(np.argmin),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "sort": _sort,
    "optimization_barrier": lambda *x: list(x),
}
"""By name of the primitive; those of several results return a list."""

_INDEXED = "dimension_numbers indices_are_sorted mode unique_indices"
_SCATTER = f"{_INDEXED} update_consts update_jaxpr"
_PARAMETERS: dict[str, str] = {
    "argmax": "axes index_dtype",
    "argmin": "axes index_dtype",
    "bitcast_convert_type": "new_dtype",
    "broadcast_in_dim": "broadcast_dimensions shape sharding",
    "concatenate": "dimension",
    "convert_element_type": "new_dtype sharding weak_type",
    "dot_general": "dimension_numbers out_sharding precision preferred_element_type",
    "dynamic_slice": "slice_sizes",
    "integer_pow": "y",
    "iota": "dimension dtype shape sharding",
    "mul": "out_dtype",
    "pad": "padding_config",
    "reshape": "dimensions new_sizes sharding",
    "rev": "dimensions",
    "round": "rounding_method",
    "slice": "limit_indices start_indices strides",
    "sort": "dimension is_stable num_keys",
    "split": "axis sizes",
    "squeeze": "dimensions",
    "stack": "axis",
    "tile": "reps",
    "transpose": "permutation",
    "unstack": "axis",
    "gather": f"{_INDEXED} fill_value slice_sizes",
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), _SCATTER),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), "axis reverse"),
    **dict.fromkeys((name for name in PRIMITIVES if name.startswith("reduce_")), "axes out_sharding"),
}
"""Parameters of the primitives that have some."""
_NONE = {"mul": "out_dtype", "reshape": "dimensions"}
"""Parameters that must be None for the functions above to be right."""


def understood(name: str, params: Mapping[str, Any]) -> bool:
    """Whether a step is one of `PRIMITIVES`, and its parameters are those that its function was written for.

    Another version of JAX may give a step another parameter, and with it another meaning.
    """
    if name not in PRIMITIVES:
        return False
    # Neither where an array lies nor how exact a function may be changes what is meant.
    known = {*_PARAMETERS.get(name, "").split(), "accuracy"}
    return known >= set(params) and (name not in _NONE or params.get(_NONE[name]) is None)
