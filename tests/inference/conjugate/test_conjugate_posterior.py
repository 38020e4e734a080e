# pyright: reportArgumentType=false
"""The conjugate posterior against one-at-a-time numpy loops and scipy's predictive laws, to 1e-9 in float64."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference import infer
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior, conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import KnownRewards, known_rewards
from bayes_mdp.inference.families.normal import NormalGammaBelief
from bayes_mdp.inference.mixtures import mixture
from bayes_mdp.mdp import CanCount, CanMean, CanSample, CanUpdate, Counts, HasVariances, StateActionSpace, Transitions
from bayes_mdp.mdp.abilities import require_ability
from bayes_mdp.models import dirichlet_normal_gamma

pytestmark = pytest.mark.numerics


def _assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.some(3)
def test_update_is_the_numpy_loop(case):
    posterior = case.prior.update(case.data)
    for cell, outcome, reward in case.each(case.data, case.space):
        case.oracle.see(cell, outcome, reward)
    np.testing.assert_allclose(
        posterior.transition_probs.site_concentration, case.oracle.concentration, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(posterior.log_evidence, case.oracle.log_evidence, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(posterior.visit_counts(), case.oracle.visits, rtol=1e-9, atol=1e-9)
    if isinstance(posterior.reward_cells, KnownRewards):
        return
    site_belief = posterior.reward_cells.site_belief
    for leaf in range(len(posterior.reward_cells.data)):
        ours = [values[leaf] for values in vars(site_belief).values()]
        np.testing.assert_allclose(ours, case.oracle.parameters(leaf), rtol=1e-9, atol=1e-9)


def test_one_at_a_time_in_a_scan_is_the_block(case):
    one_by_one, _ = jax.lax.scan(lambda p, t: (p.update(t), None), case.prior, case.data)
    _assert_same(one_by_one, case.prior.update(case.data))


@pytest.mark.some(2)
def test_two_blocks_are_one(case):
    first, second = (case.take(case.data, part) for part in (slice(0, 23), slice(23, None)))
    _assert_same(case.prior.update(first).update(second), case.prior.update(case.data))


@pytest.mark.some(2)
def test_weight_masks_a_fixed_buffer(case):
    padded = case.take(case.data, np.arange(len(case.data.state)) % 40)
    masked = case.prior.update(padded, weight=jnp.arange(len(padded.state)) < 40)
    _assert_same(masked, case.prior.update(case.take(case.data, slice(0, 40))))


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["flat", "support", "poisson"])
def test_padding_of_weight_zero_may_hold_anything(cases, name):
    case = cases(name)
    keep = np.arange(60) % 3 > 0
    junk = jax.tree.map(lambda x: np.where(keep, x, np.array(np.nan if x.dtype == float else 97, x.dtype)), case.data)
    expected = case.prior.update(case.take(case.data, keep))
    for update in (case.prior.update, jax.jit(lambda t, weight: case.prior.update(t, weight))):  # noqa: PLW0108
        ours = update(junk, keep)
        _assert_same(ours, expected)
        np.testing.assert_allclose(ours.log_evidence, expected.log_evidence, rtol=1e-9)
    one = case.take(junk, 0)
    _assert_same(case.prior.update(one, weight=0.0), case.prior)
    with pytest.raises(ValueError, match=r"transitions.state is 97"):
        case.prior.update(one)


@pytest.mark.some(2)
def test_counts_teach_what_their_transitions_teach(case):
    by_outcome = case.prior.reward_cells.by_outcome
    counts = Counts.of(case.data, case.space, by_outcome=by_outcome)
    ours, expected = case.prior.update(counts), case.prior.update(case.data)
    _assert_same(ours.transition_probs, expected.transition_probs)
    _assert_same(ours.reward_cells, expected.reward_cells)
    _assert_same(ours.visit_counts(), expected.visit_counts())
    if case.name == "poisson":
        assert np.isnan(ours.log_evidence)
    else:
        np.testing.assert_allclose(ours.log_evidence, expected.log_evidence, rtol=1e-9, atol=1e-9)


def test_counts_by_outcome_are_pooled_where_the_law_does_not_look_at_the_outcome(cases):
    case = cases("flat")
    fine = Counts.of(case.data, case.space, by_outcome=True)
    # What a table of means says of cells without rewards.
    fine = eqx.tree_at(lambda c: c.reward_mean, fine, jnp.where(fine.reward_count > 0, fine.reward_mean, jnp.nan))
    _assert_same(case.prior.update(fine), case.prior.update(Counts.of(case.data, case.space)))


@pytest.mark.parametrize(
    ("name", "field", "value", "sentence"),
    [
        ("flat", "transitions", -3.0, r"transitions\[0, 0, 0\] is -3.0, expected a finite number, zero or greater"),
        ("flat", "reward_count", np.inf, r"reward_count\[0, 0\] is inf, expected a finite number"),
        ("flat", "reward_mean", np.nan, r"reward_mean\[0, 0\] is nan, expected a finite number"),
        ("flat", "reward_ss", -50.0, r"reward_ss\[0, 0\] is -50.0, expected a finite number, zero or greater"),
        (
            "support",
            "reward_mean",
            5.0,
            r"reward_mean\[0, 0, 0\] is 5.0, expected from 0 to 1 \(a Bernoulli reward law",
        ),
        ("support", "reward_ss", 9.0, r"reward_ss\[0, 0, 0\] is 9.0, expected that of rewards that are 0 or 1"),
        ("poisson", "reward_mean", -1.0, r"reward_mean\[0, 0\] is -1.0, expected zero or greater \(the reward law"),
    ],
)
def test_counts_that_cannot_be_are_refused(cases, name, field, value, sentence):
    case = cases(name)
    counts = Counts.of(case.data, case.space)
    column = np.array(getattr(counts, field))
    column.flat[0] = value
    with pytest.raises(ValueError, match=f"counts.{sentence}"):
        case.prior.update(eqx.tree_at(lambda c: getattr(c, field), counts, column))


@pytest.mark.parametrize(
    ("values", "discount", "sentence"),
    [
        ([0.0, np.nan, 0.0], 0.9, r"values\[1\] is nan, expected a finite number"),
        ([0.0, 0.0, 0.0], 1.5, "discount is 1.5, expected a number from 0 to 1"),
        ([0.0, 0.0, 0.0], np.nan, "discount is nan, expected a number from 0 to 1"),
    ],
)
def test_a_backup_of_no_numbers_is_refused(cases, values, discount, sentence):
    prior = cases("flat").prior
    with pytest.raises(ValueError, match=sentence):
        prior.bellman_variance(np.array(values), discount)
    for edge in (0, 1):
        assert np.isfinite(prior.bellman_variance(np.zeros(3), edge)).all()


@pytest.mark.some(2)
def test_listed_counts_are_the_same_belief(case):
    posterior = case.prior.update(case.data)
    listed = posterior.listed(np.zeros((*case.space.shape, 1), int))
    assert listed.transition_probs.counts.shape[-1] <= posterior.transition_probs.prior.shape[-1]
    _assert_same(listed.unlisted(), posterior)
    np.testing.assert_allclose(
        listed.transition_probs.concentration, posterior.transition_probs.concentration, rtol=1e-9, atol=1e-9
    )
    everything = np.broadcast_to(np.arange(case.space.n_outcomes), case.prior.transition_probs.shape)
    fresh = case.prior.listed(everything).update(case.data)
    _assert_same(fresh.unlisted(), posterior)
    np.testing.assert_allclose(fresh.log_evidence, posterior.log_evidence, rtol=1e-9, atol=1e-9)


def test_mean_mdp_is_the_mean_of_the_law(case):
    posterior = case.prior.update(case.data)
    rows, mdp = np.asarray(posterior.transition_probs.mean()), posterior.mean_mdp()
    np.testing.assert_allclose(rows.sum(-1), 1.0, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mdp.transition_probs, rows[..., : case.space.n_states], rtol=1e-9, atol=1e-9)
    if case.space.ends:
        np.testing.assert_allclose(mdp.end_probs, rows[..., -1], rtol=1e-9, atol=1e-9)
    mean = np.asarray(posterior.reward_cells.mean())
    expected = (rows * mean).sum(-1) if posterior.reward_cells.by_outcome else mean
    np.testing.assert_allclose(mdp.reward, expected, rtol=1e-9, atol=1e-9)
    assert (mdp.legal is None) == (case.space.legal is None)


def _moments_z(draws, mean, variance):
    """Largest |z| of sample means and variances; entries without spread must be constant."""
    draws = np.asarray(draws, float)
    number = len(draws)
    fixed = variance <= 1e-12
    np.testing.assert_allclose(draws[:, fixed], np.broadcast_to(mean[fixed], draws[:, fixed].shape), atol=1e-6)
    squares = (draws - mean) ** 2
    z_mean = (draws.mean(0) - mean)[~fixed] / np.sqrt(variance[~fixed] / number)
    z_variance = (squares.mean(0) - variance)[~fixed] / (squares.std(0)[~fixed] / np.sqrt(number))
    return max(np.abs(z_mean).max(), np.abs(z_variance).max())


def _backups(posterior, key, values, discount, number=40_000):
    mdps = jax.jit(lambda k: posterior.sample(k, (number,)))(key)
    return np.asarray(mdps.reward + discount * mdps.transition_probs @ values)


def _slow(*names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", ["outcome", *_slow("flat", "tied", "support", "poisson")])
@pytest.mark.slow
def test_draws_have_the_closed_form_moments(cases, name):
    """False alarm: |z| > 6.5 in 24 to 48 statistics, nearly normal: below 1e-8. Catches 5 % in a standard deviation."""
    case = cases(name, number=20)
    posterior = case.prior.update(case.data)
    values, discount = np.array([3.0, -1.0, 5.0]), 0.9
    mdp = posterior.mean_mdp()
    mean = np.asarray(mdp.reward + discount * mdp.transition_probs @ values)
    variance = np.asarray(posterior.bellman_variance(values, discount))
    draws = _backups(posterior, jax.random.key(2), values, discount)
    assert _moments_z(draws, mean, variance) < 6.5
    assert _moments_z(draws, mean, variance * 1.1) > 6.5, "the broken twin must be caught"


@pytest.mark.some(3)
def test_reward_variance_is_the_bellman_variance_of_nothing(case):
    posterior = case.prior.update(case.data)
    expected = posterior.bellman_variance(np.zeros(case.space.n_states), 0.9)
    np.testing.assert_allclose(posterior.reward_variance(), expected, rtol=1e-9, atol=1e-9)
    if not posterior.reward_cells.by_outcome:
        np.testing.assert_allclose(posterior.expected_reward_variance(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.some(2)
def test_sample_shape_leads_every_array(case):
    batch = jax.eval_shape(lambda key: case.prior.sample(key, (2, 3)), jax.random.key(0))
    assert all(leaf.shape[:2] == (2, 3) for leaf in jax.tree.leaves(batch))
    assert batch.reward.shape == (2, 3, *case.space.shape)


def _wide(leaf):
    array = np.asarray(leaf)
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


@pytest.mark.parametrize("name", ["support", *_slow("outcome", "tied", "poisson")])
@pytest.mark.slow
def test_numpy_leaves_work_in_float32(name, case_builder):
    """What `infer` hands over (numpy float64) is used without a warning where JAX is narrow, and loses nothing kept."""
    case = case_builder(name)
    posterior = case.prior.update(case.data)
    zero = np.zeros((*case.space.shape, 1), int)
    for belief in (posterior, jax.tree.map(_wide, posterior), posterior.listed(zero)):
        variance = belief.bellman_variance(np.ones(3), 0.9)
        assert variance.dtype == np.float32 and np.isfinite(variance).all()
        np.testing.assert_allclose(belief.mean_mdp().reward, posterior.mean_mdp().reward, rtol=1e-5)
        assert belief.variance_factor("ratio").dtype == np.float32
        assert belief.update(case.take(case.data, 0)).log_evidence < belief.log_evidence + 3
        assert jax.eval_shape(belief.sample, jax.random.key(0)).reward.dtype == np.float32


def test_independence_is_declared(cases):
    assert [cases(name).prior.independent_rows for name in ("flat", "outcome", "support", "known")] == [True] * 4
    assert not cases("tied").prior.independent_rows


def test_abilities(case):
    for ability in (CanSample, CanMean, CanCount, CanUpdate, HasVariances):
        require_ability(case.prior, ability, "the test")


def test_log_evidence_is_float64_wherever_it_is_asked():
    """Leaves on the host are numpy float64, so counts beyond 2^24 and the evidence do not depend on JAX's width."""
    rows = dirichlet_rows(np.full((1, 2), 0.5), (1, 1, 2))
    prior = conjugate_posterior(rows, known_rewards([[0.0]]), StateActionSpace(1, 1, ends=True))
    posterior = prior.update(Transitions([0] * 4, [0] * 4, None, [0] * 4, [False, False, False, True]))
    np.testing.assert_allclose(posterior.log_evidence, np.log(0.5 / 1 * 1.5 / 2 * 2.5 / 3 * 0.5 / 4), rtol=1e-14)
    assert isinstance(posterior.log_evidence, float)


