"""Observed data, transition by transition (`Rows`) or summed per pair (`Cells`). Host-side."""

from dataclasses import replace
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bayes_mdp.calibration.belief.reward_density import Moments
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.reward_cells import KnownRewards
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.inference.sampled.conditioned_program import outcome_counts
from bayes_mdp.inference.sampled.sampled_posterior import SampledPosterior
from bayes_mdp.mdp import Counts, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import OUTCOME
from bayes_mdp.mdp.space import PLATE_NAMES
from bayes_mdp.mdp.validation import first_index
from bayes_mdp.models.sufficient_statistics import Statistics, fit_counts

Data = Transitions | Log | Counts | None
Exact = TypeVar("Exact", bound=ConjugatePosterior | Mixture)
Reference = ConjugatePosterior | SampledPosterior  # what holds the data statistics


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


def observe(posterior: Reference, data: Data) -> tuple[Rows | None, Cells]:
    """The data as rows (None if there are only sums) and as cells.

    Args:
        posterior: see `reference`: all components of a mixture have observed the same data.
        data: that it was inferred from; None: its own sums.

    Raises:
        ValueError: other data than those behind `posterior`; no data where its own sums do not tell pairs apart.
        TypeError: `data` of another type.
    """
    if data is None:
        return None, _own_cells(posterior)
    data = data.transitions if isinstance(data, Log) else data
    if not isinstance(data, Transitions | Counts):
        raise TypeError(f"data is a {type(data).__name__}, expected Transitions, a Log or Counts")
    space, by_outcome = posterior.space, rewards_by_outcome(posterior)
    cells = _cells(data, space, by_outcome)
    if isinstance(posterior, SampledPosterior):
        _check_same_sampled(cells, posterior)
    else:
        _check_same(cells, posterior)
    return None if isinstance(data, Counts) else _rows(data, space), cells


def rewards_by_outcome(posterior: Reference) -> bool:
    """Whether the cells of the reward law have the outcome as last axis."""
    return posterior.rewards.by_outcome if isinstance(posterior, SampledPosterior) else posterior.rewards_by_outcome


def known_rewards(posterior: Reference) -> Float[np.ndarray, "*cells"] | None:
    """Known rewards (those of the first draw, if they depend on latent sites); None: rewards have a law."""
    if isinstance(posterior, SampledPosterior):
        return None if posterior.rewards.law is not None else np.asarray(posterior.rewards.known)[0]
    cells = posterior.reward_cells
    return np.asarray(cells.known) if isinstance(cells, KnownRewards) else None


def _rows(data: Transitions, space: StateActionSpace) -> Rows:
    cell = tuple(np.asarray(i) for i in data.cell(space))
    reward = np.full(cell[0].shape, np.nan) if data.reward is None else np.asarray(data.reward, np.float64)
    if data.reward_observed is not None:
        reward = np.where(np.asarray(data.reward_observed), reward, np.nan)
    return Rows(cell, np.asarray(data.outcome(space.n_states)), reward)


def _cells(data: Counts | Transitions, space: StateActionSpace, by_outcome: bool) -> Cells:
    with jax.enable_x64(True):
        if isinstance(data, Counts):
            counts = fit_counts(data, space, None, by_outcome)
        else:
            counts = Counts.of(data, space, by_outcome=by_outcome)
        transitions, *rewards = (np.asarray(x, np.float64) for x in (counts.transitions, *counts.reward_moments))
    return Cells(transitions, Moments(*rewards))


def before_data(posterior: Exact) -> Exact:
    """The prior of this posterior. Of a mixture: the priors of its components, with their prior weights."""
    if isinstance(posterior, Mixture):
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, _mixture_before_data(jax.tree.map(np.array, posterior)))
    rows = posterior.transition_probs.unlisted()
    rows = eqx.tree_at(lambda r: r.counts, rows, np.zeros(rows.prior.shape, rows.prior.dtype))
    prior = eqx.tree_at(lambda p: p.transition_probs, posterior, rows)
    if isinstance(prior.reward_cells, KnownRewards):
        return prior
    data = prior.reward_cells.data
    return eqx.tree_at(lambda p: p.reward_cells.data, prior, np.zeros(data.shape, data.dtype))


@jax.jit
def _mixture_before_data(posterior: Mixture) -> Mixture:
    """Bayes' rule backwards: prior weight = posterior weight / evidence."""
    evidence = jax.vmap(lambda component: component.log_evidence)(posterior.components)
    components = jax.vmap(before_data)(posterior.components)
    known = posterior.log_prior
    weights = posterior.log_weights - evidence if known is None else known - jax.nn.logsumexp(known)
    return replace(posterior, components=components, log_weights=weights)


