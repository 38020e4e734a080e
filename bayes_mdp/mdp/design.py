"""Designs: columns of numbers for every (context, state, action), from a short formula such as "age + frail + action".

A formula is a sum of terms, a term a product of factors ("age:action"). A factor is a column of covariates, or "state"
or "action". Numbers stand as they are; of labels every one but the first has a column of 0 and 1. A constant comes
first, unless the formula begins with "0 +". `by=` gives every state, action or both columns of their own.

The mean and the spread by which columns are standardised are those of the log, with which the design was made, also
where it is worked out for other contexts later.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.messages import did_you_mean
from bayes_mdp.utils.validation import check_type

BY = ("state", "action")
DEPENDENT = 1e-10
"""Share of a standardised column that the columns before it may leave over before it counts as their sum."""
BLOCK = 2**16
"""Contexts whose rows are worked out at once."""


class Factor(NamedTuple):
    """What a factor of a term is, for some contexts.

    Args:
        values: [C S A w], broadcast along what it does not depend on; [M w] of cells.
        names: of its w columns.
    """

    values: Float[np.ndarray, "*cells w"]
    names: tuple[str, ...]


class Covariate(NamedTuple):
    """One column of covariates.

    Args:
        values: [C], numbers; of labels their places in `levels`.
        levels: all labels, in order; None: numbers.
    """

    values: np.ndarray
    levels: tuple[Hashable, ...] | None


@dataclass(frozen=True, eq=False)
class Design:
    """Columns for every (context, state, action), worked out when they are asked for.

    Args:
        formula: as read.
        covariates: by name.
        layout: states and actions.
        number: C.
        names: of the p columns.
        mean, spread: Float64[p], by which a column is standardised; 0 and 1 for the constant.
    """

    formula: "Formula"
    covariates: Mapping[str, Covariate]
    layout: "Layout"
    number: int
    names: tuple[str, ...]
    mean: Float[np.ndarray, " p"]
    spread: Float[np.ndarray, " p"]

    @cached_property
    def values(self) -> Float[np.ndarray, "C S A p"]:
        """Float64[C S A p], as they stand.

        Raises:
            ValueError: they would take more than half of the memory that is free.
        """
        self._check_memory(1)
        return columns_of(self.formula, self.covariates, self.layout, np.arange(self.number))[0]

    @property
    def standardised(self) -> Float[np.ndarray, "C S A p"]:
        """(values - mean) / spread; a column of a block (`by=`) is 0 outside it."""
        self._check_memory(2)
        return self.standardise(self.values.copy())

    def standardise(self, values: Float[np.ndarray, "... p"]) -> Float[np.ndarray, "... p"]:
        """Columns as they stand, standardised in place.

        A mean is taken off in the block of its column alone, where its constant is 1: taken off everywhere, the
        coefficients of one block would move the others.

        Args:
            values: of any cells.
        """
        values -= values @ self._to_constants if self.formula.by else self.mean
        values /= self.spread
        return values

    def rows(self, cells: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Float[np.ndarray, "M p"]:
        """The columns of some cells alone, as they stand: a log of a million patterns visits few of all cells.

        Args:
            cells: context, state and action of each.
        """
        context, state, action = cells

        def factor(name: str) -> Factor:
            known = self.layout.factor(name)
            if known is None:
                one = _of_covariate(name, self.covariates[name], context)
                return Factor(one.values[:, 0, 0], one.names)
            # Along states or actions alone: the other axes have size one.
            values = known.values[0, state, 0] if name == "state" else known.values[0, 0, action]
            return Factor(values, known.names)

        _, parts = _shared_columns(self.formula, factor, (1,))
        shared = np.concatenate([np.broadcast_to(x, (len(context), x.shape[-1])) for x in parts], -1)
        blocks = self.layout.blocks(self.formula.by)
        if len(blocks) == 1:
            return shared
        full = (1, *self.layout.shape, 1)
        return np.concatenate([shared * np.broadcast_to(here, full)[0, state, action] for _, here in blocks], -1)

    def _check_memory(self, copies: int) -> None:
        size = 8.0 * copies * self.number * np.prod(self.layout.shape, dtype=float) * len(self.names)
        told = f"a design of {self.number} contexts and {len(self.names)} columns"
        check_memory(told, size, "fewer columns take less")

    def on_own_scale(self, coefficients: Float[np.ndarray, "... p K"]) -> Float[np.ndarray, "... p K"]:
        """Coefficients of standardised columns as coefficients of the columns themselves.

        What the means add goes to the constants: `x.b = sum_j (x_j - m_j) / s_j b_j`. Without a constant nothing was
        centred.

        Args:
            coefficients: of the standardised columns.
        """
        scaled = coefficients / self.spread[:, None]
        # Coefficients of the raw columns, and what the centring moved to the constants.
        moved = np.einsum("pq,...qk->...pk", self._to_constants, scaled)
        return scaled - moved

    @property
    def _to_constants(self) -> Float[np.ndarray, "p p"]:
        """[constant, column]: the mean of each column, in the row of the constant that it was centred with."""
        shift = np.zeros((len(self.names),) * 2)
        place = {name: i for i, name in enumerate(self.names)}
        for j, name in enumerate(self.names):
            if self.mean[j]:
                # To "age | state=ill" belongs "constant | state=ill".
                _, of, level = name.partition(OF)
                shift[place[CONSTANT + of + level], j] = self.mean[j]
        return shift


CONSTANT = "constant"
OF = " | "


class Formula(NamedTuple):
    """A formula as read.

    Args:
        constant: whether a constant comes first.
        terms: the factors of each term.
        by: "state", "action", both or none of them.
    """

    constant: bool
    terms: tuple[tuple[str, ...], ...]
    by: tuple[str, ...]


def read_formula(terms: str, by: str | Sequence[str] | None, known: Sequence[str]) -> Formula:
    """A formula in words as its parts.

    Args:
        terms: "age + frail:action"; "" or "1": the constant alone.
        by: which of "state" and "action" have coefficients of their own.
        known: the columns of covariates.

    Raises:
        ValueError: a factor that is no column, twice the same term, nothing at all. TypeError: no text.

    Example:
        >>> from bayes_mdp.mdp.design import read_formula
        >>> read_formula("age + age:action", None, ["age"]).terms
        (('age',), ('age', 'action'))
    """
    check_type("terms", terms, str, 'a formula such as "age + frail + action"')
    blocks = (by,) if isinstance(by, str) else tuple(by or ())
    for block in blocks:
        if block not in BY:
            raise ValueError(f"by is {by!r}, expected 'state', 'action', or a list of them")
    constant, read = True, list[tuple[str, ...]]()
    names = (*known, *BY)
    # Terms by "+", factors by ":".
    for part in terms.split("+"):
        term = part.strip()
        if term in ("0", "1"):
            constant = term == "1"
            continue
        if not term:
            if terms.strip():
                raise ValueError(f"terms is {terms!r}, expected a term on each side of every '+'")
            continue
        factors = tuple(factor.strip() for factor in term.split(":"))
        for factor in factors:
            if factor not in names:
                raise ValueError(
                    f"terms has {factor!r}, expected one of {', '.join(map(repr, names))}{did_you_mean(factor, names)}"
                )
        if set(factors) & set(blocks):
            raise ValueError(
                f"terms has {term!r} and by is {by!r}, expected it left out: by= gives it its own coefficients"
            )
        # The order of factors does not matter.
        if sorted(factors) in [sorted(earlier) for earlier in read]:
            raise ValueError(f"terms has {term!r} twice, expected each term once")
        read.append(factors)
    if not constant and not read:
        raise ValueError(f"terms is {terms!r}, expected at least one column")
    return Formula(constant, tuple(read), blocks)


class Layout(NamedTuple):
    """The states and actions that a design is worked out for.

    Args:
        states, actions: their labels.
    """

    states: tuple[Hashable, ...]
    actions: tuple[Hashable, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A)."""
        return len(self.states), len(self.actions)

    def factor(self, name: str) -> Factor | None:
        """The columns of "state" or "action"; None: it is neither."""
        if name not in BY:
            return None
        labels = self.states if name == "state" else self.actions
        # Treatment coding: the first label is the reference.
        one_hot = np.eye(len(labels))[:, 1:]
        values = one_hot[None, :, None, :] if name == "state" else one_hot[None, None, :, :]
        return Factor(values, tuple(f"{name}={label}" for label in labels[1:]))

    def blocks(self, by: Sequence[str]) -> list[tuple[str, Float[np.ndarray, "1 S A 1"]]]:
        """(name, 0 or 1) of every block of own coefficients; one without a name where all share them.

        Args:
            by: of the formula.
        """
        # Blocks multiply: every combination of the labels of `by`.
        blocks = [("", np.ones((1, 1, 1, 1)))]
        for name in by:
            labels = self.states if name == "state" else self.actions
            shape = (1, -1, 1, 1) if name == "state" else (1, 1, -1, 1)
            indicators = [(f"{name}={label}", np.eye(len(labels))[i].reshape(shape)) for i, label in enumerate(labels)]
            blocks = [(f"{a}, {b}" if a else b, x * y) for a, x in blocks for b, y in indicators]
        return blocks


