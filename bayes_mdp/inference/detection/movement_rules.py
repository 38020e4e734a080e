"""Rules of primitives that move, copy or leave out entries: each entry of the result is one of the operands, or a fill.

First those whose parameters say where each entry goes; then those whose inputs do, which must be known numbers; last
the choice by a predicate.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.extend.core import JaxprEqn

from bayes_mdp.inference.detection.entries import (
    FIELDS,
    NONE,
    Domain,
    Entries,
    Rule,
    Value,
    concatenated,
    entrywise,
    joined,
    mapped,
    numbers_of,
    of_entries,
    plain,
    sites_of,
)
from bayes_mdp.inference.detection.known_numbers import MOVES, NUMPY, chosen
from bayes_mdp.utils.typing import AnyArray, ArrayLike


def _move(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    move = MOVES[equation.primitive.name]
    return mapped(operands[0], lambda x: move(equation, x))


def _pass(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    return operands[0]


def _concatenate(domain: Domain, equation: JaxprEqn, operands: list[Entries]) -> Entries:
    join = NUMPY[equation.primitive.name]
    return concatenated(operands, lambda arrays: join(equation, *arrays))


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
    given = [
        np.arange(start, start + x.element.size, dtype=np.int32).reshape(x.shape)
        for start, x in zip(starts, parts, strict=False)
    ]
    place = np.asarray(labels(*given, *numbers)).astype(np.int64)
    outside = (place < 0) | (place >= starts[-1])
    place = np.where(outside, 0, place)
    fields = {name: np.asarray(np.concatenate([getattr(x, name).ravel() for x in parts])[place]) for name in FIELDS}
    if outside.any():
        fields["element"] = np.where(outside, NONE, fields["element"])
        fields["offset"] = np.where(outside, domain.symbols.constants(np.array(fill)), fields["offset"])
    return Entries(**fields, sites=sites_of(*parts), transform=parts[0].transform)


def _gather(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where, params = numbers_of(*inputs[1:]), equation.params
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
    return by_labels(domain, [domain.entries(inputs[0])], labels, where, fill)


def _dynamic_slice(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where = numbers_of(*inputs[1:])
    if where is None:
        return None
    bind = equation.primitive.bind
    return by_labels(domain, [domain.entries(inputs[0])], lambda x, *at: bind(x, *at, **equation.params), where)


def _dynamic_update_slice(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    where = numbers_of(*inputs[2:])
    if where is None:
        return None
    bind, parts = equation.primitive.bind, [domain.entries(x) for x in inputs[:2]]
    return by_labels(domain, parts, lambda x, new, *at: bind(x, new, *at, **equation.params), where)


def _pad(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries:
    bind, parts = equation.primitive.bind, [domain.entries(x) for x in inputs]
    return by_labels(domain, parts, lambda x, padding: bind(x, padding, **equation.params))


def _scatter(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """`.at[].set` with known indices: new entries in some places."""
    where, params = numbers_of(inputs[1]), equation.params
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

    return by_labels(domain, [domain.entries(inputs[0]), domain.entries(inputs[2])], labels, where)


def _select(domain: Domain, equation: JaxprEqn, inputs: list[Value]) -> Entries | None:
    """A known predicate picks entries. Another one makes opaque what it picks from conjugate sites."""
    which, cases = inputs[0], joined([domain.entries(x) for x in inputs[1:]])
    if not isinstance(which, Entries):
        fields = {name: chosen(np.asarray(which), [getattr(x, name) for x in cases]) for name in FIELDS}
        return Entries(**fields, sites=sites_of(*cases), transform=cases[0].transform)
    shape = cases[0].shape
    which = mapped(which, lambda x: np.broadcast_to(x, shape))
    return entrywise(domain, ("select_n", len(cases)), [which, *(plain(x) for x in cases)])


MOVEMENT_RULES: dict[str, Rule] = {
    **of_entries(
        {
            **dict.fromkeys(MOVES, _move),
            "concatenate": _concatenate,
            "stack": _concatenate,
            "device_put": _pass,
            "stop_gradient": _pass,
            "sharding_constraint": _pass,
        }
    ),
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "scatter": _scatter,
    "select_n": _select,
}
"""Primitive -> its rule."""
