"""Whether what a function returns depends on one of its arguments, read from its data flow (the jaxpr)."""

from collections.abc import Callable, Sequence

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import PyTree


def depends_on(function: Callable[..., PyTree], argument: PyTree, *others: PyTree) -> bool:
    """Whether any array that `function(argument, *others)` returns depends on `argument`.

    False is a proof: no operation leads from one to the other. True may be wrong where an operation cancels, or where
    a loop or a branch takes the argument and does not use it.
    """
    jaxpr = jax.make_jaxpr(function)(argument, *others).jaxpr
    number = len(jax.tree.leaves(argument))
    return any(_reached(jaxpr, [i < number for i in range(len(jaxpr.invars))]))


def _reached(jaxpr: Jaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Which results are reached from the inputs that are marked."""
    marked = {var for var, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    known = lambda v: not isinstance(v, Literal) and v in marked  # noqa: E731
    for eqn in jaxpr.eqns:
        into = [known(v) for v in eqn.invars]
        if not any(into):
            continue
        inner = [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in eqn.params.values()
                 if isinstance(x, ClosedJaxpr | Jaxpr)]  # fmt: skip
        same = len(inner) == 1 and len(inner[0].invars) == len(into) and len(inner[0].outvars) == len(eqn.outvars)
        # A call is looked into; of a loop every result counts as reached.
        is_call = same and eqn.primitive.name not in ("scan", "while", "cond")
        out = _reached(inner[0], into) if is_call else [True] * len(eqn.outvars)
        marked.update(v for v, mark in zip(eqn.outvars, out, strict=True) if mark)
    return [known(v) for v in jaxpr.outvars]
