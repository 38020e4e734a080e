"""A collapsed posterior goes component by component through closed equations, agents and judgements.

Oracle: `mixture` of the same components with the same weights, which is proven against draws and against numpy.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import PSRL, UBE, MomentMatching
from bayes_mdp.agents.value_uncertainty import moment_matching, ube
from bayes_mdp.agents.value_uncertainty.exact_ube import exact_ube
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Problem
from bayes_mdp.models import MDPSpec, NormalGamma, normal

SPACE = bm.StateActionSpace(3, 2)
OBJECTIVE = bm.Discounted(0.9)
POLICY = np.array([0, 1, 1])


def sticky(space):
    """Rows of an unknown stickiness."""
    stickiness = numpyro.sample("stickiness", dist.HalfNormal(5.0))
    with space.plates():
        rows = 0.5 + stickiness * np.eye(space.n_states)[:, None, :]
        probs = numpyro.sample("transition", dist.Dirichlet(rows))
        reward = jnp.asarray(numpyro.sample("reward", NormalGamma(0.0, 1.0, 2.0, 1.0)))
    return MDPSpec(probs, normal(reward))


@lru_cache
def beliefs() -> tuple[Any, Any]:
    """The collapsed posterior of 16 weighted components after 30 transitions, and their mixture."""
    rng = np.random.default_rng(0)
    state, action, following = (rng.integers(n, size=30) for n in (3, 2, 3))
    data = bm.Transitions(state, action, rng.normal(size=30) + state, np.where(rng.random(30) < 0.7, state, following))
    prior = bm.infer(jax.random.key(0), sticky, None, space=SPACE)
    assert isinstance(prior, bm.inference.CollapsedPosterior)
    collapsed = prior.thinned(jax.random.key(1), 16, moves=0).update(data)
    collapsed = jax.tree.map(np.asarray, collapsed)
    stacked = jax.tree.map(np.asarray, jax.jit(lambda belief: belief.components)(collapsed))
    components = [jax.tree.map(lambda x, k=k: x[k], stacked) for k in range(16)]
    assert float(collapsed.effective_sample_size()) < 15.0, "weights must matter"
    return collapsed, mixture(components, weights=np.asarray(collapsed.weights, np.float64))


def same(function, rtol=2e-5, atol=1e-6):
    """`function` of both beliefs; asserts that every number agrees."""
    ours, expected = (jax.tree.leaves(function(belief)) for belief in beliefs())
    assert len(ours) == len(expected) > 0
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def _exact(*args):
    return exact_ube(jax.random.key(2), *args, num_draws=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "solve",
    [
        moment_matching.value_variance,
        pytest.param(ube.solve, marks=pytest.mark.slow),
        pytest.param(_exact, marks=pytest.mark.slow),
    ],
)
def test_equations(solve):
    same(lambda belief: solve(belief, POLICY, OBJECTIVE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [PSRL(), pytest.param(MomentMatching(), marks=pytest.mark.slow), pytest.param(UBE(), marks=pytest.mark.slow)],
)
def test_agents(agent):
    problem = Problem(SPACE, OBJECTIVE)

    def plan(belief):
        state = agent.init(jax.random.key(3), problem)
        return jax.jit(agent.plan)(jax.random.key(4), problem, state, belief)[0]

    same(plan, rtol=1e-4)


@pytest.mark.slow
def test_judgements():
    key = jax.random.key(5)
    same(lambda belief: bm.policy_value(key, belief, POLICY, OBJECTIVE, num_draws=32).draws, rtol=1e-6)
    same(lambda belief: bm.information.probability_optimal(key, belief, OBJECTIVE, num_draws=32).values)
