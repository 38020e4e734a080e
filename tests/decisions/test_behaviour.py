"""Policies to judge: greedy in the mean MDP, and what the log did."""

import logging
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, chi2, kstest

import bayes_mdp as bm
from bayes_mdp.decisions.behaviour import behaviour_policy, greedy
from bayes_mdp.decisions.policy_evaluation import BehaviourDraws, policy_values
from bayes_mdp.inference import posterior_samples
from bayes_mdp.mdp import AverageReward, Discounted, Episodic, FirstExit, Log, StateActionSpace, Transitions
from bayes_mdp.mdp.labels import (
    STEP_LEVEL,
    CountedPolicy,
    LoggedPolicy,
    behaviour_in_halves,
    logged_counts,
    step_p_value,
)
from tests.envs.logs.random_logs import fold_log
from tests.inference.policy_problems import ISLANDS, N_STATES, START, OnlySamples, dense_value, posterior, weighted
from tests.text import unwrapped


def test_greedy_is_optimal_in_the_mean_mdp():
    belief = posterior()
    rows = belief.weight / belief.weight.sum(-1, keepdims=True)
    grid = np.stack(np.meshgrid(*[[0, 1]] * N_STATES), -1).reshape(-1, N_STATES)
    values = [dense_value(rows, belief.reward, np.eye(2)[policy], Discounted(0.9)) for policy in grid]
    np.testing.assert_array_equal(greedy(belief, Discounted(0.9)), grid[np.argmax(values)])
    assert greedy(belief, Episodic(3)).shape == (3, N_STATES)
    with pytest.raises(
        TypeError, match="greedy needs a posterior that has mean_mdp, got a OnlySamples without mean_mdp"
    ):
        greedy(OnlySamples(belief), Discounted(0.9))  # pyright: ignore[reportArgumentType]


def test_greedy_refuses_an_average_reward_without_one_gain():
    with pytest.raises(ValueError, match="greedy: no single gain was found in the mean MDP"):
        greedy(ISLANDS, AverageReward())
    with pytest.raises(ValueError, match=r"end_probs\[0, 0\] is .*, expected 0: .* never ends \(see restart_at_ends\)"):
        greedy(posterior(ends=True), AverageReward())


def test_greedy_refuses_first_exit_without_an_exit():
    never = weighted([[[1, 0, 0]], [[0, 1, 0]]], [[-1.0], [-1.0]], True)
    with pytest.raises(ValueError, match="every policy never ends from state 0, expected a proper policy"):
        greedy(never, FirstExit())
    free = weighted([[[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]]], [[0, 0], [0, 1]], True)
    np.testing.assert_array_equal(greedy(free, FirstExit()), [1, 1])  # idling costs nothing, and is not the answer
    rich = weighted([[[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]]], [[1, 0], [0, 1]], True)
    with pytest.raises(ValueError, match="rewards are unbounded"):
        greedy(rich, FirstExit())


