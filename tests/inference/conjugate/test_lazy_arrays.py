"""The arrays that simulations draw from have the means of the posterior they come from, whatever its tables are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayes_mdp as bm
from bayes_mdp.inference import mixture, posterior_samples
from bayes_mdp.inference.conjugate.conjugate_posterior import conjugate_posterior
from bayes_mdp.inference.conjugate.dirichlet_rows import dirichlet_rows
from bayes_mdp.inference.conjugate.lazy_arrays import bin_rewards, label_rewards, lazy_draws
from bayes_mdp.inference.conjugate.reward_cells import reward_cells
from bayes_mdp.inference.conjugate.rewards import known_rewards
from bayes_mdp.inference.families.bernoulli import BetaBelief
from bayes_mdp.inference.families.normal import NormalBelief
from bayes_mdp.mdp.protocols import CanSampleLazily


def random_posterior(seed):
    """A posterior with tables of every kind: shared, permuted, known rows, lists, steps, ends, rewards by outcome."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    ends, horizon = bool(rng.integers(2)), [None, 3][int(rng.integers(2))]
    lead = (n_states, n_actions) if horizon is None else (horizon, n_states, n_actions)
    successors = None
    if rng.integers(2):
        width = int(rng.integers(1, n_states + 1))
        order = np.stack([rng.permutation(n_states + ends) for _ in range(n_states * n_actions)])
        successors = order[:, :width].reshape(n_states, n_actions, width)
        if width > 1:
            successors[rng.random((n_states, n_actions)) < 0.3, -1] = -1
    space = bm.StateActionSpace(n_states, n_actions, ends=ends, horizon=horizon, successors=successors)
    number = space.n_outcomes
    possible = np.ones((*lead, number), bool)
    if space.possible is not None:
        possible = np.broadcast_to(space.possible, possible.shape)
    shape = (*lead, number)
    pairs = int(np.prod(lead))
    # As many site rows as pairs, or fewer, which share them; impossible outcomes have no column, or no concentration.
    shared = bool(rng.integers(2)) and successors is None
    size = max(1, pairs // 2) if shared else pairs
    row = rng.integers(0, size, lead) if shared else np.arange(pairs).reshape(lead)
    prior = rng.gamma(1.0, size=(size, number)) + 0.05
    column = None
    if not shared:
        prior = np.where(possible.reshape(pairs, number), prior, 0.0)
    elif rng.integers(2):
        column = np.stack([rng.permutation(number) for _ in range(pairs)]).reshape(shape)
    known = None
    if rng.integers(2):
        known = np.where(possible, rng.gamma(1.0, size=shape) + 0.05, 0.0)
        known /= known.sum(-1, keepdims=True)
        row = np.where(rng.random(lead) < 0.3, -1, row)
    rows = dirichlet_rows(prior, shape, row=row, column=column, known=known)
    by_outcome = bool(rng.integers(2))
    cells = shape if by_outcome else lead
    if rng.integers(2):
        rewards = known_rewards(rng.normal(size=cells), by_outcome=by_outcome)
    else:
        count = int(np.prod(cells))
        belief = BetaBelief(rng.gamma(1.0, size=count) + 0.1, rng.gamma(1.0, size=count) + 0.1)
        cell = np.where(rng.random(cells) < 0.3, -1, np.arange(count).reshape(cells))
        rewards = reward_cells(belief, cells, by_outcome=by_outcome, cell=cell, known=rng.normal(size=cells))
    return conjugate_posterior(rows, rewards, space)


def means(lazy, n_states):
    """Mean probabilities [T S A S+1] and mean rewards [T S A] of the arrays, by plain loops."""
    lazy = jax.tree.map(np.asarray, lazy)
    rows, rewards = lazy.rows, lazy.rewards
    steps, _, n_actions = rows.row.shape
    probs, reward = np.zeros((steps, n_states, n_actions, n_states + 1)), np.zeros((steps, n_states, n_actions))
    pick = lambda table, c: table[c if len(table) > 1 else 0]  # noqa: E731
    for c, weight in enumerate(lazy.weights):
        for t, s, a in np.ndindex(*reward.shape):
            sums = pick(rows.cumulative, c)[rows.row[t, s, a]]
            for k, p in enumerate(np.diff(sums, prepend=0.0) / sums[-1]):
                if p <= 0:
                    continue
                outcome = k if rows.outcome is None else rows.outcome[t, s, a, k]
                place = outcome if rewards.cell.shape[3] > 1 else 0
                cell = rewards.cell[t % len(rewards.cell), s, a, place]
                to = outcome if rows.successor is None else rows.successor[t % len(rows.successor), s, a, outcome]
                probs[t, s, a, to] += weight * p
                labels = pick(rewards.cumulative, c)[cell]
                paid = np.diff(labels, prepend=0.0) / labels[-1] @ pick(rewards.value, c)[cell]
                reward[t, s, a] += weight * p * paid
    return probs, reward


def expected(posterior):
    """The same from the mean MDP."""
    mdp = posterior.mean_mdp()
    mdp = mdp.to_dense() if hasattr(mdp, "to_dense") else mdp
    probs = np.asarray(mdp.transition_probs, float)
    ends = np.zeros(probs.shape[:-1]) if mdp.end_probs is None else np.asarray(mdp.end_probs, float)
    both = np.concatenate([probs, ends[..., None]], -1)
    reward = np.asarray(mdp.reward, float)
    return both.reshape(-1, *both.shape[-3:]), reward.reshape(-1, *reward.shape[-2:])


@pytest.mark.some(6)
@pytest.mark.parametrize("seed", range(100))
def test_means_are_those_of_the_posterior(seed, x64):
    posterior = random_posterior(seed)
    assert isinstance(posterior, CanSampleLazily)
    found = means(posterior.lazy_belief(jax.random.key(0), 16, 2), posterior.space.n_states)
    for one, other in zip(found, expected(posterior), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_only_rows_with_something_to_learn_are_urns():
    space = bm.StateActionSpace(2, 2)
    prior = np.array([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    known = np.tile([0.25, 0.75], (2, 2, 1))
    row = np.array([[0, 1], [2, -1]])
    rows = dirichlet_rows(prior, (2, 2, 2), row=row, known=known)
    lazy = conjugate_posterior(rows, known_rewards(np.zeros((2, 2))), space).lazy_belief(jax.random.key(0), 1, 1)
    at = np.asarray(lazy.rows.row)[0]
    np.testing.assert_array_equal(np.asarray(lazy.rows.learns)[at], [[True, False], [True, False]])


def test_components_of_a_mixture(x64):
    """Each has its own concentrations, tables are shared; the means are those of the mixture."""
    space = bm.StateActionSpace(3, 2, ends=True)

    def one(concentration, paid):
        rows = dirichlet_rows(np.full((6, 4), concentration), (3, 2, 4))
        beta = BetaBelief(np.full(6, paid), np.full(6, 1.0))
        return conjugate_posterior(rows, reward_cells(beta, (3, 2)), space)

    mixed = mixture([one(0.5, 1.0), one(2.0, 3.0), one(5.0, 0.5)], weights=[0.2, 0.5, 0.3])
    mixed = mixed.update(bm.Transitions(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 0.0]), np.array([2, 2])))
    lazy = mixed.lazy_belief(jax.random.key(0), 1, 1)
    assert lazy.rows.cumulative.shape == (3, 6, 4) and bool(np.asarray(lazy.rows.learns).all())
    for found, other in zip(means(lazy, 3), expected(mixed), strict=True):
        np.testing.assert_allclose(found, other, atol=1e-12)


def test_components_have_as_many_draws_of_rewards_as_are_asked_for(x64):
    """Entry c is a draw of component c modulo K: its mean is that of the component, within 6 standard errors."""
    space = bm.StateActionSpace(1, 2)

    def one(loc):
        belief = NormalBelief(np.full(2, loc), np.full(2, 4.0), np.ones(2))
        return conjugate_posterior(dirichlet_rows(np.ones((2, 1)), (1, 2, 1)), reward_cells(belief, (1, 2)), space)

    mixed = mixture([one(-3.0), one(0.0), one(5.0)], weights=[0.2, 0.5, 0.3])
    lazy = mixed.lazy_belief(jax.random.key(0), 3000, 2)
    assert lazy.weights.shape == (3000,)
    np.testing.assert_allclose(np.asarray(lazy.weights).reshape(-1, 3).sum(0), [0.2, 0.5, 0.3], rtol=1e-6)
    value = np.asarray(lazy.rewards.value)[:, :, 0].reshape(-1, 3, 2)
    error = value.std(0) / np.sqrt(len(value))
    np.testing.assert_array_less(np.abs(value.mean(0) - np.array([[-3.0], [0.0], [5.0]])), 6 * error)


def test_drawn_rewards_of_0_and_1_are_told_apart_exactly():
    mean = jnp.array([[0.15, 0.5], [0.9, 0.0]])
    lazy = label_rewards(dist.BernoulliProbs, mean, mean * (1 - mean), False, 5)
    np.testing.assert_allclose(np.asarray(lazy.cumulative)[..., 0], 1 - mean, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(lazy.value), np.repeat(np.asarray(mean)[..., None], 2, -1))
    assert label_rewards(dist.BernoulliProbs, mean, mean, False, 1).cumulative.shape[-1] == 1
    assert label_rewards(dist.Normal, mean, mean, False, 3).cumulative.shape[-1] == 3


def test_draws_are_components(x64):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=(5, 3, 2))
    mdps = bm.MDP(probs[..., :3], rng.normal(size=(5, 3, 2)), end_probs=probs[..., 3])
    drawn = posterior_samples(mdps, weights=rng.dirichlet(np.ones(5)))
    lazy = drawn.lazy_belief(jax.random.key(0), 1, 1)
    assert not np.asarray(lazy.rows.learns).any()
    for found, other in zip(means(lazy, 3), expected(drawn), strict=True):
        np.testing.assert_allclose(found, other, atol=1e-12)


@pytest.mark.filterwarnings("ignore::bayes_mdp.inference.draws.chains.SamplingWarning")
def test_sampled_and_collapsed_posteriors(x64):
    """What `infer` returns by NUTS, on everything or on the hyperparameters alone, and by a grid over these."""

    def sticky(space):
        stay = numpyro.sample("stay", dist.HalfNormal(3.0))
        with space.plates():
            rows = 0.5 + stay * jnp.eye(space.n_states)[:, None, :]
            probs = numpyro.sample("transition", dist.Dirichlet(rows))
            paid = numpyro.sample("reward", dist.Normal(0.0, 1.0))
        return bm.models.MDPSpec(probs, reward=dist.Normal(paid, 0.5))

    data = bm.Transitions(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.5, 1.0, -1.0]), np.array([0, 1, 1]))
    space = bm.StateActionSpace(2, 2)
    short = bm.inference.NUTS(num_warmup=20, num_samples=25, num_chains=1)
    ways: Any = ({"method": "collapsed", "sampler": short}, {"method": short}, {})
    for chosen in ways:
        posterior: Any = bm.infer(jax.random.key(0), sticky, data, space=space, **chosen)
        lazy = posterior.lazy_belief(jax.random.key(1), 1, 3)
        assert lazy.weights.shape == ((25,) if chosen else posterior.weights.shape)
        assert lazy.rewards.value.shape[-1] == 3
        probs, _ = means(lazy, 2)
        np.testing.assert_allclose(probs, expected(posterior)[0], atol=1e-9)


