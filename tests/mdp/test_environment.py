"""Simulation: frequencies against probabilities, ends, rewards by outcome, keys.

Chi-square tests: fixed keys, false-alarm rate 1e-6; 20,000 draws over few cells find a probability off by 0.03.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import chisquare

from bayes_mdp.mdp import MDP, Environment, NormalReward, SparseMDP
from bayes_mdp.mdp.environment import _pick

ROWS = np.array([[[0.0, 0.3, 0.5]], [[1.0, 0.0, 0.0]], [[0.25, 0.25, 0.5]]])
ENDS = np.array([[0.2], [0.0], [0.0]])
DRAWS = 20_000


def environment(*, sparse=False, ends=True, scale=None):
    rows = ROWS if ends else ROWS + ENDS[..., None] * np.array([1.0, 0, 0])
    options = {"end_probs": ENDS if ends else None, "initial": np.array([0.0, 0.4, 0.6])}
    reward = np.array([[1.0], [2.0], [3.0]])
    mdp = MDP(rows, reward, **options)
    if sparse:
        order = np.array([2, 0, 1])
        mdp = SparseMDP(np.broadcast_to(order, rows.shape), rows[..., order], reward, **options)
    return Environment(mdp, NormalReward(mdp.reward, scale))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_frequencies(sparse, ends, key):
    env = environment(sparse=sparse, ends=ends)
    step = jax.jit(jax.vmap(lambda k: env.step(k, 0, 0)))
    next_state, reward, terminated = map(np.asarray, step(jax.random.split(key, DRAWS)))
    outcome = np.where(terminated, 3, next_state)
    expected = np.r_[ROWS[0, 0], 0.2] if ends else np.array([0.2, 0.3, 0.5, 0.0])
    seen = np.bincount(outcome, minlength=4)
    assert (seen[expected == 0] == 0).all()
    assert chisquare(seen[expected > 0], DRAWS * expected[expected > 0]).pvalue > 1e-6
    np.testing.assert_array_equal(reward, 1.0)
    np.testing.assert_array_equal(next_state[terminated], 0)


def test_reset(key):
    env = environment()
    states = np.asarray(jax.vmap(env.reset)(jax.random.split(key, DRAWS)))
    seen = np.bincount(states, minlength=3)
    assert seen[0] == 0
    assert chisquare(seen[1:], DRAWS * np.array([0.4, 0.6])).pvalue > 1e-6


def test_inversion_at_its_edges():
    """u in [0, 1): impossible entries are never drawn, not even for u = 0 or the largest u."""
    top = jnp.asarray(np.nextafter(np.float32(1), np.float32(0)))
    assert _pick(jnp.float32(0), jnp.array([0.0, 0.0, 0.4, 0.6])) == 2
    assert _pick(top, jnp.array([0.5, 0.5, 0.0, 0.0])) == 1
    assert _pick(top, jnp.array([0.5, 0.5, 0.0]), jnp.float32(0.0)) == 1
    assert _pick(jnp.float32(0), jnp.array([0.0, 0.0]), jnp.float32(1.0)) == 2
    short = jnp.full(10, np.float32(0.1) * np.float32(0.999999))
    assert _pick(top, short) == 9


def test_rewards_have_their_law(key):
    env = environment(scale=0.5)
    _, reward, _ = jax.vmap(lambda k: env.step(k, 2, 0))(jax.random.split(key, DRAWS))
    assert abs(np.mean(reward) - 3.0) < 5.5 * 0.5 / DRAWS**0.5
    assert abs(np.std(reward) - 0.5) < 5.5 * 0.5 / (2 * DRAWS) ** 0.5


def test_rewards_by_outcome(key):
    mdp = environment().mdp
    table = jnp.tile(jnp.array([10.0, 20.0, 30.0, 40.0]), (3, 1, 1))
    env = Environment(mdp, NormalReward(table, by_outcome=True))
    next_state, reward, terminated = jax.vmap(lambda k: env.step(k, 0, 0))(jax.random.split(key, 200))
    np.testing.assert_array_equal(reward, 10.0 * (1 + np.where(terminated, 3, next_state)))
    assert np.any(terminated)
    noisy = NormalReward(table, jnp.full_like(table, 2.0), by_outcome=True)
    assert noisy.sample(key, (0, 0), 3).shape == ()


def test_steps_of_their_own(key):
    """With a step axis each step uses its own row."""
    rows = np.stack([np.eye(2)[[1, 0]][:, None], np.eye(2)[:, None]])
    mdp = MDP(rows, np.arange(4.0).reshape(2, 2, 1), initial=np.array([1.0, 0.0]))
    env = Environment(mdp, NormalReward(mdp.reward))
    assert env.step(key, 0, 0, 0)[:2] == (1, 0.0)
    assert env.step(key, 1, 0, 1)[:2] == (1, 3.0)


def test_an_environment_needs_a_start():
    mdp = MDP(np.ones((1, 1, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"mdp\.initial is None, expected a distribution"):
        Environment(mdp, NormalReward(mdp.reward))


def test_reward_and_next_state_have_keys_of_their_own():
    """Both are drawn by uniform numbers; with one key a reward above a half would always lead to state 1."""
    mdp = MDP(np.full((2, 1, 2), 0.5), np.full((2, 1), 0.5), initial=np.array([1.0, 0.0]))
    env = Environment(mdp, dist.Uniform(np.zeros((2, 1)), np.ones((2, 1))))
    taken = [env.step(jax.random.key(i), 0, 0) for i in range(24)]
    assert 0 < sum((reward >= 0.5) == (state == 1) for state, reward, _ in taken) < 24


def test_an_environment_says_its_law():
    mdp = environment().mdp
    shown = str(Environment(mdp, NormalReward(mdp.reward, 0.5), name="ward", optimum=2.5)).splitlines()
    assert shown[0] == "ward: 3 states, 1 action"
    facts = {line.split()[0]: " ".join(line.split()[1:]) for line in shown[1:]}
    assert facts == {
        "start": "one of 2 states",
        "episodes": "some steps end them",
        "rewards": "normal, standard deviation 0.5, means from 1 to 3",
        "optimum": "2.5",
    }
    by_cell = NormalReward(mdp.reward, np.array([[0.1], [0.2], [0.4]]))
    sevens = dist.Delta(np.full((3, 1, 4), 7.0)).to_event(1)
    seven = MDP(mdp.transition_probs, np.full((3, 1), 7.0), end_probs=mdp.end_probs, initial=mdp.initial)
    for law, said in (
        (NormalReward(mdp.reward), "always the mean"),
        (by_cell, "normal, standard deviation 0.1 to 0.4"),
        (dist.Poisson(np.asarray(mdp.reward)), "Poisson"),
        (dist.Normal(np.asarray(mdp.reward), 1.0).expand([3, 1]), "Normal"),
    ):
        assert f"rewards   {said}, means from 1 to 3" in str(Environment(mdp, law))
    assert "rewards   Delta, by outcome, means from 7 to 7" in str(Environment(seven, sevens))
    assert "no step ends them" in str(environment(ends=False)) and "<table" in environment()._repr_html_()
    jax.jit(lambda env: str(env) and env.mdp.reward)(environment())  # traced: sizes alone
