"""What every entry of a program's arrays is made of, read from its data flow (the jaxpr), never from values.

The `Reader` runs the jaxpr on descriptions (`Entries`) in place of numbers. What each primitive makes of them is a rule
below: first of primitives that move entries, then of arithmetic, then of those that make one entry of many. The rules
are an allow-list; each states an identity of real arithmetic or moves entries about. A primitive without a rule gives
opaque entries if a conjugate site goes in, and new symbols otherwise: a rule that is missing costs a closed form, and
never makes a wrong one. Control flow counts as data flow: what a predicate, an index or a loop depends on, its results
depend on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Bool

from bayes_mdp.inference.detection.entries import (
    FIELDS,
    NONE,
    OPAQUE,
    Domain,
    Entries,
    EntriesRule,
    Rule,
    Symbols,
    Value,
    compact_axes,
    concatenate_sums,
    elements_of,
    entrywise,
    is_key,
    joined,
    mapped,
    numbers_of,
    of_entries,
    plain,
    sites_of,
    symbolic,
    widened,
)
from bayes_mdp.numerics.jaxprs import Atom, array_of, equations_for, inner_jaxpr, scan_parts
from bayes_mdp.numerics.numpy_primitives import PRIMITIVES, select, understood
from bayes_mdp.utils.typing import AnyArray, ArrayLike

MAX_TURNS = 256
"""Turns of a loop that are read one by one."""
MOVES = ("broadcast_in_dim", "reshape", "transpose", "squeeze", "rev", "slice", "tile", "copy", "copy_p")
"""Primitives that move, copy or leave out entries, as their parameters state."""
ARITHMETIC = ("add", "sub", "mul", "neg", "max", "min", "sqrt", "eq", "ne", "lt", "le", "gt", "ge")
EXACT = frozenset((*MOVES, *ARITHMETIC, "concatenate", "stack", "select_n"))
"""Primitives by which NumPy gives the numbers of XLA to the last bit."""


@dataclass(frozen=True, eq=False)
class Reader:
    """Runs a jaxpr on descriptions. Host side; 64-bit mode; nothing of the user's Python runs.

    Args:
        domain: what the descriptions are made of.
    """

    domain: Domain

    def read(
        self, closed: ClosedJaxpr, inputs: Sequence[Value], wanted: Sequence[bool] | None = None
    ) -> list[Value | None]:
        """The outputs of `closed` at these inputs; None for those that are not wanted, which cost nothing."""
        jaxpr = closed.jaxpr
        needed = (True,) * len(jaxpr.outvars) if wanted is None else tuple(wanted)
        values: dict[Var, Value] = dict(zip(jaxpr.constvars, map(known, closed.consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def value(atom: Atom) -> Value:
            return known(atom.val) if isinstance(atom, Literal) else values[atom]

        for equation, _ in equations_for(jaxpr, needed):
            outputs = self._equation(jaxpr, equation, [value(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(atom) if need else None for atom, need in zip(jaxpr.outvars, needed, strict=True)]

    def _run(self, closed: ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
        return [x for x in self.read(closed, inputs) if x is not None]

    def _equation(self, jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        # In this order: enter calls, take known branches, compute numbers, apply the rule; else nothing is known.
        name, inner = equation.primitive.name, inner_jaxpr(equation)
        if inner is not None:
            return self._run(inner, inputs)
        if name == "cond" and not isinstance(inputs[0], Entries):
            # A branch that is known: only this one happens.
            branches = equation.params["branches"]
            return self._run(branches[int(np.clip(inputs[0], 0, len(branches) - 1))], inputs[1:])
        numbers = [x for x in inputs if not isinstance(x, Entries)]
        if len(numbers) == len(inputs):
            return [*compute_known(jaxpr, equation, numbers)]
        try:
            results = self._by_rule(equation, inputs)
        except KeyError:  # another version of JAX gives the primitive other parameters
            results = None
        return self._unknown(equation, inputs) if results is None else results

    def _by_rule(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """The outputs by the rule of the primitive; None: there is none, or it does not apply."""
        name = equation.primitive.name
        if name == "split":
            return self._split(equation, self.domain.entries(inputs[0]))
        if name in ("scan", "while"):
            return (self._scan if name == "scan" else self._while)(equation, inputs)
        rule = RULES.get(name)
        if rule is None or len(equation.outvars) != 1 or (name in MOVES and not understood(name, equation.params)):
            return None
        results = rule(self.domain, equation, inputs)
        return None if results is None else [results]

    def _split(self, equation: JaxprEqn, x: Entries) -> list[Value]:
        """Pieces along an axis."""
        axis, stops = equation.params["axis"], np.cumsum(equation.params["sizes"])
        places = [range(stop - size, stop) for stop, size in zip(stops, equation.params["sizes"], strict=True)]
        return [mapped(x, lambda f, index=index: np.take(f, index, axis)) for index in places]

    def _scan(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop of fixed length, turn by turn: what counts the turns is known in each. None: it is too long."""
        params = equation.params
        length, body = params["length"], params["jaxpr"]
        if length > MAX_TURNS:
            return None
        consts, carry, columns = scan_parts(params, inputs)
        num_carry, rows = len(carry), []
        # Reading turn by turn keeps entries apart that a fixed point over turns would mix.
        # Unrolled: consts and carry as they are, one row of each column in each turn.
        for turn in range(length):
            position = length - 1 - turn if params["reverse"] else turn
            columns_now = [
                mapped(x, lambda f, at=position: f[at]) if isinstance(x, Entries) else known(x[position])
                for x in columns
            ]
            outputs = self._run(body, [*consts, *carry, *columns_now])
            carry = outputs[:num_carry]
            rows.append(outputs[num_carry:])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *(self._stack(column) for column in zip(*rows, strict=True))]

    def _stack(self, column: Sequence[Value]) -> Value:
        if not any(isinstance(x, Entries) for x in column):
            return np.stack([np.asarray(x) for x in column])
        return concatenate_sums([self.domain.entries(x) for x in column], np.stack)

    def _while(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop whose condition is known in every turn. None: it depends on a latent site, or it is too long."""
        params = equation.params
        split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        consts, body_consts, carry = inputs[: split[0]], inputs[split[0] : split[1]], inputs[split[1] :]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        # The condition is run on descriptions too: as long as it is a known number, the next turn surely happens (or
        # not).
        for _ in range(MAX_TURNS):
            goes_on = self._run(condition, [*consts, *carry])[0]
            if isinstance(goes_on, Entries):
                return None
            if not goes_on:
                return list(carry)
            carry = self._run(body, [*body_consts, *carry])
        return None

    def _unknown(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        """Anything else: free of conjugate sites where all inputs are."""
        entries = [self.domain.entries(x) for x in inputs]
        sites = sites_of(*entries)
        # The safe answer: new symbols, equal to nothing else; opaque as soon as a conjugate site goes in.
        outputs: list[Value] = []
        for variable in equation.outvars:
            answer = symbolic(self.domain.symbols.fresh(array_of(variable).shape), sites, self.domain.symbols)
            if not all(x.free for x in entries):
                answer = replace(answer, element=np.broadcast_to(OPAQUE, answer.shape))
            outputs.append(answer)
        return outputs


def known(value: ArrayLike) -> AnyArray:
    """A constant; keys of random numbers stay what they are."""
    return value if isinstance(value, jax.Array) and is_key(value) else np.asarray(value)


def compute_known(jaxpr: Jaxpr, equation: JaxprEqn, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """An equation between known numbers. The commonest by NumPy: JAX would compile each."""
    name, params = equation.primitive.name, equation.params
    if name in EXACT and understood(name, params) and not any(map(is_key, inputs)):
        with np.errstate(all="ignore"):
            result = PRIMITIVES[name](*inputs, **params)
        return [np.asarray(result, array_of(equation.outvars[0]).dtype)]
    operands = {atom: x for atom, x in zip(equation.invars, inputs, strict=True) if not isinstance(atom, Literal)}
    names = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    alone = Jaxpr((), list(operands), equation.outvars, [equation], equation.effects, names)
    return [known(x) for x in jaxpr_as_fun(ClosedJaxpr(alone, ()))(*operands.values())]


# Entries are moved, copied or left out: each entry of the result is one of the operands, or a fill. First where the
# parameters say where each entry goes (`MOVES`: what NumPy does to numbers is done to the fields of descriptions), then
# where known numbers do, last the choice by a predicate.


def _move(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    move = PRIMITIVES[equation.primitive.name]
    return mapped(operands[0], lambda x: move(x, **equation.params))


def _concatenate(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    join = PRIMITIVES[equation.primitive.name]
    return concatenate_sums(operands, lambda arrays: join(*arrays, **equation.params))


def by_labels(
    domain: Domain,
    parts: Sequence[Entries],
    labels: Callable[..., AnyArray],
    numbers: Sequence[np.ndarray] = (),
    fill: ArrayLike = np.nan,
) -> Entries:
    """Entries put where the primitive puts their numbers: it is run on integers, which it can only move.

    Args:
        domain: for the constants.
        parts: the arrays whose entries are moved.
        labels: (numbers of the entries of each part) -> numbers in their new places; negative: outside.
        numbers: the inputs with the places.
        fill: the number outside.
    """
    parts = joined(parts)
    # Each entry is labelled by its number; the primitive moves the labels, and so shows where each entry went.
    starts = np.cumsum([0, *(x.element.size for x in parts)])
    label_arrays = [
        np.arange(start, start + x.element.size, dtype=np.int32).reshape(x.shape)
        for start, x in zip(starts, parts, strict=False)
    ]
    # Whatever the primitive does with indices, modes and bounds, JAX itself decides: no second implementation of it.
    place = np.asarray(labels(*label_arrays, *numbers)).astype(np.int64)
    outside = (place < 0) | (place >= starts[-1])
    place = np.where(outside, 0, place)
    fields = {name: np.asarray(np.concatenate([getattr(x, name).ravel() for x in parts])[place]) for name in FIELDS}
    if outside.any():
        fields["element"] = np.where(outside, NONE, fields["element"])
        fields["offset"] = np.where(outside, domain.symbols.constants(np.array(fill)), fields["offset"])
    return Entries(**fields, sites=sites_of(*parts), transform=parts[0].transform)


def _by_places(parts: int, **changed: object) -> Rule:
    """The first `parts` inputs hold entries, the others say where they go; not known: none of it is.

    Args:
        parts: so many.
        changed: parameters of the primitive, as it is run on labels.
    """

    def rule(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
        places = numbers_of(*inputs[parts:])
        if places is None:  # Which entry is taken is not known: it depends on what the places depend on.
            return None
        bind, params = equation.primitive.bind, equation.params
        fill = np.nan if params.get("fill_value") is None else params["fill_value"]
        moved = [domain.entries(x) for x in inputs[:parts]]
        return by_labels(domain, moved, lambda *x: bind(*x, **{**params, **changed}), places, fill)

    return rule


def _scatter(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """`.at[].set` with known indices: new entries in some places."""
    index, params = numbers_of(inputs[1]), equation.params
    if index is None:
        return None

    # The same scatter, of labels instead of numbers: it says which entry is where.
    def labels(old: np.ndarray, new: np.ndarray, at: np.ndarray) -> AnyArray:
        return jax.lax.scatter(
            old,
            at,
            new,
            params["dimension_numbers"],
            indices_are_sorted=params["indices_are_sorted"],
            unique_indices=params["unique_indices"],
            mode=params["mode"],
        )

    return by_labels(domain, [domain.entries(inputs[0]), domain.entries(inputs[2])], labels, index)


def _select(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """A known predicate picks entries. Another one makes opaque what it picks from conjugate sites."""
    predicate, cases = inputs[0], joined([domain.entries(x) for x in inputs[1:]])
    if not isinstance(predicate, Entries):
        fields = {name: select(np.asarray(predicate), *(getattr(x, name) for x in cases)) for name in FIELDS}
        return Entries(**fields, sites=sites_of(*cases), transform=cases[0].transform)
    shape = cases[0].shape
    predicate = mapped(predicate, lambda x: np.broadcast_to(x, shape))
    return entrywise(domain, ("select_n", len(cases)), [predicate, *(plain(x) for x in cases)])


# Arithmetic, entry by entry: each rule states an identity of real numbers. Any function of symbols; sums; products and
# quotients; powers; logarithms and what undoes them.

_ENTRYWISE = """
max min rem exp2 expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh cbrt abs sign floor ceil round
is_finite not and or xor eq ne lt le gt ge clamp lgamma digamma erf erfc erf_inv atan2 nextafter igamma igammac
regularized_incomplete_beta shift_left shift_right_logical shift_right_arithmetic population_count reduce_precision
"""
"""Functions of single entries about which nothing is stated but that they are functions."""


def _elementwise(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    params = tuple(sorted((key, str(value)) for key, value in equation.params.items()))
    dtype = str(array_of(equation.outvars[0]).dtype)
    return entrywise(domain, (equation.primitive.name, dtype, params), operands)


def _convert(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """Between floats of 32 and 64 bits an element stays itself (rounded). An integer is made of it by a jump."""
    dtype = array_of(equation.outvars[0]).dtype
    if dtype in (np.float32, np.float64):
        return operands[0]
    return _elementwise(domain, equation, operands)


def is_zero(domain: Domain, x: Entries) -> Bool[np.ndarray, "..."]:
    """Which entries are known to be zero."""
    zero = domain.symbols.known(x.offset) & (domain.symbols.values(x.offset) == 0.0)
    return np.asarray((x.element == NONE) & zero)


def _add(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """(offset + coefficient x^power) + c: the offset moves."""
    x, y = map(plain, operands)
    return sum_of(domain, x, y)


def sum_of(domain: Domain, x: Entries, y: Entries) -> Entries:
    """x + y where one of the two is free of conjugate sites, or both hold one element."""
    (x, y), shape = compact_axes(x, y)
    symbols = domain.symbols
    # One of the two must be free of conjugate sites; the other keeps its element, power and coefficient.
    first = y.element == NONE
    element = np.where(first, x.element, np.where(x.element == NONE, y.element, OPAQUE))
    coefficient = np.where(first, x.coefficient, y.coefficient)
    # c x^p + d x^p = (c + d) x^p; c + d = 0 leaves the offsets: p + (1 - p) is one.
    same_power = (x.element >= 0) & (x.element == y.element) & (x.power == y.power)
    if same_power.any():
        total = symbols.arithmetic("add", np.add, x.coefficient, y.coefficient)
        gone = symbols.known(total) & (symbols.values(total) == 0.0)
        element = np.where(same_power, np.where(gone, NONE, x.element), element)
        coefficient = np.where(same_power, total, coefficient)
    answer = Entries(
        element=element,
        power=np.where(first, x.power, y.power),
        coefficient=coefficient,
        offset=symbols.arithmetic("add", np.add, x.offset, y.offset),
        sites=sites_of(x, y),
    )
    return widened(answer, shape)


def _negative(domain: Domain, x: Entries) -> Entries:
    turned = {
        name: domain.symbols.arithmetic("neg", np.negative, getattr(x, name)) for name in ("coefficient", "offset")
    }
    return replace(x, **turned)


def _sub(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = operands
    through = (x.transform, y.transform)
    if through == ("log", "log1m") and np.array_equal(x.element, y.element):
        return replace(x, transform="logit", sites=sites_of(x, y))  # log x - log(1 - x)
    x, y = plain(x), plain(y)
    free = (x.element == NONE) & (y.element == NONE)
    if free.all():
        ids = domain.symbols.arithmetic("sub", np.subtract, x.offset, y.offset)
        return symbolic(ids, sites_of(x, y), domain.symbols)
    return sum_of(domain, x, _negative(domain, y))


def _mul(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """c (offset + coefficient x^power), x^p x^q = x^(p + q), and 0 times anything finite."""
    x, y = map(plain, operands)
    return product_of(domain, x, y, "mul", np.multiply)


def _div(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = map(plain, operands)
    if _is_odds(domain, x, y):
        return replace(x, transform="odds", sites=sites_of(x, y))
    if (y.element != NONE).any():
        inverse = _power(domain, y, -1.0)
        ids = domain.symbols.arithmetic("div", np.divide, x.offset, y.offset)
        answer = product_of(domain, x, inverse, "mul", np.multiply)
        free = (x.element == NONE) & (y.element == NONE)
        return replace(answer, offset=np.where(free, ids, answer.offset))
    return product_of(domain, x, y, "div", np.divide)


def _is_odds(domain: Domain, x: Entries, y: Entries) -> bool:
    """x / (1 - x) of one element between zero and one."""
    same = x.shape == y.shape and np.array_equal(x.element, y.element)
    return same and _is_element(domain, x) and _is_complement(domain, y, 1.0)


def _is_element(domain: Domain, x: Entries) -> bool:
    """Every entry is one element itself."""
    return x.element.size > 0 and bool(domain.symbols.affine_in_element(x, 1.0, 0.0).all())


def product_of(domain: Domain, x: Entries, y: Entries, name: str, function: Callable[..., np.ndarray]) -> Entries:
    """x * y or x / y where one of the two is free of conjugate sites, or both hold one element."""
    (x, y), shape = compact_axes(x, y)
    symbols = domain.symbols
    x_free, y_free = x.element == NONE, y.element == NONE
    zero = is_zero(domain, x) | (is_zero(domain, y) & (name == "mul"))
    factor = np.where(y_free, y.offset, x.offset)  # the one that is free of conjugate sites
    offset = np.where(y_free, x.offset, y.offset)
    coefficient = np.where(y_free, x.coefficient, y.coefficient)
    element = np.where(y_free, x.element, np.where(x_free, y.element, OPAQUE))
    power = np.where(y_free, x.power, y.power)
    # factor (offset + coefficient x^power): both symbols are scaled.
    scaled = symbols.arithmetic(name, function, coefficient, factor)
    moved = symbols.arithmetic(name, function, offset, factor)
    # c x^p d x^q = c d x^(p + q), without offsets; p + q = 0 is the number c d.
    same_element = (x.element >= 0) & (x.element == y.element)
    same_element &= symbols.equals(x.offset, 0.0) & symbols.equals(y.offset, 0.0)
    if same_element.any():
        element, power = np.where(same_element, x.element, element), np.where(same_element, x.power + y.power, power)
        scaled = np.where(same_element, symbols.arithmetic("mul", np.multiply, x.coefficient, y.coefficient), scaled)
        moved = np.where(same_element, symbols.zero, moved)
        gone = same_element & (power == 0.0)  # x / x
        element, moved = np.where(gone, NONE, element), np.where(gone, scaled, moved)
    # 0 times an element is 0: a mask of zeros and ones selects.
    element, moved = np.where(zero, NONE, element), np.where(zero, symbols.zero, moved)
    return widened(Entries(element, power, scaled, moved, sites_of(x, y)), shape)


def _power(domain: Domain, x: Entries, exponent: ArrayLike) -> Entries:
    """(c x^p)^q = c^q x^(p q): for whole q always, for others where c and x are positive. No offset."""
    symbols, exponent = domain.symbols, np.broadcast_to(np.asarray(exponent, float), x.shape)
    q = symbols.constants(exponent)
    whole = (exponent == np.round(exponent)) & (x.power == np.round(x.power))
    place = np.maximum(x.element, 0)
    positive = domain.positive[place] if domain.positive.size else np.zeros(x.shape, bool)
    coefficient = symbols.values(x.coefficient)
    # The sign of an unknown coefficient is not known: where it is negative both sides are nan.
    signed = ~symbols.known(x.coefficient) | (coefficient > 0)
    valid = symbols.equals(x.offset, 0.0) & symbols.known(x.offset) & (exponent != 0) & (whole | (positive & signed))
    element = np.where(x.element == NONE, NONE, np.where((x.element >= 0) & valid, x.element, OPAQUE))
    return Entries(
        element=element,
        power=np.asarray(x.power * exponent),
        coefficient=symbols.arithmetic("pow", np.power, x.coefficient, q),
        offset=np.where(x.element == NONE, symbols.arithmetic("pow", np.power, x.offset, q), symbols.zero),
        sites=x.sites,
    )


def _power_rule(exponent: float) -> EntriesRule:
    return lambda domain, equation, operands: _power(domain, plain(operands[0]), exponent)


def _pow(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries:
    base, exponent = inputs
    if not isinstance(exponent, Entries):
        return _power(domain, plain(domain.entries(base)), exponent)
    return _elementwise(domain, equation, [domain.entries(base), exponent])


def _log(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, symbols = operands[0], domain.symbols
    if x.transform == "odds":
        return replace(x, transform="logit")
    if _is_element(domain, x) and domain.positive[x.element].all():
        return replace(x, transform="log")
    if _is_complement(domain, x, 1.0):
        return replace(_as_element(x, symbols), transform="log1m")
    return _elementwise(domain, equation, operands)


def _log1p(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    if _is_complement(domain, x, 0.0):
        return replace(_as_element(x, domain.symbols), transform="log1m")
    return _elementwise(domain, equation, operands)


def _is_complement(domain: Domain, x: Entries, offset: float) -> bool:
    """offset - x, of elements between zero and one."""
    form = domain.symbols.affine_in_element(x, -1.0, offset)
    return x.element.size > 0 and bool(form.all()) and bool(domain.unit[x.element].all())


def _as_element(x: Entries, symbols: Symbols) -> Entries:
    return replace(elements_of(x.element, "", symbols), sites=x.sites)


def _exp(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "log" else _elementwise(domain, equation, operands)


def _logistic(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "logit" else _elementwise(domain, equation, operands)


# One entry of many: sums and other reductions, products with matrices, `.at[].add`. A sum in which all entries but one
# are known to be zero is that entry: so a mask, a one-hot row or a table of places picks elements. Sums of more are
# opaque, or, where no conjugate site goes in, symbols numbered by what is added up.


def _reduce_sum(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A sum with one entry that is not zero is that entry."""
    # Known zeros drop out of a sum; what is left must be one entry.
    rows = _last(plain(operands[0]), equation.params["axes"])
    if operands[0].free:
        return _reduce(domain, equation, operands)
    # Two entries that may differ from zero: a sum of elements, which is opaque.
    counted = ~is_zero(domain, rows)
    chosen = np.argmax(counted, axis=-1)[..., None]
    answer = mapped(rows, lambda x: np.take_along_axis(x, chosen, -1)[..., 0])
    return replace(answer, element=np.where(counted.sum(-1) > 1, OPAQUE, answer.element))


def _last(x: Entries, axes: Sequence[int]) -> Entries:
    """The axes of a reduction as one last axis."""
    kept_axes = [axis for axis in range(len(x.shape)) if axis not in axes]
    lead = tuple(x.shape[axis] for axis in kept_axes)
    size = int(np.prod([x.shape[axis] for axis in axes]))
    return mapped(x, lambda field: np.transpose(field, (*kept_axes, *axes)).reshape(*lead, size))


def _reduce(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A reduction of rows of symbols: equal rows have equal answers."""
    if not operands[0].free:
        return None
    rows = _last(operands[0], equation.params["axes"]).offset
    ids = domain.symbols.rows((equation.primitive.name, rows.shape[-1]), rows.reshape(-1, rows.shape[-1]))
    return symbolic(ids.reshape(rows.shape[:-1]), operands[0].sites, domain.symbols)


def _dot(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A product with a matrix: rows with one number beside zeros pick entries. Symbols: numbered by rows."""
    (contract_x, contract_y), (batch_x, _) = equation.params["dimension_numbers"]
    if batch_x:
        return None
    x, y = _last(plain(operands[0]), contract_x), _last(plain(operands[1]), contract_y)
    lead_x, lead_y, size = x.shape[:-1], y.shape[:-1], x.shape[-1]
    x, y = (mapped(z, lambda f: f.reshape(-1, size)) for z in (x, y))
    shape, sites = (*lead_x, *lead_y), sites_of(x, y)
    if x.free and y.free:
        left, right = (domain.symbols.rows(("row", size), z.offset) for z in (x, y))
        ids = domain.symbols.of(("dot_general", size), left[:, None], right[None, :])
        return symbolic(ids.reshape(shape), sites, domain.symbols)
    # The side without conjugate sites is the matrix; each of its rows may pick one entry, scaled.
    turned = not x.free
    matrix, second = (y, x) if turned else (x, y)
    if not matrix.free:
        return None
    # A row of the matrix with one number that is not zero picks one entry, scaled; with several it is a sum of
    # elements.
    counted = ~is_zero(domain, matrix)
    chosen = np.argmax(counted, axis=-1)
    picked = mapped(second, lambda f: f[:, chosen].T)  # [rows of the matrix, rows of the other]
    factor = mapped(
        matrix,
        lambda f: np.broadcast_to(np.take_along_axis(f, chosen[:, None], 1), (f.shape[0], second.shape[0])),
    )
    answer = product_of(domain, picked, factor, "mul", np.multiply)
    answer = replace(answer, element=np.where(counted.sum(-1)[:, None] > 1, OPAQUE, answer.element), sites=sites)
    return mapped(answer, lambda f: (f.T if turned else f).reshape(shape))


def _scatter_add(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """`.at[].add` with known indices: where no place is added to twice, the sum with what was there."""
    index, params = numbers_of(inputs[1]), equation.params
    if index is None:
        return None
    old, new = domain.entries(inputs[0]), domain.entries(inputs[2])
    (rows,) = index
    settings = {name: params[name] for name in ("indices_are_sorted", "unique_indices", "mode")}
    unit, none = np.ones(new.shape, np.int32), np.zeros(old.shape, np.int32)
    # How often each place is added to: the primitive run on ones.
    times = np.asarray(jax.lax.scatter_add(none, rows, unit, params["dimension_numbers"], **settings))
    if (times > 1).any():
        return None

    def labels(added: np.ndarray, at: np.ndarray) -> AnyArray:
        return jax.lax.scatter(none - 1, at, added, params["dimension_numbers"], **settings)

    return sum_of(domain, plain(old), plain(by_labels(domain, [new], labels, [rows], fill=0.0)))


RULES: dict[str, Rule] = {
    **of_entries(
        {
            # entries are moved
            **dict.fromkeys(MOVES, _move),
            **dict.fromkeys(("concatenate", "stack"), _concatenate),
            **dict.fromkeys(("device_put", "stop_gradient", "sharding_constraint"), lambda domain, equation, x: x[0]),
            # arithmetic
            **dict.fromkeys(_ENTRYWISE.split(), _elementwise),
            "convert_element_type": _convert,
            "add": _add,
            "sub": _sub,
            "neg": lambda domain, equation, x: _negative(domain, plain(x[0])),
            "mul": _mul,
            "div": _div,
            "integer_pow": lambda domain, equation, x: _power(domain, plain(x[0]), float(equation.params["y"])),
            "square": _power_rule(2.0),
            "sqrt": _power_rule(0.5),
            "rsqrt": _power_rule(-0.5),
            "log": _log,
            "log1p": _log1p,
            "exp": _exp,
            "logistic": _logistic,
            # one entry of many
            "reduce_sum": _reduce_sum,
            **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), _reduce),
            "dot_general": _dot,
        }
    ),
    # known indices, predicates and exponents are read as numbers
    "gather": _by_places(1, fill_value=-1),
    "dynamic_slice": _by_places(1),
    "dynamic_update_slice": _by_places(2),
    "pad": _by_places(2),
    "scatter": _scatter,
    "select_n": _select,
    "pow": _pow,
    "scatter-add": _scatter_add,
}
"""Primitive -> its rule: the allow-list. What is not here is opaque as soon as a conjugate site goes in."""
