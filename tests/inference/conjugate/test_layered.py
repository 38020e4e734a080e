# pyright: reportArgumentType=false
"""Layer-by-layer draws have the law of whole draws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.inference.conjugate.conjugate_posterior import LayeredPosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.mdp import StateActionSpace
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.mdp.protocols import CanSampleBackup

pytestmark = pytest.mark.numerics

VALUES = np.array([3.0, -1.0, 5.0])
NUMBER = 40_000


def _moments_agree(posterior, layer):
    """Means, variances and the covariance of the pairs of a layer against the closed form.

    False alarm: |z| > 6.5 in at most 12 + 15 statistics, below 1e-8. Catches 5 % in a standard deviation.
    """
    keys = jax.random.split(jax.random.key(3), NUMBER)
    draw = jax.jit(jax.vmap(lambda key, step: posterior.sample_backup(key, jnp.asarray(VALUES), step), (0, None)))
    drawn = np.asarray(draw(keys, layer), float)
    mdp = posterior.mean_mdp()
    mean = np.asarray(mdp.reward + mdp.transition_probs @ VALUES)[layer]
    variance = np.asarray(posterior.bellman_variance(VALUES, 1.0))[layer]
    unknown = variance > 0
    np.testing.assert_allclose(drawn[:, ~unknown], np.broadcast_to(mean[~unknown], drawn[:, ~unknown].shape), rtol=1e-6)
    centred = (drawn - mean)[:, unknown]
    variance = variance[unknown]
    assert (np.abs(centred.mean(0)) < 6.5 * np.sqrt(variance / NUMBER)).all()
    assert (np.abs((centred**2).mean(0) - variance) < 6.5 * (centred**2).std(0) / np.sqrt(NUMBER)).all()
    correlation = np.corrcoef(centred.T) - np.eye(len(variance))
    assert np.abs(correlation).max() < 6.5 / np.sqrt(NUMBER), "pairs of a layer are independent"


def test_tables_known_rows_and_ends(cases):
    case = cases("support")
    posterior = case.prior.update(case.data)
    assert isinstance(posterior, LayeredPosterior)
    _moments_agree(posterior, 0)


def test_listed_counts(cases):
    case = cases("known")
    posterior = case.prior.update(case.data)
    _moments_agree(posterior.listed(np.zeros((2, 3, 2, 1), int)), 1)


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True])
def test_rewards_by_outcome(x64, listed):
    shape = (2, 3, 2, 3)
    belief = NormalGammaBelief(*(np.full(36, x) for x in (0.5, 1.0, 6.0, 2.0)))
    rewards = reward_cells(belief, shape, by_outcome=True)
    prior = conjugate_posterior(dirichlet_rows(np.ones((12, 3)), shape), rewards, StateActionSpace(3, 2, horizon=2))
    _moments_agree(prior.listed(np.zeros((2, 3, 2, 1), int)) if listed else prior, 1)


def test_only_independent_steps_are_layered(cases):
    for name in ("flat", "tied"):
        assert not isinstance(cases(name).prior, CanSampleBackup)
    with pytest.raises(TypeError, match="PSRL needs a posterior that has sample_backup, got a ConjugatePosterior"):
        require_ability(cases("flat").prior, CanSampleBackup, "PSRL")
    require_ability(cases("known").prior, CanSampleBackup, "PSRL")
    tied = dirichlet_rows(np.ones((6, 3)), (2, 3, 2, 3), row=np.arange(12).reshape(2, 3, 2) % 6)
    space = StateActionSpace(3, 2, horizon=2)
    assert not isinstance(conjugate_posterior(tied, known_rewards(np.zeros((2, 3, 2))), space), LayeredPosterior)


@pytest.mark.parametrize("name", ["support", "known"])
@pytest.mark.parametrize("listed", [False, True])
def test_expected_next_is_the_mean(cases, name, listed):
    case = cases(name)
    posterior = case.prior.update(case.data)
    posterior = posterior.listed(np.zeros((*posterior.space.shape, 1), int)) if listed else posterior
    mean = np.asarray(posterior.mean_mdp().transition_probs @ VALUES)
    ours = jax.jit(jax.vmap(lambda layer: posterior.expected_next(jnp.asarray(VALUES), layer)))(jnp.arange(len(mean)))
    np.testing.assert_allclose(ours, mean, rtol=1e-6)


@pytest.mark.parametrize("spread", [False, True])
def test_known_rows_are_listed(spread, key):
    """All rows known: few outcomes are listed, many are not; mean and draw of a layer are the rows themselves."""
    shape = (2, 9, 2, 9)
    rows = np.full(shape, 1 / 9) if spread else np.eye(9)[np.random.default_rng(0).integers(0, 9, shape[:-1])]
    known = dirichlet_rows(np.ones((1, 9)), shape, row=np.full(shape[:-1], -1), known=rows)
    prior = conjugate_posterior(known, known_rewards(np.zeros(shape[:-1])), StateActionSpace(9, 2, horizon=2))
    prior: Any = prior.listed(np.zeros((*shape[:-1], 1), int))
    assert (prior.transition_probs.known_listed is None) == spread
    values = jnp.arange(9.0)
    both = jax.jit(lambda layer: (prior.expected_next(values, layer), prior.sample_backup(key, values, layer)))
    for layer in range(2):
        for ours in both(layer):
            np.testing.assert_allclose(ours, rows[layer] @ np.arange(9.0), rtol=1e-6)


@jax.jit
def _rows_drawn(posterior, key, pseudo):
    """P(s' = 0) of every pair of both steps, one key."""
    return jnp.stack([posterior.sample_next(key, jnp.array([1.0, 0.0, 0.0]), h, 1.0, pseudo) for h in (0, 1)])


@pytest.mark.few(1)
@pytest.mark.parametrize("tied", [True, False])
def test_one_key_is_one_draw_of_the_rows_of_all_steps(tied, key):
    """Tied rows, within a step or across steps, come out the same, with their pseudo outcome; the others apart."""
    leaf = np.array([[[0, 1], [2, 3], [0, 4]], [[5, 1], [5, 2], [6, -1]]])
    leaf = leaf if tied else np.where(leaf < 0, -1, np.arange(12).reshape(leaf.shape))
    known = np.broadcast_to([1.0, 0.0, 0.0], (*leaf.shape, 3))
    rows = dirichlet_rows(np.ones((7 if tied else 11, 3)), (2, 3, 2, 3), row=leaf, known=known)
    prior = conjugate_posterior(rows, known_rewards(np.zeros((2, 3, 2))), StateActionSpace(3, 2, horizon=2))
    drawn = np.asarray(_rows_drawn(prior, key, (1.0, 7.0))).ravel()
    equal = np.isclose(drawn[:, None], drawn, rtol=1e-6)
    np.testing.assert_array_equal(equal, leaf.ravel()[:, None] == leaf.ravel())
    assert drawn[-1] == 1.0, "a known row has no pseudo outcome"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["support", "known", "flat", "tied"])
