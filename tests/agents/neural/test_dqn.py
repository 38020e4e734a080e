# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""DQN: its loss and slope beside numpy, its choice, what it must not learn from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import DQN, MLP, Epsilon, NeuralUBE, QLearning, Spec, UncertaintyHead
from bayes_mdp.agents.neural.dqn import q_values
from bayes_mdp.agents.neural.replay import Batch
from tests.tf32 import assert_network

SPEC = Spec((4,), np.dtype(np.float32), 3, 6)
LEARNING = QLearning(discount=0.9, batch_size=8, learning_starts=1)
AGENTS = [
    DQN(MLP((5,)), LEARNING, Epsilon(0.0, 0.0, 1)),
    DQN(MLP((5,)), QLearning(discount=0.9, batch_size=8, huber=True, double=True), Epsilon(0.0, 0.0, 1)),
    NeuralUBE(MLP((5,)), LEARNING, UncertaintyHead(0)),
]


def _parameters(seed: int, agent: Any) -> Any:
    """Parameters of trunk and Q head."""
    learner = agent.init(jax.random.key(seed), SPEC)
    return learner.q.parameters if isinstance(agent, NeuralUBE) else learner.parameters


def _batch(**changes: Any) -> Batch:
    rng = np.random.default_rng(2)
    seen, following = rng.normal(size=(2, 8, 4)).astype(np.float32)
    ended = np.array([True, False, False, True, False, False, False, False])
    weight = np.array([1, 1, 0, 1, 1, 0, 1, 1], np.float32)
    action, reward = rng.integers(0, 3, 8), rng.normal(size=8).astype(np.float32)
    batch = Batch(seen, action, reward, ended, following, action[::-1], weight, (), (), (action, action))  # pyright: ignore
    return batch._replace(**changes)


def _forward(parameters: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hidden units and Q in float64."""
    (hidden,), head = jax.tree.map(lambda p: np.asarray(p, float), (parameters["trunk"], parameters["q"]))
    h = np.maximum(x @ hidden.weight + hidden.bias, 0.0)
    return h, h @ head.weight + head.bias


@pytest.mark.parametrize("agent", AGENTS, ids=["dqn", "double, huber", "ube"])
def test_loss_and_slope(agent):
    """Of the mean over the batch of the loss of taken - target; the slope of the head by hand."""
    parameters, target, batch = _parameters(0, agent), _parameters(1, agent), _batch()
    (h, q), (_, q_next), (_, online) = (
        _forward(parameters, batch.observation),
        _forward(target, batch.next_observation),
        _forward(parameters, batch.next_observation),
    )
    everyone = np.arange(8)
    best = np.argmax(online if agent.learning.double else q_next, 1)
    aim = batch.reward + 0.9 * np.where(batch.terminated, 0.0, q_next[everyone, best])
    miss = q[everyone, batch.action] - aim
    each = np.where(np.abs(miss) > 1, np.abs(miss) - 0.5, miss**2 / 2) if agent.learning.huber else miss**2 / 2
    pull = batch.weight * (np.clip(miss, -1, 1) if agent.learning.huber else miss) / 8
    slope_head = np.zeros((5, 3))
    for b in range(8):
        slope_head[:, batch.action[b]] += pull[b] * h[b]
    (loss, watched), slope = jax.value_and_grad(agent.loss, has_aux=True)(parameters, target, batch)
    assert_network(loss, np.mean(batch.weight * each), rtol=1e-5)
    assert_network(watched["q"], np.mean(q[everyone, batch.action]), rtol=1e-5)
    assert_network(slope["q"].weight, slope_head, rtol=1e-4, atol=1e-6)


def test_what_does_not_count():
    """Beyond an end and after a cut numbers may be anything; elsewhere they matter."""
    agent = AGENTS[0]
    parameters, target, batch = _parameters(0, agent), _parameters(1, agent), _batch()
    loss = jax.jit(lambda b: agent.loss(parameters, target, b)[0])

    def changed(field: str, where: Any) -> float:
        numbers = np.array(getattr(batch, field))
        numbers[where] += 3.0
        return float(loss(batch._replace(**{field: numbers})))

    before = float(loss(batch))
    assert changed("next_observation", batch.terminated) == before
    assert changed("next_observation", batch.weight == 0) == before
    assert changed("reward", batch.weight == 0) == before
    assert changed("reward", batch.terminated) != before
    assert changed("next_observation", ~batch.terminated & (batch.weight > 0)) != before


def test_choice(key):
    """Greedy without epsilon; epsilon of the environment steps so far, all environments counted."""
    agent = AGENTS[0]
    learner = agent.init(key, SPEC)
    observation = jax.random.normal(jax.random.fold_in(key, 1), (6, 4))
    q = q_values(agent.trunk, learner.parameters, observation)
    np.testing.assert_array_equal(agent.values(learner, observation).q, q)
    started = jnp.zeros(6, bool)
    choice = agent.act(key, learner, (), observation, started, jnp.int32(0))
    np.testing.assert_array_equal(choice.action, np.argmax(q, 1))
    # 600 steps at 6 a time: at iteration 100 nothing is random any more, at iteration 0 everything is.
    fading = DQN(agent.trunk, LEARNING, Epsilon(1.0, 0.0, 600))
    acts = jax.jit(jax.vmap(lambda k, i: fading.act(k, learner, (), observation, started, i).action, (0, None)))
    keys = jax.random.split(key, 64)
    assert np.all(np.asarray(acts(keys, 100)) == np.argmax(q, 1))
    assert np.mean(np.asarray(acts(keys, 99)) == np.argmax(q, 1)) > 0.9
    assert np.mean(np.asarray(acts(keys, 0)) == np.argmax(q, 1)) < 0.6