def columns_of(
    formula: Formula, covariates: Mapping[str, Covariate], layout: Layout, contexts: Int[np.ndarray, " C"]
) -> tuple[Float[np.ndarray, "C S A p"], tuple[str, ...]]:
    """The columns of a formula in some contexts, and their names.

    Args:
        formula: as read.
        covariates: by name.
        layout: states and actions.
        contexts: places of the contexts.
    """

    def factor(name: str) -> Factor:
        # A word of the formula, or a covariate.
        return layout.factor(name) or _of_covariate(name, covariates[name], contexts)

    names, parts = _shared_columns(formula, factor, (1, 1, 1))
    full = (len(contexts), *layout.shape)
    shared = np.concatenate([np.broadcast_to(x, (*full, x.shape[-1])) for x in parts], -1)
    blocks = layout.blocks(formula.by)
    if len(blocks) == 1:
        return shared, names
    # A column of one block is zero in all others.
    values = np.concatenate([shared * here for _, here in blocks], -1)
    return values, tuple(f"{name}{OF}{block}" for block, _ in blocks for name in names)


def _shared_columns(
    formula: Formula, factor: Callable[[str], Factor], ones: tuple[int, ...]
) -> tuple[tuple[str, ...], list[Float[np.ndarray, "... w"]]]:
    """Names and values of the columns of every term, without the blocks of `by=`."""
    parts = [Factor(np.ones((*ones, 1)), (CONSTANT,))] if formula.constant else []
    for term in formula.terms:
        product = Factor(np.ones((*ones, 1)), ("",))
        for name in term:
            new = factor(name)
            names = tuple(f"{a}:{b}" if a else b for a in product.names for b in new.names)
            # Products of columns, one for each pair of their columns.
            values = product.values[..., :, None] * new.values[..., None, :]
            product = Factor(values.reshape(*values.shape[:-2], len(names)), names)
        parts.append(product)
    return tuple(name for part in parts for name in part.names), [part.values for part in parts]


