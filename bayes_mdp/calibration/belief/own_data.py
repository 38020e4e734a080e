"""The data that a posterior keeps: sums per pair (`Cells`), or single transitions (`Rows`). Host-side."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.calibration.belief.posterior_views import Reference
from bayes_mdp.calibration.belief.reward_density import Moments
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.sampled import conditioned_program
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.models.sufficient_statistics import Statistics

SHARED = "its sums do not tell pairs apart that share a row or a reward, or have a known one"


class Rows(NamedTuple):
    """T transitions: indices of (step,) state, action and outcome; the reward, nan where it is missing."""

    cell: tuple[Int[np.ndarray, " T"], ...]
    outcome: Int[np.ndarray, " T"]
    reward: Float[np.ndarray, " T"]

    def reward_cell(self, by_outcome: bool) -> tuple[Int[np.ndarray, " T"], ...]:
        """Index of the reward law of each transition."""
        return (*self.cell, self.outcome) if by_outcome else self.cell


class Cells(NamedTuple):
    """Sums per pair: counts of the outcomes; moments of the rewards, per outcome if they depend on it."""

    transition_counts: Float[np.ndarray, "*H S A O"]
    rewards: Moments

    @property
    def tried(self) -> tuple[Int[np.ndarray, " C"], ...]:
        """Indices of the C pairs with data."""
        return np.nonzero(self.transition_counts.sum(-1))


def own_data(posterior: Reference) -> tuple[Rows | None, Cells]:
    """The data that the posterior keeps, as rows (None if there are only sums) and as cells.

    Rows follow the order of the data, those without an observed reward last.

    Raises:
        ValueError: it does not keep enough (`why_no_own_data`).
    """
    why = why_no_own_data(posterior)
    if why is not None:
        raise ValueError(f"data is None, expected the data that the posterior was inferred from: {why}")
    seen = posterior.reward_data
    if seen is None:
        assert isinstance(posterior, ConjugatePosterior)  # all others keep their rewards
        return None, own_sums(posterior)
    counts = _own_counts(posterior)
    if isinstance(seen, Statistics):
        return None, Cells(counts, Moments(*map(_wide, seen.counts.reward_moments)))
    return _own_rows(counts, seen), _sums_of_rows(counts, seen, posterior.rewards_by_outcome)


def why_no_own_data(posterior: Reference) -> str | None:
    """Why what the posterior keeps does not say what was observed at each pair, in words; None: it does."""
    visits, counts = np.asarray(posterior.visit_counts()), _own_counts(posterior)
    if not visits.any():
        return None
    if not np.allclose(counts.sum(-1), visits):
        return SHARED
    seen = posterior.reward_data
    if seen is not None:
        return _why_no_rows(counts, seen)
    assert isinstance(posterior, ConjugatePosterior)  # all others keep their rewards
    rewards = posterior.reward_cells
    law = "" if rewards.law is None else rewards.law.__name__
    if isinstance(rewards, RewardCells):
        if not rewards.has_moments:
            return f"the moments of {law} rewards, which it would need, are not what it keeps"
        tried = counts > 0 if rewards.by_outcome else visits > 0
        with_known_law = rewards.known_law is not None and bool((tried & (np.asarray(rewards.cell) < 0)).any())
        return SHARED if with_known_law or not rewards.distinct else None
    if rewards.law is None:
        return None  # known numbers
    return f"it does not keep the {law} rewards of each pair"


def _own_counts(posterior: Reference) -> Float[np.ndarray, "*H S A O"]:
    """Counts of the outcomes at every pair; of a closed form over all pairs that share a row."""
    if isinstance(posterior, SampledPosterior):
        return _wide(conditioned_program.outcome_counts(posterior.data_statistics))
    return own_sums(posterior).transition_counts


def _why_no_rows(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.DataStatistics) -> str | None:
    if isinstance(seen, Statistics):
        return None
    if int(seen.used) > seen.capacity:
        return "its buffer of rewards has overflowed"
    weight = _wide(seen.weight)
    whole = np.isin(weight, (0.0, 1.0)).all() and np.array_equal(counts, np.round(counts))
    return None if whole else "its transitions have weights that are neither 0 nor 1"


def own_sums(posterior: ConjugatePosterior) -> Cells:
    """The sums that a closed form keeps, at every pair: over all pairs that share a row or reward; zero if unknown."""
    rows, rewards = posterior.transition_probs.unlisted(), posterior.reward_cells
    with jax.enable_x64(True):
        counts = np.asarray(eqx.tree_at(lambda r: r.prior, rows, jnp.zeros(rows.prior.shape)).concentration)
    if not isinstance(rewards, RewardCells) or not rewards.has_moments:
        nothing = np.zeros(rewards.shape)
        return Cells(counts, Moments(nothing, nothing, nothing))
    data = np.asarray(rewards.data, np.float64)
    if rewards.cell is None:
        sums = data.reshape(*rewards.shape, 3)
    else:
        cell = np.asarray(rewards.cell)
        sums = np.where((cell < 0)[..., None], 0.0, data[cell])
    count, mean, ss = np.moveaxis(sums, -1, 0)
    if rewards.coefficient is not None and rewards.offset is not None:
        # The family keeps x of rewards coefficient * x + offset.
        scale = np.asarray(rewards.coefficient, np.float64)
        mean, ss = np.where(count > 0, scale * mean + np.asarray(rewards.offset), 0.0), scale**2 * ss
    return Cells(counts, Moments(count, mean, ss))


def _own_rows(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.Rows) -> Rows:
    kept = np.asarray(seen.weight) != 0
    where, reward = np.asarray(seen.where)[kept], np.asarray(seen.reward, np.float64)[kept]
    without = np.round(counts).astype(np.int64)
    np.add.at(without, tuple(where.T), -1)
    # What is left was seen without its reward.
    others = np.repeat(np.argwhere(without > 0), without[without > 0], axis=0)
    *cell, outcome = np.concatenate([where, others]).astype(np.int32).T
    return Rows(tuple(cell), outcome, np.concatenate([reward, np.full(len(others), np.nan)]))


def _sums_of_rows(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.Rows, by_outcome: bool) -> Cells:
    kept = np.asarray(seen.weight) != 0
    where = np.asarray(seen.where)[kept].T
    index = tuple(where if by_outcome else where[:-1])
    count, total, ss = (np.zeros(counts.shape if by_outcome else counts.shape[:-1]) for _ in range(3))
    reward = np.asarray(seen.reward, np.float64)[kept]
    np.add.at(count, index, 1.0)
    np.add.at(total, index, reward)
    mean = total / np.maximum(count, 1.0)
    np.add.at(ss, index, (reward - mean[index]) ** 2)
    return Cells(counts, Moments(count, mean, ss))


def _wide(array: Array | np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float64)