def test_variance_that_does_not_exist_names_the_pair():
    belief = NormalGammaBelief(np.zeros(2), np.ones(2), np.array([2.0, 1.0]), np.ones(2))
    space = StateActionSpace(1, 2, actions=("stay", "go"))
    prior = conjugate_posterior(dirichlet_rows(np.ones((2, 1)), (1, 2, 1)), reward_cells(belief, (1, 2)), space)
    with pytest.raises(ValueError, match=r"concentration\[0, 1\] is 1.0.*greater than 1.*action 'go'"):
        prior.reward_variance()
    assert np.isinf(jax.jit(lambda p: p.bellman_variance(jnp.zeros(1), 0.9))(prior)[0, 1])
    seen = prior.update(Transitions([0], [1], [0.0], [0]))
    assert np.isfinite(seen.reward_variance()).all()


def test_an_expectation_that_does_not_exist_names_the_pair():
    """Concentration 1/2: a Student-t with one degree of freedom. Its location was handed out as the expected reward."""
    belief = NormalGammaBelief(np.ones(2), np.ones(2), np.array([2.0, 0.5]), np.ones(2))
    rows = dirichlet_rows(np.ones((2, 1)), (1, 2, 1))
    space = StateActionSpace(1, 2, actions=("stay", "go"))
    prior = conjugate_posterior(rows, reward_cells(belief, (1, 2)), space)
    sentence = r"concentration\[0, 1\] is 0.5, expected a number greater than 0.5: the expectation of .* action 'go'"
    with pytest.raises(ValueError, match=sentence):
        prior.mean_mdp()
    with pytest.raises(ValueError, match=sentence):
        mixture([prior, prior]).mean_mdp()
    with pytest.raises(ValueError, match="greater than 1: the variance"):
        prior.reward_variance()
    traced = jax.jit(lambda p: p.reward_cells.mean())(prior)
    np.testing.assert_array_equal(traced, [[1.0, np.nan]])
    assert "1 pair whose mean reward does not exist" in str(prior)
    seen = prior.update(Transitions([0], [1], [0.0], [0]))
    np.testing.assert_allclose(seen.mean_mdp().reward, [[1.0, 0.5]])
    legal = StateActionSpace(1, 2, legal=np.array([[True, False]]))
    kept = conjugate_posterior(rows, reward_cells(belief, (1, 2)), legal).mean_mdp()
    assert np.isfinite(np.asarray(kept.reward)).all() and kept.reward[0, 0] == 1.0


