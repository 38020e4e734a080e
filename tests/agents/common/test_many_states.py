"""Agents in spaces with many states that list their successors: nothing has S numbers for every state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.experiments.rollout.time_loop import observe_block
from bayes_mdp.mdp import Learner, Problem

S, A, K = 3000, 3, 4
SWEEPING = bm.agents.PrioritizedSweeping()
AGENTS = {
    "PSRL": bm.agents.PSRL(),
    "MomentMatching": bm.agents.MomentMatching(),
    "UBE": bm.agents.UBE(),
    "OIM": bm.agents.OIM(planner=SWEEPING),
    "OIM, exact plans": bm.agents.OIM(),
    "RMax": bm.agents.RMax(planner=SWEEPING),
    "RMax, exact plans": bm.agents.RMax(),
    "MBIEEB": bm.agents.MBIEEB(planner=SWEEPING),
    "E3": bm.agents.E3(),
    "KLearning": bm.agents.KLearning(),
}
EPISODIC = {"KLearning"}


def space_of(states):
    """Pairs lead to their own place and to the next ones on a ring, and all to state 0, which S pairs precede."""
    listed = (np.arange(states)[:, None, None] + np.arange(K) + np.arange(A)[:, None]) % states
    listed[..., -1] = 0
    listed[..., :-1][listed[..., :-1] == 0] = -1
    return bm.StateActionSpace(states, A, successors=listed)


def largest(jaxpr):
    """Numbers in the largest array that a program makes, programs inside it included."""
    size = 0
    for equation in jaxpr.eqns:
        size = max([size, *(getattr(var.aval, "size", 0) for var in equation.outvars)])
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns"))
        for part in inner:
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                size = max(size, largest(part))
    return size


def test_the_search_finds_what_is_dense():
    def inside(x):
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.outer(y, y).sum(-1), x)

    assert largest(jax.make_jaxpr(jax.jit(inside))(jnp.ones(50)).jaxpr) == 2500


@pytest.mark.some(2)
@pytest.mark.parametrize("name", AGENTS)
def test_no_array_of_an_agent_is_dense(name):
    """A start, ten transitions and a plan, as traced: the largest array is a few times [S, A, K]."""
    agent, space, key = AGENTS[name], space_of(S), jax.random.key(0)
    objective = bm.Episodic(3) if name in EPISODIC else bm.Discounted(0.9)
    problem, here = Problem(space, objective, np.eye(1, S)[0]), jnp.arange(10)
    data = bm.Transitions(here, here % A, jnp.ones(10), here, step=here % 3)
    belief = bm.infer(key, bm.models.dirichlet_normal(), None, space=space)

    def program(belief, data):
        state = agent.init(key, problem)
        if isinstance(agent, Learner):
            state = observe_block(agent, problem, state, data, jnp.ones(10))
        else:
            belief = belief.update(data, jnp.ones(10))
        return agent.plan(key, problem, state, belief)

    assert largest(jax.make_jaxpr(program)(belief, data).jaxpr) < 20 * S * A * K < S * S / 10


def test_an_actor_in_many_states():
    """100,000 states, a hub that all lead to: OIM acts and learns (it used to ask for 80 GB)."""
    actor = bm.Actor(
        bm.agents.OIM(planner=SWEEPING), space_of(100_000), objective=bm.Discounted(0.9), key=jax.random.key(0)
    )
    actor.reset(5)
    state = 5
    for _ in range(3):
        action = actor.act(state)
        after = int((state + action + 1) % 100_000)
        actor.observe(state, action, 1.0, after, False, False)
        state = after
    assert actor.belief.tally.counts.shape == (100_000, A, K)
    assert actor.belief.tally.visits.sum() == 3


def test_a_space_without_lists_is_refused_beforehand():
    with pytest.raises(ValueError, match=r"^space has .* about .* expected at most .*StateActionSpace\(successors="):
        bm.agents.OIM().init(jax.random.key(0), Problem(bm.StateActionSpace(200_000, 4), bm.Discounted(0.9)))


@pytest.mark.parametrize("data", [None, bm.Transitions([0], [0], [1.0], [1])], ids=["before data", "after data"])
def test_a_dense_prior_is_refused_beforehand(data):
    """With the size, and the way to do it with lists; `run` and `Actor` infer the same way."""
    space, prior = bm.StateActionSpace(200_000, 4), bm.models.dirichlet_normal()
    message = r"^space has 200000 states and 4 actions, about .* GiB .* list the possible successors"
    with pytest.raises(ValueError, match=message):
        bm.infer(jax.random.key(0), prior, data, space=space)


def test_agents_that_are_dense_refuse_many_listed_states():
    space = space_of(200_000)
    with pytest.raises(ValueError, match=r"^space has 200000 states .* as a mask over all states, about .* GiB"):
        space.support_mask()


def test_lists_that_the_environment_leaves():
    env = bm.envs.riverswim()
    space = bm.StateActionSpace(6, 2, successors=np.tile(np.arange(3), (6, 2, 1)))
    message = "space lists no successor state 3 of state 2, action 1, expected every outcome of env"
    with pytest.raises(ValueError, match=message):
        bm.run(
            bm.agents.OIM(5000.0),
            env,
            objective=bm.Discounted(0.9),
            num_steps=5,
            key=jax.random.key(0),
            options=bm.experiments.RunOptions(space=space),
        )
