"""Regression on covariates: laws of rows, and of rewards, that a program calls as it calls `supported_dirichlet`.

`logit_rows`: a softmax of linear predictors. `ordinal_rows`: one predictor against increasing cuts. `hazard_rows`: one
event with a hazard, the other outcomes by another law. `stick_rows`: one binary choice after the other.

    eta[c, s, a, k] = x[c, s, a] . B[:, k] + u[group of c, k]

x is a row of the design (see `bayes_mdp.mdp.design`), whose columns are standardised by the log unless told otherwise,
so that one prior suits all of them. Without `by=` all states share their coefficients. Outcomes that the space rules
out are masked before the rows are normalised.

Laws of rewards, which a program returns as `reward`, follow the rows. `linear_rewards`: normal about a predictor.
`logistic_rewards`: 0 or 1. `poisson_rewards`: counts. Their predictor is x[c, s, a] . b + u[group of c]; they are those
of a pair and do not depend on the outcome.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int
from numpyro.distributions import constraints
from numpyro.distributions.transforms import OrderedTransform

from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.contexts import Contexts, ContextSpace
from bayes_mdp.mdp.design import CONSTANT, OF, Design, design_of
from bayes_mdp.mdp.space import check_space
from bayes_mdp.numerics.products import einsum
from bayes_mdp.utils.typing import AnyArray
from bayes_mdp.utils.validation import (
    broadcasts_to,
    check_bool,
    check_name,
    check_number,
    check_type,
    first_index,
    label_list,
)

STAY = "stay"
LEAVE = "leave"
SLAB, SLAB_DEGREES = 2.5, 4.0
"""Of the regularised horseshoe: how large a coefficient that is not shrunk may be, and how sure that is."""
ROWS = "rows"
LINKS = ("cloglog", "logit")
ORDERED = ("logit", "probit")
SHRINK = ("normal", "horseshoe")
CUTS = dist.Normal(0.0, 2.5)
"""Prior of the cuts, before they are put in order."""


@dataclass(frozen=True)
class RegressionOptions:
    """Options of a regression that seldom change, of rows (`logit_rows`, ...) and of rewards (`linear_rewards`, ...).

    Args:
        by: "state", "action" or both: these have coefficients of their own. None: all states share theirs.
        group: the covariate (read with `group=`) whose labels have random intercepts, scale ~ HalfNormal(1); None:
            none has.
        shrink: "normal": coefficients but those of constants ~ Normal(0, scale), scale ~ HalfNormal(1); "horseshoe": a
            regularised horseshoe [PV17] of slab 2.5; None: neither.
        standardise: whether `coefficients` is the prior of standardised columns.
        name: that the names of the sites begin with; None: "rows", of `hazard_rows` "hazard", of rewards "reward".

    Raises:
        ValueError, TypeError: one sentence about the option at fault.

    Example:
        >>> space = bm.StateActionSpace(2, 2, states=("well", "ill"), actions=("wait", "treat"))
        >>> options = bm.models.RegressionOptions(by="state")
        >>> def prior(space):
        ...     return bm.models.MDPSpec(bm.models.logit_rows(space, "action", options=options), np.zeros((2, 2)))
        >>> bm.explain(prior, space).route
        'nuts'
    """

    by: str | Sequence[str] | None = None
    group: str | None = None
    shrink: Literal["normal", "horseshoe"] | None = None
    standardise: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        if self.shrink is not None:
            check_name("shrink", self.shrink, SHRINK)
        check_bool("standardise", self.standardise)
        if self.name is not None:
            check_type("name", self.name, str, "a text")


class RowLaw(NamedTuple):
    """What a law of rows or of rewards is, for routes that know it, and for who reads its coefficients.

    Args:
        kind: "logit", "ordinal", "hazard" or "stick"; of rewards "linear", "logistic" or "poisson".
        name: of its sites.
        rows: what it returned to the program, with the axis of contexts; of rewards their linear predictors.
        design: of its contexts.
        standardised: whether its coefficients are those of standardised columns.
        outcomes: what each column of coefficients is of, in words.
        fixed: the reference, the order or the event, in words: with a prior the rows depend on it; of rewards "".
        by: the factors with coefficients of their own.
        prior: of the coefficients, broadcast to [p, K]; None: it is shrunk, by hyperparameters.
        order: of sticks: the outcome of each, and the last one.
        possible: Bool[S A O], outcomes that the space allows; of rewards None.
        group: Int[C], the group of each context; None: there is none.
        num_groups: G.
        reference: Int[S], of a softmax: the outcome in each state whose predictor is zero; None: another law.
    """

    kind: str
    name: str
    rows: AnyArray
    design: Design
    standardised: bool
    outcomes: tuple[str, ...]
    fixed: str
    by: tuple[str, ...]
    prior: dist.Distribution | None
    order: tuple[int, ...]
    possible: Bool[np.ndarray, "S A O"] | None
    group: Int[np.ndarray, " C"] | None
    num_groups: int
    reference: Int[np.ndarray, " S"] | None = None

    @property
    def sites(self) -> tuple[str, str, str]:
        """Names of the sites of coefficients, of the scales of the groups, and of the groups."""
        return f"{self.name}_coefficients", f"{self.name}_group_scale", f"{self.name}_group"


_met: ContextVar[list[RowLaw] | None] = ContextVar("_met", default=None)


@contextmanager
def row_laws() -> Iterator[list[RowLaw]]:
    """Keep a record of every row law that a program calls inside, where its rows have their shapes but no numbers.

    Returns:
        A context, with the list of records.
    """
    met: list[RowLaw] = []
    # A context variable: programs in other threads keep their own record.
    token = _met.set(met)
    try:
        yield met
    finally:
        _met.reset(token)


class Case(NamedTuple):
    """A space with contexts, whether it had them, and what all laws share."""

    space: ContextSpace
    plain: bool
    design: Design
    by: tuple[str, ...]
    standardised: bool
    group: Int[np.ndarray, " C"] | None
    num_groups: int
    name: str

    @property
    def columns(self) -> Float[np.ndarray, "C S A p"]:
        """The columns that the coefficients are of."""
        return self.design.standardised if self.standardised else self.design.values


def logit_rows(
    space: StateActionSpace,
    terms: str,
    *,
    reference: Hashable = STAY,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> Float[Array, "... S A O"]:
    """Multinomial logit rows on covariates: P(k) proportional to exp(eta_k), eta of the reference zero.

    With a prior the rows depend on the reference. Sites: `rows_coefficients` [p K], K outcomes but the reference; with
    a group `rows_group_scale` [K] and `rows_group` [G K], non-centred; with `shrink` those of the shrinkage.

    Args:
        space: of the rows, with contexts or without.
        terms: formula of the columns (see `bayes_mdp.mdp.design`): "age + frail + action".
        reference: the outcome whose predictor is zero: its label, "end", or "stay": the state itself.
        coefficients: prior, broadcast to [p, K]; None: Normal(0, 2.5).
        options: which states or groups have coefficients of their own, shrinkage, scales (see `RegressionOptions`).

    Returns:
        Float[C S A O]; [S A O] of a space without contexts.

    Raises:
        ValueError: a reference that is no outcome, or impossible in some row; a formula, a group or a prior that does
            not fit; a space that lists successors. TypeError: another type.

    Example:
        >>> space = bm.StateActionSpace(2, 2, states=("well", "ill"), actions=("wait", "treat"))
        >>> def prior(space):
        ...     return bm.models.MDPSpec(bm.models.logit_rows(space, "state + action"), np.zeros((2, 2)))
        >>> bm.explain(prior, space).route
        'nuts'
    """
    case = read_case(space, terms, options, ROWS)
    outcomes = case.space.outcome_names
    stays = isinstance(reference, str) and reference == STAY and STAY not in outcomes
    # "stay": the reference of a row is its own state.
    reference_index = (
        np.arange(case.space.n_states) if stays else np.full(case.space.n_states, _place(reference, outcomes))
    )
    possible = _possible(case.space)
    _refuse_reference(case.space, reference_index, possible)
    # [S O], which outcome of each state has no coefficients of its own.
    is_reference = np.arange(len(outcomes)) == reference_index[:, None]
    # An outcome that is possible nowhere but as a reference gets no column.
    free_places = np.flatnonzero((possible & ~is_reference[:, None, :]).any((0, 1)))
    words = tuple(str(outcomes[k]) for k in free_places)
    eta, prior = predictors(case, words, coefficients, options.shrink)
    # Columns back in the order of outcomes; the reference has a predictor of zero, what is impossible no exponential.
    full = jnp.zeros((*eta.shape[:-1], len(outcomes))).at[..., free_places].set(eta)
    full = jnp.where(is_reference[:, None, :], 0.0, full)
    rows = jax.nn.softmax(jnp.where(possible, full, -jnp.inf), -1)
    detail = f"reference {reference!r}"
    return keep_law("logit", case, rows, words, detail, prior, (), possible, reference_index)


def stick_rows(
    space: StateActionSpace,
    terms: str,
    *,
    order: Sequence[Hashable] | None = None,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> Float[Array, "... S A O"]:
    """Stick-breaking rows on covariates, one logit after the other: P(k) = sig(eta_k) prod_{j < k} (1 - sig(eta_j)).

    Another model than `logit_rows`, whose rows depend on the order; with normal coefficients its posterior can be drawn
    by Polya-Gamma variables (`method="gibbs"`) [PG13]. Sites: `rows_coefficients` [p K], K outcomes but the last;
    groups as in `logit_rows`.

    Args:
        space: of the rows, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.
        order: all outcomes by label, as they are asked for one after the other; None: in the order of the space.

    Returns:
        Float[C S A O]; [S A O] of a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`; an order that does not have each outcome once.

    Example:
        >>> space = bm.StateActionSpace(3, 1)
        >>> rows = lambda: bm.models.stick_rows(space, "state", order=[2, 0, 1])
        >>> numpyro = __import__("numpyro")
        >>> numpyro.handlers.seed(rows, 0)().shape
        (3, 1, 3)
    """
    case = read_case(space, terms, options, ROWS)
    outcomes = case.space.outcome_names
    listed = list(outcomes) if order is None else list(order)
    if sorted(map(str, listed)) != sorted(map(str, outcomes)) or len(listed) != len(outcomes):
        raise ValueError(f"order is {listed}, expected each outcome once: {label_list(outcomes)}")
    places = np.array([_place(label, outcomes) for label in listed])
    possible = _possible(case.space)
    words = tuple(str(outcomes[k]) for k in places[:-1])
    eta, prior = predictors(case, words, coefficients, options.shrink)
    possible_in_order = possible[..., places]
    # The last outcome that is possible takes what is left; one that is impossible is never chosen.
    # The first possible one from the end.
    last = possible_in_order.shape[-1] - 1 - possible_in_order[..., ::-1].argmax(-1)
    is_last = np.arange(possible_in_order.shape[-1]) == last[..., None]
    chosen = jnp.concatenate([jax.nn.sigmoid(eta), jnp.ones((*eta.shape[:-1], 1))], -1)
    chosen = jnp.where(is_last, 1.0, jnp.where(possible_in_order, chosen, 0.0))
    # 1 - sig(eta) = sig(-eta), without cancellation.
    passed = jnp.concatenate([jax.nn.sigmoid(-eta), jnp.zeros((*eta.shape[:-1], 1))], -1)
    passed = jnp.where(is_last, 0.0, jnp.where(possible_in_order, passed, 1.0))
    # prod_{j <= k} (1 - sig(eta_j)), and shifted by one place that of j < k.
    left = jnp.cumprod(passed, -1)
    before = jnp.concatenate([jnp.ones((*left.shape[:-1], 1)), left[..., :-1]], -1)
    # Back to the order of the space.
    rows = (chosen * before)[..., np.argsort(places)]
    detail = f"order {', '.join(str(outcomes[k]) for k in places)}"
    return keep_law("stick", case, rows, words, detail, prior, tuple(map(int, places)), possible)


def ordinal_rows(
    space: StateActionSpace,
    terms: str,
    *,
    outcomes: Sequence[Hashable] | None = None,
    link: Literal["logit", "probit"] = "logit",
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> Float[Array, "... S A O"]:
    """P(outcome <= k) = F(cut_k - eta), with increasing cuts: outcomes that have an order, such as grades.

    Sites: `rows_coefficients` [p 1], `rows_cuts` [m - 1] for m outcomes, ~ an ordered transform of Normal(0, 2.5);
    groups as in `logit_rows`. The design has no constant, which the cuts are, and is not centred.

    Args:
        space: of the rows, with contexts or without.
        terms, coefficients, options: as of `logit_rows`; without `by`, for the cuts are those of all states.
        outcomes: labels in order, the others have probability zero (see `hazard_rows`); None: all states, not the end.
        link: F, "logit" (logistic) or "probit" (normal).

    Returns:
        Float[C S A O]; [S A O] of a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`; fewer than two outcomes, one twice; a column that is constant, or that
            the cuts and the columns before it make up.

    Example:
        >>> space = bm.StateActionSpace(4, 2, ends=True)
        >>> rows = lambda: bm.models.ordinal_rows(space, "state + action")
        >>> numpyro = __import__("numpyro")
        >>> float(numpyro.handlers.seed(rows, 0)()[..., -1].sum())
        0.0
    """
    check_name("link", link, ORDERED)
    case = read_case(space, terms, options, ROWS, centred=False)
    known = case.space.outcome_names
    listed = list(case.space.state_names) if outcomes is None else list(outcomes)
    places = [_place(label, known) for label in listed]
    if len(places) < 2 or len(set(places)) < len(places):
        raise ValueError(f"outcomes is {listed}, expected at least two labels, each once")
    eta, prior = predictors(case, ("all",), coefficients, options.shrink)
    # As many cuts as outcomes, less one, in increasing order.
    base = CUTS.expand([len(places) - 1]).to_event(1)
    cuts = jnp.asarray(numpyro.sample(f"{case.name}_cuts", dist.TransformedDistribution(base, OrderedTransform())))
    # The edges of outcome k: cut_{k - 1} - eta and cut_k - eta.
    lower, upper = _edges(cuts - eta)
    # F(b) - F(a) = F(-a) - F(-b): where both are close to one the other side has the digits.
    cumulative = jax.nn.sigmoid if link == "logit" else jax.scipy.special.ndtr
    flip = lower > 0
    low, high = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    mass = cumulative(high) - cumulative(low)
    possible = _possible(case.space)
    # Outcomes that are not listed have probability zero.
    rows = jnp.zeros((*mass.shape[:-1], len(known))).at[..., np.array(places)].set(mass)
    rows = jnp.where(possible, rows, 0.0)
    rows = rows / rows.sum(-1, keepdims=True) if not possible[..., places].all() else rows
    return keep_law("ordinal", case, rows, ("all",), f"order {', '.join(map(str, listed))}", prior, (), possible)


def hazard_rows(
    space: StateActionSpace,
    terms: str,
    to: Float[AnyArray, "..."],
    *,
    event: Hashable = LEAVE,
    link: Literal["cloglog", "logit"] = "cloglog",
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> Float[Array, "... S A O"]:
    """One event has the hazard h = 1 - exp(-exp(eta)); the other outcomes are shared out by another law.

    event="leave": the state is left with probability h, to where by `to`. An outcome as event ("end", a failure): it
    has probability h, and the others 1 - h, by `to`. Sites: `hazard_coefficients` [p 1], groups as in `logit_rows`.

    Args:
        space: of the rows, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.
        to: rows [C S A O], or what broadcasts to them, of `logit_rows`, `ordinal_rows` or another law, whose
            probability of the event (of staying, where the event is to leave) is left out.
        event: "leave", or the label of an outcome.
        link: "cloglog" (proportional hazards) or "logit".

    Returns:
        Float[C S A O]; [S A O] of a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`; rows of another shape.

    Example:
        >>> space = bm.StateActionSpace(3, 1, ends=True)
        >>> rows = lambda: bm.models.hazard_rows(space, "state", bm.models.ordinal_rows(space, "state"), event="end")
        >>> numpyro = __import__("numpyro")
        >>> print(numpyro.handlers.seed(rows, 0)().sum(-1).round(3).ravel())
        [1. 1. 1.]
    """
    check_name("link", link, LINKS)
    case = read_case(space, terms, options, "hazard")
    outcomes = case.space.outcome_names
    full = (case.space.n_contexts, *case.space.shape, len(outcomes))
    if not broadcasts_to(jnp.shape(to), full):
        raise ValueError(f"to has shape {jnp.shape(to)}, expected rows [contexts, states, actions, outcomes], {full}")
    leaves = isinstance(event, str) and event == LEAVE and LEAVE not in outcomes
    if leaves:
        # The place with a probability of its own is the state itself.
        is_event = np.eye(case.space.n_states, len(outcomes), dtype=bool)[:, None, :]
    else:
        is_event = (np.arange(len(outcomes)) == _place(event, outcomes))[None, None, :]
    eta, prior = predictors(case, (str(event),), coefficients, options.shrink)
    if link == "cloglog":
        # log(1 - h) = -exp(eta); h by expm1, so that small hazards keep their digits.
        happens, not_yet = -jnp.expm1(-jnp.exp(eta)), jnp.exp(-jnp.exp(eta))
    else:
        happens, not_yet = jax.nn.sigmoid(eta), jax.nn.sigmoid(-eta)
    # What `to` says of the event is left out, and the rest is normalised.
    rest = jnp.where(is_event, 0.0, jnp.broadcast_to(jnp.asarray(to), full))
    rest = rest / rest.sum(-1, keepdims=True)
    # To leave is to go to the other places; an outcome as event is its own place.
    moved, stay_prob = (happens, not_yet) if leaves else (not_yet, happens)
    rows = jnp.where(is_event, stay_prob, moved * rest)
    possible = _possible(case.space)
    return keep_law("hazard", case, rows, (str(event),), f"event {event!r}", prior, (), possible)


def read_case(
    space: StateActionSpace,
    terms: str,
    options: RegressionOptions,
    name: str,
    *,
    centred: bool = True,
    of_rows: bool = True,
) -> Case:
    """The design of a law in a space; refused where they do not fit.

    Args:
        space: of the law, with contexts or without.
        terms, options: as of `logit_rows`.
        name: that the names of the sites begin with, where the options have none.
        centred: whether the design may have a constant, with which its columns are centred.
        of_rows: whether the law is one of rows, which needs all states as outcomes.

    Raises:
        ValueError, TypeError: as `logit_rows`.
    """
    check_space(space)
    check_type("options", options, RegressionOptions, "RegressionOptions")
    group = options.group
    if not centred and options.by is not None:
        raise ValueError(f"by is {options.by!r}, expected None of a law whose cuts all states share (or 'state:age')")
    if space.horizon is not None:
        raise ValueError("space has a horizon, expected a law that is the same at every step")
    if of_rows and space.successors is not None:
        raise ValueError("space lists successors, expected one whose rows are over all states")
    plain = not isinstance(space, ContextSpace)
    whole = _without_covariates(space) if plain else space
    # The design, its scale learnt from the whole log.
    formula = whole.formula(terms, options.by)
    # Cuts are a constant too: columns that make one up with each other are refused with it, before it is left out.
    scale = whole.contexts.scale(formula if centred else formula._replace(constant=True), whole.layout)
    if not centred:
        formula = formula._replace(constant=False)
        scale = whole.contexts.scale(formula, whole.layout)
    design = design_of(formula, whole.contexts.covariates, whole.layout, scale, whole.n_contexts)
    places, number = None, 0
    if group is not None:
        column = whole.contexts.group
        if column is None or column.name != group:
            group_words = "none was" if column is None else f"that is {column.name!r}"
            raise ValueError(f"group is {group!r}, expected the column that read_log(group=) was given; {group_words}")
        assert column.levels is not None
        # Of each context the number of its group.
        places, number = np.asarray(column.values), len(column.levels)
    return Case(whole, plain, design, formula.by, options.standardise, places, number, options.name or name)


def _without_covariates(space: StateActionSpace) -> ContextSpace:
    """A space without contexts as one with a single one, about which nothing is known."""
    # One context of weight one: its axis goes again in `keep_law`.
    known = {x: getattr(space, x) for x in ("ends", "states", "actions", "legal", "support")}
    return ContextSpace(space.n_states, space.n_actions, contexts=Contexts((), np.ones(1)), **known)


def _place(label: Hashable, outcomes: Sequence[Hashable]) -> int:
    if label not in outcomes:
        raise ValueError(f"{label!r} is no outcome, expected one of {label_list(outcomes)}")
    return list(outcomes).index(label)


def _possible(space: ContextSpace) -> Bool[np.ndarray, "S A O"]:
    """Outcomes that the space allows; all of an illegal pair, whose row is not looked at."""
    full = (*space.shape, space.n_outcomes)
    possible = np.ones(full, bool) if space.support is None else np.array(np.broadcast_to(space.support, full))
    possible[~possible.any(-1)] = True
    return possible


def _refuse_reference(space: ContextSpace, at: Int[np.ndarray, " S"], possible: Bool[np.ndarray, "S A O"]) -> None:
    # Only legal pairs have to have it.
    legal = np.ones(space.shape, bool) if space.legal is None else np.asarray(space.legal)
    masked = ~np.take_along_axis(possible, at[:, None, None], -1)[..., 0] & legal
    row = first_index(masked)
    if row is not None:
        state, action = row
        raise ValueError(
            f"reference is outcome {space.outcome_names[at[state]]!r} in state {space.state_names[state]!r}, action "
            f"{space.action_names[action]!r}, where the support of the space rules it out, expected a possible one"
        )


def predictors(
    case: Case, words: Sequence[str], coefficients: dist.Distribution | None, shrink: str | None
) -> tuple[Float[Array, "C S A K"], dist.Distribution | None]:
    """Linear predictors of K columns of coefficients, and the prior of these where it has no hyperparameters.

    Args:
        case: the design of the law.
        words: what each column of coefficients is of.
        coefficients: prior; None: Normal(0, 2.5).
        shrink: as of `RegressionOptions`.

    Raises:
        ValueError, TypeError: a prior that does not fit the columns.
    """
    size, number, name = len(case.design.names), len(words), case.name
    prior: dist.Distribution = dist.Normal(0.0, 2.5) if coefficients is None else coefficients
    check_type("coefficients", prior, dist.Distribution, "a NumPyro distribution")
    if prior.event_shape or not broadcasts_to(prior.batch_shape, (size, number)):
        raise ValueError(
            f"coefficients has batch shape {prior.batch_shape}, expected a law of one number that broadcasts to "
            f"({size}, {number}): {', '.join(case.design.names)}"
        )
    # One column of coefficients an outcome, one row a column of the design.
    whole = prior.expand((size, number))
    if shrink is None:
        b = jnp.asarray(numpyro.sample(f"{name}_coefficients", whole.to_event(2)))
    else:
        b, whole = _shrink_together(case, shrink, prior, number), None
    if _met.get() is None:
        # A product over a small axis, in the width of the sites.
        eta = einsum("csap,pk->csak", jnp.asarray(case.columns, b.dtype), b)
    else:
        # Who keeps a record looks at shapes alone: a million contexts need no array of their columns.
        eta = jnp.broadcast_to(b.sum(0), (case.space.n_contexts, *case.space.shape, number))
    if case.group is not None:
        # Non-centred: the intercept is scale times a unit normal [G K].
        scale = jnp.asarray(numpyro.sample(f"{name}_group_scale", dist.HalfNormal(1.0).expand([number]).to_event(1)))
        group_prior = dist.Normal(0.0, 1.0).expand([case.num_groups, number]).to_event(2)
        intercepts = scale * jnp.asarray(numpyro.sample(f"{name}_group", group_prior))
        eta = eta + intercepts[case.group][:, None, None, :]
    return eta, whole


def _shrink_together(case: Case, shrink: str, prior: dist.Distribution, number: int) -> Float[Array, "p K"]:
    """Coefficients that are shrunk together, but those of constants, which keep their prior."""
    name, size = case.name, len(case.design.names)
    # A constant is no effect: to shrink it would pull all rows to the reference.
    constant = np.array([column == CONSTANT or column.startswith(CONSTANT + OF) for column in case.design.names])
    plain = jnp.asarray(numpyro.sample(f"{name}_constants", prior.expand((size, number)).to_event(2)))
    # Non-centred: unit normals, scaled below.
    unit = jnp.asarray(numpyro.sample(f"{name}_unit", dist.Normal(0.0, 1.0).expand([size, number]).to_event(2)))
    if shrink == "normal":
        scale = jnp.asarray(numpyro.sample(f"{name}_shrink", dist.HalfNormal(1.0)))
        spread = scale * jnp.ones((size, number))
    else:
        # lambda~ = c lambda / sqrt(c^2 + tau^2 lambda^2): a large coefficient has the width of the slab.
        overall = jnp.asarray(numpyro.sample(f"{name}_shrink", dist.HalfCauchy(1.0)))
        local = jnp.asarray(numpyro.sample(f"{name}_local", dist.HalfCauchy(1.0).expand([size, number]).to_event(2)))
        # slab = c^2 ~ InverseGamma(nu / 2, nu s^2 / 2): a Student-t tail of nu degrees of freedom and scale s.
        half = SLAB_DEGREES / 2
        slab = jnp.asarray(numpyro.sample(f"{name}_slab", dist.InverseGamma(half, half * SLAB**2)))
        spread = overall * local * jnp.sqrt(slab / (slab + (overall * local) ** 2))
    # Both are drawn for every column, and one is used.
    return jnp.where(constant[:, None], plain, spread * unit)


def _edges(cuts: Float[Array, "... m"]) -> tuple[Float[Array, "... O"], Float[Array, "... O"]]:
    """The lower and the upper edge of every outcome."""
    infinite = jnp.full((*cuts.shape[:-1], 1), jnp.inf)
    return jnp.concatenate([-infinite, cuts], -1), jnp.concatenate([cuts, infinite], -1)


def keep_law(
    kind: str,
    case: Case,
    values: Float[Array, "C *cells"],
    words: tuple[str, ...],
    told: str,
    prior: dist.Distribution | None,
    order: tuple[int, ...],
    possible: Bool[np.ndarray, "S A O"] | None,
    reference: Int[np.ndarray, " S"] | None = None,
) -> Float[Array, "..."]:
    """What the program gets of a law, with a record where somebody keeps it.

    Args:
        kind: of the law.
        case: its design.
        values: [C S A O], rows; or [C S A], linear predictors of rewards.
        words, told, prior, order, possible, reference: of the record (see `RowLaw`).
    """
    # The axis of contexts stays where the space has it.
    returned, met = values[0] if case.plain else values, _met.get()
    if met is not None:
        met.append(
            RowLaw(
                kind,
                case.name,
                returned,
                case.design,
                case.standardised,
                words,
                told,
                case.by,
                prior,
                order,
                possible,
                case.group,
                case.num_groups,
                reference,
            )
        )
    return returned


REWARD = "reward"
COLUMNS = (REWARD,)
"""What each column of coefficients is of: there is one, of the reward."""


def linear_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution,
    noise: float | dist.Distribution,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Normal:
    """A reward ~ Normal(eta, noise): linear regression.

    Coefficients and noise have the unit of the rewards, which no default can know. With a number as noise, normal
    coefficients, and rows in closed form the posterior is exact (a conjugate linear regression). Sites:
    `reward_coefficients` [p 1], `reward_noise` where noise has a prior; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, options: as of `logit_rows`.
        coefficients: prior, broadcast to [p, 1], in units of the reward (for one standard deviation of a column).
        noise: standard deviation of one reward about its mean: a number, or its prior, a law of one positive number.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`; a noise that is not positive.

    Example:
        >>> import numpyro.distributions as dist
        >>> space = bm.StateActionSpace(3, 2)
        >>> def prior(space):
        ...     reward = bm.models.linear_rewards(space, "state + action", coefficients=dist.Normal(0, 10), noise=1.0)
        ...     return bm.models.MDPSpec(np.full((3, 2, 3), 1 / 3), reward)
        >>> bm.explain(prior, space).route
        'exact'
    """
    check_type("coefficients", coefficients, dist.Distribution, "a NumPyro distribution, in units of the reward")
    if isinstance(noise, dist.Distribution):
        law: Any = noise
        if law.event_shape or law.batch_shape or law.support.is_discrete or not _is_positive(law.support):
            raise ValueError(
                f"noise is a {type(law).__name__} with batch shape {law.batch_shape}, expected a law of one positive "
                "number, such as dist.HalfNormal(1.0)"
            )
    else:
        check_number("noise", noise, lambda x: (x > 0) & np.isfinite(x), "a positive number, or its prior")
    # One predictor a pair; all laws below put their own link on it.
    eta = _predictor("linear", space, terms, coefficients, options)
    scale = numpyro.sample(f"{options.name or REWARD}_noise", noise) if isinstance(noise, dist.Distribution) else noise
    return dist.Normal(eta, jnp.asarray(scale, eta.dtype))


def logistic_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Distribution:
    """A reward is 1 with probability 1 / (1 + exp(-eta)), else 0: logistic regression.

    Sites: `reward_coefficients` [p 1]; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`.

    Example:
        >>> space = bm.StateActionSpace(3, 2)
        >>> import numpyro
        >>> numpyro.handlers.seed(lambda: bm.models.logistic_rewards(space, "state:action"), 0)().batch_shape
        (3, 2)
    """
    # The logit link, inside the law: no probability is rounded to one.
    return dist.Bernoulli(logits=_predictor("logistic", space, terms, coefficients, options))


def poisson_rewards(
    space: StateActionSpace,
    terms: str,
    *,
    coefficients: dist.Distribution | None = None,
    options: RegressionOptions = RegressionOptions(),
) -> dist.Poisson:
    """A reward is a count ~ Poisson(exp(eta)): log-linear regression of visits, falls, days in bed.

    Sites: `reward_coefficients` [p 1]; groups as in `logit_rows`.

    Args:
        space: of the rewards, with contexts or without.
        terms, coefficients, options: as of `logit_rows`.

    Returns:
        A law with batch shape [C S A]; [S A] in a space without contexts.

    Raises:
        ValueError, TypeError: as `logit_rows`.

    Example:
        >>> space = bm.StateActionSpace(3, 2)
        >>> import numpyro
        >>> numpyro.handlers.seed(lambda: bm.models.poisson_rewards(space, "state"), 0)().batch_shape
        (3, 2)
    """
    # The log link: coefficients multiply the rate.
    return dist.Poisson(jnp.exp(_predictor("poisson", space, terms, coefficients, options)))


def _predictor(
    kind: str,
    space: StateActionSpace,
    terms: str,
    coefficients: dist.Distribution | None,
    options: RegressionOptions,
) -> Float[Array, "*C S A"]:
    """The linear predictor of a reward law, which is recorded by it."""
    case = read_case(space, terms, options, REWARD, of_rows=False)
    eta, prior = predictors(case, COLUMNS, coefficients, options.shrink)
    # One column of coefficients; its axis goes.
    return keep_law(kind, case, eta[..., 0], COLUMNS, "", prior, (), None)


def _is_positive(support: Any) -> bool:
    """Whether a support holds positive numbers alone, but perhaps zero."""
    # The two that have no bound to ask for.
    if support in (constraints.positive, constraints.nonnegative):
        return True
    low = getattr(support, "lower_bound", None)
    return low is not None and bool(np.all(np.asarray(low) >= 0))