def test_an_outcome_that_cannot_be_needs_no_mean():
    belief = NormalGammaBelief(np.ones(2), np.ones(2), np.array([2.0, 0.5]), np.ones(2))
    cells = reward_cells(belief, (1, 1, 2), by_outcome=True)
    rows = dirichlet_rows(np.array([[1.0, 0.0]]), (1, 1, 2))
    posterior = conjugate_posterior(rows, cells, StateActionSpace(1, 1, ends=True))
    np.testing.assert_allclose(posterior.mean_mdp().reward, [[1.0]])
    np.testing.assert_allclose(jax.jit(lambda p: p.mean_mdp().reward)(posterior), [[1.0]])


@pytest.mark.parametrize(
    ("name", "bad", "sentence"),
    [
        ("support", Transitions([0], [0], [0.0], [1], [False], step=[0]), r"next_state\[0\] leads to outcome 1"),
        ("support", Transitions([0], [1], [0.5], [0], [True], step=[0]), r"transitions.(reward\[0\]|next_state)"),
        ("poisson", Transitions([0], [0], [0.5], [0]), r"reward\[0\] is 0.5, expected 0, 1, 2"),
        ("poisson", Transitions([1], [1], [1.0], [0]), r"action\[0\] is 1, expected a legal action"),
        ("flat", Transitions([0], [0], [np.nan], [0]), r"reward\[0\] is nan"),
        ("flat", Transitions([0], [0], [0.0], [7]), r"next_state\[0\] is 7"),
        ("flat", Transitions(0, 5, 0.0, 0), r"action is 5"),
    ],
)
def test_data_that_cannot_be_are_refused(cases, name, bad, sentence):
    with pytest.raises(ValueError, match=sentence):
        cases(name).prior.update(bad)


