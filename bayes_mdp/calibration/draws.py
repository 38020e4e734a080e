"""Draws of what a posterior believes, at every pair, as arrays of NumPy. Host-side."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.calibration.laws import LAWS, Law, Moments, TableLaw, law_of
from bayes_mdp.calibration.runs import Run, choose
from bayes_mdp.inference.collapsed import CollapsedPosterior
from bayes_mdp.inference.componentwise import Componentwise
from bayes_mdp.inference.mixtures import Mixture
from bayes_mdp.inference.rewards import KnownRewards
from bayes_mdp.inference.sampled.posterior import SampledPosterior
from bayes_mdp.mdp.memory import check_memory
from bayes_mdp.models.world import RewardTable

BLOCK = 50
NUMBERS_AT_ONCE = 2**24  # probabilities that are drawn at once
SCRATCH = 12  # float32 numbers beside each probability while it is drawn (a gamma number by rejection: measured)
ROW_BYTES = 160  # of a transition under one draw: densities, weights, a replicate
PAIR_BYTES = 64  # of the reward of a cell under one draw


class Draws(NamedTuple):
    """N draws. The cells of the rewards are [*H S A], or [*H S A O] where rewards depend on the outcome.

    Args:
        transition_probs: [N *H S A O], rows of probabilities.
        parameters: [N *cells] each, what the reward's law takes; the first is the mean reward.
        names: of those parameters that are unknown.
        law: of one reward; None: rewards are known.
        known: [*cells], where a reward is known; nothing else is then read but its mean.
        by_outcome: whether the last axis of the cells is the outcome.
        run: where the draws come from.
    """

    transition_probs: Float[np.ndarray, "N *H S A O"]
    parameters: tuple[Float[np.ndarray, "N *cells"], ...]
    names: tuple[str, ...]
    law: Law | TableLaw | None
    known: Bool[np.ndarray, "*cells"]
    by_outcome: bool
    run: Run = Run()

    def reward_total(self, rng: np.random.Generator, count: np.ndarray, where: tuple[Any, ...]) -> np.ndarray:
        """[N *where], the sum of `count` fresh rewards of the cells at the index `where`."""
        if isinstance(self.law, TableLaw):
            return self.law.total(rng, count, where)
        law, known, mean, parameters = self._at(where)
        return np.where(known, count * mean, law.total(rng, count, *parameters))

    def reward_log_prob(self, seen: Moments, where: tuple[Any, ...]) -> np.ndarray:
        """[N *where], log-density of the rewards behind `seen` in the cells at `where`; 0 where the reward is known."""
        if isinstance(self.law, TableLaw):
            return self.law.log_prob(seen, where)
        law, known, _, parameters = self._at(where)
        return np.where(known, 0.0, law.log_prob(seen, *parameters))

    def _at(self, where: tuple[Any, ...]) -> tuple[Law, np.ndarray, np.ndarray, list[np.ndarray]]:
        """The law, where it is known, its mean, its parameters."""
        if not isinstance(self.law, Law):
            raise TypeError("the rewards are known, expected rewards with a law")
        known = self.known[where]
        picked = [p[(slice(None), *where)] for p in self.parameters]
        # Any valid parameter serves where its result is not looked at.
        return self.law, known, picked[0], [np.where(known, 0.5, p) for p in picked]


def draw(key: PRNGKeyArray, posterior: Any, num_draws: int) -> Draws:
    """Exact draws; a leaf that is shared by several pairs is drawn once and shown at each.

    Those of a `ConjugatePosterior` are independent. Of a mixture, or a collapsed posterior, every component that is
    chosen (see `choose`) gives one independent draw of the leaves.

    Args:
        posterior: a `ConjugatePosterior` (or the same before data), a mixture of them, or a `SampledPosterior`.

    Raises:
        ValueError: they would not fit in memory.
    """
    check_draws(posterior, num_draws)
    if isinstance(posterior, SampledPosterior):
        index, run = choose(generator(key), posterior, posterior.sites, min(num_draws, posterior.num_draws))
        tables = (posterior.transition_probs, posterior.rewards)
        probs, rewards = jax.tree.map(lambda leaf: np.asarray(leaf)[index], tables)
        return of_tables(probs, rewards, run)
    if not isinstance(posterior, Componentwise):
        return _leaves(key, posterior, np.zeros(num_draws, np.int32))
    key_choice, key_leaves = jax.random.split(key)
    hyper = posterior.hyper if isinstance(posterior, CollapsedPosterior | Mixture) else {}
    index, run = choose(generator(key_choice), posterior, hyper, num_draws)
    return _leaves(key_leaves, posterior, index)._replace(run=run)


def check_draws(posterior: Any, num_draws: int, transitions: int = 0, beside: float = 0.0) -> None:
    """Refuse draws that would not fit in memory, before they are made.

    Args:
        posterior: whose draws; its space is read alone.
        num_draws: of them.
        transitions: that each is held against, one by one.
        beside: bytes that are needed beside each draw.

    Raises:
        ValueError: the number of draws, the memory that they take, what there is.
    """
    pairs = math.prod(posterior.space.shape)
    table = pairs * posterior.space.n_outcomes
    sampled = isinstance(posterior, SampledPosterior)
    by_outcome = posterior.rewards.by_outcome if sampled else reference(posterior).rewards_by_outcome
    cells = table if by_outcome else pairs
    made = min(num_draws, posterior.num_draws) if sampled else num_draws
    # Blocks are joined: what is drawn is there twice for a moment.
    each = 2 * 4 * table + PAIR_BYTES * cells + ROW_BYTES * transitions + beside
    at_once = 4 * SCRATCH * table * block_size(table) + 16 * 8 * table
    held = f", {transitions} transitions" if transitions else ""
    check_memory(f"num_draws is {num_draws}{held}", made * each + at_once, "fewer draws take less")


def block_size(table: int) -> int:
    """How many draws of `table` probabilities are made at once."""
    return max(1, min(BLOCK, NUMBERS_AT_ONCE // table))


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator of a key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def of_tables(probs: Float[np.ndarray, "N *H S A O"], rewards: RewardTable, run: Run) -> Draws:
    """Draws that are there already: rows, and the law of the rewards with a leading axis N on its arrays."""
    cells = probs.shape[1:] if rewards.by_outcome else probs.shape[1:-1]
    if rewards.law is None:
        mean = np.asarray(rewards.known, np.float64)
        varies = bool((mean != mean[:1]).any())
        return Draws(
            probs, (mean,), ("reward_mean",) if varies else (), None, np.ones(cells, bool), rewards.by_outcome, run
        )
    law, parameters, names = law_of(rewards)
    return Draws(probs, parameters, names, law, np.zeros(cells, bool), rewards.by_outcome, run)


def reference(posterior: Any) -> Any:
    """What has the statistics and the tables of `posterior`: its first component, where it has some; else itself."""
    return posterior.component(0) if isinstance(posterior, Componentwise) else posterior


def _leaves(key: PRNGKeyArray, posterior: Any, index: np.ndarray) -> Draws:
    """One draw of each component in `index` (of a conjugate posterior, which has no components, one for each)."""
    rewards = reference(posterior).reward_cells
    key_rows, key_rewards = jax.random.split(key)
    probs = _in_blocks(_rows_block, key_rows, posterior, index)
    with jax.enable_x64(True):
        # A mean known to many digits needs float64 to vary at all. Copies: JAX may hold float32 versions of the others.
        mean, noise = _in_blocks(_rewards_block, key_rewards, jax.tree.map(np.array, posterior), index)
    if isinstance(rewards, KnownRewards):
        varies = bool((mean != mean[:1]).any())
        known = np.ones(mean.shape[1:], bool)
        return Draws(probs, (mean,), ("reward_mean",) if varies else (), None, known, rewards.by_outcome)
    known = np.zeros(rewards.shape, bool) if rewards.cell is None else np.asarray(rewards.cell) < 0
    parameters = (mean,)
    if rewards.prior.law is dist.Normal:
        parameters += (1.0 / np.where(known, np.nan, noise),)
    names = ("reward_mean", "reward_precision")[: len(rewards.prior.parameters)]
    return Draws(probs, parameters, names, LAWS[type(rewards.prior)], known, rewards.by_outcome)


@jax.jit
def _rows_block(keys: PRNGKeyArray, posterior: Any, index: Any) -> Float[Array, "K *H S A O"]:
    return jax.vmap(lambda key, k: _at(posterior, k).transition_probs.sample(key))(keys, index)


@jax.jit
def _rewards_block(keys: PRNGKeyArray, posterior: Any, index: Any) -> tuple[Float[Array, "K *cells"], ...]:
    return jax.vmap(lambda key, k: _at(posterior, k).reward_cells.sample_with_noise(key))(keys, index)


def _at(posterior: Any, k: Any) -> Any:
    return posterior.component(k) if isinstance(posterior, Componentwise) else posterior


def _in_blocks(draw_block: Any, key: PRNGKeyArray, posterior: Any, index: np.ndarray) -> Any:
    """A draw of each of `index`, block by block: one program for any number, and no more memory than is needed."""
    size = block_size(math.prod((*posterior.space.shape, posterior.space.n_outcomes)))
    number = -(-len(index) // size)
    places = np.resize(index, (number, size)).astype(np.int32)
    keys = jax.random.split(key, (number, size))
    blocks = [jax.tree.map(np.asarray, draw_block(keys[i], posterior, places[i])) for i in range(number)]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(index)], *blocks)
