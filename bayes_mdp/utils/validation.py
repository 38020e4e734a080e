"""Checks for what a person enters: one sentence with the argument, the index, what was there, what was expected."""

import operator
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from bayes_mdp.utils.messages import did_you_mean
from bayes_mdp.utils.typing import AnyArray, ArrayLike, Names

ROW_SUM_TOLERANCE = {"float32": 1e-5, "float64": 1e-6}
MOST_LABELS = 6  # in a message


@runtime_checkable
class HasShape(Protocol):
    """An array, or what has the shape of one (the rows of a posterior)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        ...


def as_python(x: object) -> Any:
    """A numpy integer or truth value as one of Python (numpy scalars make poor static fields); anything else as it
    is."""
    return x.item() if isinstance(x, (np.integer, np.bool_)) else x


def if_given(convert: Callable[..., object], *names: str) -> Callable[[object], Any]:
    """A converter of fields that may be None, which stays; of anything else it is `convert(*names, value)`."""

    def converted(value: object) -> Any:
        return None if value is None else convert(*names, value)

    return converted


def is_concrete(*arrays: PyTree) -> bool:
    """Whether every array holds values (none is a JAX tracer), so that it can be looked into."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arrays))


def broadcasts_to(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether an array of `shape` can be broadcast to the shape `full`."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(size in (1, target) for size, target in pairs)


def first_index(mask: ArrayLike) -> tuple[int, ...] | None:
    """Index of the first true entry of `mask` in C order, or None."""
    flat = np.asarray(mask)
    if not flat.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(flat)), flat.shape))


def at(name: str, index: tuple[int, ...]) -> str:
    """`name[i, j]`, or `name` for a scalar."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def require(bad: ArrayLike, name: str, values: ArrayLike, expected: str) -> None:
    """Raise a ValueError that names the first entry of `values` where `bad` is true."""
    index = first_index(bad)
    if index is not None:
        raise ValueError(f"{at(name, index)} is {np.asarray(values)[index]!s}, expected {expected}")


def require_alike(who: str, before: PyTree, after: PyTree, model: str, *, batch_axes: int = 0) -> None:
    """Refuse a state that a compiled loop cannot carry: of another structure, shape or dtype than the one before.

    Args:
        who: returned it, for the message.
        before, after: arrays or tracers.
        model: what it has to be like, in words.
        batch_axes: leading axes of both that are not those of `who`.

    Raises:
        TypeError: it differs; the message names what.
    """
    old_tree, new_tree = map(jax.tree.structure, (before, after))
    if old_tree != new_tree:
        raise TypeError(f"{who} returned a state of structure {new_tree}, expected that of {model}, {old_tree}")
    for leaves in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        old, new = ((jnp.result_type(leaf), jnp.shape(leaf)[batch_axes:]) for leaf in leaves)
        if old != new:
            raise TypeError(
                f"{who} returned a state with {new[0]} of shape {new[1]}, expected {old[0]} of shape {old[1]} there, "
                f"as in {model}"
            )


def as_array(name: str, values: object, expected: str) -> np.ndarray:
    """`values`, nothing of it traced, as a numpy array.

    Raises:
        ValueError: lists of unequal lengths. TypeError: what numpy cannot hold (a key, for instance).
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        ragged = _ragged(values)
        if ragged is None:
            raise TypeError(f"{name} is a {type(values).__name__}, expected {expected}") from None
    index, value, before = ragged
    raise ValueError(f"{at(name, index)} has {value}, expected {before}, as {at(name, (*index[:-1], 0))}")


def as_real(name: str, values: object, expected: str = "a finite number") -> np.ndarray:
    """`values`, nothing of it traced, as an array of real numbers (or of booleans, which count as 0 and 1).

    Raises:
        TypeError: True or False alone, text, complex numbers, dates, None, other objects. ValueError: as `as_array`.
    """
    array = as_array(name, values, expected)
    if isinstance(values, (bool, np.bool_)):
        raise TypeError(f"{name} is {values}, expected {expected}")
    if array.dtype.kind in "biuf" or jnp.issubdtype(array.dtype, jnp.floating):
        return array
    entries = array.ravel().tolist() if array.dtype == object else []
    if array.dtype != object or not all(isinstance(x, Real) and not isinstance(x, bool) for x in entries):
        bad = [not isinstance(x, Real) or isinstance(x, bool) for x in entries] or [True] * array.size
        index = first_index(np.reshape(bad, array.shape))
        if index is None:  # no entries at all
            raise TypeError(f"{name} is an empty array of dtype {array.dtype}, expected {expected}")
        value: object = array[index]
        shown = repr(value.item() if isinstance(value, np.generic) and array.dtype.kind in "US" else value)
        raise TypeError(f"{at(name, index)} is {_short(shown)}, expected {expected}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} has a number that no float can hold, expected {expected}") from None


