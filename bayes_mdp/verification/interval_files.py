"""Files of interval MDPs: DRN (Storm's text), UMB (the archive that probabilistic model checkers share), PRISM's text.

`write_interval_mdp` and `load_interval_mdp` first; then, for each format, how it is written and how it is read. Readers
name the line, or the part of the archive, that they cannot use.
"""

import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

import bayes_mdp
from bayes_mdp.utils.files import AnyPath, check_file, write_beside
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_type
from bayes_mdp.verification.interval_mdp import IntervalMDP, Listed, checked

SUFFIXES = (".drn", ".umb", ".tra")
_NAMED = 1000
"""States whose names are labels in the file: of more, the file would hold little else."""
_INIT = "init"
_TAKEN = (_INIT, "deadlock")


def write_interval_mdp(model: IntervalMDP, path: AnyPath) -> None:
    """Write a file that a model checker (Storm, PRISM) reads; the name says which.

    Of `credible_intervals` the objective is in the file: ask for the reward `reward` until `done`.

    Args:
        model: to write.
        path: ends in .drn (Storm's text), .umb (an archive that Storm and others read) or .tra (PRISM's text, with
            .lab and, for each of the rewards, .trew files beside it).

    Raises:
        ValueError: another ending. FileNotFoundError, PermissionError: nothing can be written there. TypeError: `model`
            or `path` is of another type.
    """
    check_type("model", model, IntervalMDP, "an IntervalMDP")
    place = check_file(path)
    if place.suffix not in SUFFIXES:
        raise ValueError(f"path is {str(path)!r}, expected a name that ends in {', '.join(SUFFIXES)}")
    if place.suffix == ".umb":
        archive = _umb_of(model)
        write_beside(path, lambda beside: beside.write_bytes(archive))
        return
    texts = {place: _drn_of(model)} if place.suffix == ".drn" else _prism_of(model, place)
    for file, text in texts.items():
        write_beside(file, lambda beside, text=text: beside.write_text(text, encoding="utf-8"))


def load_interval_mdp(path: AnyPath) -> IntervalMDP:
    """Read an interval MDP of your own, or one that `write_interval_mdp` wrote.

    Args:
        path: .drn, .umb or .tra (with a .lab file beside it, and .trew or .srew files of rewards).

    Returns:
        The model. Probabilities that are plain numbers are intervals of one point; rewards of states are added to those
        of their choices.

    Raises:
        ValueError: another ending; a line, or a part of the archive, that cannot be read; intervals that are empty or
            hold no distribution, by state and action. FileNotFoundError: there is no such file. TypeError: no path.

    Example:
        >>> known = bm.verification.interval_mdp([[[0.2, 0.6]]], [[[0.4, 0.8]]], [[1.0]], bm.FirstExit())
        >>> bm.verification.write_interval_mdp(known, "known.drn")
        >>> bm.verification.load_interval_mdp("known.drn").n_states
        2
    """
    check_type("path", path, (str, Path), "a path")
    place = Path(path)
    readers = {".drn": _read_drn, ".umb": _read_umb, ".tra": _read_prism}
    if place.suffix not in readers:
        raise ValueError(f"path is {str(path)!r}, expected a name that ends in {', '.join(SUFFIXES)}")
    if not place.is_file():
        raise FileNotFoundError(f"path is {str(path)!r}, which is not there")
    return checked(readers[place.suffix](place))