def _of_covariate(name: str, covariate: Covariate, contexts: Int[np.ndarray, " C"]) -> Factor:
    values = covariate.values[contexts]
    if covariate.levels is None:
        return Factor(values.astype(np.float64)[:, None, None, None], (name,))
    # One column for each level but the first.
    one_hot = np.eye(len(covariate.levels))[values.astype(int)][:, 1:]
    return Factor(one_hot[:, None, None, :], tuple(f"{name}={label}" for label in covariate.levels[1:]))


class Scale(NamedTuple):
    """By what the columns of a design are standardised.

    Args:
        mean, spread: Float64[p].
    """

    mean: Float[np.ndarray, " p"]
    spread: Float[np.ndarray, " p"]


def scale_of(
    formula: Formula, covariates: Mapping[str, Covariate], layout: Layout, weights: Float[np.ndarray, " C"]
) -> Scale:
    """Mean and standard deviation of every column over the contexts by weight, all states and actions alike.

    Columns of a block (`by=`) are those of the block. Refuses columns that are sums of others.

    Args:
        formula: as read.
        covariates: by name, of the log.
        layout: states and actions.
        weights: transitions of each context.

    Raises:
        ValueError: a column that is constant, a sum of the columns before it, a factor of one level: its name.
    """
    _refuse_one_level(formula, covariates, layout)
    # Every block has the same moments.
    # Of one block: the others have the same columns elsewhere. Products of columns are summed block by block of
    # contexts, so that a million contexts need no array of all their columns.
    plain = formula._replace(by=())
    total, mean, gram, names = 0.0, np.zeros(0), np.zeros((0, 0)), ()
    for first in range(0, len(weights), BLOCK):
        part = np.arange(first, min(first + BLOCK, len(weights)))
        values, names = columns_of(plain, covariates, layout, part)
        flat = values.reshape(-1, len(names))
        weight = np.repeat(weights[part], int(np.prod(layout.shape)))
        if not gram.size:
            mean, gram = np.zeros(len(names)), np.zeros((len(names),) * 2)
        # Moments about the running mean: sums of squares of large numbers would lose the spread.
        share = weight.sum()
        if share <= 0:
            continue
        centre_of_part = weight @ flat / share
        deviation = flat - centre_of_part
        # Sum of squares of two parts: of each, and of the distance between their means.
        gram += (deviation * weight[:, None]).T @ deviation + np.outer(
            centre_of_part - mean, centre_of_part - mean
        ) * total * share / (total + share)
        mean += (centre_of_part - mean) * share / (total + share)
        total += share
    _refuse_dependent(formula, names, gram, mean, total)
    # Root mean square about the mean, or about zero where nothing is centred.
    spread = np.sqrt(np.diag(gram) / max(total, 1e-300))
    centre = np.where(np.array(names) == CONSTANT, 0.0, mean) if formula.constant else np.zeros(len(names))
    spread = np.where(np.array(names) == CONSTANT, 1.0, spread)
    if not formula.constant:
        spread = np.sqrt(spread**2 + mean**2)
    repeats = len(layout.blocks(formula.by))
    return Scale(np.tile(centre, repeats), np.tile(spread, repeats))


