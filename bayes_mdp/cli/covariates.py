"""Covariates in the shell: `fit` and `decide` of a log that says more of its subjects than their states.

Rows come from a formula (--terms), from a prior of the user's own, or are a belief of their own in every context.
"""

import argparse
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_mdp.cli.options import list_of_names
from bayes_mdp.cli.problem import (
    baseline_of,
    initial_of,
    known_rewards_of,
    label,
    policies_of,
    policy_of_rows,
    prior_of,
    table_of_pairs,
)
from bayes_mdp.cli.stored import refuse_options

if TYPE_CHECKING:
    import numpyro.distributions as dist
    from jaxtyping import PRNGKeyArray

    from bayes_mdp.inference.context_posterior import ContextPosterior
    from bayes_mdp.mdp import Log, Objective
    from bayes_mdp.mdp.contexts import ContextSpace
    from bayes_mdp.models.mdp_spec import Prior
    from bayes_mdp.recommend.subgroups import SubgroupDecision

OF_CONTEXTS = ("terms", "reference", "by", "practice_by", "population")
DRAWS = 4000
"""Of `decide`, where nobody has said how many: they are there."""
_NOT_IN_FIT = ("check", "figure", "report", "successors", "value_range", "min_count", "chunksize")
_NOT_IN_DECIDE = (
    "split",
    "min_count",
    "bootstrap_below",
    "budget",
    "stochastic",
    "no_checks",
    "value_range",
    "transition",
)


def add_covariates(parser: argparse.ArgumentParser) -> None:
    """The columns of covariates, how rows depend on them, and the subgroups."""
    parser.add_argument("--subject", metavar="COLUMN", help="column of the subject (patient, machine) of each row")
    text = "columns that are fixed for a subject, such as age,frail: every distinct pattern is a context of its own"
    parser.add_argument("--covariates", type=list_of_names, metavar="COLUMN,...", help=text)
    text = "columns that may change from row to row; --process says what moves them"
    parser.add_argument("--varying", type=list_of_names, metavar="COLUMN,...", help=text)
    text = "what moves the columns of --varying: a path that is known, or they move by themselves"
    parser.add_argument("--process", choices=("known", "exogenous"), help=text)
    text = "column of labels, such as clinics, which have random intercepts with --terms"
    parser.add_argument("--group", metavar="COLUMN", help=text)
    text = (
        "formula of the rows, a multinomial logit, such as 'state + age + action' (default: the rows of each context "
        "are a belief of their own); rewards of the log are regressed on the same terms"
    )
    parser.add_argument("--terms", metavar="FORMULA", help=text)
    text = "the outcome that others are compared with in --terms: a state, 'end' (default: the state itself)"
    parser.add_argument("--reference", metavar="OUTCOME", help=text)
    text = "covariates that make the subgroups, such as frail, or 'context': every pattern"
    parser.add_argument("--by", type=list_of_names, metavar="COLUMN,...", help=text)


def add_for_whom(parser: argparse.ArgumentParser) -> None:
    """Options of `decide` alone: what practice looked at, and who is meant."""
    text = "covariates that those looked at who chose the log's actions (default: all)"
    parser.add_argument("--practice-by", type=list_of_names, metavar="COLUMN,...", help=text)
    text = "CSV file of people, with a column for each covariate (default: the subjects of the log)"
    parser.add_argument("--population", metavar="FILE", help=text)


def refuse_without_covariates(arguments: argparse.Namespace) -> None:
    """Refuse options of contexts where the log has none.

    Args:
        arguments: of the command.

    Raises:
        ValueError: one of them is given.
    """
    for name in OF_CONTEXTS:
        if getattr(arguments, name, None) is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} is given without covariates, expected --covariates, --varying or --group "
                "too"
            )


