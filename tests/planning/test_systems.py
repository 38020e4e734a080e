"""Linear systems of chains beyond the size of direct elimination, alone and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.mdp import MDP
from bayes_mdp.planning.linear_systems import DIRECT, solve_chain

STATES = DIRECT + 8


@pytest.mark.optimised
@pytest.mark.parametrize("batch", [1, 12])
def test_a_reward_in_one_state_that_ends_at_once(batch):
    """BiCGSTAB breaks down from such a right side; a NaN then passed through XLA's maximum, in batches."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(STATES, 0.01), (batch, STATES)) * 0.999
    rows[:, -1] = 0.0
    side = np.eye(STATES)[-1]
    with jax.enable_x64(True):
        chains = MDP(rows[:, :, None], np.zeros((batch, STATES, 1)), end_probs=1 - rows.sum(-1)[:, :, None])
        solve = jax.jit(jax.vmap(lambda chain: solve_chain(chain, 1.0, jnp.asarray(side), jnp.zeros(STATES))))
        found = np.asarray(solve(chains))
    for values, probs in zip(found, rows, strict=True):
        np.testing.assert_allclose(values, np.linalg.solve(np.eye(STATES) - probs, side), rtol=1e-10, atol=1e-13)
