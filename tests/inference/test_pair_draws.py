"""Draws of pairs by NumPy against whole MDPs by JAX: the same law, for every posterior and every family of rewards.

The level: means and second moments differ by less than 6.5 standard errors of both. Under some 4,000 comparisons of
right draws that is a false alarm with probability below 1e-6 where errors are normal; quantities are bounded (heavy
tails through the arcus tangent). A mean that is off by 0.15 of the standard deviation of a draw is caught.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportOptionalMemberAccess=false
# pyright: reportOptionalSubscript=false
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayes_mdp as bm
from bayes_mdp.inference.draws.chains import SamplingWarning
from bayes_mdp.inference.draws.methods import Gibbs
from bayes_mdp.inference.draws.weighted_samples import posterior_samples
from bayes_mdp.inference.pair_draws import (
    PairDraws,
    Worth,
    draw_by_weight,
    pair_draws,
    pair_draws_of_samples,
    share_between,
)
from bayes_mdp.random.host_generator import ElementStreams

KEY = jax.random.key(0)
S, A, NUM = 3, 2, 4000
SPACE = bm.StateActionSpace(S, A)
ENDS = bm.StateActionSpace(S, A, ends=True, legal=np.array([[1, 1], [1, 0], [1, 1]], bool))
LISTED = bm.StateActionSpace(S, A, successors=[[[0, 1], [2, -1]], [[1, 2], [0, 1]], [[2, 0], [1, -1]]])
STEPS = bm.StateActionSpace(S, A, horizon=2)


def rows(space, concentration=1.0):
    with space.plates():
        return bm.models.supported_dirichlet(concentration, space)


def with_rewards(make):
    """A program with Dirichlet rows and the law of rewards that `make(space)` gives inside plates of the pairs."""

    def prior(space):
        table = rows(space)
        with space.plates():
            return bm.models.MDPSpec(table, make(space))

    return prior


def site(name, law):
    return numpyro.sample(name, law)


def regression(space):
    weights = site("w", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
    features = jnp.stack([jnp.linspace(-1.0, 1.0, S * A), jnp.ones(S * A)], -1).reshape(S, A, 2)
    return bm.models.MDPSpec(rows(space), dist.Normal(features @ weights, 0.5))


def rows_of_actions(space):
    """Rows that states share, in another order of the outcomes, and one that is known."""
    with space.plates("action"):
        shared = numpyro.sample("row", dist.Dirichlet(jnp.array([0.02, 0.05, 0.03])))
    table = jnp.stack([shared, jnp.roll(shared, 1, -1), jnp.full((A, S), 1 / S)])
    return bm.models.MDPSpec(table, reward=jnp.arange(float(S * A)).reshape(S, A))


def coin(space):
    """A mixture of two sizes of concentrations."""
    large = numpyro.sample("large", dist.Bernoulli(0.3))
    return bm.models.MDPSpec(rows(space, 0.05 + 5.0 * large), reward=jnp.ones((S, A)))


def coin_of_rewards(space):
    """A mixture of two beliefs about rewards."""
    high = numpyro.sample("high", dist.Bernoulli(0.5))
    table = rows(space)
    with space.plates():
        return bm.models.MDPSpec(table, dist.Bernoulli(site("p", dist.Beta(1.0 + 9.0 * high, 1.0))))


LAWS = {
    "normal-gamma": bm.models.dirichlet_normal_gamma(),
    "normal": bm.models.dirichlet_normal(0.05),
    "Bernoulli": bm.models.dirichlet_bernoulli(),
    "Poisson": bm.models.dirichlet_poisson(),
    "by outcome": bm.models.dirichlet_normal(rewards_on="outcome"),
    "known": bm.models.known_rewards(np.arange(float(S * A)).reshape(S, A)),
    "precision": with_rewards(lambda _: dist.Normal(1.0, site("t", dist.Gamma(2.0, 1.0)) ** -0.5)),
    "exponential": with_rewards(lambda _: dist.Exponential(site("r", dist.Gamma(3.0, 1.0)))),
    "binomial": with_rewards(lambda _: dist.Binomial(3, site("p", dist.Beta(0.05, 0.04)))),
    "geometric": with_rewards(lambda _: dist.Geometric(site("p", dist.Beta(4.0, 2.0)))),
    "categorical": with_rewards(lambda _: dist.Categorical(site("p", dist.Dirichlet(jnp.array([0.03, 0.04, 0.02]))))),
    "log-normal": with_rewards(lambda _: dist.LogNormal(site("m", dist.Normal(0.0, 1.0)), 0.5)),
    "affine": with_rewards(lambda _: dist.Normal(2.0 - 3.0 * site("m", dist.Normal(0.0, 1.0)), 0.5)),
    "regression": regression,
    "shared rows": rows_of_actions,
    "mixture": coin,
    "mixture of rewards": coin_of_rewards,
}
SPACES = {"ends": ENDS, "listed": LISTED, "steps": STEPS}


def data(space, rewards=None, n=12):
    rng = np.random.default_rng(0)
    if space is LISTED:
        return None
    state, action = rng.integers(S, size=n), np.zeros(n, int)
    reward = rng.integers(2, size=n).astype(float) if rewards is None else rewards
    step = {} if space.horizon is None else {"step": rng.integers(space.horizon, size=n)}
    return bm.Transitions(state, action, reward, rng.integers(S, size=n), **step)


def fit(prior, method):
    """By short chains: which law their draws have does not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        sampler = bm.inference.NUTS(num_warmup=50, num_samples=30, num_chains=1)
        return bm.infer(KEY, prior, data(SPACE), space=SPACE, method=method, sampler=sampler)


