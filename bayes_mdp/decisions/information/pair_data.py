"""Data sets of one pair: all that are possible with their probabilities, or simulated ones; and what they change."""

import math
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray
from scipy.special import gammaln

from bayes_mdp.decisions.information.gain_over_plan import best_value, counter, gain_of, kept_value, without_illegal
from bayes_mdp.decisions.information.updatable import Updatable, components, laws_tell
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.conjugate.counting_families import BetaBinomialBelief, DirichletCategoricalBelief
from bayes_mdp.inference.conjugate.families import BetaBelief
from bayes_mdp.inference.conjugate.reward_cells import RewardCells
from bayes_mdp.inference.conjugate.reward_statistics import log_rising
from bayes_mdp.inference.mixtures.mixture import Mixture
from bayes_mdp.mdp import MDP, Objective, SparseMDP, Transitions
from bayes_mdp.planning import Solution
from bayes_mdp.random import dirichlet
from bayes_mdp.utils.memory import check_memory
from bayes_mdp.utils.typing import AnyArray

KNOWN, ENDLESS = -1, -2  # in place of the largest reward
BYTES_OF_ENTRY = 64  # of one observation of one data set, while the data sets are put together


class PairData(NamedTuple):
    """Data sets of one candidate, or of several one after the other.

    Args:
        cell: Int[N d], the pair that is observed.
        outcome: Int[N W], outcomes of its row.
        reward: Float64[N W].
        seen: Bool[N W], false: the reward is known beforehand.
        weight: Float64[N W], how often; 0: no observation.
        log_orders: Float64[N], log number of orders in which the same observations can come.
    """

    cell: Int[AnyArray, "*N d"]
    outcome: Int[AnyArray, "*N W"]
    reward: Float[AnyArray, "*N W"]
    seen: Bool[AnyArray, "*N W"]
    weight: Float[AnyArray, "*N W"]
    log_orders: Float[AnyArray, "*N"]


class Observation(NamedTuple):
    """What one observation of a pair can show: an outcome, a reward, and whether the reward says anything."""

    outcome: int
    reward: float
    seen: bool


def enumerable(
    posterior: Updatable, index: Int[np.ndarray, "C d"], n: int, num_data_sets: int
) -> list[list[Observation] | None]:
    """All that one observation of each candidate can show; None: `n` of them give too many different data sets."""
    parts = components(posterior)
    possible = np.any([np.asarray(part.transition_probs.mean()) > 0 for part in parts], 0)[tuple(index.T)]
    # Components are of one kind: the first has the laws of all.
    most = _largest_rewards(parts[0], index)
    most = np.full(most.shape, ENDLESS) if laws_tell(posterior) else most
    found: list[list[Observation] | None] = []
    for outcomes, largest in zip(possible, most, strict=True):
        kinds: list[Observation] | None = []
        for outcome in np.flatnonzero(outcomes).tolist():
            if largest[outcome] == ENDLESS or kinds is None:
                kinds = None
            elif largest[outcome] == KNOWN:
                kinds.append(Observation(outcome, 0.0, False))
            else:
                kinds += [Observation(outcome, float(x), True) for x in range(largest[outcome] + 1)]
        found.append(kinds if kinds is not None and _num_multisets(len(kinds), n) <= num_data_sets else None)
    return found


def _largest_rewards(part: ConjugatePosterior, index: Int[np.ndarray, "C d"]) -> Int[np.ndarray, "C O"]:
    """The largest of the rewards 0, 1, ... that each outcome of each candidate can bring; or KNOWN, or ENDLESS."""
    rewards, shape = part.reward_cells, (len(index), part.space.n_outcomes)
    if not rewards.learns:
        return np.full(shape, KNOWN)
    if not isinstance(rewards, RewardCells):
        return np.full(shape, ENDLESS)
    size, prior = len(rewards.data), rewards.prior
    if isinstance(prior, BetaBelief):
        most = np.ones(size, int)
    elif isinstance(prior, BetaBinomialBelief):
        most = np.broadcast_to(np.asarray(prior.total_count), size).astype(int)
    elif isinstance(prior, DirichletCategoricalBelief):
        most = np.full(size, np.shape(prior.concentration)[-1] - 1)
    else:
        most = np.full(size, ENDLESS)
    # The last entry is for cells without an element: their reward is known.
    cells = tuple(i[:, None] for i in index.T)
    element = np.asarray(rewards.element(cells, np.arange(shape[1])[None]))
    return np.broadcast_to(np.append(most, KNOWN)[element], shape)


def _num_multisets(kinds: int, n: int) -> int:
    return math.comb(n + kinds - 1, n)


