"""Draws of what a posterior believes, at every pair, as arrays of NumPy. Host-side."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bayes_mdp.calibration.laws import LAWS, Law, Moments
from bayes_mdp.inference.families import NormalBelief
from bayes_mdp.inference.rewards import KnownRewards

BLOCK = 50


class Draws(NamedTuple):
    """N draws. The cells of the rewards are [*H S A], or [*H S A O] where rewards depend on the outcome.

    Args:
        transition_probs: [N *H S A O], rows of probabilities.
        parameters: [N *cells] each, what the reward's law takes; the first is the mean reward.
        names: of those parameters that are unknown.
        law: of one reward; None: rewards are known.
        known: [*cells], where a reward is known; nothing else is then read but its mean.
        by_outcome: whether the last axis of the cells is the outcome.
    """

    transition_probs: Float[np.ndarray, "N *H S A O"]
    parameters: tuple[Float[np.ndarray, "N *cells"], ...]
    names: tuple[str, ...]
    law: Law | None
    known: Bool[np.ndarray, "*cells"]
    by_outcome: bool

    def reward_total(self, rng: np.random.Generator, count: np.ndarray, where: tuple[Any, ...]) -> np.ndarray:
        """[N *where], the sum of `count` fresh rewards of the cells at the index `where`."""
        law, known, mean, parameters = self._at(where)
        return np.where(known, count * mean, law.total(rng, count, *parameters))

    def reward_log_prob(self, seen: Moments, where: tuple[Any, ...]) -> np.ndarray:
        """[N *where], log-density of the rewards behind `seen` in the cells at `where`; 0 where the reward is known."""
        law, known, _, parameters = self._at(where)
        return np.where(known, 0.0, law.log_prob(seen, *parameters))

    def _at(self, where: tuple[Any, ...]) -> tuple[Law, np.ndarray, np.ndarray, list[np.ndarray]]:
        """The law, where it is known, its mean, its parameters."""
        if self.law is None:
            raise TypeError("the rewards are known, expected rewards with a law")
        known = self.known[where]
        picked = [p[(slice(None), *where)] for p in self.parameters]
        # Any valid parameter serves where its result is not looked at.
        return self.law, known, picked[0], [np.where(known, 0.5, p) for p in picked]


def draw(key: PRNGKeyArray, posterior: Any, num_draws: int) -> Draws:
    """Independent exact draws; a leaf that is shared by several pairs is drawn once and shown at each.

    Args:
        posterior: a `ConjugatePosterior` (or the same before data).
    """
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    key_rows, key_rewards = jax.random.split(key)
    probs = _in_blocks(_rows_block, key_rows, rows, num_draws)
    if isinstance(rewards, KnownRewards):
        known = np.ones(np.shape(rewards.known), bool)
        return Draws(probs, (), (), None, known, rewards.by_outcome)
    with jax.enable_x64(True):
        # A mean known to many digits needs float64 to vary at all.
        drawn = _in_blocks(_rewards_block, key_rewards, rewards, num_draws)
    known = np.zeros(rewards.shape, bool) if rewards.cell is None else np.asarray(rewards.cell) < 0
    mean, *others = drawn
    parameters = [_cells(rewards, mean, rewards.known), *(_cells(rewards, x, np.nan) for x in others)]
    if isinstance(rewards.prior, NormalBelief):
        noise = np.asarray(rewards.prior.noise_scale, np.float64)
        parameters.append(np.broadcast_to(_cells(rewards, noise[None] ** -2.0, np.nan), parameters[0].shape))
    names = ("reward_mean", "reward_precision")[: len(drawn)]
    return Draws(probs, tuple(parameters), names, LAWS[type(rewards.prior)], known, rewards.by_outcome)


@jax.jit
def _rows_block(key: PRNGKeyArray, rows: Any) -> Float[Array, "K *H S A O"]:
    return jax.vmap(rows.sample)(jax.random.split(key, BLOCK))


@jax.jit
def _rewards_block(key: PRNGKeyArray, rewards: Any) -> tuple[Float[Array, "K M"], ...]:
    return jax.vmap(rewards.sample_leaves)(jax.random.split(key, BLOCK))


def _in_blocks(draw_block: Any, key: PRNGKeyArray, belief: Any, num_draws: int) -> Any:
    """`num_draws` draws, block by block: one program for any number, and no more memory than the result needs."""
    keys = jax.random.split(key, -(-num_draws // BLOCK))
    blocks = [jax.tree.map(np.asarray, draw_block(each, belief)) for each in keys]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:num_draws], *blocks)


def _cells(rewards: Any, leaves: np.ndarray, known: Any) -> np.ndarray:
    """[N *cells] from values [N M] of the leaves, `known` filled in."""
    if rewards.cell is None:
        return leaves.reshape(len(leaves), *rewards.shape)
    cell = np.asarray(rewards.cell)
    return leaves[:, cell] if rewards.known is None else np.where(cell < 0, known, leaves[:, cell])
