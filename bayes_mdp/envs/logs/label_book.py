"""`LabelBook`: labels numbered as they are met, chunk by chunk, and put in natural order at the end."""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.envs.logs.columns import (
    as_numbers,
    expected_label,
    factorised,
    number_of,
    refuse_vague,
    require_cells,
)
from bayes_mdp.envs.logs.tables import Table, plain
from bayes_mdp.mdp.data.similar_labels import warn_of_similar
from bayes_mdp.utils.natural_order import natural_order
from bayes_mdp.utils.typing import Names
from bayes_mdp.utils.validation import as_names, check_names, label_list

if TYPE_CHECKING:
    import pandas as pd

_TABULATED = 2**24
"""Whole labels below are looked up in an array, others one by one."""


class LabelBook:
    """The numbers of the states, or of the actions, of logs that are read in chunks.

    Args:
        role: "state" or "action".
        given: all labels in order: their numbers are known, and others are refused; None: labels are found on the way.
    """

    def __init__(self, role: str, given: Sequence[Hashable] | None) -> None:
        self.role = role
        self.given = None if given is None else as_names(given)
        if self.given is not None:
            check_names(f"{role}s", self.given)
        self.numbers: dict[Hashable, int] = {}
        if self.given is not None:
            self.numbers = {label: i for i, label in enumerate(self.given)}
        self._by_text = self.given is not None and all(isinstance(label, str) for label in self.given)
        # Of labels that are whole numbers, and of those that are the text of one.
        self._tables = {False: np.full(0, -1, np.int32), True: np.full(0, -1, np.int32)}
        self._names: dict[str, None] = {}  # of the logs
        self._column = ""
        self._rows: dict[str, Int[np.ndarray, " L"]] = {}  # of each column of these labels: rows of each number

    def number(
        self, table: Table, role: str, ignored: Bool[np.ndarray, " N"] | None = None, *, holes: bool = False
    ) -> Int[np.ndarray, " N"]:
        """The number of the label of each row.

        Args:
            table: a chunk.
            role: of the column.
            ignored: rows that are not looked at; their number is -1.
            holes: whether cells may be empty; their number is -1.

        Raises:
            ValueError: an empty cell, a label that is not one of those given; names the row.
        """
        self._names[table.name] = None
        self._column = self._column or f"{role} {table.columns[role]!r}"
        codes, uniques = factorised(table, role)
        needed = np.ones(len(codes), bool) if ignored is None else ~ignored
        if not holes:
            require_cells(table, needed & (codes < 0), role, expected_label(role))
        looked = needed & (codes >= 0)
        # A label that stands in ignored rows alone is none.
        used = np.zeros(len(uniques), bool)
        used[codes[looked]] = True
        number = np.full(len(uniques) + 1, -1, np.int32)  # the last: of the code -1
        what = f"{table.name}: {role} {table.columns[role]!r}"
        number[:-1][used] = self._look_up(what, uniques, np.flatnonzero(used), table.text is not None)
        result = np.where(looked, number[codes], -1).astype(np.int32)
        if self.given is not None:
            names = label_list(self.given)
            require_cells(table, looked & (result < 0), role, f"one of the labels given ({names})")
        else:
            self._rows[role] = self._counted(role) + np.bincount(result[looked], minlength=len(self.numbers))
        return result

    def _counted(self, role: str) -> Int[np.ndarray, " L"]:
        """How many rows of a column each number had so far."""
        before = self._rows.get(role, np.zeros(0, np.int64))
        return np.append(before, np.zeros(len(self.numbers) - len(before), np.int64))

    def _look_up(
        self, what: str, uniques: "pd.Index | range", used: Int[np.ndarray, " U"], is_text: bool
    ) -> np.ndarray:
        """The numbers of the labels `uniques[used]`; whole ones are text in truth where the source `is_text`."""
        if isinstance(uniques, range):
            whole = used + uniques.start
        elif uniques.dtype.kind in "iu":
            whole = np.asarray(uniques)[used]
        else:
            labels = [plain(uniques[i]) for i in used]
            refuse_vague(what, labels)
            return np.array([self._number(label) for label in labels], np.int32)
        if not whole.size or whole.min() < 0 or whole.max() >= _TABULATED:
            return np.array([self._number(str(n) if is_text else n) for n in whole.tolist()], np.int32)
        table = self._tables[is_text]
        if whole.max() >= len(table):
            more = max(int(whole.max()) + 1 - len(table), len(table))
            table = self._tables[is_text] = np.append(table, np.full(more, -1, np.int32))
        new = whole[table[whole] < 0]
        table[new] = [self._number(str(n) if is_text else n) for n in new.tolist()]
        return table[whole]

    def _number(self, label: Hashable) -> int:
        if self.given is None:
            return self.numbers.setdefault(label, len(self.numbers))
        found = self.numbers.get(label, -1)
        if found < 0 and isinstance(label, str) and not self._by_text:
            return self.numbers.get(number_of(label), -1)
        return found

    def finish(self) -> tuple[Names, Int[np.ndarray, " L"]]:
        """The labels in order, and the place there of each number that was given out.

        Labels that were found and may be two spellings of one are named in a warning.
        """
        if self.given is not None:
            return self.given, np.arange(len(self.given), dtype=np.int32)
        first = next(iter(self._names), "")
        what = f"{first if len(self._names) < 2 else f'{len(self._names)} logs, {first} first'}: {self._column}"
        found = as_numbers(what, list(self.numbers), None)
        warn_of_similar(what, self.role, found, [self._counted(role) for role in self._rows])
        names = natural_order(set(found))
        place = {label: i for i, label in enumerate(names)}
        return names, np.array([place[label] for label in found], np.int32)
