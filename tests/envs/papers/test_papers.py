"""The environments of the papers: tables, stored optima and simulation, against dense solves in numpy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import ENVS, chain, deep_sea, deep_sea_continuing, riverswim, riverswim_episodic
from bayes_mdp.envs.papers.chain_mdps import reachable
from bayes_mdp.mdp import SparseMDP


def arrays(env):
    mdp = env.mdp.to_dense() if isinstance(env.mdp, SparseMDP) else env.mdp
    return np.asarray(mdp.transition_probs, float), np.asarray(mdp.reward, float), np.asarray(mdp.initial, float)


def optimal_q(rows, reward, discount):
    """Policy iteration with dense solves."""
    policy = np.zeros(len(reward), int)
    while True:
        at = np.arange(len(reward)), policy
        v = np.linalg.solve(np.eye(len(reward)) - discount * rows[at], reward[at])
        q = reward + discount * rows @ v
        better = q.argmax(-1)
        if np.all(q[at] >= q.max(-1) - 1e-10):
            return q
        policy = better


def optimal_gain(rows, reward, policy=None):
    """Howard's policy iteration for a unichain MDP: gain and bias by one linear system; starts from a unichain one."""
    n, policy = len(reward), np.ones(len(reward), int) if policy is None else policy
    for _ in range(100):
        at = np.arange(n), policy
        system = np.block([[np.eye(n) - rows[at], np.ones((n, 1))], [np.eye(n)[:1], np.zeros((1, 1))]])
        *bias, gain = np.linalg.solve(system, np.append(reward[at], 0.0))
        q = reward + rows @ np.array(bias)
        if np.all(q[at] >= q.max(-1) - 1e-10):
            return gain
        policy = q.argmax(-1)
    raise AssertionError("policy iteration did not stop")


def finite_horizon(rows, reward, horizon):
    v = np.zeros(reward.shape[-2])
    for h in reversed(range(horizon)):
        at = (h,) if reward.ndim == 3 else ()
        v = (reward[at] + rows[at] @ v).max(-1)
    return v


@pytest.mark.usefixtures("x64")
def test_riverswim_has_the_published_values():
    env = riverswim()
    rows, reward, initial = arrays(env)
    assert env.optimum == pytest.approx(optimal_gain(rows, reward), abs=1e-9)
    assert env.optimum == pytest.approx(668.807, abs=5e-4)
    v = optimal_q(rows, reward, 0.95).max(-1)
    np.testing.assert_allclose(v, [6137.9, 7214.8, 8839.5, 10931.8, 13547.1, 16795.6], atol=0.05)
    assert initial @ finite_horizon(rows, reward, 5000) == pytest.approx(3.3365e6, abs=50)
    left = rows[:, 0]
    total, state = 0.0, initial
    for _ in range(5000):
        total, state = total + state @ reward[:, 0], state @ left
    assert total == pytest.approx(24_993, abs=1)


@pytest.mark.usefixtures("x64")
def test_episodic_riverswim_has_the_published_values():
    env = riverswim_episodic()
    rows, reward, initial = arrays(env)
    v = finite_horizon(rows, reward, 20)
    np.testing.assert_allclose(v, [3.397264, 4.052651, 5.301868, 6.678367, 8.094, 9.521445], atol=1e-6)
    assert env.optimum == pytest.approx(initial @ v, abs=5e-7)
    assert optimal_gain(rows, reward) == pytest.approx(0.42862, abs=5e-6)


@pytest.mark.usefixtures("x64")
def test_chain_has_the_published_values():
    env = chain()
    rows, reward, _ = arrays(env)
    assert env.optimum == pytest.approx(optimal_gain(rows, reward), abs=1e-12)
    q = optimal_q(rows, reward, 0.95)
    np.testing.assert_allclose(q[:, 0], [61.38, 64.89, 69.51, 75.59, 83.59], atol=5e-3)
    np.testing.assert_allclose(q[:, 1], [60.58, 61.46, 62.61, 64.13, 66.13], atol=5e-3)
    assert optimal_q(rows, reward, 0.99).max(-1)[0] == pytest.approx(354.77, abs=5e-3)
    assert chain(slip=0.1).optimum is None


@pytest.mark.some(2)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", [2, 5, 10])
def test_deep_sea_is_solved_by_going_right(size):
    env = deep_sea(size)
    rows, reward, initial = arrays(env)
    assert rows.shape == (size, size, 2, size)
    assert initial @ finite_horizon(rows, reward, size) == pytest.approx(env.optimum, abs=1e-12)
    occupied = initial
    for h in range(size):
        np.testing.assert_array_equal(occupied > 0, reachable(size)[h])
        occupied = occupied @ rows[h].mean(1)
    assert reachable(size).sum() == size * (size + 1) // 2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("n_states", "gain", "value"),
    [
        (4, 0.111064, 0.809073),
        (6, 0.096216, 0.599220),
        (8, 0.083507, 0.456275),
        (10, 0.073469, 0.355673),
        (12, 0.065398, 0.281212),
        (20, 0.044482, None),
        (30, 0.031095, None),
        (40, 0.023761, None),
    ],
)
def test_continuing_deep_sea_has_the_published_values(n_states, gain, value):
    env = deep_sea_continuing(n_states)
    rows, reward, _ = arrays(env)
    assert env.optimum == pytest.approx(gain, abs=1e-6)
    assert env.optimum == pytest.approx(optimal_gain(rows, reward), abs=1e-12)
    if value is not None:
        assert optimal_q(rows, reward, 0.9).max(-1)[0] == pytest.approx(value, abs=1e-6)


