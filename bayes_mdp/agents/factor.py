"""Joint Gaussian draws of the actions of a state: a factor of a covariance that may be singular, without LAPACK."""

from typing import Any, Protocol

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from bayes_mdp.agents.policies import GaussianThompson
from bayes_mdp.agents.thompson import gaussian_policy
from bayes_mdp.mdp import Problem


class Thompson(Protocol):
    """The options of an agent that `correlated_policy` reads."""

    joint: bool
    scale: float | Array
    noise: str


def semidefinite_factor(covariance: Float[Array, "*B A A"]) -> Float[Array, "*B A A"]:
    """Lower triangular L with L L' = `covariance`, which is symmetric and positive semidefinite up to rounding.

    Cholesky's recursion in which a pivot that is zero to within rounding gives a column of zeros: the exact factor of a
    singular covariance, where `jnp.linalg.cholesky` answers nan. No jitter: what has no noise keeps none.
    """
    size = covariance.shape[-1]
    rows = jnp.arange(size)
    scale = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    floor = 8 * size * float(jnp.finfo(covariance.dtype).eps) * scale

    def body(k: Any, state: Any) -> Any:
        rest, factor = state
        column = jnp.where(rows >= k, rest[..., k], 0.0)
        pivot = column[..., k]
        positive = pivot > floor[..., k]
        column = column / jnp.sqrt(jnp.where(positive, pivot, 1.0))[..., None]
        # No entry of a column exceeds the standard deviation of its row, whatever rounding did to the pivot.
        bound = jnp.sqrt(jnp.maximum(scale, 0.0))
        column = jnp.where(positive[..., None], jnp.clip(column, -bound, bound), 0.0)
        rest = rest - column[..., :, None] * column[..., None, :]
        return rest, factor.at[..., k].set(column)

    return lax.fori_loop(0, size, body, (covariance, jnp.zeros_like(covariance)))[1]


def correlated_policy(
    key: PRNGKeyArray,
    mean: Float[Array, "*H S A"],
    covariance: Float[Array, "*H S A A"],
    problem: Problem,
    agent: Thompson,
) -> GaussianThompson:
    """Gaussian Thompson sampling with the covariances between the actions of a state (`joint`), or without."""
    if agent.joint:
        factor = agent.scale * semidefinite_factor(covariance)
        return gaussian_policy(key, mean, None, problem, agent.noise, factor=factor)
    sd = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    return gaussian_policy(key, mean, agent.scale * sd, problem, agent.noise)