def test_a_table_update_is_in_place_under_vmap():
    """One step must not copy the table: the compiled loop holds a scatter, and no copy of its size."""
    number, size = 4, 700
    prior = reward_cells(NormalGammaBelief(*(np.full(size * 2, x) for x in (0.0, 1.0, 2.0, 1.0))), (size, 2))
    rows = dirichlet_rows(np.ones((size * 2, size)), (size, 2, size))
    listed = np.broadcast_to(np.arange(3), (size, 2, 3))
    belief = conjugate_posterior(rows, prior, StateActionSpace(size, 2)).listed(listed)

    def learn(belief, key):
        def step(belief, k):
            s, a, z = jax.random.randint(k, (3,), 0, 2)
            return belief.update(Transitions(s, a, 1.0, z)), None

        return jax.lax.scan(step, belief, jax.random.split(key, 5))[0].transition_probs.counts

    keys = jax.random.split(jax.random.key(0), number)
    text = jax.jit(jax.vmap(learn, (None, 0))).lower(belief, keys).compile().as_text() or ""
    lines = [line for line in text.splitlines() if f"f32[{number},{size * 2},3]" in line and "while/body" in line]
    assert any("scatter" in line for line in lines)
    assert not any(" copy(" in line for line in lines)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"weight is -1.0, expected a finite number, zero or greater"),
        ([1.0, np.nan, 1.0], r"weight\[1\] is nan, expected a finite number"),
        ([1.0, 1.0], r"weight has shape \(2,\), expected \(\) or \(3,\)"),
        (np.ones((3, 1)), r"weight has shape \(3, 1\), expected \(\) or \(3,\)"),
    ],
)
def test_weights_that_would_spoil_the_counts_are_refused(weight, message):
    space = StateActionSpace(2, 2)
    data = Transitions([0, 1, 1], [0, 1, 0], [0.0, 1.0, 2.0], [1, 0, 1])
    posterior = infer(jax.random.key(0), dirichlet_normal_gamma(), data, space=space)
    with pytest.raises(ValueError, match=message):
        posterior.update(data, weight)
    with pytest.raises(ValueError, match=r"weight is -1.0"):
        posterior.update(Counts.of(data, space), -1.0)
    again = jax.jit(lambda w: posterior.update(data, w).visit_counts())(jnp.zeros(3))
    np.testing.assert_array_equal(again, posterior.visit_counts())