UNKNOWN: Any = "some"
SMALLER: dict[str, Any] = {
    "flag_maze": {"layout": "S.f\n..G"},
    "maze_with_subgoals": {"size": 5},
    "racetrack": {"track": "Sx\nSF"},
    "two_action_chain": {"depth": 6},
}
NUM_DRAWS = 40_000
THRESHOLD = 7.0  # standard deviations: 1000 comparisons at 2.6e-12 each


def worst_deviation(env, key, step=0, truth=None):
    """Largest deviation of simulated outcome frequencies from the rows of `truth`, and of mean rewards, in sds."""
    rows, reward, _ = arrays(truth or env)
    rows, reward = (rows[step], reward[step]) if rows.ndim == 4 else (rows, reward)
    s, a = (x.ravel() for x in np.indices(reward.shape))
    simulate = jax.vmap(jax.vmap(env.step, (0, None, None, None)), (0, 0, 0, None))
    keys = jax.random.split(key, (len(s), NUM_DRAWS))
    next_state, paid, terminated = jax.jit(simulate)(keys, s, a, step)
    ends = (env.mdp.end_probs is not None) * np.asarray(1 - rows.sum(-1))[s, a]
    np.testing.assert_allclose(np.asarray(terminated).mean(1), ends, atol=1e-6)  # zero or one in all of them
    follows = ~np.asarray(terminated)[..., None]
    frequency = np.mean((np.asarray(next_state)[..., None] == np.arange(rows.shape[-1])) & follows, 1)
    p = rows[s, a]
    np.testing.assert_array_equal(frequency[(p == 0) | (p == 1)], p[(p == 0) | (p == 1)])
    inner = (p > 0) & (p < 1)
    rates = np.abs(frequency - p)[inner] / np.sqrt(p * (1 - p) / NUM_DRAWS)[inner]
    paid = np.asarray(paid, float)
    spread = np.where(paid.std(1) > 0, paid.std(1) / np.sqrt(NUM_DRAWS), 1e-6 * (1 + np.abs(reward[s, a])))
    return max([0.0, *rates, *(np.abs(paid.mean(1) - reward[s, a]) / spread)])


@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted(set(ENVS) - {"icu_sepsis"}))  # has 17,875 pairs, and a test of its own
def test_simulation_follows_the_table(name, key):
    """Frequencies and mean rewards of 40,000 steps from every pair; false alarms < 1e-8, catches an error of 0.03."""
    env = ENVS[name](**SMALLER.get(name, {}))
    assert worst_deviation(env, key) < THRESHOLD


def test_the_simulation_test_catches_a_wrong_slip(key):
    assert worst_deviation(chain(slip=0.23), key, truth=chain()) > THRESHOLD


def test_deep_sea_noise_has_its_scale(key):
    """Variance of 40,000 rewards; relative sd 0.7 %: 6 sd are 4.3 %, false alarm 2e-9, catches a scale off by 5 %."""
    keys = jax.random.split(key, NUM_DRAWS)
    draw = jax.jit(jax.vmap(lambda k, env: env.step(k, 9, 1, 9)[1], (0, None)))
    paid = np.asarray(draw(keys, deep_sea(10, noise=0.5)))
    assert paid.std() == pytest.approx(0.5, rel=0.0213)
    assert abs(paid.mean() - 0.999) < 6 * 0.5 / np.sqrt(NUM_DRAWS)
    silent = np.asarray(draw(keys, deep_sea(10, noise=0.0)))
    np.testing.assert_allclose(silent, 0.999, rtol=1e-6)


def test_continuing_deep_sea_noise_is_a_flag(key):
    delta = 0.1 * np.exp(-1)
    keys = jax.random.split(key, 2000)
    draw = jax.jit(jax.vmap(lambda k, env: env.step(k, 1, 0)[1], (0, None)))
    assert np.all(np.asarray(draw(keys, deep_sea_continuing(4))) == 0)
    assert np.asarray(draw(keys, deep_sea_continuing(4, noise="delta"))).std() == pytest.approx(delta, rel=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: chain(slip=1.5), r"slip is 1\.5, expected a probability"),
        (lambda: deep_sea(1), "size is 1, expected an integer of at least 2"),
        (lambda: deep_sea(5, noise=-1.0), r"noise is -1\.0, expected a finite number"),
        (lambda: deep_sea_continuing(2), "n_states is 2, expected an integer of at least 3"),
        (lambda: deep_sea_continuing(4, noise=UNKNOWN), "noise is 'some', expected one of none, delta"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_environments_go_through_jit_as_arguments():
    env = riverswim()
    leaves = jax.tree.leaves(env)
    assert all(eqx.is_array(leaf) for leaf in leaves)
    first = jax.jit(lambda env, key: env.reset(key))(env, jax.random.key(0))
    assert int(first) in (1, 2)
    assert jnp.issubdtype(first.dtype, jnp.integer)
