"""`Integration`: how an integral was taken, and how far it may be off, beside the posterior that rests on it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayes_mdp.utils.typing import AnyArray


class Integration(eqx.Module):
    """How hyperparameters, or what is behind the rewards, were integrated over, and how well.

    Args:
        log_evidence: of all data.
        error: "quadrature": its change by the last halving of the grid's spacing; "importance": its standard error.
            nan: the weights have changed since.
        effective: number of independent draws that the weights are worth; of a grid the number of its nodes.
        pareto_k: shape of the tail of the weights, below .5; of a grid minus infinity.
        numbers: continuous numbers that were integrated over.
    """

    log_evidence: Float[AnyArray, ""]
    error: Float[AnyArray, ""]
    effective: Float[AnyArray, ""]
    pareto_k: Float[AnyArray, ""]
    numbers: int = eqx.field(static=True)

    def after(self, before: Float[AnyArray, " K"], after: Float[AnyArray, " K"]) -> "Integration":
        """The integral after new data, by the weights that it has: its error is no longer known. Traceable.

        Args:
            before, after: the log weights, without any shift between them.
        """
        gain = jax.nn.logsumexp(jnp.asarray(after)) - jax.nn.logsumexp(jnp.asarray(before))
        unknown = jnp.full_like(jnp.asarray(self.error), jnp.nan)
        return replace(self, log_evidence=jnp.asarray(self.log_evidence) + gain, error=unknown)


def integration_of(log_evidence: float, error: float, effective: float, pareto_k: float, numbers: int) -> Integration:
    """The record of an integral; the arguments are its fields."""
    evidence, deviation, worth, k = (np.asarray(x, np.float64) for x in (log_evidence, error, effective, pareto_k))
    return Integration(evidence, deviation, worth, k, numbers)
