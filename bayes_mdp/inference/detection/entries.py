"""`Entries`: what every entry of an array of the program is made of.

An entry is either known, or free of the conjugate sites (a *symbol*: some function of hyperparameters), or

    offset + coefficient * x ** power        x one element of a conjugate site, offset and coefficient symbols,

or opaque: anything else. In this order: the numbering of symbols; descriptions; the `Domain` that they belong to, and
what a rule of a primitive is; what rules of every kind need (places moved in all fields alike, several arrays as one,
any function).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Bool, Float, Int

from bayes_mdp.numerics.array_forms import compact
from bayes_mdp.utils.typing import AnyArray, ArrayLike

MANY = 2**16
"""Different values of one array beyond which each entry becomes a symbol of its own."""
FEW = 4
"""Different values of an array that are looked for one by one before it is sorted."""
ROUNDING = 1e-12
"""Size of what counts as rounding of a number that should be 1 or -1; a number that should be 0 has no rounding."""

Ids = Int[np.ndarray, "..."]


class Symbols:
    """Numbers for values free of conjugate sites. Entries of one number are equal, whatever the hyperparameters are.

    Equal numbers come from equal operations on equal numbers (value numbering), so that equality is proven; different
    numbers prove nothing.
    """

    def __init__(self) -> None:
        self._values = np.full(64, np.nan)
        self._is_constant = np.zeros(64, bool)
        self._size = 0
        self._names: dict[Hashable, int] = {}
        self.zero, self.one = (self.constants(np.array(x)) for x in (0.0, 1.0))

    def fresh(self, shape: tuple[int, ...]) -> Ids:
        """A new symbol for every entry."""
        return self._new(int(np.prod(shape))).reshape(shape)

    def constants(self, values: ArrayLike) -> Ids:
        """The symbols of known numbers."""
        array = np.asarray(values)
        small = compact(array)
        small64 = small.astype(np.float64)
        # Bits, not values: -0.0 is not 0.0. Integers that float64 rounds get symbols of their own.
        unique, inverse = _distinct(np.ascontiguousarray(small64).view(np.int64).ravel())
        exact = not np.issubdtype(small.dtype, np.integer) or np.all(np.abs(small64) < 2.0**53)
        if len(unique) > MANY or not exact:
            ids = self._new(small64.size)
            self._values[ids], self._is_constant[ids] = small64.ravel(), True
            return np.broadcast_to(ids.reshape(small.shape), array.shape)
        ids = np.array([self._name_axes(("constant", int(bits))) for bits in unique], dtype=np.int64)
        self._values[ids], self._is_constant[ids] = unique.view(np.float64), True
        return np.broadcast_to(ids[inverse].reshape(small.shape), array.shape)

    def of(self, name: Hashable, *operands: Ids) -> Ids:
        """The symbols of an operation applied entry by entry."""
        # Views of one number stay small: repeated entries are numbered once.
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        parts = np.broadcast_arrays(*(compact(np.broadcast_to(x, shape)) for x in operands))
        # One number for each distinct combination of operands, without a Python loop over entries.
        local, flat = np.zeros(parts[0].size, np.int64), [part.ravel() for part in parts]
        for part in flat:
            # Pairwise hashing: the number so far and the next operand make one number; small enough for 64 bits.
            local = np.unique(local * self._size + part, return_inverse=True)[1].astype(np.int64)
        _, first = np.unique(local, return_index=True)
        # Too many to name one by one: fresh symbols prove nothing, and are safe.
        if len(first) > MANY:
            return np.broadcast_to(self.fresh(parts[0].shape), shape)
        ids = [self._name_axes((name, *(int(part[i]) for part in flat))) for i in first]
        return np.broadcast_to(np.array(ids, np.int64)[local].reshape(parts[0].shape), shape)

    def rows(self, name: Hashable, ids: Int[np.ndarray, "M K"]) -> Int[np.ndarray, " M"]:
        """One symbol for each row: rows of equal symbols have one."""
        unique, inverse = np.unique(np.ascontiguousarray(ids), axis=0, return_inverse=True)
        if len(unique) > MANY:
            return self.fresh(ids.shape[:1])
        return np.array([self._name_axes((name, row.tobytes())) for row in unique], np.int64)[inverse.reshape(-1)]

    def arithmetic(self, name: str, function: Callable[..., np.ndarray], *operands: Ids) -> Ids:
        """`of`, with numbers where all operands are known, and without the operation where it changes nothing."""
        shape = np.broadcast_shapes(*(x.shape for x in operands))
        parts = np.broadcast_arrays(*(compact(np.broadcast_to(x, shape)) for x in operands))
        neutral = {"add": self.zero, "sub": self.zero, "mul": self.one, "div": self.one, "pow": self.one}.get(name)
        # Constants are folded: a sum of known numbers is a known number.
        known = np.all([self._is_constant[part] for part in parts], axis=0)
        result = np.empty(parts[0].shape, np.int64)
        with np.errstate(all="ignore"):
            result[known] = self.constants(function(*(self._values[part[known]] for part in parts)))
        # x + 0, x * 1, x ^ 1: the operand itself, so that equality is still seen after a neutral operation.
        left = ~known
        if neutral is not None and len(parts) == 2:
            unchanged = left & (parts[1] == neutral)
            result[unchanged], left = parts[0][unchanged], left & ~unchanged
            if name in ("add", "mul"):
                # Addition and multiplication are neutral on either side.
                unchanged = left & (parts[0] == neutral)
                result[unchanged], left = parts[1][unchanged], left & ~unchanged
        if name in ("mul", "div"):  # 0 times, or divided by, what is finite
            gone = left & ((parts[0] == self.zero) | ((parts[1] == self.zero) & (name == "mul")))
            result[gone], left = self.zero, left & ~gone
        if left.any():
            result[left] = self.of(name, *(part[left] for part in parts))
        return np.broadcast_to(result, shape)

    def values(self, ids: Ids) -> Float[np.ndarray, "..."]:
        """The numbers of symbols; nan where they are not known."""
        return np.broadcast_to(self._values[compact(ids)], ids.shape)

    def known(self, ids: Ids) -> Bool[np.ndarray, "..."]:
        """Which symbols are known numbers."""
        return np.broadcast_to(self._is_constant[compact(ids)], ids.shape)

    def equals(self, ids: Ids, number: float) -> Bool[np.ndarray, "..."]:
        """Which symbols are `number`, up to rounding relative to it: rates and precisions of 1e-13 are not zero."""
        with np.errstate(invalid="ignore"):
            # Relative: 1e-13 is not zero, but 1 + 1e-13 is one.
            close = np.abs(self._values[compact(ids)] - number) <= ROUNDING * abs(number)
        return np.broadcast_to(close, ids.shape)

    def affine_in_element(self, x: "Entries", coefficient: float, offset: float) -> Bool[np.ndarray, "..."]:
        """Where an entry is offset + coefficient times one element, these being the numbers."""
        form = (x.element >= 0) & (x.power == 1.0) & (x.transform is None)
        return np.asarray(form & self.equals(x.coefficient, coefficient) & self.equals(x.offset, offset))

    def _name_axes(self, name: Hashable) -> int:
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = int(self._new(1)[0])
        return number

    def _new(self, count: int) -> Ids:
        # At least doubled: the cost of growing is spread over all symbols.
        if self._size + count > len(self._values):
            growth = max(len(self._values), self._size + count - len(self._values))
            self._values = np.append(self._values, np.full(growth, np.nan))
            self._is_constant = np.append(self._is_constant, np.zeros(growth, bool))
        self._size += count
        return np.arange(self._size - count, self._size)


def _distinct(values: Int[np.ndarray, " N"]) -> tuple[Int[np.ndarray, " M"], Int[np.ndarray, " N"]]:
    """The different values, and the place of each value among them; large tables of few values are not sorted."""
    firsts, inverse = [], np.full(values.shape, -1, np.int64)
    while len(firsts) < FEW and values.size:
        # For a few values a comparison is cheaper than a sort of a large table.
        left = inverse < 0
        first = int(left.argmax())
        if not left[first]:
            return np.array(firsts, np.int64), inverse
        inverse[values == values[first]] = len(firsts)
        firsts.append(values[first])
    return np.unique(values, return_inverse=True)


NONE, OPAQUE = -1, -2
"""In place of the number of an element: free of conjugate sites; not of the form above."""
FIELDS = ("element", "power", "coefficient", "offset")
"""The arrays of a description."""


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


def elements_of(elements: Int[np.ndarray, "..."], site: str, symbols: Symbols) -> Entries:
    """The value of a conjugate site: its own elements."""
    shape = elements.shape
    # x itself: offset 0, coefficient 1, power 1.
    ones_id, zero = (np.broadcast_to(x, shape) for x in (symbols.one, symbols.zero))
    return Entries(elements, np.broadcast_to(1.0, shape), ones_id, zero, frozenset({site}))


def symbols_of(shape: tuple[int, ...], site: str, symbols: Symbols) -> Entries:
    """The value of another latent site: new symbols."""
    return symbolic(symbols.fresh(shape), frozenset({site}), symbols)


def symbolic(ids: Ids, sites: frozenset[str], symbols: Symbols) -> Entries:
    """Entries that are symbols."""
    shape = ids.shape
    # A symbol is its own offset, with no element.
    unit = np.broadcast_to(symbols.one, shape)
    return Entries(np.broadcast_to(NONE, shape), np.broadcast_to(1.0, shape), unit, ids, sites)


def is_key(value: object) -> bool:
    """Whether it is a key of random numbers."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended)


