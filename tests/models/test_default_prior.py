"""`default_prior`: the law that the rewards suggest, numbers that are moments, units that change nothing, exact."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln, logsumexp

import bayes_mdp as bm
from bayes_mdp.mdp import Log, Transitions
from bayes_mdp.models.default_prior import concentrations_of, near_bases
from bayes_mdp.models.priors import closed_form_of
from tests.envs.logs.random_logs import fold_log

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
    prior = bm.models.default_prior(log)
    assert prior.rewards.startswith(law) and law in str(prior)
    posterior: Any = bm.infer(KEY, prior, log, space=bm.StateActionSpace.from_log(log))
    assert posterior.method == "mixture" and np.isfinite(posterior.log_evidence)
    assert np.isfinite(posterior.mean_mdp().reward).all()


def test_a_law_can_be_named_and_one_that_cannot_give_the_rewards_is_refused():
    assert bm.models.default_prior(log_of(np.array([0.0, 1.0] * 30)), rewards="normal").rewards.startswith("normal")
    with pytest.raises(ValueError, match='rewards is "bernoulli", and the log has a reward of 2, expected "normal"'):
        bm.models.default_prior(log_of(np.array([0.0, 2.0] * 30)), rewards="bernoulli")
    with pytest.raises(ValueError, match="rewards is 'beta', expected one of"):
        bm.models.default_prior(log_of(np.ones(4)), rewards="beta")  # type: ignore[arg-type] - what is refused
    data = log_of(np.ones(4)).transitions
    with pytest.raises(ValueError, match="log holds no rewards"):
        bm.models.default_prior(Log(Transitions(data.state, data.action, None, data.next_state), (0, 1, 2), ("a", "b")))
    with pytest.raises(ValueError, match="log holds no reward that was observed"):
        unseen = Transitions(data.state, data.action, np.zeros(4), data.next_state, reward_observed=np.zeros(4, bool))
        bm.models.default_prior(Log(unseen, (0, 1, 2), ("a", "b")))


def chain_log(number: int, seed: int = 3) -> Log:
    """Six states in a line, from which one step or none leads up or down, or to the end: paid where it ends at 0."""
    rng = np.random.default_rng(seed)
    state, action = rng.integers(6, size=number), rng.integers(2, size=number)
    reached = state + rng.choice([-1, 0, 1], size=number)
    ends = (reached < 0) | (reached > 5)
    data = Transitions(state, action, (reached < 0) * 1.0, np.where(ends, 0, reached), ends)
    return Log(data, tuple(range(6)), ("a", "b"))


@pytest.mark.parametrize("order", ["states in a line", "states in any order"])
def test_weights_and_evidence_are_those_of_the_closed_forms(order):
    """By gamma functions: p(c, base | transitions), each of the pairs equally likely beforehand."""
    log = chain_log(200)
    data, names = log.transitions, np.arange(6)
    if order == "states in any order":
        names = np.array([3, 0, 5, 1, 4, 2])
        moved = Transitions(names[data.state], data.action, data.reward, names[data.next_state], data.terminated)
        log = Log(moved, log.states, log.actions)
    space = bm.StateActionSpace.from_log(log)
    counts = np.zeros((6, 2, 7))
    np.add.at(counts, (log.transitions.state, log.transitions.action, log.transitions.outcome(6)), 1.0)
    prior = bm.models.default_prior(log)
    each, rows = [], []
    for decay in (None, 0.1, 0.5):
        base = np.ones((6, 7))
        if decay is not None:  # a tenth goes anywhere; the end is as near as a neighbour
            for s in range(6):
                near = np.array([decay ** abs(s - t) for t in range(6)] + [decay])
                base[s] = 7 * (0.1 / 7 + 0.9 * near / near.sum())
        for c in prior.concentrations:
            a = c * base[:, None] + counts
            total = gammaln(7 * c) - gammaln(a.sum(-1))
            each.append((total + (gammaln(a) - gammaln(c * base[:, None])).sum(-1)).sum())
            rows.append(a / a.sum(-1, keepdims=True))
    posterior: Any = bm.infer(KEY, prior, log, space=space)
    weights = np.exp(np.array(each) - logsumexp(each))
    np.testing.assert_allclose(posterior.weights, weights, atol=1e-10)
    number = len(prior.concentrations)
    assert (weights[:number].sum() < 1e-6) == (order == "states in a line")
    mean = posterior.mean_mdp()
    expected = np.einsum("k,k...->...", weights, np.array(rows))
    np.testing.assert_allclose(mean.transition_probs, expected[..., :6], atol=1e-6)
    np.testing.assert_allclose(mean.end_probs, expected[..., 6], atol=1e-6)


def test_the_first_half_is_inferred_by_the_same_closed_forms():
    """The program that a posterior holds is as ready as the prior that made it: no detection, the same weights."""
    log = chain_log(80)
    space = bm.StateActionSpace.from_log(log)
    first: Any = bm.infer(KEY, bm.models.default_prior(log), log, space=space)
    again: Any = bm.infer(KEY, first.program, log, space=space)
    assert closed_form_of(first.program) is not None
    np.testing.assert_array_equal(again.weights, first.weights)


def test_rewards_of_the_outcome_are_told_apart():
    """0 or 1 at the end is the outcome's, by which a value is surer; noise, or what the pair alone says, is not."""
    log = chain_log(400)
    space = bm.StateActionSpace.from_log(log)
    prior = bm.models.default_prior(log)
    assert prior.rewards.startswith("of each outcome, 0 or 1, Bernoulli")
    policy, spread = np.full((6, 2), 0.5), []
    pair = bm.models.unknown_concentration(prior.concentrations, rewards=bm.models.dirichlet_bernoulli)
    for each in (prior, pair):
        posterior = bm.infer(KEY, each, log, space=space)
        spread.append(bm.policy_value(KEY, posterior, policy, bm.Discounted(0.95), num_draws=400).sd)
    assert spread[0] < 0.8 * spread[1]
    noise = np.random.default_rng(0).integers(2, size=400) * 1.0
    data = log.transitions
    other = Log(Transitions(data.state, data.action, noise, data.next_state, data.terminated), log.states, log.actions)
    assert bm.models.default_prior(other).rewards.startswith("0 or 1, Bernoulli")
    few = Transitions(*(np.asarray(x)[:12] for x in (data.state, data.action, data.reward, data.next_state)))
    assert bm.models.default_prior(Log(few, log.states, log.actions)).rewards.startswith("0 or 1")  # too few to say