def size_of_data(kinds: list[list[Observation] | None], n: int, num_data_sets: int) -> tuple[int, int]:
    """Number of data sets of all candidates, and the most different observations of one.

    Raises:
        ValueError: they do not fit in memory.
    """
    number = sum(num_data_sets if each is None else _num_multisets(len(each), n) for each in kinds)
    width = max((n if each is None else min(n, len(each)) for each in kinds), default=1)
    check_memory(
        f"n is {n} and num_data_sets is {num_data_sets}: {number} data sets of {len(kinds)} candidates",
        float(BYTES_OF_ENTRY) * number * width,
        "fewer data sets, candidates or observations take less",
    )
    return number, width


def enumerated_data(cell: Int[np.ndarray, " d"], kinds: list[Observation], n: int, width: int) -> PairData:
    """All multisets of `n` observations."""
    # n! / prod of count! orders of one multiset are equally likely.
    if n <= len(kinds):
        which = np.array(list(combinations_with_replacement(range(len(kinds)), n)))
        weight, run = np.ones(which.shape), np.ones(which.shape)
        for j in range(1, n):  # rows are sorted: prod of count! is the product of places in runs of equals
            run[:, j] = np.where(which[:, j] == which[:, j - 1], run[:, j - 1] + 1, 1)
        log_orders = math.lgamma(n + 1) - np.log(run).sum(-1)
    else:
        # Counts are shorter than lists: n stars, and bars between them.
        bars = np.array(list(combinations(range(n + len(kinds) - 1), len(kinds) - 1)), int)
        weight = np.diff(bars, axis=1, prepend=-1, append=n + len(kinds) - 1) - 1.0
        which = np.broadcast_to(np.arange(len(kinds)), weight.shape)
        log_orders = math.lgamma(n + 1) - gammaln(weight + 1).sum(-1)
    number = len(which)
    outcome, reward, seen = (_filled(np.array(column)[which], width) for column in zip(*kinds, strict=True))
    return PairData(np.tile(cell, (number, 1)), outcome, reward, seen, _filled(weight, width), log_orders)


def _filled(column: np.ndarray, width: int) -> np.ndarray:
    """The same with zeros up to `width`: observations of weight zero."""
    return np.pad(column, ((0, 0), (0, width - column.shape[1])))


def simulated_data(
    keys: Key[Array, " D"], posterior: Updatable, cell: Int[np.ndarray, " d"], n: int, width: int, chunk: int
) -> PairData:
    """A data set for each key, in chunks; every candidate has the same compiled program."""
    number, drawn = len(keys), []
    for first in range(0, number, chunk):
        here = keys[(first + np.arange(chunk)) % number]
        drawn.append(jax.tree.map(np.asarray, _simulate(here, posterior, tuple(map(jnp.asarray, cell)), n)))
    columns = (np.concatenate(column)[:number] for column in zip(*drawn, strict=True))
    outcome, reward, seen = (_filled(column, width) for column in columns)
    weight = _filled(np.ones((number, n)), width)
    return PairData(np.tile(cell, (number, 1)), outcome, reward, seen, weight, np.zeros(number))


