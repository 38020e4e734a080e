"""The checks by held-out data: statistics by hand, p-values of right beliefs, alarms of wrong ones, broken twins."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.calibration.criticism import log_checks
from bayes_mdp.calibration.criticism.log_checks import (
    Replicated,
    _codes,
    draw_new_outcomes,
    good_turing,
    new_outcomes,
    value_of_choice,
)
from bayes_mdp.mdp import Discounted, Episodic, StateActionSpace, Transitions
from bayes_mdp.mdp.data.log_split import split_log
from bayes_mdp.random.host_generator import host_generator
from tests.calibration.criticism.worlds import RIGHT, SPACE, A, S, belief, learn, log_of_world, world

KEY = jax.random.key(5)
OBJECTIVE = Discounted(0.8)
START = np.full(S, 1 / S)
REPLICATES = 119
LEVEL = 0.05 / 3  # of each of the three checks: 5 % together
FALSE_ALARM = 1e-6
POPULAR = np.array([0.5, 0.3, 0.1, 0.06, 0.02, 0.02])


def test_p_values_are_ranks():
    replicated = Replicated(2.0, np.array([1.0, 2.0, 3.0, 4.0]))
    assert replicated.p_low == pytest.approx(3 / 5)
    assert replicated.two_sided_p_value == 1.0
    assert Replicated(9.0, np.zeros(199)).two_sided_p_value == pytest.approx(2 / 200)
    assert Replicated(-9.0, np.zeros(199)).p_low == pytest.approx(1 / 200)
    assert Replicated(0.0, np.zeros(199)).two_sided_p_value == 1.0  # all are equal


FIRST = Transitions([0, 0, 0, 1, 1], [0, 0, 1, 0, 0], None, [1, 1, 0, 2, 0], [0, 0, 0, 0, 1])
SECOND = Transitions([0, 0, 1, 1, 2, 0], [0, 0, 0, 0, 0, 1], None, [1, 2, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0])
SMALL = StateActionSpace(3, 2, ends=True)


def test_good_turing_counts_what_was_seen_once():
    """(0, 0) -> 1 twice; (0, 1) -> 0, (1, 0) -> 2 and (1, 0) -> end once each."""
    assert good_turing(FIRST, SMALL) == pytest.approx(3 / 5)
    # By use: (0, 0) none of two, (0, 1) its one, (1, 0) both, (2, 0) has no data: surely new.
    use = np.array([[2.0, 1.0], [3.0, 0.0], [4.0, 0.0]])
    assert good_turing(FIRST, SMALL, use) == pytest.approx((0 + 1 + 3 + 4) / 10)


def test_new_outcomes_by_hand():
    """Of the second half (0, 0) -> 2, (1, 0) -> 0 and (2, 0) -> 0 are new; (1, 0) -> end, (0, 0) -> 1 are not.

    The first half came to 2 once, to 0 once, to 1 twice, to the end once.
    """
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    found = new_outcomes(KEY, posterior, SMALL, FIRST, SECOND, 20)
    assert found.share.observed == pytest.approx(3 / 6)
    assert found.share.replicates.shape == (20,)
    assert set(np.round(6 * found.share.replicates)) <= set(range(7))
    assert found.share.replicates.min() >= 1 / 6  # (2, 0) is new
    assert found.arrivals.observed == pytest.approx(np.log(2))
    assert all(np.log(2) - 1e-9 <= value <= np.log(3) for value in found.arrivals.replicates)


def test_without_new_outcomes_nothing_is_said_of_them():
    """All of the second half is known: the mean over nothing is 0, in the data and where a replicate has none."""
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    found = new_outcomes(KEY, posterior, SMALL, FIRST, FIRST, 20)
    assert found.share.observed == found.arrivals.observed == 0.0
    none = found.share.replicates == 0.0
    assert (found.arrivals.replicates[none] == 0.0).all() and (found.arrivals.replicates[~none] > 0.0).all()


def test_new_outcomes_by_use():
    """(0, 0) is used twice as long as (1, 0), and has two transitions as it: 1/2 of 2/3, 1/2 of 1/3 are new."""
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    use = np.array([[2.0, 0.0], [1.0, 7.0], [0.0, 0.0]])  # of (1, 1) the second half has nothing
    by_use = new_outcomes(KEY, posterior, SMALL, FIRST, SECOND, 50, use)
    assert by_use.share.observed == pytest.approx(1 / 2)
    # New are -> 2, which the first half reached once, with 2/3, and -> 0, once as well.
    assert by_use.arrivals.observed == pytest.approx(np.log(2))
    assert set(np.round(6 * by_use.share.replicates, 9)) <= set(range(7)) and len(set(by_use.share.replicates)) > 2
    # A pair without use says nothing, also where all of its outcomes are new.
    alone = new_outcomes(KEY, posterior, SMALL, FIRST, SECOND, 20, np.array([[0.0, 1.0], [0, 0], [0, 0]]))
    assert alone.share.observed == alone.arrivals.observed == 0.0
    # A policy that uses nothing of the second half: as without one, to the last bit.
    nothing, plain = (
        new_outcomes(KEY, posterior, SMALL, FIRST, SECOND, 20, x) for x in (np.array([[0.0, 0], [0, 1], [0, 1]]), None)
    )
    assert nothing.share.observed == plain.share.observed
    np.testing.assert_array_equal(nothing.share.replicates, plain.share.replicates)


def moments_agree(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Means and second moments of two samples, within 5.5 standard errors: 1e-6 over the numbers compared."""
    for power in (1, 2):
        x, y = ours**power, theirs**power
        error = np.sqrt(x.var(0) / len(x) + y.var(0) / len(y))
        assert (np.abs(x.mean(0) - y.mean(0)) <= 5.5 * error + 1e-6).all()


