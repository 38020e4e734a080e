"""A generator of programs that branch on latent sites, and their posteriors by an independent route.

A program has two states and one action, a Dirichlet row or two, a mean reward, and one or two latent sites above them:
Bernoulli (also rare ones), categorical, normal, log-normal. The sites enter rows, mean rewards, the noise, ends, the
support, the layout of the table, or the parameters of leaves, through `where`, `cond`, `switch`, gather, dynamic slice,
`select_n`, arithmetic, a loop, a threshold that no prior draw passes, or smoothly.

The oracle knows nothing of NumPyro, JAX or detection: for each value of the hidden sites on a grid (all values of a
discrete one, Gauss-Legendre panels split at the thresholds for a continuous one) the row that is used is Dirichlet and
the mean reward is normal, both integrated in closed form by the formulas below; sums over the grid give the posterior
means.
"""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportReturnType=false, reportAttributeAccessIssue=false
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats
from scipy.special import gammaln

from bayes_mdp.mdp import StateActionSpace, Transitions
from bayes_mdp.models import MDPSpec

SPACE = StateActionSpace(2, 1)
OUTCOMES = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0])
REWARDS = np.array([1.1, 0.4, 2.0, 0.9, 1.6, 1.2, 0.3, 1.8, 0.7, 1.4, 1.0, 0.8])
DATA = Transitions(np.zeros(12, int), np.zeros(12, int), REWARDS, OUTCOMES)
KNOWN = np.array([0.9, 0.1])
NOISE = 0.5


@dataclass(frozen=True)
class Hidden:
    """A latent site: how a program draws it, and the nodes and weights that stand for it."""

    draw: Callable[[], Any]
    nodes: np.ndarray
    weights: np.ndarray


def _discrete(law: Any, probs: Any) -> Hidden:
    return Hidden(lambda: law, np.arange(len(probs)), np.asarray(probs))


def _panels(law: Any, frozen: Any, ends: tuple[float, ...]) -> Hidden:
    x, w = np.polynomial.legendre.leggauss(60)
    nodes = np.concatenate([0.5 * (b - a) * x + 0.5 * (a + b) for a, b in pairwise(ends)])
    weights = np.concatenate([0.5 * (b - a) * w for a, b in pairwise(ends)])
    return Hidden(lambda: law, nodes, weights * frozen.pdf(nodes))


HIDDEN = {
    "rare": _discrete(dist.Bernoulli(0.02), (0.98, 0.02)),
    "coin": _discrete(dist.Bernoulli(0.3), (0.7, 0.3)),
    "never": _discrete(dist.Bernoulli(1e-6), (1.0 - 1e-6, 1e-6)),
    "kind": _discrete(dist.Categorical(np.array([0.5, 0.3, 0.2])), (0.5, 0.3, 0.2)),
    "whole": _discrete(dist.DiscreteUniform(0, 2), (1 / 3, 1 / 3, 1 / 3)),
    "normal": _panels(dist.Normal(0.0, 1.0), stats.norm(), (-8.0, -1.0, 0.5, 2.05, 4.0, 8.0)),
    "scale": _panels(dist.LogNormal(0.0, 0.5), stats.lognorm(0.5), (1e-9, 0.5, 1.5, 2.05, 4.0, 20.0)),
}
CONTINUOUS = ("normal", "scale")
CUTS = (0.5, 2.05, 4.0)

# How a program looks at its hidden site: to 0 or 1 (both are written out, for JAX and for the oracle).
SIGNALS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "is one": (lambda h: (h == 1).astype(int), lambda h: (h == 1).astype(int)),
    "positive": (lambda h: (h > 0).astype(int), lambda h: (h > 0).astype(int)),
    **{
        f"above {cut}": (lambda h, cut=cut: (h > cut).astype(int), lambda h, cut=cut: (h > cut).astype(int))
        for cut in CUTS
    },
    "search": (
        lambda h: jnp.minimum(jnp.searchsorted(jnp.array([0.5, 50.0]), h * 1.0), 1),
        lambda h: (h > 0.5).astype(int),
    ),
}

