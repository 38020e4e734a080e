# pyright: reportArgumentType=false
"""Where to look next, against closed forms and plain numpy that enumerates every sequence of data and every policy."""

from itertools import product

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.decisions.information.next_experiment import next_experiment
from bayes_mdp.inference import mixture, posterior_samples
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.binomial import BetaBinomialBelief
from bayes_mdp.inference.families.categorical import DirichletCategoricalBelief
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp import MDP, AverageReward, Discounted, Episodic, FirstExit, StateActionSpace
from bayes_mdp.utils.layout import Table
from benchmarks import next_experiment as lookahead

pytestmark = pytest.mark.numerics

ONE_STEP = Episodic(1)
GAMMA = 0.9
START = np.array([0.5, 0.3, 0.2])


def bandit(belief, space=None, **options):
    """One state; two arms."""
    space = StateActionSpace(1, 2) if space is None else space
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 1))
    return conjugate_posterior(rows, reward_cells(belief, (1, 2), **options), space)


def beta_bandit(space=None):
    """The arms Beta(2, 3) and Beta(5, 6)."""
    return bandit(BetaBelief(np.array([2.0, 5.0]), np.array([3.0, 6.0])), space)


def by_pair(answer):
    """{pair: value}."""
    return dict(zip(answer.pairs, answer.value, strict=True))


# ------------------------------------------------------------------------------------------------ closed forms


@pytest.mark.parametrize(("n", "expected"), [(1, 0.018181818), (5, 0.037662338), (20, 0.051236589)])
def test_two_beta_arms_enumerated(key, n, expected):
    """Beta-binomial sums; the numbers for arm 1 were published with the example."""
    answer = next_experiment(key, beta_bandit(), ONE_STEP, n=n)
    arms = ((2, 3), (5, 6))
    for arm, (a, b) in enumerate(arms):
        paid, other = np.arange(n + 1), np.divide(*arms[1 - arm]) / (1 + np.divide(*arms[1 - arm]))
        best = stats.betabinom.pmf(paid, n, a, b) @ np.maximum((a + paid) / (a + b + n), other)
        assert by_pair(answer)[0, arm] == pytest.approx(best - 5 / 11, abs=1e-12)
    assert by_pair(answer)[0, 0] == pytest.approx(expected, abs=1e-9) and answer.best == (0, 0)
    assert answer.enumerated.all() and (answer.standard_error == 0).all() and (answer.num_data_sets == n + 1).all()
    assert answer.validity.kind == "exact" and answer.value_now == pytest.approx(5 / 11, abs=1e-14)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("n", "expected"), [(5, 0.037662338), (20, 0.051236589)])
def test_two_beta_arms_simulated(key, n, expected):
    """As many data sets as are possible would be enumerated: one fewer. |z| < 4.5 over 60 keys: false alarm < 1e-4."""
    answers = [next_experiment(k, beta_bandit(), ONE_STEP, n=n, num_data_sets=n) for k in jax.random.split(key, 60)]
    values = np.array([by_pair(answer)[0, 0] for answer in answers])
    assert not any(answer.enumerated.any() for answer in answers) and (values >= 0).all()
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) < 4.5 * error, "unbiased"
    assert abs(values.mean() - 2.0 * expected) > 4.5 * error, "the broken twin"
    # The error that is stated is the one that is made.
    stated = np.mean([answer.standard_error[answer.pairs.index((0, 0))] ** 2 for answer in answers]) ** 0.5
    assert stated == pytest.approx(values.std(ddof=1), rel=0.4)


@pytest.mark.few(1)
@pytest.mark.parametrize(("n", "expected"), [(1, 5.246302), (10, 41.847596), (100, 70.478439)])
def test_two_normal_arms(key, n, expected):
    """s (phi(z) - z Phi(-z)), s the prior sd of the posterior mean of the first arm. |z| < 4: false alarm 6e-5."""
    belief = NormalBelief(np.array([100.0, 0.0]), np.array([300.0, 400.0]), np.full(2, 1000.0))
    answer = next_experiment(key, bandit(belief), ONE_STEP, [(0, 0)], n=n, num_data_sets=20_000)
    s = 300.0**2 / np.sqrt(300.0**2 + 1000.0**2 / n)
    z = 100.0 / s
    assert s * (stats.norm.pdf(z) - z * stats.norm.cdf(-z)) == pytest.approx(expected, abs=1e-5)
    assert abs(answer.value[0] - expected) < 4 * answer.standard_error[0] < 0.3 * expected
    assert not answer.enumerated[0] and answer.num_data_sets[0] == 20_000


