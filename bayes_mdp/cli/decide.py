"""`bayes-mdp decide`: policies against the one in use by a log, with the reasons; a report as one HTML page."""

import argparse
from pathlib import Path

from bayes_mdp.cli.entered_labels import BEHAVIOUR, baseline_of, policies_of
from bayes_mdp.cli.options import (
    Commands,
    add_columns,
    add_command,
    add_labels,
    add_objective,
    check_outputs,
    count,
    log_of,
    required_objective,
    seed,
)
from bayes_mdp.cli.problem import add_choice, add_problem, initial_of, prior_of, space_of


def add_decide(commands: Commands) -> None:
    """The parser."""
    parser = add_command(
        commands,
        "decide",
        _decide,
        "judge policies against the one in use by a log, the best one that it supports among them, and recommend one",
    )
    parser.add_argument("log", help="CSV or Parquet file, one transition per row, in the order of time")
    add_columns(parser, required=True)
    add_labels(parser)
    parser.add_argument(
        "--prior",
        help="a name of `list`, or MODULE:FUNCTION (default: rows of a concentration that is learnt, and rewards of a "
        "law that the log suggests, see bm.default_prior)",
    )
    add_objective(parser)
    add_problem(parser)
    add_choice(parser)
    parser.add_argument(
        "--baseline",
        default=BEHAVIOUR,
        help="the policy in use: 'behaviour' (what the log did), one action, STATE=ACTION,..., or a CSV file with the "
        "log's columns of state and action (and 'probability', where an action is random)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="FILE",
        help="a policy that was fixed before anyone saw these data, in the forms of --baseline; several times for "
        "several",
    )
    parser.add_argument(
        "--criterion",
        default="mean",
        help="mean, cvar:LEVEL, percentile:LEVEL, soft-robust:LEVEL, regret:LEVEL, probability-optimal, "
        "robust:CONFIDENCE",
    )
    parser.add_argument("--confidence", type=float, default=0.95, help="of being no worse than the baseline")
    parser.add_argument("--slack", type=float, default=0.0, help="loss of value that still counts as no worse")
    parser.add_argument(
        "--split", type=float, default=0.0, help="share of the episodes that chooses and does not judge (default: 0)"
    )
    parser.add_argument(
        "--bootstrap-below",
        type=count,
        metavar="N",
        help="actions that the data that choose have less often in the state keep the baseline's probability "
        "(default: 5, or 0 with --min-count)",
    )
    parser.add_argument("--stochastic", action="store_true", help="allow mixtures of actions")
    parser.add_argument("--no-checks", action="store_true", help="leave out the checks of the belief")
    parser.add_argument("--draws", type=count, default=400, help="posterior draws of the search, and of the judgement")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the split and of the draws")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML)")


def _decide(arguments: argparse.Namespace) -> None:
    import jax

    import bayes_mdp as bm
    from bayes_mdp.decisions import PolicyLimits

    check_outputs(arguments, "report", inputs=[arguments.log])
    objective = required_objective(arguments)
    log = log_of(arguments)
    space = space_of(arguments, log)
    decision = bm.decide(
        jax.random.key(arguments.seed),
        "default" if arguments.prior is None and arguments.known_reward is None else prior_of(arguments, space, ""),
        log,
        objective,
        policies=policies_of(arguments, space),
        space=space,
        criterion=arguments.criterion,
        limits=PolicyLimits(
            min_count=arguments.min_count,
            bootstrap_below=arguments.bootstrap_below,
            stochastic=arguments.stochastic,
        ),
        baseline=baseline_of(arguments, space),
        confidence=arguments.confidence,
        slack=arguments.slack,
        split=arguments.split,
        initial=initial_of(arguments, space, log),
        value_range=None if arguments.value_range is None else tuple(arguments.value_range),
        num_draws=arguments.draws,
        checks=not arguments.no_checks,
    )
    print(decision)
    if arguments.report is not None:
        from bayes_mdp.recommend import write_report

        write_report(decision, arguments.report, command=arguments.line)
        print(f"report: {arguments.report}")
