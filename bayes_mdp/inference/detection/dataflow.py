"""What every entry of a program's arrays is made of, read from its data flow (the jaxpr), never from values.

The jaxpr is run on descriptions in place of numbers. An entry is either known, or free of the
conjugate sites (a *symbol*: some function of hyperparameters), or

    offset + coefficient * x ** power        x one element of a conjugate site, offset and coefficient symbols,

or opaque: anything else. The rules below are an allow-list; each states an identity of real arithmetic or moves entries
about. A primitive without a rule gives opaque entries if a conjugate site goes in, and new symbols otherwise: a rule
that is missing costs a closed form, and never makes a wrong one. Control flow counts as data flow: what a predicate, an
index or a loop depends on, its results depend on.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun
from jaxtyping import Bool, Float, Int

from bayes_mdp.inference.detection.symbols import Ids, Symbols, compact
from bayes_mdp.mdp.typing import AnyArray, ArrayLike

NONE, OPAQUE = -1, -2
"""In place of the number of an element: free of conjugate sites; not of the form above."""
MAX_TURNS = 256
"""Turns of a loop that are read one by one."""


@dataclass(frozen=True, eq=False)
class Entries:
    """An array of the program, entry by entry: offset + coefficient * x[element] ** power.

    All fields but the last two have the shape of the array (often as views of one number).

    Args:
        element: number of the element of a conjugate site, `NONE` or `OPAQUE`.
        power: of the element.
        coefficient, offset: symbols; where `element` is `NONE` the entry is its offset.
        sites: every latent site that the array depends on, by data or by control flow.
        transform: "log", "log1m" (log(1 - x)), "odds" or "logit" of the form above; None: the form itself.
    """

    element: Int[np.ndarray, "..."]
    power: Float[np.ndarray, "..."]
    coefficient: Ids
    offset: Ids
    sites: frozenset[str] = frozenset()
    transform: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.element.shape

    @property
    def free(self) -> bool:
        """Whether no conjugate site goes into it."""
        return bool((compact(self.element) == NONE).all())


Value: TypeAlias = AnyArray | Entries
"""What the reader computes with: known numbers (and keys of random numbers), or descriptions."""

Atom: TypeAlias = Var | Literal
"""An input or output of an equation."""

Rule: TypeAlias = "Callable[[Reader, JaxprEqn, list[Entries]], Entries | None]"
"""What a primitive does to descriptions; None: the rule does not apply, and the entries are opaque."""


def elements_of(elements: Int[np.ndarray, "..."], site: str, symbols: Symbols) -> Entries:
    """The value of a conjugate site: its own elements."""
    shape = elements.shape
    one, zero = (np.broadcast_to(x, shape) for x in (symbols.one, symbols.zero))
    return Entries(elements, np.broadcast_to(1.0, shape), one, zero, frozenset({site}))


def symbols_of(shape: tuple[int, ...], site: str, symbols: Symbols) -> Entries:
    """The value of another latent site: new symbols."""
    return _symbolic(symbols.fresh(shape), frozenset({site}), symbols)


def _symbolic(ids: Ids, sites: frozenset[str], symbols: Symbols) -> Entries:
    shape = ids.shape
    one = np.broadcast_to(symbols.one, shape)
    return Entries(np.broadcast_to(NONE, shape), np.broadcast_to(1.0, shape), one, ids, sites)


@dataclass(frozen=True, eq=False)
class Reader:
    """Runs a jaxpr on descriptions. Host side; 64-bit mode; nothing of the user's Python runs.

    Args:
        positive: [N], which elements are positive by their support.
        unit: [N], which lie between zero and one.
        symbols: the numbering.
    """

    positive: Bool[np.ndarray, " N"]
    unit: Bool[np.ndarray, " N"]
    symbols: Symbols = field(default_factory=Symbols)

    def read(
        self, closed: ClosedJaxpr, inputs: Sequence[Value], wanted: Sequence[bool] | None = None
    ) -> list[Value | None]:
        """The outputs of `closed` at these inputs; None for those that are not wanted, which cost nothing."""
        jaxpr = closed.jaxpr
        needed = [True] * len(jaxpr.outvars) if wanted is None else list(wanted)
        outvars = [atom for atom, need in zip(jaxpr.outvars, needed, strict=True) if need]
        found = iter(self._run(jaxpr, closed.consts, inputs, outvars))
        return [next(found) if need else None for need in needed]

    def entries(self, value: Value) -> Entries:
        """A value as entries; numbers become known symbols."""
        if isinstance(value, Entries):
            return value
        numeric = not _is_key(value) and np.asarray(value).dtype.kind in "biuf"
        ids = self.symbols.constants(value) if numeric else self.symbols.fresh(value.shape)
        return _symbolic(ids, frozenset(), self.symbols)

    def _run(
        self, jaxpr: Jaxpr, consts: Sequence[ArrayLike], inputs: Sequence[Value], outvars: Sequence[Atom] | None = None
    ) -> list[Value]:
        wanted = jaxpr.outvars if outvars is None else outvars
        values: dict[Var, Value] = {}
        values.update(zip(jaxpr.constvars, map(_known, consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def value(atom: Atom) -> Value:
            return _known(atom.val) if isinstance(atom, Literal) else values[atom]

        for equation in _needed(jaxpr, wanted):
            outputs = self._equation(jaxpr, equation, [value(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(atom) for atom in wanted]

    def _equation(self, jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        # In this order: enter calls, take known branches, compute numbers, apply the rule; else nothing is known.
        name, inner = equation.primitive.name, _body(equation)
        if inner is not None:
            return self._run(*inner, inputs)
        if name == "cond" and not isinstance(inputs[0], Entries):
            # A branch that is known: only this one happens.
            branches = equation.params["branches"]
            branch = branches[int(np.clip(inputs[0], 0, len(branches) - 1))]
            return self._run(branch.jaxpr, branch.consts, inputs[1:])
        if not any(isinstance(x, Entries) for x in inputs):
            return _computed(jaxpr, equation, inputs)
        try:
            found = self._by_rule(equation, inputs)
        except KeyError:  # another version of JAX gives the primitive other parameters
            found = None
        return self._unknown(equation, inputs) if found is None else found

    def _by_rule(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """The outputs by the rule of the primitive; None: there is none, or it does not apply."""
        name = equation.primitive.name
        if name == "split":
            return self._split(equation, self.entries(inputs[0]))
        if name in ("scan", "while"):
            return (self._scan if name == "scan" else self._while)(equation, inputs)
        rule = RULES.get(name)
        if rule is None or len(equation.outvars) != 1:
            return None
        found = rule(self, equation, inputs if name in _WITH_NUMBERS else [self.entries(x) for x in inputs])
        return None if found is None else [found]

    def _split(self, equation: JaxprEqn, x: Entries) -> list[Value]:
        """Pieces along an axis."""
        axis, stops = equation.params["axis"], np.cumsum(equation.params["sizes"])
        places = [range(stop - size, stop) for stop, size in zip(stops, equation.params["sizes"], strict=True)]
        return [_map(x, lambda f, at=at: np.take(f, at, axis)) for at in places]

    def _scan(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop of fixed length, turn by turn: what counts the turns is known in each. None: it is too long."""
        params = equation.params
        length, body = params["length"], params["jaxpr"]
        if length > MAX_TURNS:
            return None
        if "ft_in" in params:  # JAX 0.12
            consts, carry, columns = (list(part) for part in params["ft_in"].update(inputs).unpack())
        else:
            num_consts, stop = params["num_consts"], params["num_consts"] + params["num_carry"]
            consts, carry, columns = inputs[:num_consts], inputs[num_consts:stop], inputs[stop:]
        num_carry, rows = len(carry), []
        # Unrolled: consts and carry as they are, one row of each column in each turn.
        for turn in range(length):
            at = length - 1 - turn if params["reverse"] else turn
            given = [_map(x, lambda f, at=at: f[at]) if isinstance(x, Entries) else _known(x[at]) for x in columns]
            outputs = self._run(body.jaxpr, body.consts, [*consts, *carry, *given])
            carry = outputs[:num_carry]
            rows.append(outputs[num_carry:])
        if params["reverse"]:
            rows.reverse()
        return [*carry, *(self._stacked(column) for column in zip(*rows, strict=True))]

    def _stacked(self, column: Sequence[Value]) -> Value:
        if not any(isinstance(x, Entries) for x in column):
            return np.stack([np.asarray(x) for x in column])
        return _concatenated([self.entries(x) for x in column], np.stack)

    def _while(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value] | None:
        """A loop whose condition is known in every turn. None: it depends on a latent site, or it is too long."""
        params = equation.params
        split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        consts, body_consts, carry = inputs[: split[0]], inputs[split[0] : split[1]], inputs[split[1] :]
        condition, body = params["cond_jaxpr"], params["body_jaxpr"]
        for _ in range(MAX_TURNS):
            goes_on = self._run(condition.jaxpr, condition.consts, [*consts, *carry])[0]
            if isinstance(goes_on, Entries):
                return None
            if not goes_on:
                return list(carry)
            carry = self._run(body.jaxpr, body.consts, [*body_consts, *carry])
        return None

    def _unknown(self, equation: JaxprEqn, inputs: list[Value]) -> list[Value]:
        """Anything else: free of conjugate sites where all inputs are."""
        given = [self.entries(x) for x in inputs]
        sites = frozenset().union(*(x.sites for x in given))
        # The safe answer: new symbols, equal to nothing else; opaque as soon as a conjugate site goes in.
        outputs: list[Value] = []
        for variable in equation.outvars:
            answer = _symbolic(self.symbols.fresh(_array_of(variable).shape), sites, self.symbols)
            if not all(x.free for x in given):
                answer = replace(answer, element=np.broadcast_to(OPAQUE, answer.shape))
            outputs.append(answer)
        return outputs


