"""`from_log(legal="logged")`: what a log never did in a state does not exist there."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import bayes_mdp as bm
from bayes_mdp.mdp import Log
from tests.envs.logs.random_logs import fold_log

KEY = jax.random.key(0)
COLUMNS: Any = {"state": "s", "action": "a", "reward": "r", "next_state": "z"}
ROWS = pd.DataFrame(
    {
        "s": ["x", "x", "y", "x", "y"],
        "a": ["go", "stay", "stay", "go", "stay"],
        "r": [0.0, 1.0, 0.0, 0.0, 0.0],
        "z": ["y", "x", "w", "y", "y"],
    }
)
LABELS: Any = {"states": ["w", "x", "y"], "actions": ["go", "stay", "wait"]}
TAKEN = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 0]], bool)  # "w" was never left


@pytest.fixture(params=["read", "folded"])
def log(request) -> Any:
    read: Any = {"read": bm.read_log, "folded": fold_log}[request.param]
    return read(ROWS, **COLUMNS, **LABELS)


def test_the_actions_of_each_state(log):
    space = bm.StateActionSpace.from_log(log, legal="logged")
    np.testing.assert_array_equal(space.legal, TAKEN)
    assert bm.StateActionSpace.from_log(log).legal is None


def test_beside_listed_successors(log):
    """Observed lists: "unseen" keeps all actions. Lists that are given: an illegal pair needs none."""
    observed = bm.StateActionSpace.from_log(log, legal="logged", successors="observed")
    np.testing.assert_array_equal(observed.legal, np.append(TAKEN, np.ones((1, 3), bool), 0))
    lists = np.where(TAKEN[..., None], np.arange(3), -1)
    given = bm.StateActionSpace.from_log(log, legal="logged", successors=lists)
    np.testing.assert_array_equal(given.legal, TAKEN)


def test_beside_a_horizon():
    data = bm.Transitions([0, 1, 0], [0, 1, 1], None, [1, 0, 0], step=[0, 1, 2])
    space = bm.StateActionSpace.from_log(Log(data, ("x", "y"), ("a", "b")), legal="logged", horizon=3)
    np.testing.assert_array_equal(space.legal, [[True, True], [False, True]])  # at every step


def test_random_logs_against_a_loop():
    rng = np.random.default_rng(0)
    for _ in range(20):
        states, actions, number = (int(n) for n in rng.integers(1, 8, size=3))
        s, a, z = (rng.integers(size, size=number) for size in (states, actions, states))
        space = bm.StateActionSpace.from_log(
            Log(bm.Transitions(s, a, None, z), tuple(range(states)), tuple(range(actions))), legal="logged"
        )
        seen = set(zip(s.tolist(), a.tolist(), strict=True))
        left = {state for state, _ in seen}
        expected = [[(i, j) in seen or i not in left for j in range(actions)] for i in range(states)]
        np.testing.assert_array_equal(space.legal, expected)


@pytest.mark.few(1)
def test_no_plan_takes_what_nobody_did(log):
    """The prior mean of a reward is 5: every action that was never tried would look best."""
    prior = bm.models.dirichlet_normal(loc=5.0)
    for legal, best in (("logged", {0, 1}), (None, {2})):
        space = bm.StateActionSpace.from_log(log, legal=legal)
        plan = bm.greedy(bm.infer(KEY, prior, log, space=space), bm.Discounted(0.9))
        assert int(plan[1]) in best


@pytest.mark.some(2)
@pytest.mark.parametrize("successors", [None, "observed"])
def test_a_later_log_with_another_action_is_refused(log, successors):
    space = bm.StateActionSpace.from_log(log, legal="logged", successors=successors)
    posterior: Any = bm.infer(KEY, bm.models.dirichlet_normal(), log, space=space)
    later = ROWS.iloc[[0, 2, 4]].assign(a=["stay", "stay", "wait"])
    with pytest.raises(ValueError, match=r"transitions.action\[2\] is .wait., expected a legal action of state .y."):
        posterior.update(bm.read_log(later, **COLUMNS, **LABELS).transitions)
    with pytest.raises(ValueError, match=r"row 3: action 'wait' in state 'y' leads .*, expected a legal action of the"):
        posterior.update(fold_log(later, **COLUMNS, **LABELS))
    same = bm.Transitions([1, 2], [0, 1], [0.0, 0.0], [2, 1])
    assert float(np.sum(posterior.update(same).visit_counts())) == len(ROWS) + 2


@pytest.mark.parametrize("successors", [None, "observed"])
@pytest.mark.parametrize("word", ["seen", "Logged", ""])
def test_another_word_is_refused(log, successors, word):
    with pytest.raises(ValueError, match=rf"legal is '{word}', expected one of logged, an array of .*, None"):
        bm.StateActionSpace.from_log(log, legal=word, successors=successors)
