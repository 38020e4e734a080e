"""Labels of states and actions: policies and first states by label, as arrays, and back; what a log has as labels.

Labels of a log have a natural order, 2 before 10, "s2" before "s10". Each spelling becomes a state or an action of its
own: a warning names two that may be one. Host-side.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from bayes_mdp.mdp import labelled_tables
from bayes_mdp.utils.messages import count_of, did_you_mean, see, warn_user
from bayes_mdp.utils.typing import ArrayLike, Names, PolicyLabels, PolicyNames
from bayes_mdp.utils.validation import (
    ROW_SUM_TOLERANCE,
    as_array,
    check_index,
    check_initial,
    check_number,
    check_probability_rows,
    check_shape,
    described,
    first_index,
    label_list,
)


class ProductLabel(tuple[Hashable, ...]):
    """The label of a state of several columns: the tuple of its parts, printed with the names of the columns.

    Example:
        >>> from bayes_mdp.mdp.by_label import ProductLabel
        >>> label = ProductLabel(("high", 10), ("grade", "load"))
        >>> print(label, label == ("high", 10))
        grade=high, load=10 True
    """

    names: tuple[str, ...]

    def __new__(cls, parts: Iterable[Hashable], names: Iterable[Hashable]) -> "ProductLabel":
        """From the parts and as many names."""
        label = super().__new__(cls, parts)
        # A tuple, so that it compares and hashes as its parts do.
        label.names = tuple(map(str, names))
        return label

    def __str__(self) -> str:
        return ", ".join(f"{name}={part}" for name, part in zip(self.names, self, strict=True))

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={part!r}' for name, part in zip(self.names, self, strict=True))})"

    def __reduce__(self) -> tuple[type["ProductLabel"], tuple[tuple[Hashable, ...], tuple[str, ...]]]:
        """With its names."""
        return ProductLabel, (tuple(self), self.names)


def is_by_label(policy: object) -> TypeGuard[PolicyLabels | Sequence[PolicyLabels]]:
    """Whether a policy is a mapping state -> action, or a list (tuple) that begins with one."""
    if isinstance(policy, (list, tuple)):
        return len(policy) > 0 and isinstance(policy[0], Mapping)
    return isinstance(policy, Mapping)


def policy_array(
    policy: object,
    states: Names,
    actions: Names,
    legal: Bool[np.ndarray, "S A"] | None = None,
    *,
    optional: Collection[Hashable] = (),
) -> Int[np.ndarray, "*H S"] | Float[np.ndarray, "*H S A"]:
    """A policy by labels as an array: actions where every state has one, else probabilities.

    Args:
        policy: state -> action, or state -> {action: probability}; or a list of such mappings, one for each step.
        states, actions: the labels.
        legal: which actions exist in which state; None: all.
        optional: states that may be left out: all their legal actions are then equally likely.

    Raises:
        TypeError, ValueError: one sentence.
    """
    if not is_by_label(policy):
        raise TypeError(f"policy is {described(policy)}, expected a mapping from states to actions, or a list of them")
    legal = np.ones((len(states), len(actions)), bool) if legal is None else np.asarray(legal)
    # One mapping for all steps, or one for each.
    if isinstance(policy, Mapping):
        probs = _table("policy", policy, states, actions, legal, optional)
    else:
        steps = [_table(f"policy[{h}]", table, states, actions, legal, optional) for h, table in enumerate(policy)]
        probs = np.stack(steps)
    # Actions where no state mixes; else probabilities.
    return probs.argmax(-1) if (probs.max(-1) == 1.0).all() else probs


def _table(
    name: str,
    policy: Mapping[Any, Any],
    states: Names,
    actions: Names,
    legal: Bool[np.ndarray, "S A"],
    optional: Collection[Hashable],
) -> Float[np.ndarray, "S A"]:
    """The probabilities of the actions of one mapping."""
    if not isinstance(policy, Mapping):
        raise TypeError(f"{name} is {described(policy)}, expected a mapping from states to actions")
    places = {action: a for a, action in enumerate(actions)}
    known = set(states)
    for state in policy:
        if state not in known:
            raise ValueError(f"{name} has {_unknown('state', state, states)}")
    missing = [state for state in states if state not in policy and state not in optional]
    if missing:
        raise ValueError(f"{name} has no action for {label_list(missing)}, expected one for every state")
    # States without an entry act uniformly over what is legal.
    probs = legal / legal.sum(-1, keepdims=True)
    for s, state in enumerate(states):
        if state not in policy:
            continue
        place, entry = f"{name}[{state!r}]", policy[state]
        if isinstance(entry, Mapping):
            probs[s], verb = _chances(place, entry, places, "action", actions), "has"
        elif _hashable(entry):
            if entry not in places:
                raise ValueError(f"{place} is {_unknown('action', entry, actions)}")
            probs[s], verb = np.eye(len(actions))[places[entry]], "is"
        else:
            raise TypeError(f"{place} is {described(entry)}, expected an action or a mapping action -> probability")
        illegal = first_index((probs[s] > 0) & ~legal[s])
        if illegal is not None:
            allowed = label_list([action for action, can in zip(actions, legal[s], strict=True) if can])
            taken = actions[illegal[0]]
            raise ValueError(f"{place} {verb} {taken!r}, expected an action that is legal in this state: {allowed}")
    return probs


def policy_labels(policy: object, states: Names, actions: Names) -> PolicyNames:
    """The inverse of `policy_array`: state -> action, or state -> {action: probability} where it is random.

    Args:
        policy: Int[*H S] or Float[*H S A].
        states, actions: the labels.

    Returns:
        A mapping; a list of H mappings where the policy has steps.

    Raises:
        TypeError, ValueError: one sentence.
    """
    expected = "integers (actions) or floats (probabilities)"
    array = as_array("policy", policy, expected)
    if array.dtype.kind in "iu":
        _check_size("policy", array, (len(states),), "state")
        check_index("policy", array, len(actions), "action")
        probs = np.eye(len(actions))[array]
    elif array.dtype.kind == "f":
        _check_size("policy", array, (len(states), len(actions)), "state, action")
        check_probability_rows("policy", array)
        probs = array
    else:
        fault = f"has dtype {array.dtype}" if array.ndim else f"is {described(policy)}"
        raise TypeError(f"policy {fault}, expected {expected}")
    # One table for each step; of a policy without steps there is one.
    tables = [_with_labels(step, states, actions) for step in probs.reshape(-1, len(states), len(actions))]
    return tables[0] if probs.ndim == 2 else tables


def _check_size(name: str, array: np.ndarray, size: tuple[int, ...], axes: str) -> None:
    """Of this size, with an axis of steps in front or without."""
    if array.ndim == len(size) + 1:
        check_shape(name, array, (array.shape[0], *size), f"step, {axes}")
    else:
        check_shape(name, array, size, axes)


def _with_labels(probs: Float[np.ndarray, "S A"], states: Names, actions: Names) -> dict[Hashable, Any]:
    labelled: dict[Hashable, Any] = {}
    for state, row in zip(states, probs, strict=True):
        # Actions of probability zero are not named.
        taken = {action: float(chance) for action, chance in zip(actions, row, strict=True) if chance > 0}
        labelled[state] = next(iter(taken)) if row.max() == 1.0 and len(taken) == 1 else taken
    return labelled


def initial_array(initial: object, states: Names) -> Float[np.ndarray, " S"]:
    """A distribution of the first state as probabilities [S].

    Args:
        initial: a state's label, {label: probability} or a Series of that, or probabilities [S]. A tuple that is a
            label is that state.
        states: the labels.

    Raises:
        TypeError, ValueError: one sentence; also a tuple that is a label and could be probabilities.
    """
    places = {state: s for s, state in enumerate(states)}
    initial = labelled_tables.by_label("initial", initial)
    if isinstance(initial, Mapping):
        return _chances("initial", initial, places, "state", states)
    if _hashable(initial) and initial in places:
        if isinstance(initial, tuple) and _is_distribution(initial, len(states)):
            raise ValueError(
                f"initial is {initial!r}, which is a state and could be the probabilities of {len(states)} states, "
                f"expected {{{initial!r}: 1.0}} or a list of probabilities"
            )
        return np.eye(len(states))[places[initial]]
    if isinstance(initial, str) or np.ndim(as_array("initial", initial, "probabilities")) == 0:
        also = "probabilities, a mapping state -> probability, or "
        raise ValueError(f"initial is {_unknown('state', initial, states, also)}")
    check_initial(initial, len(states))  # type: ignore[arg-type] - it is looked into there
    return np.asarray(initial, np.float64)


def initial_labels(initial: ArrayLike, states: Names) -> dict[Hashable, float]:
    """The inverse of `initial_array`: state -> probability, where it is positive.

    Args:
        initial: probabilities [S].
        states: the labels.

    Raises:
        TypeError, ValueError: one sentence.
    """
    check_initial(initial, len(states))
    return {s: float(chance) for s, chance in zip(states, np.asarray(initial), strict=True) if chance > 0}


def _chances(
    name: str, given: Mapping[Any, Any], places: Mapping[Hashable, int], kind: str, labels: Names
) -> Float[np.ndarray, " N"]:
    """Probabilities by label as an array."""
    row = np.zeros(len(labels))
    for label, chance in given.items():
        if label not in places:
            raise ValueError(f"{name} has {_unknown(kind, label, labels)}")
        check_number(f"{name}[{label!r}]", chance, lambda x: (x >= 0) & (x <= 1), "a probability from 0 to 1")
        row[places[label]] = float(chance)
    if abs(row.sum() - 1.0) > ROW_SUM_TOLERANCE["float64"]:
        raise ValueError(f"{name} sums to {row.sum():.8g}, expected probabilities that sum to 1")
    return row


def _unknown(kind: str, label: object, labels: Names, also: str = "") -> str:
    """What is there, what was expected (and `also` would do), and the nearest label."""
    shown = repr(label) if isinstance(label, (str, int, float, tuple)) else described(label)
    article = "an" if kind[0] in "aeiou" else "a"
    return f"{shown}, expected {also}{article} {kind} of the space: {label_list(labels)}{did_you_mean(label, labels)}"


def _hashable(value: object) -> TypeGuard[Hashable]:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_distribution(values: tuple[Any, ...], size: int) -> bool:
    numbers = [isinstance(x, (int, float)) and x >= 0 for x in values]
    return len(values) == size and all(numbers) and abs(sum(values) - 1.0) <= ROW_SUM_TOLERANCE["float64"]


_LONGEST = 1000


def natural_order(labels: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Labels in order: numbers by size, text with its digits as numbers, tuples by entry, the rest by its text."""
    listed: list[Any] = list(labels)
    # Equal kinds sort by themselves; mixed ones by kind first.
    return tuple(sorted(listed) if all(type(label) is int for label in listed) else sorted(listed, key=_key))


