"""The door: `choose` against brute force on the same draws, its promises, and what it refuses."""

from itertools import product
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import ChooseOptions
from bayes_mdp.decisions.choosing import policy_search
from bayes_mdp.decisions.choosing.choose import PolicyChoice, choose, choose_first
from bayes_mdp.decisions.choosing.common_draws import draws_of
from bayes_mdp.decisions.choosing.criteria import ProbabilityOptimal, Robust
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit
from bayes_mdp.planning import solve
from tests.decisions.choosing.problems import (
    GAMMA,
    POLICIES,
    REWARD,
    ROWS,
    START,
    DirichletRows,
    dense_table,
    exceeded,
    learnt,
    lowest_mean,
)
from tests.inference.policy_problems import OnlySamples, posterior, weighted
from tests.options import fold

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
TABLE = dense_table(ROWS, REWARD, GAMMA, START)
UNIFORM = np.full((3, 3), 1 / 3)
AIM = Discounted(GAMMA)


class Worlds(eqx.Module):
    """One of the listed worlds, equally likely."""

    rows: Any
    legal: Any = None

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> MDP:
        world = jax.random.randint(key, sample_shape, 0, len(self.rows))
        reward = jax.numpy.broadcast_to(jax.numpy.asarray(REWARD), (*sample_shape, 3, 3))
        return MDP(jax.numpy.asarray(self.rows)[world], reward, legal=self.legal)

    def mean_mdp(self) -> MDP:
        return MDP(np.asarray(self.rows).mean(0), REWARD, legal=self.legal)


