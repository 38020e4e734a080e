import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.agents import EpsilonGreedyQ
from bayes_mdp.behaviour import simulate
from bayes_mdp.behaviour.likelihood import choice_log_probs
from tests import matrix
from tests.behaviour.bandits import MODEL, environment
from tests.behaviour.replays import model_of

KEY = jax.random.key(4)


def test_choices_are_drawn_from_the_probabilities_of_their_own_past():
    log = simulate(KEY, MODEL, {"rate": 0.4, "beta": 2.0}, environment(), 25, subjects=400)
    right = np.exp(np.asarray(choice_log_probs(MODEL, {"rate": 0.4, "beta": 2.0}, log), float))[..., 1]
    # A sum of 10,000 bounded martingale differences over its standard error: beyond 5 with probability 6e-7.
    z = (log.action - right).sum() / np.sqrt((right * (1 - right)).sum())
    assert abs(z) < 5
    # Calibration: choices of probability above .7 happen that often.
    sure = right > 0.7
    z = (log.action - right)[sure].sum() / np.sqrt((right * (1 - right))[sure].sum())
    assert sure.sum() > 500 and abs(z) < 5
    paid = log.reward[log.action == 1]
    assert abs(paid.mean() - 0.7) < 5 * np.sqrt(0.21 / paid.size)
    assert log.terminated is None and log.states == (0,)


def test_episodes_begin_anew_after_an_end_and_after_the_horizon():
    rows = np.zeros((3, 2, 3))
    rows[0, :, 1] = rows[1, :, 2] = 1.0
    rows[2, :, 2] = 0.5
    ends = np.array([[0.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    mdp = bm.MDP(rows, np.zeros((3, 2)), end_probs=ends, initial=np.eye(3)[0])
    env = bm.Environment(mdp, bm.mdp.NormalReward(mdp.reward))
    agent = model_of(EpsilonGreedyQ(epsilon=1.0), space=matrix.SPACE)
    ended = simulate(KEY, agent, {}, env, 60)
    assert ended.terminated is not None
    over = np.flatnonzero(ended.terminated[0])
    assert len(over) and (ended.state[0, over] == 2).all() and not ended.state[0, over[over < 59] + 1].any()
    cut = simulate(KEY, agent, {}, env, 60, horizon=2)
    assert cut.state[0].tolist() == [0, 1] * 30 and not np.any(cut.terminated)


def test_the_same_key_gives_the_same_persons_and_labels_are_kept():
    one, two = (
        simulate(KEY, MODEL, {"rate": [0.1, 0.9], "beta": 2.0}, environment(), 5, subjects=["a", "b"]) for _ in range(2)
    )
    assert one.subjects == ("a", "b")
    np.testing.assert_array_equal(one.action, two.action)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="environment is 3, expected an Environment or a Task"):
        simulate(KEY, MODEL, {"rate": 0.1, "beta": 1.0}, 3, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_choices is 0, expected an integer of at least 1"):
        simulate(KEY, MODEL, {"rate": 0.1, "beta": 1.0}, environment(), 0)
    with pytest.raises(ValueError, match=r"params\['beta'\] is missing"):
        simulate(KEY, MODEL, {"rate": 0.1}, environment(), 5)
