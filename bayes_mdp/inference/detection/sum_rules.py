"""Rules of primitives that make one entry of many: sums and other reductions, products with matrices, `.at[].add`.

A sum in which all entries but one are known to be zero is that entry: so a mask, a one-hot row or a table of places
picks elements. Sums of more are opaque, or, where no conjugate site goes in, symbols numbered by what is added up.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jax.extend.core import JaxprEqn

from bayes_mdp.inference.detection.arithmetic_rules import is_zero, product_of, sum_of
from bayes_mdp.inference.detection.entries import (
    OPAQUE,
    Domain,
    Entries,
    Rule,
    Value,
    mapped,
    numbers_of,
    of_entries,
    plain,
    sites_of,
    symbolic,
)
from bayes_mdp.inference.detection.movement_rules import by_labels
from bayes_mdp.utils.typing import AnyArray


def _reduce_sum(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
    """A sum with one entry that is not zero is that entry."""
    rows = _last(plain(operands[0]), equation.params["axes"])
    if operands[0].free:
        return _reduced(domain, equation, operands)
    # Two entries that may differ from zero: a sum of elements, which is opaque.
    counted = ~is_zero(domain, rows)
    chosen = np.argmax(counted, axis=-1)[..., None]
    answer = mapped(rows, lambda x: np.take_along_axis(x, chosen, -1)[..., 0])
    return replace(answer, element=np.where(counted.sum(-1) > 1, OPAQUE, answer.element))


def _last(x: Entries, axes: Sequence[int]) -> Entries:
    """The axes of a reduction as one last axis."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    lead = tuple(x.shape[axis] for axis in kept)
    size = int(np.prod([x.shape[axis] for axis in axes]))
    return mapped(x, lambda field: np.transpose(field, (*kept, *axes)).reshape(*lead, size))


def _reduced(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries | None:
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
    matrix, other = (y, x) if turned else (x, y)
    if not matrix.free:
        return None
    counted = ~is_zero(domain, matrix)
    chosen = np.argmax(counted, axis=-1)
    picked = mapped(other, lambda f: f[:, chosen].T)  # [rows of the matrix, rows of the other]
    factor = mapped(
        matrix,
        lambda f: np.broadcast_to(np.take_along_axis(f, chosen[:, None], 1), (f.shape[0], other.shape[0])),
    )
    answer = product_of(domain, picked, factor, "mul", np.multiply)
    answer = replace(answer, element=np.where(counted.sum(-1)[:, None] > 1, OPAQUE, answer.element), sites=sites)
    return mapped(answer, lambda f: (f.T if turned else f).reshape(shape))


def _scatter_add(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """`.at[].add` with known indices: where no place is added to twice, the sum with what was there."""
    where, params = numbers_of(inputs[1]), equation.params
    if where is None:
        return None
    old, new = domain.entries(inputs[0]), domain.entries(inputs[2])
    (at,) = where
    settings = {name: params[name] for name in ("indices_are_sorted", "unique_indices", "mode")}
    ones, none = np.ones(new.shape, np.int32), np.zeros(old.shape, np.int32)
    times = np.asarray(jax.lax.scatter_add(none, at, ones, params["dimension_numbers"], **settings))
    if (times > 1).any():
        return None

    def labels(added: np.ndarray, at: np.ndarray) -> AnyArray:
        return jax.lax.scatter(none - 1, at, added, params["dimension_numbers"], **settings)

    return sum_of(domain, plain(old), plain(by_labels(domain, [new], labels, [at], fill=0.0)))


SUM_RULES: dict[str, Rule] = {
    **of_entries(
        {
            "reduce_sum": _reduce_sum,
            **dict.fromkeys(("reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"), _reduced),
            "dot_general": _dot,
        }
    ),
    "scatter-add": _scatter_add,
}
"""Primitive -> its rule."""
