"""Programs whose posterior was wrong in silence, or that raised an error of somebody else, each with its right number.

A space of two states and one action; the row of state 0 is open. Chains: 8,000 draws, worth 2,000 or more independent
ones; a mean within 6 standard errors, a standard deviation within 10 %: the faults were 13 % of a standard deviation of
the mean and more.
"""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportOperatorIssue=false
# pyright: reportCallIssue=false, reportReturnType=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import bayes_mdp as bm
from tests.inference.test_handlers import CHAINS, PAID, SPACE

STAYS = bm.Transitions([0], [0], None, [0])
BOTH = bm.Transitions([0, 0], [0, 0], None, [0, 1])
PAIRS = bm.Transitions([0, 0, 1], [0, 0, 0], [1.0, 2.0, 0.0], [0, 1, 1])


def spec(row, reward=0.0):
    return bm.models.MDPSpec(jnp.stack([row, jnp.array([0.0, 1.0])])[:, None, :], reward)


def row_of(law, around):
    def prior(space):
        with around:
            x = numpyro.sample("x", law)
        return spec(x if jnp.ndim(x) else jnp.stack([x, 1.0 - x]))

    return prior


def paid(space):
    with handlers.scale(scale=3.0):
        mean = numpyro.sample("m", dist.HalfNormal(1.0))
    return spec(jnp.array([0.5, 0.5]), dist.StudentT(5.0, mean, 1.0))


def half_masked(space):
    with numpyro.plate("rows", 2), handlers.mask(mask=np.array([True, False])):
        x = numpyro.sample("x", dist.Beta(2.0, 1.0))
    return bm.models.MDPSpec(jnp.stack([x, 1.0 - x], -1)[:, None, :], 0.0)


def with_a_key(space):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0), rng_key=jax.random.key(3))
    return spec(jnp.stack([p**2, 1.0 - p**2]))


def with_a_seed(space):
    with handlers.seed(rng_seed=3):
        p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    return spec(jnp.stack([p**2, 1.0 - p**2]))


def twice():
    return handlers.scale(scale=2.0)


def hidden():
    return handlers.mask(mask=False)


RIGHT = {
    "Dirichlet, scale 2": (row_of(dist.Dirichlet(np.array([2.0, 3.0])), twice()), None, 0.375, 0.161),
    "Beta, scale 2": (row_of(dist.Beta(2.0, 3.0), twice()), None, 0.375, 0.161),
    "Dirichlet, scale 2, one": (row_of(dist.Dirichlet(np.array([2.0, 3.0])), twice()), STAYS, 4 / 9, 0.157),
    "mask": (row_of(dist.Dirichlet(np.array([2.0, 5.0])), hidden()), BOTH, 0.5, 0.2236),
    "mask of one of two rows": (half_masked, None, 2 / 3, 0.2357),
    "a key of its own": (with_a_key, None, 0.2, 0.1773),
    "a seed of its own": (with_a_seed, None, 0.2, 0.1773),
}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", RIGHT)
def test_the_row_has_its_moments(name, key):
    prior, data, mean, sd = RIGHT[name]
    posterior = bm.infer(key, prior, data, space=SPACE, sampler=CHAINS)
    draws = np.asarray(posterior.transition_probs)[:, 0, 0, 0]
    worth = 8000.0 if posterior.mcmc is None else min(float(np.min(x)) for x in posterior.mcmc.ess().values())
    assert worth > 1500
    assert abs(draws.mean() - mean) < 6 * sd / np.sqrt(worth)
    assert draws.std() == pytest.approx(sd, rel=0.1)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["factorised", "nuts"])
def test_a_scaled_mean_of_rewards(key, method):
    """By quadrature: .662 for the cube of the density of a half-normal; NumPyro's NUTS gives 1.038."""
    m = np.linspace(0.0, 10.0, 100_001)
    density = np.exp(-1.5 * m**2) * ((1 + (1 - m) ** 2 / 5) * (1 + (2 - m) ** 2 / 5)) ** -3
    mean = float(density @ m / density.sum())
    method = CHAINS if method == "nuts" else method
    posterior = bm.infer(key, paid, PAID, space=SPACE, method=method, sampler=CHAINS)
    assert float(posterior.mean_mdp().reward[0, 0]) == pytest.approx(mean, abs=0.05)


def rows_in_plates(space):
    with space.plates():
        return numpyro.sample("r", dist.Dirichlet(jnp.ones(2)))


