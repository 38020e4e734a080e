"""Robust values of given intervals: against linear programs, by hand, and within the bound that is proven."""

import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.verification import interval_mdp, robust_values
from bayes_mdp.verification.interval_mdp import IntervalMDP, _Problem
from tests.verification.problems import EXTREMES, SENSES, random_model, random_problem, sweep


def given(entries, *, reward=(), labels=None, initial=0):
    """A model of {(state, action): {next state: (lower, upper)}}."""
    states = 1 + max(s for s, _ in entries)
    counts = np.bincount([s for s, _ in entries], minlength=states)
    rows = [row for _, row in sorted(entries.items())]
    listed = [(t, *ends) for row in rows for t, ends in row.items()]
    return IntervalMDP(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        np.array([t for t, _, _ in listed]),
        np.array([low for _, low, _ in listed], float),
        np.array([high for _, _, high in listed], float),
        {"reward": np.array(reward, float)} if len(reward) else {},
        {name: np.arange(states) == s for name, s in (labels or {"done": states - 1}).items()},
        initial,
        tuple(map(str, range(states))),
        tuple(str(a) for _, a in sorted(entries)),
    )


TINY = given({(0, 0): {1: (0.2, 0.4), 2: (0.6, 0.8)}, (1, 0): {1: (1, 1)}, (2, 0): {2: (1, 1)}})


def test_a_probability_by_hand():
    assert robust_values(TINY, rows="least").initial == pytest.approx(0.6, abs=1e-12)
    assert robust_values(TINY, rows="most").initial == pytest.approx(0.8, abs=1e-12)


def test_a_reward_by_hand():
    """1 / (probability to end), which is .16 to .4: 6.25 and 2.5."""
    model = given({(0, 0): {0: (0.6, 0.84), 1: (0.16, 0.4)}, (1, 0): {1: (1, 1)}}, reward=[1.0, 0.0])
    assert robust_values(model, reward="reward", rows="most").initial == pytest.approx(6.25, abs=1e-12)
    assert robust_values(model, reward="reward", rows="least").initial == pytest.approx(2.5, abs=1e-12)


@pytest.mark.parametrize("number", range(12))
def test_values_are_the_fixed_point_of_linear_programs(number):
    """One step of linear programs, choice by choice, moves no value: which, with an end, only v* has."""
    model = random_model(number)
    fixed = model.labels["done"]
    for sense in SENSES:
        for rows in EXTREMES:
            found = robust_values(model, reward="reward", sense=sense, rows=rows)
            moved = sweep(model, found.values, model.rewards["reward"], fixed, sense, rows == "most")
            np.testing.assert_allclose(moved, found.values, rtol=0, atol=1e-8 * (1 + np.abs(found.values).max()))
            assert (found.bound < 1e-9 * (1 + np.abs(found.values).max())).all()


@pytest.mark.parametrize("number", range(6))
def test_the_bound_covers_values_that_are_wrong(number):
    """Of any values, not only of good ones; and it is no idle one: within 100 times the error of constant mistakes."""
    model = random_model(number)
    problem = _Problem.of(
        model, model.rewards["reward"], np.zeros(model.n_states), np.asarray(model.labels["done"], bool)
    )
    rng = np.random.default_rng(number)
    for maximise in (True, False):
        for most in (True, False):
            true = problem.solve(maximise, most)
            for size in (1e-9, 1e-3, 10.0):
                wrong = np.where(problem.fixed, 0.0, true + size * rng.normal(size=len(true)))
                bound = problem.bound(wrong, maximise, most)
                assert (np.abs(wrong - true) <= bound).all()


def test_least_and_most_bracket_every_row_and_policy():
    """Rows within the intervals, any policy: its value lies between; of the best policy, between the best ones."""
    for number in range(20):
        lower, upper, reward, objective = random_problem(number)
        model = interval_mdp(lower, upper, reward, objective)
        states, actions = reward.shape
        rate = float(objective.discount) if isinstance(objective, bm.Discounted) else 1.0
        best = {rows: robust_values(model, reward="reward", rows=rows).values[:states] for rows in EXTREMES}
        worst = robust_values(model, reward="reward", sense="min", rows="least").values[:states]
        rng = np.random.default_rng(number)
        for _ in range(20):
            # A row within the box: lower ends, and the rest in a random order.
            rows = lower.copy()
            for index in np.ndindex(states, actions):
                for o in rng.permutation(lower.shape[-1]):
                    rows[index][o] += min(upper[index][o] - rows[index][o], 1 - rows[index].sum())
            policy = rng.integers(actions, size=states)
            pick = np.arange(states), policy
            value = np.linalg.solve(np.eye(states) - rate * rows[pick][:, :states], reward[pick])
            assert (value <= best["most"] + 1e-9).all() and (value >= worst - 1e-9).all()
            assert (best["least"] <= best["most"] + 1e-12).all()