@pytest.mark.parametrize("family", ["binomial", "categorical"])
@pytest.mark.parametrize("n", [1, 3])
def test_other_finite_rewards_beside_a_known_arm(key, family, n):
    sequences = list(product(range(4), repeat=n))
    if family == "binomial":
        belief, known = BetaBinomialBelief(np.array([2.0]), np.array([3.0]), np.array([3.0])), 1.3
        choose = np.array([1.0, 3.0, 3.0, 1.0])
        probability = [np.prod(choose[list(x)]) * _beta_moment(2, 3, sum(x), 3 * n - sum(x)) for x in sequences]
        mean = [3 * (2 + sum(x)) / (5 + 3 * n) for x in sequences]
    else:
        prior = np.array([1.0, 0.5, 2.0, 0.5])
        belief, known = DirichletCategoricalBelief(prior[None]), 1.6
        probability, mean = [], []
        for x in sequences:
            weight, chance = prior.copy(), 1.0
            for value in x:
                chance *= weight[value] / weight.sum()
                weight[value] += 1
            probability.append(chance)
            mean.append(weight @ np.arange(4) / weight.sum())
    assert np.sum(probability) == pytest.approx(1.0)
    now = max(np.dot(probability, mean), known)
    expected = np.dot(probability, np.maximum(mean, known)) - now
    one = bandit(belief, cell=np.array([[0, -1]]), known=np.array([[0.0, known]]))
    answer = next_experiment(key, one, ONE_STEP, n=n)
    assert answer.pairs == ((0, 0),) and expected > 0.01, "what is known is no candidate"
    np.testing.assert_allclose(answer.value, expected, atol=1e-12)


def _beta_moment(a, b, ones, zeros):
    """E p^ones (1 - p)^zeros, factor by factor."""
    moment = 1.0
    for i in range(ones):
        moment *= (a + i) / (a + b + i)
    for i in range(zeros):
        moment *= (b + i) / (a + b + ones + i)
    return moment


# ------------------------------------------------------------------------- every sequence and every policy in numpy

CONCENTRATION = np.random.default_rng(5).uniform(0.3, 2.0, (3, 2, 3))
PAID, FAILED = np.random.default_rng(19).uniform(0.5, 2.0, (2, 3, 2, 3))


def small(by_outcome=False, start=CONCENTRATION):
    """Three states, two actions; unknown rows, unknown Bernoulli rewards."""
    rows = dirichlet_rows(start.reshape(6, 3), (3, 2, 3))
    shape = (3, 2, 3) if by_outcome else (3, 2)
    paid, failed = (PAID, FAILED) if by_outcome else (PAID[..., 0], FAILED[..., 0])
    return conjugate_posterior(
        rows, reward_cells(BetaBelief(paid, failed), shape, by_outcome=by_outcome), StateActionSpace(3, 2)
    )


def brute(by_outcome, n, pair):
    """Sum over sequences of (outcome, reward) of their probability x (V* - V^pi) of the mean MDP after them."""
    policies = [np.array(policy) for policy in product(range(2), repeat=3)]

    def all_values(concentration, paid, failed):
        rows = concentration / concentration.sum(-1, keepdims=True)
        reward = (rows * paid / (paid + failed)).sum(-1)
        picked = [(rows[np.arange(3), p], reward[np.arange(3), p]) for p in policies]
        return np.array([START @ np.linalg.solve(np.eye(3) - GAMMA * row, r) for row, r in picked])

    start = CONCENTRATION, *(x if by_outcome else x[..., :1] + np.zeros(3) for x in (PAID, FAILED))
    now = all_values(*start).argmax()
    total, gain = 0.0, 0.0
    for sequence in product(range(3), range(2), repeat=n):
        (rows, paid, failed), chance = (x.copy() for x in start), 1.0
        for o, r in zip(sequence[::2], sequence[1::2], strict=True):
            s, a = pair
            chance *= rows[s, a, o] / rows[s, a].sum()
            rows[s, a, o] += 1
            outcomes = [o] if by_outcome else slice(None)
            chance *= ((paid if r else failed)[s, a, o]) / (paid + failed)[s, a, o]
            (paid if r else failed)[s, a, outcomes] += 1
        found = all_values(rows, paid, failed)
        total, gain = total + chance, gain + chance * (found.max() - found[now])
    assert total == pytest.approx(1.0)
    return gain


