"""Off-policy estimators against hand calculations, the planner, and each other where they must agree."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from benchmarks.validation import off_policy as ope

POLICY = np.array([[0.2, 0.8], [0.2, 0.8]])
EVEN = np.full((2, 2), 0.5)
Q = np.array([[2.0, 3.0], [0.0, 2.0]])
STATES = np.array([[0, 1], [0, 1], [0, 1]])
ACTIONS = np.array([[1, 0], [0, 1], [1, 1]])
REWARDS = np.array([[2.0, 0.0], [0.0, 2.0], [1.0, 3.0]])
HAND = ope.episodes_of(STATES, ACTIONS, REWARDS, np.ones((3, 2), bool), EVEN, POLICY)
"""Three episodes of two steps, the second in a state of its own."""

ROWS = np.array(
    [
        [[0.5, 0.3, 0.1, 0.1], [0.1, 0.6, 0.1, 0.2]],
        [[0.2, 0.2, 0.5, 0.1], [0.6, 0.1, 0.1, 0.2]],
        [[0.1, 0.4, 0.3, 0.2], [0.3, 0.3, 0.1, 0.3]],
    ]
)
"""[state, action, outcome]: three states, then the end."""
PAID = np.array([[1.0, 0.0], [0.5, 2.0], [-1.0, 3.0]])
TARGET = np.array([[0.3, 0.7], [0.9, 0.1], [0.4, 0.6]])
BEHAVIOUR = np.array([[0.6, 0.4], [0.5, 0.5], [0.3, 0.7]])
DISCOUNT = 0.9


def play(rng, number, longest=200, behaviour=BEHAVIOUR, policy=TARGET):
    """A log of the MDP, from state 0; an episode of `longest` steps is cut."""
    states, actions = np.zeros((2, number, longest), int)
    rewards, mask = np.zeros((number, longest)), np.zeros((number, longest), bool)
    state, reached = np.zeros(number, int), np.full(number, -1)
    alive = np.ones(number, bool)
    for t in range(longest):
        action = (rng.random(number) >= behaviour[state, 0]).astype(int)
        after = (rng.random(number)[:, None] >= np.cumsum(ROWS[state, action], 1)[:, :-1]).sum(1)
        mask[:, t], states[:, t], actions[:, t], rewards[:, t] = alive, state, action, PAID[state, action]
        alive = alive & (after < 3)
        state = np.where(alive, after, state)
        if not alive.any():
            break
    reached = np.where(alive, state, reached)
    length = mask.sum(1).max()
    log = (states[:, :length], actions[:, :length], rewards[:, :length], mask[:, :length])
    return ope.episodes_of(*log, behaviour, policy, reached)


def values(rows, reward, policy=TARGET, discount=DISCOUNT):
    """q and v of the planner, in float64."""
    with jax.enable_x64(True):
        mdp = bm.MDP(rows[..., :3], reward, end_probs=rows[..., 3])
        solved = bm.evaluate(mdp, policy, bm.Discounted(discount))
        return np.asarray(solved.q), np.asarray(solved.v)


def estimators(policy):
    """Every estimator that weighs."""
    return {
        "IS": ope.importance_sampling,
        "WIS": ope.weighted_importance_sampling,
        "PDIS": ope.per_decision,
        "PDWIS": ope.per_decision_weighted,
        "DR": partial(ope.doubly_robust, policy=policy),
    }


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (ope.importance_sampling, 4.2666667),
        (ope.weighted_importance_sampling, 3.3333333),
        (ope.per_decision, 4.5866667),
        (ope.per_decision_weighted, 3.6666667),
        (partial(ope.doubly_robust, policy=POLICY, q=Q), 3.7066667),
        # v(1) = .2 * 0 + .8 * 2.5; q(0, .) = (0, 1.5) + v(1)
        (partial(ope.fitted_q_evaluation, policy=POLICY), 0.8 * 1.5 + 0.8 * 2.5),
    ],
)
def test_by_hand(estimator, expected):
    estimate = estimator(HAND, 1.0)
    assert estimate.value == pytest.approx(expected, abs=5e-8)
    assert estimate.warnings == () and estimate.resampled.shape == (0,)


def test_effective_sample_size_by_hand():
    """Last weights .64, .64, 2.56."""
    assert np.allclose(HAND.weights[:, -1], [0.64, 0.64, 2.56])
    assert ope.effective_sample_size(HAND) == pytest.approx(2.0)
    assert ope.importance_sampling(HAND).effective_sample_size == pytest.approx(2.0)
    assert np.isnan(ope.fitted_q_evaluation(HAND, policy=POLICY).effective_sample_size)


def test_discount_by_hand():
    """Rewards of the second step count half."""
    assert ope.per_decision(HAND, 0.5).value == pytest.approx((1.6 * 2 + 0.5 * 0.64 * 2 + 1.6 + 0.5 * 2.56 * 3) / 3)
    assert ope.weighted_importance_sampling(HAND, 0.5).value == pytest.approx((0.64 * 2 + 0.64 + 2.56 * 2.5) / 3.84)


def test_an_ended_episode_keeps_its_weight():
    """One step with weight 1.6, and two with weights .4 and .64: the second step is divided by 2.24."""
    mask = np.array([[True, False], [True, True]])
    rewards = np.array([[1.0, np.nan], [0.0, 2.0]])
    actions = np.array([[1, 7], [0, 1]])
    log = ope.episodes_of(STATES[:2], actions, rewards, mask, EVEN, POLICY)
    assert np.allclose(log.weights, [[1.6, 1.6], [0.4, 0.64]])
    expected = 1.6 / 2.0 + 0.64 * 2 / 2.24
    estimate = ope.per_decision_weighted(log)
    assert estimate.value == pytest.approx(expected)
    assert estimate.warnings == (ope.ONLY_END_PAYS,)
    assert ope.per_decision(log).warnings == ()


def test_warns_only_where_the_end_alone_pays():
    """Not where an earlier step pays too, nor where all episodes have one length, nor where nothing is paid."""
    mask = np.array([[True, False], [True, True]])
    for rewards, expected in (([[1, 0], [0, 2]], True), ([[1, 0], [1, 2]], False), ([[0, 0], [0, 0]], False)):
        log = ope.episodes_of(STATES[:2], ACTIONS[:2], np.array(rewards, float), mask, EVEN, POLICY)
        assert ope.only_the_end_pays(log) == expected
    even = ope.episodes_of(STATES[:2], ACTIONS[:2], np.array([[0.0, 1], [0, 2]]), np.ones((2, 2), bool), EVEN, POLICY)
    assert not ope.only_the_end_pays(even)


def test_of_the_behaviour_itself_all_are_the_mean_return():
    """DR with q that does not depend on the action; FQE is the model's value, which is another number."""
    log = play(np.random.default_rng(0), 40, policy=BEHAVIOUR)
    counts = ope.bootstrap(np.random.default_rng(1), log, 5)
    returns = log.returns(DISCOUNT)
    known = estimators(BEHAVIOUR) | {
        "DR": partial(ope.doubly_robust, policy=BEHAVIOUR, q=np.arange(3.0)[:, None] * np.ones(2))
    }
    for estimator in known.values():
        estimate = estimator(log, DISCOUNT, resamples=counts)
        assert estimate.value == pytest.approx(returns.mean())
        assert np.allclose(estimate.resampled, counts @ returns / 40)
        assert estimate.effective_sample_size == pytest.approx(40)