def test_behaviour_has_a_row_for_what_the_log_never_saw(caplog):
    data = Transitions(np.array([0, 0, 1]), np.array([1, 1, 0]), None, np.array([1, 0, 1]))
    log = Log(data, ("x", "y"), ("a", "b"))
    space = StateActionSpace.from_log(log, successors="observed")
    with caplog.at_level(logging.WARNING):
        probs = behaviour_policy(log, space=space)
    np.testing.assert_array_equal(probs, [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    assert not caplog.text  # "unseen" is no state that the log could have left


def test_behaviour_of_transitions_is_that_of_the_log_in_the_space(caplog):
    data = Transitions(np.array([0, 0, 0, 2]), np.array([1, 1, 0, 0]), None, np.array([0, 0, 2, 2]))
    space = StateActionSpace(4, 3, legal=[[True, True, False], [False, True, True], [True, False, False], [True] * 3])
    log = Log(data, range(4), range(3))
    with caplog.at_level(logging.WARNING):
        probs = behaviour_policy(data, space=space)
    np.testing.assert_array_equal(probs, behaviour_policy(log, space=space))
    np.testing.assert_allclose(probs, [[1 / 3, 2 / 3, 0], [0, 0.5, 0.5], [1, 0, 0], [1 / 3] * 3])
    assert "states never visited: 1, 3" in caplog.text
    unseen = StateActionSpace.from_log(log, successors="observed")
    np.testing.assert_array_equal(behaviour_policy(data, space=unseen), behaviour_policy(log, space=unseen))
    with pytest.raises(TypeError, match="log is Transitions without space, expected space="):
        behaviour_policy(data)
    with pytest.raises(ValueError, match=r"transitions\.state\[3\] is 2, expected"):
        behaviour_policy(data, space=StateActionSpace(2, 2))
    with pytest.raises(ValueError, match=r"transitions\.action\[0\] is 1, expected .*legal"):
        behaviour_policy(data, space=StateActionSpace(3, 2, legal=[[True, False], [True, True], [True, True]]))


def test_behaviour_is_how_often(caplog):
    data = Transitions(np.array([0, 0, 0, 2]), np.array([1, 1, 0, 0]), None, np.array([0, 0, 2, 2]))
    log = Log(data, ("x", "y", "z"), ("a", "b"))
    with caplog.at_level(logging.WARNING):
        probs = behaviour_policy(log)
    np.testing.assert_allclose(probs, [[1 / 3, 2 / 3], [0.5, 0.5], [1.0, 0.0]])
    assert "states never visited: y" in caplog.text
    names: Any = {"states": ("x", "y", "z"), "actions": ("a", "b")}
    space = StateActionSpace(3, 2, **names, legal=[[True, True], [False, True], [True, True]])
    np.testing.assert_allclose(behaviour_policy(log, space=space)[1], [0.0, 1.0])
    space = StateActionSpace(3, 2, **names, legal=[[False, True], [True, True], [True, True]])
    with pytest.raises(ValueError, match=r"log\.transitions.action\[2\] is 'a', expected .* legal in state 'x'"):
        behaviour_policy(log, space=space)
    with pytest.raises(ValueError, match=r"log\.states are 'x', 'y', 'z', expected those of the space: 0, 1"):
        behaviour_policy(log, space=StateActionSpace(2, 2))
    with pytest.raises(ValueError, match=r"log\.actions are 'a', 'b', expected those of the space: 'b', 'a'"):
        behaviour_policy(log, space=StateActionSpace(3, 2, states=("x", "y", "z"), actions=("b", "a")))


def test_behaviour_of_a_posterior_is_that_of_what_it_has_learnt():
    """Whether its rows are those of a step or not; earlier data count less after `discount_data`."""
    data = Transitions(np.array([0, 0, 0, 1]), np.array([1, 1, 0, 0]), None, np.array([0, 0, 1, 1]))
    more = Transitions(np.array([0, 1]), np.array([0, 1]), None, np.array([1, 1]))
    space = StateActionSpace(2, 2, states=("x", "y"))
    learnt: Any = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), data, space=space)
    np.testing.assert_array_equal(behaviour_policy(learnt), behaviour_policy(data, space=space))
    later = learnt.update(more, discount_data=0.5)
    np.testing.assert_allclose(behaviour_policy(later), [[1.5 / 2.5, 1 / 2.5], [0.5 / 1.5, 1 / 1.5]])
    with pytest.raises(ValueError, match=r"log\.states"):
        behaviour_policy(learnt, space=StateActionSpace(2, 2))
    counted: Any = posterior_samples(
        bm.MDP(np.full((3, 2, 2, 2), 0.5), np.zeros((3, 2, 2))), visits=[[3.0, 1.0], [0.0, 2.0]]
    )
    np.testing.assert_array_equal(behaviour_policy(counted, space=space), [[0.75, 0.25], [0.0, 1.0]])
    with pytest.raises(TypeError, match="log is a CountedSamples, expected a Log"):
        behaviour_policy(counted)