@pytest.mark.few(1)
@pytest.mark.parametrize("by_outcome", [True, False])
def test_every_pair_of_an_mdp_with_cycles(key, by_outcome):
    for n in (1, 3):
        answer = next_experiment(key, small(by_outcome), Discounted(GAMMA), n=n, initial=START)
        found = by_pair(answer)
        assert len(found) == 6 and answer.enumerated.all() and answer.validity.kind == "heuristic"
        expected = {pair: brute(by_outcome, n, pair) for pair in found}
        assert max(expected.values()) > 0.01
        for pair, value in expected.items():
            assert found[pair] == pytest.approx(value, abs=1e-10)
    text = " ".join(str(answer).split())
    assert "come back to states whose transition probabilities are not known (0 -> 0)" in text
    assert "EVSI" not in text
    assert "; gain per start of a process, in units of the value (discounted sum of rewards)" in text


@pytest.mark.few(1)
@pytest.mark.parametrize("by_outcome", [True, False])
def test_simulated_data_are_those_that_are_enumerated(key, by_outcome):
    """|z| < 4.5 for six pairs: false alarm below 1e-4. At n = 6 there are 462 data sets or more."""
    few = next_experiment(key, small(by_outcome), Discounted(GAMMA), n=6, initial=START, num_data_sets=461)
    all_sets = by_pair(next_experiment(key, small(by_outcome), Discounted(GAMMA), n=6, initial=START))
    assert not few.enumerated.any()
    for pair, value, error in zip(few.pairs, few.value, few.standard_error, strict=True):
        assert abs(value - all_sets[pair]) <= 4.5 * error and value >= 0
    best = few.pairs.index(max(all_sets, key=lambda pair: all_sets[pair]))
    assert few.value[best] > 10 * few.standard_error[best], "sharp enough to see a tenth"


def test_a_mixture(key):
    """Data of one arm say which component holds, and thereby move the other arm."""
    paid, failed, weights = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.5], [2.0, 1.0]]), np.array([0.4, 0.6])
    parts = [bandit(BetaBelief(a, b)) for a, b in zip(paid, failed, strict=True)]
    answer = next_experiment(key, mixture(parts, weights=weights), ONE_STEP, n=2)
    assert answer.validity.kind == "heuristic" and answer.enumerated.all()
    now = weights @ (paid / (paid + failed))
    for arm in range(2):
        gain = 0.0
        for data in product(range(2), repeat=2):
            a, b, weight = paid.copy(), failed.copy(), weights.copy()
            for reward in data:
                weight = weight * (a if reward else b)[:, arm] / (a + b)[:, arm]
                (a if reward else b)[:, arm] += 1
            mean = weight @ (a / (a + b))  # times the probability of the data
            gain += mean.max() - mean[now.argmax()]
        assert by_pair(answer)[0, arm] == pytest.approx(gain, abs=1e-12) and gain > 0.01


def test_known_laws_of_rewards_tell_which_component_holds(key):
    """Arms N(0, 1), N(1, 1) or N(1, 1), N(0, 1), weights .6 and .4. |z| < 4: false alarm 6e-5 for each of two arms."""
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 1))
    means = [np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])]
    laws = [known_rewards(mean, law=dist.Normal(mean, np.ones((1, 2)))) for mean in means]
    parts = [conjugate_posterior(rows, law, StateActionSpace(1, 2)) for law in laws]
    answer = next_experiment(key, mixture(parts, weights=[0.6, 0.4]), ONE_STEP, num_data_sets=4000)
    x = np.linspace(-8, 9, 20_001)
    better = np.maximum(0.6 * stats.norm.pdf(x), 0.4 * stats.norm.pdf(x, 1)).sum() * (x[1] - x[0])
    assert len(answer.pairs) == 2 and not answer.enumerated.any()
    for value, error in zip(answer.value, answer.standard_error, strict=True):
        assert abs(value - (better - 0.6)) < 4 * error < 0.25 * value


