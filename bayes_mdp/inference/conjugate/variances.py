"""Variances of one Bellman backup, r + discount V(next state), under Dirichlet rows and conjugate rewards.

First of one row (the factor of the uncertainty Bellman equation, the variance of p . values), then of the backup.

`values` is discount V of the outcomes, broadcastable to the rows [*H S A O]. With pbar the mean row, c0 its total
concentration, m and v mean and epistemic variance of the mean reward, noise the expected variance of a reward around
its mean:

* transition: Var_pbar(m + values) / (c0 + 1), and where rewards belong to pairs Var_pbar(values) / (c0 + 1).
* Bellman: transition + E[p' Cov(reward) p]; exact for fixed `values`.
* predictive: Var_pbar(m + values) + pbar . (v + noise): that of one observed transition.

[UBE18] O'Donoghue, Osband, Munos and Mnih, *The Uncertainty Bellman Equation and Exploration*, ICML 2018; [BMRL19]
Markou and Rasmussen, 2019.
"""

import numpy as np
from jax import lax
from jaxtyping import Float, Real

from bayes_mdp.inference.conjugate.dirichlet_rows import DirichletRows
from bayes_mdp.inference.conjugate.rewards import Rewards
from bayes_mdp.numerics.numpy_or_jax import has_jax_array, xp
from bayes_mdp.utils.typing import AnyArray, RealLike
from bayes_mdp.utils.validation import check_name

FACTOR_FORMS = ("ratio", "dirichlet", "twice", "printed", "count")

Pairs = Float[AnyArray, "*H S A"]
Rows = Float[AnyArray, "*H S A O"]
Values = Float[AnyArray, "..."]


def dirichlet_factor(
    form: str, concentration: Float[AnyArray, "*pairs O"], visits: Real[AnyArray, "*pairs"]
) -> Float[AnyArray, "*pairs"]:
    """The factor of an unknown Dirichlet row in the local uncertainty; zero where the row is known.

    With c0 the sum and K the number of positive concentrations, pbar = c / c0:
    "ratio" (K - 1) / (c0 + 1), "dirichlet" 1 / (c0 + 1), "printed" (1 - sum pbar^2) / (c0 + 1) ([UBE18], a bound for
    values in an interval of the assumed length only), "twice" the double of it, "count" 1 / visits, and where nothing
    was observed the "ratio" of the prior. Which of them bounds what: see `ConjugatePosterior.variance_factor`.

    Raises:
        ValueError: another form.
    """
    check_name("form", form, FACTOR_FORMS)
    # Zero concentration is a structural zero; with one possible outcome there is nothing unknown.
    possible = (concentration > 0).sum(-1)
    total = concentration.sum(-1)
    # Rows of one possible outcome are known.
    unknown = possible > 1
    inverse = xp.where(unknown, 1.0 / (total + 1.0), 0.0)
    if form == "dirichlet":
        return xp.asarray(inverse)
    ratio = (possible - 1.0) * inverse
    if form == "ratio":
        return xp.asarray(ratio)
    # Before any visit the ratio of the prior stands in for 1 / visits.
    if form == "count":
        return xp.where(unknown, xp.where(visits > 0, 1.0 / xp.maximum(visits, 1e-30), ratio), 0.0)
    mean = concentration / xp.where(total > 0, total, 1.0)[..., None]
    return xp.asarray((2.0 if form == "twice" else 1.0) * (1.0 - (mean**2).sum(-1)) * inverse)