def _needed(jaxpr: Jaxpr, outvars: Sequence[Atom]) -> list[JaxprEqn]:
    """The equations that `outvars` depend on, in order."""
    live, kept = {atom for atom in outvars if not isinstance(atom, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if any(variable in live for variable in equation.outvars):
            kept.append(equation)
            live.update(atom for atom in equation.invars if not isinstance(atom, Literal))
    return kept[::-1]


def _array_of(variable: Var) -> ShapedArray:
    """Shape and dtype of a variable; all of a traced prior are arrays."""
    return cast(ShapedArray, variable.aval)


def _known(value: ArrayLike) -> AnyArray:
    """A constant; keys of random numbers stay what they are."""
    return value if isinstance(value, jax.Array) and _is_key(value) else np.asarray(value)


def _is_key(value: object) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended)


_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
_CUSTOM = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}


def _body(equation: JaxprEqn) -> tuple[Jaxpr, Sequence[ArrayLike]] | None:
    """The jaxpr that an equation merely calls."""
    name, params = equation.primitive.name, equation.params
    if name in _CALLS:
        inner: Any = params.get("jaxpr", params.get("call_jaxpr"))
    elif name in _CUSTOM:
        inner = params.get(_CUSTOM[name], params.get("call_jaxpr"))
    else:
        return None
    return (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())


