"""Policies: draws against their own log-probabilities, masks, ties, quadrature against closed forms."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from bayes_mdp.agents import Boltzmann, EpsilonGreedy, Greedy
from bayes_mdp.agents.common.table_policies import GaussianThompson

Q = np.array([[0.3, 0.7, 0.7, -0.2], [1.0, 0.2, 5.0, 0.9]])
LEGAL = np.array([[True, True, True, True], [True, True, False, True]])
SD = np.array([[0.5, 0.3, 0.2, 1.0], [0.4, 1.5, 1.0, 0.6]])
FACTOR = np.linalg.cholesky(np.einsum("sij,skj->sik", *(2 * [np.random.default_rng(1).normal(size=(2, 4, 4))])))
NUM_DRAWS = 20_000
KEY = jax.random.key(0)

POLICIES = {
    "greedy": lambda key: Greedy(Q, LEGAL),
    "boltzmann": lambda key: Boltzmann(Q, 0.5, LEGAL),
    "epsilon": lambda key: EpsilonGreedy(Q, 0.3, LEGAL),
    "thompson": lambda key: GaussianThompson(Q, SD, legal=LEGAL),
    "held": lambda key: GaussianThompson(Q, SD, legal=LEGAL).hold(key),
    "joint": lambda key: GaussianThompson(Q, factor=FACTOR, legal=LEGAL),
    "steps": lambda key: Boltzmann(np.stack([Q, Q[::-1]]), 0.5),
}


def _frequencies(policy, key, state, step):
    actions = jax.vmap(policy.act, in_axes=(0, None, None))(jax.random.split(key, NUM_DRAWS), state, step)
    return np.bincount(np.asarray(actions), minlength=4) / NUM_DRAWS


@pytest.mark.few(3)
@pytest.mark.parametrize("name", POLICIES)
def test_draws_follow_log_prob(name, key):
    """Each of 4 frequencies within 6 standard deviations (false alarms 1e-8); a shift of .02 in one is detected."""
    policy = POLICIES[name](jax.random.fold_in(key, 1))
    for state in (0, 1):
        probs = np.exp([float(policy.log_prob(state, action, 1)) for action in range(4)])
        allowance = 2e-3 if name == "joint" else 1e-5
        error = 6 * np.sqrt(probs * (1 - probs) / NUM_DRAWS) + allowance
        assert np.all(np.abs(_frequencies(policy, key, state, 1) - probs) <= error)
        assert abs(probs.sum() - 1) < (5e-3 if name == "joint" else 1e-4)


@pytest.mark.parametrize("name", [n for n in POLICIES if n != "steps"])
def test_illegal_actions_have_probability_zero(name, key):
    """Although its q is the largest."""
    assert np.exp(float(POLICIES[name](key).log_prob(1, 2, 0))) == 0


def test_greedy_ties_go_to_the_first():
    """Two equal maxima, and everything equal."""
    assert int(Greedy(Q).act(KEY, 0, 0)) == 1
    assert int(Greedy(np.zeros((1, 20))).act(KEY, 0, 0)) == 0


@pytest.mark.slow
def test_two_actions_are_exact(x64):
    """Thompson with two actions, factored and joint, against the normal distribution function; also far out."""
    mean, sd, rho = np.array([[0.3, 1.1], [-50.0, 0.0]]), np.array([[0.4, 0.9], [1.0, 2.0]]), 0.7
    sd_gap = np.hypot(sd[:, 0], sd[:, 1])
    factored = GaussianThompson(jnp.asarray(mean), jnp.asarray(sd))
    for s in (0, 1):
        assert np.isclose(factored.log_prob(s, 0), norm.logcdf((mean[s, 0] - mean[s, 1]) / sd_gap[s]), rtol=1e-9)
    covariance = np.array([[1.0, rho], [rho, 4.0]])
    joint = GaussianThompson(jnp.asarray(mean[:1]), factor=jnp.linalg.cholesky(covariance)[None])
    expected = norm.logcdf((mean[0, 0] - mean[0, 1]) / np.sqrt(1 + 4 - 2 * rho))
    assert np.isclose(joint.log_prob(0, 0), expected, rtol=1e-9)
    certain = GaussianThompson(jnp.ones((1, 2)), jnp.zeros((1, 2)))
    assert float(certain.log_prob(0, 0)) == 0 and float(certain.log_prob(0, 1)) == -np.inf
    partly = GaussianThompson(jnp.array([[0.0, 0.0, -1.0]]), jnp.array([[0.0, 0.0, 0.1]]))
    assert float(partly.log_prob(0, 0)) == pytest.approx(0.0, abs=1e-6) and float(partly.log_prob(0, 1)) == -np.inf


@pytest.mark.parametrize("narrow", [1.0, 1e-4])
def test_quadrature(narrow, x64):
    """More actions, factored, against adaptive quadrature; also where one action is far better known."""
    mean, sd = np.array([0.1, 0.4, -0.3]), np.array([0.5, 0.8 * narrow, 1.2])
    policy = GaussianThompson(jnp.asarray(mean)[None], jnp.asarray(sd)[None])
    for a in range(3):
        others = [b for b in range(3) if b != a]
        kinks = sorted(x for b in others for c in (-8, 0, 8) if abs(x := (mean[b] + c * sd[b] - mean[a]) / sd[a]) < 9)

        def density(z, a=a, others=others):
            return norm.pdf(z) * np.prod([norm.cdf((mean[a] + sd[a] * z - mean[b]) / sd[b]) for b in others])

        edges = [-9.0, *kinks, 9.0]
        pieces = [quad(density, low, high, epsabs=1e-13)[0] for low, high in pairwise(edges)]
        assert abs(np.exp(float(policy.log_prob(0, a))) - sum(pieces)) < 1e-9


@pytest.mark.slow
def test_joint_lattice(x64):
    """Three correlated actions against the bivariate normal distribution function."""
    covariance = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.4], [0.2, -0.4, 0.5]])
    mean = np.array([0.2, 0.0, 0.3])
    policy = GaussianThompson(jnp.asarray(mean)[None], factor=jnp.linalg.cholesky(covariance)[None])
    for a in range(3):
        others = [b for b in range(3) if b != a]
        contrast = np.array([np.eye(3)[a] - np.eye(3)[b] for b in others])
        variance: Any = contrast @ covariance @ contrast.T
        expected = multivariate_normal.cdf(contrast @ mean, cov=variance)
        assert abs(np.exp(float(policy.log_prob(0, a))) - expected) < 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Boltzmann(Q, 0.0), "temperature is 0.0"),
        (lambda: EpsilonGreedy(Q, 1.5), "epsilon is 1.5"),
        (lambda: Greedy(np.zeros(3)), r"q has shape \(3,\)"),
        (lambda: GaussianThompson(Q), "exactly one"),
        (lambda: GaussianThompson(Q, SD[:1]), r"sd has shape \(1, 4\)"),
    ],
)
def test_bad_input(make, message):
    """One sentence each."""
    with pytest.raises(ValueError, match=message):
        make()


def test_a_table_tells_its_sizes():
    assert (Greedy(jnp.zeros((5, 3, 2))).shape, Greedy(jnp.zeros((3, 2))).shape) == ((5, 3, 2), (3, 2))
    policy = GaussianThompson(jnp.zeros((4, 3, 2)), jnp.ones((4, 3, 2)))
    assert policy.shape == (4, 3, 2)
    # Until 0.4 the attributes of 0.2 work.
    for name, value in {"horizon": 4, "n_states": 3, "n_actions": 2}.items():
        with pytest.warns(FutureWarning, match=f"policy.{name} is .*policy.shape.* since 0.3"):
            assert getattr(policy, name) == value
    with pytest.warns(FutureWarning):
        assert Greedy(jnp.zeros((3, 2))).horizon is None
