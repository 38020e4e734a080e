"""The adapter of gymnax, where gymnax is installed; what is said where it is not."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.envs import cartpole, gymnax_env
from bayes_mdp.mdp import ObservedEnvironment

BREAKOUT = "Breakout-MinAtar"


def restarted(env, key, num_steps):
    """Random play by hand, as the loop does it: what was stepped from, and what came out."""

    def step(carry, key):
        state, seen = carry
        act, play, again = jax.random.split(key, 3)
        action = jax.random.randint(act, (), 0, env.n_actions)
        out = env.step(play, state, action)
        fresh = env.reset(again)
        ended = out.terminated | out.truncated
        later = jax.tree.map(lambda x, y: jnp.where(ended, x, y), fresh, (out.state, out.observation))
        return later, (state, seen, action, play, out)

    return jax.jit(lambda k: jax.lax.scan(step, env.reset(k), jax.random.split(k, num_steps))[1])(key)


def test_without_gymnax_it_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(ImportError, match=r"'Nowhere' needs gymnax: pip install 'gymnax>=1.0'.*jax below 0.12"):
        gymnax_env("Nowhere")


def test_steps_of_breakout_are_gymnax_own():
    gymnax = pytest.importorskip("gymnax")
    theirs, params = gymnax.make(BREAKOUT)
    env = gymnax_env(BREAKOUT)
    assert isinstance(env, ObservedEnvironment)
    assert (env.name, env.n_actions, env.observation_shape, env.observation_dtype) == (
        "gymnax:Breakout-MinAtar",
        3,
        (10, 10, 4),
        np.uint8,
    )
    state, seen, action, play, out = restarted(env, jax.random.key(1), 300)

    def step(key, state, action):
        plane, _, reward, terminated, _ = theirs.step_env(key, state, action, params)
        return theirs.get_obs(state), plane, reward, terminated

    before, after, reward, terminated = jax.vmap(step)(play, state, action)
    assert seen.dtype == out.observation.dtype == np.uint8
    for ours, gymnaxs in ((seen, before), (out.observation, after), (out.reward, reward), (out.score, reward)):
        np.testing.assert_array_equal(ours, gymnaxs)
    np.testing.assert_array_equal(out.terminated, terminated)
    assert out.terminated.sum() > 5 and out.reward.sum() > 0 and not out.truncated.any()
    # The last observation is of the episode that ended (its ball lies on the floor), not of the next one.
    last = out.observation[np.asarray(out.terminated)]
    assert (last[:, 9, :, 1].sum(1) == 1).all()


def test_time_limits_truncate_and_an_end_beats_them():
    pytest.importorskip("gymnax")
    env = gymnax_env("CartPole-v1")
    env = gymnax_env("CartPole-v1", env.params.replace(max_steps_in_episode=12))
    *_, out = restarted(env, jax.random.key(0), 400)
    assert out.truncated.sum() > 5 and out.terminated.sum() > 2
    assert not (out.truncated & out.terminated).any()
    state, _ = env.reset(jax.random.key(0))
    both = env.step(jax.random.key(0), state.replace(theta=0.3, time=jnp.asarray(11)), jnp.asarray(0))
    assert both.terminated and not both.truncated


def test_cartpole_of_gymnax_is_ours():
    pytest.importorskip("gymnax")
    from bayes_mdp.envs.observed.classic_control import CartPoleState

    state, _, action, _, theirs = restarted(gymnax_env("CartPole-v1"), jax.random.key(2), 200)
    physics = jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot], 1)
    ours = jax.vmap(cartpole().step, (None, 0, 0))(jax.random.key(0), CartPoleState(physics, state.time), action)
    np.testing.assert_allclose(ours.observation, theirs.observation, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)


@pytest.mark.parametrize("game", ["Asterix", "Breakout", "Freeway", "SpaceInvaders"])
def test_minatar_planes_are_zeros_and_ones(game):
    gymnax = pytest.importorskip("gymnax")
    name = f"{game}-MinAtar"
    theirs, _ = gymnax.make(name)
    state, seen, *_ = restarted(gymnax_env(name), jax.random.key(3), 60)
    np.testing.assert_array_equal(jax.vmap(theirs.get_obs)(state), seen)
    assert set(np.unique(seen)) == {0, 1}


def test_an_environment_is_made_once():
    pytest.importorskip("gymnax")
    assert gymnax_env(BREAKOUT).env is gymnax_env(BREAKOUT).env
    assert jax.tree.structure(gymnax_env(BREAKOUT)) == jax.tree.structure(gymnax_env(BREAKOUT))


def test_refusals_are_one_sentence():
    pytest.importorskip("gymnax")
    with pytest.raises(ValueError, match=r"name_or_env is 'breakout-minatar', .*did you mean 'Breakout-MinAtar'\?"):
        gymnax_env("breakout-minatar")
    with pytest.raises(TypeError, match=r"the actions of Pendulum-v1 are Box\(.*expected a Discrete space"):
        gymnax_env("Pendulum-v1")
    with pytest.raises(TypeError, match="name_or_env is 7, expected a name or an environment of gymnax"):
        gymnax_env(7)