@dataclass(frozen=True, eq=False)
class Domain:
    """What descriptions are made of: elements with their supports, and numbered symbols.

    Args:
        positive: [N], which elements are positive by their support.
        unit: [N], which lie between zero and one.
        symbols: the numbering.
    """

    positive: Bool[np.ndarray, " N"]
    unit: Bool[np.ndarray, " N"]
    symbols: Symbols = field(default_factory=Symbols)

    def entries(self, value: Value) -> Entries:
        """A value as entries; numbers become known symbols."""
        if isinstance(value, Entries):
            return value
        # Keys of random numbers are nothing to reason about: fresh symbols.
        numeric = not is_key(value) and np.asarray(value).dtype.kind in "biuf"
        ids = self.symbols.constants(value) if numeric else self.symbols.fresh(value.shape)
        return symbolic(ids, frozenset(), self.symbols)


Rule: TypeAlias = Callable[[Domain, JaxprEqn, list[Value]], Entries | None]
"""What a primitive does to its inputs; None: the rule does not apply, and the entries are opaque."""

EntriesRule: TypeAlias = Callable[[Domain, JaxprEqn, list[Entries]], Entries | None]
"""A rule to which known numbers are entries like others."""


def of_entries(rules: Mapping[str, EntriesRule]) -> dict[str, Rule]:
    """Rules of entries as rules of any inputs."""

    def described(rule: EntriesRule) -> Rule:
        return lambda domain, equation, inputs: rule(domain, equation, [domain.entries(x) for x in inputs])

    return {name: described(rule) for name, rule in rules.items()}