def test_unseen_outcomes_are_those_of_whole_rows():
    """By urns of Dirichlet rows, and by drawn rows for what is no single conjugate posterior: numbers of each state.

    The other route draws rows with numpy and outcomes from them one by one. Second moments tell an urn from draws with
    the mean row: its numbers of a state vary more.
    """
    rng = np.random.default_rng(0)
    log = log_of_world(rng, world(rng))
    first, _ = split_log(KEY, log, 0.2)
    posterior = learn(belief(RIGHT / 5), first.transitions)
    known, count = np.unique(_codes(first.transitions, SPACE)), rng.integers(3, 9, (S, A))
    count[2, 1] = 0
    rows = np.asarray(jax.jit(jax.vmap(posterior.sample))(jax.random.split(KEY, 4000)).transition_probs, np.float64)
    unseen = ~np.isin(np.arange(S * A)[:, None] * (S + 1) + np.arange(S), known).reshape(S, A, S)
    drawn = rng.multinomial(count, rows / rows.sum(-1, keepdims=True))
    expected = (drawn * unseen).sum((1, 2))
    draw = draw_new_outcomes(KEY, posterior, SPACE, known, count)
    rng = host_generator(KEY)
    by_urn = np.array([np.bincount(draw(rng)[1], minlength=S) for _ in range(4000)])
    moments_agree(by_urn, expected)
    one = bm.inference.mixture([posterior, posterior], weights=[0.5, 0.5])
    by_rows = draw_new_outcomes(KEY, one, SPACE, known, count)
    moments_agree(np.array([np.bincount(by_rows(rng)[1], minlength=S) for _ in range(400)]), expected)
    # A broken twin, which draws from the mean row: too little spread.
    mean = rng.multinomial(count, np.broadcast_to(rows.mean(0) / rows.mean(0).sum(-1, keepdims=True), rows.shape))
    with pytest.raises(AssertionError):
        moments_agree((mean * unseen).sum((1, 2)), expected)


def test_a_row_whose_outcomes_are_all_new_or_all_known():
    """All or none of its transitions."""
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(0.0), FIRST, space=SMALL)
    code = np.array([0, 1, 2, 3])  # all outcomes of (0, 0)
    draw = draw_new_outcomes(KEY, posterior, SMALL, code, np.array([[5, 7], [0, 0], [0, 0]]))
    pair, reached = draw(np.random.default_rng(0))
    assert pair.tolist() == [1] * 7 and len(reached) == 7


def value_by_hand(rows, reward, policy, start, discount=None, horizon=None) -> float:
    """Rows over the states; what is missing from one ends the episode."""
    where = np.arange(len(reward))
    if horizon is None:
        chosen = rows[where, policy]
        return float(start @ np.linalg.solve(np.eye(len(reward)) - discount * chosen, reward[where, policy]))
    value = np.zeros(len(reward))
    for step in reversed(range(horizon)):
        value = reward[where, policy[step]] + discount * rows[where, policy[step]] @ value
    return float(start @ value)