def of_rows(space):
    return bm.models.MDPSpec(rows_in_plates(space), 0.0)


def of_strength(space):
    strength = numpyro.sample("k", dist.HalfNormal(3.0))
    with space.plates():
        rows = numpyro.sample("r", dist.Dirichlet(strength * jnp.ones(2)))
    return bm.models.MDPSpec(rows, 0.0)


def test_substituted_values_are_known(key):
    rows = np.broadcast_to([0.3, 0.7], (2, 1, 2))
    known = bm.infer(key, handlers.substitute(of_rows, data={"r": rows}), BOTH, space=SPACE)
    assert float(known.mean_mdp().transition_probs[0, 0, 0]) == pytest.approx(0.3)
    # (k + 1) / (2 k + 1) with k = 4 known, after one transition to the first state
    strength = bm.infer(key, handlers.substitute(of_strength, data={"k": 4.0}), STAYS, space=SPACE)
    assert strength.method == "exact"
    assert float(strength.mean_mdp().transition_probs[0, 0, 0]) == pytest.approx(5 / 9)


def test_a_delta_hyperparameter_is_a_number(key):
    def prior(space):
        strength = numpyro.sample("k", dist.Delta(3.0))
        with space.plates():
            rows = numpyro.sample("r", dist.Dirichlet(strength * jnp.ones(2)))
        return bm.models.MDPSpec(rows, 0.0)

    posterior = bm.infer(key, prior, STAYS, space=SPACE)
    assert posterior.method == "exact" and bm.explain(prior, SPACE).route == "exact"
    assert float(posterior.mean_mdp().transition_probs[0, 0, 0]) == pytest.approx(4 / 7)


def test_a_delta_of_another_site_follows_it(key):
    def prior(space):
        first = numpyro.sample("first", dist.Beta(2.0, 3.0))
        second = numpyro.sample("second", dist.Delta(first))
        return spec(jnp.stack([second, 1.0 - second]))

    posterior = bm.infer(key, prior, STAYS, space=SPACE)
    assert posterior.method == "exact"
    assert float(posterior.mean_mdp().transition_probs[0, 0, 0]) == pytest.approx(3 / 6)


def test_ordered_logistic_rewards(key):
    def prior(space):
        with space.plates():
            mean = numpyro.sample("m", dist.Normal(0.0, 1.0))
        return bm.models.MDPSpec(rows_in_plates(space), dist.OrderedLogistic(mean, jnp.array([-1.0, 1.0])))

    posterior = bm.infer(key, prior, PAIRS, space=SPACE, sampler=bm.inference.NUTS(200, 200, 2))
    assert posterior.method == "factorised"
    x = np.linspace(-8, 8, 20_001)
    upper, lower = 1 / (1 + np.exp(1.0 - x)), 1 / (1 + np.exp(-1.0 - x))  # P(reward = 2), P(reward >= 1)
    weight = np.exp(-0.5 * x**2) * (lower - upper) * upper  # rewards 1 and 2
    mean = float(weight @ (upper + lower) / weight.sum())
    assert float(posterior.mean_mdp().reward[0, 0]) == pytest.approx(mean, abs=0.12)


def prior_of_mixture(space):
    mean = numpyro.sample("m", dist.Normal(0.0, 1.0))
    parts = dist.Normal(jnp.stack([mean, mean + 1.0]), 1.0)
    law = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), parts)
    return bm.models.MDPSpec(rows_in_plates(space), law.expand((2, 1)))


@pytest.mark.some(1)
@pytest.mark.parametrize("number", [2])
def test_mixtures_of_rewards_are_compared(key, number):
    """The log evidence of the rewards by a grid, beside that of the rows in closed form."""
    posterior = bm.infer(key, prior_of_mixture, PAIRS, space=SPACE, sampler=bm.inference.NUTS(500, 1000, number))
    factors = bm.inference.bayes_factors({"one": posterior, "two": posterior}, key=key)
    m = np.linspace(-8, 8, 4001)
    normal = lambda x, loc: np.exp(-0.5 * (x - loc) ** 2) / np.sqrt(2 * np.pi)  # noqa: E731
    likelihood = np.prod([0.3 * normal(r, m) + 0.7 * normal(r, m + 1) for r in (1.0, 2.0, 0.0)], axis=0)
    rewards = float(np.log((normal(m, 0.0) * likelihood).sum() * (m[1] - m[0])))
    expected = rewards + np.log(1 / 6) + np.log(1 / 2)
    assert float(bm.evidence(posterior, key).log_evidence) == pytest.approx(expected, abs=0.05)
    assert "one" in str(factors)