def shifts(number: int, later: float, seed: int = 0) -> Log:
    """Episodes of 20 steps in three states; action 1 with probability .4, from the tenth step on with `later`."""
    rng = np.random.default_rng(seed)
    state, action, reached = (np.zeros((number, 20), int) for _ in range(3))
    for t in range(20):
        state[:, t] = reached[:, t - 1] if t else 0
        action[:, t] = rng.random(number) < (0.4 if t < 10 else later)
        reached[:, t] = np.where(
            rng.random(number) < 0.3 + 0.4 * action[:, t], rng.integers(3, size=number), state[:, t]
        )
    end = np.tile(np.arange(20) == 19, number)
    data = Transitions(state.ravel(), action.ravel(), None, reached.ravel(), truncated=end)
    return Log(data, ("x", "y", "z"), ("a", "b"))


def test_actions_that_depend_on_the_step_are_seen(caplog):
    """At the level that is stated: of 400 logs without it, about one in a hundred; every one that has it."""
    p_values = np.array([step_p_value(shifts(15, 0.4, seed)) for seed in range(400)])
    assert abs(p_values.mean() - 0.5) < 0.06 and (p_values <= 0.05).mean() < 0.09 and (p_values <= 0.01).sum() < 12
    assert max(step_p_value(shifts(15, 0.8, seed)) for seed in range(20)) < STEP_LEVEL
    with caplog.at_level(logging.WARNING):
        behaviour_policy(shifts(15, 0.4))
        assert not caplog.text
        behaviour_policy(shifts(15, 0.8))
    assert "actions depend on the step of the episode, given the state (p = " in caplog.text
    one = Transitions(np.zeros(40, int), np.repeat([0, 1], 20), None, np.zeros(40, int))
    assert step_p_value(Log(one, ("x",), ("a", "b"))) == 1.0  # one stretch has no steps


def test_the_statistic_is_that_of_a_permutation():
    """One state, two actions: the squared correlation of step and action times n - 1, by scipy."""
    rng = np.random.default_rng(1)
    action = (rng.random((12, 5)) < np.linspace(0.3, 0.6, 5)).astype(int)
    end = np.tile(np.arange(5) == 4, 12)
    log = Log(Transitions(np.zeros(60, int), action.ravel(), None, np.zeros(60, int), end), ("x",), ("a", "b"))
    correlation = np.corrcoef(np.tile(np.arange(5), 12), action.ravel())[0, 1]
    assert step_p_value(log) == pytest.approx(chi2.sf(59 * correlation**2, 1), rel=1e-9)


def test_what_was_done_at_the_earlier_and_the_later_steps():
    halves = behaviour_in_halves(shifts(200, 0.9), np.full((3, 2), 0.5))
    np.testing.assert_allclose(halves[0, :, 1], 0.4, atol=0.06)
    np.testing.assert_allclose(halves[1, :, 1], 0.9, atol=0.06)
    data = Transitions(np.array([0, 1]), np.array([0, 0]), None, np.array([1, 0]), truncated=np.array([False, True]))
    halves = behaviour_in_halves(Log(data, ("x", "y"), ("a", "b")), np.array([[0.2, 0.8], [0.3, 0.7]]))
    np.testing.assert_allclose(halves, [[[1, 0], [0.3, 0.7]], [[0.2, 0.8], [1, 0]]])


STAFF = np.array([[[1.0, 0.0]] * 2] * 2 + [[[0.0, 1.0]] * 2] * 2)
"""Staff who wait at the first two of four steps, and sell at the others, whatever the price."""


