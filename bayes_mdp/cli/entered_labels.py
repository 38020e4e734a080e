"""Policies and first states as text: STATE=ACTION,STATE=ACTION, a CSV file, STATE=PROBABILITY."""

import argparse
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_mdp.cli.option_tables import read_table
from bayes_mdp.utils.validation import label_list

if TYPE_CHECKING:
    import pandas as pd

    from bayes_mdp.mdp import StateActionSpace

BEHAVIOUR = "behaviour"
TABLES = (".csv", ".tsv")


def baseline_of(arguments: argparse.Namespace, space: "StateActionSpace") -> "dict[Hashable, Any] | None":
    """--baseline as state -> action, or state -> {action: probability}; None: what the log did.

    Args:
        arguments: `baseline`, and the log's columns `state` and `action`.
        space: of the log, with its labels.

    Raises:
        ValueError: as `entered_policy`.
    """
    if arguments.baseline == BEHAVIOUR:
        return None
    return entered_policy("--baseline", arguments.baseline, arguments, space, (BEHAVIOUR,))


def policies_of(arguments: argparse.Namespace, space: "StateActionSpace") -> "dict[str, dict[Hashable, Any]]":
    """--policy, each by its name: that of the file, or what was entered.

    Args:
        arguments: `policy`, and the log's columns `state` and `action`.
        space: of the log, with its labels.

    Raises:
        ValueError: as `entered_policy`; two of one name.
    """
    policies: dict[str, dict[Hashable, Any]] = {}
    for text in arguments.policy:
        name = Path(text).stem if Path(text).suffix in TABLES else text
        if name in policies:
            raise ValueError(f"--policy has {name!r} twice, expected each once")
        policies[name] = entered_policy("--policy", text, arguments, space)
    return policies


def entered_policy(
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

    near = did_you_mean(text, [*also, *actions])
    other = "".join(f"{each!r} or " for each in also)
    raise ValueError(
        f"{option} is {text!r}, expected {other}an action of the log, STATE=ACTION,... or a CSV file{near}"
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
        [names[i] for i in label_numbers(option, column, table[column], names, what)] for column, names, what in columns
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

    found = places.get(text) or places.get(number_of(text), [])
    if len(found) > 1:
        both = label_list([names[i] for i in found])
        raise ValueError(f"{option} is {text!r}, which {both} are all written as, expected labels that differ as text")
    if not found:
        near, article = did_you_mean(text, [*map(str, names)]), "an" if what[0] in "aeiou" else "a"
        raise ValueError(f"{option} is {text!r}, expected {also}{article} {what} of the log{near}")
    return found[0]


def _pairs(option: str, text: str, form: str) -> list[tuple[str, str]]:
    """The pairs of A=B,C=D, each left side once."""
    pairs = [part.partition("=") for part in text.split(",")]
    bad = next((left + mid for left, mid, right in pairs if not (left.strip() and right.strip())), None)
    if bad is not None:
        raise ValueError(f"{option} has {bad!r}, expected {form},{form}")
    found = [(left.strip(), right.strip()) for left, _, right in pairs]
    _refuse_twice(option, [left for left, _ in found])
    return found


def _refuse_twice(option: str, labels: "Sequence[object]") -> None:
    seen: set[object] = set()
    for each in labels:
        if each in seen:
            raise ValueError(f"{option} has {each!r} twice, expected each once")
        seen.add(each)


def _from_file(
    option: str, path: str, arguments: argparse.Namespace, space: "StateActionSpace"
) -> "dict[Hashable, Any]":
    """State, action and perhaps probability, one row each."""
    table, pairs = table_of_pairs(option, path, arguments, space)
    if "probability" not in table.columns:
        _refuse_twice(option, [state for state, _ in pairs])
        return dict(pairs)
    _refuse_twice(option, pairs)
    found: dict[Hashable, dict[Hashable, Any]] = {}
    for (state, action), chance in zip(pairs, table["probability"], strict=True):
        found.setdefault(state, {})[action] = chance
    return found
