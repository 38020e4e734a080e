"""Laplace's approximation on a last layer, against scipy's optimiser, quadrature and the Gaussian special case."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize

from bayes_mdp.agents.neural import LastLayer, LastLayerPrior
from bayes_mdp.inference.value import Bernoulli, Gaussian, LastLayerLaplacePrior, LinearGaussianPrior, Poisson
from bayes_mdp.inference.value.last_layer_laplace import LastLayerLaplace, most_probable

D, K, PRIOR = 3, 40, 2.0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(K, D))
ACTION, WEIGHT = RNG.integers(0, 2, K), np.where(np.arange(K) == 7, 0.0, RNG.uniform(0.5, 2, K))
TARGETS = {"bernoulli": (RNG.random(K) < 0.7).astype(float), "poisson": RNG.poisson(np.exp(1 + X[:, 0])).astype(float)}
LIKELIHOODS = {"bernoulli": Bernoulli(), "poisson": Poisson()}
NAMES = pytest.mark.parametrize("name", list(TARGETS))


def arrays(*xs):
    """As jax arrays."""
    return tuple(jnp.asarray(x) for x in xs)


def minus_log_posterior(w, name, x, y, weight):
    """Written out with numpy and scipy alone."""
    eta = x @ w
    each = y * eta - (np.logaddexp(0, eta) if name == "bernoulli" else np.exp(eta))
    return -np.sum(weight * each) + 0.5 * w @ w / PRIOR


def information(name, eta):
    """b'' by hand."""
    return 1 / (2 + 2 * np.cosh(eta)) if name == "bernoulli" else np.exp(eta)


@NAMES
def test_fit_finds_the_mode_and_the_curvature(name, x64):
    """Mode by scipy's BFGS, gradient zero, inverse Hessian by hand; half of b'' (a broken twin) is caught."""
    y = TARGETS[name]
    start = LastLayerLaplacePrior(LIKELIHOODS[name], PRIOR).belief(2, D)
    fit = start.fit(*arrays(X, ACTION, y, WEIGHT), tolerance=1e-10)
    assert np.all(fit.converged)
    assert np.all(np.asarray(fit.iterations) < 15)
    for a in range(2):
        mine = a == ACTION
        rows = name, X[mine], y[mine], WEIGHT[mine]
        found: Any = optimize.minimize(minus_log_posterior, np.zeros(D), rows, tol=1e-10)
        mean = np.asarray(fit.belief.mean[a])
        assert np.allclose(mean, found.x, atol=1e-5)
        assert np.allclose(optimize.approx_fprime(mean, minus_log_posterior, 1e-7, *rows), 0, atol=1e-4)
        weight = WEIGHT[mine] * information(name, X[mine] @ mean)
        inverse = np.linalg.inv(np.eye(D) / PRIOR + (X[mine].T * weight) @ X[mine])
        assert np.allclose(fit.belief.covariance[a], inverse, atol=1e-8)
        broken = np.linalg.inv(np.eye(D) / PRIOR + (X[mine].T * weight / 2) @ X[mine])
        assert not np.allclose(fit.belief.covariance[a], broken, rtol=0.1)


def test_the_error_is_a_bound_and_is_told(x64):
    """After one step of Newton: not converged, and the mode is no farther than `error`."""
    y = TARGETS["poisson"]
    start = LastLayerLaplacePrior(Poisson(), PRIOR).belief(2, D)
    rows = arrays(X, ACTION, y)
    early, late = start.fit(*rows, max_iterations=1), start.fit(*rows, tolerance=1e-10)
    away = np.linalg.norm(np.asarray(early.belief.mean - late.belief.mean), axis=1)
    assert not np.any(early.converged)
    assert np.all(away <= early.error)
    assert np.all(away > 1e-3)
    assert np.all(np.asarray(late.error) < 1e-8)


@NAMES
def test_mean_response_against_quadrature(name, x64):
    """One weight, 400 targets: mean and variance of b'(w) under the true posterior; the delta method is off by O(1/K).

    Within 1 % and 5 %; the variance of w itself, or b'' forgotten, is off by more than half.
    """
    count, total = 400, 300.0
    belief = LastLayerLaplacePrior(LIKELIHOODS[name], PRIOR).belief(1, 1)
    one = jnp.ones((1, 1))
    rows = jnp.ones((2, 1)), jnp.zeros(2, int), jnp.array([1.0, 0.0]), jnp.array([total, count - total])
    belief = belief.fit(*rows).belief
    y, weight = np.array([1.0, 0.0]), np.array([total, count - total])
    mode = float(belief.mean[0, 0])
    top = minus_log_posterior(np.array([mode]), name, np.ones((2, 1)), y, weight)

    def moment(power, shift=0.0):
        def f(w):
            response = 1 / (1 + np.exp(-w)) if name == "bernoulli" else np.exp(w)
            log = top - minus_log_posterior(np.array([w]), name, np.ones((2, 1)), y, weight)
            return (response - shift) ** power * np.exp(log)

        return integrate.quad(f, mode - 1, mode + 1, epsabs=1e-12)[0]

    mass = moment(0)
    mean = moment(1) / mass
    variance = moment(2, mean) / mass
    assert abs(float(belief.value(one)[0, 0]) / mean - 1) < 0.01
    assert abs(float(belief.variance(one)[0, 0]) / variance - 1) < 0.05
    assert abs(float(belief.covariance[0, 0, 0]) / variance - 1) > 0.5