def sales(number: int, seed: int = 0) -> Log:
    """Episodes of four steps by staff who act by step. Waiting raises a low price in half of the cases; selling pays 1
    at a high one, .3 at a low one, and the price is then low."""
    rng = np.random.default_rng(seed)
    columns, high = [], np.zeros(number, int)
    for step in range(4):
        sold = (rng.random(number) < STAFF[step, high, 1]).astype(int)
        after = np.where(sold == 1, 0, np.where(high == 1, 1, rng.random(number) < 0.5)).astype(int)
        columns.append((high, sold, np.where(sold == 1, np.where(high == 1, 1.0, 0.3), 0.0), after))
        high = after
    state, action, paid, reached = (np.stack(x, 1).ravel() for x in zip(*columns, strict=True))
    step = np.tile(np.arange(4), number)
    data = Transitions(state, action, paid, reached, truncated=step == 3, step=step)
    return Log(data, ("low", "high"), ("wait", "sell"))


@pytest.mark.parametrize("horizon", [None, 4])
def test_a_policy_that_gains_nothing_over_staff_who_act_by_step(horizon):
    """Their own rule: over their mixture of all steps it seems to gain .16, surely; over what they did, nothing."""
    log, key, objective = sales(400), jax.random.key(0), Episodic(4)
    support = [[[True, True], [True, False]], [[False, True], [True, False]]]
    space = StateActionSpace.from_log(log, horizon=horizon, support=support)
    posterior = bm.infer(key, bm.models.dirichlet_normal_gamma(), log, space=space)
    mixed = behaviour_policy(log, space=space, by_step=False)
    policies = {"staff": log, "new": STAFF, "mixed": mixed}
    compared = bm.compare_policies(key, posterior, policies, objective, initial=log, num_draws=200)
    if horizon is None:
        wrong = compared.difference("new", "mixed")
        assert wrong.mean > 0.15 and wrong.prob_better == 1.0
    assert np.abs(compared.difference("new", "staff").draws).max() < 1e-12
    assert "staff: what the log did, by step of the episode: its actions depend on the step" in str(compared)
    by_step = behaviour_policy(log, space=space, by_step=None if horizon else 4)
    np.testing.assert_array_equal(by_step[:, 0], STAFF[:, 0])
    np.testing.assert_array_equal(by_step[:, 1], [mixed[1], *STAFF[1:3, 1], mixed[1]])  # first and last none is high
    value = bm.policy_value(key, posterior, log, objective, initial=log, num_draws=200)
    np.testing.assert_array_equal(value.draws, compared.values["staff"].draws)
    assert "policy: what the log did, by step" in str(value)
    options = bm.recommend.DecideOptions(space=space, num_draws=100, checks=horizon is None)
    decision = bm.decide(key, "default", log, objective, policies={"new": STAFF}, options=options)
    assert abs(decision.candidates["new"].mean) < 1e-12 and decision.lead != "new"
    assert "the baseline is what the log did, by step of the episode: its actions depend" in str(decision)
    np.testing.assert_array_equal(np.asarray(decision.baseline), by_step)


