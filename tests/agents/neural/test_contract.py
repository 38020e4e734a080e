# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""What every deep agent keeps to, whoever wrote it; and a last layer of the user's own."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from bayes_mdp.agents.neural import NEURAL_AGENTS, DeepUBE, NeuralAgent, NeuralUBE, RandomFeatures, Spec
from bayes_mdp.experiments.training.training_loop import begin, iterate
from tests.agents.neural.walk import ACTIONS, PLACES, Walk

ENVS, ITERATIONS, ROWS = 2, 16, 12
SPEC = Spec((PLACES,), np.dtype(np.uint8), ACTIONS, ENVS)
traces: list[str] = []


def small(agent: Any) -> Any:
    """The agent, learning from the fourth iteration on."""
    return dataclasses.replace(agent, learning=dataclasses.replace(agent.learning, learning_starts=8, batch_size=8))


@jax.jit
def run(key: Any, agent: Any) -> Any:
    """State at the end, what was watched, what the agent thinks of three places, what it does there."""
    traces.append(type(agent).__name__)
    key_begin, key_run = jax.random.split(key)
    first = begin(key_begin, agent, Walk(), ENVS, ROWS)
    now, seen = jax.lax.scan(lambda n, i: iterate(key_run, agent, Walk(), n, i), first, jnp.arange(ITERATIONS))
    return first, now, seen, agent.values(now.learner, jnp.eye(PLACES, dtype=jnp.uint8)[:3])


def _same(a: Any, b: Any) -> bool:
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in leaves)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", list(NEURAL_AGENTS))
def test_contract(key, name):
    """Names and numbers of arguments; shapes and types; a pure function of its key; one trace; finite numbers."""
    agent = NEURAL_AGENTS[name]()
    assert isinstance(agent, NeuralAgent)
    for method in ("init", "begin", "act", "learn", "values"):
        own, asked = (list(inspect.signature(getattr(x, method)).parameters) for x in (type(agent), NeuralAgent))
        assert own == asked, method
    agent, before = small(agent), len(traces)
    first, now, seen, values = jax.device_get(run(key, agent))
    assert _same(jax.device_get(run(key, agent)), (first, now, seen, values))
    other = jax.device_get(run(jax.random.fold_in(key, 1), agent))
    assert not _same(other[1].replay.rows.action, now.replay.rows.action)
    assert not _same(other[0].learner, first.learner)
    assert len(traces) - before == 1
    action = now.replay.rows.action
    assert action.dtype == np.int32
    assert action.shape == (ROWS, ENVS)
    assert action.min() >= 0
    assert action.max() < ACTIONS
    assert not _same(first.learner, now.learner)
    for leaf in jax.tree.leaves((now.learner, now.memory, now.replay)):
        assert np.all(np.isfinite(leaf))
    for watched in seen.watched.values():  # nan where nothing was learnt
        assert watched.shape == (ITERATIONS,)
        assert np.isfinite(watched[-1])
    assert values.q.shape == (3, ACTIONS)
    for found in (values.q, values.sd, values.u):
        assert found is None or (found.shape == (3, ACTIONS) and np.all(np.isfinite(found)))
    assert values.sd is None or np.all(values.sd >= 0)
    if values.u is not None:
        np.testing.assert_allclose(values.sd, np.sqrt(values.u), rtol=1e-6)


class Visits(eqx.Module):
    """A user's own last layer: how often an action was taken with which unit largest; variance 1 / (1 + visits)."""

    count: Array

    def variance(self, features: Any) -> Any:
        """Of every action."""
        return 1.0 / (1.0 + self.count[jnp.argmax(features, 1)])

    def initial_variance(self, features: Any) -> Any:
        """One."""
        return jnp.ones(len(features))

    def update(self, features: Any, action: Any, target: Any = None) -> "Visits":
        """One more, whatever was paid."""
        del target
        return Visits(self.count.at[jnp.argmax(features, 1), action].add(1.0))


class VisitsPrior(eqx.Module):
    """Nothing was seen."""

    def belief(self, n_actions: int, num_features: int) -> Visits:
        """Of so many units."""
        return Visits(jnp.zeros((num_features, n_actions)))


def test_a_last_layer_of_ones_own(key):
    """Every step of every environment is counted once, from the first one on; the deep mode takes it too."""
    _, now, seen, values = run(key, small(NeuralUBE(posterior=VisitsPrior())))
    assert jnp.sum(now.learner.belief.count) == ITERATIONS * ENVS
    assert np.all(np.isfinite(values.u))
    assert np.isfinite(seen.watched["u_loss"][-1])
    deep = small(DeepUBE(features=RandomFeatures(32), posterior=VisitsPrior()))
    _, now, _, values = jax.eval_shape(run, key, deep)
    assert now.learner.belief.count.shape == (32, ACTIONS)
    assert values.u.shape == (3, ACTIONS)
