"""`default_prior`: the law that the rewards suggest, numbers that are moments, units that change nothing, exact."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, logsumexp

import bayes_mdp as bm
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.models.default_prior import concentrations_of

KEY = jax.random.key(0)


def log_of(reward: np.ndarray, seed: int = 0) -> Log:
    """Three states, two actions, rows that are nearly certain."""
    rng, number = np.random.default_rng(seed), len(reward)
    state, action = rng.integers(3, size=number), rng.integers(2, size=number)
    reached = np.where(rng.random(number) < 0.95, (state + action) % 3, rng.integers(3, size=number))
    return Log(Transitions(state, action, reward, reached), (0, 1, 2), ("a", "b"))


@pytest.mark.parametrize(
    ("reward", "law"),
    [
        (np.random.default_rng(0).integers(2, size=60) * 1.0, "0 or 1, Bernoulli"),
        (np.random.default_rng(0).poisson(2.0, size=600) * 1.0, "counts, Poisson"),
        (np.random.default_rng(0).poisson(2.0, size=600) * 10.0, "normal"),  # counts of tens, that vary too much
        (np.random.default_rng(0).normal(size=60), "normal"),
        (np.array([0.0, 2.0] * 30), "counts, Poisson"),  # variance 1, mean 1
        (np.full(60, 3.0), "normal"),
        (np.zeros(60), "0 or 1, Bernoulli"),
    ],
)
def test_the_law_is_that_of_the_rewards(reward, law):
    log = log_of(reward)
    prior = bm.default_prior(log)
    assert prior.rewards.startswith(law) and law in str(prior)
    posterior: Any = bm.infer(KEY, prior, log, space=bm.StateActionSpace.from_log(log))
    assert posterior.method == "mixture" and np.isfinite(posterior.log_evidence)
    assert np.isfinite(posterior.mean_mdp().reward).all()


def test_a_law_can_be_named_and_one_that_cannot_give_the_rewards_is_refused():
    assert bm.default_prior(log_of(np.array([0.0, 1.0] * 30)), rewards="normal").rewards.startswith("normal")
    with pytest.raises(ValueError, match='rewards is "bernoulli", and the log has a reward of 2, expected "normal"'):
        bm.default_prior(log_of(np.array([0.0, 2.0] * 30)), rewards="bernoulli")
    with pytest.raises(ValueError, match="rewards is 'beta', expected one of"):
        bm.default_prior(log_of(np.ones(4)), rewards="beta")  # type: ignore[arg-type] - what is refused
    data = log_of(np.ones(4)).transitions
    with pytest.raises(ValueError, match="log holds no rewards"):
        bm.default_prior(Log(Transitions(data.state, data.action, None, data.next_state), (0, 1, 2), ("a", "b")))
    with pytest.raises(ValueError, match="log holds no reward that was observed"):
        unseen = Transitions(data.state, data.action, np.zeros(4), data.next_state, reward_observed=np.zeros(4, bool))
        bm.default_prior(Log(unseen, (0, 1, 2), ("a", "b")))


def test_weights_and_evidence_are_those_of_the_closed_forms():
    """By gamma functions: p(c | transitions) over the list, each value equally likely beforehand."""
    log = log_of(np.zeros(200))
    space = bm.StateActionSpace.from_log(log)
    prior = bm.default_prior(log)
    counts = np.zeros((3, 2, 3))
    data = log.transitions
    np.add.at(counts, (np.asarray(data.state), np.asarray(data.action), np.asarray(data.next_state)), 1.0)
    each = []
    for c in prior.concentrations:
        total = gammaln(3 * c) - gammaln(3 * c + counts.sum(-1))
        each.append((total + (gammaln(c + counts) - gammaln(c)).sum(-1)).sum())
    posterior: Any = bm.infer(KEY, prior, log, space=space)
    np.testing.assert_allclose(posterior.weights, np.exp(np.array(each) - logsumexp(each)), atol=1e-10)
    # Rows nearly all lead to one state: a small concentration is learnt.
    assert np.sum(np.asarray(posterior.weights) * prior.concentrations) < 0.5
    rows = sum(
        w * (c + counts) / (3 * c + counts.sum(-1, keepdims=True))
        for w, c in zip(np.asarray(posterior.weights), prior.concentrations, strict=True)
    )
    np.testing.assert_allclose(posterior.mean_mdp().transition_probs, rows, atol=1e-6)


@pytest.mark.parametrize(("unit", "zero"), [(1e-4, 0.0), (1e5, 0.0), (1.0, -300.0), (20.0, 1e4)])
def test_units_and_zeros_of_rewards_change_nothing(unit, zero):
    reward = np.random.default_rng(1).normal(size=90)
    space = bm.StateActionSpace(3, 2)
    means = []
    for scale, shift in ((1.0, 0.0), (unit, zero)):
        log = log_of(scale * reward + shift)
        mean = bm.infer(KEY, bm.default_prior(log), log.transitions, space=space).mean_mdp().reward
        means.append((np.asarray(mean, np.float64) - shift) / scale)
    np.testing.assert_allclose(means[1], means[0], atol=2e-3 if zero else 1e-5)


def test_means_are_drawn_together_by_what_rewards_vary_within_and_between():
    """Noise within pairs alone: the means are nearly equal. None: they are those of the data."""
    rng = np.random.default_rng(2)
    log = log_of(np.zeros(120))
    space = bm.StateActionSpace(3, 2)
    pair = np.asarray(log.transitions.state) * 2 + np.asarray(log.transitions.action)
    spreads = []
    for noise, apart in ((1.0, 0.0), (1e-3, 1.0)):
        reward = noise * rng.normal(size=120) + apart * pair
        data = Transitions(log.transitions.state, log.transitions.action, reward, log.transitions.next_state)
        noisy = Log(data, log.states, log.actions)
        mean = np.asarray(bm.infer(KEY, bm.default_prior(noisy), noisy.transitions, space=space).mean_mdp().reward)
        seen = np.array([reward[pair == i].mean() for i in range(6)])
        spreads.append(np.ptp(mean) / np.ptp(seen))
    assert spreads[0] < 0.7 and spreads[1] == pytest.approx(1.0, abs=1e-3)


def test_lists_of_concentrations():
    """From 4 an outcome to 1/8 a row; wider steps where the rows have many numbers."""
    small = concentrations_of(bm.StateActionSpace(4, 3))
    assert small[-1] == pytest.approx(4.0) and small[0] == pytest.approx(0.125 / 4) and len(small) == 8
    large = concentrations_of(bm.StateActionSpace(800, 10))
    assert 2 <= len(large) < 14 and large[-1] == pytest.approx(4.0) and large[0] == pytest.approx(0.125 / 800)
    assert (np.diff(np.log(large)) == pytest.approx(np.diff(np.log(large))[0])) and (np.diff(small) > 0).all()


def test_it_is_the_default_of_a_frame_with_gaps():
    """Rewards that are missing are left out of the moments."""
    frame = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0, np.nan, 1.0] * 10, "t": "a", "end": True})
    log = bm.read_log(
        frame, state="s", action="a", reward="r", next_state="t", terminated="end", missing_reward="ignore"
    )
    assert bm.default_prior(log).rewards.startswith("0 or 1, Bernoulli; a mean reward is 0.661 beforehand")