@pytest.mark.parametrize("kind", ["discounted", "episodic", "listed"])
def test_the_chosen_value_by_hand(kind, monkeypatch):
    """Counts of the second half and the first half's mean row, over the count and one; ends leave the chain."""
    listed = np.broadcast_to([3, 0, 1, 2], (3, 2, 4))
    space = StateActionSpace(3, 2, successors=listed, ends=True) if kind == "listed" else SMALL
    reward = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]])
    posterior: Any = bm.infer(KEY, bm.models.known_rewards(reward), FIRST, space=space)
    policy = np.array([[0, 0, 1], [1, 0, 0]]) if kind == "episodic" else np.array([0, 0, 1])
    objective = Episodic(2, 0.7) if kind == "episodic" else OBJECTIVE
    start, calls = np.array([0.5, 0.5, 0.0]), []
    found = value_of_choice(KEY, posterior, policy, objective, start, SECOND, 5, lambda: calls.append(None))
    today = np.array([[0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
    probs = np.broadcast_to(today, (2, 3, 2)) if kind == "episodic" else today
    gained = value_of_choice(KEY, posterior, policy, objective, start, SECOND, 5, lambda: None, probs)
    counts, mean = np.zeros((3, 2, 4)), np.ones((3, 2, 4))  # the prior: each outcome once
    for data, table in ((SECOND, counts), (FIRST, mean)):
        np.add.at(table, (data.state, data.action, np.asarray(data.outcome(3))), 1.0)
    mean /= mean.sum(-1, keepdims=True)
    rows = (counts + mean) / (counts.sum(-1, keepdims=True) + 1)
    more: Any = {"horizon": 2, "discount": 0.7} if kind == "episodic" else {"discount": OBJECTIVE.discount}
    assert found.observed == pytest.approx(value_by_hand(rows[..., :3], reward, policy, start, **more), rel=1e-5)
    assert len(calls) == 5 and len(set(found.replicates)) > 1
    # The gain over a baseline, whose chain is the mixture of its actions.
    mixed, paid = np.einsum("sa,sat->st", today, rows[..., :3])[:, None], (today * reward).sum(-1, keepdims=True)
    one = np.zeros((2, 3) if kind == "episodic" else 3, int)
    gain = found.observed - value_by_hand(mixed, paid, one, start, **more)
    assert gained.observed == pytest.approx(gain, rel=1e-5) and len(set(gained.replicates)) > 1
    none = value_of_choice(KEY, posterior, probs, objective, start, SECOND, 5, lambda: None, probs)
    assert none.observed == 0 and not none.replicates.any()
    # Of large rows few are held at a time: the same draws.
    monkeypatch.setattr(log_checks, "NUMBERS_AT_ONCE", 1)
    again = value_of_choice(KEY, posterior, policy, objective, start, SECOND, 5, lambda: None, probs)
    np.testing.assert_allclose(again.replicates, gained.replicates, rtol=1e-9)


@cache
def judged(kind: str, number: int) -> Any:
    """Rank p-values of the checks for worlds from the prior; `used`, `used_where`: by use of the chosen policy.

    Kinds: "right"; "flat" and "sure", concentrations a hundred times too large and too small; "both", replicates from
    the posterior of both halves; "same", the half that chose judges too; "popular", whose rows have the
    concentration of the belief, but some states are likely everywhere and others nowhere; "alike", where all actions
    of a state have one row. `gained`: of the gain over what the log did.
    """
    concentration = {"flat": 100 * RIGHT, "sure": RIGHT / 100, "popular": RIGHT / 2}.get(kind, RIGHT)
    new, where, used, used_where, chosen, gained = [], [], [], [], [], []
    for seed, key in enumerate(jax.random.split(KEY, number)):
        rng = np.random.default_rng([7, seed])
        rows = world(rng)
        if kind == "popular":
            rows = rng.dirichlet(S * RIGHT / 2 * POPULAR, (S, A))
        if kind == "alike":
            rows = np.repeat(rows[:, :1], A, axis=1)
        log = log_of_world(rng, rows)
        keys = jax.random.split(key, 3)
        first, second = split_log(keys[0], log)
        half = learn(belief(concentration), first.transitions)
        policy = np.asarray(bm.greedy(half, OBJECTIVE))
        source = learn(belief(concentration), log.transitions) if kind == "both" else half
        judge = first if kind == "same" else second
        outcomes = new_outcomes(keys[1], source, SPACE, first.transitions, second.transitions, REPLICATES)
        new.append(outcomes.share.two_sided_p_value)
        where.append(outcomes.arrivals.two_sided_p_value)
        use = time_in_pairs(np.asarray(half.mean_mdp().transition_probs), policy)
        by_use = new_outcomes(keys[1], source, SPACE, first.transitions, second.transitions, REPLICATES, use)
        used.append(by_use.share.two_sided_p_value)
        used_where.append(by_use.arrivals.two_sided_p_value)
        found = value_of_choice(keys[2], source, policy, OBJECTIVE, START, judge.transitions, REPLICATES, lambda: None)
        chosen.append(found.p_low)
        today, none = bm.behaviour_policy(log, space=SPACE), lambda: None
        asked: Any = (keys[2], source, policy, OBJECTIVE, START, judge.transitions, REPLICATES, none, today)
        gained.append(value_of_choice(*asked).p_low)
    both = {"used": np.array(used), "used_where": np.array(used_where), "gained": np.array(gained)}
    return SimpleNamespace(new=np.array(new), where=np.array(where), chosen=np.array(chosen), **both)


def time_in_pairs(rows: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """start' (I - discount P)^-1, each state's in the pair of its action."""
    chain = rows[np.arange(S), policy]
    time = np.linalg.solve(np.eye(S) - float(OBJECTIVE.discount) * chain.T, START)
    return time[:, None] * np.eye(A)[policy]


def check_right(number: int) -> None:
    """Alarms no more often than promised; ranks of a continuous statistic uniform."""
    found = judged("right", number)
    alarms = int(((found.new <= LEVEL) | (found.where <= LEVEL) | (found.chosen <= LEVEL)).sum())
    assert stats.binom.sf(alarms - 1, number, 3 * LEVEL) > FALSE_ALARM
    alarms = int(((found.used <= LEVEL) | (found.used_where <= LEVEL) | (found.chosen <= LEVEL)).sum())
    assert stats.binom.sf(alarms - 1, number, 3 * LEVEL) > FALSE_ALARM
    for level in (0.05, 0.1, 0.25, 0.5):
        for p_values in (found.new, found.where, found.used, found.used_where, found.chosen, found.gained):
            assert stats.binom.sf(int((p_values <= level).sum()) - 1, number, level) > FALSE_ALARM
    for p_values in (found.chosen, found.gained):
        assert stats.kstest(p_values, "uniform").pvalue > FALSE_ALARM


def test_right_beliefs_are_seldom_accused():
    check_right(60)


@pytest.mark.slow
def test_right_beliefs_are_seldom_accused_in_many_worlds():
    check_right(300)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["flat", "sure"])
def test_concentrations_a_hundred_times_off_are_found(kind):
    """In nearly all of 20 worlds."""
    found = judged(kind, 20)
    assert ((found.new <= LEVEL) | (found.chosen <= LEVEL)).sum() >= 18


def test_states_that_are_likely_everywhere_are_found_by_where_new_outcomes_lead():
    """The belief has the right concentration and takes all states as alike: the other two checks seldom see it."""
    found = judged("popular", 20)
    others = (found.new <= LEVEL) | (found.chosen <= LEVEL)
    assert (found.where <= LEVEL).sum() >= 9 and others.sum() <= 6


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["both", "same"])
def test_a_broken_twin_is_not_the_check(kind):
    """A posterior that has seen the second half is surprised too little; the half that chose flatters its choice."""
    right, twin = judged("right", 60), judged(kind, 60)
    if kind == "same":
        assert stats.kstest(twin.chosen, "uniform").pvalue < 1e-3 and (twin.chosen <= 0.25).mean() < 0.1
    else:
        # Two-sided p-values of a conservative test: closer to one.
        assert stats.ttest_rel(twin.new, right.new, alternative="greater").pvalue < 1e-4
