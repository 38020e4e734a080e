"""Prioritized sweeping in an agent: it agrees with the exact planner, lane by lane, and does what it is told."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import OIM
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace, Transitions

N, ACTIONS, STEPS = 20, 3, 250
TASK = Problem(StateActionSpace(N, ACTIONS), Discounted(0.95))
KEY = jax.random.key(0)


def random_play(seed: int) -> Transitions:
    """A uniform policy in a random world of 20 states, 3 successors a pair, now and then an end; [STEPS]."""
    rng = np.random.default_rng(seed)
    successor, reward = rng.integers(0, N, (N, ACTIONS, 3)), rng.normal(size=(N, ACTIONS))
    rows, state = [], 0
    for _ in range(STEPS):
        action = int(rng.integers(ACTIONS))
        after, over = int(successor[state, action, rng.integers(3)]), bool(rng.random() < 0.05)
        rows.append((state, action, reward[state, action] + rng.normal(), after, over))
        state = int(rng.integers(N)) if over else after
    s, a, r, y, over = (jnp.asarray(np.array(x)) for x in zip(*rows, strict=True))
    return Transitions(s, a, r, y, over, None, None)


@jax.jit
def after(agent: Any, state: Any, data: Transitions, weight: Any) -> Any:
    """The agent's state after a block, lane by lane."""

    def lane(state: Any, data: Any, weight: Any) -> Any:
        step = lambda state, seen: (agent.observe(TASK, state, *seen), None)  # noqa: E731
        return jax.lax.scan(step, state, (data, weight))[0]

    return jax.vmap(lane)(state, data, weight)


@jax.jit
def split(agent: Any, state: Any) -> Any:
    """Both value functions of every lane."""
    return jax.vmap(lambda own: agent.split(TASK, own))(state)


def lanes(agent: Any, number: int) -> Any:
    """States that have seen nothing."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (number, *x.shape)), agent.init(KEY, TASK))


def stacked(seeds: Any) -> Transitions:
    """Histories of several lanes."""
    return jax.tree.map(lambda *x: jnp.stack(x), *map(random_play, seeds))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_many_pops_are_the_exact_plan():
    """Three lanes; the sum is unique, and so are its parts, as no actions tie."""
    data, weight = stacked(range(3)), jnp.ones((3, STEPS))
    agent = OIM(v_max=8.0, planner=PrioritizedSweeping(1000, 1e-9))
    swept = split(agent, after(agent, lanes(agent, 3), data, weight))
    agent = OIM(v_max=8.0, planner=ExactPlanner())
    exact = split(agent, after(agent, lanes(agent, 3), data, weight))
    np.testing.assert_allclose(swept.qr + swept.qe, exact.qr + exact.qe, rtol=1e-7)
    np.testing.assert_allclose(swept.qr, exact.qr, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(swept.best, exact.best)
    np.testing.assert_array_equal(swept.best_r, exact.best_r)


@pytest.mark.slow
def test_a_lane_does_not_know_of_the_others():
    """Lanes stop together, when nothing waits in any: each is what it is alone. Weight zero changes nothing."""
    agent = OIM(v_max=8.0, planner=PrioritizedSweeping(4, 1e-3))
    data, weight = stacked(range(3)), jnp.ones((3, STEPS))
    together = after(agent, lanes(agent, 3), data, weight)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: jnp.repeat(x[i : i + 1], 3, 0), data)
        alone = after(agent, lanes(agent, 3), one, weight * jnp.array([[1.0], [0.0], [1.0]]))
        for x, y in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(x[i], y[0])
            np.testing.assert_array_equal(y[0], y[2])
        for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(agent.init(KEY, TASK)), strict=True):
            np.testing.assert_array_equal(x[1], y)


@pytest.mark.few(1)
@pytest.mark.parametrize("num_pops", [1, 3])
def test_no_more_than_so_many_states_are_taken_out(num_pops):
    """Every step backs up its state and at most the predecessors of `num_pops` states."""
    agent = OIM(v_max=8.0, planner=PrioritizedSweeping(num_pops, 0.0))
    state = after(agent, lanes(agent, 1), stacked([0]), jnp.ones((1, STEPS)))
    most = jnp.max(jnp.sum(state.tally.predecessor[0] < N, -1))
    assert STEPS < int(state.sweeps.num_backups[0]) <= STEPS * (1 + num_pops * int(most))


def test_lists_too_short():
    """What is lost is not learnt; the values stay those of what was counted."""
    agent = OIM(v_max=8.0, planner=PrioritizedSweeping(200, 1e-6, max_successors=2, max_predecessors=4))
    state = after(agent, lanes(agent, 1), stacked([0]), jnp.ones((1, STEPS)))
    tally = state.tally
    assert 0 < int(tally.lost[0]) < STEPS
    assert float(tally.visits.sum()) == STEPS - int(tally.lost[0])
    found = split(agent, state)
    q = np.asarray(found.qr + found.qe)[0]
    n, counts = np.asarray(tally.visits[0]), np.asarray(tally.counts[0])
    following = (counts * q.max(-1)[np.asarray(tally.successor[0])]).sum(-1)
    np.testing.assert_allclose(q, (np.asarray(tally.total[0]) + 8.0 + 0.95 * following) / (n + 1), atol=1e-3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PrioritizedSweeping(2.5), TypeError, "num_pops is 2.5, expected an integer of at least 1"),  # pyright: ignore
        (
            lambda: PrioritizedSweeping(threshold=np.nan),
            ValueError,
            "threshold is nan, expected a number, zero or greater",
        ),
        (
            lambda: PrioritizedSweeping(max_predecessors=0),
            ValueError,
            "max_predecessors is 0, expected an integer of at least 1",
        ),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
