"""Pairs without data that look better than all with data: by plain numbers, on every kind of posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.inference.summary import PairMoments
from bayes_mdp.inference.untried_rewards import untried_rewards
from bayes_mdp.utils.messages import see
from tests.calibration.beliefs import collapsed, sampled

KEY = jax.random.key(0)
S, A = 4, 3
SPACE = bm.StateActionSpace(S, A)


def costs(seed=0, number=40, low=-2.0, high=-1.0):
    """Transitions of the first two actions, in the first three states."""
    rng = np.random.default_rng(seed)
    state, action = rng.integers(3, size=number), rng.integers(2, size=number)
    return bm.Transitions(state, action, rng.uniform(low, high, number), rng.integers(S, size=number))


def tables(data):
    """Number and mean of the rewards of every pair, by a loop."""
    count, total = np.zeros((S, A)), np.zeros((S, A))
    for s, a, r in zip(data.state, data.action, data.reward, strict=True):
        count[s, a] += 1
        total[s, a] += r
    return count, np.where(count > 0, total / np.maximum(count, 1), np.nan)


def test_costs_under_a_prior_that_is_centred_at_zero():
    data = costs()
    count, mean = tables(data)
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(loc=0.0, scale=1.0, noise_scale=1.0), data, space=SPACE)
    found = untried_rewards(posterior)
    assert found is not None
    np.testing.assert_array_equal(found.pairs, count == 0)
    # One pseudo-reward of 0: the posterior mean is n / (n + 1) times the mean of n rewards.
    assert found.best == pytest.approx(np.nanmax(count / (count + 1) * mean), rel=1e-12)
    assert found.expected == (0.0, 0.0)
    text = " ".join(str(posterior).split())
    assert f"{int((count == 0).sum())} pairs never tried, whose mean reward (0) lies above that of every pair" in text
    assert f"(at most {found.best:.3g})" in text and 'legal="logged"' in text and see("how-to/write-a-prior") in text
    some = found.among(np.arange(S * A).reshape(S, A) == 2)
    assert some is not None and int(some.pairs.sum()) == 1 and "1 pair never tried" in str(some)
    assert found.among(np.zeros((S, A), bool)) is None


def test_actions_that_do_not_exist_are_not_untried():
    legal = np.arange(A) < 2 + np.zeros((S, 1))
    legal[0, 2] = True
    space, belief = bm.StateActionSpace(S, A, legal=legal), NormalBelief(*np.ones((3, S * A)) * [[0.0], [1.0], [1.0]])
    rows = dirichlet_rows(np.ones((S * A, S)), (S, A, S))
    found = untried_rewards(conjugate_posterior(rows, reward_cells(belief, (S, A)), space).update(costs()))
    assert found is not None
    np.testing.assert_array_equal(found.pairs, (tables(costs())[0] == 0) & legal)


@pytest.mark.parametrize("seed", range(4))
def test_exactly_where_the_prior_mean_lies_above_all_mean_rewards(seed):
    data = costs(seed)
    _, mean = tables(data)
    top = float(np.nanmax(mean))
    for shift, expected in ((-0.5, False), (-1e-4, False), (1e-4, True), (0.5, True)):
        prior = bm.models.dirichlet_normal(loc=top + shift, scale=0.7, noise_scale=2.0)
        found = untried_rewards(bm.infer(KEY, prior, data, space=SPACE))
        assert (found is not None) is expected


def known_rewards(space):
    return bm.models.known_rewards(np.where(np.arange(A) == 2, 0.0, -1.0) * np.ones((S, 1)))(space)


def partly_known(space):
    """The mean of the third action is a number of the program, the others are unknown."""
    with space.plates("state", "action"):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
        mean = numpyro.sample("mean", dist.Normal(-3.0, 1.0))
    mean = jnp.where(jnp.arange(A) == 2, 5.0, mean)
    return bm.models.MDPSpec(rows, dist.Normal(mean, 1.0))


def test_silent_where_nothing_misleads_or_nothing_is_known():
    data, prior = costs(), bm.models.dirichlet_normal()
    assert untried_rewards(bm.infer(KEY, prior, None, space=SPACE)) is None
    assert untried_rewards(bm.infer(KEY, prior, costs(low=1.0, high=2.0), space=SPACE)) is None
    no_rewards = bm.Transitions(data.state, data.action, None, data.next_state)
    assert untried_rewards(bm.infer(KEY, prior, no_rewards, space=SPACE)) is None
    assert untried_rewards(bm.infer(KEY, known_rewards, no_rewards, space=SPACE)) is None
    assert untried_rewards(bm.infer(KEY, partly_known, data, space=SPACE)) is None
    logged = np.zeros((S, A), bool)
    logged[np.asarray(data.state), np.asarray(data.action)] = True
    logged[3] = [True, False, False]  # the state that was never left has one action
    found = untried_rewards(bm.infer(KEY, prior, data, space=bm.StateActionSpace(S, A, legal=logged)))
    assert found is not None and np.argwhere(found.pairs).tolist() == [[3, 0]]
    state, action = np.indices((S, A)).reshape(2, -1)
    every = bm.Transitions(state, action, -np.ones(S * A), np.zeros(S * A, int))
    assert untried_rewards(bm.infer(KEY, prior, every, space=SPACE)) is None
    assert untried_rewards("no posterior") is None


class Drawn(eqx.Module):
    """A posterior of draws: two tried pairs of mean -1, an untried one of mean `mean` and standard deviation 1."""

    mean: float
    size: float
    space: bm.StateActionSpace = eqx.field(static=True, default=bm.StateActionSpace(1, 3))
    mcmc: None = None

    def visit_counts(self):
        return jnp.array([[5.0, 5.0, 0.0]])

    def num_rewards_observed(self):
        return 10.0

    def effective_sample_size(self):
        return jnp.asarray(self.size)

    def pair_moments(self):
        reward = jnp.array([[-1.0, -1.0, 0.0]]).at[0, 2].set(self.mean)
        nothing = jnp.zeros((1, 3))
        return PairMoments(nothing, nothing, reward, jnp.ones((1, 3)), nothing, self.visit_counts())


def test_means_of_draws_must_differ_by_more_than_their_error():
    """Standard error .1 with 100 draws: four of them are .4."""
    for mean, expected in ((-0.59, True), (-0.61, False), (-1.5, False)):
        assert (untried_rewards(Drawn(mean, 100.0)) is not None) is expected
    assert untried_rewards(Drawn(-0.61, 10_000.0)) is not None


def test_on_draws_and_mixtures():
    """Whatever the route: the answer is that of the means and visits that its table shows."""
    for posterior in (collapsed(), sampled()):
        assert untried_rewards(posterior) is None  # every pair was tried

    def kinds(space):
        kind = numpyro.sample("kind", dist.Bernoulli(0.5))
        with space.plates():
            rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(space.n_outcomes)))
            mean = numpyro.sample("mean", dist.Normal(jnp.where(kind == 1, 0.0, -0.5), 1.0))
        return bm.models.MDPSpec(rows, dist.Normal(mean, 1.0))

    posterior = bm.infer(KEY, kinds, costs(), space=SPACE)
    assert posterior.method == "mixture"
    found = untried_rewards(posterior)
    assert found is not None and -0.5 < found.expected[0] < 0.0
