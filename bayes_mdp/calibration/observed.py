"""The data that a posterior has seen: transition by transition (`Rows`), or summed per pair (`Cells`). Host-side."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.calibration.laws import Moments
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions, check_transitions
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.mdp.validation import check_shape, first_index

Data = Transitions | Log | Counts | None


class Rows(NamedTuple):
    """T transitions: index of each (step,) state, action and outcome; reward NaN where it is missing."""

    cell: tuple[Int[np.ndarray, " T"], ...]
    outcome: Int[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]

    def reward_cell(self, by_outcome: bool) -> tuple[Int[np.ndarray, " T"], ...]:
        """Where the reward's law of each transition stands."""
        return (*self.cell, self.outcome) if by_outcome else self.cell


class Cells(NamedTuple):
    """Sums per pair: how often each outcome was seen; moments of the rewards, per outcome where they depend on it."""

    transition_counts: Float[np.ndarray, "*H S A O"]
    rewards: Moments

    @property
    def tried(self) -> tuple[Int[np.ndarray, " C"], ...]:
        """Indices of the C pairs with data."""
        return np.nonzero(self.transition_counts.sum(-1))


def observe(posterior: Any, data: Data) -> tuple[Rows | None, Cells]:
    """The data as rows (None where there are only sums) and as cells.

    Raises:
        ValueError: `data` is not what `posterior` has seen, or is needed where its own sums do not tell pairs apart.
        TypeError: `data` of another type.
    """
    if data is None:
        return None, _cells_of_posterior(posterior)
    data = data.transitions if isinstance(data, Log) else data
    if not isinstance(data, Transitions | Counts):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log or Counts")
    space, by_outcome = posterior.space, posterior.rewards.by_outcome
    if isinstance(data, Counts):
        full = (*space.shape, space.n_outcomes)
        check_shape("data.transitions", data.transitions, full, "(step,) state, action, outcome")
        check_shape("data.reward_count", data.reward_count, full if by_outcome else space.shape, "the rewards' cells")
        rows = None
    else:
        check_transitions(data, space)
        rows = _rows(data, space)
    cells = _cells(data, space, by_outcome)
    _check_seen(cells, posterior)
    return rows, cells


def _rows(data: Transitions, space: StateActionSpace) -> Rows:
    cell = tuple(np.asarray(i) for i in data.cell(space))
    reward = np.full(cell[0].shape, np.nan) if data.reward is None else np.asarray(data.reward, np.float64)
    if data.reward_observed is not None:
        reward = np.where(np.asarray(data.reward_observed), reward, np.nan)
    return Rows(cell, np.asarray(data.outcome(space.n_states)), reward)


def _cells(data: Counts | Transitions, space: StateActionSpace, by_outcome: bool) -> Cells:
    with jax.enable_x64(True):
        counts = data if isinstance(data, Counts) else Counts.of(data, space, by_outcome=by_outcome)
        sums = (counts.transitions, counts.reward_count, counts.reward_mean, counts.reward_ss)
        transitions, *rewards = (np.asarray(x, np.float64) for x in sums)
    return Cells(transitions, Moments(*rewards))


def _cells_of_posterior(posterior: Any) -> Cells:
    """The posterior's own sums: each pair's where no row, and no reward, is shared or known."""
    rows, rewards = posterior.transition_probs.unlisted(), posterior.rewards
    with jax.enable_x64(True):
        counts = np.asarray(eqx.tree_at(lambda r: r.prior, rows, jnp.zeros(rows.prior.shape)).concentration)
    visits = np.asarray(posterior.visit_counts())
    if not np.allclose(counts.sum(-1), visits) or not rewards.distinct:
        raise ValueError(
            "data is None, expected the data that the posterior was inferred from: "
            "its sums do not tell pairs apart that share, or know, a row or a reward"
        )
    if isinstance(rewards, KnownRewards):
        nothing = np.zeros(np.shape(rewards.known))
        return Cells(counts, Moments(nothing, nothing, nothing))
    leaves = np.asarray(rewards.data, np.float64)
    if rewards.cell is None:
        sums = leaves.reshape(*rewards.shape, 3)
    else:
        sums = np.where((rewards.cell < 0)[..., None], 0.0, leaves[rewards.cell])
    return Cells(counts, Moments(*np.moveaxis(sums, -1, 0)))


def _check_seen(cells: Cells, posterior: Any) -> None:
    """The same visits: else the log-likelihood would not be that of the data behind these draws."""
    visits, given = np.asarray(posterior.visit_counts(), np.float64), cells.transition_counts.sum(-1)
    index = first_index(~np.isclose(visits, given))
    if index is not None:
        raise ValueError(
            f"data has {given[index]:.10g} transitions from {', '.join(PLATE_NAMES[-len(index) :])} {index}, "
            f"expected the {visits[index]:.10g} that the posterior was inferred from"
        )
