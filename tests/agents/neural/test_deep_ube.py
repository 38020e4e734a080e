"""Deep UBE: u beside counts, targets by a loop, optimism before data, the noise, and that it finds the treasure."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents.neural import MLP, DeepUBE, HashedFeatures, QLearning, RandomFeatures, Spec, UnitPrior
from bayes_mdp.agents.neural.dqn import q_values
from bayes_mdp.agents.neural.networks import Dense
from bayes_mdp.agents.neural.replay import Batch
from bayes_mdp.envs import deep_sea_observed
from bayes_mdp.experiments.rollout.execute import time_to_solve
from bayes_mdp.experiments.training.training_loop import begin, run_chunk
from bayes_mdp.inference.value import LinearGaussianPrior

SIZE = 4
LEARNING = QLearning(discount=0.9, batch_size=8, learning_starts=16, learning_rate=1e-2, target_every=4)
AGENT = DeepUBE(
    MLP((6,)),
    HashedFeatures(4, 10),
    LEARNING,
    UnitPrior(noise=0.05, reward_noise=1.0, threshold=0.01),
    local_scale=0.3,
    q_max=1.5,
    beta=0.7,
)
CELLS: Any = np.eye(SIZE**2, dtype=np.uint8).reshape(-1, SIZE, SIZE)


def _run(agent: DeepUBE, steps: int) -> Any:
    env, key = deep_sea_observed(SIZE), jax.random.key(0)
    now = begin(key, agent, env, 1, 100)
    return now, run_chunk(key, agent, env, now, jnp.arange(steps))[0]


@pytest.fixture(scope="module")
def run():
    """Before the first step and after 60 of them."""
    return jax.jit(lambda: _run(AGENT, 60))()


def _u(kappa: Any, w: Any) -> np.ndarray:
    """The formula of the class, U = 2.25."""
    future = kappa * 2.25 + (1 - kappa) * np.clip(w, 0.0, 2.25)
    return np.minimum(0.3 * kappa + 0.81 * future, 2.25)


def _share(now: Any) -> np.ndarray:
    """kappa of every cell and action, counts and rewards taken from the replay of 60 steps by hand."""
    count, square = np.zeros((2, SIZE**2, 2))
    rows = jax.tree.map(lambda x: np.asarray(x)[:60, 0], now.replay.rows)
    for seen, action, reward in zip(rows.observation, rows.action, rows.reward, strict=True):
        count[seen.argmax(), action] += 1
        square[seen.argmax(), action] += reward**2
    assert count.max() > 5
    assert np.sum(count == 0) > 5
    size = square / np.maximum(count, 1)
    noise = 0.05 + size / (size + 0.01)
    return noise / (noise + count)


def test_u_is_that_of_counts(run):
    """By the formula of the class from kappa and w."""
    later = run[1]
    kappa = _share(later)
    w = np.asarray(q_values(AGENT.trunk, later.learner.nets.parameters["w"], CELLS))
    values: Any = AGENT.values(later.learner, CELLS)
    np.testing.assert_allclose(values.u, _u(kappa, w), rtol=1e-5)
    np.testing.assert_allclose(values.sd, np.sqrt(_u(kappa, w)), rtol=1e-5)
    np.testing.assert_allclose(
        values.q, q_values(AGENT.trunk, later.learner.nets.parameters["q"], CELLS), rtol=1e-5, atol=1e-6
    )


def test_first_visit_optimism(run):
    """Whatever the heads say, a pair never tried has the largest u, and one that was tried has less."""
    before, later = run
    loud = eqx.tree_at(lambda x: x.nets.parameters["w"]["q"], later.learner, Dense(jnp.ones((6, 2)), -9 * jnp.ones(2)))
    kappa = np.asarray(AGENT.unknown(later.learner.belief, AGENT.features.apply(later.learner.features, CELLS)))
    for learner in (before.learner, later.learner, loud):
        u = np.asarray(AGENT.values(learner, CELLS).u)
        np.testing.assert_allclose(u[kappa == 1], 0.3 + 0.81 * 2.25, rtol=1e-6)
    assert np.all(u[kappa < 1] < 0.4)


def test_features_are_fixed(run):
    """Training moves both networks and the counts; the hash is as it was drawn, and no optimiser knows it."""
    before, later = run
    np.testing.assert_array_equal(before.learner.features, later.learner.features)
    for name in ("q", "w"):
        pair = (
            jax.tree.leaves(before.learner.nets.parameters[name]),
            jax.tree.leaves(later.learner.nets.parameters[name]),
        )
        assert all(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(*pair, strict=True))
    assert float(jnp.sum(later.learner.belief.count - before.learner.belief.count)) == 60 * 4
    assert before.learner.features.shape not in [x.shape for x in jax.tree.leaves(later.learner.nets)]


def test_targets_by_a_loop(run):
    """(1 - kappa) r + gamma max Q and u at the action of the largest Q + beta sqrt(u), both nothing after an end."""
    _, later = run
    parameters, target, belief = later.learner.nets.parameters, run[0].learner.nets.parameters, later.learner.belief
    rng = np.random.default_rng(3)
    cell, following = rng.integers(0, SIZE**2, (2, 12))
    action, reward, ended = rng.integers(0, 2, 12), rng.normal(size=12), rng.random(12) < 0.3
    weight = np.where(np.arange(12) == 5, 0.0, 1.0)
    own, units = (AGENT.features.apply(later.learner.features, CELLS[x]) for x in (cell, following))
    batch: Any = Batch(CELLS[cell], action, reward, ended, CELLS[following], action, weight, own, units, ())  # pyright: ignore
    q, w = (np.asarray(q_values(AGENT.trunk, parameters[n], CELLS)) for n in ("q", "w"))
    q_next, w_next = (np.asarray(q_values(AGENT.trunk, target[n], CELLS)) for n in ("q", "w"))
    kappa = _share(later)
    q_sum = w_sum = 0.0
    optimistic = 0
    for b in range(12):
        u = _u(kappa[following[b]], w_next[following[b]])
        best = int(np.argmax(q_next[following[b]] + 0.7 * np.sqrt(u)))
        optimistic += best != np.argmax(q_next[following[b]])
        aim_q = (1 - kappa[cell[b], action[b]]) * reward[b] + (0.0 if ended[b] else 0.9 * q_next[following[b]].max())
        aim_w = 0.0 if ended[b] else u[best]
        q_sum += weight[b] * (q[cell[b], action[b]] - aim_q) ** 2 / 24
        w_sum += weight[b] * (w[cell[b], action[b]] - aim_w) ** 2 / 24
    loss, watched = AGENT.loss(parameters, target, batch, belief)
    assert optimistic > 0
    assert watched["loss"] == pytest.approx(q_sum, rel=1e-5)
    assert watched["u_loss"] == pytest.approx(w_sum, rel=1e-5)
    assert loss == pytest.approx(q_sum + w_sum, rel=1e-5)


def test_noise(run):
    """One factor an episode, of |N(0, 1)|; without noise it is 1; per action the choice changes from key to key."""
    learner, seen = run[1].learner, CELLS[:3]

    def act(noise: str, key: int, started: Any, memory: Any) -> Any:
        agent = eqx.tree_at(lambda a: a.beta, DeepUBE(AGENT.trunk, AGENT.features, noise=noise), 30.0)
        return agent.act(jax.random.key(key), learner, memory, seen, jnp.asarray(started), jnp.zeros((), int))

    memory = AGENT.begin(jax.random.key(0), Spec((SIZE, SIZE), np.dtype(np.uint8), 2, 3))
    np.testing.assert_array_equal(act("none", 0, [True] * 3, memory).memory, 1.0)
    first = act("episode", 1, [True] * 3, memory).memory
    assert len(np.unique(first)) == 3
    assert np.all(first > 0)
    second = act("episode", 2, [False, True, False], first).memory
    np.testing.assert_array_equal(second == first, [True, False, True])
    choices = np.array([act("action", k, [False] * 3, memory).action for k in range(20)])
    assert np.all(choices.min(0) < choices.max(0))
    with pytest.raises(ValueError, match="noise"):
        DeepUBE(noise="episodes")


def test_with_a_full_covariance():
    """The linear-Gaussian belief on random features in place of hashed ones: the same share, unknown to known."""
    agent = DeepUBE(AGENT.trunk, RandomFeatures(32), LEARNING, LinearGaussianPrior(variance=20.0))
    _, later = jax.jit(lambda: _run(agent, 60))()
    share = np.asarray(agent.unknown(later.learner.belief, agent.features.apply(later.learner.features, CELLS)))
    assert np.all((share > 0) & (share <= 1 + 1e-5))
    assert share[0].min() < 0.05
    assert np.max(share) > 0.5


@pytest.mark.slow
def test_finds_the_treasure():
    """DeepSea of size 6, which random play solves once in 64 episodes: two seeds in the first 40, for good."""
    env, size = deep_sea_observed(6), 6

    def play(key: Any) -> Any:
        now = begin(key, DeepUBE(), env, 1, 1_000)
        return run_chunk(key, DeepUBE(), env, now, jnp.arange(60 * size))[1]

    seen = jax.jit(lambda keys: jax.lax.map(play, keys))(jax.random.split(jax.random.key(3), 2))
    found = np.asarray(seen.score)[:, size - 1 :: size, 0] > 0
    assert np.all(time_to_solve(found) <= 40)
    assert np.all(found[:, -10:].mean(1) > 0.7)