def posteriors():
    for name, prior in LAWS.items():
        yield name, lambda prior=prior: bm.infer(KEY, prior, space=SPACE)
    for name, space in SPACES.items():
        yield name, lambda space=space: bm.infer(KEY, bm.models.dirichlet_normal_gamma(), data(space), space=space)
    chains = {
        "collapsed": (bm.models.sticky(), "collapsed"),
        "collapsed rewards": (bm.models.shared_rewards(), "collapsed"),
        "factorised": (bm.models.robust_rewards(), "factorised"),
        "sampled": (bm.models.feature_dynamics(np.ones((S, A, S, 1))), "nuts"),
        "pooled": (bm.models.partial_pooling(usage=None), Gibbs(num_warmup=20, num_samples=30)),
    }
    for name, (prior, method) in chains.items():
        yield name, lambda prior=prior, method=method: fit(prior, method)
    rng = np.random.default_rng(0)
    mdps = bm.MDP(rng.dirichlet(np.ones(S), (5, S, A)), rng.normal(size=(5, S, A)))
    yield "listed draws", lambda: posterior_samples(mdps, weights=[0.1, 0.2, 0.3, 0.4, 0.0])


POSTERIORS = dict(posteriors())


def quantities(draws: PairDraws, num: int) -> np.ndarray:
    """Bounded numbers of every draw: probabilities of all states and the end, rewards, squares and products."""
    probs, reward = draws.draw(num)
    rows = draws.rows
    table = np.zeros((num, len(rows.state), rows.n_states + 1))
    for entry in range(probs.shape[1]):
        table[:, rows.pair[entry], rows.next_state[entry]] += probs[:, entry]
    flat, bounded = table.reshape(num, -1), np.arctan(reward)
    value = np.concatenate([flat, bounded], 1)
    direction = np.random.default_rng(1).normal(size=(value.shape[1], 6))
    return np.concatenate([value, value**2, (value @ direction) ** 2], 1)


@pytest.mark.some(3)
@pytest.mark.parametrize("name", POSTERIORS)
def test_draws_have_the_law_of_whole_mdps(name):
    posterior = POSTERIORS[name]()
    needed = posterior.sizes().possible
    found = quantities(pair_draws(KEY, posterior, needed), NUM)
    expected = quantities(pair_draws_of_samples(jax.random.key(1), posterior, needed), NUM)
    spread = np.sqrt((found.var(0) + expected.var(0)) / NUM)
    off = np.abs(found.mean(0) - expected.mean(0))
    assert (off <= 6.5 * spread + 1e-6).all(), np.max(off / np.maximum(spread, 1e-12))
    # A twin whose draws are those of another belief is seen.
    twin = found * 0.8
    moved = np.abs(twin.mean(0) - expected.mean(0)) > 6.5 * np.sqrt((twin.var(0) + expected.var(0)) / NUM) + 1e-6
    assert moved.any()


