"""Options that several commands share, and what they mean."""

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayes_mdp.mdp import FoldedLog, Log, Objective, StateActionSpace

UNEXPECTED = 1  # exit code of a verdict that is not the expected one
Commands = argparse._SubParsersAction  # of the parser of `bayes-mdp`; argparse has no public name for it
COLUMNS = ("state", "action", "reward", "next_state", "terminated", "truncated", "episode", "step")
METHODS = {
    "auto": "The best route that can be proven on the prior.",
    "exact": "Closed form, with the log evidence; for priors of conjugate sites.",
    "mixture": "One closed form for each value of discrete sites, with the log evidence.",
    "collapsed": "Conjugate sites in closed form, their hyperparameters by NUTS.",
    "factorised": "Rows in closed form, what is behind the rewards by NUTS.",
    "nuts": "Hamiltonian Monte Carlo on the whole prior.",
    "svi": "Stochastic variational inference.",
    "laplace": "A normal distribution at the mode.",
}


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the defaults, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def add_command(
    commands: Commands,
    name: str,
    command: Callable[[argparse.Namespace], int | None],
    text: str,
    *,
    resumes: bool = False,
) -> argparse.ArgumentParser:
    """The parser of one command.

    Args:
        commands: to add it to.
        name: of the command.
        command: what runs it; returns the exit code (None: 0).
        text: help.
        resumes: whether the same command with --out resumes an interrupted one.
    """
    parser = commands.add_parser(name, help=text, description=text, formatter_class=_Defaults)
    parser.set_defaults(command=command, resumes=resumes)
    return parser


def count(text: str) -> int:
    """An integer that a count in JAX can hold; the library checks whether it is large enough."""
    return _integer(text, -(2**31), 2**31 - 1)


def seed(text: str) -> int:
    """A seed. JAX would take the last 32 bits of a larger one, which is another valid seed."""
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
    """--discount, --horizon, both of them, or --first-exit."""
    parser.add_argument("--discount", type=float, help="evaluate by the discounted sum of rewards")
    parser.add_argument(
        "--horizon",
        type=count,
        help="evaluate by the sum of rewards over episodes of so many steps (with --discount: the discounted sum)",
    )
    parser.add_argument(
        "--first-exit", action="store_true", help="evaluate by the undiscounted sum of rewards to the end"
    )


def objective_of(arguments: argparse.Namespace) -> "Objective | None":
    """The objective that was asked for; None: none was.

    Raises:
        ValueError: two objectives; a discount outside its range.
    """
    from bayes_mdp.mdp import Discounted, Episodic, FirstExit

    discount, horizon = arguments.discount, arguments.horizon
    if arguments.first_exit:
        other = next((name for name in ("discount", "horizon") if getattr(arguments, name) is not None), None)
        if other is not None:
            raise ValueError(f"--first-exit is given with --{other}, expected one objective")
        return FirstExit()
    if horizon is not None:
        return Episodic(horizon, 1.0 if discount is None else discount)
    return None if discount is None else Discounted(discount)


def add_columns(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The columns of a log. `required`: those of state and action must be named."""
    for name in COLUMNS:
        column, words = name.replace("_", "-"), name.replace("_", " ")
        needed = required and name in ("state", "action")
        described = f"the {words}" if name in COLUMNS[:4] else words
        parser.add_argument(f"--{column}", required=needed, metavar="COLUMN", help=f"column of {described}")
    text = "an empty reward is an error, or its row counts for the transition alone"
    parser.add_argument("--missing-reward", choices=("error", "ignore"), default="error", help=text)


def add_chunks(parser: argparse.ArgumentParser) -> None:
    """--chunksize and --allow-duplicates, of logs that are folded."""
    parser.add_argument("--chunksize", type=count, help="rows that are read at once, of logs larger than memory")
    parser.add_argument("--allow-duplicates", action="store_true", help="count logs of the same content each time")


def log_of(arguments: argparse.Namespace) -> "Log":
    """The log that the columns describe."""
    from bayes_mdp.envs import read_log

    return read_log(arguments.log, **_columns(arguments))


def folded_of(arguments: argparse.Namespace, space: "StateActionSpace | None" = None) -> "FoldedLog":
    """The logs that the columns describe, folded; `space`: whose labels they have."""
    from bayes_mdp.envs import fold_log

    size = 10**6 if arguments.chunksize is None else arguments.chunksize
    duplicates = arguments.allow_duplicates
    return fold_log(arguments.log, **_columns(arguments), space=space, chunksize=size, allow_duplicates=duplicates)


def _columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_columns` has read, as arguments of `read_log` and `fold_log`."""
    return {name: getattr(arguments, name) for name in (*COLUMNS, "missing_reward")}


def add_method(parser: argparse.ArgumentParser) -> None:
    """--method."""
    parser.add_argument("--method", choices=tuple(METHODS), default="auto", help="how the posterior is inferred")


def check_outputs(arguments: argparse.Namespace, *names: str, inputs: Iterable[str | Path] = ()) -> None:
    """Check the output files before any work: writable, different from each other and from the inputs.

    Args:
        arguments: of the command.
        names: of the options that name a file to be written; of a figure ("figure", "film") by its ending.
        inputs: files that the command reads.

    Raises:
        ValueError: an option names an input, the file of another option, or what is no file; an ending that no figure
            has. OSError: no such folder, or nothing can be written there.
    """
    from bayes_mdp.mdp.files import check_file

    taken = {os.path.realpath(path): f"what is read, {str(path)!r}" for path in inputs}
    for name in names:
        path = getattr(arguments, name)
        if path is None:
            continue
        place = str(check_file(path, f"--{name}"))
        same = next((one for one in taken if one == place or _is_same(one, place)), None)
        if same is not None:
            raise ValueError(f"--{name} is {str(path)!r}, which is {taken[same]}, expected another file")
        if name in _FIGURES:
            _check_ending(name, path)
        taken[place] = f"also --{name}"


_FIGURES = ("figure", "film")


def _is_same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _check_ending(name: str, path: Path) -> None:
    from matplotlib.backend_bases import FigureCanvasBase

    endings = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in endings:
        known = ", ".join(f".{ending}" for ending in endings)
        raise ValueError(f"--{name} is {str(path)!r}, expected a name that ends in one of {known}")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write it, whole or not at all, and say where."""
    from bayes_mdp.mdp.files import write_beside

    write_beside(path, lambda beside: figure.savefig(beside, dpi=150))
    print(f"figure: {path}")
