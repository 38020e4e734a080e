"""`to_gymnasium`: Gymnasium's own checker, the law of the environment, ends and limits, bad input."""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bayes_mdp as bm
from bayes_mdp.envs import chain, deep_sea, from_gymnasium, riverswim, riverswim_episodic, to_gymnasium
from bayes_mdp.mdp import MDP, Environment, NormalReward


class Coin(eqx.Module):
    """A law of our own: 1 with a probability that depends on pair and outcome, else 0."""

    prob: Any  # [S A O]

    def sample(self, key, cell, outcome):
        """One reward."""
        return jax.random.bernoulli(key, jnp.asarray(self.prob)[(*cell, outcome)]).astype(float)


ROWS = np.array([[[0.2, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.3, 0.3]]])
ENDS = np.array([[0.3, 0.0], [0.0, 0.4]])
PROB = np.array([[[0.1, 0.9, 0.5], [0.0, 0.3, 0.0]], [[0.2, 0.0, 0.0], [0.4, 0.6, 1.0]]])
OUTCOMES = np.concatenate([ROWS, ENDS[..., None]], -1)


def _env(law=None):
    mean = np.sum(OUTCOMES * PROB, -1)
    mdp = MDP(ROWS, mean, end_probs=ENDS, initial=[0.25, 0.75])
    return Environment(mdp, NormalReward(jnp.asarray(mean), jnp.asarray(0.5)) if law is None else law, name="small")


@pytest.mark.parametrize(
    "env",
    [riverswim(), riverswim_episodic(), deep_sea(4), chain(), from_gymnasium("FrozenLake-v1"), _env(Coin(PROB))],
    ids=lambda env: env.name,
)
def test_gymnasium_accepts_it(env):
    """Spaces, types, seeds."""
    made = to_gymnasium(env)
    check_env(made, skip_render_check=True)
    assert made.environment is env and made.observation_space == gymnasium.spaces.Discrete(env.mdp.n_states)


NUM_STEPS = 40_000


@pytest.fixture(scope="module")
def steps():
    """(law, [state, action, outcome, reward] of every step) of random actions, and the first states."""

    def play(law):
        env = to_gymnasium(_env(law), seed=5)
        rng, rows, first = np.random.default_rng(3), [], []
        over, state = True, 0
        for _ in range(NUM_STEPS):
            if over:
                state, _ = env.reset()
                first.append(state)
            action = int(rng.integers(2))
            following, reward, over, truncated, _ = env.step(action)
            assert not truncated
            rows.append((state, action, 2 if over else following, reward))
            state = following
        return np.array(rows), np.array(first)

    return play(None), play(Coin(PROB))


def _z(successes, trials, prob):
    """Standardized frequency; zero or infinity where it is certain."""
    sd = np.sqrt(trials * prob * (1 - prob))
    return 0.0 if successes == trials * prob else (successes - trials * prob) / max(sd, 1e-9)


def test_outcomes_rewards_and_first_states_have_their_laws(steps):
    """Binomial frequencies by cell and outcome, and normal rewards.

    About 40 statistics, each beyond 6 standard deviations with probability 2e-9: false alarms below 1e-6 (binomial
    tails included). Some 8000 steps a pair: a probability off by .04 is caught with probability above .99.
    """
    for which, (rows, first) in enumerate(steps):
        assert abs(_z(np.sum(first == 0), len(first), 0.25)) < 6
        for s, a in np.ndindex(2, 2):
            here = rows[(rows[:, 0] == s) & (rows[:, 1] == a)]
            assert len(here) > 3000
            for o in range(3):
                there = here[here[:, 2] == o]
                assert abs(_z(len(there), len(here), OUTCOMES[s, a, o])) < 6
                if which == 1 and len(there):
                    assert abs(_z(there[:, 3].sum(), len(there), PROB[s, a, o])) < 6
            if which == 0:
                error = (here[:, 3] - np.sum(OUTCOMES * PROB, -1)[s, a]) / 0.5
                assert abs(error.mean()) * np.sqrt(len(here)) < 6
                assert abs(error.var() - 1) * np.sqrt(len(here) / 2) < 6


def test_seeds_reproduce():
    """The seed of a reset, or of the environment, decides everything, drawn rewards included."""

    def play(env, seed):
        rows = [env.reset(seed=seed)[0]]
        for _ in range(30):
            rows.append(env.step(0)[:3])
            if rows[-1][2]:
                rows.append(env.reset()[0])
        return rows

    env = to_gymnasium(_env(Coin(PROB)), seed=4)
    fresh = play(env, None)
    assert play(env, 7) == play(env, 7) != play(env, 8)
    assert fresh == play(to_gymnasium(_env(Coin(PROB)), seed=4), None) == play(env, 4)


def test_horizons_terminate_and_limits_truncate():
    """H steps of an MDP with a step axis; max_episode_steps; then a reset is needed."""
    horizon = deep_sea(4)
    for env, length, terminated in (
        (to_gymnasium(horizon), 4, True),
        (to_gymnasium(riverswim(), max_episode_steps=5), 5, False),
    ):
        env.reset(seed=0)
        flags = [env.step(0)[2:4] for _ in range(length)]
        assert not np.any(flags[:-1]) and flags[-1] == (terminated, not terminated)
        with pytest.raises(gymnasium.error.ResetNeeded, match="expected reset"):
            env.step(0)


def test_an_end_leaves_the_state():
    """The observation of an end is the state it left; an end at the limit terminates."""
    rows, ends = np.zeros((1, 1, 1)), np.ones((1, 1))
    env = to_gymnasium(
        Environment(MDP(rows, ends, end_probs=ends, initial=[1.0]), NormalReward(jnp.asarray(ends))),
        max_episode_steps=1,
    )
    env.reset()
    assert env.step(0) == (0, 1.0, True, False, {})


def test_illegal_actions():
    """The mask says which; taking one is an error."""
    mdp = MDP([[[0.0, 1.0]] * 2, [[1.0, 0.0]] * 2], np.zeros((2, 2)), legal=[[1, 0], [1, 1]], initial=[1.0, 0.0])
    env = to_gymnasium(Environment(mdp, NormalReward(jnp.zeros((2, 2)))))
    _, info = env.reset()
    assert info["action_mask"].tolist() == [1, 0] and info["action_mask"].dtype == np.int8
    with pytest.raises(ValueError, match="action is 1, expected a legal action of state 0"):
        env.step(1)
    assert env.step(0)[4]["action_mask"].tolist() == [1, 1]


def test_bad_input():
    """One sentence."""
    env = to_gymnasium(riverswim())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    half: Any = 0.5
    for action, error in ((2, "action is 2, expected an action index from 0 to 1"), (half, "action is 0.5")):
        with pytest.raises((ValueError, TypeError), match=error):
            env.step(action)
    with pytest.raises(TypeError, match="env is a str, expected an Environment"):
        bm.envs.to_gymnasium("riverswim")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_episode_steps is 0"):
        to_gymnasium(riverswim(), max_episode_steps=0)
