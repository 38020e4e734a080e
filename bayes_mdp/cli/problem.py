"""What a user knows of the problem beside the log, as options: legal actions, support, rewards, start, range."""

import argparse
from collections.abc import Hashable
from typing import TYPE_CHECKING

from bayes_mdp.cli.entered_labels import is_label, label_numbers, start_of
from bayes_mdp.cli.option_tables import read_table
from bayes_mdp.cli.options import count

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from jaxtyping import Bool, Float

    from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace
    from bayes_mdp.models.mdp_spec import Prior

LOGGED = "logged"


def add_problem(parser: argparse.ArgumentParser) -> None:
    """--legal, --support, --known-reward, --initial."""
    parser.add_argument(
        "--legal", choices=[LOGGED], help="actions that a state's rows of the log do not have are illegal"
    )
    parser.add_argument(
        "--support",
        metavar="FILE",
        help="CSV file of the possible transitions, in the log's columns of state, action and next state; no other can "
        "happen (an episode can end anywhere)",
    )
    parser.add_argument(
        "--known-reward",
        metavar="FILE",
        help="CSV file of the mean rewards, in the log's columns of state, action (if they depend on it) and reward or "
        "cost (or 'reward' or 'cost'), of all legal pairs; others are not looked at. The prior is then Dirichlet over "
        "rows, with a total concentration of one",
    )
    add_initial(parser)


