"""Learners in a space that lists its successors: the values of the dense space, with counts of listed places only."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents.model_based.empirical_planning import PrioritizedSweeping
from bayes_mdp.experiments.rollout.time_loop import observe_block
from bayes_mdp.mdp import Problem, SparseMDP
from tests.mdp.test_successors import A, K, S, spaces, transitions

KEY = jax.random.key(0)
SWEEPING = PrioritizedSweeping(300, 1e-7, max_successors=S, max_predecessors=S)
LEARNERS = {
    "OIM": bm.agents.OIM(5.0),
    "RMax": bm.agents.RMax(5.0, 4),
    "MBIEWS": bm.agents.MBIEWS(v_max=5.0),
    "FrequencyBonus": bm.agents.FrequencyBonus(v_max=5.0),
    "E3": bm.agents.E3(3),
}
LEGAL = np.ones((S, A), bool)
LEGAL[2, 1] = False


@jax.jit
def learnt(agent, problem, data):
    """State and plan after data."""
    state = observe_block(agent, problem, agent.init(KEY, problem), data, jnp.ones(80))
    policy, state = agent.plan(KEY, problem, state)
    return policy, state


def agree(agent, objective, *, horizon=None):
    """The plans in both spaces, and the state in the listed one."""
    listed, dense = spaces(horizon=horizon, legal=LEGAL)
    data = transitions(listed)
    one, state = learnt(agent, Problem(listed, objective), data)
    other, _ = learnt(agent, Problem(dense, objective), data)
    np.testing.assert_allclose(one.q, other.q, rtol=2e-4, atol=2e-4)
    return state, listed, data


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LEARNERS)
def test_exact_plans_agree(name):
    state, _, _ = agree(LEARNERS[name], bm.Discounted(0.9))
    model = state.model if name == "E3" else state
    assert model.tally.counts.shape == (S, A, K)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_episodes_agree(name):
    agree(LEARNERS[name], bm.Episodic(2), horizon=2)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["OIM", "RMax", "MBIEWS", "FrequencyBonus"])
def test_sweeping_agrees(name):
    """With the lists of the space in place of those that were observed: nothing is lost, and no length is given."""
    swept = replace(LEARNERS[name], planner=SWEEPING)
    state, listed, data = agree(swept, bm.Discounted(0.9))
    assert state.tally.counts.shape == (S, A, K)
    assert state.tally.visits.sum() == len(data.state)
    assert state.predecessors.states.size == listed.successors.size


@pytest.mark.parametrize("planner", [bm.agents.ExactPlanner(), SWEEPING], ids=["exact", "sweeping"])
def test_parts_and_exploitation_agree(planner):
    """Both value functions, and the best policy of the empirical model, which stays a list."""
    agent, objective = replace(LEARNERS["OIM"], planner=planner), bm.Discounted(0.9)
    found = []
    for space in spaces(legal=LEGAL):
        problem = Problem(space, objective)
        _, state = learnt(agent, problem, transitions(spaces(legal=LEGAL)[0]))
        parts = agent.split(problem, state)
        assert isinstance(state.tally.mdp(space), SparseMDP) or space.successors is None
        found.append((parts.qr, parts.qe, agent.exploit(problem, state).q))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [bm.Discounted(0.9), bm.Episodic(2)], ids=lambda x: type(x).__name__)
def test_intervals_with_every_state_listed_in_another_order(objective):
    """MBIE's rows may lead to every state, or to every listed one: where all are listed its values are the same."""
    order = np.argsort(np.random.default_rng(0).random((S, A, S + 1)), -1)
    agent, found = bm.agents.MBIE(0.3, 0.5, 5.0), []
    few, _ = spaces(legal=LEGAL)
    for known in ({"successors": order}, {}, {"successors": few.successors}):
        space = bm.StateActionSpace(S, A, ends=True, legal=LEGAL, **known)
        data = replace(transitions(few), step=np.arange(80) % 2)
        found.append(np.asarray(learnt(agent, Problem(space, objective), data)[0].q)[..., LEGAL])
    listed, dense, tighter = found
    np.testing.assert_allclose(listed, dense, rtol=2e-4, atol=2e-4)
    assert (tighter <= dense + 1e-4).all() and (tighter < dense - 0.01).any()
