"""Options that several commands share, and what they mean."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNEXPECTED = 1
COLUMNS = ("state", "action", "reward", "next_state", "terminated", "truncated", "episode", "step")
METHODS = {
    "auto": "The best route that can be proven on the prior.",
    "exact": "Closed form, with the log evidence; for priors whose leaves are conjugate.",
    "collapsed": "Conjugate leaves in closed form, what stands above them by NUTS.",
    "nuts": "Hamiltonian Monte Carlo on the whole prior.",
    "svi": "Stochastic variational inference.",
    "laplace": "A normal distribution at the mode.",
}


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the defaults, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def add_command(
    commands: Any,
    name: str,
    command: Callable[[argparse.Namespace], int | None],
    text: str,
    *,
    resumes: bool = False,
) -> argparse.ArgumentParser:
    """The parser of one command. `resumes`: with --out, an interrupted one goes on from what was finished."""
    parser = commands.add_parser(name, help=text, description=text, formatter_class=_Defaults)
    parser.set_defaults(command=command, resumes=resumes)
    return parser


def count(text: str) -> int:
    """An integer that a count in JAX can hold; whether it is large enough is for the library to say."""
    return _integer(text, -(2**31), 2**31 - 1)


def seed(text: str) -> int:
    """An integer that is a seed: JAX would take the last 32 bits of a larger one, and so repeat another's."""
    return _integer(text, 0, 2**32 - 1)


def _integer(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from {least} to {most}")
    return value


def add_objective(parser: argparse.ArgumentParser) -> None:
    """--discount, --horizon or --first-exit."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--discount", type=float, help="judge by the discounted sum of rewards")
    group.add_argument("--horizon", type=count, help="judge by the sum of rewards over episodes of so many steps")
    group.add_argument("--first-exit", action="store_true", help="judge by the undiscounted sum of rewards to the end")


def objective_of(arguments: argparse.Namespace) -> Any:
    """The objective that was asked for; None: none was."""
    from bayes_mdp.mdp import Discounted, Episodic, FirstExit

    if arguments.first_exit:
        return FirstExit()
    if arguments.discount is not None:
        return Discounted(arguments.discount)
    return None if arguments.horizon is None else Episodic(arguments.horizon)


def add_columns(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The columns of a log. `required`: those of state and action must be named."""
    for name in COLUMNS:
        column, words = name.replace("_", "-"), name.replace("_", " ")
        needed = required and name in ("state", "action")
        described = f"the {words}" if name in COLUMNS[:4] else words
        parser.add_argument(f"--{column}", required=needed, metavar="COLUMN", help=f"column of {described}")


def log_of(arguments: argparse.Namespace) -> Any:
    """The log that the columns describe."""
    from bayes_mdp.envs import read_log

    return read_log(arguments.log, **{name: getattr(arguments, name) for name in COLUMNS})


def add_method(parser: argparse.ArgumentParser) -> None:
    """--method."""
    parser.add_argument("--method", choices=tuple(METHODS), default="auto", help="how the posterior is inferred")


def check_folders(*paths: Path | None) -> None:
    """Refuse to begin what could not be kept."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise FileNotFoundError(f"{path} lies in no folder that exists")


def save_figure(figure: Any, path: Path) -> None:
    """Write it and say where."""
    figure.savefig(path, dpi=150)
    print(f"figure: {path}")