def test_where_there_is_no_order_the_bases_are_alike():
    """One state; listed successors; bases of too many numbers, or rows that have to be held one by one."""
    assert len(near_bases(bm.StateActionSpace(6, 2))) == 2
    assert near_bases(bm.StateActionSpace(1, 2)) == []
    assert near_bases(bm.StateActionSpace(3, 1, successors=np.zeros((3, 1, 1), int))) == []
    assert near_bases(bm.StateActionSpace(4000, 2)) == []
    support = np.ones((300, 20, 300), bool)
    assert near_bases(bm.StateActionSpace(300, 20, support=support)) == [] != near_bases(bm.StateActionSpace(300, 20))


@pytest.mark.parametrize(("unit", "zero"), [(1e-4, 0.0), (1e5, 0.0), (1.0, -300.0), (20.0, 1e4)])
def test_units_and_zeros_of_rewards_change_nothing(unit, zero):
    reward = np.random.default_rng(1).normal(size=90)
    space = bm.StateActionSpace(3, 2)
    means = []
    for scale, shift in ((1.0, 0.0), (unit, zero)):
        log = log_of(scale * reward + shift)
        mean = bm.infer(KEY, bm.models.default_prior(log), log.transitions, space=space).mean_mdp().reward
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
        mean = np.asarray(
            bm.infer(KEY, bm.models.default_prior(noisy), noisy.transitions, space=space).mean_mdp().reward
        )
        seen = np.array([reward[pair == i].mean() for i in range(6)])
        spreads.append(np.ptp(mean) / np.ptp(seen))
    assert spreads[0] < 0.7 and spreads[1] == pytest.approx(1.0, abs=1e-3)