def called_back(space):
    p = numpyro.sample("p", dist.Bernoulli(0.5))
    q = jax.pure_callback(lambda x: np.asarray(0.2 + 0.3 * x, np.float32), jax.ShapeDtypeStruct((), np.float32), p)
    return spec(jnp.stack([q, 1 - q]))


def random_beside_scale(space):
    with handlers.scale(scale=1.0):
        p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    u = jax.random.uniform(numpyro.prng_key())
    return spec(jnp.stack([u * p, 1 - u * p]))


def wrong_rows(bend):
    def prior(space):
        with bend():
            p = numpyro.sample("p", dist.Beta(2.0, 3.0))
        numpyro.factor("f", -p)
        return spec(1.3 * jnp.stack([p, 1.0 - p]))

    return prior


def support_of_another(space):
    most = numpyro.sample("most", dist.DiscreteUniform(1, 3))
    number = numpyro.sample("number", dist.DiscreteUniform(0, most))
    return _of_number(space, number)


def _of_number(space, number):
    with space.plates():
        rows = numpyro.sample("r", dist.Dirichlet((1.0 + number) * jnp.ones(2)))
    return bm.models.MDPSpec(rows, 0.0)


def _masked_rewards(space):
    law = dist.Normal(jnp.zeros((2, 1)), 1.0).mask(np.ones((2, 1), bool))
    return bm.models.MDPSpec(rows_in_plates(space), law)


def _powered(law, power):
    return row_of(law, handlers.scale(scale=power))


def _scaled_below(space):
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with handlers.scale(scale=2.0):
        x = numpyro.sample("x", dist.Normal(0.0, spread))
    return spec(jax.nn.softmax(jnp.stack([x, 0.0])))


REFUSED = {
    "callback": (called_back, "calls back to Python"),
    "random numbers beside a scale": (random_beside_scale, "random numbers that belong to no site"),
    "rows beside a factor": (wrong_rows(lambda: handlers.scale(scale=1.0)), r"sums to 1\.3"),
    "rows beside a scale": (wrong_rows(twice), r"sums to 1\.3"),
    "rows beside a mask": (wrong_rows(hidden), r"sums to 1\.3"),
    "support of another site": (support_of_another, "site 'number' .DiscreteUniform. is discrete"),
    "Poisson": (lambda space: _of_number(space, numpyro.sample("n", dist.Poisson(2.0))), "site 'n' .Poisson. is discr"),
    "geometric": (lambda space: _of_number(space, numpyro.sample("n", dist.Geometric(0.4))), "site 'n' .Geometric"),
    "masked rewards": (_masked_rewards, "reward is a masked law"),
    "a power without integral": (_powered(dist.Beta(0.5, 0.5), 3.0), "site 'x' .Beta. is scaled"),
    "a power of another family": (_powered(dist.Kumaraswamy(2.0, 2.0), 2.0), "site 'x' .Kumaraswamy. is scaled"),
    "a power below another site": (_scaled_below, "site 'x' .Normal. is scaled"),
    "Jacobian's name": (lambda space: numpyro.factor("_x_log_det", 0.0) or of_rows(space), "name of the library's own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_posterior_is_refused(name, key):
    prior, words = REFUSED[name]
    for attempt in (lambda: bm.infer(key, prior, BOTH, space=SPACE), lambda: bm.explain(prior, SPACE)):
        with pytest.raises((ValueError, TypeError), match=words) as refusal:
            attempt()
        assert "\n" not in str(refusal.value)


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["svi", "laplace"])
def test_a_stopped_gradient_is_refused_where_it_misleads(method, key):
    def prior(space):
        x = numpyro.sample("x", dist.Beta(2.0, 3.0))
        y = jax.lax.stop_gradient(x)
        return spec(jnp.stack([y, 1.0 - y]))

    with pytest.raises(ValueError, match="the gradient of its density is not what the density itself shows"):
        bm.infer(key, prior, BOTH, space=SPACE, method=method)


def test_truths_are_not_drawn_from_a_bent_prior(key):
    with pytest.raises(ValueError, match="site 'x': its density is scaled"):
        bm.calibration.sbc(key, row_of(dist.Beta(2.0, 3.0), twice()), SPACE, num_simulations=8)