@eqx.filter_jit
def _simulate(
    keys: Key[Array, " D"], posterior: Updatable, cell: tuple[Int[Array, ""], ...], n: int
) -> tuple[Int[Array, "D n"], Float[Array, "D n"], Bool[Array, "D n"]]:
    """Outcomes and rewards of `n` transitions from one pair, as the posterior predicts them."""

    def one(key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        key_part, key_row, key_outcome, key_sites, key_reward = jax.random.split(key, 5)
        part = posterior.draw_component(key_part) if isinstance(posterior, Mixture) else posterior
        # What is unknown of the pair is drawn once, and then n observations given it.
        concentration = part.transition_probs.concentration[cell]
        drawn = dirichlet(key_row, concentration)
        row = jnp.where(concentration.sum() > 0, drawn, part.transition_probs.mean()[cell])
        outcome = jax.random.categorical(key_outcome, jnp.log(row), shape=(n,))
        if not (part.reward_cells.learns or laws_tell(posterior)):
            return outcome, jnp.zeros(n), jnp.zeros(n, bool)
        table = part.reward_cells.table_of(part.reward_cells.sample_sites(key_sites))
        law = table.at(tuple(jnp.broadcast_to(i, (n,)) for i in cell), outcome)
        reward = law if isinstance(law, jax.Array) else law.sample(key_reward)
        return outcome, jnp.asarray(reward, float), jnp.ones(n, bool)

    return jax.vmap(one)(keys)


def gains_after(
    data: list[PairData],
    posterior: Updatable,
    objective: Objective,
    plan: Solution,
    start: Float[np.ndarray, " S"],
    chunk: int,
) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Of each candidate what the best policy gains over the present plan after each data set, and the probabilities.

    Last, the largest numerical error.
    """
    if not data:
        return [], [], float(plan.gap)
    columns = PairData(*map(np.concatenate, zip(*data, strict=True)))
    number, ends = len(columns.cell), np.cumsum([len(each.cell) for each in data])[:-1]
    gain, probability, gap = np.zeros(number), np.zeros(number), 0.0
    with counter(number) as report:
        for first in range(0, number, chunk):
            here = np.arange(first, first + chunk) % number
            taken = jax.tree.map(lambda column, rows=here: jnp.asarray(column[rows]), columns)
            best, best_gap, log_prob = map(np.asarray, _best_after(taken, posterior, objective, plan, start))
            kept, kept_gap = map(np.asarray, _kept_after(taken, posterior, objective, plan.policy, start))
            error = best_gap + kept_gap
            size = min(chunk, number - first)
            gain[first : first + size] = gain_of(best, kept, error, objective)[:size]
            probability[first : first + size] = np.exp(log_prob)[:size]
            gap = max(gap, float(error.max()))
            report(size)
    return np.split(gain, ends), np.split(probability, ends), gap


@eqx.filter_jit
def _best_after(
    data: PairData, posterior: Updatable, objective: Objective, plan: Solution, start: Float[AnyArray, " S"]
) -> tuple[Float[Array, " D"], Float[Array, " D"], Float[Array, " D"]]:
    """V* of the mean MDP after each data set, its error bound, and the log probability of the data."""

    def one(columns: PairData) -> tuple[Array, Array, Array]:
        return *best_value(_mean_after(posterior, columns), objective, plan, start), _log_prob(posterior, columns)

    return jax.vmap(one)(data)


@eqx.filter_jit
def _kept_after(
    data: PairData,
    posterior: Updatable,
    objective: Objective,
    policy: Int[Array, "*H S"],
    start: Float[AnyArray, " S"],
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """The value of the present plan in the mean MDP after each data set, and its error bound."""

    def one(columns: PairData) -> tuple[Array, Array]:
        return kept_value(_mean_after(posterior, columns), objective, policy, start)

    return jax.vmap(one)(data)


def _mean_after(posterior: Updatable, columns: PairData) -> MDP | SparseMDP:
    """The mean MDP after one data set."""
    cell, outcome, reward, seen, weight, _ = columns
    space, shape = posterior.space, outcome.shape
    where = tuple(jnp.broadcast_to(i, shape) for i in cell)
    next_state, ended = space.reached(where, outcome)
    transitions = Transitions(
        where[-2],
        where[-1],
        reward,
        next_state,
        ended if space.ends else None,
        step=None if space.horizon is None else where[0],
        reward_observed=seen,
    )
    return without_illegal(posterior.update(transitions, weight).mean_mdp(), space)


def _log_prob(posterior: Updatable, columns: PairData) -> Float[Array, ""]:
    """Log predictive probability of the observations of one data set, in any order (0 of densities: not used)."""
    if isinstance(posterior, Mixture):
        each = jax.vmap(lambda part: _log_sequence(part, columns))(posterior.components)
        log_weights = jnp.asarray(posterior.log_weights)
        sequence = jax.nn.logsumexp(log_weights + each) - jax.nn.logsumexp(log_weights)
    else:
        sequence = _log_sequence(posterior, columns)
    return sequence + columns.log_orders


def _log_sequence(part: ConjugatePosterior, columns: PairData) -> Float[Array, ""]:
    cell, outcome, reward, seen, weight, _ = columns
    rows, rewards = part.transition_probs, part.reward_cells
    # Dirichlet-multinomial: prod_o rising(c_o, n_o) / rising(sum c, n); of a known row prod_o p_o^n_o.
    concentration, known = rows.concentration[tuple(cell)], rows.mean()[tuple(cell)]
    counts = jnp.zeros(known.shape).at[outcome].add(weight)
    possible = concentration > 0
    rising = jnp.where(possible, log_rising(jnp.where(possible, concentration, 1.0), counts), 0.0).sum()
    total = jnp.where(possible.any(), concentration.sum(), 1.0)
    unknown = rising - log_rising(total, counts.sum())
    certain = jnp.where(counts > 0, counts * jnp.log(known), 0.0).sum()
    of_row = jnp.where(possible.any(), unknown, certain)
    if not rewards.learns or not isinstance(rewards, RewardCells):
        return of_row
    where = tuple(jnp.broadcast_to(i, outcome.shape) for i in cell)
    after, constant = rewards.observe(where, outcome, jnp.where(seen, reward, 0.0), jnp.where(seen, weight, 0.0))
    # Element by element: where nothing was observed the difference is zero, and nothing cancels.
    prior = rewards.prior
    gain = jnp.asarray(prior.log_marginal(after.data)) - jnp.asarray(prior.log_marginal(jnp.asarray(rewards.data)))
    return of_row + gain.sum() + constant