def drawn(key: Any, number: int, half: int) -> np.ndarray:
    """Which worlds the search (0) or the judgement (1) drew."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.split(key)[half], number)
        return np.asarray(jax.vmap(lambda k: jax.random.randint(k, (), 0, 5))(keys))


ORACLES: dict[str, Any] = {
    "mean": lambda v, best: v.mean(),
    "cvar:0.2": lambda v, best: lowest_mean(v, 0.2),
    "percentile:0.3": lambda v, best: exceeded(v, 0.3),
    "soft-robust:0.2:0.25": lambda v, best: 0.25 * v.mean() + 0.75 * lowest_mean(v, 0.2),
    "regret": lambda v, best: (v - best).min(),
    "probability-optimal": lambda v, best: np.mean(best - v <= 1e-8),
}


@pytest.mark.parametrize("name", ORACLES)
def test_it_is_brute_force_on_its_own_draws(name):
    """Claimed in the draws of the search, scored in those of the judgement, both by the table of the five worlds."""
    found = choose(KEY, Worlds(ROWS), AIM, name, initial=START, options=ChooseOptions(num_draws=100))
    search, judge = (TABLE[:, drawn(KEY, 100, half)] for half in (0, 1))
    scores = [ORACLES[name](values, search.max(0)) for values in search]
    assert found.exact and not found.abstained and found.baseline is None and found.improvement is None
    assert found.claimed == pytest.approx(max(scores), abs=1e-9)
    own = int(np.argmax((found.policy == POLICIES).all(-1)))
    assert scores[own] == pytest.approx(max(scores), abs=1e-9)
    np.testing.assert_allclose(found.value.draws, judge[own], rtol=1e-9)
    assert found.score == pytest.approx(ORACLES[name](judge[own], judge.max(0)), abs=1e-9)
    assert found.policy.dtype.kind == "i" and found.candidate is found.policy
    assert np.isfinite(found.score_error)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["mean", "cvar:0.5", "percentile:0.5", "regret", "probability-optimal", "robust:0.9"])
def test_a_known_mdp_gives_its_optimum(name, x64):
    """Whatever the criterion."""
    belief = Worlds(ROWS[2:3])
    found = choose(KEY, belief, AIM, name, initial=START, options=ChooseOptions(num_draws=64))
    optimum = solve(MDP(ROWS[2], REWARD), AIM)
    np.testing.assert_array_equal(found.policy, np.asarray(optimum.policy))
    if name not in ("regret", "probability-optimal"):
        assert found.score == pytest.approx(float(optimum.v[0]), rel=1e-6)


OBJECTIVES = [Episodic(2, 0.5), Discounted(0.9), Episodic(2), AverageReward(), FirstExit()]


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_every_objective(objective):
    """The best of all policies on the draws of the search, by values of the same draws; scored as `policy_value` does.

    A mixture is never worse.
    """
    belief, start = posterior(ends=isinstance(objective, FirstExit)), np.eye(4)[0]
    found = choose(KEY, belief, objective, initial=start, options=ChooseOptions(num_draws=20))
    keys = jax.random.split(KEY)
    draws = draws_of(keys[0], belief, objective, 20, initial=start)
    steps = (2, 4) if isinstance(objective, Episodic) else (4,)
    every = np.array(list(product(range(2), repeat=int(np.prod(steps))))).reshape(-1, *steps)
    values = draws.values(np.eye(2)[every]).mean(0)
    assert found.claimed == pytest.approx(values.max(), rel=1e-12) and found.exact
    np.testing.assert_array_equal(found.policy, every[values.argmax()])
    judged = policy_value(keys[1], belief, found.policy, objective, initial=start, num_draws=20)
    np.testing.assert_allclose(found.value.draws, judged.draws, rtol=1e-9)
    assert found.score == pytest.approx(judged.mean)
    mixed = choose(
        KEY,
        belief,
        objective,
        initial=start,
        options=ChooseOptions(num_draws=20, limits=PolicyLimits(stochastic=True)),
    )
    assert mixed.claimed >= found.claimed


WAITS = weighted(
    [
        [[1, 1, 0, 0], [1, 1, 0, 1]],
        [[1, 1, 0, 0], [0, 2, 1, 0.2]],
        [[0, 0, 2, 1], [1, 0, 0, 0]],
    ],
    [[-0.1, -1.0], [-0.2, -1.5], [-2.0, -0.1]],
    True,
)
"""Two of its eight policies never end: the first action, which costs little, in the first two states."""


@pytest.mark.parametrize("name", ["mean", "percentile:0.3", "regret"])
def test_policies_that_never_end_are_left_out(name, monkeypatch):
    """Against `policy_value` of those that end; by trying all, by ascent, with mixtures, and near a baseline."""
    key, start, values = jax.random.split(KEY)[0], np.array([1.0, 0.0, 0.0]), {}
    for policy in product(range(2), repeat=3):
        if policy[:2] != (0, 0):
            values[policy] = policy_value(key, WAITS, policy, FirstExit(), initial=start, num_draws=100).draws
    best = np.max(list(values.values()), 0)
    scores = {policy: ORACLES[name](draws, best) for policy, draws in values.items()}

    def chosen(baseline: Any = None, **limits: Any) -> PolicyChoice:
        options = ChooseOptions(num_draws=100, limits=PolicyLimits(**limits))
        return choose(KEY, WAITS, FirstExit(), name, baseline=baseline, initial=start, options=options)

    found = chosen()
    assert found.claimed == pytest.approx(max(scores.values()), rel=1e-9)
    assert tuple(found.policy.tolist()) == max(scores, key=lambda policy: scores[policy]) and found.exact
    assert found.how == "best of the 6 of 8 deterministic policies that end in every draw"
    assert chosen(stochastic=True).claimed >= found.claimed
    assert np.isfinite(chosen([1, 1, 0], max_change=0.5).claimed)
    with pytest.raises(ValueError, match=r"baseline: its value in draw 0 is .* ends with probability one"):
        chosen([0, 0, 0])
    monkeypatch.setattr(policy_search, "ENUMERATED", 0)
    climbed = chosen()
    assert climbed.how.startswith("ascent from") and climbed.claimed == pytest.approx(found.claimed, rel=1e-9)


def test_a_set_of_policies_that_never_end_is_refused():
    """By the first state without a way out."""
    never = np.array([[True, False], [True, False], [True, True]])
    options = ChooseOptions(limits=PolicyLimits(allowed=never))
    for criterion in ("mean", "cvar:0.2", "regret"):
        with pytest.raises(ValueError, match="FirstExit, and no allowed policy ends from state 0, expected limits"):
            choose(KEY, WAITS, FirstExit(), criterion, options=options)


def test_what_steps_mean_to_a_posterior_with_steps():
    """A belief of each step."""
    belief = posterior(horizon=2)
    found = choose(KEY, belief, Episodic(2), initial=np.eye(4)[0], options=ChooseOptions(num_draws=20))
    assert found.policy.shape == (2, 4) and found.exact
    with pytest.raises(ValueError, match="draws that depend on the step, expected draws that do not with Robust"):
        choose(KEY, belief, Episodic(2), "robust:0.5", options=ChooseOptions(num_draws=64))


def test_the_same_key_is_the_same_choice():
    """And another key draws others."""
    found, again, other = (
        choose(k, Worlds(ROWS), AIM, options=ChooseOptions(num_draws=64)) for k in (KEY, KEY, jax.random.key(1))
    )
    assert found.claimed == again.claimed and found.score == again.score
    assert found.claimed != other.claimed


def half_half(policy: np.ndarray) -> np.ndarray:
    """As probabilities."""
    return np.eye(3)[policy] if policy.dtype.kind == "i" else policy


ALLOWED = np.array([[False, True, True], [True, True, False], [True, False, True]])


@pytest.mark.some(2)
@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("with_baseline", [False, True])
def test_an_allowed_mask_is_kept(stochastic, with_baseline):
    """Also where the baseline takes what is not allowed, and data are few; only the baseline itself may."""
    baseline = np.array([0, 0, 1]) if with_baseline else None
    for seed in range(4):
        found = choose(
            jax.random.key(seed),
            learnt(seed, steps=30),
            AIM,
            baseline=baseline,
            options=ChooseOptions(
                limits=PolicyLimits(allowed=ALLOWED, stochastic=stochastic), num_draws=64, confidence=0.6
            ),
        )
        probs = half_half(found.candidate)
        kept = baseline is not None and np.array_equal(probs, np.eye(3)[baseline])
        assert kept or (probs[~ALLOWED] == 0).all()
        if not found.abstained:
            np.testing.assert_array_equal(half_half(found.policy), probs)


def test_a_forbidden_habit_is_not_followed():
    """The baseline is good where it takes a rare action that is not allowed, or seen too seldom, and poor elsewhere.

    Policies that keep the habit and mend the rest are the only sure improvements, and may not be chosen.
    """
    counts = np.full((3, 3, 3), 20)
    counts[0, 0] = 2
    reward = np.array([[20.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 6.0, 0.0]])
    belief, habit = DirichletRows(counts, reward), np.array([0, 0, 0])
    mask = np.array([[False, True, True], [True] * 3, [True] * 3])
    for limits in (PolicyLimits(allowed=mask), PolicyLimits(min_count=8)):
        for stochastic in (False, True):
            allowed = PolicyLimits(limits.allowed, limits.min_count, stochastic=stochastic)
            found = choose(KEY, belief, AIM, baseline=habit, options=ChooseOptions(limits=allowed, num_draws=100))
            np.testing.assert_array_equal(found.candidate, habit)
            assert found.abstained and "the baseline is returned: no better policy was found" in str(found)
    free = choose(KEY, belief, AIM, baseline=habit, options=ChooseOptions(num_draws=100))
    np.testing.assert_array_equal(free.policy, [0, 1, 1])


@pytest.mark.parametrize("criterion", ["mean", "regret:0.3"])
def test_the_first_confidence_that_finds_a_policy_is_that_of_as_many_calls(criterion, monkeypatch):
    """Where the search ends at the baseline, by the next confidence; both searches pass over the same draws."""
    made, second, today = [], 0, np.array([1, 1, 1])
    monkeypatch.setattr(
        "bayes_mdp.decisions.choosing.choose.draws_of",
        lambda *args, **kwargs: made.append(1) or draws_of(*args, **kwargs),
    )
    for seed in (2, 3):
        belief, options = learnt(seed, steps=30), [ChooseOptions(num_draws=100, confidence=c) for c in (0.95, 0.02)]
        calls = [choose(KEY, belief, AIM, criterion, baseline=today, options=each) for each in options]
        expected = calls[int(calls[0].found_nothing)]
        second += calls[0].found_nothing and not calls[1].found_nothing
        made.clear()
        answer = choose_first(KEY, belief, AIM, criterion, today, None, options[0], (0.95, 0.02))
        assert len(made) == 2  # the search's and the judge's
        for one, other in zip(jax.tree.leaves(answer), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
        assert str(answer) == str(expected)
    assert second > 0


def test_a_least_count_is_kept():
    """Actions that were seen less often are not taken, but where a state has no other: there the baseline."""
    baseline, least = np.array([[0.2, 0.3, 0.5]] * 3), 8
    for seed in range(4):
        belief = learnt(seed, steps=45)
        counts = np.asarray(belief.visit_counts())
        rare = (counts < least) & (counts >= least).any(-1, keepdims=True)
        none = ~(counts >= least).any(-1)
        for today in (None, baseline):
            found = choose(
                jax.random.key(seed),
                belief,
                AIM,
                baseline=today,
                options=ChooseOptions(limits=PolicyLimits(min_count=least), num_draws=64, confidence=0.6),
            )
            probs = half_half(found.candidate)
            if today is not None and np.array_equal(probs, today):
                continue
            assert (probs[rare] == 0).all()
            if today is not None:
                np.testing.assert_allclose(probs[none], baseline[none])


@pytest.mark.parametrize(
    "limits",
    [PolicyLimits(max_change=0.3), PolicyLimits(bootstrap_below=6), PolicyLimits(max_change=0.3, stochastic=True)],
)
def test_what_the_baseline_fixes_is_kept(limits):
    """Total variation, and probabilities of rare actions."""
    for seed in range(3):
        belief = learnt(seed, steps=45)
        found = choose(
            jax.random.key(seed),
            belief,
            AIM,
            baseline=UNIFORM,
            options=ChooseOptions(limits=limits, num_draws=64, confidence=0.6),
        )
        for policy in (found.policy, found.candidate):
            probs = half_half(policy)
            assert 0.5 * np.abs(probs - UNIFORM).sum(-1).max() <= limits.max_change + 1e-9
            rare = np.asarray(belief.visit_counts()) < (limits.bootstrap_below or 0)
            np.testing.assert_allclose(probs[rare], 1 / 3, atol=1e-12)
        assert found.improvement is not None and found.baseline is not None


def test_stochastic_is_never_claimed_to_be_worse():
    """On the same draws, with a baseline."""
    for seed in range(2):
        claims = [
            choose(
                jax.random.key(seed),
                learnt(seed, steps=45),
                AIM,
                baseline=UNIFORM,
                options=ChooseOptions(limits=PolicyLimits(stochastic=stochastic), num_draws=100),
            ).claimed
            for stochastic in (False, True)
        ]
        assert claims[1] >= claims[0] - 1e-12


def test_improvement_or_abstention():
    """An optimal baseline is kept, a poor one is left; the improvement is that of paired fresh draws."""
    belief = learnt(0, steps=60)
    poor = choose(KEY, belief, AIM, baseline=UNIFORM, options=ChooseOptions(num_draws=100))
    assert not poor.abstained and poor.improvement is not None and poor.improvement.accepted
    assert poor.baseline is not None
    np.testing.assert_allclose(poor.improvement.gain, poor.value.draws - poor.baseline.draws, rtol=1e-12)
    assert "asked for: reached" in str(poor) and "the baseline is returned" not in str(poor)
    good = choose(KEY, belief, AIM, baseline=poor.policy, options=ChooseOptions(num_draws=100, confidence=0.9))
    assert good.abstained
    np.testing.assert_array_equal(good.policy, poor.policy)
    assert "the baseline is returned" in str(good)
    slack = choose(
        KEY,
        belief,
        AIM,
        baseline=poor.policy,
        options=ChooseOptions(slack=100.0, num_draws=100, confidence=0.9),
    )
    assert slack.improvement is not None and slack.improvement.prob == 1.0


@pytest.mark.parametrize("room, searched", [(0, 64), (80, 80), (200, 100)])
def test_a_large_problem_is_searched_in_few_draws(monkeypatch, room, searched):
    """The first that there is room for choose, 64 at least; all fresh ones judge, of the policy's own pairs alone."""
    belief = learnt(0, steps=60)
    search_key, judge_key = jax.random.split(KEY)
    few = draws_of(search_key, belief, AIM, searched, initial=START)
    monkeypatch.setattr("bayes_mdp.decisions.choosing.common_draws.SEARCHED", room * few.numbers)
    found = choose(KEY, belief, AIM, initial=START, options=ChooseOptions(num_draws=100))
    judge = draws_of(judge_key, belief, AIM, 100, initial=START)
    assert found.claimed == pytest.approx(few.values(np.eye(3)[POLICIES]).mean(0).max(), rel=1e-9)
    own = judge.values(np.eye(3)[found.policy][None])[:, 0]
    np.testing.assert_allclose(found.value.draws, own, rtol=1e-6)