@pytest.mark.slow
def test_simulated_data_of_a_mixture(key):
    paid, failed, weights = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([[1.0, 2.5], [2.0, 1.0]]), np.array([0.4, 0.6])
    parts = [bandit(BetaBelief(a, b)) for a, b in zip(paid, failed, strict=True)]
    drawn = next_experiment(key, mixture(parts, weights=weights), ONE_STEP, n=300, num_data_sets=300)
    sums = by_pair(next_experiment(key, mixture(parts, weights=weights), ONE_STEP, n=300))
    for pair, value, error in zip(drawn.pairs, drawn.value, drawn.standard_error, strict=True):
        assert abs(value - sums[pair]) < 4.5 * error < 0.5 * sums[pair], "two pairs: false alarm below 1e-4"


# --------------------------------------------------------------------------------------------------- invariants


def chain(horizon=None, listed=False):
    """From "start" to "good" or "bad", which are absorbing and known. Action "sure" is known as well."""
    lists = np.array([[[1, 2]] * 3, [[1, -1]] * 3, [[2, -1]] * 3])
    names = {"states": ("start", "good", "bad"), "actions": ("a", "b", "sure")}
    space = StateActionSpace(3, 3, horizon=horizon, successors=lists if listed else None, **names)
    known, lead = np.zeros((3, 3, 2 if listed else 3)), () if horizon is None else (horizon,)
    known[1, :, 0 if listed else 1] = known[2, :, 0 if listed else 2] = 1.0
    known[0, 2, -2:] = [0.45, 0.55]
    row, column = np.full((3, 3), -1), np.full(known.shape, -1)
    row[0], column[0, :2, -2:] = [0, 1, -1], [0, 1]
    rows, size = dirichlet_rows(np.array([[1.0, 1.0], [2.0, 3.0]]), known.shape, row=row, column=column, known=known), 2
    if horizon is not None:
        steps = np.arange(horizon)[:, None, None] * size
        row = np.where(row < 0, -1, row + steps)
        prior = np.tile([[1.0, 1.0], [2.0, 3.0]], (horizon, 1))
        tables = (np.broadcast_to(table, (*lead, *known.shape)) for table in (column, known))
        column, known = tables
        rows = dirichlet_rows(prior, known.shape, row=row, column=column, known=known)
    reward = np.broadcast_to(np.array([0.0, 1.0, 0.0])[:, None], (*lead, 3, 3))
    return conjugate_posterior(rows, known_rewards(np.array(reward)), space)


def chain_gain(arm, n):
    """Of the probability of "good", by beta-binomial sums: Beta(1, 1), Beta(2, 3), .45."""
    (a, b), other = ((1, 1), (2, 3))[arm], (0.45, 0.5)[arm]
    good = np.arange(n + 1)
    best = stats.betabinom.pmf(good, n, a, b) @ np.maximum((a + good) / (a + b + n), other)
    return best - 0.5


@pytest.mark.few(1)
@pytest.mark.parametrize("listed", [True, False])
def test_unknown_rows_that_are_met_once(key, listed):
    """Exact: from the next step on "good" is worth 1 / (1 - .5) = 2, halved."""
    first = np.array([1.0, 0.0, 0.0])
    answer = next_experiment(key, chain(listed=listed), Discounted(0.5), n=4, initial=first)
    assert answer.validity.kind == "exact" and set(answer.pairs) == {("start", "a"), ("start", "b")}
    for arm, name in enumerate("ab"):
        assert by_pair(answer)["start", name] == pytest.approx(chain_gain(arm, 4), abs=1e-12)
    elsewhere = next_experiment(key, chain(listed=listed), Discounted(0.5), n=4, initial=np.array([0.0, 1.0, 0.0]))
    assert not elsewhere.value.any(), "no policy comes to the start"
    assert "every candidate is worth zero" in str(elsewhere)
    given = next_experiment(
        key, chain(listed=listed), Discounted(0.5), [("start", "sure"), ("good", "b"), (0, "a")], n=4
    )
    assert given.value.tolist()[1:] == [0.0, 0.0] and given.best == ("start", "a"), "known pairs are worth nothing"
    assert given.pairs[1:] == (("start", "sure"), ("good", "b")), "ties in the order that was given"
    assert given.value[0] == pytest.approx(chain_gain(0, 4) / 3) and not given.initial_given


