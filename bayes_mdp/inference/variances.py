"""Variances of one Bellman backup, r + discount V(next state), under Dirichlet rows and conjugate rewards.

`worth` is discount V of the outcomes, broadcastable to the rows [*H S A O]. With pbar the mean row, c0 its total
concentration, m and v mean and epistemic variance of the mean reward, noise the expected variance of a reward around
its mean (SPEC 2.4 and Part 3 of the project; [BMRL19] Markou and Rasmussen, 2019):

* transition: Var_pbar(m + worth) / (c0 + 1), and where rewards belong to pairs Var_pbar(worth) / (c0 + 1).
* Bellman: transition + E[p' Cov(reward) p]; exact for fixed `worth`.
* predictive: Var_pbar(m + worth) + pbar . (v + noise): that of one observed transition.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayes_mdp.inference.rewards import KnownRewards, RewardCells
from bayes_mdp.inference.rows import DirichletRows
from bayes_mdp.inference.spread import expected_square, row_variance

Pairs = Float[Array, "*H S A"]
Worth = Float[Array, "*H #S #A O"]
Rewards = RewardCells | KnownRewards


def _targets(rewards: Rewards, worth: Worth) -> Worth:
    """What a row multiplies: worth, and the mean reward where it depends on the outcome."""
    return rewards.mean() + worth if rewards.by_outcome else worth


def average(rows: DirichletRows, rewards: Rewards, cells: Float[Array, "*cells"]) -> Pairs:
    """pbar . cells where rewards depend on the outcome; an outcome of probability zero counts nothing, even inf."""
    probs = rows.mean()
    return jnp.where(probs > 0, probs * cells, 0.0).sum(-1) if rewards.by_outcome else cells


def transition_variance(rows: DirichletRows, rewards: Rewards, worth: Worth) -> Pairs:
    """Variance that unknown rows cause, every mean reward at its expectation."""
    return row_variance(rows.mean(), rows.inverse_total(), _targets(rewards, worth))


def bellman_variance(rows: DirichletRows, rewards: Rewards, worth: Worth, variance: Float[Array, "*cells"]) -> Pairs:
    """Variance of sum_o P(o | s, a) (r(s, a, o) + worth(o)); `variance` is that of the mean rewards."""
    unknown_rows = transition_variance(rows, rewards, worth)
    if not rewards.by_outcome:
        return unknown_rows + variance
    leaf = rewards.cell if isinstance(rewards, RewardCells) and not rewards.distinct else None
    return unknown_rows + expected_square(rows.mean(), rows.inverse_total(), variance, leaf)


def predictive_variance(rows: DirichletRows, rewards: Rewards, worth: Worth, variance: Float[Array, "*cells"]) -> Pairs:
    """Variance of one observed reward + worth(outcome) under the posterior predictive."""
    probs = rows.mean()
    one_step = row_variance(probs, jnp.ones(()), _targets(rewards, worth))
    return one_step + average(rows, rewards, variance + rewards.noise())


def row_bound(rows: DirichletRows, rewards: Rewards, worth: Worth) -> Pairs:
    """The largest |x(o)| of the possible outcomes, x what the row multiplies."""
    return jnp.where(rows.mean() > 0, jnp.abs(_targets(rewards, worth)), 0.0).max(-1)
