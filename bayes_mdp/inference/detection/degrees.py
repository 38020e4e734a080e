"""How the arrays of a traced program depend on its sites: of which degree, and whether entries are a site's elements.

Two facts are read from the data flow (the jaxpr), never from values:

- *degree*: an array is of degree one in a site where it is affine in the site's value while all other sites are held.
  With independent sites the mean over such a site is the value at its mean, whatever the others are.
- *selection*: every entry is one element of one site times a known number (zero excluded by the caller).

The rules are an allow-list of linear operations. An operation without a rule is of a higher degree in all that goes in,
so that a rule that is missing costs a closed form and never makes a wrong one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var
from jaxtyping import PyTree

from bayes_mdp.inference.detection.dataflow import MOVES
from bayes_mdp.inference.detection.trace import KEY, Program
from bayes_mdp.numerics.jaxprs import inner_jaxpr, scan_parts

HIGHER = 2
"""Any degree but one, or no polynomial at all."""
_PICKS = frozenset((*MOVES, "neg", "stop_gradient", "device_put", "real"))
"""Linear operations of one array whose results have entries of it, or minus them."""
_LINEAR = _PICKS | {"reduce_sum", "cumsum"}
"""Linear operations of one array."""
_SUMS = frozenset(["add", "sub", "add_any", "concatenate", "stack", "pad"])
"""Linear in all operands."""
_PRODUCTS = frozenset(["mul", "dot_general"])
"""Linear in each operand while the others are known."""
_INDEXED = {
    "gather": (0,),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "scatter": (0, 2),
    "scatter-add": (0, 2),
}
"""Operations that move or add entries to known places, and the operands that hold entries."""


@dataclass(frozen=True)
class Flow:
    """What an array is made of.

    Args:
        degrees: site -> 1 or `HIGHER`; the array does not depend on other sites.
        selects: the site of which every entry is one element times a known number; None: no such site is proven.
    """

    degrees: dict[str, int] = field(default_factory=dict)
    selects: str | None = None

    @property
    def sites(self) -> frozenset[str]:
        """The sites that the array depends on."""
        return frozenset(self.degrees)


KNOWN = Flow()


def site_flow(name: str) -> Flow:
    """The value of a site itself."""
    return Flow({name: 1}, name)


def is_affine(program: Program, sites: frozenset[str], parameter: str) -> bool:
    """Whether `parameter` of the reward law is affine in `sites` together, with coefficients that are known numbers."""
    # All sites in question are one variable, the others another. Of degree one in them, and free of the rest.
    flows = flows_of(program, lambda name: "inside" if name in sites else "outside")
    return flows.laws["reward"][parameter].degrees in ({}, {"inside": 1})


def flows_of(program: Program, variable: Callable[[str], str] = str) -> Any:
    """What the outputs of a traced program are made of: its `Outputs`, with flows in the place of arrays.

    Args:
        program: traced.
        variable: site (or `KEY`, the random numbers of no site) -> what it is called; those of one name are one.
    """
    inputs = [site_flow(variable(name)) for name in (*sorted(program.values), KEY)]
    return jax.tree.unflatten(jax.tree.structure(program.outputs), output_flows(program.closed.jaxpr, inputs))


def union_of(flows: PyTree) -> frozenset[str]:
    """The sites that any of some flows depends on."""
    return frozenset().union(*(flow.sites for flow in jax.tree.leaves(flows)))


def output_flows(jaxpr: Jaxpr, inputs: Sequence[Flow]) -> list[Flow]:
    """What the outputs of `jaxpr` are made of, if its inputs are made of `inputs`; its constants are known numbers."""
    # Equation by equation: every variable has one flow.
    flows: dict[Var, Flow] = dict.fromkeys(jaxpr.constvars, KNOWN)
    flows.update(zip(jaxpr.invars, inputs, strict=True))

    def flow(atom: Var | Literal) -> Flow:
        return KNOWN if isinstance(atom, Literal) else flows[atom]

    for equation in jaxpr.eqns:
        flows.update(zip(equation.outvars, _equation(equation, [flow(x) for x in equation.invars]), strict=True))
    return [flow(atom) for atom in jaxpr.outvars]


def _equation(equation: JaxprEqn, given: list[Flow]) -> list[Flow]:
    inner, name, params = inner_jaxpr(equation), equation.primitive.name, equation.params
    if inner is not None:
        return output_flows(inner.jaxpr, given)
    if not any(x.degrees for x in given):
        # Nothing unknown goes in: what comes out is known.
        return [KNOWN] * len(equation.outvars)
    if name == "scan":
        return _scan(equation, given)
    if name == "cond":
        # One of the branches happens; which one is no polynomial of what decides it.
        branches = [output_flows(branch.jaxpr, given[1:]) for branch in params["branches"]]
        return [_sum([_higher(given[:1]), *outcomes], None) for outcomes in zip(*branches, strict=True)]
    if name == "split":
        # Parts of one array: their entries are its entries.
        return [given[0]] * len(equation.outvars)
    return [_of(equation, name, given)] * len(equation.outvars)


def _of(equation: JaxprEqn, name: str, given: list[Flow]) -> Flow:
    """The result of an operation of one result."""
    # The first word on each kind of operation decides.
    # Operands that depend on some site; the others are known numbers.
    moving = [i for i, x in enumerate(given) if x.degrees]
    selected = given[moving[0]].selects if len(moving) == 1 else None
    if name in _LINEAR:
        return _sum(given, selected if name in _PICKS else None)
    if name in _SUMS:
        selections = {x.selects for x in given}
        # Adding a known number, or padding with it, makes an entry that is no element.
        return _sum(given, selections.pop() if name in ("concatenate", "stack") and len(selections) == 1 else None)
    if name in _PRODUCTS:
        return _product(given, selected if name == "mul" else None)
    if name == "div":
        # Division is linear in its numerator alone.
        return _product([given[0], _higher(given[1:])], selected if moving == [0] else None)
    if name == "select_n":
        # What is selected by an unknown is no polynomial of it.
        return _sum([_higher(given[:1]), *given[1:]], None)
    if name == "integer_pow" and equation.params["y"] == 1:
        return given[0]
    if name == "convert_element_type":
        # A conversion that loses digits is no linear map.
        # Integers, and floats of less than 32 bits, are steps: their mean is not the value at the mean.
        return given[0] if equation.params["new_dtype"] in (np.float32, np.float64) else _higher(given)
    if name in _INDEXED:
        entries = _INDEXED[name]
        unmoved = _higher([x for i, x in enumerate(given) if i not in entries])
        read = name in ("gather", "dynamic_slice")
        return _sum([unmoved, *(given[i] for i in entries)], selected if read and moving == [0] else None)
    # No rule: of a higher degree in all.
    return _higher(given)


def _scan(equation: JaxprEqn, given: list[Flow]) -> list[Flow]:
    """A loop: the flows of what is carried grow until they stay (degrees and sets of sites can only grow)."""
    body, (consts, carry, columns) = equation.params["jaxpr"].jaxpr, scan_parts(equation.params, given)
    while True:
        outputs = output_flows(body, [*consts, *carry, *columns])
        # Old and new joined: the first turns see less than the later ones.
        grown = [
            _sum([old, new], old.selects if old == new else None) for old, new in zip(carry, outputs, strict=False)
        ]
        if grown == carry:
            # What a loop stacks is a row of elements, and no selection that is proven.
            return [*carry, *(Flow(x.degrees) for x in outputs[len(carry) :])]
        carry = grown


def _sum(given: Sequence[Flow], selects: str | None) -> Flow:
    """Affine in all: the largest degree of each site."""
    degrees: dict[str, int] = {}
    for x in given:
        for site, degree in x.degrees.items():
            degrees[site] = max(degree, degrees.get(site, 0))
    return Flow(degrees, selects)


def _product(given: Sequence[Flow], selects: str | None) -> Flow:
    """Degrees add up."""
    degrees: dict[str, int] = {}
    for x in given:
        for site, degree in x.degrees.items():
            degrees[site] = min(HIGHER, degree + degrees.get(site, 0))
    return Flow(degrees, selects)


def _higher(given: Sequence[Flow]) -> Flow:
    return Flow({site: HIGHER for x in given for site in x.degrees})