@pytest.mark.some(3)
@pytest.mark.parametrize("name", POSTERIORS)
def test_a_pair_has_the_same_draws_whichever_others_and_in_any_blocks(name):
    posterior = POSTERIORS[name]()
    possible = posterior.sizes().possible
    every = pair_draws(KEY, posterior, possible)
    whole = every.draw(9)
    some = possible.copy()
    some[..., 0, :] = False
    few = pair_draws(KEY, posterior, some)
    parts = [few.draw(4), few.draw(5)]
    pairs = np.flatnonzero(some[every.rows.index])
    taken, entries = every.rows.take(pairs)
    np.testing.assert_array_equal(taken.next_state, few.rows.next_state)
    np.testing.assert_array_equal(np.concatenate([p.probs for p in parts]), whole.probs[:, entries])
    np.testing.assert_array_equal(np.concatenate([p.reward for p in parts]), whole.reward[:, pairs])


def test_rows_of_tiny_concentrations_sum_to_one():
    """Of Dirichlet(1e-3, ...) all gamma variables of a row may be zero in float64."""
    posterior = bm.infer(KEY, bm.models.dirichlet_normal(1e-3), space=SPACE)
    draws = pair_draws(KEY, posterior, np.ones((S, A), bool))
    probs = draws.draw(20_000).probs
    np.testing.assert_allclose(draws.rows.sums(probs), 1.0, atol=1e-12)
    # Nearly all of a row lies on one outcome, each as often: 120,000 rows, 6.5 standard errors.
    largest = probs.reshape(-1, S)
    assert (largest.max(-1) > 0.99).mean() > 0.98
    assert np.abs(largest.mean(0) - 1 / S).max() < 6.5 * (2 / 9 / len(largest)) ** 0.5


def wide_coin(space):
    """A mixture: rows of few likely outcomes, or of many; some outcomes are likelier."""
    many = numpyro.sample("many", dist.Bernoulli(0.3))
    weights = jnp.resize(jnp.array([0.5, 1.5, 1.0]), (space.n_outcomes,))
    return bm.models.MDPSpec(rows(space, (0.004 + 0.6 * many) * weights), reward=jnp.ones(space.shape))


WIDE = {"one": (bm.models.dirichlet_normal(0.004), 1.0), "mixture": (wide_coin, np.resize([0.5, 1.5, 1.0], 140))}


@pytest.mark.parametrize("name", WIDE)
def test_wide_rows_have_the_moments_of_dirichlet_rows_and_are_the_same_in_any_blocks(name):
    """140 outcomes of which few are likely, with data and without: means and squares within 6.5 standard errors."""
    prior, weights = WIDE[name]
    space = bm.StateActionSpace(140, 1)
    seen = bm.Transitions([3] * 6, [0] * 6, [0.0] * 6, [5, 5, 9, 40, 40, 40]) if name == "one" else None
    posterior = bm.infer(KEY, prior, seen, space=space)
    needed = np.zeros(space.shape, bool)
    needed[[3, 4]] = True
    draws = pair_draws(KEY, posterior, needed)
    probs = draws.draw(NUM).probs
    np.testing.assert_allclose(draws.rows.sums(probs), 1.0)
    assert (probs == 0).mean() > 0.5
    counts = np.zeros((2, 140))
    np.add.at(counts[0], [] if seen is None else np.asarray(seen.next_state), 1.0)
    mean = square = 0.0
    for share, concentration in ((1.0, 0.004),) if name == "one" else ((0.7, 0.004), (0.3, 0.604)):
        alpha = counts + concentration * weights
        total, groups = alpha.sum(-1)[:, None], alpha.reshape(2, 5, 28).sum(-1)
        mean += share * groups / total
        square += share * (alpha * (alpha + 1)).sum(-1) / (total * (total + 1))[:, 0]
    table = probs.reshape(NUM, 2, 140)
    # Squares of all outcomes together tell how few are likely; single ones are too seldom for a normal error.
    for values, expected in ((table.reshape(NUM, 2, 5, 28).sum(-1), mean), ((table**2).sum(-1), square)):
        assert (np.abs(values.mean(0) - expected) <= 6.5 * values.std(0) / NUM**0.5).all()
    few = pair_draws(KEY, posterior, needed & (np.arange(140) == 4)[:, None])
    again = np.concatenate([few.draw(n).probs for n in (1, 30, 9)])
    np.testing.assert_array_equal(again, probs[:40, 140:])


