"""What a value rests on, against plain numpy: shares of the prior, time, effective transitions, the own optimum."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayes_mdp as bm
from bayes_mdp.decisions.policy_evaluation import policy_value
from bayes_mdp.decisions.value_basis import ValueBasis, describe_parts, value_bases
from bayes_mdp.inference import mixture
from bayes_mdp.mdp import Discounted, Episodic, StateActionSpace, Transitions
from bayes_mdp.mdp.protocols import CanWeighPrior
from bayes_mdp.numerics.array_forms import to_float64
from bayes_mdp.utils.messages import NAMED
from tests.calibration.beliefs import collapsed, sampled
from tests.inference.policy_problems import OnlySamples
from tests.inference.policy_problems import posterior as without_shares
from tests.text import unwrapped

pytestmark = pytest.mark.numerics

KEY = jax.random.key(0)
N_STATES, N_ACTIONS, CONCENTRATION, DISCOUNT = 4, 2, 0.5, 0.9
NAMES: Any = {"states": ("a", "b", "c", "d"), "actions": ("go", "stay")}
REWARD = np.arange(8.0).reshape(4, 2) % 3
START = np.array([0.5, 0.25, 0.25, 0.0])


def share_by_hand(posterior, before) -> np.ndarray:
    """Of every pair, one at a time: prior concentration over that after data; exceptions after it."""
    rows, rewards = posterior.transition_probs, posterior.reward_cells
    visits = np.asarray(posterior.visit_counts())
    share = np.full(visits.shape, np.nan)
    for pair in np.ndindex(*visits.shape):
        row = np.ravel_multi_index(pair, visits.shape) if rows.row is None else int(rows.row[pair])
        prior = np.zeros(1) if row < 0 else np.asarray(before.transition_probs.prior)[row]
        if (prior > 0).sum() > 1:
            share[pair] = prior.sum() / (prior.sum() + np.asarray(rows.counts)[row].sum())
        if not hasattr(rewards, "prior"):
            continue
        cell = np.arange(np.prod(rewards.shape)).reshape(rewards.shape) if rewards.cell is None else rewards.cell
        if np.any(np.asarray(cell)[pair] >= 0):  # an unknown reward
            share[pair] = 1.0 if visits[pair] == 0 else np.nan_to_num(share[pair])
    return share


@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["flat", "outcome", "tied", "support", "poisson", "known"])
def test_the_share_is_that_of_the_concentrations(cases, name):
    """Own, shared, known and restricted rows, rows for every step, unknown and known rewards, pairs never tried."""
    case = cases(name, number=9)
    posterior = case.prior.update(case.data)
    assert isinstance(posterior, CanWeighPrior)
    expected = share_by_hand(posterior, case.prior)
    np.testing.assert_allclose(posterior.prior_share(), expected, rtol=1e-12)
    np.testing.assert_allclose(case.prior.prior_share(), share_by_hand(case.prior, case.prior), rtol=1e-12)
    assert 0.0 <= np.nanmin(expected) < np.nanmax(expected) <= 1.0


def test_a_row_that_can_go_one_way_needs_no_data():
    """By a mask and by a list of successors; counts of another row do not matter."""
    support = np.ones((N_STATES, N_ACTIONS, N_STATES), bool)
    support[1, 0] = support[2, 1] = [True, False, False, False]
    listed = np.where(support, np.arange(N_STATES), -1)
    data = Transitions([0, 0, 1, 3], [0, 0, 0, 1], None, [1, 2, 0, 3])
    prior = bm.models.known_rewards(0.0, CONCENTRATION)
    expected = np.ones((N_STATES, N_ACTIONS))
    expected[0, 0], expected[3, 1] = 2 / 4, 2 / 3
    expected[1, 0] = expected[2, 1] = np.nan
    for known in ({"support": support}, {"successors": listed}):
        posterior: Any = bm.infer(KEY, prior, data, space=StateActionSpace(N_STATES, N_ACTIONS, **known))
        np.testing.assert_allclose(posterior.prior_share(), expected, rtol=1e-6)


def test_of_a_mixture_it_is_the_mean_over_the_components(cases):
    case, other = cases("flat", number=9), cases("flat", number=30)
    components = [case.prior.update(case.data), other.prior.update(other.data)]
    both = mixture(components, weights=[0.2, 0.8])
    expected = [np.asarray(x.prior_share()) for x in components]
    np.testing.assert_allclose(both.prior_share(), 0.2 * expected[0] + 0.8 * expected[1], rtol=1e-12)


def test_of_a_collapsed_posterior_it_is_the_mean_over_its_draws():
    """Concentration 2 scale (two outcomes) over that and the visits of the pair."""
    belief = collapsed()
    visits, scale = np.asarray(belief.visit_counts()), np.asarray(belief.hyperparameters["scale"])
    assert isinstance(belief, CanWeighPrior) and visits.min() > 0
    expected = (2 * scale[:, None, None] / (2 * scale[:, None, None] + visits)).mean(0)
    np.testing.assert_allclose(belief.prior_share(), expected, rtol=1e-5)


def judged(posterior: Any, policies: Any, objective: Any) -> list[Any]:
    with jax.enable_x64(True):
        wide = jnp.asarray(np.asarray(policies, np.float64))
        return value_bases(to_float64(posterior), np.asarray(wide), objective, START)


def test_what_knows_no_share_says_none():
    policy = np.full((1, N_STATES, N_ACTIONS), 0.5)
    (basis,) = judged(without_shares(), policy, Discounted(DISCOUNT))
    assert basis.prior_share is None and basis.weakest == ()
    assert "effective number" in str(basis) and "prior's share" not in str(basis)
    assert basis.rewards is None and str(basis).endswith("; what the prior weighs in it is not known")
    with jax.enable_x64(True):
        assert value_bases(OnlySamples(without_shares()), np.asarray(policy), Discounted(DISCOUNT), START) == [None]
    assert not isinstance(sampled(), CanWeighPrior)


@pytest.fixture(scope="module")
def posterior() -> Any:
    """30 transitions from all pairs but (c, go); from d every action stays there, as is known."""
    rng = np.random.default_rng(0)
    pairs = np.array([(s, a) for s in range(N_STATES) for a in range(N_ACTIONS) if (s, a) != (2, 0)])
    state, action = pairs[np.arange(30) % len(pairs)].T
    support = np.ones((N_STATES, N_ACTIONS, N_STATES), bool)
    support[3] = [False, False, False, True]
    reached = np.where(state == 3, 3, rng.integers(N_STATES, size=30))
    space = StateActionSpace(N_STATES, N_ACTIONS, support=support, **NAMES)
    prior = bm.models.known_rewards(REWARD, CONCENTRATION)
    return bm.infer(KEY, prior, Transitions(state, action, None, reached), space=space)


def by_hand(posterior: Any, policy: np.ndarray, horizon: int | None) -> tuple[np.ndarray, float, float, float]:
    """Time in pairs that are unknown; the prior's share; effective transitions; time where none was seen."""
    visits = np.asarray(posterior.visit_counts(), float)
    rows = np.asarray(posterior.mean_mdp().transition_probs, float)
    if horizon is None:
        chain = np.einsum("sa,saz->sz", policy, rows)
        time = np.linalg.solve(np.eye(N_STATES) - DISCOUNT * chain.T, START)[:, None] * policy
    else:
        time, now = np.zeros((N_STATES, N_ACTIONS)), START
        for step in range(horizon):
            pairs = now[:, None] * (policy if policy.ndim == 2 else policy[step])
            time, now = time + pairs, np.einsum("sa,saz->z", pairs, rows)
    never = time[2, 0] / time.sum()
    time[3] = 0.0
    time /= time.sum()
    concentration = CONCENTRATION * N_STATES
    share = float((time * concentration / (concentration + visits)).sum())
    return time, share, 1.0 / float((time**2 / (visits + 1)).sum()), float(never)


