"""OIM against the explicit model with a garden of Eden, its optimism, and the exploration values on their own."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import OIM, Greedy
from bayes_mdp.agents.model_based.empirical_planning import ExactPlanner, PrioritizedSweeping
from bayes_mdp.envs import chain, riverswim
from bayes_mdp.experiments import Actor, RunOptions, run
from bayes_mdp.mdp import Discounted, Problem, StateActionSpace, Transitions
from bayes_mdp.planning import solve
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

KEY = jax.random.key(0)
GAMMA = 0.9
SEEN = history(3)


def counted(seen: Any, layers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n [L S A], N [L S A S], C [L S A] of a history, by a loop; what ended has no next state."""
    n, following, total = np.zeros((layers, S, A)), np.zeros((layers, S, A, S)), np.zeros((layers, S, A))
    for h, s, a, r, after, over in seen:
        at = (h if layers > 1 else 0, s, a)
        n[at] += 1
        total[at] += r
        if not over:
            following[(*at, after)] += 1
    return n, following, total


def with_a_garden(seen: Any, v_max: float) -> np.ndarray:
    """Q [S A] by 5,000 sweeps of the explicit model: S states, the garden, which pays R_max for ever, and an end.

    N0(x, a, garden) = 1 ([OIM08] section 3); R_max = (1 - discount) v_max is paid on arrival too.
    """
    n, following, total = (x[0] for x in counted(seen, 1))
    garden, end = S, S + 1
    counts = np.zeros((S + 2, A, S + 2))
    counts[:S, :, :S] = following
    counts[:S, :, end] = n - following.sum(-1)
    counts[:S, :, garden] = 1.0
    counts[garden, :, garden], counts[end, :, end] = 1.0, 1.0
    rows = counts / counts.sum(-1, keepdims=True)
    reward = np.zeros((S + 2, A))
    reward[:S] = total / (n + 1)
    reward += rows[:, :, garden] * (1 - GAMMA) * v_max
    allowed = np.vstack([LEGAL, np.ones((2, A), bool)])
    q = np.zeros((S + 2, A))
    for _ in range(5000):
        q = np.where(allowed, reward + GAMMA * rows @ q.max(-1), -np.inf)
    assert abs(q[garden].max() - v_max) < 1e-9
    return q[:S]


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("planner", [ExactPlanner(), PrioritizedSweeping(400, 1e-12)], ids=["exact", "sweeping"])
@pytest.mark.parametrize("v_max", [2.0, 50.0])
def test_it_is_the_explicit_model(planner, v_max):
    agent = OIM(v_max, planner=planner)
    task = Problem(problem(layered=False).space, Discounted(GAMMA))
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    policy, _ = agent.plan(KEY, task, state)
    assert isinstance(policy, Greedy)
    expected = with_a_garden(SEEN, v_max)
    np.testing.assert_allclose(policy.q, expected, rtol=1e-9)
    chosen = np.take_along_axis(expected, np.asarray(policy.best)[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, expected.max(-1), rtol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("planner", [ExactPlanner(), PrioritizedSweeping(400, 1e-12)], ids=["exact", "sweeping"])
def test_exploration_is_a_part_of_the_values_and_can_be_switched_off(planner):
    """Qr and Qe satisfy the two equations of algorithm 1; Qr alone is what `greedy` follows."""
    agent, v_max = OIM(20.0, planner=planner), 20.0
    task = Problem(problem(layered=False).space, Discounted(GAMMA))
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    split = agent.split(task, state)
    n, following, total = (x[0] for x in counted(SEEN, 1))
    qr, qe, best = np.asarray(split.qr), np.asarray(split.qe), np.asarray(split.best)
    rows = following / (n + 1)[..., None]
    at = np.arange(S)
    expected_r = total / (n + 1) + GAMMA * rows @ qr[at, best]
    expected_e = v_max / (n + 1) + GAMMA * rows @ qe[at, best]
    np.testing.assert_allclose(qr[LEGAL], expected_r[LEGAL], rtol=1e-9)
    np.testing.assert_allclose(qe[LEGAL], expected_e[LEGAL], rtol=1e-9)
    assert np.isneginf(qr[~LEGAL]).all()
    assert np.isneginf(qe[~LEGAL]).all()
    np.testing.assert_array_equal(agent.greedy(task, state).best, np.argmax(qr, -1))
    assert (np.argmax(qr, -1) != best).any()  # else nothing was switched off


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layered", [True, False])
def test_episodes_by_backward_induction(layered):
    agent, task = OIM(3.0), problem(layered=layered)
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    n, following, total = counted(SEEN, H if layered else 1)
    q, values = np.zeros((H, S, A)), np.zeros(S)
    for h in reversed(range(H)):
        at = h if layered else 0
        seen = n[at] + 1
        q[h] = np.where(LEGAL, (total[at] + 3.0 + following[at] @ values) / seen, -np.inf)
        values = q[h].max(-1)
    policy, _ = agent.plan(KEY, task, state)
    assert isinstance(policy, Greedy)
    np.testing.assert_allclose(policy.q, q, rtol=1e-9)


def test_at_first_everything_is_worth_v_max():
    task = Problem(StateActionSpace(4, 3), Discounted(0.95))
    for planner in (ExactPlanner(), PrioritizedSweeping(3)):
        agent = OIM(7.0, planner=planner)
        policy, _ = agent.plan(KEY, task, agent.init(KEY, task))
        assert isinstance(policy, Greedy)
        np.testing.assert_allclose(policy.q, 7.0, rtol=1e-5)


@cache
def _values_of_a_run(v_max: float) -> np.ndarray:
    """Q_t [T N S A], every hundredth step of 20 runs of 3,000 steps on Chain; the true Q* is in the test."""
    env, task = chain(), Problem(StateActionSpace(5, 2), Discounted(GAMMA))
    agent = OIM(v_max)

    @jax.jit
    def play(agent: Any, keys: Any) -> Any:
        def step(carry: Any, key: Any) -> Any:
            state, own = carry
            policy, own = agent.plan(key, task, own)
            action = policy.act(key, state)
            after, reward, _ = env.step(key, state, action)
            seen = Transitions(state, action, reward, after, None, None, None)
            return (after, agent.observe(task, own, seen)), None

        def rows(carry: Any, key: Any) -> Any:
            carry, _ = jax.lax.scan(step, carry, jax.random.split(key, 100))
            return carry, agent.plan(key, task, carry[1])[0].q

        start = lambda key: (jnp.int32(0), agent.init(key, task))  # noqa: E731
        return jax.vmap(lambda key: jax.lax.scan(rows, start(key), jax.random.split(key, 30))[1], out_axes=1)(keys)

    return np.asarray(play(agent, jax.random.split(jax.random.key(5), 20)))


def test_q_stays_optimistic_with_a_provable_constant():
    """Lemma 4.2: Q_t >= Q* - eps at every step, with probability 1 - delta.

    Hoeffding for r + discount V* in [0, 10 + .9 max V*] =: [0, B], 20 runs, 3,000 steps, 10 pairs and delta 1e-6: the
    empirical backup of Q* errs by at most b / sqrt(n), b = B sqrt(log(6e5 / 1e-6) / 2); as in the paper's proof it is
    enough that v_max / n >= b / sqrt(n) wherever b / sqrt(n) > eps (1 - discount), v_max >= b^2 / (eps (1 - discount)),
    here with n + 1 in the place of n and v_max above b. A broken twin, v_max = 20, is below Q* soon.
    """
    truth = np.asarray(solve(chain().mdp, Discounted(GAMMA)).q)
    eps, most = 5.0, 10.0 + GAMMA * truth.max()
    b = most * np.sqrt(np.log(6e5 / 1e-6) / 2)
    v_max = float(4 * b**2 / (eps * (1 - GAMMA)))
    assert (_values_of_a_run(v_max) >= truth - eps).all()
    assert (_values_of_a_run(20.0) < truth - eps).any()


def test_a_value_below_the_rewards_is_warned_of():
    arguments: dict[str, Any] = {"objective": Discounted(0.9), "num_steps": 4, "key": KEY}
    with pytest.warns(UserWarning, match=r"v_max is 100, below the largest reward 3000: optimism is lost, expected"):
        run(OIM(100.0), riverswim(), **arguments, options=RunOptions(progress=False))
    OIM(3000.0).check_optimism(3000.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OIM(np.nan), "v_max is nan, expected a finite number"),
        (lambda: PrioritizedSweeping(0), "num_pops is 0, expected an integer of at least 1"),
        (lambda: PrioritizedSweeping(threshold=-1.0), "threshold is -1.0, expected a number, zero or greater"),
        (
            lambda: OIM(planner=PrioritizedSweeping()).init(KEY, problem(layered=True)),
            "objective is Episodic, expected Discounted",
        ),
        (
            lambda: OIM(planner=PrioritizedSweeping()).init(KEY, Problem(StateActionSpace(50, 2), Discounted(0.9))),
            "max_successors is None, expected a number of states: the space has 50",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_lists_that_are_too_short_are_told():
    agent = OIM(1e4, planner=PrioritizedSweeping(2, 1.0, max_successors=1))
    arguments: dict[str, Any] = {"objective": Discounted(0.9), "num_steps": 200, "key": KEY}
    with pytest.warns(UserWarning, match=r"\d+ transitions were not learnt from: max_successors is 1, "):
        run(agent, riverswim(), **arguments, options=RunOptions(progress=False))


@pytest.mark.few(1)
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("planner", [ExactPlanner(), PrioritizedSweeping(3)], ids=["exact", "sweeping"])
def test_what_one_would_do_with_what_was_counted(planner):
    """The optimum of the empirical model over pairs that were tried; OIM's Qr misses it while OIM explores.

    State 0: action 0 stays and pays 1, action 1 goes to state 1, where action 0 pays 10; action 1 of state 1 was never
    tried, and is worth a million to OIM.
    """
    agent = OIM(1e6, planner=planner)
    task = Problem(StateActionSpace(2, 2), Discounted(0.9))
    seen = [(0, 0, 0, 1.0, 0, False), (0, 0, 1, 0.0, 1, False), (0, 1, 0, 10.0, 1, False)] * 30
    state = learn(agent, task, agent.init(KEY, task), seen)
    policy = agent.exploit(task, state)
    np.testing.assert_array_equal(policy.best, [1, 0])
    np.testing.assert_allclose(policy.q, [[82.0, 90.0], [100.0, -np.inf]], rtol=1e-6)
    assert int(agent.greedy(task, state).best[0]) == 0


def test_an_actor_tells_of_lists_that_are_too_short():
    agent = OIM(10.0, planner=PrioritizedSweeping(2, 1.0, max_successors=1))
    actor = Actor(agent, StateActionSpace(3, 1), objective=Discounted(0.9), key=KEY)
    actor.reset(0)
    for after in (1, 2):
        actor.act(0)
        actor.observe(0, 0, 0.0, after, False, False)
    with pytest.warns(UserWarning, match="1 transition was not learnt from: max_successors is 1"):
        _ = actor.belief