def fit_in_contexts(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    log: "Log",
    space: "ContextSpace",
    objective: "Objective | None",
) -> "ContextPosterior":
    """Infer, and print the posterior, its coefficients, and what practice is worth in all and by subgroup.

    Args:
        arguments: of `fit`.
        key: of all draws.
        log: with covariates.
        space: of the log.
        objective: of the values; None: no values.

    Raises:
        ValueError: options that a log without covariates takes alone; as `infer`, `policy_value`.
    """
    import jax

    import bayes_mdp as bm
    from bayes_mdp.decisions.for_whom import counted_practice

    refuse_options(arguments, _NOT_IN_FIT, "covariates")
    posterior = infer_in_contexts(arguments, key, log, space)
    print(posterior)
    for law in posterior.laws:
        if posterior.sites is not None and law.sites[0] in posterior.sites:
            print(f"\ncoefficients of {law.name}:\n{posterior.coefficients(law.name).to_string()}")
    if objective is None:
        return posterior
    logged = counted_practice(jax.random.fold_in(key, 1), log, space)
    options: dict[str, Any] = {"initial": initial_of(arguments, space, log), "num_draws": arguments.draws}
    print(f"\nWhat was done, given all covariates:\n{bm.policy_value(key, posterior, logged, objective, **options)}")
    subgroups = _subgroups(arguments.by)
    if subgroups is not None:
        print(f"\n{bm.policy_value(key, posterior, logged, objective, by=subgroups, **options)}")
    return posterior


def decide_in_contexts(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    log: "Log",
    space: "ContextSpace",
    objective: "Objective",
    num_draws: int | None,
) -> "SubgroupDecision":
    """One verdict for each subgroup, on policies that are named.

    Args:
        arguments: of `decide`.
        key: of all draws.
        log: with covariates.
        space: of the log.
        objective: of the values.
        num_draws: of the judgement; None: nobody has said.

    Raises:
        ValueError: no subgroups or policies; options that a log without covariates takes alone; as
            `decide_by_subgroup`.
    """
    from bayes_mdp.recommend import SubgroupOptions, decide_by_subgroup

    refuse_options(arguments, _NOT_IN_DECIDE, "covariates")
    if arguments.criterion != "mean":
        raise ValueError(f"--criterion is {arguments.criterion!r} with covariates, where policies are named: leave it")
    if arguments.by is None:
        raise ValueError("--by is missing, expected the covariates that make the subgroups, or --by context")
    if not arguments.policy:
        raise ValueError("--policy is missing, expected those to judge: subgroups choose no policy of their own")
    # A file with columns of covariates says who does what.
    read_file = lambda option, path: _by_pattern(option, path, arguments, space)  # noqa: E731
    policies = policies_of(arguments, space, read_file)
    baseline = baseline_of(arguments, space, read_file)
    people = None if arguments.population is None else _people(arguments.population)
    posterior = infer_in_contexts(arguments, key, log, space)
    return decide_by_subgroup(
        key,
        posterior,
        log,
        objective,
        policies,
        _subgroups(arguments.by) or "context",
        options=SubgroupOptions(
            baseline=baseline,
            confidence=arguments.confidence,
            slack=arguments.slack,
            initial=initial_of(arguments, space, log),
            population=people,
            num_draws=DRAWS if num_draws is None else num_draws,
            observational=not arguments.trial,
            practice_by=_subgroups(arguments.practice_by),
        ),
    )


def _subgroups(names: list[str] | None) -> str | list[str] | None:
    return "context" if names == ["context"] else names


def infer_in_contexts(
    arguments: argparse.Namespace, key: "PRNGKeyArray", log: "Log", space: "ContextSpace"
) -> "ContextPosterior":
    """The posterior; outcomes beside the reward have priors of their own size.

    Args:
        arguments: `prior`, `terms`, `reference`, `group`, `known_reward`, `method`.
        key: of the draws.
        log: with covariates.
        space: of the log.

    Raises:
        ValueError: a formula with a prior; a log without rewards; as `infer`.
    """
    from dataclasses import replace

    import jax

    import bayes_mdp as bm

    method = arguments.method
    if arguments.terms is None:
        if arguments.reference is not None:
            raise ValueError("--reference is given without --terms, expected a formula too")
        return bm.infer(key, prior_of(arguments, space, log), log, space=space, method=method)
    if arguments.prior is not None:
        raise ValueError(f"--prior is {arguments.prior!r} with --terms, expected one of them")
    key, *keys = jax.random.split(key, 1 + len(log.outcomes))
    posterior = bm.infer(key, _regression(arguments, space, log), replace(log, outcomes={}), space=space, method=method)
    learnt = {}
    for outcome_key, name in zip(keys, log.outcomes, strict=True):
        outcome_log = log.of_outcome(name)
        prior = _regression(arguments, space, outcome_log, known=False)
        learnt[name] = bm.infer(outcome_key, prior, outcome_log, space=space, method=method)
    return posterior.with_outcomes(learnt) if learnt else posterior