def as_floats(name: str, values: object) -> Array:
    """A field of real numbers as a JAX array of JAX's default width; a floating JAX array, or a tracer, stays as it is.

    Raises:
        TypeError, ValueError: as `as_real`; a finite number that is infinite in that width.
    """
    if isinstance(values, jax.Array) and jnp.issubdtype(values.dtype, jnp.floating):
        return values
    if not is_concrete(values):
        return jnp.asarray(values, dtype=float)
    array = as_real(name, values)
    check_width(name, array)
    # Converted by NumPy: JAX would compile a program for every shape.
    return jax.device_put(np.asarray(array, jax.dtypes.canonicalize_dtype(float)))


def check_width(name: str, array: AnyArray) -> None:
    """No finite entry is infinite in JAX's default width."""
    largest = np.finfo(jax.dtypes.canonicalize_dtype(float)).max
    # Integers of 64 bits fit into every float; a float does where its own type is no wider.
    if array.dtype.kind == "f" and np.finfo(array.dtype).max > largest and array.size:
        with np.errstate(invalid="ignore"):
            require(np.isfinite(array) & (np.abs(array) > largest), name, array, f"a number of at most {largest:.3g}")


def as_mask(name: str, values: object) -> AnyArray:
    """A field of booleans: True and False, or exactly 1 and 0; a tracer stays as it is.

    Raises:
        TypeError, ValueError: anything else.
    """
    if isinstance(values, (jax.Array, np.ndarray, np.bool_)) and values.dtype == bool:
        return np.asarray(values) if isinstance(values, np.bool_) else values
    if not is_concrete(values):
        return jnp.asarray(values)
    array = np.asarray(values) if isinstance(values, bool) else as_real(name, values, "True or False")
    require(~((array == 0) | (array == 1)), name, array, "True or False")
    return array.astype(bool)


def as_indices(name: str, values: object, what: str) -> AnyArray:
    """A field of indices: integers that JAX's default width can hold, of at least 32 bits; a tracer stays integral.

    Raises:
        TypeError: another dtype. ValueError: an integer that would wrap around, lists of unequal lengths.
    """
    if is_concrete(values) and not isinstance(values, jax.Array):
        array = as_array(name, values, f"integers (indices of {what}s)")
        if array.dtype == object:  # Python integers of any length
            require([not isinstance(x, int) for x in array.ravel()], name, array.ravel(), f"the index of a {what}")
            array = np.clip(array, -(2**63), 2**63 - 1).astype(np.int64)
    else:
        array = jnp.asarray(values)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers (indices of {what}s)")
    if isinstance(array, np.ndarray):
        limit = np.iinfo(jax.dtypes.canonicalize_dtype(int))
        require((array > limit.max) | (array < limit.min), name, array, f"the index of a {what}, below {limit.max}")
    # Arithmetic of small integers wraps around too: a state 255 + 1 of 8 bits.
    return array.astype(np.int32) if array.dtype.itemsize < 4 else array


def check_finite(name: str, values: object) -> None:
    """Every entry, where it is concrete, is a finite number."""
    check_that(name, values, np.isfinite, "a finite number")


def check_positive(name: str, values: object) -> None:
    """Every entry, where it is concrete, is finite and greater than zero."""
    check_not_negative(name, values, zero=False)


def check_not_negative(name: str, values: object, *, zero: bool = True) -> None:
    """Every entry, where it is concrete, is finite, zero or greater; greater alone where `zero` is False."""
    if is_concrete(values):
        expected = "a finite number, zero or greater" if zero else "a finite number greater than zero"
        array = as_real(name, values, expected)
        require(~(np.isfinite(array) & ((array >= 0) if zero else (array > 0))), name, array, expected)


def check_that(name: str, values: object, holds: Callable[[np.ndarray], ArrayLike], expected: str) -> None:
    """Every entry, where it is concrete, is a real number for which `holds` is true."""
    if is_concrete(values):
        array = as_real(name, values, expected)
        require(~np.asarray(holds(array), bool), name, array, expected)