def test_before_data_nothing_of_them_is_left():
    """Not of visits, which are kept apart where actions share rows, nor of the constant of the evidence: factorials."""

    def prior(space):
        with numpyro.plate("state", 2):
            rows = jnp.asarray(numpyro.sample("rows", dist.Dirichlet(jnp.ones(2))))
        with space.plates():
            rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        return bm.models.MDPSpec(jnp.broadcast_to(rows[:, None], (2, 2, 2)), dist.Poisson(rate))

    space, key = bm.StateActionSpace(2, 2), jax.random.key(0)
    data = bm.Transitions([0, 1, 1], [0, 1, 0], [3.0, 0.0, 2.0], [1, 0, 1])
    posterior, fresh = bm.infer(key, prior, data, space=space), bm.infer(key, prior, space=space)
    assert isinstance(posterior, ConjugatePosterior)
    before = posterior.before_data()
    assert before.log_evidence == 0.0 and not np.any(before.visit_counts())
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_mask_of_0_2_works_until_0_4(key):
    space = StateActionSpace(2, 2, legal=np.array([[True, True], [True, False]]))
    posterior: Any = infer(key, dirichlet_normal_gamma(), space=space)
    with pytest.warns(FutureWarning, match=r"posterior.legal is posterior.space.legal since 0.3"):
        assert posterior.legal is posterior.space.legal
