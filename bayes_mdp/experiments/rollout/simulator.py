"""An `Environment` made ready for a compiled loop: outcomes listed, rows cumulated once, one uniform number a step.

`Environment.step` cumulates a row at every step; inside a loop over time that is most of the work. Here the thresholds
are tables and the outcome is found by a binary search that is written out, so a step is one fused kernel.
"""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bayes_mdp.mdp import MDP, Environment, RewardLaw, SparseMDP
from bayes_mdp.mdp.environment import DistributionReward
from bayes_mdp.models.mdp_spec import RewardTable
from bayes_mdp.models.reward_laws import tabulate, unwrap
from bayes_mdp.numerics.array_forms import place_as
from bayes_mdp.utils.typing import AnyArray, Index, IntScalar, RealScalar

Indices: TypeAlias = IntScalar | Int[AnyArray, "..."]
"""One index, or an array of them."""


class Segment(NamedTuple):
    """The steps of a segment (see `time_loop`), [k] each. Where `live` is False (None: never) no step was taken."""

    step: Int[Array, " k"]
    state: Int[Array, " k"]
    action: Int[Array, " k"]
    reward: Float[Array, " k"]
    outcome: Int[Array, " k"]
    live: Bool[Array, " k"] | None


class Simulator(eqx.Module):
    """Listed outcomes of every row, thresholds for inversion, and the law of the rewards.

    Simulators of many environments (`simulator` of a batch) have their axis N in front of all others.

    Args:
        outcome: Int[*H S A K], the possible outcomes of a row in increasing order; S is the end.
        threshold: Float[*H S A T], T = 2^m - 1 >= K - 1: cumulative probabilities, padded with 2.
        first_state, first_threshold: the same for the first state of an episode, Int[K0] and Float[T0].
        reward_law: the law of one reward.
    """

    outcome: Int[Array, "*H S A K"]
    threshold: Float[Array, "*H S A T"]
    first_state: Int[Array, "*N K0"]
    first_threshold: Float[Array, "*N T0"]
    reward_law: RewardLaw

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The first state of an episode."""
        return self.first(jax.random.uniform(key, dtype=self.first_threshold.dtype))

    def first(self, uniform: RealScalar) -> Int[Array, ""]:
        """The first state of an episode, from its random number."""
        return self.first_state[_search(uniform, self.first_threshold, ())]

    def cell(self, state: Indices, action: Indices, step: Indices) -> Index:
        """Index of a row, or of many."""
        return (state, action) if self.outcome.ndim == 3 else (step, state, action)

    def next_outcome(self, uniform: RealScalar, cell: Index) -> Int[Array, ""]:
        """The outcome of a transition from `cell`: a state, or S for the end."""
        return self.outcome[(*cell, _search(uniform, self.threshold, cell))]


def simulator(env: Environment) -> Simulator:
    """The simulator of an environment, or of a batch of them (leading axes on every array). Host side.

    Listed rows stay lists: memory grows with the listed successors, never with S^2.
    """
    mdp = env.mdp
    # Everything is prepared in float64 on the host; only the tables are rounded to the precision of the run.
    rows, names = _merge_rows(mdp) if isinstance(mdp, SparseMDP) else (outcome_rows(mdp), None)
    outcome, threshold = _list_outcomes(rows, names)
    first_state, first_threshold = _list_outcomes(np.asarray(mdp.initial, np.float64))
    return Simulator(outcome, threshold, first_state, first_threshold, _tabulate_law(env))


def _tabulate_law(env: Environment) -> RewardLaw:
    """The law of the rewards; a distribution as a table of its parameters, so that a draw is one of a single cell."""
    law = env.reward_law
    if not isinstance(law, DistributionReward):
        return law
    table = law.law
    if not isinstance(table, dist.Distribution) or unwrap(table).event_shape:  # a joint law of all outcomes
        return law
    outcomes = env.mdp.n_states + (env.mdp.end_probs is not None)
    shape = (*env.mdp.reward.shape, outcomes) if law.by_outcome else env.mdp.reward.shape
    return RewardTable(tabulate(table, shape), None, law.by_outcome)


def outcome_rows(mdp: MDP | SparseMDP) -> np.ndarray:
    """[*H S A O], probabilities of the outcomes: next states, then the end where there are ends. Host side, float64."""
    dense = mdp.to_dense()
    rows = np.asarray(dense.transition_probs, np.float64)
    if dense.end_probs is None:
        return rows
    return np.concatenate([rows, np.asarray(dense.end_probs, np.float64)[..., None]], axis=-1)


def _merge_rows(mdp: SparseMDP) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, outcomes) [*H S A K] of listed rows: outcomes in increasing order, the end (S) the last.

    Repeated successors are added, in the order and precision of `SparseMDP.to_dense`; all but one of them get
    probability zero.
    """
    names, probs = np.asarray(mdp.successor), np.array(mdp.probability)
    # Sorted, equal successors are neighbours: from left to right each hands its probability on to the next equal one.
    order = np.argsort(names, axis=-1, kind="stable")
    names, probs = np.take_along_axis(names, order, -1), np.take_along_axis(probs, order, -1)
    for k in range(1, names.shape[-1]):
        repeated = names[..., k] == names[..., k - 1]
        probs[..., k] += np.where(repeated, probs[..., k - 1], 0)
        probs[..., k - 1] = np.where(repeated, 0, probs[..., k - 1])
    probs = probs.astype(np.float64)
    if mdp.end_probs is None:
        return probs, names
    ends = np.asarray(mdp.end_probs, np.float64)[..., None]
    return np.concatenate([probs, ends], -1), np.concatenate([names, np.full_like(names[..., :1], mdp.n_states)], -1)


