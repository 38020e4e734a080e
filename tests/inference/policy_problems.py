"""Beliefs that are quick to draw from, and values by dense solves in numpy."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, StateActionSpace

N_STATES, N_ACTIONS, NUM_DRAWS = 4, 2, 64
START = np.array([0.5, 0.25, 0.25, 0.0])
ACTIONS = np.array([0, 1, 1, 0])


class ExponentialRows(eqx.Module):
    """Rows of independent exponential draws times fixed weights, over their sum; known rewards.

    The last outcome is the end where `ends`. Exponential draws compile in no time.
    """

    weight: Any
    reward: Any
    visits: Any
    ends: bool = eqx.field(static=True)
    space: StateActionSpace | None = None

    def sample(self, key, sample_shape=()):
        shape, dtype = (*sample_shape, *self.weight.shape), self.weight.dtype
        return self._mdp(self.weight * jax.random.exponential(key, shape, dtype))

    def mean_mdp(self):
        return self._mdp(self.weight)

    def visit_counts(self):
        return self.visits

    def _mdp(self, rows):
        rows = rows / rows.sum(-1, keepdims=True)
        if not self.ends:
            return MDP(rows, self.reward)
        return MDP(rows[..., :-1], self.reward, end_probs=rows[..., -1])


class OnlySamples:
    """No pytree, no other ability."""

    def __init__(self, posterior):
        self.posterior = posterior

    def sample(self, key, sample_shape=()):
        return self.posterior.sample(key, sample_shape)


def posterior(ends=False, horizon=None, dtype: Any = np.float64):
    rng = np.random.default_rng(3)
    shape = (N_STATES, N_ACTIONS) if horizon is None else (horizon, N_STATES, N_ACTIONS)
    weight = rng.uniform(0.5, 3.0, (*shape, N_STATES + ends)).astype(dtype)
    return ExponentialRows(weight, rng.normal(size=shape).astype(dtype), np.ones(shape, dtype), ends)


def weighted(weight, reward, ends):
    """A belief whose zero weights are certain: those transitions never happen."""
    weight = np.asarray(weight, float)
    return ExponentialRows(weight, np.asarray(reward, float), np.ones(weight.shape[:2]), ends)


ISLANDS = weighted(np.eye(2)[:, None], [[0.0], [1.0]], False)  # two absorbing states


def chain(rows, reward, probs):
    return np.einsum("sa,saz->sz", probs, rows), np.einsum("sa,sa->s", probs, reward)


def dense_value(rows, reward, probs, objective):
    if isinstance(objective, Episodic):
        v = np.zeros(N_STATES)
        for h in reversed(range(objective.horizon)):
            layer = [x[h] if x.ndim > n else x for x, n in ((rows, 3), (reward, 2), (probs, 2))]
            p, r = chain(*layer)
            v = r + objective.discount * p @ v
        return START @ v
    p, r = chain(rows, reward, probs)
    if isinstance(objective, AverageReward):
        balance = np.vstack([p.T - np.eye(N_STATES), np.ones(N_STATES)])
        return np.linalg.lstsq(balance, np.eye(N_STATES + 1)[-1], rcond=None)[0] @ r
    discount = objective.discount if isinstance(objective, Discounted) else 1.0
    return START @ np.linalg.solve(np.eye(N_STATES) - discount * p, r)
