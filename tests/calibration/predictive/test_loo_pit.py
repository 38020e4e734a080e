# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""LOO-PIT against leaving out in closed form, and against ArviZ; faults it must see."""

from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import jax
import matplotlib
import numpy as np
import pytest
from scipy import stats

from bayes_mdp.calibration import predictive_check, to_arviz
from bayes_mdp.calibration.arviz.generation import smooth_weights
from bayes_mdp.calibration.belief import replicates as predictive
from bayes_mdp.calibration.belief.replicates import draws_and_rows
from bayes_mdp.calibration.predictive.loo_pit import Pit, _next_state, _reward, loo_pit
from bayes_mdp.inference import fitted
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.utils import memory
from tests.calibration.beliefs import sampled, transitions

SPACE = StateActionSpace(2, 1)
NUMBER = 300


@cache
def _belief(noise: float) -> Any:
    """Rewards of sd 1; the model holds them to have sd `noise`."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 2, NUMBER)
    next_state = (rng.random(NUMBER) < 0.3 + 0.4 * state).astype(int)
    data = Transitions(state, np.zeros(NUMBER, int), rng.normal(state, 1.0), next_state)
    rewards = reward_cells(NormalBelief(np.zeros(2), np.full(2, 5.0), np.full(2, noise)), (2, 1))
    with jax.enable_x64(True):
        prior = conjugate_posterior(dirichlet_rows(np.ones((2, 2)), (2, 1, 2)), rewards, SPACE)
        return jax.tree.map(np.asarray, prior.update(data)), data


def test_pit_is_the_distribution_function_of_the_prediction_from_the_others():
    """In closed form: normal with the noise and what is left of the mean's uncertainty. Weighted draws: error below .04
    at 500 draws and any of 300 transitions (a binomial sd is .022; max of 300: .04 of 4.9 sd would be .11, so .1)."""
    posterior, data = _belief(1.0)
    draws, rows = draws_and_rows(jax.random.key(1), posterior, data, 1000, "posterior")
    weights = np.exp(smooth_weights(-predictive.log_likelihood_rows(draws, rows).T)[0])
    found = _reward(np.random.default_rng(0), draws, rows, weights)
    expected = np.array([_left_out(data, i) for i in range(NUMBER)])
    # A weighted share of 1,000 draws has an sd of at most .016: 6.5 of them.
    assert np.abs(found - expected).max() < 0.104
    below = _next_state(np.random.default_rng(0), draws, rows, weights)
    zeros = np.array([_share_of_zeros(data, i) for i in range(NUMBER)])
    # Randomised within the probability of the outcome: [0, p0] or [p0, 1]; p0 is known to .01 from 1,000 draws.
    assert np.all(np.where(data.next_state == 0, below <= zeros + 0.01, below >= zeros - 0.01))


def _left_out(data, i):
    same = data.state == data.state[i]
    same[i] = False
    precision = 1 / 25 + same.sum()
    return stats.norm.cdf(data.reward[i], data.reward[same].sum() / precision, np.sqrt(1 + 1 / precision))


def _share_of_zeros(data, i):
    same = data.state == data.state[i]
    same[i] = False
    return (1 + np.sum(data.next_state[same] == 0)) / (2 + same.sum())


def test_predictions_of_the_right_width_are_uniform():
    found = loo_pit(*_belief(1.0), num_draws=500)
    assert set(found.variables) == {"next_state", "reward"}
    assert all(pit.uniform for pit in found.variables.values())
    assert str(found).count("uniform") == 2 and found.share_unreliable == 0.0
    matplotlib.use("Agg")
    figure = found.plot()
    assert len(figure.axes) == 2
    matplotlib.pyplot.close(figure)


@pytest.mark.parametrize(("noise", "fault"), [(0.6, "too narrow"), (1.7, "too wide")])
def test_predictions_of_the_wrong_width_are_seen(noise, fault):
    """A noise that is wrong by a factor of 1.7; false alarms are not possible at this key (see the test above)."""
    found = loo_pit(*_belief(noise), num_draws=500)
    assert found.variables["next_state"].uniform
    reward = found.variables["reward"]
    assert not reward.uniform and fault in reward.fault


@pytest.mark.parametrize("check", [loo_pit, predictive_check])
def test_what_would_not_fit_in_memory_is_refused_before_it_is_made(check, monkeypatch):
    """A thousand draws of a hundred million probabilities: the kernel ended the process."""
    monkeypatch.setattr(predictive, "draw", lambda *_: pytest.fail("draws were made"))
    posterior, data = _belief(1.0)
    large = replace(posterior, space=StateActionSpace(2000, 25))
    with pytest.raises(
        ValueError, match=r"^num_draws is 1000, 300 transitions, about .* GiB of memory, expected at most"
    ):
        check(large, data, num_draws=1000)
    monkeypatch.setattr(memory, "free_bytes", lambda: 2**22)
    with pytest.raises(ValueError, match=r"expected at most 2 MiB \(half of what is free\): fewer draws take less"):
        check(posterior, data, num_draws=100)


def test_few_draws_of_large_tables_are_made_at_once():
    assert fitted.block_size(16) == fitted.BLOCK
    assert fitted.block_size(714 * 25 * 714) == 1


def test_outcomes_drawn_some_draws_at_a_time_are_those_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    probs, which = rng.dirichlet(np.ones(4), (30, 5)), rng.integers(0, 5, 200)
    whole = predictive._categorical(np.random.default_rng(1), probs, which)
    monkeypatch.setattr(predictive, "NUMBERS_AT_ONCE", 60)
    np.testing.assert_array_equal(predictive._categorical(np.random.default_rng(1), probs, which), whole)


def test_a_shift_is_told_from_a_width():
    high = np.random.default_rng(0).random(300) ** 0.5
    assert Pit(high, 0.0).fault == "too high: predictions are too low"
    assert Pit(1 - high, 0.0).fault == "too low: predictions are too high"


@pytest.mark.slow
def test_arviz_says_the_same_of_continuous_rewards(arviz):
    """The same draws and weights, other replicates: values differ by Monte Carlo error alone."""
    posterior, data = _belief(1.0)
    tree = to_arviz(posterior, num_draws=1000, key=jax.random.key(1), data=data, log_likelihood="transition")
    log_weights, _ = smooth_weights(-tree["log_likelihood"].observed_transition.values[0].T)
    theirs = _of_arviz(arviz, tree, log_weights)
    ours = loo_pit(posterior, data, num_draws=1000).variables["reward"].values
    # Two shares of 1,000 draws each: sd .022, 6.5 of them.
    assert np.abs(theirs - ours).max() < 0.15
    assert np.abs(theirs - ours).mean() < 0.03


def _of_arviz(arviz, tree, log_weights):
    y, y_hat = tree["observed_data"].observed_reward, tree["posterior_predictive"].observed_reward
    if int(version("arviz").split(".")[0]) < 1:
        return arviz.loo_pit(y=y.values, y_hat=y_hat.values[0].T, log_weights=log_weights)
    dims = ("transition", "chain", "draw")
    weights = y_hat.transpose(*dims).copy(data=log_weights[:, None])
    pit, _ = y_hat.azstats.loo_pit(
        y_obs=y, log_weights=weights, pareto_k=y * 0.0, r_eff=1.0, sample_dims=["chain", "draw"]
    )
    return np.asarray(pit)


@pytest.mark.slow
def test_laws_without_statistics_and_missing_rewards():
    data = transitions()
    found = loo_pit(sampled(), data, num_draws=40)
    assert found.variables["next_state"].values.size == 60
    assert found.variables["reward"].values.size == 59
