"""UCBVI against loops for its three bonuses, two plans in a row; optimism; what is refused."""

from typing import Any

import jax
import numpy as np
import pytest

from bayes_mdp.agents import UCBVI
from bayes_mdp.mdp import MDP, Discounted, Episodic
from tests.agents.optimism_problems import (
    LEGAL,
    A,
    Belief,
    H,
    S,
    Uniform,
    first_plan,
    legal_only,
    uniform_belief,
    world,
)

DELTA, LOW, HIGH = 0.1, -0.5, 2.0
OPTIONS: Any = {"delta": DELTA, "min_reward": LOW, "max_reward": HIGH}


def logarithm(episodes, steps=H):
    """L of so many episodes."""
    return np.log(5 * S * A * episodes * steps / DELTA)


def bernstein(case, step, pair, values, log, visits):
    """The three terms of SPEC 2.8 for rewards in an interval of length HIGH - LOW, a sum over next states at a time."""
    p, n = case.at(case.rows, step)[pair], case.at(visits, step)[pair]
    variance = sum(p[y] * values[y] ** 2 for y in range(S + 1)) - sum(p[y] * values[y] for y in range(S + 1)) ** 2
    third = 0.0
    for y in range(S):
        met = visits[y].sum() / H if case.loc.ndim == 2 else visits[min(step + 1, H - 1), y].sum()
        bound = min(100**2 * H**3 * S**2 * A * log**2 / met, H**2) if met > 0 else H**2
        third += p[y] * bound * (HIGH - LOW) ** 2
    last = 0.0 if step == H - 1 else np.sqrt(8 / n * third)
    return np.sqrt(8 * log * max(variance, 0) / n) + 14 * H * (HIGH - LOW) * log / (3 * n) + last


def hoeffding(case, step, pair, values, log, visits):
    """7 H L sqrt(1 / N)."""
    return 7 * H * (HIGH - LOW) * log / np.sqrt(case.at(visits, step)[pair])


def by_loops(case, bonus, scale, log, previous, visits):
    """min(Q_{k-1}, H, r + P V + b) where N > 0, else H."""
    values, q = np.zeros(S + 1), np.full((H, S, A), -np.inf)
    for step in reversed(range(H)):
        for pair in map(tuple, np.argwhere(LEGAL)):
            q[(step, *pair)] = H * HIGH
            if case.at(visits, step)[pair] > 0:
                model = case.at(case.loc, step)[pair] + case.at(case.rows, step)[pair] @ values
                added = scale * bonus(case, step, pair, values, log, visits)
                q[(step, *pair)] = min(previous[(step, *pair)], H * HIGH, model + added)
        values = np.append(q[step].max(-1), 0.0)
    return q


def believed(case, times=1.0):
    """The mean rows and rewards of a world, its counts times a number."""
    rows = case.rows
    return Belief(MDP(rows[..., :-1], case.loc, end_probs=rows[..., -1], legal=LEGAL), times * case.visits)


