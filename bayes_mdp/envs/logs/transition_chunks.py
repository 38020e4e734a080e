"""The transitions of one log, chunk by chunk: together exactly those that reading it as a whole gives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bayes_mdp.envs.logs.chunked_tables import ChunkedLog
from bayes_mdp.envs.logs.columns import (
    EXPECTED_REWARD,
    expected_label,
    factorised,
    read_flags,
    read_steps,
    require_cells,
    reward_cells,
    reward_role,
)
from bayes_mdp.envs.logs.label_book import LabelBook
from bayes_mdp.envs.logs.open_episodes import Columns, OpenEpisodes, Settled
from bayes_mdp.envs.logs.tables import Table
from bayes_mdp.numerics.moments import LARGEST


class Rows(NamedTuple):
    """N transitions.

    Args:
        state, action: numbers of their labels.
        reward: minus the cost where the log has costs; nan where it was not observed; None: there is no such column.
        next_state: number of its label; any where terminated.
        terminated: whether the transition ended the episode; None: not known.
        truncated: whether the episode was cut here; None: not known, or not asked for.
        step: of the episode; None: not known, or not asked for.
        row: of the log.
    """

    state: Int[np.ndarray, " N"]
    action: Int[np.ndarray, " N"]
    reward: Float[np.ndarray, " N"] | None
    next_state: Int[np.ndarray, " N"]
    terminated: Bool[np.ndarray, " N"] | None
    truncated: Bool[np.ndarray, " N"] | None
    step: Int[np.ndarray, " N"] | None
    row: Int[np.ndarray, " N"]


@dataclass(frozen=True)
class Wanted:
    """What is read of a log beside states, actions, rewards and terminations.

    Args:
        steps: whether the steps of episodes are.
        truncated: whether truncations are.
        ignore_missing: whether a reward may be empty.
    """

    steps: bool
    truncated: bool
    ignore_missing: bool


def transition_chunks(log: ChunkedLog, states: LabelBook, actions: LabelBook, wanted: Wanted) -> Iterator[Rows]:
    """The transitions of a log, those of an episode in order; none of the chunks is empty.

    Raises:
        ValueError: a cell that cannot be read, a step that does not follow the one before (names the row), no
            transition.
    """
    shifts, place = "next_state" not in log.columns, wanted.steps and "step" not in log.columns
    # The last row of an episode that did not terminate is cut; and that before one left out.
    cuts = wanted.truncated and "episode" in log.columns
    joins = shifts or ("episode" in log.columns and (place or cuts))
    checks = shifts and "step" in log.columns
    episodes = OpenEpisodes(shifts=shifts, looks_ahead=cuts, counts_places=place, checks_steps=checks)
    number, table = 0, None
    for table in log:
        columns = _cells(table, states, actions, wanted)
        settled = _advance(table, episodes, columns) if joins else columns
        rows = _rows(table, settled, cuts, wanted)
        number += len(rows.state)
        if len(rows.state):
            yield rows
    rest = episodes.finish()
    if rest is not None and table is not None and len(rest.last):
        rows = _rows(table, rest, cuts, wanted)
        number += len(rows.state)
        yield rows
    if not number:
        raise ValueError(f"{log.name} has no episode of two rows, expected at least one transition")


def _cells(table: Table, states: LabelBook, actions: LabelBook, wanted: Wanted) -> Columns:
    """The columns of a chunk as numbers. Actions and rewards may be empty: -1 and nan."""
    ends, cut = read_flags(table, "terminated"), read_flags(table, "truncated")
    columns = {
        "state": states.number(table, "state"),
        "action": actions.number(table, "action", holes=True),
        "row": np.arange(table.first, table.first + len(table.frame)),
    }
    if "next_state" in table.columns:
        columns["next_state"] = states.number(table, "next_state", ends)
    rewards = reward_cells(table)
    if rewards is not None:
        too_large = np.abs(rewards) > LARGEST
        require_cells(table, too_large, reward_role(table), f"a number of at most {LARGEST:.1g}")
    steps = read_steps(table)
    columns |= {k: v for k, v in (("reward", rewards), ("truncated", cut), ("step", steps)) if v is not None}
    return columns | {"terminated": np.zeros(len(table.frame), bool) if ends is None else ends}


def _advance(table: Table, episodes: OpenEpisodes, columns: Columns) -> Settled:
    codes, labels = factorised(table, "episode")
    require_cells(table, codes < 0, "episode", "the label of an episode")
    settled = episodes.advance(codes, labels, columns)
    if settled.gap is not None:
        settled.gap.refuse(table)
    return settled


def _rows(table: Table, settled: Settled | Columns, cuts: bool, wanted: Wanted) -> Rows:
    """Settled rows of the log as transitions, whose actions and rewards are there."""
    columns = settled.columns if isinstance(settled, Settled) else settled
    next_state, cut, step = columns.get("next_state"), columns.get("truncated"), columns.get("step")
    if isinstance(settled, Settled):
        shifts = next_state is None
        next_state = settled.next_state if shifts else next_state
        if cuts:
            leads_out = settled.leads_out if shifts else settled.last & ~columns["terminated"]
            cut = leads_out if cut is None else cut | leads_out
        step = settled.place if step is None else step
    assert next_state is not None  # without such a column, rows are joined
    reward, row = columns.get("reward"), columns["row"]
    _require_there(table, columns["action"] < 0, row, "action", expected_label("action"))
    if reward is not None and not wanted.ignore_missing:
        _require_there(table, np.isnan(reward), row, reward_role(table), EXPECTED_REWARD)
    ends = columns["terminated"] if "terminated" in table.columns else None
    return Rows(columns["state"], columns["action"], reward, next_state, ends, cut, step if wanted.steps else None, row)


def _require_there(
    table: Table, empty: Bool[np.ndarray, " N"], row: Int[np.ndarray, " N"], role: str, expected: str
) -> None:
    if empty.any():
        table.refuse(int(row[empty].min()), role, "empty", expected)