POLICIES = np.stack([np.eye(2)[[0, 1, 0, 0]], np.eye(2)[[1, 1, 1, 0]], np.full((4, 2), 0.5)])
STEPS = np.random.default_rng(1).dirichlet(np.ones(2), (3, 3, 4))


@pytest.mark.parametrize(("policies", "horizon"), [(POLICIES, None), (STEPS, 3)])
def test_time_weighs_what_is_unknown(posterior, policies, horizon):
    objective = Discounted(DISCOUNT) if horizon is None else Episodic(horizon)
    for policy, basis in zip(policies, judged(posterior, policies, objective), strict=True):
        time, share, transitions, never = by_hand(posterior, policy, horizon)
        assert basis.prior_share == pytest.approx(share, rel=1e-5)
        assert basis.transitions == pytest.approx(transitions, rel=1e-5)
        assert basis.unvisited.total == pytest.approx(never, rel=1e-5, abs=1e-12)
        assert basis.unvisited.pairs == ((("c", "go"),) if never else ())
        assert "d" not in basis.unvisited.states
        part = np.asarray(posterior.prior_share(), float)
        parts = {
            (NAMES["states"][s], NAMES["actions"][a]): time[s, a] * part[s, a]
            for s, a in np.argwhere(time > 0).tolist()
        }
        expected = sorted(parts, key=lambda pair: -parts[pair])[:NAMED]
        assert [pair for pair, _ in basis.weakest] == expected
        np.testing.assert_allclose([x for _, x in basis.weakest], [parts[pair] for pair in expected], rtol=1e-5)
        assert f"prior's share of the rows it uses {share:.2g}" in str(basis)
        assert " ".join(expected[0]) in describe_parts(basis.weakest)