def _text(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{str(place)!r} is no text, expected a {place.suffix} file") from None


def _number(text: str, where: str) -> float:
    """A number or a fraction."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{where} has {text!r}, expected a number") from None


def _ends(text: str, where: str) -> tuple[float, float]:
    """The ends of "[lower, upper]", or twice a number."""
    text = text.strip()
    if not text.startswith("["):
        value = _number(text, where)
        return value, value
    inside = text[1:-1].split(",")
    if not text.endswith("]") or len(inside) != 2:
        raise ValueError(f"{where} has {text!r}, expected [lower, upper]")
    return _number(inside[0].strip(), where), _number(inside[1].strip(), where)


def _whole(text: str, where: str, below: int) -> int:
    """A number of a state or choice."""
    if not re.fullmatch(r"\d{1,18}", text) or int(text) >= below:
        raise ValueError(f"{where} has {text!r}, expected an integer from 0 to {below - 1}")
    return int(text)


def _word(name: str) -> str:
    """A name as model checkers take it: letters, digits and underscores, no digit first."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    return word if word and not word[0].isdigit() else f"_{word}"


def _labels(model: IntervalMDP) -> dict[str, Bool[np.ndarray, " S"]]:
    """The labels of a file: those of the model, and the names of the states where these are few and no numbers."""
    number = np.arange(model.n_states)
    labels = {_word(name): np.asarray(states, bool) for name, states in model.labels.items() if name != _INIT}
    if model.n_states <= _NAMED:
        for s, name in enumerate(model.state_names):
            word = _word(name)
            if not name.isdigit() and word not in labels and word not in _TAKEN:
                labels[word] = number == s
    return labels


Labels: TypeAlias = dict[str, Bool[np.ndarray, " S"]]


def _model_of(listed: Listed, labels: Labels, n_states: int, place: Path) -> IntervalMDP:
    """What a reader has seen, as a model.

    Args:
        listed: the choices, states in order.
        labels: of the states.
        n_states: S.
        place: of the file, for messages.
    """
    initial = np.flatnonzero(labels.get(_INIT, np.zeros(n_states, bool)))
    if len(initial) != 1:
        raise ValueError(f"{str(place)!r} has {len(initial)} states with the label 'init', expected one")
    others = {name: states for name, states in labels.items() if name != _INIT}
    # A label of one state alone is its name, as `write_interval_mdp` has it.
    names = [str(s) for s in range(n_states)]
    for name, states in others.items():
        (labelled,) = np.nonzero(states)
        if len(labelled) == 1 and names[labelled[0]].isdigit():
            names[labelled[0]] = name
    return listed.model(int(initial[0]), names, others, (f"read from {place.name}",))


# DRN, Storm's text.


def _drn_of(model: IntervalMDP) -> str:
    labels = _labels(model)
    names = list(model.rewards)
    lines = [f"// {line}" for line in model.about]
    lines += ["@type: MDP", "@value_type: double-interval", "@parameters", "", "@reward_models"]
    lines += [" ".join(_word(name) for name in names), "@nr_states", str(model.n_states), "@nr_choices"]
    lines += [str(model.n_choices), "@model"]
    none = ", ".join("0" for _ in names)
    for s in range(model.n_states):
        words = [_INIT] * (s == model.initial) + [name for name, states in labels.items() if states[s]]
        lines.append(f"state {s} [{none}] {' '.join(words)}".rstrip())
        for c in range(*model.first_choice[s : s + 2]):
            paid = ", ".join(repr(float(model.rewards[name][c])) for name in names)
            lines.append(f"\taction {_word(model.action_names[c])} [{paid}]")
            for e in range(*model.first_entry[c : c + 2]):
                lines.append(f"\t\t{model.successor[e]} : [{float(model.lower[e])!r}, {float(model.upper[e])!r}]")
    return "\n".join(lines) + "\n"


def _drn_head(lines: Iterator[tuple[int, str]], place: Path) -> tuple[int, list[str]]:
    """The lines up to @model: number of states, names of rewards."""
    head: dict[str, str] = {}
    key = ""
    for number, line in lines:
        if line == "@model":
            break
        if line.startswith("@"):
            key, _, value = line[1:].partition(":")
            head[key] = value.strip()
        elif key and not head[key]:
            head[key] = line
        else:
            raise ValueError(f"line {number} of {str(place)!r} is {line!r}, expected a line that begins with @")
    else:
        raise ValueError(f"{str(place)!r} has no line '@model', expected a DRN file")
    for name, usual in (("type", ("MDP", "DTMC", "IMDP")), ("value_type", ("double-interval", "double"))):
        kind = head.get(name, usual[0])
        if kind.lower() not in map(str.lower, usual):
            raise ValueError(f"{str(place)!r} has @{name}: {kind}, expected {' or '.join(usual)}")
    for name in ("parameters", "placeholders"):
        if head.get(name):
            raise ValueError(f"{str(place)!r} has {name} ({head[name]}), expected numbers alone")
    n_states = _whole(head.get("nr_states", ""), f"@nr_states of {str(place)!r}", 2**40)
    check_memory(f"{str(place)!r} has {n_states} states", 256.0 * n_states)
    return n_states, head.get("reward_models", "").split()


def _rewards_in(text: str, names: Sequence[str], where: str) -> list[float]:
    """The numbers of "[1.5, [0, 0]]", one for each of the rewards; none: zero."""
    inside = text.strip()
    if not inside:
        return [0.0] * len(names)
    if not (inside.startswith("[") and inside.endswith("]")):
        raise ValueError(f"{where} has {text!r}, expected rewards in brackets")
    parts = re.findall(r"\[[^\]]*\]|[^,\[\]\s]+", inside[1:-1])
    if len(parts) != len(names):
        if not names:  # a state of a model without rewards may be written [0]
            return []
        raise ValueError(f"{where} has {len(parts)} rewards, expected {len(names)} ({', '.join(names)})")
    paid = []
    for part in parts:
        low, high = _ends(part, where)
        if low != high:
            raise ValueError(f"{where} has the reward {part}, expected one number: intervals of rewards are not read")
        paid.append(low)
    return paid


_STATE = re.compile(r"state\s+(\d+)\s*(\[.*?\](?=\s|$))?\s*(.*)")
_ACTION = re.compile(r"action\s+(\S+)\s*(\[.*\])?")


def _read_drn(place: Path) -> IntervalMDP:
    stripped = ((i, line.split("//")[0].strip()) for i, line in enumerate(_text(place).splitlines(), 1))
    lines = iter([(i, line) for i, line in stripped if line])
    n_states, names = _drn_head(lines, place)
    listed, labels = Listed(), Labels()
    listed.rewards = {name: [] for name in names}
    of_state: list[float] = []
    state = -1
    for number, line in lines:
        place_in_file = f"line {number} of {str(place)!r}"
        if match := _STATE.fullmatch(line):
            state += 1
            if _whole(match[1], place_in_file, n_states) != state:
                raise ValueError(f"{place_in_file} is state {match[1]}, expected state {state}: states in order")
            of_state = _rewards_in(match[2] or "", names, place_in_file)
            for label in match[3].split():
                labels.setdefault(label, np.zeros(n_states, bool))[state] = True
        elif match := _ACTION.fullmatch(line):
            if state < 0:
                raise ValueError(f"{place_in_file} is an action, expected a state before it")
            listed.choice(state, match[1])
            for name, of_choice, of_state_reward in zip(
                names, _rewards_in(match[2] or "", names, place_in_file), of_state, strict=True
            ):
                listed.rewards[name].append(of_choice + of_state_reward)
        else:
            target, colon, interval = line.partition(":")
            if not colon or not listed.actions:
                raise ValueError(f"{place_in_file} is {line!r}, expected 'STATE : [lower, upper]' after an action")
            listed.entries.append((_whole(target.strip(), place_in_file, n_states), *_ends(interval, place_in_file)))
    if state + 1 != n_states:
        raise ValueError(f"{str(place)!r} has {state + 1} states, expected {n_states} (@nr_states): is it whole?")
    return _model_of(listed, labels, n_states, place)


# PRISM's text: .tra, with .lab and rewards beside it.


def _prism_of(model: IntervalMDP, place: Path) -> dict[Path, str]:
    head = f"{model.n_states} {model.n_choices} {len(model.successor)}"
    state, place_of = model.state, np.arange(model.n_choices) - model.first_choice[model.state]
    choice = model.choice
    rows = [
        f"{state[c]} {place_of[c]} {t} [{float(lo)!r},{float(hi)!r}] {_word(model.action_names[c])}"
        for c, t, lo, hi in zip(choice, model.successor, model.lower, model.upper, strict=True)
    ]
    labels = {_INIT: np.arange(model.n_states) == model.initial, **_labels(model)}
    lines = [" ".join(f'{i}="{name}"' for i, name in enumerate(labels))]
    for s in range(model.n_states):
        numbers = [str(i) for i, states in enumerate(labels.values()) if states[s]]
        if numbers:
            lines.append(f"{s}: {' '.join(numbers)}")
    texts = {place: "\n".join([head, *rows]) + "\n", place.with_suffix(".lab"): "\n".join(lines) + "\n"}
    for name, paid in model.rewards.items():
        # A reward of a choice is that of each of its transitions.
        listed = [
            f"{state[c]} {place_of[c]} {t} {float(paid[c])!r}" for c, t in zip(choice, model.successor, strict=True)
        ]
        path = place.with_name(f"{place.stem}.{_word(name)}.trew")
        texts[path] = "\n".join([f'# Reward structure "{_word(name)}"', head, *listed]) + "\n"
    return texts


def _prism_lines(place: Path, width: tuple[int, ...]) -> list[tuple[str, list[str]]]:
    """The words of each line, with where it is; comments are left out."""
    lines = []
    for i, line in enumerate(_text(place).splitlines(), 1):
        words = line.split("#")[0].replace(", ", ",").split()
        line_name = f"line {i} of {str(place)!r}"
        if words:
            if lines and len(words) not in width:
                expected = " or ".join(map(str, width))
                raise ValueError(f"{line_name} has {len(words)} words, expected {expected}")
            lines.append((line_name, words))
    if not lines:
        raise ValueError(f"{str(place)!r} is empty, expected numbers of states, choices and transitions")
    return lines


def _read_prism(place: Path) -> IntervalMDP:
    (line_name, head), *rows = _prism_lines(place, (4, 5))
    if len(head) != 3:
        raise ValueError(f"{line_name} has {len(head)} numbers, expected states, choices and transitions of an MDP")
    n_states, n_choices, n_entries = (_whole(word, line_name, 2**40) for word in head)
    check_memory(f"{str(place)!r} has {n_states} states", 256.0 * n_states)
    if len(rows) != n_entries:
        raise ValueError(f"{str(place)!r} has {len(rows)} transitions, expected {n_entries}: is it whole?")
    listed = Listed()
    number: dict[tuple[int, int], int] = {}
    for line_name, (source, choice, target, interval, *action) in rows:
        pair = (_whole(source, line_name, n_states), _whole(choice, line_name, max(n_choices, 1)))
        if pair not in number:
            expected = pair[1] == (
                0 if not listed.choices or listed.choices[-1] != pair[0] else next(reversed(number))[1] + 1
            )
            if not expected or (listed.choices and pair[0] < listed.choices[-1]):
                raise ValueError(
                    f"{line_name} has choice {pair[1]} of state {pair[0]}, expected states, choices in order"
                )
            number[pair] = len(number)
            listed.choice(pair[0], action[0] if action else choice)
        elif number[pair] != len(number) - 1:
            raise ValueError(
                f"{line_name} has choice {pair[1]} of state {pair[0]} again, expected a choice in one place"
            )
        listed.entries.append((_whole(target, line_name, n_states), *_ends(interval, line_name)))
    if len(number) != n_choices:
        raise ValueError(f"{str(place)!r} has {len(number)} choices, expected {n_choices}")
    labels = _prism_labels(place.with_suffix(".lab"), n_states)
    for file in sorted(place.parent.glob(f"{place.stem}.*rew")):
        name = file.stem[len(place.stem) + 1 :] or "reward"
        if file.suffix in (".trew", ".srew"):
            paid = _prism_rewards(file, listed, number, n_states)
            listed.rewards[name] = [a + b for a, b in zip(listed.rewards.get(name, paid * 0), paid, strict=True)]
    return _model_of(listed, labels, n_states, place)


def _prism_labels(place: Path, n_states: int) -> Labels:
    if not place.is_file():
        raise FileNotFoundError(f"{str(place)!r} is not there, expected the labels beside the transitions")
    first, *rest = _text(place).splitlines() or [""]
    names = {int(i): name for i, name in re.findall(r'(\d{1,9})="([^"]*)"', first)}
    labels = {name: np.zeros(n_states, bool) for name in names.values() if name != "deadlock"}
    for i, line in enumerate(rest, 2):
        line_name = f"line {i} of {str(place)!r}"
        state, _, label_numbers = line.partition(":")
        if line.strip():
            for word in label_numbers.split():
                if not word.isdigit() or int(word) not in names:
                    raise ValueError(f"{line_name} has label {word!r}, expected one of its first line")
                if names[int(word)] in labels:
                    labels[names[int(word)]][_whole(state.strip(), line_name, n_states)] = True
    return labels


def _prism_rewards(
    place: Path, listed: Listed, number: Mapping[tuple[int, int], int], n_states: int
) -> Float[np.ndarray, " C"]:
    """Rewards of the choices: of a state, or the same on every transition of a choice."""
    of_states = place.suffix == ".srew"
    _, *rows = _prism_lines(place, (2,) if of_states else (4,))
    paid = np.zeros(len(listed.choices))
    seen: dict[int, tuple[float, int]] = {}
    for line_name, words in rows:
        value = _number(words[-1], line_name)
        if of_states:
            paid[np.array(listed.choices) == _whole(words[0], line_name, n_states)] += value
            continue
        pair = (_whole(words[0], line_name, n_states), _whole(words[1], line_name, len(listed.choices)))
        if pair not in number:
            raise ValueError(f"{line_name} has choice {pair[1]} of state {pair[0]}, expected one of the transitions")
        old, times = seen.setdefault(number[pair], (value, 0))
        if old != value:
            raise ValueError(
                f"{line_name} has the reward {value:g} and {old:g} before, expected one for all of a choice"
            )
        seen[number[pair]] = (value, times + 1)
    ends = [*listed.first_entry, len(listed.entries)]
    for c, (value, times) in seen.items():
        if times != ends[c + 1] - ends[c] and value != 0:
            raise ValueError(
                f"{str(place)!r} has rewards of {times} of the {ends[c + 1] - ends[c]} transitions of choice {c}, "
                "expected all of a choice: rewards that depend on the next state are not read"
            )
        paid[c] = value
    return paid


# UMB: a tar archive of index.json and arrays.

_Bytes: TypeAlias = dict[str, bytes]


def _pack(bits: Bool[np.ndarray, " N"]) -> bytes:
    """Bits, the first the least, in words of 64."""
    packed = np.packbits(bits, bitorder="little")
    return packed.tobytes() + bytes(-len(packed) % 8)


def _umb_of(model: IntervalMDP) -> bytes:
    labels = {name: states for name, states in _labels(model).items()}
    actions = list(dict.fromkeys(map(_word, model.action_names)))
    texts = [name.encode() for name in actions]
    rewards = {_word(name): np.asarray(paid, "<f8") for name, paid in model.rewards.items()}
    index = {
        "format-version": 1,
        "format-revision": 0,
        "model-data": {"description": "; ".join(model.about)} if model.about else {},
        "file-data": {"tool": "bayes-mdp", "tool-version": bayes_mdp.__version__},
        "transition-system": {
            "time": "discrete",
            "#players": 1,
            "#states": model.n_states,
            "#initial-states": 1,
            "#choices": model.n_choices,
            "#choice-actions": len(actions),
            "#branches": len(model.successor),
            "#branch-actions": 0,
            "#observations": 0,
            "branch-probability-type": {"type": "double-interval", "size": 128},
        },
        "annotations": {
            "aps": {n: {"applies-to": ["states"], "type": {"type": "bool", "size": 1}} for n in labels},
            "rewards": {n: {"applies-to": ["choices"], "type": {"type": "double", "size": 64}} for n in rewards},
        },
    }
    files: _Bytes = {
        "index.json": json.dumps(index, indent=2).encode(),
        "state-is-initial.bin": _pack(np.arange(model.n_states) == model.initial),
        "state-to-choices.bin": model.first_choice.astype("<u8").tobytes(),
        "state-to-player.bin": np.zeros(model.n_states, "<u4").tobytes(),
        "choice-to-branches.bin": model.first_entry.astype("<u8").tobytes(),
        "branch-to-target.bin": model.successor.astype("<u8").tobytes(),
        "branch-to-probability.bin": np.stack([model.lower, model.upper], -1).astype("<f8").tobytes(),
        "actions/choices/values.bin": np.array([actions.index(_word(n)) for n in model.action_names], "<u4").tobytes(),
        "actions/choices/strings.bin": b"".join(texts),
        "actions/choices/string-mapping.bin": np.cumsum([0, *map(len, texts)]).astype("<u8").tobytes(),
    }
    files |= {f"annotations/aps/{name}/states/values.bin": _pack(states) for name, states in labels.items()}
    files |= {f"annotations/rewards/{name}/choices/values.bin": paid.tobytes() for name, paid in rewards.items()}
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


class _Archive:
    """The parts of a UMB file, each of the size that its index says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        try:
            with tarfile.open(place) as archive:
                members = [member for member in archive.getmembers() if member.isfile()]
                check_memory(f"{str(place)!r} unpacked", 4.0 * sum(member.size for member in members))
                streams = {member.name: archive.extractfile(member) for member in members}
                self.files = {name: stream.read() for name, stream in streams.items() if stream is not None}
        except (tarfile.TarError, zlib.error, EOFError, OSError):
            raise ValueError(f"{str(place)!r} cannot be unpacked, expected a UMB file (an archive)") from None
        try:
            self.index: dict[str, Any] = json.loads(self.part("index.json"))
            self.system: dict[str, Any] = self.index["transition-system"]
            self.annotations = self.index.get("annotations") or {}
            if not isinstance(self.system, dict) or not isinstance(self.annotations, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
                raise
            raise ValueError(f"index.json of {str(place)!r} cannot be read, expected that of a UMB file") from None

    def part(self, name: str) -> bytes:
        """One file of the archive."""
        if name not in self.files:
            raise ValueError(f"{str(self.place)!r} has no part {name!r}, expected a UMB file")
        return self.files[name]

    def number(self, name: str) -> int:
        """A size."""
        value = self.system.get(name)
        if not isinstance(value, int) or not 0 <= value < 2**40:
            raise ValueError(f"{name} of {str(self.place)!r} is {value!r}, expected a number")
        return value

    def array(self, name: str, kind: str, size: int) -> np.ndarray:
        """An array of `size` numbers."""
        content = self.part(name)
        expected = size * np.dtype(kind).itemsize
        if len(content) != expected:
            raise ValueError(f"{name!r} of {str(self.place)!r} has {len(content)} bytes, expected {expected}")
        return np.frombuffer(content, kind)

    def offsets(self, name: str, size: int, total: int) -> Int[np.ndarray, " N1"]:
        """Where the parts of each of `size` things begin; each has one where there is no such file."""
        if name not in self.files and size == total:
            return np.arange(size + 1)
        first = self.array(name, "<u8", size + 1).astype(np.int64)
        if first[0] != 0 or first[-1] != total or (np.diff(first) < 0).any():
            raise ValueError(f"{name!r} of {str(self.place)!r} does not rise from 0 to {total}")
        return first

    def bits(self, name: str, size: int) -> Bool[np.ndarray, " N"]:
        """Packed bits."""
        words = self.array(name, "u1", -(-size // 64) * 8)
        return np.unpackbits(words, bitorder="little")[:size].astype(bool)


def _read_umb(place: Path) -> IntervalMDP:
    archive = _Archive(place)
    n_states, n_choices, n_entries = (
        archive.number(f"#{count_name}") for count_name in ("states", "choices", "branches")
    )
    if archive.system.get("time", "discrete") != "discrete" or archive.system.get("#players", 1) > 1:
        raise ValueError(f"{str(place)!r} is no MDP in discrete time, expected one player at most")
    check_memory(f"{str(place)!r} has {n_states} states", 256.0 * n_states)
    listed, labels = Listed(), {_INIT: archive.bits("state-is-initial.bin", n_states)}
    first = archive.offsets("state-to-choices.bin", n_states, n_choices)
    listed.choices = np.repeat(np.arange(n_states), np.diff(first)).tolist()
    listed.first_entry = archive.offsets("choice-to-branches.bin", n_choices, n_entries)[:-1].tolist()
    target = archive.array("branch-to-target.bin", "<u8", n_entries)
    if (target >= n_states).any():
        raise ValueError(f"a branch of {str(place)!r} leads to state {target.max()}, expected one of {n_states}")
    ends = _umb_probabilities(archive, n_entries)
    listed.entries = [(int(t), float(lo), float(hi)) for t, (lo, hi) in zip(target, ends, strict=True)]
    listed.actions = _umb_actions(archive, n_choices)
    for name, about in (archive.annotations.get("aps") or {}).items():
        if "states" in about.get("applies-to", ()) and name != _INIT:
            labels[name] = archive.bits(f"annotations/aps/{name}/states/values.bin", n_states)
    for name, about in (archive.annotations.get("rewards") or {}).items():
        listed.rewards[name] = _umb_rewards(archive, name, about, np.array(listed.choices, int), n_states).tolist()
    return _model_of(listed, labels, n_states, place)


def _umb_probabilities(archive: _Archive, size: int) -> Float[np.ndarray, "E 2"]:
    """Lower and upper ends."""
    kind = archive.system.get("branch-probability-type")
    kind = kind.get("type") if isinstance(kind, dict) else kind
    if kind == "double-interval":
        return archive.array("branch-to-probability.bin", "<f8", 2 * size).reshape(-1, 2)
    if kind == "double":
        return np.repeat(archive.array("branch-to-probability.bin", "<f8", size)[:, None], 2, 1)
    raise ValueError(f"{str(archive.place)!r} has probabilities of type {kind!r}, expected double-interval or double")


def _umb_actions(archive: _Archive, n_choices: int) -> list[str]:
    number = archive.number("#choice-actions") if "#choice-actions" in archive.system else 0
    if "actions/choices/values.bin" not in archive.files or not number:
        return ["0"] * n_choices
    values = archive.array("actions/choices/values.bin", "<u4", n_choices)
    if (values >= number).any():
        raise ValueError(f"{str(archive.place)!r} has action {values.max()}, expected one of {number}")
    names = [str(i) for i in range(number)]
    if "actions/choices/strings.bin" in archive.files:
        text = archive.part("actions/choices/strings.bin")
        first = archive.offsets("actions/choices/string-mapping.bin", number, len(text))
        names = [text[a:b].decode(errors="replace") for a, b in pairwise(first)]
    return [names[i] for i in values]


def _umb_rewards(
    archive: _Archive, name: str, about: Mapping[str, Any], state: Int[np.ndarray, " C"], n_states: int
) -> Float[np.ndarray, " C"]:
    """Rewards of the choices, with those of their states."""
    kind = about.get("type")
    kind = kind.get("type") if isinstance(kind, dict) else kind
    reward_name = f"the reward {name!r} of {str(archive.place)!r}"
    if kind not in ("double", "double-interval"):
        raise ValueError(f"{reward_name} is of type {kind!r}, expected double")
    paid = np.zeros(len(state))
    for target in about.get("applies-to", ()):
        if target not in ("states", "choices"):
            raise ValueError(f"{reward_name} is of {target}, expected states or choices")
        size, width = (n_states if target == "states" else len(state)), 2 if kind == "double-interval" else 1
        values = archive.array(f"annotations/rewards/{name}/{target}/values.bin", "<f8", width * size).reshape(
            size, width
        )
        if (values[:, 0] != values[:, -1]).any():
            raise ValueError(f"{reward_name} has intervals, expected numbers: intervals of rewards are not read")
        paid += values[:, 0][state] if target == "states" else values[:, 0]
    return paid
