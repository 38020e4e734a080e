"""Observed data, transition by transition (`Rows`) or summed per pair (`Cells`). Host-side."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayes_mdp.calibration.belief.before_data import before_data
from bayes_mdp.calibration.belief.own_data import Cells, Rows, own_data, own_sums
from bayes_mdp.calibration.belief.posterior_views import Reference
from bayes_mdp.calibration.belief.reward_density import Moments
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.factorised.factorised_posterior import FactorisedPosterior
from bayes_mdp.inference.sampled.conditioned_program import outcome_counts
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.data.transitions import without_rewards
from bayes_mdp.mdp.labels import outcome_axis
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.models.sufficient_statistics import Statistics, fit_counts
from bayes_mdp.utils.validation import first_index

Data = Transitions | Log | Counts | None
UNLIKE = 1e-4  # tolerance, of rewards in float32


def observe(posterior: Reference, data: Data) -> tuple[Rows | None, Cells]:
    """The data as rows (None if there are only sums) and as cells.

    Args:
        posterior: see `reference`: all components of a mixture have observed the same data.
        data: that it was inferred from; None: what it keeps.

    Raises:
        ValueError: other data than those behind `posterior`; no data where it does not keep them pair by pair.
        TypeError: `data` of another type.
    """
    if data is None:
        return own_data(posterior)
    data = data.transitions if isinstance(data, Log) else data
    if not isinstance(data, Transitions | Counts):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log or Counts")
    space, by_outcome = posterior.space, posterior.rewards_by_outcome
    cells = _cells(data, space, by_outcome)
    if isinstance(posterior, ConjugatePosterior):
        _check_same(data, cells, posterior)
    else:
        own_counts = np.asarray(outcome_counts(posterior.data_statistics), np.float64)
        _check_close("transitions from", _axes(posterior), cells.transition_counts, own_counts)
    _check_same_rewards(cells, posterior)
    return None if isinstance(data, Counts) else _rows(data, space), cells


def _rows(data: Transitions, space: StateActionSpace) -> Rows:
    cell = tuple(np.asarray(i) for i in data.cell(space))
    reward = np.full(cell[0].shape, np.nan) if data.reward is None else np.asarray(data.reward, np.float64)
    if data.reward_observed is not None:
        reward = np.where(np.asarray(data.reward_observed), reward, np.nan)
    return Rows(cell, np.asarray(data.outcome(space)), reward)


def _cells(data: Counts | Transitions, space: StateActionSpace, by_outcome: bool) -> Cells:
    with jax.enable_x64(True):
        if isinstance(data, Counts):
            counts = fit_counts(data, space, None, by_outcome)
        else:
            counts = Counts.of(data, space, by_outcome=by_outcome)
        transitions, *rewards = (np.asarray(x, np.float64) for x in (counts.transitions, *counts.reward_moments))
    return Cells(transitions, Moments(*rewards))


def _axes(posterior: Reference) -> tuple[str, ...]:
    return (*PLATE_NAMES[-len(posterior.space.shape) :], outcome_axis(posterior.space))


def _check_same_rewards(cells: Cells, posterior: Reference) -> None:
    """Refuse other rewards than those that a posterior by draws keeps as moments."""
    seen = posterior.reward_data
    if isinstance(seen, Statistics) and posterior.reward_law is not None:
        own = Moments(*(np.asarray(x, np.float64) for x in seen.counts.reward_moments))
        _check_close("rewards of", _axes(posterior), cells.rewards.count, own.count)
        _check_close("as the mean reward of", _axes(posterior), cells.rewards.mean, own.mean, _slack(own))


def _slack(own: Moments) -> float:
    """Tolerance of a mean reward: the posterior may have been updated in float32."""
    each = 1e-4 * np.abs(own.mean) + 1e-4 * np.sqrt(own.ss / np.maximum(own.count, 1.0))
    return float(each.max(initial=1e-9))


def _check_same(data: Transitions | Counts, cells: Cells, posterior: ConjugatePosterior) -> None:
    """Refuse other data than those behind the posterior, by updating its prior with them and comparing the sums."""
    axes = _axes(posterior)
    visits, given = np.asarray(posterior.visit_counts(), np.float64), cells.transition_counts.sum(-1)
    _check_close("transitions from", axes, given, visits)
    if isinstance(posterior, FactorisedPosterior):
        # The rows alone: what is known of the rewards is compared elsewhere.
        nothing = known_rewards(np.zeros(posterior.space.shape))
        posterior = ConjugatePosterior(
            posterior.transition_probs, nothing, posterior.space, posterior.visits, posterior.constant
        )
    rewards, prior = posterior.reward_cells, before_data(posterior)
    with jax.enable_x64(True):
        if rewards.learns and not rewards.has_moments:
            again = prior.update(data)
        else:
            counts = Counts(*map(jnp.asarray, (cells.transition_counts, *cells.rewards)))
            again = prior.update(counts if rewards.learns or rewards.law else without_rewards(counts))
        own, new = own_sums(posterior), own_sums(again)
    _check_close("transitions from", axes, new.transition_counts, own.transition_counts)
    _check_close("rewards of", axes, new.rewards.count, own.rewards.count)
    _check_close("as the mean reward of", axes, new.rewards.mean, own.rewards.mean, _slack(own.rewards))
    pairs = zip(jax.tree.leaves(again.reward_cells), jax.tree.leaves(rewards), strict=True)
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