@pytest.mark.slow
def test_regrets_are_those_of_one_optimum():
    """Of all legal policies, whatever may be chosen.

    Among the 8 allowed of 27 policies that are alike the best has at most so many of the chances; against the best of
    the 8 it would have .15.
    """
    belief = bm.infer(KEY, bm.models.dirichlet_normal(0.5), space=bm.StateActionSpace(3, 3), method="exact")
    ask = lambda: choose(  # noqa: E731
        KEY,
        belief,
        AIM,
        ProbabilityOptimal(),
        options=ChooseOptions(limits=PolicyLimits(allowed=ALLOWED), num_draws=200),
    )
    assert ask().score < 0.12


def test_robust_plans():
    """A radius of zero is the mean; the credible set promises less than the worst of most draws."""
    mean = Worlds(ROWS)
    nothing = choose(
        KEY, mean, AIM, Robust(radius=np.zeros((3, 3))), initial=START, options=ChooseOptions(num_draws=64)
    )
    np.testing.assert_array_equal(nothing.policy, (2, 0, 1))
    assert nothing.score == pytest.approx(8.6692378089, rel=1e-6) and nothing.exact
    radius = np.abs(ROWS - ROWS.mean(0)).sum(-1).max(0)
    wide = choose(KEY, mean, AIM, Robust(radius=radius), initial=START, options=ChooseOptions(num_draws=64))
    np.testing.assert_array_equal(wide.policy, (0, 0, 0))
    assert wide.score == pytest.approx(8.0693158727, rel=1e-6)
    belief = learnt(0, steps=60)
    found = choose(KEY, belief, AIM, "robust:0.9", initial=START, options=ChooseOptions(num_draws=200))
    # At least .9 of further draws lie in the set: with 200 of them, six standard errors.
    assert np.mean(found.value.draws >= found.score) >= 0.9 - 6 * np.sqrt(0.09 / 200)
    assert "a set that has at least 0.9 of the posterior" in found.how and found.score_error == 0


