"""The search for deterministic policies: goldens, and brute force by dense solves in plain numpy."""

from collections.abc import Callable

import numpy as np
import pytest

from bayes_mdp.decisions.choosing import policy_search as module
from bayes_mdp.decisions.choosing.common_draws import CommonDraws
from bayes_mdp.decisions.choosing.criteria import (
    Criterion,
    CVaR,
    ExpectedValue,
    Percentile,
    ProbabilityOptimal,
    Regret,
    Robust,
    SoftRobust,
    no_worse,
    scored,
)
from bayes_mdp.decisions.choosing.policy_search import Found, Problem, ascend, enumerate_policies
from bayes_mdp.decisions.choosing.policy_set import PolicySet, best_in
from bayes_mdp.mdp import Discounted, Episodic
from tests.decisions.choosing.problems import (
    GAMMA,
    POLICIES,
    REWARD,
    ROWS,
    START,
    dense_table,
    dense_value,
    everything,
    exceeded,
    given_draws,
    lowest_mean,
    mdps,
    problem,
    random_problem,
    worlds,
)

pytestmark = pytest.mark.numerics

GOLDENS = [
    (ExpectedValue(), (2, 0, 2), 8.4537500569),
    (CVaR(0.2), (0, 0, 0), 8.0693158727),
    (CVaR(0.4), (0, 0, 0), 8.0693158727),
    (CVaR(0.6), (0, 0, 1), 8.1398342049),
    (SoftRobust(0.2), (0, 0, 1), 8.1136597972),
    (Regret(), (0, 0, 1), -0.9369468332),
    (ProbabilityOptimal(), (0, 0, 2), 0.6),
    (Percentile(0.2), (0, 0, 2), 8.5078125),
    (Percentile(0.4), (0, 0, 2), 8.6509891262),
    (Percentile(0.6), (2, 0, 1), 9.4065934066),
]

OracleScore = Callable[[np.ndarray, np.ndarray], float]
"""Of the values of a policy, and the optimal ones, draw by draw."""

ORACLES: dict[str, tuple[Criterion, OracleScore]] = {
    "mean": (ExpectedValue(), lambda v, best: float(v.mean())),
    "cvar": (CVaR(0.25), lambda v, best: lowest_mean(v, 0.25)),
    "percentile": (Percentile(0.1), lambda v, best: exceeded(v, 0.1)),
    "soft-robust": (SoftRobust(0.2, 0.3), lambda v, best: float(0.3 * v.mean() + 0.7 * lowest_mean(v, 0.2))),
    "regret": (Regret(), lambda v, best: float((v - best).min())),
    "tail regret": (Regret(0.25), lambda v, best: lowest_mean(v - best, 0.25)),
    "best": (ProbabilityOptimal(0.05), lambda v, best: float(np.mean(best - v <= 0.05))),
}
N_STATES, N_ACTIONS, NUM, PROBLEMS = 4, 3, 20, 50
MAIN = ("mean", "cvar", "percentile", "regret")
"""Criteria that are tried on all problems, the others on a few."""


def found_by_enumeration(draws: CommonDraws, criterion: Criterion) -> Found:
    """The best of all policies."""
    found = enumerate_policies(problem(draws, criterion))
    assert found is not None
    return found


@pytest.mark.parametrize(("criterion", "policy", "score"), GOLDENS, ids=[str(case[0]) for case in GOLDENS])
def test_the_reference_example(criterion, policy, score):
    """The table of the specification, whose percentile rows are mislabelled: what it calls .4 and .6 is .2 and .4.

    By its own formula, sup {y: P(value >= y) >= 1 - level}, four of five worlds must reach the percentile at .2, three
    that at .4 and two that at .6.
    """
    found = found_by_enumeration(worlds(), criterion)
    assert found.exact and found.how == "best of all 27 deterministic policies, in these draws"
    np.testing.assert_array_equal(found.policy.argmax(-1), policy)
    assert found.score == pytest.approx(score, abs=1e-9)
    table = dense_table(ROWS, REWARD, GAMMA, START)
    np.testing.assert_allclose(found.values, table[POLICIES.tolist().index(list(policy))], rtol=1e-12)