@jax.jit
def plan(agent, problem, state, belief):
    """One plan."""
    return agent.plan(jax.random.key(0), problem, state, belief)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "steps"),
    [("hoeffding", True), ("bernstein", True), pytest.param("bernstein", False, marks=pytest.mark.slow)],
)
def test_two_plans_are_the_algorithm(name, steps, key):
    """The second with more data, some rewards raised and some lowered: here the first plan's values are the smaller."""
    case, bonus = world(0, steps=steps), {"hoeffding": hoeffding, "bernstein": bernstein}[name]
    agent = UCBVI(name, bonus_scale=0.02, **OPTIONS)
    state, previous = agent.init(key, case.problem()), np.full((H, S, A), H * HIGH)
    seen = []
    for number, (times, raised) in enumerate([(50.0, 0.0), (1e5, 0.5 * (-1) ** np.arange(S)[:, None])], start=1):
        now = case._replace(loc=case.loc + raised)
        policy, state = plan(agent, case.problem(), state, believed(now, times))
        expected = by_loops(now, bonus, 0.02, logarithm(number), previous, times * case.visits)
        np.testing.assert_allclose(legal_only(policy.q), legal_only(expected), rtol=1e-9)
        seen.append((legal_only(expected), legal_only(previous)))
        previous = expected
    visited = legal_only(np.broadcast_to(case.visits > 0, (H, S, A)))
    assert (seen[0][0] < H * HIGH)[visited].any() and (seen[0][0] == H * HIGH)[~visited].all()
    assert (seen[1][0] == seen[1][1])[visited].any() and (seen[1][0] < seen[1][1])[visited].any()
    assert int(state.num_plans) == 2


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["hoeffding", "bernstein"])
def test_literal_constants_are_optimistic_and_bind(name, key):
    """10^8 visits of every pair: q* <= q < H, within 2; without a bonus some q falls below q*.

    The bonus is over 20 standard deviations of what it stands for: no false alarms; a bonus of zero is caught.
    """
    case, rng, number = world(5), np.random.default_rng(0), 10**8
    counts = rng.multinomial(number, case.rows)
    values, truth = np.zeros(S + 1), np.full((H, S, A), -np.inf)
    for step in reversed(range(H)):
        truth[step] = np.where(LEGAL, case.loc[step] + case.rows[step] @ values, -np.inf)
        values = np.append(truth[step].max(-1), 0.0)
    seen = counts / number
    belief = Belief(
        MDP(seen[..., :-1], case.loc, end_probs=seen[..., -1], legal=LEGAL), np.full((H, S, A), float(number))
    )
    slack = []
    for scale in (1.0, 0.0):
        agent = UCBVI(name, bonus_scale=scale, **OPTIONS)
        policy, _ = plan(agent, case.problem(), agent.init(key, case.problem()), belief)
        slack.append(legal_only(policy.q) - legal_only(truth))
    assert slack[0].min() > 0 and slack[0].max() < 2
    assert slack[1].min() < 0


def test_simplified_is_tabula_rasa(key):
    """r + bonus of the reward + P V + bonus of the row times the steps to go, unclipped; none where it is known."""
    case = world(0)
    width = 2 * np.log(3.0)
    values, q = np.zeros(S + 1), np.full((H, S, A), -np.inf)
    for step in reversed(range(H)):
        for pair in map(tuple, np.argwhere(LEGAL)):
            index = (step, *pair)
            of_row = 0.0 if case.known[index] else np.sqrt(width / case.concentration[index].sum())
            of_reward = np.sqrt(width * case.variance[index])
            q[index] = case.loc[index] + case.rows[index] @ values + 0.3 * (of_reward + of_row * (H - 1 - step))
        values = np.append(q[step].max(-1), 0.0)
    policy, _ = first_plan(UCBVI("simplified", bonus_scale=0.3), case.problem(), case.posterior, key)
    np.testing.assert_allclose(legal_only(policy.q), legal_only(q), rtol=1e-4)


class Counted(Uniform):
    """With counts; the reward of state 1 is unknown at the first step alone."""

    def visit_counts(self):
        """None."""
        return 0 * self.mdp.reward

    def expected_reward_variance(self):
        """Known from the second step on."""
        return 0 * self.mdp.reward + np.array([1.0, 0.0, 0.0])[:, None, None]


def test_what_it_cannot_use_is_refused(key):
    case = world(0)
    for make, kind, message in (
        (lambda: UCBVI("freedman"), ValueError, "bonus is 'freedman', expected one of bernstein, hoeffding, simpl"),
        (lambda: UCBVI(delta=0.0), ValueError, "delta is 0.0, expected a number between 0 and 1"),
        (lambda: UCBVI(delta=1.5), ValueError, "delta is 1.5, expected a number between 0 and 1"),
        (lambda: UCBVI(bonus_scale=-1.0), ValueError, "bonus_scale is -1.0, expected a finite number, zero or"),
        (lambda: UCBVI(min_reward=0.1), ValueError, "min_reward is 0.1, expected a number, zero or less"),
        (lambda: UCBVI().init(key, case.problem(Discounted(0.9))), ValueError, "objective is Discounted, expected Ep"),
        (lambda: UCBVI("simplified").check_belief(believed(case)), TypeError, "UCBVI needs a posterior that has .*tra"),
        (
            lambda: UCBVI(max_reward=0.5).check_belief(Counted(uniform_belief(True).mdp)),
            ValueError,
            r"reward\[1, 1, 0\] is 1\.0, expected a mean reward from 0 to 0.5 \(min_reward, max_reward\)",
        ),
    ):
        with pytest.raises(kind, match=message):
            make()
    UCBVI().check_belief(Counted(uniform_belief(True).mdp))
    assert UCBVI().init(key, case.problem(Episodic(H))).q.shape == (H, S, A)