def _key(label: Hashable) -> tuple[Any, ...]:
    if isinstance(label, (bool, int, float)):
        return (0, label)
    if isinstance(label, tuple):
        return (2, *(_key(entry) for entry in label))
    text = label if isinstance(label, str) else repr(label)
    # Text in runs of digits and of others; the text itself decides between equal runs.
    return (1, *map(_part, re.split(r"(\d+)", text)), text)


def _part(part: str) -> tuple[int, int, str]:
    """A run of digits as a number. Not superscripts, which are no decimals; longer runs than Python turns into one."""
    return (0, int(part), "") if part.isdecimal() and len(part) <= _LONGEST else (1, 0, part)


COMMON = 20
"""Rows from which on a label is taken as spelt right."""
SHORTEST, LONGEST = 5, 40
"""Letters of the labels in which a misspelling is looked for."""
_PER_KEY = 4
_SIGN = re.compile(r"(?<![^\W_])-(?=[\d.])")  # "pos -1", "-1"; not "room-1"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # not "007"
_DIGITS = 15  # of so many, all numbers differ as floats
_BETWEEN = re.compile(r"[\s_-]+")


def warn_of_similar(
    what: str, role: str, labels: Sequence[Hashable], columns: Iterable[Real[np.ndarray, " L"]]
) -> None:
    """One warning, if some of the labels that were found may be two spellings of one.

    Args:
        what: the source, the role and its column, for the message.
        role: "state" or "action".
        labels: distinct ones.
        columns: for each column of these labels the number of rows that each label is in.
    """
    # A label may stand in several columns: the one where it is commonest counts.
    rows = np.max(list(columns), axis=0)
    counts = {x: int(n) for x, n in zip(labels, rows, strict=True) if isinstance(x, str)}
    examples = similar_in_words(counts)
    if examples is not None:
        warn_user(
            f"{what} has the labels {examples}, which may be two spellings of one and are now two {role}s: correct the "
            f"log, or name all labels if they differ ({role}s=[...]; in the shell --{role}s A,B,C) "
            f"{see('how-to/read-a-log')}"
        )


