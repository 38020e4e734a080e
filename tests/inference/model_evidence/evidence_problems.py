"""Priors whose evidence numpy and scipy know: by quadrature over few hyperparameters, or in closed form.

Two states, two actions, 60 transitions; every truth is log p(next states, rewards | states, actions).
"""

# `numpyro.sample` is typed to return any ArrayLike: too narrow for tests.
# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import transforms
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec

SPACE = StateActionSpace(2, 2)
RNG = np.random.default_rng(3)
STATE, ACTION, NEXT = RNG.integers(2, size=(3, 60))
PAIR = 2 * STATE + ACTION
HEAVY = 0.5 * RNG.standard_t(3, 60) + np.array([0.3, 1.0])[ACTION]
COINS = (RNG.random(60) < np.array([0.2, 0.5, 0.6, 0.9])[PAIR]).astype(float)
EVENTS = RNG.poisson(np.array([0.5, 1.0, 4.0, 2.0])[PAIR]).astype(float)


def data(reward: np.ndarray) -> Transitions:
    """The transitions with these rewards."""
    return Transitions(STATE, ACTION, reward, NEXT)


class Problem(NamedTuple):
    """A prior, data, and what their evidence is.

    Args:
        prior: the program.
        reward: [60].
        method: route by which it is inferred.
        truth: () -> log evidence.
        dimension: unconstrained numbers that chains draw.
    """

    prior: Callable[[StateActionSpace], MDPSpec]
    reward: np.ndarray
    method: str
    truth: Callable[[], float]
    dimension: int


def flat_rows(space: StateActionSpace) -> Any:
    """Rows ~ Dirichlet(1)."""
    with space.plates():
        return numpyro.sample("transition", dist.Dirichlet(jnp.ones(space.n_outcomes)))


def rows_truth() -> float:
    """Of the next states under `flat_rows`: a beta function for each pair."""
    counts = np.zeros((4, 2))
    np.add.at(counts, (PAIR, NEXT), 1.0)
    return float(betaln(1 + counts[:, 0], 1 + counts[:, 1]).sum())


def on_grid(log_density: np.ndarray, cell: float) -> float:
    """The trapezoidal rule for what vanishes at the edges."""
    return float(logsumexp(log_density) + np.log(cell))


# --- collapsed: the probabilities of rewards around an unknown mean, with an unknown strength


def coins(space: StateActionSpace) -> MDPSpec:
    """Hyperparameters in (0, 1) and above 0."""
    mean = numpyro.sample("mean", dist.Uniform(0.0, 1.0))
    strength = numpyro.sample("strength", dist.LogNormal(0.0, 1.0))
    probs = flat_rows(space)
    with space.plates():
        paid = numpyro.sample("paid", dist.Beta(strength * mean, strength * (1 - mean)))
    return MDPSpec(probs, dist.Bernoulli(paid))


def coins_truth() -> float:
    """On a grid of logit(mean) and log(strength)."""
    logit, log_strength = np.meshgrid(np.linspace(-18, 18, 721), np.linspace(-7, 7, 281), indexing="ij")
    mean, strength = 1 / (1 + np.exp(-logit)), np.exp(log_strength)
    total = np.log(mean) + np.log1p(-mean) + stats.norm.logpdf(log_strength)
    for pair in range(4):
        ones = COINS[pair == PAIR].sum()
        zeros = (pair == PAIR).sum() - ones
        one, zero = strength * mean, strength * (1 - mean)
        total = total + betaln(one + ones, zero + zeros) - betaln(one, zero)
    return rows_truth() + on_grid(total, 36 / 720 * 14 / 280)


# --- collapsed: rates of events, gamma with an unknown rate


def events(space: StateActionSpace) -> MDPSpec:
    """The factorials belong to the density."""
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    probs = flat_rows(space)
    with space.plates():
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0 / scale))
    return MDPSpec(probs, dist.Poisson(rate))


def events_truth() -> float:
    """On a line of log(scale)."""
    line = np.linspace(-14, 14, 2801)
    inverse, total = np.exp(-line), np.log(2 / np.pi) + line - np.log1p(np.exp(2 * line))
    for pair in range(4):
        seen = EVENTS[pair == PAIR]
        total = total + gammaln(2 + seen.sum()) + 2 * np.log(inverse) - (2 + seen.sum()) * np.log(inverse + len(seen))
        total = total - gammaln(seen + 1).sum()
    return rows_truth() + on_grid(total, 28 / 2800)


# --- sampled: a conjugate program, by chains all the same


def normal(space: StateActionSpace) -> MDPSpec:
    """Mean rewards Normal(0, 1), of unit noise."""
    probs = flat_rows(space)
    with space.plates():
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    return MDPSpec(probs, dist.Normal(loc, 1.0))


def normal_truth() -> float:
    """A multivariate normal for each pair."""
    sizes = [(pair == PAIR).sum() for pair in range(4)]
    laws = [stats.multivariate_normal(np.zeros(n), np.eye(n) + 1.0) for n in sizes]
    return rows_truth() + float(sum(law.logpdf(HEAVY[pair == PAIR]) for pair, law in enumerate(laws)))


# --- sampled: heavy tails, an interval and a positive scale, which are correlated a posteriori


def student(space: StateActionSpace) -> MDPSpec:
    """No sufficient statistics: the rewards are kept one by one."""
    loc = numpyro.sample("loc", dist.Uniform(-3.0, 3.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    probs = flat_rows(space)
    return MDPSpec(probs, dist.StudentT(3.0, jnp.broadcast_to(loc, space.shape), scale))


def student_truth() -> float:
    """Gauss-Legendre in the location, the trapezoidal rule in the logarithm of the scale."""
    node, weight = np.polynomial.legendre.leggauss(300)
    line = np.linspace(-4.0, 2.5, 301)
    loc, log_scale = np.meshgrid(3 * node, line, indexing="ij")
    total = -np.log(6.0) + stats.halfnorm.logpdf(np.exp(log_scale)) + log_scale
    total = total + sum(stats.t.logpdf(reward, 3.0, loc, np.exp(log_scale)) for reward in HEAVY)
    return rows_truth() + on_grid(total + np.log(3 * weight)[:, None], 6.5 / 300)


# --- sampled: two ordered means


def ordered(space: StateActionSpace) -> MDPSpec:
    """The second action pays more than the first: means of Laplace laws, x and x + exp(y) for normal x and y."""
    base = dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    mean = numpyro.sample("mean", dist.TransformedDistribution(base, transforms.OrderedTransform()))
    probs = flat_rows(space)
    return MDPSpec(probs, dist.Laplace(jnp.broadcast_to(mean, space.shape), 0.7))


def ordered_truth() -> float:
    """On a grid of x and y."""
    x, y = np.meshgrid(np.linspace(-5, 5, 801), np.linspace(-8, 5, 801), indexing="ij")
    total = stats.norm.logpdf(x) + stats.norm.logpdf(y)
    for action, mean in enumerate((x, x + np.exp(y))):
        total = total + sum(stats.laplace.logpdf(reward, mean, 0.7) for reward in HEAVY[action == ACTION])
    return rows_truth() + on_grid(total, 10 / 800 * 13 / 800)


PROBLEMS = {
    "coins": Problem(coins, COINS, "collapsed", coins_truth, 2),
    "events": Problem(events, EVENTS, "collapsed", events_truth, 1),
    "normal": Problem(normal, HEAVY, "nuts", normal_truth, 8),
    "student": Problem(student, HEAVY, "nuts", student_truth, 6),
    "ordered": Problem(ordered, HEAVY, "nuts", ordered_truth, 6),
}
