"""Every conjugate form of a reward law in three styles of NumPyro, with its evidence by an independent route.

A space of two states and two actions, rows that are known. The styles: plates; shapes given to `expand` and `to_event`;
sites for each action, stacked. The evidence is a product of predictive densities (scipy), one reward after the other.
"""

# pyright: reportIndexIssue=false, reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import betaln

import bayes_mdp as bm
from bayes_mdp.models import MDPSpec, NormalGamma

SPACE = bm.StateActionSpace(2, 2)
FEATURES = np.random.default_rng(3).normal(size=(2, 2, 3))
STYLES = ("plates", "shapes", "stacked")


def site(style, name, law):
    """One draw of `law` for each pair, [2 2] before its own event axes, in a style."""
    if style == "plates":
        with SPACE.plates():
            return numpyro.sample(name, law)
    if style == "shapes":
        return numpyro.sample(name, law.expand((2, 2)).to_event(2))
    with numpyro.plate("places", 2):
        parts = [numpyro.sample(f"{name}{a}", law) for a in range(2)]
    return jnp.stack(parts, axis=1)


class Form(NamedTuple):
    """A reward law: (style) -> law; rewards that it can give; (state, action, reward) -> log evidence."""

    law: Callable
    rewards: Callable
    evidence: Callable


def by_pair(predictive):
    """The evidence of independent pairs: (past rewards, reward) -> log predictive density, one after the other."""

    def evidence(state, action, reward):
        total = 0.0
        for pair in np.ndindex(2, 2):
            own = reward[(state == pair[0]) & (action == pair[1])]
            total += sum(predictive(own[:i], own[i]) for i in range(len(own)))
        return total

    return evidence


def normal_predictive(loc, scale, noise):
    """Of r = x + noise, x ~ Normal(loc, scale)."""

    def predictive(past, r):
        precision = scale**-2 + len(past) * noise**-2
        mean = (loc * scale**-2 + past.sum() * noise**-2) / precision
        return stats.norm.logpdf(r, mean, np.sqrt(1 / precision + noise**2))

    return predictive


def student_predictive(loc, count, a, b, past, r):
    """Of a normal-gamma belief."""
    n = len(past)
    mean = past.mean() if n else 0.0
    k, alpha = count + n, a + n / 2
    beta = b + 0.5 * ((past - mean) ** 2).sum() + 0.5 * count * n * (mean - loc) ** 2 / (count + n)
    at = (count * loc + n * mean) / k
    return stats.t.logpdf(r, 2 * alpha, at, np.sqrt(beta * (k + 1) / (alpha * k)))


def _categories(past, r):
    counts = np.array([1.0, 2.0, 3.0]) + np.bincount(past.astype(int), minlength=3)
    return np.log(counts[int(r)] / counts.sum())


def _geometric(past, r):
    a, b = 3.0 + len(past), 2.0 + past.sum()
    return betaln(a + 1, b + r) - betaln(a, b)


def _pairs(style):
    tau = site(style, "tau", dist.Gamma(3.0, 2.0))
    if style == "stacked":
        with numpyro.plate("places", 2):
            means = [numpyro.sample(f"m{a}", dist.Normal(0.5, (2.0 * tau[:, a]) ** -0.5)) for a in range(2)]
        mean = jnp.stack(means, axis=1)
    elif style == "shapes":
        mean = numpyro.sample("m", dist.Normal(0.5, (2.0 * tau) ** -0.5).to_event(2))
    else:
        with SPACE.plates():
            mean = numpyro.sample("m", dist.Normal(0.5, (2.0 * tau) ** -0.5))
    return mean, tau


def _weights(style, scale):
    if style == "plates":
        with numpyro.plate("features", 3):
            return numpyro.sample("w", dist.Normal(0.2, scale))
    if style == "shapes":
        return numpyro.sample("w", dist.Normal(0.2, scale).expand((3,)).to_event(1))
    return jnp.stack([numpyro.sample(f"w{i}", dist.Normal(0.2, scale)) for i in range(3)])