def test_bins_of_drawn_rewards():
    """The chance of a bin given a draw is that of its normal law between the edges; each draw pays its mean."""
    mean, noise = np.array([[0.0], [2.0]]), np.array([[1.0], [0.25]])
    lazy = bin_rewards(jnp.asarray(mean), jnp.asarray(noise), False, 4)
    spread = np.sqrt(mean.var() + noise.mean())
    edges = mean.mean() + spread * stats.norm.ppf([0.25, 0.5, 0.75])
    np.testing.assert_allclose(np.asarray(lazy.edges)[0], edges, rtol=1e-5)
    for d in range(2):
        below = stats.norm.cdf(edges, mean[d, 0], np.sqrt(noise[d, 0]))
        np.testing.assert_allclose(np.asarray(lazy.cumulative)[d, 0], [*below, 1.0], atol=1e-5)
    np.testing.assert_array_equal(np.asarray(lazy.value)[:, 0], np.repeat(mean, 4, axis=1))
    known = bin_rewards(jnp.zeros((2, 1)), jnp.zeros((2, 1)), False, 2)
    assert np.isin(np.asarray(known.cumulative), [0.0, 1.0]).all()


def test_normal_rewards_are_drawn_anew():
    """Other keys, other draws; their mean is the posterior's within 6 standard errors (false alarm 2e-9 a cell)."""
    belief = NormalBelief(np.array([1.0, -2.0]), np.array([1.0, 4.0]), np.array([1.0, 1.0]))
    space = bm.StateActionSpace(1, 2)
    posterior = conjugate_posterior(dirichlet_rows(np.ones((2, 1)), (1, 2, 1)), reward_cells(belief, (1, 2)), space)
    one, two = (posterior.lazy_belief(jax.random.key(seed), 4000, 2) for seed in (0, 1))
    assert one.weights.shape == (4000,) and not np.array_equal(one.rewards.value, two.rewards.value)
    value = np.asarray(one.rewards.value)[:, :, 0]
    error = value.std(0) / np.sqrt(4000)
    np.testing.assert_array_less(np.abs(value.mean(0) - np.asarray(posterior.reward_cells.mean()).ravel()), 6 * error)


def test_impossible_outcomes_of_long_rows_have_no_share():
    """Plain sums of XLA in float32 rise where nothing is added: they would be drawn now and then."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((200, 1000)) < 0.4, 0.0, rng.gamma(1.0, size=(200, 1000))).astype(np.float32)
    sums = np.asarray(lazy_draws(jnp.asarray(rows[None, :, None]), None).cumulative[0])
    share = np.diff(sums, axis=-1, prepend=0.0)
    assert (share >= 0.0).all() and not share[rows == 0.0].any()
    np.testing.assert_allclose(sums, np.cumsum(rows.astype(float), -1), rtol=1e-5)
