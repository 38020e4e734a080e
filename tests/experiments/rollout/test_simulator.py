"""The simulator of a compiled loop against the rows of the environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.experiments.rollout.simulator import outcome_rows, simulator
from bayes_mdp.mdp import MDP, Environment, NormalReward, SparseMDP
from tests.experiments.toy import walk_that_ends


def _environment(n_states=7):
    rng = np.random.default_rng(3)
    rows = rng.dirichlet(np.full(n_states + 1, 0.3), size=(n_states, 2))
    rows[rows < 0.02] = 0.0
    rows /= rows.sum(-1, keepdims=True)
    initial = np.array([0.5, 0.0, 0.5] + [0.0] * (n_states - 3))
    mdp = MDP(rows[..., :-1], np.zeros((n_states, 2)), end_probs=rows[..., -1], initial=initial)
    return Environment(mdp, NormalReward(mdp.reward))


def test_inversion_on_a_grid():
    """100 000 evenly spaced numbers give every outcome its probability to 2e-5; impossible outcomes never come."""
    env = _environment()
    sim, rows = simulator(env), outcome_rows(env.mdp)
    u = (jnp.arange(100_000) + 0.5) / 100_000
    find = jax.jit(jax.vmap(sim.next_outcome, in_axes=(0, None)))
    for s, a in ((0, 0), (3, 1), (6, 0)):
        found = np.bincount(np.asarray(find(u, (s, a))), minlength=8) / u.size
        assert np.allclose(found, rows[s, a], atol=2e-5) and np.all(found[rows[s, a] == 0] == 0)


def test_first_states():
    """Only where the initial distribution is positive (20 000 draws; 6 standard deviations: false alarms 2e-9)."""
    sim = simulator(_environment())
    first = np.asarray(jax.vmap(sim.reset)(jax.random.split(jax.random.key(0), 20_000)))
    assert set(first.tolist()) == {0, 2} and abs((first == 0).mean() - 0.5) < 6 * 0.5 / np.sqrt(20_000)


def test_a_known_row_needs_no_random_number():
    """One possible outcome everywhere: no threshold; the end is outcome S."""
    sim = simulator(walk_that_ends())
    assert sim.threshold.shape[-1] == 0
    assert int(sim.next_outcome(0.3, (2, 1))) == 3 and int(sim.next_outcome(0.3, (1, 1))) == 2


def _listed_rows(lead, n_states=9, listed=5):
    """Lists with repeated successors, entries of probability zero anywhere, ends in half of the rows."""
    rng = np.random.default_rng(4)
    pairs = (*lead, n_states, 2)
    probability = rng.dirichlet(np.ones(listed), size=pairs) * (rng.random((*pairs, listed)) < 0.6)
    probability[..., 0] += 0.1
    ends = 0.5 * (rng.random(pairs) < 0.5)
    probability *= ((1 - ends) / probability.sum(-1))[..., None]
    successor = rng.integers(0, n_states // 2, probability.shape)
    initial = np.eye(n_states)[0]
    return SparseMDP(successor, probability, np.zeros(pairs), end_probs=ends, initial=initial)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_listed_rows_are_those_of_dense_rows(lead):
    """Merged, sorted and padded as dense rows are, to the last bit."""
    mdp = _listed_rows(lead)
    rows = np.zeros((*mdp.reward.shape, mdp.n_states), np.float32)
    np.add.at(rows, (*np.indices(mdp.successor.shape)[:-1], mdp.successor), mdp.probability)
    dense = MDP(jnp.asarray(rows), mdp.reward, end_probs=mdp.end_probs, initial=mdp.initial)
    repeated = np.diff(np.sort(mdp.successor, -1), axis=-1) == 0
    assert repeated.any() and np.any(np.asarray(mdp.probability) == 0)  # there is something to merge
    simulators = [simulator(Environment(m, NormalReward(m.reward))) for m in (mdp, dense)]
    for one, other in zip(*map(jax.tree.leaves, simulators), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_a_batch_of_listed_rows():
    """Leading axes: each environment as it is alone, where all need as many outcomes."""
    env = Environment(_listed_rows(()), NormalReward(jnp.zeros((9, 2))))
    both = simulator(jax.tree.map(lambda x: jnp.stack([x, x]), env))
    np.testing.assert_array_equal(both.outcome, np.stack([simulator(env).outcome] * 2))
    np.testing.assert_array_equal(both.threshold, np.stack([simulator(env).threshold] * 2))


def test_many_states_need_little_memory():
    """100,000 states: dense rows would take 40 GB in float32."""
    n = 100_000
    successor = np.stack([np.roll(np.arange(n), -1), np.arange(n)], -1)[:, None]
    mdp = SparseMDP(successor, np.full(successor.shape, 0.5), np.zeros((n, 1)), initial=np.eye(1, n)[0])
    sim = simulator(Environment(mdp, NormalReward(mdp.reward)))
    assert sim.outcome.shape == (n, 1, 2) and sim.threshold.shape == (n, 1, 1)
    np.testing.assert_array_equal(sim.outcome[[0, 7, n - 1], 0], [[0, 1], [7, 8], [0, n - 1]])
