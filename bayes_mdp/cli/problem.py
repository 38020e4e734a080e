"""What a user knows of the problem beside the log, as options: legal actions, support, rewards, start, range.

Policies and first states are text: STATE=ACTION,STATE=ACTION, a CSV file with named columns, STATE=PROBABILITY.
"""

import argparse
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bayes_mdp.cli.options import count

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from jaxtyping import Bool, Float

    from bayes_mdp.mdp import FoldedLog, Log, StateActionSpace
    from bayes_mdp.models.mdp_spec import Prior


BEHAVIOUR = "behaviour"
TABLES = (".csv", ".tsv")
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


def add_prior(parser: argparse.ArgumentParser) -> None:
    """--prior."""
    parser.add_argument(
        "--prior",
        help="a name of `list`, or MODULE:FUNCTION (default: rows of a concentration that is learnt, and rewards of a "
        "law that the log suggests, see bm.models.default_prior)",
    )


def prior_of(arguments: argparse.Namespace, space: "StateActionSpace", log: "Log | FoldedLog") -> "Prior":
    """The prior that was named, or that of known rewards; else `default_prior`, whose rewards need some in the log.

    Raises:
        ValueError: both were given; an unknown name; a table without the reward of a legal pair.
    """
    import bayes_mdp as bm
    from bayes_mdp.experiments.registry_names import find_prior

    if arguments.known_reward is None and arguments.prior is None:
        rewarded = log.has_rewards if isinstance(log, bm.mdp.FoldedLog) else log.transitions.reward is not None
        return bm.models.default_prior(log, space=space) if rewarded else bm.models.dirichlet_normal_gamma()
    if arguments.known_reward is None:
        return find_prior(arguments.prior)
    if arguments.prior is not None:
        raise ValueError(
            f"--prior is {arguments.prior!r} with --known-reward, expected one of them: write a prior with known "
            "rewards as MODULE:FUNCTION"
        )
    return bm.models.known_rewards(known_rewards_of(arguments, space), 1.0 / space.n_outcomes)


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
    from bayes_mdp.decisions.policy_evaluation import start_of_log

    if arguments.initial not in (None, LOGGED):
        return start_of("--initial", arguments.initial, space)
    if log is not None and not isinstance(log, bm.mdp.FoldedLog):
        return log if arguments.initial == LOGGED else start_of_log(log)
    if arguments.initial == LOGGED:
        source = "a stored posterior, which does" if log is None else "logs in chunks of rows, which do"
        raise ValueError(
            f"--initial is {LOGGED!r} with {source} not say where episodes start, expected a "
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
    cell = [label_numbers("--support", column, table[column], names, role) for column, (names, role) in named]
    possible = np.zeros((len(log.states), len(log.actions), len(log.states) + bool(log.ends)), bool)
    possible[tuple(cell)] = True
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
    present = [pair for pair in options if pair[0] in table.columns]
    if len(present) == 1:
        return present[0]
    names = " or ".join(repr(name) for name, _ in options)
    if not present:
        raise ValueError(f"--known-reward: {path!r} has no column {names}, expected one")
    raise ValueError(f"--known-reward: {path!r} has the columns 'reward' and 'cost', expected --reward or --cost too")


def known_rewards_of(arguments: argparse.Namespace, space: "StateActionSpace") -> "Float[np.ndarray, 'S A']":
    """The mean rewards of --known-reward, zero for illegal pairs.

    Args:
        arguments: `known_reward`, and the columns `state`, `action`, `reward` and `cost`.
        space: whose labels the table has.

    Raises:
        ValueError: no such file or column; two values of a pair; a legal pair without one.
    """
    import numpy as np

    option, path = "--known-reward", arguments.known_reward
    table = read_table(option, path, [arguments.state], [arguments.action])
    column, sign = _reward_column(arguments, table)
    kinds = [(arguments.state, space.state_names, "state"), (arguments.action, space.action_names, "action")]
    kinds = [kind for kind in kinds if kind[0] in table.columns]
    for name, labels, _ in kinds:
        table = table.loc[is_label(table[name], labels)]
    index = tuple(np.array(label_numbers(option, name, table[name], labels, role), int) for name, labels, role in kinds)
    for row, value in zip(table.index, table[column], strict=True):
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise ValueError(f"{option}: {column}[{row}] is {value!r}, expected a finite number")
    values, rewards = sign * np.asarray(table[column], float), np.full((space.n_states, space.n_actions), np.nan)
    rewards[index] = values if len(index) == 2 else values[:, None]
    stored = rewards[index] if len(index) == 2 else rewards[index][:, 0]
    changed = np.flatnonzero(stored != values)  # the last row of a label is the one that is kept
    if changed.size:
        names = ", ".join(
            f"{name} {labels[i[changed[0]]]!r}" for (name, labels, _), i in zip(kinds, index, strict=True)
        )
        raise ValueError(f"{option}: {path!r} has two values of {column!r} for {names}, expected one mean reward")
    legal = np.ones(rewards.shape, bool) if space.legal is None else np.asarray(space.legal)
    missing = np.argwhere(np.isnan(rewards) & legal)
    if len(missing):
        pair = f"{space.state_names[missing[0][0]]!r}, {space.action_names[missing[0][1]]!r}"
        raise ValueError(f"--known-reward: {path!r} has no reward of state, action {pair}, expected all legal pairs")
    return np.nan_to_num(rewards)


# Policies and first states as text.


def read_table(option: str, path: str, columns: list[str], more_labels: Sequence[str] = ()) -> "pd.DataFrame":
    """A CSV file that has these columns, which hold labels: they are read as text ("007" is not 7, "NA" is a label).

    Args:
        option: in messages.
        path: of the file.
        columns: of labels, that it needs.
        more_labels: columns of labels that it may have.

    Raises:
        ValueError: it is no CSV file; a column is missing. FileNotFoundError: there is no such file.
    """
    import pandas as pd

    from bayes_mdp.envs.logs.tables import MISSING, separator

    labels, between = {*columns, *more_labels}, separator(Path(path))
    try:
        unlabelled = set(pd.read_csv(path, sep=between, nrows=0).columns) - labels
        table = pd.read_csv(
            path,
            sep=between,
            dtype=dict.fromkeys(labels, str),
            keep_default_na=False,
            na_values={name: list(MISSING) for name in unlabelled},
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{option} is {path!r}, expected a CSV file: {error}") from None
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(f"{option}: {path!r} has no column {missing[0]!r}, expected {', '.join(map(repr, columns))}")
    return table


ReadFile: TypeAlias = Callable[[str, str], Any]
"""(option, path) -> the policy of a file of another kind; None: it is of none."""


def baseline_of(
    arguments: argparse.Namespace, space: "StateActionSpace", read_file: ReadFile = lambda option, path: None
) -> Any:
    """--baseline as state -> action, or state -> {action: probability}; None: what the log did.

    Args:
        arguments: `baseline`, and the log's columns `state` and `action`.
        space: of the log, with its labels.
        read_file: of a file of another kind.

    Raises:
        ValueError: as `policy_of_text`.
    """
    option, text = "--baseline", arguments.baseline
    if text == BEHAVIOUR:
        return None
    policy = read_file(option, text) if Path(text).suffix in TABLES else None
    return policy_of_text(option, text, arguments, space, (BEHAVIOUR,)) if policy is None else policy


def policies_of(
    arguments: argparse.Namespace, space: "StateActionSpace", read_file: ReadFile = lambda option, path: None
) -> dict[str, Any]:
    """--policy, each by its name: that of the file, or what was entered.

    Args:
        arguments: `policy`, and the log's columns `state` and `action`.
        space: of the log, with its labels.
        read_file: of a file of another kind.

    Raises:
        ValueError: as `policy_of_text`; two of one name.
    """
    policies: dict[str, Any] = {}
    for text in arguments.policy:
        is_file = Path(text).suffix in TABLES
        name = Path(text).stem if is_file else text
        if name in policies:
            raise ValueError(f"--policy has {name!r} twice, expected each once")
        policy = read_file("--policy", text) if is_file else None
        policies[name] = policy_of_text("--policy", text, arguments, space) if policy is None else policy
    return policies


def policy_of_text(
    option: str, text: str, arguments: argparse.Namespace, space: "StateActionSpace", also: tuple[str, ...] = ()
) -> "dict[Hashable, Any]":
    """A policy as state -> action, or state -> {action: probability}: from an action, STATE=ACTION,... or a CSV file.

    Args:
        option: in messages.
        text: as it was entered.
        arguments: the log's columns `state` and `action`.
        space: of the log, with its labels.
        also: what else would do, in messages.

    Raises:
        ValueError: one sentence: no action, pair or file; a label that the log does not have; a state twice.
    """
    actions = [str(action) for action in space.action_names]
    if text in actions:
        return dict.fromkeys(space.state_names, label(option, text, space.action_names, "action"))
    if Path(text).suffix in TABLES:
        return _from_file(option, text, arguments, space)
    if "=" in text:
        pairs = _pairs(option, text, "STATE=ACTION")
        state = lambda text: label(option, text, space.state_names, "state")  # noqa: E731
        action = lambda text: label(option, text, space.action_names, "action")  # noqa: E731
        return {state(left): action(right) for left, right in pairs}
    from bayes_mdp.utils.messages import did_you_mean

    hint = did_you_mean(text, [*also, *actions])
    alternatives = "".join(f"{word!r} or " for word in also)
    raise ValueError(
        f"{option} is {text!r}, expected {alternatives}an action of the log, STATE=ACTION,... or a CSV file{hint}"
    )


def start_of(option: str, text: str, space: "StateActionSpace") -> "Hashable | dict[Hashable, float]":
    """A state, or state -> probability from STATE=PROBABILITY,...

    Args:
        option: in messages.
        text: of the option.
        space: of the log, with its labels.

    Raises:
        ValueError: one sentence: a label that the log does not have, what is no number, a state twice.
    """
    if "=" not in text or text in map(str, space.state_names):
        return label(option, text, space.state_names, "state", "'logged', STATE=PROBABILITY,... or ")
    pairs = _pairs(option, text, "STATE=PROBABILITY")
    return {label(option, state, space.state_names, "state"): _number(option, chance) for state, chance in pairs}


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} has {text!r}, expected a probability") from None


def label(option: str, text: str, names: "Sequence[Hashable]", what: str, also: str = "") -> Hashable:
    """The label that is written so; of numbers also "2.0" for 2, as in a log.

    Args:
        option: in messages.
        text: as it was entered.
        names: the labels.
        what: "state" or "action".
        also: what else would do, in messages.

    Raises:
        ValueError: there is none, or two (1 and "1").
    """
    return names[_find(option, text, _places(names), names, what, also)]


def label_numbers(
    option: str, column: str, cells: "Iterable[object]", names: "Sequence[Hashable]", what: str
) -> list[int]:
    """The index of the label that each cell of a table writes, as `label` finds it.

    Args:
        option, column: in messages.
        cells: of the column.
        names: the labels.
        what: "state" or "action".

    Raises:
        ValueError: as `label`; names the row.
    """
    places = _places(names)
    return [_find(f"{option}: {column}[{row}]", str(x), places, names, what) for row, x in enumerate(cells)]


def table_of_pairs(
    option: str, path: str, arguments: argparse.Namespace, space: "StateActionSpace"
) -> "tuple[pd.DataFrame, list[tuple[Hashable, Hashable]]]":
    """A CSV file in the log's columns of state and action, and its pairs by label, one of each row.

    Args:
        option: in messages.
        path: of the file.
        arguments: the log's columns `state` and `action`.
        space: of the log, with its labels.

    Raises:
        ValueError: as `read_table` and `label`; names the row.
    """
    table = read_table(option, path, [arguments.state, arguments.action])
    columns = (arguments.state, space.state_names, "state"), (arguments.action, space.action_names, "action")
    states, actions = (
        [names[i] for i in label_numbers(option, column, table[column], names, role)] for column, names, role in columns
    )
    return table, list(zip(states, actions, strict=True))


def is_label(cells: "Iterable[object]", names: "Sequence[Hashable]") -> list[bool]:
    """Which cells of a table write a label, as `label` finds it.

    Args:
        cells: of a column.
        names: the labels.
    """
    from bayes_mdp.envs.logs.columns import number_of

    places = _places(names)
    return [str(x) in places or number_of(str(x)) in places for x in cells]


def _places(names: "Sequence[Hashable]") -> dict[object, list[int]]:
    """The indices of the labels that are written so, and of the numbers among them."""
    places: dict[object, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(str(name), []).append(i)
        if isinstance(name, (int, float)):
            places.setdefault(name, []).append(i)
    return places


def _find(
    option: str,
    text: str,
    places: dict[object, list[int]],
    names: "Sequence[Hashable]",
    what: str,
    also: str = "",
) -> int:
    from bayes_mdp.envs.logs.columns import number_of
    from bayes_mdp.utils.messages import did_you_mean

    matches = places.get(text) or places.get(number_of(text), [])
    if len(matches) > 1:
        from bayes_mdp.utils.validation import label_list

        readings = label_list([names[i] for i in matches])
        raise ValueError(
            f"{option} is {text!r}, which {readings} are all written as, expected labels that differ as text"
        )
    if not matches:
        hint, article = did_you_mean(text, [*map(str, names)]), "an" if what[0] in "aeiou" else "a"
        raise ValueError(f"{option} is {text!r}, expected {also}{article} {what} of the log{hint}")
    return matches[0]


def _pairs(option: str, text: str, form: str) -> list[tuple[str, str]]:
    """The pairs of A=B,C=D, each left side once."""
    pairs = [part.partition("=") for part in text.split(",")]
    bad = next((left + mid for left, mid, right in pairs if not (left.strip() and right.strip())), None)
    if bad is not None:
        raise ValueError(f"{option} has {bad!r}, expected {form},{form}")
    stripped = [(left.strip(), right.strip()) for left, _, right in pairs]
    _refuse_twice(option, [left for left, _ in stripped])
    return stripped


def _refuse_twice(option: str, labels: "Sequence[object]") -> None:
    seen: set[object] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"{option} has {label!r} twice, expected each once")
        seen.add(label)


def _from_file(
    option: str, path: str, arguments: argparse.Namespace, space: "StateActionSpace"
) -> "dict[Hashable, Any]":
    """State, action and perhaps probability, one row each."""
    table, pairs = table_of_pairs(option, path, arguments, space)
    return policy_of_rows(option, table, pairs)


def policy_of_rows(
    option: str, table: "pd.DataFrame", pairs: "Sequence[tuple[Hashable, Hashable]]"
) -> "dict[Hashable, Any]":
    """A policy as state -> action, or, where the table has a column 'probability', state -> {action: probability}.

    Args:
        option: in messages.
        table: a row for each pair.
        pairs: (state, action) by label.

    Raises:
        ValueError: a state twice; of a table with probabilities a pair twice.
    """
    if "probability" not in table.columns:
        _refuse_twice(option, [state for state, _ in pairs])
        return dict(pairs)
    _refuse_twice(option, pairs)
    policy: dict[Hashable, dict[Hashable, Any]] = {}
    for (state, action), chance in zip(pairs, table["probability"], strict=True):
        policy.setdefault(state, {})[action] = chance
    return policy