def check_number(name: str, value: object, holds: Callable[[np.ndarray], ArrayLike], expected: str) -> None:
    """One real number, not traced, for which `holds` is true."""
    array = as_real(name, value, expected)
    if array.shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    require(~np.asarray(holds(array), bool), name, array, expected)


def check_fraction(name: str, values: object) -> None:
    """Every entry, where it is concrete, lies in [0, 1]."""
    check_that(name, values, lambda x: (x >= 0) & (x <= 1), "a number from 0 to 1")


def check_inside(name: str, values: object) -> None:
    """Every entry, where it is concrete, lies strictly between 0 and 1."""
    check_that(name, values, lambda x: (x > 0) & (x < 1), "a number between 0 and 1")


def check_whole(name: str, values: object) -> None:
    """Every entry, where it is concrete, is a whole number of at least 1, of any type."""
    check_that(name, values, lambda x: np.isfinite(x) & (x >= 1) & (np.floor(x) == x), "an integer of at least 1")


def check_bool(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {_short(repr(value))}, expected True or False")


def check_callable(name: str, value: object) -> None:
    """None, or a function."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is {described(value)}, expected a function or None")


def check_dataset(name: str, value: Container[str], *variables: str) -> None:
    """An xarray Dataset that holds these variables.

    Raises:
        TypeError, ValueError: one sentence.
    """
    if not hasattr(value, "data_vars"):
        raise TypeError(f"{name} is {described(value)}, expected a Dataset")
    missing = [variable for variable in variables if variable not in value]
    if missing:
        raise ValueError(f"{name} has no variable {missing[0]!r}, expected a Dataset with {', '.join(variables)}")


def check_seed(name: str, value: int | np.integer) -> None:
    """An integer from 0 to 2^32 - 1: a larger one is another's seed, of which JAX takes the last 32 bits."""
    check_count(name, value, 0)
    if value >= 2**32:
        raise ValueError(f"{name} is {value}, expected an integer from 0 to {2**32 - 1}")


def check_functions(name: str, functions: object) -> None:
    """None, or a mapping from names to functions.

    Raises:
        TypeError: one sentence.
    """
    if functions is None:
        return
    if not isinstance(functions, Mapping):
        raise TypeError(f"{name} is {described(functions)}, expected a mapping from names to functions")
    for key, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name}[{key!r}] is {described(function)}, expected a function")


