"""`anchored_values`: returns and gains by hand, and what it refuses."""

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.behaviour import AnchoredValue
from bayes_mdp.mdp import Log
from tests.inference.hospitals import N_ACTIONS, N_STATES, hospital, stays

KEY = jax.random.key(0)
OBJECTIVE = bm.FirstExit()
REWARD = np.zeros((N_STATES, N_ACTIONS)) + np.eye(N_STATES)[4][:, None]


def test_mean_error_and_interval_are_those_of_both_parts():
    gain, returns = np.array([0.1, 0.3, 0.2]), np.array([0.0, 1.0, 1.0, 0.0])
    found = AnchoredValue.of(gain, returns)
    error = np.sqrt(returns.var(ddof=1) / 4)
    assert found.mean == pytest.approx(0.7) and found.sd == pytest.approx(np.hypot(0.1, error))
    low, high = found.interval(0.9)
    assert (high - low) / 2 == pytest.approx(1.644854 * found.sd) and (high + low) / 2 == pytest.approx(0.7)
    assert "0.7, 95 % interval" in str(found) and "of 4 episodes" in str(found)


def test_the_behaviour_is_worth_its_returns_and_others_their_gain():
    log = stays(40)
    posterior = bm.infer(KEY, bm.models.known_rewards(REWARD), log, space=hospital())
    behaviour = bm.behaviour_policy(log, space=hospital())
    other = np.ones(N_STATES, int)
    found = bm.decisions.anchored_values(
        KEY, posterior, {"as now": behaviour, "ones": other}, log, OBJECTIVE, num_draws=20
    )
    survived = np.asarray(log.transitions.reward)[np.asarray(log.transitions.terminated)]
    assert found["as now"].mean == pytest.approx(survived.mean()) and found["as now"].num_episodes == 40
    assert found["as now"].sd == pytest.approx(survived.std(ddof=1) / 40**0.5)
    # The gain beside that of whole draws, by linear systems of numpy: six standard errors.
    drawn = posterior.sample(KEY, (200,))
    start = np.bincount(np.asarray(log.transitions.state)[first_rows(log)], minlength=N_STATES) / 40

    def values(policy: np.ndarray) -> np.ndarray:
        rows = np.einsum("sa,dsat->dst", policy, np.asarray(drawn.transition_probs, float))
        reward = (policy * REWARD).sum(-1)[:, None]
        return np.linalg.solve(np.eye(N_STATES) - rows, np.broadcast_to(reward, (200, N_STATES, 1)))[..., 0] @ start

    gain = values(np.eye(N_ACTIONS)[other]) - values(np.asarray(behaviour))
    spread = gain.std() * (1 / 20 + 1 / 200) ** 0.5
    assert abs(found["ones"].mean - found["as now"].mean - gain.mean()) < 6 * spread


def first_rows(log: Log) -> np.ndarray:
    """Where episodes begin."""
    return np.concatenate([[True], np.asarray(log.transitions.terminated)[:-1]])


@pytest.mark.parametrize(
    ("objective", "message"),
    [(bm.AverageReward(), "log has no mean return to anchor values at"), (bm.Episodic(3), "log has no mean return")],
)
def test_a_log_without_returns_is_refused(objective, message):
    log = stays(3)
    posterior = bm.infer(KEY, bm.models.known_rewards(REWARD), log, space=hospital())
    with pytest.raises(ValueError, match=message):
        bm.decisions.anchored_values(KEY, posterior, {"ones": np.ones(N_STATES, int)}, log, objective, num_draws=4)