def test_intervals_of_one_point_are_an_mdp():
    rows, reward = np.random.default_rng(0).dirichlet(np.ones(4), (4, 3)), np.random.default_rng(1).normal(size=(4, 3))
    model = interval_mdp(rows, rows, reward, bm.Discounted(0.9))
    solved = bm.solve(bm.MDP(rows, reward), bm.Discounted(0.9))
    for rows_at in EXTREMES:
        found = robust_values(model, reward="reward", rows=rows_at)
        np.testing.assert_allclose(found.values[:4], solved.v, atol=1e-5)
        assert list(found.actions.values())[:4] == [str(a) for a in np.asarray(solved.policy)]


def test_steps_are_layers_of_states():
    """Episodic values by backward induction; rows that differ by step."""
    rng = np.random.default_rng(0)
    rows, reward = rng.dirichlet(np.ones(3), (3, 3, 2)), rng.normal(size=(3, 3, 2))
    model = interval_mdp(rows, rows, reward, bm.Episodic(3, 0.8), initial=np.array([0.5, 0.5, 0.0]))
    values = np.zeros(3)
    for step in reversed(range(3)):
        values = (reward[step] + 0.8 * rows[step] @ values).max(-1)
    found = robust_values(model, reward="reward")
    np.testing.assert_allclose(found.values[:3], values, atol=1e-12)
    assert found.initial == pytest.approx(values[:2].mean(), abs=1e-12)


def test_what_cannot_reach_the_target_has_probability_zero():
    model = given(
        {(0, 0): {1: (0.2, 0.5), 2: (0.1, 0.3), 3: (0.3, 0.6)}, **{(s, 0): {s: (1, 1)} for s in (1, 2, 3)}},
        labels={"goal": 3},
    )
    found = robust_values(model, target="goal", rows="least")
    assert found.values.tolist() == pytest.approx([0.3, 0.0, 0.0, 1.0]) and found.bound[1] == 0


BAD = {
    "an empty interval": ({0: (0.6, 0.4), 1: (0.2, 0.8)}, r"state '0', action '0' to '0' is \[0.6, 0.4\]"),
    "below zero": ({0: (-0.1, 0.4), 1: (0.2, 0.8)}, r"is \[-0.1, 0.4\], expected 0 <= lower end"),
    "above one": ({0: (0.1, 1.4), 1: (0.2, 0.8)}, r"is \[0.1, 1.4\]"),
    "not a number": ({0: (np.nan, 0.4), 1: (0.2, 0.8)}, r"is \[nan, 0.4\]"),
    "too much": (
        {0: (0.6, 0.8), 1: (0.5, 0.8)},
        r"hold no distribution: their lower ends sum to 1.1, expected at most",
    ),
    "too little": ({0: (0.1, 0.3), 1: (0.5, 0.6)}, r"their upper ends sum to 0.9, expected at least 1"),
    "elsewhere": ({0: (0.1, 0.3), 7: (0.5, 0.9)}, r"leads to state 7, expected one from 0 to 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_intervals_that_hold_nothing_are_named(case):
    from bayes_mdp.verification.interval_mdp import checked

    row, says = BAD[case]
    with pytest.raises(ValueError, match=says):
        checked(given({(0, 0): row, (1, 0): {1: (1, 1)}}))


def test_no_bound_where_the_end_can_be_avoided():
    """A choice that may stay for ever, by the policy or by the rows: refused, with its name."""
    by_policy = given({(0, 0): {1: (1, 1)}, (0, 1): {0: (1, 1)}, (1, 0): {1: (1, 1)}}, reward=[1.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"no bound on 'reward' until 'done': state '0', action '1' can stay away"):
        robust_values(by_policy, reward="reward")
    by_rows = given({(0, 0): {0: (0.2, 1.0), 1: (0.0, 0.8)}, (1, 0): {1: (1, 1)}})
    with pytest.raises(ValueError, match=r"state '0', action '0' can stay away from it for ever, expected lower ends"):
        robust_values(by_rows)


def test_other_arguments_that_are_wrong():
    one = np.full((1, 1, 1), 1.0)
    with pytest.raises(ValueError, match=r"AverageReward, expected Discounted"):
        interval_mdp(one, one, [[1.0]], bm.AverageReward())
    with pytest.raises(ValueError, match=r"objective is FirstExit, and nothing ends"):
        interval_mdp(one, one, [[1.0]], bm.FirstExit())
    with pytest.raises(ValueError, match=r"depends on the step, expected an Episodic objective"):
        interval_mdp(one[None], one[None], [[[1.0]]], bm.Discounted(0.9))
    with pytest.raises(ValueError, match=r"has 3 steps, and lower has 2"):
        interval_mdp(np.ones((2, 1, 1, 1)), np.ones((2, 1, 1, 1)), np.ones((2, 1, 1)), bm.Episodic(3))
    with pytest.raises(ValueError, match=r"target is 'goal'"):
        robust_values(TINY, target="goal")
    with pytest.raises(ValueError, match=r"reward is 'cost'"):
        robust_values(TINY, reward="cost")
    with pytest.raises(ValueError, match=r"reward has shape"):
        interval_mdp(one, one, [1.0], bm.Discounted(0.9))
