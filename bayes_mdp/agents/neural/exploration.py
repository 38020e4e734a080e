"""Which action is taken where values are known for E environments: epsilon-greedy, and the schedule of epsilon."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Epsilon(eqx.Module):
    """A linear schedule.

    Args:
        start, end: first and last value.
        steps: environment steps from one to the other.
    """

    start: Any = 1.0
    end: Any = 0.05
    steps: Any = 250_000

    def at(self, step: Any) -> Float[Array, ""]:
        """Its value after this many environment steps."""
        share = jnp.clip(step / self.steps, 0.0, 1.0)
        return self.start + share * (self.end - self.start)


def epsilon_greedy(key: PRNGKeyArray, q: Float[Array, "E A"], epsilon: Any) -> Int[Array, " E"]:
    """The best action, or with probability epsilon one drawn uniformly from all."""
    num_envs, n_actions = q.shape
    u = jax.random.uniform(key, (2, num_envs))
    drawn = jnp.minimum((u[0] * n_actions).astype(jnp.int32), n_actions - 1)
    return jnp.where(u[1] < epsilon, drawn, jnp.argmax(q, 1).astype(jnp.int32))
