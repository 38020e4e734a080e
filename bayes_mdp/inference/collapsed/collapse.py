"""The marginal model: a prior program with its conjugate sites integrated out, as NumPyro's kernels get it.

log p(h, data) = log p(h) + log evidence of the conjugate sites given h, for hyperparameters h: Dirichlet-multinomial
rows, normal-gamma and other conjugate marginals. The density of h stays NumPyro's own.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpyro
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer.util import log_density

from bayes_mdp.inference.collapsed.compression import Grouped
from bayes_mdp.inference.collapsed.hierarchy import Hierarchy
from bayes_mdp.inference.collapsed.hyper_prior import hyperparameters_alone
from bayes_mdp.inference.conjugate.conjugate_posterior import ConjugatePosterior
from bayes_mdp.inference.integrals.unconstrained_model import Values
from bayes_mdp.models.tracing import traced_alone

EVIDENCE = "collapsed_evidence"


def collapsed_model(hierarchy: Hierarchy) -> Callable[[ConjugatePosterior | Grouped], None]:
    """The NumPyro model `model(data_statistics)` of the hyperparameters alone, given the statistics of the data."""

    def model(data_statistics: ConjugatePosterior | Grouped) -> None:
        numpyro.factor(
            EVIDENCE,
            log_evidence(
                hierarchy, hyperparameters_alone(hierarchy.program, hierarchy.hyperparameters), data_statistics
            ),
        )

    return model


def log_evidence(
    hierarchy: Hierarchy, values: Values, data_statistics: ConjugatePosterior | Grouped
) -> Float[Array, ""]:
    """log p(data of `data_statistics` | hyperparameters), the conjugate sites integrated out."""
    if isinstance(data_statistics, Grouped):
        return data_statistics.log_evidence(hierarchy.given(values, data_statistics.data_statistics))
    return jnp.asarray(hierarchy.given(values, data_statistics).log_evidence)


@traced_alone
def log_collapsed(hierarchy: Hierarchy, values: Values, data_statistics: ConjugatePosterior) -> Float[Array, ""]:
    """log p(hyperparameters, data), for values in their own supports (no Jacobian)."""
    return jnp.asarray(
        log_density(handlers.seed(collapsed_model(hierarchy), 0), (data_statistics,), {}, dict(values))[0]
    )
