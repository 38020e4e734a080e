"""Observed data, transition by transition (`Rows`) or summed per pair (`Cells`): what a posterior keeps of them, and
data that are given, which must be the same. Host-side.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bayes_mdp.calibration.belief.draws import Moments
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.fitted import Fitted
from bayes_mdp.inference.sampled import conditioned_program
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import without_rewards
from bayes_mdp.mdp.labels import outcome_axis
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.models.sufficient_statistics import Statistics, fit_counts
from bayes_mdp.utils.validation import first_index

Data = Transitions | Log | Counts | None
UNLIKE = 1e-4  # tolerance, of rewards in float32
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
    def pairs_with_data(self) -> tuple[Int[np.ndarray, " C"], ...]:
        """Indices of the C pairs with data."""
        return np.nonzero(self.transition_counts.sum(-1))


def data_in_posterior(posterior: Fitted) -> tuple[Rows | None, Cells]:
    """The data that the posterior keeps, as rows (None if there are only sums) and as cells.

    Rows follow the order of the data, those without an observed reward last.

    Raises:
        ValueError: it does not keep enough (`why_no_kept_data`).
    """
    why = why_no_kept_data(posterior)
    if why is not None:
        raise ValueError(f"data is None, expected the data that the posterior was inferred from: {why}")
    seen, part, counts = posterior.reward_data, posterior.exact_part, _outcome_counts(posterior)
    if seen is None:
        nothing = np.zeros((*posterior.space.shape, posterior.space.n_outcomes))
        return None, Cells(nothing, Moments(*[nothing[..., 0]] * 3)) if part is None else sums_of_closed_form(part)
    assert counts is not None  # it keeps its rewards
    if isinstance(seen, Statistics):
        return None, Cells(counts, Moments(*(np.asarray(x, np.float64) for x in seen.counts.reward_moments)))
    return _rows_of_statistics(counts, seen), _sums_of_rows(counts, seen, posterior.rewards_by_outcome)


def why_no_kept_data(posterior: Fitted) -> str | None:
    # What was kept is complete where it adds up to the visits.
    """Why what the posterior keeps does not say what was observed at each pair, in words; None: it does."""
    visits, counts = np.asarray(posterior.visit_counts()), _outcome_counts(posterior)
    if not visits.any():
        return None
    if counts is None:
        return f"a {type(posterior).__name__} keeps no data pair by pair"
    if not np.allclose(counts.sum(-1), visits):
        return SHARED
    seen = posterior.reward_data
    if seen is not None:
        return _why_no_rows(counts, seen)
    part = posterior.exact_part
    assert part is not None  # all others keep their rewards
    rewards = part.reward_cells
    law = "" if rewards.law is None else rewards.law.__name__
    # Rewards of pairs that share a cell are added together, and cannot be told apart.
    if isinstance(rewards, RewardCells):
        if not rewards.has_moments:
            return f"the moments of {law} rewards, which it would need, are not what it keeps"
        tried = counts > 0 if rewards.by_outcome else visits > 0
        with_known_law = rewards.known_law is not None and bool((tried & (np.asarray(rewards.cell) < 0)).any())
        return SHARED if with_known_law or not rewards.distinct else None
    if rewards.law is None:
        return None  # known numbers
    return f"it does not keep the {law} rewards of each pair"


def _outcome_counts(posterior: Fitted) -> Float[np.ndarray, "*H S A O"] | None:
    """Counts of the outcomes at every pair; of a closed form over all pairs that share a row. None: it keeps none."""
    if posterior.exact_part is not None:
        return sums_of_closed_form(posterior.exact_part).transition_counts
    seen = posterior.reward_data
    return None if seen is None else np.asarray(conditioned_program.outcome_counts(seen), np.float64)


def _why_no_rows(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.DataStatistics) -> str | None:
    if isinstance(seen, Statistics):
        return None
    # More rewards than places: some of them are not there.
    if int(seen.used) > seen.capacity:
        return "its buffer of rewards has overflowed"
    weight = np.asarray(seen.weight, np.float64)
    if (np.asarray(seen.where)[weight != 0, -1] >= counts.shape[-1]).any():
        return "of some rewards it was not observed what followed"
    # A transition is whole or not there at all.
    whole = np.isin(weight, (0.0, 1.0)).all() and np.array_equal(counts, np.round(counts))
    return None if whole else "its transitions have weights that are neither 0 nor 1"


def sums_of_closed_form(posterior: ConjugatePosterior) -> Cells:
    """The sums that a closed form keeps, at every pair: over all pairs that share a row or reward; zero if unknown."""
    rows, rewards = posterior.transition_probs.unlisted(), posterior.reward_cells
    # With a prior of zero the concentrations are the counts.
    counts = np.asarray(eqx.tree_at(lambda r: r.prior, rows, np.zeros(rows.prior.shape)).concentration, np.float64)
    if not isinstance(rewards, RewardCells) or not rewards.has_moments:
        nothing = np.zeros(rewards.shape)
        return Cells(counts, Moments(nothing, nothing, nothing))
    # Count, mean and squared deviations of each cell.
    data = np.asarray(rewards.data, np.float64)
    if rewards.cell is None:
        sums = data.reshape(*rewards.shape, 3)
    else:
        cell = np.asarray(rewards.cell)
        # A cell below zero: the pair has a known reward.
        sums = np.where((cell < 0)[..., None], 0.0, data[cell])
    # Moments as the family keeps them, then in units of the reward.
    count, mean, ss = np.moveaxis(sums, -1, 0)
    if rewards.coefficient is not None and rewards.offset is not None:
        # The family keeps x of rewards coefficient * x + offset.
        scale = np.asarray(rewards.coefficient, np.float64)
        mean, ss = np.where(count > 0, scale * mean + np.asarray(rewards.offset), 0.0), scale**2 * ss
    return Cells(counts, Moments(count, mean, ss))


def _rows_of_statistics(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.Rows) -> Rows:
    # A weight of zero: an empty place of the buffer, or nothing that counts.
    counted = np.asarray(seen.weight) != 0
    places, reward = np.asarray(seen.where)[counted], np.asarray(seen.reward, np.float64)[counted]
    # Transitions less those with a reward, outcome by outcome.
    without = np.round(counts).astype(np.int64)
    np.add.at(without, tuple(places.T), -1)
    # What is left was seen without its reward.
    unrewarded = np.repeat(np.argwhere(without > 0), without[without > 0], axis=0)
    # Columns of places: the pair, then the outcome.
    *cell, outcome = np.concatenate([places, unrewarded]).astype(np.int32).T
    return Rows(tuple(cell), outcome, np.concatenate([reward, np.full(len(unrewarded), np.nan)]))


def _sums_of_rows(counts: Float[np.ndarray, "*H S A O"], seen: conditioned_program.Rows, by_outcome: bool) -> Cells:
    counted = np.asarray(seen.weight) != 0
    places = np.asarray(seen.where)[counted].T
    index = tuple(places if by_outcome else places[:-1])
    count, total, ss = (np.zeros(counts.shape if by_outcome else counts.shape[:-1]) for _ in range(3))
    reward = np.asarray(seen.reward, np.float64)[counted]
    np.add.at(count, index, 1.0)
    np.add.at(total, index, reward)
    mean = total / np.maximum(count, 1.0)
    # Two passes: mean first, then squares around it.
    np.add.at(ss, index, (reward - mean[index]) ** 2)
    return Cells(counts, Moments(count, mean, ss))


# Data that are given, against what the posterior keeps.


def observe(posterior: Fitted, data: Data) -> tuple[Rows | None, Cells]:
    """The data as rows (None if there are only sums) and as cells.

    Args:
        posterior: see `reference`: all components of a mixture have observed the same data.
        data: that it was inferred from; None: what it keeps.

    Raises:
        ValueError: other data than those behind `posterior`; no data where it does not keep them pair by pair.
        TypeError: `data` of another type.
    """
    if data is None:
        return data_in_posterior(posterior)
    data = data.transitions if isinstance(data, Log) else data
    if not isinstance(data, Transitions | Counts):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log or Counts")
    space, by_outcome = posterior.space, posterior.rewards_by_outcome
    cells = _cells(data, space, by_outcome)
    # Each kind of posterior keeps what it needs: what it has is compared, the most telling first.
    counts, visits = _outcome_counts(posterior), np.asarray(posterior.visit_counts(), np.float64)
    if posterior.exact_part is not None:
        _check_close("transitions from", _axes(posterior), cells.transition_counts.sum(-1), visits)
        _check_same(data, cells, posterior.exact_part)
    elif counts is not None:
        _check_close("transitions from", _axes(posterior), cells.transition_counts, counts)
    else:
        _check_close("transitions from", _axes(posterior), cells.transition_counts.sum(-1), visits)
    _check_same_rewards(cells, posterior)
    # A replicate of a transition needs its outcome: those without are left out of the rows, not of the sums.
    return None if isinstance(data, Counts) else _rows(data.with_next_state(), space), cells


def _rows(data: Transitions, space: StateActionSpace) -> Rows:
    cell = tuple(np.asarray(i) for i in data.cell(space))
    # nan stands for a reward that is missing.
    reward = np.full(cell[0].shape, np.nan) if data.reward is None else np.asarray(data.reward, np.float64)
    if data.reward_observed is not None:
        reward = np.where(np.asarray(data.reward_observed), reward, np.nan)
    return Rows(cell, np.asarray(data.outcome(space)), reward)


def _cells(data: Counts | Transitions, space: StateActionSpace, by_outcome: bool) -> Cells:
    with jax.enable_x64(True):
        # Sums of many counts in double precision.
        if isinstance(data, Counts):
            counts = fit_counts(data, space, None, by_outcome)
        else:
            counts = Counts.of(data, space, by_outcome=by_outcome)
        transitions, *rewards = (np.asarray(x, np.float64) for x in (counts.transitions, *counts.reward_moments))
    return Cells(transitions, Moments(*rewards))


def _axes(posterior: Fitted) -> tuple[str, ...]:
    return (*PLATE_NAMES[-len(posterior.space.shape) :], outcome_axis(posterior.space))


def _check_same_rewards(cells: Cells, posterior: Fitted) -> None:
    """Refuse other rewards than those that a posterior by draws keeps as moments."""
    seen = posterior.reward_data
    if isinstance(seen, Statistics) and posterior.reward_law is not None:
        learnt = Moments(*(np.asarray(x, np.float64) for x in seen.counts.reward_moments))
        _check_close("rewards of", _axes(posterior), cells.rewards.count, learnt.count)
        _check_close("as the mean reward of", _axes(posterior), cells.rewards.mean, learnt.mean, _slack(learnt))


def _slack(own: Moments) -> float:
    """Tolerance of a mean reward: the posterior may have been updated in float32."""
    # In parts of the mean and of the standard deviation: sums in float32 lose as much.
    tolerance = 1e-4 * np.abs(own.mean) + 1e-4 * np.sqrt(own.ss / np.maximum(own.count, 1.0))
    return float(tolerance.max(initial=1e-9))


def _check_same(data: Transitions | Counts, cells: Cells, posterior: ConjugatePosterior) -> None:
    """Refuse other data than those behind the posterior, by updating its prior with them and comparing the sums."""
    axes = _axes(posterior)
    rewards, prior = posterior.reward_cells, posterior.before_data()
    with jax.enable_x64(True):
        if rewards.learns and not rewards.has_moments:
            # A law without moments: the sufficient statistics themselves are learnt again.
            relearnt = prior.update(data)
        else:
            # The prior learns the data anew: what it keeps can then be compared sum by sum.
            counts = Counts(*map(jnp.asarray, (cells.transition_counts, *cells.rewards)))
            relearnt = prior.update(counts if rewards.learns or rewards.law else without_rewards(counts))
        posterior_sums, data_sums = sums_of_closed_form(posterior), sums_of_closed_form(relearnt)
    _check_close("transitions from", axes, data_sums.transition_counts, posterior_sums.transition_counts)
    _check_close("rewards of", axes, data_sums.rewards.count, posterior_sums.rewards.count)
    _check_close(
        "as the mean reward of",
        axes,
        data_sums.rewards.mean,
        posterior_sums.rewards.mean,
        _slack(posterior_sums.rewards),
    )
    pairs = zip(jax.tree.leaves(relearnt.reward_cells), jax.tree.leaves(rewards), strict=True)
    if not rewards.has_moments and not all(np.allclose(x, y, rtol=UNLIKE, atol=UNLIKE) for x, y in pairs):
        raise ValueError("data has other rewards than those that the posterior was inferred from, expected the same")


def _check_close(
    what: str, axes: tuple[str, ...], given: Float[np.ndarray, "*n"], own: Float[np.ndarray, "*n"], slack: float = 1e-5
) -> None:
    index = first_index(~np.isclose(given, own, atol=slack))
    if index is not None:
        raise ValueError(
            f"data has {given[index]:.10g} {what} {', '.join(axes[: len(index)])} {index}, "
            f"expected the {own[index]:.10g} that the posterior was inferred from"
        )