def _own_cells(posterior: Reference) -> Cells:
    """The sums that the posterior keeps.

    Raises:
        ValueError: pairs share rows or rewards, or these are known: their sums are not those of each pair.
    """
    if isinstance(posterior, SampledPosterior):
        return _cells_of_sampled(posterior)
    sums, visits = _sums(posterior), np.asarray(posterior.visit_counts())
    if not np.allclose(sums.transition_counts.sum(-1), visits) or not posterior.reward_cells.distinct:
        raise ValueError(
            "data is None, expected the data that the posterior was inferred from: "
            "its sums do not tell pairs apart that share a row or a reward, or have a known one"
        )
    return sums


def _cells_of_sampled(posterior: SampledPosterior) -> Cells:
    seen = posterior.data_statistics
    if isinstance(seen, Statistics):
        return Cells(_wide(seen.counts.transitions), Moments(*map(_wide, seen.counts.reward_moments)))
    kept = np.asarray(seen.weight) != 0
    where = np.asarray(seen.where)[kept].T
    index = tuple(where if posterior.rewards.by_outcome else where[:-1])
    shape = seen.transitions.shape if posterior.rewards.by_outcome else posterior.space.shape
    count, total, ss = (np.zeros(shape) for _ in range(3))
    reward = np.asarray(seen.reward, np.float64)[kept]
    np.add.at(count, index, 1.0)
    np.add.at(total, index, reward)
    mean = total / np.maximum(count, 1.0)
    np.add.at(ss, index, (reward - mean[index]) ** 2)
    return Cells(_wide(seen.transitions), Moments(count, mean, ss))


def _wide(array: Array | np.ndarray) -> np.ndarray:
    return np.asarray(array, np.float64)


def _check_same_sampled(cells: Cells, posterior: SampledPosterior) -> None:
    axes = (*PLATE_NAMES[-len(posterior.space.shape) :], OUTCOME)
    _check_close("transitions from", axes, cells.transition_counts, _wide(outcome_counts(posterior.data_statistics)))
    if isinstance(posterior.data_statistics, Statistics) and posterior.rewards.law is not None:
        own = _cells_of_sampled(posterior).rewards
        _check_close("rewards of", axes, cells.rewards.count, own.count)
        _check_close("as the mean reward of", axes, cells.rewards.mean, own.mean, _slack(own))


def _slack(own: Moments) -> float:
    """Tolerance of a mean reward: the posterior may have been updated in float32."""
    each = 1e-4 * np.abs(own.mean) + 1e-4 * np.sqrt(own.ss / np.maximum(own.count, 1.0))
    return float(each.max(initial=1e-9))


def _sums(posterior: ConjugatePosterior) -> Cells:
    """The sums that the posterior keeps, at every pair: over all pairs that share a row or reward; zero if known."""
    rows, rewards = posterior.transition_probs.unlisted(), posterior.reward_cells
    with jax.enable_x64(True):
        counts = np.asarray(eqx.tree_at(lambda r: r.prior, rows, jnp.zeros(rows.prior.shape)).concentration)
    if isinstance(rewards, KnownRewards):
        nothing = np.zeros(np.shape(rewards.known))
        return Cells(counts, Moments(nothing, nothing, nothing))
    data = np.asarray(rewards.data, np.float64)
    if rewards.cell is None:
        sums = data.reshape(*rewards.shape, 3)
    else:
        cell = np.asarray(rewards.cell)
        sums = np.where((cell < 0)[..., None], 0.0, data[cell])
    return Cells(counts, Moments(*np.moveaxis(sums, -1, 0)))


def _check_same(cells: Cells, posterior: ConjugatePosterior) -> None:
    """Refuse other data than those behind the posterior, by updating its prior with them and comparing the sums."""
    axes = (*PLATE_NAMES[-len(posterior.space.shape) :], OUTCOME)
    visits, given = np.asarray(posterior.visit_counts(), np.float64), cells.transition_counts.sum(-1)
    _check_close("transitions from", axes, given, visits)
    with jax.enable_x64(True):
        counts = Counts(*map(jnp.asarray, (cells.transition_counts, *cells.rewards)))
        again = _sums(before_data(posterior).update(counts))
    own = _sums(posterior)
    _check_close("transitions from", axes, again.transition_counts, own.transition_counts)
    _check_close("rewards of", axes, again.rewards.count, own.rewards.count)
    _check_close("as the mean reward of", axes, again.rewards.mean, own.rewards.mean, _slack(own.rewards))


def _check_close(
    what: str, axes: tuple[str, ...], given: Float[np.ndarray, "*n"], own: Float[np.ndarray, "*n"], slack: float = 1e-5
) -> None:
    index = first_index(~np.isclose(given, own, atol=slack))
    if index is not None:
        raise ValueError(
            f"data has {given[index]:.10g} {what} {', '.join(axes[: len(index)])} {index}, "
            f"expected the {own[index]:.10g} that the posterior was inferred from"
        )
