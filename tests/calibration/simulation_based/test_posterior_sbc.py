"""Truths near a log and their data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp import models
from bayes_mdp.calibration.checks.checking import truths_near
from bayes_mdp.calibration.simulation_based.ranks import Design
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.mdp import Discounted, StateActionSpace, Transitions

SPACE = StateActionSpace(2, 2, ends=True)
REWARD = np.arange(12.0).reshape(2, 2, 3)


@pytest.mark.slow
def test_new_data_follow_the_log_from_its_pairs_with_the_posterior_predictive(key):
    """Outcomes of one pair in 4000 truths: within 5 standard errors of the posterior mean row (false alarm 2e-6).

    Rows of the prior in place of the posterior's are 20 standard errors off.
    """
    log = Transitions(
        np.array([0, 0, 0, 1, 1]),
        np.array([1, 1, 1, 0, 1]),
        None,
        np.array([1, 1, 0, 0, 0]),
        np.array([False, False, False, False, True]),
    )
    rows = dirichlet_rows(np.full((4, 3), 0.5), (2, 2, 3))
    posterior = conjugate_posterior(rows, known_rewards(REWARD, by_outcome=True), SPACE).update(log)
    design = Design(models.known_rewards(REWARD), SPACE, 10, 5, {}, None, Discounted(0.9))
    draw_truth = truths_near(posterior, log, design)
    keys = jax.random.split(key, (2, 4000))
    law, sites, data = jax.jit(jax.vmap(draw_truth))(*keys)
    assert not sites and data.state.shape == (4000, 10)
    np.testing.assert_array_equal(data.state, np.tile(log.state, (4000, 2)))
    np.testing.assert_array_equal(data.action, np.tile(log.action, (4000, 2)))
    np.testing.assert_array_equal(data.next_state[:, :5], np.tile(log.next_state, (4000, 1)))
    np.testing.assert_array_equal(data.terminated[:, :5], np.tile([False, False, False, False, True], (4000, 1)))
    outcome = np.where(data.terminated, 2, data.next_state)[:, 5:8]
    expected = np.array([0.5 + 1, 0.5 + 2, 0.5]) / 4.5
    # Three transitions of one truth go together: Var of their mean frequency, Dirichlet-multinomial.
    error = np.sqrt(expected * (1 - expected) * (4.5 + 3) / (4.5 + 1) / 3 / 4000)
    frequency = (outcome[..., None] == np.arange(3)).mean((0, 1))
    assert (np.abs(frequency - expected) < 5 * error).all()
    assert (np.abs(1 / 3 - expected) > 20 * error).any()
    # The data of a truth are drawn from its own rows.
    own = np.asarray(law.rows)[:, 0, 1]
    assert np.corrcoef(own[:, 1], (outcome == 1).mean(1))[0, 1] > 0.5
    # No reward was seen in the log, so that none is seen now.
    assert not np.asarray(data.reward_observed).any()
    assert data.step is None
    assert jnp.isfinite(data.reward).all()
