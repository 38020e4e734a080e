"""What is kept of a `ContextPosterior` in a file: its draws in the contexts of the log, without the program.

A posterior that was read has `at` for the contexts of the log, values, subgroups and coefficients, as before. Rows of a
new context take the program, which no file holds: infer again for these.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.inference.context_posterior import ContextPosterior, Tables
from bayes_mdp.inference.integrals.mode_draws import ModeDraws
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.contexts import Column, Contexts, ContextSpace
from bayes_mdp.mdp.design import Design, Formula, Layout
from bayes_mdp.models.regression_rows import RowLaw


@dataclass(frozen=True, eq=False)
class StoredColumn:
    """A column of covariates (see `bayes_mdp.mdp.contexts.Column`)."""

    name: str
    values: Float[np.ndarray, " C"] | Int[np.ndarray, " C"]
    levels: tuple[Hashable, ...] | None
    kind: str


@dataclass(frozen=True, eq=False)
class StoredLaw:
    """What coefficients are of: the record of a law without its columns (see `RowLaw`, `Design`)."""

    kind: str
    name: str
    columns: tuple[str, ...]
    mean: Float[np.ndarray, " p"]
    spread: Float[np.ndarray, " p"]
    standardised: bool
    outcomes: tuple[str, ...]
    fixed: str
    by: tuple[str, ...]
    of_rows: bool


@dataclass(frozen=True, eq=False)
class StoredContexts:
    """A `ContextPosterior` without its program.

    Args:
        space: of the MDP in one context.
        columns: the covariates of its contexts.
        transitions, subjects: Float64[C], of the log in each context.
        process: what moves the covariates that vary.
        method: how it was inferred.
        num_chains: behind the draws.
        counts: Float64[C S A O], of the log.
        rows: Float64[N C S A O]; None: each context is a belief of its own.
        reward: Float64[N C S A].
        outcome_reward: Float64[C S A O], mean reward of every outcome; None: rewards do not depend on it.
        sites: {site: [N ...]}, draws of the latent sites.
        parts: the posterior of each context; None: contexts share their draws.
        laws: what the coefficients are of.
        weights: log evidence by weights and by curvature, Pareto k, what the draws are worth, their number; None: the
            draws were not weighted.
        doubts: problems to know of.
        outcomes: name -> posterior of an outcome learnt beside the reward.
        worth_each: how many independent draws each draw is worth at most.
    """

    space: StateActionSpace
    columns: tuple[StoredColumn, ...]
    transitions: Float[np.ndarray, " C"]
    subjects: Float[np.ndarray, " C"] | None
    process: str | None
    method: str
    num_chains: int
    counts: Float[np.ndarray, "C S A O"] | None
    rows: Float[np.ndarray, "N C S A O"] | None
    reward: Float[np.ndarray, "N C S A"] | None
    outcome_reward: Float[np.ndarray, "C S A O"] | None
    sites: dict[str, Any] | None
    parts: tuple[Any, ...] | None
    laws: tuple[StoredLaw, ...]
    weights: tuple[float, ...] | None
    doubts: tuple[str, ...]
    outcomes: "dict[str, StoredContexts] | None" = None
    worth_each: float = 1.0


RECORDS = (StoredColumn, StoredLaw, StoredContexts)


def to_store(posterior: ContextPosterior) -> StoredContexts:
    """What a file keeps of a posterior in contexts.

    Args:
        posterior: as `infer` returns it; beliefs by context are worked out for every context.
    """
    contexts, number = posterior.contexts, len(posterior.contexts)
    # A belief for each context, or draws that they have in common.
    shared = posterior.parts is None
    # Beliefs by context are stored one by one, common draws as tables over all contexts.
    rows, reward = posterior.tables if shared else (None, None)
    laplace = posterior.laplace
    return StoredContexts(
        posterior.space.alone,
        tuple(StoredColumn(*column) for column in contexts.columns),
        # How often each context was seen, which tables and subgroups show.
        contexts.transitions,
        contexts.subjects,
        contexts.process,
        posterior.method,
        posterior.num_chains,
        posterior.counts,
        rows,
        reward,
        # Mean rewards by outcome, where they depend on it.
        posterior.outcome_reward(np.arange(number)),
        None if posterior.sites is None else {name: np.asarray(x) for name, x in posterior.sites.items()},
        None if shared else tuple(posterior.at(c) for c in range(number)),
        tuple(_law_record(law) for law in posterior.laws),
        # Five numbers of the approximation about the mode; its draws are in the tables.
        None if laplace is None else tuple(float(x) for x in laplace[3:]),
        posterior.doubts,
        # Outcomes beside the reward are posteriors of their own.
        {name: to_store(outcome) for name, outcome in posterior.paired.items()} or None,
        float(posterior.worth_each),
    )


def from_store(stored: StoredContexts) -> ContextPosterior:
    """The posterior that a file keeps.

    Args:
        stored: what was kept.

    Raises:
        ValueError: its parts do not fit each other.
    """
    contexts = Contexts(
        [Column(c.name, c.values, c.levels, c.kind) for c in stored.columns],
        stored.transitions,
        stored.subjects,
        stored.process,
    )
    space = ContextSpace.over(stored.space, contexts)
    # Every array is held against the sizes of the space before it is believed.
    full = (len(contexts), *space.shape, space.n_outcomes)
    for column in contexts.columns:
        _check(f"covariate {column.name!r}", np.shape(column.values), full[:1])
    parts = stored.parts
    if parts is not None:
        _check("parts", (len(parts),), full[:1])
    elif stored.rows is None or stored.reward is None:
        raise ValueError("it has neither draws nor a posterior of each context")
    else:
        # Draws first, then contexts.
        _check("rows", stored.rows.shape[1:], full)
        _check("reward", stored.reward.shape, (len(stored.rows), *full[:-1]))
    # The program is not there: new contexts are refused when they are asked for.
    return ContextPosterior(
        space,
        None,
        stored.method,
        stored.counts,
        stored.sites,
        None if parts is None else _ByPlace(contexts, parts),
        None if stored.rows is None or stored.reward is None else Tables(stored.rows, stored.reward),
        laws=tuple(map(_law, stored.laws)),
        laplace=None if stored.weights is None else _mode_draws(*stored.weights),
        doubts=tuple(stored.doubts),
        num_chains=stored.num_chains,
        mean_by_outcome=stored.outcome_reward,
        outcomes={name: from_store(outcome) for name, outcome in (stored.outcomes or {}).items()},
        worth_each=stored.worth_each,
    )


class _ByPlace:
    """The posteriors of contexts that are beliefs of their own, as they were kept."""

    def __init__(self, contexts: Contexts, parts: tuple[Any, ...]) -> None:
        self._contexts, self._parts = contexts, parts

    def __call__(self, one: Contexts) -> Any:
        place = self._contexts.place(one)
        if place is None:
            raise ValueError(
                f"the log does not have the context {one.label(0)}, expected one that it has: a posterior that was "
                "read from a file has no program for others"
            )
        return self._parts[place]


def _mode_draws(evidence: float, by_curvature: float, pareto_k: float, effective: float, proposals: float) -> ModeDraws:
    # Its points are not needed again: what was found out about them is.
    none = np.zeros((0, 0))
    return ModeDraws(none, np.zeros(0), none, evidence, by_curvature, pareto_k, effective, int(proposals))


def _law_record(law: RowLaw) -> StoredLaw:
    design = law.design
    about = (law.kind, law.name, tuple(design.names), design.mean, design.spread)
    return StoredLaw(*about, law.standardised, law.outcomes, law.fixed, law.by, law.of_rows)


def _law(stored: StoredLaw) -> RowLaw:
    # Columns are known by name and scale alone: enough for coefficients.
    none = np.zeros((0, 0, 0, len(stored.columns)))
    # A formula without terms: designs of new contexts cannot be built.
    design = Design(Formula(False, (), ()), {}, Layout((), ()), 0, stored.columns, stored.mean, stored.spread)
    possible = np.zeros((0, 0, 0), bool) if stored.of_rows else None
    about = (stored.kind, stored.name, none, design, stored.standardised, stored.outcomes, stored.fixed, stored.by)
    return RowLaw(*about, None, (), possible, None, 0)


def _check(what: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(expected):
        raise ValueError(f"its {what} have shape {tuple(shape)}, expected {tuple(expected)}")