def test_a_log_is_a_policy_wherever_one_is_named():
    log, key = sales(100), jax.random.key(0)
    space = StateActionSpace.from_log(log)
    posterior = bm.infer(key, bm.models.dirichlet_normal_gamma(), log, space=space)
    lasting = bm.policy_value(key, posterior, log, Discounted(0.9), num_draws=50)
    assert "as one policy of all steps; but its actions depend on the step, given the state (p = " in unwrapped(lasting)
    again = bm.policy_value(key, posterior, behaviour_policy(log, space=space), Discounted(0.9), num_draws=50)
    np.testing.assert_array_equal(lasting.draws, again.draws)
    frame = pd.DataFrame({"e": np.repeat(np.arange(100), 4), "t": log.transitions.step, "r": log.transitions.reward})
    frame["s"] = [log.states[s] for s in log.transitions.state]
    frame["a"] = [log.actions[a] for a in log.transitions.action]
    columns: Any = {"state": "s", "action": "a", "reward": "r", "episode": "e", "step": "t"}
    folded, kept = (fold_log(frame, **columns, by_step=by_step) for by_step in (False, True))
    whole = bm.read_log(frame, **columns)
    assert step_p_value(kept) == pytest.approx(step_p_value(whole), rel=1e-9) and step_p_value(folded) == 1.0
    np.testing.assert_array_equal(behaviour_policy(kept, by_step=True), behaviour_policy(whole, by_step=True))
    np.testing.assert_array_equal(behaviour_policy(whole, by_step=6)[4:], 2 * [behaviour_policy(whole)])
    with pytest.raises(ValueError, match="log is folded without steps, expected one folded with by_step=True"):
        behaviour_policy(folded, by_step=True)
    with pytest.raises(ValueError, match="log is a posterior without steps, expected the log"):
        behaviour_policy(posterior, by_step=True)
    with pytest.raises(ValueError, match="by_step is 0, expected"):
        behaviour_policy(log, by_step=0)
    other = Log(log.transitions, ("low", "top"), ("wait", "sell"))
    with pytest.raises(ValueError, match=r"policy: log\.states are 'low', 'top', expected those of the space"):
        bm.policy_value(key, posterior, other, Discounted(0.9), num_draws=50)


def test_an_array_that_would_be_a_mixture_remembers_its_log():
    """Users write `behaviour_policy(log)` where a log could stand; what they change is theirs."""
    log, key = sales(400), jax.random.key(0)
    space = StateActionSpace.from_log(log)
    posterior = bm.infer(key, bm.models.dirichlet_normal_gamma(), log, space=space)
    array: Any = behaviour_policy(log, space=space)
    policies = {"array": array, "log": log, "mixture": np.asarray(array)}
    compared = bm.compare_policies(key, posterior, policies, Episodic(4), initial=log, num_draws=50)
    values = compared.values
    np.testing.assert_array_equal(values["array"].draws, values["log"].draws)
    assert values["log"].mean > values["mixture"].mean + 0.15 and not values["mixture"].policy
    assert "array: what the log did, by step of the episode: its actions depend on the step" in str(compared)
    for given in (
        behaviour_policy(log, by_step=False),
        behaviour_policy(log, by_step=4),
        behaviour_policy(shifts(15, 0.4)),
    ):
        assert type(given) is np.ndarray
    data = behaviour_policy(log.transitions, space=space)
    assert isinstance(data, LoggedPolicy) and data.log is not None and data.log.states == log.states
    assert array.log is log and array.copy().log is None and array[0].log is None and (array * 1).log is None
    assert type(np.asarray(array)) is np.ndarray and jax.numpy.asarray(array).shape == (2, 2)
    array[0] = [1.0, 0.0]
    assert array.log is None
    changed = bm.policy_value(key, posterior, array, Episodic(4), initial=log, num_draws=50)
    assert not changed.policy and abs(changed.mean - values["log"].mean) > 0.1


def test_decide_knows_the_mixture_of_its_log_when_it_sees_it():
    log, key = sales(200), jax.random.key(0)
    space = StateActionSpace.from_log(log)
    options = bm.recommend.DecideOptions(space=space, num_draws=100, checks=False)
    said = {}
    array = behaviour_policy(log, space=space)
    for name, baseline in (("none", None), ("log", log), ("array", array), ("mixture", np.asarray(array))):
        decision = bm.decide(key, "default", log, Episodic(4), baseline=baseline, options=options)
        said[name] = (decision.practice, np.asarray(decision.baseline).shape)
    assert said["none"] == said["log"] == said["array"] and said["none"][1] == (4, 2, 2)
    assert "as one policy of all steps; but its actions depend on the step" in said["mixture"][0]
    other = bm.decide(key, "default", log, Episodic(4), baseline=np.array([[1.0, 0.0], [0.0, 1.0]]), options=options)
    assert other.practice == ""


