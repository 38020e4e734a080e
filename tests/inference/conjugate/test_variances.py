# pyright: reportArgumentType=false
"""One-step variances against draws in numpy, for every family and shape of table."""

import equinox as eqx
import jax
import numpy as np
import pytest

from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief, NormalGammaBelief
from bayes_mdp.inference.families.poisson import GammaBelief
from tests.inference.numpy_draws import NUMBER, draw_leaves, draw_rewards, draw_rows

pytestmark = pytest.mark.numerics

DISCOUNT, LIMIT = 0.9, 6.5
VALUES = np.array([3.0, -1.0, 5.0])


def z_of_variance(sample, variance):
    """|z| of the mean of squared deviations from the sample mean; what does not vary must have variance zero."""
    squares = (sample - sample.mean(0)) ** 2
    error = squares.std(0) / np.sqrt(len(sample))
    fixed = error < 1e-12
    np.testing.assert_allclose(np.asarray(variance)[fixed], 0.0, atol=1e-12)
    return (np.abs(squares.mean(0) - variance)[~fixed] / error[~fixed]).max(initial=0.0)


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["flat", "outcome", "tied", "support", "poisson", "known"])
def test_one_step_variances_against_draws(cases, name):
    """False alarm: |z| > 6.5 in at most 48 statistics a case, below 1e-8 (nearly normal). Catches 5 % of a variance.

    Ends, known rows, structural zeros, known rewards, ties within a row: see the builders.
    """
    case, rng = cases(name, number=20), np.random.default_rng(7)
    posterior = case.prior.update(case.data)
    values = VALUES if case.space.horizon is None else np.stack([VALUES, -VALUES[::-1]])
    worth = DISCOUNT * (np.concatenate([values, np.zeros((*values.shape[:-1], 1))], -1) if case.space.ends else values)
    worth = np.expand_dims(worth, (-3, -2))
    probs = draw_rows(posterior.transition_probs, rng)
    mean, noise = draw_rewards(posterior.reward_cells, rng)
    by_outcome = posterior.rewards_by_outcome
    expected = np.asarray(posterior.reward_cells.mean()) if by_outcome else 0.0
    row_alone = (probs * (expected + worth)).sum(-1)
    backup = (probs * (mean + worth)).sum(-1) if by_outcome else mean + (probs * worth).sum(-1)
    closed = posterior.transition_variance(values, DISCOUNT), posterior.bellman_variance(values, DISCOUNT)
    assert z_of_variance(row_alone, closed[0]) < LIMIT
    assert z_of_variance(backup, closed[1]) < LIMIT
    assert z_of_variance(backup, 1.1 * np.asarray(closed[1])) > LIMIT, "the broken twin must be caught"
    step = _one_transition(rng, probs, mean, noise, worth, by_outcome)
    predictive = posterior.predictive_variance(values, DISCOUNT)
    assert z_of_variance(step, predictive) < LIMIT
    assert z_of_variance(step, 1.1 * np.asarray(predictive)) > LIMIT, "the broken twin must be caught"


def _one_transition(rng, probs, mean, noise, worth, by_outcome):
    """An outcome of each drawn row and a reward of any law with the drawn mean and variance: a two-point law."""
    outcome = (rng.uniform(size=probs.shape[:-1])[..., None] > probs.cumsum(-1)[..., :-1]).sum(-1)
    pick = lambda x: np.take_along_axis(np.broadcast_to(x, probs.shape), outcome[..., None], -1)[..., 0]  # noqa: E731
    mean, noise = (pick(x) if by_outcome else x for x in (mean, noise))
    return mean + np.sqrt(noise) * rng.choice([-1.0, 1.0], mean.shape) + pick(worth)


@pytest.mark.parametrize("name", ["outcome", "support", "tied"])
def test_row_bound_is_the_largest_possible(cases, name):
    case = cases(name, number=20)
    posterior = case.prior.update(case.data)
    values = VALUES if case.space.horizon is None else np.stack([VALUES, -VALUES[::-1]])
    end = np.zeros((*values.shape[:-1], int(case.space.ends)))
    factor = DISCOUNT if posterior.rewards_by_outcome else 1.0
    target = factor * np.concatenate([values, end], -1)[..., None, None, :]
    target = target + (np.asarray(posterior.reward_cells.mean()) if posterior.rewards_by_outcome else 0.0)
    probs = np.asarray(posterior.transition_probs.mean())
    expected = np.max(np.where(probs > 0, np.abs(target), -np.inf), -1)
    np.testing.assert_allclose(posterior.row_bound(values, DISCOUNT), expected, rtol=1e-12)


def test_an_impossible_outcome_counts_nothing_even_where_its_variance_is_infinite(cases):
    """The reward of an outcome of probability zero has concentration <= 1: no variance, and no harm."""
    prior = cases("outcome").prior
    rows = prior.transition_probs
    concentration = np.array(rows.prior)
    concentration[0, 1] = 0.0
    shape = np.array(prior.reward_cells.prior.concentration)
    shape[1] = 1.0
    where = lambda p: (p.transition_probs.prior, p.reward_cells.prior.concentration)  # noqa: E731
    odd = eqx.tree_at(where, prior, (concentration, shape))
    for name in ("bellman_variance", "predictive_variance", "transition_variance"):
        assert np.isfinite(getattr(odd, name)(VALUES, DISCOUNT)).all()
    assert np.isfinite(odd.expected_reward_variance()).all()
    possible = eqx.tree_at(where, prior, (np.array(rows.prior), shape))
    with pytest.raises(ValueError, match="greater than 1"):
        possible.predictive_variance(VALUES, DISCOUNT)


BELIEFS = (
    NormalGammaBelief(*np.array([0.5, 0.8, 6.0, 1.5])),
    NormalBelief(*np.array([0.5, 1.7, 0.6])),
    BetaBelief(*np.array([1.3, 2.2])),
    GammaBelief(*np.array([1.5, 0.7])),
)


@pytest.mark.some(2)
@pytest.mark.parametrize("belief", BELIEFS, ids=lambda b: type(b).__name__)
def test_noise_is_the_mean_of_drawn_noise_and_of_simulated_rewards(belief):
    """False alarm: |z| > 6 in three statistics, below 1e-8. Catches noise that is left out."""
    rng = np.random.default_rng(0)
    mean, noise = draw_leaves(belief, rng)
    z = lambda x, expected: abs(x.mean() - float(expected)) / (x.std() / np.sqrt(len(x)) + 1e-6)  # noqa: E731
    assert z(noise, belief.noise()) < 6
    simulated = {
        NormalGammaBelief: lambda: rng.normal(mean, np.sqrt(noise)),
        NormalBelief: lambda: rng.normal(mean, np.sqrt(noise)),
        BetaBelief: lambda: rng.binomial(1, mean),
        GammaBelief: lambda: rng.poisson(mean),
    }[type(belief)]()
    squares = (simulated - float(belief.mean())) ** 2
    assert z(squares, belief.variance() + belief.noise()) < 6
    assert z(squares, belief.variance()) > 6, "the broken twin, which leaves out the noise, must be caught"
    batch = jax.tree.map(lambda x: np.full(NUMBER, x, np.float32), belief)
    ours = np.asarray(jax.jit(lambda b, key: b.conditional_noise(b.sample(key)))(batch, jax.random.key(1)), float)
    assert z(ours, belief.noise()) < 6


def test_infinite_noise_is_said():
    belief = NormalGammaBelief(*np.array([0.0, 1.0, 1.0, 1.0]))
    assert np.isinf(belief.noise()) and np.isinf(belief.variance())