def check_type(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """An instance of `kinds`; `expected` ends the sentence."""
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {described(value)}, expected {expected}")


def described(value: object) -> str:
    """A value in a message: short plain ones as they are, of others the type."""
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return _short(repr(value))
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def _ragged(values: object, index: tuple[int, ...] = ()) -> tuple[tuple[int, ...], str, str] | None:
    """Where nested lists are of another length than those before: index, what is there, what is expected."""
    if not isinstance(values, (list, tuple)):
        return None
    # The depth of a list is not asked for: numpy may not be able to read it.
    sizes = [f"{len(x)} entries" if isinstance(x, (list, tuple)) or np.ndim(x) else "no entries" for x in values]
    for i, size in enumerate(sizes):
        if size != sizes[0]:
            return (*index, i), size, sizes[0]
    return next((found for i, x in enumerate(values) if (found := _ragged(x, (*index, i))) is not None), None)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_concentration(name: str, values: object) -> None:
    """Dirichlet concentrations: finite, not negative (zero is a structural zero), some positive entry in every row."""
    array = as_real(name, values, "a finite number, zero or greater")
    require(~(np.isfinite(array) & (array >= 0)), name, array, "a finite number, zero or greater")
    require(array.sum(-1) <= 0, name, array.sum(-1), "a row with at least one positive entry")


def check_probabilities(name: str, values: object) -> None:
    """Every entry is finite and not negative."""
    array = as_real(name, values, "a probability (finite, zero or greater)")
    require(~(np.isfinite(array) & (array >= 0)), name, array, "a probability (finite, zero or greater)")


def check_probability_rows(name: str, rows: object, extra: ArrayLike | None = None) -> None:
    """Every row of `rows` (last axis), with `extra` added, is non-negative and sums to one."""
    array = as_real(name, rows, "probabilities")
    tolerance = ROW_SUM_TOLERANCE.get(str(array.dtype), 1e-6)
    require(~(np.isfinite(array) & (array >= 0)), name, array, "a probability (finite, zero or greater)")
    array = array.astype(np.float64)
    total = array.sum(-1) if extra is None else array.sum(-1) + np.asarray(extra, np.float64)
    index = first_index(np.abs(total - 1.0) > tolerance)
    if index is not None:
        suffix = "" if extra is None else " together with its end probability"
        raise ValueError(f"{at(name, index)} sums to {total[index]:.8g}{suffix}, expected a row that sums to 1")


def check_initial(initial: ArrayLike | None, n_states: int, name: str = "initial") -> None:
    """None, or a distribution of the first state: [S], looked into where it is not traced."""
    if initial is None:
        return
    array = as_real(name, initial, "probabilities") if is_concrete(initial) else jnp.asarray(initial)
    check_shape(name, array, (n_states,), "state")
    if is_concrete(array):
        check_probability_rows(name, array)


def check_index(name: str, values: object, size: int, what: str) -> None:
    """Every entry is an integer in [0, size)."""
    array = as_array(name, values, f"integers (indices of {what}s)")
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers (indices of {what}s)")
    article = "an" if what[0] in "aeiou" else "a"
    require((array < 0) | (array >= size), name, array, f"{article} {what} index from 0 to {size - 1}")


def as_index(name: str, value: Any, size: int, what: str) -> int:
    """One index in [0, size), of `what`: "a state", "an action".

    Raises:
        TypeError: no integer. ValueError: out of range.
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}, expected the index of {what}") from error
    if not 0 <= number < size:
        raise ValueError(f"{name} is {number}, expected {what} index from 0 to {size - 1}")
    return number


def check_shape(name: str, array: HasShape, expected: tuple[int, ...], axes: str) -> None:
    """`array` has exactly the shape `expected`; `axes` names its axes in the message."""
    if tuple(array.shape) != tuple(expected):
        raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {tuple(expected)} ({axes})")


def check_key(name: str, key: object) -> None:
    """One typed key."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        got = f"an array of dtype {key.dtype}" if isinstance(key, (jax.Array, np.ndarray)) else described(key)
        raise TypeError(f"{name} is {got}, expected a typed key (jax.random.key)")
    if key.shape:
        raise ValueError(f"{name} has shape {key.shape}, expected one key")


def check_count(name: str, value: object, least: int = 1) -> None:
    """An integer, `least` or greater."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {described(value)}, expected an integer of at least {least}")
    if value < least:
        raise ValueError(f"{name} is {value}, expected an integer of at least {least}")


def check_name(what: str, value: object, known: Iterable[str], also: str = "") -> None:
    """One of the known names; the sentence ends with the nearest one. `also`: what else would do, ", or a number"."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        suggestion = did_you_mean(value, names) if isinstance(value, str) else ""
        raise ValueError(f"{what} is {described(value)}, expected one of {', '.join(names)}{also}{suggestion}")


def check_names(name: str, names: object) -> None:
    """A tuple of hashable names, each once.

    Raises:
        TypeError, ValueError: names the first that is not.
    """
    if not isinstance(names, tuple):
        raise TypeError(f"{name} is {described(names)}, expected a sequence of names")
    seen = set()
    for i, label in enumerate(names):
        try:
            repeated = label in seen
        except TypeError:
            raise TypeError(f"{name}[{i}] is {described(label)}, expected a hashable name") from None
        if repeated:
            raise ValueError(f"{name}[{i}] is {label!r} again, expected each name once")
        seen.add(label)


def as_names(names: object) -> Any:
    """A list or an array of names as a tuple of plain values; anything else as it is."""
    if isinstance(names, np.ndarray):
        names = names.tolist()
    return names if names is None or isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)


def check_labels(name: str, labels: Names, expected: Names) -> None:
    """The names are those of the space, in their order."""
    if labels != expected:
        raise ValueError(f"{name} are {label_list(labels)}, expected those of the space: {label_list(expected)}")


def label_list(labels: Sequence[Hashable]) -> str:
    """Labels with commas between them, as Python writes them: "'idle', 'busy'". Of many the first six, and how many."""
    shown = ", ".join(map(repr, labels[:MOST_LABELS]))
    return f"{shown}, ... ({len(labels)} in all)" if len(labels) > MOST_LABELS else shown
