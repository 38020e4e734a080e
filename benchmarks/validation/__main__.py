"""`python -m benchmarks.validation`: accuracy, scorecard, levels, prior-gain.

Exit codes: 0; 1 for a verdict that is not the stored one; 2 for wrong input (one sentence on stderr).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayes_mdp.cli import Parser, run_command
from bayes_mdp.cli.options import UNEXPECTED, add_command, check_outputs, count, save_figure, seed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return run_command(build_parser(), argv)


def build_parser() -> argparse.ArgumentParser:
    """The argument parser, help with defaults."""
    parser = Parser(prog="python -m benchmarks.validation", description="Measure how accurate the library is.")
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_accuracy(commands)
    _add_scorecard(commands)
    _add_levels(commands)
    _add_prior_gain(commands)
    return parser


def _add_accuracy(commands: Any) -> None:
    text = "show how accurate each method's variance of a value is, as stored (code 1: measured otherwise)"
    parser = add_command(commands, "accuracy", _accuracy, text)
    parser.add_argument("--measure", action="store_true", help="measure again, and compare with what is stored")


def _accuracy(arguments: argparse.Namespace) -> int:
    from benchmarks.validation import measured_accuracy

    stored = measured_accuracy.stored_accuracy()
    shown = measured_accuracy.measure_accuracy() if arguments.measure else stored
    print(measured_accuracy.describe_accuracy(shown))
    changed = measured_accuracy.changed_verdicts(shown, stored)
    for sentence in changed:
        print(sentence)
    return UNEXPECTED if changed else 0


def _add_scorecard(commands: Any) -> None:
    text = "score methods that state an uncertainty of values, in MDPs drawn from priors (code 1: not as stored)"
    parser = add_command(commands, "scorecard", _scorecard, text)
    parser.add_argument("--quick", action="store_true", help="fewer MDPs and draws: some verdicts stay undecided")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the scores (NetCDF)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw stated against true coverage")


def _scorecard(arguments: argparse.Namespace) -> int:
    import jax

    from bayes_mdp.utils.files import write_netcdf
    from benchmarks.validation import scorecard_report as report
    from benchmarks.validation.scorecard import QUICK, scorecard

    check_outputs(arguments, "out", "figure")
    result = scorecard(jax.random.key(arguments.seed), **(QUICK if arguments.quick else {}))
    lines = report.scores_of(result)
    print(report.describe_scorecard(lines))
    changed = report.changed_scores(lines, report.stored_scorecard())
    for sentence in changed:
        print(f"NOT AS EXPECTED: {sentence}")
    if arguments.out:
        write_netcdf(result, arguments.out)
        print(f"result: {arguments.out}")
    if arguments.figure:
        save_figure(report.plot_scorecard(result), arguments.figure)
    return UNEXPECTED if changed else 0


def _add_levels(commands: Any) -> None:
    text = "run agents on RiverSwim and Chain, beside published learning levels"
    parser = add_command(commands, "levels", _levels, text)
    parser.add_argument("--seeds", type=count, default=100, help="number of seeds")


def _levels(arguments: argparse.Namespace) -> None:
    from benchmarks.validation.reference_results import learning_levels

    learning_levels(num_seeds=arguments.seeds)


def _add_prior_gain(commands: Any) -> None:
    text = "measure what PSRL gains from a hierarchical prior, against a flat one"
    parser = add_command(commands, "prior-gain", _prior_gain, text)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the key")


def _prior_gain(arguments: argparse.Namespace) -> None:
    import jax

    from benchmarks.validation.prior_gain import describe_prior_gain, prior_gain

    print(describe_prior_gain(prior_gain(jax.random.key(arguments.seed))))


if __name__ == "__main__":
    sys.exit(main())