def _linear(style, weights):
    if style == "plates":
        return FEATURES @ weights
    if style == "shapes":
        return jnp.einsum("saf,f->sa", FEATURES, weights)
    return sum(FEATURES[..., i] * weights[i] for i in range(3))


def _regression(style):
    return dist.Normal(_linear(style, _weights(style, 0.7)) + 0.3, jnp.array([[0.5, 1.0], [1.5, 0.5]]))


def _regression_evidence(state, action, reward):
    x = FEATURES[state, action]
    noise = np.array([[0.5, 1.0], [1.5, 0.5]])[state, action]
    return stats.multivariate_normal.logpdf(reward, 0.3 + x.sum(-1) * 0.2, 0.49 * x @ x.T + np.diag(noise**2))


def _regression_tau(style):
    tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
    return dist.Normal(_linear(style, _weights(style, (2.0 * tau) ** -0.5)), tau**-0.5)


def _regression_tau_evidence(state, action, reward):
    x = FEATURES[state, action]
    shape = 2.0 / 3.0 * (np.eye(len(reward)) + 0.5 * x @ x.T)
    return stats.multivariate_t.logpdf(reward, x.sum(-1) * 0.2, shape, 6.0)


def _partly(style):
    mean = site(style, "m", dist.Normal(0.0, 1.0))
    if style == "plates":
        mean = mean.at[0].set(1.5)
    elif style == "shapes":
        mean = jnp.where(np.arange(2)[:, None] == 0, 1.5, mean)
    else:
        mean = mean * np.array([[0.0], [1.0]]) + np.array([[1.5], [0.0]])
    return dist.Normal(mean, 0.5)


def _partly_evidence(state, action, reward):
    known = state == 0
    return stats.norm.logpdf(reward[known], 1.5, 0.5).sum() + by_pair(normal_predictive(0.0, 1.0, 0.5))(
        state[~known], action[~known], reward[~known]
    )


def _logits(style, name):
    p = site(style, name, dist.Beta(3.0, 2.0))
    return p, jnp.log(p) - jnp.log1p(-p)


def _binomial(style):
    p, logits = _logits(style, "p")
    return dist.Binomial(5, logits=logits) if style == "shapes" else dist.Binomial(5, p)


def _geometric_law(style):
    p, logits = _logits(style, "p")
    return dist.Geometric(logits=logits) if style == "shapes" else dist.Geometric(p)


def _affine(style):
    mean = site(style, "m", dist.Normal(0.2, 1.0))
    return dist.Normal({"plates": 2 * mean + 1, "shapes": 1 - (-2.0) * mean, "stacked": (mean + 0.5) / 0.5}[style], 0.5)


def _affine_pairs(style):
    mean, tau = _pairs(style)
    return dist.Normal(1.0 - 2.0 * mean, tau**-0.5)


def _affine_pairs_predictive(past, r):
    # r = 1 - 2 m + noise: mean 1 - 2 * 0.5, of weight 2 / 4.
    return student_predictive(0.0, 0.5, 3.0, 2.0, past, r)


def _joint(style):
    reward = site(style, "reward", NormalGamma(0.5, 2.0, 3.0, 2.0))
    return dist.LogNormal(reward[..., 0], reward[..., 1] ** -0.5)


