"""Agents plan alike in a space that lists its successors and in the dense space with that support."""

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import AGENTS
from bayes_mdp.mdp import Problem
from tests.mdp.test_successors import spaces, transitions

SAMPLERS = {
    "psrl",
    "bayesian_dp",
    "monte_carlo_thompson",
    "variance_optimism",
    "opsrl",
    "rlsvi",
    "gaussian_psrl",
    "boss",
    "lmc_lsvi",
}
"""The law of their draws is the same, a draw is not: rows have another number of gammas."""
LEARNERS = {"bayes_ucbvi", "ucbvi", "ucfh", "ucb_h", "rand_ql"}
"""They plan at the end of an episode, from a table of their own."""


def planned(name, space, objective, data):
    """Values by which the agent chooses, after data; None: it has none, or refuses the objective."""
    agent, key = AGENTS[name](), jax.random.key(0)
    problem = Problem(space, objective)
    belief = bm.infer(key, bm.models.dirichlet_bernoulli(concentration=0.7), data, space=space)
    try:
        policy, _ = agent.plan(key, problem, agent.init(key, problem), belief)
    except (ValueError, TypeError) as error:
        return type(error)
    return getattr(policy, "q", None)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(2)], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("name", sorted(set(AGENTS) - SAMPLERS - LEARNERS))
def test_plans_agree(name, objective):
    horizon = 2 if isinstance(objective, bm.Episodic) else None
    listed, dense = spaces(horizon=horizon)
    one, other = (planned(name, space, objective, transitions(listed)) for space in (listed, dense))
    if one is None or isinstance(one, type):
        assert one is other
        return
    legal = np.isfinite(np.asarray(other))
    np.testing.assert_allclose(np.asarray(one)[legal], np.asarray(other)[legal], rtol=2e-4, atol=2e-4)
