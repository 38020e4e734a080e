"""Many episodes of a tabular MDP at once, in numpy: all that go on make a step together."""

import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.mdp import MDP, SparseMDP, Transitions

GRID = 2**32


class Inversion:
    """Draws from the rows of a table [N K] of probabilities, any row each time; an entry of zero is never drawn."""

    def __init__(self, rows: Float[np.ndarray, "N K"]) -> None:
        cumulative = np.cumsum(rows, -1)
        cumulative /= cumulative[:, -1:]
        self.width = rows.shape[1]
        # Row i, raised by i: all rows are one ascending list, and one search finds any of them.
        self.ascending = (cumulative + np.arange(len(rows))[:, None]).ravel()

    def draw(self, rng: np.random.Generator, row: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """A column of each of these rows."""
        # On a grid of 2^-32, row + u is exact: it never rounds up into the next row.
        u = rng.integers(GRID, size=len(row)) / GRID
        return np.searchsorted(self.ascending, row + u, side="right") - row * self.width


def simulate_episodes(
    rng: np.random.Generator, mdp: MDP | SparseMDP, policy: Float[np.ndarray, "S A"], num_episodes: int, max_steps: int
) -> Transitions:
    """Episodes of a stationary MDP whose rewards are those of the pairs, one after the other.

    Args:
        rng: numpy's.
        mdp: with an initial distribution; its rewards are paid without noise.
        policy: probabilities of legal actions.
        num_episodes: how many.
        max_steps: an episode in which so many transitions came to pass is truncated, unless an end is all that can
            follow.
    """
    taken = policy > 0
    number = np.cumsum(taken).reshape(taken.shape) - 1  # of each pair that can occur, among those
    rows = np.asarray(mdp.row_probs)[taken].astype(np.float64)
    ends = np.zeros(taken.shape) if mdp.end_probs is None else np.asarray(mdp.end_probs, np.float64)
    outcomes = Inversion(np.concatenate([rows, ends[taken][:, None]], -1))  # the last one is the end
    listed = np.asarray(mdp.successor)[taken] if isinstance(mdp, SparseMDP) else None
    reward = np.asarray(mdp.reward, np.float64)
    over = np.all((ends >= 1.0) | ~taken, -1)
    actions, first = Inversion(policy), Inversion(np.asarray(mdp.initial, np.float64)[None])
    episode = np.arange(num_episodes)
    state, step, parts = first.draw(rng, np.zeros(num_episodes, int)), 0, []
    while len(episode):
        action = actions.draw(rng, state)
        pair = number[state, action]
        place = outcomes.draw(rng, pair)
        ended = place == rows.shape[-1]
        after = place if listed is None else listed[pair, np.minimum(place, rows.shape[-1] - 1)]
        after = np.where(ended, state, after)
        cut = ~ended & ~over[after] & (step + 1 >= max_steps)
        parts.append((episode, state, action, after, ended, cut, np.full(len(episode), step)))
        goes_on = ~(ended | cut)
        episode, state, step = episode[goes_on], after[goes_on], step + 1
    episode, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(episode, kind="stable")
    state, action, after, ended, cut, steps = (column[order] for column in columns)
    return Transitions(
        state.astype(np.int32),
        action.astype(np.int32),
        reward[state, action],
        after.astype(np.int32),
        ended,
        cut if cut.any() else None,
        steps.astype(np.int32),
    )