def _refuse_one_level(formula: Formula, covariates: Mapping[str, Covariate], layout: Layout) -> None:
    """Refuse labels that are all the same: they have no column, and their term would vanish without a word."""
    for name in dict.fromkeys(name for term in formula.terms for name in term):
        known = {"state": layout.states, "action": layout.actions}
        levels = known[name] if name in known else covariates[name].levels
        if levels is not None and len(levels) == 1:
            raise ValueError(
                f"terms: {name!r} is {levels[0]!r} everywhere in the log, expected two levels (leave it out)"
            )


def _refuse_dependent(formula: Formula, names: Sequence[str], gram: np.ndarray, mean: np.ndarray, total: float) -> None:
    """Refuse a design of a rank below its columns."""
    # Without a constant columns are compared about zero.
    if not formula.constant:
        gram = gram + total * np.outer(mean, mean)
    start = 1 if formula.constant else 0
    size = np.sqrt(np.diag(gram))
    # A constant has no spread about its mean, but for rounding.
    flat = size <= 1e-10 * np.sqrt(total) * np.maximum(np.abs(mean), 1e-300)
    for j in range(start, len(names)):
        if flat[j] or size[j] == 0.0:
            raise ValueError(
                f"terms: column {names[j]!r} is {mean[j]:g} everywhere in the log, expected one that varies (leave it "
                "out)"
            )
    # Columns of length one: what is left over is a share.
    scale = np.where(size > 0, size, 1.0)
    left = gram / np.outer(scale, scale)
    # Gaussian elimination column by column: what is left of a column is its part that the ones before cannot give.
    for j in range(start, len(names)):
        if left[j, j] <= DEPENDENT:
            before = ", ".join(map(repr, names[:j]))
            raise ValueError(f"terms: column {names[j]!r} is a sum of multiples of {before}, expected it left out")
        left = left - np.outer(left[:, j], left[j]) / left[j, j]


def design_of(
    formula: Formula, covariates: Mapping[str, Covariate], layout: Layout, scale: Scale, number: int
) -> Design:
    """The design of all contexts.

    Args:
        formula: as read.
        covariates: by name.
        layout: states and actions.
        scale: by what columns are standardised.
        number: of contexts.
    """
    _, names = columns_of(formula, covariates, layout, np.arange(0))
    return Design(formula, covariates, layout, number, names, scale.mean, scale.spread)
