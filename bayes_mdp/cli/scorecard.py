"""`bayes-mdp scorecard`: what methods claim about the value of a policy, scored against the truth."""

import argparse
from pathlib import Path
from typing import Any

from bayes_mdp.cli.options import UNEXPECTED, add_command, check_outputs, save_figure, seed

TEXT = "score methods that state an uncertainty of values, in MDPs drawn from priors (code 1: not as stored)"


def add_scorecard(commands: Any) -> None:
    """The parser."""
    parser = add_command(commands, "scorecard", _scorecard, TEXT)
    parser.add_argument("--quick", action="store_true", help="fewer MDPs and draws: some verdicts stay undecided")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the scores (NetCDF)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw claimed against true coverage")


def _scorecard(arguments: argparse.Namespace) -> int:
    import jax

    from bayes_mdp.experiments import scorecard_report as report
    from bayes_mdp.experiments.results import save_result
    from bayes_mdp.experiments.scorecard import QUICK, scorecard

    check_outputs(arguments, "out", "figure")
    result = scorecard(jax.random.key(arguments.seed), **(QUICK if arguments.quick else {}))
    lines = report.scores_of(result)
    print(report.describe_scorecard(lines))
    changed = report.changed_scores(lines, report.stored_scorecard())
    for sentence in changed:
        print(f"NOT AS EXPECTED: {sentence}")
    if arguments.out:
        save_result(result, arguments.out)
        print(f"result: {arguments.out}")
    if arguments.figure:
        save_figure(report.plot_scorecard(result), arguments.figure)
    return UNEXPECTED if changed else 0
