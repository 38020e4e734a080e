"""The simulator of a compiled loop against the rows of the environment."""

import jax
import jax.numpy as jnp
import numpy as np

from bayes_mdp.experiments.simulator import outcome_rows, simulator
from bayes_mdp.mdp import MDP, Environment, NormalReward
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
