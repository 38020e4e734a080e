"""An equation of a jaxpr: its arrays, the jaxpr that it calls, and which equations an output needs.

Equations between known numbers: computed, the commonest by numpy.

First the primitives that only move entries (`MOVES`): what they do to numbers is what they do to descriptions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from bayes_mdp.numerics.compact import compact
from bayes_mdp.utils.typing import AnyArray, ArrayLike

Given = TypeVar("Given")
Atom: TypeAlias = Var | Literal
"""An input or output of an equation."""


def array_of(variable: Var) -> ShapedArray:
    """Shape and dtype of a variable; all of a traced prior are arrays."""
    return cast(ShapedArray, variable.aval)


def needed_equations(jaxpr: Jaxpr, outvars: Sequence[Atom]) -> list[JaxprEqn]:
    """The equations that `outvars` depend on, in order."""
    live, kept = {atom for atom in outvars if not isinstance(atom, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if any(variable in live for variable in equation.outvars):
            kept.append(equation)
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return kept[::-1]


_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_CUSTOM = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}


def called_jaxpr(equation: JaxprEqn) -> Jaxpr | None:
    """The jaxpr that an equation merely calls; None: it calls none."""
    found = body_of(equation)
    return None if found is None else found[0]


def body_of(equation: JaxprEqn) -> tuple[Jaxpr, Sequence[ArrayLike]] | None:
    """The same with its constants."""
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        inner: Any = params.get("jaxpr", params.get("call_jaxpr"))
    elif name in _CUSTOM:
        inner = params.get(_CUSTOM[name], params.get("call_jaxpr"))
    else:
        return None
    return (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())


def scan_parts(params: Mapping[str, Any], inputs: Sequence[Given]) -> tuple[list[Given], list[Given], list[Given]]:
    """What a `scan` equation is given: constants of the body, what is carried, columns.

    Args:
        params: of the equation; JAX 0.12 states the parts in its own way.
        inputs: one for each of its input variables.
    """
    if "ft_in" in params:  # JAX 0.12
        consts, carry, columns = (list(part) for part in params["ft_in"].update(list(inputs)).unpack())
        return consts, carry, columns
    num_consts, stop = params["num_consts"], params["num_consts"] + params["num_carry"]
    return list(inputs[:num_consts]), list(inputs[num_consts:stop]), list(inputs[stop:])


def known(value: ArrayLike) -> AnyArray:
    """A constant; keys of random numbers stay what they are."""
    return value if isinstance(value, jax.Array) and is_key(value) else np.asarray(value)


def is_key(value: object) -> bool:
    """Whether it is a key of random numbers."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended)


def _broadcast(equation: JaxprEqn, x: np.ndarray) -> np.ndarray:
    shape, dimensions = equation.params["shape"], equation.params["broadcast_dimensions"]
    lead = [1] * len(shape)
    for axis, size in zip(dimensions, np.shape(x), strict=True):
        lead[axis] = size
    return np.broadcast_to(_reshaped(x, tuple(lead)), shape)


def _reshaped(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`reshape`, without a copy of what repeats one entry."""
    small = compact(x)
    return np.broadcast_to(small.reshape(()), shape) if small.size == 1 and x.size else x.reshape(shape)


def _sliced(x: np.ndarray, equation: JaxprEqn) -> np.ndarray:
    starts, stops = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, starts, stops, strides))]


MOVES: dict[str, Callable[[JaxprEqn, np.ndarray], np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda eqn, x: _reshaped(x, eqn.params["new_sizes"]),
    "transpose": lambda eqn, x: np.transpose(x, eqn.params["permutation"]),
    "squeeze": lambda eqn, x: np.squeeze(x, eqn.params["dimensions"]),
    "expand_dims": lambda eqn, x: np.expand_dims(x, eqn.params["dimensions"]),
    "rev": lambda eqn, x: np.flip(x, eqn.params["dimensions"]),
    "slice": lambda eqn, x: _sliced(x, eqn),
    "tile": lambda eqn, x: np.tile(x, eqn.params["reps"]),
    "copy": lambda eqn, x: x,
    "copy_p": lambda eqn, x: x,
}
"""Primitive -> what it does: entries are moved, copied or left out, as its parameters state."""


def chosen(which: np.ndarray, cases: Sequence[np.ndarray]) -> np.ndarray:
    """Entry by entry, that of the case whose number `which` is there."""
    shape = cases[0].shape
    which = np.broadcast_to(np.asarray(which).astype(np.int64), shape)
    result = np.array(np.broadcast_to(cases[0], shape))
    for number, case in enumerate(cases[1:], start=1):
        np.copyto(result, case, where=which == number)
    return result


NUMPY: dict[str, Callable[..., Any]] = {
    **MOVES,
    "add": lambda eqn, x, y: x + y,
    "sub": lambda eqn, x, y: x - y,
    "mul": lambda eqn, x, y: x * y,
    "neg": lambda eqn, x: -x,
    "max": lambda eqn, x, y: np.maximum(x, y),
    "min": lambda eqn, x, y: np.minimum(x, y),
    "sqrt": lambda eqn, x: np.sqrt(x),
    "eq": lambda eqn, x, y: x == y,
    "ne": lambda eqn, x, y: x != y,
    "lt": lambda eqn, x, y: x < y,
    "le": lambda eqn, x, y: x <= y,
    "gt": lambda eqn, x, y: x > y,
    "ge": lambda eqn, x, y: x >= y,
    "concatenate": lambda eqn, *x: np.concatenate(x, eqn.params["dimension"]),
    "stack": lambda eqn, *x: np.stack(x, eqn.params["axis"]),
    "select_n": lambda eqn, which, *x: chosen(which, list(x)),
}
"""Primitive -> the same in numpy."""


def computed(jaxpr: Jaxpr, equation: JaxprEqn, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """An equation between numbers. The commonest in numpy: JAX would compile each."""
    quick = NUMPY.get(equation.primitive.name)
    if quick is not None and not any(map(is_key, inputs)):
        with np.errstate(all="ignore"):
            result = quick(equation, *inputs)
        return [np.asarray(result, array_of(equation.outvars[0]).dtype)]
    given = {atom: x for atom, x in zip(equation.invars, inputs, strict=True) if not isinstance(atom, Literal)}
    names = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    alone = Jaxpr((), list(given), equation.outvars, [equation], equation.effects, names)
    return [known(x) for x in jaxpr_as_fun(ClosedJaxpr(alone, ()))(*given.values())]
