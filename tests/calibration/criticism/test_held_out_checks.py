"""The checks by held-out data: statistics by hand, p-values of right beliefs, alarms of wrong ones, broken twins."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.calibration.belief.parameter_draws import generator
from bayes_mdp.calibration.criticism.held_out_checks import (
    Replicated,
    _codes,
    _unseen_mass,
    chosen_value,
    good_turing,
    novelty,
)
from bayes_mdp.mdp import Discounted, Episodic, StateActionSpace, Transitions
from bayes_mdp.mdp.log_split import split_log
from tests.calibration.criticism.worlds import RIGHT, SPACE, A, S, belief, learn, log_of_world, world

KEY = jax.random.key(5)
OBJECTIVE = Discounted(0.8)
START = np.full(S, 1 / S)
REPLICATES = 119
LEVEL = 0.025  # of each of the two checks: 5 % together
FALSE_ALARM = 1e-6


def test_p_values_are_ranks():
    replicated = Replicated(2.0, np.array([1.0, 2.0, 3.0, 4.0]))
    assert replicated.p_low == pytest.approx(3 / 5)
    assert replicated.p_two_sided == 1.0
    assert Replicated(9.0, np.zeros(199)).p_two_sided == pytest.approx(2 / 200)
    assert Replicated(-9.0, np.zeros(199)).p_low == pytest.approx(1 / 200)
    assert Replicated(0.0, np.zeros(199)).p_two_sided == 1.0  # all are equal


FIRST = Transitions([0, 0, 0, 1, 1], [0, 0, 1, 0, 0], None, [1, 1, 0, 2, 0], [0, 0, 0, 0, 1])
SECOND = Transitions([0, 0, 1, 1, 2, 0], [0, 0, 0, 0, 0, 1], None, [1, 2, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0])
SMALL = StateActionSpace(3, 2, ends=True)


def test_good_turing_counts_what_was_seen_once():
    """(0, 0) -> 1 twice; (0, 1) -> 0, (1, 0) -> 2 and (1, 0) -> end once each."""
    assert good_turing(FIRST, SMALL) == pytest.approx(3 / 5)


def test_new_outcomes_by_hand():
    """Of the second half (0, 0) -> 2, (1, 0) -> 0 and (2, 0) -> 0 are new; (1, 0) -> end, (0, 0) -> 1 are not."""
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    found = novelty(KEY, posterior, SMALL, FIRST, SECOND, 20)
    assert found.observed == pytest.approx(3 / 6)
    assert found.replicates.shape == (20,)
    assert set(np.round(6 * found.replicates)) <= set(range(7)) and found.replicates.min() >= 1 / 6  # (2, 0) is new


def moments_agree(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Means and second moments of two samples, within 5.5 standard errors: 1e-6 over the numbers compared."""
    for power in (1, 2):
        x, y = ours**power, theirs**power
        error = np.sqrt(x.var(0) / len(x) + y.var(0) / len(y))
        assert (np.abs(x.mean(0) - y.mean(0)) <= 5.5 * error + 1e-6).all()


def test_the_unseen_mass_is_that_of_whole_rows():
    """The beta distribution of Dirichlet rows, and the sum of drawn rows for what is no single conjugate posterior."""
    rng = np.random.default_rng(0)
    log = log_of_world(rng, world(rng))
    first, _ = split_log(KEY, log, 0.2)
    posterior = learn(belief(RIGHT), first.transitions)
    known, needed = np.unique(_codes(first.transitions, SPACE)), np.ones((S, A), bool)
    needed[2, 1] = False
    beta = _unseen_mass(posterior, SPACE, known, needed)
    rows = np.asarray(jax.jit(jax.vmap(posterior.sample))(jax.random.split(KEY, 4000)).transition_probs)
    seen = np.isin(np.arange(S * A)[:, None] * (S + 1) + np.arange(S), known).reshape(S, A, S)
    expected = np.where(seen, 0.0, rows).sum(-1)[:, needed]
    rng = generator(KEY)
    moments_agree(np.array([beta(rng, KEY) for _ in range(4000)]), expected)
    one = bm.inference.mixture([posterior, posterior], weights=[0.5, 0.5])
    by_rows = _unseen_mass(one, SPACE, known, needed)
    moments_agree(np.array([by_rows(rng, key) for key in jax.random.split(KEY, 400)]), expected)


def test_a_row_whose_outcomes_are_all_new_or_all_known():
    """Its mass is certain."""
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    code = np.array([0, 1, 2, 3])  # all outcomes of (0, 0)
    mass = _unseen_mass(posterior, SMALL, code, np.array([[1, 1], [0, 0], [0, 0]], bool))
    np.testing.assert_array_equal(mass(np.random.default_rng(0), KEY), [0.0, 1.0])


