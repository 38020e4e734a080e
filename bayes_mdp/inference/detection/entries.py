"""`Entries`: what every entry of an array of the program is made of.

An entry is either known, or free of the conjugate sites (a *symbol*: some function of hyperparameters), or

    offset + coefficient * x ** power        x one element of a conjugate site, offset and coefficient symbols,

or opaque: anything else. Below, in this order: descriptions; the `Domain` that they belong to, and what a rule of a
primitive is; what rules of every kind need (places moved in all fields alike, several arrays as one, any function).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Bool, Float, Int

from bayes_mdp.inference.detection.known_numbers import is_key
from bayes_mdp.inference.detection.symbols import Ids, Symbols
from bayes_mdp.numerics.compact import compact
from bayes_mdp.utils.typing import AnyArray

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
    one, zero = (np.broadcast_to(x, shape) for x in (symbols.one, symbols.zero))
    return Entries(elements, np.broadcast_to(1.0, shape), one, zero, frozenset({site}))


def symbols_of(shape: tuple[int, ...], site: str, symbols: Symbols) -> Entries:
    """The value of another latent site: new symbols."""
    return symbolic(symbols.fresh(shape), frozenset({site}), symbols)


def symbolic(ids: Ids, sites: frozenset[str], symbols: Symbols) -> Entries:
    """Entries that are symbols."""
    shape = ids.shape
    one = np.broadcast_to(symbols.one, shape)
    return Entries(np.broadcast_to(NONE, shape), np.broadcast_to(1.0, shape), one, ids, sites)


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


def compacted(*operands: Entries) -> tuple[list[Entries], tuple[int, ...]]:
    """The operands of an entrywise operation without the axes along which all repeat one entry, and the full shape."""
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    full = [mapped(x, lambda f: np.broadcast_to(f, shape)) for x in operands]
    fields = [getattr(x, name) for x in full for name in FIELDS]
    repeats = [size > 1 and all(f.strides[axis] == 0 for f in fields) for axis, size in enumerate(shape)]
    at = tuple(slice(0, 1) if repeat else slice(None) for repeat in repeats)
    return [mapped(x, lambda f: f[at]) for x in full], shape


def widened(x: Entries, shape: tuple[int, ...]) -> Entries:
    """`x` in the full shape again."""
    return mapped(x, lambda f: np.broadcast_to(f, shape))


def plain(x: Entries) -> Entries:
    """Transformed entries are opaque to arithmetic."""
    if x.transform is None:
        return x
    return replace(x, element=np.where(x.element == NONE, NONE, OPAQUE), transform=None)


def joined(parts: Sequence[Entries]) -> list[Entries]:
    """Arrays whose entries become one array: all with one transform, or plain."""
    same = len({x.transform for x in parts}) == 1
    return [x if same else plain(x) for x in parts]


def concatenated(operands: Sequence[Entries], join: Callable[[list[np.ndarray]], np.ndarray]) -> Entries:
    """One array of several, as `join` makes one of their fields."""
    parts = joined(operands)
    fields = {name: join([getattr(x, name) for x in parts]) for name in FIELDS}
    return Entries(**fields, sites=sites_of(*parts), transform=parts[0].transform)


def entrywise(domain: Domain, name: Hashable, operands: list[Entries]) -> Entries:
    """Any operation entry by entry: symbols where no conjugate site goes in, opaque elsewhere."""
    small, shape = compacted(*map(plain, operands))
    # Value numbering: the same operation on the same symbols is the same symbol.
    free = np.all([x.element == NONE for x in small], axis=0)
    ids = domain.symbols.of(name, *(x.offset for x in small))
    answer = symbolic(ids, sites_of(*small), domain.symbols)
    return widened(replace(answer, element=np.where(free, NONE, OPAQUE)), shape)
