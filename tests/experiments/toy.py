"""A small belief and small environments for the tests of runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.mdp import MDP, Environment, NormalReward, Transitions
from bayes_mdp.utils.typing import ArrayLike


class ToyBelief(eqx.Module):
    """Dirichlet rows (drawn through exponentials of weight 1) and rewards with Gaussian means."""

    counts: jax.Array
    reward_sum: jax.Array
    prior: jax.Array  # no update changes it

    @classmethod
    def of(cls, n_states, n_actions, ends=False):
        """Nothing seen."""
        shape = (n_states, n_actions, n_states + ends)
        return cls(jnp.zeros(shape), jnp.zeros(shape[:2]), jnp.ones(shape))

    def sample(self, key, sample_shape=()):
        """A draw."""
        rows_key, reward_key = jax.random.split(key)
        weight = self.prior + self.counts
        noise = jax.random.normal(rows_key, weight.shape)
        rows = weight * jnp.exp(noise / jnp.sqrt(weight))
        rows = rows / rows.sum(-1, keepdims=True)
        n = self.counts.sum(-1) + 1.0
        reward = self.reward_sum / n + jax.random.normal(reward_key, n.shape) / jnp.sqrt(n)
        if rows.shape[-1] == rows.shape[0]:
            return MDP(rows, reward)
        return MDP(rows[..., :-1], reward, end_probs=rows[..., -1])

    def update(self, transitions: Transitions, weight: ArrayLike = 1.0):
        """One transition or a block."""
        weight, reward = jnp.asarray(weight), jnp.asarray(transitions.reward)
        s, a = transitions.state, transitions.action
        counts = self.counts.at[s, a, transitions.outcome(self.counts.shape[0])].add(weight)
        return ToyBelief(counts, self.reward_sum.at[s, a].add(weight * reward), self.prior)


class WornDraws(eqx.Module):
    """Weighted draws of the rows of `ToyBelief`, which wear out; rewards as there; a refit draws them again."""

    rows: jax.Array  # [N S A S]
    log_weights: jax.Array  # [N]
    counts: jax.Array
    reward_sum: jax.Array
    prior: jax.Array  # neither update nor refit changes it

    @classmethod
    def of(cls, n_states, n_actions, num_draws, key):
        """Nothing seen."""
        shape = (n_states, n_actions, n_states)
        nothing = cls(jnp.zeros((num_draws, *shape)), jnp.zeros(num_draws), *map(jnp.zeros, (shape, shape[:2], shape)))
        return eqx.tree_at(lambda b: b.prior, nothing, jnp.ones(shape)).refit(key)

    def sample(self, key, sample_shape=()):
        """A draw, by weight."""
        draw_key, reward_key = jax.random.split(key)
        n = self.counts.sum(-1) + 1.0
        reward = self.reward_sum / n + jax.random.normal(reward_key, n.shape) / jnp.sqrt(n)
        return MDP(self.rows[jax.random.categorical(draw_key, self.log_weights)], reward)

    def update(self, transitions: Transitions, weight: ArrayLike = 1.0):
        """One transition or a block."""
        weight, reward = jnp.asarray(weight), jnp.asarray(transitions.reward)
        s, a, z = transitions.state, transitions.action, transitions.outcome(self.counts.shape[0])
        gain = weight * jnp.log(self.rows[:, s, a, z])
        log_weights = self.log_weights + gain.reshape(len(self.rows), -1).sum(1)
        counts, total = self.counts.at[s, a, z].add(weight), self.reward_sum.at[s, a].add(weight * reward)
        return WornDraws(self.rows, log_weights, counts, total, self.prior)

    def needs_refit(self):
        """Whether less than half of the draws are effective."""
        weights = jax.nn.softmax(self.log_weights)
        return jnp.sum(weights**2) * len(self.rows) > 2.0

    def refit(self, key):
        """New draws."""
        weight = self.prior + self.counts
        rows = weight * jnp.exp(jax.random.normal(key, self.rows.shape) / jnp.sqrt(weight))
        rows = rows / rows.sum(-1, keepdims=True)
        return WornDraws(rows, jnp.zeros_like(self.log_weights), self.counts, self.reward_sum, self.prior)


class ManyDraws(WornDraws):
    """As a posterior that was inferred by draws: has a space, and can be thinned."""

    def thinned(self, key, num):
        """So many, at random."""
        chosen = jax.random.choice(key, len(self.rows), (num,))
        return WornDraws(self.rows[chosen], jnp.zeros(num), self.counts, self.reward_sum, self.prior)


def two_states(noise=None):
    """State 1 pays 1 for action 1, which keeps it there; 3 states, 2 actions; a slip of .1."""
    rows = np.zeros((3, 2, 3))
    rows[:, 0, 0], rows[:, 0, 2] = 0.9, 0.1
    rows[:, 1, 1], rows[:, 1, 0] = 0.9, 0.1
    reward = np.zeros((3, 2))
    reward[1, 1], reward[2, 0] = 1.0, 0.3
    mdp = MDP(rows, reward, initial=[1.0, 0.0, 0.0])
    return Environment(mdp, NormalReward(mdp.reward, noise), name="toy")


def walk_that_ends():
    """A walk 0 - 1 - 2 that ends to the right of 2 with reward 1; action 1 goes right, action 0 left."""
    rows, ends = np.zeros((3, 2, 3)), np.zeros((3, 2))
    for s in range(3):
        rows[s, 0, max(s - 1, 0)] = 1.0
        if s < 2:
            rows[s, 1, s + 1] = 1.0
    ends[2, 1] = 1.0
    mdp = MDP(rows, ends, end_probs=ends, initial=[0.5, 0.5, 0.0])
    return Environment(mdp, NormalReward(mdp.reward), name="walk")
