"""A stored posterior (`fit --save`, `bm.save`) in place of a log: how it is recognised, and what only a log takes."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bayes_mdp.cli.options import COLUMNS, LABELS, is_stored

if TYPE_CHECKING:
    from bayes_mdp.calibration.belief.posterior_views import FittedPosterior

_NOT_GIVEN = {"missing_reward": ("error",), "method": ("auto",)}
"""What an option is where nobody has given it, if not None or False."""
_OF_A_LOG = (
    *COLUMNS,
    *LABELS,
    "missing_reward",
    "chunksize",
    "allow_duplicates",
    "prior",
    "method",
    "successors",
    "legal",
    "support",
    "known_reward",
)
PAIR = ("state", "action")


def stored_in(arguments: argparse.Namespace, *more: str) -> str | None:
    """The file of a posterior that is named in place of `log`; None: it is a log (or several), with its columns.

    Of a stored posterior the columns of other tables (--candidates, --baseline) are called state and action.

    Args:
        arguments: with `log`; columns that the parser does not require are looked for here.
        more: options of the command that only a log takes.

    Raises:
        ValueError: a stored posterior with another file, or with an option that only a log takes; a log without the
            names of its columns of state and action.
    """
    paths: Sequence[str] = arguments.log if isinstance(arguments.log, list) else [arguments.log]
    path = next((path for path in paths if is_stored(path)), None)
    if path is None:
        for name in PAIR:
            if getattr(arguments, name) is None:
                raise ValueError(
                    f"--{name} is missing, expected the name of the column of the {name} in {', '.join(paths)}"
                )
        return None
    if len(paths) > 1:
        raise ValueError(
            f"{path} is a stored posterior, expected it alone: `bayes-mdp update` learns more logs into it"
        )
    for name in (*_OF_A_LOG, *more):
        if getattr(arguments, name, None) not in (None, False, *_NOT_GIVEN.get(name, ())):
            raise ValueError(
                f"--{name.replace('_', '-')} is given with {path}, a stored posterior, expected it with a log alone"
            )
    arguments.state, arguments.action = PAIR
    return path


def load_stored(path: str) -> "FittedPosterior":
    """The posterior of a file.

    Args:
        path: of the file.

    Raises:
        ValueError, OSError: as `bm.load`; draws of MDPs alone, which no command writes.
    """
    from bayes_mdp.inference import PosteriorSamples
    from bayes_mdp.inference.storage import load

    posterior = load(path)
    if isinstance(posterior, PosteriorSamples):
        raise ValueError(f"{path} holds draws of MDPs without labels, expected a posterior as `fit --save` stores it")
    return posterior
