"""An equation of a jaxpr: its arrays, the jaxpr that it calls, and which equations an output needs."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from bayes_mdp.utils.typing import ArrayLike

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
