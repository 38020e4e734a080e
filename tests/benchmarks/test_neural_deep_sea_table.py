"""The table twin of deep UBE: its kappa and u are those of the agent, and it finds the treasure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import DeepUBE, UnitPrior
from bayes_mdp.experiments.rollout.execute import time_to_solve
from benchmarks.neural_deep_sea_given import Table, data_of, exact_values, goes_right, learner
from benchmarks.neural_deep_sea_table import Rule, exact, replayed, visits_of


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


def test_a_table_learns_what_the_backup_says_of_the_same_data():
    """Tables that go a tenth of the way to targets end at the exact backup of the counts, for pairs that were tried."""
    size, rule = 6, Rule(noise=0.0031)
    pairs = visits_of(rule, size, 0, 1)
    assert len(pairs) % size == 0
    assert np.flatnonzero(pairs == 2 * size**2 - 1).tolist() == [len(pairs) - 1]
    data = data_of(rule, pairs, size)
    q, u = exact_values(rule, data, size)
    kind = Table(size)
    tree = kind.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 3000)
    learnt = learner(rule, kind, data)((tree, tree, None, 0), keys)[0]
    tried = np.unique(pairs)
    found = rule.uncertainty(data.kappa, np.asarray(learnt["w"]))
    np.testing.assert_allclose(np.asarray(learnt["q"]).ravel()[tried], q.ravel()[tried], atol=2e-3)
    np.testing.assert_allclose(found.ravel()[tried], u.ravel()[tried], atol=2e-3)
    # The reward was found, and is worth its way: the greedy policy goes right to the end.
    assert goes_right(q, size) == size
    assert goes_right(-q, size) == 0