def _computed(jaxpr: Jaxpr, equation: JaxprEqn, inputs: Sequence[Value]) -> list[Value]:
    """An equation between numbers. The commonest in numpy: JAX would compile each."""
    quick = _NUMPY.get(equation.primitive.name)
    if quick is not None and not any(map(_is_key, inputs)):
        with np.errstate(all="ignore"):
            result = quick(equation, *inputs)
        return [np.asarray(result, _array_of(equation.outvars[0]).dtype)]
    given = {atom: x for atom, x in zip(equation.invars, inputs, strict=True) if not isinstance(atom, Literal)}
    names = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    alone = Jaxpr((), list(given), equation.outvars, [equation], equation.effects, names)
    return [_known(x) for x in jaxpr_as_fun(ClosedJaxpr(alone, ()))(*given.values())]


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


_MOVES: dict[str, Callable[[JaxprEqn, np.ndarray], np.ndarray]] = {
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
"""Entries are moved, copied or left out, as the parameters of the primitive state: exact."""

_NUMPY: dict[str, Callable[..., Any]] = {
    **_MOVES,
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
    "select_n": lambda eqn, which, *x: _chosen(which, list(x)),
}


def _chosen(which: np.ndarray, cases: Sequence[np.ndarray]) -> np.ndarray:
    shape = cases[0].shape
    which = np.broadcast_to(np.asarray(which).astype(np.int64), shape)
    result = np.array(np.broadcast_to(cases[0], shape))
    for number, case in enumerate(cases[1:], start=1):
        np.copyto(result, case, where=which == number)
    return result


# --- the rules ------------------------------------------------------------------------------------------------------
# A rule gets the reader, the equation and its inputs; None: it does not apply, the entries are opaque.


def _sites(*operands: Entries) -> frozenset[str]:
    return frozenset().union(*(x.sites for x in operands))


def _map(entries: Entries, function: Callable[[np.ndarray], np.ndarray]) -> Entries:
    """The same function of places for every field. (`asarray`: numpy makes scalars of arrays without axes.)"""
    fields = {
        name: np.asarray(function(getattr(entries, name))) for name in ("element", "power", "coefficient", "offset")
    }
    return replace(entries, **fields)


def _small(*operands: Entries) -> tuple[list[Entries], tuple[int, ...]]:
    """The operands of an entrywise operation without the axes along which all repeat one entry, and the full shape."""
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    full = [_map(x, lambda f: np.broadcast_to(f, shape)) for x in operands]
    fields = [getattr(x, name) for x in full for name in ("element", "power", "coefficient", "offset")]
    repeats = [size > 1 and all(f.strides[axis] == 0 for f in fields) for axis, size in enumerate(shape)]
    at = tuple(slice(0, 1) if repeat else slice(None) for repeat in repeats)
    return [_map(x, lambda f: f[at]) for x in full], shape


def _full(x: Entries, shape: tuple[int, ...]) -> Entries:
    return _map(x, lambda f: np.broadcast_to(f, shape))


def _plain(x: Entries) -> Entries:
    """Transformed entries are opaque to arithmetic."""
    if x.transform is None:
        return x
    return replace(x, element=np.where(x.element == NONE, NONE, OPAQUE), transform=None)


def _joined(parts: Sequence[Entries]) -> list[Entries]:
    """Arrays whose entries become one array: all with one transform, or plain."""
    same = len({x.transform for x in parts}) == 1
    return [x if same else _plain(x) for x in parts]


def _move(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    move = _MOVES[equation.primitive.name]
    return _map(operands[0], lambda x: move(equation, x))


def _pass(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return operands[0]


def _concatenate(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    join = _NUMPY[equation.primitive.name]
    return _concatenated(operands, lambda arrays: join(equation, *arrays))


def _concatenated(operands: Sequence[Entries], join: Callable[[list[np.ndarray]], np.ndarray]) -> Entries:
    parts = _joined(operands)
    fields = {name: join([getattr(x, name) for x in parts]) for name in ("element", "power", "coefficient", "offset")}
    return Entries(**fields, sites=_sites(*parts), transform=parts[0].transform)


def _by_labels(
    reader: Reader,
    parts: Sequence[Entries],
    labels: Callable[..., AnyArray],
    numbers: Sequence[np.ndarray] = (),
    fill: ArrayLike = np.nan,
) -> Entries:
    """Entries put where the primitive puts their numbers: it is run on integers, which it can only move.

    Args:
        reader: for the constants.
        parts: the arrays whose entries are moved.
        labels: (numbers of the entries of each part) -> numbers in their new places; negative: outside.
        numbers: the inputs with the places.
        fill: the number outside.
    """
    parts = _joined(parts)
    # Each entry is labelled by its number; the primitive moves the labels, and so shows where each entry went.
    starts = np.cumsum([0, *(x.element.size for x in parts)])
    given = [
        np.arange(start, start + x.element.size, dtype=np.int32).reshape(x.shape)
        for start, x in zip(starts, parts, strict=False)
    ]
    place = np.asarray(labels(*given, *numbers)).astype(np.int64)
    outside = (place < 0) | (place >= starts[-1])
    place = np.where(outside, 0, place)
    fields = {
        name: np.asarray(np.concatenate([getattr(x, name).ravel() for x in parts])[place])
        for name in ("element", "power", "coefficient", "offset")
    }
    if outside.any():
        fields["element"] = np.where(outside, NONE, fields["element"])
        fields["offset"] = np.where(outside, reader.symbols.constants(np.array(fill)), fields["offset"])
    return Entries(**fields, sites=_sites(*parts), transform=parts[0].transform)


def _numbers(*values: Value) -> list[np.ndarray] | None:
    """The values if all are known numbers."""
    return None if any(isinstance(x, Entries) for x in values) else [np.asarray(x) for x in values]


def _gather(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where, params = _numbers(*inputs[1:]), equation.params
    if where is None:  # Which entry is taken is not known: it depends on what the index depends on.
        return None

    def labels(x: np.ndarray, at: np.ndarray) -> AnyArray:
        return jax.lax.gather(
            x,
            at,
            params["dimension_numbers"],
            params["slice_sizes"],
            unique_indices=params["unique_indices"],
            indices_are_sorted=params["indices_are_sorted"],
            mode=params["mode"],
            fill_value=-1,
        )

    fill = np.nan if params["fill_value"] is None else params["fill_value"]
    return _by_labels(reader, [reader.entries(inputs[0])], labels, where, fill)


def _dynamic_slice(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where = _numbers(*inputs[1:])
    if where is None:
        return None
    bind = equation.primitive.bind
    return _by_labels(reader, [reader.entries(inputs[0])], lambda x, *at: bind(x, *at, **equation.params), where)


def _dynamic_update_slice(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where = _numbers(*inputs[2:])
    if where is None:
        return None
    bind, parts = equation.primitive.bind, [reader.entries(x) for x in inputs[:2]]
    return _by_labels(reader, parts, lambda x, new, *at: bind(x, new, *at, **equation.params), where)


def _pad(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries:
    bind, parts = equation.primitive.bind, [reader.entries(x) for x in inputs]
    return _by_labels(reader, parts, lambda x, padding: bind(x, padding, **equation.params))


def _scatter(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """`.at[].set` with known indices: new entries in some places."""
    where, params = _numbers(inputs[1]), equation.params
    if where is None:
        return None

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

    return _by_labels(reader, [reader.entries(inputs[0]), reader.entries(inputs[2])], labels, where)


def _select(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """A known predicate picks entries. Another one makes opaque what it picks from conjugate sites."""
    which, cases = inputs[0], _joined([reader.entries(x) for x in inputs[1:]])
    if not isinstance(which, Entries):
        fields = {
            name: _chosen(np.asarray(which), [getattr(x, name) for x in cases])
            for name in ("element", "power", "coefficient", "offset")
        }
        return Entries(**fields, sites=_sites(*cases), transform=cases[0].transform)
    shape = cases[0].shape
    which = _map(which, lambda x: np.broadcast_to(x, shape))
    return _entrywise(reader, ("select_n", len(cases)), [which, *(_plain(x) for x in cases)])


def _entrywise(reader: Reader, name: Hashable, operands: list[Entries]) -> Entries:
    """Any operation entry by entry: symbols where no conjugate site goes in, opaque elsewhere."""
    small, shape = _small(*map(_plain, operands))
    # Value numbering: the same operation on the same symbols is the same symbol.
    free = np.all([x.element == NONE for x in small], axis=0)
    ids = reader.symbols.of(name, *(x.offset for x in small))
    answer = _symbolic(ids, _sites(*small), reader.symbols)
    return _full(replace(answer, element=np.where(free, NONE, OPAQUE)), shape)


def _elementwise(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    params = tuple(sorted((key, str(value)) for key, value in equation.params.items()))
    dtype = str(_array_of(equation.outvars[0]).dtype)
    return _entrywise(reader, (equation.primitive.name, dtype, params), operands)


def _convert(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """Between floats of 32 and 64 bits an element stays itself (rounded). An integer is made of it by a jump."""
    dtype = _array_of(equation.outvars[0]).dtype
    if dtype in (np.float32, np.float64):
        return operands[0]
    return _elementwise(reader, equation, operands)


def _is_zero(reader: Reader, x: Entries) -> Bool[np.ndarray, "..."]:
    zero = reader.symbols.known(x.offset) & (reader.symbols.values(x.offset) == 0.0)
    return np.asarray((x.element == NONE) & zero)


def _add(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """(offset + coefficient x^power) + c: the offset moves."""
    x, y = map(_plain, operands)
    return _sum(reader, x, y)


def _sum(reader: Reader, x: Entries, y: Entries) -> Entries:
    (x, y), shape = _small(x, y)
    # One of the two must be free of conjugate sites; the other keeps its element, power and coefficient.
    first = y.element == NONE
    element = np.where(first, x.element, np.where(x.element == NONE, y.element, OPAQUE))
    answer = Entries(
        element=element,
        power=np.where(first, x.power, y.power),
        coefficient=np.where(first, x.coefficient, y.coefficient),
        offset=reader.symbols.arithmetic("add", np.add, x.offset, y.offset),
        sites=_sites(x, y),
    )
    return _full(answer, shape)


def _neg(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return _negative(reader, _plain(operands[0]))


def _negative(reader: Reader, x: Entries) -> Entries:
    turned = {
        name: reader.symbols.arithmetic("neg", np.negative, getattr(x, name)) for name in ("coefficient", "offset")
    }
    return replace(x, **turned)


def _sub(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = operands
    through = (x.transform, y.transform)
    if through == ("log", "log1m") and np.array_equal(x.element, y.element):
        return replace(x, transform="logit", sites=_sites(x, y))  # log x - log(1 - x)
    x, y = _plain(x), _plain(y)
    free = (x.element == NONE) & (y.element == NONE)
    if free.all():
        ids = reader.symbols.arithmetic("sub", np.subtract, x.offset, y.offset)
        return _symbolic(ids, _sites(x, y), reader.symbols)
    return _sum(reader, x, _negative(reader, y))


def _mul(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    """c (offset + coefficient x^power), x^p x^q = x^(p + q), and 0 times anything finite."""
    x, y = map(_plain, operands)
    return _product(reader, x, y, "mul", np.multiply)


def _div(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, y = map(_plain, operands)
    if _is_odds(reader, x, y):
        return replace(x, transform="odds", sites=_sites(x, y))
    if (y.element != NONE).any():
        inverse = _power(reader, y, -1.0)
        ids = reader.symbols.arithmetic("div", np.divide, x.offset, y.offset)
        answer = _product(reader, x, inverse, "mul", np.multiply)
        free = (x.element == NONE) & (y.element == NONE)
        return replace(answer, offset=np.where(free, ids, answer.offset))
    return _product(reader, x, y, "div", np.divide)


def _is_odds(reader: Reader, x: Entries, y: Entries) -> bool:
    """x / (1 - x) of one element between zero and one."""
    symbols = reader.symbols
    if x.shape != y.shape or not _is_element(reader, x) or not np.array_equal(x.element, y.element):
        return False
    complement = symbols.equals(y.coefficient, -1.0) & symbols.equals(y.offset, 1.0) & (y.power == 1.0)
    return bool((complement & reader.unit[x.element]).all())


def _is_element(reader: Reader, x: Entries) -> bool:
    """Every entry is one element itself."""
    symbols = reader.symbols
    form = (x.element >= 0) & (x.power == 1.0) & symbols.equals(x.coefficient, 1.0) & symbols.equals(x.offset, 0.0)
    return x.transform is None and x.element.size > 0 and bool(form.all())


def _product(reader: Reader, x: Entries, y: Entries, name: str, function: Callable[..., np.ndarray]) -> Entries:
    """x * y or x / y where one of the two is free of conjugate sites, or both hold one element."""
    (x, y), shape = _small(x, y)
    symbols = reader.symbols
    x_free, y_free = x.element == NONE, y.element == NONE
    zero = _is_zero(reader, x) | (_is_zero(reader, y) & (name == "mul"))
    factor = np.where(y_free, y.offset, x.offset)  # the one that is free of conjugate sites
    offset = np.where(y_free, x.offset, y.offset)
    coefficient = np.where(y_free, x.coefficient, y.coefficient)
    element = np.where(y_free, x.element, np.where(x_free, y.element, OPAQUE))
    power = np.where(y_free, x.power, y.power)
    # factor (offset + coefficient x^power): both symbols are scaled.
    scaled = symbols.arithmetic(name, function, coefficient, factor)
    moved = symbols.arithmetic(name, function, offset, factor)
    # c x^p d x^q = c d x^(p + q), without offsets; p + q = 0 is the number c d.
    both = (x.element >= 0) & (x.element == y.element)
    both &= symbols.equals(x.offset, 0.0) & symbols.equals(y.offset, 0.0)
    if both.any():
        element, power = np.where(both, x.element, element), np.where(both, x.power + y.power, power)
        scaled = np.where(both, symbols.arithmetic("mul", np.multiply, x.coefficient, y.coefficient), scaled)
        moved = np.where(both, symbols.zero, moved)
        gone = both & (power == 0.0)  # x / x
        element, moved = np.where(gone, NONE, element), np.where(gone, scaled, moved)
    # 0 times an element is 0: a mask of zeros and ones selects.
    element, moved = np.where(zero, NONE, element), np.where(zero, symbols.zero, moved)
    return _full(Entries(element, power, scaled, moved, _sites(x, y)), shape)


def _power(reader: Reader, x: Entries, exponent: ArrayLike) -> Entries:
    """(c x^p)^q = c^q x^(p q): for whole q always, for others where c and x are positive. No offset."""
    symbols, exponent = reader.symbols, np.broadcast_to(np.asarray(exponent, float), x.shape)
    q = symbols.constants(exponent)
    whole = (exponent == np.round(exponent)) & (x.power == np.round(x.power))
    at = np.maximum(x.element, 0)
    positive = reader.positive[at] if reader.positive.size else np.zeros(x.shape, bool)
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


def _fixed_power(exponent: float) -> Rule:
    return lambda reader, equation, operands: _power(reader, _plain(operands[0]), exponent)


def _integer_pow(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return _power(reader, _plain(operands[0]), float(equation.params["y"]))


def _pow(reader: Reader, equation: JaxprEqn, inputs: list[Value]) -> Entries:
    base, exponent = inputs
    if not isinstance(exponent, Entries):
        return _power(reader, _plain(reader.entries(base)), exponent)
    return _elementwise(reader, equation, [reader.entries(base), exponent])


def _log(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x, symbols = operands[0], reader.symbols
    if x.transform == "odds":
        return replace(x, transform="logit")
    if _is_element(reader, x) and reader.positive[x.element].all():
        return replace(x, transform="log")
    if _is_complement(reader, x, 1.0):
        return replace(_as_element(x, symbols), transform="log1m")
    return _elementwise(reader, equation, operands)


def _log1p(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    if _is_complement(reader, x, 0.0):
        return replace(_as_element(x, reader.symbols), transform="log1m")
    return _elementwise(reader, equation, operands)


def _is_complement(reader: Reader, x: Entries, offset: float) -> bool:
    """offset - x, of elements between zero and one."""
    symbols = reader.symbols
    form = (x.element >= 0) & (x.power == 1.0) & symbols.equals(x.coefficient, -1.0) & symbols.equals(x.offset, offset)
    return x.transform is None and x.element.size > 0 and bool(form.all()) and bool(reader.unit[x.element].all())


def _as_element(x: Entries, symbols: Symbols) -> Entries:
    return replace(elements_of(x.element, "", symbols), sites=x.sites)


def _exp(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "log" else _elementwise(reader, equation, operands)


def _logistic(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    x = operands[0]
    return replace(x, transform=None) if x.transform == "logit" else _elementwise(reader, equation, operands)


def _reduce_sum(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A sum with one entry that is not zero is that entry."""
    rows = _last(_plain(operands[0]), equation.params["axes"])
    if operands[0].free:
        return _reduced(reader, equation, operands)
    # Two entries that may differ from zero: a sum of elements, which is opaque.
    counted = ~_is_zero(reader, rows)
    chosen = np.argmax(counted, axis=-1)[..., None]
    answer = _map(rows, lambda x: np.take_along_axis(x, chosen, -1)[..., 0])
    return replace(answer, element=np.where(counted.sum(-1) > 1, OPAQUE, answer.element))


def _last(x: Entries, axes: Sequence[int]) -> Entries:
    """The axes of a reduction as one last axis."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    lead = tuple(x.shape[axis] for axis in kept)
    size = int(np.prod([x.shape[axis] for axis in axes]))
    return _map(x, lambda field: np.transpose(field, (*kept, *axes)).reshape(*lead, size))


def _reduced(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A reduction of rows of symbols: equal rows have equal answers."""
    if not operands[0].free:
        return None
    rows = _last(operands[0], equation.params["axes"]).offset
    ids = reader.symbols.rows((equation.primitive.name, rows.shape[-1]), rows.reshape(-1, rows.shape[-1]))
    return _symbolic(ids.reshape(rows.shape[:-1]), operands[0].sites, reader.symbols)


def _dot(reader: Reader, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A product with a matrix: rows with one number beside zeros pick entries. Symbols: numbered by rows."""
    (contract_x, contract_y), (batch_x, _) = equation.params["dimension_numbers"]
    if batch_x:
        return None
    x, y = _last(_plain(operands[0]), contract_x), _last(_plain(operands[1]), contract_y)
    lead_x, lead_y, size = x.shape[:-1], y.shape[:-1], x.shape[-1]
    x, y = (_map(z, lambda f: f.reshape(-1, size)) for z in (x, y))
    shape, sites = (*lead_x, *lead_y), _sites(x, y)
    if x.free and y.free:
        left, right = (reader.symbols.rows(("row", size), z.offset) for z in (x, y))
        ids = reader.symbols.of(("dot_general", size), left[:, None], right[None, :])
        return _symbolic(ids.reshape(shape), sites, reader.symbols)
    # The side without conjugate sites is the matrix; each of its rows may pick one entry, scaled.
    turned = not x.free
    matrix, other = (y, x) if turned else (x, y)
    if not matrix.free:
        return None
    counted = ~_is_zero(reader, matrix)
    chosen = np.argmax(counted, axis=-1)
    picked = _map(other, lambda f: f[:, chosen].T)  # [rows of the matrix, rows of the other]
    factor = _map(
        matrix,
        lambda f: np.broadcast_to(np.take_along_axis(f, chosen[:, None], 1), (f.shape[0], other.shape[0])),
    )
    answer = _product(reader, picked, factor, "mul", np.multiply)
    answer = replace(answer, element=np.where(counted.sum(-1)[:, None] > 1, OPAQUE, answer.element), sites=sites)
    return _map(answer, lambda f: (f.T if turned else f).reshape(shape))


_WITH_NUMBERS = {"gather", "dynamic_slice", "dynamic_update_slice", "pad", "scatter", "select_n", "pow"}
"""Primitives whose rules ask whether an input is a known number."""

_ENTRYWISE = """
max min rem exp2 expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh cbrt abs sign floor ceil round
is_finite not and or xor eq ne lt le gt ge clamp lgamma digamma erf erfc erf_inv atan2 nextafter igamma igammac
regularized_incomplete_beta shift_left shift_right_logical shift_right_arithmetic population_count reduce_precision
"""

RULES: dict[str, Callable[..., Entries | None]] = {
    **dict.fromkeys(_MOVES, _move),
    **dict.fromkeys(_ENTRYWISE.split(), _elementwise),
    "concatenate": _concatenate,
    "stack": _concatenate,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "scatter": _scatter,
    "select_n": _select,
    "convert_element_type": _convert,
    "device_put": _pass,
    "stop_gradient": _pass,
    "sharding_constraint": _pass,
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "integer_pow": _integer_pow,
    "square": _fixed_power(2.0),
    "sqrt": _fixed_power(0.5),
    "rsqrt": _fixed_power(-0.5),
    "log": _log,
    "log1p": _log1p,
    "exp": _exp,
    "logistic": _logistic,
    "reduce_sum": _reduce_sum,
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), _reduced),
    "dot_general": _dot,
}
"""The allow-list. What is not here is opaque as soon as a conjugate site goes in."""
