"""WideNarrow: its published values by dense solves, its structure, the law of its rewards."""

from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.envs import wide_narrow
from bayes_mdp.mdp import AverageReward, Discounted
from bayes_mdp.planning import solve


def best_values(mdp, discount):
    """V* by value iteration in numpy over legal actions alone, to 1e-12."""
    rows, reward = np.asarray(mdp.transition_probs), np.where(mdp.legal, mdp.reward, -np.inf)
    v = np.zeros(len(reward))
    for _ in range(400):
        v = (reward + discount * rows @ v).max(-1)
    return v


@pytest.mark.usefixtures("x64")
def test_the_published_values():
    mdp = wide_narrow().mdp
    np.testing.assert_allclose(best_values(mdp, 0.9), [1.845018, 1.494465, 1.660517], atol=5e-7)
    np.testing.assert_allclose(solve(mdp, Discounted(0.9)).v, best_values(mdp, 0.9), atol=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("num_pairs", "gain"), [(1, 1 / 6), (2, 1 / 5)])
def test_the_optimum_is_the_optimal_gain(num_pairs, gain):
    env = wide_narrow(4, num_pairs)
    assert env.optimum == pytest.approx(gain, abs=1e-15)
    assert float(solve(env.mdp, AverageReward()).gain) == pytest.approx(gain, abs=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("means", [{"mean_low": 0.2}, {"mean_low": 0.9}, {"mean_high": -1.0, "mean_low": -2.0}])
def test_the_optimum_follows_the_means(means):
    env = wide_narrow(3, 2, **means)
    assert float(solve(env.mdp, AverageReward()).gain) == pytest.approx(env.optimum, abs=1e-9)


def test_wide_and_narrow_states_take_turns_in_a_ring():
    env = wide_narrow(5, 3)
    mdp: Any = env.mdp
    assert mdp.reward.shape == (7, 5)
    np.testing.assert_array_equal(np.asarray(mdp.legal).sum(-1), [5, 1, 5, 1, 5, 1, 1])
    assert np.all(mdp.legal[:, 0])
    np.testing.assert_array_equal(np.argmax(mdp.transition_probs, -1), np.tile([[1], [2], [3], [4], [5], [6], [0]], 5))
    assert set(np.unique(mdp.transition_probs)) == {0.0, 1.0}
    np.testing.assert_array_equal(mdp.initial, np.eye(7)[0])
    np.testing.assert_array_equal(np.asarray(mdp.reward)[:, 0], [0.5, 0, 0.5, 0, 0.5, 0, 0])
    assert np.all(np.asarray(mdp.reward)[:, 1:] == 0)


def test_rewards_have_their_law(key):
    """20,000 rewards of each legal pair.

    6 sd bands: sd of a mean is 1 / sqrt(20000), of a deviation 1 / sqrt(40000) of its scale; 14 comparisons at 2e-9
    each. Catches a mean off by 0.09 (of sd 1) or a scale off by 6 %, above all the two scales exchanged.
    """
    env = wide_narrow(3, 1, scale_high=2.0, scale_low=0.5)
    keys = jax.random.split(key, 20_000)
    draw = jax.jit(jax.vmap(lambda k, s, a: env.step(k, s, a)[1], (0, None, None)))
    for state, action, mean, scale in [(0, 0, 0.5, 2.0), (0, 1, 0, 0.5), (0, 2, 0, 0.5), (1, 0, 0, 0.5)]:
        paid = np.asarray(draw(keys, state, action))
        assert abs(paid.mean() - mean) < 6 * scale / np.sqrt(20_000)
        assert abs(paid.std() / scale - 1) < 6 / np.sqrt(40_000)
    assert np.all(np.asarray(draw(keys, 2, 0)) == 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 1}, "width is 1, expected an integer of at least 2"),
        ({"num_pairs": 0}, "num_pairs is 0, expected an integer of at least 1"),
        ({"mean_low": np.nan}, "mean_low is nan, expected a finite number"),
        ({"scale_high": -1.0}, r"scale_high is -1\.0, expected a finite number, zero or greater"),
        ({"scale_low": np.inf}, "scale_low is inf, expected a finite number, zero or greater"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        wide_narrow(**arguments)