def test_rows_of_every_step(key):
    """A horizon: candidates have a step. In three steps from the start, "good" at step 1 pays twice."""
    answer = next_experiment(
        key, chain(3), Episodic(3), [(0, "start", "a"), (1, 0, 1), (2, "start", "a")], initial=[1, 0, 0]
    )
    assert answer.validity.kind == "exact" and answer.index.shape == (3, 3)
    assert by_pair(answer)[0, "start", "a"] == pytest.approx(2 * chain_gain(0, 1), abs=1e-12)
    assert by_pair(answer)[1, "start", "b"] == 0.0, "at step 1 one has left the start"
    assert (
        list(answer.to_dataset()["step"].values) == [0, 1, 2]
        and len(next_experiment(key, chain(3), Episodic(3)).pairs) == 6
    )


def test_more_is_worth_more_but_never_more_than_certainty(key):
    """The value of knowing an arm: .059548839 and .034712394, as published."""
    before = np.zeros(2)
    for n in (1, 2, 5, 500):
        answer = by_pair(next_experiment(key, beta_bandit(), ONE_STEP, n=n))
        now = np.array([answer[0, 0], answer[0, 1]])
        assert (now >= before - 1e-15).all() and (now <= [0.059548839, 0.034712394]).all()
        before = now
    np.testing.assert_allclose(before, [0.059548839, 0.034712394], rtol=0.02)


@pytest.mark.parametrize("toll", [0.6, 10.0])
def test_a_pair_that_no_good_policy_reaches(key, toll):
    """Behind a toll a reward of Beta(1, 1), at discount .5 worth 0 to 1: looked at only if it can be worth the toll."""
    known = np.zeros((2, 2, 2))
    known[0, 0, 0] = known[0, 1, 1] = known[1, :, 1] = 1.0
    rows = dirichlet_rows(np.ones((1, 2)), (2, 2, 2), row=np.full((2, 2), -1), known=known)
    paid = np.array([[0.0, -toll], [0.0, 0.0]])
    rewards = reward_cells(BetaBelief(np.ones(1), np.ones(1)), (2, 2), cell=np.array([[-1, -1], [0, 0]]), known=paid)
    belief = conjugate_posterior(rows, rewards, StateActionSpace(2, 2))
    for first, worth in ((0, max(0.0, 0.5 * (2 / 3 - toll))), (1, 0.0)):
        answer = next_experiment(key, belief, Discounted(0.5), [(1, 0)], initial=np.eye(2)[first])
        assert answer.value[0] == pytest.approx(worth, abs=1e-14) and answer.validity.kind == "exact"


def test_scale_and_objectives(key):
    """Of a bandit: times 1 / (1 - gamma), times the horizon, per step, and until the end that comes at once."""
    once = by_pair(next_experiment(key, beta_bandit(), ONE_STEP, n=3))
    for objective, factor in ((Discounted(0.75), 4.0), (Episodic(7), 7.0), (AverageReward(), 1.0)):
        answer = next_experiment(key, beta_bandit(), objective, n=3)
        for pair, value in by_pair(answer).items():
            assert value == pytest.approx(factor * once[pair], abs=1e-11)
        assert answer.value_now == pytest.approx(factor * 5 / 11)
    space = StateActionSpace(1, 2, ends=True)
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 2), column=np.array([[[-1, 0], [-1, 0]]]))
    belief = BetaBelief(np.array([2.0, 5.0]), np.array([3.0, 6.0]))
    ending = conjugate_posterior(rows, reward_cells(belief, (1, 2)), space)
    assert by_pair(next_experiment(key, ending, FirstExit(), n=3)) == pytest.approx(once, abs=1e-12)


