"""Optimistic draws: one key for the rows of all steps."""

import jax
import numpy as np
import pytest

from bayes_mdp.agents import OPSRL
from tests.agents.optimism_problems import largest, uniform_belief


@pytest.mark.parametrize("steps", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_belief_is_given_one_key_for_all_steps(steps, key):
    """One draw, no pseudo state: P(s' = 1) of state 0 is the same at all steps, for the belief looks at the key alone.

    What a belief makes of the key and the step is a test of its own (`sample_next`).
    """
    agent = OPSRL(1, pseudo_count=0.0, pseudo_reward=0.0, inflation=1e-9)
    q = np.asarray(largest(jax.random.split(key, 1), uniform_belief(steps), agent), float)[0]
    share = [(q[h, 0] - q[h + 1, 0]) / (q[h + 1, 1] - q[h + 1, 0]) for h in (1, 0)]
    assert abs(share[0] - share[1]) < 1e-5