def test_in_words():
    """A few lines."""
    found = choose(KEY, Worlds(ROWS), AIM, "cvar:0.5", initial=START, options=ChooseOptions(num_draws=64))
    section = found.layout()
    assert section.title == "Policy chosen by mean of the lowest 0.5 of the values (CVaR), discount 0.9"
    assert section.parts[0] == "how: best of all 27 deterministic policies, in these draws"
    assert "in 64 fresh draws" in str(section.parts[1]) and "in those that chose it" in str(section.parts[1])
    assert section.parts[3] == "start: the given distribution over 1 of 3 states"
    assert isinstance(found, PolicyChoice)


@pytest.mark.slow
def test_the_score_of_fresh_draws_has_no_optimism():
    """Over 60 problems without data the claim is too high, the score is not: six standard errors either way."""
    belief = DirichletRows(np.ones((3, 3, 3), int), np.random.default_rng(0).normal(size=(3, 1)) * np.ones((3, 3)))
    claims, scores = [], []
    for seed in range(60):
        found = choose(jax.random.key(seed), belief, AIM, initial=START, options=ChooseOptions(num_draws=32))
        claims.append(found.claimed)
        scores.append(found.score)
    # All 27 policies are alike: the truth is the value of any of them.
    truth = policy_value(KEY, belief, np.zeros(3, int), AIM, initial=START, num_draws=20_000)
    error = np.std(scores, ddof=1) / np.sqrt(60) + truth.sd / np.sqrt(20_000)
    assert abs(np.mean(scores) - truth.mean) <= 6 * error
    assert np.mean(claims) > truth.mean + 6 * error


