"""`bayes-mdp calibrate`: calibration of the inference of a prior, over the prior or around a log."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import (
    COLUMNS,
    LABELS,
    UNEXPECTED,
    Commands,
    add_columns,
    add_command,
    add_method,
    add_objective,
    check_outputs,
    count,
    log_of,
    objective_of,
    save_figure,
    say_log,
    seed,
)

if TYPE_CHECKING:
    from bayes_mdp.mdp import Log, StateActionSpace

TEXT = "simulate truths from a prior (or from its posterior after a log), infer each again, and compare"


def add_calibrate(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "calibrate", _calibrate, TEXT, resumes=True)
    parser.add_argument("prior", help="a name of `list`, or MODULE:FUNCTION")
    for name in LABELS:
        parser.add_argument(
            f"--{name}",
            metavar="NUMBER",
            action="append",
            help=f"number of {name}; with --log: all of them, as for `fit`",
        )
    parser.add_argument("--ends", action="store_true", help="transitions can end an episode")
    parser.add_argument("--by-step", action="store_true", help="rows depend on the step of the episode (--horizon)")
    parser.add_argument("--log", metavar="FILE", help="check around this log (CSV or Parquet, columns as for `fit`)")
    add_columns(parser, required=False)
    add_method(parser)
    add_objective(parser)
    parser.add_argument("--simulations", type=count, default=200, help="number of truths that are drawn and inferred")
    parser.add_argument("--draws", type=count, default=200, help="number of draws of each posterior")
    parser.add_argument("--transitions", type=count, help="number of transitions of each (default: ten for each pair)")
    parser.add_argument(
        "--false-alarm", type=float, default=0.01, metavar="PROBABILITY", help="that a calibrated posterior is refused"
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of every random number")
    parser.add_argument("--out", type=Path, metavar="FILE", help="NetCDF file; a killed check resumes from beside it")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the five pictures")


def _calibrate(arguments: argparse.Namespace) -> int:
    import jax

    from bayes_mdp.calibration.checks.checking import CheckOptions, check
    from bayes_mdp.experiments.registry_names import find_prior

    check_outputs(arguments, "out", "figure", inputs=[] if arguments.log is None else [arguments.log])
    _check_source(arguments)
    prior = find_prior(arguments.prior)
    log = None if arguments.log is None else log_of(arguments)
    result = check(
        jax.random.key(arguments.seed),
        prior,
        _space(arguments, log),
        data=log,
        objective=objective_of(arguments),
        num_simulations=arguments.simulations,
        options=CheckOptions(
            num_draws=arguments.draws,
            num_transitions=arguments.transitions,
            method=arguments.method,
            false_alarm=arguments.false_alarm,
        ),
        path=arguments.out,
    )
    if log is not None:
        say_log(log)
    print(result)
    if arguments.out:
        print(f"result: {arguments.out}")
    if arguments.figure:
        from bayes_mdp.calibration.checks.check_result import plot_check

        save_figure(plot_check(result), arguments.figure)
    return 0 if result.calibrated else UNEXPECTED


def _check_source(arguments: argparse.Namespace) -> None:
    """Sizes or a log, not both."""
    if arguments.by_step and arguments.horizon is None:
        raise ValueError("--by-step is given without --horizon, expected the number of steps of an episode")
    if arguments.log is None:
        stray = [name for name in COLUMNS if getattr(arguments, name) is not None]
        if stray:
            raise ValueError(f"--{stray[0].replace('_', '-')} names a column, expected it with --log FILE")
        missing = [name for name in LABELS if getattr(arguments, name) is None]
        if missing:
            raise ValueError(f"--{missing[0]} is missing, expected --states and --actions, or --log FILE")
        return
    if arguments.transitions is not None:
        raise ValueError("--transitions is given with --log, expected it to be read from the log")
    for name in ("state", "action"):
        if getattr(arguments, name) is None:
            raise ValueError(f"--{name} is missing, expected the name of the column of the {name} in {arguments.log}")


def _space(arguments: argparse.Namespace, log: "Log | None") -> "StateActionSpace":
    from bayes_mdp.mdp import StateActionSpace

    horizon = arguments.horizon if arguments.by_step else None
    if log is not None:
        return StateActionSpace.from_log(log, horizon=horizon, ends=arguments.ends or None)
    sizes = [_size(name, getattr(arguments, name)) for name in LABELS]
    return StateActionSpace(*sizes, horizon=horizon, ends=arguments.ends)


def _size(name: str, given: list[str]) -> int:
    """The number that --states or --actions is.

    Raises:
        ValueError: it is none.
    """
    try:
        return count(given[-1])
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--{name}: {error} (labels are those of a log, see --log)") from None