def test_dr_of_the_frequencies_of_the_log_is_the_mean_return():
    """Undiscounted, where the policy is how often each action was taken: the terms in q cancel, whatever q."""
    log = play(np.random.default_rng(2), 30)
    alpha = ope.behaviour_posterior(log, 3, 2, np.full((3, 2), 1e-12))
    policy = alpha / alpha.sum(1, keepdims=True)
    log = ope.episodes_of(log.states, log.actions, log.rewards, log.mask, policy, policy)
    q = np.array([[1.0, -2.0], [0.0, 5.0], [3.0, 4.0]])
    assert ope.doubly_robust(log, policy=policy, q=q).value == pytest.approx(log.returns(1.0).mean())


def test_wis_is_within_the_range_of_returns():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        log = play(rng, 6)
        returns = log.returns(DISCOUNT)
        resampled = ope.weighted_importance_sampling(log, DISCOUNT, resamples=ope.bootstrap(rng, log, 50)).resampled
        assert (resampled >= returns.min() - 1e-12).all() and (resampled <= returns.max() + 1e-12).all()


def test_pdis_and_dr_are_unbiased_and_dr_is_steadier():
    """3,000 episodes, each an estimate of its own; DR has the exact q. Means within 6 standard errors of the truth."""
    log = play(np.random.default_rng(3), 3000)
    q, v = values(ROWS, PAID)
    spread = {}
    for name, estimator in {"PDIS": ope.per_decision, "DR": partial(ope.doubly_robust, policy=TARGET, q=q)}.items():
        draws = estimator(log, DISCOUNT, resamples=np.eye(3000)).resampled
        spread[name] = draws.std()
        assert abs(draws.mean() - v[0]) < 6 * draws.std() / np.sqrt(3000)
    assert spread["DR"] < 0.7 * spread["PDIS"]