@pytest.fixture(scope="module")
def cases() -> list[tuple[CommonDraws, np.ndarray, np.ndarray]]:
    """Draws, the values of all policies in them (policy, draw), and the optimum of the mean MDP."""
    start, made = np.eye(N_STATES)[0], []
    for seed in range(PROBLEMS):
        rows, reward = random_problem(seed, N_STATES, N_ACTIONS, NUM)
        draws = given_draws(mdps(rows, reward), Discounted(GAMMA), initial=start)
        mean = dense_table(rows.mean(0)[None], reward, GAMMA, start)[:, 0]
        choice = np.unravel_index(int(mean.argmax()), (N_ACTIONS,) * N_STATES)
        made.append((draws, dense_table(rows, reward, GAMMA, start), np.array(choice)))
    return made


@pytest.mark.some(2)
@pytest.mark.some(4)
@pytest.mark.parametrize("name", ORACLES)
def test_enumeration_is_brute_force(name, cases):
    """50 random problems, 81 policies, 20 draws."""
    criterion, oracle = ORACLES[name]
    for draws, table, _ in cases if name in MAIN else cases[:5]:
        expected = max(oracle(values, table.max(0)) for values in table)
        assert found_by_enumeration(draws, criterion).score == pytest.approx(expected, abs=1e-9)


FLOORS = {"mean": (47, 46), "cvar": (46, 42), "percentile": (45, 36), "regret": (45, 38)}
"""Of 50, with and without the changes of one action at the end"""


@pytest.mark.some(2)
@pytest.mark.parametrize("name", FLOORS)
@pytest.mark.parametrize(
    "checked", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["single changes tried", "steps alone"]
)
def test_ascent_ends_at_most_at_the_optimum(name, checked, cases, monkeypatch):
    """From the optimum of the mean MDP, in 50 random problems of 81 policies.

    It reached the optimum in 50, 50, 50 and 50 of them (mean, CVaR, percentile, regret); without the changes of one
    action at the end in 49, 47, 44 and 44.
    """
    if not checked:
        monkeypatch.setattr(module, "SINGLE_CHANGES", 0)
    criterion, oracle = ORACLES[name]
    reached = 0
    for draws, table, start in cases:
        scores = np.array([oracle(values, table.max(0)) for values in table])
        found = ascend(problem(draws, criterion), start, "a start")
        assert found is not None and not found.exact
        assert found.how.startswith("ascent from a start") and (": no change of one action" in found.how) == checked
        assert found.score <= scores.max() + 1e-9
        assert found.score >= scores[np.ravel_multi_index(tuple(start), (N_ACTIONS,) * N_STATES)] - 1e-9
        reached += found.score >= scores.max() - 1e-9
    assert reached >= FLOORS[name][0 if checked else 1]


def test_ascent_from_every_policy_of_the_reference_example():
    """The mean: 8.4537500569 is never exceeded, and a local optimum beats all changes of one action."""
    task = problem(worlds(), ExpectedValue())
    mean = dense_table(ROWS, REWARD, GAMMA, START).mean(-1).reshape(3, 3, 3)
    for start in POLICIES:
        found = ascend(task, start, "anywhere")
        assert found is not None
        at = tuple(found.policy.argmax(-1))
        assert found.score == pytest.approx(mean[at], abs=1e-12) and found.score <= 8.4537500570
        for state in range(3):
            line = mean[(*at[:state], slice(None), *at[state + 1 :])]
            assert found.score >= line.max() - 1e-12


def test_the_order_of_the_draws_is_irrelevant():
    """And so is the number of copies of each."""
    for criterion, policy, score in GOLDENS[1::2]:
        for order in ([3, 0, 4, 2, 1], np.tile(np.arange(5), 3)):
            found = found_by_enumeration(worlds(order), criterion)
            np.testing.assert_array_equal(found.policy.argmax(-1), policy)
            assert found.score == pytest.approx(score, abs=1e-9)