def taken(times: int, number: int) -> Log:
    """Episodes of one step in one state; action 1 in so many of them."""
    action = (np.arange(number) < times).astype(int)
    nothing = np.zeros(number, int)
    return Log(Transitions(nothing, action, action * 1.0, nothing, truncated=np.ones(number, bool)), ("x",), (0, 1))


def test_frequencies_of_a_log_are_drawn():
    """Of a known MDP whose action 1 pays 1: Beta(30, 10), by a KS test at level 1e-6 that sees a variance 15 % off."""
    log, key, known = taken(30, 40), jax.random.key(3), weighted([[[1.0], [1.0]]], [[0.0, 1.0]], False)
    once = bm.policy_value(key, known, log, Episodic(1), num_draws=20_000)
    assert kstest(once.draws, beta(30, 10).cdf).pvalue > 1e-6
    for twin in (beta(30 / 1.15, 10 / 1.15), beta(30 * 1.15, 10 * 1.15)):
        assert kstest(once.draws, twin.cdf).pvalue < 1e-6
    assert "its frequencies are drawn as well" in str(once)
    for objective, times in ((Episodic(3), 3.0), (Discounted(0.5), 2.0), (AverageReward(), 1.0)):
        value = bm.policy_value(key, known, log, objective, num_draws=20_000)
        np.testing.assert_allclose(value.draws, times * once.draws, rtol=1e-9)
    stated = bm.policy_value(key, known, behaviour_policy(log), Episodic(1), num_draws=50)
    assert stated.sd == 0.0 and stated.mean == 0.75 and not stated.policy


@pytest.mark.parametrize("objective", [Discounted(0.8), Episodic(4), AverageReward()])
def test_every_draw_is_to_first_order_that_of_its_own_policy(objective):
    """Against central differences of dense solves: of all steps, and by step; whatever the other policies are. The
    values of the drawn policies themselves, the twin, are further away."""
    rng, key, number = np.random.default_rng(0), jax.random.key(1), 30
    known = weighted(rng.dirichlet(np.ones(4), (4, 2)), rng.normal(size=(4, 2)), False)
    pairs = rng.integers(4, size=80), rng.integers(2, size=80), np.tile(np.arange(4), 20)
    state, action, step = pairs
    if isinstance(objective, Episodic):
        action = np.where(step < 2, 0, action)
    log = Log(Transitions(state, action, None, state, truncated=step == 3, step=step), range(4), (0, 1))
    counts, _ = logged_counts(log, None, 4 if isinstance(objective, Episodic) else None)
    drawn = BehaviourDraws(key, counts).draw(number)
    fixed = posterior_samples(bm.MDP(*(np.stack(number * [x]) for x in (known.weight, known.reward))))
    frequencies, tiny = counts / counts.sum(-1, keepdims=True), 1e-5
    at = lambda policy: dense_value(known.weight, known.reward, policy, objective)  # noqa: E731
    moved = [[at(frequencies + x * (policy - frequencies)) for x in (-tiny, tiny)] for policy in drawn]
    effects = np.diff(moved)[:, 0] / (2 * tiny)
    value = bm.policy_value(key, fixed, log, objective, initial=START, num_draws=number)
    np.testing.assert_allclose(value.draws, at(frequencies) + effects, atol=1e-4)  # STEP; samples are in float32
    assert value.by_frequencies is not None
    np.testing.assert_allclose(value.by_frequencies, effects, atol=1e-4)
    assert np.abs(np.array([at(policy) for policy in drawn]) - value.draws).max() > 1e-3
    parts = BehaviourDraws(key, counts)
    np.testing.assert_array_equal(np.concatenate([parts.draw(7), parts.draw(number - 7)]), drawn)
    policies: Any = {"log": log, "first": np.zeros(4, int)}
    if isinstance(objective, Episodic):
        policies["by step"] = np.zeros((4, 4), int)
        # One that has no steps, beside one that has.
        mixed = CountedPolicy(counts.sum(0), key)
        alone = policy_values(key, fixed, {"mixed": mixed}, objective, START, number)["mixed"]
        beside = policy_values(key, fixed, {"mixed": mixed, **policies}, objective, START, number)["mixed"]
        np.testing.assert_allclose(beside.draws, alone.draws, rtol=1e-9)
    together = bm.compare_policies(key, fixed, policies, objective, initial=START, num_draws=number)
    np.testing.assert_allclose(together.values["log"].draws, value.draws, rtol=1e-9)
    assert together.values["first"].by_frequencies is None