def value_by_hand(rows, reward, policy, start, discount=None, horizon=None) -> float:
    """Rows over the states; what is missing from one ends the episode."""
    where = np.arange(len(reward))
    if horizon is None:
        chosen = rows[where, policy]
        return float(start @ np.linalg.solve(np.eye(len(reward)) - discount * chosen, reward[where, policy]))
    value = np.zeros(len(reward))
    for step in reversed(range(horizon)):
        value = reward[where, policy[step]] + rows[where, policy[step]] @ value
    return float(start @ value)


@pytest.mark.parametrize("kind", ["discounted", "episodic", "listed"])
def test_the_chosen_value_by_hand(kind):
    """Counts of the second half and the first half's mean row, over the count and one; ends leave the chain."""
    listed = np.broadcast_to([3, 0, 1, 2], (3, 2, 4))
    space = StateActionSpace(3, 2, successors=listed, ends=True) if kind == "listed" else SMALL
    reward = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]])
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(reward), FIRST, space=space)
    policy = np.array([[0, 0, 1], [1, 0, 0]]) if kind == "episodic" else np.array([0, 0, 1])
    objective = Episodic(2) if kind == "episodic" else OBJECTIVE
    start, calls = np.array([0.5, 0.5, 0.0]), []
    found = chosen_value(KEY, posterior, policy, objective, start, SECOND, 5, lambda: calls.append(None))
    counts, mean = np.zeros((3, 2, 4)), np.ones((3, 2, 4))  # the prior: each outcome once
    for data, table in ((SECOND, counts), (FIRST, mean)):
        np.add.at(table, (data.state, data.action, np.asarray(data.outcome(3))), 1.0)
    mean /= mean.sum(-1, keepdims=True)
    rows = (counts + mean) / (counts.sum(-1, keepdims=True) + 1)
    more: Any = {"horizon": 2} if kind == "episodic" else {"discount": OBJECTIVE.discount}
    assert found.observed == pytest.approx(value_by_hand(rows[..., :3], reward, policy, start, **more), rel=1e-5)
    assert len(calls) == 5 and len(set(found.replicates)) > 1


@cache
def judged(kind: str, number: int) -> Any:
    """Rank p-values of both checks for worlds from the prior.

    Kinds: "right"; "flat" and "sure", concentrations a hundred times too large and too small; "both", replicates from
    the posterior of both halves; "same", the half that chose judges too.
    """
    concentration = {"flat": 100 * RIGHT, "sure": RIGHT / 100}.get(kind, RIGHT)
    new, chosen = [], []
    for seed, key in enumerate(jax.random.split(KEY, number)):
        rng = np.random.default_rng([7, seed])
        log = log_of_world(rng, world(rng))
        keys = jax.random.split(key, 3)
        first, second = split_log(keys[0], log)
        half = learn(belief(concentration), first.transitions)
        policy = np.asarray(bm.greedy(half, OBJECTIVE))
        source = learn(belief(concentration), log.transitions) if kind == "both" else half
        judge = first if kind == "same" else second
        new.append(novelty(keys[1], source, SPACE, first.transitions, second.transitions, REPLICATES).p_two_sided)
        found = chosen_value(keys[2], source, policy, OBJECTIVE, START, judge.transitions, REPLICATES, lambda: None)
        chosen.append(found.p_low)
    return SimpleNamespace(new=np.array(new), chosen=np.array(chosen))


def check_right(number: int) -> None:
    """Alarms no more often than promised; ranks of a continuous statistic uniform."""
    found = judged("right", number)
    alarms = int(((found.new <= LEVEL) | (found.chosen <= LEVEL)).sum())
    assert stats.binom.sf(alarms - 1, number, 2 * LEVEL) > FALSE_ALARM
    for level in (0.05, 0.1, 0.25, 0.5):
        for p_values in (found.new, found.chosen):
            assert stats.binom.sf(int((p_values <= level).sum()) - 1, number, level) > FALSE_ALARM
    assert stats.kstest(found.chosen, "uniform").pvalue > FALSE_ALARM


def test_right_beliefs_are_seldom_accused():
    check_right(60)


@pytest.mark.slow
def test_right_beliefs_are_seldom_accused_in_many_worlds():
    check_right(300)


@pytest.mark.parametrize("kind", ["flat", "sure"])
def test_concentrations_a_hundred_times_off_are_found(kind):
    """In nearly all of 20 worlds."""
    found = judged(kind, 20)
    assert ((found.new <= LEVEL) | (found.chosen <= LEVEL)).sum() >= 18


@pytest.mark.parametrize("kind", ["both", "same"])
def test_a_broken_twin_is_not_the_check(kind):
    """A posterior that has seen the second half is surprised too little; the half that chose flatters its choice."""
    right, twin = judged("right", 60), judged(kind, 60)
    if kind == "same":
        assert stats.kstest(twin.chosen, "uniform").pvalue < 1e-3 and (twin.chosen <= 0.25).mean() < 0.1
    else:
        # Two-sided p-values of a conservative test: closer to one.
        assert stats.ttest_rel(twin.new, right.new, alternative="greater").pvalue < 1e-4