def similar_in_words(rows: Mapping[str, int]) -> str | None:
    """Two labels that may be one, and how many more such pairs there are; None: there are none.

    Args:
        rows: label -> number of rows.
    """
    pairs = list(similar_pairs(rows))
    if not pairs:
        return None
    examples = " and ".join(f"{label!r} ({count_of(rows[label], 'row')})" for label in pairs[0])
    remaining = len(pairs) - 1
    return examples + (f", and {count_of(remaining, 'more such pair')}" if remaining else "")


def similar_pairs(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of labels that may be one, the rarer first: other case, blanks or separators; or a misspelling.

    A misspelling is a label in one row that is one edit (a letter inserted, left out or replaced, or two neighbours
    exchanged) from one in `COMMON` rows, both of `SHORTEST` letters at least and nothing but letters.

    Args:
        rows: label -> number of its rows.
    """
    spellings: dict[str, list[str]] = {}
    # Labels without a letter or a digit have no spelling.
    for label in rows:
        if any(map(str.isalnum, label)):
            spellings.setdefault(_spelling(label), []).append(label)
    for variants in spellings.values():
        if len(variants) > 1:
            *rarer, commonest = sorted(variants, key=lambda label: (rows[label], label))
            yield from ((label, commonest) for label in rarer)
    yield from _misspelt(rows)


def _misspelt(rows: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """By keys: words at one edit from each other share one of what is left of them without one of their letters, or
    one is what is left of the other."""
    # Words of letters alone: numbers that differ by a digit are no misspelling.
    words = [label for label in rows if SHORTEST <= len(label) <= LONGEST and label.isalpha()]
    rare = [label for label in words if rows[label] == 1]
    if not rare:
        return
    known: dict[str, list[str]] = {}
    # The commonest first: each key keeps a few of them.
    for label in sorted((x for x in words if rows[x] >= COMMON), key=lambda x: -rows[x]):
        for key in _keys(label):
            bucket = known.setdefault(key, [])
            if len(bucket) < _PER_KEY:  # the commonest ones, so that no key costs more than that
                bucket.append(label)
    for label in rare:
        candidates = {common for key in _keys(label) for common in known.get(key, ()) if is_one_edit(label, common)}
        candidates = {
            common for common in candidates if _spelling(common) != _spelling(label)
        }  # these are pairs already
        if candidates:
            yield label, max(candidates, key=lambda common: (rows[common], common))


def is_one_edit(one: str, other: str) -> bool:
    """Whether one text becomes the other by one insertion, deletion, replacement or exchange of neighbours."""
    short, long = sorted((one, other), key=len)
    if short == long or len(long) > len(short) + 1:
        return False
    # The first place where they differ.
    i = next((k for k, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(short) < len(long):
        # One letter more: what follows it is equal.
        return short[i:] == long[i + 1 :]
    return short[i + 1 :] == long[i + 1 :] or (short[i + 1 : i + 2] + short[i] + short[i + 2 :] == long[i:])


def _keys(label: str) -> set[str]:
    return {label, *(label[:i] + label[i + 1 :] for i in range(len(label)))}


def _spelling(label: str) -> str:
    """The label without what is written in one way or another: case, blanks around it, what separates its words.

    Of text that is a number: how Python writes it.
    """
    if len(label) <= _DIGITS and _NUMBER.fullmatch(label.strip()):
        # As a number: "1.0" and "1" are one spelling.
        return repr(float(label) + 0.0)  # -0.0 + 0.0 is 0.0
    return _BETWEEN.sub(" ", _SIGN.sub("\N{MINUS SIGN}", label.strip().casefold()))
