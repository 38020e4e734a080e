"""Sweeps over whole trials beside plain Python; trials kept step by step beside whole ones; bad numbers refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.agents import TDBMA, SarsaLambda
from bayes_mdp.agents.model_free.trial_learning import sweep
from bayes_mdp.experiments.rollout.run_beliefs import on_device
from bayes_mdp.experiments.rollout.time_loop import observe_block
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem, StateActionSpace, Transitions
from tests.agents.trial_reference import Learner

S, A, ROOM, DISCOUNT = 3, 2, 7, 0.9
LENGTHS = (7, 4, 5, 1, 7, 6)
PROBLEM = Problem(StateActionSpace(S, A, ends=True), Discounted(DISCOUNT))
AGENTS = [
    TDBMA(trial_steps=ROOM),
    TDBMA(trial_steps=ROOM, learning_rate=0.4, frozen=True, bootstrap=True, initial_q=0.5),
    SarsaLambda(0.7, trial_steps=ROOM, bootstrap=True),
    SarsaLambda(0.3, trial_steps=ROOM, learning_rate=0.4, frozen=True, initial_q=-1.0),
]


def name_of(agent: Any) -> str:
    """For ids."""
    return type(agent).__name__ + "-frozen" * agent.frozen + "-bootstrap" * agent.bootstrap


every_agent = pytest.mark.parametrize("agent", AGENTS, ids=name_of)


def _trials() -> list[tuple[Transitions, bool]]:
    """Six trials of 3 states, so that pairs come again; whether each ended. What follows a trial is nan."""
    rng, trials = np.random.default_rng(1), []
    for i, length in enumerate(LENGTHS):
        state, action = rng.integers(S, size=ROOM + 1), rng.integers(A, size=ROOM)
        reward = np.where(np.arange(ROOM) < length, rng.normal(size=ROOM).round(2), np.nan)
        ended = (np.arange(ROOM) == length - 1) & (i % 2 == 0)
        cut = (np.arange(ROOM) == length - 1) & (i % 2 == 1)
        trials.append((Transitions(state[:-1], action, reward, state[1:], ended, cut), i % 2 == 0))
    return trials


def _reference(agent: Any) -> tuple[Learner, list[Any]]:
    """The learner after all trials, and the returns and weights of each."""
    learner = Learner(
        np.full((S, A), float(agent.initial_q)),
        float(agent.learning_rate),
        DISCOUNT,
        float(agent.trace_decay) if isinstance(agent, SarsaLambda) else None,
        agent.frozen,
    )
    told = []
    for (trial, ended), length in zip(_trials(), LENGTHS, strict=True):
        pairs = [(int(s), int(a)) for s, a in zip(trial.state, trial.action, strict=True)]
        beyond = learner.q[trial.next_state[length - 1]].max() if agent.bootstrap and not ended else 0.0
        steps: Any = zip(pairs, np.asarray(trial.reward), strict=True)
        told.append(learner.sweep(list(steps)[:length], beyond))
    return learner, told


_sweep = jax.jit(sweep)


@every_agent
def test_sweep_is_the_algorithm(agent):
    """Returns, weights and tables, float64, to 1e-12; repeated pairs; ends and cuts; what is masked changes nothing."""
    learner, told = _reference(agent)
    with jax.enable_x64(True):
        device = on_device(agent)
        tables = device.tables(PROBLEM)
        for (trial, _), length, (returns, decays) in zip(_trials(), LENGTHS, told, strict=True):
            live = (np.arange(ROOM) < length).astype(float)
            tables, found, weights = _sweep(device, PROBLEM, tables, jax.tree.map(jnp.asarray, trial), live)
            rest = [np.nan] * (ROOM - length)
            np.testing.assert_allclose(found, returns + rest, rtol=1e-12)
            np.testing.assert_allclose(weights, decays + rest, rtol=1e-9)
        np.testing.assert_allclose(tables.q, learner.q, rtol=1e-12)
        if tables.statistics is not None:
            np.testing.assert_allclose(tables.statistics, learner.table((S, A)), rtol=1e-10, atol=1e-14)


@every_agent
def test_step_by_step(agent):
    """`observe` sweeps at ends, cuts and after `trial_steps`; transitions of weight 0 between them change nothing."""
    learner, _ = _reference(agent)
    with jax.enable_x64(True):
        device = on_device(agent)
        state = device.init(jax.random.key(0), PROBLEM)
        data = jax.tree.map(lambda *x: jnp.concatenate([jnp.asarray(y) for y in x]), *(trial for trial, _ in _trials()))
        live = np.concatenate([np.arange(ROOM) < length for length in LENGTHS]).astype(float)
        # The first trial is cut by its length alone: no end is told.
        state = jax.jit(observe_block)(device, PROBLEM, state, data, live)
        np.testing.assert_allclose(state.tables.q, learner.q, rtol=1e-12)
        assert state.trial.length == 0


def test_cut_by_length():
    """A trial that nobody ends is swept after `trial_steps`, and not before."""
    agent = on_device(SarsaLambda(1.0, trial_steps=3, learning_rate=1.0))
    state = agent.init(jax.random.key(0), PROBLEM)
    column = jnp.arange(3)
    data = Transitions(column, 0 * column, jnp.array([1.0, 2.0, 4.0]), 0 * column)
    two = jax.tree.map(lambda x: x[:2], data)
    state = observe_block(agent, PROBLEM, state, two, 1.0)
    assert not state.tables.q.any() and state.trial.length == 2
    state = observe_block(agent, PROBLEM, state, jax.tree.map(lambda x: x[2:], data), 1.0)
    np.testing.assert_allclose(state.tables.q[:, 0], [1 + 0.9 * (2 + 0.9 * 4), 2 + 0.9 * 4, 4.0], rtol=1e-6)


def test_statistics_are_those_of_the_returns():
    """Count, mean and variance (over N) of the returns that each pair has seen."""
    agent, seen = AGENTS[0], {}
    with jax.enable_x64(True):
        device = on_device(agent)
        tables = device.tables(PROBLEM)
        for (trial, _), length in zip(_trials(), LENGTHS, strict=True):
            live = (np.arange(ROOM) < length).astype(float)
            tables, returns, _ = _sweep(device, PROBLEM, tables, jax.tree.map(jnp.asarray, trial), live)
            for t in range(length):
                seen.setdefault((trial.state[t], trial.action[t]), []).append(float(returns[t]))
        for pair, returns in seen.items():
            expected: Any = len(returns), np.mean(returns), np.var(returns) * len(returns)
            np.testing.assert_allclose(tables.statistics[pair], expected, rtol=1e-10, atol=1e-14)
    assert max(map(len, seen.values())) > 5


def test_tables():
    """Illegal actions are -inf; rows of steps under `Episodic`; none for the average reward."""
    legal = np.array([[True, True], [True, False], [True, True]])
    space = StateActionSpace(S, A, ends=True, legal=legal)
    q = TDBMA(initial_q=2.0).tables(Problem(space, Episodic(4))).q
    assert q.shape == (4, S, A) and (q == np.where(legal, 2.0, -np.inf)).all()
    with pytest.raises(ValueError, match="objective is AverageReward"):
        TDBMA().tables(Problem(space, AverageReward()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1.5}, "learning_rate is 1.5"),
        ({"epsilon": -0.1}, "epsilon is -0.1"),
        ({"initial_q": np.nan}, "initial_q"),
        ({"trial_steps": 0}, "trial_steps is 0"),
        ({"trace_decay": 1.1}, "trace_decay is 1.1"),
    ],
)
def test_refused(options, message):
    """One sentence about the number at fault."""
    with pytest.raises(ValueError, match=message):
        SarsaLambda(**options)
