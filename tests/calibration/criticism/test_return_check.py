"""The mean return of the log beside the value of what it did: by hand, and why it cannot be made."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.calibration.criticism.log_checks import ReturnCheck, return_check, returns_of
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, Log, StateActionSpace, Transitions

KEY = jax.random.key(0)


def log_of(lengths: Any, ended: Any = None, **more: Any) -> Log:
    """Episodes in one state; the rewards are 1, 2, ... over the whole log."""
    lengths = np.asarray(lengths)
    last = np.zeros(lengths.sum(), bool)
    last[np.cumsum(lengths) - 1] = True
    over = last.copy()
    if ended is not None:
        over[last] = ended
    zeros = np.zeros(len(last), int)
    columns = {"reward": np.arange(1.0, len(last) + 1)} | more
    data = Transitions(zeros, zeros, columns.pop("reward"), zeros, over, last & ~over, **columns)
    return Log(data, ("only",), ("go",))


LENGTHS = [1, 2, 3] * 7


def test_returns_by_hand():
    """The first episodes have rewards (1), (2, 3), (4, 5, 6)."""
    log = log_of(LENGTHS)
    for objective, expected in (
        (Discounted(0.5), [1, 3.5, 8]),
        (FirstExit(), [1, 5, 15]),
        (Episodic(2), [1, 5, 9]),
        (Episodic(9), [1, 5, 15]),
        (Episodic(2, 0.5), [1, 3.5, 6.5]),
        (Episodic(9, 0.5), [1, 3.5, 8]),
    ):
        returns = returns_of(log, objective)
        assert not isinstance(returns, str) and len(returns) == 21
        np.testing.assert_allclose(returns[:3], expected)


def test_an_episode_that_was_cut_is_left_out():
    """One of twenty-two; where the horizon was reached it is whole."""
    ended = np.arange(22) != 1
    log = log_of([*LENGTHS, 1], ended)
    returns = returns_of(log, Discounted(0.5))
    assert not isinstance(returns, str) and len(returns) == 21
    np.testing.assert_allclose(returns[:2], [1, 8])
    assert len(returns_of(log, Episodic(2))) == 22
    assert len(returns_of(log, Episodic(3))) == 21


@pytest.mark.parametrize(
    ("log", "objective", "reason"),
    [
        (log_of(LENGTHS), AverageReward(), "an average reward has no episodes"),
        (log_of(LENGTHS, reward=None), Discounted(0.5), "the log has no rewards"),
        (log_of(LENGTHS, reward_observed=np.arange(42) > 0), Discounted(0.5), "the log misses some rewards"),
        (log_of([1] * 19), Discounted(0.5), "19 of 19 episodes are whole, at least 20 and 95% are needed"),
        (log_of([1] * 30, np.arange(30) > 1), Discounted(0.5), "28 of 30 episodes are whole, at least 20 and 95%"),
        (log_of([3]), Discounted(0.5), "1 of 1 episodes are whole"),
        (log_of([3, 4], [False, False]), Discounted(0.5), "no episode of the log ends, so that none has a return"),
        (log_of([3, 4], [False, False]), Episodic(9), "no episode of the log ends, none has 9 steps, so that none has"),
    ],
)
def test_why_it_is_skipped(log, objective, reason):
    found = returns_of(log, objective)
    assert isinstance(found, str) and found.startswith(reason)


def test_the_p_value_is_normal():
    check = ReturnCheck(1.0, 0.3, 2.0, 0.4)
    assert check.p_value == pytest.approx(2 * stats.norm.sf(2.0))
    assert ReturnCheck(1.0, 0.0, 1.0, 0.0).p_value == 1.0
    assert ReturnCheck(1.0, 0.0, 2.0, 0.0).p_value == 0.0


def test_the_value_of_the_behaviour_beside_the_mean_return(monkeypatch):
    """Geometric episodes: each step pays 1 and ends with probability 1/4."""
    rng = np.random.default_rng(0)
    lengths = rng.geometric(0.25, size=200)
    log = log_of(lengths, reward=np.ones(lengths.sum()))
    space = StateActionSpace.from_log(log)
    posterior = bm.infer(KEY, bm.models.known_rewards(1.0), log, space=space)
    found = return_check(KEY, posterior, log, space, FirstExit(), np.ones(1))
    assert isinstance(found, ReturnCheck)
    assert found.observed == pytest.approx(lengths.mean())
    assert found.error == pytest.approx(lengths.std(ddof=1) / 200**0.5)
    # The value is 1 / P(end), the posterior of that a beta distribution.
    end = stats.beta(201, lengths.sum() - 200 + 1).rvs(100_000, random_state=0)
    assert found.expected == pytest.approx((1 / end).mean(), rel=0.05)
    assert found.sd == pytest.approx((1 / end).std(), rel=0.5)
    assert found.p_value > 0.5
    # In a large problem no draw is taken: first-order moments, here against the exact ones.
    monkeypatch.setattr("bayes_mdp.calibration.criticism.log_checks.LARGE", 0)
    near = return_check(KEY, posterior, log, space, FirstExit(), np.ones(1))
    assert isinstance(near, ReturnCheck) and near.observed == found.observed
    assert near.expected == pytest.approx((1 / end).mean(), rel=0.01)
    assert near.sd == pytest.approx((1 / end).std(), rel=0.05)
    monkeypatch.undo()
    silent = log_of(lengths, reward=None)
    wrong = bm.infer(KEY, bm.models.known_rewards(2.0), silent, space=space)
    doubled = return_check(KEY, wrong, log, space, FirstExit(), np.ones(1))
    assert isinstance(doubled, ReturnCheck) and doubled.p_value < 1e-6
    assert "average" in str(return_check(KEY, posterior, log, space, AverageReward(), np.ones(1)))
