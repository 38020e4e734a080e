"""The probability that one of several normal numbers is the largest: quadrature (independent), lattice rule (joint)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from bayes_mdp.numerics.products import matmul
from bayes_mdp.utils.typing import IntScalar

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_KINKS = np.array([-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0])
_RANGE = 8.5
_NUM_POINTS = 1021


def prob_best_factored(mean: Float[Array, " A"], sd: Float[Array, " A"], action: IntScalar) -> Float[Array, ""]:
    """P(argmax = action) of independent normals: int phi(z) prod_b Phi((mean_a + sd_a z - mean_b) / sd_b) dz.

    Gauss-Legendre on pieces that resolve every factor, however narrow. Standard deviations below eps times the largest
    are raised to that. Of the actions with standard deviation zero only the first of the largest mean can win, as in
    `argmax`.

    Args:
        mean: value of each action; -inf where it is illegal.
        sd: standard deviation of each.
        action: index of the action.
    """
    # Ties of actions without variance are decided beforehand: all but the first get mean -inf.
    fixed = sd == 0
    winner = jnp.argmax(jnp.where(fixed, mean, -jnp.inf))
    mean = jnp.where(fixed & (jnp.arange(mean.shape[-1]) != winner), -jnp.inf, mean)
    floor = jnp.maximum(jnp.finfo(mean.dtype).eps * jnp.max(sd), jnp.finfo(mean.dtype).tiny)
    scale = jnp.maximum(sd, floor)
    others = jnp.arange(mean.shape[-1]) != action
    # In units of z, the value of `action`: the factor of b is Phi((z - centre_b) / width_b).
    centre = (mean - mean[action]) / scale[action]
    width = scale / scale[action]
    # The pieces end around the step of every factor (`_KINKS` widths from its centre) and on a coarse grid of z.
    kinks = jnp.where(others[:, None], centre[:, None] + width[:, None] * _KINKS, 0.0).ravel()
    kinks = jnp.where(jnp.isfinite(kinks), kinks, 0.0)
    edges = jnp.sort(jnp.clip(jnp.concatenate([kinks, jnp.linspace(-_RANGE, _RANGE, 13)]), -_RANGE, _RANGE))
    half = 0.5 * jnp.diff(edges)[:, None]
    z = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES
    below = ndtr((z[..., None] - centre) / width)
    density = jnp.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    inside = jnp.sum(half * _WEIGHTS * density * jnp.prod(jnp.where(others, below, 1.0), axis=-1))
    # No variance at all: the answer is 0 or 1. An illegal action (mean -inf) has probability zero.
    certain = (jnp.max(sd) == 0) & (mean[action] > -jnp.inf)
    answer = jnp.where(certain, (jnp.argmax(mean) == action).astype(mean.dtype), inside)
    return jnp.where(mean[action] > -jnp.inf, answer, 0.0)


def prob_best_joint(mean: Float[Array, " A"], factor: Float[Array, "A A"], action: IntScalar) -> Float[Array, ""]:
    """P(argmax = action) of jointly normal numbers with covariance factor factor^T.

    The orthant probability of the differences by Genz's sequential conditioning [GENZ92], on a fixed lattice of 1021
    points with the tent transformation: deterministic, absolute error about 1e-3.

    Args:
        mean: value of each action; -inf where it is illegal.
        factor: a square root of their covariance.
        action: index of the action.
    """
    # `action` is the best where all differences to the others are positive: an orthant of a Gaussian.
    others = jnp.nonzero(jnp.arange(mean.shape[-1]) != action, size=mean.shape[-1] - 1)[0]
    gap = mean[action] - mean[others]
    rows = factor[action] - factor[others]
    # Correlated actions can make the covariance of the differences singular: a small relative jitter.
    jitter = 1e-6 * jnp.sum(rows**2, axis=-1) + jnp.finfo(mean.dtype).tiny
    lower = jnp.linalg.cholesky(matmul(rows, rows.T) + jnp.diag(jitter))
    probability = jnp.mean(
        jax.vmap(_conditioned, in_axes=(None, None, 0))(gap, lower, _lattice(rows.shape[0], mean.dtype))
    )
    return jnp.where(mean[action] > -jnp.inf, probability, 0.0)


def _lattice(dimension: int, dtype: DTypeLike) -> Float[Array, "N D"]:
    """Richtmyer points in the unit cube: multiples of square roots of primes modulo 1, folded by 1 - |2 x - 1|."""
    primes = [p for p in range(2, 8 * dimension + 16) if all(p % q for q in range(2, int(p**0.5) + 1))]
    steps = np.sqrt(np.array(primes[:dimension], float))
    points = np.arange(1, _NUM_POINTS + 1)[:, None] * steps % 1.0
    return jnp.asarray(1.0 - np.abs(2.0 * points - 1.0), dtype)


def _conditioned(gap: Float[Array, " D"], lower: Float[Array, "D D"], u: Float[Array, " D"]) -> Float[Array, ""]:
    """The integrand at one point: prod_i P(y_i < upper_i | earlier y)."""
    tiny = jnp.finfo(gap.dtype).eps
    y, probability = [], jnp.ones((), gap.dtype)
    for i in range(gap.shape[0]):
        shift = gap[i] + sum((lower[i, j] * y[j] for j in range(i)), jnp.zeros((), gap.dtype))
        mass = ndtr(shift / lower[i, i])
        probability = probability * mass
        # Given that the difference is positive, gap + L y > 0: y_i > -shift / L_ii.
        y.append(-ndtri(jnp.clip(u[i] * mass, tiny, 1.0 - tiny)))
    return probability
