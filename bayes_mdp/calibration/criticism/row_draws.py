"""`RowDraws`: rows of some pairs, drawn from any posterior, in one layout. Host-side."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from bayes_mdp.inference.pair_draws import pair_draws
from bayes_mdp.mdp import MDP, SparseMDP
from bayes_mdp.mdp.protocols import Posterior

AT_ONCE = 16  # draws that are made at a time


class RowDraws(NamedTuple):
    """Rows of Q pairs over K places, the last one the end of the episode.

    Args:
        state, action: [Q].
        next_state: [Q K], the state of each place, S for the end.
        mean: [Q K], posterior means.
        draw: the next draw, [Q K].
    """

    state: Int[np.ndarray, " Q"]
    action: Int[np.ndarray, " Q"]
    next_state: Int[np.ndarray, "Q K"]
    mean: Float[np.ndarray, "Q K"]
    draw: Callable[[], Float[np.ndarray, "Q K"]]

    def place(self, pair: Int[np.ndarray, " n"], reached: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The place of each state in the row of its pair, flat; of a state that is listed twice the first place."""
        size = int(self.next_state.max()) + 2
        code = (np.arange(len(self.state))[:, None] * size + self.next_state).reshape(-1)
        order = np.argsort(code, kind="stable")
        return order[np.searchsorted(code[order], np.asarray(pair).astype(np.int64) * size + reached)]


def row_draws(key: PRNGKeyArray, posterior: Posterior, needed: Bool[np.ndarray, "S A"]) -> RowDraws:
    """The rows of the needed pairs; those alone are drawn where the posterior can.

    Args:
        key: of the draws.
        posterior: of a stationary MDP.
        needed: the pairs, at least one.
    """
    state, action = np.nonzero(needed)
    next_state, mean = _rows(posterior.mean_mdp(), state, action)
    draws = pair_draws(key, posterior, needed)
    layout = RowDraws(state, action, next_state, mean, lambda: mean)
    place = layout.place(draws.rows.pair, draws.rows.next_state)

    def rows_of_draws() -> Iterator[Float[np.ndarray, "Q K"]]:
        while True:
            for probs in draws.draw(AT_ONCE).probs:
                row = np.bincount(place, probs, next_state.size)
                yield row.reshape(next_state.shape)

    stream = rows_of_draws()
    return layout._replace(draw=lambda: next(stream))


def _rows(
    mdp: MDP | SparseMDP, state: Int[np.ndarray, " Q"], action: Int[np.ndarray, " Q"]
) -> tuple[Int[np.ndarray, "Q K"], Float[np.ndarray, "Q K"]]:
    """The state of each place, and its probability."""
    probs = np.asarray(mdp.row_probs[state, action], np.float64)
    if isinstance(mdp, SparseMDP):
        reached = np.asarray(mdp.successor[state, action])
    else:
        reached = np.broadcast_to(np.arange(mdp.n_states), probs.shape)
    ends = np.zeros(len(state)) if mdp.end_probs is None else np.asarray(mdp.end_probs[state, action], np.float64)
    last = np.full((len(state), 1), mdp.n_states)
    return np.concatenate([reached, last], 1), np.concatenate([probs, ends[:, None]], 1)


def drawn_outcomes(
    rng: np.random.Generator, rows: Float[np.ndarray, "Q K"], pair: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " N"]:
    """A place of its row for each of N transitions, flat."""
    cumulative = np.cumsum(rows.reshape(-1))
    width = rows.shape[1]
    before = np.concatenate([[0.0], cumulative[width - 1 :: width]])
    target = before[pair] + rng.random(len(pair)) * (before[pair + 1] - before[pair])
    return np.clip(np.searchsorted(cumulative, target, side="right"), pair * width, pair * width + width - 1)
