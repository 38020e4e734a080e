"""A jaxpr (a traced function) as its readers need it: the equations behind a result, and the jaxprs inside them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

Given = TypeVar("Given")
Atom: TypeAlias = Var | Literal
"""An input or output of an equation."""

_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_CUSTOM = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}


def array_of(variable: Var) -> ShapedArray:
    """Shape and dtype of a variable; of a traced program of arrays all are arrays."""
    return cast(ShapedArray, variable.aval)


@lru_cache(maxsize=1024)
def equations_for(jaxpr: Jaxpr, wanted: tuple[bool, ...]) -> list[tuple[JaxprEqn, tuple[bool, ...]]]:
    """The equations that the wanted outputs depend on, in order, and which of its own outputs each is needed for."""
    outputs = zip(jaxpr.outvars, wanted, strict=True)
    live = {atom for atom, is_wanted in outputs if is_wanted and not isinstance(atom, Literal)}
    needed = []
    for equation in reversed(jaxpr.eqns):
        used = tuple(variable in live for variable in equation.outvars)
        if any(used):
            needed.append((equation, used))
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return needed[::-1]


def inner_jaxpr(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr that an equation merely calls, with the equation's inputs and outputs; None: it calls none."""
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        inner: Any = params.get("jaxpr", params.get("call_jaxpr"))
    elif name in _CUSTOM:
        inner = params.get(_CUSTOM[name], params.get("call_jaxpr"))
    else:
        return None
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


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


def inner_jaxprs(jaxpr: Jaxpr) -> Iterator[ClosedJaxpr | Jaxpr]:
    """The jaxprs inside the equations of one: calls, branches, bodies of loops."""
    kinds = (ClosedJaxpr, Jaxpr)
    for equation in jaxpr.eqns:
        leaves = jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, kinds))
        yield from (x for x in leaves if isinstance(x, kinds))
