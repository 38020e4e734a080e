"""Optimistic draws: whose rows are drawn afresh."""

import jax
import numpy as np
import pytest

from bayes_mdp.agents.pseudo_state import PseudoDraws
from tests.agents.optimism_problems import largest, uniform_belief


@pytest.mark.parametrize("steps", [pytest.param(True, marks=pytest.mark.slow), False])
def test_rows_are_drawn_afresh_at_every_step_or_shared(steps, key):
    """One draw, no pseudo state: P(s' = 1) of state 0 is the same at all steps where they share it, else not."""
    draws = PseudoDraws(1, 0.0, 0.0, 1e-9)
    q = np.asarray(largest(jax.random.split(key, 1), uniform_belief(steps), draws), float)[0]
    share = [(q[h, 0] - q[h + 1, 0]) / (q[h + 1, 1] - q[h + 1, 0]) for h in (1, 0)]
    assert (abs(share[0] - share[1]) < 1e-5) != steps
