"""`Start`: the distribution of the first state that values are for, and where it is from, in words. Host-side."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from bayes_mdp.mdp import MDP, Log, SparseMDP, StateActionSpace
from bayes_mdp.mdp.data.log_split import first_rows, has_episodes
from bayes_mdp.mdp.sizes import Sizes
from bayes_mdp.utils.typing import InitialLike
from bayes_mdp.utils.validation import check_initial

NAMED = 3  # states at most that are named


class Start(NamedTuple):
    """A distribution of the first state.

    Args:
        probs: Float64[S].
        given: whether someone stated it; if not it is uniform.
        words: where it is from, for a person.
    """

    probs: Float[np.ndarray, " S"]
    given: bool
    words: str


def start_of_log(log: Log) -> Log | None:
    """What `initial` is where a log is at hand and nothing was given: the log, if it has episodes; else uniform (None).

    Args:
        log: as a whole.
    """
    return log if has_episodes(log) else None


def read_start(
    mdp: MDP | SparseMDP | Sizes, initial: InitialLike | None, space: StateActionSpace | None = None
) -> Start:
    """The distribution of the first state: what was given, or that of the drawn MDPs, or uniform.

    Args:
        mdp: a draw, or what has the sizes of one.
        initial: what a caller gave (see `StateActionSpace.initial_probs`); None: nothing.
        space: whose labels are meant; None: there are none, states have numbers.

    Raises:
        TypeError, ValueError: one sentence: as `StateActionSpace.initial_probs`.
    """
    size = mdp.n_states
    if initial is None and mdp.initial is None:
        words = f"uniform over the {size} states (no initial distribution was given)"
        return Start(np.full(size, 1 / size), False, words)
    if initial is None:
        check_initial(mdp.initial, size)
        probs, source = np.asarray(mdp.initial, np.float64), "the distribution of the drawn MDPs"
    else:
        names = StateActionSpace(size, mdp.n_actions) if space is None else space
        probs = names.initial_probs(initial)
        source = "the given distribution"
        if isinstance(initial, Log):
            number = len(first_rows(initial.transitions))
            source = f"the first states of the log's {number} episodes" if number > 1 else "the first state of the log"
    probs = probs / probs.sum()
    return Start(probs, True, f"{source} {_which(probs, space)}")


def _which(probs: Float[np.ndarray, " S"], space: StateActionSpace | None) -> str:
    """The states, where they are few and have names."""
    possible = np.flatnonzero(probs > 0)
    if space is None or len(possible) > NAMED:
        return f"over {len(possible)} of {len(probs)} states"
    names = [str(space.state_names[s]) for s in possible]
    if len(names) == 1:
        return f"(state {names[0]})"
    return f"({', '.join(f'{name} {probs[s]:.3g}' for name, s in zip(names, possible, strict=True))})"
