"""The command `bayes-mdp`: demo, fit, explain, calibrate, run, levels, reproduce, scorecard, compare, train, evaluate,
list.

Wrong input: one sentence on stderr, code 2.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

ERRORS = (ValueError, TypeError, OSError, ImportError)
USER_ERROR, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code. With `argv` None it is that of the process, which Ctrl-C ends here.

    0; 1 for a verdict of `reproduce`, `scorecard` or `list --claims` that is not the expected one, and for a posterior
    that `calibrate` or `fit --check` finds not calibrated; 2 for wrong input (one sentence on stderr); 130 after
    Ctrl-C.
    """
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO if arguments.verbose else logging.WARNING)
    try:
        return arguments.command(arguments) or 0
    except ERRORS as error:
        if arguments.verbose:
            logging.getLogger(__name__).exception("traceback")
        print(f"bayes-mdp: error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        kept = arguments.resumes and arguments.out is not None
        rest = "; the same command goes on from what was finished" if kept else ""
        print(f"bayes-mdp: interrupted{rest}", file=sys.stderr, flush=True)
        if argv is None:
            # XLA may still compute in threads of its own, which an orderly exit pulls the ground from under (a crash).
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Refuses a word as argparse does, with the nearest one that there is."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from bayes_mdp.mdp.validation import did_you_mean

            raise argparse.ArgumentError(action, error.message + did_you_mean(value, action.choices or ())) from None


def build_parser() -> argparse.ArgumentParser:
    """The argument parser, help with defaults."""
    from bayes_mdp.cli import calibrate, compare, explain, fit, listing, run, scorecard, train

    parser = _Parser(prog="bayes-mdp", description="Bayesian reinforcement learning in MDPs.")
    parser.add_argument("--verbose", action="store_true", help="show log messages, and the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run.add_demo(commands)
    fit.add_fit(commands)
    explain.add_explain(commands)
    calibrate.add_calibrate(commands)
    run.add_run(commands)
    run.add_levels(commands)
    run.add_reproduce(commands)
    scorecard.add_scorecard(commands)
    compare.add_compare(commands)
    train.add_train(commands)
    train.add_evaluate(commands)
    listing.add_list(commands)
    return parser