# How a program chooses between two arrays by a signal.
CHOICES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "where": lambda s, one, zero: jnp.where(s == 1, one, zero),
    "cond": lambda s, one, zero: jax.lax.cond(s == 1, lambda: one, lambda: zero),
    "switch": lambda s, one, zero: jax.lax.switch(s, [lambda: zero, lambda: one]),
    "gather": lambda s, one, zero: jnp.stack([zero, one])[s],
    "take": lambda s, one, zero: jnp.take(jnp.stack([zero, one]), s, axis=0),
    "arithmetic": lambda s, one, zero: s * one + (1 - s) * zero,
    "dynamic slice": lambda s, one, zero: jax.lax.dynamic_index_in_dim(jnp.stack([zero, one]), s, 0, keepdims=False),
    "select_n": lambda s, one, zero: jax.lax.select_n(jnp.broadcast_to(s == 1, jnp.shape(one)), zero, one),
    "one hot": lambda s, one, zero: jnp.einsum("k,k...->...", jax.nn.one_hot(s, 2), jnp.stack([zero, one])),
    "loop": lambda s, one, zero: jax.lax.fori_loop(0, s, lambda i, x: one, zero),
    "scan": lambda s, one, zero: jax.lax.scan(lambda x, i: (jnp.where(s == i, one, x), None), zero, jnp.arange(1, 2))[
        0
    ],
    "while": lambda s, one, zero: jax.lax.while_loop(lambda c: c[0] < s, lambda c: (c[0] + 1, one), (0, zero))[1],
    "cell": lambda s, one, zero: jnp.stack([zero, zero]).at[s].set(one)[1],
    "jit": lambda s, one, zero: jax.jit(jnp.where)(s == 1, one, zero),
    "vmap": lambda s, one, zero: jax.vmap(lambda a, b: jnp.where(s == 1, a, b))(one, zero),
}

# What the signal changes. (rows used, known row, shift of the mean, noise, concentration, prior mean)
PLACES = (
    "rows",
    "rows reversed",
    "known row",
    "tie",
    "mean shifted",
    "mean of another site",
    "mean capped",
    "noise",
    "concentration",
    "prior mean",
    "nothing",
)


