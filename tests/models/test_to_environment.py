"""Environments from specs: frequencies and rewards of what is drawn from them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from bayes_mdp.agents import EpsilonGreedyQ
from bayes_mdp.experiments import run
from bayes_mdp.mdp import Discounted, StateActionSpace
from bayes_mdp.models import (
    MDPSpec,
    dirichlet_normal,
    dirichlet_normal_gamma,
    environment,
    known_rewards,
    random_environment,
)
from bayes_mdp.models.mdp_spec import to_mdp

SPACE = StateActionSpace(3, 2, horizon=2, ends=True)
ROWS = np.random.default_rng(0).dirichlet(np.ones(4), (2, 3, 2))
MEAN = np.random.default_rng(1).normal(size=(2, 3, 2, 4))
START = np.array([0.0, 1.0, 0.0])
N = 40_000


def draw(env, key):
    """N independent transitions from state 2, action 1, step 1."""
    return jax.jit(jax.vmap(lambda key: env.step(key, 2, 1, 1)))(jax.random.split(key, N))


def test_draws_have_the_frequencies_and_the_law_of_their_cell(key):
    """Frequencies and mean rewards within 5.5 standard errors: 8 statistics, false alarms < 1e-6.

    It must catch a reward law read at a neighbouring cell or outcome (means differ by more than .1 somewhere).
    """
    law = dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(jnp.stack([MEAN - 1, MEAN + 1], -1), 0.1)
    )
    env = environment(MDPSpec(ROWS, law.to_event(1)), SPACE, START, name="drawn")
    next_state, reward, terminated = map(np.asarray, draw(env, key))
    outcome, probs = np.where(terminated, 3, next_state), ROWS[1, 2, 1]
    assert env.name == "drawn" and int(env.reset(key)) == 1
    assert (next_state[terminated] == 2).all()
    counts = np.bincount(outcome, minlength=4)
    assert (abs(counts / N - probs) < 5.5 * np.sqrt(probs * (1 - probs) / N)).all()
    for o in range(4):
        error = reward[outcome == o].mean() - MEAN[1, 2, 1, o]
        assert abs(error) < 5.5 * np.sqrt(1.01 / counts[o])


def test_the_mdp_of_an_environment_has_the_mean_of_its_law():
    env: Any = environment(MDPSpec(ROWS, dist.Normal(MEAN, 1.0).to_event(1)), SPACE, START)
    np.testing.assert_allclose(env.mdp.reward, (ROWS * MEAN).sum(-1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(env.mdp.end_probs, ROWS[..., 3], rtol=1e-6)


def test_known_rewards_are_paid_as_they_are(key):
    env = environment(MDPSpec(ROWS, MEAN), SPACE, START)
    next_state, reward, terminated = draw(env, key)
    expected = MEAN[1, 2, 1, np.where(terminated, 3, next_state)]
    np.testing.assert_allclose(reward, expected, rtol=1e-6)


def test_environments_drawn_from_a_prior_vmap(key):
    space, program = StateActionSpace(3, 2), dirichlet_normal()

    @jax.jit
    def run(key):
        def one(key):
            spec: Any = handlers.seed(program, key)(space)
            env = environment(spec, space, jnp.array([1.0, 0.0, 0.0]))
            return env, to_mdp(spec, space).reward, env.step(key, 0, 1)

        return jax.vmap(one)(jax.random.split(key, 5))

    envs, mean, (next_state, reward, terminated) = run(key)
    np.testing.assert_array_equal(envs.mdp.reward, mean)
    assert reward.dtype == jnp.float32 and not terminated.any()
    third = jax.tree.map(lambda leaf: leaf[3], envs)
    again = third.step(jax.random.split(key, 5)[3], 0, 1)
    assert int(again[0]) == int(next_state[3])
    np.testing.assert_allclose(again[1], reward[3], rtol=1e-5)


def test_a_world_of_another_space_is_refused():
    with pytest.raises(ValueError, match="transition_probs has shape"):
        environment(MDPSpec(ROWS, 0.0), StateActionSpace(3, 2), START)
    program: Any = known_rewards(0.0)
    with pytest.raises(TypeError, match="the prior returned a function, expected a MDPSpec"):
        environment(program, SPACE, START)


PRIOR_MDP = dirichlet_normal_gamma(1, 0, 1, 4, 4, rewards_on="outcome")


def test_a_random_environment_is_a_draw_of_its_prior(key):
    """PriorMDP of [BMRL19]: the MDP of the seeded program, from state 0; another key gives another."""
    space = StateActionSpace(4, 2)
    env: Any = random_environment(key, PRIOR_MDP, space)
    spec: Any = handlers.seed(PRIOR_MDP, key)(space)
    np.testing.assert_array_equal(env.mdp.transition_probs, spec.transition_probs)
    np.testing.assert_allclose(
        env.mdp.reward, np.sum(spec.transition_probs * spec.reward.mean, -1), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(env.mdp.initial, [1, 0, 0, 0])
    other: Any = random_environment(jax.random.key(1), PRIOR_MDP, space, initial=np.full(4, 0.25))
    assert not np.array_equal(other.mdp.reward, env.mdp.reward) and other.mdp.initial[3] == 0.25


@pytest.mark.slow
def test_a_random_environment_can_be_run(key):
    env = random_environment(key, PRIOR_MDP, StateActionSpace(4, 2))
    result = run(EpsilonGreedyQ(), env, objective=Discounted(0.9), num_steps=40, key=key)
    assert result["visits"].sum() == 40


def test_a_random_environment_refuses_what_is_no_prior(key):
    program: Any = MDPSpec(ROWS, MEAN)
    no_world: Any = lambda space: dirichlet_normal  # noqa: E731
    no_key: Any = 3
    with pytest.raises(TypeError, match="prior is a MDPSpec, expected a function space -> MDPSpec"):
        random_environment(key, program, SPACE)
    with pytest.raises(TypeError, match="the prior returned a function, expected a MDPSpec"):
        random_environment(key, no_world, SPACE)
    with pytest.raises(TypeError, match="key is 3, expected a typed key"):
        random_environment(no_key, dirichlet_normal(), SPACE)
    with pytest.raises(ValueError, match="initial sums to 2"):
        random_environment(key, PRIOR_MDP, StateActionSpace(4, 2), initial=[1.0, 1.0, 0.0, 0.0])
