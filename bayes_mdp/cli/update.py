"""`bayes-mdp update`: a saved posterior after more logs."""

import argparse
from pathlib import Path

from bayes_mdp.cli.options import Commands, add_chunks, add_columns, add_command, check_outputs, folded_of, say_costs


def add_update(commands: Commands) -> None:
    """The parser."""
    parser = add_command(commands, "update", _update, "learn more logs into a saved posterior, each log once")
    parser.add_argument("posterior", type=Path, help="file that `fit --save` wrote")
    parser.add_argument("log", nargs="+", help="CSV or Parquet files, one transition per row, with its labels")
    add_columns(parser, required=True)
    add_chunks(parser)
    parser.add_argument("--discount-data", type=float, help="factor by which earlier data count from now on")
    parser.add_argument("--save", type=Path, metavar="FILE", required=True, help="where the posterior is written")


def _update(arguments: argparse.Namespace) -> None:
    import bayes_mdp as bm
    from bayes_mdp.inference import ConjugatePosterior

    check_outputs(arguments, "save", inputs=[arguments.posterior, *arguments.log])
    posterior = bm.load(arguments.posterior)
    if not isinstance(posterior, ConjugatePosterior):
        raise TypeError(
            f"{arguments.posterior} is a {type(posterior).__name__}, expected a ConjugatePosterior, which learns from "
            "sufficient statistics"
        )
    log = folded_of(arguments, posterior.space)
    duplicates = arguments.allow_duplicates
    posterior = posterior.update(log, discount_data=arguments.discount_data, allow_duplicates=duplicates)
    say_costs(log)
    print(posterior)
    bm.save(posterior, arguments.save)
    print(f"posterior: {arguments.save}")