@dataclass(frozen=True)
class Branching:
    """One program with what its oracle needs."""

    hidden: tuple[str, ...]
    signal: str
    choice: str
    place: str

    def __call__(self, space: StateActionSpace) -> MDPSpec:
        hidden = [numpyro.sample(f"hidden{i}", HIDDEN[name].draw()) for i, name in enumerate(self.hidden)]
        looks = [SIGNALS[self.signal][0](h) for h in hidden]
        s = looks[0] if len(looks) == 1 else looks[0] * looks[1]

        def choose(one: Any, zero: Any) -> Any:
            return CHOICES[self.choice](s, jnp.asarray(one), jnp.asarray(zero))

        place = self.place
        ones = jnp.ones((2, 1, 2))
        concentration = choose(5.0 * ones, ones) if place == "concentration" else ones
        with space.plates():
            first = numpyro.sample("first", dist.Dirichlet(concentration))
            second = numpyro.sample("second", dist.Dirichlet(4.0 * ones))
            centre = choose(2.0 * ones[..., 0], 0.0 * ones[..., 0]) if place == "prior mean" else 0.0
            mean = numpyro.sample("mean", dist.Normal(centre, 1.0))
            other = numpyro.sample("other", dist.Normal(1.0, 0.2))
        rows, noise = first, NOISE
        if place == "rows":
            rows = choose(second, first)
        elif place == "rows reversed":
            rows = choose(first[..., ::-1] * 1.0, second)
        elif place == "known row":
            rows = choose(jnp.broadcast_to(KNOWN, (2, 1, 2)), first)
        elif place == "tie":
            rows = choose(jnp.broadcast_to(first[:1], (2, 1, 2)), first)
        loc = mean
        if place == "mean shifted":
            loc = choose(mean + 1.0, mean)
        elif place == "mean of another site":
            loc = choose(other, mean)
        elif place == "mean capped":
            loc = jnp.minimum(mean, 30.0) if self.choice in ("where", "cond") else choose(jnp.minimum(mean, 30.0), mean)
        elif place == "noise":
            noise = choose(2.0 * ones[..., 0], NOISE * ones[..., 0])
        return MDPSpec(rows, dist.Normal(loc, noise))

    def truth(self) -> dict[str, float]:
        """Posterior means of P(0 | 0), of the mean reward of state 0, and of the signal; and the log evidence."""
        grids = [HIDDEN[name] for name in self.hidden]
        log_weight, probs, rewards, signal = [], [], [], []
        for at in product(*(range(len(grid.nodes)) for grid in grids)):
            values = [grid.nodes[i] for grid, i in zip(grids, at, strict=True)]
            s = int(np.prod([SIGNALS[self.signal][1](np.asarray(value)) for value in values]))
            prior = np.prod([grid.weights[i] for grid, i in zip(grids, at, strict=True)])
            evidence, p, r = _conditional(self.place, s)
            with np.errstate(divide="ignore"):
                log_weight.append(np.log(prior) + evidence)
            probs.append(p)
            rewards.append(r)
            signal.append(s)
        log_weight = np.array(log_weight)
        total = np.logaddexp.reduce(log_weight)
        weight = np.exp(log_weight - total)
        found = {"prob": weight @ probs, "reward": weight @ rewards, "signal": weight @ signal, "evidence": total}
        return {name: float(value) for name, value in found.items()}


def _conditional(place: str, s: int) -> tuple[float, float, float]:
    """Log evidence, posterior mean of P(0 | 0) and of the mean reward, given the signal. By hand."""
    zeros, ones = int((OUTCOMES == 0).sum()), int((OUTCOMES == 1).sum())
    alpha = 5.0 if place == "concentration" and s else 1.0
    if (place == "rows" and s) or (place == "rows reversed" and not s):
        alpha = 4.0
    evidence = gammaln(2 * alpha) - gammaln(2 * alpha + zeros + ones) - 2 * gammaln(alpha)
    evidence += gammaln(alpha + zeros) + gammaln(alpha + ones)
    prob = (alpha + zeros) / (2 * alpha + zeros + ones)
    if place == "known row" and s:
        evidence, prob = zeros * np.log(KNOWN[0]) + ones * np.log(KNOWN[1]), KNOWN[0]
    centre, scale, shift = 0.0, 1.0, 0.0
    if place == "prior mean" and s:
        centre = 2.0
    if place == "mean shifted" and s:
        shift = 1.0
    if place == "mean of another site" and s:
        centre, scale = 1.0, 0.2
    noise = 2.0 if place == "noise" and s else NOISE
    covariance = noise**2 * np.eye(len(REWARDS)) + scale**2
    evidence += stats.multivariate_normal(np.full(len(REWARDS), centre + shift), covariance).logpdf(REWARDS)
    precision = 1 / scale**2 + len(REWARDS) / noise**2
    mean = (centre / scale**2 + (REWARDS - shift).sum() / noise**2) / precision + shift
    return float(evidence), float(prob), float(mean)


def programs(num: int, seed: int) -> list[Branching]:
    """`num` different programs."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < num:
        hidden = tuple(rng.choice(list(HIDDEN), size=2 if rng.random() < 0.25 else 1))
        if sum(name in CONTINUOUS for name in hidden) == 2:
            continue
        one = Branching(
            tuple(map(str, hidden)),
            str(rng.choice(list(SIGNALS))),
            str(rng.choice(list(CHOICES))),
            str(rng.choice(PLACES)),
        )
        found[one] = None
    return list(found)
