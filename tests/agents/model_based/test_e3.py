"""E3 against a plain numpy version of its two models, and its phases on a world that can be followed by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import E3
from bayes_mdp.mdp import AverageReward, Discounted, Problem, StateActionSpace, Transitions
from tests.agents.empirical_models import DISCOUNTED, EPISODIC, GAMMA, SEEN, counted, optima, optimum
from tests.agents.histories import LEGAL, A, H, S, learn

KEY = jax.random.key(0)
M = 7
COUNT = counted(SEEN)
UNKNOWN = np.any(np.where(LEGAL, COUNT.n, np.inf) < M, axis=-1)


def models() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards of M_exploit and of M_explore, and the rows of both; unknown states have no future."""
    rows = np.where(UNKNOWN[:, None, None], 0.0, COUNT.rows)
    return np.where(UNKNOWN[:, None], 0.0, COUNT.reward), UNKNOWN[:, None] * np.ones((S, A)), rows


def escapes(explore: np.ndarray, steps: int) -> np.ndarray:
    """The chance of an unknown state within so many steps, by the distribution of the state after each."""
    chain = np.eye(S)
    for s in np.flatnonzero(~UNKNOWN):
        chain[s] = COUNT.rows[s, explore[s]]
    return np.linalg.matrix_power(chain, steps)[:, UNKNOWN].sum(-1)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("steps", [1, 3, 40])
def test_the_plan_is_that_of_the_two_models(steps):
    """Some states are known; the threshold lies between their chances of escape, so that both plans are followed."""
    exploit_reward, explore_reward, rows = models()
    exploit, explore = optimum(exploit_reward, rows, GAMMA), optimum(explore_reward, rows, GAMMA)
    chance = escapes(explore.argmax(-1), steps)
    known = ~UNKNOWN
    assert known.sum() >= 2 and UNKNOWN.any() and np.ptp(chance[known]) > 1e-3
    threshold = float(chance[known].min() + chance[known].max()) / 2
    agent = E3(M, threshold, num_explore=steps)
    policy, state = plan(agent, DISCOUNTED, learn(agent, DISCOUNTED, agent.init(KEY, DISCOUNTED), SEEN))
    np.testing.assert_allclose(policy.q, exploit, rtol=1e-8, atol=1e-12)
    fewest = np.where(LEGAL, COUNT.n, np.inf).argmin(-1)
    explores = known & (chance > threshold)
    np.testing.assert_array_equal(state.tempting, explores)
    expected = np.where(UNKNOWN, fewest, np.where(explores, explore.argmax(-1), exploit.argmax(-1)))
    np.testing.assert_array_equal(policy.best, expected)
    assert explores.any() and (known & ~explores).any()


plan = jax.jit(lambda agent, task, state: agent.plan(KEY, task, state))


@pytest.mark.usefixtures("x64")
def test_episodes_by_backward_induction():
    """The chance of escape is that before the end of the episode."""
    exploit_reward, _, rows = models()
    exploit = optima(exploit_reward, rows)
    chance, values = np.zeros((H, S)), np.zeros(S)
    for h in reversed(range(H)):
        values = chance[h] = np.where(UNKNOWN, 1.0, np.where(LEGAL, COUNT.rows @ values, -1.0).max(-1))
    agent = E3(M, 0.3)
    policy, state = plan(agent, EPISODIC, learn(agent, EPISODIC, agent.init(KEY, EPISODIC), SEEN))
    np.testing.assert_allclose(policy.q, exploit, rtol=1e-9)
    tempting = ~UNKNOWN & (chance > 0.3)
    np.testing.assert_array_equal(state.tempting, tempting)
    assert tempting.any() and (~UNKNOWN & ~tempting).any()
    exploits = ~UNKNOWN & ~tempting
    np.testing.assert_array_equal(np.asarray(policy.best)[exploits], exploit.argmax(-1)[exploits])


def follow(agent: E3, task: Problem, moves: list[tuple[int, int, int]]) -> tuple[Any, list[int]]:
    """The last policy and the steps of exploration left after each move (state, action, next state), unpaid."""
    state, left = agent.init(KEY, task), []
    for s, a, after in moves:
        _, state = plan(agent, task, state)
        seen = Transitions(jnp.int32(s), jnp.int32(a), jnp.zeros(()), jnp.int32(after), None, None, jnp.int32(0))
        state = observe(agent, task, state, seen)
        left.append(int(state.left))
    return plan(agent, task, state)[0], left


observe = jax.jit(lambda agent, task, state, seen: agent.observe(task, state, seen))


def test_exploration_lasts_its_steps_or_to_an_unknown_state():
    """Three states in a line, both actions of 0 and 1 known after one use: 1 steps up where it went up once.

    From state 0 state 2 is two steps away, for sure in the model; the move from 1 to 2 fails at first.
    """
    task = Problem(StateActionSpace(3, 2), Discounted(0.9))
    known = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (0, 1, 1), (1, 1, 2)]
    agent = E3(1, 0.5, num_explore=4)
    policy, left = follow(agent, task, known)
    assert left == [0, 0, 0, 0, 0]
    assert policy.best.tolist() == [1, 1, 0]
    # The third move of exploration finds an action of state 2: it is unknown, and ends the phase.
    policy, left = follow(agent, task, [*known, (2, 0, 0), (0, 1, 1), (1, 1, 1), (1, 1, 2)])
    assert left[-4:] == [0, 3, 2, 0]
    assert policy.best.tolist() == [1, 1, 1]  # in state 2 the least-tried action
    # It ends after its four steps, and begins anew where it still promises enough.
    stays = [(1, 1, 1)] * 6
    _, left = follow(agent, task, [*known, (2, 0, 0), (0, 1, 1), *stays])
    assert left[-7:] == [3, 2, 1, 0, 3, 2, 1]
    # Once the chance of a success is too small it goes on to its end, and no further: 1 of 6 within one step.
    _, left = follow(E3(1, 0.4, num_explore=2), task, [*known, (2, 0, 0), (0, 1, 1), *stays])
    assert left[-7:] == [1, 0, 1, 0, 1, 0, 0]


def test_weight_zero_leaves_the_phase_alone():
    task, agent = Problem(StateActionSpace(3, 2), Discounted(0.9)), E3(1, 0.5, num_explore=4)
    state = agent.init(KEY, task)
    seen = Transitions(jnp.int32(0), jnp.int32(0), jnp.zeros(()), jnp.int32(0), None, None, jnp.int32(0))
    after = agent.observe(task, state, seen, 0.0)
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: E3(0), "num_visits is 0, expected a number of at least 1"),
        (lambda: E3(threshold=1.5), r"threshold is 1\.5, expected a number from 0 to 1"),
        (lambda: E3(num_explore=0), "num_explore is 0, expected an integer of at least 1"),
        (lambda: E3().init(KEY, Problem(DISCOUNTED.space, AverageReward())), "objective is AverageReward, expected"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