# --------------------------------------------------------------------------------------------- cost, labels, refusals


def test_cost_orders_the_table(key):
    space = StateActionSpace(1, 2, states=("clinic",), actions=("old", "new"))
    plain = next_experiment(key, beta_bandit(space), ONE_STEP, n=5)
    assert plain.best == ("clinic", "old") and plain.pairs[1] == ("clinic", "new")
    dear = next_experiment(key, beta_bandit(space), ONE_STEP, [("clinic", "old"), (0, 1)], n=5, cost=[4.0, 1.0])
    assert dear.pairs == (("clinic", "new"), ("clinic", "old")) and dear.cost.tolist() == [1.0, 4.0]
    np.testing.assert_array_equal(dear.per_cost, dear.value / dear.cost)
    assert (np.diff(dear.per_cost) <= 0).all() and by_pair(dear) == by_pair(plain)
    table = dear.to_dataset()
    assert table["value"].dims == ("candidate",) and list(table["action"].values) == ["new", "old"]
    assert table.attrs["n"] == 5 and table["per_cost"].values[0] == dear.per_cost[0]
    section = dear.layout()
    assert section.title == (
        "Where to look next: 5 observations of one pair, episodes of 1 step, start: uniform over the 1 state "
        "(no initial distribution was given)"
    )
    (shown,) = [part for part in section.parts if isinstance(part, Table)]
    assert shown.head[1:5] == ("EVSI", "error", "cost", "EVSI / cost")
    assert shown.rows[0] == ("clinic, new", f"{dear.value[0]:.6g}", "none", "1", f"{dear.per_cost[0]:.6g}", "")
    assert shown.rows[1][0] == "clinic, old"


def test_only_pairs_that_are_legal_and_not_known_are_candidates(key):
    legal = np.array([[True, True], [True, False]])
    space = StateActionSpace(2, 2, legal=legal)
    rows = dirichlet_rows(np.ones((4, 2)), (2, 2, 2))
    belief = conjugate_posterior(rows, known_rewards(np.array([[0.0, 0.0], [1.0, 9.0]])), space)
    answer = next_experiment(key, belief, Discounted(0.9))
    assert set(answer.pairs) == {(0, 0), (0, 1), (1, 0)}
    with pytest.raises(ValueError, match=r"candidates\[1\] is \(1, 1\), expected an action that is legal in state 1"):
        next_experiment(key, belief, Discounted(0.9), [(0, 0), (1, 1)])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"candidates": [(0, 2)]}, ValueError, r"candidates\[0\] has the action 2, expected a label, or an index"),
        ({"candidates": [("x", 0)]}, ValueError, r"candidates\[0\] has the state 'x'"),
        ({"candidates": [(0, 0), (0,)]}, TypeError, r"candidates\[1\] is \(0,\), expected \(state, action\)"),
        ({"candidates": []}, TypeError, "expected a list of pairs"),
        ({"cost": 0.0}, ValueError, "cost is 0"),
        ({"cost": [1.0, -1.0]}, ValueError, r"cost\[1\] is -1"),
        ({"cost": [1.0, 1.0, 1.0]}, ValueError, r"cost has shape \(3,\), expected \(2,\)"),
        ({"n": 0}, ValueError, "n is 0, expected an integer of at least 1"),
        ({"num_data_sets": 1}, ValueError, "num_data_sets is 1, expected an integer of at least 2"),
        ({"n": 10**9, "num_data_sets": 10**6}, ValueError, "n is 1000000000 and num_data_sets is 1000000: .* memory"),
        ({"initial": [0.5, 0.5]}, ValueError, "initial"),
    ],
)
def test_wrong_input(key, arguments, error, message):
    with pytest.raises(error, match=message):
        next_experiment(key, beta_bandit(), ONE_STEP, **arguments)


