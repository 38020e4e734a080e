"""The Bayes-optimal value, against a plain recursion over dictionaries of counts that knows nothing of the library."""

# pyright: reportArgumentType=false

import tracemalloc
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions import bayes_optimum
from bayes_mdp.decisions.bayes_optimum import hyper_problem
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.models import priors
from tests.inference.bayes_problems import CASES, LEGAL, PAY, S2, Case, fresh, plain, two_state

pytestmark = pytest.mark.numerics

BELIEF_OF = cache(lambda name: bm.infer(jax.random.key(0), CASES[name].prior, space=CASES[name].space))


def optimum(name, horizon=None, **options):
    """The library's answer, from a posterior that is inferred once."""
    return bm.decisions.bayes_optimal(BELIEF_OF(name), objective=bm.Episodic(horizon or CASES[name].horizon), **options)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_value_of_the_plain_recursion(name):
    case = CASES[name]
    values, _ = plain(case)
    answer = bm.decisions.bayes_optimal(case.prior, case.space, objective=bm.Episodic(case.horizon))
    np.testing.assert_allclose(answer.v, values, rtol=1e-12)
    assert answer.value == pytest.approx(values.mean(), rel=1e-12)
    assert not answer.initial_given and "uniform" in str(answer)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_discounted_episodes(name):
    """Known and unknown rewards, by outcome or not, ends: the plain recursion with a discount."""
    case = CASES[name]
    objective = bm.Episodic(case.horizon, 0.6)
    answer = bm.decisions.bayes_optimal(BELIEF_OF(name), objective=objective)
    np.testing.assert_allclose(answer.v, plain(case, discount=0.6)[0], rtol=1e-12)
    assert np.abs(answer.v - optimum(name).v).max() > 1e-3, "without the discount it would be seen"
    assert answer.discount == 0.6 and f"episodes of {case.horizon} steps, discount 0.6: " in str(answer)
    one = bm.decisions.bayes_optimal(BELIEF_OF("two_state"), objective=bm.Episodic(1, 0.6))
    np.testing.assert_array_equal(one.q, PAY)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", [name for name in CASES if name != "fresh"])
def test_an_agent_that_does_not_learn_is_told_apart(name):
    """The broken twin: where something can be learnt, it pays."""
    values = optimum(name).v - plain(CASES[name], learns=False)[0]
    assert values.max() > 1e-3 and values.min() > -1e-12


@pytest.mark.parametrize("name", CASES)
def test_codes_of_several_words_change_nothing(name, monkeypatch):
    whole = optimum(name)

    def wide_counts(*args):
        """The problem with 64 bits for every count."""
        problem = hyper_problem(*args)
        places = max(1, int((problem.place >= 0).sum()))
        return replace(problem, count_type=np.dtype(np.uint64), num_words=places)

    monkeypatch.setattr(bayes_optimum, "hyper_problem", wide_counts)
    pieces = optimum(name)
    np.testing.assert_array_equal(pieces.q, whole.q)
    assert pieces.num_hyperstates == whole.num_hyperstates