def _regression(arguments: argparse.Namespace, space: "ContextSpace", log: "Log", *, known: bool = True) -> "Prior":
    """The program of --terms: rows by a multinomial logit, rewards known or regressed on the same terms.

    Args:
        known: whether --known-reward is what the rewards are.
    """
    import numpy as np

    import bayes_mdp as bm

    reference = _reference(arguments, space)
    reward: Callable[[Any], Any]
    if known and arguments.known_reward is not None:
        table = known_rewards_of(arguments, space)
        reward = lambda space: table  # noqa: E731
    else:
        data = log.transitions
        if data.reward is None:
            raise ValueError("the log has no rewards, expected --reward, --cost or --known-reward")
        seen = np.ones(len(data.reward), bool) if data.reward_observed is None else np.asarray(data.reward_observed)
        reward = _reward_law(arguments, np.asarray(data.reward, np.float64)[seen])

    options = bm.models.RegressionOptions(group=arguments.group)

    def prior(space: Any) -> Any:
        rows = bm.models.logit_rows(space, arguments.terms, reference=reference, options=options)
        return bm.models.MDPSpec(rows, reward(space))

    return prior


def _reference(arguments: argparse.Namespace, space: "ContextSpace") -> Hashable:
    """The outcome of --reference; "stay" where it is not given."""
    text = arguments.reference
    return "stay" if text is None else label("--reference", text, space.outcome_names, "outcome")


def _reward_law(arguments: argparse.Namespace, rewards: Any) -> "Callable[[Any], dist.Distribution]":
    """The law of the rewards by what they are: 0 and 1, or numbers, whose prior has their size."""
    import numpy as np
    import numpyro.distributions as dist

    import bayes_mdp as bm

    terms, options = arguments.terms, bm.models.RegressionOptions(group=arguments.group)
    if np.isin(rewards, (0.0, 1.0)).all():
        return lambda space: bm.models.logistic_rewards(space, terms, options=options)
    # One standard deviation of a column may move a reward by a few of its own; the constant is of the size of the mean.
    spread = float(rewards.std()) or 1.0
    coefficients = dist.Normal(0.0, 2.5 * (spread + abs(float(rewards.mean()))))
    noise = dist.HalfNormal(2.5 * spread)
    return lambda space: bm.models.linear_rewards(space, terms, coefficients=coefficients, noise=noise, options=options)


def _people(path: str) -> Any:
    import pandas as pd

    from bayes_mdp.envs.logs.tables import separator

    try:
        return pd.read_csv(path, sep=separator(Path(path)))
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"--population is {path!r}, expected a CSV file: {error}") from None


def _by_pattern(
    option: str, path: str, arguments: argparse.Namespace, space: "ContextSpace"
) -> "Callable[[Mapping[str, Hashable]], dict[Hashable, Any]] | None":
    """A policy that depends on covariates, from a file that has columns of them; None: it has none."""
    from bayes_mdp.mdp.contexts import plain

    table, pairs = table_of_pairs(option, path, arguments, space)
    names = [name for name in space.contexts.names if name in table.columns]
    if not names:
        return None
    rows: dict[tuple[Hashable, ...], list[int]] = {}
    for row, cells in enumerate(table[names].itertuples(index=False)):
        rows.setdefault(tuple(map(plain, cells)), []).append(row)
    rules = {
        pattern: policy_of_rows(
            f"{option}: {path!r}, {_pattern_text(names, pattern)},", table.iloc[places], [pairs[i] for i in places]
        )
        for pattern, places in rows.items()
    }

    def policy(who: Mapping[str, Hashable]) -> dict[Hashable, Any]:
        pattern = tuple(who[name] for name in names)
        if pattern not in rules:
            raise ValueError(f"{option}: {path!r} has no row of {_pattern_text(names, pattern)}, expected all patterns")
        return rules[pattern]

    return policy


def _pattern_text(names: list[str], cells: Any) -> str:
    return ", ".join(f"{name}={cell}" for name, cell in zip(names, cells, strict=True))