def test_what_cannot_be_updated_exactly_or_is_known(key):
    draws = posterior_samples(MDP(np.ones((5, 1, 2, 1)), np.zeros((5, 1, 2))))
    with pytest.raises(TypeError, match="next_experiment needs a posterior whose update is exact, got a PosteriorSam"):
        next_experiment(key, draws, ONE_STEP)
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 1))
    known = conjugate_posterior(rows, known_rewards(np.zeros((1, 2))), StateActionSpace(1, 2))
    with pytest.raises(ValueError, match="posterior leaves no row and no reward unknown"):
        next_experiment(key, known, ONE_STEP)


# ------------------------------------------------------------------------------------ one step ahead as a decision rule


@pytest.mark.parametrize("known", [False, True])
def test_the_rule_of_a_bandit_is_the_mean_and_the_value_of_one_observation(key, known):
    """Q of the lookahead = mean + (steps left) (best mean + EVSI), from the library's own EVSI."""
    problem, posterior, left = lookahead.two_arms(known), lookahead.two_arms_posterior(known), 9
    answer = next_experiment(key, posterior, Episodic(left))
    assert len(answer.pairs) == (1 if known else 2)
    children = lookahead.layers(problem, 1)[1]
    rows = lookahead.concentrations(problem, children.counts)
    planned = lookahead.plan(problem, rows / rows.sum(-1, keepdims=True), left)[:, 0].max(-1)
    child = lookahead.layers(problem, 1)[0].child[0]
    for (_, arm), value in by_pair(answer).items():
        ahead = 0.5 + 0.5 * planned[child[arm]].sum()
        assert ahead == pytest.approx(0.5 + left * 0.5 + value, abs=1e-12)
    assert answer.value[0] == pytest.approx(left / 12)  # E max(mean after, .5) = 7 / 12


@pytest.mark.parametrize(
    ("problem", "posterior", "horizon", "floor", "mean"),
    [
        (lookahead.two_arms(), lookahead.two_arms_posterior(), 2, 0.9999, 1.0),
        (lookahead.two_arms(), lookahead.two_arms_posterior(), 20, 0.997, 0.9919),
        (lookahead.two_arms(True), lookahead.two_arms_posterior(True), 20, 0.989, 0.9892),
        (lookahead.river(), lookahead.as_posterior(lookahead.river()), 8, 0.9999, 1.0),
        (lookahead.river(), lookahead.as_posterior(lookahead.river()), 9, 0.9815, 0.982),
        (lookahead.mines(), lookahead.as_posterior(lookahead.mines()), 8, 0.9899, 0.96),
        (lookahead.mines(), lookahead.as_posterior(lookahead.mines()), 16, 0.955, 0.8858),
    ],
)
def test_one_step_ahead_is_near_the_bayes_optimum(problem, posterior, horizon, floor, mean):
    """Shares as measured; the optimum is that of `bayes_optimal`, which no rule exceeds."""
    found = lookahead.values(problem, horizon)
    start = np.eye(posterior.space.n_states)[0]
    best = bm.decisions.bayes_optimal(posterior, objective=Episodic(horizon), initial=start)
    assert found["optimum"] == pytest.approx(best.value, rel=1e-12)
    assert floor <= best.share(found["lookahead"]) <= 1 + 1e-12
    assert best.share(found["mean"]) == pytest.approx(mean, abs=1e-4)


def test_several_steps_away_it_can_be_worse_than_planning_in_the_mean():
    found = lookahead.values(lookahead.mines(0.2, stay=True), 16)
    assert found["lookahead"] < 0.98 * found["mean"] < found["optimum"]
    mean, error = lookahead.psrl(lookahead.mines(0.2, stay=True), 16)
    assert abs(mean - 0.917 * found["optimum"]) < 5 * error  # as measured; one seed, no key


def test_true_is_a_label_where_a_state_is_called_so():
    """True == 1 for Python: as the label of a state it is found, as an index, or in place of 1, it is refused."""
    flags = bm.StateActionSpace(2, 2, states=(False, True), actions=(1, 0))
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_bernoulli(), space=flags)
    found = bm.information.next_experiment(jax.random.key(1), posterior, bm.Episodic(1), [(True, 1)])
    assert found.index.tolist() == [[1, 0]]
    with pytest.raises(ValueError, match=r"candidates\[0\] has the action True, expected a label, or an index"):
        bm.information.next_experiment(jax.random.key(1), posterior, bm.Episodic(1), [(True, True)])
