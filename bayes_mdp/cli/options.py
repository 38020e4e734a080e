"""Options that several commands share, and what they mean."""

import argparse
import csv
import os
import re
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bayes_mdp.mdp import FoldedLog, Log, Objective, StateActionSpace
    from bayes_mdp.utils.typing import Names

STORED = ".bmdp"  # how the names of stored posteriors end
_INDEXED = re.compile(rb'(?:^|,)"?\w+(?:\.1\.1\.1|\[1, ?1, ?1\])"?')  # columns of Stan and R
UNEXPECTED = 1  # exit code of a verdict that is not the expected one
Commands = argparse._SubParsersAction  # of the parser of `bayes-mdp`; argparse has no public name for it
LABELS = ("states", "actions")
WHOLE_LOG = {"every": None, "count": None, "reward_at": "step"}
"""What a log that is read in chunks does not have, and what it is where nobody has given it."""
ABOUT = ("subject", "covariates", "varying", "group", "process")
"""Columns that say more of a subject (see `covariates`)."""
COLUMNS = ("state", "action", "reward", "cost", "next_state", "terminated", "truncated", "episode", "step")
_DESCRIBED = {
    "state": "the state",
    "action": "the action",
    "reward": "the reward, larger is better",
    "cost": "the cost, in place of the reward: rewards are minus the cost",
    "next_state": "the next state",
}
METHODS = {
    "auto": "The best route that can be proven on the prior.",
    "exact": "Closed form, with the log evidence; for priors of conjugate sites.",
    "mixture": "One closed form for each value of discrete sites, with the log evidence.",
    "quadrature": "A grid over one to three hyperparameters, conjugate sites in closed form, with the log evidence.",
    "importance": "Weighted draws of hyperparameters or of what is behind the rewards, the rest in closed form.",
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
        second = next((name for name in ("discount", "horizon") if getattr(arguments, name) is not None), None)
        if second is not None:
            raise ValueError(f"--first-exit is given with --{second}, expected one objective")
        return FirstExit()
    if horizon is not None:
        return Episodic(horizon, 1.0 if discount is None else discount)
    return None if discount is None else Discounted(discount)


def require_objective(arguments: argparse.Namespace) -> "Objective":
    """The objective that was asked for.

    Raises:
        ValueError: none was; two objectives; a discount outside its range.
    """
    objective = objective_of(arguments)
    if objective is None:
        raise ValueError("no objective was given, expected --discount, --horizon or --first-exit")
    return objective


MISSING = ("missing_reward", "missing_state", "gaps")
"""What may be missing from a log, as arguments of `read_log`."""


def list_of_names(text: str) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in text.split(",")]


