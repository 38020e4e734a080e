"""`observed_successors`: the outcomes that a log has of every pair, listed, and a state for all the others together."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bayes_mdp.mdp.data.folded_log import END, FIRST_STATE, UNKNOWN, FoldedLog, Where
from bayes_mdp.mdp.data.transitions import Log
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.validation import check_index


class ObservedSuccessors(NamedTuple):
    """Lists over S + 1 states, the last of which, U, stands for what was never seen.

    Args:
        successors: [S+1 A K], observed outcomes in order (S + 1 is the end), then U, then -1.
        multiplicity: [S+1 A K], how many outcomes each place stands for.
    """

    successors: Int[np.ndarray, "S+1 A K"]
    multiplicity: Int[np.ndarray, "S+1 A K"]


def observed_successors(log: Log | FoldedLog, *, ends: bool) -> ObservedSuccessors:
    """List what a log of S states and A actions holds. Host side.

    From U itself an episode ends where it can, and else stays in U.

    Args:
        log: as `read_log` returns it.
        ends: whether an episode can end.

    Raises:
        ValueError: a next state without label, lists that do not fit in memory.
    """
    n_states, n_actions = len(log.states), len(log.actions)
    unseen, end = n_states, n_states + 1
    state, action, reached = _transitions_of(log, end)
    check_index("transitions.next_state", np.where(reached == end, 0, reached), n_states, "state")
    # Every (pair, outcome) once, in order: one sort of one number each.
    pair, outcome = np.divmod(np.unique((state * n_actions + action) * (end + 1) + reached), end + 1)
    number = np.bincount(pair, minlength=(n_states + 1) * n_actions)
    width = int(number.max(initial=0)) + 1
    check_memory(
        f"successors of {n_states} states and {n_actions} actions, at most {width - 1} observed of a pair",
        32.0 * (n_states + 1) * n_actions * width,
        "successors that are known may be fewer",
    )
    # -1: no further outcome.
    successors = np.full((len(number), width), -1)
    multiplicity = np.ones((len(number), width), np.int64)
    # The place of an outcome within its pair.
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
    successors[pair, place] = outcome
    # What is left of the S states and the end is one outcome more, where there is something left.
    left = n_states + ends - number
    rows = np.flatnonzero(left > 0)
    successors[rows, number[rows]] = unseen
    multiplicity[rows, number[rows]] = left[rows]
    extra = slice(n_states * n_actions, None)
    # U itself: one outcome for every action.
    successors[extra], multiplicity[extra] = -1, 1
    successors[extra, 0] = end if ends else unseen
    shape = (n_states + 1, n_actions, width)
    return ObservedSuccessors(successors.reshape(shape), multiplicity.reshape(shape))


def _transitions_of(
    log: Log | FoldedLog, end: int
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """State, action and next state (or `end`) of the transitions, each at least once."""
    if isinstance(log, FoldedLog):
        index = Where(*(x[log.cells.where.outcome != UNKNOWN] for x in log.cells.where))
        columns = index.state, index.action, np.where(index.outcome == END, end, index.outcome - FIRST_STATE)
    else:
        complete = log.transitions.with_next_state()
        columns = complete.state, complete.action, complete.outcome(end)
    state, action, reached = (np.asarray(column, np.int64) for column in columns)
    return state, action, reached