def test_weights_of_zero_are_never_chosen():
    choose = draw_by_weight(KEY, np.array([0.0, 0.5, 0.0, 0.5, 0.0]))
    index = choose(20_000)
    assert set(index.tolist()) == {1, 3}
    assert abs((index == 1).mean() - 0.5) < 6.5 * 0.5 / 20_000**0.5


def test_purposes_and_elements_have_numbers_of_their_own():
    streams = [ElementStreams(KEY, purpose, np.array([0, 1])).normals(2000) for purpose in (0, 1)]
    table = np.concatenate(streams, 1)
    assert np.abs(np.corrcoef(table.T) - np.eye(4)).max() < 6.5 / 2000**0.5
    raw = ElementStreams(jax.random.key_data(KEY), 0, np.array([1, 0])).normals(2000)
    np.testing.assert_array_equal(raw[:, ::-1], streams[0])


class Held:
    """A belief whose draws are noise about 100 numbers, which are draws of the posterior."""

    def __init__(self, rng, noise):
        self.rng, self.noise, self.numbers = rng, noise, rng.normal(size=100)

    def worth_of_picks(self):
        return 100.0

    def picks(self, key, num):
        del key
        return self.rng.integers(100, size=num)


@pytest.mark.parametrize("noise", [0.0, 1.0, 10.0])
def test_the_error_allows_for_what_is_held(noise):
    """400 beliefs, 1,000 picks each: squared errors in units of the stated ones have the mean 1 within 6 sd, .42.

    A twin that takes all picks for independent is off by a factor of 11 without noise, 6 where it is as large.
    """
    ratios, twins = [], []
    for seed in range(400):
        belief = Held(np.random.default_rng(seed), noise)
        picks = belief.picks(None, 1000)
        belief.picks = lambda key, num, picks=picks: picks
        values = belief.numbers[picks] + noise * belief.rng.normal(size=1000)
        worth = Worth.of(belief, KEY)
        ratios.append(values.mean() ** 2 / (values.var() / worth.number(values)))
        twins.append(values.mean() ** 2 / (values.var() / 1000))
    assert abs(np.mean(ratios) - 1) < 6 * (2 / 400) ** 0.5
    assert np.mean(twins) > 1 + 6 * (2 / 400) ** 0.5 or noise == 10.0


def test_fresh_draws_are_all_worth_one():
    exact = bm.infer(KEY, bm.models.dirichlet_normal_gamma(), space=SPACE)
    assert Worth.of(exact, KEY).number(np.arange(7.0)) == 7.0
    assert share_between(np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 2.0, 2.0])) == 1.0
    assert share_between(np.arange(4), np.arange(4.0)) == 1.0
    assert share_between(np.array([0, 0, 1, 1]), np.array([1.0, 2.0, 1.0, 2.0])) == 0.0


@pytest.mark.parametrize("name", ["collapsed", "factorised", "sampled", "pooled"])
def test_values_of_chains_have_the_error_of_their_effective_number(name):
    """Short chains: picks of the draws that are made tell components apart, picks of others do not."""
    posterior = POSTERIORS[name]()
    assert type(posterior).__name__.lower().startswith(name)
    worth = Worth.of(posterior, KEY)
    assert 1 <= worth.held <= 60
    value = bm.policy_value(KEY, posterior, [0, 0, 0], bm.Episodic(2), num_draws=NUM)
    assert value.effective is not None and value.error == pytest.approx(value.sd / value.effective**0.5)
    if name == "sampled":  # a draw is nothing but what is held
        assert value.effective == pytest.approx(1 / (1 / NUM + 1 / worth.held))
    if name == "factorised":
        reward = pair_draws(KEY, posterior, posterior.sizes().possible).draw(NUM).reward[:, 0]
        assert share_between(posterior.picks(KEY, NUM), reward) > 0.99
        assert share_between(posterior.picks(jax.random.key(1), NUM), reward) < 0.1