FORMS = {
    "fixed": Form(
        lambda style: {
            "plates": dist.Normal(0.5, 1.0),
            "shapes": dist.Normal(0.5, 1.0).expand((2, 2)),
            "stacked": dist.Normal(jnp.full((2, 1), 0.5), 1.0),
        }[style],
        lambda rng, n: rng.normal(size=n),
        lambda state, action, reward: stats.norm.logpdf(reward, 0.5, 1.0).sum(),
    ),
    "exponential": Form(
        lambda style: dist.Exponential(site(style, "rate", dist.Gamma(3.0, 2.0))),
        lambda rng, n: rng.gamma(2.0, size=n),
        by_pair(lambda past, r: stats.lomax.logpdf(r, 3.0 + len(past), scale=2.0 + past.sum())),
    ),
    "binomial": Form(
        _binomial,
        lambda rng, n: rng.integers(0, 6, size=n).astype(float),
        by_pair(lambda past, r: stats.betabinom.logpmf(r, 5, 3.0 + past.sum(), 2.0 + 5 * len(past) - past.sum())),
    ),
    "geometric": Form(_geometric_law, lambda rng, n: rng.poisson(2.0, size=n).astype(float), by_pair(_geometric)),
    "categorical": Form(
        lambda style: dist.Categorical(site(style, "p", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))),
        lambda rng, n: rng.integers(0, 3, size=n).astype(float),
        by_pair(_categories),
    ),
    "log-normal": Form(
        lambda style: dist.LogNormal(site(style, "m", dist.Normal(0.2, 1.0)), 0.5),
        lambda rng, n: rng.gamma(2.0, size=n),
        by_pair(lambda past, r: normal_predictive(0.2, 1.0, 0.5)(np.log(past), np.log(r)) - np.log(r)),
    ),
    "log-normal, noise unknown": Form(
        _joint,
        lambda rng, n: rng.gamma(2.0, size=n),
        by_pair(lambda past, r: student_predictive(0.5, 2.0, 3.0, 2.0, np.log(past), np.log(r)) - np.log(r)),
    ),
    "precision": Form(
        lambda style: dist.Normal(0.5, site(style, "tau", dist.Gamma(3.0, 2.0)) ** -0.5),
        lambda rng, n: rng.normal(size=n),
        by_pair(
            lambda past, r: stats.t.logpdf(
                r,
                6.0 + len(past),
                0.5,
                np.sqrt((2.0 + 0.5 * ((past - 0.5) ** 2).sum()) / (3.0 + 0.5 * len(past))),
            )
        ),
    ),
    "affine": Form(
        _affine,
        lambda rng, n: rng.normal(size=n),
        by_pair(normal_predictive(1.4, 2.0, 0.5)),
    ),
    "affine, noise unknown": Form(_affine_pairs, lambda rng, n: rng.normal(size=n), by_pair(_affine_pairs_predictive)),
    "regression": Form(_regression, lambda rng, n: rng.normal(size=n), _regression_evidence),
    "regression, noise unknown": Form(_regression_tau, lambda rng, n: rng.normal(size=n), _regression_tau_evidence),
    "partly known": Form(_partly, lambda rng, n: rng.normal(size=n), _partly_evidence),
}


def program(name, style):
    """A prior with known rows and this reward law."""
    return lambda space: MDPSpec(jnp.full(2, 0.5), FORMS[name].law(style))


def _move(style):
    p = site(style, "advance", dist.Beta(2.0, 1.0))
    if style == "plates":
        return jnp.stack([jnp.stack([1 - p[0], p[0]], -1), jnp.stack([p[1] * 0.0, p[1] + (1 - p[1])], -1)])
    if style == "shapes":
        rows = jnp.zeros((2, 2, 2)).at[0, :, 1].set(p[0]).at[0, :, 0].set(1 - p[0])
        return rows.at[1, :, 1].add(p[1]).at[1, :, 1].add(1.0 - p[1])
    ahead, here = np.array([[0.0, 1.0], [0.0, 1.0]]), np.eye(2)
    return p[..., None] * ahead[:, None] + (1 - p)[..., None] * here[:, None]


def advance(style):
    """Advance to the second state or stay, where one cannot advance further; rewards are known."""
    return lambda space: MDPSpec(_move(style), jnp.zeros(()))


def advance_evidence(state, action, next_state):
    """Beta-Bernoulli sequences of state 0."""
    total = 0.0
    for a in range(2):
        own = next_state[(state == 0) & (action == a)]
        total += betaln(2.0 + own.sum(), 1.0 + (1 - own).sum()) - betaln(2.0, 1.0)
    return total


__all__ = ["FORMS", "SPACE", "STYLES", "advance", "advance_evidence", "program"]
