# pyright: reportArgumentType=false
"""Layer-by-layer draws have the law of whole draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.inference.families import NormalGammaBelief
from bayes_mdp.inference.layered import LayeredPosterior, conjugate_posterior
from bayes_mdp.inference.rewards import known_rewards, reward_cells
from bayes_mdp.inference.rows import dirichlet_rows
from bayes_mdp.mdp import CanSampleBackup, StateActionSpace
from bayes_mdp.mdp.abilities import require_ability

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
