"""Values for whom: of each context, of subgroups, standardised over a population; what it is worth to know a covariate.

J_c is the value of a policy in context c. In every draw of the posterior all contexts have the same parameters, so that

    J = sum_c w_c J_c

is a value draw by draw: the Bayesian g-formula for covariates that are fixed. The weights w are those of a
*population*. Rows of a log are no population, since who lives long has many of them: "log" means its subjects, each at
the first row.

A policy may depend on the context: an array with a first axis of contexts, or a function of the pattern.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bayes_mdp.inference.context_posterior import ContextDraws, ContextPosterior, contexts_of_log
from bayes_mdp.inference.pair_draws import summarise_draws
from bayes_mdp.mdp import MDP, Episodic, Log, Objective, SparseMDP, StateActionSpace
from bayes_mdp.mdp.abilities import InContexts
from bayes_mdp.mdp.by_label import ProductLabel
from bayes_mdp.mdp.contexts import VARYING, Contexts, ContextSpace, LoggedContexts
from bayes_mdp.mdp.labelled_tables import refuse_labels
from bayes_mdp.mdp.labels import CountedPolicy, frequencies
from bayes_mdp.mdp.space import mdps_of_tables
from bayes_mdp.random.host_generator import host_generator
from bayes_mdp.utils.layout import Section, Table, as_html, as_text
from bayes_mdp.utils.messages import amount, amounts, see
from bayes_mdp.utils.typing import ArrayLike, InitialLike
from bayes_mdp.utils.validation import (
    as_real,
    check_not_negative,
    check_probability_rows,
    check_shape,
    check_type,
    first_index,
)

if TYPE_CHECKING:
    import pandas as pd

    from bayes_mdp.decisions.outcomes import OutcomeValue
    from bayes_mdp.decisions.policy_evaluation import PolicyValue

PAGE = "how-to/covariates"
MOST_POLICIES = 4096
"""Deterministic policies that are tried one by one."""


@runtime_checkable
class Evaluate(Protocol):
    """`policy_values`: several policies in common draws of an ordinary posterior."""

    def __call__(
        self,
        key: PRNGKeyArray,
        posterior: Any,
        policies: Mapping[str, Any],
        objective: Objective,
        initial: InitialLike | None,
        num_draws: int,
    ) -> "dict[str, PolicyValue]":
        """Name -> value."""
        ...


@dataclass(frozen=True, eq=False)
class Weights:
    """A population over contexts.

    Args:
        posterior: whose contexts are meant: that of a caller, or of another table.
        counts: Float64[C], people in each context; weights where they are no counts.
        subjects: whether they are numbers of people.
    """

    posterior: InContexts
    counts: Float[np.ndarray, " C"]
    subjects: bool

    @property
    def shares(self) -> Float[np.ndarray, " C"]:
        """Weights that add up to one."""
        return self.counts / self.counts.sum()

    def draws(self, key: PRNGKeyArray, number: int) -> Float[np.ndarray, "N C"]:
        """Weights ~ Dirichlet(people in each context): what the population that they came from may be.

        Args:
            key: of the draws.
            number: N.

        Raises:
            ValueError: they are no numbers of people.
        """
        if not self.subjects:
            raise ValueError(
                "population_uncertainty is True with weights, expected population='log' or a table of people, whose "
                "number says how sure the weights are"
            )
        present = self.counts > 0
        drawn = np.zeros((number, len(self.counts)))
        # Bayesian bootstrap over patterns: Dirichlet with the numbers of people.
        drawn[:, present] = host_generator(key).dirichlet(self.counts[present], number)
        return drawn


def read_population(posterior: InContexts, population: Any) -> Weights:
    """The weights of a population.

    Args:
        posterior: of contexts.
        population: "log", or None: the subjects of the log at their first row; a DataFrame of people with a column for
            each covariate, whose patterns may be new; or Float[C], a weight for each context.

    Raises:
        ValueError: the log has no column of subjects; a table or weights that do not fit. TypeError: another type.
    """
    import pandas as pd

    contexts = posterior.contexts
    if population is None or (isinstance(population, str) and population == "log"):
        if contexts.subjects is None:
            raise ValueError(
                "population is 'log', and the log was read without subject=, expected that column (rows are no people: "
                f"who lives long has many of them), a table of people, or weights {see(PAGE)}"
            )
        return Weights(posterior, contexts.subjects, True)
    if isinstance(population, pd.DataFrame):
        # Patterns of people as columns of numbers: equal ones are counted.
        people = contexts.read(population)
        stacked = np.stack([column.values.astype(np.float64) for column in people.columns])
        _, first, counts = np.unique(stacked, axis=1, return_index=True, return_counts=True)
        # In the order of their first person, so that weights and contexts match.
        return Weights(posterior.at(population.iloc[np.sort(first)]), counts[np.argsort(first)].astype(float), True)
    if isinstance(population, str):
        raise ValueError(f"population is {population!r}, expected 'log', a DataFrame of people, or weights of contexts")
    # Weights of contexts: of no known number of people.
    refuse_labels("population", population, "posterior.contexts")
    weights = as_real("population", population).astype(np.float64)
    check_shape("population", weights, (len(contexts),), "context")
    check_not_negative("population", weights)
    if weights.sum() <= 0:
        raise ValueError("population sums to 0, expected a positive weight for some context")
    return Weights(posterior, weights, False)


def policies_for(policy: Any, space: ContextSpace, objective: Objective) -> list[Any]:
    """The policy of every context, each as for an ordinary posterior.

    Args:
        policy: one for all (an array [*H S] or [*H S A], by label, a `Policy`); an array with a first axis of
            contexts, Int[C *H S] or Float[C *H S A]; or a function {covariate: value} -> the policy of such a subject.
        space: with the contexts.
        objective: whose steps it may depend on.

    Raises:
        ValueError: an array that could be read both ways.
    """
    number = space.n_contexts
    # Lists of labels are policies by label, not arrays.
    listed = isinstance(policy, (list, tuple))
    by_label = listed and bool(policy) and isinstance(policy[0], Mapping)
    if by_label or not (listed or isinstance(policy, np.ndarray | jax.Array)):
        # A function of the pattern is asked once for each context.
        if callable(policy) and not hasattr(policy, "log_prob"):
            labels = space.contexts.labels
            return [policy(dict(zip(label.names, label, strict=True))) for label in labels]
        return [policy] * number
    values = np.asarray(policy)
    # Integers are actions [S], floats probabilities [S A].
    alone = (space.n_states,) if np.issubdtype(values.dtype, np.integer) else space.shape
    steps = (objective.horizon, *alone) if isinstance(objective, Episodic) else alone
    # Shapes that fit both readings are refused: nothing is guessed.
    shared, by_context = values.shape in (alone, steps), values.shape in ((number, *alone), (number, *steps))
    if shared and by_context:
        raise ValueError(
            f"policy has shape {values.shape}, which could be of {number} contexts or of as many steps, expected both "
            "axes: (context, step, ...)"
        )
    if by_context:
        return list(values)
    return [policy] * number  # one that does not fit is refused where it is evaluated


def _refuse_moving(contexts: Contexts) -> None:
    """Refuse covariates that vary from row to row."""
    # Who moves between contexts has no value of one context.
    moving = [column.name for column in contexts.columns if column.kind == VARYING]
    if moving:
        remedy = (
            "posterior.along(table), the path step by step"
            if contexts.process == "known"
            else "bm.decisions.exogenous(mdps, moves), of the MDPs of its values"
        )
        raise ValueError(
            f"covariate {moving[0]!r} varies from row to row ({contexts.process}), so that no subject stays in one "
            f"context, expected {remedy} {see(PAGE)}"
        )


def values_in_contexts(
    evaluate: Evaluate,
    key: PRNGKeyArray,
    posterior: InContexts,
    policies: Mapping[str, Any],
    objective: Objective,
    initial: InitialLike | None,
    num_draws: int,
) -> "list[dict[str, PolicyValue]]":
    """The values of policies in every context, draw by draw in common where contexts share their parameters.

    Args:
        evaluate: `policy_values`.
        key: of the draws.
        posterior: of contexts.
        policies: name -> policy (see `policies_for`).
        objective: of the values.
        initial: distribution of the first state, the same in every context.
        num_draws: N, no more than the posterior has.

    Raises:
        ValueError: covariates that vary from row to row, of which no context is a whole life; as `policy_value`.
    """
    contexts, space = posterior.contexts, posterior.space
    _refuse_moving(contexts)
    tables = {name: policies_for(policy, space, objective) for name, policy in policies.items()}
    start = initial
    if isinstance(initial, Log):
        # Starts by label refer to the space of one context.
        start = space.alone.initial_probs(initial)
    # Contexts with common parameters use draw i in order, whatever the key; others are independent of each other.
    keys = [key] * len(contexts) if posterior.num_draws is not None else list(jax.random.split(key, len(contexts)))
    return [
        evaluate(
            keys[c],
            posterior.at(c),
            {n: policies_of_name[c] for n, policies_of_name in tables.items()},
            objective,
            start,
            num_draws,
        )
        for c in range(len(contexts))
    ]


@dataclass(frozen=True, eq=False)
class ValuesBy:
    """Values of one policy by subgroup (returned by `policy_value(by=)`); `print` shows a table.

    Args:
        by: the covariates that make the subgroups.
        values: {pattern: value}, in the order of the contexts.
        weights: {pattern: share of the population}.
    """

    by: tuple[str, ...]
    values: "Mapping[tuple[Hashable, ...], PolicyValue]"
    weights: Mapping[tuple[Hashable, ...], float]

    def __getitem__(self, pattern: Hashable) -> "PolicyValue":
        """The value of a subgroup, by its pattern: a tuple of values, or the value where there is one covariate."""
        return self.values[pattern if isinstance(pattern, tuple) else (pattern,)]

    def table(self) -> "pd.DataFrame":
        """A row for each subgroup: its pattern, share of the population, mean, sd, and 95 % interval."""
        import pandas as pd

        rows = [
            dict(zip(self.by, key, strict=True))
            | {"share": self.weights[key], "mean": value.mean, "sd": value.sd}
            | {"low": value.interval[0], "high": value.interval[1]}
            for key, value in self.values.items()
        ]
        return pd.DataFrame(rows)

    __str__ = as_text
    _repr_html_ = as_html

    def layout(self) -> Section:
        """The table."""
        rows = [
            (
                *map(str, key),
                f"{self.weights[key]:.3g}",
                amount(value.mean, 5),
                amount(value.sd, 3),
                amounts(*value.interval, 5),
            )
            for key, value in self.values.items()
        ]
        head = (*self.by, "share", "mean", "sd", "95 % interval")
        return Section("Value of the policy by subgroup", [Table(head, rows, range(len(self.by)))])


def groups_of(contexts: Contexts, by: str | Sequence[str]) -> tuple[tuple[str, ...], Int[np.ndarray, " C"], list[Any]]:
    """Subgroups: the covariates, the subgroup of each context, the pattern of each subgroup.

    Args:
        contexts: all of them.
        by: "context", or the names of covariates.

    Raises:
        ValueError: no such covariate.
    """
    # "context" is every covariate.
    names = contexts.names if by == "context" else (by,) if isinstance(by, str) else tuple(by)
    if not names:
        raise ValueError("by is empty, expected 'context', or names of covariates")
    for name in names:
        contexts.column(name)  # refuses what is none
    plain = [contexts.label(c) for c in range(len(contexts))]
    # A pattern of some covariates: the values at their places in the label.
    place = {name: i for i, name in enumerate(contexts.names)}
    patterns = [tuple(label[place[name]] for name in names) for label in plain]
    order = list(dict.fromkeys(patterns))
    # Subgroups are numbered in the order in which contexts meet them.
    number = {pattern: i for i, pattern in enumerate(order)}
    return names, np.array([number[p] for p in patterns]), [ProductLabel(p, names) for p in order]


def value_for(
    evaluate: Evaluate,
    key: PRNGKeyArray,
    posterior: InContexts,
    policy: Any,
    objective: Objective,
    initial: InitialLike | None,
    num_draws: int,
    by: str | Sequence[str] | None,
    population: Any,
    population_uncertainty: bool,
) -> "PolicyValue | ValuesBy":
    """`policy_value` of a posterior with contexts: standardised, or by subgroup.

    Args:
        evaluate, key, posterior, objective, initial, num_draws: as of `values_in_contexts`.
        policy: see `policies_for`.
        by: None: standardised over the population; "context"; or the covariates that make subgroups.
        population: see `read_population`.
        population_uncertainty: whether the weights are uncertain too, Dirichlet(people in each context).
    """
    if by == "context" and population is None:
        weights = _weights_or_equal(posterior)
    else:
        weights = read_population(posterior, population)
    weighted = weights.posterior
    by_context = values_in_contexts(evaluate, key, weighted, {"policy": policy}, objective, initial, num_draws)
    number = len(by_context[0]["policy"].draws)
    # Weights [C, N]: fixed, or a draw of them for each draw of the value.
    share = (
        weights.draws(jax.random.fold_in(key, 1), number).T
        if population_uncertainty
        else np.broadcast_to(weights.shares[:, None], (len(by_context), number))
    )
    if by is None:
        # J = sum_c w_c J_c, draw by draw (the g-formula for fixed covariates).
        return _with_sums([value["policy"] for value in by_context], share)
    names, group, patterns = groups_of(weighted.contexts, by)
    values, parts = {}, {}
    for g, pattern in enumerate(patterns):
        inside = group == g
        # Within a subgroup the weights are those of the population, over their sum.
        inner = shares_within(share[inside])
        values[pattern] = _with_sums([by_context[c]["policy"] for c in np.flatnonzero(inside)], inner)
        parts[pattern] = float(weights.shares[inside].sum())
    return ValuesBy(names, values, parts)


def shares_within(share: Float[np.ndarray, "c *N"]) -> Float[np.ndarray, "c *N"]:
    """The weights of contexts within a subgroup, adding up to one.

    Args:
        share: of the population; a subgroup that the population lacks has contexts that weigh alike.
    """
    total = share.sum(0)
    return np.where(total > 0, share / np.where(total > 0, total, 1.0), 1.0 / len(share))


def _weights_or_equal(posterior: InContexts) -> Weights:
    """The subjects of the log; where they are not known every context weighs alike, which no sum is made of."""
    if posterior.contexts.subjects is not None:
        return Weights(posterior, posterior.contexts.subjects, True)
    return Weights(posterior, np.ones(len(posterior.contexts)), False)


def _with_sums(each: "Sequence[PolicyValue]", share: Float[np.ndarray, "c N"]) -> "PolicyValue":
    """The value in a population, draw by draw, of the reward and of every outcome learnt beside it."""

    def over(values: "Sequence[PolicyValue] | Sequence[OutcomeValue]") -> dict[str, Any]:
        # Contexts share parameters within a draw: the sum is of one world.
        draws = (share * np.stack([value.draws for value in values])).sum(0)
        mean, sd, interval = summarise_draws(draws)
        gap = float(max(value.gap for value in values))
        return {"draws": draws, "mean": mean, "sd": sd, "interval": interval, "gap": gap}

    first = each[0]
    outcomes = {
        name: replace(outcome, **over([value.outcomes[name] for value in each]))
        for name, outcome in first.outcomes.items()
    }
    effects = [value.by_frequencies for value in each if value.by_frequencies is not None]
    by_frequencies = (share * np.stack(effects)).sum(0) if len(effects) == len(each) else None
    # What a sum over contexts rests on is not one basis: left out.
    return replace(first, **over(each), outcomes=outcomes, rests_on=None, by_frequencies=by_frequencies)


def practice(log: Log, space: StateActionSpace, by: str | Sequence[str] | None = None) -> Float[np.ndarray, "C S A"]:
    """How often each action was taken in each state, given covariates: what those who act on these did.

    A state that no subject of a pattern was seen in has there the actions of all subjects in that state; one that
    nobody was seen in has all legal actions alike.

    Args:
        log: with covariates.
        space: with the labels and the contexts of the log, and perhaps more contexts.
        by: the covariates that practice looks at; None: all of them; (): none.

    Returns:
        Float64[C S A], in the contexts of the space, rows that sum to one.

    Raises:
        TypeError: a log or a space without covariates. ValueError: no such covariate; labels, or a context, of the log
            that the space does not have.

    Example:
        >>> import pandas as pd
        >>> rows = {"s": ["a", "a", "a"], "a": ["x", "y", "y"], "t": ["a", "a", "a"], "age": [1, 1, 2]}
        >>> log = bm.read_log(pd.DataFrame(rows), state="s", action="a", next_state="t", covariates=["age"])
        >>> bm.decisions.practice(log, bm.StateActionSpace.from_log(log))[:, 0].tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """
    counts, group = practice_counts(log, space, by)
    # By group, then back to every context.
    return frequencies(counts)[group]


def counted_practice(
    key: PRNGKeyArray, log: Log, space: StateActionSpace, by: str | Sequence[str] | None = None
) -> Callable[[Mapping[str, Hashable]], CountedPolicy]:
    """`practice` as a policy of each context whose frequencies are drawn: of groups that are counted together as one.

    Args:
        key: of the draws.
        log, space, by: as of `practice`, also what is raised.
    """
    counts, group = practice_counts(log, space, by)
    assert isinstance(space, ContextSpace)  # `practice_counts` has looked
    keys = jax.random.split(key, len(counts))
    counted = [CountedPolicy(table, group_key) for table, group_key in zip(counts, keys, strict=True)]
    staff = dict(zip(map(tuple, space.contexts.labels), (counted[g] for g in group), strict=True))
    return lambda pattern: staff[tuple(pattern.values())]


def practice_counts(
    log: Log, space: StateActionSpace, by: str | Sequence[str] | None
) -> tuple[Float[np.ndarray, "G S A"], Int[np.ndarray, " C"]]:
    """How many times each action was taken in each state by each group of contexts, and the group of every context.

    Args:
        log, space, by: as of `practice`, also what is raised, and what a group has of a state that nobody of it was in.
    """
    check_type("log", log, Log, "a Log (see read_log)")
    if not isinstance(space, ContextSpace) or not isinstance(log.covariates, LoggedContexts):
        raise TypeError("log or space has no contexts, expected those of a log read with covariates=")
    # By pattern: the log may number its contexts, or have others, than those of the space.
    about = contexts_of_log(log, space, "log")
    contexts = about.contexts
    group = np.zeros(len(contexts), int)
    if by is None or len(by):
        # Every pattern a group of its own, unless some covariates are named.
        _, group, _ = groups_of(contexts, "context" if by is None else by)
    counts = np.zeros((group.max() + 1, *space.shape))
    data = log.transitions
    # Scatter: one count for each row of the log, by (group, state, action).
    np.add.at(counts, (group[about.index], np.asarray(data.state), np.asarray(data.action)), 1.0)
    pooled = counts.sum(0)
    legal = np.ones(space.shape) if space.legal is None else np.asarray(space.legal, float)
    # Where nobody was seen, all legal actions alike.
    pooled = np.where(pooled.sum(-1, keepdims=True) > 0, pooled, legal)
    return np.where(counts.sum(-1, keepdims=True) > 0, counts, pooled), group


def side_by_side(
    posterior: ContextPosterior, *, initial: InitialLike | None = None, population: Any = None
) -> ContextDraws:
    """All contexts as one MDP, whose states are (context, state), which begins with people as the population has them.

    An ordinary posterior for `choose`, with one budget for all: who is treated comes out of what each of them gains.
    Its policies are by (context, state), in the order of `space.side_by_side.state_names`.

    Args:
        posterior: in contexts that share their draws.
        initial: distribution of the first state of a person, the same in every context; None: uniform.
        population: who they are (see `policy_value`).

    Returns:
        The draws, with the outcomes that were learnt beside the reward.

    Raises:
        ValueError: contexts are beliefs of their own; covariates that vary; as `policy_value`. TypeError: a posterior
            without contexts.

    Example:
        >>> import pandas as pd
        >>> rows = {"s": ["a", "b"] * 4, "a": "x", "t": ["b", "a"] * 4, "age": [1, 1, 2, 2] * 2, "id": range(8)}
        >>> columns = {"state": "s", "action": "a", "next_state": "t", "subject": "id"}
        >>> log = bm.read_log(pd.DataFrame(rows), **columns, covariates=["age"])
        >>> space = bm.StateActionSpace.from_log(log)
        >>> prior = lambda space: bm.models.MDPSpec(bm.models.logit_rows(space, "age"), np.ones((2, 1)))
        >>> method = bm.inference.Laplace(num_samples=50)
        >>> posterior = bm.infer(jax.random.key(0), prior, log, space=space, method=method)
        >>> bm.decisions.side_by_side(posterior).space.n_states
        4
    """
    check_type("posterior", posterior, ContextPosterior, "what infer returns in a space with contexts")
    weights = read_population(posterior, population)
    family: Any = weights.posterior
    _refuse_moving(family.contexts)
    space = family.space
    joint_space, number = space.side_by_side, space.n_contexts * space.n_states
    start = np.full(space.n_states, 1 / space.n_states) if initial is None else space.alone.initial_probs(initial)
    # The start of (context, state): weight of the context times the start within.
    begins = (weights.shares[:, None] * np.asarray(start, np.float64)).ravel()

    def draws(one: Any, outcomes: dict[str, ContextDraws] | None) -> ContextDraws:
        rows, reward = one.tables
        num_draws = len(rows)
        # [N C S ...] to [N, C S, ...]: contexts side by side.
        flat = rows.reshape(num_draws, number, *rows.shape[3:])
        mdps = mdps_of_tables(joint_space, flat, reward.reshape(num_draws, number, -1), begins)
        # Visits in each (context, state, action).
        visits = None if one.counts is None else one.counts.sum(-1).reshape(number, -1)
        equal = np.full(num_draws, 1.0 / num_draws)
        return ContextDraws(mdps, equal, joint_space, one.num_chains, one.worth_each, visits, outcomes)

    return draws(family, {name: draws(outcome, None) for name, outcome in family.paired.items()} or None)


def all_policies(n_states: int, n_actions: int) -> Int[np.ndarray, "P S"]:
    """All deterministic policies of a few states.

    Args:
        n_states, n_actions: S and A.

    Raises:
        ValueError: there are more than 4,096.
    """
    number = float(n_actions) ** n_states
    if number > MOST_POLICIES:
        raise ValueError(
            f"there are {number:.0f} deterministic policies, of which at most {MOST_POLICIES} are tried, expected "
            # The digits of 0 .. A^S - 1 in base A are all maps from states to actions.
            "policies= by name"
        )
    return np.stack(np.unravel_index(np.arange(int(number)), (n_actions,) * n_states), -1)


def knowing(values: ArrayLike, weights: ArrayLike, results: ArrayLike | None = None) -> float:
    """What it is worth to know the context, or the result of a test of it, before a policy is chosen.

        sum_t max_pi sum_c w_c P(t | c) J_c(pi) - max_pi sum_c w_c J_c(pi)

    An upper bound where contexts show in the course of things: a policy that learns them would lose less.

    Args:
        values: Float[P C], J_c of each policy in each context.
        weights: Float[C], shares of the contexts; they are divided by their sum.
        results: Float[T C], probabilities P(t | c) of each result of a test; None: the context itself becomes known.

    Raises:
        ValueError: shapes that do not fit, results that do not add up to one in each context. TypeError: no numbers.

    Example:
        >>> bm.decisions.knowing([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
        0.5
    """
    table = as_real("values", values).astype(np.float64)
    share = as_real("weights", weights).astype(np.float64)
    check_shape("weights", share, table.shape[1:], "context")
    check_not_negative("weights", share)
    share = share / share.sum()
    # Without a test the context itself is known: one result for each.
    result_probs = np.eye(len(share)) if results is None else as_real("results", results).astype(np.float64)
    if result_probs.ndim != 2 or result_probs.shape[1] != len(share):
        raise ValueError(f"results has shape {result_probs.shape}, expected (result, context) of {len(share)} contexts")
    wrong = first_index((np.abs(result_probs.sum(0) - 1.0) > 1e-9) | (result_probs < 0).any(0))
    if wrong is not None:
        raise ValueError(
            f"results sum to {result_probs.sum(0)[wrong]:.6g} in context {wrong[0]}, expected probabilities"
        )
    blind = (table @ share).max()
    # Each result has its best policy, weighted by P(result, context); then less the best blind one.
    return float(max((table @ (result_probs * share).T).max(0).sum() - blind, 0.0))


def exogenous(mdps: Sequence[MDP], moves: ArrayLike) -> SparseMDP:
    """One MDP of the states (z, s), of a covariate z that moves by itself: P(s' | s, a, z) M(z' | z).

    Args:
        mdps: of each value of z, in order, of the same sizes.
        moves: Float[Z Z], probabilities of the next value given this one.

    Returns:
        The MDP, state s of value z at z * S + s; it begins in z by the initial distributions of the MDPs divided by Z,
        where they have some.

    Raises:
        ValueError: sizes that differ, moves that do not sum to one. TypeError: what is no MDP.

    Example:
        >>> flat = bm.MDP([[[1.0]]], [[0.0]]), bm.MDP([[[1.0]]], [[1.0]])
        >>> bm.decisions.exogenous(flat, [[0.9, 0.1], [0.2, 0.8]]).n_states
        2
    """
    number = len(mdps)
    chain = as_real("moves", moves).astype(np.float64)
    check_shape("moves", chain, (number, number), "value, next value")
    check_probability_rows("moves", chain)
    for i, mdp in enumerate(mdps):
        check_type(f"mdps[{i}]", mdp, MDP, "an MDP")
        check_shape(f"mdps[{i}].reward", mdp.reward, mdps[0].reward.shape, "as the first")
    with jax.enable_x64(True):
        rows = np.stack([np.asarray(mdp.transition_probs, np.float64) for mdp in mdps])
        _, size, actions, _ = rows.shape
        # Outcome (z', s') of every (z, s, a), as a list of all of them.
        # P(z', s' | z, s, a) = P(s' | s, a, z) M(z' | z): a product over the pair of next values.
        whole = (rows[:, :, :, None, :] * chain[:, None, None, :, None]).reshape(number * size, actions, -1)
        listed = np.broadcast_to(np.arange(number * size), whole.shape)
        # Without an end, or a mask, an MDP never ends and every action is legal: as beside those that have one.
        ends = [np.zeros((size, actions)) if mdp.end_probs is None else np.asarray(mdp.end_probs) for mdp in mdps]
        together = None if all(mdp.end_probs is None for mdp in mdps) else np.concatenate(ends).astype(np.float64)
        first = [mdp.initial for mdp in mdps]
        # Values of z are equally likely at the start.
        start = None if any(x is None for x in first) else np.concatenate([np.asarray(x) for x in first]) / number
        reward = np.concatenate([np.asarray(mdp.reward, np.float64) for mdp in mdps])
        legal = [np.ones((size, actions), bool) if mdp.legal is None else np.asarray(mdp.legal) for mdp in mdps]
        allowed = None if all(mdp.legal is None for mdp in mdps) else np.concatenate(legal)
        return SparseMDP(listed, whole, reward, end_probs=together, legal=allowed, initial=start)