def row_variance(
    probs: Float[AnyArray, "*pairs O"], inverse_total: RealLike, values: Float[AnyArray, "..."]
) -> Float[AnyArray, "..."]:
    """Var[p . values] over a Dirichlet row p with mean `probs`: Var_probs(values) / (c0 + 1).

    `values` may have an axis of steps in front that `probs` has not: one step after the other, because all at once
    would hold rows of every step.
    """
    probs, inverse_total, values = (xp.asarray(x) for x in (probs, inverse_total, values))
    if values.ndim > probs.ndim:
        if not has_jax_array(probs, inverse_total, values):
            return np.stack([row_variance(probs, inverse_total, step) for step in values])
        return lax.map(lambda step: row_variance(probs, inverse_total, step), values)
    if values.size == values.shape[-1] and probs.ndim > 2:
        # As a matrix, as which products with vectors take it: XLA would store the mean once for each shape.
        flat = row_variance(probs.reshape(-1, probs.shape[-1]), 1.0, values.reshape(-1))
        return inverse_total * flat.reshape(probs.shape[:-1])
    # Centred first: E[v^2] - E[v]^2 cancels where values are large.
    centred = values - (probs * values).sum(-1, keepdims=True)
    return xp.asarray(inverse_total * (probs * centred**2).sum(-1))


def expected_square(
    probs: Float[AnyArray, "*pairs O"],
    inverse_total: RealLike,
    variance: Float[AnyArray, "*pairs O"],
    average: Float[AnyArray, "*pairs"] | np.floating,
) -> Float[AnyArray, "*pairs"]:
    """E[sum_ij p_i p_j Cov(m_i, m_j)] over a Dirichlet row p, for mean rewards m.

    Args:
        probs: the mean row.
        inverse_total: 1 / (c0 + 1).
        variance: of each mean reward.
        average: Var[sum_o probs_o m_o].
    """
    probs, inverse_total = xp.asarray(probs), xp.asarray(inverse_total)
    # An outcome of probability zero contributes nothing, even where its variance is infinite.
    variance = xp.where(probs > 0, variance, 0.0)
    # E[p_i p_j] = (c0 pbar_i pbar_j + 1{i=j} pbar_i) / (c0 + 1): the outcomes each alone, and their average.
    alone = inverse_total * (probs * variance).sum(-1)
    return xp.asarray(alone + (1.0 - inverse_total) * average)


def _targets(rewards: Rewards, values: Values) -> Float[AnyArray, "..."]:
    """What a row multiplies: values, and the mean reward where it depends on the outcome."""
    return xp.asarray(rewards.mean()) + values if rewards.by_outcome else values


def average(rows: DirichletRows, rewards: Rewards, cells: Float[AnyArray, "*cells"]) -> Pairs:
    """pbar . cells where rewards depend on the outcome; an outcome of probability zero counts nothing, even inf."""
    probs, cells = rows.mean(), xp.asarray(cells)
    return xp.where(probs > 0, probs * cells, 0.0).sum(-1) if rewards.by_outcome else cells


def transition_variance(rows: DirichletRows, rewards: Rewards, values: Values) -> Pairs:
    """Variance that unknown rows cause, every mean reward at its expectation."""
    return row_variance(rows.mean(), rows.inverse_total(), _targets(rewards, values))


def bellman_variance(
    rows: DirichletRows, rewards: Rewards, values: Values, variance: Float[AnyArray, "*cells"]
) -> Pairs:
    """Variance of sum_o P(o | s, a) (r(s, a, o) + values(o)); `variance` is that of the mean rewards."""
    unknown_rows = transition_variance(rows, rewards, values)
    if not rewards.by_outcome:
        return unknown_rows + variance
    probs = rows.mean()
    return unknown_rows + expected_square(probs, rows.inverse_total(), variance, rewards.variance_of_average(probs))


def predictive_variance(
    rows: DirichletRows, rewards: Rewards, values: Values, variance: Float[AnyArray, "*cells"]
) -> Pairs:
    """Variance of one observed reward + values(outcome) under the posterior predictive."""
    probs = rows.mean()
    # With the factor 1 in place of 1 / (c0 + 1) it is the variance of one draw, not of the mean.
    # The variance of one reward: of its mean, and around it.
    one_step = row_variance(probs, xp.ones(()), _targets(rewards, values))
    return one_step + average(rows, rewards, variance + rewards.noise())


def row_bound(rows: DirichletRows, rewards: Rewards, values: Values) -> Pairs:
    """The largest |x(o)| of the possible outcomes, x what the row multiplies."""
    return xp.where(rows.mean() > 0, xp.abs(_targets(rewards, values)), 0.0).max(-1)
