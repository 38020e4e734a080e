"""The two-action chain: its structure, and what one trial of each action is worth."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from bayes_mdp.envs import two_action_chain
from bayes_mdp.mdp import Discounted, Episodic, FirstExit
from bayes_mdp.planning import evaluate, solve
from bayes_mdp.planning.occupancy import condensation

NUM_DRAWS = 40_000


def trials(key, env, action, discount):
    """(discounted sums, lengths) of `NUM_DRAWS` simulated episodes that begin with `action`."""
    steps = jnp.arange(env.mdp.n_states)

    def episode(key):
        def move(carry, step):
            state, over = carry
            following, reward, ended = env.step(jax.random.fold_in(key, step), state, jnp.where(step == 0, action, 0))
            paid = jnp.where(over, 0.0, reward * discount**step)
            return (following, over | ended), (paid, ~over)

        (_, over), (paid, live) = lax.scan(move, (env.reset(key), jnp.array(False)), steps)
        return paid.sum(), live.sum(), over

    sums, lengths, over = jax.jit(jax.vmap(episode))(jax.random.split(key, NUM_DRAWS))
    assert np.all(over)
    return np.asarray(sums), np.asarray(lengths)


@pytest.mark.parametrize("depth", [2, 7])
def test_it_is_a_chain_without_a_cycle_that_ends(depth):
    mdp: Any = two_action_chain(depth).mdp
    assert mdp.reward.shape == (depth, 2)
    np.testing.assert_array_equal(np.asarray(mdp.legal).sum(-1), [2] + [1] * (depth - 1))
    order, component = condensation(mdp, np.ones((depth, 2), bool))
    np.testing.assert_array_equal(order, np.arange(depth)[::-1])
    assert len(set(component)) == depth
    rows, ends = np.asarray(mdp.transition_probs), np.asarray(mdp.end_probs)
    assert set(np.unique(rows)) <= {0.0, 1.0}
    np.testing.assert_array_equal(rows.sum(-1) + ends, 1.0)
    np.testing.assert_array_equal(np.argwhere(ends), [[0, 0], [depth - 1, 0], [depth - 1, 1]])


def test_one_trial_of_either_action_has_the_stated_mean_and_variance(key):
    """6 sd bands of mean and deviation of 40,000 trials: 2e-9 a comparison.

    Catches a variance off by 4.3 %: above all a root step that pays nothing (the variance is then discount^2 of it).
    """
    depth, discount, scale = 8, 0.9, 2.0
    env = two_action_chain(depth, discount=discount, mean_stop=0.5, mean_chain=0.3, scale=scale)
    keys = jax.random.split(key)
    sums, lengths = trials(keys[0], env, 0, discount)
    assert set(lengths) == {1}
    check_moments(sums, 0.5, scale**2)
    sums, lengths = trials(keys[1], env, 1, discount)
    assert set(lengths) == {depth}
    check_moments(sums, 0.3 * (1 - discount**depth) / (1 - discount), scale**2 * (1 - discount ** (2 * depth)))


def check_moments(samples, mean, variance):
    assert abs(samples.mean() - mean) < 6 * np.sqrt(variance / NUM_DRAWS)
    assert abs(samples.var() / variance - 1) < 6 * np.sqrt(2 / NUM_DRAWS)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_its_values():
    env = two_action_chain(30, mean_stop=1.5, mean_chain=0.2)
    q = solve(env.mdp, Discounted(0.9)).q
    np.testing.assert_allclose(q[0], [1.5, 0.2 * (1 - 0.9**30) / 0.1], atol=1e-12)
    assert env.optimum == pytest.approx(float(solve(env.mdp, Episodic(30)).v[0, 0]), abs=1e-12)
    always_chain = np.eye(30, dtype=int)[0]
    assert float(evaluate(env.mdp, always_chain, FirstExit()).v[0]) == pytest.approx(6.0, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 1}, "depth is 1, expected an integer of at least 2"),
        ({"discount": 1.0}, r"discount is 1\.0, expected a number from 0 up to"),
        ({"mean_stop": np.inf}, "mean_stop is inf, expected a finite number"),
        ({"scale": 0.0}, r"scale is 0\.0, expected a finite number greater than zero"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        two_action_chain(**arguments)