def test_lists_of_concentrations():
    """From 4 an outcome to 1/8 a row; wider steps where rows of many numbers do not repeat."""
    small = concentrations_of(bm.StateActionSpace(4, 3))
    assert small[-1] == pytest.approx(4.0) and small[0] == pytest.approx(0.125 / 4) and len(small) == 8
    assert len(concentrations_of(bm.StateActionSpace(800, 10))) == 16
    large = concentrations_of(bm.StateActionSpace(800, 10, support=np.ones((800, 10, 800), bool)))
    assert 2 <= len(large) < 14 and large[-1] == pytest.approx(4.0) and large[0] == pytest.approx(0.125 / 800)
    assert (np.diff(np.log(large)) == pytest.approx(np.diff(np.log(large))[0])) and (np.diff(small) > 0).all()


def test_it_is_the_default_of_a_frame_with_gaps():
    """Rewards that are missing are left out of the moments."""
    frame = pd.DataFrame({"s": "a", "a": ["x", "y"] * 20, "r": [0.0, 1.0, np.nan, 1.0] * 10, "t": "a", "end": True})
    log = bm.read_log(
        frame, state="s", action="a", reward="r", next_state="t", terminated="end", missing_reward="ignore"
    )
    assert bm.models.default_prior(log).rewards.startswith("0 or 1, Bernoulli; a mean reward is 0.5 beforehand")


@pytest.mark.parametrize("kind", ["normal", "0 or 1", "at the end"])
def test_a_folded_log_has_the_prior_of_the_whole_one(kind):
    """To rounding: its moments are those of the rewards; counts alone are normal there."""
    if kind == "at the end":
        log = chain_log(300)
    else:
        rng = np.random.default_rng(1)
        log = log_of(rng.normal(3.0, 2.0, 300) if kind == "normal" else rng.integers(2, size=300) * 1.0)
    data = log.transitions
    frame = pd.DataFrame({"s": data.state, "a": np.array(log.actions)[data.action], "r": data.reward})
    frame = frame.assign(t=data.next_state, over=False if data.terminated is None else data.terminated)
    read: Any = {
        "state": "s",
        "action": "a",
        "reward": "r",
        "next_state": "t",
        "terminated": "over",
        "states": log.states,
    }
    folded = fold_log(frame, actions=log.actions, **read)
    space = bm.StateActionSpace.from_log(folded)
    whole, parts = (bm.models.default_prior(each, space=space) for each in (log, folded))
    assert str(whole) == str(parts)
    one: Any
    other: Any
    one, other = (bm.infer(KEY, prior, each, space=space) for prior, each in ((whole, log), (parts, folded)))
    np.testing.assert_allclose(one.log_weights, other.log_weights, rtol=1e-9, atol=1e-9)
    assert one.log_evidence == pytest.approx(other.log_evidence, rel=1e-11)


def test_counts_of_a_folded_log_are_normal():
    log = log_of(np.random.default_rng(0).poisson(2.0, size=600) * 1.0)
    data = log.transitions
    frame = pd.DataFrame({"s": data.state, "a": data.action, "r": data.reward, "t": data.next_state})
    folded = fold_log(frame, state="s", action="a", reward="r", next_state="t")
    assert bm.models.default_prior(folded).rewards.startswith("normal")
    with pytest.raises(ValueError, match='rewards is "poisson" with a folded log, which does not keep every reward'):
        bm.models.default_prior(folded, rewards="poisson")


def test_a_reward_without_an_outcome_is_none_of_another_pair():
    """Of rewards by outcome, those whose outcome was not observed say nothing."""
    log = chain_log(400)
    data = log.transitions
    lost = np.arange(400) % 5 == 0
    paid = np.where(lost, 7.0, np.asarray(data.reward))
    over = np.asarray(data.terminated) & ~lost
    partial = Transitions(data.state, data.action, paid, data.next_state, over, next_observed=~lost)
    kept = jax.tree.map(lambda x: np.asarray(x)[~lost], data)
    by_outcome = bm.models.default_prior(Log(partial, log.states, log.actions), rewards="normal")
    assert by_outcome.rewards == bm.models.default_prior(Log(kept, log.states, log.actions), rewards="normal").rewards