def _list_outcomes(rows: np.ndarray, names: np.ndarray | None = None) -> tuple[Array, Array]:
    """The possible outcomes of every row, in increasing order (padded with the last one), and their thresholds.

    `names`: the outcomes behind the entries of `rows`, in increasing order; None: their places.
    """
    # The positions of the possible outcomes, in their order, to the left; as many columns as the longest row needs.
    width = int((rows > 0).sum(-1).max())
    order = np.argsort(rows <= 0, axis=-1, kind="stable")[..., :width]
    probs = np.take_along_axis(rows, order, axis=-1)
    # Shorter rows are padded with their last possible outcome: whatever the search finds there is a possible outcome.
    last = np.maximum((probs > 0).sum(-1, keepdims=True) - 1, 0)
    order = np.where(probs > 0, order, np.take_along_axis(order, last, axis=-1))
    outcome = order if names is None else np.take_along_axis(names, order, axis=-1)
    return place_as(outcome, jnp.int32), place_as(_thresholds(probs), float)


def _thresholds(probs: np.ndarray) -> np.ndarray:
    """Cumulative probabilities of all but the last of K, relative to the total, padded with 2 to 2^m - 1."""
    # Relative to the total, so that the last outcome takes up the rounding error of the sum.
    cumulative = np.cumsum(probs, axis=-1)
    relative = cumulative[..., :-1] / cumulative[..., -1:]
    # The next power of two, less one: what a binary search of m steps can tell apart.
    pad = (1 << (probs.shape[-1] - 1).bit_length()) - probs.shape[-1]
    return np.pad(relative, [(0, 0)] * (probs.ndim - 1) + [(0, pad)], constant_values=2.0)


def _search(u: RealScalar, threshold: Float[Array, "..."], cell: Index) -> Int[Array, ""]:
    """How many thresholds of the row `u` reaches; an outcome of probability zero is never found."""
    # Binary search for the number of thresholds <= u among 2^m - 1, written out: m gathers of one number each.
    half, position = (threshold.shape[-1] + 1) // 2, jnp.int32(0)
    while half:
        position = position + half * (u >= threshold[(*cell, position + half - 1)])
        half //= 2
    return position