def test_where_everything_is_known_no_data_are_needed(posterior):
    """A start in d, from which all rows are known."""
    with jax.enable_x64(True):
        alone = value_bases(
            to_float64(posterior), np.asarray(POLICIES[:1], np.float64), Discounted(DISCOUNT), np.eye(4)[3]
        )
    basis: Any = alone[0]
    assert basis.prior_share == 0.0 and basis.weakest == () and basis.transitions == np.inf
    assert basis.unvisited.total == 0.0 and isinstance(basis, ValueBasis)


def test_the_own_optimum_is_told_from_others(posterior):
    objective = Discounted(DISCOUNT)
    best = np.eye(N_ACTIONS)[bm.greedy(posterior, objective)]
    worse, mixed, unreached = best.copy(), best.copy(), best.copy()
    worse[0] = worse[0, ::-1]
    mixed[0] = 0.5
    found = [basis.own_optimum for basis in judged(posterior, np.stack([best, worse, mixed]), objective)]
    assert found == [True, False, False]
    # What the policy never reaches does not count: from d there is no way out.
    unreached[0] = unreached[0, ::-1]
    with jax.enable_x64(True):
        wide, aim = to_float64(posterior), to_float64(objective)
        (basis,) = value_bases(wide, unreached[None], aim, np.eye(4)[3])
    assert basis is not None and basis.own_optimum


def test_where_all_actions_are_as_good_nothing_was_chosen(posterior):
    """Rewards of zero: every policy is optimal, none is told apart."""
    zero: Any = bm.models.known_rewards(0.0, CONCENTRATION)
    belief = bm.infer(KEY, zero, Transitions([0, 1], [0, 1], None, [1, 2]), space=posterior.space)
    assert not any(basis.own_optimum for basis in judged(belief, POLICIES, Discounted(DISCOUNT)))


def test_the_value_says_that_the_policy_is_the_optimum_here(posterior):
    objective = Discounted(DISCOUNT)
    best = np.asarray(bm.greedy(posterior, objective))
    sentence = "it is the optimum of this posterior's own mean: if the same data chose it"
    for policy, chosen in ((best, True), (np.where(np.arange(4) == 0, 1 - best, best), False)):
        value = policy_value(KEY, posterior, policy, objective, initial=START, num_draws=16)
        assert (sentence in unwrapped(value)) is chosen
        assert "transitions behind it (effective number); prior's share" in unwrapped(value)


def test_time_in_untried_pairs_that_look_better_than_all_others():
    """Costs of -1 in two actions, a third that nobody tried, a prior centred at zero."""
    state, action = np.tile([0, 1], 60), np.repeat([0, 1], 60)
    data = bm.Transitions(state, action, -np.ones(120), (state + action) % 2)
    space = bm.StateActionSpace(2, 3)
    posterior = bm.infer(jax.random.key(0), bm.models.dirichlet_normal(scale=10.0), data, space=space)
    policies = {"third": np.full(2, 2), "first": np.zeros(2, int), "rarely": np.array([[0.99, 0.0, 0.01]] * 2)}
    found = bm.compare_policies(
        jax.random.key(1),
        posterior,
        policies,
        Discounted(0.9),
        num_draws=16,
        options=bm.decisions.VerdictOptions(held_out=True),
    )
    bases: Any = {name: value.basis for name, value in found.values.items()}
    assert bases["third"].untried_share == pytest.approx(1.0) and bases["third"].untried.pairs.sum() == 2
    assert bases["first"].untried is None and bases["first"].untried_share == 0.0
    assert bases["rarely"].untried_share == pytest.approx(0.01)
    said = [reason for reason in found.verdict.reasons if "lies above that of every pair that was tried" in reason]
    # A hundredth of the time is not enough for a reason; it is said beside the value all the same.
    assert [reason.split(":")[0] for reason in said] == ["third"]
    assert "1 of its time in 2 pairs never tried, whose mean reward (0)" in said[0]
    assert 'legal="logged"' in " ".join(found.verdict.would_decide)
    text = str(found)
    assert "rarely: 0.01 of its time in 2 pairs never tried" in text and "first: 0" not in text


def test_what_is_remembered_is_that_of_the_posterior_that_is_asked(posterior):
    """Posteriors in turn, each asked twice, and new ones at addresses that others left, answer like fresh copies."""
    policy = np.full((1, N_STATES, N_ACTIONS), 0.5)
    ask = lambda belief: str(value_bases(belief, policy, Discounted(DISCOUNT), START)[0])  # noqa: E731
    copy = lambda belief: jax.tree.map(lambda x: x, belief)  # noqa: E731
    more = Transitions([0, 1, 2] * 5, [0] * 15, None, [1, 2, 3] * 5)
    other = posterior.update(more)
    expected = ask(copy(posterior)), ask(copy(other))
    assert expected[0] != expected[1]
    for _ in range(2):
        assert (ask(posterior), ask(other), ask(other)) == (*expected, expected[1])
        assert [ask(copy(each)) for each in (posterior, other) * 3] == [*expected] * 3
