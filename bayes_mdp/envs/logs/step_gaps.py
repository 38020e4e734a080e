"""Steps of episodes whose next states are those of the next rows: they go up by one from row to row."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from bayes_mdp.envs.logs.tables import Table
from bayes_mdp.utils.pages import see


class StepGap(NamedTuple):
    """A row whose step is not the one after that of the row before it in its episode.

    Args:
        row: of the source, 0-based.
        before: the row before it in its episode, likewise.
        found, expected: the step of the row, and the one that follows the step before.
    """

    row: int
    before: int
    found: int
    expected: int

    def refuse(self, table: Table) -> None:
        """Refuse the row of the source of `table`.

        Raises:
            ValueError: names both rows.
        """
        expected = f"{self.expected}, the step after that of row {self.before + 1} of its episode"
        table.refuse(self.row, "step", repr(self.found), f"{expected} {see('how-to/read-a-log')}")


def first_gap(
    step: Int[np.ndarray, " N"],
    next_row: Int[np.ndarray, " N"],
    last: Bool[np.ndarray, " N"],
    row: Int[np.ndarray, " N"],
) -> StepGap | None:
    """The gap that comes first in the source; None: there is none.

    Args:
        step: of each row.
        next_row: the next row of its episode, as an index of these arrays.
        last: whether there is none.
        row: of the source, 0-based.
    """
    after = np.asarray(step, np.int64) + 1  # 2^31 is the step after the largest one
    wrong = np.flatnonzero(~last & (step[next_row] != after))
    if not wrong.size:
        return None
    before = int(wrong[row[next_row[wrong]].argmin()])
    at = int(next_row[before])
    return StepGap(int(row[at]), int(row[before]), int(step[at]), int(after[before]))
