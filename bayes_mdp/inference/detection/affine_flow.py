"""`is_affine`: whether a parameter of the reward law is an affine function of some sites, read from the data flow.

Every array of the program is one of four kinds: known (free of all latent sites), affine in the sites asked about with
known coefficients, free of them but not known (a function of other sites), or anything else. The rules are an
allow-list of linear operations; an operation without a rule makes anything else of an affine array, so that a rule that
is missing costs a closed form and never makes a wrong one.
"""

from collections.abc import Sequence
from enum import Enum

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var

from bayes_mdp.inference.detection.equations import called_jaxpr
from bayes_mdp.inference.detection.trace import Program


class Kind(Enum):
    """What an array is, see above."""

    KNOWN = 0
    AFFINE = 1
    FREE = 2
    OTHER = 3


LINEAR_OPERATIONS = frozenset(
    [
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "squeeze",
        "expand_dims",
        "rev",
        "slice",
        "tile",
        "copy",
        "copy_p",
        "neg",
        "reduce_sum",
        "cumsum",
        "stop_gradient",
        "device_put",
        "real",
    ]
)
"""Linear operations of one array."""
SUMS = frozenset(["add", "sub", "add_any", "concatenate", "stack", "pad"])
"""Linear in all operands."""
PRODUCTS = frozenset(("mul", "dot_general"))
"""Linear in each operand while the others are known."""
INDEXED_OPERATIONS = {
    "gather": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "scatter": (0, 2),
    "scatter-add": (0, 2),
}
"""Operations that move or add entries to known places, and the operands that hold entries."""


def is_affine(program: Program, sites: frozenset[str], parameter: str) -> bool:
    """Whether `parameter` of the reward law is affine in `sites`, with coefficients that are known numbers."""
    names = sorted(program.values)
    kinds = [Kind.AFFINE if name in sites else Kind.FREE for name in names]
    shown = jax.tree.structure(program.outputs)
    number = len(jax.tree.leaves(program.outputs))
    tree = jax.tree.unflatten(shown, list(range(number)))
    position = tree.laws["reward"][parameter]
    outputs = _run(program.closed.jaxpr, [*kinds, Kind.FREE])  # the last input is the key
    return outputs[position] in (Kind.KNOWN, Kind.AFFINE)


def _run(jaxpr: Jaxpr, inputs: Sequence[Kind]) -> list[Kind]:
    kinds: dict[Var, Kind] = dict.fromkeys(jaxpr.constvars, Kind.KNOWN)
    kinds.update(zip(jaxpr.invars, inputs, strict=True))

    def kind(atom: Var | Literal) -> Kind:
        return Kind.KNOWN if isinstance(atom, Literal) else kinds[atom]

    for equation in jaxpr.eqns:
        given = [kind(atom) for atom in equation.invars]
        inner = called_jaxpr(equation)
        alone = [_of(equation, given)] * len(equation.outvars)
        found = alone if inner is None else _run(inner, given)
        kinds.update(zip(equation.outvars, found, strict=True))
    return [kind(atom) for atom in jaxpr.outvars]


def _of(equation: JaxprEqn, given: list[Kind]) -> Kind:
    """What an operation makes of its operands."""
    name = equation.primitive.name
    if Kind.OTHER in given:
        return Kind.OTHER
    if Kind.AFFINE not in given:
        return Kind.FREE if Kind.FREE in given else Kind.KNOWN
    # From here on some operand is affine; one that is free, but not known, would make coefficients unknown.
    if Kind.FREE in given:
        return Kind.OTHER
    return Kind.AFFINE if _is_linear(equation, name, given) else Kind.OTHER


def _is_linear(equation: JaxprEqn, name: str, given: list[Kind]) -> bool:
    affine = [i for i, kind in enumerate(given) if kind is Kind.AFFINE]
    if name in LINEAR_OPERATIONS or name in SUMS:
        return True
    if name in PRODUCTS:
        return len(affine) == 1
    if name == "div":
        return affine == [0]
    if name == "select_n":
        return 0 not in affine
    if name == "convert_element_type":
        # Narrower floats round by more than the certificate allows: their means are steps.
        return equation.params["new_dtype"] in (np.float32, np.float64)
    return name in INDEXED_OPERATIONS and set(affine) <= set(INDEXED_OPERATIONS[name])
