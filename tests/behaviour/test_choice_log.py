import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.behaviour import ChoiceLog

STATE, ACTION, REWARD = [[0, 1, 1], [1, 0, 0]], [[1, 0, 1], [0, 0, 1]], [[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]
OBSERVED = [[True, False, True], [False, True, False]]


def test_labels_next_states_and_subjects_follow():
    log = ChoiceLog(STATE, ACTION, REWARD, subjects=["b", "a"])
    assert log.states == (0, 1) and log.actions == (0, 1) and log.num_choices == 6
    assert log.next_state.tolist() == [[1, 1, 1], [0, 0, 0]]
    one = log.of_subjects(["a"])
    assert one.state.tolist() == [STATE[1]] and one.subjects == ("a",) and one.states == (0, 1)
    with pytest.raises(ValueError, match="subject 'c' is not in the log"):
        log.of_subjects(["c"])


def test_print_says_how_many_choices_of_whom():
    log = ChoiceLog(STATE, ACTION, REWARD, STATE, observed=OBSERVED, subjects=["Ada", "Max"], actions=["left", "right"])
    assert str(log) == "3 choices: 2 persons ('Ada', 'Max'), 2 states (0, 1), 2 actions ('left', 'right')"
    assert str(ChoiceLog([[0]], [[0]], [[1.0]])) == "1 choice: 1 person (0), 1 state (0), 1 action (0)"


def test_next_state_skips_what_was_not_observed():
    log = ChoiceLog([[0, 1, 2]], [[0, 0, 0]], [[0.0, 0.0, 0.0]], observed=[[True, False, True]])
    assert log.next_state[0, 0] == 2


@pytest.mark.parametrize("traced", [False, True])
def test_filled_repeats_records_of_the_same_person(traced):
    log = ChoiceLog(STATE, ACTION, REWARD, STATE, observed=OBSERVED)
    full = jax.jit(ChoiceLog.fill_missing)(log) if traced else log.fill_missing()
    assert np.asarray(full.reward).tolist() == [[0, 0, 2], [0, 0, 0]]
    assert np.asarray(full.state).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_frame_has_the_observed_choices_with_labels():
    ends = np.zeros((2, 3), bool)
    log = ChoiceLog(STATE, ACTION, REWARD, STATE, ends, OBSERVED, actions=["left", "right"])
    frame = log.frame()
    assert frame["subject"].tolist() == [0, 0, 1] and frame["action"].tolist() == ["right", "right", "left"]
    assert frame["trial"].tolist() == [0, 2, 1]


def test_wrong_logs_are_refused():
    with pytest.raises(ValueError, match=r"reward is nan at subject 'x', choice 2, expected a finite number"):
        ChoiceLog([[0, 0]], [[0, 1]], [[1.0, np.nan]], subjects=["x"])
    with pytest.raises(ValueError, match=r"action\[0, 1\] is 2, expected an action index from 0 to 1"):
        ChoiceLog([[0, 0]], [[0, 2]], [[1.0, 1.0]], actions=["l", "r"])
    with pytest.raises(ValueError, match="subject 1 has no choice"):
        ChoiceLog(STATE, ACTION, REWARD, observed=[[True, True, True], [False, False, False]])
    with pytest.raises(ValueError, match=r"action has shape \(2, 2\), expected \(2, 3\)"):
        ChoiceLog(STATE, [[0, 1], [0, 1]], REWARD)
    with pytest.raises(ValueError, match=r"state has shape \(3,\)"):
        ChoiceLog([0, 1, 1], [0, 0, 0], [0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="subjects has 1 labels, expected one for each of 2"):
        ChoiceLog(STATE, ACTION, REWARD, subjects=["a"])


def test_what_was_not_observed_may_hold_anything():
    log = ChoiceLog([[0, 9]], [[0, 7]], [[1.0, np.inf]], [[0, 0]], observed=[[True, False]], states=[0], actions=[0, 1])
    assert log.num_choices == 1
    assert jnp.isfinite(log.fill_missing().reward).all()