def add_columns(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """The columns of a log, what may be missing, and how a file is written.

    `required`: those of state and action must be named.
    """
    for name in COLUMNS:
        needed = required and name in ("state", "action")
        text = f"column of {_DESCRIBED.get(name, name)}"
        parser.add_argument(f"--{name.replace('_', '-')}", required=needed, metavar="COLUMN", help=text)
    if not required:
        parser.add_argument("--chain", action="store_true", help="the log has no actions: no --action")
    text = "columns of other numbers beside the reward, such as cost,days, learnt from the same rows of the log"
    parser.add_argument("--outcomes", type=list_of_names, metavar="COLUMN,...", help=text)
    text = "an empty reward or cost is an error, or its row counts for the transition alone"
    parser.add_argument("--missing-reward", choices=("error", "ignore"), default="error", help=text)
    text = "an empty state is an error, or ends one run of transitions; the row before it counts by action and reward"
    parser.add_argument("--missing-state", choices=("error", "gap"), default="error", help=text)
    text = "a step that is left out is an error, or ends one run of transitions likewise"
    parser.add_argument("--gaps", choices=("error", "cut"), default="error", help=text)
    add_dialect(parser)
    text = "the length of a step where --step is a column of dates, such as 1D, 12h, 1W or 1M"
    parser.add_argument("--every", help=text)
    text = "the row of a reward: that of its action, the next row of the episode, or the last one, with the total"
    parser.add_argument("--reward-at", choices=("step", "next", "episode"), default="step", help=text)
    text = "column of how many transitions a row stands for"
    parser.add_argument("--count", metavar="COLUMN", help=text)


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """--sep, --encoding and --decimal of a text file."""
    text = "what is between the cells of a text file, such as ';' or '\\t' (default: a tab in .tsv, else a comma)"
    parser.add_argument("--sep", help=text)
    parser.add_argument("--encoding", help="the encoding of a text file, such as latin-1 (default: utf-8)")
    parser.add_argument("--decimal", choices=(".", ","), default=".", help="the sign of decimals in a text file")


def dialect_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_dialect` has read, as arguments of the readers of logs."""
    sep = "\t" if arguments.sep == "\\t" else arguments.sep
    return {"sep": sep, "encoding": arguments.encoding, "decimal": arguments.decimal}


def add_labels(parser: argparse.ArgumentParser) -> None:
    """--states and --actions, all labels of a log."""
    for name in LABELS:
        parser.add_argument(
            f"--{name}",
            metavar="A,B,...",
            action="append",
            help=f"all {name}, in order (default: those of the log); a label with a comma is quoted as in a CSV file, "
            "the option may be given several times",
        )


def labels_of(arguments: argparse.Namespace, name: str) -> "Names | None":
    """The labels that --states or --actions lists; numbers where all of them are. None: they were not given."""
    from bayes_mdp.envs.logs.columns import as_numbers

    words = getattr(arguments, name, None)
    if words is None:
        return None
    try:
        labels = [label for line in csv.reader(words, skipinitialspace=True, strict=True) for label in line]
    except csv.Error as error:
        raise ValueError(f"--{name} is {' '.join(words)!r}, expected labels with commas between: {error}") from None
    if "" in labels:
        raise ValueError(f"--{name} is {' '.join(words)!r}, expected labels with commas between, none of them empty")
    return tuple(as_numbers(f"--{name}", list[Hashable](labels), None))


def add_chunks(parser: argparse.ArgumentParser) -> None:
    """--chunksize and --allow-duplicates, of logs that are folded."""
    parser.add_argument("--chunksize", type=count, help="rows that are read at once, of logs larger than memory")
    parser.add_argument("--allow-duplicates", action="store_true", help="count logs of the same content each time")


INPUTS = ("log", "posterior", "config", "folder")
"""Arguments of commands that name what is read."""


def check_inputs(arguments: argparse.Namespace) -> None:
    """Refuse files that are not there before anything heavy is imported: JAX alone takes seconds.

    Args:
        arguments: of any command; those named in `INPUTS` are paths, or lists of them.

    Raises:
        FileNotFoundError: there is no such file or folder. IsADirectoryError: it is a folder in place of a file.
    """
    for name in INPUTS:
        paths = getattr(arguments, name, None)
        for path in map(Path, paths if isinstance(paths, list) else [] if paths is None else [paths]):
            if not path.exists():
                raise FileNotFoundError(f"{path}: no such {'folder' if name == 'folder' else 'file'}")
            if path.is_dir() and name != "folder":
                raise IsADirectoryError(f"{path} is a folder, expected a file")


def is_stored(path: str | Path) -> bool:
    """Whether a file is a stored posterior: by its name, or by how it begins.

    Args:
        path: of the file; it need not be there.
    """
    if Path(path).suffix == STORED:
        return True
    if not Path(path).is_file():
        return False
    from bayes_mdp.inference.storage import is_saved

    return is_saved(path)


def holds_draws(path: str | Path) -> bool:
    """Whether a file holds draws of another program: NetCDF, or CSV with columns such as `P.1.1.1` or `P[1,1,1]`.

    Args:
        path: of the file; it need not be there.
    """
    path = Path(path)
    if not path.is_file():
        return path.suffix.lower() == ".nc"
    with path.open("rb") as file:
        begins = file.read(4)
        if begins == b"\x89HDF" or begins[:3] == b"CDF":
            return True
        file.seek(0)
        # Stan's comments come first; a line that is no text has no such columns.
        head = next((line for line in file if not line.startswith(b"#")), b"")
    return _INDEXED.search(head) is not None


def refuse_draws(*paths: str | Path) -> None:
    """Refuse draws of another program where there must be a log.

    Raises:
        ValueError: one of the files holds such draws.
    """
    path = next((path for path in paths if holds_draws(path)), None)
    if path is not None:
        raise ValueError(
            f"{path} holds draws of another program, which learn nothing from new data, expected a log here; "
            f"`bayes-mdp decide --draws {path}` chooses by draws"
        )


def refuse_posterior_file(*paths: str | Path) -> None:
    """Refuse a stored posterior, and draws of another program, where there must be a log.

    Raises:
        ValueError: one of the files is one.
    """
    refuse_draws(*paths)
    path = next((path for path in paths if is_stored(path)), None)
    if path is not None:
        raise ValueError(f"{path} is a stored posterior, expected a log here: a table with one row for each transition")


def log_of(arguments: argparse.Namespace) -> "Log":
    """The log that the columns describe."""
    from bayes_mdp.envs import read_log

    refuse_posterior_file(arguments.log)
    with warnings_in_one_line():
        return read_log(arguments.log, **_columns(arguments), **{name: getattr(arguments, name) for name in WHOLE_LOG})


def fold_logs(arguments: argparse.Namespace, space: "StateActionSpace | None" = None) -> "FoldedLog":
    """The logs that the columns describe, folded; `space`: whose labels they have."""
    from bayes_mdp.envs import read_log

    refuse_posterior_file(*arguments.log)
    for name, usual in WHOLE_LOG.items():
        if getattr(arguments, name) != usual:
            raise ValueError(
                f"--{name.replace('_', '-')} is given with logs that are read in chunks of rows, expected one log that "
                "is read as a whole"
            )
    size = 10**6 if arguments.chunksize is None else arguments.chunksize
    duplicates = arguments.allow_duplicates
    options = {"space": space, "chunksize": size, "allow_duplicates": duplicates}
    with warnings_in_one_line():
        return read_log(arguments.log, **_columns(arguments), **options)


def _columns(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_columns` and `add_labels` have read, as arguments of `read_log`."""
    named = {name: getattr(arguments, name) for name in (*COLUMNS, *MISSING)} | dialect_of(arguments)
    named["outcomes"] = arguments.outcomes
    named |= {name: getattr(arguments, name) for name in ABOUT if getattr(arguments, name, None) is not None}
    return named | {name: labels_of(arguments, name) for name in LABELS}


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings of the library go to stderr as one line each, without the place in the program."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in said:
        print(f"bayes-mdp: warning: {warning.message}", file=sys.stderr)


def say_log(log: "Log | FoldedLog") -> None:
    """That rewards are minus costs, and which rows are no transitions, where a result does not say it itself."""
    from bayes_mdp.mdp import FoldedLog

    costs = [source.cost for source in log.sources] if isinstance(log, FoldedLog) else [log.cost]
    for cost in dict.fromkeys(costs):
        if cost is not None:
            print(f"Rewards are minus column {cost!r}: larger is better.\n")
    if log.notes:
        print(f"Of the log: {'; '.join(log.notes)}.\n")


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
    from bayes_mdp.utils.files import check_file

    taken = {os.path.realpath(path): f"what is read, {str(path)!r}" for path in inputs}
    for name in names:
        path = getattr(arguments, name)
        if path is None:
            continue
        place = str(check_file(path, f"--{name}"))
        clash = next((earlier for earlier in taken if earlier == place or _is_same(earlier, place)), None)
        if clash is not None:
            raise ValueError(f"--{name} is {str(path)!r}, which is {taken[clash]}, expected another file")
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
    from bayes_mdp.utils.files import write_beside

    write_beside(path, lambda beside: figure.savefig(beside, dpi=150))
    print(f"figure: {path}")
