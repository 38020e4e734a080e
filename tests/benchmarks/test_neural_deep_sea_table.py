"""The table twin of deep UBE: its kappa and u are those of the agent, and it finds the treasure."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import DeepUBE, UnitPrior
from bayes_mdp.experiments.rollout.execute import time_to_solve
from benchmarks.neural_deep_sea_table import Rule, exact, replayed


def test_rule_is_that_of_the_agent():
    """kappa of random counts and rewards beside `UnitBelief`, u beside `DeepUBE`."""
    rng = np.random.default_rng(0)
    unit, action, reward = rng.integers(0, 6, 60), rng.integers(0, 2, 60), 0.1 * rng.normal(size=60)
    belief = UnitPrior().belief(2, 6)
    belief = belief.update(jnp.asarray(unit[:, None]), jnp.asarray(action), jnp.asarray(reward))
    count, square = np.zeros((2, 6, 2))
    np.add.at(count, (unit, action), 1)
    np.add.at(square, (unit, action), reward**2)
    rule = Rule(noise=0.02)
    kappa = rule.share(count, square / np.maximum(count, 1))
    np.testing.assert_allclose(kappa, belief.variance(jnp.arange(6)[:, None]), rtol=1e-5)
    w = rng.normal(size=(6, 2))
    np.testing.assert_allclose(
        rule.uncertainty(kappa, w), DeepUBE().uncertainty(jnp.asarray(kappa), jnp.asarray(w)), rtol=1e-5
    )


@pytest.mark.parametrize("play", [exact, replayed])
def test_solves_a_small_sea(play):
    """Size 6, which random play finds once in 64 episodes."""
    assert time_to_solve(play(Rule(step=1.0), 6, 0, 40)) <= 30