def test_a_gaussian_target_is_linear_gaussian(x64):
    """Fit and update: covariance and mean to rounding."""
    y, noise = X @ np.array([1.0, -1.0, 0.5]) + 0.3, 0.7
    rows = arrays(X, ACTION, y, WEIGHT)
    start = LastLayerLaplacePrior(Gaussian(noise), PRIOR).belief(2, D)
    truth = LinearGaussianPrior(variance=PRIOR / noise, noise_variance=noise).belief(2, D).update(*rows)
    for belief in (start.fit(*rows).belief, start.update(*rows)):
        assert np.allclose(belief.mean, truth.mean, atol=1e-9)
        assert np.allclose(belief.covariance, noise * truth.covariance, atol=1e-9)


@NAMES
def test_online_comes_near_the_mode(name, x64):
    """300 rows in turn: the mean within a posterior standard deviation of the mode, variances within 15 %."""
    x = RNG.normal(size=(300, D)) / 2
    eta = x @ np.array([1.0, -1.0, 0.5])
    y = RNG.random(300) < 1 / (1 + np.exp(-eta)) if name == "bernoulli" else RNG.poisson(np.exp(eta))
    rows = arrays(x, np.zeros(300, int), y.astype(float))
    start = LastLayerLaplacePrior(LIKELIHOODS[name], PRIOR).belief(1, D)
    online, fit = jax.jit(lambda b: (b.update(*rows), b.fit(*rows).belief))(start)
    sd = np.sqrt(np.diagonal(np.asarray(fit.covariance[0])))
    assert np.all(np.abs(np.asarray(online.mean - fit.mean)[0]) < sd)
    assert np.allclose(np.diagonal(np.asarray(online.covariance[0])), sd**2, rtol=0.15)


@pytest.mark.parametrize(
    ("name", "loc", "spread", "target"),
    [
        ("bernoulli", -3.0, 50.0, 1.0),
        ("bernoulli", 0.2, 0.1, 0.0),
        ("poisson", 0.0, 2.0, 40.0),
        ("poisson", 1.0, 1.0, 0.0),
    ],
)
def test_one_target(name, loc, spread, target, x64):
    """The mode of one row against a bracketed root of scipy, to 1e-9."""
    mean = (lambda e: 1 / (1 + np.exp(-e))) if name == "bernoulli" else np.exp
    truth: Any = optimize.brentq(lambda e: e - loc - spread * (target - mean(e)), -200, 60, xtol=1e-12)
    found = most_probable(LIKELIHOODS[name], jnp.asarray(loc), jnp.asarray(spread), jnp.asarray(target))
    assert abs(float(found) - truth) < 1e-9


def test_it_is_a_last_layer(key):
    """It plugs in where `LinearGaussian` does; without targets the variance of phi . w falls, as told by b''(0)."""
    prior = LastLayerLaplacePrior(Bernoulli(), PRIOR, of_response=False)
    belief = prior.belief(2, D)
    assert all(isinstance(made, kind) for made, kind in ((prior, LastLayerPrior), (belief, LastLayer)))
    x = jnp.asarray(X[:1], jnp.float32)
    before, after = belief.variance(x), belief.update(x, jnp.array([1])).variance(x)
    n = float(before[0, 0])
    assert np.allclose(before, np.asarray(belief.initial_variance(x))[:, None])
    assert np.allclose(after, [[n, n / (1 + n / 4)]], rtol=1e-5)
    of_response = LastLayerLaplacePrior(Bernoulli(), PRIOR).belief(2, D)
    assert np.allclose(of_response.variance(x), before / 16)
    assert np.allclose(of_response.initial_variance(x), before[:, 0] / 16)
    assert isinstance(of_response, LastLayerLaplace)
    draws = np.asarray(jax.vmap(of_response.sample)(jax.random.split(key, 20_000)))
    assert np.all(np.abs(draws.reshape(-1, 2 * D).std(0) / np.sqrt(PRIOR) - 1) < 6 / np.sqrt(2 * 20_000))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"features": np.ones((3, 4))}, r"features has shape \(3, 4\), expected \(K, 2\)"),
        ({"action": np.zeros(2, int)}, r"action has shape \(2,\), expected \(3,\)"),
        ({"action": np.array([0, 2, 5])}, r"action\[1\] is 2, expected an action index from 0 to 1"),
        ({"features": np.array([[0, 1], [np.nan, 0], [0, 0]])}, r"features\[1, 0\] is nan, expected a finite number"),
        ({"target": np.array([0, np.inf, 0])}, r"target\[1\] is inf"),
        ({"weight": np.array([0, 1.0, -1.0])}, r"weight\[2\] is -1.0, expected a finite number, zero or greater"),
    ],
)
def test_wrong_rows(change, sentence):
    rows = {"features": jnp.ones((3, 2)), "action": jnp.zeros(3, int), "target": jnp.ones(3)} | change
    with pytest.raises(ValueError, match=sentence):
        LastLayerLaplacePrior(Gaussian()).belief(2, 2).fit(**rows)


def test_wrong_targets():
    """A target that the likelihood cannot give."""
    rows = jnp.ones((2, D)), jnp.zeros(2, int)
    with pytest.raises(ValueError, match=r"target\[1\] is 2.0, expected a number from 0 to 1 \(Bernoulli\)"):
        LastLayerLaplacePrior().belief(2, D).fit(*rows, jnp.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"target\[0\] is -1.0, expected a count"):
        LastLayerLaplacePrior(Poisson()).belief(2, D).fit(*rows, jnp.array([-1.0, 2.0]))
    with pytest.raises(ValueError, match="dispersion is -1"):
        Gaussian(-1)