def add_initial(parser: argparse.ArgumentParser) -> None:
    """--initial."""
    parser.add_argument(
        "--initial",
        metavar="STATE",
        help="state in which episodes start, or STATE=PROBABILITY,...; 'logged': as often as those of the log (the "
        "default, but uniform where the log is one stretch without an end, or read in chunks, or a stored posterior)",
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """--value-range and --min-count, where a policy is chosen."""
    parser.add_argument(
        "--value-range", nargs=2, type=float, metavar=("LOW", "HIGH"), help="the values that a policy can have"
    )
    parser.add_argument(
        "--min-count", type=count, default=0, help="only choose actions that the log has so often in the state"
    )


def space_of(
    arguments: argparse.Namespace, log: "Log | FoldedLog", successors: "str | None" = None
) -> "StateActionSpace":
    """The space of the log, with what is known."""
    import bayes_mdp as bm

    support = None if arguments.support is None else _support(arguments, log)
    return bm.StateActionSpace.from_log(log, legal=arguments.legal, support=support, successors=successors)  # type: ignore[arg-type] - choices of argparse


def prior_of(arguments: argparse.Namespace, space: "StateActionSpace", default: str) -> "Prior":
    """The prior that was named, or that of known rewards.

    Raises:
        ValueError: both were given; an unknown name; a table without the reward of a legal pair.
    """
    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_prior

    if arguments.known_reward is None:
        return find_prior(default if arguments.prior is None else arguments.prior)
    if arguments.prior is not None:
        raise ValueError(
            f"--prior is {arguments.prior!r} with --known-reward, expected one of them: write a prior with known "
            "rewards as MODULE:FUNCTION"
        )
    return bm.models.known_rewards(_rewards(arguments, space), 1.0 / space.n_outcomes)


def initial_of(
    arguments: argparse.Namespace, space: "StateActionSpace", log: "Log | FoldedLog | None"
) -> "Log | Hashable | dict[Hashable, float] | None":
    """Where episodes start, as `initial=` takes it: as given, else as `start_of_log`; None too where it was in chunks.

    Args:
        arguments: with `initial`.
        space: with the labels.
        log: None: there is a stored posterior in its place.

    Raises:
        ValueError: a state that the log does not have, what is no probability; 'logged' of a log in chunks, or of a
            stored posterior.
    """
    import bayes_mdp as bm
    from bayes_mdp.decisions.start import start_of_log

    if arguments.initial not in (None, LOGGED):
        return start_of("--initial", arguments.initial, space)
    if log is not None and not isinstance(log, bm.FoldedLog):
        return log if arguments.initial == LOGGED else start_of_log(log)
    if arguments.initial == LOGGED:
        what = "a stored posterior, which does" if log is None else "logs in chunks of rows, which do"
        raise ValueError(
            f"--initial is {LOGGED!r} with {what} not say where episodes start, expected a "
            "state, STATE=PROBABILITY,... or one log that is read as a whole"
        )
    return None


def _support(arguments: argparse.Namespace, log: "Log | FoldedLog") -> "Bool[np.ndarray, 'S A O']":
    import numpy as np

    columns = [arguments.state, arguments.action, arguments.next_state]
    if arguments.next_state is None:
        raise ValueError("--support is given without --next-state, expected the column of the next state")
    table = read_table("--support", arguments.support, columns)
    labels = ((log.states, "state"), (log.actions, "action"), (log.states, "state"))
    named = zip(columns, labels, strict=True)
    where = [label_numbers("--support", column, table[column], names, what) for column, (names, what) in named]
    possible = np.zeros((len(log.states), len(log.actions), len(log.states) + bool(log.ends)), bool)
    possible[tuple(where)] = True
    if log.ends:
        possible[..., -1] = True
    return possible


def _reward_column(arguments: argparse.Namespace, table: "pd.DataFrame") -> tuple[str, float]:
    """The column of --known-reward, and 1 for rewards or -1 for costs.

    Raises:
        ValueError: there is none; columns 'reward' and 'cost', and the log's are not named.
    """
    path = arguments.known_reward
    named = [(arguments.reward, 1.0), (arguments.cost, -1.0)]
    usual = [("reward", 1.0), ("cost", -1.0)]
    options = [pair for pair in named if pair[0] is not None] or usual
    found = [pair for pair in options if pair[0] in table.columns]
    if len(found) == 1:
        return found[0]
    names = " or ".join(repr(name) for name, _ in options)
    if not found:
        raise ValueError(f"--known-reward: {path!r} has no column {names}, expected one")
    raise ValueError(f"--known-reward: {path!r} has the columns 'reward' and 'cost', expected --reward or --cost too")


def _rewards(arguments: argparse.Namespace, space: "StateActionSpace") -> "Float[np.ndarray, 'S A']":
    import numpy as np

    option, path = "--known-reward", arguments.known_reward
    table = read_table(option, path, [arguments.state], [arguments.action])
    column, sign = _reward_column(arguments, table)
    kinds = [(arguments.state, space.state_names, "state"), (arguments.action, space.action_names, "action")]
    kinds = [kind for kind in kinds if kind[0] in table.columns]
    for name, labels, _ in kinds:
        table = table.loc[is_label(table[name], labels)]
    where = tuple(np.array(label_numbers(option, name, table[name], labels, what), int) for name, labels, what in kinds)
    for row, value in zip(table.index, table[column], strict=True):
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise ValueError(f"{option}: {column}[{row}] is {value!r}, expected a finite number")
    values, rewards = sign * np.asarray(table[column], float), np.full((space.n_states, space.n_actions), np.nan)
    rewards[where] = values if len(where) == 2 else values[:, None]
    kept = rewards[where] if len(where) == 2 else rewards[where][:, 0]
    other = np.flatnonzero(kept != values)  # the last row of a label is the one that is kept
    if other.size:
        names = ", ".join(f"{name} {labels[i[other[0]]]!r}" for (name, labels, _), i in zip(kinds, where, strict=True))
        raise ValueError(f"{option}: {path!r} has two values of {column!r} for {names}, expected one mean reward")
    legal = np.ones(rewards.shape, bool) if space.legal is None else np.asarray(space.legal)
    missing = np.argwhere(np.isnan(rewards) & legal)
    if len(missing):
        pair = f"{space.state_names[missing[0][0]]!r}, {space.action_names[missing[0][1]]!r}"
        raise ValueError(f"--known-reward: {path!r} has no reward of state, action {pair}, expected all legal pairs")
    return np.nan_to_num(rewards)