def test_total_is_the_sum_of_the_concentrations(cases, name):
    """Infinite where one outcome at most is possible."""
    case = cases(name)
    rows = case.prior.update(case.data).transition_probs
    concentration = np.asarray(rows.concentration)
    expected = np.where((concentration > 0).sum(-1) > 1, concentration.sum(-1), np.inf)
    np.testing.assert_allclose(rows.total(), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "listed", "inflation"),
    [("support", False, 3.0), ("known", True, 1.0), ("known", True, 3.0), ("flat", False, 3.0), ("tied", False, 1.0)],
)
def test_sample_next_has_the_moments_of_the_rows(cases, name, listed, inflation):
    """Mean and variance of every pair against the closed form of Dirichlet rows over `inflation`; known rows are sure.

    False alarm: |z| > 6.5 in at most 24 statistics, below 1e-8. Catches 5 % in a standard deviation.
    """
    case = cases(name)
    posterior = case.prior.update(case.data)
    space, rows = posterior.space, posterior.transition_probs
    posterior = posterior.listed(np.zeros((*space.shape, 1), int)) if listed else posterior
    values, layer = jnp.asarray(VALUES), 1
    draw = jax.jit(jax.vmap(lambda key: posterior.sample_next(key, values, layer, inflation)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(3), NUMBER)), float)
    concentration, probs = np.asarray(rows.concentration) / inflation, np.asarray(rows.mean())
    if space.horizon is not None:
        concentration, probs = concentration[layer], probs[layer]
    worth = np.append(VALUES, 0.0) if space.ends else VALUES
    mean = probs @ worth
    variance = np.where((concentration > 0).sum(-1) > 1, probs @ worth**2 - mean**2, 0) / (1 + concentration.sum(-1))
    sure = variance < 1e-12
    np.testing.assert_allclose(drawn[:, sure], np.broadcast_to(mean[sure], drawn[:, sure].shape), rtol=1e-5)
    centred, variance = (drawn - mean)[:, ~sure], variance[~sure]
    assert (np.abs(centred.mean(0)) < 6.5 * np.sqrt(variance / NUMBER)).all()
    assert (np.abs((centred**2).mean(0) - variance) < 6.5 * (centred**2).std(0) / np.sqrt(NUMBER)).all()