@pytest.mark.parametrize("longest", [200, 3])
def test_fqe_is_the_planner_in_the_maximum_likelihood_mdp(longest):
    """The counts of the log and of a resample, made here by a loop; also where the log cuts episodes."""
    log = play(np.random.default_rng(4), 200, longest)
    assert log.reached is not None and (log.reached >= 0).any() == (longest == 3)
    counts = ope.bootstrap(np.random.default_rng(5), log, 1)
    estimate = ope.fitted_q_evaluation(log, DISCOUNT, policy=TARGET, resamples=counts)
    for weight, found in ((np.ones(200), estimate.value), (counts[0], estimate.resampled[0])):
        tally, paid = np.zeros((3, 2, 4)), np.zeros((3, 2))
        for i, t in np.argwhere(log.mask):
            pair = (log.states[i, t], log.actions[i, t])
            last = t + 1 == log.mask[i].sum()
            after = log.reached[i] if last else log.states[i, t + 1]
            tally[(*pair, after if after >= 0 else 3)] += weight[i]
            paid[pair] += weight[i] * log.rewards[i, t]
        visits = tally.sum(-1)
        expected = values(tally / visits[..., None], paid / visits)[1][0]
        assert found == pytest.approx(expected, rel=1e-9)


def test_fqe_of_a_known_mdp():
    """Counts in proportion to the rows of the MDP itself: its own value. One transition is an episode of its own."""
    state, action, after = (x.ravel() for x in np.indices(ROWS.shape))
    times = np.rint(10 * ROWS).astype(int).ravel()
    state, action, after = (np.repeat(x, times)[:, None] for x in (state, action, after))
    reached = np.where(after == 3, -1, after)[:, 0]
    log = ope.episodes_of(state, action, PAID[state, action], np.ones_like(state, bool), BEHAVIOUR, TARGET, reached)
    q, v = values(ROWS, PAID)
    assert np.allclose(ope.fitted_q(log, np.ones((1, len(state))), DISCOUNT, TARGET)[0], q)
    # All states start equally often: 20 transitions each.
    assert ope.fitted_q_evaluation(log, DISCOUNT, policy=TARGET).value == pytest.approx(v.mean())


