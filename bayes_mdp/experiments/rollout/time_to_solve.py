"""Time to solve: how many episodes until the goal is reached often enough ([KL21] section 4), and a run that ends then.

The goal is `RunOptions.target`, pairs of a state and an action. [KL21]: "the first episode at which the agent has
reached the rewarding state in at least 10 % of the episodes so far". Taken literally, one lucky visit in the first ten
episodes solves the problem; the sustained rule does not count it.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bayes_mdp.experiments.describe import describe, describe_case
from bayes_mdp.experiments.resume import Snapshots
from bayes_mdp.experiments.rollout.execute import execute, prepare
from bayes_mdp.experiments.rollout.time_loop import Row
from bayes_mdp.experiments.run_config import RunConfig, check_case
from bayes_mdp.mdp import Episodic
from bayes_mdp.utils.progress import Progress
from bayes_mdp.utils.typing import ArrayLike
from bayes_mdp.utils.validation import check_count

SHARE = 0.1
SUSTAINED_FROM = 100
CHUNK_EPISODES = 256


def time_to_solve(hits: ArrayLike, *, share: float = SHARE) -> Float[np.ndarray, "*N"]:
    """The literal rule of [KL21]: the first episode (from 1) by which at least `share` of all reached the goal.

    Args:
        hits: Bool[*N T], whether each of T episodes reached the goal.
        share: of the episodes so far, in (0, 1].

    Returns:
        Episodes; nan where the rule does not hold within T episodes.

    Raises:
        ValueError: `share` outside (0, 1].
    """
    return _first(_holds(hits, share), 1)


def sustained_time_to_solve(
    hits: ArrayLike, *, share: float = SHARE, first: int = SUSTAINED_FROM
) -> Float[np.ndarray, "*N"]:
    """The first episode, from `first` on, from which on the literal rule holds at every episode that was played.

    Args:
        hits: Bool[*N T], whether each of T episodes reached the goal.
        share: of the episodes so far, in (0, 1].
        first: earliest answer.

    Returns:
        Episodes; nan where there is no such episode.

    Raises:
        ValueError: `share` outside (0, 1], `first` below 1. TypeError: `first` is no integer.
    """
    check_count("first", first)
    holds = _holds(hits, share)
    # True from an episode on to the last: a conjunction that is accumulated from the end.
    ever_after = np.logical_and.accumulate(holds[..., ::-1], -1)[..., ::-1]
    return _first(ever_after[..., first - 1 :], first)


def first_visit(hits: ArrayLike) -> Float[np.ndarray, "*N"]:
    """The first episode (from 1) that reached the goal; nan where none did."""
    return _first(np.asarray(hits, bool), 1)


def _holds(hits: ArrayLike, share: float) -> Bool[np.ndarray, "*N T"]:
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, expected a number greater than 0, at most 1")
    hits = np.asarray(hits, bool)
    # Hits so far over episodes so far, at every episode.
    return np.cumsum(hits, -1) / np.arange(1, hits.shape[-1] + 1) >= share


def _first(true: Bool[np.ndarray, "*N T"], number: int) -> Float[np.ndarray, "*N"]:
    """Number of the first true entry, the entries counted from `number`; nan where there is none."""
    if not true.shape[-1]:
        return np.full(true.shape[:-1], np.nan)
    return np.where(true.any(-1), number + true.argmax(-1), np.nan)


class Solved(NamedTuple):
    """When each seed has solved its problem, in episodes; nan: not in those that were played.

    Args:
        literal: see `time_to_solve`.
        sustained: see `sustained_time_to_solve`.
        first_visit: first episode that reached the goal.
        episodes: how many were played, of each seed.
    """

    literal: Float[np.ndarray, " N"]
    sustained: Float[np.ndarray, " N"]
    first_visit: Float[np.ndarray, " N"]
    episodes: int


def play_until_solved(case: RunConfig, path: str | Path | None = None) -> Solved:
    """Play episodes until every seed has solved the problem by both rules, or there are no more. Host side.

    The run ends after a chunk of episodes in which every seed has kept the sustained rule for `SUSTAINED_FROM`
    episodes.

    Args:
        case: a run under `Episodic`, with `options.target`; `num_episodes` is the most that are played.
        path: snapshots are written beside it; the same call goes on from there. None: none.

    Raises:
        ValueError, TypeError: one sentence about the argument at fault.
    """
    check_case(case)
    if not isinstance(case.objective, Episodic):
        raise ValueError(f"objective is {type(case.objective).__name__}, expected Episodic")
    if case.options.target is None:
        raise ValueError("options.target is None, expected the pairs that are the goal")
    # Chunk by chunk, as an ordinary run; after each one `_all_solved` looks whether to go on.
    prepared = prepare(case)
    layout = replace(prepared.layout, chunk_rows=min(case.length, CHUNK_EPISODES))
    belief = (prepared.belief, prepared.setting.constants)
    attributes = describe_case(case, environment=describe(case.env, "env"), space=prepared.space, belief=belief)
    progress = Progress(layout.row_length * case.num_seeds, layout.num_rows, show=case.options.progress)
    snapshots = Snapshots(path, attributes, seconds=case.options.snapshot_seconds)
    outcome = execute(prepared._replace(layout=layout), progress, snapshots, stop=_all_solved)
    hits = np.asarray(outcome.target) > 0
    return Solved(time_to_solve(hits), sustained_time_to_solve(hits), first_visit(hits), hits.shape[-1])


def _all_solved(rows: Row) -> bool:
    hits = np.asarray(rows.target) > 0
    return bool(np.all(sustained_time_to_solve(hits) <= hits.shape[-1] - SUSTAINED_FROM))
