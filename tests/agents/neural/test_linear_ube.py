"""The linear UBE agent: fixed features, so that the belief can be had again from the replay at any time."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import MLP, NeuralUBE, QLearning, RandomFeatures, UncertaintyHead
from bayes_mdp.agents.neural.features import Box, Fourier
from bayes_mdp.envs.observed.classic_control import mountain_car
from bayes_mdp.experiments.training.training_loop import begin, run_chunk
from bayes_mdp.inference.value import Bernoulli, LastLayerLaplacePrior, LinearGaussianPrior

STEPS, ENVS = 60, 2
BOX = Box((-1.2, -0.07), (0.6, 0.07))


def agent_on(trunk: Any, posterior: Any) -> NeuralUBE:
    """Learns from the tenth step on."""
    learning = QLearning(learning_rate=1e-2, learning_starts=20, batch_size=8)
    return NeuralUBE(trunk, learning, UncertaintyHead(width=0), posterior, beta=1.0)


def run(trunk: Any, posterior: Any) -> Any:
    """State before the first and after the last of 60 steps of two cars."""
    agent, env = agent_on(trunk, posterior), mountain_car(25)

    def whole() -> Any:
        now = begin(jax.random.key(1), agent, env, ENVS, STEPS)
        return now, run_chunk(jax.random.key(2), agent, env, now, jnp.arange(STEPS))[0]

    return jax.jit(whole)()


def rebuilt(trunk: Any, now: Any, prior: Any) -> Any:
    """The belief from all rows of the replay, under the trunk of now."""
    rows = jax.tree.map(lambda x: x.reshape(STEPS * ENVS, *x.shape[2:]), now.replay.rows)
    features = trunk.apply(now.learner.q.parameters["trunk"], rows.observation)
    return prior.belief(*now.learner.belief.mean.shape).update(features, rows.action)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "trunk",
    [Fourier(BOX, 2), MLP((8,)), pytest.param(RandomFeatures(12), marks=pytest.mark.slow)],
    ids=lambda t: type(t).__name__,
)
def test_the_belief_is_never_stale(trunk):
    """Sigma as it was learnt step by step is that of the replay under the features of now; a learned trunk's is not.

    Parameters of a fixed trunk are the same to the bit; Q and u have moved.
    """
    prior = LinearGaussianPrior(10.0)
    start, now = run(trunk, prior)
    fresh = rebuilt(trunk, now, prior)
    fixed = not isinstance(trunk, MLP)
    assert np.allclose(now.learner.belief.covariance, fresh.covariance, atol=1e-4) == fixed
    before, after = (jax.tree.leaves(x.learner.q.parameters["trunk"]) for x in (start, now))
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True)) == fixed
    assert not np.allclose(start.learner.q.parameters["q"].weight, now.learner.q.parameters["q"].weight)
    assert not np.allclose(start.learner.u[0].weight, now.learner.u[0].weight)


def test_with_a_laplace_posterior():
    """It takes the place of the linear-Gaussian one; the variance of phi . w falls where the car has been."""
    trunk = Fourier(BOX, 2)
    prior = LastLayerLaplacePrior(Bernoulli(), 10.0, of_response=False)
    start, now = run(trunk, prior)
    x = trunk.apply((), now.replay.rows.observation[0])
    before, after = start.learner.belief.variance(x), now.learner.belief.variance(x)
    assert np.all(after < before)
    assert np.allclose(now.learner.belief.covariance, rebuilt(trunk, now, prior).covariance, atol=1e-3)