def numbers_of(*values: Value) -> list[np.ndarray] | None:
    """The values if all are known numbers."""
    return None if any(isinstance(x, Entries) for x in values) else [np.asarray(x) for x in values]


def sites_of(*operands: Entries) -> frozenset[str]:
    """What any of them depends on."""
    return frozenset().union(*(x.sites for x in operands))


def mapped(entries: Entries, function: Callable[[np.ndarray], np.ndarray]) -> Entries:
    """The same function of places for every field. (`asarray`: numpy makes scalars of arrays without axes.)"""
    fields = {name: np.asarray(function(getattr(entries, name))) for name in FIELDS}
    return replace(entries, **fields)


def compact_axes(*operands: Entries) -> tuple[list[Entries], tuple[int, ...]]:
    """The operands of an entrywise operation without the axes along which all repeat one entry, and the full shape."""
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    # Broadcast views have stride zero along repeated axes: one entry stands for all of these.
    full = [mapped(x, lambda f: np.broadcast_to(f, shape)) for x in operands]
    fields = [getattr(x, name) for x in full for name in FIELDS]
    repeats = [size > 1 and all(f.strides[axis] == 0 for f in fields) for axis, size in enumerate(shape)]
    first_of_repeats = tuple(slice(0, 1) if repeat else slice(None) for repeat in repeats)
    return [mapped(x, lambda f: f[first_of_repeats]) for x in full], shape


def widened(x: Entries, shape: tuple[int, ...]) -> Entries:
    """`x` in the full shape again."""
    return mapped(x, lambda f: np.broadcast_to(f, shape))


def plain(x: Entries) -> Entries:
    """Transformed entries are opaque to arithmetic."""
    if x.transform is None:
        # What went through a transform is no longer offset + coefficient x^power.
        return x
    return replace(x, element=np.where(x.element == NONE, NONE, OPAQUE), transform=None)


def joined(parts: Sequence[Entries]) -> list[Entries]:
    """Arrays whose entries become one array: all with one transform, or plain."""
    one_transform = len({x.transform for x in parts}) == 1
    return [x if one_transform else plain(x) for x in parts]


def concatenate_sums(operands: Sequence[Entries], join: Callable[[list[np.ndarray]], np.ndarray]) -> Entries:
    """One array of several, as `join` makes one of their fields."""
    # Fields are joined in the same way, so that entries stay whole.
    parts = joined(operands)
    fields = {name: join([getattr(x, name) for x in parts]) for name in FIELDS}
    return Entries(**fields, sites=sites_of(*parts), transform=parts[0].transform)


def entrywise(domain: Domain, name: Hashable, operands: list[Entries]) -> Entries:
    """Any operation entry by entry: symbols where no conjugate site goes in, opaque elsewhere."""
    small, shape = compact_axes(*map(plain, operands))
    # Value numbering: the same operation on the same symbols is the same symbol.
    free = np.all([x.element == NONE for x in small], axis=0)
    ids = domain.symbols.of(name, *(x.offset for x in small))
    answer = symbolic(ids, sites_of(*small), domain.symbols)
    return widened(replace(answer, element=np.where(free, NONE, OPAQUE)), shape)