def test_two_armed_bandit_with_uniform_priors_and_a_hundred_steps():
    """The published value, and the recursion over (successes, failures) of two arms in arrays."""
    answer = optimum("bandit", 100)
    assert f"{answer.value:.3f}" == "64.918"
    assert answer.value == pytest.approx(_two_arms(100), rel=1e-12)
    assert answer.num_hyperstates == sum((t + 1) * (t + 2) * (t + 3) // 6 for t in range(100))


def _two_arms(horizon):
    """after[n][i, j]: the value once n plays of arm one had i successes, and the rest, of arm two, j."""
    after = [np.zeros((n + 1, horizon - n + 1)) for n in range(horizon + 1)]
    for t in reversed(range(horizon)):
        now = []
        for n in range(t + 1):
            one = ((np.arange(n + 1) + 1) / (n + 2))[:, None]
            two = ((np.arange(t - n + 1) + 1) / (t - n + 2))[None, :]
            first = one * (1 + after[n + 1][1:]) + (1 - one) * after[n + 1][:-1]
            second = two * (1 + after[n][:, 1:]) + (1 - two) * after[n][:, :-1]
            now.append(np.maximum(first, second))
        after = now
    return after[0][0, 0]


def test_two_states_with_four_unknown_rows_and_twenty_five_steps():
    """The published value. The slow test below checks it digit by digit."""
    answer = optimum("two_state", 25, initial=[1.0, 0.0])
    assert f"{answer.value:.3f}" == "14.211"
    assert answer.value == answer.v[0] and np.isnan(answer.v[1])
    assert answer.num_hyperstates == 1_459_302
    shown = str(answer)
    assert "14.2114549" in shown and "1459302 hyper-states" in shown and "the given distribution (state " in shown


@pytest.mark.slow
def test_two_states_with_four_unknown_rows_digit_by_digit():
    """A recursion of its own over tuples of eight counts, step by step to hold one layer of values at a time."""
    layers = [{(0, (0,) * 8)}]
    for _ in range(24):
        layers.append({child for state, n in layers[-1] for a in (0, 1) for child in _both(state, a, n)})
    after: dict[Any, float] = {}
    for layer in reversed(layers):
        after = {(s, n): max(_worth(s, a, n, after) for a in (0, 1)) for s, n in layer}
    answer = optimum("two_state", 25, initial=[1.0, 0.0])
    assert sum(map(len, layers)) == answer.num_hyperstates
    assert answer.value == pytest.approx(after[0, (0,) * 8], rel=1e-12)


def _both(state, action, counts):
    first = 4 * state + 2 * action
    return [(o, (*counts[: first + o], counts[first + o] + 1, *counts[first + o + 1 :])) for o in (0, 1)]


def _worth(state, action, counts, after):
    zero, one = (counts[4 * state + 2 * action + o] + 1 for o in (0, 1))
    stay, go = (after.get(child, 0.0) for child in _both(state, action, counts))
    return PAY[state, action] + (zero * stay + one * go) / (zero + one)


def test_hyperstates_are_those_of_the_plain_recursion():
    """Where no count is ever forgotten, they are as many as were met, less those after the last step."""
    for name in ("two_state", "bandit", "partly"):
        case = CASES[name]
        assert optimum(name).num_hyperstates == plain(case._replace(horizon=case.horizon - 1))[1]
    assert optimum("fresh").num_hyperstates == 10


def test_data_are_where_the_belief_starts():
    case = CASES["two_state"]
    log = bm.Transitions(np.array([0, 0, 1]), np.array([1, 1, 0]), None, np.array([1, 1, 0]))
    posterior = bm.infer(jax.random.key(0), case.prior, log, space=case.space)
    assert isinstance(posterior, bm.inference.ConjugatePosterior)
    counts = {(0, 1): [1, 3], (1, 0): [2, 1]}
    seen = case._replace(row=lambda t, s, a: ((s, a), dict(enumerate(enumerate(counts.get((s, a), [1, 1]))))))
    answer = bm.decisions.bayes_optimal(posterior, objective=bm.Episodic(6))
    np.testing.assert_allclose(answer.v, plain(seen)[0], rtol=1e-12)
    listed = posterior.listed(np.broadcast_to(np.arange(2), (2, 2, 2)))
    np.testing.assert_array_equal(bm.decisions.bayes_optimal(listed, objective=bm.Episodic(6)).q, answer.q)


def test_some_rows_and_some_rewards_are_known():
    """A belief that no program states: it is built by hand."""
    row, cell = np.array([[0, -1], [1, 0]]), np.array([[0, -1], [1, 0]])
    known = np.broadcast_to([0.9, 0.1], (2, 2, 2))
    rows = dirichlet_rows(np.array([[1.0, 2.0], [0.5, 0.5]]), (2, 2, 2), row=row, known=known)
    beta = BetaBelief(np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    rewards = reward_cells(beta, (2, 2), cell=cell, known=np.array([[0.0, 0.4], [0.0, 0.0]]))
    answer = bm.decisions.bayes_optimal(conjugate_posterior(rows, rewards, S2), objective=bm.Episodic(5))
    weights, coins = [(1.0, 2.0), (0.5, 0.5)], [(1.0, 1.0), (0.5, 2.0)]

    def row_of(step, s, a):
        places = enumerate((0.9, 0.1) if row[s, a] < 0 else weights[row[s, a]])
        return None if row[s, a] < 0 else ("row", row[s, a]), {o: (o, w) for o, w in places}

    def pay_of(step, s, a, o):
        return 0.4 if cell[s, a] < 0 else (("coin", cell[s, a]), *coins[cell[s, a]])

    np.testing.assert_allclose(answer.v, plain(Case(None, S2, 5, row_of, pay_of))[0], rtol=1e-12)


def test_q_of_an_illegal_action_is_minus_infinity_and_the_start_is_weighed():
    answer = optimum("partly", initial=np.array([0.25, 0.75]))
    assert np.isneginf(answer.q[0, 1]) and np.isfinite(answer.q[LEGAL]).all()
    assert answer.value == pytest.approx(0.25 * answer.v[0] + 0.75 * answer.v[1], rel=1e-14)


def test_share():
    answer = optimum("two_state")
    assert answer.share(answer.value) == 1.0
    np.testing.assert_allclose(answer.share([0.0, answer.value / 2]), [0.0, 0.5])
    with pytest.raises(ValueError, match=r"the optimum is -?0.*, expected a positive one"):
        bm.decisions.bayes_optimal(priors.known_rewards(np.zeros((2, 2))), S2, objective=bm.Episodic(3)).share(1.0)


def test_too_many_hyperstates_are_refused_while_they_are_counted():
    with pytest.raises(ValueError, match=r"max_hyperstates is 50000, expected at least \d+ \(steps 0 to 1\d of 1000"):
        optimum("two_state", 1000, max_hyperstates=50_000)
    exact = optimum("two_state").num_hyperstates
    assert optimum("two_state", max_hyperstates=exact).num_hyperstates == exact
    with pytest.raises(ValueError, match=rf"max_hyperstates is {exact - 1}, expected at least {exact} \(steps 0 to 5"):
        optimum("two_state", max_hyperstates=exact - 1)


def dense(n_states, n_actions, horizon):
    """Unknown rows everywhere, known rewards."""
    rows = dirichlet_rows(np.ones((n_states * n_actions, n_states)), (n_states, n_actions, n_states))
    space = bm.StateActionSpace(n_states, n_actions)
    return conjugate_posterior(rows, known_rewards(np.ones((n_states, n_actions))), space), bm.Episodic(horizon)


def test_memory_is_refused_before_it_is_taken():
    """10 states: 320 bytes for each hyper-state. What is in use stays near what is allowed."""
    posterior, objective = dense(10, 4, 5)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"expected at most 16 MiB \(max_bytes\): a shorter horizon"):
            bm.decisions.bayes_optimal(posterior, objective=objective, max_bytes=2**24)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.some(1)
@pytest.mark.parametrize(("name", "horizon"), [("two_state", 20), ("bandit", 40), ("tied", 7)])
def test_what_is_taken_is_less_than_what_is_allowed(name, horizon):
    """The least memory with which a problem is solved, to a fifth: solving it takes no more, and not far less."""
    objective, solved = bm.Episodic(horizon), lambda most: _is_solved(BELIEF_OF(name), bm.Episodic(horizon), most)
    allowed = 2.0**16
    while not solved(int(allowed)):
        allowed *= 1.2
    tracemalloc.start()
    try:
        bm.decisions.bayes_optimal(BELIEF_OF(name), objective=objective, max_bytes=int(allowed))
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert allowed / 3 < taken < allowed + 2**20


def _is_solved(posterior, objective, max_bytes):
    try:
        bm.decisions.bayes_optimal(posterior, objective=objective, max_bytes=max_bytes)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (priors.dirichlet_normal(), "Normal"),
        (priors.dirichlet_normal_gamma(), "Normal"),
        (priors.dirichlet_poisson(), "Poisson"),
    ],
)
def test_rewards_with_infinitely_many_outcomes_are_refused(prior, law):
    with pytest.raises(ValueError, match=f"prior has {law} rewards of unknown mean, expected known or Bernoulli"):
        bm.decisions.bayes_optimal(prior, S2, objective=bm.Episodic(2))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"objective": bm.Discounted(0.9)}, ValueError, r"objective is Discounted.*, expected Episodic\(horizon\)"),
        ({"objective": bm.AverageReward()}, ValueError, r"expected Episodic\(horizon\)"),
        ({"objective": 5}, TypeError, r"objective is 5, expected Episodic\(horizon\)"),
        ({"prior": 3}, TypeError, "prior is a int, expected a function space -> MDPSpec"),
        ({"space": None}, TypeError, "space is a NoneType, expected a StateActionSpace"),
        ({"initial": [0.5, 0.6]}, ValueError, "initial sums to 1.1, expected"),
        ({"initial": [1.0]}, ValueError, r"initial has shape \(1,\), expected \(2,\)"),
        ({"max_bytes": 0}, ValueError, "max_bytes is 0, expected an integer of at least 1"),
        ({"max_hyperstates": 0}, ValueError, "max_hyperstates is 0, expected an integer of at least 1"),
        (
            {"prior": fresh, "space": bm.StateActionSpace(2, 2, horizon=5)},
            ValueError,
            r"objective is Episodic\(3\), expected Episodic\(5\)",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(change, error, message):
    arguments = {"prior": two_state, "space": S2, "objective": bm.Episodic(3)} | change
    with pytest.raises(error, match=message):
        bm.decisions.bayes_optimal(**arguments)


def test_a_posterior_has_a_space():
    posterior = bm.infer(jax.random.key(0), two_state, space=S2)
    with pytest.raises(ValueError, match="space is given, expected None"):
        bm.decisions.bayes_optimal(posterior, S2, objective=bm.Episodic(3))