def test_infeasible_policies_are_passed_over():
    """Of those that are no worse than (0, 0, 0) in four of five worlds the best has the greatest mean: (2, 0, 2)."""
    draws = worlds()
    table = dense_table(ROWS, REWARD, GAMMA, START)
    task = problem(draws, ExpectedValue())
    for share, policy in ((1.0, (0, 0, 0)), (0.8, (2, 0, 2)), (0.6, (2, 0, 2))):
        safe = Problem(
            draws,
            task.criterion,
            task.policies,
            None,
            lambda values, share=share: np.mean(values >= table[0][:, None] - 1e-12, 0) >= share - 1e-12,
        )
        found = enumerate_policies(safe)
        assert found is not None
        np.testing.assert_array_equal(found.policy.argmax(-1), policy)
        assert found.score == pytest.approx({1.0: 8.0693158727}.get(share, 8.4537500569), abs=1e-9)
        risen = ascend(safe, np.array([1, 2, 1]), "an infeasible policy")
        assert risen is None or risen.score <= found.score + 1e-9
    nothing = Problem(draws, task.criterion, task.policies, None, lambda values: np.zeros(values.shape[1], bool))
    assert enumerate_policies(nothing) is None and ascend(nothing, np.zeros(3, int), "x") is None


def test_too_many_policies_are_not_enumerated(monkeypatch):
    """Neither too many policies nor too many values."""
    task = problem(worlds(), ExpectedValue())
    for name, most in (("ENUMERATED", 27), ("ENUMERATED_VALUES", 27 * 5)):
        with monkeypatch.context() as limited:
            limited.setattr(module, name, most)
            assert enumerate_policies(task) is not None
            limited.setattr(module, name, most - 1)
            assert enumerate_policies(task) is None


def test_batches_are_one_enumeration(monkeypatch):
    """Whatever their size."""
    from bayes_mdp.decisions.choosing import common_draws

    for size in (1, 4, 27):
        monkeypatch.setattr(common_draws, "MANY", size)
        assert found_by_enumeration(worlds(), ExpectedValue()).score == pytest.approx(8.4537500569, abs=1e-9)


def random_set(rng: np.random.Generator, n_states: int, n_actions: int) -> PolicySet:
    """Some actions are not free, some probability is fixed, one state has no choice."""
    free = rng.random((n_states, n_actions)) < 0.8
    free[np.arange(n_states), rng.integers(n_actions, size=n_states)] = True
    mass = rng.uniform(0.3, 1.0, n_states)
    mass[rng.integers(n_states)], mass[rng.integers(n_states)] = 0.0, 1.0
    return PolicySet(rng.dirichlet(np.ones(n_actions), n_states) * (1 - mass[:, None]), mass, free)