def test_dr_goes_on_where_the_log_cuts():
    """With exact q, episodes cut after three steps still have the value without end as mean, and v does not vanish."""
    q, v = values(ROWS, PAID)
    log = play(np.random.default_rng(6), 20_000, 3)
    assert ope.doubly_robust(log, DISCOUNT, policy=TARGET, q=q).value == pytest.approx(v[0], abs=0.06)
    forgotten = ope.doubly_robust(replace(log, reached=None), DISCOUNT, policy=TARGET, q=q).value
    assert forgotten < v[0] - 0.5


def test_dr_refits_q_in_every_resample():
    """As DR with the q of that resample, on the episodes that are in it, one by one."""
    log = play(np.random.default_rng(7), 12)
    counts = ope.bootstrap(np.random.default_rng(8), log, 3)
    found = ope.doubly_robust(log, DISCOUNT, policy=TARGET, resamples=counts).resampled
    assert log.reached is not None
    for row, value in zip(counts.astype(int), found, strict=True):
        chosen = np.repeat(np.arange(12), row)
        again = ope.Episodes(
            log.states[chosen],
            log.actions[chosen],
            log.rewards[chosen],
            log.mask[chosen],
            log.behaviour[chosen],
            log.target[chosen],
            log.reached[chosen],
        )
        for name, estimator in estimators(TARGET).items():
            expected = estimator(again, DISCOUNT).value
            one = estimator(log, DISCOUNT, resamples=row[None].astype(float)).resampled[0]
            assert one == pytest.approx(expected), name
        assert value == pytest.approx(ope.doubly_robust(again, DISCOUNT, policy=TARGET).value)


def test_interval_of_the_bootstrap_has_the_width_of_the_standard_error():
    """Mean return of 400 episodes: percentiles beside the normal interval, 4,000 resamples (error about 2 %)."""
    log = play(np.random.default_rng(9), 400, policy=BEHAVIOUR)
    resamples = ope.bootstrap(np.random.default_rng(10), log, 4000)
    assert (resamples.sum(1) == 400).all()
    estimate = ope.per_decision(log, DISCOUNT, resamples=resamples)
    low, high = estimate.interval(0.9)
    assert low < estimate.value < high
    assert high - low == pytest.approx(2 * 1.645 * log.returns(DISCOUNT).std() / 20, rel=0.1)


def test_a_policy_the_log_never_follows_is_undefined_and_says_so():
    policy = np.array([[1.0, 0.0], [1.0, 0.0]])
    log = ope.episodes_of(STATES, np.ones_like(ACTIONS), REWARDS, np.ones((3, 2), bool), EVEN, policy)
    estimate = ope.weighted_importance_sampling(log, resamples=np.ones((2, 3)))
    assert np.isnan(estimate.value) and estimate.warnings == (ope.NO_WEIGHT,)
    assert np.isnan(estimate.effective_sample_size)
    assert ope.importance_sampling(log).value == 0.0
    with pytest.raises(ValueError, match="no resample has an estimate"):
        estimate.interval()


def test_behaviour_posterior_by_hand():
    """State 0: actions 1, 0, 1; state 1: 0, 1, 1. 20,000 draws have its mean and variance (error 1 to 2 %)."""
    alpha = ope.behaviour_posterior(HAND, 2, 2)
    assert np.array_equal(alpha, [[2.0, 3.0], [2.0, 3.0]])
    draws = ope.behaviour_draws(np.random.default_rng(11), alpha, 20_000)
    assert np.allclose(draws.sum(-1), 1) and np.allclose(draws.mean(0), [0.4, 0.6], atol=0.01)
    assert np.allclose(draws.var(0), 0.4 * 0.6 / 6, rtol=0.1)
    assert np.array_equal(ope.behaviour_posterior(HAND, 3, 3, np.eye(3) + [[1, 1, 0]] * 3)[2], [1.0, 1.0, 1.0])


