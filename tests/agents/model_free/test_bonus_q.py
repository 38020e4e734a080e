"""Variance- and error-bonus Q-learning against a plain loop over a fixed history; exploration switched off."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from bayes_mdp.agents import EpsilonGreedyQ, ErrorBonusQ, VarianceBonusQ
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, Problem
from tests.agents.histories import LEGAL, A, H, S, history, learn, problem

SEEN = history(4)
KEY = jax.random.key(0)
EPISODIC, DISCOUNTED = problem(layered=True), Problem(problem(layered=False).space, Discounted(0.9))
AGENTS: dict[str, Any] = {
    "variance": VarianceBonusQ(40.0, prior_sd=0.7, half_life=50.0, initial_bonus=3.0, learning_rate=0.3, initial_q=0.2),
    "error": ErrorBonusQ(40.0, half_life=50.0, initial_bonus=3.0, learning_rate=0.3, initial_q=0.2),
}


def loop(name: str, task: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(Q_r, Q_e) after the history: the targets of each pair are kept, and their variance is taken anew."""
    layered = isinstance(task.objective, Episodic)
    discount, shape = (1.0, (H, S, A)) if layered else (0.9, (1, S, A))
    q, e = np.where(LEGAL, 0.2, -np.inf) * np.ones(shape), np.where(LEGAL, 3.0, 0.0) * np.ones(shape)
    targets: dict[Any, list[float]] = {}
    for h, s, a, r, after, over in SEEN:
        at, there = ((h, s, a), (min(h + 1, H - 1), after)) if layered else ((0, s, a), (0, after))
        goes_on = not over and not (layered and h == H - 1)
        target = r + discount * goes_on * q[there].max()
        targets.setdefault(at, []).append(target)
        before = q[at]
        q[at] += 0.3 * (target - q[at])
        n = len(targets[at])
        spread = np.sqrt(0.7**2 + n * np.var(targets[at])) / n
        bonus = spread if name == "variance" else abs(q[at] - before)
        e[at] += 0.3 * (bonus + discount * goes_on * e[there].max() - e[at])
    return (q, e) if layered else (q[0], e[0])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("task", [EPISODIC, DISCOUNTED], ids=["episodic", "discounted"])
@pytest.mark.parametrize("name", AGENTS)
def test_the_tables_are_those_of_the_loop(name, task):
    """Q_r is that of Q-learning whatever explores; actions follow Q_r + kappa Q_e, or Q_r alone."""
    agent = AGENTS[name]
    state = learn(agent, task, agent.init(KEY, task), SEEN)
    q, e = loop(name, task)
    np.testing.assert_allclose(state.q, q, rtol=1e-12)
    np.testing.assert_allclose(state.bonus_q, e, rtol=1e-10)
    assert int(state.time) == len(SEEN) == int(np.sum(state.visits))
    plain = EpsilonGreedyQ(0.3, initial_q=0.2)
    np.testing.assert_array_equal(learn(plain, task, plain.init(KEY, task), SEEN), state.q)
    explores, same = agent.plan(KEY, task, state)
    assert same is state
    np.testing.assert_allclose(explores.q, q + 40.0 * 2.0 ** (-len(SEEN) / 50) * e, rtol=1e-10)
    exploits = agent.greedy(task, state)
    np.testing.assert_array_equal(exploits.q, state.q)
    np.testing.assert_array_equal(exploits.best, q.argmax(-1))
    against = eqx.tree_at(lambda x: x.bonus_q, state, np.where(LEGAL, -1e3 * q, 0.0))
    np.testing.assert_array_equal(agent.plan(KEY, task, against)[0].best, np.where(LEGAL, q, np.inf).argmin(-1))
    np.testing.assert_array_equal(agent.greedy(task, against).best, exploits.best)


def test_without_a_half_life_kappa_stays():
    agent = ErrorBonusQ(2.0, half_life=np.inf)
    assert float(agent.kappa(1e6)) == 2.0 and float(VarianceBonusQ(half_life=10.0).kappa(20.0)) == 0.25


@pytest.mark.parametrize("kind", [VarianceBonusQ, ErrorBonusQ])
def test_bad_settings_are_refused(kind):
    average = Problem(DISCOUNTED.space, AverageReward())
    for make, message in [
        (lambda: kind(-1.0), r"scale is -1\.0, expected"),
        (lambda: kind(half_life=0.0), r"half_life is 0\.0, expected a number greater than zero"),
        (lambda: kind(initial_bonus=-1.0), r"initial_bonus is -1\.0"),
        (lambda: kind(learning_rate=1.5), r"learning_rate is 1\.5"),
        (lambda: kind(initial_q=np.nan), "initial_q is nan"),
        (lambda: kind().init(KEY, average), f"objective is AverageReward, expected .* for {kind.__name__}"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(ValueError, match=r"prior_sd is -1\.0"):
        VarianceBonusQ(prior_sd=-1.0)
