"""`bayes-mdp fit`: a posterior from a log."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.covariates import add_covariates, fit_in_contexts, refuse_without_covariates
from bayes_mdp.cli.options import (
    UNEXPECTED,
    Commands,
    add_chunks,
    add_columns,
    add_command,
    add_labels,
    add_method,
    add_objective,
    check_outputs,
    count,
    fold_logs,
    log_of,
    objective_of,
    save_figure,
    say_log,
    seed,
)
from bayes_mdp.cli.problem import add_choice, add_prior, add_problem, initial_of, prior_of, space_of
from bayes_mdp.cli.stored import load_stored, posterior_file_of

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from bayes_mdp.inference.context_posterior import ContextPosterior
    from bayes_mdp.inference.fitted import Fitted
    from bayes_mdp.inference.route import InferredPosterior
    from bayes_mdp.mdp import FoldedLog, Log, Objective, StateActionSpace
    from bayes_mdp.models.mdp_spec import Prior
    from bayes_mdp.utils.typing import InitialLike


def add_fit(commands: Commands) -> None:
    """The parser."""
    parser = add_command(
        commands, "fit", _fit, "infer the posterior of a prior from a log, print it, evaluate policies"
    )
    parser.add_argument(
        "log",
        nargs="+",
        help="CSV or Parquet file, one transition per row; several are read piece by piece; or one stored posterior "
        "(.bmdp), which is printed, and whose policies are evaluated",
    )
    add_columns(parser, required=False)
    add_labels(parser)
    add_covariates(parser)
    add_chunks(parser)
    add_prior(parser)
    add_method(parser)
    parser.add_argument(
        "--successors",
        choices=["observed"],
        help="list the outcomes that the log has of each pair, and put all others into one state, 'unseen' (for many "
        "states)",
    )
    add_objective(parser)
    add_problem(parser)
    add_choice(parser)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the draws")
    parser.add_argument("--draws", type=count, default=2000, help="number of posterior draws for the policies' values")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check that the posterior is calibrated around this log (code 1: it is not)",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the posterior (bayes_mdp.load reads it)")
    parser.add_argument("--netcdf", type=Path, metavar="FILE", help="write draws and data for ArviZ")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the posterior")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page on the policies' values (HTML)")


def _fit(arguments: argparse.Namespace) -> int:
    path = posterior_file_of(arguments, "check", "save")
    import jax

    import bayes_mdp as bm
    from bayes_mdp.inference.context_posterior import ContextPosterior
    from bayes_mdp.mdp.contexts import ContextSpace
    from bayes_mdp.recommend.in_words import prior_in_words
    from bayes_mdp.utils.layout import wrapped
    from bayes_mdp.utils.validation import check_count

    check_outputs(arguments, "save", "netcdf", "figure", "report", inputs=arguments.log)
    check_count("--draws", arguments.draws, 2)
    objective, method, key = objective_of(arguments), arguments.method, jax.random.key(arguments.seed)
    if arguments.report is not None and objective is None:
        raise ValueError("--report is given without an objective, expected --discount, --horizon or --first-exit")
    if path is not None:
        stored = load_stored(path)
        if isinstance(stored, ContextPosterior):
            if objective is not None:
                raise ValueError(
                    f"{path} is a posterior in contexts, without the log that says what was done, expected no objective"
                )
            if arguments.figure:
                raise ValueError(
                    f"--figure is given with {path}, a posterior in contexts, expected one of a single context (in "
                    "Python: bm.load(path).at(pattern))"
                )
            print(stored)
            _keep(arguments, key, stored, None)
            return 0
        initial = initial_of(arguments, stored.space, None)
        print(stored)
        if objective is not None:
            _judge(arguments, key, stored, None, stored.space, objective, initial)
        _keep(arguments, key, stored, None)
        return 0
    log = _read(arguments)
    space = space_of(arguments, log, arguments.successors)
    if isinstance(space, ContextSpace) and isinstance(log, bm.mdp.Log):
        say_log(log)
        _keep(arguments, key, fit_in_contexts(arguments, key, log, space, objective), log)
        return 0
    refuse_without_covariates(arguments)
    prior = prior_of(arguments, space, log)
    initial = initial_of(arguments, space, log)
    posterior = bm.infer(key, prior, log, space=space, method=method)
    say_log(log)
    prior_lines = [part for line in prior_in_words(prior).splitlines() for part in wrapped(f"prior: {line}")]
    print(*prior_lines, "", posterior, sep="\n")
    if objective is not None:
        _judge(arguments, key, posterior, log, space, objective, initial)
    _keep(arguments, key, posterior, log)
    if not arguments.check:
        return 0
    assert not isinstance(log, bm.mdp.FoldedLog)  # `_read` has refused it
    return _check(key, prior, space, log, objective, method)


def _read(arguments: argparse.Namespace) -> "Log | FoldedLog":
    """One log as a whole; several, or one in chunks, as sufficient statistics."""
    if len(arguments.log) == 1 and arguments.chunksize is None:
        arguments.log = arguments.log[0]
        return log_of(arguments)
    for option in ("check", "netcdf"):
        if getattr(arguments, option):
            raise ValueError(
                f"--{option} is given with {len(arguments.log)} logs in chunks of rows, expected one log that is read "
                "as a whole (its transitions are needed)"
            )
    return fold_logs(arguments)


def _judge(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    posterior: "Fitted",
    log: "Log | FoldedLog | None",
    space: "StateActionSpace",
    objective: "Objective",
    initial: "InitialLike | None",
) -> None:
    """What was done (where log or posterior counts it), and the best policy in the mean MDP."""
    import bayes_mdp as bm
    from bayes_mdp.mdp import CanCount
    from bayes_mdp.mdp.labels import CountedPolicy, logged_counts

    limits = bm.decisions.PolicyLimits(min_count=arguments.min_count) if arguments.min_count else None
    policies = {"greedy": bm.greedy(posterior, objective, limits=limits)}
    # Known by frequencies only, whose draws enter its value.
    if log is not None:
        policies = {"logged": log, **policies}
    elif isinstance(posterior, CanCount):
        steps = None if space.horizon is None else int(space.horizon)
        counts = logged_counts(posterior, space, steps)[0]
        policies = {"logged": CountedPolicy(counts, key), **policies}  # as of the log itself
    stated = None if arguments.value_range is None else tuple(arguments.value_range)
    compared = bm.compare_policies(
        key,
        posterior,
        policies,
        objective,
        initial=initial,
        num_draws=arguments.draws,
        options=bm.decisions.VerdictOptions(value_range=stated),
    )
    print(f"\n{compared}")
    if arguments.report is not None:
        bm.recommend.write_report(compared, arguments.report, log=log, command=arguments.line)
        print(f"report: {arguments.report}")


def _keep(
    arguments: argparse.Namespace,
    key: "PRNGKeyArray",
    posterior: "InferredPosterior | ContextPosterior",
    log: "Log | FoldedLog | None",
) -> None:
    import bayes_mdp as bm

    if arguments.save:
        bm.save(posterior, arguments.save)
        print(f"posterior: {arguments.save}")
    if arguments.netcdf:
        assert not isinstance(log, bm.mdp.FoldedLog)  # `_read` has refused it
        bm.save(bm.to_arviz(posterior, key=key, data=log), arguments.netcdf)
        print(f"draws: {arguments.netcdf}")
    if arguments.figure:
        from bayes_mdp.experiments.plots.result_plots import plot_posterior
        from bayes_mdp.inference.context_posterior import ContextPosterior

        assert not isinstance(posterior, ContextPosterior)  # refused before
        save_figure(plot_posterior(posterior), arguments.figure)


def _check(
    key: "PRNGKeyArray",
    prior: "Prior",
    space: "StateActionSpace",
    log: "Log",
    objective: "Objective | None",
    method: str,
) -> int:
    from bayes_mdp.calibration.checks.checking import CheckOptions, check

    result = check(key, prior, space, data=log, objective=objective, options=CheckOptions(method=method))
    print()
    print(result)
    return 0 if result.calibrated else UNEXPECTED
