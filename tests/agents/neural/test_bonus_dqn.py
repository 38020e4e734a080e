"""DQN with an intrinsic bonus: the bonus beside the inverse matrix, when it is computed, what it is added to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import DQN, MLP, BonusDQN, Epsilon, QLearning
from bayes_mdp.agents.neural.replay import Batch
from bayes_mdp.experiments.training.training_loop import begin, iterate
from bayes_mdp.inference.value import LinearGaussianPrior
from tests.agents.neural.walk import ACTIONS, PLACES, Walk
from tests.tf32 import assert_network

LEARNING = QLearning(discount=0.9, batch_size=8, learning_starts=30, learning_rate=1e-2)
AGENT = BonusDQN(MLP((6,)), LEARNING, Epsilon(0.5, 0.5), LinearGaussianPrior(2.0), scale=0.3)
PLACE: Any = np.eye(PLACES, dtype=np.uint8)
ENVS, STEPS = 2, 30


@pytest.fixture(scope="module")
def run():
    """30 iterations of two walks; the network learns in the second half. Its trunk before every step is kept."""
    key, env = jax.random.key(1), Walk()
    now = begin(key, AGENT, env, ENVS, 40)

    def step(now: Any, i: Any) -> Any:
        return iterate(key, AGENT, env, now, i)[0], now.learner.q.parameters["trunk"]

    return jax.jit(lambda now: jax.lax.scan(step, now, jnp.arange(STEPS)))(now)


def _features(trunk: Any, place: Any) -> np.ndarray:
    (hidden,) = jax.tree.map(lambda p: np.asarray(p, float), trunk)
    return np.maximum(hidden.weight[place] + hidden.bias, 0.0)


def test_bonus_by_the_inverse(run):
    """0.3 sqrt(phi' Sigma_a phi): the inverse of I / 2 + sum phi phi' over the steps before, phi as it then was."""
    later, trunks = run
    rows = later.replay.rows
    place, action = np.asarray(rows.observation)[:STEPS].argmax(-1), np.asarray(rows.action)[:STEPS]
    precision = np.stack([np.eye(6) / 2] * ACTIONS)
    for i in range(STEPS):
        phi = _features(jax.tree.map(lambda x, i=i: x[i], trunks), place[i])
        bonus = [0.3 * np.sqrt(phi[e] @ np.linalg.inv(precision[action[i, e]]) @ phi[e]) for e in range(ENVS)]
        assert_network(np.asarray(rows.extra)[i], bonus, rtol=1e-4, atol=1e-6)
        for e in range(ENVS):
            precision[action[i, e]] += np.outer(phi[e], phi[e])
    weights = np.asarray(jax.tree.leaves(trunks)[0])
    assert np.any(weights[0] != weights[-1])
    assert np.all(weights[0] == weights[14])


def test_it_is_paid(run):
    """The loss is that of DQN with the rewards raised by the bonuses, and by nothing else."""
    learner, rng = run[0].learner, np.random.default_rng(0)
    place, following = rng.integers(0, PLACES, (2, 8))
    action, reward, bonus = rng.integers(0, ACTIONS, 8), rng.normal(size=8), rng.random(8)
    ended, weight = rng.random(8) < 0.3, np.ones(8)
    batch: Any = Batch(PLACE[place], action, reward, ended, PLACE[following], action, weight, bonus, bonus[::-1], ())  # pyright: ignore
    plain = DQN(AGENT.trunk, LEARNING)
    both = learner.q.parameters, learner.q.target
    paid = AGENT.loss(*both, batch)[0]
    assert paid == pytest.approx(float(plain.loss(*both, batch._replace(reward=reward + bonus))[0]), rel=1e-6)
    assert abs(float(paid - plain.loss(*both, batch)[0])) > 1e-3


def test_values(run):
    """Q, and the root of the local variance, which after data is less than before."""
    learner = run[0].learner
    values: Any = AGENT.values(learner, PLACE)
    phi = _features(learner.q.parameters["trunk"], np.arange(PLACES))
    local = np.einsum("bd,ade,be->ba", phi, np.asarray(learner.belief.covariance, float), phi)
    assert_network(values.sd, np.sqrt(local), rtol=1e-4)
    assert np.all(local <= 2 * np.sum(phi**2, 1)[:, None] * (1 + 1e-5))
    np.testing.assert_allclose(values.q, DQN(AGENT.trunk).values(learner.q, PLACE).q, rtol=1e-6)
