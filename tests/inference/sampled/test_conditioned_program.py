"""What was seen: one by one and in blocks, with weights, against the statistics of `bayes_mdp.models`."""

# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalSubscript=false

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from bayes_mdp.inference.draws.methods import NUTS
from bayes_mdp.inference.sampled.conditioned_program import RewardRows, Rows, add_data, rows_of, with_capacity
from bayes_mdp.inference.sampled.recipe import recipe_for
from bayes_mdp.inference.sampled.sampled_fit import statistics_on_host
from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import dirichlet_poisson
from bayes_mdp.models.sufficient_statistics import Statistics

SPACE = StateActionSpace(2, 2, horizon=2, ends=True)
N = 12


def data():
    rng = np.random.default_rng(0)
    state, action, next_state, step = rng.integers(2, size=(4, N))
    reward = rng.poisson(2.0, size=N).astype(float)
    missing = np.arange(N) % 5 == 0
    return Transitions(
        state,
        action,
        np.where(missing, np.nan, reward),
        next_state,
        terminated=rng.random(N) < 0.3,
        step=step,
        reward_observed=~missing,
    )


@jax.jit
def one_by_one(seen, transitions, weight):
    return jax.lax.scan(
        lambda s, x: (add_data(s, *x, SPACE, dist.Poisson, by_outcome=False), None), seen, (transitions, weight)
    )[0]


in_a_block = jax.jit(
    lambda seen, transitions, weight: add_data(seen, transitions, weight, SPACE, dist.Poisson, by_outcome=False)
)
whole = jax.jit(
    lambda transitions, by_outcome: Statistics.of(transitions, SPACE, dist.Poisson, by_outcome), static_argnums=1
)


def all_rows():
    with_shapes = jax.eval_shape(lambda: rows_of(data(), SPACE, by_outcome=False))
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), with_shapes)


def zeros(by_outcome):
    one = jax.eval_shape(lambda: whole(data(), by_outcome))
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), one)


@pytest.mark.parametrize("by_outcome", [pytest.param(False, marks=pytest.mark.slow), True])
def test_statistics_one_by_one_are_those_of_the_whole(x64, by_outcome):
    """Masked entries and powers too: weight 2 is the transition twice."""
    weight = np.where(np.arange(N) % 4 == 0, 0.0, np.where(np.arange(N) % 3 == 0, 2.0, 1.0))
    repeat = np.repeat(np.arange(N), weight.astype(int))
    expected = whole(jax.tree.map(lambda x: x[repeat], data()), by_outcome)
    for ours in (
        one_by_one(zeros(by_outcome), data(), weight),
        in_a_block(zeros(by_outcome), data(), weight),
    ):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_rows_keep_what_was_observed(x64):
    """A reward that is missing or masked takes no place; the counts know of every transition."""
    weight = np.where(np.arange(N) % 4 == 0, 0.0, 0.5)
    seen = one_by_one(jax.tree.map(lambda x: x[:7] if x.shape[:1] == (N,) else x, all_rows()), data(), weight)
    kept = np.flatnonzero((weight > 0) & data().reward_observed)
    assert len(kept) == 7 and int(seen.used) == seen.capacity == 7
    np.testing.assert_array_equal(seen.reward, data().reward[kept])
    np.testing.assert_array_equal(seen.weight, 0.5)
    where = np.stack(
        [
            data().step,
            data().state,
            data().action,
            np.asarray(data().outcome(StateActionSpace(2, 2, horizon=2, ends=True))),
        ],
        -1,
    )
    np.testing.assert_array_equal(seen.where, where[kept])
    np.testing.assert_allclose(seen.transitions, in_a_block(zeros(True), data(), weight).counts.transitions)
    full = one_by_one(seen, data(), weight)
    assert int(full.used) == 14 and full.capacity == 7, "what has no place is counted"


def test_room():
    seen = all_rows()
    assert seen.capacity == N and with_capacity(seen, N) is seen
    wide = with_capacity(Rows(seen.transitions, seen.where, seen.reward, np.ones(N), np.array(N)), 5)
    assert wide.capacity == N + 5 and np.all(np.asarray(wide.weight)[N:] == 0) and np.all(wide.weight[:N] == 1)


def test_on_the_host_logs_share_their_shapes():
    """Padding changes nothing but the room."""
    recipe = recipe_for(dirichlet_poisson(), SPACE, NUTS())
    expected = jax.jit(recipe.summarise)(data())
    for a, b in zip(jax.tree.leaves(statistics_on_host(recipe, data())), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"transitions.reward\[3\] is 0.5"):
        statistics_on_host(
            recipe, Transitions(*np.zeros((2, 4), int), [1, 2, 3, 0.5], np.zeros(4, int), step=np.zeros(4, int))
        )


def test_density_of_single_rewards(x64):
    """Powers of scipy's density; weight zero hides anything, from the gradient too; outside the support it is zero."""
    reward, weight = np.array([0.5, -1.0, np.nan, 0.2]), np.array([1.0, 0.5, 0.0, 2.0])
    loc = np.array([0.1, 0.2, 0.3, 0.4])

    @jax.jit
    def densities(loc):
        student = jax.value_and_grad(lambda x: RewardRows(dist.StudentT(3.0, x, 0.7), weight).log_prob(reward).sum())
        uniform = RewardRows(dist.Uniform(0.0, np.array([1.0, 1.0])), np.ones(2)).log_prob(np.array([0.5, 1.5]))
        counts = RewardRows(dist.Binomial(3, probs=np.array([0.25])), np.ones(1)).log_prob(np.array([2.0]))
        return *student(loc), uniform, counts

    value, slope, uniform, counts = densities(loc)
    each = stats.t.logpdf(np.nan_to_num(reward), 3.0, loc, 0.7)
    np.testing.assert_allclose(value, (weight * each).sum(), rtol=1e-12)
    assert np.isfinite(slope).all() and slope[2] == 0
    np.testing.assert_array_equal(uniform, [0.0, -np.inf])
    np.testing.assert_allclose(counts, stats.binom.logpmf(2, 3, 0.25), rtol=1e-9)


def test_weight_zero_hides_what_is_no_number():
    """Powers of scipy's density of the others."""
    reward, weight = np.array([0.5, np.nan, -1.0]), np.array([1.0, 0.0, 0.5])
    found = RewardRows(dist.Normal(np.zeros(3), np.ones(3)), weight).log_prob(reward)
    np.testing.assert_allclose(found, [stats.norm.logpdf(0.5), 0.0, 0.5 * stats.norm.logpdf(-1.0)], rtol=1e-5)