def test_uncertainty_of_the_behaviour_reaches_the_estimate():
    """It widens; a log so long that the behaviour is all but known gives the estimate with the true one."""
    log = play(np.random.default_rng(12), 100)
    estimator = partial(ope.per_decision, discount=DISCOUNT)
    alpha, rng = ope.behaviour_posterior(log, 3, 2), np.random.default_rng(13)
    alone = ope.with_unknown_behaviour(estimator, log, alpha, rng, resample=False)
    both = ope.with_unknown_behaviour(estimator, log, alpha, rng)
    known = estimator(log, resamples=ope.bootstrap(rng, log, 200))
    assert 0 < alone.resampled.std() < both.resampled.std()
    assert both.resampled.std() > known.resampled.std() and len(both.resampled) == 200
    certain = ope.with_unknown_behaviour(estimator, log, 1e9 * BEHAVIOUR, rng, number=20, resample=False)
    assert certain.value == pytest.approx(known.value)
    assert np.allclose(certain.resampled, known.value, rtol=1e-2)
    model = ope.with_unknown_behaviour(
        partial(ope.fitted_q_evaluation, discount=DISCOUNT, policy=TARGET), log, alpha, rng, number=5, resample=False
    )
    assert np.allclose(model.resampled, model.value)


def test_the_behaviour_of_a_one_state_problem_is_a_ratio_of_counts():
    """WIS with frequencies as behaviour, one step: the mean reward of each action weighted by the policy, exactly."""
    action = np.array([[0], [0], [0], [1]])
    log = ope.episodes_of(0 * action, action, np.array([[1.0], [2], [3], [10]]), action >= 0, EVEN, POLICY)
    frequencies = np.array([[3.0, 1.0], [1.0, 1.0]])
    estimate = ope.with_unknown_behaviour(
        ope.weighted_importance_sampling, log, frequencies, np.random.default_rng(0), number=2
    )
    assert estimate.value == pytest.approx(0.2 * 2 + 0.8 * 10)


STEPS = np.ones((3, 2), bool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"behaviour": [[0.5, 0.5], [0.5, 0.0], [0.5, 0.5]]},
            r"behaviour of episode 1, step 1 is 0\.0, expected above 0",
        ),
        ({"behaviour": [[0.5, 0.5], [0.5, 0.5], [1.5, 0.5]]}, r"behaviour of episode 2, step 0 is 1\.5"),
        ({"target": [[0.5, np.nan], [0.5, 0.5], [0.5, 0.5]]}, "target of episode 0, step 1 is nan"),
        ({"target": [[0.5, 0.5], [-0.1, 0.5], [0.5, 0.5]]}, "target of episode 1, step 0"),
        ({"rewards": [[0, 0], [0, 0], [0, np.nan]]}, "rewards of episode 2, step 1 is nan, expected a finite number"),
        ({"rewards": [[0, 0], [np.inf, 0], [0, 0]]}, "rewards of episode 1, step 0 is inf"),
        ({"rewards": np.zeros((3, 3))}, r"rewards has shape \(3, 3\), expected \(3, 2\), as mask"),
        ({"states": np.zeros((2, 2), int)}, r"states has shape \(2, 2\)"),
        ({"states": np.zeros((3, 2))}, "states has dtype float64, expected integers"),
        ({"actions": -np.ones((3, 2), int)}, "actions of episode 0, step 0 is -1"),
        ({"mask": np.ones(3, bool)}, r"mask has shape \(3,\), expected \[episode, step\]"),
        ({"mask": np.ones((0, 2), bool)}, r"mask has shape \(0, 2\)"),
        ({"mask": [[True, True], [False, True], [True, True]]}, r"mask\[1\] has a hole"),
        ({"mask": [[True, True], [True, True], [False, False]]}, r"mask\[2\] has a hole"),
        ({"reached": np.zeros(2, int)}, "reached is expected to have one state for each episode"),
        ({"reached": np.array([0, -2, 0])}, "reached is expected"),
    ],
)
def test_wrong_logs_are_refused(change, message):
    good = {"states": STATES, "actions": ACTIONS, "rewards": REWARDS, "mask": STEPS}
    probs = {"behaviour": np.full((3, 2), 0.5), "target": np.full((3, 2), 0.5)}
    arrays = {name: np.asarray(value) for name, value in (good | probs | change).items()}
    with pytest.raises(ValueError, match=message):
        ope.Episodes(**arrays)


