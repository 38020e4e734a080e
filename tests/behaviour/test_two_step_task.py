import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayes_mdp.behaviour import TwoStep, TwoStepTask, simulate, two_step_log
from bayes_mdp.behaviour.two_step import _reflect

UNIFORM = {"a": 0.3, "beta": 0.0, "pi": 0.0, "w": 0.5}


def test_common_transitions_alternation_of_stages_and_rewards():
    log = simulate(jax.random.key(0), TwoStep(4), UNIFORM, TwoStepTask(), 400, subjects=50)
    first = slice(0, None, 2)
    assert not log.state[:, first].any() and np.isin(log.state[:, 1::2], (1, 2)).all()
    assert not log.reward[:, first].any() and np.isin(log.reward, (0, 1)).all()
    assert (np.asarray(log.terminated) == (np.arange(400) % 2 == 1)).all()
    np.testing.assert_array_equal(log.next_state[:, first], log.state[:, 1::2])
    common = (log.next_state[:, first] == 1 + log.action[:, first]).mean()
    # 10,000 draws: .7 +- 5 standard errors, false alarm 6e-7; likewise the actions of a learner without preference.
    assert abs(common - 0.7) < 5 * np.sqrt(0.21 / 10_000)
    assert abs(log.action.mean() - 0.5) < 5 * np.sqrt(0.25 / 20_000)


def test_reflection_stays_inside_and_folds_at_the_bound():
    x = jnp.array([[0.2, 0.8], [0.5, -0.4]])
    np.testing.assert_allclose(_reflect(x, 0.25, 0.75), [[0.3, 0.7], [0.5, 0.6]], atol=1e-6)


def test_trials_become_two_records_each():
    log = two_step_log([[1, 0]], [[2, 2]], [[0, 1]], [[1.0, 0.0]], observed=[[True, False]], subjects=["ann"])
    assert log.state.tolist() == [[0, 2, 0, 2]] and log.action.tolist() == [[1, 0, 0, 1]]
    assert log.reward.tolist() == [[0, 1, 0, 0]] and log.observed.tolist() == [[True, True, False, False]]
    with pytest.raises(ValueError, match=r"second_state\[0, 1\] is 0, expected 1 or 2"):
        two_step_log([[1, 0]], [[2, 0]], [[0, 1]], [[1.0, 0.0]])