@pytest.mark.parametrize("discount", [0.3, 0.95, 0.999])
@pytest.mark.parametrize("endless", [True, False], ids=["endless", "ends"])
def test_elimination_gives_the_values_of_all_policies(discount, endless):
    """By dense linear systems, one for each policy and draw, within the error that is assumed."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows, reward = random_problem(seed, 4, 3, 6)
        rows = rows if endless else rows * rng.uniform(0.5, 1.0, (6, 4, 3, 1))
        start, policies = rng.dirichlet(np.ones(4)), random_set(rng, 4, 3)
        draws = given_draws(mdps(rows, reward), Discounted(discount), initial=start)
        values = module.all_values(draws, policies)
        choices = module._choices(policies, np.arange(round(policies.count)))
        assert len({tuple(each) for each in choices.tolist()}) == values.shape[1]
        # The order of itertools.product: the last open state changes fastest.
        assert choices.tolist() == sorted(choices.tolist())
        expected = [dense_value(w, reward, p, discount, start) for w in rows for p in policies.policy(choices)]
        error = module.ROUNDINGS * 4 * np.finfo(float).eps / (1 - discount) * np.abs(values).max()
        np.testing.assert_allclose(values, np.reshape(expected, values.shape), rtol=0, atol=error)


@pytest.mark.parametrize("name", ["mean", "cvar", "percentile", "regret"])
def test_elimination_changes_no_bit_of_the_answer(name, monkeypatch):
    """Ties among them: the last state is never reached, so that what is done there changes nothing; none may be worse.

    And where values by elimination are wrong all policies are judged one by one.
    """
    criterion = ORACLES[name][0]
    assert not isinstance(criterion, Robust)
    eliminated = module.all_values
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows, reward = random_problem(seed, 4, 3, 20)
        rows[:, :3, :, 3] = 0.0
        rows /= rows.sum(-1, keepdims=True)
        draws = given_draws(mdps(rows, reward), Discounted(0.95), initial=np.eye(4)[0])
        base = draws.values(np.full((1, 4, 3), 1 / 3))[:, 0]
        policies = everything(4, 3) if seed % 2 else random_set(rng, 4, 3)
        task = Problem(
            draws, scored(criterion), policies, draws.best(), lambda v, base=base: no_worse(v, base, 0.0, 0.9)
        )
        answers = []
        for values in (eliminated, lambda *args: eliminated(*args) + 1e-6, None):
            monkeypatch.setattr(module, "all_values", values)
            if values is None:
                monkeypatch.setattr(module, "_suits_elimination", lambda problem: False)
            answers.append(enumerate_policies(task))
        monkeypatch.undo()
        first, *others = answers
        for other in others:
            if first is None:
                assert other is None
                continue
            assert other is not None
            np.testing.assert_array_equal(first.policy, other.policy)
            np.testing.assert_array_equal(first.values, other.values)
            assert (first.score, first.how) == (other.score, other.how)


def test_few_policies_are_judged_one_by_one(monkeypatch):
    """Of 2,187 policies those that may be the best by their values to rounding."""
    rows, reward = random_problem(0, 7, 3, 30)
    draws = given_draws(mdps(rows, reward), Discounted(0.95), initial=np.full(7, 1 / 7))
    judged, values = [], CommonDraws.values
    monkeypatch.setattr(CommonDraws, "values", lambda self, policies: judged.append(policies) or values(self, policies))
    assert found_by_enumeration(draws, ExpectedValue()).how == "best of all 2187 deterministic policies, in these draws"
    assert sum(map(len, judged)) <= 16


def test_one_mdp_gives_the_optimum_of_solve():
    """Whatever the criterion; by the search and by the planner."""
    for criterion, _, _ in GOLDENS[::3]:
        draws = worlds([2])
        found, risen = found_by_enumeration(draws, criterion), ascend(problem(draws, criterion), POLICIES[0], "x")
        assert risen is not None
        optimum = best_in(mdps(ROWS[2], REWARD), Discounted(GAMMA), everything())
        np.testing.assert_array_equal(found.policy.argmax(-1), optimum)
        if not isinstance(criterion, ProbabilityOptimal):  # which need not rise
            np.testing.assert_array_equal(risen.policy.argmax(-1), optimum)


def test_finite_horizons_choose_for_every_step():
    """The multi-model example with horizon 3, Markov policies: 2.674; the mean-value problem claims more elsewhere."""
    draws = given_draws(mdps(ROWS, REWARD), Episodic(3), initial=START)
    policies = everything()
    fixed, mass = np.zeros((3, 3, 3)), np.ones((3, 3))
    steps = type(policies)(fixed, mass, policies.free)
    task = Problem(draws, scored(ExpectedValue()), steps, None)
    mean = mdps(ROWS.mean(0), REWARD)
    start = best_in(mean, Episodic(3), steps)
    claim = given_draws(mdps(ROWS.mean(0)[None], REWARD), Episodic(3), initial=START).values(steps.policy(start)[None])
    assert claim[0, 0] == pytest.approx(2.64048, abs=1e-9)
    assert draws.values(steps.policy(start)[None]).mean() == pytest.approx(2.6352, abs=1e-9)
    found = ascend(task, start, "the optimum of the mean MDP")
    assert found is not None and found.score == pytest.approx(2.674, abs=1e-9)
    assert draws.best().mean() == pytest.approx(2.7288, abs=1e-9)