def test_padding_is_not_looked_at():
    mask = np.array([[True, False]])
    padded = {"rewards": np.array([[1.0, np.nan]]), "behaviour": np.array([[0.5, 0.0]]), "target": np.array([[1, -1]])}
    log = ope.Episodes(np.array([[0, -5]]), np.array([[1, 99]]), mask=mask, **padded)
    assert ope.importance_sampling(log).value == 2.0
    assert ope.fitted_q_evaluation(log, policy=np.array([[0.0, 1.0]])).value == 1.0


def test_a_behaviour_that_never_acts_as_the_policy_is_refused():
    """Where the action was not taken either; names the first visit of the state."""
    behaviour = np.array([[0.5, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"episode 0, step 1: the policy may take an action in state 1"):
        ope.episodes_of(STATES, np.ones_like(ACTIONS), REWARDS, STEPS, behaviour, POLICY)
    # In a state that the log never met, and where the policy does not act so either, it is none of our business.
    three = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]])
    ope.episodes_of(STATES, ACTIONS, REWARDS, STEPS, three, np.concatenate([POLICY, [[0.5, 0.5]]]))
    ope.episodes_of(STATES, np.ones_like(ACTIONS), REWARDS, STEPS, behaviour, np.array([[0.5, 0.5], [0.0, 1.0]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ope.episodes_of(STATES, ACTIONS, REWARDS, STEPS, EVEN, np.ones((2, 2))), r"policy\[0\] is"),
        (lambda: ope.episodes_of(STATES, ACTIONS, REWARDS, STEPS, EVEN[0], POLICY), r"expected \[state, action\]"),
        (lambda: ope.episodes_of(STATES, ACTIONS, REWARDS, STEPS, EVEN[:1], POLICY), r"behaviour has shape \(1, 2\)"),
        (
            lambda: ope.episodes_of(STATES + 1, ACTIONS, REWARDS, STEPS, EVEN, POLICY),
            "states of episode 0, step 1 is 2",
        ),
        (lambda: ope.doubly_robust(HAND, policy=EVEN), "target of episode 0, step 0 is 0.8"),
        (lambda: ope.fitted_q_evaluation(HAND, policy=POLICY[:1]), "states of episode 0, step 1 is 1"),
        (lambda: ope.doubly_robust(HAND, policy=POLICY, q=np.zeros(2)), r"q has shape \(2,\)"),
        (lambda: ope.doubly_robust(HAND, policy=POLICY, q=Q * np.nan), "expected finite numbers"),
        (lambda: ope.per_decision(HAND, 1.1), "discount is 1.1"),
        (lambda: ope.per_decision(HAND, resamples=np.ones((5, 2))), r"resamples has shape \(5, 2\)"),
        (lambda: ope.per_decision(HAND).interval(), "no resample has an estimate"),
        (lambda: ope.behaviour_posterior(HAND, 2, 2, -1.0), "prior is expected"),
        (lambda: ope.behaviour_posterior(HAND, 1, 2), "states of episode 0, step 1"),
        (lambda: ope.behaviour_posterior(HAND, 2, 2, np.array([[0.0, 1], [1, 1]])), "actions of episode 1, step 0"),
        (lambda: ope.fitted_q_evaluation(replace(HAND, reached=np.zeros(3, int)), policy=POLICY), "need not end"),
        (lambda: ope.fitted_q_evaluation(replace(HAND, reached=np.full(3, 9)), policy=POLICY), "reached of episode 0"),
    ],
)
def test_wrong_calls_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