LEGAL = np.array([[True, True, True], [True, False, True], [True, True, True]])


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"posterior": 3}, TypeError, "choose needs a posterior that has sample, got a int without sample"),
        ({"key": np.zeros(2, np.uint32)}, TypeError, "key is an array of dtype uint32, expected a typed key"),
        ({"objective": 0.9}, TypeError, "objective"),
        ({"limits": None}, TypeError, "limits is None, expected a? ?.*PolicyLimits"),
        ({"criterion": "best"}, ValueError, "criterion is 'best', expected one of mean, cvar"),
        ({"criterion": "cvar"}, ValueError, "criterion is 'cvar', expected cvar:LEVEL"),
        ({"criterion": "cvar:2"}, ValueError, "level is 2"),
        ({"criterion": "cvar:0.1"}, ValueError, "num_draws is 64, expected at least 200: .* share of 0.1"),
        ({"criterion": "robust:0.99"}, ValueError, "num_draws is 64, expected at least 197: a credible set"),
        ({"criterion": Robust(radius=np.zeros((2, 3)))}, ValueError, r"radius has shape \(2, 3\), expected \(3, 3\)"),
        ({"criterion": "robust:0.5", "objective": AverageReward()}, ValueError, "objective is AverageReward, expected"),
        ({"criterion": 0.1}, TypeError, "criterion is 0.1, expected a criterion or its name"),
        ({"confidence": 1.0}, ValueError, "confidence is 1.0, expected a number between 0 and 1"),
        ({"confidence": 0}, ValueError, "confidence is 0, expected a number between 0 and 1"),
        ({"confidence": "high"}, TypeError, "confidence is 'high', expected a number between 0 and 1"),
        ({"slack": -1.0}, ValueError, "slack is -1.0, expected a number, zero or greater"),
        ({"slack": np.inf}, ValueError, "slack is inf, expected a number, zero or greater"),
        ({"num_draws": 1}, ValueError, "num_draws is 1"),
        ({"num_draws": 30.5}, TypeError, "num_draws is 30.5"),
        ({"baseline": [0, 0, 0]}, ValueError, "num_draws is 64, expected at least 90: .* a probability of 0.95"),
        (
            {"baseline": [0, 1, 0], "confidence": 0.9},
            ValueError,
            r"baseline: policy\[1\] takes action 1, expected a leg",
        ),
        ({"baseline": [0, 3, 0], "confidence": 0.9}, ValueError, r"baseline: policy\[1\] is 3"),
        ({"baseline": [0, 0], "confidence": 0.9}, ValueError, r"baseline: policy has shape \(2,\), expected \(3,\)"),
        ({"initial": np.ones(2) / 2}, ValueError, r"initial has shape \(2,\), expected \(3,\)"),
        ({"limits": PolicyLimits(allowed=np.eye(3, dtype=bool))}, ValueError, r"allowed\[1\] .* legal action in every"),
        ({"limits": PolicyLimits(max_change=0.5)}, ValueError, "max_change is given without a baseline"),
        ({"limits": PolicyLimits(min_count=2)}, ValueError, "min_count is given, and the posterior does not count"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], kind, message):
    """One sentence each."""
    arguments: dict[str, Any] = {
        "key": KEY,
        "posterior": Worlds(ROWS, LEGAL),
        "objective": AIM,
        "criterion": "mean",
        "num_draws": 64,
        **changes,
    }
    with pytest.raises(kind, match=message):
        choose(**fold(ChooseOptions, arguments))


def test_any_object_that_samples_will_do():
    """Without a mean and without counts."""
    found = choose(KEY, OnlySamples(Worlds(ROWS)), AIM, initial=START, options=ChooseOptions(num_draws=64))
    np.testing.assert_array_equal(
        found.policy,
        choose(KEY, Worlds(ROWS), AIM, initial=START, options=ChooseOptions(num_draws=64)).policy,
    )
    robust = choose(
        KEY,
        OnlySamples(Worlds(ROWS)),
        AIM,
        "robust:0.9",
        initial=START,
        options=ChooseOptions(num_draws=64),
    )
    assert robust.score <= found.score
