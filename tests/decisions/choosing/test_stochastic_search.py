"""The search for stochastic policies: goldens, derivatives, and what it may never do."""

import numpy as np
import pytest

from bayes_mdp.decisions.choosing.criteria import (
    CVaR,
    ExpectedValue,
    Percentile,
    ProbabilityOptimal,
    Regret,
    SoftRobust,
    needs_best,
    scored,
)
from bayes_mdp.decisions.choosing.policy_search import Found, Problem, climb, enumerate_policies
from bayes_mdp.decisions.choosing.policy_set import PolicyLimits, policy_set
from bayes_mdp.mdp import Discounted
from tests.decisions.choosing.problems import (
    GAMMA,
    REWARD,
    ROWS,
    START,
    dense_value,
    given_draws,
    mdps,
    problem,
    random_problem,
    worlds,
)

pytestmark = pytest.mark.numerics

CRITERIA = [ExpectedValue(), CVaR(0.2), CVaR(0.4), SoftRobust(0.2), Regret(), Regret(0.4), Percentile(0.2)]


@pytest.mark.parametrize(
    ("criterion", "score", "policy", "mixed"),
    [
        (ExpectedValue(), 8.6159130382, (2, 0), 0.4098),
        (CVaR(0.2), 8.4019197302, (0, 0), 0.4065),
        (CVaR(0.4), 8.4366335667, (0, 0), 0.4590),
    ],
    ids=["mean", "cvar .2", "cvar .4"],
)
def test_the_reference_example(criterion, score, policy, mixed):
    """The best stationary policy mixes actions 1 and 2 in state 2, also for one who is indifferent to risk."""
    task = problem(worlds(), criterion)
    start = enumerate_policies(task)
    assert start is not None
    found = climb(task, start)
    assert found.score == pytest.approx(score, abs=1e-9) and not found.exact
    np.testing.assert_array_equal(found.policy[:2].argmax(-1), policy)
    np.testing.assert_allclose(found.policy[2], [0, mixed, 1 - mixed], atol=5e-5)
    values = [dense_value(rows, REWARD, found.policy, GAMMA, START) for rows in ROWS]
    np.testing.assert_allclose(found.values, values, rtol=1e-12)
    assert "linear programs (a local optimum)" in found.how


@pytest.mark.some(3)
@pytest.mark.parametrize("criterion", CRITERIA, ids=map(str, CRITERIA))
def test_it_is_never_worse_than_its_start(criterion):
    """From deterministic and from mixed policies; what it returns is a policy, with the values that it claims."""
    gained = 0
    for seed in range(4):
        rows, reward = random_problem(seed, 3, 3, 12)
        task = problem(given_draws(mdps(rows, reward), Discounted(GAMMA), initial=START), criterion)
        rng = np.random.default_rng(seed)
        for policy in (np.eye(3)[rng.integers(0, 3, 3)], rng.dirichlet(np.ones(3), 3)):
            values = task.draws.values(policy[None])
            start = Found(policy, values[:, 0], float(task.scores(values)[0]), "a start", False)
            found = climb(task, start)
            assert found.score >= start.score
            gained += found.score > start.score
            np.testing.assert_allclose(found.policy.sum(-1), 1.0, atol=1e-12)
            assert (found.policy >= 0).all()
            np.testing.assert_allclose(found.values, task.draws.values(found.policy[None])[:, 0], rtol=1e-12)
            assert found.score == pytest.approx(float(task.scores(found.values[:, None])[0]), rel=1e-12)
    assert gained >= 5


def test_one_mdp_keeps_its_deterministic_optimum():
    """No mixture is better than the optimum of a known MDP, nor is any found."""
    for world in range(5):
        for criterion in (ExpectedValue(), CVaR(0.5), Regret()):
            task = problem(worlds([world]), criterion)
            start = enumerate_policies(task)
            assert start is not None
            assert climb(task, start) is start


def test_from_uniform_it_reaches_the_optimum_of_one_mdp():
    """The value of one MDP has no local optimum but the global one."""
    for world in range(5):
        task = problem(worlds([world]), ExpectedValue())
        best = enumerate_policies(task)
        assert best is not None
        uniform = np.full((3, 3), 1 / 3)
        values = task.draws.values(uniform[None])
        found = climb(task, Found(uniform, values[:, 0], float(values.mean()), "uniform", False))
        assert found.score == pytest.approx(best.score, rel=1e-7)


def test_no_mixture_of_a_grid_is_better():
    """All policies of the reference example with probabilities in twelfths in state 2, the best actions elsewhere."""
    draws = worlds()
    grid = [(i, j, 12 - i - j) for i in range(13) for j in range(13 - i)]
    for criterion in (ExpectedValue(), CVaR(0.2), CVaR(0.4), SoftRobust(0.2), Regret()):
        task = problem(draws, criterion)
        start = enumerate_policies(task)
        assert start is not None
        found = climb(task, start)
        policies = np.repeat(found.policy[None], len(grid), 0)
        policies[:, 2] = np.array(grid) / 12
        assert task.scores(draws.values(policies)).max() <= found.score + 1e-12


def test_a_criterion_without_slope_is_left_alone():
    """The probability of being optimal has no derivative; neither has a set without a choice."""
    task = problem(worlds(), ProbabilityOptimal())
    start = enumerate_policies(task)
    assert start is not None and climb(task, start) is start
    fixed = policy_set(PolicyLimits(allowed=np.eye(3, dtype=bool)), None, (3, 3), None, None)
    alone = Problem(worlds(), scored(ExpectedValue()), fixed, None)
    start = enumerate_policies(alone)
    assert start is not None and climb(alone, start) is start


def test_limits_hold_in_every_mixture():
    """The fixed part stays, what is forbidden stays out; more freedom is never worse."""
    draws, baseline = worlds(), np.full((3, 3), 1 / 3)
    allowed = np.array([[True, True, True], [True, False, True], [False, True, True]])
    scores = []
    for change in (0.1, 0.5, 1.0):
        limits = PolicyLimits(allowed=None if change < 1 else allowed, max_change=change, stochastic=True)
        policies = policy_set(limits, None, (3, 3), None, baseline)
        form = scored(CVaR(0.4))
        task = Problem(draws, form, policies, draws.best() if needs_best(form) else None)
        start = enumerate_policies(task)
        assert start is not None
        found = climb(task, start)
        assert policies.contains(found.policy)
        assert 0.5 * np.abs(found.policy - baseline).sum(-1).max() <= change + 1e-12
        scores.append(found.score)
    assert (found.policy[~allowed] == 0).all()
    assert scores == sorted(scores)


def test_an_infeasible_mixture_is_not_returned():
    """Policies must be no worse than (0, 0, 0) in every world: the climb ends inside."""
    draws = worlds()
    base = problem(draws, ExpectedValue())
    worst = draws.values(np.eye(3)[None, [0, 0, 0]])[:, 0]
    safe = Problem(
        draws, base.criterion, base.policies, None, lambda v: np.asarray((v >= worst[:, None] - 1e-12).all(0))
    )
    start = enumerate_policies(safe)
    assert start is not None
    found = climb(safe, start)
    assert (found.values >= worst - 1e-12).all() and start.score <= found.score < 8.6159130382
