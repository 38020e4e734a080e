"""`observed_successors`: the outcomes that a log has of every pair, listed, and a state for all the others together."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bayes_mdp.mdp.data import Transitions
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.mdp.validation import check_index


class ObservedSuccessors(NamedTuple):
    """Lists over S + 1 states, the last of which, U, stands for what was never seen.

    Args:
        successors: [S+1 A K], observed outcomes in order (S + 1 is the end), then U, then -1.
        multiplicity: [S+1 A K], how many outcomes each place stands for.
    """

    successors: Int[np.ndarray, "S+1 A K"]
    multiplicity: Int[np.ndarray, "S+1 A K"]


def observed_successors(transitions: Transitions, n_states: int, n_actions: int, *, ends: bool) -> ObservedSuccessors:
    """List what was observed. Host side.

    From U itself an episode ends where it can, and else stays in U.

    Args:
        transitions: of S states and A actions.
        n_states, n_actions: S and A.
        ends: whether an episode can end.

    Raises:
        ValueError: an index out of range, lists that do not fit in memory.
    """
    check_index("transitions.state", transitions.state, n_states, "state")
    check_index("transitions.action", transitions.action, n_actions, "action")
    unseen, end = n_states, n_states + 1
    reached = np.asarray(transitions.next_state, np.int64)
    if transitions.terminated is not None:
        reached = np.where(np.asarray(transitions.terminated), end, reached)
    # Every (pair, outcome) once, in order: one sort of one number each.
    pair = np.asarray(transitions.state, np.int64) * n_actions + np.asarray(transitions.action)
    pair, outcome = np.divmod(np.unique(pair * (end + 1) + reached), end + 1)
    number = np.bincount(pair, minlength=(n_states + 1) * n_actions)
    width = int(number.max(initial=0)) + 1
    check_memory(
        f"successors of {n_states} states and {n_actions} actions, at most {width - 1} observed of a pair",
        32.0 * (n_states + 1) * n_actions * width,
        "successors that are known may be fewer",
    )
    successors = np.full((len(number), width), -1)
    multiplicity = np.ones((len(number), width), np.int64)
    place = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
    successors[pair, place] = outcome
    # What is left of the S states and the end is one outcome more, where there is something left.
    left = n_states + ends - number
    rows = np.flatnonzero(left > 0)
    successors[rows, number[rows]] = unseen
    multiplicity[rows, number[rows]] = left[rows]
    own = slice(n_states * n_actions, None)
    successors[own], multiplicity[own] = -1, 1
    successors[own, 0] = end if ends else unseen
    shape = (n_states + 1, n_actions, width)
    return ObservedSuccessors(successors.reshape(shape), multiplicity.reshape(shape))
