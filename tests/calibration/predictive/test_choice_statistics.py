import numpy as np

from bayes_mdp.behaviour import ChoiceLog, TwoStep, TwoStepTask, simulate, two_step_log
from bayes_mdp.calibration.predictive.check_choices import action_shares, history, stay_spread, stays


def by_loop(first, second_state, reward):
    """P(stay) of the first stage by [lost / won, common / rare], trial by trial."""
    asked, stayed = np.zeros((2, 2)), np.zeros((2, 2))
    won = reward > reward.mean()
    for i in range(len(first)):
        for t in range(1, first.shape[1]):
            rare = int(second_state[i, t - 1] != 1 + first[i, t - 1])
            cell = (int(won[i, t - 1]), rare)
            asked[cell] += 1
            stayed[cell] += first[i, t] == first[i, t - 1]
    return stayed / asked


def test_stays_in_the_two_step_task_are_those_of_a_loop(key):
    params = {"a": 0.5, "beta": 4.0, "pi": 0.3, "w": 0.7}
    log = simulate(key, TwoStep(4), params, TwoStepTask(), 160, subjects=8)
    found = stays(log, np.asarray(log.action))
    first, state, reward = log.action[:, ::2], log.state[:, 1::2], log.reward[:, 1::2]
    np.testing.assert_allclose(found[0], by_loop(first, state, reward))


def test_history_by_hand():
    log = two_step_log([[0, 0, 1]], [[1, 2, 2]], [[0, 1, 1]], [[1.0, 0.0, 1.0]])
    past = history(log)
    assert past.previous.tolist() == [[-1, -1, 0, -1, 2, 3]]
    # Outcomes of the first stage are the rewards of its trials; 2/3 is their mean.
    assert past.won[0, ::2].tolist() == [True, False, True]
    assert not past.rare[0, 1::2].any()


def test_drawn_actions_are_compared_with_the_observed_past():
    log = ChoiceLog([[0, 0, 0, 0]], [[0, 0, 1, 1]], [[1.0, 0.0, 1.0, 0.0]])
    drawn = np.array([[1, 0, 0, 0]])
    # After a reward (records 0 and 2) and without one (record 1): stays of the drawn records 1, 3 and 2.
    assert stays(log, drawn)[0, :, 0].tolist() == [1.0, 0.5]
    assert stay_spread(log, drawn) == 0.0
    assert action_shares(log, drawn)[:, 0, 1].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_missed_choices_are_left_out():
    full = ChoiceLog([[0, 0, 0]], [[0, 1, 0]], [[1.0, 1.0, 0.0]], observed=[[True, False, True]])
    assert history(full).previous.tolist() == [[-1, -1, 0]]
    assert stays(full, np.asarray(full.action))[0, 1, 0] == 1.0