def test_gains_without_a_derivative_by_the_frequencies_are_refused():
    """Two states that are never left, of one gain: the gain is known, how it moves with the frequencies is not."""
    rows = np.eye(3)[np.array([[1, 2], [1, 1], [2, 2]])]
    fixed = posterior_samples(bm.MDP(np.stack([rows] * 5), np.ones((5, 3, 2))))
    log = Log(Transitions([0, 0, 1, 2], [0, 1, 0, 0], None, [1, 2, 1, 2], truncated=[True] * 4), range(3), (0, 1))
    value = lambda policy: bm.policy_value(jax.random.key(0), fixed, policy, AverageReward(), num_draws=5)  # noqa: E731
    with pytest.raises(ValueError, match="ends in one of several sets of states"):
        value(log)
    np.testing.assert_allclose(value(behaviour_policy(log)).draws, 1.0)


def test_frequencies_of_few_visits_do_not_move_the_mean():
    """Steps before an end that one action of ten brings: of draws b themselves the mean of 1 / b is infinite."""
    state, action = np.zeros(10, int), (np.arange(10) == 9).astype(int)
    log = Log(Transitions(state, action, -np.ones(10), state, terminated=action == 1), ("x",), (0, 1))
    known = weighted([[[1.0, 0.0], [0.0, 1.0]]], [[-1.0, -1.0]], True)
    value = bm.policy_value(jax.random.key(0), known, log, FirstExit(), num_draws=20_000)
    # -1 / f = -10, and a standard deviation of 100 sd(b), b ~ Beta(1, 9).
    assert abs(value.mean + 10) < 5 * value.error and abs(value.sd / (100 * beta(1, 9).std()) - 1) < 0.05


def test_draws_to_first_order_may_leave_the_range_of_the_rewards_and_keep_the_mean():
    """1 for two rare actions in a row, f = .1 each: f^2 + f (b - f) + f (c - f), which is -.01 where b = c = 0."""
    state, action = np.repeat([0, 1], 10), np.tile(np.arange(10) == 9, 2).astype(int)
    log = Log(Transitions(state, action, np.zeros(20), state, terminated=np.ones(20)), (0, 1), (0, 1))
    known = weighted([[[0.0, 0, 1], [0, 1, 0]], [[0.0, 0, 1], [0, 0, 1]]], [[0.0, 0.0], [0.0, 1.0]], True)
    value = bm.policy_value(jax.random.key(0), known, log, FirstExit(), initial=[1, 0], num_draws=20_000)
    assert -0.01 < value.draws.min() < value.interval[0] < 0
    assert abs(value.mean - 0.01) < 5 * value.error
    assert value.sd == pytest.approx(0.1 * 2**0.5 * beta(1, 9).std(), rel=0.05)


def test_states_that_a_log_never_left_are_told():
    """Of seven states the log leaves one: the answer says what stands for practice in the others, five by name."""
    log = Log(Transitions([0, 0], [0, 1], [0.0, 1.0], [1, 2], truncated=[True, True]), tuple("abcdefg"), (0, 1))
    space = bm.StateActionSpace.from_log(log)
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_normal_gamma(), log, space=space)
    value = bm.policy_value(jax.random.key(1), posterior, log, Discounted(0.5), num_draws=50)
    words = " ".join(str(value).split())
    never = "all actions alike in 6 states that it never left: b, c, d, e, f and 1 more"
    assert f"what the log did ({never}); its frequencies" in words
